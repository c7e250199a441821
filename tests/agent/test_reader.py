"""The reader: the rules' reading at once, a model's later, both under what the caller fixed."""

import asyncio
import dataclasses
import itertools
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Collection as Collected
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.intent.deciding import candidate_scoring
from agent.intent.reader import CascadeReader, local
from agent.intent.reading import Reading
from agent.intent.topic.small_talk import refers_to_own_documents, strip_greeting
from agent.intent.turn import wording_classifier
from agent.intent.values.vocabulary import field_role
from agent.intent.warmup import warm_up
from agent.llm.model_factory import open_model
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer, unit_vector
from agent.types import Intent, Request
from retrievers.core.circuit_breakers import FAILURE_THRESHOLD, CircuitBreaker
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter, parse_filter
from retrievers.core.metadata import Field
from retrievers.core.types import Card, ChunkId, Collection, FieldCatalogue, FieldValues, Scope
from retrievers.embed.onnx_embedder import OnnxEmbedder

QUESTIONS = Path(__file__).parents[2] / "evals/data/reading/turns/queries.jsonl"

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)  # a Friday
FIELDS = {
    "status": Field("status", "string", "string"),
    "team": Field("team", "string", "string"),
    "author": Field("author", "string", "string"),
    "created": Field("created", "date", "date"),
    "pages": Field("pages", "number", "number"),
}
VALUES = {
    "status": FieldValues(FIELDS["status"], {"Accepted": 40, "Rejected": 30, "Draft": 20, "Withdrawn": 10}, 4, 100),
    "team": FieldValues(
        FIELDS["team"],
        {"Infrastructure": 60, "Café Services": 25, "Security": 15},
        3,
        100,
        aliases={"infra": "Infrastructure"},
    ),
    "author": FieldValues(FIELDS["author"], {"Zoë Müller": 30, "Ann Lee": 20, "Guido van Rossum": 50}, 3, 100),
    "created": FieldValues(FIELDS["created"], {}, 90, 100, "2015-01-01", "2026-11-01"),
    "pages": FieldValues(FIELDS["pages"], {}, 50, 100, 1, 400),
}
CARDS = {
    "fulltext": Card("fulltext", "exact words"),
    "vector": Card("vector", "meaning"),
    "sql": Card("sql", "metadata", "metadata"),
}
COLLECTION = Collection(
    1, "acme", "reports", documents=100, chunks=1000, languages={"en": 100}, fields=FIELDS, version=1
)
SCOPE = Scope("acme", (COLLECTION,))


@dataclass
class FakeCatalogue:
    """What the cascade asks of a catalogue, from memory."""

    values: Mapping[str, FieldValues] = field(default_factory=lambda: VALUES)
    terms: Mapping[str, int] = field(default_factory=dict)
    stored: Sequence[tuple[str, str, int]] = ()
    spans: list[str] = field(default_factory=list)
    name: str = "pep"
    ids: frozenset[str] = frozenset()

    async def fields(self, scope: Scope) -> FieldCatalogue:
        return FieldCatalogue(((1, id(self)),), 100, self.values)

    async def document_nouns(self, scope: Scope) -> tuple[str, ...]:
        return (self.name,) if self.name else ()

    async def find_values(self, scope: Scope, folded_spans: Sequence[str]) -> list[tuple[str, str, int]]:
        self.spans += folded_spans
        return list(self.stored)

    async def count_filtered_values(
        self,
        scope: Scope,
        wanted: Filter,
        candidates: Mapping[str, Collected[str]],
        *,
        most_documents: int | None = None,
    ) -> dict[str, dict[str, int]]:
        """Every document is inside every filter."""
        return {name: dict.fromkeys(values, 1) for name, values in candidates.items()}

    async def term_counts(self, scope: Scope, terms: Iterable[str]) -> dict[int, dict[str, int]]:
        return {1: {term: self.terms[term] for term in terms if term in self.terms}}

    async def load(self, scope: Scope, ids: Iterable[ChunkId], wanted: Filter | None = None) -> dict[ChunkId, object]:
        return {id: "a passage" for id in ids if id.document_id in self.ids}


