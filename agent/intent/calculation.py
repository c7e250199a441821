"""What a question asks of the metadata."""

from dataclasses import dataclass

from agent.intent.filters import Json
from agent.intent.found import Piece


@dataclass(frozen=True, slots=True)
class Calculation:
    """An aggregate (the JSON of retrievers.core.aggregates) and the filter it works within.

    Attributes:
        pieces: what is left of the constraints as a filter: a share's condition is none.
        sure: the words ask for it; otherwise it only happens that nothing but metadata was asked for.
    """

    aggregate: Json
    pieces: tuple[Piece, ...]
    sure: bool = True
