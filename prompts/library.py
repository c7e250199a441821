"""The library of templates: the package's, a folder of your own over them, and a tenant's over both.

    DIR/answer/v2.md                  a version: the newest is used
    DIR/answer/brief.md               an answer template that requests choose by its name, "answer/brief"
    DIR/tenants/acme/answer/v1.md     for the tenant acme alone

All files are read and checked once, at start, so a request never leads to a path.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import unquote

from prompts.template import BadTemplate, PromptTemplate, parse_template

ANSWER = "answer"
"""The stage whose templates a request may choose by name."""
_TENANTS = "tenants"
_NEEDED = frozenset({"question", "passages", "sentences", "turns", "fence"})
"""Inputs that every template of a stage must use if the stage has them: its content, and the marks around it."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_VERSION = re.compile(r"v\d{1,6}")
_LONGEST = 100_000

Layer = Mapping[str, PromptTemplate]
"""Templates by name."""


@dataclass(frozen=True, slots=True)
class TemplateLibrary:
    """Templates in layers; the first layer that has a template for a stage is used.

    Args:
        layers: topmost layer first.
        tenants: each tenant's own layer, by tenant.
    """

    layers: tuple[Layer, ...]
    tenants: Mapping[str, Layer] = field(default_factory=dict)

    def for_tenant(self, tenant: str) -> "TemplateLibrary":
        """Return the library of a tenant: its own layer over all others."""
        own = self.tenants.get(tenant)
        return (
            TemplateLibrary((own, *self.layers)) if own else self if not self.tenants else TemplateLibrary(self.layers)
        )

    def load(self, name: str) -> PromptTemplate:
        """Return the template "STAGE/VERSION", or for "STAGE" its newest version in the first layer that has one.

        Raises:
            BadTemplate: there is no such template; the message lists the existing ones.
        """
        for layer in self.layers:
            if name in layer:
                return layer[name]
            versions = [one for one in layer if one.rpartition("/")[0] == name and _is_version(one)]
            if versions:
                return layer[max(versions, key=_version_number)]
        known = self.names()
        raise BadTemplate(f'there is no prompt template "{name[:40]}"; there are: {", ".join(known)}', known)

    def answer_template(self, name: str | None) -> PromptTemplate:
        """Return the template for an answer.

        Args:
            name: "answer/v1" or "answer/NAME", as a request gives it; None for the newest version.
        Raises:
            BadTemplate: it is not the name of an answer template; the message lists those.
        """
        valid = self.names(ANSWER)
        if name is not None and name not in (ANSWER, *valid):
            raise BadTemplate(f'there is no answer template "{name[:80]}"; there are: {", ".join(valid)}', valid)
        return self.load(name or ANSWER)

    def names(self, stage: str | None = None) -> list[str]:
        """Return the names of all templates, "STAGE/VERSION", of one stage or of all."""
        known = {name for layer in self.layers for name in layer}
        return sorted(name for name in known if stage is None or name.rpartition("/")[0] == stage)


@cache
def packaged_templates() -> TemplateLibrary:
    """Return the templates of the package alone."""
    stages = [stage for stage in files("prompts").iterdir() if stage.is_dir() and not stage.name.startswith("_")]
    found = [(f"{stage.name}/{file.name[:-3]}", file) for stage in stages for file in stage.iterdir()]
    return TemplateLibrary(({name: parse_template(name, _text(file)) for name, file in found if _is_version(name)},))


