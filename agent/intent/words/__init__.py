"""Words and grammars as data, one file a language; every part of the reading has a table of its own in each."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = ("en", "zh")


@cache
def table(name: str) -> dict[str, Any]:
    """A table of all languages together: lists are joined, texts become lists of their words."""
    joined: dict[str, Any] = {}
    for language in LANGUAGES:
        stored = tomllib.loads((files(__name__) / f"{language}.toml").read_text(encoding="utf-8"))
        for key, value in stored.get(name, {}).items():
            joined.setdefault(key, []).extend(value.split() if isinstance(value, str) else value)
    return joined
