import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.intent.reading import LiteralReader, literal_intent, question_language
from agent.retrieval.highlight import Highlighter
from agent.retrieval.plan_execution import GuardedSources, StepResult, run_levels, run_steps
from agent.retrieval.router import FallbackLevel
from agent.types import Relaxed, Request, Step
from retrievers.core.circuit_breakers import FAILURE_THRESHOLD, CircuitBreakers
from retrievers.core.errors import BadFilter, BadRequest, TooCostly, Unavailable
from retrievers.core.filters import FieldCondition, Filter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import PLATFORM, Card, Chunk, ChunkId, Collection, Hit, Query, Scope
from retrievers.text import question_terms

SCOPE = Scope("t", (Collection(1, "t", "peps", languages={"en": 3}), Collection(2, "t", "notes", languages={"zh": 1})))


@dataclass
class StubRetriever:
    """A source that answers, waits or fails as it is told."""

    found: Sequence[str] = ()
    delay_s: float = 0.0
    error: BaseException | None = None
    events: list[str] = field(default_factory=list)

    card = Card("stub", "tests")

    async def search(self, query: Query) -> list[Hit]:
        self.events.append(f"asked {query.text}")
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        if self.error:
            raise self.error
        self.events.append("answered")
        return [Hit(ChunkId("t", "peps", name, 0), 1.0, "stub") for name in self.found]


def step(source: str, *, search: str = "q", timeout_s: float = 5.0, number: int = 1) -> Step:
    return Step(source=source, search=search, filter=None, timeout_s=timeout_s, step=number)


def make(step: Step, wanted: Filter | None) -> Query:
    return Query(step.search, "en", SCOPE, wanted)


def sources(retrievers: Mapping[str, Any], *, patience_s: float = 3.0) -> GuardedSources:
    return GuardedSources(retrievers, CircuitBreakers(), frozenset(retrievers), patience_s)


async def run(steps: Sequence[Step], retrievers: Mapping[str, Any], *, timeout_s: float = 5) -> list[StepResult]:
    return await run_steps(steps, None, make, sources(retrievers), deadline=time.monotonic() + timeout_s)


def names(answer: StepResult) -> list[str]:
    return [hit.id.document_id for hit in answer.hits]


def became(answers: Sequence[StepResult]) -> list[tuple[str, str, str | None]]:
    return [(one.outcome.source, one.outcome.status, one.outcome.reason) for one in answers]


async def test_a_slow_source_is_cut_off_the_others_hits_stay_and_the_outcome_says_why():
    stubs = {"vector": StubRetriever(delay_s=60), "fulltext": StubRetriever(["a", "b"])}

    slow, quick = await run([step("vector", timeout_s=0.05), step("fulltext")], stubs)
    await asyncio.sleep(0)

    assert (names(quick), names(slow)) == (["a", "b"], [])
    assert became([slow, quick]) == [
        ("vector", "timeout", "vector is unavailable: no answer after 0.05 s"),
        ("fulltext", "ok", None),
    ]
    assert (slow.outcome.hits, quick.outcome.hits) == (0, 2)
    assert slow.outcome.elapsed_ms >= 50
    assert (slow.is_unavailable, quick.is_unavailable) == (True, False)
    assert stubs["vector"].events == ["asked q", "cancelled"]


async def test_a_source_that_does_not_end_when_it_is_cancelled_is_not_waited_for():
    class Stubborn(StubRetriever):
        async def search(self, query: Query) -> list[Hit]:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await may_end.wait()
                ended.set()
                raise OSError("gone") from None
            return []

    may_end, ended = asyncio.Event(), asyncio.Event()
    (answer,) = await run([step("slow", timeout_s=0.05)], {"slow": Stubborn()})
    assert (answer.outcome.status, ended.is_set()) == ("timeout", False)
    may_end.set()
    await asyncio.wait_for(ended.wait(), 60)


async def test_the_time_of_the_request_ends_every_source():
    (answer,) = await run([step("slow", timeout_s=60)], {"slow": StubRetriever(delay_s=60)}, timeout_s=0.05)
    assert answer.outcome.reason is not None
    assert answer.outcome.reason.startswith("slow is unavailable: no answer after 0.0")


async def test_a_source_for_which_no_time_is_left_is_not_asked():
    stub = StubRetriever(["a"])
    (answer,) = await run([step("a")], {"a": stub}, timeout_s=-1)
    assert became([answer]) == [("a", "skipped", "no time was left for this search")]
    assert (stub.events, answer.is_unavailable) == ([], True)


