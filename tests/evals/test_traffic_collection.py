"""From questions with feedback to a dataset that `eval run` reads, on a real database."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from evals.cli import app
from evals.datasets import EVERY_SPLIT, load
from evals.review import CandidateQuestion, read_review, write_review
from evals.traffic_collection import collect
from retrievers.core.errors import BadRequest
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest.documents import Document

RED = {"type": "eq", "key": "team", "value": "red"}
BLUE = {"type": "eq", "key": "team", "value": "blue"}
TEXTS = {
    "oven": ("red", "The oven is cleaned every Friday by the night shift."),
    "lamp": ("blue", "The lamp in the tower is lit at dusk."),
    "leave": ("red", "Everybody has 30 days of leave a year."),
}
ALL = unrestricted_viewer("default")


def silent(_line: str) -> None:
    pass


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Service]:
    async with open_service(settings) as service:
        for tenant in ("default", "other"):
            documents = [
                Document(where=id, id=id, title=id.title(), text=text, metadata={"team": team})
                for id, (team, text) in TEXTS.items()
            ]
            await service.ingest(documents, "handbook", tenant=tenant)
        yield service


async def ask(service: Service, question: str, **given: Any) -> str:
    plain = {"collection": "handbook", "now": datetime(2026, 11, 20, tzinfo=UTC), "user": "ada@example.org"}
    return (await service.retrieve(question, **plain | given)).trace_id


async def collected(service: Service, viewer: Viewer = ALL, **given: Any) -> list[CandidateQuestion]:
    while service.traces.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return (await collect(service, "handbook", silent, viewer=viewer, **given)).candidates


async def test_feedback_and_corrections_become_candidates_and_nobody_is_named(service: Service, tmp_path: Path):
    await ask(service, "nobody said anything about this question")
    rated = await ask(service, "when is the lamp lit?")
    await service.feedback(rated, 9, "thanks")
    opened = await ask(service, "how much leave is there?")
    await service.feedback(opened, document_ids=["oven"])
    await service.ingest([Document("gone", "gone", "Gone", "The old rules.")], "handbook")
    await service.feedback(opened, document_ids=["leave", "gone", "oven"])
    await service.delete("handbook", document="gone")
    await ask(service, "who cleans?")
    await ask(service, "Who cleans?", filter=RED)
    await ask(service, "who lights?", filter=BLUE)  # a filter from the beginning corrects nothing
    bad = await ask(service, "who sleeps?")
    await service.feedback(bad, 1)

    found = {one.question.text: one for one in await collected(service)}

    assert list(found) == ["when is the lamp lit?", "how much leave is there?", "Who cleans?", "who sleeps?"]
    lamp, leave, cleans, sleeps = found.values()
    assert (lamp.question.relevant, lamp.question.klass, lamp.question.now) == ({"lamp": 1}, "rated", "2026-11-20")
    assert (leave.question.relevant, leave.question.klass) == ({"oven": 1, "leave": 1}, "opened")
    assert (cleans.question.filter, cleans.question.klass) == (RED, "corrected")
    assert cleans.check == "no relevant document is known: fill in `relevant`"
    assert sleeps.check == "rated 1 of 10: correct `relevant` and `filter`"
    write_review(tmp_path / "review.jsonl", found.values())
    text = (tmp_path / "review.jsonl").read_text()
    assert '"comment": "thanks"' in text
    assert "ada@example.org" not in text


async def test_another_tenant_and_another_collection_are_not_collected_and_since_is_a_bound(service: Service):
    await service.feedback(await ask(service, "when is the lamp lit?"), 9)
    tomorrow = datetime.now(UTC) + timedelta(days=1)

    assert len(await collected(service)) == 1
    assert await collected(service, since=tomorrow) == []
    assert await collected(service, unrestricted_viewer("other")) == []
    with pytest.raises(BadRequest, match='there is no collection "notes"'):
        await collect(service, "notes", silent, viewer=ALL)


async def test_what_is_erased_is_not_collected_any_more(service: Service):
    trace = await ask(service, "when is the lamp lit?")
    await service.feedback(trace, document_ids=["lamp"], filter=BLUE)
    assert [one.question.filter for one in await collected(service)] == [BLUE]

    erased = await service.erase(user="ada@example.org")

    assert (erased.traces, erased.feedback) == (1, 1)
    assert await collected(service) == []
    for table in ("feedback", "feedback_label"):
        assert await service.database.fetch(ALL, f"SELECT FROM signalbox.{table}", ()) == []  # type: ignore[arg-type]


async def test_a_filter_that_excludes_an_opened_document_is_to_be_checked(service: Service):
    trace = await ask(service, "when is the lamp lit?")
    await service.feedback(trace, document_ids=["lamp"], filter=RED)

    (found,) = await collected(service)

    assert found.check == "the filter excludes lamp: correct `filter` or `relevant`"


# From the review file to a dataset.


@pytest.fixture
def invoke(settings: Settings, service: Service) -> Callable[..., Result]:
    def run(*arguments: object) -> Result:
        given = [*map(str, arguments), "--set", f"DATABASE_URL={settings.database_url}"]
        return CliRunner().invoke(app, given, standalone_mode=False)

    return run


@pytest.fixture
def review(tmp_path: Path) -> Callable[..., Path]:
    """Writes a review file with these lines; what a line does not say is an accepted question about the oven."""

    def write(*lines: dict[str, Any], name: str = "review.jsonl") -> Path:
        plain = {"accept": True, "text": "who cleans the oven?", "now": "2026-11-20", "collection": "handbook",
                 "filter": None, "relevant": {"oven": 1}, "hits": [], "from": []}  # fmt: skip
        path = tmp_path / name
        path.write_text("".join(json.dumps({"id": f"q{n}"} | plain | one) + "\n" for n, one in enumerate(lines)))
        return path

    return write


def test_a_review_file_becomes_a_dataset_that_is_run(
    invoke: Callable[..., Result], review: Callable[..., Path], tmp_path: Path
):
    path = review(
        {"text": "documents of the red team about the oven", "filter": RED},
        {"text": "when is the lamp lit?", "relevant": {"lamp": 1}, "filter_judged": False},
        {"text": "When is  the lamp lit?", "relevant": {"leave": 1}, "filter_judged": False},
        {"text": "undecided?", "accept": None},
        {"text": "rejected?", "accept": False},
    )
    folder = tmp_path / "mine"

    done = invoke("collect", "--accept", path, "--dataset", folder, "--json")

    assert done.exception is None
    counts = json.loads(done.stdout)
    assert (counts["accepted"], counts["rejected"], counts["undecided"], counts["merged"]) == (3, 1, 1, 1)
    assert (counts["questions"], counts["documents"], counts["splits"]) == (2, 3, {"dev": 0, "test": 2})
    oven, lamp = load(folder).questions
    assert (oven.id, oven.filter, oven.relevant, oven.now) == ("q0", RED, {"oven": 1}, "2026-11-20")
    assert (lamp.id, lamp.relevant, lamp.judges_filter) == ("q1", {"leave": 1, "lamp": 1}, False)
    assert json.loads((folder / "schema.json").read_text())["fields"]["team"]["type"] == "string"

    run = invoke("run", folder, "--json")

    assert run.exception is None
    first, second = json.loads(run.stdout)["questions"]
    assert (first["metrics"]["filter_exact"], first["metrics"]["hit@1"]) == (1.0, 1.0)
    assert (second["metrics"]["filter_exact"], second["documents"][0]) == (None, "lamp")


def test_a_dataset_grows_and_a_later_no_removes_a_question(
    invoke: Callable[..., Result], review: Callable[..., Path], tmp_path: Path
):
    folder = tmp_path / "mine"
    first = review({"id": "a", "text": "one?"}, {"id": "b", "text": "two?"})
    second = review({"id": "b", "accept": False}, {"id": "c", "text": "three?"}, name="second.jsonl")

    for path in (first, second):
        assert invoke("collect", "--accept", path, "--dataset", folder).exception is None

    assert [one.id for one in load(folder, EVERY_SPLIT).questions] == ["a", "c"]


def test_twenty_questions_are_divided_and_each_stays_in_its_part(
    invoke: Callable[..., Result], review: Callable[..., Path], tmp_path: Path
):
    lines = [{"id": f"n{n}", "text": f"question {n}?"} for n in range(30)]

    def parts(count: int, name: str) -> dict[str, str]:
        invoke("collect", "--accept", review(*lines[:count], name=name), "--dataset", tmp_path / name[:-6])
        return {one.id: one.split for one in load(tmp_path / name[:-6], EVERY_SPLIT).questions}

    few, some, more = parts(19, "few.jsonl"), parts(20, "some.jsonl"), parts(30, "more.jsonl")

    assert set(few.values()) == {"test"}
    assert set(some.values()) == {"dev", "test"}
    assert some.items() <= more.items()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"accept": "yes"}, 'review.jsonl:1: "accept" must be true, false or null'),
        ({"accept": None}, 'no question is accepted: set "accept" to true'),
        ({"relevant": {"ovn": 1}}, 'review.jsonl:1: collection "handbook" holds no document "ovn"; it holds for'),
        ({"filter": {"type": "eq", "key": "tame", "value": "x"}}, "review.jsonl:1: the gold filter does not fit"),
        ({"relevant": {}, "filter_judged": False}, "review.jsonl:1: nothing can be judged"),
        ({"collection": None}, 'review.jsonl:1: "collection" is missing or not text'),
        ({"filter_judged": 3}, 'review.jsonl:1: "filter_judged" must be true or false'),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(
    invoke: Callable[..., Result], review: Callable[..., Path], tmp_path: Path, line: dict[str, Any], message: str
):
    done = invoke("collect", "--accept", review(line), "--dataset", tmp_path / "mine")

    assert isinstance(done.exception, BadRequest)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "mine").exists()


def test_lines_that_contradict_each_other_are_refused(review: Callable[..., Path], invoke: Callable[..., Result]):
    other = invoke("collect", "--accept", review({}, {"collection": "notes"}), "--dataset", "x")
    filters = invoke("collect", "--accept", review({"filter": RED}, {"filter": None}), "--dataset", "x")

    assert 'review.jsonl:2: the collection is "notes", but "handbook" before: accept each alone' in str(other.exception)
    assert "review.jsonl:2: the same question as review.jsonl:1 with another filter" in str(filters.exception)
    with pytest.raises(BadRequest, match=r'review\.jsonl:2: the id "q0" is also that of review\.jsonl:1'):
        read_review(review({}, {"id": "q0"}))


def test_no_folder_and_no_review_file_of_somebody_else_is_overwritten(
    invoke: Callable[..., Result], review: Callable[..., Path], routed: Callable[..., Path]
):
    folder = routed({"id": "q", "text": "Where is the reef?", "relevant": {"c": 1}})
    path = review({})

    refused = invoke("collect", "--accept", path, "--dataset", folder)
    again = invoke("collect", "--collection", "handbook", "--out", path)

    assert "it exists and was not written by `eval collect`" in str(refused.exception)
    assert "the file exists and may hold decisions" in str(again.exception)


@pytest.mark.parametrize(
    "arguments",
    [["--collection", "handbook"], ["--accept", "x"], ["--accept", "x", "--dataset", "y", "--out", "z"], []],
)
def test_the_two_steps_are_not_mixed(invoke: Callable[..., Result], arguments: list[str]):
    assert isinstance(invoke("collect", *arguments).exception, BadRequest)


def test_without_feedback_there_is_nothing_to_review(invoke: Callable[..., Result], tmp_path: Path):
    done = invoke("collect", "--collection", "handbook", "--out", tmp_path / "review.jsonl")

    assert (done.exception, done.stdout) == (None, "0 candidates from 0 questions asked\n")
    assert not (tmp_path / "review.jsonl").exists()
