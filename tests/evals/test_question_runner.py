"""Asking for answers: judged by a scripted model over real HTTP, several at a time, stopped and continued."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.settings import Settings
from agent.testing import ScriptedServer
from evals.datasets import load
from evals.question_runner import QuestionRunOptions
from evals.run import run
from evals.run_checkpoint import checkpoint_path
from evals.run_display import show_run
from evals.run_files import load_run
from retrievers.core.errors import BadRequest

Write = Callable[..., Path]

LAMP = {
    "id": "lamp", "text": "Where is the lamp?", "relevant": {"b": 1, "c": 1}, "answer": "30 lamps", "class": "facts",
}  # fmt: skip
OVEN = {"id": "oven", "text": "What happened to the oven?", "relevant": {"a": 1}, "answer": None, "class": "facts"}
REEF = {"id": "reef", "text": "Is the reef near?", "relevant": {"c": 1}, "answer": "near", "class": "facts"}
ZEBRA = {"id": "zebra", "text": "What does a zebra cost?", "answerable": False, "class": "unknown"}


def silent(_line: str) -> None:
    pass


def asking(settings: Settings, server: ScriptedServer, **given: Any) -> Settings:
    """Settings with the scripted model; rules read the questions, so the model only answers and judges."""
    model = {"llm": "openai/scripted", "llm_base_url": server.base_url, "llm_api_key": "any", "intent": "rules"}
    patient = {"timeout_s": 60, "source_timeout_s": 30, "answer_timeout_s": 120, "loop_calls": 0}
    return Settings(database_url=settings.database_url, **{**model, **patient, **given})


def reply(body: dict[str, Any]) -> str:
    """Answer, or grade, by the words of the prompt; the answer about the lamp comes last."""
    user = "\n".join(str(turn["content"]) for turn in body["messages"])
    if "You grade the answers" in user:
        if "What happened to the oven?" in user:
            return "I would rather not say."
        return json.dumps({"grade": "partly" if "near" in user else "wrong", "why": "Compared."})
    if LAMP["text"] in user:
        time.sleep(0.3)
        return "The lamp is lit [1]. There are 31 lamps."
    if OVEN["text"] in user:
        return "The oven is repaired [1]."
    return "It is near [1]." if REEF["text"] in user else "The documents do not say what a zebra costs."


async def test_answers_are_judged_by_their_text_their_citations_and_a_model(
    routed: Write, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    dataset, notes = load(routed(LAMP, OVEN, REEF, ZEBRA)), list[str]()
    options, recording = QuestionRunOptions(answers=True, judge=True, at_once=4), tmp_path / "calls.jsonl"
    with ScriptedServer(reply) as server:
        recorded = asking(settings, server, llm=f"record:{recording}=openai/scripted")
        found = await run(dataset, recorded, notes.append, options=options)
        calls = len(server.requests)
        replayed = await run(dataset, asking(settings, server, llm=f"replay:{recording}"), silent, options=options)
        assert len(server.requests) == calls

    lamp, oven, reef, zebra = found["questions"]
    assert [row["id"] for row in found["questions"]] == ["lamp", "oven", "reef", "zebra"]
    assert (lamp["cited"], lamp["metrics"]["answer_match"], lamp["metrics"]["judged"]) == (["b"], 0.0, 0.0)
    assert (lamp["metrics"]["citation_precision"], lamp["metrics"]["citation_recall"]) == (1.0, 0.5)
    assert (lamp["metrics"]["supported"], lamp["unsupported"]) == (0.5, ["There are 31 lamps."])
    assert (lamp["completion_tokens"], lamp["model"], lamp["metrics"]["R@100"]) == (9, "scripted", None)
    # The judge's reply about the oven is no JSON.
    assert (oven["metrics"]["judged"], oven["metrics"]["answer_match"], oven["metrics"]["supported"]) == (None, None, 1)
    assert any(line.startswith("question oven: the answer is not judged: ") for line in notes)
    assert (reef["metrics"]["judged"], reef["metrics"]["answer_match"], reef["grade"]["why"]) == (0.5, 1.0, "Compared.")
    assert (zebra["metrics"]["refused_right"], zebra["metrics"]["judged"], zebra["grade"]) == (1.0, None, None)
    assert found["by_class"]["unknown"]["refused_right"] == 1.0
    assert (found["metrics"]["judged"], found["metrics"]["answer_match"]) == (0.25, 0.5)
    # 9 words about the lamp, 5 about the oven, 4 about the reef, 9 about the zebra.
    assert found["usage"]["completion_tokens"] == 27
    assert found["usage"]["prompt_tokens"] == sum(row["prompt_tokens"] for row in found["questions"])
    assert (found["at_once"], found["answers"], found["prompts"].keys() >= {"grade/v1"}) == (4, True, True)
    assert replayed["metrics"] == found["metrics"]

    (tmp_path / "run.json").write_text(json.dumps(found))
    assert load_run(tmp_path / "run.json").questions[2].grade.score == 0.5  # type: ignore[union-attr]
    capsys.readouterr()
    show_run(found)
    shown = capsys.readouterr().out
    assert "refused_right" in shown
    assert "4 questions at a time" in shown
    assert "1 answers are not judged" in shown


async def test_a_stopped_run_goes_on_with_the_questions_that_are_left(
    routed: Write, settings: Settings, tmp_path: Path
):
    dataset, out, notes = load(routed(OVEN, LAMP, REEF)), tmp_path / "run.json", list[str]()
    waits, let_go = threading.Event(), threading.Event()

    def waiting(body: dict[str, Any]) -> str:
        if LAMP["text"] in str(body["messages"][-1]["content"]):
            waits.set()
            let_go.wait(60)
        return reply(body)

    options = QuestionRunOptions(answers=True)
    with ScriptedServer(waiting) as server:
        model = asking(settings, server)
        stopped = asyncio.create_task(run(dataset, model, notes.append, options=options, out=out))
        assert await asyncio.to_thread(waits.wait, 60)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        let_go.set()

        with pytest.raises(BadRequest, match=r"go on with --resume, or delete the file"):
            await run(dataset, model, silent, options=options, out=out)
        other = model.model_copy(update={"fusion": "rrf"})
        with pytest.raises(BadRequest, match=r'settings fusion: "convex" then, "rrf" now'):
            await run(dataset, other, silent, options=options, out=out, resume=True)
        changed = load(routed(OVEN, LAMP, {**REEF, "answer": "far"}))
        with pytest.raises(BadRequest, match=r"the dataset has changed"):
            await run(changed, model, silent, options=options, out=out, resume=True)
        load(routed(OVEN, LAMP, REEF))
        server.requests.clear()
        found = await run(dataset, model, notes.append, options=options, out=out, resume=True)

    assert f"1 of 3 answers are in {checkpoint_path(out)}: go on with --resume" in notes
    assert "1 questions of the stopped run are not asked again" in notes
    assert [row["id"] for row in found["questions"]] == ["oven", "lamp", "reef"]
    asked = [str(one.body["messages"][-1]["content"]) for one in server.requests]
    assert [LAMP["text"] in one for one in asked] == [True, False]
    assert [REEF["text"] in one for one in asked] == [False, True]
    assert found["metrics"]["answer_match"] == 0.5
