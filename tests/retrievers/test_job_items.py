"""The documents of a job: those of a file are read again from a temporary file, and take no memory meanwhile."""

import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from retrievers.core.file_positions import positions_from_json
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.jobs import job_items
from retrievers.ingest.jobs.delivery import decode_record, delivery_of_records, encode_record, encoded_records
from retrievers.ingest.jobs.delivery_queues import WriteLocks
from retrievers.ingest.jobs.job_items import FileItems, Item, RecordItems, file_items
from retrievers.ingest.readers.file_input import read_record
from retrievers.ingest.run import _IngestRun
from retrievers.sandbox import never_cancelled
from retrievers.testing import HashEmbedder

WHOLE = Document(
    "a.csv:2", "é\u2028", "Ti\ntle", "line\nline\r\x85 \U0001f600", "http://e.example/",
    {"a": [1, 2.5, None, True, {"b": "ü"}], "n": 2**63}, ("x",), ("y?",), False, ("user:7",), False,
    datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC), ("a note",),
    positions_from_json({"unit": "page", "marks": [[0, 1], [4, 2]]}), 3,
)  # fmt: skip


@pytest.mark.parametrize("bytes_in_memory", [0, 1 << 20])
def test_the_documents_of_a_file_are_as_they_were_each_time(bytes_in_memory: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_items, "_IN_MEMORY_BYTES", bytes_in_memory or 1)
    given = [WHOLE, RejectedItem("a.csv:3", None, "bad", ("*",), True, 2), replace(WHOLE, id="z", expires_at=None)]
    items = FileItems(iter(given))
    begun = iter(items)
    assert next(begun) == (0, WHOLE)
    assert len(items) == 3
    assert list(items) == list(enumerate(given))
    assert list(items) == list(enumerate(given))
    assert [items.index_of(position) for position in range(3)] == [0, 1, 2]


RECORDS = [{"id": "a", "text": "line\nline,\n]\u2028"}, "a,", 5, [], {"a": [{"b": None}]}, "\ud800"]


@pytest.mark.parametrize(
    "payload", [delivery_of_records("zoo", RECORDS).payload, b"[" + b",".join(map(encode_record, RECORDS)) + b"]"]
)
def test_the_records_of_a_delivery_are_as_they_were_also_those_of_an_earlier_version(payload: bytes):
    expected = [(index, read_record(record, f"documents.{index}")) for index, record in enumerate(RECORDS)]
    items = RecordItems(payload)
    assert (list(items), list(items), len(items)) == (expected, expected, len(RECORDS))
    assert list(encoded_records(payload)) == list(map(encode_record, RECORDS))
    assert decode_record(payload) == RECORDS


def test_the_records_of_a_delivery_are_decoded_one_by_one():
    payload = delivery_of_records(
        "zoo", [{"id": str(n), "metadata": {f"k{n}-{key}": key for key in range(2000)}} for n in range(50)]
    ).payload
    tracemalloc.start()
    items = RecordItems(payload)
    assert sum(1 for _ in items) == 50
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(payload)


def test_the_documents_of_a_file_take_no_memory():
    def rows() -> Iterator[Item]:
        for n in range(20_000):
            yield replace(WHOLE, id=str(n), text="x" * 500)

    tracemalloc.start()
    items = FileItems(rows())
    count = sum(1 for _ in items)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 4 << 20


def test_a_file_has_a_maximum_number_of_documents(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(job_items, "MOST_DOCUMENTS", 2)
    items = [item for _, item in file_items("a.csv", b"id,text\n1,a\n2,b\n3,c\n4,d\n", never_cancelled)]
    assert [item.id for item in items] == ["1", "2", "3"]
    assert getattr(items[-1], "reason", "") == "a file has at most 2 documents: send the rest in another one"
    assert len(file_items("a.csv", b"id,text\n1,a\n2,b\n", never_cancelled)) == 2


@pytest.mark.parametrize("reads_in_thread", [True, False])
async def test_a_job_reads_its_documents_in_threads(reads_in_thread: bool):
    threads: list[Any] = []

    def rows() -> Iterator[tuple[int, Item]]:
        for n in range(5):
            threads.append(threading.current_thread())
            yield n, WHOLE

    run = _IngestRun(None, HashEmbedder(), "t", "c", {}, lambda report: None, WriteLocks())  # type: ignore[arg-type]
    run.reads_in_thread = reads_in_thread
    items = rows()
    assert [len(await run._take(items, 3, 10**6)) for _ in range(3)] == [3, 2, 0]
    assert all((one is threading.main_thread()) != reads_in_thread for one in threads)
