import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent.llm.model import ModelFailed
from agent.llm.model_factory import open_model
from agent.service.factory import open_service
from agent.settings import Settings
from agent.testing import ScriptedServer
from evals.cli import app
from evals.known_items import known_items
from evals.question_drafting import DraftedQuestions, DraftingResult, draft_questions, invented_names
from evals.review import CandidateQuestion, read_review, write_review
from evals.sampling import DrawOptions
from retrievers.core.errors import BadRequest
from retrievers.core.types import unrestricted_viewer
from retrievers.ingest.documents import Document

ALL = unrestricted_viewer("default")
DOCUMENTS = [
    Document("1", "oven", "Cleaning the oven", "The oven of the bakery is cleaned every Friday by the night shift.",
             metadata={"team": "bakers", "day": "2025-01-31"}),
    Document("2", "dough", "Resting dough", "Dough rests overnight in the cellar before it is baked by the crew.",
             metadata={"team": "bakers", "day": "2025-06-30"}),
    Document("3", "lamp", "Lighting the lamp", "The keeper lights the lamp at dusk so that ships avoid the reef.",
             metadata={"team": "keepers", "day": "2026-02-01"}),
    Document("4", "reef", "The reef", "Divers measure the depth of the reef every autumn with a sonar.",
             metadata={"team": "keepers", "day": "2026-03-01"}),
    Document("5", "leave-1", "Leave", "Everybody has thirty days of leave a year, and two more after ten years.",
             metadata={"team": "people", "day": "2026-03-02"}),
    Document("6", "leave-2", "Leave", "Too short.", metadata={"team": "people", "day": "2026-03-03"}),
]  # fmt: skip


def silent(_line: str) -> None:
    pass


async def made(settings: Settings, count: int, seed: int = 1) -> list[CandidateQuestion]:
    async with open_service(settings) as service:
        await service.ingest(DOCUMENTS, "harbour")
        return await known_items(service, "harbour", silent, DrawOptions(ALL, count, seed))


async def test_the_three_kinds_take_turns_with_labels_that_hold(settings: Settings):
    found = await made(settings, 6)

    texts = {document.id: document for document in DOCUMENTS}
    for one in found:
        question, (id,) = one.question, one.question.relevant
        document = texts[id]
        assert (one.accept, question.relevant) == (True, {id: 1})
        if question.klass == "title":
            # "Leave" is the title of two documents.
            assert (question.text, document.title != "Leave") == (document.title, True)
        elif question.klass == "sentence":
            assert question.text in document.text
        else:
            team, year = document.metadata["team"], document.metadata["day"][:4]
            dated = {"type": "and", "filters": [
                {"type": "gte", "key": "day", "value": f"{year}-01-01"},
                {"type": "lt", "key": "day", "value": f"{int(year) + 1}-01-01"}]}  # fmt: skip
            stated = [{"type": "eq", "key": "team", "value": team}, dated]
            assert question.filter in ({"type": "and", "filters": stated}, {"type": "and", "filters": stated[::-1]})
            assert question.text.startswith("documents with ")
            assert f"team {team}" in question.text
            assert f"day in {year}" in question.text
        assert question.judges_filter == (question.klass == "value")
    assert {one.question.klass for one in found} == {"title", "value", "sentence"}


async def test_a_seed_gives_the_same_questions_and_another_seed_others(settings: Settings, tmp_path: Path):
    first, again, other = await made(settings, 3), await made(settings, 3), await made(settings, 3, seed=2)

    assert first == again
    assert {one.question.id for one in first} != {one.question.id for one in other}
    write_review(tmp_path / "review.jsonl", first)
    read = read_review(tmp_path / "review.jsonl")
    assert [(one.question.id, one.question.filter, one.accept) for one in read] == [
        (one.question.id, one.question.filter, True) for one in first
    ]


# Questions drafted by a model.

GOOD = {"question": "How often do the bakers have the oven cleaned?", "answer": "every  friday",
        "conditions": [{"field": "team", "operator": "eq", "value": "bakers"}]}  # fmt: skip
PLAIN = {"question": "Who cleans it?", "answer": "the night shift", "conditions": []}


async def drafted(
    settings: Settings, reply: Callable[[dict[str, Any]], str] | list[dict[str, Any]], *, documents: int = 1,
    count: int = 10,
) -> tuple[DraftingResult, list[Any]]:  # fmt: skip
    """The drafts of a model that replies with these questions for every document, and the prompts it got."""
    said = DraftedQuestions.model_validate({"questions": reply}).model_dump_json() if isinstance(reply, list) else ""
    with ScriptedServer(reply if callable(reply) else [said] * documents) as server:
        async with open_service(settings) as service:
            await service.ingest(DOCUMENTS[:documents], "harbour")
            model = open_model("openai/scripted", base_url=server.base_url, api_key="any")
            assert model is not None
            try:
                found = await draft_questions(service, model, "harbour", silent, DrawOptions(ALL, count))
            finally:
                await model.aclose()
        return found, [request.body["messages"] for request in server.requests]


