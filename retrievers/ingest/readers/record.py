"""Build a document from a record: known keys have a meaning, all others are metadata."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from retrievers.core.errors import BadDocument, BadRequest
from retrievers.core.file_positions import FilePositions
from retrievers.core.principals import check_principals
from retrievers.core.types import ALL_PRINCIPALS
from retrievers.ingest.documents import (
    MAX_TITLE_CHARACTERS,
    NOTHING_SEARCHABLE,
    Document,
    RejectedItem,
    has_searchable_content,
)
from retrievers.ingest.readers.oversized_records import oversize_reason
from retrievers.ingest.readers.text_cleaning import Cleaner, json_type, one_line, printable, trim_text

MAX_TEXT_CHARACTERS = 2_000_000
MAX_ID_CHARACTERS = 512
MAX_REASON_CHARACTERS = 200
NO_TEXT = 'no text: send "text" (or "content" or "body") or "title"; with metadata, "text" may be empty'
TEXT_KEYS = ("text", "content", "body")

# An address that executes code in the page of whoever opens it.
_CODE = re.compile(r"(?:javascript|vbscript|data):", re.IGNORECASE)
_UNFIT_FOR_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def read_record(
    record: object, where: str, *, notes: tuple[str, ...] = (), places: FilePositions | None = None
) -> Document | RejectedItem:
    """Build a document from one JSON object, or return why it is not valid.

    Args:
        record: `text` (or `content`, `body`) or `title` is required. `id` or `_id`, `title`, `url`, `metadata`,
            `important`, `questions`, `public`, `readers`, `enabled` and `expires_at` are known keys; null means not
            given. Other keys are metadata and override those inside `metadata`. Without an id, one is derived from
            title and text.
        where: position of the record in the input, for messages.
        notes: repairs made before, which become the first of the document's notes.
        places: positions of pages or rows in the document's text.
    """
    if not isinstance(record, Mapping):
        return rejected_item(where, None, f"{json_type(record)} where an object was expected")
    if (reason := oversize_reason(record)) is not None:
        return _reject_oversized(record, where, reason)
    return build_document(record, where, notes=notes, places=places)


def _reject_oversized(record: Mapping[Any, Any], where: str, reason: str) -> RejectedItem:
    """Reject a record that was not parsed because it has too many values (see `oversized_records`).

    Its readers are unknown, so only operators see the reason."""
    try:
        id = _given_id(record)
    except BadDocument:
        id = None
    return rejected_item(where, id, reason, ALL_PRINCIPALS)


def build_document(
    given: Mapping[Any, Any],
    where: str,
    *,
    text: str | None = None,
    id: str | None = None,
    title: str = "",
    notes: tuple[str, ...] = (),
    cleaner: Cleaner | None = None,
    places: FilePositions | None = None,
) -> Document | RejectedItem:
    """Build a document from the keys and values of a record or a file, or return why it is not valid.

    Args:
        given: a record, or what a file states about itself, such as its front matter.
        text: the body of a file; None for a record, which contains its own.
        id: id of a file that states none itself. A record without an id gets one from its content.
        title: title for a document that states none itself.
        cleaner: the cleaner of the body, if that has already been cleaned.
        places: positions of pages, slides or rows in the cleaned body.
    """
    cleaner = cleaner or Cleaner()
    known_id = None
    readers: tuple[str, ...] = ALL_PRINCIPALS  # until they are known
    try:
        readers = _given_readers(given)
        known_id = _given_id(given) or id
        fields = _read_fields(given, cleaner)
        is_record = text is None
        text, places = _read_body(fields, text, cleaner, places)
        named, stated = cleaner.clean_text(title[:MAX_TITLE_CHARACTERS]), _take_title(fields)
        url, is_code = _take_address(fields)
        if is_code:
            notes = (*notes, "its url was left out: it is code, not an address")
        important, questions = _take_phrases(fields, "important"), _take_phrases(fields, "questions")
        public, enabled = _take_public(fields, readers), _take_flag(fields, "enabled", True)
        expires_at = _take_moment(fields, "expires_at")
        metadata = _read_metadata(fields)
        made = Document(
            where=where,
            id=known_id or _content_id(stated or named, text or json.dumps(metadata, sort_keys=True, default=str)),
            title=stated,
            text=text,
            url=url,
            metadata=metadata,
            important=important,
            questions=questions,
            public=public,
            readers=readers,
            enabled=enabled,
            expires_at=expires_at,
            notes=(*notes, *cleaner.notes()),
            places=places,
        )
        if not has_searchable_content(made):
            # The title made from a file's name is no content.
            raise BadDocument(NOTHING_SEARCHABLE if is_record else "the text is empty")
        return made if stated else replace(made, title=named)
    except BadDocument as error:
        return rejected_item(where, known_id, str(error), readers)


def _read_fields(given: Mapping[Any, Any], cleaner: Cleaner) -> dict[str, Any]:
    """Return the cleaned fields of a record without its id and readers."""
    fields = cleaner.clean_mapping(given)
    fields.pop("readers", None)
    _drop_id(fields)
    return fields


def _take_address(fields: dict[str, Any]) -> tuple[str | None, bool]:
    """Remove the url from the fields. Return (url, whether the given url was code such as "javascript:...").

    The returned url is None if none was given, or if it was code.
    """
    url = _take_url(fields)
    is_code = url is not None and _CODE.match("".join(url.split())) is not None
    return (None if is_code else url), is_code


def _take_public(fields: dict[str, Any], readers: tuple[str, ...]) -> bool:
    public = _take_flag(fields, "public", False)
    if public and readers:
        raise BadDocument("a public document is for everybody: it must not have readers")
    return public


def _read_body(
    fields: dict[str, Any], given: str | None, cleaner: Cleaner, places: FilePositions | None
) -> tuple[str, FilePositions | None]:
    """Return the trimmed text of a document, and the positions of its pages or rows, adjusted to the trimmed text.

    Args:
        given: the body of a file; None to take the text from the fields.
    """
    body = _take_text(fields) if given is None else cleaner.clean_text(given)
    if body is None and not fields.get("title"):
        # Without a text and a title, the text probably has another key.
        raise BadDocument(NO_TEXT)
    text = trim_text(body or "")
    if places and body:
        places = places.shifted(len(text) - len(body.rstrip()))
    if len(text) > MAX_TEXT_CHARACTERS:
        raise BadDocument(
            f"the text has {len(text):,} characters; the limit is {MAX_TEXT_CHARACTERS:,}: split the document"
        )
    return text, places


def _read_metadata(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata: the fields that are left, and those under "metadata" unless a field has the same name."""
    inner = fields.pop("metadata", None)
    if inner is not None and not isinstance(inner, dict):
        raise BadDocument(f'"metadata" is {json_type(inner)}; it must be an object')
    return {**(inner or {}), **fields}


