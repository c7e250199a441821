"""Prompt templates: versioned files, read and filled in. A released version is never edited.

Values go in as `retrievers.text.visible.prompt_text` has them: nothing unseen and no control token reaches a model.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from string import Template
from typing import Any

from retrievers.text.visible import prompt_text

_USER = "\n+++ user +++\n"


class BadTemplate(ValueError):
    """A template that does not exist, or whose inputs and text do not agree."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One version of one template.

    Attributes:
        inputs: the names its text may use, all of which must be given.
        digest: first 12 hex digits of the file's SHA-256, kept in every record of its use.
    """

    name: str
    purpose: str
    inputs: tuple[str, ...]
    text: str
    digest: str

    def render(self, values: Mapping[str, str]) -> str:
        """The text with the values in place: a `$` or a brace in a value is just text.

        Raises:
            BadTemplate: a value is missing, or one is given that the template does not know.
        """
        return "\n\n".join(self._parts(values))

    def messages(self, values: Mapping[str, str]) -> list[dict[str, str]]:
        """The text as turns for a model: what stands above the line `+++ user +++` is the system's.

        Raises:
            BadTemplate: as `render` does.
        """
        *system, user = self._parts(values)
        turns = [{"role": "system", "content": text} for text in system]
        return [*turns, {"role": "user", "content": user}]

    def _parts(self, values: Mapping[str, str]) -> list[str]:
        if set(values) != set(self.inputs):
            raise BadTemplate(f"{self.name} takes {sorted(self.inputs)}, not {sorted(values)}")
        # Split before the values go in: one of them may hold the line itself.
        shown = {name: prompt_text(value) for name, value in values.items()}
        return [Template(part.strip()).substitute(shown) for part in self.text.split(_USER, 1)]


def fence(*texts: str) -> str:
    """A line that occurs in none of the texts, to mark where quoted ones begin and end; the same for the same texts."""
    # As a prompt shows them: what is hidden in a mark must not keep it from being found.
    everything = prompt_text("\n".join(texts))
    mark = hashlib.sha256(everything.encode(errors="replace")).hexdigest()[:12]
    while mark in everything:
        mark = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return f"-----{mark}-----"


@lru_cache(maxsize=64)
def load(name: str) -> Prompt:
    """The template "STAGE/VERSION", or the newest version of "STAGE".

    Raises:
        BadTemplate: there is none of that name; the message lists what there is.
    """
    known = names()
    versions = [one for one in known if one == name or one.rpartition("/")[0] == name]
    if not versions:
        raise BadTemplate(f'there is no prompt template "{name[:40]}"; there are: {", ".join(known)}')
    newest = max(versions, key=lambda one: int(one.rpartition("/v")[2]))
    text = files("prompts").joinpath(f"{newest}.md").read_text(encoding="utf-8")
    return parse(newest, text)


def names() -> list[str]:
    """Every shipped template as "STAGE/VERSION"."""
    stages = [stage for stage in files("prompts").iterdir() if stage.is_dir() and not stage.name.startswith("_")]
    found = [f"{stage.name}/{file.name[:-3]}" for stage in stages for file in stage.iterdir()]
    return sorted(name for name in found if re.fullmatch(r"[a-z_]+/v\d+", name))


def parse(name: str, text: str) -> Prompt:
    """A template from its text: TOML between `+++` lines, then the prompt.

    Raises:
        BadTemplate: the head is missing or wrong, or the text uses other names than it declares.
    """
    found = re.fullmatch(r"\+\+\+\n(.*?)\n\+\+\+\n(.*)", text, re.DOTALL)
    if not found:
        raise BadTemplate(f"{name} has no head between +++ lines")
    try:
        head: dict[str, Any] = tomllib.loads(found[1])
    except tomllib.TOMLDecodeError as error:
        raise BadTemplate(f"{name}: {error}") from error
    inputs = head.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise BadTemplate(f'{name}: "inputs" must be a list of names')
    body = Template(found[2])
    if not body.is_valid() or set(body.get_identifiers()) != set(inputs):
        raise BadTemplate(f"{name} declares {sorted(inputs)} and uses {sorted(body.get_identifiers())}")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return Prompt(name, str(head.get("purpose", "")), tuple(inputs), found[2].strip(), digest)
