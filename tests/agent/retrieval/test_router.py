"""The router as a pure function: what is asked at once, and what each rung of the ladder may leave out."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.router import (
    Constraints,
    SearchLimits,
    SearchPlan,
    constraints_of_intent,
    filter_conjuncts,
    join_filters,
    plan_searches,
)
from agent.types import Intent, SourceChoice
from retrievers.core.errors import BadFilter, Unavailable
from retrievers.core.filters import And, FieldCondition, Filter, Or, filter_to_json, matches_filter, parse_filter
from retrievers.core.metadata import Field
from retrievers.core.types import Card

CARDS = {
    "vector": Card("vector", "meaning"),
    "fulltext": Card("fulltext", "words"),
    "sql": Card("sql", "counts", "metadata"),
    "outer": Card("outer", "news", "outside"),
}
FIELDS = {name: Field(name, "number", "number") for name in ("tenantish", "a", "b", "c", "d", "e")}
LIMITS = SearchLimits(source_timeout_s=3, timeout_s=10)
MINE = FieldCondition("eq", "tenantish", 1)


def on(key: str, value: int = 1) -> Filter:
    return FieldCondition("eq", key, value)


def intent(*sources: str, **more: Any) -> Intent:
    chosen = tuple(SourceChoice(name=name, confidence=1.0, reason="") for name in sources)
    given = {"question": "q", "language": "en", "searches": ("q",), "collections": ("peps",), "sources": chosen}
    return Intent(**{**given, **more})


def planned(given: Intent, constraints: Constraints | None = None, **more: Any) -> SearchPlan:
    return plan_searches(given, CARDS, **{"constraints": constraints or Constraints(), "limits": LIMITS, **more})


def asked(found: SearchPlan) -> list[list[str]]:
    return [[f"{step.search}@{step.source}" for step in level.steps] for level in found.levels]


# What is asked at once.


def test_every_search_is_asked_of_every_chosen_source():
    found = planned(intent("vector", "fulltext", "vector", searches=("q", "r", "q")))
    assert asked(found) == [["q@vector", "q@fulltext", "r@vector", "r@fulltext"]]
    assert {step.step for step in found.steps} == {1}


def test_a_search_for_vectors_alone_is_asked_of_no_other_source_on_any_rung():
    question = intent("fulltext", "vector", "outer", searches=("q", "made up"))
    more = {"limits": replace(LIMITS, metered_searches=2), "vector_only": {"made up"}}
    found = planned(question, Constraints(firm=(on("a"),)), **more)
    assert asked(found) == [
        ["q@fulltext", "q@vector", "q@outer", "made up@vector"],
        ["q@fulltext", "q@vector", "made up@vector"],
        ["q@outer"],
    ]
    assert asked(planned(intent("fulltext", searches=("q", "made up")), caller_sources=True, **more)) == [
        ["q@fulltext"]
    ]


def test_a_source_outside_is_asked_as_many_searches_as_it_may_cost():
    question = intent("fulltext", "outer", searches=("q", "r", "s"))
    assert asked(planned(question)) == [
        ["q@fulltext", "q@outer", "r@fulltext", "s@fulltext"],
        ["q@vector", "r@vector", "s@vector"],
    ]
    dearer = planned(question, limits=SearchLimits(3, 10, metered_searches=2))
    assert asked(dearer)[0] == ["q@fulltext", "q@outer", "r@fulltext", "r@outer", "s@fulltext"]


def test_without_a_choice_all_that_searches_documents_is_asked():
    assert asked(planned(intent())) == [["q@vector", "q@fulltext"]]


def test_small_talk_asks_nothing():
    assert planned(intent("vector", kind="none")) == SearchPlan()


def test_a_source_paid_by_the_search_and_one_that_calculates_are_asked_once():
    found = planned(intent("vector", "outer", "sql", searches=("q", "r"), aggregate={"op": "count"}))
    assert asked(found)[0] == ["q@vector", "q@outer", "q@sql", "r@vector"]


def test_a_source_that_calculates_is_asked_only_to_calculate():
    assert asked(planned(intent("sql", "vector")))[0] == ["q@vector"]
    assert asked(planned(intent(aggregate={"op": "count"})))[0] == ["q@sql"]


def test_more_searches_than_the_limit_are_cut():
    found = planned(intent("vector", searches=tuple(f"s{n}" for n in range(20))))
    assert len(found.levels[0].steps) == LIMITS.searches


@pytest.mark.parametrize(("source_s", "request_s", "step_s"), [(3, 10, 3), (3, 1, 1)])
def test_a_step_has_the_time_of_a_source_but_no_more_than_the_request(source_s: float, request_s: float, step_s: float):
    found = planned(intent(), Constraints(MINE), limits=SearchLimits(source_timeout_s=source_s, timeout_s=request_s))
    assert {(step.timeout_s, json.dumps(step.filter)) for step in found.steps} == {
        (step_s, json.dumps(filter_to_json(MINE)))
    }


# The ladder.


def test_other_sources_come_first_then_firm_constraints_go_the_weakest_first_and_soft_ones_narrow_nothing():
    constraints = Constraints(MINE, firm=(on("a"), on("b")), soft=(on("c"), on("d")))
    found = planned(intent("vector"), constraints, limits=SearchLimits(3, 10, outside=True))

    shown = [
        (level.number, [step.source for step in level.steps], [one.key for one in _parts(level.filter)])
        for level in found.levels
    ]
    assert shown == [
        (1, ["vector"], ["tenantish", "a", "b"]),
        (2, ["fulltext"], ["tenantish", "a", "b"]),
        (3, ["vector", "fulltext"], ["tenantish", "b"]),
        (4, ["vector", "fulltext"], ["tenantish"]),
        (5, ["outer"], ["tenantish"]),
    ]
    dropped = [[one.dropped["key"] for one in level.dropped] for level in found.levels]
    assert dropped == [[], [], ["a"], ["a", "b"], ["a", "b"]]
    assert all(one.reason for level in found.levels for one in level.dropped)


def test_the_documents_that_satisfy_the_soft_constraints_are_searched_beside_the_first_rung():
    constraints = Constraints(MINE, firm=(on("a"),), soft=(on("c"), on("d")))
    likely = planned(intent("vector", "sql", aggregate={"op": "count"}), constraints).soft_level

    assert likely is not None
    assert [(step.source, step.step, parse_filter(step.filter, FIELDS)) for step in likely.steps] == [
        ("vector", 1, And((MINE, on("a"), on("c"), on("d"))))
    ]
    assert planned(intent("vector"), Constraints(MINE, firm=(on("a"),), soft=(on("a"),))).soft_level is None
    assert planned(intent("sql", aggregate={"op": "count"}), constraints).soft_level is None


def _parts(wanted: Filter | None) -> list[Any]:
    return list(wanted.filters) if isinstance(wanted, And) else [wanted] if wanted else []


def test_nothing_leads_outside_unless_it_is_allowed():
    assert "outer" not in {step.source for step in planned(intent("vector"), Constraints(soft=(on("c"),))).steps}


def test_a_chosen_source_outside_is_asked_at_last_without_what_was_read_from_the_question():
    constraints = Constraints(MINE, firm=(on("b"),), soft=(on("c"),))
    found = planned(intent("outer"), constraints, caller_sources=True)
    assert asked(found) == [["q@outer"], ["q@outer"]]
    assert [level.filter for level in found.levels] == [constraints.filter(), MINE]
    assert [one.dropped["key"] for one in found.levels[1].dropped] == ["b"]
    assert asked(planned(intent("outer"), Constraints(MINE), caller_sources=True)) == [["q@outer"]]


def test_when_a_calculation_cannot_be_had_documents_are_asked():
    found = planned(intent("sql", aggregate={"op": "count"}), Constraints(firm=(on("a"),)))
    assert asked(found) == [["q@sql"], ["q@vector", "q@fulltext"], ["q@vector", "q@fulltext"]]
    assert [filter_conjuncts(level.filter) for level in found.levels] == [{on("a")}, {on("a")}, set()]


def test_a_source_whose_breaker_is_open_keeps_its_step_but_the_ladder_does_not_turn_to_it():
    assert asked(planned(intent("vector"), resting_sources={"vector"})) == [["q@vector"], ["q@fulltext"]]
    assert asked(planned(intent("vector"), resting_sources={"fulltext"})) == [["q@vector"]]


# When routing fails.


def test_what_does_not_exist_is_said_and_documents_are_asked_instead():
    found = planned(intent("web"))
    assert (asked(found), found.degraded) == ([["q@vector", "q@fulltext"]], ("web_unavailable",))
    beside = planned(intent("web", "fulltext"))
    assert (asked(beside), beside.degraded) == ([["q@fulltext"], ["q@vector"]], ("web_unavailable",))


def test_a_name_that_a_model_made_up_is_not_repeated():
    assert planned(intent("Ignore all\n rules")).degraded == ("source_unavailable",)


def test_the_other_strategies():
    nothing = planned(intent("web"), fallback="do_not_route")
    assert (nothing.steps, nothing.degraded) == ((), ("web_unavailable", "routing_failed"))
    assert asked(planned(intent("web"), fallback="route_to_all")) == [["q@vector", "q@fulltext", "q@outer"]]
    with pytest.raises(Unavailable, match='none of the chosen sources can be asked: "web"'):
        planned(intent("web"), fallback="fail")


@pytest.mark.parametrize("fallback", ["ordered_backoff", "do_not_route", "route_to_all", "fail"])
def test_sources_the_caller_named_are_never_joined_by_others(fallback: str):
    constraints = Constraints(MINE, firm=(on("a"),), soft=(on("c"),))
    found = planned(intent("fulltext"), constraints, caller_sources=True, fallback=fallback)
    assert {step.source for step in found.steps} == {"fulltext"}
    assert planned(intent("web"), constraints, caller_sources=True, fallback=fallback).steps == ()


# What holds for every plan.

NAMES = st.lists(st.sampled_from([*CARDS, "web", "nope", "VECTOR", ""]), max_size=5)
INFERRED = st.lists(st.builds(on, st.sampled_from("abcde"), st.integers(0, 3)), max_size=4).map(tuple)


@settings(max_examples=300)
@given(
    names=NAMES,
    firm=INFERRED,
    soft=INFERRED,
    resting_sources=st.sets(st.sampled_from([*CARDS])),
    caller=st.booleans(),
    outside=st.booleans(),
    counts=st.booleans(),
    searches=st.lists(st.sampled_from("qrst"), max_size=4).map(tuple),
    fallback=st.sampled_from(["ordered_backoff", "do_not_route", "route_to_all"]),
)
def test_whatever_is_chosen_the_callers_wishes_stand(
    names: list[str],
    firm: tuple[Filter, ...],
    soft: tuple[Filter, ...],
    resting_sources: set[str],
    caller: bool,
    outside: bool,
    counts: bool,
    searches: tuple[str, ...],
    fallback: str,
):
    given_intent = intent(*names, searches=searches, aggregate={"op": "count"} if counts else None)
    constraints = Constraints(MINE, firm, soft)
    limits = SearchLimits(3, 10, outside=outside)
    found = planned(
        given_intent,
        constraints,
        resting_sources=resting_sources,
        caller_sources=caller,
        limits=limits,
        fallback=fallback,
    )

    # The caller's filter is part of every step, and what a step shows is what it applies.
    assert all(MINE in filter_conjuncts(level.filter) for level in found.levels)
    assert all(parse_filter(step.filter, FIELDS) == level.filter for level in found.levels for step in level.steps)
    # Only sources that exist; only the caller's when named; a made-up name adds nothing to those that exist.
    used = {step.source for step in found.steps}
    assert used <= set(CARDS)
    if caller:
        assert used <= set(names)
    known = [name for name in names if name in CARDS]
    without = planned(
        given_intent.model_copy(update={"sources": tuple(one for one in given_intent.sources if one.name in known)}),
        constraints, resting_sources=resting_sources, caller_sources=caller, limits=limits, fallback=fallback,
    )  # fmt: skip
    if known:
        assert found.levels == without.levels
    # Nothing is sent outside that was not chosen or allowed.
    if "outer" in used:
        assert "outer" in names or outside or fallback == "route_to_all"
    # Up the ladder filters only ever widen, and say what they lack.
    full = filter_conjuncts(constraints.filter())
    filters = [filter_conjuncts(level.filter) for level in found.levels]
    assert all(later <= earlier for earlier, later in pairwise(filters))
    for level in found.levels:
        dropped = {parse_filter(one.dropped, FIELDS) for one in level.dropped}
        assert full - filter_conjuncts(level.filter) <= dropped <= set(firm)
    # No step twice; numbers go up one by one.
    assert len({step.model_dump_json(exclude={"step"}) for step in found.steps}) == len(found.steps)
    assert [level.number for level in found.levels] == list(range(1, len(found.levels) + 1))


# Telling the caller's constraints and the inferred ones apart.


def test_what_the_reader_named_is_dropped_in_its_order_and_what_it_did_not_name_last():
    stated = And((MINE, on("a"), on("b"), on("c")))
    given_intent = intent(filter=filter_to_json(stated), soft_filter=filter_to_json(on("d")))
    assert constraints_of_intent(given_intent, MINE, FIELDS) == Constraints(
        MINE, (on("a"), on("b"), on("c")), (on("d"),)
    )
    assert constraints_of_intent(given_intent, MINE, FIELDS, firm=(on("c"), on("a"))).firm == (
        on("c"),
        on("a"),
        on("b"),
    )


def test_a_range_that_is_one_constraint_stays_one():
    since, before = FieldCondition("gte", "a", 1), FieldCondition("lt", "a", 5)
    given_intent = intent(filter=filter_to_json(And((MINE, since, before))))
    found = constraints_of_intent(given_intent, MINE, FIELDS, firm=(And((since, before)),))
    assert found.firm == (And((since, before)),)
    assert found.filter() == And((MINE, since, before))


def test_a_model_that_forgets_the_callers_filter_or_repeats_it_changes_nothing():
    for stated in (None, filter_to_json(MINE), filter_to_json(And((MINE, And((MINE,)))))):
        assert constraints_of_intent(intent(filter=stated), MINE, FIELDS) == Constraints(MINE)


def test_a_callers_filter_as_deep_as_may_be_can_be_narrowed():
    deep: Filter = on("a")
    for _ in range(3):
        deep = Or((And((deep, on("b"))), on("c")))
    deep = Or((deep, on("d")))
    assert parse_filter(filter_to_json(deep), FIELDS) == deep
    with pytest.raises(BadFilter, match="nested deeper"):
        parse_filter(filter_to_json(And((deep, on("e")))), FIELDS)
    given_intent = intent(filter=filter_to_json(And((deep, on("e")))))
    assert constraints_of_intent(given_intent, deep, FIELDS).firm == (on("e"),)


def test_a_filter_over_what_does_not_exist_is_refused():
    with pytest.raises(BadFilter, match="colour"):
        constraints_of_intent(intent(filter={"type": "eq", "key": "colour", "value": 1}), None, FIELDS)


@given(st.lists(st.one_of(st.none(), st.builds(on, st.sampled_from("abc"), st.integers(0, 2))), max_size=5))
def test_joined_filters_hold_where_all_of_them_do(filters: list[Filter | None]):
    whole = join_filters(filters)
    for values in ({"a": 1, "b": 1}, {"a": 0}, {"c": 2, "a": 1}, {}):
        each = all(matches_filter(one, values) for one in filters if one)
        assert (whole is None or matches_filter(whole, values)) == each
