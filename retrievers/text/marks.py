"""Unicode's normal forms in linear time: sorting a long run of combining marks takes quadratic time.

Source:
    UAX #15 section 13 (runs of marks).
"""

import re
import unicodedata

MOST_MARKS = 10
"""Combining marks on one letter. Tibetan stacks 8."""

# Marks are among the characters that \w does not match.
_RUN = re.compile(rf"[^\w\s\x00-\x7f]{{{MOST_MARKS + 1},}}")


def few_marks(text: str) -> str:
    """Text with at most `MOST_MARKS` marks on end."""
    return text if text.isascii() else _RUN.sub(_bounded, text)


def marks_alone(text: str) -> str:
    """Text with the two characters as marks that are letters, and that NFKC makes marks of."""
    return text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")


def nfkc(text: str) -> str:
    """Text in NFKC, with few marks on end."""
    return unicodedata.normalize("NFKC", few_marks(marks_alone(text)))


def _bounded(found: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for character in found[0]:
        # Normalising sorts whatever has a class, also spacing marks, such as the stems of musical notes.
        is_mark = unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me")
        marks = marks + 1 if is_mark else 0
        if marks <= MOST_MARKS:
            kept.append(character)
    return "".join(kept)
