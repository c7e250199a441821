"""What is read from labelled questions is told apart: right, wrong, partial, missing, invented."""

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from agent.settings import Settings
from evals import reading
from evals.filter_equality import corpus_of
from evals.reading import (
    ReadingTally,
    calibration_error,
    changed_outcomes,
    contains_answer,
    filter_verdict,
    is_stated,
    measure,
    period_verdict,
)
from evals.reading_data import corpus_reading_data
from evals.reading_questions import questions_of
from retrievers.core.errors import BadRequest
from retrievers.core.filters import Filter, parse_filter
from retrievers.core.metadata import Field
from retrievers.ingest.documents import Document

TEAM, DAY = Field("team", "string", "string"), Field("day", "date", "date")
FIELDS = {"team": TEAM, "day": DAY}
CORPUS = corpus_of(
    [
        Document("a", "a", "Oven", "The oven.", metadata={"team": "bakers", "day": "2025-01-31"}),
        Document("b", "b", "Lamp", "The lamp.", metadata={"team": "keepers", "day": "2025-06-30"}),
        Document("c", "c", "Reef", "The reef.", metadata={"team": "keepers", "day": "2026-02-01"}),
    ],
    FIELDS,
)


def filter_of(**values: Any) -> Filter:
    parts = [{"type": "eq", "key": key, "value": value} for key, value in values.items()]
    return parse_filter(parts[0] if len(parts) == 1 else {"type": "and", "filters": parts}, FIELDS)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def silent(_line: str) -> None:
    pass


KEEPERS, BOTH = filter_of(team="keepers"), filter_of(team="keepers", day="2025-06-30")


@pytest.mark.parametrize(
    ("golds", "found", "outcome"),
    [
        ([KEEPERS], KEEPERS, "right"),
        ([filter_of(team="bakers"), KEEPERS], KEEPERS, "right"),
        ([None], None, "none"),
        ([None], KEEPERS, "invented"),
        ([KEEPERS], None, "missing"),
        ([BOTH], KEEPERS, "partial"),
        ([KEEPERS], BOTH, "wrong"),
        ([KEEPERS], filter_of(team="bakers"), "wrong"),
    ],
)
def test_a_filter_is_judged_by_what_it_would_exclude(golds: list[Filter | None], found: Filter | None, outcome: str):
    assert filter_verdict(golds, found, CORPUS) == outcome


def test_a_condition_is_stated_with_each_end_of_a_range_and_one_part_of_a_choice():
    ends = [{"type": "gte", "key": "day", "value": "2025-01-01"}, {"type": "lt", "key": "day", "value": "2026-01-01"}]
    keepers = {"type": "eq", "key": "team", "value": "keepers"}
    golds = CORPUS.parts(CORPUS.read({"type": "and", "filters": [keepers, *ends]}))

    def stated(given: dict[str, Any]) -> bool:
        return is_stated(CORPUS.read(given), golds, CORPUS)

    bakers = keepers | {"value": "bakers"}
    assert stated(keepers)
    assert not stated(bakers)
    assert stated({"type": "and", "filters": ends})
    assert not stated({"type": "and", "filters": [ends[0], ends[1] | {"value": "2025-06-30"}]})
    assert stated({"type": "or", "filters": [bakers, keepers]})
    assert not stated({"type": "or", "filters": [bakers, ends[0] | {"value": "2026-01-01"}]})


def test_an_answer_is_held_by_rows_that_have_each_of_its_values():
    rows = [["Team Search", 1200], ["payments", "3.5 %"]]
    assert contains_answer(rows, ["team-search", "1,205"])
    assert contains_answer(rows, ["3.5"])
    assert not contains_answer(rows, ["1300"])
    assert not contains_answer([], ["1"])


def test_the_calibration_error_is_how_far_probabilities_are_from_what_came_true():
    assert calibration_error([(0.9, True)] * 9 + [(0.9, False)]) == 0.0
    assert calibration_error([(1.0, True), (1.0, False)]) == 0.5
    assert calibration_error([]) is None


def test_a_share_of_nothing_is_no_figure():
    figures = ReadingTally().figures()
    assert (figures["right"], figures["stated"], figures["left the house"]) == (None, 0, 0)


def test_a_period_is_right_to_the_day_or_wrong():
    june, none = ((date(2025, 6, 1), date(2025, 6, 30)),), ()
    since = ((date(2025, 6, 1), None),)
    found = parse_filter(day_range("2025-06-01", "2025-07-01"), FIELDS)
    longer = parse_filter(day_range("2025-06-01", "2025-07-02"), FIELDS)
    is_open = parse_filter({"type": "gte", "key": "day", "value": "2025-06-01"}, FIELDS)
    judged = [period_verdict([june], one, CORPUS) for one in (found, longer, is_open, None)]
    assert judged == ["right", "wrong", "wrong", "unread"]
    assert period_verdict([june, since], is_open, CORPUS) == "right"
    assert [period_verdict([none], one, CORPUS) for one in (None, found)] == ["right", "wrong"]