@dataclass
class FakeEmbedder:
    """Texts are alike when they share their first word, and only then."""

    name: str = "fake"
    languages: frozenset[str] | None = None
    fails: bool = False

    async def embed_query(self, text: str) -> Any:
        if self.fails:
            raise Unavailable("fake", "it is down")
        return unit_vector(text.split()[0].casefold(), 256)


def cascade(**given: Any) -> CascadeReader:
    parts: dict[str, Any] = {"catalogue": FakeCatalogue(), "cards": CARDS, "embedder": FakeEmbedder(), "model": None}
    return CascadeReader(settings=given.pop("settings", Settings()), **(parts | given))


async def read(reader: CascadeReader, question: str, **request: Any) -> Reading:
    asked = Request(**({"query": question, "now": NOW} | request))
    wanted = parse_filter(asked.filter, FIELDS) if asked.filter else None
    return await reader.read(asked, SCOPE, wanted, time.monotonic() + 20)


@asynccontextmanager
async def modelled(server: ScriptedServer, **given: Any) -> AsyncIterator[CascadeReader]:
    model = open_model("openai/small", base_url=server.base_url)
    assert model is not None
    yield cascade(model=model, **given)
    await model.aclose()


async def both_readings(
    reply: Mapping[str, Any] | str, question: str = "what was said about caching?", **request: Any
) -> tuple[Reading, Intent | None]:
    """The reading at once, and what the model's reply makes of it."""
    text = reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)
    with ScriptedServer(lambda _: text) as server:
        async with modelled(server) as reader:
            reading = await read(reader, question, **request)
            return reading, await reading.later if reading.later is not None else None


async def grounded(filter: Any, **more: Any) -> Intent:
    """The model's reading with this filter."""
    _, later = await both_readings({"kind": "retrieve", "sources": ["fulltext"], "filter": filter, **more})
    assert later is not None
    return later


def eq(key: str, value: Any, kind: str = "eq") -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


# --- the order of things


async def test_the_rules_answer_at_once_and_the_model_joins_them():
    reply = {"kind": "retrieve", "question": "Accepted reports about caching", "searches": ["cache eviction"]}
    reply |= {"filter": eq("status", "Accepted"), "sources": ["vector"], "confidence": 0.9}
    with ScriptedServer([json.dumps(reply)]) as server:
        async with modelled(server) as reader:
            reading = await read(reader, "accepted reports about caching by Ann Lee")
            assert server.requests == []
            assert reading.later is not None
            later = await reading.later
    assert reading.first.by == "rules"
    assert reading.first.filter is not None
    stated = sorted(reading.first.filter["filters"], key=lambda one: one["key"])
    assert stated == [eq("author", "Ann Lee"), eq("status", "Accepted")]
    assert {choice.name for choice in reading.first.sources} == {"fulltext", "vector"}
    assert later is not None
    assert (later.by, later.searches, later.confidence) == ("llm", ("cache eviction",), 0.9)
    assert later.filter == eq("status", "Accepted")
    assert [choice.name for choice in later.sources] == ["vector"]
    assert [call.stage for call in reading.calls.records] == ["intent"]


async def test_requests_that_wait_for_the_names_of_many_values_leave_threads_for_others(
    monkeypatch: pytest.MonkeyPatch,
):
    many = dict.fromkeys((f"value {n}" for n in range(400)), 1)
    same = FieldCatalogue(((1, 1),), 400, {"team": FieldValues(FIELDS["team"], many, 400, 400)})
    begun, may_end = threading.Event(), threading.Event()

    class Shared(FakeCatalogue):
        async def fields(self, scope: Scope) -> FieldCatalogue:
            return same

    def held(values: FieldValues) -> Any:
        begun.set()
        assert may_end.wait(60)
        return field_role(values)

    monkeypatch.setattr("agent.intent.values.vocabulary.field_role", held)
    with ThreadPoolExecutor(2) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        reader = cascade(catalogue=Shared())
        reading = [asyncio.create_task(read(reader, f"bearings {n}")) for n in range(4)]
        while not begun.is_set():  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(30):
                await asyncio.to_thread(lambda: None)
        finally:
            may_end.set()
        assert all(one.first for one in await asyncio.gather(*reading))
    assert not reader.collecting


