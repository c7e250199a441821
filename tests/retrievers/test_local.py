"""Documents searched without a database, beside the same documents in PostgreSQL."""

import asyncio
import json
import logging
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from agent.answering.answer import Answerer
from agent.chat.chat import Chat
from agent.intent.reader import CascadeReader
from agent.pipeline import Pipeline
from agent.records.trace_store import TraceStore
from agent.service.factory import build_worker
from agent.service.metering import Metering
from agent.service.service import Service
from agent.settings import Settings
from agent.types import Request
from retrievers import registry
from retrievers.core.errors import BadFilter, BadRequest, Unavailable, UnknownCollection
from retrievers.core.filters import parse_filter
from retrievers.core.types import PLATFORM, ChunkId, Hit, Query, Scope
from retrievers.embed import Vectors
from retrievers.ingest.documents import NOTHING_SEARCHABLE, Document
from retrievers.ingest.readers.file_input import read_record
from retrievers.local import Local
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE
from retrievers.sandbox import CancelCheck
from retrievers.testing import HashEmbedder

EMBEDDER = HashEmbedder()


def documents(texts: Mapping[str, str], **more: Any) -> list[dict[str, Any]]:
    return [{"id": id, "text": text, **more} for id, text in texts.items()]


async def search(local: Local, text: str, **more: Any) -> list[Hit]:
    await local.ready()
    return await local.search(Query(text, "en", await local.scope(), **more))


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id.document_id for hit in hits]


