"""A value that does not exist, with those that do."""

from agent.types import Rejected


class RejectedValue(Rejected):
    """A value that a question names and that no document has.

    Attributes:
        fields: those whose values `valid` are; not part of an answer.
    """

    fields: tuple[str, ...]
