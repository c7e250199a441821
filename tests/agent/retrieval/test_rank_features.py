import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from agent.answering.answer import Answerer
from agent.chat.chat import Chat
from agent.errors import BadSetting
from agent.options.rank_features import RankFeature, parse_rank_features
from agent.pipeline import Pipeline
from agent.records.trace_store import TraceStore
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rank_features import RankFeatureInputs, add_rank_features
from agent.serve.cli.explain.trace_report import print_trace
from agent.service.factory import build_worker
from agent.service.metering import Metering
from agent.service.service import Service
from agent.settings import Settings, load_settings
from retrievers import registry
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.metadata import Field, MetadataValues
from retrievers.core.types import ChunkId, FieldCatalogue, FieldValues
from retrievers.ingest.documents import Document
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def hit(name: str, score: float) -> FusedHit:
    return FusedHit(ChunkId("t", "notes", name, 0), score, score, {"fulltext": 1.0}, {"fulltext": 1})


def known(values: Sequence[MetadataValues], question: str = "q", **fields: FieldValues) -> RankFeatureInputs:
    return RankFeatureInputs(question, NOW, values, FieldCatalogue(((1, 1),), 100, fields))


def order(hits: Sequence[FusedHit]) -> list[str]:
    return [one.id.document_id for one in hits]


def test_a_setting_is_read_into_features():
    read = parse_rank_features("prior:rank=0.2, recency:published/180=0.1, tags:tags=0.05, feedback=0.3")

    assert read == (
        RankFeature("prior", "rank", 0.2),
        RankFeature("recency", "published", 0.1, 180.0),
        RankFeature("tags", "tags", 0.05),
        RankFeature("feedback", "", 0.3),
    )
    assert parse_rank_features("") == ()


@pytest.mark.parametrize(
    "text", ["prior=1", "feedback:x=1", "recency:day=1", "prior:a/3=1", "fame:x=1", "prior:a=0", "prior:a=1,prior:b=1"]
)
def test_a_setting_that_is_no_feature_is_refused_with_the_form(text: str):
    with pytest.raises(BadSetting, match="RANK_FEATURES"):
        load_settings({"rank_features": text})


def test_a_half_life_halves_what_recency_adds():
    hits = [hit("old", 1.0), hit("new", 1.0), hit("none", 1.0)]
    days = [(NOW - timedelta(days=180)).date().isoformat(), NOW.date().isoformat()]

    ranked = add_rank_features(
        parse_rank_features("recency:day/90=0.4"), hits, known([{"day": days[0]}, {"day": days[1]}, {}])
    )

    assert order(ranked) == ["new", "old", "none"]
    assert [one.scores["recency"] for one in ranked] == [1.0, 0.25, 0.0]
    assert [round(one.score, 6) for one in ranked] == [1.4, 1.1, 1.0]
    assert [one.fused_score for one in ranked] == [1.0, 1.0, 1.0]


def test_a_prior_is_a_place_in_the_range_of_its_field_and_a_share_of_the_best_score():
    rank = FieldValues(Field("rank", "number", "number"), documents=2, low=10, high=30)
    hits = [hit("a", 0.04), hit("b", 0.03)]

    ranked = add_rank_features(
        parse_rank_features("prior:rank=0.5"), hits, known([{"rank": 10}, {"rank": 25}], rank=rank)
    )

    assert order(ranked) == ["b", "a"]
    assert ranked[0].scores["prior"] == 0.75
    assert ranked[0].score == pytest.approx(0.03 + 0.04 * 0.5 * 0.75)


def test_tags_that_the_question_names_lift_their_documents():
    tags = FieldValues(Field("tags", "list", "string"), {"cost": 2, "safety": 2}, 2, 4)
    hits = [hit("a", 1.0), hit("b", 0.95), hit("c", 0.9)]
    held: list[Mapping[str, Any]] = [{"tags": ["safety"]}, {"tags": ["cost"]}, {"tags": ["cost", "safety"]}]

    ranked = add_rank_features(
        parse_rank_features("tags:tags=0.2"), hits, known(held, "what does the Cost plan say", tags=tags)
    )

    assert [round(one.scores["tags"], 3) for one in sorted(ranked, key=lambda one: one.id)] == [0.0, 1.0, 0.707]
    assert order(ranked) == ["b", "c", "a"]


