"""Decision records: what they hold, who can read them, what a second run gives, and that they are in nobody's way."""

import asyncio
import gc
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rich.console import Console

from agent import Service, open_service
from agent.errors import BadSetting
from agent.intent.reader import CascadeReader
from agent.records.encoding import encode_json, pack_ranking, unpack_rankings
from agent.records.trace import REPLAYABLE, Trace
from agent.records.trace_store import TraceStore
from agent.serve.cli import run
from agent.serve.cli.explain.replay_report import print_difference
from agent.serve.cli.explain.trace_report import print_trace
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer
from retrievers.core import process_memory
from retrievers.core.circuit_breakers import FAILURE_THRESHOLD
from retrievers.core.errors import BadRequest
from retrievers.ingest.documents import Document

SECRETS = ("hidden-model-key", "hidden-embedder-key", "hidden-password")
BIRDS = [
    Document(
        "a",
        "a",
        "March",
        "Penguins march in the snow.",
        metadata={"team": "red", "year": 2024, "created": "2024-05-01"},
    ),
    Document(
        "b",
        "b",
        "Swim",
        "Penguins swim in the cold sea.",
        metadata={"team": "red", "year": 2025, "created": "2025-05-01"},
    ),
    Document(
        "c", "c", "Ice", "Penguins march on the ice.", metadata={"team": "blue", "year": 2025, "created": "2025-06-01"}
    ),
]
REPLY = {
    "kind": "retrieve", "question": "Where do penguins swim?", "language": "en", "searches": ["penguins in the sea"],
    "filter": {"type": "eq", "key": "team", "value": "red"}, "sources": ["fulltext", "vector"], "confidence": 0.8,
}  # fmt: skip


@asynccontextmanager
async def opened(owner_url: str, service_url: str, **settings: Any) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url, **settings)) as service:
        yield service


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with opened(owner_url, service_url) as service:
        await service.ingest(BIRDS, "birds")
        yield service


@pytest.fixture
def model() -> Iterator[ScriptedServer]:
    with ScriptedServer(lambda body: json.dumps(REPLY)) as server:
        yield server


async def stored(service: Service, least: int = 1) -> int:
    """How many traces are in the database, once there are as many as expected and nothing waits any more."""
    count = 0
    for _ in range(1500):
        rows = await service.database.fetch("default", "SELECT count(*) FROM signalbox.trace", {})
        count = rows[0][0]
        if count >= least and not service.traces._waiting:
            break
        await asyncio.sleep(0.02)
    return count


async def counted(service: Service, expected: int) -> int:
    """How many traces are in the database, once nothing waits and there are so many, or after half a minute."""
    count = -1
    for _ in range(1500):
        rows = await service.database.fetch("default", "SELECT count(*) FROM signalbox.trace", {})
        count = rows[0][0]
        # What has expired is deleted after what is new was written.
        if count == expected and not service.traces._waiting:
            break
        await asyncio.sleep(0.02)
    return count


async def until(done: Callable[[], bool]) -> None:
    for _ in range(1500):
        if done():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen in 30 s")


def drawn(show: Any, value: Any) -> str:
    file = StringIO()
    show(value, Console(file=file, width=160, highlight=False, markup=False, emoji=False))
    return file.getvalue()


async def test_a_record_that_was_written_is_not_kept_in_memory(service: Service, monkeypatch: pytest.MonkeyPatch):
    given_back: list[bool] = []
    monkeypatch.setattr(process_memory, "release_memory", lambda: given_back.append(True))
    await service.retrieve("penguins", collection="birds")
    assert await stored(service) == 1
    await until(lambda: not any(isinstance(one, Trace) for one in gc.get_objects()))
    assert not given_back

    monkeypatch.setattr(process_memory, "LARGE_BYTES", 100)
    await service.retrieve("penguins and geese", collection="birds")
    await until(lambda: bool(given_back))


# What a record holds.


