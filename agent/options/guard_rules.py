"""Compile the rules of the setting GUARD: words, phrases and regular expressions."""

import re
import time
from collections.abc import Iterable

import regex

from retrievers.text.unicode_normalisation import nfkc

REGEX_PREFIX = "re:"
"""Prefix of a rule that is a regular expression."""
_CHINESE = re.compile("[\u3400-\u9fff]")


LONGEST_SEARCH_S = 0.02
"""Maximum CPU seconds of all rules for one question: a pattern like `(a|aa)+b` takes exponential time."""


def compile_rule(rule: str) -> "regex.Pattern[str]":
    """Return the pattern of a rule, which ignores case. It is for text from `normalise_rule_text`.

    A word or phrase matches whole words only: "merger" does not match "mergers". One with Chinese characters matches
    anywhere. "re:merg(er|ing)" is a regular expression and may match inside words.

    Raises:
        ValueError: the rule is empty or not a valid regular expression.
    """
    if rule.startswith(REGEX_PREFIX):
        try:
            return regex.compile(rule.removeprefix(REGEX_PREFIX), regex.IGNORECASE)
        except regex.error as error:
            raise ValueError(f'"{rule[:80]}" is not a regular expression: {error}') from None
    words = re.escape(normalise_rule_text(rule).strip())
    if not words:
        raise ValueError("a blocked word is empty")
    # Chinese has no spaces between words, so a Chinese rule also matches next to other characters.
    edges = ("", "") if _CHINESE.search(rule) else (r"(?<!\w)", r"(?!\w)")
    return regex.compile(words.join(edges), regex.IGNORECASE)


def any_rule_matches(rules: "Iterable[regex.Pattern[str]]", text: str) -> bool:
    """Return whether one of the rules matches a text, which `normalise_rule_text` has normalised.

    Raises:
        TimeoutError: the search took longer than `LONGEST_SEARCH_S`.
    """
    ends = time.thread_time() + LONGEST_SEARCH_S
    return any(rule.search(text, timeout=max(ends - time.thread_time(), 0.001)) is not None for rule in rules)


def normalise_rule_text(text: str) -> str:
    """Return the text as rules are matched with it: with normal letters for full-width ones, and with single blanks."""
    return " ".join(nfkc(text).split())
