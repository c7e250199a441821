"""Ingestion: what is stored is what the documents say, however and in what order they come."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from retrievers.core.collection_schema import read_schema
from retrievers.core.errors import BadRequest, EmbedderMismatch, Unavailable
from retrievers.core.metadata import Field
from retrievers.embed import Vectors
from retrievers.ingest import collections, document_store, run
from retrievers.ingest import rows as rows_of
from retrievers.ingest.derived_data import settle_collection
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.report import IngestReport
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder
from retrievers.text import bm25

ROOT = Path(__file__).resolve().parents[2]
TENANT = "acme"
WORDS = [
    "turbine",
    "blade",
    "rotor",
    "bearing",
    "gear",
    "oil",
    "pitch",
    "tower",
    "bolt",
    "grid",
    "crew",
    "storm",
    "winter",
]


async def test_of_thousands_that_all_fail_nothing_is_made_and_one_that_fits_opens_the_collection(database: Database):
    number = {"size": Field("size", "number", "number")}
    bad = [document(f"d{n}", metadata={"size": "large"}) for n in range(2500)]

    report = await ingest(database, HashEmbedder(), TENANT, "new", bad, declared=number)
    assert [one.index for one in report.failed] == list(range(2500))
    assert await database.fetch(TENANT, "SELECT name FROM signalbox.collection WHERE name = 'new'", {}) == []

    fits = document("z", metadata={"size": 7})
    report = await ingest(database, HashEmbedder(), TENANT, "new", [*bad, fits], declared=number)
    assert (report.inserted, [one.index for one in report.failed]) == (1, list(range(2500)))


def document(id: str, text: str = "Oil the bearing.", **given: Any) -> Document:
    return Document(where=f"docs.jsonl:{id}", id=id, title=given.pop("title", f"Title {id}"), text=text, **given)


def varied(count: int, seed: int = 1) -> list[Document]:
    """Documents of one and of several passages, in three languages, with every kind of field."""
    choose = random.Random(seed)
    made = []
    for n in range(count):
        sentences = [
            " ".join(choose.choices(WORDS, k=9)).capitalize() + "." for _ in range(choose.choice([1, 4, 12, 60]))
        ]
        text = " ".join(sentences)
        if n % 7 == 3:
            text = "Der Rotor ist mit dem Lager nicht verbunden und wir werden das Getriebe im Winter prüfen. " + text
        if n % 7 == 5:
            text = "风力发电机的叶片需要定期检查。齿轮油每年更换一次。"
        made.append(
            document(
                f"d{n}",
                text,
                title=f"PEP {n}: {choose.choice(WORDS)}" if n % 3 else "",
                url=f"https://example.org/{n}" if n % 2 else None,
                metadata={"year": 2000 + n % 20, "day": f"2024-01-{n % 28 + 1:02}", "tags": [choose.choice(WORDS)],
                          "open": n % 2 == 0, "team": choose.choice(["red", "blue"]), "nested": {"level": n % 4}},
                important=("pgbouncer", choose.choice(WORDS)) if n % 4 == 0 else (),
                questions=("How is the gear oiled?",) if n % 5 == 0 else (),
                public=n % 6 == 0,
                expires_at=datetime(2090, 1, 1, tzinfo=UTC) if n % 8 == 0 else None,
            )
        )  # fmt: skip
    return made


async def load(
    database: Database, items: Sequence[Document | RejectedItem], embedder: HashEmbedder | None = None, **options: Any
) -> IngestReport:
    tenant, collection = options.pop("tenant", TENANT), options.pop("collection", "docs")
    return await ingest(database, embedder or HashEmbedder(), tenant, collection, items, **options)


async def remove(database: Database, ids: Sequence[str], tenant: str = TENANT) -> int:
    async with database.transaction(tenant) as connection:
        row = await collections.open_collection(connection, tenant, "docs")
        removed = await document_store.remove_documents(connection, tenant, row[0], ids)
    await settle_collection(database, tenant, row[0])
    return removed


def counts(report: IngestReport) -> tuple[int, int, int, int]:
    return (report.inserted, report.updated, report.unchanged, len(report.failed))


_DUMP = {
    "document": """SELECT id, title, url, body, metadata, fields, important, questions, language, digest, chunks, words,
                   public, expires_at FROM signalbox.document WHERE tenant = %s ORDER BY id""",
    "chunk": """SELECT document_id, ordinal, chunk.public, expires_at, start_character, end_character, length,
                embedding::text, bm25::text, chunk.fields, heading, digest, replace(lexemes::text, number || ':', ''),
                body FROM signalbox.chunk JOIN signalbox.collection USING (tenant)
                WHERE tenant = %s AND number = collection ORDER BY 1, 2""",
    "term": "SELECT term, chunks FROM signalbox.term WHERE tenant = %s ORDER BY 1",
    "field_value": "SELECT field, value, number, documents FROM signalbox.field_value WHERE tenant = %s ORDER BY 1, 2",
    "field_count": "SELECT field, documents, kept, long FROM signalbox.field_count WHERE tenant = %s ORDER BY 1",
    "field_word": "SELECT words, place, field, value FROM signalbox.field_word WHERE tenant = %s ORDER BY 1, 2, 3, 4",
    "collection": """SELECT name, analysis, fields, languages, documents, public_documents, chunks, words, mean_length
                     FROM signalbox.collection WHERE tenant = %s ORDER BY 1""",
}


def dump(url: str, tenant: str = TENANT) -> dict[str, list[Any]]:
    """Everything that is stored for a tenant, apart from moments, numbers and versions."""
    with psycopg.connect(url) as connection:
        return {name: connection.execute(query.encode(), (tenant,)).fetchall() for name, query in _DUMP.items()}


def same(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    """Whether two dumps are equal; says where they are not, without printing all of them."""
    for name in one:
        differing = [(a, b) for a, b in zip(one[name], other[name], strict=False) if a != b]
        assert len(one[name]) == len(other[name]), name
        assert not differing, (name, differing[0])
    return True


# Counts, and what is embedded.


async def test_documents_are_inserted_updated_or_left_as_they_are(database: Database):
    documents = [document("a"), document("b"), document("c")]

    assert counts(await load(database, documents)) == (3, 0, 0, 0)
    assert counts(await load(database, documents)) == (0, 0, 3, 0)
    changed = replace(documents[1], metadata={"year": 2024})
    assert counts(await load(database, [documents[0], changed, document("d")])) == (1, 1, 1, 0)


async def test_unchanged_documents_cost_no_embedding_and_write_nothing(database: Database, owner_url: str):
    documents = varied(30)
    await load(database, documents)
    with psycopg.connect(owner_url) as connection:
        before = connection.execute("SELECT xmin::text, ctid::text FROM signalbox.chunk ORDER BY 2").fetchall()

    embedder = HashEmbedder()
    report = await load(database, documents, embedder)

    assert (report.unchanged, report.embedded, embedder.embedded) == (30, 0, [])
    with psycopg.connect(owner_url) as connection:
        after = connection.execute("SELECT xmin::text, ctid::text FROM signalbox.chunk ORDER BY 2").fetchall()
    assert before == after


async def test_only_the_changed_passages_of_a_document_are_embedded_again(database: Database):
    sections = [f"# Part {n}\n\n" + " ".join(WORDS * 12) + f" {n}.\n\n" for n in range(5)]
    first = HashEmbedder()
    await load(database, [document("a", "".join(sections))], first)
    assert len(first.embedded) >= 5

    sections[3] = sections[3].replace("winter", "summer")
    again = HashEmbedder()
    report = await load(database, [document("a", "".join(sections))], again)

    assert (report.updated, report.embedded) == (1, 1)
    assert ["summer" in text for text in again.embedded] == [True]


async def test_a_change_of_metadata_alone_embeds_nothing(database: Database):
    await load(database, [document("a", metadata={"year": 2023})])
    embedder = HashEmbedder()

    assert (await load(database, [document("a", metadata={"year": 2024})], embedder)).updated == 1
    assert embedder.embedded == []


async def test_progress_is_told_and_ends_at_all_documents(database: Database):
    seen: list[int] = []
    await load(database, varied(20), progress=lambda report: seen.append(report.done))
    assert seen == sorted(seen)
    assert seen[-1] == 20


async def test_a_document_is_replaced_at_one_moment(database: Database):
    old = document("a", "Old oil. " * 400)
    new = document("a", "New oil. " * 900)
    await load(database, [old])
    done = False
    seen = set()

    async def read() -> None:
        while not done:
            rows = await database.fetch(
                TENANT,
                """SELECT d.body LIKE 'Old%%', d.chunks, count(*), count(*) FILTER (WHERE c.body LIKE '%%Old%%')
                   FROM signalbox.document d JOIN signalbox.chunk c ON c.document_id = d.id GROUP BY 1, 2""",
                {},
            )
            seen.update(rows or [("nothing",)])

    reader = asyncio.create_task(read())
    for n in range(6):
        await load(database, [new if n % 2 == 0 else old])
    done = True
    await reader

    assert len(seen) == 2
    assert {row[0] for row in seen} == {True, False}
    assert all(row[1] == row[2] and row[3] == (row[2] if row[0] else 0) for row in seen)


# What is stored depends on the documents alone.


async def test_deleting_every_document_leaves_the_collection_as_it_was_made(database: Database, owner_url: str):
    documents = varied(25)
    await load(database, documents[:1], tenant="empty")
    await remove(database, [documents[0].id], tenant="empty")
    await load(database, documents)

    assert await remove(database, [one.id for one in documents] + ["unknown"]) == 25

    left, empty = dump(owner_url), dump(owner_url, "empty")
    assert not any(rows for table, rows in left.items() if table != "collection")
    # The field catalogue stays, for documents to come.
    assert [row[:2] + row[3:] for row in left["collection"]] == [row[:2] + row[3:] for row in empty["collection"]]


async def test_a_deleted_collection_leaves_nothing(database: Database, owner_url: str):
    await load(database, varied(10))
    async with database.transaction(TENANT) as connection:
        row = await collections.open_collection(connection, TENANT, "docs")
        assert await collections.delete_collection(connection, TENANT, row[0]) == 10
    assert not any(dump(owner_url).values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
async def test_order_batches_updates_and_deletes_on_the_way_leave_no_trace(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch, seed: int
):
    documents = varied(60)
    await load(database, documents, tenant="straight")
    choose = random.Random(seed)
    monkeypatch.setattr(run, "_BATCH_PASSAGES", choose.choice([1, 7, 50]))
    monkeypatch.setattr(run, "_BATCH_DOCUMENTS", choose.choice([3, 20, 256]))
    monkeypatch.setattr(run, "_SAMPLE_PASSAGES", choose.choice([1, 10, 100]))
    others = [
        replace(one, text=choose.choice(documents).text, important=("passing",)) for one in choose.sample(documents, 30)
    ]
    strangers = [replace(one, id=f"stranger-{one.id}") for one in choose.sample(documents, 20)]

    await load(database, [*others[:15], *strangers])
    remaining = documents + others[15:]
    choose.shuffle(remaining)
    shown: set[str] = set()
    # Of a document's versions the one in `documents` comes last.
    for _ in range(3):
        part = [one for one in remaining if choose.random() < 0.5]
        part = list({one.id: one for one in part}.values())
        shown.update(one.id for one in part)
        await load(database, part)
    await remove(database, [one.id for one in strangers])
    await remove(database, choose.sample([one.id for one in documents], 10))
    shuffled = choose.sample(documents, len(documents))
    await load(database, shuffled[:20])
    await load(database, shuffled)

    assert same(dump(owner_url), dump(owner_url, "straight"))


async def test_writers_at_the_same_time_leave_what_one_would(database: Database, owner_url: str):
    documents = varied(60)
    await load(database, documents, tenant="straight")
    # Each brings a field of its own, too; none may be lost.
    own = [replace(document(f"own{n}"), metadata={f"field{n}": n}) for n in range(4)]
    parts = [[*documents[n::3], *documents[: 10 * n], own[n]] for n in range(3)]

    async def delete() -> None:
        for n in range(5):
            await asyncio.sleep(0.02)
            await remove(database, [f"d{n}", f"d{n + 7}"])

    await load(database, documents[::2])
    await asyncio.gather(*(load(database, part) for part in parts), delete())
    await load(database, documents)

    fields = dump(owner_url)["collection"][0][2]
    assert {f"field{n}" for n in range(3)} <= set(fields)
    await remove(database, [one.id for one in own])
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.collection SET fields = fields - '{field0,field1,field2}'::text[]")
    assert same(dump(owner_url), dump(owner_url, "straight"))


# Bad documents.


async def test_the_passages_of_a_large_document_are_written_once(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    weighed: list[str] = []

    def counted(rows: Sequence[Any], mean: float) -> Any:
        weighed.extend(row[0] for row in rows)
        return rows_of.recompute_bm25(rows, mean)

    monkeypatch.setattr("retrievers.ingest.passage_weights.recompute_bm25", counted)
    small, large = document("small"), document("large", " ".join(f"term{n}" for n in range(5000)))

    await load(database, [small])
    await load(database, [large])

    assert weighed == ["small"]
    in_turn = dump(owner_url)
    await remove(database, ["small", "large"])
    await load(database, [large, small])
    assert same(dump(owner_url), in_turn)


async def test_of_a_new_version_the_counts_of_other_terms_alone_are_written(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    written: list[tuple[str, int]] = []
    count_terms = document_store.collection_counts.count_terms

    async def noted(connection: Any, tenant: str, number: int, changes: Sequence[tuple[str, int]]) -> None:
        written.extend(changes)
        await count_terms(connection, tenant, number, changes)

    monkeypatch.setattr(document_store.collection_counts, "count_terms", noted)
    await load(database, [document("a", "Oil the rotor.")])
    written.clear()
    await load(database, [document("a", "Oil the blade.")])
    assert written == [("blade", 1), ("rotor", -1)]

    written.clear()
    await load(database, [document("a", "Oil the blade.", readers=("group:crew",))])
    assert {change for _, change in written} == {1, -1}
    await load(database, [document("a", "Oil the blade.", readers=("group:crew",))], tenant="fresh")
    await load(database, [document("public")], tenant="fresh")
    await load(database, [document("public")])
    assert same(dump(owner_url), dump(owner_url, "fresh"))


@pytest.mark.parametrize("held", [0, 10**6])
async def test_the_terms_of_a_long_document_are_counted_few_passages_at_a_time(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch, held: int
):
    """`held`: how many terms of the replaced version may be in memory."""
    passages: list[int] = []

    def counted(some: Sequence[Any], old: Any) -> list[tuple[str, int]]:
        passages.append(len(some))
        return rows_of.term_changes(some, old)

    def text(start: int) -> str:
        return " ".join(f"term{n} blade" for n in range(start, start + 5000))

    monkeypatch.setattr(document_store, "term_changes", counted)
    monkeypatch.setattr(document_store, "_COUNTED_AT_ONCE", 5)
    monkeypatch.setattr(document_store.collection_counts, "_MOST_STORED_TERMS", held)
    await load(database, [document("a", text(0)), document("b")])
    await load(database, [document("a", text(2000))])

    assert max(passages) == 5
    assert sum(passages) > 50
    await load(database, [document("a", text(2000)), document("b")], tenant="fresh")
    assert same(dump(owner_url), dump(owner_url, "fresh"))


async def test_a_large_document_holds_up_none_that_came_before_it(database: Database):
    at_once: list[int] = []

    async def written(connection: Any, report: IngestReport, inserted: int, updated: int) -> None:
        at_once.append(inserted)

    large = document("large", "The rotor blade turns. " * 40_000)
    await load(database, [document("a"), document("b"), large, document("c")], on_write=written)

    assert at_once == [2, 1, 1]


@pytest.mark.parametrize("part", ["text", "questions", "metadata"])
async def test_texts_are_taken_from_the_input_as_far_as_memory_allows(
    database: Database, monkeypatch: pytest.MonkeyPatch, part: str
):
    """A folder of the longest documents is larger than memory."""
    monkeypatch.setattr(run, "_SAMPLE_CHARACTERS", 3000)
    monkeypatch.setattr(run, "_BATCH_CHARACTERS", 1000)
    texts = [f"{n} The rotor. " * 60 for n in range(40)]
    ahead: list[int] = []
    reports: list[int] = []

    def read() -> Iterator[Document]:
        for n, text in enumerate(texts):
            ahead.append(n - max(reports, default=0))
            parts: dict[str, Any] = {"text": text, "questions": (text,), "metadata": {"note": text}}
            yield document(f"d{n}", **{part: parts[part]})

    monkeypatch.setattr(run, "_SAMPLE_PASSAGES", 1)
    monkeypatch.setattr(run, "_BATCH_PASSAGES", 1)
    report = await load(database, read(), progress=lambda report: reports.append(report.done))

    assert report.inserted == 40
    assert max(ahead) < 20


@pytest.fixture
def unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bounds of analysis, so that the database meets its own limits."""
    monkeypatch.setattr(bm25, "_MOST_TERMS", 10**9)
    monkeypatch.setattr(bm25, "_MOST_CHARACTERS", 10**9)