async def test_a_condition_that_the_caller_ignores_is_read_by_neither_rules_nor_model():
    said = {"type": "and", "filters": [eq("status", "Accepted"), eq("author", "Ann Lee")]}
    reply = {"kind": "retrieve", "searches": ["cache eviction"], "filter": said, "sources": ["vector"]}
    question = "accepted reports about caching by Ann Lee"
    reading, later = await both_readings(reply, question, ignore=(eq("status", "Accepted"),))
    assert reading.first.filter == eq("author", "Ann Lee")
    assert [one.filter for one in reading.stated] == [eq("author", "Ann Lee")]
    # Its words are words to search for again.
    assert reading.first.searches == (question,)
    assert later is not None
    assert later.filter == eq("author", "Ann Lee")
    with pytest.raises(BadRequest) as refused:
        await both_readings(reply, question, ignore=(eq("state", "Accepted"),))
    assert refused.value.where == "ignore.0.key"
    assert "status" in refused.value.valid


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("thanks, that is all", "none"),
        ("ERR_CONN_4711", "retrieve"),
        ("how many reports were rejected?", "aggregate"),
    ],
    ids=["small talk", "identifier", "metadata alone"],
)
async def test_a_model_is_not_asked_where_it_could_add_nothing(question: str, kind: str):
    with ScriptedServer() as server:
        async with modelled(server) as reader:
            reading = await read(reader, question)
    assert reading.later is None
    assert reading.first.kind == kind
    assert server.requests == []


@pytest.mark.parametrize("where", ["request", "settings"])
async def test_intent_rules_asks_no_model(where: str):
    with ScriptedServer() as server:
        async with modelled(server, settings=Settings(intent="rules" if where == "settings" else "auto")) as reader:
            more = {"intent": "rules"} if where == "request" else {}
            reading = await read(reader, "what was said about caching?", **more)
    assert reading.later is None
    assert server.requests == []


async def test_intent_llm_asks_a_model_for_every_question_and_cannot_do_without_one():
    with ScriptedServer(['{"kind": "none"}']) as server:
        async with modelled(server) as reader:
            reading = await read(reader, "hello", intent="llm")
            assert reading.later is not None
            later = await reading.later
    assert later is not None
    assert (later.by, later.kind) == ("llm", "none")
    with pytest.raises(BadRequest, match="needs a model"):
        await read(cascade(), "hello", intent="llm")


@pytest.mark.parametrize("reply", ["no idea", "[]", '{"weather": "fine"}', ""])
async def test_a_broken_reply_leaves_the_reading_of_the_rules(reply: str):
    reading, later = await both_readings(reply, "rejected reports about caching")
    assert later is None
    assert reading.first.filter == eq("status", "Rejected")


async def test_a_model_that_is_down_leaves_the_reading_of_the_rules():
    with ScriptedServer(faults=[Fault(status=400)] * 9) as server:
        async with modelled(server) as reader:
            reading = await read(reader, "rejected reports about caching")
            assert reading.later is not None
            assert await reading.later is None
    assert reading.first.filter == eq("status", "Rejected")


REPLY = {"kind": "retrieve", "question": "what was said about caching?", "searches": ["caching", "page cache"]}
SAID = {"reword": "cache policy", "other ways": "eviction\nLRU", "paragraph": "Pages go."}


async def transformed(
    *names: str, question: str = "what was said about caching?", dead: str = "\0", **request: Any
) -> tuple[Reading, Intent | None]:
    """The readings of a question with these transformers; the prompt that holds `dead` gets no reply."""

    def reply(body: dict[str, Any]) -> str:
        system = body["messages"][0]["content"]
        told = next((text for mark, text in SAID.items() if mark in system), json.dumps(REPLY))
        return "" if dead in system else told

    with ScriptedServer(reply) as server:
        async with modelled(server, settings=Settings(transforms=names)) as reader:
            reading = await read(reader, question, **request)
            return reading, await reading.later if reading.later is not None else None


async def test_what_is_added_stands_beside_the_models_searches_and_a_made_up_passage_is_for_vectors():
    reading, later = await transformed("expand", "hyde")
    assert later is not None
    assert later.searches == ("caching", "page cache", "eviction", "LRU", "Pages go.")
    done = reading.transforms
    assert (done.vector_only, done.replaced, done.degraded) == ({"Pages go.": "hyde"}, False, ())