async def test_sources_are_asked_at_the_same_time():
    class Together(StubRetriever):
        async def search(self, query: Query) -> list[Hit]:
            await all_asked.wait()
            return await super().search(query)

    all_asked = asyncio.Barrier(5)
    stubs = {name: Together([name]) for name in "abcde"}
    answers = await run([step(name) for name in stubs], stubs)
    assert [(answer.outcome.source, answer.outcome.status) for answer in answers] == [(one, "ok") for one in "abcde"]


async def test_every_search_of_every_source_has_its_own_hits():
    stubs = {"a": StubRetriever(["x"]), "b": StubRetriever([])}
    answers = await run([step("a"), step("a", search="r"), step("b", search="r", number=2)], stubs)
    assert [names(answer) for answer in answers] == [["x"], ["x"], []]
    assert [(one.outcome.status, one.outcome.step) for one in answers] == [("ok", 1), ("ok", 1), ("empty", 2)]
    assert stubs["a"].events == ["asked q", "asked r", "answered", "answered"]


async def test_when_all_sources_fail_every_reason_is_kept_and_no_address():
    stubs = {
        "a": StubRetriever(error=Unavailable("the embedder", "no quota")),
        "b": StubRetriever(delay_s=60),
        "c": StubRetriever(error=ConnectionResetError("10.0.0.3:5432")),
        "d": StubRetriever(error=asyncio.CancelledError()),
    }
    answers = await run([step("a"), step("b", timeout_s=0.01), step("c"), step("d")], stubs)
    assert became(answers) == [
        ("a", "error", "the embedder is unavailable: no quota"),
        ("b", "timeout", "b is unavailable: no answer after 0.01 s"),
        ("c", "error", "c is unavailable: the connection failed (ConnectionResetError)"),
        ("d", "error", "d is unavailable: the connection failed (ConnectionAbortedError)"),
    ]
    assert all(answer.is_unavailable for answer in answers)


async def test_a_programming_mistake_surfaces_and_stops_the_others():
    stubs = {"bad": StubRetriever(error=ZeroDivisionError()), "slow": StubRetriever(delay_s=60)}
    with pytest.raises(ZeroDivisionError):
        await run([step("bad"), step("slow")], stubs)
    await asyncio.sleep(0)
    assert stubs["slow"].events == ["asked q", "cancelled"]


@pytest.mark.parametrize("error", [BadFilter("no fields"), BadRequest("no such thing")])
async def test_a_source_that_refuses_is_left_out_and_says_so(error: Exception):
    stubs = {"glossary": StubRetriever(error=error), "fulltext": StubRetriever(["a"])}
    refusing, other = await run([step("glossary"), step("fulltext")], stubs)
    assert names(other) == ["a"]
    assert became([refusing]) == [("glossary", "skipped", str(error))]
    assert (refusing.error, refusing.is_unavailable) == (error, False)


async def test_a_caller_who_leaves_cancels_the_searches():
    class Asked(StubRetriever):
        async def search(self, query: Query) -> list[Hit]:
            asked.set()
            return await super().search(query)

    asked, stubs = asyncio.Event(), {"slow": Asked(delay_s=60)}
    running = asyncio.create_task(run([step("slow")], stubs, timeout_s=60))
    await asyncio.wait_for(asked.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0)
    assert stubs["slow"].events == ["asked q", "cancelled"]


async def test_hits_of_another_tenant_or_collection_are_dropped_and_counted():
    def hit(tenant: str, collection: str, *, text: bool = False) -> Hit:
        id = ChunkId(tenant, collection, "d", 0)
        return Hit(id, 1.0, "x", Chunk(id, "", "text") if text else None)

    class Leaky(StubRetriever):
        async def search(self, query: Query) -> list[Hit]:
            return [
                hit("t", "peps"),
                hit("globex", "peps"),
                hit("t", "secret"),
                hit("globex", "news", text=True),
                hit("t", "news", text=True),
                hit(PLATFORM, "news", text=True),
            ]

    (answer,) = await run([step("x")], {"x": Leaky()})
    assert [hit.id[:2] for hit in answer.hits] == [("t", "peps"), ("t", "news"), (PLATFORM, "news")]
    assert became([answer]) == [("x", "ok", "3 hits outside the scope were dropped")]


async def test_a_plan_without_steps_finds_nothing():
    assert await run([], {}) == []


# The breaker.


