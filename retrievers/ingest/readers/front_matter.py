"""Read the YAML front matter of a Markdown text."""

import re
from typing import Any

import yaml

from retrievers.core.errors import BadDocument
from retrievers.ingest.readers.text_cleaning import json_type

MAX_CHARACTERS = 65_536
_MOST_PURE = 8000
"""Maximum length of a text for the loader in pure Python. 64,000 characters may take it 4 s."""
_MOST_LEVELS = 100
_MOST_MERGED = 1000
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
# Ten times as fast; not every build of PyYAML has it.
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Merging:
    """YAML constructor that limits how many keys "<<" copies: mappings that merge mappings could grow without bound."""

    _depth = 0
    _merged = 0

    def flatten_mapping(self, node: Any) -> None:
        """Copy the keys of the mappings under "<<" into the mapping `node`."""
        self._depth += 1
        super().flatten_mapping(node)  # type: ignore[misc]
        self._depth -= 1
        # PyYAML also calls this for the mappings under "<<", before it copies their keys. Only these are counted.
        if self._depth:
            self._merged += len(node.value)
        if self._merged > _MOST_MERGED:
            raise BadDocument(f'"<<" in the front matter makes more than {_MOST_MERGED:,} keys')


class _Loader(_Merging, _BASE):  # type: ignore[misc]
    pass


class _PureLoader(_Merging, yaml.SafeLoader):
    """Reads YAML that libyaml refuses, such as a block of text whose first line begins with a tab."""


def read_front_matter(text: str) -> tuple[dict[Any, Any], str]:
    """Return the YAML front matter of a Markdown text ({} if none), and the rest of the text.

    Raises:
        BadDocument: the YAML is invalid, too long, nested too deeply or not a mapping.
    """
    found = _FRONT_MATTER.match(text)
    if not found:
        return {}, text
    if len(found[1]) > MAX_CHARACTERS:
        raise BadDocument(f"the front matter has more than {MAX_CHARACTERS:,} characters")
    try:
        front = _parsed_by_either(found[1])
    except BadDocument:
        raise
    # PyYAML also passes on errors of converting a value (ValueError for the date 2024-02-31, KeyError for "!!bool
    # maybe", and others).
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 2}" if mark else ""
        problem = getattr(error, "problem", None) or error
        raise BadDocument(f"the front matter is not valid YAML{place}: {problem}") from error
    if front is None:
        front = {}
    if not isinstance(front, dict):
        raise BadDocument(f'the front matter is {json_type(front)}; it must be lines like "title: ..."')
    return front, text[found.end() :]


def _parsed_by_either(text: str) -> Any:
    try:
        return _parsed(text, _Loader)
    except yaml.YAMLError as error:
        if len(text) > _MOST_PURE:
            raise
        try:
            return _parsed(text, _PureLoader)
        except yaml.YAMLError:
            raise error from None


def _parsed(text: str, loader: Any) -> Any:
    # Without this limit, the C parser would overflow its stack on deeply nested values.
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MOST_LEVELS:
            raise BadDocument(f"the front matter is nested deeper than {_MOST_LEVELS} levels")
    return yaml.load(text, Loader=loader)
