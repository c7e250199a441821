"""A document on its way into the store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from retrievers.core.file_positions import FilePositions
from retrievers.text.prompt_sanitising import is_blank

MAX_TITLE_CHARACTERS = 8000
"""Maximum length of a title. Its terms are stored with each passage, so a long title would take much space."""
NOTHING_SEARCHABLE = "the text is empty, and there is no title or metadata to search"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as read from a file or a request, cleaned but not yet analysed.

    Attributes:
        where: its position in the input, for messages ("docs.jsonl:17").
        id: unique within its collection.
        metadata: as given. The fields of the collection determine the types of the values.
        important: key terms, weighted higher than the text in full-text search (BM25F).
        questions: questions that the document answers, with the highest weight in full-text search.
        public: True lets every tenant read the document, if it belongs to the platform tenant; otherwise no effect.
        readers: users and groups that may read the document; empty for everybody in the tenant.
        enabled: False only stores the document: it is not found and not counted.
        notes: repairs made while reading ("3 control characters replaced").
        places: where in the text the pages, slides or rows of its file begin; None if it has none.
        scanned: how many pages of the file are pictures without text.
    """

    where: str
    id: str
    title: str
    text: str
    url: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    important: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    public: bool = False
    readers: tuple[str, ...] = ()
    enabled: bool = True
    expires_at: datetime | None = None
    notes: tuple[str, ...] = ()
    places: FilePositions | None = None
    scanned: int = 0


def count_characters(document: Document) -> int:
    """Return about how many characters a document has in memory. Inner values of its metadata are not counted."""
    texts = (document.text, *document.important, *document.questions, *document.metadata.values())
    return sum(len(text) for text in texts if isinstance(text, str | list | dict))


def has_searchable_content(document: Document) -> bool:
    """Return whether a search can find the document: it has a text, a title, key terms, questions or metadata.

    Invisible characters, such as zero-width spaces, are none of these.
    """
    if not all(map(is_blank, (document.text, document.title, *document.important, *document.questions))):
        return True
    return any(value not in (None, "", [], {}) for value in document.metadata.values())


@dataclass(frozen=True, slots=True)
class RejectedItem:
    """An input item that is not a valid document.

    Attributes:
        where: its position in the input, for messages.
        id: id of the intended document; None if it is not known.
        reason: why it is not valid, in one line.
        readers: readers of the intended document. Only they may see the reason.
        cut: True if the file could not be read beyond this item.
        scanned: how many pages of the file are pictures without text.
    """

    where: str
    id: str | None
    reason: str
    readers: tuple[str, ...] = ()
    cut: bool = False
    scanned: int = 0
