"""Words and grammars as data: `LANGUAGE.toml`, in which every part of the reading has a table of its own."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = ("en", "zh")


@cache
def table(name: str, language: str | None = None) -> Mapping[str, Any]:
    """A table as a language has it, empty where it has none of that name.

    Of all languages together when none is given: lists are joined, texts become lists of their words.
    """
    if language is not None:
        stored = (files(__name__) / f"{language}.toml").read_text(encoding="utf-8")
        found: Mapping[str, Any] = tomllib.loads(stored).get(name, {})
        return found
    joined: dict[str, Any] = {}
    for one in LANGUAGES:
        for key, value in table(name, one).items():
            joined.setdefault(key, []).extend(value.split() if isinstance(value, str) else value)
    return joined


@cache
def ordinary() -> Mapping[str, int]:
    """How common the stems of English words are, from 1 to 8, each three times as common as the one before.

    Counted over the English senses of CC-CEDICT (CC BY-SA 4.0), as `evals/train_deciding.py` writes them.
    """
    lines = (files(__name__) / "ordinary.txt").read_text(encoding="utf-8").splitlines()
    return {word: tier for tier, line in enumerate(lines, 1) for word in line.split()}
