"""What a guard looks for: words, phrases and regular expressions, as the setting GUARD lists them."""

import re

from retrievers.text.marks import nfkc

PATTERN = "re:"
"""What a rule begins with that is a regular expression."""
_CHINESE = re.compile("[\u3400-\u9fff]")


def compiled(rule: str) -> re.Pattern[str]:
    """A rule as a pattern: a word or phrase, found as whole words in any case, or a regular expression behind `re:`.

    Raises:
        ValueError: it is no regular expression, or empty.
    """
    if rule.startswith(PATTERN):
        try:
            return re.compile(rule.removeprefix(PATTERN), re.IGNORECASE)
        except re.error as error:
            raise ValueError(f'"{rule[:80]}" is no regular expression: {error}') from None
    words = re.escape(plain(rule).strip())
    if not words:
        raise ValueError("a blocked word is empty")
    # Chinese has no blanks between words.
    edges = ("", "") if _CHINESE.search(rule) else (r"(?<!\w)", r"(?!\w)")
    return re.compile(words.join(edges), re.IGNORECASE)


def plain(text: str) -> str:
    """A text as rules are held against it: full-width letters and the like must not hide a word."""
    return " ".join(nfkc(text).split())
