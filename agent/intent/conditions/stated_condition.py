"""A condition that a question states, as all readers of conditions return it."""

from dataclasses import dataclass

from agent.intent.conditions.filter_json import Json


@dataclass(frozen=True, slots=True)
class StatedCondition:
    """A condition that a question states at characters [start, end). `why` is the evidence for it in words, or ""."""

    field: str
    filter: Json
    start: int
    end: int
    confidence: float = 1.0
    why: str = ""
