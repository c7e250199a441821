"""Turn the content of a job into documents, each with its index in the delivery."""

from itertools import islice

from retrievers.ingest.delivery import loaded
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.job_types import Work
from retrievers.ingest.read import read_record, read_upload
from retrievers.sandbox import Stopped

Item = Document | RejectedItem

MOST_DOCUMENTS = 100_000
"""Maximum number of documents of one file, which are all in memory at once."""


def job_items(work: Work) -> list[tuple[int, Item]]:
    """Return the records of a job with their indexes in the delivery; on a retry, only those that failed."""
    if work.payload is None:
        return [(index, _letter(one, _place(index))) for index, one in work.letters]
    return [(index, read_record(one, _place(index))) for index, one in enumerate(loaded(work.payload))]


def file_items(name: str, data: bytes, stopped: Stopped) -> list[tuple[int, Item]]:
    """Return the documents of a file with their indexes, up to the maximum number."""
    items = list(islice(enumerate(read_upload(name, data, stopped=stopped)), MOST_DOCUMENTS + 1))
    if len(items) > MOST_DOCUMENTS:
        index, item = items[-1]
        reason = f"a file has at most {MOST_DOCUMENTS:,} documents: send the rest in another one"
        items[-1] = index, RejectedItem(item.where, item.id, reason, item.readers)
    return items


def _letter(payload: bytes | None, where: str) -> Item:
    return RejectedItem(where, None, "it was deleted since") if payload is None else read_record(loaded(payload), where)


def _place(index: int) -> str:
    return f"documents.{index}"