@pytest.mark.usefixtures("unbounded")
async def test_a_bad_document_is_reported_and_loses_nobody_else(database: Database, owner_url: str):
    loop: dict[str, Any] = {}
    loop["self"] = loop
    bad = [
        RejectedItem("docs.jsonl:17", None, "no JSON"),
        document("x" * 600),
        document(""),
        document("blank", title=" ", text=" \n\u3000"),
        document("big", metadata={"text": "x" * 70_000}),
        document("keys", metadata={f"key{n}": n for n in range(300)}),
        document("loop", metadata=loop),
        document("digits", metadata={"n": 10**5000}),
        document("object", metadata={"what": object}),
        document("mixed", metadata={1: "a", "b": "c"}),
        document("infinite", metadata={"n": float("inf")}),
        document("nul", text="a\0b"),
        document("nul in title", title="a\0b"),
        document("nul inside", metadata={"a": ["\0"]}),
        document("half", text="\ud800"),
        document("half inside", metadata={"a": "\ud800"}),
        document("half question", questions=("\udfff",)),
        document("day", metadata={"day": "99999-01-01"}),
        document("no key", metadata={"": 1}),
        document("blank key", metadata={"\n": "x"}),
        document("words", important=tuple(f"word{n}" for n in range(20_000))),
        document("wordlist", questions=tuple(f"{n:05}{'x' * 59}" for n in range(15_900))),
    ]
    good = [document(f"good{n}", metadata={"day": f"2024-01-{n + 1:02}"}) for n in range(len(bad) + 1)]
    items = [good[0]]
    for one, other in zip(bad, good[1:], strict=True):
        items += [one, other]  # type: ignore[list-item]

    report = await load(database, items)

    assert report.inserted == len(good)
    assert [failure.index for failure in sorted(report.failed, key=lambda failure: failure.index)] == [
        2 * n + 1 for n in range(len(bad))
    ]
    assert all(failure.reason and "\n" not in failure.reason for failure in report.failed)
    stored = [row[0] for row in dump(owner_url)["document"]]
    assert stored == sorted(one.id for one in good)
    again = await load(database, items)
    assert counts(again) == (0, 0, len(good), len(bad))


