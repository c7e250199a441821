"""Words and grammars as data: `LANGUAGE.toml` has one table for each part of the reading except dates,
whose words are in `agent/intent/time/words`."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = ("en", "zh")


@cache
def word_table(name: str, language: str | None = None) -> Mapping[str, Any]:
    """Return a table of a language, {} if it has none of that name.

    Without a language, the tables of all languages are merged: lists are joined, texts are split into words.
    """
    if language is not None:
        found: Mapping[str, Any] = _tables(language).get(name, {})
        return found
    joined: dict[str, Any] = {}
    for one in LANGUAGES:
        for key, value in word_table(name, one).items():
            joined.setdefault(key, []).extend(value.split() if isinstance(value, str) else value)
    return joined


@cache
def _tables(language: str) -> Mapping[str, Any]:
    return tomllib.loads((files(__name__) / f"{language}.toml").read_text(encoding="utf-8"))


@cache
def word_frequencies() -> Mapping[str, int]:
    """Map stems of English words to a frequency class.

    Class 1 is the rarest of 8; each is three times as common as the one before. The words are counted over the English
    senses of CC-CEDICT (CC BY-SA 4.0), as written by `evals/train_deciding.py`.
    """
    lines = (files(__name__) / "ordinary.txt").read_text(encoding="utf-8").splitlines()
    return {word: tier for tier, line in enumerate(lines, 1) for word in line.split()}
