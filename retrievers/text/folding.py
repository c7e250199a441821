"""Fold different spellings of a name to one form, in which questions and metadata values are compared."""

import re
import unicodedata

from retrievers.text.unicode_normalisation import nfkc

VERSION = 1
"""Increased when `fold` changes. Collections store the version that folded their values."""

# Letters that Unicode does not decompose, and what people type instead of them.
_PLAIN = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"})
_PLAIN_CAPITALS = str.maketrans({"Ł": "L", "Ø": "O", "Đ": "D", "Þ": "Th", "Æ": "Ae", "Œ": "Oe"})
_LOOKALIKES = str.maketrans({"ı": "i", "İ": "I", "ſ": "s", "\u212a": "K"})
# Full-width, mathematical and segmented digits: all whose NFKC form is one of 0 to 9.
_DIGITS = {
    code: unicodedata.normalize("NFKC", chr(code))
    for code in (*range(0xFF10, 0xFF1A), *range(0x1D7CE, 0x1D800), *range(0x1FBF0, 0x1FBFA))
}
_ACCENTS = re.compile("[\u0300-\u036f]")
_DROPPED = re.compile(r"['’‘ʼ`´\"“”]|(?<!\d)\.|\.(?!\d)")
# Keeps characters that distinguish names: C++, C#, R&D, a@b, 5%.
_BETWEEN = re.compile(r"[^\w+#&@%$.]+|_+|(?<!\d)\.|\.(?!\d)")
_BLANKS = re.compile(r" {2,}")


def plain_letters(text: str) -> str:
    """Replace ı, İ, ſ and the Kelvin sign by i, I, s and K, which a pattern that ignores case takes to be equal.

    Call this before such a pattern is applied if the matched text is then looked up in a table, which has no entries
    with these letters. The length is kept, even if the result is lower-cased: "İ".lower() would have two characters.
    """
    return text if text.isascii() else text.translate(_LOOKALIKES)


def plain_digits(text: str) -> str:
    """Replace full-width and other compatibility forms of digits by 0 to 9, as NFKC does. The length is kept.

    Digits of other scripts, such as Arabic and Thai, are kept: full text stores and searches them as written.
    """
    return text if text.isascii() else text.translate(_DIGITS)


def without_accents(text: str) -> str:
    """Return a text with plain Latin letters, in their case: "Größe" -> "Grosse"."""
    if text.isascii():
        return text
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", plain.replace("ß", "ss").translate(_PLAIN).translate(_PLAIN_CAPITALS))


def fold(text: str) -> str:
    """Return the form in which a text is compared: "Marc-André  LEMBURG" -> "marc andre lemburg".

    Unifies compatibility forms (full-width to half-width), removes case and the accents of Latin, Greek and Cyrillic
    letters, removes quotes and dots (except a dot between digits), and turns any other run of characters that are not
    letters, digits or ``+#&@%$`` into one blank. Chinese is unchanged.

    Returns:
        Words separated by single blanks; "" if nothing is left. Folding is idempotent.
    """
    if text.isascii() and text.isalnum():
        return text.lower()  # most words, which need no pattern
    if not text.isascii():
        text = nfkc(text).casefold()
        # Only these marks: in other scripts (Japanese, Hindi) a mark makes a different letter.
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).translate(_PLAIN)
        text = unicodedata.normalize("NFC", text)
    text = _BETWEEN.sub(" ", _DROPPED.sub("", text.casefold()))
    return _BLANKS.sub(" ", text).strip()