@pytest.mark.usefixtures("unbounded")
async def test_a_refused_update_keeps_the_old_version(database: Database, owner_url: str):
    await load(database, [document("a"), document("b")])
    before = dump(owner_url)

    refused = document("a", important=tuple(f"word{n}" for n in range(20_000)))
    report = await load(database, [refused, document("b")])

    assert counts(report) == (0, 0, 1, 1)
    assert "the database refused it" in report.failed[0].reason
    assert same(dump(owner_url), before)


async def test_an_id_given_twice_is_stored_once_and_said(database: Database, owner_url: str):
    one = document("a", "The first text.")
    repeated = replace(one, where="docs.jsonl:2")
    other = replace(one, where="docs.jsonl:3", text="Another text.")

    report = await load(database, [one, repeated, other, document("b")])

    assert counts(report) == (2, 0, 1, 1)
    assert report.notes == ["docs.jsonl:2: the same document as at docs.jsonl:a"]
    assert report.failed[0].reason == 'the id "a" was already given at docs.jsonl:a; this one was left out'
    assert [row[3] for row in dump(owner_url)["document"]] == ["The first text.", "Oil the bearing."]


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "x" * 129, "\ud800"])
async def test_what_is_no_collection_name_is_refused(database: Database, name: str):
    with pytest.raises(BadRequest, match="1 to 128 printable characters"):
        await load(database, [document("a")], collection=name)


