"""Search from end to end: the service over a real database, with an embedder that needs no model."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from agent.answering.answer import Answerer
from agent.chat.chat import Chat
from agent.pipeline import Pipeline
from agent.records.trace_store import TraceStore
from agent.service.factory import build_worker
from agent.service.metering import Metering
from agent.service.service import Service
from agent.settings import Settings
from agent.types import RankedHit, Request, Result
from retrievers import registry, vector
from retrievers.core.errors import BadFilter, BadRequest, UnknownCollection
from retrievers.core.filters import matches_filter, parse_filter
from retrievers.core.types import Card, Collection, Hit, Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.onnx_embedder import OnnxEmbedder
from retrievers.ingest.documents import Document
from retrievers.ingest.preparation import field_values
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.catalogue import visible_collections
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE
from retrievers.testing import HashEmbedder

EMBEDDER = HashEmbedder()
WORDS = "turbine blade rotor bearing gear oil pitch tower bolt grid crew winter storm repair".split()


def service_on(database: Database, embedder: Embedder = EMBEDDER, **changes: Any) -> Service:
    catalogue = Catalogue(database)
    resources = registry.Resources(database=database, embedder=embedder, catalogue=catalogue)
    built = {name: registry.build(name, resources) for name in registry.names()}
    sources = {name: source for name, source in built.items() if source is not None}
    chosen = Settings(**changes)
    pipeline = Pipeline(chosen, catalogue, sources, embedder)
    answerer, traces = Answerer(chosen, embedder), TraceStore(database, days=0)
    worker = build_worker(chosen, database, embedder, catalogue)
    return Service(
        settings=chosen,
        database=database,
        embedder=embedder,
        catalogue=catalogue,
        pipeline=pipeline,
        answerer=answerer,
        traces=traces,
        worker=worker,
        keys=ApiKeyStore(database),
        chats=Chat(answerer, ()),
        metering=Metering(database),
    )


@pytest.fixture
def service(database: Database) -> Service:
    return service_on(database)


def documents(texts: Mapping[str, str], **given: Any) -> list[Document]:
    return [Document(where=id, id=id, title="", text=text, **given) for id, text in texts.items()]


def ids(result: Result) -> list[str]:
    return [hit.document_id for hit in result.hits]


def corpus(count: int) -> list[Document]:
    choose = random.Random(4)
    return [
        Document(
            where=str(n),
            id=f"d{n:03}",
            title="",
            text=" ".join(choose.choices(WORDS, k=8)) + f" {n}",
            metadata={
                "year": 2000 + n % 10,
                "team": choose.choice(["red", "green", "blue"]),
                "day": f"2024-{n % 12 + 1:02}-{n % 28 + 1:02}",
                **({"tags": choose.sample(WORDS, 2)} if n % 3 else {}),
                **({"open": n % 2 == 0} if n % 5 else {}),
            },
        )
        for n in range(count)
    ]


CORPUS = corpus(400)


@pytest.fixture(scope="module")
def filled(module_url: str) -> str:
    """A database with two collections, `large` of 400 documents and `small` of the first 80; its owner's address."""

    async def fill() -> None:
        async with Database(module_url, make_conninfo(module_url, user=SERVICE_ROLE), size=4) as database:
            assert (await service_on(database).ingest(CORPUS, "large")).inserted == 400
            assert (await service_on(database).ingest(CORPUS[:80], "small")).inserted == 80

    asyncio.run(fill())
    return module_url


@pytest.fixture
async def found(filled: str) -> Any:
    async with Database(filled, make_conninfo(filled, user=SERVICE_ROLE), size=4) as database:
        yield service_on(database)


# Exact words.

IDENTIFIERS = {
    "PEP 703": ["Free threading is proposed in PEP 703.", "PEP 7030 and PEP 70", "A pep talk, 703 times.", "PEP 30, 7"],
    "getattr()": ["Call getattr() with a default.", "Get the attr of an object.", "hasattr and setattr", "attribute"],
    "R1-750": ["The pump R1-750 leaks.", "The pump R1-7500 leaks.", "R1 has 75 pumps", "Pump R2-750 leaks."],
    "CVE-2024-5565": ["Patch CVE-2024-5565 now.", "Patch CVE-2024-5566 now.", "5565 fixes in 2024", "CVE-2023-5565"],
    "max_connections": ["Raise max_connections to 200.", "min_connections", "Maximum of connections", "max"],
}


