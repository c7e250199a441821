"""One object as a key of what is remembered of it, whatever else is equal to it."""

from typing import Generic, TypeVar

Held = TypeVar("Held")


class Same(Generic[Held]):
    """Equal to a key of the same object alone: two databases may hold catalogues with equal numbers."""

    def __init__(self, held: Held) -> None:
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.held is other.held