async def test_a_reworded_question_replaces_the_searches():
    reading, later = await transformed("rewrite", "hyde")
    assert later is not None
    assert later.searches == ("cache policy", "Pages go.")
    assert later.question == REPLY["question"]
    assert (reading.transforms.replaced, reading.transforms.degraded) == (True, ())


async def test_a_transformer_that_fails_leaves_the_searches_and_is_named():
    reading, later = await transformed("rewrite", "hyde", dead="reword")
    assert later is not None
    assert later.searches == ("caching", "page cache", "Pages go.")
    assert (reading.transforms.replaced, reading.transforms.degraded) == (False, ("rewrite_unavailable",))


@pytest.mark.parametrize(
    ("question", "request_", "degraded"),
    [
        ("ERR_CONN_4711", {}, ("hyde_skipped",)),
        ("what was said about caching?", {"intent": "rules"}, ("hyde_skipped",)),
        ("hello", {}, ()),
    ],
    ids=["identifier", "rules alone", "small talk"],
)
async def test_transformers_that_are_not_asked_are_named_where_something_is_searched(
    question: str, request_: dict[str, Any], degraded: tuple[str, ...]
):
    reading, later = await transformed("hyde", question=question, **request_)
    assert (later, reading.transforms.degraded) == (None, degraded)


async def test_without_a_model_or_its_reading_no_transformer_runs():
    reader = cascade(settings=Settings(transforms=("hyde", "expand")))
    assert (await read(reader, "what was said about caching?")).transforms.degraded == (
        "hyde_skipped",
        "expand_skipped",
    )
    reading, later = await transformed("hyde", dead="")
    assert (later, reading.transforms.degraded) == (None, ("hyde_skipped",))


async def test_a_model_that_sees_nothing_to_retrieve_leaves_nothing_to_search_for():
    reply = {"kind": "none", "question": "nice to meet you", "searches": ["nice"], "sources": ["none"]}
    _, later = await both_readings(reply, "nice to meet you", intent="llm")
    assert later is not None
    assert (later.kind, later.searches) == ("none", ())
    ruled = await read(cascade(), "hello")
    assert (ruled.first.kind, ruled.first.searches) == ("none", ())


# --- the model's breaker, which all callers share

QUESTION = "what was said about caching?"
GOOD = json.dumps({"kind": "retrieve", "searches": ["caching"], "sources": ["fulltext"]})


async def many(reader: CascadeReader, *, within_s: float = 20.0) -> list[Intent | None]:
    """As many readings of the model at once as open a breaker when all of them fail."""
    await read(cascade(), QUESTION)  # the rules' tables are loaded now, and take none of the model's time

    async def one() -> Intent | None:
        reading = await reader.read(Request(query=QUESTION, now=NOW), SCOPE, None, time.monotonic() + within_s)
        assert reading.later is not None
        return await reading.later

    return list(await asyncio.gather(*(one() for _ in range(FAILURE_THRESHOLD))))


async def test_callers_in_a_hurry_do_not_take_the_model_away_from_others():
    with ScriptedServer(lambda _: GOOD, faults=[Fault(delay_s=0.6)] * (FAILURE_THRESHOLD + 1)) as server:
        async with modelled(server) as reader:
            assert await many(reader, within_s=0.3) == [None] * FAILURE_THRESHOLD
            later = (await read(reader, QUESTION)).later
            assert later is not None
            intent = await later
    assert intent is not None
    assert intent.searches == ("caching",)


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Fault(status=429), "open"),
        (Fault(status=500), "open"),
        (Fault(reset=True), "open"),
        (Fault(status=400), "closed"),
        (Fault(status=401), "closed"),
        (Fault(status=413), "closed"),
        (Fault(body="<html>"), "closed"),
        (Fault(body='{"choices": [{"message": {"refusal": "no"}}]}'), "closed"),
    ],
)
async def test_only_a_server_that_fails_is_left_alone(fault: Fault, state: str):
    with ScriptedServer(lambda _: GOOD, faults=itertools.repeat(fault)) as server:
        async with modelled(server) as reader:
            assert await many(reader) == [None] * FAILURE_THRESHOLD
            assert reader.breaker.state == state
            asked = len(server.requests)
            assert await many(reader) == [None] * FAILURE_THRESHOLD
            assert (len(server.requests) == asked) == (state == "open")