def rejected_item(
    where: str, id: str | None, reason: str, readers: tuple[str, ...] = (), *, cut: bool = False
) -> RejectedItem:
    """Build a `RejectedItem`, with the reason cut to one short line of printable characters."""
    return RejectedItem(printable(where), id, one_line(reason, MAX_REASON_CHARACTERS), readers, cut)


def _given_readers(given: Mapping[Any, Any]) -> tuple[str, ...]:
    """Return the readers, given as a list of users and groups or as one text separated by commas; () for everybody.

    They are checked before anything is cleaned, so that an invalid list never makes a document readable by everybody.
    """
    said = given.get("readers")
    said = re.split(r"[\s,;]+", said.strip()) if isinstance(said, str) and said.strip() else said or []
    if not isinstance(said, list | tuple) or not all(isinstance(one, str) for one in said):
        raise BadDocument(
            f'"readers" is {json_type(given["readers"])}; it must be a list like ["user:7", "group:legal"]'
        )
    try:
        return check_principals(said)
    except BadRequest as error:
        raise BadDocument(f'"readers": {error}') from None


def _given_id(given: Mapping[Any, Any]) -> str | None:
    """Return the id as given; None without an id. An id with characters that would have to be replaced is refused."""
    id = given.get("id") if given.get("id") is not None else given.get("_id")
    if id is None:
        return None
    if isinstance(id, bool) or not isinstance(id, int | str):
        raise BadDocument(f"the id is {json_type(id)}; it must be text or a whole number")
    try:
        id = str(id)
    except ValueError:
        raise BadDocument("the id is a number of thousands of digits") from None
    if not id.strip():
        raise BadDocument("the id is empty")
    if len(id) > MAX_ID_CHARACTERS:
        raise BadDocument(f"the id has {len(id):,} characters; the limit is {MAX_ID_CHARACTERS}")
    if _UNFIT_FOR_ID.search(id):
        raise BadDocument("the id holds a control character or a lone surrogate")
    return id


