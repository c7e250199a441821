"""Open a source by its address, such as "git:/srv/docs@main" or "s3://bucket/prefix"."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from retrievers.core.errors import BadRequest
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.sync.bucket import BucketSource
from retrievers.sync.database_table import TableSource
from retrievers.sync.external_database import redacted_url
from retrievers.sync.folder import FolderSource
from retrievers.sync.git import GitSource
from retrievers.sync.source import Source
from retrievers.sync.web_pages import WebPagesSource

FORMS = (
    "a folder or file, git:CHECKOUT or git:CHECKOUT@BRANCH, s3://BUCKET/PREFIX, the http or https address of a sitemap "
    "or a list of addresses, or that of a database (postgresql://..., others by SQLAlchemy) with --table or --query"
)
# Also matches with one slash missing: a mistyped address must not be taken for a path, which would be shown with its
# password.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=:/)")


def open_source(
    text: str, *, table: str | None = None, query: str | None = None, updated_at: str | None = None
) -> Source:
    """Return the source at an address, without accessing it.

    Args:
        text: the address, in one of the `FORMS`.
        table, query, updated_at: for a database, see `retrievers.sync.database_table.TableSource`.
    Raises:
        BadRequest: the address has none of the `FORMS`, or the other arguments do not fit it.
    """
    if not text.strip() or "\0" in text:
        raise BadRequest(f"no source is given; valid forms: {FORMS}", where="source")
    if text.startswith("git:"):
        if table or query or updated_at:
            raise _no_database()
        return _checkout(text.removeprefix("git:"))
    found = _SCHEME.match(text)
    scheme = found[0].lower() if found else ""
    if scheme and scheme not in ("s3", "http", "https"):
        return TableSource(text, redacted_url(text), table or "", query or "", updated_at or "")
    if table or query or updated_at:
        raise _no_database()
    if scheme == "s3":
        return _bucket(text)
    if scheme:
        return WebPagesSource(text)
    return FolderSource(Path(text))


def _no_database() -> BadRequest:
    return BadRequest("--table, --query and --updated-at are for databases only", where="source")


def _checkout(text: str) -> GitSource:
    if _SCHEME.match(text):
        raise BadRequest("git: takes the folder of a checkout on this machine, not an address", where="source")
    path, _, commit = text.rpartition("@")
    return GitSource(Path(path), commit) if path else GitSource(Path(commit))


def _bucket(text: str) -> BucketSource:
    split = urlsplit(text)
    if not split.netloc or split.query or split.fragment or "@" in split.netloc:
        raise BadRequest(f'"{one_line(text, 80)}" is not of the form s3://BUCKET/PREFIX', where="source")
    return BucketSource(split.netloc, split.path.lstrip("/"))
