"""Read an e-mail: its subject, text and attachments."""

import email.policy
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import PurePosixPath
from typing import Any, cast

from retrievers.core.errors import BadDocument
from retrievers.ingest.readers.html import read_page
from retrievers.ingest.readers.text_cleaning import Cleaner, decode_text, one_line

MOST_ATTACHMENTS = 100
_LONGEST_HEADER = 20_000
"""Maximum characters of a header that is parsed; parse time grows with the square of the length."""
_LONGEST_NAME = 120
_MOST_PEOPLE = 50
_MOST_PARTS = 1000


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file attached to an e-mail; `data` is None if it cannot be decoded."""

    name: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Mail:
    """The content of an e-mail.

    Attributes:
        metadata: author, sender (an address), to, cc, date, and attachments (their names). Empty values are left out.
        notes: one text for each attachment that was left out, with the reason.
    """

    subject: str
    text: str
    metadata: dict[str, Any]
    attachments: tuple[Attachment, ...]
    notes: tuple[str, ...]


def read_mail(data: bytes) -> Mail:
    """Read an e-mail in the form that mail programs save (.eml).

    Its text is that of the plain version, or of the HTML version if there is no plain one.

    Raises:
        BadDocument: the data is not an e-mail, or the e-mail has too many parts.
    """
    # This policy parses a header when it is accessed. Headers that are too long are never accessed.
    message = BytesParser(policy=email.policy.default).parsebytes(data)
    if not any(_raw(message, name) for name in ("from", "to", "date", "subject", "message-id", "received")):
        raise BadDocument("damaged, or not an e-mail: the usual headers are missing")
    parts = list(_leaves(message))
    body = _body(message)
    attachments = tuple(_attached(part, n) for n, part in enumerate(parts, 1) if part is not body and _is_file(part))
    metadata = {
        "author": next(iter(_people(message, "from")), None),
        "sender": next(iter(_people(message, "from", names=False)), None),
        "to": _people(message, "to"),
        "cc": _people(message, "cc"),
        "date": _date(message),
        "attachments": [one.name for one in attachments],
    }
    left_out = len(attachments) - MOST_ATTACHMENTS
    notes = (f"{left_out:,} of its {len(attachments):,} attachments were not read",) if left_out > 0 else ()
    return Mail(
        _header_text(message, "subject"),
        _text(body) if body is not None else "",
        {name: value for name, value in metadata.items() if value},
        attachments[:MOST_ATTACHMENTS],
        notes,
    )


def _leaves(message: EmailMessage) -> Iterator[EmailMessage]:
    """Yield the MIME parts that contain no other parts; an e-mail inside the e-mail counts as one part."""
    waiting, count = [message], 0
    while waiting:
        part = waiting.pop()
        count += 1
        if count > _MOST_PARTS:
            raise BadDocument(f"the mail has more than {_MOST_PARTS:,} parts")
        if part.get_content_maintype() == "multipart" and part.is_multipart():
            waiting += reversed(list(cast("Iterator[EmailMessage]", part.iter_parts())))
        else:
            yield part


def _body(message: EmailMessage) -> EmailMessage | None:
    try:
        return cast("EmailMessage | None", message.get_body(("plain", "html")))
    except Exception:  # the structure contradicts itself
        return None


def _text(part: EmailMessage) -> str:
    content = part.get_payload(decode=True)
    text = decode_text(content, declared=part.get_content_charset(), of="mail")[0] if isinstance(content, bytes) else ""
    text = Cleaner().clean_text(text)
    return read_page(text).text if part.get_content_subtype() == "html" else text


def _is_file(part: EmailMessage) -> bool:
    return bool(_name(part)) or part.get_content_type() == "message/rfc822"


def _attached(part: EmailMessage, number: int) -> Attachment:
    name = _name(part)
    try:
        if part.get_content_type() == "message/rfc822":
            (inner,) = cast("list[EmailMessage]", part.get_payload())
            subject = _header_text(inner, "subject")[:_LONGEST_NAME] or f"message {number}"
            return Attachment(
                name if name.lower().endswith(".eml") else f"{subject.replace('/', '-')}.eml",
                inner.as_bytes(policy=email.policy.compat32),
            )
        content = part.get_payload(decode=True)
        return Attachment(name, content if isinstance(content, bytes) else None)
    except Exception:  # the standard library fails on parts that contradict themselves
        return Attachment(name or f"message {number}.eml", None)


def _name(part: EmailMessage) -> str:
    """Return an attachment's file name without folders; "" if it has none or its headers are too long.

    A long name is cut at its beginning, since its end tells the format.
    """
    if len(_raw(part, "content-disposition")) + len(_raw(part, "content-type")) > _LONGEST_HEADER:
        return ""
    try:
        name = part.get_filename() or ""
    except Exception:
        return ""
    return PurePosixPath(one_line(str(name)).replace("\\", "/")).name[-_LONGEST_NAME:]


# Headers.


def _raw(message: EmailMessage, name: str) -> str:
    return next((str(value) for key, value in message.raw_items() if key.lower() == name), "")


def _header(message: EmailMessage, name: str) -> Any:
    """Return a parsed header; None if it is missing, too long or unparsable."""
    raw = _raw(message, name)
    if not raw or len(raw) > _LONGEST_HEADER:
        return None
    try:
        return message.policy.header_fetch_parse(name, raw)
    except Exception:
        return None


def _header_text(message: EmailMessage, name: str) -> str:
    header = _header(message, name)
    return one_line(str(header) if header is not None else _raw(message, name), 500)


def _people(message: EmailMessage, name: str, *, names: bool = True) -> list[str]:
    """Return the people in a header: the name of each, or the address without a name. `names` False: all addresses."""
    addresses = getattr(_header(message, name), "addresses", ())[:_MOST_PEOPLE]
    said = (one_line((names and one.display_name) or one.addr_spec, 200) for one in addresses)
    return [one for one in said if one and one != "<>"]


def _date(message: EmailMessage) -> str | None:
    moment = getattr(_header(message, "date"), "datetime", None)
    return moment.isoformat() if moment else None
