"""One prompt template: a head that says what it takes, and the text with its placeholders."""

import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from string import Template
from typing import Any

from retrievers.text.visible import prompt_text

_USER = "\n+++ user +++\n"


class BadTemplate(ValueError):
    """A template that does not exist, or whose inputs and text do not agree.

    Attributes:
        valid: names that could be given instead, where a name was at fault.
    """

    def __init__(self, message: str, valid: Collection[str] = ()) -> None:
        super().__init__(message)
        self.valid = tuple(valid)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One version of one template.

    Attributes:
        inputs: the names its text may use, all of which must be given.
        digest: first 12 hex digits of the file's SHA-256, kept in every record of its use.
        output: the type that a reply must parse as, "module:Type"; "" where it is plain text.
        unused: names that are given as well and that its text leaves out.
    """

    name: str
    purpose: str
    inputs: tuple[str, ...]
    text: str
    digest: str
    output: str = ""
    unused: tuple[str, ...] = ()

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

    def offered(self, inputs: Collection[str]) -> "Prompt":
        """The template where these inputs are given, of which it uses some."""
        return replace(self, unused=tuple(sorted(set(inputs) - set(self.inputs))))

    def _parts(self, values: Mapping[str, str]) -> list[str]:
        if set(values) != {*self.inputs, *self.unused}:
            raise BadTemplate(f"{self.name} takes {sorted(self.inputs)}, not {sorted(values)}")
        # Split before the values go in: one of them may hold the line itself.
        shown = {name: prompt_text(values[name]) for name in self.inputs}
        return [Template(part.strip()).substitute(shown) for part in self.text.split(_USER, 1)]


def fence(*texts: str) -> str:
    """A line that occurs in none of the texts, to mark where quoted ones begin and end; the same for the same texts."""
    # As a prompt shows them: what is hidden in a mark must not keep it from being found.
    everything = prompt_text("\n".join(texts))
    mark = hashlib.sha256(everything.encode(errors="replace")).hexdigest()[:12]
    while mark in everything:
        mark = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return f"-----{mark}-----"


def parse(name: str, text: str, *, where: str | None = None, valid: Collection[str] = ()) -> Prompt:
    """A template from its text: TOML between `+++` lines, then the prompt.

    Args:
        where: the file, for errors; the name when None.
        valid: inputs that it may declare, for errors.
    Raises:
        BadTemplate: the head is missing or wrong, or the text uses other names than it declares.
    """
    where = where or name
    found = re.fullmatch(r"\+\+\+\n(.*?)\n\+\+\+\n(.*)", text, re.DOTALL)
    if not found:
        raise BadTemplate(f"{where} has no head between +++ lines")
    try:
        head: dict[str, Any] = tomllib.loads(found[1])
    except tomllib.TOMLDecodeError as error:
        raise BadTemplate(f"{where}: {error}") from error
    inputs = head.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise BadTemplate(f'{where}: "inputs" must be a list of names')
    body = Template(found[2])
    used = set(body.get_identifiers())
    if not body.is_valid() or used != set(inputs):
        what = f"{where} declares {sorted(inputs)} and uses {sorted(used)}"
        more = f"; valid: {', '.join(valid)}" if valid else ""
        raise BadTemplate(f"{what}{_odd_placeholder(body, set(inputs))}{more}")
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    purpose, output = str(head.get("purpose", "")), str(head.get("output", ""))
    return Prompt(name, purpose, tuple(inputs), found[2].strip(), digest, output)


def _odd_placeholder(body: Template, declared: set[str]) -> str:
    """The first placeholder that is at fault, for an error."""
    for match in body.pattern.finditer(body.template):
        used = match["named"] or match["braced"]
        if match["invalid"] is not None:
            shown = body.template[match.start() : match.start() + 10].split("\n")[0]
            return f': "{shown}" is no placeholder, and a dollar sign is written $$'
        if used and used not in declared:
            return f': the placeholder "${used}" is not among its inputs'
    return ""
