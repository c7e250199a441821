"""One spelling for names that people write in several ways: what questions and metadata values are compared by."""

import re
import unicodedata

from retrievers.text.marks import nfkc

VERSION = 1
"""Raised when `fold` changes: what is stored was folded by this version."""

# Letters that no decomposition takes apart, and what people type instead of them.
_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
_ACCENTS = re.compile("[\u0300-\u036f]")
_DROPPED = re.compile(r"['’‘ʼ`´\"“”]|(?<!\d)\.|\.(?!\d)")
# What a name can be told apart by stays: C++, C#, R&D, a@b, 5%.
_BETWEEN = re.compile(r"[^\w+#&@%$.]+|_+|(?<!\d)\.|\.(?!\d)")
_BLANKS = re.compile(r" {2,}")


def fold(text: str) -> str:
    """The text as it is compared: "Marc-André  LEMBURG" and "marc andre lemburg" are one name.

    Compatibility forms are unified (full-width to half-width), case and the accents of Latin, Greek and
    Cyrillic letters go, quotes and dots go (a dot between digits stays), everything else that is no letter,
    digit or one of ``+#&@%$`` becomes one blank. Chinese stays as it is.

    Returns:
        Words with single blanks between them; "" when nothing is left. Folding it again changes nothing.
    """
    if not text.isascii():
        text = nfkc(text).casefold()
        # Only these marks: elsewhere (Japanese, Hindi) a mark makes another letter.
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).translate(_PLAIN)
        text = unicodedata.normalize("NFC", text)
    text = _BETWEEN.sub(" ", _DROPPED.sub("", text.casefold()))
    return _BLANKS.sub(" ", text).strip()