async def test_a_record_tells_how_an_answer_came_about(service: Service):
    wanted = {"type": "eq", "key": "year", "value": 2025}
    prompt = await service.augment("penguins of the red team", collection="birds", filter=wanted)
    trace = await service.explain(prompt.trace_id)

    assert (trace["trace_id"], trace["status"], trace["query"]) == (prompt.trace_id, "found", prompt.query)
    assert (trace["request"]["kind"], trace["request"]["filter"]) == ("augment", wanted)
    assert trace["intent"] == json.loads(prompt.intent.model_dump_json())
    assert [one["filter"] for one in trace["stated"]] == [{"type": "eq", "key": "team", "value": "red"}]
    assert [(one["name"], one["chunks"]) for one in trace["scope"]] == [("birds", 3)]
    assert trace["outcomes"] == json.loads(prompt.model_dump_json())["outcomes"]
    asked = [outcome for outcome in prompt.outcomes if outcome.status != "skipped"]
    assert {one.source for one in asked} == {"fulltext", "vector"}
    assert all(answer["hits"][0][0] == "birds/b#0" for answer in trace["answers"] if answer["count"])
    assert not any(answer["approximate"] for answer in trace["answers"])
    assert [(one["id"], one["rank"]) for one in trace["hits"]] == [("birds/b#0", 1)]
    assert set(trace["hits"][0]["scores"]) == {"fulltext", "vector", "fused"}
    assert [id for id, _ in trace["ranking"]] == ["birds/b#0"]
    assert [one["document_id"] for one in trace["prompt"]["citations"]] == ["b"]
    assert set(trace["prompts"]) == {"answer/v1", "system/v1"}
    assert list(trace["elapsed_ms"]) == ["scope", "intent", "search", "fusion", "loop", "page", "assemble"]
    assert "Penguins swim" not in json.dumps(trace), "texts of documents are not kept"


async def test_an_answer_brings_its_record_along_when_asked_to_explain(service: Service):
    plain = await service.retrieve("penguins", collection="birds")
    told = await service.retrieve("penguins", collection="birds", explain=True)
    prompt = await service.augment("penguins", collection="birds", explain=True)

    assert "explanation" not in json.loads(plain.model_dump_json())
    record = json.loads(told.model_dump_json())["explanation"]
    kept = await service.explain(told.trace_id)
    assert record == {name: kept[name] for name in record}
    assert record["readings"]
    assert prompt.explanation is not None
    assert prompt.explanation["request"]["kind"] == "augment"


async def test_a_record_is_the_same_before_and_after_it_is_written(service: Service):
    result = await service.retrieve("penguins", collection="birds")
    assert service.traces._waiting
    before = await service.explain(result.trace_id)
    assert await stored(service) == 1
    assert await service.explain(result.trace_id) == before
    kept = datetime.fromisoformat(before["expires_at"]) - datetime.fromisoformat(before["created_at"])
    assert kept == timedelta(days=30)


async def test_no_secret_of_the_settings_is_in_a_record(owner_url: str, service_url: str, model: ScriptedServer):
    given: dict[str, Any] = {
        "llm": "openai/scripted", "llm_base_url": model.base_url, "llm_api_key": SECRETS[0],
        "embedder_api_key": SECRETS[1], "embedder_base_url": f"http://user:{SECRETS[2]}@127.0.0.1/v1",
    }  # fmt: skip
    async with opened(owner_url, service_url, **given) as service:
        await service.ingest(BIRDS, "birds")
        result = await service.retrieve("where do they swim?", collection="birds", intent="llm")
        assert await stored(service) == 1
        trace = json.dumps(await service.explain(result.trace_id))
    assert len(model.requests) == 1
    with psycopg.connect(owner_url) as connection:
        row = connection.execute("SELECT request::text || record::text FROM signalbox.trace").fetchone()
    assert row is not None
    for text in (trace, str(row[0])):
        assert not any(secret in text for secret in SECRETS)
        assert model.base_url not in text
        assert owner_url not in text


def test_every_setting_that_decides_what_is_found_is_known_to_a_replay():
    private = {name for name in Settings.model_fields if name.endswith(("_url", "_key", "home", "password"))}
    assert not private & set(REPLAYABLE)
    assert set(REPLAYABLE) <= set(Settings.model_fields)


