"""Turn the content of a job into documents, each with its index in the delivery."""

import json
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.jobs.delivery import decode_record, encoded_records
from retrievers.ingest.jobs.job_types import JobContent
from retrievers.ingest.readers.file_input import read_record, read_upload
from retrievers.ingest.readers.file_readers import item_from_message, message_from_item
from retrievers.sandbox import CancelCheck

Item = Document | RejectedItem

MOST_DOCUMENTS = 100_000
"""Maximum number of documents of one file."""
_IN_MEMORY_BYTES = 1 << 20


class JobItems:
    """The documents of a job, as (index in the delivery, document). They can be iterated again, but not in parallel.

    Attributes:
        size_bytes: size of the documents of a file, as JSON; 0 for records, whose size is that of the delivery.
    """

    size_bytes = 0

    def __init__(self, items: Sequence[tuple[int, Item]] = ()) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        return iter(self._items)

    def index_of(self, position: int) -> int:
        """Return the index in the delivery of the document at `position` in this job; both count from 0.

        They differ if a job stores only some documents of a delivery: those that failed before.
        """
        return self._items[position][0]


class RecordItems(JobItems):
    """The documents of a delivery of records, decoded one by one when they are read.

    Args:
        payload: the records, see `retrievers.ingest.jobs.delivery.delivery_of_records`.
    """

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self._payload = payload
        self._count = sum(1 for _ in encoded_records(payload))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        for index, record in enumerate(encoded_records(self._payload)):
            yield index, read_record(decode_record(record), _item_position(index))

    def index_of(self, position: int) -> int:
        """Return the position."""
        return position


class FileItems(JobItems):
    """The documents of a file. If they take more than 1 MiB, they are kept in a temporary file instead of memory."""

    def __init__(self, items: Iterable[Item]) -> None:
        super().__init__()
        self._count = 0
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, prefix="signalbox-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        for item in items:
            # JSON escapes line breaks, so each item is one line.
            self._file.write(json.dumps(message_from_item(item)).encode() + b"\n")
            self._count += 1
        self.size_bytes = self._file.tell()

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[int, Item]]:
        self._file.seek(0)
        return self._read()

    def _read(self) -> Iterator[tuple[int, Item]]:
        for index, line in enumerate(self._file):
            yield index, item_from_message(json.loads(line))

    def index_of(self, position: int) -> int:
        """Return the position."""
        return position


def job_items(work: JobContent) -> JobItems:
    """Return the documents of a job whose delivery contains records. If failed ones are tried again, only these."""
    if work.payload is None:
        return JobItems([(index, _dead_letter_item(one, _item_position(index))) for index, one in work.dead_letters])
    return RecordItems(work.payload)


def file_items(name: str, data: bytes, is_cancelled: CancelCheck) -> FileItems:
    """Return the documents of a file, at most MOST_DOCUMENTS. If there are more, the next one is rejected.

    Args:
        is_cancelled: returns True if the caller no longer waits.
    """
    return FileItems(_limited(read_upload(name, data, is_cancelled=is_cancelled)))


def _limited(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the first MOST_DOCUMENTS items. If there are more, the next one is yielded as rejected, and is the last."""
    yield from islice(items, MOST_DOCUMENTS)
    for item in items:
        reason = f"a file has at most {MOST_DOCUMENTS:,} documents: send the rest in another one"
        yield RejectedItem(item.where, item.id, reason, item.readers)
        return


def _dead_letter_item(payload: bytes | None, where: str) -> Item:
    return (
        RejectedItem(where, None, "it was deleted since")
        if payload is None
        else read_record(decode_record(payload), where)
    )


def _item_position(index: int) -> str:
    return f"documents.{index}"