@pytest.mark.parametrize("question", IDENTIFIERS)
async def test_an_identifier_finds_its_document_first(database: Database, minilm: OnnxEmbedder, question: str):
    service = service_on(database, minilm)
    exact, *near = IDENTIFIERS[question]
    texts = {"exact": exact, **{f"near{n}": text for n, text in enumerate(near)}}
    others = {f"other{n}": f"Notes on {word} and nothing else." for n, word in enumerate(WORDS)}
    await service.ingest(documents({**others, **texts}), "docs")

    for asked in (question, question.lower(), f"What about {question}?"):
        assert ids(await service.retrieve(asked))[0] == "exact", asked


@pytest.mark.parametrize("question", ["prop-0042", "show me PROP-0042", "who wrote prop-0042?", "prop-0042 的状态"])
async def test_a_document_is_found_by_its_id_though_others_mention_it(service: Service, question: str):
    texts = {"prop-0042": "Larger machines for the cluster.", "note": "We follow prop-0042, as prop-0042 says."}
    await service.ingest(documents(texts, metadata={"team": "infra"}), "docs")
    await service.ingest(documents({"prop-0042": "Somebody else's."}), "docs", tenant="globex")
    result = await service.retrieve(question, collection="docs", intent="off")
    assert ids(result)[0] == "prop-0042"
    assert "Larger machines" in result.hits[0].text
    assert sorted(ids(result)) == ["note", "prop-0042"]
    other = {"type": "ne", "key": "team", "value": "infra"}
    assert ids(await service.retrieve(question, collection="docs", intent="off", filter=other)) == []


@pytest.mark.parametrize(
    ("id", "question"),
    [
        ("pmidi", "what is pmidi?"),
        ("pmidi", "show me pmidi"),
        ("2119", "2119 是什么？"),
        ("PH1050", "when does ph1050 start?"),
        ("a/b", "what is a/b"),
    ],
)
async def test_an_id_that_may_be_a_word_is_one_where_nothing_else_is_said(service: Service, id: str, question: str):
    texts = {id: "A player of songs.", "note": f"We follow {id}, as {id} says, and {id} starts often."}
    await service.ingest(documents(texts), "docs")
    assert ids(await service.retrieve(question, collection="docs", intent="off", sources=["fulltext"]))[0] == id
    asked = await service.retrieve(f"how often does {id} start songs?", collection="docs", sources=["fulltext"])
    assert (ids(asked)[0] == id) is (id == "PH1050")


async def test_an_id_alone_is_above_what_words_and_meaning_find(database: Database, minilm: OnnxEmbedder):
    texts = {
        "pn-driver-faq": "Refunds are paid within ten days.",
        "guide": "What drivers ask: driver questions, the driver FAQ and the driver handbook.",
        "notes": "The driver FAQ was shown to new drivers.",
    }
    service = service_on(database, minilm)
    await service.ingest(documents(texts), "docs")
    for question in ("what is pn-driver-faq?", "show me pn-driver-faq", "pn-driver-faq 是什么？"):
        assert ids(await service.retrieve(question, collection="docs"))[0] == "pn-driver-faq", question


async def test_a_quoted_phrase_finds_only_what_holds_it(service: Service):
    texts = {
        "exact": "In spring the crew must oil the main bearing twice.",
        "reversed": "The bearing main is called. The oil, the oil, the oil. Main bearing? Oil main bearing.",
        "scattered": "Main oil. Bearing oil. The main thing about oil is the bearing. Oil oil main oil bearing.",
    }
    await service.ingest(documents(texts), "docs")

    result = await service.retrieve('"oil the main bearing"', sources=["fulltext"])
    assert ids(result) == ["exact"]
    assert ids(await service.retrieve('who must "oil the main bearing"'))[0] == "exact"
    missing = await service.retrieve('"bearing the storm"', sources=["fulltext"])
    assert (len(missing.hits), missing.status) == (3, "weak"), "a phrase that is nowhere is searched as words"


async def test_a_quoted_phrase_keeps_its_meaning_under_a_filter(service: Service):
    texts = {
        "exact": "They oil the main bearing.",
        "scattered": "Main oil. Bearing oil. The main thing is the bearing.",
    }
    await service.ingest(documents(texts, metadata={"team": "red"}), "docs")

    wanted = {"type": "eq", "key": "team", "value": "red"}
    result = await service.retrieve('"oil the main bearing"', sources=["fulltext"], filter=wanted)

    assert ids(result) == ["exact"]


