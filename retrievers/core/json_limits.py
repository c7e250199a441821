"""Count the values of a JSON body before it is parsed, because parsing many blocks the event loop, even in a thread."""

from collections.abc import Iterator
from dataclasses import dataclass

MOST_LISTS_IN_A_ROW = 25_000
"""Maximum number of lists between the ends of two objects. The parser lets other threads run only at the end of an
object, so a long series of lists would block the event loop.
"""


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The maximum numbers of values in a JSON body.

    Attributes:
        values: texts, numbers, lists and so on, at any depth; keys are not counted.
        containers: objects and lists alone.
    """

    values: int
    containers: int


UNREADABLE = "it has brackets that are not closed, or nested too deeply"
"""The reason that `json_refusal` returns for brackets that no parser can read."""
_MOST_DIGITS = 310
"""Maximum number of digits of a whole number that is computed; the time grows with their square."""
_DIGITS_AS_ZEROS = bytes(ord("0") if character in b"0123456789" else ord(" ") for character in range(256))
_PIECE_BYTES = 128 << 10
_TOO_DEEP = b"[" * 500


def json_refusal(raw: bytes, most: JsonLimits) -> str | None:
    """Return the reason why a JSON body must not be parsed, as a text for the caller; None if it may be parsed.

    Reasons are too many values, and brackets that do not match. Values are counted by their separators, which is fast.
    An empty list or object counts as two values.
    """
    containers = _containers_of(raw)
    if containers <= min(most.containers, MOST_LISTS_IN_A_ROW) and 1 + _count(raw, b",") + containers <= most.values:
        return None
    bare = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    if bare.count(b'"') > 4 * most.values:  # two quotes for the value, two for its key
        return f"it has more than {most.values:,} values"
    outside = b"".join(_outside_texts(bare))
    if _TOO_DEEP in outside or any(
        outside.count(opened) != outside.count(closed) for opened, closed in ((b"[", b"]"), (b"{", b"}"))
    ):
        return UNREADABLE
    if _values_of(outside) > most.values:
        return f"it has {_values_of(outside):,} values; at most {most.values:,} are possible"
    if (count := _containers_of(outside)) > most.containers:
        return f"it has {count:,} objects and lists; at most {most.containers:,} are possible"
    if _longest_row(outside) > MOST_LISTS_IN_A_ROW:
        return f"an object in it has more than {MOST_LISTS_IN_A_ROW:,} lists"
    return None


def whole_number(digits: str) -> float:
    """Parse a whole number in JSON; infinite if it has more than `_MOST_DIGITS` digits. For `parse_int` of `json`."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def has_long_number(raw: bytes) -> bool:
    """Return whether JSON has a number, or a text with a number, of more than `_MOST_DIGITS` digits in a row."""
    return b"0" * (_MOST_DIGITS + 1) in raw.translate(_DIGITS_AS_ZEROS)


def longest_run_of_lists(bare: bytes) -> int:
    """Return the largest number of lists between the ends of two objects.

    Args:
        bare: JSON without backslash escapes, as these could hide the end of a text.
    """
    return _longest_row(b"".join(_outside_texts(bare)))


def _longest_row(outside: bytes) -> int:
    return max(part.count(b"[") for part in outside.split(b"}"))


def _outside_texts(bare: bytes) -> Iterator[bytes]:
    """Yield the JSON without its texts, in pieces of at most 128 KiB, so that other threads can run in between.

    Args:
        bare: JSON without backslash escapes.
    """
    inside = 0
    for start in range(0, len(bare), _PIECE_BYTES):
        parts = bare[start : start + _PIECE_BYTES].split(b'"')
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2


def _values_of(raw: bytes) -> int:
    """Return the number of values in JSON without texts: a list or object has one member more than it has commas."""
    return 1 + _count(raw, b",") + _containers_of(raw)


def _containers_of(raw: bytes) -> int:
    return _count(raw, b"[") + _count(raw, b"{")


def _count(raw: bytes, character: bytes) -> int:
    """Count a character in pieces of at most 128 KiB, so that other threads can run in between."""
    return sum(raw.count(character, start, start + _PIECE_BYTES) for start in range(0, len(raw), _PIECE_BYTES))