def service_on(database: Database, **changes: Any) -> Service:
    chosen = Settings(**changes)
    catalogue = Catalogue(database)
    resources = registry.Resources(database, EMBEDDER, catalogue, chosen.model_dump())
    built = {name: registry.build(name, resources) for name in registry.names()}
    sources = {name: source for name, source in built.items() if source is not None}
    pipeline = Pipeline(chosen, catalogue, sources, EMBEDDER)
    answerer, traces = Answerer(chosen, EMBEDDER), TraceStore(database, days=0)
    worker = build_worker(chosen, database, EMBEDDER, catalogue)
    return Service(
        settings=chosen,
        database=database,
        embedder=EMBEDDER,
        catalogue=catalogue,
        pipeline=pipeline,
        answerer=answerer,
        traces=traces,
        worker=worker,
        keys=ApiKeyStore(database),
        chats=Chat(answerer, ()),
        metering=Metering(database),
    )


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search looks at the folder and waits until it is read, however busy the machine is."""
    monkeypatch.setattr("retrievers.local.LOOK_EVERY_S", 0.0)
    monkeypatch.setattr("retrievers.local.PATIENCE_S", 60.0)


# The documents alone.


async def test_a_list_of_documents_is_searched_without_a_database():
    local = Local.of(documents({"a": "Refunds take five days.", "b": "Parcels take two days."}), EMBEDDER)
    hits = await search(local, "how long do refunds take")
    assert ids(hits) == ["a", "b"]
    assert hits[0].id == ChunkId(PLATFORM, "local", "a", 0)
    assert hits[0].chunk is not None
    assert hits[0].chunk.text == "Refunds take five days."


async def test_documents_that_have_expired_are_not_found():
    local = Local.of(
        [
            {"id": "old", "text": "Refunds take five days.", "expires_at": "2020-01-01"},
            {"id": "new", "text": "Refunds take four days.", "expires_at": "2999-01-01"},
        ],
        EMBEDDER,
    )
    assert ids(await search(local, "refunds")) == ["new"]


async def test_one_bad_document_is_reported_and_loses_nobody_else(caplog: pytest.LogCaptureFixture):
    given = [
        {"id": "a", "text": "Refunds take five days.", "when": "2024-01-01"},
        {"id": "empty", "text": ""},
        {"id": "a", "text": "The same id once more."},
        {"id": "late", "text": "Refunds and dates.", "when": "2024-13-01"},
    ]
    with caplog.at_level(logging.WARNING, "retrievers.local"):
        assert ids(await search(Local.of(given, EMBEDDER), "refunds")) == ["a"]
    assert caplog.messages == [
        f"not searched: documents[1]: {NOTHING_SEARCHABLE}",
        'not searched: documents[2]: the id "a" was already given at documents[0]',
        'not searched: documents[3]: metadata "when" is a date in this collection: "2024-13-01" is not an ISO 8601 '
        "date (month must be in 1..12)",
    ]


async def test_what_is_quoted_must_occur_as_it_is():
    texts = {"a": "error code seven", "b": "code error seven seven", "c": "error 7 code"}
    local = Local.of(documents(texts), EMBEDDER)
    found = [
        hit
        for hit in await search(local, '"error code" seven')
        if hit.component_scores and "fulltext" in hit.component_scores
    ]
    assert ids(found) == ["a"]
    nowhere = [
        hit
        for hit in await search(local, '"seven code" error')
        if hit.component_scores and "fulltext" in hit.component_scores
    ]
    assert sorted(ids(nowhere)) == ["a", "b", "c"]


async def test_without_documents_nothing_is_found():
    assert await search(Local.of([], EMBEDDER), "refunds") == []


async def test_equal_scores_are_in_the_order_of_the_ids():
    local = Local.of(documents(dict.fromkeys("cab", "Refunds take five days.")), EMBEDDER)
    hits = await search(local, "refunds", limit=2)
    assert [(hit.id.document_id, hit.score) for hit in hits] == [("a", 1.0), ("b", 1.0)]


async def test_the_score_weighs_words_and_vectors():
    local = Local.of(documents({"a": "refunds refunds", "b": "refunds parcels", "c": "storms"}), EMBEDDER)
    hits = {hit.id.document_id: hit for hit in await search(local, "refunds")}
    assert hits["a"].score == pytest.approx(1.0)  # the best of both
    assert hits["c"].score == pytest.approx(0.0)  # the worst vector, and no word
    cosines = {id: (hit.component_scores or {})["vector"] for id, hit in hits.items()}
    scaled = (cosines["b"] - cosines["c"]) / (cosines["a"] - cosines["c"])
    assert hits["b"].score == pytest.approx(0.4 * scaled)  # the worst of those with the word


async def test_vectors_of_an_embedder_that_does_not_know_the_language_count_little():
    embedder = HashEmbedder()
    embedder.languages = frozenset({"de"})
    local = Local.of(documents({"a": "refunds refunds", "b": "refunds parcels", "c": "storms"}), embedder)
    hits = {hit.id.document_id: hit for hit in await search(local, "refunds")}
    assert 0 < hits["b"].score < 0.05 + 1e-9


async def test_a_scope_without_the_documents_is_refused():
    local = Local.of(documents({"a": "Refunds."}), EMBEDDER)
    await local.ready()
    with pytest.raises(BadRequest, match="do not belong to the requested collection: none"):
        await local.search(Query("refunds", "en", Scope("someone", ())))


async def test_more_than_memory_is_meant_for_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retrievers.memory.corpus.MOST_PASSAGES", 2)
    local = Local.of(documents(dict.fromkeys("abc", "Refunds.")), EMBEDDER)
    with pytest.raises(Unavailable, match="signalbox ingest"):
        await local.ready()
    fitting = Local.of(documents(dict.fromkeys("ab", "Refunds.")), EMBEDDER)
    assert ids(await search(fitting, "refunds")) == ["a", "b"]


class Failing(HashEmbedder):
    """An embedder that is down until it is told otherwise."""

    down = True

    async def embed(self, texts: Any) -> Vectors:
        if self.down:
            raise Unavailable("the embedder", "the connection was refused")
        return await super().embed(texts)


async def test_words_are_searched_while_there_are_no_vectors(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.local._EMBED_AGAIN_S", 0.0)
    embedder = Failing()
    local = Local.of(documents({"a": "Refunds take five days.", "b": "Storms."}), embedder)
    hits = await local.search(Query("refunds", "en", await local.scope()))
    assert [(hit.id.document_id, list(hit.component_scores or ())) for hit in hits] == [("a", ["fulltext"])]
    assert caplog.messages == [
        "the local documents are searched by full text only: the embedder is unavailable: the connection was refused"
    ]
    with pytest.raises(Unavailable, match="gave no vectors"):
        await local.ready()
    embedder.down = False
    assert ids(await search(local, "refunds")) == ["a", "b"]


async def test_words_are_searched_while_a_question_gets_no_vector(monkeypatch: pytest.MonkeyPatch):
    local = Local.of(documents({"a": "Refunds take five days.", "b": "Storms."}), HashEmbedder())
    await local.ready()

    async def refuse(self: HashEmbedder, text: str) -> Vectors:
        raise Unavailable("the embedder", "out of quota")

    monkeypatch.setattr(HashEmbedder, "embed_query", refuse)
    assert ids(await search(local, "refunds")) == ["a"]


async def test_reading_goes_on_when_whoever_asked_has_left():
    going = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(_stopped: CancelCheck) -> Iterator[Document]:
        yield Document("a", "a", "", "Refunds take five days.")
        asyncio.run_coroutine_threadsafe(going.wait(), loop).result()

    local = Local(EMBEDDER, slowly)
    scope = Scope("someone", (), (await local.collection(),))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await local.search(Query("refunds", "en", scope))
    assert (await local.collection()).documents == 0
    going.set()
    assert ids(await search(local, "refunds")) == ["a"]


async def test_a_search_says_that_the_documents_are_still_being_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("retrievers.local.PATIENCE_S", 0.01)
    going = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly(_stopped: CancelCheck) -> Iterator[Document]:
        asyncio.run_coroutine_threadsafe(going.wait(), loop).result()
        yield Document("a", "a", "", "Refunds take five days.")

    local = Local(EMBEDDER, slowly)
    with pytest.raises(Unavailable, match="still being read"):
        await local.search(Query("refunds", "en", Scope("someone", (), (await local.collection(),))))
    going.set()
    await local.ready()


async def test_what_is_being_read_ends_with_the_service():
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def endless(_stopped: CancelCheck) -> Iterator[Document]:
        number = 0
        try:
            while True:
                number += 1
                yield Document("a", f"a{number}", "", "Refunds.")
                time.sleep(0.001)
        finally:
            loop.call_soon_threadsafe(stopped.set)

    local = Local(EMBEDDER, endless)
    await local.collection()
    await asyncio.sleep(0.05)
    await local.aclose()
    with suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), 60)
    assert stopped.is_set()


# A folder.


async def test_what_changes_in_a_folder_is_found_at_once(tmp_path: Path):
    (tmp_path / "a.md").write_text("# Refunds\n\nRefunds take five days.\n")
    embedder = HashEmbedder()
    local = Local.folder(tmp_path, embedder)
    assert ids(await search(local, "refunds")) == ["a.md"]
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "b.txt").write_text("Refunds of parcels take ten days.")
    assert sorted(ids(await search(local, "refunds"))) == ["a.md", "deeper/b.txt"]
    (tmp_path / "a.md").write_text("# Storms\n\nStorms take no days.\n")
    (tmp_path / "deeper" / "b.txt").unlink()
    hits = await search(local, "storms")
    assert [(hit.id.document_id, hit.chunk and hit.chunk.title) for hit in hits] == [("a.md", "Storms")]
    # Only what is new was embedded.
    assert len(embedder.embedded) == 3


async def test_a_file_that_cannot_be_read_loses_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "good.txt").write_text("Refunds take five days.")
    (tmp_path / "bad.json").write_text("{")
    assert ids(await search(Local.folder(tmp_path, EMBEDDER), "refunds")) == ["good.txt"]
    assert [message.split(": ")[1] for message in caplog.messages] == [str(tmp_path / "bad.json")]


async def test_the_folders_own_schema_declares_its_fields(tmp_path: Path):
    (tmp_path / "schema.json").write_text('{"fields": {"code": "string"}}')
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "Refunds.", "code": 7}\n')
    local = Local.folder(tmp_path, EMBEDDER)
    fields = (await local.scope()).external_collections[0].fields
    assert fields["code"].item == "string"
    wanted = parse_filter({"type": "eq", "key": "code", "value": "7"}, fields)
    assert ids(await search(local, "refunds", filter=wanted)) == ["a"]


async def test_a_schema_that_is_none_is_said_and_nothing_is_guessed(tmp_path: Path):
    (tmp_path / "schema.json").write_text('{"fields": {"code": {"type": "text"}}}')
    (tmp_path / "a.txt").write_text("Refunds.")
    with pytest.raises(Unavailable, match=r'cannot be read: schema\.json: schema field "code"'):
        await Local.folder(tmp_path, EMBEDDER).ready()


async def test_a_folder_that_is_gone_is_not_answered_from_and_comes_back(tmp_path: Path):
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Refunds.")
    local = Local.folder(folder, EMBEDDER)
    assert ids(await search(local, "refunds")) == ["a.txt"]
    shutil.rmtree(folder)
    with pytest.raises(Unavailable, match='the folder "docs" cannot be read: No such file or directory'):
        await search(local, "refunds")
    folder.mkdir()
    (folder / "b.txt").write_text("Refunds.")
    assert ids(await search(local, "refunds")) == ["b.txt"]


def test_a_folder_that_cannot_be_is_an_error_of_the_setting(tmp_path: Path):
    (tmp_path / "file.txt").write_text("Refunds.")
    for path, reason in ((tmp_path / "none", "does not exist"), (tmp_path / "file.txt", "is not a folder")):
        with pytest.raises(BadRequest, match=reason) as raised:
            registry.build("local", registry.Resources(None, EMBEDDER, None, {"local": path}))
        assert raised.value.where == "local"
    assert registry.build("local", registry.Resources(None, EMBEDDER, None, {"local": None})) is None


# Beside PostgreSQL.

RECORDS: list[dict[str, Any]] = [
    {
        "id": "a",
        "title": "Refund policy",
        "text": "Refunds take five days. Returns are free.",
        "n": 1,
        "day": "2024-05-01",
    },
    {"id": "b", "text": "A refund of a parcel, PEP 703 and refunds again: refund.", "tags": ["x", "y"], "n": 2.5},
    {"id": "c", "text": "# Parcels\n\nParcels take days.\n\n" + "Storms delay parcels and crews. " * 90, "flag": True},
    {
        "id": "d",
        "title": "Storms",
        "text": "Nothing of that.",
        "important": ["refund"],
        "tags": ["y"],
        "day": "2023-01-31",
    },
    {"id": "e", "text": "Questions help.", "questions": ["How long do refunds take?"], "n": 10, "flag": False},
    {"id": "f", "title": "退款", "text": "退款需要五天。包裹需要两天。", "public": True, "team": "red"},
    {"id": "g", "text": "Refunds of old.", "expires_at": "2020-01-01", "team": "blue"},
    {
        "id": "h",
        "text": "The crew repairs the tower in winter: bolts, gears.",
        "team": "red",
        "day": "2024-05-01T08:30:00Z",
    },
]
QUESTIONS = [
    ("how long do refunds take", "en"),
    ("storms delay crews, pep-703", "en"),
    ('"refunds again" parcels', "en"),
    ("退款需要几天", "zh"),
    ("bolts", "en"),
    ("nothing known zebra", "en"),
]


@pytest.fixture(scope="module")
def filled(module_url: str) -> str:
    """A database with the records in the collection `docs`; its owner's address."""

    async def fill() -> None:
        async with Database(module_url, make_conninfo(module_url, user=SERVICE_ROLE), size=2) as database:
            items = [read_record(one, one["id"]) for one in RECORDS]
            assert (await service_on(database).ingest(items, "docs")).inserted == len(RECORDS)

    asyncio.run(fill())
    return module_url


