"""Errors that are raised on purpose. The class tells the caller what to do next."""

from collections.abc import Iterable
from datetime import UTC, datetime

from retrievers.core.credentials import mask_credentials


class RetrievalError(Exception):
    """Base of every error that a retriever or the store raises on purpose.

    The message is shown to callers, logged and stored with jobs, so credentials in quoted addresses are masked.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(mask_credentials(message))


class Unavailable(RetrievalError):
    """A dependency is down, slow, outdated or out of quota. Use the fallback, or repair the dependency."""

    def __init__(self, source: str, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{source} is unavailable: {reason}")
        self.source, self.reason, self.retry_after_s = source, mask_credentials(reason), retry_after_s


class TooCostly(Unavailable):
    """This query needs more resources than the source grants any query. The source itself is healthy."""


class BadRequest(RetrievalError):
    """The request cannot be fulfilled as it is. Tell the caller, do not retry.

    Attributes:
        where: the invalid part of the request, as a dotted path ("filter.filters.0.key").
        valid: the accepted values, if the list is short.
    """

    def __init__(self, message: str, *, where: str = "", valid: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.where, self.valid = where, tuple(valid)


class BadFilter(BadRequest):
    """The filter names a field, operator or value that the collection does not have."""


class NotFound(BadRequest):
    """The tenant can see nothing with this name or id. Another tenant may own something with it."""


class UnknownCollection(NotFound):
    """The tenant can see no collection of this name."""


class BadDocument(BadRequest):
    """One document cannot be stored. Other documents are not affected."""


class EmbedderMismatch(BadRequest):
    """The collection was built with another embedder. Vectors of two models cannot share an index."""


class QuotaUsedUp(RetrievalError):
    """The tenant has used up its daily quota. Retry when the day has ended.

    Attributes:
        ends_at: end of the day in the tenant's time zone.
    """

    def __init__(self, message: str, ends_at: datetime) -> None:
        super().__init__(message)
        self.ends_at = ends_at

    @property
    def retry_after_s(self) -> float:
        """Seconds until the day ends, at least 0."""
        return max((self.ends_at - datetime.now(UTC)).total_seconds(), 0.0)


def join_names(names: Iterable[str], most: int = 12) -> str:
    """Join names for an error message, sorted and quoted: `"a", "b" and 3 more` if `most` is 2 and there are 5."""
    ordered = sorted(set(names))
    shown = ", ".join(f'"{name}"' for name in ordered[:most])
    return (shown or "none") + (f" and {len(ordered) - most} more" if len(ordered) > most else "")
