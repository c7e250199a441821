"""Words by language, as data: `LANGUAGE.toml` with one table for each module that reads it."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

LANGUAGES = ("en", "zh")


@cache
def table(name: str, language: str) -> Mapping[str, Any]:
    """A table of the words of a language; empty where the language has none of that name."""
    text = (files("agent.intent.words") / f"{language}.toml").read_text(encoding="utf-8")
    found: Mapping[str, Any] = tomllib.loads(text).get(name, {})
    return found


@cache
def ordinary() -> Mapping[str, int]:
    """How common the stems of English words are, from 1 to 8, each three times as common as the one before.

    Counted over the English senses of CC-CEDICT (CC BY-SA 4.0), as `evals/train_deciding.py` writes them.
    """
    lines = (files("agent.intent.words") / "ordinary.txt").read_text(encoding="utf-8").splitlines()
    return {word: tier for tier, line in enumerate(lines, 1) for word in line.split()}