async def test_words_outside_the_alphabet_are_found(service: Service):
    await service.ingest(
        documents({"zh": "齿轮油每年更换一次", "de": "Das Getriebe prüfen", "en": "Check the gear"}), "docs"
    )

    assert ids(await service.retrieve("齿轮油", sources=["fulltext"])) == ["zh"]
    assert ids(await service.retrieve("PRUFEN", sources=["fulltext"])) == ["de"]


# Filters.

FILTERS: list[dict[str, Any]] = [
    {"type": "eq", "key": "team", "value": "red"},
    {"type": "ne", "key": "team", "value": "red"},
    {"type": "gte", "key": "year", "value": 2007},
    {"type": "in", "key": "year", "value": [2001, 2002]},
    {"type": "nin", "key": "year", "value": [2001, 2002]},
    {"type": "lt", "key": "day", "value": "2024-03-01"},
    {"type": "contains", "key": "tags", "value": "oil"},
    {"type": "eq", "key": "open", "value": True},
    {"type": "exists", "key": "tags", "value": False},
    {"type": "prefix", "key": "team", "value": "gr"},
    {"type": "eq", "key": "id", "value": "d007"},
    {"type": "not", "filter": {"type": "eq", "key": "open", "value": True}},
    {"type": "and", "filters": [{"type": "eq", "key": "team", "value": "blue"},
                                {"type": "gt", "key": "year", "value": 2004}]},
    {"type": "or", "filters": [{"type": "eq", "key": "year", "value": 2000},
                               {"type": "contains", "key": "tags", "value": "gear"}]},
    {"type": "eq", "key": "team", "value": "no such team"},
]  # fmt: skip


@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: f"{wanted['type']}-{wanted.get('key', '')}")
async def test_filtered_hits_are_exactly_those_of_a_search_through_everything(found: Service, wanted: dict[str, Any]):
    scope = await found.catalogue.scope("default", "large")
    parsed = parse_filter(wanted, filterable_fields(scope))
    fields = scope.collections[0].fields
    allowed = {
        one.id: EMBEDDER.vector(one.text)
        for one in CORPUS
        if matches_filter(parsed, {**field_values(one, fields), "language": "en"})
    }
    for question in ("turbine oil", "storm repair crew in winter", "unknown words"):
        asked = EMBEDDER.vector(question)
        exact = sorted((float(asked @ vector) for vector in allowed.values()), reverse=True)[:10]

        result = await found.retrieve(question, collection="large", filter=wanted, sources=["vector"])
        both = await found.retrieve(question, collection="large", filter=wanted, top_k=100)

        assert set(ids(result)) | set(ids(both)) <= set(allowed)
        assert [hit.scores["vector"] for hit in result.hits] == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("wanted", FILTERS, ids=lambda wanted: f"{wanted['type']}-{wanted.get('key', '')}")
async def test_a_filter_and_its_opposite_share_out_the_hits_and_add_none(found: Service, wanted: dict[str, Any]):
    for source in ("vector", "fulltext"):
        asked = {"collection": "small", "sources": [source], "top_k": 100}
        every = ids(await found.retrieve("turbine oil storm", **asked))
        some = ids(await found.retrieve("turbine oil storm", **asked, filter=wanted))
        rest = ids(await found.retrieve("turbine oil storm", **asked, filter={"type": "not", "filter": wanted}))

        assert sorted(some + rest) == sorted(every)
        # And their order stays.
        assert [id for id in every if id in some] == some


# Pages and repetition.


def shown(hits: Sequence[RankedHit]) -> list[tuple[str, float, int]]:
    return [(hit.id, hit.score, hit.rank) for hit in hits]