@pytest.fixture
async def stored(filled: str) -> AsyncIterator[Database]:
    async with Database(filled, make_conninfo(filled, user=SERVICE_ROLE), size=2) as database:
        yield database


@pytest.fixture
async def local() -> Local:
    local = Local.of(RECORDS, EMBEDDER)
    await local.ready()
    return local


def measured(hits: list[Hit], measure: str) -> dict[tuple[str, int], float]:
    return {
        hit.id[2:]: hit.component_scores[measure]
        for hit in hits
        if hit.component_scores and measure in hit.component_scores
    }


@pytest.mark.parametrize(("question", "language"), QUESTIONS)
async def test_scores_are_those_of_the_database(stored: Database, local: Local, question: str, language: str):
    catalogue = Catalogue(stored)
    resources = registry.Resources(stored, EMBEDDER, catalogue)
    scope = await catalogue.scope("default", "docs")
    here = await local.search(Query(question, language, await local.scope()))
    for measure, tolerance in (("fulltext", 1e-6), ("vector", 1e-3)):
        hits = await registry.build(measure, resources).search(Query(question, language, scope))  # type: ignore[union-attr]
        there = {hit.id[2:]: hit.score for hit in hits}
        assert measured(here, measure) == pytest.approx(there, rel=tolerance, abs=tolerance)


