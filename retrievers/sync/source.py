"""The interface of a source of documents, as used by the run that mirrors it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from retrievers.core.errors import Unavailable
from retrievers.core.schema import Schema
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.sandbox import Stopped

MOST_ITEMS = 1_000_000
"""Maximum number of items of a source, because their names and versions are held in memory."""
MOST_KEY_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class SourceItem:
    """A file, object, page or row, which provides documents.

    Attributes:
        key: name of the item within the source, the same in every run.
        version: differs whenever the item's content has changed; None if the item must be read to find out.
    """

    key: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The current items of a source.

    Attributes:
        unlisted: keys of items and folders that could not be listed. Documents stored from there stay.
        failed: entries that could not be listed, with the reason.
        schema: schema declared by the source itself.
    """

    items: Sequence[SourceItem]
    unlisted: Sequence[str] = ()
    failed: Sequence[RejectedItem] = ()
    schema: Schema = field(default_factory=Schema)


@dataclass(frozen=True, slots=True)
class ItemDocument:
    """One document of an item, or the reason why the document is invalid.

    Attributes:
        key: key of the item.
        item: the document, or why it is invalid.
    """

    key: str
    item: Document | RejectedItem


@dataclass(frozen=True, slots=True)
class ItemEnd:
    """Tells that an item has been read completely: its documents were yielded before.

    Attributes:
        digest: digest of the item's content; None if its version is enough to detect changes.
        is_same: the digest has not changed, so the item's documents were not read and stay as they are.
    """

    key: str
    digest: bytes | None = None
    is_same: bool = False


@dataclass(frozen=True, slots=True)
class Unread:
    """An item that could not be read now. Its stored documents stay, and the next run tries again."""

    key: str
    reason: str


Read = ItemDocument | ItemEnd | Unread


def reads_of(
    key: str, items: Iterable[tuple[int, Document | RejectedItem]], digest: bytes | None = None
) -> Iterator[Read]:
    """Yield the documents of a file, then an `ItemEnd`, or `Unread` if the file could not be read to its end.

    After `Unread`, no stored document of the file is deleted.

    Args:
        key: key of the file.
        items: documents and failures of the file; the number in each pair is ignored.
        digest: digest of the file's content, for the `ItemEnd`.
    """
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
        digest: digest of the item when it was last read; None if it must be read into documents in any case.
    """

    key: str
    digest: bytes | None = None


class Source(Protocol):
    """A source of documents. Both methods block on files and servers, so they are called in threads, one at a time."""

    @property
    def shown(self) -> str:
        """A permanent name of the source, without passwords. It is the same from any working directory."""

    def listing(self, stopped: Stopped) -> Listing:
        """Return the current items.

        Raises:
            BadRequest: the source does not exist.
            Unavailable: it cannot be listed now, or `stopped` returned True.
        """

    def read(self, wanted: Sequence[Wanted], stopped: Stopped) -> Iterator[Read]:
        """Yield the documents of each item, in the order of `wanted`, followed by an `ItemEnd` or `Unread` for it.

        Raises:
            Unavailable: the source as a whole cannot be read now, or `stopped` returned True.
        """


def check_running(stopped: Stopped) -> None:
    """Check that the caller still waits.

    Raises:
        Unavailable: the caller no longer waits.
    """
    if stopped():
        raise Unavailable("the source", "nobody waits for it any more")
