"""A value that does not exist, with those that do."""

from agent.types import Rejected


class RejectedValue(Rejected):
    """A value that a question names and that no document has.

    Attributes:
        fields: those whose values `valid` are; not part of an answer.
        instead: of a name that means several values: what is said of it where fewer than two of them exist, as of a
            name that is unknown; None of any other.
    """

    fields: tuple[str, ...]
    instead: "tuple[RejectedValue, ...] | None" = None
