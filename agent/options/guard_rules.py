"""Compile the rules of the setting GUARD: words, phrases and regular expressions."""

import re

from retrievers.text.marks import nfkc

PATTERN = "re:"
"""Prefix of a rule that is a regular expression."""
_CHINESE = re.compile("[\u3400-\u9fff]")


def compiled(rule: str) -> re.Pattern[str]:
    """Compile a rule: a word or phrase matches whole words in any case; after `re:` comes a regular expression.

    Raises:
        ValueError: the rule is empty or not a valid regular expression.
    """
    if rule.startswith(PATTERN):
        try:
            return re.compile(rule.removeprefix(PATTERN), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f'"{rule[:80]}" is not a regular expression: {error}') from None
    words = re.escape(plain(rule).strip())
    if not words:
        raise ValueError("a blocked word is empty")
    # Chinese puts no spaces between words.
    edges = ("", "") if _CHINESE.search(rule) else (r"(?<!\w)", r"(?!\w)")
    return re.compile(words.join(edges), re.IGNORECASE)


def plain(text: str) -> str:
    """Normalise a text before rules are matched, so that full-width letters cannot hide a word."""
    return " ".join(nfkc(text).split())
