"""The interface of a source of documents, as used by the run that mirrors it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from retrievers.core.collection_schema import Schema
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.sandbox import CancelCheck

MOST_ITEMS = 1_000_000
"""Maximum number of items of a source, because their names and versions are held in memory."""
MOST_KEY_CHARACTERS = 512
_LONGEST_SHOWN = 100


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
        is_unchanged: the digest has not changed, so the item's documents were not read and stay as they are.
    """

    key: str
    digest: bytes | None = None
    is_unchanged: bool = False


@dataclass(frozen=True, slots=True)
class UnreadableItem:
    """An item that could not be read now. Its stored documents stay, and the next run tries again."""

    key: str
    reason: str


ReadEvent = ItemDocument | ItemEnd | UnreadableItem
"""What the reading of a source yields."""


def read_events(
    key: str, items: Iterable[tuple[int, Document | RejectedItem]], digest: bytes | None = None
) -> Iterator[ReadEvent]:
    """Yield the documents of a file, then an `ItemEnd`, or `UnreadableItem` if the file could not be read to its end.

    After `UnreadableItem`, no stored document of the file is deleted.

    Args:
        key: key of the file.
        items: documents and failures of the file; the number in each pair is ignored.
        digest: digest of the file's content, for the `ItemEnd`.
    """
    unreadable: str | None = None
    for _, item in items:
        if isinstance(item, RejectedItem) and item.cut:
            unreadable = item.reason
        else:
            yield ItemDocument(key, item)
    yield ItemEnd(key, digest) if unreadable is None else UnreadableItem(key, unreadable)


@dataclass(frozen=True, slots=True)
class ItemRequest:
    """An item to read.

    Attributes:
        digest: digest of the item when it was last read; None if it must be read into documents in any case.
    """

    key: str
    digest: bytes | None = None


class Source(Protocol):
    """A source of documents. Both methods block on files and servers, so they are called in threads, one at a time."""

    @property
    def name(self) -> str:
        """A permanent name of the source, without passwords. It is the same from any working directory."""

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """Return the current items.

        Raises:
            BadRequest: the source does not exist.
            Unavailable: it cannot be listed now, or `is_cancelled` returned True.
        """

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """Yield the documents of each item, then an `ItemEnd` or `UnreadableItem` for it, in the order of `requests`.

        Raises:
            Unavailable: the source as a whole cannot be read now, or `is_cancelled` returned True.
        """


def raise_if_cancelled(is_cancelled: CancelCheck) -> None:
    """Raise `Unavailable` if the caller no longer waits.

    Raises:
        Unavailable: the caller no longer waits.
    """
    if is_cancelled():
        raise Unavailable("the source", "nobody waits for it any more")


def check_item_count(count: int) -> None:
    """Raise `BadRequest` if a source has more than `MOST_ITEMS` items."""
    if count > MOST_ITEMS:
        raise BadRequest(f"the source has more than {MOST_ITEMS:,} items: sync its parts one by one", where="source")


def key_problem(key: str) -> str | None:
    """Return the reason why an item cannot have this key; None if it can."""
    if not key or len(key) > MOST_KEY_CHARACTERS:
        return f"its name has {len(key):,} characters; 1 to {MOST_KEY_CHARACTERS} are allowed"
    return None if key.isprintable() else "its name holds characters that cannot be printed"


def rejected_item(key: str, reason: str) -> RejectedItem:
    """Return the failure of an item that cannot be listed."""
    return RejectedItem(key[:_LONGEST_SHOWN], None, reason)