async def test_a_source_that_keeps_failing_is_not_asked_any_more():
    stub = StubRetriever(error=Unavailable("web", "down"))
    given = sources({"web": stub})
    answers = [(await run_steps([step("web")], None, make, given, deadline=time.monotonic() + 5))[0] for _ in range(8)]
    assert len(stub.events) == FAILURE_THRESHOLD
    assert became(answers[-1:]) == [("web", "skipped", "web failed too often lately; it is tried again soon")]
    assert all(answer.is_unavailable for answer in answers)


async def test_refusals_and_callers_who_leave_do_not_count():
    stub = StubRetriever(error=BadFilter("no"))
    given = sources({"web": stub})
    for _ in range(FAILURE_THRESHOLD + 1):
        await run_steps([step("web")], None, make, given, deadline=time.monotonic() + 5)
    stub.error, stub.delay_s = None, 60
    for _ in range(FAILURE_THRESHOLD + 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run_steps([step("web")], None, make, given, deadline=time.monotonic() + 5)
    assert given.breakers.of("web").state == "closed"


async def test_what_a_collection_lacks_is_not_held_against_the_source():
    breakers = CircuitBreakers()
    stub = StubRetriever(error=Unavailable("vector", "other vectors"))
    given = GuardedSources({"vector": stub}, breakers, frozenset(), 3.0)
    for _ in range(2 * FAILURE_THRESHOLD):
        await run_steps([step("vector")], None, make, given, deadline=time.monotonic() + 5)
    assert breakers.of("vector").state == "closed"


@pytest.mark.parametrize(
    ("step_s", "request_s", "state"),
    [(0.5, 50, "open"), (50, 0.5, "open"), (0.1, 50, "closed"), (50, 0.1, "closed")],
    ids=["own time", "own time, by the request", "short step", "short request"],
)
async def test_silence_counts_only_when_a_source_had_all_the_time_that_is_its_own(
    step_s: float, request_s: float, state: str
):
    given = sources({"web": StubRetriever(delay_s=60)}, patience_s=0.4)
    for _ in range(FAILURE_THRESHOLD):
        (answer,) = await run_steps(
            [step("web", timeout_s=step_s)], None, make, given, deadline=time.monotonic() + request_s
        )
        assert answer.outcome.status == "timeout"
    assert given.breakers.of("web").state == state


async def test_a_query_that_costs_too_much_is_not_held_against_the_source():
    stub = StubRetriever(error=TooCostly("sql", "the statement took longer than 3 s"))
    given = sources({"sql": stub})
    for _ in range(FAILURE_THRESHOLD):
        (answer,) = await run_steps([step("sql")], None, make, given, deadline=time.monotonic() + 5)
        assert became([answer]) == [("sql", "error", "sql is unavailable: the statement took longer than 3 s")]
        assert answer.is_unavailable
    assert given.breakers.of("sql").state == "closed"


async def test_a_calculation_that_is_late_is_not_held_against_the_source():
    def calculating(step: Step, wanted: Filter | None) -> Query:
        return Query(step.search, "en", SCOPE, wanted, statement="SELECT count(*) FROM documents a, documents b")

    given = sources({"sql": StubRetriever(delay_s=60)}, patience_s=0.01)
    for _ in range(FAILURE_THRESHOLD):
        await run_steps([step("sql", timeout_s=0.01)], None, calculating, given, deadline=time.monotonic() + 5)
    assert given.breakers.of("sql").state == "closed"


# The ladder.

SOFT = FieldCondition("eq", "team", "red")


def ladder(*names: str) -> list[FallbackLevel]:
    levels = []
    for number, source in enumerate(names, 1):
        dropped = (Relaxed(dropped={"n": number}, reason="r"),) if number > 1 else ()
        levels.append(FallbackLevel(number, (step(source, number=number),), SOFT if number == 1 else None, dropped))
    return levels


async def climbed(
    levels: Sequence[FallbackLevel], retrievers: Mapping[str, Any]
) -> tuple[list[StepResult], FallbackLevel | None]:
    return await run_levels(levels, make, sources(retrievers), deadline=time.monotonic() + 5)


async def test_with_a_hit_no_further_rung_is_climbed_and_each_step_says_so():
    stubs = {"a": StubRetriever(["x"]), "b": StubRetriever(["y"])}
    answers, last = await climbed(ladder("a", "b", "b"), stubs)
    assert became(answers) == [("a", "ok", None), ("b", "skipped", "not needed"), ("b", "skipped", "not needed")]
    assert (last and last.number, stubs["b"].events) == (1, [])


async def test_where_nothing_was_found_the_next_rung_is_climbed_with_its_own_filter():
    seen: list[Filter | None] = []

    class Filtered(StubRetriever):
        async def search(self, query: Query) -> list[Hit]:
            seen.append(query.filter)
            return [] if query.filter else await super().search(query)

    answers, last = await climbed(ladder("a", "a"), {"a": Filtered(["x"])})
    assert seen == [SOFT, None]
    assert became(answers) == [("a", "empty", None), ("a", "ok", None)]
    assert last is not None
    assert [one.dropped for one in last.dropped] == [{"n": 2}]


async def test_when_nobody_answered_others_are_asked_and_what_failed_is_not_asked_again():
    stubs = {"a": StubRetriever(error=Unavailable("a", "down")), "b": StubRetriever([])}
    answers, last = await climbed(ladder("a", "b", "a", "b"), stubs)
    assert became(answers) == [
        ("a", "error", "a is unavailable: down"),
        ("b", "empty", None),
        ("a", "skipped", "it has failed before"),
        ("b", "empty", None),
    ]
    assert (last and last.number, len(stubs["a"].events)) == (4, 1)


async def test_a_ladder_ends_with_the_time_of_the_request():
    stubs = {"a": StubRetriever(delay_s=60), "b": StubRetriever(["y"])}
    levels = ladder("a", "b")
    answers, _ = await run_levels(levels, make, sources(stubs), deadline=time.monotonic() + 0.5)
    assert [answer.outcome.status for answer in answers] == ["timeout", "skipped"]
    assert stubs["b"].events == []


# A time limit that holds.


async def test_what_fails_in_time_fails_as_itself_and_what_is_late_does_not_matter_any_more():
    async def failing(delay_s: float) -> int:
        await asyncio.sleep(delay_s)
        raise KeyError("k")

    with pytest.raises(KeyError):
        await wait_within(failing(0), 1)
    with pytest.raises(TimeoutError):
        await wait_within(failing(0.02), 0.01)
    await asyncio.sleep(0.03)


# Intent off.


def test_without_reading_the_question_is_its_own_search_and_the_callers_filter_stands():
    found = literal_intent(
        Request(query="Who wrote it?"), SCOPE, FieldCondition("eq", "status", "Final"), ("vector", "fulltext")
    )
    assert found.searches == ("Who wrote it?",)
    assert found.collections == ("notes", "peps")
    assert found.filter == {"type": "eq", "key": "status", "value": "Final"}
    assert [(choice.name, choice.reason) for choice in found.sources] == [
        ("vector", "default"),
        ("fulltext", "default"),
    ]
    assert (found.kind, found.by, found.confidence, found.language) == ("retrieve", "caller", 1.0, "en")


def test_sources_the_caller_names_twice_are_asked_once():
    found = literal_intent(Request(query="Q", sources=("fulltext", "fulltext")), SCOPE, None, ("vector", "fulltext"))
    assert [(choice.name, choice.reason) for choice in found.sources] == [("fulltext", "named by the caller")]


def test_the_last_turn_of_the_user_is_the_question():
    messages = [
        {"role": "user", "content": "First"},
        {"role": "assistant", "content": "A"},
        {"role": "user", "content": "Last"},
    ]
    messages.append({"role": "assistant", "content": "B"})
    assert literal_intent(Request(messages=messages), SCOPE, None, ()).question == "Last"


def test_the_language_of_a_question_is_one_of_its_collections():
    assert question_language("Wer war es und wann?", SCOPE) == "en"
    assert question_language("Wer war es und wann?", Scope("t", ())) == "de"


async def test_the_reader_that_reads_nothing_is_done_at_once():
    reading = await LiteralReader(("vector",)).read(Request(query="Q"), SCOPE, None, 0.0)
    assert (reading.later, reading.firm, reading.soft, reading.degraded) == (None, (), (), ())
    assert reading.first == literal_intent(Request(query="Q"), SCOPE, None, ("vector",))


async def test_a_long_search_is_analysed_beside_the_event_loop_and_once(monkeypatch: pytest.MonkeyPatch):
    text, threads = "量子纠缠和机器学习的研究" * 100, list[object]()
    analyse = question_terms.analyse

    def seen(given: str, language: str) -> Any:
        if given == text:
            threads.append(threading.current_thread())
        return analyse(given, language)

    class Words(StubRetriever):
        async def search(self, query: Query) -> list[Hit]:
            assert question_terms.question_term_weights(query.text, query.language, query.translation)
            assert Highlighter(query.text, query.language)("机器学习")
            return await super().search(query)

    monkeypatch.setattr(question_terms, "analyse", seen)
    (result,) = await run([step("fulltext", search=text)], {"fulltext": Words(found=["c1"])})
    assert result.has_hits
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