async def test_fields_are_those_of_the_database(stored: Database, local: Local):
    there = await Catalogue(stored).scope("default", "docs")
    assert filterable_fields(await local.scope()) == filterable_fields(there)


KEYS: dict[str, tuple[list[str], list[Any]]] = {
    "n": (["eq", "ne", "gt", "gte", "lt", "lte"], [1, 2, 2.5, 10]),
    "day": (["eq", "ne", "gt", "gte", "lt", "lte"], ["2024-05-01", "2024-05-01T08:30:00+00:00", "2023-06-01"]),
    "tags": (["eq", "ne", "contains"], ["x", "y", "z"]),
    "team": (["eq", "ne", "contains", "prefix"], ["red", "r", "blue"]),
    "flag": (["eq", "ne"], [True, False]),
    "public": (["eq", "ne"], [True, False]),
    "language": (["eq", "ne"], ["en", "zh"]),
    "title": (["eq", "contains", "prefix", "exists"], ["Storms", "S", "退款"]),
    "id": (["eq", "in", "nin"], ["a", "f", "zz"]),
}


@st.composite
def comparisons(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(sorted(KEYS)))
    types, values = KEYS[key]
    kind = draw(st.sampled_from([*types, "exists"]))
    value: Any = draw(st.sampled_from(values))
    if kind in ("in", "nin"):
        value = draw(st.lists(st.sampled_from(values), max_size=2))
    return {"type": kind, "key": key, "value": draw(st.booleans()) if kind == "exists" else value}


