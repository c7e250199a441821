"""The service as its users hold it: tenants, freshness, pages, a login of its own, and all that may fail."""

import asyncio
import gc
import json
import logging
import os
import random
import re
import signal
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from agent import Service, open_service
from agent.intent.reading import Reading, TransformOutcome, literal_intent
from agent.pipeline import Pipeline
from agent.retrieval.router import join_filters
from agent.service import factory
from agent.settings import Settings
from agent.types import Intent, Request, Result
from retrievers.core.aggregates import Aggregate
from retrievers.core.errors import BadFilter, BadRequest, Unavailable
from retrievers.core.filters import FieldCondition, Filter, filter_to_json
from retrievers.core.types import Card, Chunk, ChunkId, Hit, Query, ResultTable, Scope
from retrievers.ingest.documents import Document
from retrievers.postgres.connections.database import Database
from retrievers.postgres.sql import execution
from retrievers.postgres.sql.view import DocumentsViews


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url)) as service:
        yield service


def document(name: str, text: str, **more: object) -> Document:
    return Document(name, name, name, text, **more)  # type: ignore[arg-type]


async def test_an_empty_tenant_is_an_error_and_never_the_default_one(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    calls = (
        service.retrieve("penguins", tenant=""),
        service.augment("penguins", tenant=""),
        service.collections(tenant=""),
        service.describe("docs", tenant=""),
        service.delete("docs", tenant=""),
        service.ingest([document("b", "text")], "docs", tenant=""),
    )
    for call in calls:
        with pytest.raises(BadRequest, match="a tenant is a name"):
            await call
    assert [one.documents for one in await service.collections()] == [1]


async def test_what_was_just_ingested_is_found_at_once(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    await service.retrieve("walrus migration", collection="docs")
    await service.ingest([document("b", "The walrus migration begins.")], "docs")
    result = await service.retrieve("walrus migration", collection="docs", sources=("fulltext",))
    assert [hit.document_id for hit in result.hits] == ["b"]


async def test_expired_passages_do_not_use_up_the_candidates_of_full_text(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.fulltext.CANDIDATES", 20)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    gone = [document(f"gone{n}", "A zebra.", expires_at=past) for n in range(25)]
    here = [document(f"here{n}", "Some stripes.") for n in range(30)]
    await service.ingest([*gone, *here], "docs")
    result = await service.retrieve("zebra stripes", collection="docs", sources=("fulltext",), top_k=100)
    assert sorted(hit.document_id for hit in result.hits) == sorted(one.id for one in here)


async def test_a_page_behind_the_last_hit_is_empty_but_something_was_found(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    result = await service.retrieve("penguins", collection="docs", page=3)
    assert (result.hits, result.status) == ((), "found")
    assert (await service.retrieve("penguins", collection="docs", page=1)).hits != ()


async def test_joined_passages_stand_in_the_prompt_as_they_stand_in_the_document(service: Service):
    text = "\n\n\n".join(f"Penguins and part {n}. " + f"word{n} " * 160 for n in range(6)).strip()
    await service.ingest([document("a", text)], "docs")
    prompt = await service.augment("penguins", collection="docs", budget_tokens=20_000)
    assert [(one.start, one.end) for one in prompt.citations] == [(0, len(text))]
    assert text in prompt.prompt


async def test_vectors_of_another_embedder_in_some_collection_are_reported(service: Service, owner_url: str):
    await service.ingest([document("a", "Penguins march.")], "docs")
    await service.ingest([document("b", "Penguins swim.")], "other")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("INSERT INTO signalbox.embedder (name, dimension) VALUES ('elsewhere', 3)")
        connection.execute(
            "UPDATE signalbox.collection SET embedder = e.number FROM signalbox.embedder e"
            " WHERE e.name = 'elsewhere' AND collection.name = 'other'"
        )
    await service.collections()
    assert (await service.retrieve("penguins")).degraded == ("vector_partial",)
    assert (await service.retrieve("penguins", collection="docs")).degraded == ()


async def test_a_login_of_its_own_that_is_a_member_of_the_service_role_is_enough(owner_url: str):
    login = make_conninfo(owner_url, user="signalbox_login")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(
            "DO $$ BEGIN CREATE ROLE signalbox_login LOGIN IN ROLE signalbox_app;"
            " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    async with open_service(Settings(database_url=owner_url, service_url=login)) as service:
        await service.ingest([document("a", "Penguins march.")], "docs")
        assert [hit.document_id for hit in (await service.retrieve("penguins")).hits] == ["a"]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await service.database.fetch(
                "default", "SELECT set_config('role', 'none', true), key FROM signalbox.secret", {}
            )


async def test_an_unknown_template_is_the_callers_mistake_and_lists_those_there_are(service: Service):
    await service.ingest([document("a", "Penguins march.")], "docs")
    with pytest.raises(BadRequest, match="answer/v1"):
        await service.augment("penguins", collection="docs", template="nope")


# Readings, sources that fail, and what becomes of them.


@dataclass
class Scripted:
    """A reader that says what it is told."""

    first: Mapping[str, Any] = field(default_factory=dict)
    later: Mapping[str, Any] | Exception | None = None
    later_s: float | None = None
    firm: tuple[Filter, ...] = ()
    soft: tuple[Filter, ...] = ()
    error: Exception | None = None
    transforms: TransformOutcome = field(default_factory=TransformOutcome)

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        if self.error:
            raise self.error
        plain = literal_intent(request, scope, wanted, ("fulltext", "vector"))

        def intent(given: Mapping[str, Any]) -> Intent:
            return Intent(**{**plain.model_dump(), "by": "rules", **given})

        async def model() -> Intent | None:
            await asyncio.sleep(self.later_s or 0)
            if isinstance(self.later, Exception):
                raise self.later
            return intent({"by": "llm", **self.later}) if self.later is not None else None

        return Reading(
            intent({"filter": _all(wanted, *self.firm), "soft_filter": _all(*self.soft), **self.first}),
            later=model() if self.later_s is not None else None,
            firm=self.firm,
            soft=self.soft,
            transforms=self.transforms,
        )


def _all(*filters: Filter | None) -> dict[str, Any] | None:
    whole = join_filters(filters)
    return filter_to_json(whole) if whole else None


@dataclass
class Stub:
    """A source beside the real ones."""

    card: Card
    answer: Callable[[Query], list[Hit]] | Exception | float
    asked: list[Query] = field(default_factory=list)

    async def search(self, query: Query) -> list[Hit]:
        self.asked.append(query)
        if isinstance(self.answer, float):
            await asyncio.sleep(self.answer)
            return []
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer(query)


def team(name: str) -> FieldCondition:
    return FieldCondition("eq", "team", name)


TEAMS = [
    document("red1", "Penguins march in the snow.", metadata={"team": "red", "year": 2024}),
    document("red2", "Penguins swim in the sea.", metadata={"team": "red", "year": 2025}),
    document("blue1", "Penguins march on the ice.", metadata={"team": "blue", "year": 2025}),
]


@pytest.fixture
async def teams(service: Service) -> Service:
    await service.ingest(TEAMS, "docs")
    return service


def reading(service: Service, reader: Scripted | None = None, **sources: Stub) -> Service:
    """The service with another reader, and with some sources replaced or added."""
    everything = {name: source for name, source in service.pipeline.sources.items() if name != "sql"}
    chosen = service.settings.model_copy(update={"intent": "auto"})
    pipeline = Pipeline(chosen, service.catalogue, {**everything, **sources}, service.embedder, reader=reader)
    return replace(service, pipeline=pipeline)


def ids(result: Result) -> list[str]:
    return sorted(hit.document_id for hit in result.hits)


def became(result: Result) -> list[tuple[int, str, str]]:
    assert [(step.step, step.source) for step in result.plan] == [(one.step, one.source) for one in result.outcomes]
    return [(one.step, one.source, one.status) for one in result.outcomes]


async def test_constraints_read_from_a_question_narrow_it_beside_the_callers_own(teams: Service):
    asked = reading(teams, Scripted(firm=(team("red"),)))
    result = await asked.retrieve("penguins", filter={"type": "eq", "key": "year", "value": 2025})
    assert (ids(result), result.relaxed, result.status) == (["red2"], (), "found")
    assert result.intent.filter == {
        "type": "and",
        "filters": [{"type": "eq", "key": "year", "value": 2025}, {"type": "eq", "key": "team", "value": "red"}],
    }
    assert {json.dumps(step.filter) for step in result.plan if step.step == 1} == {json.dumps(result.intent.filter)}


async def test_what_was_inferred_and_leaves_nothing_is_dropped_the_weakest_first_and_said(teams: Service):
    gone = FieldCondition("gt", "year", 2030)
    asked = reading(teams, Scripted(firm=(gone, team("red"))))
    result = await asked.retrieve("penguins")
    assert (ids(result), result.status) == (["red1", "red2"], "found")
    assert [one.dropped for one in result.relaxed] == [filter_to_json(gone)]
    assert all("nothing was found with it" in one.reason for one in result.relaxed)
    assert became(result) == [
        (1, "fulltext", "empty"), (1, "vector", "empty"), (2, "fulltext", "ok"), (2, "vector", "ok"),
        (3, "fulltext", "skipped"), (3, "vector", "skipped"),
    ]  # fmt: skip


async def test_what_is_only_likely_raises_the_documents_that_satisfy_it_and_excludes_none(teams: Service):
    plain = await reading(teams, Scripted()).retrieve("penguins")
    last = plain.hits[-1].metadata["team"]

    raised = await reading(teams, Scripted(soft=(team(last),))).retrieve("penguins")

    assert set(ids(raised)) == set(ids(plain))
    assert raised.hits[0].metadata["team"] == last != plain.hits[0].metadata["team"]
    boosts = {hit.metadata["team"]: hit.scores.get("boost", 0) for hit in raised.hits}
    assert {name for name, boost in boosts.items() if boost > 0} == {last}
    assert (raised.intent.soft_filter, raised.relaxed) == (filter_to_json(team(last)), ())
    assert all(hit.score == pytest.approx(hit.scores["fused"]) for hit in raised.hits)


async def test_what_is_only_likely_and_true_of_nothing_changes_nothing(teams: Service):
    plain = await reading(teams, Scripted()).retrieve("penguins")
    same = await reading(teams, Scripted(soft=(FieldCondition("gt", "year", 2030),))).retrieve("penguins")
    assert [(hit.id, hit.scores) for hit in same.hits] == [(hit.id, hit.scores) for hit in plain.hits]
    assert (same.relaxed, same.degraded) == ((), ())


async def test_the_callers_filter_is_not_dropped_even_when_nothing_is_left(teams: Service):
    asked = reading(teams, Scripted(firm=(team("red"),)))
    result = await asked.retrieve("penguins", filter={"type": "eq", "key": "year", "value": 1999})
    assert (result.hits, result.status) == ((), "nothing_found")
    assert [one.dropped for one in result.relaxed] == [filter_to_json(team("red"))]
    assert all("1999" in json.dumps(step.filter) for step in result.plan)


async def test_small_talk_is_not_retrieved_for(teams: Service):
    result = await reading(teams, Scripted({"kind": "none"})).retrieve("hello")
    assert (result.status, result.hits, result.plan, result.outcomes) == ("no_retrieval_needed", (), (), ())


async def test_a_reader_that_fails_leaves_the_question_as_it_is(teams: Service):
    result = await reading(teams, Scripted(error=Unavailable("the database", "gone"))).retrieve("penguins")
    assert (len(result.hits), result.degraded, result.intent.by) == (3, ("intent_unavailable",), "caller")
    stale = Scripted({"filter": {"type": "eq", "key": "gone", "value": 1}})
    result = await reading(teams, stale).retrieve("penguins")
    assert (len(result.hits), result.degraded, result.intent.by) == (3, ("intent_unavailable",), "caller")


async def test_a_rule_that_crashes_costs_the_reading_and_not_the_answer(
    teams: Service, failed_readings: list[logging.LogRecord]
):
    result = await reading(teams, Scripted(error=ZeroDivisionError("a rule divided"))).retrieve("penguins")
    assert (len(result.hits), result.degraded, result.intent.by) == (3, ("intent_unavailable",), "caller")
    assert [one.exc_info[0] for one in failed_readings if one.exc_info] == [ZeroDivisionError]
    failed_readings.clear()
    with pytest.raises(BadRequest):
        await reading(teams, Scripted(error=BadRequest("no such mode", where="intent"))).retrieve("penguins")


# A model's reading.


async def test_a_models_searches_join_those_of_the_rules(teams: Service):
    asked = reading(teams, Scripted(later={"searches": ("penguins", "swim sea")}, later_s=0.05))
    result = await asked.retrieve("penguins")
    assert (ids(result), result.intent.by, result.degraded) == (["blue1", "red1", "red2"], "llm", ())
    # What the rules asked already is not asked again.
    assert [(step.step, step.source, step.search) for step in result.plan] == [
        (1, "fulltext", "penguins"), (1, "vector", "penguins"),
        (2, "fulltext", "swim sea"), (2, "vector", "swim sea"),
    ]  # fmt: skip


async def test_a_made_up_passage_is_searched_for_by_vectors_alone(teams: Service):
    later = {"searches": ("penguins", "Birds walk far.")}
    done = TransformOutcome(vector_only={"Birds walk far.": "hyde"})
    asked = reading(teams, Scripted(later=later, later_s=0.01, transforms=done))
    result = await asked.retrieve("penguins")
    assert [(step.source, step.search) for step in result.plan if step.step == 2] == [("vector", "Birds walk far.")]
    assert result.degraded == ()
    words = await asked.retrieve("penguins", sources=["fulltext"])
    assert {step.search for step in words.plan} == {"penguins"}
    assert words.degraded == ("hyde_skipped",)


async def test_what_replaces_the_question_is_searched_for_in_its_stead_where_it_finds_anything(teams: Service):
    plain = await reading(teams).retrieve("penguins snow", sources=["fulltext"])
    assert set(ids(plain)) == {"red1", "red2", "blue1"}
    for searches, found in ((("ice",), {"blue1"}), (("zebra",), {"red1", "red2", "blue1"})):
        done = TransformOutcome(replaced=True, degraded=("expand_unavailable",))
        asked = reading(teams, Scripted(later={"searches": searches}, later_s=0.01, transforms=done))
        result = await asked.retrieve("penguins snow", sources=["fulltext"])
        assert (set(ids(result)), result.degraded) == (found, ("expand_unavailable",))


async def test_with_intent_off_no_transformer_runs_and_that_is_said(teams: Service):
    asked = reading(teams, Scripted())
    settings = asked.settings.model_copy(update={"transforms": ("hyde",)})
    asked = replace(asked, pipeline=replace(asked.pipeline, settings=settings))
    assert (await asked.retrieve("penguins", intent="off")).degraded == ("hyde_skipped",)


@pytest.mark.parametrize(("most", "searches"), [(1, ["penguins"]), (2, ["penguins", "swim sea"])])
async def test_a_source_outside_is_not_asked_again_for_a_model_unless_it_may_cost_that(
    teams: Service, most: int, searches: list[str]
):
    outer = Stub(Card("outer", "news", "outside"), lambda query: [])
    chosen = {"sources": [{"name": name, "confidence": 1.0, "reason": ""} for name in ("fulltext", "outer")]}
    later = {**chosen, "searches": ("swim sea", "ice", "snow")}
    asked = reading(teams, Scripted(chosen, later=later, later_s=0.05), outer=outer)
    settings = asked.settings.model_copy(update={"metered_searches": most})
    asked = replace(asked, pipeline=replace(asked.pipeline, settings=settings))
    result = await asked.retrieve("penguins")
    assert [query.text for query in outer.asked] == searches
    assert {"swim sea", "ice", "snow"} <= {step.search for step in result.plan if step.source == "fulltext"}


async def test_a_models_filter_replaces_that_of_the_rules_and_hits_it_forbids_are_left_out(teams: Service):
    asked = reading(
        teams,
        Scripted(
            firm=(team("red"),), later={"filter": filter_to_json(team("blue")), "searches": ("ice",)}, later_s=0.05
        ),
    )
    result = await asked.retrieve("penguins")
    assert (ids(result), result.intent.filter) == (["blue1"], filter_to_json(team("blue")))
    wider = reading(teams, Scripted(firm=(team("red"),), later={"filter": None, "searches": ("ice",)}, later_s=0.05))
    result = await wider.retrieve("penguins")
    assert {"red1", "red2", "blue1"} == set(ids(result))
    narrower = reading(
        teams, Scripted(later={"filter": filter_to_json(team("red")), "searches": ("ice",)}, later_s=0.05)
    )
    result = await narrower.retrieve("penguins")
    assert ids(result) == ["red1", "red2"]


async def test_a_model_cannot_take_away_what_the_caller_fixed(teams: Service):
    asked = reading(teams, Scripted(later={"filter": None, "sources": [], "searches": ("ice",)}, later_s=0.0))
    result = await asked.retrieve("penguins", filter=filter_to_json(team("red")), sources=["fulltext"])
    assert ids(result) == ["red1", "red2"]
    assert result.intent.filter == filter_to_json(team("red"))
    assert {step.source for step in result.plan} == {"fulltext"}
    assert all(step.filter == filter_to_json(team("red")) for step in result.plan)


async def test_a_table_without_rows_is_not_shown_beside_what_is_found_without_its_condition(teams: Service):
    chunk = Chunk(ChunkId("default", "docs", "table:1", 0), "Calculated", "(no rows)")
    empty = [Hit(chunk.id, 1.0, "sql", chunk, ResultTable((), (), "SELECT 0 LIMIT 0"))]
    sql = Stub(Card("sql", "", "metadata"), lambda query: empty)
    listing = Scripted(
        {
            "kind": "aggregate",
            "aggregate": {"op": "list", "limit": 10},
            "sources": [{"name": name, "confidence": 1, "reason": ""} for name in ("sql", "fulltext", "vector")],
        },
        firm=(team("green"),),
    )

    result = await reading(teams, listing, sql=sql).retrieve("penguins of green")

    assert [one.dropped for one in result.relaxed] == [filter_to_json(team("green"))]
    assert result.table is None
    assert sorted(ids(result)) == ["blue1", "red1", "red2"]


async def test_a_models_filter_that_leaves_nothing_is_relaxed_too(teams: Service):
    asked = reading(teams, Scripted(later={"filter": filter_to_json(team("green"))}, later_s=0.0))
    result = await asked.retrieve("penguins")
    assert (len(result.hits), [one.dropped for one in result.relaxed]) == (3, [filter_to_json(team("green"))])


async def test_a_model_that_sees_nothing_to_retrieve_is_believed(teams: Service):
    result = await reading(teams, Scripted(later={"kind": "none"}, later_s=0.0)).retrieve("thanks, penguins")
    assert (result.status, result.hits, len(result.outcomes)) == ("no_retrieval_needed", (), 2)


@pytest.mark.parametrize(
    ("later", "fallback"),
    [
        ({"kind": "none"}, "ordered_backoff"),
        ({"kind": "none"}, "do_not_route"),
        ({"by": "llm", "sources": [{"name": "wiki", "confidence": 1.0, "reason": "made up"}]}, "do_not_route"),
    ],
)
async def test_searches_that_a_models_reading_makes_needless_are_no_asked_sources(
    teams: Service, later: dict[str, Any], fallback: Any
):
    asked = reading(teams, Scripted(later=later, later_s=0.0))
    result = await asked.retrieve("thanks, penguins", fallback=fallback)

    early = [one for one in result.outcomes if one.step == 1]
    assert {one.source for one in early} >= {"fulltext", "vector"}
    assert {(one.status, one.hits) for one in result.outcomes} == {("skipped", 0)}
    assert all((one.reason or "").startswith("not needed: the search began before") for one in early)
    record = await teams.explain(result.trace_id)
    assert {(one["status"], one["hits"]) for one in record["outcomes"]} == {("skipped", 0)}
    assert {one["count"] for one in record["answers"]} == {0}


@pytest.mark.parametrize(
    ("later", "later_s"),
    [
        (None, 0.0),
        (Unavailable("the model", "quota"), 0.0),
        (KeyError("choices"), 0.0),
        ({"filter": {"type": "eq", "key": "nope", "value": 1}}, 0.0),
        ({"filter": {"type": "and", "filters": [None, 3]}}, 0.0),
        ({"kind": "aggregate", "aggregate": {"op": "explode"}}, 0.0),
        ({}, 60.0),
    ],
)
async def test_a_model_that_fails_leaves_the_result_of_the_rules(teams: Service, later: Any, later_s: float):
    asked = reading(teams, Scripted(firm=(team("red"),), later=later, later_s=later_s))
    result = await asked.retrieve("penguins", timeout_s=3)
    assert (ids(result), result.intent.by) == (["red1", "red2"], "rules")
    assert result.degraded == ("intent_model_unavailable",)


# Sources.


def hit(query: Query, source: str, name: str = "red1", **more: Any) -> Hit:
    return Hit(ChunkId(query.scope.tenant, "docs", name, 0), 1.0, source, **more)


FAILING = {
    "unavailable": Unavailable("x", "down"),
    "hangs": 60.0,
    "broken": ConnectionResetError("10.0.0.3"),
    "refuses": BadFilter("no"),
    "foreign": lambda query: [Hit(ChunkId("globex", "docs", "red1", 0), 1.0, "x")],
    "unknown": lambda query: [Hit(ChunkId(query.scope.tenant, "gone", "red1", 0), 1.0, "x")],
    "empty": lambda query: [],
}


@pytest.mark.parametrize("failure", [*FAILING])
@pytest.mark.parametrize("failing", [("fulltext",), ("vector",), ("fulltext", "vector")])
async def test_whatever_fails_what_arrived_is_answered_in_time(teams: Service, failure: str, failing: tuple[str, ...]):
    stubs = {name: Stub(Card(name, ""), FAILING[failure]) for name in failing}
    asked = reading(teams, Scripted(), **stubs)

    # What hangs takes its share of the time; the rest has to be enough on a busy machine.
    result = await asked.retrieve("penguins", timeout_s=8 if failure == "hangs" else 30)

    expected = {"refuses": "skipped", "hangs": "timeout", "unavailable": "error", "broken": "error"}
    assert {one.source: one.status for one in result.outcomes} == {
        name: expected.get(failure, "empty") if name in failing else "ok" for name in ("fulltext", "vector")
    }
    down = failure in ("unavailable", "hangs", "broken")
    assert result.degraded == (tuple(f"{name}_unavailable" for name in failing) if down else ())
    # What one source found alone may be weak: the other said that there is nothing.
    assert (len(result.hits), result.status == "nothing_found") == ((0, True) if len(failing) == 2 else (3, False))
    assert "10.0.0.3" not in result.model_dump_json()


async def test_when_the_database_cannot_say_what_there_is_the_request_fails_in_time(teams: Service, owner_url: str):
    await teams.catalogue.collections("default")
    with psycopg.connect(owner_url) as blocker:
        blocker.execute("LOCK TABLE signalbox.collection, signalbox.chunk")
        teams.catalogue._visible._known.clear()
        with pytest.raises(Unavailable, match=r"within 0\.5 s: the scope step was still waiting for the database"):
            await teams.retrieve("penguins", timeout_s=0.5)
    assert len((await teams.retrieve("penguins")).hits) == 3


async def test_a_request_that_takes_too_long_says_which_step_had_not_ended(teams: Service, owner_url: str):
    with psycopg.connect(owner_url) as blocker:

        def lock(query: Query) -> list[Hit]:
            blocker.execute("LOCK TABLE signalbox.chunk")
            return [hit(query, "fulltext")]

        asked = reading(
            teams, fulltext=Stub(Card("fulltext", ""), lock), vector=Stub(Card("vector", ""), FAILING["empty"])
        )
        with pytest.raises(Unavailable) as caught:
            await asked.retrieve("penguins", timeout_s=2)
    assert str(caught.value) == (
        "the service is unavailable: no answer within 2 s: "
        "the page step was still waiting for the database to return the texts of the hits"
    )
    assert caught.value.retry_after_s == 5


@pytest.mark.parametrize(("delay_s", "hurry_s"), [(0.3, 0.2), (0.15, 0.1)])
async def test_callers_in_a_hurry_switch_no_source_off_for_others(teams: Service, delay_s: float, hurry_s: float):
    @dataclass
    class Slow:
        """A healthy source that takes its time."""

        card: Card

        async def search(self, query: Query) -> list[Hit]:
            await asyncio.sleep(delay_s)
            return [hit(query, "fulltext")]

    asked = reading(teams, Scripted(), fulltext=Slow(Card("fulltext", "")), vector=Slow(Card("vector", "")))  # type: ignore[arg-type]
    await asked.retrieve("penguins")
    for _ in range(5):
        with suppress(Unavailable):
            result = await asked.retrieve("penguins", timeout_s=hurry_s)
            assert {one.status for one in result.outcomes} <= {"timeout", "skipped"}
    result = await asked.retrieve("penguins")
    assert (became(result), result.degraded) == ([(1, "fulltext", "ok"), (1, "vector", "ok")], ())


async def test_statements_that_take_too_long_switch_the_sql_source_off_for_nobody(teams: Service):
    @dataclass
    class Calculating:
        """Runs a slow statement on the real server, which ends it."""

        card: Card

        async def search(self, query: Query) -> list[Hit]:
            view = await DocumentsViews(teams.database).of(query.scope)
            await execution.run_statement(teams.database, query.scope, view, "SELECT pg_sleep(10)", timeout_s=0.05)
            return []

    asked = reading(teams, sql=Calculating(Card("sql", "", "metadata")))  # type: ignore[arg-type]
    for _ in range(6):
        result = await asked.retrieve("penguins", sources=["sql"])
        assert [(one.status, one.reason) for one in result.outcomes] == [
            ("error", "sql is unavailable: the statement took longer than 0.05 s")
        ]


async def test_a_source_that_cannot_be_chosen_leaves_no_reading_behind(teams: Service):
    choice = {"sources": [{"name": "web", "confidence": 1.0, "reason": "news"}]}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(Unavailable, match="the router"):
            await reading(teams, Scripted(choice, later={}, later_s=0.0)).retrieve("penguins", fallback="fail")
        await asyncio.sleep(0)
        gc.collect()
    assert [str(one.message) for one in caught] == []


@pytest.mark.usefixtures("sparing_log")
async def test_a_model_that_is_late_leaves_a_line_for_the_log_and_none_on_the_screen(
    teams: Service, caplog: pytest.LogCaptureFixture
):
    result = await reading(teams, Scripted(later={}, later_s=60.0)).retrieve("penguins", timeout_s=3)
    assert result.degraded == ("intent_model_unavailable",)
    (record,) = caplog.records
    assert re.fullmatch(r"the model's reading was not used: no answer within [\d.]+ s", record.message)
    for name in ("agent.retrieval.search_stage", "agent.intent.reader"):
        # Where no handler is found, Python itself prints.
        assert logging.getLogger(name).handlers


async def test_a_source_that_is_not_there_is_said_and_documents_are_asked(teams: Service):
    choice = {"sources": [{"name": "web", "confidence": 1.0, "reason": "news"}]}
    result = await reading(teams, Scripted(choice)).retrieve("penguins")
    assert (len(result.hits), result.degraded) == (3, ("web_unavailable",))
    nothing = await reading(teams, Scripted(choice)).retrieve("penguins", fallback="do_not_route")
    assert (nothing.status, nothing.degraded) == ("nothing_found", ("web_unavailable", "routing_failed"))
    with pytest.raises(Unavailable, match="the router"):
        await reading(teams, Scripted(choice)).retrieve("penguins", fallback="fail")


async def test_a_calculation_comes_with_its_table_and_when_it_cannot_be_had_documents_are_searched(teams: Service):
    table = ResultTable(("count",), ((2,),), "SELECT 2")
    sql = Stub(Card("sql", "", "metadata"), lambda query: [hit(query, "sql", table=table), hit(query, "sql", "red2")])
    counting = Scripted(
        {
            "kind": "aggregate",
            "aggregate": {"op": "count"},
            "sources": [{"name": "sql", "confidence": 1, "reason": ""}],
        },
        firm=(team("red"),),
    )

    result = await reading(teams, counting, sql=sql).retrieve("how many by red?")
    assert result.table is not None
    assert (result.table.rows, ids(result), result.status) == (((2,),), ["red1", "red2"], "found")
    assert (sql.asked[0].aggregate, sql.asked[0].filter) == (Aggregate("count"), team("red"))
    assert [status for _, source, status in became(result) if source != "sql"] == ["skipped"] * 4

    chunk = Chunk(ChunkId("default", "docs", "table:1", 0), "Calculated", "n: 0")
    sql.answer = lambda query: [Hit(chunk.id, 1.0, "sql", chunk, ResultTable(("n",), ((0,),), "SELECT 0"))]
    result = await reading(teams, counting, sql=sql).retrieve("how many by red?")
    assert (result.table is not None, ids(result), result.status, result.relaxed) == (True, ["table:1"], "found", ())

    sql.answer = lambda query: [Hit(chunk.id, 1.0, "sql", chunk, ResultTable((), (), "SELECT 0 LIMIT 0"))]
    result = await reading(teams, counting, sql=sql).retrieve("penguins by red?")
    assert (result.table is not None, ids(result), result.relaxed) == (True, ["red1", "red2", "table:1"], ())

    sql.answer = Unavailable("sql", "down")
    result = await reading(teams, counting, sql=sql).retrieve("penguins")
    assert (result.table, ids(result), result.degraded) == (None, ["red1", "red2"], ("sql_unavailable",))

    sql.answer = lambda query: [hit(query, "sql", table=table)]
    both = Scripted(
        {**counting.first, "sources": [{"name": n, "confidence": 1, "reason": ""} for n in ("sql", "vector")]}
    )
    result = await reading(teams, both, sql=sql).retrieve("penguins")
    assert (result.table is not None, ids(result)) == (True, ["blue1", "red1", "red2"])


async def test_how_a_result_came_about_is_told_beside_it(teams: Service):
    asked = reading(teams, Scripted(later={"searches": ("penguins", "ice")}, later_s=0.0))
    result, decision = await asked.pipeline.retrieve_with_record(
        "default", Request(query="penguins", top_k=2, explain=True)
    )
    assert [answer.step for answer in decision.step_results] == list(result.plan)
    assert all(answer.hits for answer in decision.step_results)
    assert (decision.first_intent.by, decision.model_intent and decision.model_intent.by) == ("rules", "llm")
    assert [hit.document_id for hit in result.hits] == [one.id.document_id for one in decision.page_hits]
    assert [one.id for one in decision.page_hits] == [one.id for one in decision.ranking[:2]]


# Cancellation.

_RUNNING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
          AND backend_type = 'client backend'
"""


@dataclass
class Sleepy:
    """A source that keeps PostgreSQL busy."""

    database: Database
    card = Card("sleepy", "")

    async def search(self, query: Query) -> list[Hit]:
        await self.database.fetch_autocommit("SELECT pg_sleep(60)", {})
        return []


async def running(url: str) -> int:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        row = await (await connection.execute(_RUNNING)).fetchone()
        return row[0] if row else -1


async def until_nothing_runs(url: str) -> None:
    """Returns long before the statements of `Sleepy` would end by themselves; fails when they are not ended."""
    for _ in range(400):
        if not await running(url):
            return
        await asyncio.sleep(0.05)
    pytest.fail("statements still run")


async def test_a_search_that_is_late_is_ended_in_postgresql_too(teams: Service, owner_url: str):
    asked = reading(teams, vector=Sleepy(teams.database))  # type: ignore[arg-type]
    result = await asked.retrieve("penguins", timeout_s=3)
    assert (ids(result), result.degraded) == (["blue1", "red1", "red2"], ("vector_unavailable",))
    await until_nothing_runs(owner_url)


async def test_requests_cut_short_leave_no_connection_behind(teams: Service, owner_url: str):
    asked = reading(teams, Scripted(later={}, later_s=0.01), sleepy=Sleepy(teams.database))  # type: ignore[arg-type]
    pool = teams.database.primary._pool
    assert pool is not None
    choose = random.Random(7)

    async def cut(_n: int) -> None:
        sources = ["sleepy", "vector", "fulltext"] if choose.random() < 0.5 else None
        task = asyncio.create_task(asked.retrieve("penguins", sources=sources))
        await asyncio.sleep(choose.random() * 0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    for _ in range(10):
        teams.catalogue._visible._known.clear()
        await asyncio.gather(*(cut(n) for n in range(20)))
    await until_nothing_runs(owner_url)
    for _ in range(400):
        stats = pool.get_stats()
        if stats["pool_available"] == stats["pool_size"]:
            break
        await asyncio.sleep(0.05)

    assert stats["pool_available"] == stats["pool_size"] <= teams.settings.pool_size
    assert stats.get("requests_waiting", 0) == 0
    assert len((await asked.retrieve("penguins", sources=["vector", "fulltext"])).hits) == 3


def kill_server(home: Path) -> None:
    file = next(home.glob("*/postmaster.pid"))
    os.kill(int(file.read_text().splitlines()[0]), signal.SIGKILL)


async def test_a_service_outlives_its_embedded_server(tmp_path: Path):
    async with open_service(Settings(home=tmp_path, llm=None, timeout_s=5)) as service:
        await service.ingest([Document("a", "a", "Ice", "Penguins march on the ice.")], "birds")
        await asyncio.to_thread(kill_server, tmp_path)
        found = None
        for _ in range(20):
            with suppress(Unavailable):
                found = await service.retrieve("penguins", collection="birds", timeout_s=2)
            if found is not None and found.hits:
                break
        assert found is not None
        assert [hit.document_id for hit in found.hits] == ["a"]


async def test_all_settings_and_single_changes_are_not_given_together():
    with pytest.raises(TypeError, match="not both: intent"):
        async with open_service(Settings(), intent="off"):
            pass


class Stopped:
    """An embedded server that is started again at the third try."""

    def __init__(self) -> None:
        self.tries, self.revived = 0, threading.Event()

    def revive(self) -> bool:
        self.tries += 1
        if self.tries < 3:
            raise OSError(24, "Too many open files")
        self.revived.set()
        return True


async def test_an_embedded_server_that_cannot_be_started_for_any_reason_is_started_later(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(factory, "_WATCH_S", 0.01)
    server = Stopped()
    async with factory._watched(server):  # type: ignore[arg-type]
        assert await asyncio.to_thread(server.revived.wait, 60)
