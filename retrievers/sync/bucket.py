"""A bucket with an S3 interface as a source: `s3://BUCKET/PREFIX`, through boto3.

Credentials, region and endpoint (AWS_ENDPOINT_URL_S3) are found in the same places as by AWS's own tools.
"""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.readers.office_readers import MAX_WHOLE_FILE_BYTES
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.sandbox import CancelCheck
from retrievers.sync.files import UnreadableFile, is_ingestible, path_document_id, read_files, size_problem
from retrievers.sync.source import MOST_ITEMS, ItemRequest, Listing, ReadEvent, SourceItem, raise_if_cancelled

_PIECE_BYTES = 1 << 20
_TIMEOUT_S = 20


@dataclass(slots=True)
class BucketSource:
    """The objects below a prefix whose names end like those of files that can be read."""

    bucket: str
    prefix: str = ""
    _names: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name and ETag of each object, by its key in the manifest."""
    _client: Any = None

    @property
    def name(self) -> str:
        """See `Source.name`."""
        return f"s3://{self.bucket}/{self.prefix.rstrip('/')}"

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """See `Source.list_items`."""
        items, failed = list[SourceItem](), list[RejectedItem]()
        self._names = {}
        client = self._open_client()
        try:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
            for page in pages:
                raise_if_cancelled(is_cancelled)
                for one in page.get("Contents", ()):
                    name = str(one["Key"]).removeprefix(self.prefix).lstrip("/")
                    key = path_document_id(name)
                    if not is_ingestible(name) or key in self._names:
                        continue
                    if reason := size_problem(int(one["Size"])):
                        failed.append(RejectedItem(key, None, reason))
                        continue
                    if len(items) >= MOST_ITEMS:
                        raise BadRequest(
                            f"it has more than {MOST_ITEMS:,} objects: sync its prefixes one by one", where="source"
                        )
                    self._names[key] = str(one["Key"]), str(one["ETag"])
                    items.append(SourceItem(key, f"{one['ETag']} {one['Size']}"))
        except self._errors() as error:
            raise self._unavailable(error) from None
        return Listing(items, [one.where for one in failed], failed)

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """See `Source.read`."""
        return read_files(requests, is_cancelled, self._load, self.name)

    def _load(self, key: str, into: BinaryIO) -> None:
        name, etag = self._names[key]
        client = self._open_client()
        try:
            # Fails if the object has changed since the listing; the next run lists the new version.
            body = client.get_object(Bucket=self.bucket, Key=name, IfMatch=etag)["Body"]
            size = 0
            while piece := body.read(_PIECE_BYTES):
                if (size := size + len(piece)) > MAX_WHOLE_FILE_BYTES:
                    raise UnreadableFile(str(size_problem(size)))
                into.write(piece)
        except self._errors() as error:
            raise UnreadableFile(self._unavailable(error).reason) from None

    def _open_client(self) -> Any:
        if self._client is None:
            try:
                boto3, config = importlib.import_module("boto3"), importlib.import_module("botocore.config")
            except ImportError as error:
                raise Unavailable("the source", f"boto3 is missing: {install_command('aws')}") from error
            settings = config.Config(
                connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": 3},
                s3={"addressing_style": "auto"},
            )  # fmt: skip
            try:
                self._client = boto3.session.Session().client("s3", config=settings)
            except self._errors() as error:
                raise self._unavailable(error) from None
        return self._client

    @staticmethod
    def _errors() -> tuple[type[Exception], ...]:
        exceptions = importlib.import_module("botocore.exceptions")
        return exceptions.BotoCoreError, exceptions.ClientError, OSError, ValueError

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(self.name, one_line(str(error) or type(error).__name__, 200))