def groups(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.fixed_dictionaries(
        {"type": st.sampled_from(["and", "or"]), "filters": st.lists(inner, min_size=1, max_size=3)}
    )
    return several | st.fixed_dictionaries({"type": st.just("not"), "filter": inner})


FILTERS = st.recursive(comparisons(), groups, max_leaves=5)


@settings(derandomize=True, database=None, deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(expression=FILTERS)
async def test_filters_select_the_same_documents_as_in_the_database(
    stored: Database, local: Local, expression: dict[str, Any]
):
    catalogue = Catalogue(stored)
    scope, beside = await catalogue.scope("default", "docs"), await local.scope()
    wanted = parse_filter(expression, filterable_fields(scope))
    assert parse_filter(expression, filterable_fields(beside)) == wanted
    vectors = registry.build("vector", registry.Resources(stored, EMBEDDER, catalogue))
    assert vectors is not None
    there = await vectors.search(Query("refunds", "en", scope, wanted))
    here = await local.search(Query("refunds", "en", beside, wanted))
    assert {hit.id[2:] for hit in here} == {hit.id[2:] for hit in there}


# In the service.


async def test_the_service_answers_from_a_folder_alone(database: Database, tmp_path: Path):
    (tmp_path / "refunds.md").write_text("# Refunds\nRefunds take five days.\n")
    service = service_on(database, local=tmp_path)
    result = await service.retrieve("how long do refunds take", sources=["local"])
    assert [(hit.id, hit.sources) for hit in result.hits] == [("0:local/refunds.md#0", ("local",))]
    assert result.hits[0].title == "Refunds"


@pytest.fixture
async def both(database: Database, tmp_path: Path) -> Service:
    """A collection `shop` and a folder."""
    shop = [
        {"id": "s1", "text": "Our shop sells boots and gloves.", "year": 2020},
        {"id": "s2", "text": "The shop opens at nine.", "year": 2021},
    ]
    here = [
        {"id": "l1", "text": "Refunds in our shop take five days.", "year": 2021, "author": "Ada"},
        {"id": "l2", "text": "Parcels travel by train.", "year": 2020, "author": "Bob"},
    ]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, here)))
    service = service_on(database, local=tmp_path)
    await service.ingest([read_record(one, one["id"]) for one in shop], "shop")
    return service


async def test_a_folder_and_a_collection_are_fused_by_what_they_measure(both: Service):
    result = await both.retrieve("how long do refunds in the shop take", intent="off")
    found = {hit.document_id: hit for hit in result.hits}
    assert result.hits[0].document_id == "l1"
    assert set(found) == {"l1", "l2", "s1", "s2"}
    assert found["l1"].sources == ("local",)
    assert set(found["l1"].scores) == {"local", "fulltext", "vector", "fused"}
    assert "local" not in found["s1"].sources
    # An irrelevant passage is not lifted by being the best of its own source.
    result = await both.retrieve("when does the shop open, at nine", intent="off")
    assert result.hits[0].document_id == "s2"


