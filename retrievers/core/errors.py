"""Errors raised on purpose, split by what the caller does next."""

from collections.abc import Iterable


class RetrievalError(Exception):
    """Base of every error a retriever or the store raises on purpose."""


class Unavailable(RetrievalError):
    """A dependency is down, slow, too old or out of quota: try the fallback, or mend it."""

    def __init__(self, source: str, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{source} is unavailable: {reason}")
        self.source, self.reason, self.retry_after_s = source, reason, retry_after_s


class TooCostly(Unavailable):
    """This one query needs more than the source gives to any: that says nothing of the source."""


class BadRequest(RetrievalError):
    """The caller asked for something that cannot be: tell them, do not retry.

    Attributes:
        where: the part of the request at fault, as a dotted path ("filter.filters.0.key").
        valid: what would have been accepted there, when that is a short list.
    """

    def __init__(self, message: str, *, where: str = "", valid: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.where, self.valid = where, tuple(valid)


class BadFilter(BadRequest):
    """The filter names a field, operator or value that the collection does not have."""


class NotFound(BadRequest):
    """Nothing of that name or id is visible to the tenant, whether or not another has it."""


class UnknownCollection(NotFound):
    """No collection of that name is visible to the tenant."""


class BadDocument(BadRequest):
    """One document cannot be stored; the others are not affected."""


class EmbedderMismatch(BadRequest):
    """The collection was built with another embedder: vectors of two models never share an index."""


def listing(names: Iterable[str], most: int = 12) -> str:
    """Names for an error message: sorted, quoted, cut after `most`."""
    ordered = sorted(set(names))
    shown = ", ".join(f'"{name}"' for name in ordered[:most])
    return (shown or "none") + (f" and {len(ordered) - most} more" if len(ordered) > most else "")
