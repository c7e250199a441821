"""One prompt template: parse its head and text, and fill in its placeholders."""

import hashlib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from string import Template
from typing import Any

from retrievers.text.prompt_sanitising import sanitise_prompt_text

_USER = "\n+++ user +++\n"


class BadTemplate(ValueError):
    """A template does not exist, or its inputs and text do not agree.

    Attributes:
        valid: valid names, if a name was wrong.
    """

    def __init__(self, message: str, valid: Collection[str] = ()) -> None:
        super().__init__(message)
        self.valid = tuple(valid)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """One version of one template.

    Attributes:
        inputs: names of the placeholders in its text; all values must be given.
        digest: first 12 hex digits of the file's SHA-256, stored in every record of its use.
        output: type that a reply must parse as, "module:Type"; "" for plain text.
        unused: names of values that are also given but that its text does not use.
    """

    name: str
    purpose: str
    inputs: tuple[str, ...]
    text: str
    digest: str
    output: str = ""
    unused: tuple[str, ...] = ()

    def render(self, values: Mapping[str, str]) -> str:
        """Return the text with the values filled in; a `$` or a brace in a value is plain text.

        Raises:
            BadTemplate: a value is missing, or an unknown one is given.
        """
        return "\n\n".join(self._parts(values))

    def messages(self, values: Mapping[str, str]) -> list[dict[str, str]]:
        """Return the text as chat messages; the part above the line `+++ user +++` is the system message.

        Raises:
            BadTemplate: as for `render`.
        """
        *system, user = self._parts(values)
        turns = [{"role": "system", "content": text} for text in system]
        return [*turns, {"role": "user", "content": user}]

    def for_inputs(self, inputs: Collection[str]) -> "PromptTemplate":
        """Return a copy for a place that gives these inputs, of which the template uses some."""
        return replace(self, unused=tuple(sorted(set(inputs) - set(self.inputs))))

    def _parts(self, values: Mapping[str, str]) -> list[str]:
        if set(values) != {*self.inputs, *self.unused}:
            raise BadTemplate(f"{self.name} takes {sorted(self.inputs)}, not {sorted(values)}")
        # Split before filling in the values, because a value may contain the line itself.
        shown = {name: sanitise_prompt_text(values[name]) for name in self.inputs}
        return [Template(part.strip()).substitute(shown) for part in self.text.split(_USER, 1)]


def fence(*texts: str) -> str:
    """Return a line that occurs in none of the texts, to mark where quoted texts begin and end; deterministic."""
    # Clean the texts as the prompt does, so that hidden characters cannot disguise the mark.
    everything = sanitise_prompt_text("\n".join(texts))
    mark = hashlib.sha256(everything.encode(errors="replace")).hexdigest()[:12]
    while mark in everything:
        mark = hashlib.sha256(mark.encode()).hexdigest()[:12]
    return f"-----{mark}-----"


def parse_template(name: str, text: str, *, where: str | None = None, valid: Collection[str] = ()) -> PromptTemplate:
    """Parse a template: TOML between `+++` lines, then the prompt.

    Args:
        where: file name for errors; None means the template's name.
        valid: inputs that it may declare, for errors.
    Raises:
        BadTemplate: the head is missing or invalid, or the placeholders in the text differ from the declared inputs.
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
    return PromptTemplate(name, purpose, tuple(inputs), found[2].strip(), digest, output)


def _odd_placeholder(body: Template, declared: set[str]) -> str:
    """Describe the first invalid or undeclared placeholder, for an error; "" if there is none."""
    for match in body.pattern.finditer(body.template):
        used = match["named"] or match["braced"]
        if match["invalid"] is not None:
            shown = body.template[match.start() : match.start() + 10].split("\n")[0]
            return f': "{shown}" is not a placeholder; write a dollar sign as $$'
        if used and used not in declared:
            return f': the placeholder "${used}" is not among its inputs'
    return ""