@pytest.mark.parametrize(("own_s", "within_s", "state"), [(0.5, 3.0, "open"), (10.0, 1.0, "closed")])
@pytest.mark.usefixtures("sparing_log")
async def test_a_silent_model_has_failed_when_it_had_all_the_time_that_is_its_own(
    own_s: float, within_s: float, state: str, caplog: pytest.LogCaptureFixture
):
    with ScriptedServer(lambda _: GOOD, faults=itertools.repeat(Fault(delay_s=30))) as server:
        async with modelled(server, settings=Settings(timeout_s=own_s)) as reader:
            assert await many(reader, within_s=within_s) == [None] * FAILURE_THRESHOLD
            assert reader.breaker.state == state
    said = {one.message for one in caplog.records if one.name == "agent.intent.reader"}
    assert said
    reason = r"no answer within [0-9.]+ s|no time was left for the call"
    assert all(re.fullmatch(rf"the model's reading was not used: ({reason})", one) for one in said)


@pytest.mark.parametrize(("own_s", "state"), [(0.1, "open"), (10.0, "closed")])
async def test_a_reading_that_is_given_up_counts_only_after_that_time(own_s: float, state: str):
    with ScriptedServer(lambda _: GOOD, faults=itertools.repeat(Fault(delay_s=30))) as server:
        async with modelled(server, settings=Settings(timeout_s=own_s)) as reader:
            await read(cascade(), QUESTION)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await many(reader)
            assert reader.breaker.state == state


async def test_what_a_recording_lacks_is_no_failure_of_a_model(tmp_path: Path):
    (tmp_path / "empty.jsonl").touch()
    reader = cascade(model=open_model(f"replay:{tmp_path / 'empty.jsonl'}"))
    assert await many(reader) == [None] * FAILURE_THRESHOLD
    assert reader.breaker.state == "closed"


async def test_a_reading_that_nobody_begins_is_no_trial():
    with ScriptedServer(lambda _: GOOD) as server:
        async with modelled(server, breaker=CircuitBreaker(failures=1, open_s=0)) as reader:
            reader.breaker.record_failure()
            assert reader.breaker.state == "half-open"
            unread = asyncio.ensure_future((await read(reader, QUESTION)).later)  # type: ignore[arg-type]
            unread.cancel()
            await asyncio.wait({unread})
            assert reader.breaker.admit()
    assert server.requests == []


async def test_a_statement_that_never_comes_does_not_cost_what_the_model_said_before():
    async def columns(scope: Scope) -> Mapping[str, str]:
        return {"status": "text"}

    said = json.dumps({"kind": "aggregate", "searches": ["caching"], "sources": ["sql"]})
    with ScriptedServer(lambda _: said, faults=[None, Fault(delay_s=30)]) as server:
        async with modelled(server, columns=columns) as reader:
            request = Request(query=QUESTION, now=NOW)
            await read(cascade(), QUESTION)
            reading = await reader.read(request, SCOPE, None, time.monotonic() + 5.0)
            assert reading.later is not None
            intent = await reading.later
    assert intent is not None
    assert intent.searches == ("caching",)


# --- grounding of the model's filter


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (eq("team", "infra"), eq("team", "Infrastructure")),
        (eq("team", "cafe services"), eq("team", "Café Services")),
        (eq("author", "Zoe Muller"), eq("author", "Zoë Müller")),
        (eq("team", "Infrastrcture"), eq("team", "Infrastructure")),
        (eq("Status", "DRAFT"), eq("status", "Draft")),
        (eq("status", ["draft", "Rejected"], "in"), eq("status", ["Draft", "Rejected"], "in")),
        (eq("pages", "120", "gt"), eq("pages", 120, "gt")),
        ({"type": "not", "filter": eq("status", "draft")}, {"type": "not", "filter": eq("status", "Draft")}),
    ],
    ids=["alias", "accent", "umlaut", "typo", "case", "list", "number", "not"],
)
async def test_a_value_is_found_by_whatever_it_is_called(given: Any, meant: Any):
    later = await grounded(given)
    assert (later.filter, later.rejected) == (meant, ())