# Embedders.


async def test_another_embedder_is_refused_with_what_to_do_and_can_have_its_own_collection(
    database: Database, owner_url: str
):
    await load(database, [document("a")])
    before = dump(owner_url)

    for other in (HashEmbedder(name="other"), HashEmbedder(dimension=32, name="other")):
        with pytest.raises(EmbedderMismatch, match="set EMBEDDER=hash, or delete the collection"):
            await load(database, [document("b")], other)
    assert same(dump(owner_url), before)
    assert (await load(database, [document("b")], HashEmbedder(32, "other"), collection="others")).inserted == 1
    collections = await Catalogue(database).collections(TENANT)
    assert {one.name: (one.embedder, one.dimension) for one in collections} == {
        "docs": ("hash", 64),
        "others": ("other", 32),
    }


async def test_an_embedder_whose_vectors_changed_their_length_is_refused(database: Database):
    await load(database, [document("a")])
    for collection in ("docs", "new"):
        with pytest.raises(EmbedderMismatch) as caught:
            await load(database, [document("b")], HashEmbedder(dimension=32), collection=collection)
        assert "\n" not in str(caught.value)


async def test_vectors_too_long_for_an_index_are_refused_before_anything_is_written(database: Database, owner_url: str):
    with pytest.raises(BadRequest, match="4,096 dimensions; the index takes at most 4,000"):
        await load(database, [document("a")], HashEmbedder(dimension=4096))
    assert not any(dump(owner_url).values())


