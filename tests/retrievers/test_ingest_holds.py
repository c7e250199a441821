"""Documents of megabytes beside questions: what is computed of them does not hold the event loop."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from retrievers.core.errors import BadDocument
from retrievers.core.types import unrestricted_viewer
from retrievers.embed import Vectors
from retrievers.ingest import document_validation, field_statistics, rows, run
from retrievers.ingest.collection_counts import _UNCOUNT_TERMS
from retrievers.ingest.collections import Connection
from retrievers.ingest.documents import Document
from retrievers.ingest.preparation import MAX_METADATA_BYTES, check_document
from retrievers.ingest.report import IngestReport
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder, longest_hold


class Constant(HashEmbedder):
    """One vector for every text: embedding costs nothing."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return np.tile(np.eye(1, 64, dtype=np.float32), (len(texts), 1))


NOUNS = "turbine blade rotor bearing gear oil pitch tower".split()


def words(choose: random.Random) -> str:
    return " ".join("".join(choose.choices("abcdefgh", k=5)) for _ in range(60_000))


def sections(choose: random.Random) -> str:
    return "".join(f"# Part {n}\n\n{' '.join(choose.choices(NOUNS, k=30))}.\n\n" for n in range(1500))


def chinese(choose: random.Random) -> str:
    return "".join(choose.choices("风力发电机的叶片需要定期检查齿轮油每年更换一次。", k=60_000))


def one_line(choose: random.Random) -> str:
    return "x" * 1_000_000


@pytest.mark.parametrize("make", [words, sections, chinese, one_line])
async def test_a_large_document_is_prepared_and_written_while_others_are_answered(
    make: Callable[[random.Random], str], database: Database
):
    text = make(random.Random(7))
    started = time.process_time()
    work = asyncio.create_task(ingest(database, Constant(), "acme", "docs", [Document("a", "a", "A", text)]))
    hold = await longest_hold(work)
    spent = time.process_time() - started
    assert work.result().inserted == 1
    assert hold < max(0.2 * spent, 0.05)


TOO_MUCH = "the metadata takes more than 65,536 bytes"
MISFIT = 'metadata "year" is a number in this collection'


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([{"text": "x" * 68_000}] * 110, TOO_MUCH),
        ([{"numbers": list(range(1_000_000))}], TOO_MUCH),
        ([{"deep": [{"lists": [[0]] * 300_000}]}], TOO_MUCH),
        ([{"tags": [f"{n:05}" for n in range(7000)], "year": "soon"}] * 30, MISFIT),
    ],
    ids=["large", "many values", "many lists", "misfits"],
)
@pytest.mark.parametrize("good", [0, 1], ids=["alone", "beside a good one"])
async def test_documents_that_cannot_be_stored_are_judged_once_and_beside_the_loop(
    bad: list[dict[str, object]], reason: str, good: int, database: Database, monkeypatch: pytest.MonkeyPatch
):
    await ingest(database, Constant(), "acme", "docs", [Document("a", "a", "A", "rotor", metadata={"year": 1})])
    judged: list[str] = []
    judge = document_validation.check_document

    def watched(document: Document) -> None:
        assert threading.current_thread() is not threading.main_thread()
        judged.append(document.id)
        judge(document)

    monkeypatch.setattr(document_validation, "check_document", watched)
    documents = [Document(f"b{n}", f"b{n}", "B", "rotor", metadata=one) for n, one in enumerate(bad)]
    documents += [Document(f"c{n}", f"c{n}", "C", "rotor", metadata={"year": 2}) for n in range(good)]
    started = time.process_time()
    work = asyncio.create_task(ingest(database, Constant(), "acme", "docs", documents))
    hold = await longest_hold(work)
    spent = time.process_time() - started
    assert work.result().inserted == good
    assert [(one.index, one.reason.partition(";")[0]) for one in work.result().failed] == [
        (n, reason) for n in range(len(bad))
    ]
    assert sorted(judged) == sorted(one.id for one in documents)
    assert hold < max(0.2 * spent, 0.05)


class Counted(list[int]):
    """A list that counts the values that are read of it."""

    reads = 0

    def __iter__(self) -> Iterator[int]:
        for value in super().__iter__():
            self.reads += 1
            yield value


@pytest.mark.parametrize("inside", [lambda it: it, lambda it: [it], lambda it: {"a": [{"b": it}]}])
def test_metadata_that_is_too_large_is_refused_before_it_is_written_as_json(inside: Callable[[object], object]):
    values = Counted(range(1_000_000))
    with pytest.raises(BadDocument, match=TOO_MUCH):
        check_document(Document("a", "a", "A", "rotor", metadata={"numbers": inside(values)}))
    assert values.reads <= MAX_METADATA_BYTES