def _drop_id(fields: dict[str, Any]) -> None:
    """Remove the key that `_given_id` has used. An "_id" beside an "id" stays as metadata."""
    if fields.pop("id", None) is None:
        fields.pop("_id", None)


def _content_id(title: str, text: str) -> str:
    return "sha-" + hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16]


def _take_text(fields: dict[str, Any]) -> str | None:
    for key in TEXT_KEYS:
        text = fields.pop(key, None)
        if isinstance(text, str):
            return text
        if text is not None:
            raise BadDocument(f'"{key}" is {json_type(text)}; it must be text')
    return None


def _take_title(fields: dict[str, Any]) -> str:
    title = fields.pop("title", None)
    if title is None:
        return ""
    if isinstance(title, bool) or not isinstance(title, str | int | float):
        raise BadDocument(f'"title" is {json_type(title)}; it must be text')
    return " ".join(line.strip() for line in str(title).strip().split("\n"))


def _take_url(fields: dict[str, Any]) -> str | None:
    url = fields.pop("url", None)
    if url is not None and not isinstance(url, str):
        raise BadDocument(f'"url" is {json_type(url)}; it must be text')
    return one_line(url or "") or None


def _take_phrases(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    """Return the phrases under a key, given as a list of texts or as one text with a phrase per line."""
    given = fields.pop(key, None)
    phrases = given.split("\n") if isinstance(given, str) else [] if given is None else given
    if not isinstance(phrases, list):
        raise BadDocument(f'"{key}" is {json_type(given)}; it must be text or a list of texts')
    for phrase in phrases:
        if isinstance(phrase, bool) or not isinstance(phrase, str | int | float):
            raise BadDocument(f'"{key}" holds {json_type(phrase)}; it must be text or a list of texts')
    return tuple(stripped for phrase in phrases if (stripped := str(phrase).strip()))


def _take_flag(fields: dict[str, Any], key: str, default: bool) -> bool:
    flag = fields.pop(key, None)
    if flag is not None and not isinstance(flag, bool):
        raise BadDocument(f'"{key}" is {json_type(flag)}; it must be true or false')
    return default if flag is None else flag


def _take_moment(fields: dict[str, Any], key: str) -> datetime | None:
    """Return an ISO 8601 date or time in UTC; None if it is not given."""
    given = fields.pop(key, None)
    if given is None:
        return None
    wanted = 'an ISO 8601 time like "2030-01-31T12:00:00Z"'
    if not isinstance(given, str):
        raise BadDocument(f'"{key}" is {json_type(given)}; it must be {wanted}')
    try:
        moment = datetime.fromisoformat(given.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadDocument(
            f'"{key}" is "{given[:40]}"; it must be an ISO 8601 time like "2030-01-31T12:00:00Z"'
        ) from None
