"""Prepare a document for storage: digest, passages and their terms. Pure functions."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retrievers.core.errors import BadDocument
from retrievers.core.file_positions import FilePositions
from retrievers.core.metadata import Field, Scalar, flatten_metadata, normalise_metadata
from retrievers.ingest.documents import MAX_TITLE_CHARACTERS, NOTHING_SEARCHABLE, Document, has_searchable_content
from retrievers.text import analysis, bm25, chunking, languages

MAX_ID_CHARACTERS = 512
MAX_METADATA_BYTES = 65_536
MAX_DOCUMENT_BYTES = 8 << 20
"""Maximum size of a document with its metadata, in bytes of UTF-8. It is that of a request's body."""
_MOST_CONTEXT = 512
"""Maximum length of a title or heading that is embedded with a passage. The rest is cut, to leave room for the text."""
_TOO_MUCH_METADATA = f"the metadata takes more than {MAX_METADATA_BYTES:,} bytes"


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of a document before it has a vector.

    Attributes:
        gap: the white space between this passage and the document's next one.
        start, end: position of the passage in the document's text: characters [start, end).
        embedded: the text to embed: the beginnings of title and headings, and the passage.
        digest: digest of `embedded`. Passages with the same digest have the same vector.
        packed_lexemes: `lexemes` as compressed text. Millions of small objects would leave holes in the process's
            memory, which Python does not give back.
        length: length that BM25 uses, in words; see `bm25.passage_lexemes`.
        places: the pages, slides or rows that the passage comes from; None if the document has none.
    """

    start: int
    end: int
    heading: str
    text: str
    gap: str
    embedded: str
    digest: bytes
    packed_lexemes: bm25.PackedPositions
    length: int
    places: FilePositions | None = None

    @property
    def lexemes(self) -> bm25.Positions:
        """Terms with their positions and labels; see `bm25.passage_lexemes`. Unpacked on each call."""
        return bm25.unpack_positions(self.packed_lexemes)

    @property
    def terms(self) -> list[str]:
        """The keys of `lexemes`. Unpacked on each call."""
        return bm25.unpack_terms(self.packed_lexemes)


@dataclass(frozen=True, slots=True)
class PreparedDocument:
    """A document ready to be embedded and written."""

    document: Document
    digest: bytes
    language: str
    fields: Mapping[str, Scalar | list[Scalar]]
    passages: tuple[Passage, ...]


def field_values(document: Document, fields: Mapping[str, Field]) -> dict[str, Scalar | list[Scalar]]:
    """Return the document's filterable values in normal form, by field, with id, title and public. {} if disabled.

    Raises:
        BadDocument: a value does not fit its field, or there are too many.
    """
    if not document.enabled:
        return {}
    values = normalise_metadata(flatten_metadata(document.metadata), fields)
    own: dict[str, Scalar] = {"id": document.id, "title": document.title, "public": document.public}
    reserved = {key: value for key, value in own.items() if key not in values and value != ""}
    return {**reserved, **values}


def digest_of(document: Document, values: Mapping[str, Any]) -> bytes:
    """Return the digest of a document's content and of the versions of analysis and splitting that process it."""
    given = {
        "versions": [analysis.VERSION, chunking.VERSION],
        "title": document.title,
        "text": document.text,
        "url": document.url,
        "metadata": document.metadata,
        "values": values,
        "important": document.important,
        "questions": document.questions,
        "public": document.public,
        "expires_at": document.expires_at,
        # Included only if set: otherwise all digests stored before these options existed would change.
        **({} if document.enabled else {"enabled": False}),
        **({"readers": document.readers} if document.readers else {}),
        **({"places": document.places.to_json()} if document.places else {}),
    }
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode()).digest()


