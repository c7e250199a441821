"""Replace records with too many values in a JSON request body, before it is parsed: only these are then refused.

Parsing such records would take too much memory, or block all other threads.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retrievers.core.errors import BadRequest
from retrievers.core.json_limits import MOST_LISTS_IN_A_ROW, longest_run_of_lists
from retrievers.ingest.readers.text_cleaning import MAX_VALUES

OVERSIZED_KEY = "\0unread"
"""Key of the short record that replaces one with too many values. Its value is a key of `OVERSIZE_REASONS`."""
OVERSIZE_REASONS = {
    "values": f"holds more than {MAX_VALUES:,} values",
    "lists": f"holds more than {MOST_LISTS_IN_A_ROW:,} lists without an object between them",
}
_PIECE_BYTES = 256 << 10
_MOST_OUTER_KEYS = 10_000
_DEPTH = 3
"""Number of brackets that are open inside a record of `{"documents": [{}]}`."""
_FIRST_KEY_IS_ID = re.compile(rb'\{\s*("_?id")\s*:\s*("(?:[^"\\]|\\.){1,600}"|\d{1,18})\s*,', re.DOTALL)
_QUOTE, _COMMA, _LIST = ord('"'), ord(","), ord("[")
_STEPS = np.zeros(256, np.int8)
"""How each byte changes the number of open brackets."""
_STEPS[[_LIST, ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
_IS_MARK = _STEPS != 0
_IS_MARK[[_COMMA, _QUOTE]] = True


_Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True)
class _RecordExtent:
    """A list or object at the depth in the body at which records are.

    Attributes:
        start, end: position in the body: bytes [start, end).
        values: number of commas and inner opening brackets in it, outside texts. This is about the number of values at
            any depth, but an empty list or object counts as two.
        lists: number of lists in it, at any depth.
    """

    start: int
    end: int
    values: int
    lists: int


def replace_oversized_records(raw: bytes) -> bytes:
    """Return the JSON body, with a short record in place of each that has too many values or too many lists in a row.

    Takes about 10 ms per MiB, in pieces between which other threads run. Invalid JSON is left for the parser to refuse.

    Raises:
        BadRequest: the outermost object of the body has thousands of keys.
    """
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") < min(MAX_VALUES, MOST_LISTS_IN_A_ROW):
        return raw
    bare = raw.replace(rb"\\", b"__").replace(rb"\"", b"__")  # of the same length
    kept, end = [], 0
    for record in _records(bare):
        if (reason := _excess_kind(record, bare)) is not None:
            kept += [raw[end : record.start], _short_record(raw, record, reason)]
            end = record.end
    return b"".join([*kept, raw[end:]]) if kept else raw


def oversize_reason(record: Mapping[Any, Any]) -> str | None:
    """Return why a record was not parsed if `record` is the short one that replaces it; None for any other record."""
    is_stub = OVERSIZED_KEY in record and record.keys() <= {OVERSIZED_KEY, "id", "_id"}
    return OVERSIZE_REASONS.get(str(record[OVERSIZED_KEY])) if is_stub else None


def _excess_kind(record: _RecordExtent, bare: bytes) -> str | None:
    # An empty list or object counts twice here; `clean` counts exactly.
    if record.values > 2 * MAX_VALUES:
        return "values"
    if record.lists > MOST_LISTS_IN_A_ROW:
        row = longest_run_of_lists(bare[record.start : record.end])
        return "lists" if row > MOST_LISTS_IN_A_ROW else None
    return None


def _short_record(raw: bytes, record: _RecordExtent, reason: str) -> bytes:
    if raw[record.start] == _LIST:
        return b"[]"  # refused later, like any list instead of an object
    found = _FIRST_KEY_IS_ID.match(raw, record.start, record.end)
    id = b"%s: %s, " % found.groups() if found else b""
    return b"{%s%s: %s}" % (id, json.dumps(OVERSIZED_KEY).encode(), json.dumps(reason).encode())


def _records(bare: bytes) -> Iterator[_RecordExtent]:
    """Yield the large objects and lists inside the lists of the outermost object.

    Args:
        bare: JSON without escapes inside texts.
    """
    quotes = depth = values = lists = parent = keys = 0
    is_object = bare[:_PIECE_BYTES].lstrip().startswith(b"{")
    begun: tuple[int, int, int, int] | None = None  # `_totals_at` of a record that continues in the next piece
    for start in range(0, len(bare), _PIECE_BYTES):
        piece = np.frombuffer(bare, np.uint8, min(_PIECE_BYTES, len(bare) - start), start)
        places, quotes = _marks_outside_texts(piece, quotes)
        marks = piece[places]
        steps = _STEPS[marks]
        depths = np.cumsum(steps, dtype=np.int32) + depth
        counts = np.cumsum(steps >= 0, dtype=np.int32) + values
        rows = np.cumsum(marks == _LIST, dtype=np.int32) + lists
        outer = np.flatnonzero((steps == 1) & (depths == _DEPTH - 1))
        at = partial(_totals_at, places + start, counts, rows, outer, np.concatenate([[parent], marks[outer]]))
        keys += int(np.count_nonzero((marks == _COMMA) & (depths == 1)))
        if is_object and keys > _MOST_OUTER_KEYS:
            raise BadRequest(f"it has more than {_MOST_OUTER_KEYS:,} keys", where="body")
        begins = np.flatnonzero((steps == 1) & (depths == _DEPTH))
        ends = np.flatnonzero((steps == -1) & (depths == _DEPTH - 1))
        if begun is not None and len(ends):
            yield from _oversized_record(begun, at(ends[0]))
            begun, ends = None, ends[1:]
        if len(begins) > len(ends):
            begun, begins = at(begins[-1]), begins[:-1]
        for pair in np.flatnonzero(counts[ends] - counts[begins] > MOST_LISTS_IN_A_ROW):
            yield from _oversized_record(at(begins[pair]), at(ends[pair]))
        if len(marks):
            depth, values, lists = int(depths[-1]), int(counts[-1]), int(rows[-1])
            parent = int(marks[outer[-1]]) if len(outer) else parent


def _totals_at(
    places: _Numbers, values: _Numbers, lists: _Numbers, outer: _Numbers, parents: _Numbers, mark: int
) -> tuple[int, int, int, int]:
    """Return (position in the body, values up to there, lists up to there, last bracket of `outer` before) of a mark.

    A mark is a comma or bracket outside texts. The body is processed in pieces.

    Args:
        places, values, lists: position of each mark of the piece, and the numbers of values and lists up to it.
        outer: indexes of the marks that open a list or object which can contain records.
        parents: the last such bracket in the pieces before, then the brackets at the marks in `outer`.
        mark: index of the mark.
    """
    return int(places[mark]), int(values[mark]), int(lists[mark]), int(parents[np.searchsorted(outer, mark)])


def _marks_outside_texts(piece: NDArray[np.uint8], quotes: int) -> tuple[NDArray[np.intp], int]:
    """Return the indexes in a piece of commas and brackets outside texts, and the number of quotes up to its end.

    Args:
        quotes: number of quotes in all pieces before this one.
    """
    places = np.flatnonzero(_IS_MARK[piece])
    is_quote = piece[places] == _QUOTE
    if not (quotes % 2 or is_quote.any()):
        return places, quotes
    quoted = np.cumsum(is_quote, dtype=np.int32) + quotes
    return places[(quoted % 2 == 0) & ~is_quote], int(quoted[-1]) if len(quoted) else quotes


def _oversized_record(begin: tuple[int, int, int, int], end: tuple[int, int, int, int]) -> Iterator[_RecordExtent]:
    record = _RecordExtent(begin[0], end[0] + 1, end[1] - begin[1], end[2] - begin[2])
    if begin[3] == _LIST and record.values > MOST_LISTS_IN_A_ROW:
        yield record