async def test_an_unknown_value_is_left_out_and_reported_with_the_nearest():
    later = await grounded({"type": "and", "filters": [eq("status", "Acepting"), eq("team", "Security")]})
    assert later.filter == eq("team", "Security")
    [rejected] = later.rejected
    assert (rejected.what, rejected.reason) == ("status = Acepting", '"status" has no such value')
    assert rejected.valid[0] == "Accepted"


async def test_an_unknown_value_among_several_costs_only_itself():
    later = await grounded(eq("status", ["Draft", "Obsolete"], "in"))
    assert later.filter == eq("status", ["Draft"], "in")
    assert [one.what for one in later.rejected] == ["status = Obsolete"]


async def test_an_unknown_field_is_reported_with_those_there_are():
    later = await grounded(eq("colour", "red"))
    assert later.filter is None
    [rejected] = later.rejected
    assert (rejected.what, rejected.reason) == ("filter on colour", "there is no such field")
    assert set(FIELDS) <= set(rejected.valid)


async def test_a_choice_with_an_unknown_value_is_dropped_whole():
    choice = {"type": "or", "filters": [eq("status", "Draft"), eq("team", "Marketing")]}
    later = await grounded({"type": "and", "filters": [choice, eq("author", "Ann Lee")]})
    assert later.filter == eq("author", "Ann Lee")
    assert [one.what for one in later.rejected] == ["team = Marketing"]


async def test_a_value_of_a_field_too_large_to_know_is_taken_as_it_is():
    large = dataclasses.replace(VALUES["author"], distinct=100_000)
    reply = json.dumps({"filter": eq("author", "Nobody Known"), "sources": ["fulltext"]})
    with ScriptedServer([reply]) as server:
        async with modelled(server, catalogue=FakeCatalogue({**VALUES, "author": large})) as reader:
            reading = await read(reader, "what was said about caching?")
            assert reading.later is not None
            later = await reading.later
    assert later is not None
    assert (later.filter, later.rejected) == (eq("author", "Nobody Known"), ())


async def test_the_words_of_a_date_decide_and_not_the_days_of_the_model():
    days = [eq("created", "2024-01-01", "gte"), eq("created", "2024-04-01", "lt")]
    time_given = {"key": "created", "phrase": "last quarter", "from": "2024-01-01", "to": "2024-04-01"}
    later = await grounded({"type": "and", "filters": [eq("status", "Draft"), *days]}, time=time_given)
    assert later.filter == {
        "type": "and",
        "filters": [eq("status", "Draft"), eq("created", "2026-07-01", "gte"), eq("created", "2026-10-01", "lt")],
    }


async def test_the_days_of_the_model_count_where_its_words_name_none():
    time_given = {"key": "created", "phrase": "during the pandemic", "from": "2020-03-01", "to": "2022-06-01"}
    later = await grounded(None, time=time_given)
    assert later.filter == {
        "type": "and",
        "filters": [eq("created", "2020-03-01", "gte"), eq("created", "2022-06-01", "lt")],
    }


# --- what the caller fixes


async def test_the_filter_of_the_caller_is_in_both_readings_and_never_to_be_dropped():
    wanted = eq("team", "Security")
    reading, later = await both_readings(
        {"filter": eq("status", "Draft"), "sources": ["vector"]}, "rejected reports about caching", filter=wanted
    )
    assert later is not None
    assert reading.first.filter == {"type": "and", "filters": [wanted, eq("status", "Rejected")]}
    assert [one.filter for one in reading.stated] == [eq("status", "Rejected")]
    assert len(reading.firm) == 1
    assert later.filter == {"type": "and", "filters": [wanted, eq("status", "Draft")]}


async def test_the_sources_of_the_caller_are_asked_whatever_is_read():
    reading, later = await both_readings({"kind": "none", "sources": ["web"]}, sources=["vector"])
    assert later is not None
    for intent in (reading.first, later):
        assert [(choice.name, choice.reason) for choice in intent.sources] == [("vector", "named by the caller")]
        assert intent.kind == "retrieve"
        assert intent.searches


async def test_a_source_that_is_named_is_searched_even_for_small_talk():
    first = (await read(cascade(), "hello", sources=["fulltext"])).first
    assert (first.kind, first.searches, [choice.name for choice in first.sources]) == (
        "retrieve",
        ("hello",),
        ["fulltext"],
    )


