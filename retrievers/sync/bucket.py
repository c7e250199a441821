"""A bucket with an S3 interface as a source: `s3://BUCKET/PREFIX`, through boto3.

Credentials, region and endpoint (AWS_ENDPOINT_URL_S3) are found in the same places as by AWS's own tools.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.http.response_limits import find_bad_response
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.readers.office_readers import MAX_WHOLE_FILE_BYTES
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.sandbox import CancelCheck
from retrievers.sync.bucket_client import MOST_XML_BYTES, BucketClient, client_errors
from retrievers.sync.files import UnreadableFile, is_ingestible, path_document_id, read_files, size_problem
from retrievers.sync.source import (
    ItemRequest,
    Listing,
    ReadEvent,
    SourceItem,
    check_item_count,
    key_problem,
    raise_if_cancelled,
    rejected_item,
)

_PIECE_BYTES = 1 << 20
_MOST_PAGES = 10_000
"""Maximum number of pages of a listing. S3 lists 1,000 objects on a page, of which all may have other formats."""
_LISTING_S = 3600.0
_PAGE_S = 120.0
_OBJECT_S = 900.0
_LONGEST_ETAG = 200


@dataclass(slots=True)
class BucketSource:
    """The objects below a prefix whose names end like those of files that can be read."""

    bucket: str
    prefix: str = ""
    _names: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name and ETag of each object, by its key in the manifest."""
    _client: BucketClient = field(default_factory=BucketClient)

    @property
    def name(self) -> str:
        """See `Source.name`."""
        return f"s3://{self.bucket}/{self.prefix.rstrip('/')}"

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """See `Source.list_items`."""
        items, failed = list[SourceItem](), list[RejectedItem]()
        self._names = {}
        client = self._open_client(MOST_XML_BYTES, _PAGE_S, is_cancelled)
        ends_at = time.monotonic() + _LISTING_S
        try:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            for number, page in enumerate(pages):
                raise_if_cancelled(is_cancelled)
                if number >= _MOST_PAGES or time.monotonic() > ends_at:
                    raise BadRequest(
                        f"its listing has more than {_MOST_PAGES:,} pages, or takes more than"
                        f" {_LISTING_S / 60:.0f} minutes: sync its prefixes one by one",
                        where="source",
                    )
                self._open_client(MOST_XML_BYTES, _PAGE_S, is_cancelled)  # the next page has as much time
                for one in page.get("Contents", ()):
                    name = str(one["Key"]).removeprefix(self.prefix).lstrip("/")
                    key = path_document_id(name)
                    if not is_ingestible(name) or key in self._names:
                        continue
                    check_item_count(len(items) + len(failed) + 1)
                    etag = str(one["ETag"])
                    if reason := key_problem(key) or _etag_problem(etag) or size_problem(int(one["Size"])):
                        failed.append(rejected_item(key, reason))
                        continue
                    self._names[key] = str(one["Key"]), etag
                    items.append(SourceItem(key, f"{etag} {one['Size']}"))
        except client_errors() as error:
            raise self._unavailable(error) from None
        return Listing(items, [one.where for one in failed], failed)

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """See `Source.read`."""
        return read_files(requests, is_cancelled, partial(self._load, is_cancelled), self.name)

    def _load(self, is_cancelled: CancelCheck, key: str, into: BinaryIO) -> None:
        name, etag = self._names[key]
        client = self._open_client(MAX_WHOLE_FILE_BYTES, _OBJECT_S, is_cancelled)
        try:
            # Fails if the object has changed since the listing; the next run lists the new version.
            with closing(client.get_object(Bucket=self.bucket, Key=name, IfMatch=etag)["Body"]) as body:
                size = 0
                while piece := body.read(_PIECE_BYTES):
                    if (size := size + len(piece)) > MAX_WHOLE_FILE_BYTES:
                        raise UnreadableFile(str(size_problem(size)))
                    into.write(piece)
        except client_errors() as error:
            raise UnreadableFile(self._unavailable(error).reason) from None

    def _open_client(self, most_bytes: int, timeout_s: float, is_cancelled: CancelCheck) -> Any:
        try:
            return self._client.opened(most_bytes, timeout_s, is_cancelled)
        except Unavailable:
            raise
        except client_errors() as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: Exception) -> Unavailable:
        cause = find_bad_response(error) or error
        return Unavailable(self.name, one_line(str(cause) or type(cause).__name__, 200))


def _etag_problem(etag: str) -> str | None:
    return f"its ETag has more than {_LONGEST_ETAG} characters" if len(etag) > _LONGEST_ETAG else None
