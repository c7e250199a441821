"""Normalise Unicode in linear time: runs of combining marks are cut, since sorting a long run takes quadratic time.

Source:
    UAX #15 section 13 (runs of marks).
"""

import re
import unicodedata

MOST_MARKS = 10
"""Maximum number of consecutive combining marks. Tibetan stacks 8."""

# \w matches no marks, so every long run of marks is in a match.
_RUN = re.compile(rf"[^\w\s\x00-\x7f]{{{MOST_MARKS + 1},}}")


def limit_marks(text: str) -> str:
    """Return the text with each run of combining marks cut to `MOST_MARKS`."""
    return text if text.isascii() else _RUN.sub(_bounded, text)


def separate_voicing_marks(text: str) -> str:
    """Replace the two half-width Japanese voicing letters by the combining marks that NFKC would replace them by.

    Runs of these letters then count as runs of marks, which can be cut before NFKC is applied.
    """
    return text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")


def nfkc(text: str) -> str:
    """Return the text in NFKC, with each run of combining marks cut to `MOST_MARKS`."""
    return unicodedata.normalize("NFKC", limit_marks(separate_voicing_marks(text)))


def _bounded(found: re.Match[str]) -> str:
    kept: list[str] = []
    marks = 0
    for character in found[0]:
        # Normalisation sorts all characters with a combining class, even spacing marks such as the stems of notes.
        is_mark = unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me")
        marks = marks + 1 if is_mark else 0
        if marks <= MOST_MARKS:
            kept.append(character)
    return "".join(kept)
