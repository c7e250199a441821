"""One document on its way in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from retrievers.core.places import Places

NOTHING_TO_FIND = "the text is empty, and there is neither a title nor metadata to find it by"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as read from a file or a request, cleaned but not yet analysed.

    Attributes:
        where: its place in the input, for messages ("docs.jsonl:17").
        id: unique within its collection.
        metadata: as given; types are settled by the collection's fields.
        important: key terms that weigh more than the text (BM25F).
        questions: questions the document answers; they weigh most.
        public: readable by every tenant when it belongs to the platform tenant.
        readers: users and groups that may read it; everybody of the tenant where there are none.
        enabled: False stores it and no more: nobody finds it, and it counts nowhere.
        notes: what was mended on the way ("3 NUL characters removed").
        places: of the text in its file, where that has pages, slides or rows.
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
    places: Places | None = None
    scanned: int = 0


def says_something(document: Document) -> bool:
    """Whether there is anything to find a document by: a text, a title, key terms, questions or metadata."""
    if document.text.strip() or document.title.strip() or document.important or document.questions:
        return True
    return any(value not in (None, "", [], {}) for value in document.metadata.values())


@dataclass(frozen=True, slots=True)
class Rejected:
    """An input item that is no document, with the reason in one line.

    Attributes:
        readers: as of the document it would have been; what is wrong with others is none of their business.
        cut: it ended the reading of a file: what the file holds behind it is not known.
        scanned: how many pages of the file are pictures without text.
    """

    where: str
    id: str | None
    reason: str
    readers: tuple[str, ...] = ()
    cut: bool = False
    scanned: int = 0