async def test_a_source_that_a_model_makes_up_is_reported_and_not_asked():
    later = await grounded(None, sources=["fulltext", "wiki"])
    assert [choice.name for choice in later.sources] == ["fulltext"]
    assert [(one.what, one.valid) for one in later.rejected] == [("source wiki", tuple(CARDS))]


async def test_a_calculation_of_the_model_is_checked_against_the_fields():
    later = await grounded(None, kind="aggregate", aggregate={"op": "avg", "field": "colour"})
    assert (later.kind, later.aggregate) == ("retrieve", None)
    assert [one.what for one in later.rejected] == ["aggregate"]
    later = await grounded(None, kind="aggregate", aggregate={"op": "avg", "field": "pages"})
    assert later.kind == "aggregate"
    assert later.aggregate is not None
    assert (later.aggregate["op"], later.aggregate["of"]) == ("avg", "pages")


# --- when it is


async def test_the_days_of_a_question_are_those_of_the_asker():
    late = datetime(2026, 11, 19, 20, tzinfo=UTC)  # already the 20th in Shanghai
    shanghai = cascade(settings=Settings(time_zone="Asia/Shanghai"))
    for reader, now, day in (
        (cascade(), late, "2026-11-18"),
        (shanghai, late.replace(tzinfo=None), "2026-11-18"),
        (shanghai, late.astimezone(ZoneInfo("Asia/Shanghai")), "2026-11-19"),
    ):
        first = (await read(reader, "reports created yesterday", now=now)).first
        assert first.filter is not None
        assert first.filter["filters"][0] == eq("created", day, "gte")


def test_a_moment_without_a_zone_is_of_the_asker():
    zone = ZoneInfo("Asia/Shanghai")
    assert local(datetime(2026, 1, 1), zone).utcoffset() == datetime(2026, 1, 1, tzinfo=zone).utcoffset()
    assert local(NOW, zone) is NOW
    assert local(None, zone).tzinfo is zone


# --- values of fields too large to know


async def test_names_of_a_large_field_are_looked_up_by_the_words_of_the_question():
    large = dataclasses.replace(VALUES["author"], distinct=100_000)
    catalogue = FakeCatalogue({**VALUES, "author": large}, stored=[("author", "Ling Qiu", 3)])
    first = (await read(cascade(catalogue=catalogue), "reports by Ling Qiu")).first
    assert {"ling", "ling qiu", "by ling qiu"} <= set(catalogue.spans)
    assert first.filter == eq("author", "Ling Qiu")


async def test_nothing_is_looked_up_where_all_values_are_known():
    catalogue = FakeCatalogue(stored=[("author", "Ling Qiu", 3)])
    await read(cascade(catalogue=catalogue), "reports by Ling Qiu")
    assert catalogue.spans == []


# --- sources outside


WEATHER = Card("weather", "forecasts", "outside", ("Forecast for Paris",))
DOCUMENTS = Card("fulltext", "exact words", examples=("Report on caching",))


@pytest.mark.parametrize(
    ("cards", "embedder", "question", "liked"),
    [
        ((WEATHER, DOCUMENTS), FakeEmbedder(), "forecast when I am in Rome", True),
        ((WEATHER, DOCUMENTS), FakeEmbedder(), "caching in the broker", False),
        (
            (WEATHER, dataclasses.replace(DOCUMENTS, examples=("Forecast of load",))),
            FakeEmbedder(),
            "forecast for Rome",
            False,
        ),
        ((WEATHER, DOCUMENTS), FakeEmbedder(fails=True), "forecast for Rome", False),
        ((WEATHER, DOCUMENTS), FakeEmbedder(languages=frozenset({"zh"})), "forecast for Rome", False),
        ((dataclasses.replace(WEATHER, examples=()), DOCUMENTS), FakeEmbedder(), "forecast for Rome", False),
        ((WEATHER, DOCUMENTS), FakeEmbedder(), "forecast reports by Ann Lee", False),
    ],
    ids=["like it", "unlike it", "like another", "no vectors", "other language", "no examples", "constrained"],
)
async def test_a_source_outside_is_chosen_by_likeness_to_its_examples_alone(
    cards: Sequence[Card], embedder: FakeEmbedder, question: str, liked: bool
):
    reader = cascade(cards={card.name: card for card in cards}, embedder=embedder)
    chosen = [choice.name for choice in (await read(reader, question)).first.sources]
    assert (chosen == ["weather"]) is liked


