"""What a source of documents is to the run that mirrors it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from retrievers.core.errors import Unavailable
from retrievers.core.schema import Schema
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.sandbox import Stopped

MOST_ITEMS = 1_000_000
"""Of one source: their names and versions are in memory at once."""
MOST_KEY_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A file, object, page or row.

    Attributes:
        key: names it within its source, from run to run.
        version: changes whenever its content does; None where nothing tells but reading it.
    """

    key: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source has now.

    Attributes:
        unlisted: beginnings of keys below which it could not be looked: what was stored from there stays.
        failed: what could not be listed, and why.
        schema: declared by the source itself.
    """

    items: Sequence[SourceItem]
    unlisted: Sequence[str] = ()
    failed: Sequence[RejectedItem] = ()
    schema: Schema = field(default_factory=Schema)


@dataclass(frozen=True, slots=True)
class ItemDocument:
    """One document of an item, or what is wrong with it."""

    key: str
    item: Document | RejectedItem


@dataclass(frozen=True, slots=True)
class ItemEnd:
    """All documents of an item have been found.

    Attributes:
        digest: of its content; None where the version can be trusted.
        is_same: its digest is the known one, so it was not read into documents.
    """

    key: str
    digest: bytes | None = None
    is_same: bool = False


@dataclass(frozen=True, slots=True)
class Unread:
    """An item that could not be read now: what was stored from it stays, and the next run tries again."""

    key: str
    reason: str


Read = ItemDocument | ItemEnd | Unread


def reads_of(
    key: str, items: Iterable[tuple[int, Document | RejectedItem]], digest: bytes | None = None
) -> Iterator[Read]:
    """What the documents of a file make of an item; of a file that was not read to its end nothing is gone."""
    unread: str | None = None
    for _, item in items:
        if isinstance(item, RejectedItem) and item.cut:
            unread = item.reason
        else:
            yield ItemDocument(key, item)
    yield ItemEnd(key, digest) if unread is None else Unread(key, unread)


@dataclass(frozen=True, slots=True)
class Wanted:
    """An item to read.

    Attributes:
        digest: as it was read last; None where it must be read into documents in any case.
    """

    key: str
    digest: bytes | None = None


class Source(Protocol):
    """Both methods wait for files and servers: they are called in threads, one at a time."""

    @property
    def shown(self) -> str:
        """Names the source for good, the same from any folder, and without passwords."""

    def listing(self, stopped: Stopped) -> Listing:
        """What there is now.

        Raises:
            BadRequest: there is no such source.
            Unavailable: it cannot be listed now, or `stopped` said so.
        """

    def read(self, wanted: Sequence[Wanted], stopped: Stopped) -> Iterator[Read]:
        """The documents of items, each item's together and in the order asked for, and its end.

        Raises:
            Unavailable: the source as a whole cannot be read now, or `stopped` said so.
        """


def check_running(stopped: Stopped) -> None:
    """Raises:
    Unavailable: nobody waits any more.
    """
    if stopped():
        raise Unavailable("the source", "nobody waits for it any more")
