"""A part of a question: consecutive tokens that are read as one thing, such as a field name or a number."""

from dataclasses import dataclass

from agent.intent.found import Piece
from agent.intent.sentence import Sentence

UNKNOWN, VALUE, FILLER, FIELD, RECORD, PIECE, NUMBER, MARK, UNIT = (
    "unknown", "value", "filler", "field", "record", "piece", "number", "mark", "unit",
)  # fmt: skip
"""Kinds of parts: RECORD is a noun that stands for a document ("invoices"), PIECE states a constraint (`Piece`), VALUE
is a value of a field that states no constraint, MARK is punctuation, UNIT a unit of measurement."""
_SOFT = frozenset(
    """
    filler mark piece record by which who where when people listed name_of having among rank together more fewer
    breakdown exists exactly ratio alone people
    """.split()
)
"""Kinds of parts that a calculation may ignore, because they restrict nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive tokens [first, last) of a question, characters [start, end), that are read as one thing.

    Attributes:
        kind: a constant of this module, or a class of calculating words in agent/intent/words: "count" for "how many".
        fields: the metadata fields that the tokens may name; a calculating word ("total") may name a field as well.
        strength: how surely the tokens name the fields, from 5 (a full name) to 1 (a word of the same root); else 0.
        piece: the constraint that the characters state, for the kind PIECE.
        number: the number that the characters state, for the kind NUMBER.
        guessed: for the kind RECORD: True if only its position shows that the noun stands for documents.
    """

    kind: str
    first: int
    last: int
    start: int
    end: int
    fields: tuple[str, ...] = ()
    strength: float = 0.0
    piece: Piece | None = None
    number: int | None = None
    guessed: bool = False

    @property
    def is_soft(self) -> bool:
        """Return whether the part may stay unused."""
        return self.kind in _SOFT


def part_text(sentence: Sentence, part: Part) -> str:
    """Return the characters of the question that a part covers."""
    return sentence.text[part.start : part.end]