class Failing(HashEmbedder):
    """Fails from its third call on."""

    calls = 0

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.calls >= 3:
            raise Unavailable("the embedder", "quota")
        return await super().embed(texts)


async def test_an_embedder_that_fails_keeps_what_was_committed(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "_BATCH_PASSAGES", 5)
    documents = varied(40)
    await load(database, documents, tenant="straight")

    tasks = len(asyncio.all_tasks())
    with pytest.raises(Unavailable, match="quota"):
        await load(database, documents, Failing())
    assert len(asyncio.all_tasks()) == tasks
    assert 0 < len(dump(owner_url)["document"]) < 40

    await load(database, documents)
    assert same(dump(owner_url), dump(owner_url, "straight"))


async def test_a_cancelled_ingestion_leaves_no_task_and_no_broken_connection(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run, "_BATCH_PASSAGES", 5)
    documents = varied(60)
    await load(database, documents, tenant="straight")
    tasks = len(asyncio.all_tasks())
    for n in range(8):
        task = asyncio.create_task(load(database, documents))
        await asyncio.sleep(0.01 * n * n)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(60):  # a connection is still being given back
            while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    await load(database, documents)
    assert same(dump(owner_url), dump(owner_url, "straight"))


class Broken(HashEmbedder):
    """Gives no number for one text."""

    def vector(self, text: str) -> Vectors:
        vector = super().vector(text)
        return np.full_like(vector, np.nan) if "broken" in text else vector


