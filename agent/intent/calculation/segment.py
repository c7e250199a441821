"""`Segment`: consecutive tokens of a question that are read as one thing, such as a field name or a number."""

from dataclasses import dataclass

from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.stated_condition import StatedCondition

UNKNOWN, VALUE, FILLER, FIELD, RECORD, CONDITION, NUMBER, MARK, UNIT = (
    "unknown", "value", "filler", "field", "record", "condition", "number", "mark", "unit",
)  # fmt: skip
"""Kinds of segments: RECORD is a noun that stands for a document ("invoices"), CONDITION a `StatedCondition`, VALUE a
field's value that states no condition, MARK punctuation, UNIT a unit of measurement."""
_IGNORABLE = frozenset(
    """
    filler mark condition record by which who where when listed name_of having among rank together more fewer
    breakdown exists exactly ratio alone people
    """.split()
)
"""Kinds of segments that a calculation may ignore, because they restrict nothing by themselves."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive tokens [first, last) of a question, characters [start, end), that are read as one thing.

    Attributes:
        kind: a constant of this module, or a class of calculating words in agent/intent/words: "count" for "how many".
        fields: the metadata fields that the tokens may name; a calculating word ("total") may name a field as well.
        strength: how surely the tokens name the fields, from 5 (a full name) to 1 (a word of the same root); else 0.
        condition: the condition that the characters state, for the kind CONDITION.
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
    condition: StatedCondition | None = None
    number: int | None = None
    guessed: bool = False

    @property
    def is_ignorable(self) -> bool:
        """Return whether the segment may stay unused."""
        return self.kind in _IGNORABLE


def segment_text(sentence: Sentence, segment: Segment) -> str:
    """Return the characters of the question that a segment covers."""
    return sentence.text[segment.start : segment.end]