async def test_texts_that_postgresql_cannot_hold_are_stored_without_what_it_cannot(service: Service):
    assert json.loads(encode_json({"a\0": ["x\0y", "\ud800", float("nan"), "\\u0000"]})) == {
        "a\ufffd": ["x\ufffdy", "?", None, "\\u0000"]
    }
    result = await service.retrieve("penguins\0 march", collection="birds")
    assert await stored(service) == 1
    assert (await service.explain(result.trace_id))["request"]["query"] == "penguins\ufffd march"


# Running again.


def hits(result: Any) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in result.hits]


@pytest.mark.parametrize(
    "question", ["penguins of the red team", "how many of the red team?", "penguins created since last year"]
)
async def test_the_same_request_again_gives_the_same(service: Service, question: str):
    first = await service.retrieve(question, collection="birds")
    again, difference = await service.replay_compared(first.trace_id)
    assert (hits(again), again.intent, again.table) == (hits(first), first.intent, first.table)
    assert difference["same"]
    assert not any(difference[part] for part in ("settings", "intent", "outcome", "data"))
    trace = await service.explain(again.trace_id)
    assert (trace["replay_of"], trace["changes"]) == (first.trace_id, {})


async def test_a_request_means_the_day_on_which_it_was_first_made(service: Service, owner_url: str):
    first = await service.retrieve("penguins created since last year", collection="birds")
    await stored(service)
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "UPDATE signalbox.trace SET request = jsonb_set(request, '{now}', '\"2020-03-01T12:00:00Z\"')"
        )
    trace = await service.explain(first.trace_id)
    again = await service.replay(first.trace_id)
    assert trace["request"]["now"] == "2020-03-01T12:00:00Z"
    then = await service.retrieve("penguins created since last year", collection="birds", now="2020-03-01T12:00:00Z")
    assert again.intent.filter == then.intent.filter != first.intent.filter


async def test_other_settings_change_what_they_say_and_the_difference_names_it(service: Service):
    first = await service.retrieve("penguins march", collection="birds", intent="rules", top_k=2)
    result, difference = await service.replay_compared(
        first.trace_id, changes={"FUSION": "rrf", "INTENT": "off", "lexical_weight": "0.2"}
    )
    assert result.intent.by == "caller", "what the request fixed gives way to what is set"
    changed = {name: one["after"] for name, one in difference["settings"].items()}
    assert changed == {"fusion": "rrf", "intent": "off", "lexical_weight": 0.2}
    assert difference["intent"]["by"] == {"before": "rules", "after": "caller"}
    assert service.settings.fusion == "convex"
    await service.ingest([Document("d", "d", "March", "Penguins march, march and march.")], "birds")
    result, difference = await service.replay_compared(first.trace_id)
    new = next(one for one in difference["hits"] if one["before"] is None)
    assert (new["id"], new["before_fused"], difference["data"], difference["same"]) == (
        "birds/d#0",
        None,
        ["birds"],
        False,
    )
    gone = next(one for one in difference["hits"] if one["after"] is None)
    assert gone["after_fused"] in (3, 4)
    text = drawn(print_difference, difference)
    assert "Collections changed in between" in text


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"NOPE": "1"}, 'there is no setting "NOPE"; a replay can change: "CONTEXT", "DEPTH"'),
        ({"DATABASE_URL": "postgresql://x"}, 'a replay cannot change "DATABASE_URL"'),
        ({"embedder": "x"}, 'a replay cannot change "EMBEDDER"'),
        ({"LEXICAL_WEIGHT": "7"}, "setting LEXICAL_WEIGHT (the command line): input should be less than or equal to 1"),
    ],
)
async def test_a_setting_that_cannot_be_changed_is_one_line(service: Service, changes: dict[str, str], says: str):
    first = await service.retrieve("penguins", collection="birds")
    with pytest.raises(BadSetting) as raised:
        await service.replay(first.trace_id, changes=changes)
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)


