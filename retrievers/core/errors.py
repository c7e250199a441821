"""Errors raised on purpose, split by what the caller does next."""

from collections.abc import Iterable
from datetime import UTC, datetime

from retrievers.core.secrets import without_credentials


class RetrievalError(Exception):
    """Base of every error a retriever or the store raises on purpose.

    Its text is shown to callers, logged and kept with jobs: credentials of an address that it quotes are none of it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(without_credentials(message))


class Unavailable(RetrievalError):
    """A dependency is down, slow, too old or out of quota: try the fallback, or mend it."""

    def __init__(self, source: str, reason: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(f"{source} is unavailable: {reason}")
        self.source, self.reason, self.retry_after_s = source, without_credentials(reason), retry_after_s


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


class QuotaUsedUp(RetrievalError):
    """The tenant has used what it may use in a day: come back when the day has ended.

    Attributes:
        ends_at: when that is.
    """

    def __init__(self, message: str, ends_at: datetime) -> None:
        super().__init__(message)
        self.ends_at = ends_at

    @property
    def retry_after_s(self) -> float:
        """Seconds until the day ends."""
        return max((self.ends_at - datetime.now(UTC)).total_seconds(), 0.0)


def listing(names: Iterable[str], most: int = 12) -> str:
    """Names for an error message: sorted, quoted, cut after `most`."""
    ordered = sorted(set(names))
    shown = ", ".join(f'"{name}"' for name in ordered[:most])
    return (shown or "none") + (f" and {len(ordered) - most} more" if len(ordered) > most else "")
