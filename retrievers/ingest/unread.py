"""Take records out of a body of JSON that have too many values to be parsed, so that they alone are refused."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrievers.core.crowd import MOST_LISTS_IN_A_ROW, longest_row_of_lists
from retrievers.core.errors import BadRequest
from retrievers.ingest.clean import MAX_VALUES

UNREAD = "\0unread"
"""Key of the record that takes the place of one that was not parsed. Its value is a key of `REASONS`."""
REASONS = {
    "values": f"holds more than {MAX_VALUES:,} values",
    "lists": f"holds more than {MOST_LISTS_IN_A_ROW:,} lists without an object between them",
}
_PIECE_BYTES = 256 << 10
_MOST_OUTER_KEYS = 10_000
_DEPTH = 3
"""Depth of a record in `{"documents": [{}]}`."""
_FIRST_KEY_IS_ID = re.compile(rb'\{\s*("_?id")\s*:\s*("(?:[^"\\]|\\.){1,600}"|\d{1,18})\s*,', re.DOTALL)
_QUOTE, _COMMA, _LIST = ord('"'), ord(","), ord("[")
_STEPS = np.zeros(256, np.int8)
"""How each byte changes the depth."""
_STEPS[[_LIST, ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
_IS_MARK = _STEPS != 0
_IS_MARK[[_COMMA, _QUOTE]] = True


_Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Record:
    """A list or object at the depth of records: its place in the body, and its number of values and of lists."""

    start: int
    end: int
    values: int
    lists: int


def without_crowded(raw: bytes) -> bytes:
    """Return the body with a short record in the place of each one that has too many values or lists in a row.

    The cost is linear in the length, about 10 ms per MiB, and other threads run meanwhile. A short body is returned
    unchanged, and so is one that is not valid JSON, whose fault the parser finds.

    Raises:
        BadRequest: the body itself has thousands of keys.
    """
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") < min(MAX_VALUES, MOST_LISTS_IN_A_ROW):
        return raw
    bare = raw.replace(rb"\\", b"__").replace(rb"\"", b"__")  # of the same length
    kept, end = [], 0
    for record in _records(bare):
        if (reason := _excess_of(record, bare)) is not None:
            kept += [raw[end : record.start], _instead_of(raw, record, reason)]
            end = record.end
    return b"".join([*kept, raw[end:]]) if kept else raw


def reason_of(record: Mapping[Any, Any]) -> str | None:
    """Return why a record was not parsed if it stands for such a one, else None."""
    is_stub = UNREAD in record and record.keys() <= {UNREAD, "id", "_id"}
    return REASONS.get(str(record[UNREAD])) if is_stub else None


def _excess_of(record: _Record, bare: bytes) -> str | None:
    # An empty list or object counts twice here; `clean` counts exactly.
    if record.values > 2 * MAX_VALUES:
        return "values"
    if record.lists > MOST_LISTS_IN_A_ROW:
        row = longest_row_of_lists(bare[record.start : record.end])
        return "lists" if row > MOST_LISTS_IN_A_ROW else None
    return None


def _instead_of(raw: bytes, record: _Record, reason: str) -> bytes:
    if raw[record.start] == _LIST:
        return b"[]"  # is refused as any list in the place of an object
    found = _FIRST_KEY_IS_ID.match(raw, record.start, record.end)
    id = b"%s: %s, " % found.groups() if found else b""
    return b"{%s%s: %s}" % (id, json.dumps(UNREAD).encode(), json.dumps(reason).encode())


def _records(bare: bytes) -> Iterator[_Record]:
    """Yield the objects and lists within a list of the outermost object, without the small ones.

    Args:
        bare: JSON without escapes inside texts.
    """
    quotes = depth = values = lists = parent = keys = 0
    is_object = bare[:_PIECE_BYTES].lstrip().startswith(b"{")
    begun: tuple[int, int, int, int] | None = None  # place, values, lists and parent of a record that goes on
    for start in range(0, len(bare), _PIECE_BYTES):
        piece = np.frombuffer(bare, np.uint8, min(_PIECE_BYTES, len(bare) - start), start)
        places, quotes = _marks_outside_texts(piece, quotes)
        marks = piece[places]
        steps = _STEPS[marks]
        depths = np.cumsum(steps, dtype=np.int32) + depth
        counts = np.cumsum(steps >= 0, dtype=np.int32) + values
        rows = np.cumsum(marks == _LIST, dtype=np.int32) + lists
        outer = np.flatnonzero((steps == 1) & (depths == _DEPTH - 1))
        at = partial(_place, places + start, counts, rows, outer, np.concatenate([[parent], marks[outer]]))
        keys += int(np.count_nonzero((marks == _COMMA) & (depths == 1)))
        if is_object and keys > _MOST_OUTER_KEYS:
            raise BadRequest(f"it has more than {_MOST_OUTER_KEYS:,} keys", where="body")
        begins = np.flatnonzero((steps == 1) & (depths == _DEPTH))
        ends = np.flatnonzero((steps == -1) & (depths == _DEPTH - 1))
        if begun is not None and len(ends):
            yield from _large(begun, at(ends[0]))
            begun, ends = None, ends[1:]
        if len(begins) > len(ends):
            begun, begins = at(begins[-1]), begins[:-1]
        for pair in np.flatnonzero(counts[ends] - counts[begins] > MOST_LISTS_IN_A_ROW):
            yield from _large(at(begins[pair]), at(ends[pair]))
        if len(marks):
            depth, values, lists = int(depths[-1]), int(counts[-1]), int(rows[-1])
            parent = int(marks[outer[-1]]) if len(outer) else parent


def _place(
    places: _Numbers, values: _Numbers, lists: _Numbers, outer: _Numbers, parents: _Numbers, mark: int
) -> tuple[int, int, int, int]:
    """Return the place of a mark, the values and lists up to it, and the bracket that opened the list around it.

    Args:
        outer: the marks that open such lists.
        parents: what opened them, after what opened the last one before.
    """
    return int(places[mark]), int(values[mark]), int(lists[mark]), int(parents[np.searchsorted(outer, mark)])


def _marks_outside_texts(piece: NDArray[np.uint8], quotes: int) -> tuple[NDArray[np.intp], int]:
    """Return the places of commas and brackets outside texts, and the number of quotes up to the end of the piece.

    Args:
        quotes: the number of quotes before the piece.
    """
    places = np.flatnonzero(_IS_MARK[piece])
    is_quote = piece[places] == _QUOTE
    if not (quotes % 2 or is_quote.any()):
        return places, quotes
    quoted = np.cumsum(is_quote, dtype=np.int32) + quotes
    return places[(quoted % 2 == 0) & ~is_quote], int(quoted[-1]) if len(quoted) else quotes


def _large(begin: tuple[int, int, int, int], end: tuple[int, int, int, int]) -> Iterator[_Record]:
    record = _Record(begin[0], end[0] + 1, end[1] - begin[1], end[2] - begin[2])
    if begin[3] == _LIST and record.values > MOST_LISTS_IN_A_ROW:
        yield record