def test_without_a_named_tag_those_of_the_best_hits_speak():
    tags = FieldValues(Field("tags", "list", "string"), {"cost": 2, "safety": 2}, 2, 4)
    hits = [hit("a", 1.0), hit("b", 0.9), hit("c", 0.5)]

    ranked = add_rank_features(
        parse_rank_features("tags:tags=0.1"),
        hits,
        known([{"tags": ["cost"]}, {"tags": ["cost"]}, {"tags": ["safety"]}], tags=tags),
    )

    by_name = {one.id.document_id: one.scores["tags"] for one in ranked}
    assert by_name["a"] == by_name["b"] > by_name["c"] > 0


EMBEDDER = HashEmbedder()


def service_on(database: Database, **changes: Any) -> Service:
    catalogue = Catalogue(database)
    resources = registry.Resources(database, EMBEDDER, catalogue)
    built = {name: registry.build(name, resources) for name in registry.names()}
    settings = Settings(**changes)
    pipeline = Pipeline(settings, catalogue, {name: one for name, one in built.items() if one}, EMBEDDER)
    answerer, traces = Answerer(settings, EMBEDDER), TraceStore(database, days=30)
    worker = build_worker(settings, database, EMBEDDER, catalogue)
    return Service(
        settings=settings,
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


def note(id: str, **metadata: Any) -> Document:
    return Document(where=id, id=id, title="", text=f"the bearing of turbine {id}", metadata=metadata)


async def test_features_are_off_unless_asked_for_and_stand_in_the_scores(database: Database):
    plain = service_on(database)
    await plain.ingest([note("a", day="2020-01-01"), note("b", day="2026-11-01")], "notes", tenant="t")

    before = await plain.retrieve("bearing of turbine", collection="notes", tenant="t", now=NOW)
    service = service_on(database, rank_features="recency:day/365=3")
    after = await service.retrieve("bearing of turbine", collection="notes", tenant="t", now=NOW)

    assert all("recency" not in one.scores for one in before.hits)
    assert [one.document_id for one in after.hits] == ["b", "a"]
    assert after.hits[0].scores["recency"] > 0.9


async def test_a_day_without_a_time_zone_is_one_of_the_settings(database: Database):
    service = service_on(database, rank_features="recency:day/365=3", time_zone="Asia/Shanghai")
    await service.ingest([note("a", day="2020-01-01"), note("b", day="2026-11-20")], "notes", tenant="t")

    result = await service.retrieve("bearing of turbine", collection="notes", tenant="t", now="2026-11-20")

    assert [one.document_id for one in result.hits] == ["b", "a"]
    assert result.hits[0].scores["recency"] == pytest.approx(1.0)


async def test_feedback_moves_documents_and_is_nobody_elses(database: Database):
    service = service_on(database, rank_features="feedback=10")
    async with service.traces:
        await service.ingest([note("a"), note("b"), note("c")], "notes", tenant="t")
        await service.ingest([note("a"), note("b"), note("c")], "notes", tenant="u")

        async def ask(question: str, tenant: str = "t") -> Any:
            return await service.retrieve(question, collection="notes", tenant=tenant)

        bad, good = await ask("turbine a"), await ask("turbine c")
        assert (bad.hits[0].document_id, good.hits[0].document_id) == ("a", "c")
        await service.feedback(bad.trace_id, 0, "not that one", tenant="t")
        await service.feedback(good.trace_id, 10, tenant="t")
        await service.feedback(good.trace_id, 10, tenant="t")

        mine, theirs = await ask("the bearing"), await ask("the bearing", "u")
        assert mine.hits[0].document_id == "c"
        assert mine.hits[0].scores["feedback"] > 0 > {h.document_id: h for h in mine.hits}["a"].scores["feedback"]
        assert {one.scores["feedback"] for one in theirs.hits} == {0.0}

        with pytest.raises(BadRequest, match="no trace"):
            await service.feedback(good.trace_id, 10, tenant="u")
        with pytest.raises(BadRequest, match="0 to 10"):
            await service.feedback(good.trace_id, 11, tenant="t")

        await service.delete("notes", "c", tenant="t")
        await service.ingest([note("c")], "notes", tenant="t")
        again = await ask("turbine c")
        assert {one.document_id: one.scores["feedback"] for one in again.hits}["c"] == 0.0


async def test_of_judgements_of_one_answer_at_the_same_time_one_is_kept(database: Database):
    service = service_on(database, rank_features="feedback=10")
    async with service.traces:
        await service.ingest([note("a"), note("b")], "notes", tenant="t")
        trace_id = (await service.retrieve("turbine a", collection="notes", tenant="t")).trace_id

        await asyncio.gather(*(service.feedback(trace_id, score, tenant="t") for score in range(6, 11)))

        await service.feedback(trace_id, 0, tenant="t")
        after = await service.retrieve("turbine a", collection="notes", tenant="t")
        # Shares 1 and 1 / log2(3) of one judgement, each beside a weight of 3 that says nothing.
        found = {one.document_id: one.scores["feedback"] for one in after.hits}
        assert found == pytest.approx({"a": -1 / (1 + 3), "b": -0.63093 / (0.63093 + 3)}, abs=1e-4)


@pytest.mark.parametrize("fault", [Unavailable("PostgreSQL", "the connection was lost"), 30.0])
async def test_without_feedback_the_hits_keep_their_order_and_it_is_said(
    database: Database, monkeypatch: pytest.MonkeyPatch, fault: Unavailable | float
):
    async def fail(*_: Any) -> Mapping[Any, float]:
        if isinstance(fault, Unavailable):
            raise fault
        await asyncio.sleep(fault)
        return {}

    monkeypatch.setattr(Catalogue, "feedback", fail)
    plain, service = service_on(database), service_on(database, rank_features="feedback=10", source_timeout_s=2)
    await plain.ingest([note("a"), note("b")], "notes", tenant="t")
    before = await plain.retrieve("turbine b", collection="notes", tenant="t")
    after = await service.retrieve("turbine b", collection="notes", tenant="t")
    assert [one.id for one in after.hits] == [one.id for one in before.hits]
    assert (before.degraded, after.degraded) == ((), ("feedback_unavailable",))


async def test_an_explanation_shows_what_each_feature_gave(database: Database):
    service = service_on(database, rank_features="recency:day/365=3")
    await service.ingest([note("a", day="2020-01-01"), note("b", day="2026-11-01")], "notes", tenant="t")
    result = await service.retrieve("turbine a", collection="notes", tenant="t", now=NOW, explain=True)
    assert result.explanation is not None
    shown = StringIO()
    print_trace(
        {**result.explanation, "created_at": "", "expires_at": ""},
        Console(file=shown, width=200, highlight=False, markup=False),
    )
    shows = ("rank ", "[notes/")
    head, first, second = [
        line.split() for line in shown.getvalue().splitlines() if any(one in line for one in shows) and ":" not in line
    ]
    assert head[:5] == ["rank", "relevance", "score", "fused", "recency"]
    # The fused order is a, b; recency turns it round.
    assert (first[0], first[4], second[0], second[4]) == ("1", "#2", "2", "#1")
    assert float(first[5]) > 0.9 > float(second[5])


async def test_judgements_of_one_answer_at_the_same_time_are_all_taken_and_one_is_kept(database: Database):
    service = service_on(database)
    async with service.traces:
        await service.ingest([note("a"), note("b")], "notes", tenant="t")
        trace_id = (await service.retrieve("turbine a", collection="notes", tenant="t")).trace_id

        await asyncio.gather(*(service.feedback(trace_id, score, tenant="t") for score in (0, 4, 7, 10) * 3))

    kept = await database.fetch("t", "SELECT score FROM signalbox.feedback", ())
    shares = await database.fetch("t", "SELECT document_id FROM signalbox.feedback_document", ())
    assert len(kept) == 1
    assert sorted(shares) == [("a",), ("b",)]