async def test_a_vector_that_is_none_is_the_document_s_fault(database: Database):
    report = await load(database, [document("a"), document("b", "a broken text"), document("c")], Broken())
    assert counts(report) == (2, 0, 0, 1)
    assert report.failed[0].id == "b"


# Fields.


async def test_a_declared_schema_wins_over_what_the_values_look_like(database: Database):
    schema = read_schema({"fields": {"version": "string", "tags": {"type": "list", "separator": ","}}})
    documents = [document("a", metadata={"version": 3, "tags": "red, blue"}), document("b", metadata={"version": "x"})]

    assert (await load(database, documents, declared=schema)).failed == []

    rows = await database.fetch(TENANT, "SELECT fields FROM signalbox.document ORDER BY id", {})
    assert rows[0][0]["version"] == "3"
    assert rows[0][0]["tags"] == ["red", "blue"]


async def test_a_value_that_does_not_fit_its_field_is_the_document_s_fault(database: Database):
    await load(database, [document("a", metadata={"year": 2024, "day": "2024-01-01"})])
    documents = [document("b", metadata={"year": "soon"}), document("c", metadata={"day": "soon"}), document("d")]

    report = await load(database, documents)

    assert counts(report) == (1, 0, 0, 2)
    assert [failure.reason.partition(";")[0] for failure in report.failed] == [
        'metadata "year" is a number in this collection',
        'metadata "day" is a date in this collection: "soon" is not an ISO 8601 date',
    ]