def check_document(document: Document) -> None:
    """Check that the document can be stored.

    Raises:
        BadDocument: the document cannot be stored. The message says why.
    """
    if not document.id:
        raise BadDocument("the id is empty")
    if len(document.id) > MAX_ID_CHARACTERS:
        raise BadDocument(f"the id has {len(document.id):,} characters; the limit is {MAX_ID_CHARACTERS}")
    if len(document.title) > MAX_TITLE_CHARACTERS:
        raise BadDocument(f"the title has {len(document.title):,} characters; the limit is {MAX_TITLE_CHARACTERS:,}")
    if not has_searchable_content(document):
        raise BadDocument(NOTHING_SEARCHABLE)
    _check_extent(document.metadata)
    try:
        metadata = json.dumps(document.metadata, default=str, ensure_ascii=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadDocument(f"the metadata cannot be written as JSON: {error}") from None
    texts = (document.id, document.title, document.text, document.url or "", metadata)
    size = sum(_storable_bytes(text) for text in (*texts, *document.important, *document.questions))
    if len(metadata.encode()) > MAX_METADATA_BYTES:
        raise BadDocument(_TOO_MUCH_METADATA)
    if size > MAX_DOCUMENT_BYTES:
        raise BadDocument(f"it has {size:,} bytes; the limit of a document is {MAX_DOCUMENT_BYTES >> 20} MiB: split it")


def _check_extent(metadata: object) -> None:
    """Refuse large metadata before it is encoded as JSON, which would block all threads.

    Raises:
        BadDocument: the JSON of the metadata exceeds the limit, by an estimate that is never too high.
    """
    pending, least = [metadata], 0
    while pending:
        value = pending.pop()
        least += len(value) if isinstance(value, str | dict | list | tuple | set | frozenset) else 1
        if least > MAX_METADATA_BYTES:
            raise BadDocument(_TOO_MUCH_METADATA)
        if isinstance(value, dict | list | tuple | set | frozenset):
            pending.extend(value)
        if isinstance(value, dict):
            pending.extend(value.values())


def _storable_bytes(text: str) -> int:
    """Return the size of a text in bytes. Refuse a text that PostgreSQL cannot store.

    Only Python callers can pass such a text: texts from files are cleaned.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadDocument("it contains half a surrogate pair, which is not a character") from None
    if "\0" in text:
        raise BadDocument("it contains a NUL character, which PostgreSQL cannot store")
    return size


def prepare(document: Document, values: dict[str, Scalar | list[Scalar]], digest: bytes) -> PreparedDocument:
    """Split and analyse a document. A disabled document has no passages.

    Args:
        values: result of `field_values`. The language is added to it.
    """
    if not document.enabled:
        return PreparedDocument(document, digest, "", values, ())
    language = languages.detect_language(f"{document.title}\n{document.text}")
    values.setdefault("language", language)
    passages = []
    analysed = bm25.cached_analyser()
    spans = chunking.split_passages(document.text) or [chunking.PassageSpan(0, 0, "")]
    following = [span.start for span in spans[1:]] + [len(document.text)]
    important, questions = "\n".join(document.important), "\n".join(document.questions)
    for span, after in zip(spans, following, strict=True):
        text = document.text[span.start : span.end]
        body = text or ("" if document.title else _metadata_text(document.metadata))
        context = [part for part in (document.title, span.heading) if part and not body.startswith(part)]
        embedded = "\n".join([*(part[:_MOST_CONTEXT] for part in context), body] if body else context)
        found, length = bm25.passage_lexemes(
            body,
            language,
            title="\n".join(part for part in (document.title, span.heading) if part),
            important=(important,),
            questions=(questions,),
            analysed=analysed,
            most_field_terms=bm25.MOST_FIELD_TERMS // len(spans),
        )
        passages.append(
            Passage(
                span.start,
                span.end,
                span.heading,
                text,
                document.text[span.end : after],
                embedded,
                hashlib.sha256(embedded.encode()).digest(),
                bm25.pack_positions(found),
                length,
                document.places and document.places.covering(span.start, span.end),
            )
        )
    return PreparedDocument(document, digest, language, values, tuple(passages))


def _metadata_text(metadata: Mapping[str, Any]) -> str:
    """Return the text to search for a document that has neither text nor title: one line per metadata value."""
    lines = []
    for key, value in flatten_metadata(metadata).items():
        said = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        lines.append(f"{key}: {said}")
    return "\n".join(lines)[: chunking.PASSAGE_CAPACITY]