def day_range(first: str, end: str) -> dict[str, Any]:
    """Days from the first to before the end."""
    ends = [{"type": "gte", "key": "day", "value": first}, {"type": "lt", "key": "day", "value": end}]
    return {"type": "and", "filters": ends}


def test_the_three_forms_of_questions_are_read(tmp_path: Path):
    write_lines(
        tmp_path / "dates" / "phrases.jsonl",
        [{"id": "1", "text": "in May", "lang": "en", "now": "2026-01-01", "spans": [["2025-05-01", "2025-06-01"]]}],
    )
    write_lines(
        tmp_path / "days" / "phrases.jsonl",
        [{"id": "1", "text": "since", "lang": "en", "now": "2026-01-01", "periods": [[["2025-05-01", None]], []]}],
    )
    write_lines(tmp_path / "tables" / "questions.jsonl", [{"id": "1", "text": "?", "table": "t1", "answer": ["7"]}])
    write_lines(
        tmp_path / "plain" / "queries.jsonl",
        [{"id": "1", "text": "?", "filters": [None], "sources": [["web"], ["none"]]}, {"id": "2", "text": "?"}],
    )

    (phrase,) = questions_of(tmp_path / "dates")
    (days,) = questions_of(tmp_path / "days")
    (of_table,) = questions_of(tmp_path / "tables")
    world, plain = questions_of(tmp_path / "plain")

    assert phrase.spans[0][0].isoformat() == "2025-05-01"
    assert days.periods == (((date(2025, 5, 1), None),), ())
    assert (of_table.collection, of_table.answer) == ("t1", ("7",))
    assert (world.sources, world.private) == ((frozenset(["web"]), frozenset(["none"])), False)
    assert (plain.filters, plain.answer, plain.private) == ((None,), None, True)
    with pytest.raises(BadRequest, match=r"no phrases\.jsonl, questions\.jsonl or queries\.jsonl"):
        list(questions_of(tmp_path))


async def test_questions_are_asked_of_the_service_and_counted_by_outcome(
    routed: Callable[..., Path], settings: Settings
):
    def wanted(**values: Any) -> Mapping[str, Any]:
        return {"type": "eq", "key": next(iter(values)), "value": next(iter(values.values()))}

    folder = routed(
        {"id": "1", "text": "documents of the keepers team", "filters": [wanted(team="keepers")], "sources": []},
        {"id": "2", "text": "How is an oven repaired?", "filters": [None], "sources": [["vector", "fulltext"]]},
        {"id": "3", "text": "How many documents are there per team?", "class": "calculation", "answer": ["2", "1"]},
        {"id": "4", "text": "documents of the bakers team", "filters": [wanted(team="keepers")], "sources": []},
    )

    readme = folder.parent / "README.md"
    readme.write_text("What the folders hold.")

    found = await measure([folder, readme], settings, silent)
    json.dumps(found, allow_nan=False)

    figures = found["collections"]["routed"]
    assert figures == found["all"]
    assert [figures[name] for name in ("stated", "right", "wrong", "none invented")] == [2, 0.5, 0.5, 1.0]
    assert [figures[name] for name in ("values", "right of calculated", "left the house")] == [1, 1.0, 0]
    first = found["readings"]["routed/1"]
    assert (first["filter"], first["outcomes"]) == (wanted(team="keepers"), ["filter right"])
    assert [one["right"] for one in first["stated"]] == [True]
    assert found["readings"]["routed/4"]["outcomes"] == ["filter wrong"]

    before = {"readings": {**found["readings"], "routed/1": {**first, "outcomes": ["filter missing"]}}}
    assert changed_outcomes(before, found) == [
        "routed/1: filter missing -> filter right: documents of the keepers team"
    ]


def test_a_document_is_called_what_its_id_says_whatever_the_folder_is_called(tmp_path: Path):
    """As in the service: the same question is read alike in every collection that holds the documents."""
    named = []
    for folder in ("records", "qx-zorvel", "资料"):
        lines = [{"id": f"Case-{n}", "title": "Oven", "text": "The oven.", "team": "bakers"} for n in range(3)]
        write_lines(tmp_path / folder / "corpus.jsonl", lines)
        named.append(corpus_reading_data(tmp_path / folder / "corpus.jsonl").nouns)
    assert named == [{"case", "cases"}] * 3


@pytest.mark.parametrize("held", [None, "[]", "{", '{"readings": 1}'])
def test_a_file_to_compare_with_that_is_none_is_bad_input(held: str | None, tmp_path: Path):
    path = tmp_path / "before.json"
    if held is not None:
        path.write_text(held)
    with pytest.raises(BadRequest, match=r"before\.json"):
        reading.load_measurement(path)
