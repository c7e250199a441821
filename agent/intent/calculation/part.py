"""A part of a question: a run of its tokens with one reading."""

from dataclasses import dataclass

from agent.intent.found import Piece
from agent.intent.sentence import Sentence

UNKNOWN, VALUE, FILLER, FIELD, RECORD, PIECE, NUMBER, MARK, UNIT = (
    "unknown", "value", "filler", "field", "record", "piece", "number", "mark", "unit",
)  # fmt: skip
_SOFT = frozenset(
    """
    filler mark piece record by which who where when people listed name_of having among rank together more fewer
    breakdown exists exactly ratio alone people
    """.split()
)
"""Kinds that need not be used by a slot, because they restrict nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of tokens [first, last), characters [start, end), with its reading.

    Attributes:
        kind: a class of words in words/*.toml, or one of the constants of this module.
        fields: the fields it points at; a calculating word may be the name of a field as well.
        strength: how strongly it points at them, see `Column`.
        piece: the constraint that the characters state.
        number: its value, if it is a number.
        guessed: True if only its position makes it a word for records.
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
    """Return the text of a part."""
    return sentence.text[part.start : part.end]
