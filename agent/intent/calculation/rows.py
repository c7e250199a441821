"""Find the records that a question names by a text in one of their fields: "what is the time of Ann Lee"."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from agent.intent.calculation.describing import described_value
from agent.intent.calculation.part import FILLER, RECORD, UNKNOWN, VALUE, Part
from agent.intent.catalogue import truth_of
from agent.intent.columns import Columns
from agent.intent.filter_json import Json, values_allowed
from agent.intent.found import Found, Piece
from agent.intent.negation import is_negated
from agent.intent.text import words_of
from retrievers.core.types import FieldCatalogue

_LONGEST = 8
_MOST_WORDS = 12
"""Maximum words of a value that some of its words can name."""
_LEAST_CHARACTERS = 4
_MOST_VALUES = 1000
NAMED = 0.8
"""The confidence of a constraint on a value that was found by its words."""
_LEADING = frozenset("in from at by on did does 在 由 从".split())
"""Words after which one word of a value is enough to name it: "from [Lee]"."""

_Named = tuple[str, str, bool]
"""A field, a value, and whether the words are the whole value."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Tokens [first, last), and the values that they may name."""

    first: int
    last: int
    named: tuple[_Named, ...]


def named_rows(found: Found, columns: Columns, parts: Sequence[Part], known: Sequence[Piece] = ()) -> tuple[Piece, ...]:
    """Return `known`, and a constraint for each text value that words of the question name, if they mean nothing else.

    Args:
        known: constraints that name records already; another value of the same field becomes an alternative to theirs.
    """
    others = frozenset(columns.measures) | {name for name, one in columns.vocabulary.units.items() if one.months}
    index = _index(_RowKey(columns.vocabulary.catalogue, others))
    runs: list[_Run] = []
    place = 0
    tokens = _known(parts)
    while place < len(found.sentence.tokens):
        run = _longest(found, tokens, index, place)
        place = place + 1 if run is None else run.last
        runs += [run] if run is not None else []
    pieces = [piece for run in runs if (piece := _constraint(found, run, parts)) is not None]
    return tuple(together([*known, *pieces]))


class _Known(NamedTuple):
    """Indices of the tokens of unknown words and values, of record nouns and fillers (`weak`), and of constraints."""

    unknown: frozenset[int]
    weak: frozenset[int]
    taken: frozenset[int]


def _known(parts: Sequence[Part]) -> _Known:
    def places(meant: Callable[[Part], bool]) -> frozenset[int]:
        return frozenset(n for part in parts if meant(part) for n in range(part.first, part.last))

    return _Known(
        places(lambda part: part.kind in (UNKNOWN, VALUE)),
        places(lambda part: part.kind in (RECORD, FILLER)),
        places(lambda part: part.piece is not None),
    )


def _longest(found: Found, known: _Known, index: Mapping[tuple[str, ...], list[_Named]], place: int) -> _Run | None:
    """Return the longest run of tokens from `place` on that names a value, or None.

    The run is a whole value of several words; or it contains a word without another meaning, and is a value or a part
    of a value.
    """
    tokens = found.sentence.tokens
    unknown, weak, taken = known
    words: list[str] = []
    best: _Run | None = None
    for last in range(place, min(place + _LONGEST, len(tokens))):
        if last in taken:
            break
        if tokens[last].kind == "mark":
            if not words or tokens[last].text in ',;:?!，；：？！。“”"':
                break
            continue
        words.append(tokens[last].folded)
        named = index.get(tuple(words), [])
        whole = tuple(one for one in named if one[2])
        covers = named and not unknown.isdisjoint(range(place, last + 1))
        if not (covers or (whole and len(words) > 1)):
            continue
        said = "".join(words)
        if not whole and (len(said) < _LEAST_CHARACTERS or said.isdigit() or place in weak or last in weak):
            continue
        best = _Run(place, last + 1, whole or tuple(named))
    return best


def _constraint(found: Found, run: _Run, parts: Sequence[Part]) -> Piece | None:
    """Return the constraint that a run states; None if the run may mean several fields, is too vague or is negated."""
    beside = [part for part in parts if run.first - 2 <= part.first < run.first or run.last <= part.first <= run.last]
    cued = {name for part in beside for name in part.fields}
    fields = list(dict.fromkeys(field for field, _, _ in run.named))
    if len(fields) > 1:
        fields = [name for name in fields if name in cued]
    if len(fields) != 1:
        return None
    if described_value(found.sentence, run.first) and any(one.field == fields[0] for one in found.pieces):
        return None  # no record has both states of "new or assigned"
    values = sorted({value for field, value, _ in run.named if field == fields[0]})
    tokens = found.sentence.tokens
    whole = any(one[2] for one in run.named)
    led = run.first > 0 and tokens[run.first - 1].folded in _LEADING
    if not whole and not led and fields[0] not in cued and (len(values) > 1 or run.last - run.first < 2):
        return None
    start, end = tokens[run.first].start, tokens[run.last - 1].end
    if is_negated(found.sentence, start, end, fields) is not False:
        return None  # "far from the valley line" means neither the value nor its opposite
    filter: Json = {"type": "eq", "key": fields[0], "value": values[0]}
    if len(values) > 1:
        filter = {"type": "in", "key": fields[0], "value": values}
    return Piece(fields[0], filter, start, end, NAMED)


def together(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the constraints; those on the same field get one filter with all their values as alternatives.

    No record has two values of a field. Each constraint keeps its own characters.
    """
    joined: list[Piece] = []
    for piece in pieces:
        other = next((one for one in joined if one.field == piece.field), None)
        if other is None:
            joined.append(piece)
            continue
        values = list(dict.fromkeys([*values_allowed(other.filter), *values_allowed(piece.filter)]))
        filter: Json = {"type": "in", "key": piece.field, "value": values}
        confidence = min(other.confidence, piece.confidence)
        joined[joined.index(other)] = Piece(piece.field, filter, other.start, other.end, confidence)
        joined.append(Piece(piece.field, filter, piece.start, piece.end, confidence))
    return joined


@dataclass(frozen=True, slots=True)
class _RowKey:
    """A cache key: a catalogue, compared by identity, and the text fields to leave out, which hold numbers or dates."""

    catalogue: FieldCatalogue
    others: frozenset[str]

    def __hash__(self) -> int:
        return id(self.catalogue)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RowKey) and self.catalogue is other.catalogue


@lru_cache(maxsize=64)
def _index(key: _RowKey) -> Mapping[tuple[str, ...], list[_Named]]:
    """Map each run of words of a text value, and the whole value, to the values that contain it."""
    found: dict[tuple[str, ...], list[_Named]] = {}
    for name, one in key.catalogue.fields.items():
        if one.field.item != "string" or one.field.type == "list" or name in key.others or name == "language":
            continue
        if truth_of(one) is not None:
            continue  # "false" does not tell which true/false field is meant
        if one.distinct > min(len(one.values), _MOST_VALUES):
            continue
        for value in one.values:
            words = words_of(value)
            runs = {words}
            if len(words) <= _MOST_WORDS:
                runs |= {words[n:m] for n in range(len(words)) for m in range(n + 1, len(words) + 1)}
            for run in runs:
                if run and len(run) <= _LONGEST:
                    found.setdefault(run, []).append((name, value, run == words))
    return found