async def test_a_schema_that_changes_a_type_is_refused_once_there_are_documents(database: Database):
    number = {"year": Field("year", "number", "number", declared=True)}
    text = {"year": Field("year", "string", "string", declared=True)}
    await load(database, [], declared=text)
    await load(database, [document("a", metadata={"year": 2024})], declared=number)

    with pytest.raises(BadRequest, match='the schema changes the type of "year"'):
        await load(database, [document("b")], declared=text)
    assert (await load(database, [document("b", metadata={"year": 2025})], declared=number)).inserted == 1


async def test_fields_that_appear_later_are_learnt(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "_SAMPLE_DOCUMENTS", 2)
    monkeypatch.setattr(run, "_BATCH_DOCUMENTS", 2)
    documents = [document(f"d{n}", metadata={f"key{n}": n}) for n in range(7)]

    assert (await load(database, documents)).inserted == 7
    assert set((await Catalogue(database).collections(TENANT))[0].fields) == {f"key{n}" for n in range(7)}


# Killing loses nothing.

WORKER = """
import asyncio, sys
from dataclasses import replace
sys.path.insert(0, sys.argv[3])
import test_ingest
from retrievers.ingest import run
from retrievers.postgres.connections.database import Database

run._BATCH_PASSAGES = run._SAMPLE_PASSAGES = 24

async def work():
    async with Database(sys.argv[1], size=4) as database:
        print("open", flush=True)
        await test_ingest.second_delivery(database, sys.argv[2])

asyncio.run(work())
"""


async def first_delivery(database: Database, tenant: str) -> None:
    await load(database, varied(300), tenant=tenant)


async def second_delivery(database: Database, tenant: str) -> None:
    """600 documents of which 100 are as before and 150 changed; 50 of the first are deleted."""
    before = varied(300)
    changed = [replace(one, text=one.text[::-1], metadata={**one.metadata, "team": "green"}) for one in before[100:250]]
    new = [replace(one, id=f"new-{one.id}") for one in varied(350, seed=2)]
    await load(database, [*before[:100], *changed, *new], tenant=tenant)
    for start in range(250, 300, 10):
        await remove(database, [one.id for one in before[start : start + 10]], tenant)


@pytest.mark.slow
def test_killing_an_ingestion_at_any_moment_loses_and_doubles_nothing(owner_url: str):
    async def undisturbed() -> float:
        async with Database(owner_url, size=4) as database:
            for tenant in ("straight", "killed"):
                await first_delivery(database, tenant)
            started = time.monotonic()
            await second_delivery(database, "straight")
            return time.monotonic() - started

    whole_s = asyncio.run(undisturbed())
    choose = random.Random(9)
    arguments = [sys.executable, "-c", WORKER, owner_url, "killed", str(Path(__file__).parent)]

    for _ in range(12):
        worker = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "open\n"
        time.sleep(choose.uniform(0, whole_s / 6))
        worker.kill()
        _, errors = worker.communicate()
        assert (worker.returncode, errors) == (-signal.SIGKILL, "")
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

    assert same(dump(owner_url, "killed"), dump(owner_url, "straight"))