@pytest.mark.parametrize("reranker", ["none", "hybrid"])
def test_fewer_hits_are_the_first_ones_and_pages_follow_each_other(filled: str, reranker: str):
    with asyncio.Runner() as runner:
        database = Database(filled, make_conninfo(filled, user=SERVICE_ROLE), size=2)
        service = service_on(runner.run(database.__aenter__()), reranker=reranker)

        @settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
        @given(
            st.lists(st.sampled_from(WORDS), min_size=1, max_size=4),
            st.integers(1, 99),
            st.integers(1, 100),
            st.integers(1, 40),
        )
        def check(words: list[str], k: int, more: int, size: int) -> None:
            def ask(top_k: int, page: int = 1) -> list[tuple[str, float, int]]:
                question = " ".join(words)
                result = runner.run(service.retrieve(question, collection="large", top_k=top_k, page=page))
                return shown(result.hits)

            larger = ask(min(k + more, 100))
            assert ask(k) == larger[:k]
            pages = [ask(size, page) for page in (1, 2, 3)]
            together = pages[0] + pages[1] + pages[2]
            assert together[:100] == ask(100)[: 3 * size]
            assert len({id for id, _, _ in together}) == len(together)

        try:
            check()
        finally:
            runner.run(database.__aexit__(None, None, None))


async def test_the_same_request_gives_the_same_hits(found: Service):
    for question in ("turbine", "oil of the gear", "storm winter crew"):
        first = shown((await found.retrieve(question, top_k=100)).hits)
        again = await asyncio.gather(*(found.retrieve(question, top_k=100) for _ in range(5)))
        assert all(shown(result.hits) == first for result in again)


async def test_a_page_follows_from_its_documents_alone(service: Service, owner_url: str):
    await service.ingest(corpus(1200), "docs")
    questions = ["turbine oil", "storm repair crew in winter", "grid 17", "bolt of the tower 940"]

    async def pages() -> list[list[tuple[str, float, int]]]:
        return [shown((await service.retrieve(one, collection="docs", top_k=100)).hits) for one in questions]

    before = await pages()
    for change in ("VACUUM FULL signalbox.chunk", "ANALYZE", "REINDEX SCHEMA signalbox"):
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(change.encode())
        assert await pages() == before, change
    await service.ingest(corpus(1500), "others")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("ANALYZE")
    assert await pages() == before