def test_metadata_may_have_the_largest_size_and_no_byte_more():
    room = MAX_METADATA_BYTES - len('{"a": ""}')
    for value in ("x" * room, [0] * (room // 3)):
        check_document(Document("a", "a", "A", "rotor", metadata={"a": value}))
    with pytest.raises(BadDocument, match=TOO_MUCH):
        check_document(Document("a", "a", "A", "rotor", metadata={"a": "x" * (room + 1)}))


async def test_terms_that_are_gone_are_not_compared_with_all_others(database: Database):
    terms = tuple(f"term{n}" for n in range(3000))
    await ingest(database, Constant(), "acme", "docs", [Document("a", "a", "A", "Some text.", important=terms)])
    values = {"tenant": "acme", "collection": 1, "ids": ["a"]}
    async with database.transaction(unrestricted_viewer("acme")) as connection:
        planned = await connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {_UNCOUNT_TERMS}".encode(), values)
        ((plan,),) = await planned.fetchall()
        left = await connection.execute("SELECT count(*), sum(chunks) FROM signalbox.term")
        counted = await left.fetchone()

    assert max(_rows(plan[0]["Plan"])) < 2 * len(terms)
    assert counted is not None
    assert counted[0] >= len(terms)
    assert counted[1] == 0


def _rows(plan: dict[str, Any]) -> Iterator[float]:
    """Yield how many rows each step of a plan read, those included that it left out."""
    left_out = plan.get("Rows Removed by Join Filter", 0) + plan.get("Rows Removed by Filter", 0)
    yield (plan["Actual Rows"] + left_out) * plan["Actual Loops"]
    for step in plan.get("Plans", ()):
        yield from _rows(step)


@pytest.mark.parametrize(
    "much",
    [
        {"metadata": {"tags": [f"tag {n}" for n in range(1000)]}},
        {"important": tuple(f"term{n}" for n in range(3000))},
    ],
)
async def test_a_transaction_writes_few_documents_with_many_values_or_terms(
    much: dict[str, Any], database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "_BATCH_PASSAGES", 32)
    at_once: list[int] = []

    async def written(connection: Connection, report: IngestReport, inserted: int, updated: int) -> None:
        at_once.append(inserted)

    documents = [Document(f"d{n}", f"d{n}", "A", "Some text.", **much) for n in range(15)]
    await ingest(database, Constant(), "acme", "docs", documents, on_write=written)

    assert sum(at_once) == 15
    assert max(at_once) < 8


MANY = [
    Document(f"d{n}", f"d{n}", "A", "Oil.", metadata={"tags": [f"tag {n} {m}" for m in range(60)]}) for n in range(3)
]


async def test_values_are_counted_and_written_in_parts_beside_the_loop(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The driver turns the rows of a statement into parameters on the event loop."""
    at_once: list[int] = []
    computing = set[object]()
    columns, words, add = (
        field_statistics._word_columns,
        field_statistics._words,
        field_statistics.FieldValueChanges.add,
    )

    def of_words(rows: Any) -> dict[str, Any]:
        at_once.append(len(rows))
        return columns(rows)

    def split(*given: Any) -> Any:
        computing.add(threading.current_thread())
        return words(*given)

    def counted(*given: Any) -> None:
        computing.add(threading.current_thread())
        add(*given)

    monkeypatch.setattr(field_statistics, "_ROWS_AT_ONCE", 50)
    monkeypatch.setattr(field_statistics, "_word_columns", of_words)
    monkeypatch.setattr(field_statistics, "_words", split)
    monkeypatch.setattr(field_statistics.FieldValueChanges, "add", counted)
    await ingest(database, Constant(), "acme", "docs", MANY)
    held = [replace(one, metadata={"tags": ["tag 0 0", "tag 7 7"]}) for one in MANY]
    await ingest(database, Constant(), "acme", "docs", held)

    assert max(at_once) <= 50
    assert threading.main_thread() not in computing
    async with database.transaction(unrestricted_viewer("acme")) as connection:
        found = await connection.execute("SELECT value, documents FROM signalbox.field_value WHERE field = 'tags'")
        assert sorted(await found.fetchall()) == [("tag 0 0", 3), ("tag 7 7", 3)]
        named = await connection.execute("SELECT words FROM signalbox.field_word WHERE field = 'tags' AND place = 0")
        assert sorted(await named.fetchall()) == [("tag 0 0",), ("tag 7 7",)]


async def test_metadata_is_written_as_json_beside_the_loop(database: Database, monkeypatch: pytest.MonkeyPatch):
    """Each passage carries the values of its document."""
    writing = set[object]()

    def written(value: Any, **how: Any) -> str:
        writing.add(threading.current_thread())
        return json.dumps(value, **how)

    monkeypatch.setattr(rows, "json", SimpleNamespace(dumps=written))
    await ingest(database, Constant(), "acme", "docs", [replace(MANY[0], text="Oil the bearing.\n\n" * 500)])
    assert writing
    assert threading.main_thread() not in writing