def open_library(folder: Path | None) -> TemplateLibrary:
    """Return the templates of a folder over those of the package; only the package's if `folder` is None.

    Raises:
        BadTemplate: the folder or a file in it cannot be used; the message says which, why, and what is valid.
    """
    library = packaged_templates()
    if folder is None:
        return library
    stages = {name.rpartition("/")[0] for name in library.names()}
    standards = {stage: library.load(stage) for stage in stages}
    folder = folder.expanduser()
    own = dict(_templates(folder, standards, beside=_TENANTS))
    tenants: dict[str, Layer] = {}
    held = _listed(folder / _TENANTS, hidden=True) if (folder / _TENANTS).exists() else []
    for one in (one for one in held if one.is_dir()):
        # A tenant's name that cannot be a folder's, such as "a/b", is percent-encoded: a%2Fb.
        tenant = unquote(one.name)
        if tenant in tenants:
            raise BadTemplate(f'{one}: another folder also belongs to the tenant "{tenant}"; keep one of them')
        tenants[tenant] = dict(_templates(one, standards))
    return TemplateLibrary((own, *library.layers), {tenant: layer for tenant, layer in tenants.items() if layer})


def _templates(
    folder: Path, standards: Mapping[str, PromptTemplate], beside: str = ""
) -> Iterator[tuple[str, PromptTemplate]]:
    """Yield the checked templates in a folder of stages.

    Args:
        standards: the packaged template of every stage; it defines the inputs.
        beside: name of a folder that is not a stage.
    """
    # Skip files next to the stages, such as a README.
    for stage in (one for one in _listed(folder) if one.is_dir() and one.name != beside):
        if stage.name not in standards:
            raise BadTemplate(f"{stage}: there is no such stage; the stages are: {', '.join(sorted(standards))}")
        for file in _listed(stage):
            name = f"{stage.name}/{file.stem}"
            _check_name(file, stage.name)
            standard = standards[stage.name]
            prompt = parse_template(name, _text(file), where=str(file), valid=standard.inputs)
            yield name, _checked(prompt, standard, file)


def _check_name(file: Path, stage: str) -> None:
    fits = _VERSION.fullmatch(file.stem) or (stage == ANSWER and _NAME.fullmatch(file.stem))
    if fits and file.suffix == ".md" and file.is_file():
        return
    named = f" or a name such as brief.md (a to z, 0 to 9, _ and -), which requests name {ANSWER}/brief"
    raise BadTemplate(f"{file}: name the template v1.md, v2.md, ...{named if stage == ANSWER else ''}")


def _checked(prompt: PromptTemplate, standard: PromptTemplate, file: Path) -> PromptTemplate:
    """Return the template after checking that its inputs and output fit the stage."""
    valid = ", ".join(standard.inputs) or "none"
    if unknown := [one for one in prompt.inputs if one not in standard.inputs]:
        raise BadTemplate(f'{file}: the placeholder "${unknown[0]}" gets no value in this stage; valid: {valid}')
    if missing := sorted(_NEEDED & set(standard.inputs) - set(prompt.inputs)):
        raise BadTemplate(f'{file}: it must use the placeholder "${missing[0]}"; valid: {valid}')
    if prompt.output != standard.output:
        given = f'output = "{prompt.output[:80]}"' if prompt.output else "no output"
        wanted = f'output = "{standard.output}"' if standard.output else "no output"
        raise BadTemplate(f"{file}: it declares {given}; this stage needs {wanted}")
    return prompt.for_inputs(standard.inputs)


def _listed(folder: Path, *, hidden: bool = False) -> list[Path]:
    """List a folder; hidden files and editor backups only if `hidden` is set."""
    try:
        found = sorted(folder.iterdir())
        return [one for one in found if hidden or not (one.name.startswith(".") or one.name.endswith("~"))]
    except OSError as error:
        raise BadTemplate(f"the folder {folder} cannot be read: {error.strerror or error}") from error


def _text(file: Traversable) -> str:
    """Return the text of a file; a byte order mark and Windows line ends are removed."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_LONGEST + 1)
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTemplate(f"{file} cannot be read: {error}") from error
    if len(data) > _LONGEST:
        raise BadTemplate(f"{file} has more than {_LONGEST:,} bytes")
    return text


def _is_version(name: str) -> bool:
    stage, _, version = name.rpartition("/")
    return bool(re.fullmatch("[a-z_]+", stage) and _VERSION.fullmatch(version))


def _version_number(name: str) -> int:
    return int(name.rpartition("/v")[2])