@pytest.mark.parametrize(
    ("question", "terms", "web"),
    [
        ("What is the capital of Mongolia?", {}, True),
        ("What is the capital of Mongolia?", {"mongolia": 3}, True),
        ("What is the capital of Mongolia?", {"mongolia": 3, "capit": 3}, False),
        ("What is the capital of Mongolia?", {"capit": 3}, True),
        ("hello! what is the capital of Mongolia?", {}, True),
        ("What is the capital of Mongolia, and what is our office there?", {}, False),
        ("Which reports name the capital of Mongolia?", {}, False),
        ("rejected: What is the capital of Mongolia?", {}, False),
        ("how do we clean the valves after a run?", {}, False),
        ("who owns the ledger-sync service", {}, False),
        ("上海明天下午会下雨吗？", {}, True),
        ("上海明天下午会下雨吗？", {"上海": 3, "下雨": 2}, False),
        ("do you have anything that is nicer on the second day?", {}, False),
        ("有没有隔夜再吃更香的", {}, False),
        ("is there one with creaky floors and old windows", {"floor": 3}, False),
        ("公司明天下午放假吗？", {}, False),
    ],
)
async def test_the_world_is_asked_when_the_documents_hold_hardly_a_word_of_it(
    question: str, terms: dict[str, int], web: bool
):
    reader = cascade(catalogue=FakeCatalogue(terms=terms, name="report"))
    chosen = [choice.name for choice in (await read(reader, question)).first.sources]
    assert ("web" in chosen) is web
    # What is put to the world is searched for in the documents too.
    assert {"fulltext", "vector"} <= set(chosen)


async def test_the_id_of_a_document_stays_in_the_house_though_no_text_holds_it():
    async def web(ids: frozenset[str]) -> bool:
        made = await read(cascade(catalogue=FakeCatalogue(ids=ids)), "what is deep-sea-trench?")
        return "web" in [choice.name for choice in made.first.sources]

    assert await web(frozenset())
    assert not await web(frozenset({"deep-sea-trench"}))


@pytest.mark.parametrize(
    ("question", "id", "is_read"),
    [
        ("show me rejected", "other", True),
        ("show me rejected", "rejected", False),
        ("what is rejected-4711?", "rejected-4711", False),
        ("rejected 是什么？", "rejected", False),
        ("reports that were rejected", "rejected", True),
    ],
)
async def test_the_id_of_a_document_alone_is_no_condition(question: str, id: str, is_read: bool):
    made = (await read(cascade(catalogue=FakeCatalogue(ids=frozenset({id}))), question)).first
    assert (made.filter == {"type": "eq", "key": "status", "value": "Rejected"}) is is_read
    if not is_read:
        assert (made.kind, made.filter, made.aggregate) == ("retrieve", None, None)
        assert {one.name for one in made.sources} <= {"fulltext", "vector"}


@pytest.mark.parametrize(
    ("question", "is_said"),
    [
        ("the ones falling due in January", True),
        ("lots for Finland, whichever product", True),
        ("这些订单什么时候到", True),
        ("which countries use the euro", False),
        ("who owns one", False),
        ("哪些国家用欧元", False),
    ],
)
def test_who_points_at_documents_means_them(question: str, is_said: bool):
    assert refers_to_own_documents(question) is is_said


async def test_private_questions_stay_in_the_house_and_the_worlds_leave_it(minilm: OnnxEmbedder):
    """Questions that were not learned from, by their wording alone."""
    sent: dict[str, list[bool]] = {"private": [], "world": []}
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        text = strip_greeting(one["text"])
        if not refers_to_own_documents(text):
            vector = await wording_classifier.wording_vector(text, minilm)
            sent[one["class"]].append(wording_classifier.wording_logit("world", text, vector) > 1)
    private, world = (sum(sent[kind]) / len(sent[kind]) for kind in ("private", "world"))
    assert private <= 0.03
    assert world >= 0.75


async def test_what_is_read_ahead_has_been_loaded_before_the_first_question():
    for one in (warm_up, candidate_scoring.scoring_models):
        one.cache_clear()
    await asyncio.to_thread(warm_up().join)
    assert candidate_scoring.scoring_models.cache_info().currsize == 1
