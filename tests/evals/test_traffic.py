from datetime import UTC, datetime
from typing import Any

import pytest

from evals.review import question_id
from evals.traffic import TrafficQuestion, merge_traces, question_and_history, read_trace, table_value

TEAM = {"type": "eq", "key": "team", "value": "red"}
OTHER = {"type": "eq", "key": "team", "value": "blue"}


def at(hour: int, day: int = 20) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def seen(**given: Any) -> TrafficQuestion:
    """A question asked at 9, with two hits; nobody has said anything about it."""
    plain: dict[str, Any] = {
        "trace_id": "t1", "at": at(9), "day": "2026-11-20", "text": "Which oven?", "history": (), "filter": None,
        "collections": frozenset({"handbook"}), "hits": ({"document": "a", "title": "A"},), "cited": ("a",),
        "value": None, "corrected": False, "score": None, "comment": None, "opened": (),
    }  # fmt: skip
    return TrafficQuestion(**plain | given)


def record(**given: Any) -> dict[str, Any]:
    """What a trace records of a result with the documents a (twice) and b."""
    hits = [{"document_id": id, "title": id.upper()} for id in ("a", "a", "b")]
    plain = {"intent": {"filter": TEAM, "collections": []}, "hits": hits, "table": None, "prompt": None, "answer": None}
    return plain | {"scope": [{"name": "handbook"}]} | given


def read(request: dict[str, Any], recorded: dict[str, Any], *opinion: Any, corrected: bool = False) -> TrafficQuestion:
    return read_trace("t1", at(9), request, recorded, opinion or (None, None, None, None), corrected=corrected)


def test_a_trace_gives_question_filter_day_and_distinct_hits():
    found = read({"query": "Which oven?", "now": "2026-11-19T23:00:00+08:00"}, record(), 9, "good", ["b"], None)

    assert (found.text, found.day, found.filter, found.corrected) == ("Which oven?", "2026-11-19", TEAM, False)
    assert found.hits == ({"document": "a", "title": "A"}, {"document": "b", "title": "B"})
    assert (found.collections, found.opened, found.score) == (frozenset({"handbook"}), ("b",), 9)


def test_a_filter_of_the_feedback_replaces_the_one_in_use_and_an_empty_one_says_that_none_is_right():
    stated, none = (
        read({"query": "q"}, record(), None, None, [], OTHER),
        read({"query": "q"}, record(), 2, None, [], {}),
    )

    assert (stated.filter, stated.corrected) == (OTHER, True)
    assert (none.filter, none.corrected) == (None, True)


def test_the_cited_documents_are_those_of_the_sentences_else_that_of_the_first_hit():
    prompt = {"citations": [{"n": 1, "document_id": "a"}, {"n": 2, "document_id": "b"}, {"n": 3, "document_id": "b"}]}
    answer = {"sentences": [{"citations": [2]}, {"citations": [3, 2]}]}

    assert read({"query": "q"}, record(prompt=prompt, answer=answer)).cited == ("b",)
    assert read({"query": "q"}, record(prompt=prompt)).cited == ("a",)


def test_without_a_named_collection_it_must_be_clear_which_was_searched():
    both = [{"name": "handbook"}, {"name": "notes"}]

    assert read({"query": "q"}, record(scope=both)).collections == frozenset()
    assert read({"query": "q", "collection": "notes"}, record(scope=both)).collections == {"notes"}
    chosen = record(scope=both, intent={"filter": None, "collections": ["notes"]})
    assert read({"query": "q"}, chosen).collections == {"notes"}


def test_the_last_user_turn_is_the_question_and_the_turns_before_it_are_the_history():
    turns = [
        {"role": role, "content": text} for role, text in (("user", "Hi"), ("assistant", "Yes?"), ("user", "Who?"))
    ]

    assert question_and_history({"messages": turns}) == ("Who?", tuple(turns[:2]))
    assert question_and_history({"query": "Who?", "messages": turns[:2]}) == ("Who?", tuple(turns[:2]))


@pytest.mark.parametrize(
    ("given", "relevant", "check"),
    [
        ({"score": 9}, {"a": 1}, ""),
        ({"score": 7, "cited": ("a", "b")}, {"a": 1, "b": 1}, ""),
        ({"score": 9, "opened": ("c",)}, {"c": 1}, ""),
        ({"opened": ("c",)}, {"c": 1}, ""),
        ({"score": 6}, {}, ""),
        ({"score": 3}, {}, "rated 3 of 10: correct `relevant` and `filter`"),
        ({"corrected": True, "filter": TEAM}, {}, ""),
    ],
)
def test_what_was_opened_is_relevant_else_what_a_well_rated_answer_cites(
    given: dict[str, Any], relevant: dict[str, int], check: str
):
    found = merge_traces("q-1", "handbook", [seen(**given)])

    assert (found.question.relevant, found.check, found.accept) == (relevant, check, None)


def test_of_one_question_asked_again_the_corrected_filter_wins_and_the_documents_of_that_day_are_joined():
    rated = seen(score=9, filter=OTHER)
    corrected = seen(trace_id="t2", at=at(10), filter=TEAM, corrected=True, opened=("b",))
    # Asked on another day with another filter: its documents may be wrong for this one.
    later = seen(trace_id="t3", at=at(9, day=25), day="2026-11-25", filter=None, opened=("z",))

    found = merge_traces("q-1", "handbook", [rated, corrected, later])

    assert (found.question.filter, found.question.now, found.question.klass) == (TEAM, "2026-11-20", "corrected")
    assert found.question.relevant == {"a": 1, "b": 1}
    assert [one["trace"] for one in found.origin] == ["t1", "t2", "t3"]
    assert found.origin[0] == {"trace": "t1", "at": "2026-11-20T09:00:00+00:00", "score": 9}


def test_a_calculated_value_is_the_answer_only_if_it_was_rated_right():
    right, unrated = seen(value=12, score=9), seen(value=12)

    assert (merge_traces("q", "c", [right]).question.answer, merge_traces("q", "c", [right]).question.relevant) == (
        12,
        {},
    )
    assert merge_traces("q", "c", [unrated]).question.answer is None


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        ([[12]], 12),
        ([["red", 3]], ["red", 3]),
        ([["red"], ["blue"]], ["red", "blue"]),
        ([["red", 3], [None, 1]], {"red": 3, "None": 1}),
        ([["red", 3, 4], ["blue", 1, 2]], None),
        ([], None),
        ([[n] for n in range(21)], None),
    ],
)
def test_a_table_is_an_answer_as_the_datasets_write_it(rows: list[list[Any]], value: Any):
    assert table_value({"rows": rows, "count": len(rows)}) == value


def test_a_table_that_is_stored_in_part_is_no_answer():
    assert table_value({"rows": [["red"], ["blue"]], "count": 300}) is None
    assert table_value(None) is None


def test_a_question_has_one_id_whatever_its_case_and_spacing_and_another_after_other_turns():
    turn = ({"role": "user", "content": "Hi"},)

    assert question_id("c", "Who  is IT?") == question_id("c", " who is it? ")
    assert len({question_id("c", "who?"), question_id("d", "who?"), question_id("c", "who?", turn)}) == 3