async def test_a_question_takes_four_statements_and_one_more_for_new_words(
    found: Service, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []

    def counted(where: object, name: str) -> Any:
        call = getattr(where, name)

        def counting(*values: Any, **options: Any) -> Any:
            asked.append(next(value for value in values if isinstance(value, str) and "signalbox." in value))
            return call(*values, **options)

        return counting

    await found.retrieve("turbine blade", collection="large", intent="off")
    for name in ("fetch_autocommit", "fetch"):
        monkeypatch.setattr(found.database, name, counted(found.database, name))
        monkeypatch.setattr(found.database.reads, name, counted(found.database.reads, name))
    monkeypatch.setattr(visible_collections, "_FRESH_S", 60.0)

    async def statements(question: str) -> list[str]:
        asked.clear()
        await found.retrieve(question, collection="large", intent="off")
        names = sorted(one.split("signalbox.")[1].split("(")[0] for one in asked)
        return [name for name in names if name != "note_use"]  # of many questions together, while nobody waits

    assert await statements("turbine blade") == ["matching", "nearest", "passages", "tenant_rules"]
    assert await statements("rotor bearing") == ["matching", "nearest", "passages", "tenant_rules", "term_counts"]
    assert await statements("bearing blade") == ["matching", "nearest", "passages", "tenant_rules"]


def test_hits_of_more_than_can_all_be_scored_may_come_from_an_index():
    few = Collection(1, "t", "a", chunks=vector.MOST_SCORED)
    one_more = Collection(2, "t", "b", chunks=1)
    assert not vector.may_use_index(Query("x", "en", Scope("t", (few,))))
    assert vector.may_use_index(Query("x", "en", Scope("t", (few, one_more))))


async def test_pages_past_the_end_are_empty(found: Service):
    result = await found.retrieve("turbine", collection="small", page=50)
    assert result.hits == ()


# Collections.


async def test_nothing_found_is_an_answer(service: Service):
    await service.ingest(documents({"a": "oil"}), "docs")
    result = await service.retrieve("volcano", sources=["fulltext"])
    assert (result.status, result.hits, result.degraded) == ("nothing_found", (), ())
    assert [outcome.status for outcome in result.outcomes] == ["empty"]


async def test_what_does_not_exist_is_named_with_what_does(found: Service):
    with pytest.raises(UnknownCollection, match='no collection "none"; there are: "large", "small"'):
        await found.retrieve("oil", collection="none")
    with pytest.raises(UnknownCollection, match='"docs"'):
        await found.retrieve("oil", collection="docs")
    with pytest.raises(BadFilter, match=r'filter.key is "colour"; valid keys: .*"team"'):
        await found.retrieve("oil", filter={"type": "eq", "key": "colour", "value": 1})
    with pytest.raises(BadRequest, match='no source "web"; there are: "fulltext", "sql", "vector"'):
        await found.retrieve("oil", sources=["web"])
    with pytest.raises(BadRequest, match='no reranker "best"'):
        await found.retrieve("oil", reranker="best")


async def test_a_tenant_without_collections_is_told_how_to_make_one(found: Service):
    with pytest.raises(UnknownCollection, match="signalbox ingest"):
        await found.retrieve("oil", tenant="newcomer")


async def test_without_a_name_every_collection_is_searched(service: Service):
    await service.ingest(documents({"a": "gear oil"}), "one")
    await service.ingest(documents({"b": "oil gear"}), "two")

    for sources in (["vector"], ["fulltext"], ["vector", "fulltext"]):
        result = await service.retrieve("gear oil", sources=sources)
        assert sorted(hit.id for hit in result.hits) == ["one/a#0", "two/b#0"]
        assert result.intent.collections == ("one", "two")
    assert ids(await service.retrieve("gear oil", collection="two")) == ["b"]


async def test_a_name_that_is_new_is_found_at_once(service: Service):
    await service.ingest(documents({"a": "oil"}), "one")
    await service.retrieve("oil")
    await service.ingest(documents({"b": "oil"}, metadata={"fresh": 1}), "two")

    assert ids(await service.retrieve("oil", collection="two")) == ["b"]
    result = await service.retrieve("oil", collection="two", filter={"type": "eq", "key": "fresh", "value": 1})
    assert ids(result) == ["b"]


async def test_collections_of_two_embedders_are_searched_by_the_one_in_use(database: Database):
    other = service_on(database, HashEmbedder(32, "other"))
    await other.ingest(documents({"b": "gear oil of the other"}), "theirs")
    service = service_on(database)
    await service.ingest(documents({"a": "gear oil"}), "ours")

    everything = await service.retrieve("gear oil")
    assert sorted(ids(everything)) == ["a", "b"]
    assert {hit.document_id: hit.sources for hit in everything.hits}["b"] == ("fulltext",)
    theirs = await service.retrieve("gear oil", collection="theirs")
    assert ids(theirs) == ["b"]
    assert theirs.degraded == ("vector_unavailable",)
    assert "set EMBEDDER=other" in str(theirs.outcomes[1].reason)
    alone = await service.retrieve("gear oil", collection="theirs", sources=["vector"])
    assert (alone.status, alone.hits, alone.degraded) == ("nothing_found", (), ("vector_unavailable",))
    assert "set EMBEDDER=other" in str(alone.outcomes[0].reason)
    assert ids(await other.retrieve("gear oil", collection="theirs", sources=["vector"])) == ["b"]


# Changes while a request is under way.


@dataclass
class Interrupted:
    """A source in whose time something else happens."""

    inner: Retriever
    happening: Any

    @property
    def card(self) -> Card:
        return self.inner.card

    async def search(self, query: Query) -> list[Hit]:
        hits = await self.inner.search(query)
        await self.happening()
        return hits


async def test_a_document_deleted_between_search_and_loading_is_left_out(service: Service):
    await service.ingest(documents({"a": "gear oil", "b": "gear oil oil", "c": "gear"}), "docs")

    async def delete() -> None:
        if "b" in [row[0] for row in await service.database.fetch("default", "SELECT id FROM signalbox.document", {})]:
            assert await service.delete("docs", "b") == 1

    sources = {"fulltext": Interrupted(service.pipeline.sources["fulltext"], delete)}
    result = await replace(service.pipeline, sources=sources).retrieve("default", Request(query="gear oil"))

    assert sorted(ids(result)) == ["a", "c"]
    assert [hit.rank for hit in result.hits] == [1, 2]


async def test_a_document_that_changed_between_search_and_loading_is_shown_as_it_is(service: Service):
    await service.ingest(documents({"a": "gear oil"}), "docs")

    async def change() -> None:
        await service.ingest(documents({"a": "gear oil, changed"}), "docs")

    sources = {"fulltext": Interrupted(service.pipeline.sources["fulltext"], change)}
    result = await replace(service.pipeline, sources=sources).retrieve("default", Request(query="gear oil"))

    assert [hit.text for hit in result.hits] == ["gear oil, changed"]