async def test_a_question_of_identifiers_is_asked_of_the_folder_too(both: Service):
    cards = {name: source.card for name, source in both.pipeline.sources.items()}
    reader = CascadeReader(both.settings, both.catalogue, cards, EMBEDDER)
    pipeline = replace(both.pipeline, reader=reader)
    result = await pipeline.retrieve("default", Request(query="CVE-2024-5565"))
    assert [(one.source, one.reason) for one in result.outcomes if one.step == 1] == [
        ("fulltext", None),
        ("local", None),
    ]


async def test_a_callers_filter_holds_for_the_folder_too(both: Service):
    result = await both.retrieve("shop", filter={"type": "eq", "key": "year", "value": 2021}, intent="off")
    assert sorted(hit.document_id for hit in result.hits) == ["l1", "s2"]


async def test_a_caller_may_filter_by_a_field_that_only_the_folder_has(both: Service):
    result = await both.retrieve("shop", filter={"type": "eq", "key": "author", "value": "Ada"}, intent="off")
    assert [hit.document_id for hit in result.hits] == ["l1"]
    with pytest.raises(BadFilter, match='"author"') as raised:
        await both.retrieve("shop", filter={"type": "eq", "key": "writer", "value": "Ada"})
    assert "author" in raised.value.valid
    # Within the collection there is no such field.
    with pytest.raises(BadFilter):
        await both.retrieve("shop", filter={"type": "eq", "key": "author", "value": "Ada"}, collection="shop")


async def test_a_folder_is_no_part_of_a_collection(both: Service):
    result = await both.retrieve("refunds shop", collection="shop", intent="off")
    assert {hit.document_id for hit in result.hits} == {"s1", "s2"}
    assert {outcome.source for outcome in result.outcomes} == {"fulltext", "vector"}
    with pytest.raises(BadRequest, match='do not belong to the requested collection: "shop"'):
        await both.retrieve("refunds", collection="shop", sources=["local"], intent="off")


async def test_a_folder_may_be_asked_for_by_its_name_as_a_collection(both: Service):
    result = await both.retrieve("refunds shop", collection="local")
    assert {hit.document_id for hit in result.hits} == {"l1", "l2"}
    assert result.intent.collections == ("local",)
    with pytest.raises(UnknownCollection, match='there are: "local", "shop"'):
        await both.retrieve("refunds", collection="nowhere")


async def test_every_tenant_may_read_the_folder_and_no_other_collection(both: Service):
    result = await both.retrieve("refunds shop", tenant="stranger", intent="off")
    assert {hit.document_id for hit in result.hits} == {"l1", "l2"}


async def test_a_collection_of_the_platform_with_the_same_name_is_not_mixed_up_with_it(both: Service):
    public = Document("p", "l1", "", "Refunds of the platform.", public=True)
    assert (await both.retrieve("refunds", collection="local", intent="off")).hits  # the folder has been read
    await both.ingest([public], "local", tenant=PLATFORM)
    assert [one.name for one in await both.collections()] == ["local", "shop"]
    result = await both.retrieve("refunds", intent="off", sources=["fulltext", "local"])
    assert [(hit.document_id, hit.text) for hit in result.hits] == [("l1", "Refunds of the platform.")]
    assert any("under another name" in (one.reason or "") for one in result.outcomes)


async def test_the_prompt_cites_passages_of_the_folder(both: Service):
    prompt = await both.augment("how long do refunds take", collection="local", intent="off")
    first = prompt.citations[0]
    assert (first.document_id, first.chunk_id, first.start) == ("l1", "0:local/l1#0", 0)
    assert first.end == len("Refunds in our shop take five days.")
    assert "Refunds in our shop take five days." in prompt.prompt


async def test_a_question_read_by_rules_is_answered_from_a_folder_alone(database: Database, tmp_path: Path):
    (tmp_path / "a.txt").write_text("Refunds take five days.")
    service = service_on(database, local=tmp_path)
    cards = {name: source.card for name, source in service.pipeline.sources.items()}
    reader = CascadeReader(service.settings, service.catalogue, cards, EMBEDDER)
    pipeline = replace(service.pipeline, reader=reader)
    result = await pipeline.retrieve("default", Request(query="How long do refunds take?"))
    assert [hit.document_id for hit in result.hits] == ["a.txt"]