async def test_a_draft_that_passes_the_checks_waits_for_a_person(settings: Settings):
    found, (messages,) = await drafted(settings, [GOOD, PLAIN])

    oven, who = found.candidates
    assert (oven.accept, oven.question.relevant, oven.question.klass) == (None, {"oven": 1}, "drafted")
    assert oven.question.filter == {"type": "eq", "key": "team", "value": "bakers"}
    assert (who.question.filter, who.question.judges_filter) == (None, True)
    assert oven.origin == [{"document": "oven", "answer": "every friday"}]
    assert not found.dropped
    shown = messages[-1]["content"]
    assert "- team (string): bakers" in shown
    assert "cleaned every Friday" in shown


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "every Monday"}, "its answer is not in the document"),
        ({"answer": ""}, "its answer is not in the document"),
        ({"conditions": [{"field": "team", "value": "keepers"}]}, "its filter excludes the document"),
        ({"conditions": [{"field": "tame", "value": "bakers"}]}, "its filter does not fit the collection"),
        ({"conditions": [{"field": "team", "operator": "no", "value": "b"}]}, "its filter does not fit the collection"),
        ({"question": "Does Karen Miller clean the oven?"}, "it names what the document does not"),
        ({"question": " "}, "the question is empty or too long"),
    ],
)  # fmt: skip
async def test_a_draft_that_fails_a_check_is_dropped_and_counted(
    settings: Settings, change: dict[str, Any], reason: str
):
    found, _ = await drafted(settings, [GOOD | change, PLAIN])

    assert [one.question.text for one in found.candidates] == ["Who cleans it?"]
    assert found.dropped == {reason: 1}


async def test_the_same_draft_twice_is_one_and_no_more_are_made_than_wanted(settings: Settings):
    twice, _ = await drafted(settings, [PLAIN, PLAIN | {"question": "who  CLEANS it?"}])
    one, _ = await drafted(settings, [GOOD, PLAIN], count=1)

    assert (len(twice.candidates), twice.dropped) == (1, {"it was drafted before": 1})
    assert len(one.candidates) == 1


async def test_a_document_without_a_usable_reply_is_passed_over(settings: Settings):
    def reply(body: dict[str, Any]) -> str:
        text = body["messages"][-1]["content"]
        if "The oven of the bakery" in text:
            return "I would rather not."
        held = next(one for one in DOCUMENTS if one.text in text)
        questions = [{"question": f"What about {held.id}?", "answer": held.text, "conditions": []}]
        return json.dumps({"questions": questions})

    found, _ = await drafted(settings, reply, documents=4)

    assert {id for one in found.candidates for id in one.question.relevant} == {"dough", "lamp", "reef"}
    assert found.dropped == {"the model gave no usable reply": 1}


async def test_no_more_documents_are_sent_to_the_model_than_questions_are_wanted(settings: Settings):
    found, asked = await drafted(settings, [PLAIN | {"answer": "nowhere"}], documents=6, count=2)

    assert (found.candidates, found.dropped, len(asked)) == ([], {"its answer is not in the document": 2}, 2)


async def test_the_command_drafts_from_a_recording(settings: Settings, tmp_path: Path):
    async with open_service(settings) as service:
        await service.ingest(DOCUMENTS[:1], "harbour")
    key = {"document": "oven", "collection": "harbour", "count": 2}
    call = {"stage": "questions", "key": key, "reply": {"questions": [GOOD, PLAIN | {"answer": "the day shift"}]}}
    recording, out = tmp_path / "recording.jsonl", tmp_path / "review.jsonl"
    recording.write_text(json.dumps(call) + "\n")
    given = ["--set", f"DATABASE_URL={settings.database_url}", "--set", f"LLM=replay:{recording}"]

    done = await asyncio.to_thread(
        CliRunner().invoke, app, ["questions", "harbour", "--out", str(out), *given, "--json"], standalone_mode=False
    )

    assert done.exception is None
    assert json.loads(done.stdout) == {
        "file": str(out), "candidates": 1, "by_class": {"drafted": 1}, "to_correct": 0,
    }  # fmt: skip
    assert "1 drafts dropped: its answer is not in the document" in done.stderr
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["accept"] is None
    assert json.loads(line)["filter"] == {"type": "eq", "key": "team", "value": "bakers"}


async def test_a_model_that_never_answers_ends_the_command(settings: Settings):
    with pytest.raises(ModelFailed):
        await drafted(settings, lambda _: "I would rather not.", documents=5)


def test_a_name_is_invented_unless_the_source_has_it_in_some_form():
    source = "In March Ms Okafor moved the Danish team to Tollgate."

    assert invented_names("Where did Okafor move the team in Denmark?", source) == []
    assert invented_names("Where did Karen Miller move to Tollgate?", source) == ["karen", "miller"]


async def test_a_collection_that_is_not_there_is_named(settings: Settings):
    async with open_service(settings) as service:
        await service.ingest(DOCUMENTS[:1], "harbour")
        with pytest.raises(BadRequest, match='there is no collection "nope"; there are: "harbour"'):
            await known_items(service, "nope", silent, DrawOptions(ALL, 1))