async def test_a_replay_gives_the_models_replies_again_and_calls_nobody(
    owner_url: str, service_url: str, model: ScriptedServer
):
    given = {
        "llm": "openai/scripted",
        "llm_base_url": model.base_url,
        "llm_api_key": "any",
        "transforms": ("stepback",),
    }
    async with opened(owner_url, service_url, **given) as service:
        await service.ingest(BIRDS, "birds")
        messages = [{"role": "user", "content": "hello"}, {"role": "user", "content": "where do they swim at night?"}]
        first = await service.retrieve(messages=messages, collection="birds")
        assert (first.intent.by, len(model.requests)) == ("llm", 2)
        assert await stored(service) == 1

        trace = await service.explain(first.trace_id)
        assert [call["stage"] for call in trace["calls"]] == ["intent", "stepback"]
        assert json.loads(trace["calls"][0]["text"]) == REPLY
        assert trace["calls"][0]["usage"]["prompt_tokens"] > 0
        assert [reading["by"] for reading in trace["readings"]] == ["rules", "llm"]
        assert {name.partition("/")[0] for name in trace["prompts"]} == {"intent", "stepback"}

        again, difference = await service.replay_compared(first.trace_id)
        assert (hits(again), again.intent, again.degraded) == (hits(first), first.intent, first.degraded)
        assert difference["same"]
        twice = await service.replay(again.trace_id, changes={"LLM": "openai/another", "FUSION": "rrf"})
        assert (twice.intent, twice.degraded) == (first.intent, ())
        without = await service.replay(first.trace_id, changes={"LLM": ""})
        assert (without.intent.by, without.degraded) == ("rules", ("stepback_skipped",))
        unknown = await service.replay(first.trace_id, changes={"TRANSFORMS": "hyde"})
        assert unknown.intent.by == "llm", "a call that was not made is missing, nothing else"
        assert len(model.requests) == 2
        text = drawn(print_trace, trace)
        assert "by the model" in text
        assert "kept by the model" not in text


async def test_a_model_that_failed_fails_again(owner_url: str, service_url: str):
    with ScriptedServer(faults=[Fault(status=400)] * 9) as server:
        given = {"llm": "openai/scripted", "llm_base_url": server.base_url, "llm_api_key": "any"}
        async with opened(owner_url, service_url, **given) as service:
            await service.ingest(BIRDS, "birds")
            first = await service.retrieve("where do they swim at night?", collection="birds")
            assert first.degraded == ("intent_model_unavailable",)
            asked = len(server.requests)
            trace = await service.explain(first.trace_id)
            assert [(call["text"], bool(call["error"])) for call in trace["calls"]] == [(None, True)]
            again = await service.replay(first.trace_id)
            assert (hits(again), again.degraded, len(server.requests)) == (hits(first), first.degraded, asked)


async def test_a_model_that_is_late_is_told_with_its_time_and_its_requests(owner_url: str, service_url: str):
    with ScriptedServer(faults=[Fault(delay_s=30)] * 9) as server:
        given = {"llm": "openai/scripted", "llm_base_url": server.base_url, "llm_api_key": "any"}
        async with opened(owner_url, service_url, **given) as service:
            await service.ingest(BIRDS, "birds")
            first = await service.retrieve("where do they swim at night?", collection="birds", timeout_s=3)
            assert first.degraded == ("intent_model_unavailable",)
            (call,) = (await service.explain(first.trace_id))["calls"]
    assert (call["attempts"], call["text"]) == (1, None)
    assert re.fullmatch(r"no answer within [\d.]+ s", call["error"])


async def test_a_replay_neither_heeds_nor_changes_what_the_model_does_for_others(
    owner_url: str, service_url: str, model: ScriptedServer
):
    given = {"llm": "openai/scripted", "llm_base_url": model.base_url, "llm_api_key": "any"}
    async with opened(owner_url, service_url, **given) as service:
        await service.ingest(BIRDS, "birds")
        first = await service.retrieve("where do they swim at night?", collection="birds")
        reader = service.pipeline.reader
        assert isinstance(reader, CascadeReader)
        for _ in range(FAILURE_THRESHOLD):
            reader.breaker.record_failure()
        again = await service.replay(first.trace_id)
        assert (first.intent.by, again.intent, again.degraded) == ("llm", first.intent, ())
        assert reader.breaker.state == "open"


# Who may read it.


async def test_another_tenant_can_neither_load_nor_replay_nor_tell_that_it_exists(service: Service):
    mine = await service.retrieve("penguins", collection="birds")
    for settled in (False, True):
        if settled:
            await stored(service)
        for tenant in ("other", "0"):
            for call in (service.explain, service.replay):
                with pytest.raises(BadRequest) as raised:
                    await call(mine.trace_id, tenant=tenant)
                assert str(raised.value) == f'there is no trace "{mine.trace_id}"; traces are kept for 30 days'
    rows = await service.database.fetch("other", "SELECT * FROM signalbox.trace", {})
    assert rows == []
    for unknown in ("nope", "", "0" * 32, "x" * 4000, "\0"):
        with pytest.raises(BadRequest, match="there is no trace"):
            await service.explain(unknown)
    with pytest.raises(BadRequest, match="a tenant is a name"):
        await service.explain(mine.trace_id, tenant="")


# Retention.


async def test_what_has_expired_is_not_shown_and_goes_in_batches(
    service: Service, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agent.records.trace_store._SWEEP_BATCH", 4)
    old = await service.retrieve("penguins", collection="birds")
    assert await stored(service) == 1
    await until(lambda: "default" in service.traces._swept)  # what is written first is swept for, too
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.trace SET expires_at = now() - interval '1 second'")
        for tenant, count in (("default", 6), ("other", 1)):
            connection.execute(
                "INSERT INTO signalbox.trace SELECT %s, gen_random_uuid(), created_at, expires_at, request, record"
                " FROM signalbox.trace CROSS JOIN generate_series(1, %s) WHERE tenant = 'default' LIMIT %s",
                (tenant, count, count),
            )
    with pytest.raises(BadRequest, match="there is no trace"):
        await service.explain(old.trace_id)

    service.traces._swept.clear()
    for left in (7 + 1 - 4, 3 + 2 - 3, 3):
        await service.retrieve("penguins", collection="birds")
        assert await counted(service, left) == left
    assert await service.database.fetch("other", "SELECT count(*) FROM signalbox.trace", {}) == [(1,)]


async def test_with_no_days_nothing_is_kept_and_what_was_kept_still_expires(
    service: Service, owner_url: str, service_url: str
):
    await service.retrieve("penguins", collection="birds")
    assert await stored(service) == 1
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.trace SET expires_at = now()")
    async with opened(owner_url, service_url, trace_days=0) as none:
        result = await none.retrieve("penguins", collection="birds")
        with pytest.raises(BadRequest, match="no traces are kept while TRACE_DAYS is 0"):
            await none.explain(result.trace_id)
    assert await service.database.fetch("default", "SELECT count(*) FROM signalbox.trace", {}) == [(0,)]


# In nobody's way.


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.mark.parametrize("pool_size", [1, 4])
async def test_a_locked_table_neither_fails_nor_delays_an_answer(
    owner_url: str,
    service_url: str,
    pool_size: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("agent.records.trace_store._WRITE_S", 0.5)
    monkeypatch.setattr("agent.records.trace_store._REST_S", 600.0)
    async with opened(owner_url, service_url, pool_size=pool_size) as service:
        await service.ingest(BIRDS, "birds")
        await service.retrieve("penguins", collection="birds")
        await stored(service)
        await until(lambda: bool(service.traces._swept))
        with psycopg.connect(owner_url) as connection, caplog.at_level(logging.WARNING, "agent.records.trace_store"):
            connection.execute("LOCK TABLE signalbox.trace IN ACCESS EXCLUSIVE MODE")
            await service.retrieve("penguins", collection="birds")
            await until(lambda: bool(caplog.records))
            assert caplog.records[0].message.endswith("traces were not stored: Unavailable")
            for _ in range(10):
                assert len((await service.retrieve("penguins", collection="birds")).hits) == 3
                assert connection.execute(WAITING).fetchone() == (0,), "the table is left alone"
            connection.rollback()


async def test_an_answer_of_another_process_can_be_explained_at_once(owner_url: str, service_url: str):
    async with opened(owner_url, service_url) as one, opened(owner_url, service_url) as other:
        await one.ingest(BIRDS, "birds")
        result = await one.retrieve("penguins", collection="birds")
        assert one.traces.waiting == 1
        assert (await other.explain(result.trace_id))["trace_id"] == result.trace_id


async def test_a_store_without_its_table_is_logged_and_the_answers_say_that_they_leave_no_trace(
    service: Service, owner_url: str, caplog: pytest.LogCaptureFixture
):
    with psycopg.connect(owner_url) as connection:
        connection.execute("DROP TABLE signalbox.trace")

    def logged() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.name == "agent.records.trace_store"]

    result = await service.retrieve("penguins", collection="birds")
    assert (len(result.hits), result.degraded) == (3, ())
    await until(lambda: bool(logged()))
    for _ in range(3):
        result = await service.retrieve("penguins", collection="birds")
        assert (len(result.hits), result.degraded) == (3, ("trace_unavailable",))
    assert len(logged()) == 1


class Hanging:
    """A database that takes a connection and never answers."""

    async def fetch(self, *values: Any, **more: Any) -> None:
        await asyncio.sleep(600)


async def test_a_database_that_hangs_holds_up_neither_answers_nor_the_end(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("agent.records.trace_store._DRAIN_S", 0.3)
    async with TraceStore(Hanging()) as traces:  # type: ignore[arg-type]
        hung = replace(service, traces=traces)
        for _ in range(11):
            result = await hung.retrieve("penguins", collection="birds")
        assert (await hung.explain(result.trace_id))["status"] == "found"
    assert [record.message for record in caplog.records if record.name == "agent.records.trace_store"] == [
        "11 traces were not stored: the database did not store them in time"
    ]


async def test_what_is_waiting_is_written_when_the_service_closes(service: Service, owner_url: str, service_url: str):
    async with opened(owner_url, service_url) as other:
        ids = [(await other.retrieve("penguins", collection="birds")).trace_id for _ in range(40)]
    for id in ids:
        assert (await service.explain(id))["status"] == "found"


async def test_more_than_can_be_written_is_lost_and_not_waited_for(service: Service):
    trace = None

    class Kept(TraceStore):
        def save(self, given: Any) -> None:
            nonlocal trace
            trace = given

    await replace(service, traces=Kept(service.database)).retrieve("penguins", collection="birds")
    assert trace is not None
    store = TraceStore(service.database)
    for _ in range(1000):
        store.save(trace)
    assert (store._queue.qsize(), store._lost) == (256, 744)


async def test_many_at_once_are_all_stored_under_their_own_tenant(service: Service):
    tenants = [f"tenant{n}" for n in range(5)]
    for tenant in tenants:
        await service.ingest(BIRDS, "birds", tenant=tenant)
    asked = [tenant for tenant in tenants for _ in range(20)]
    results = await asyncio.gather(*(service.retrieve("penguins", tenant=tenant) for tenant in asked))
    await until(lambda: not service.traces._waiting)
    for tenant in tenants:
        ids = {one.trace_id for one, whose in zip(results, asked, strict=True) if whose == tenant}
        rows = await service.database.fetch(tenant, "SELECT id::text FROM signalbox.trace", {})
        assert {row[0].replace("-", "") for row in rows} == ids


# The drawing.


async def test_a_search_that_an_index_may_have_answered_is_marked(service: Service, owner_url: str):
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.collection SET chunks = 10001")
    await service.collections()
    found = await service.retrieve("penguins march", collection="birds", intent="off")
    trace = await service.explain(found.trace_id)
    assert found.hits
    marked = {
        step["source"]: answer["approximate"] for step, answer in zip(trace["plan"], trace["answers"], strict=True)
    }
    assert (marked["vector"], marked["fulltext"]) == (True, False)
    assert "approximate index: a rebuilt index may return other hits" in drawn(print_trace, trace)


async def test_a_record_is_drawn_with_everything_a_person_asks_about(service: Service):
    wanted = {"type": "eq", "key": "year", "value": 1999}
    prompt = await service.augment("penguins\x1b[2J of the red team", collection="birds", filter=wanted)
    text = drawn(print_trace, await service.explain(prompt.trace_id))
    assert "\x1b" not in text
    for part in ("trace", "Interpretation", "Filters", "year = 1999", "the caller", "team = red", "Searches",
                 "Conditions dropped to find hits", "Ranking: 0 shown of 0", "Prompt", "Time"):  # fmt: skip
        assert part in text, part
    found = await service.retrieve("penguins march", collection="birds")
    text = drawn(print_trace, await service.explain(found.trace_id))
    assert "Ranking: 3 shown of 3" in text
    assert "share of full text in the fused score" in text
    assert "March [birds/a#0]" in text
    assert datetime.now(UTC).date().isoformat() in text


# The command line.


def test_a_question_is_explained_and_run_again_by_the_command_line(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    file = tmp_path / "birds.jsonl"
    file.write_text("".join(json.dumps({"id": one.id, "text": one.text}) + "\n" for one in BIRDS), encoding="utf-8")
    assert call("ingest", str(file), "--collection", "birds", "--tenant", "zoo")[0] == 0
    for command in ("retrieve", "augment"):
        code, _, err = call(command, "penguins march", "--tenant", "zoo")
        last = err.splitlines()[-1]
        assert (code, last.startswith("signalbox: explain with: signalbox explain ")) == (0, True)
        assert last.endswith(" --tenant zoo")
    id = last.split()[5]

    code, out, err = call("explain", id, "--tenant", "zoo")
    assert (code, "Searches" in out, err) == (0, True, "")
    assert all(line == line.rstrip() for line in out.splitlines())
    code, out, err = call("explain", id, "--tenant", "zoo", "--json")
    assert (code, json.loads(out)["trace_id"], err) == (0, id, "")

    code, out, err = call("replay", id, "--tenant", "zoo")
    assert (code, "Same hits in the same order" in out, "no model was called" in err) == (0, True, True)
    code, out, err = call("replay", id, "--tenant", "zoo", "--set", "FUSION=rrf", "--set", "reranker=hybrid", "--json")
    shown = json.loads(out)
    assert (code, shown["replay_of"], len(shown["hits"]), err) == (0, id, 3, "")
    assert shown["difference"]["settings"]["fusion"] == {"before": "convex", "after": "rrf"}

    for arguments, says in (
        (["explain", id], "there is no trace"),
        (["replay", "nope", "--tenant", "zoo"], "there is no trace"),
        (["replay", id, "--tenant", "zoo", "--set", "NOPE=1"], 'there is no setting "NOPE"'),
        (["replay", id, "--tenant", "zoo", "--set", "FUSION"], "--set takes KEY=VALUE"),
    ):
        code, out, err = call(*arguments)
        assert (code, out, says in err, err.count("\n")) == (2, "", True, 1)


@pytest.mark.parametrize("ids", [["docs/a#0", "docs/b c#1", "docs/中 文#2"], ["docs/a\nb#0", "docs/c#0"], []])
def test_a_ranking_is_stored_as_one_text_and_read_as_a_list(ids: list[str]):
    ranking = [(id, 12.3456789 / (place + 1)) for place, id in enumerate(ids)]
    record = {"answers": [{"count": len(ids), "hits": pack_ranking(ranking)}], "ranking": pack_ranking(ranking)}
    read = unpack_rankings(json.loads(encode_json(record)))
    assert [id for id, _ in read["ranking"]] == ids
    assert [score for _, score in read["ranking"]] == pytest.approx([score for _, score in ranking], rel=1e-5)
    assert read["answers"] == [{"count": len(ids), "hits": read["ranking"]}]
    assert unpack_rankings(read) == read  # as earlier versions stored it
    assert unpack_rankings({"answers": [], "ranking": pack_ranking([("docs/a#0", float("nan"))])})["ranking"] == [
        ["docs/a#0", None]
    ]
