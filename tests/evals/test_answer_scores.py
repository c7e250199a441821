"""The measures of answers, on hand-made answers, and the grades of a scripted model over real HTTP."""

from typing import Any

import pytest

from agent.llm.model_factory import open_model
from agent.testing import ScriptedServer
from agent.types import Answer, AnswerSentence, Citation, Intent, RankedHit, Result
from evals.answer_scores import answer_match, cited_documents, missing_answer_scores, refused_right, score_answer
from evals.datasets import LabelledQuestion
from evals.grading import grade
from prompts import packaged_templates


@pytest.mark.parametrize(
    ("gold", "text", "wanted"),
    [
        ("30 days", "You have **30 Days** of leave [1].", 1),
        ("30 days", "You have 130 days of leave, or 30.5 days.", 0),
        ("the late night shift", "The Night-Shift cleans it.", 0),
        ("night shift", "The Night-Shift cleans it.", 1),
        ("night shift", "The night is long. A shift ends.", 0),
        ("1,200 euros", "It costs 1200 Euros.", 1),
        ("1200 euros", "It costs 1\u202f200 euros, not more.", 1),
        ("12.5%", "A share of 12.50 per cent.", 1),
        ("12.5 % of sales", "It is 12.5 percent of sales.", 1),
        ("ＡＢＣ", "It is called abc.", 1),
        ("30天", "年假有30天。", 1),
        ("30天", "年假有130天。", 0),
        ("夜班", "烤箱由夜班清洁 [1]。", 1),
        ("Kafka", "使用Kafka集群。", 1),
        ("007", "Agent 7 did it.", 0),
        ("2.1.0", "Version 2.1.0 is out.", 1),
        ("2.0 litres", "It holds 2 litres.", 1),
        (42, "There are 42 documents [1][2].", 1),
        (1, "There are 42 documents [1][2].", 0),
        (1, "1. Open the door.\n2. Close it.", 0),
        (3, "Three teams work on it.", 1),
        (3000000, "It cost 3 million euros.", 1),
        (3, "It cost 3 million euros.", 0),
        (42.0, "It is 42.", 1),
        (1200, "It is 1,200.", 1),
        (-5, "It fell to -5 degrees.", 1),
        (5, "It fell to -5 degrees.", 0),
        (6, "It was published on 2025-06-30.", 0),
        (2025, "It was published on 2025-06-30.", 1),
        (33.333333333, "It is 33.33 on average.", 1),
        (33.333333333, "It is 33 on average.", 0),
        (["red", "blue"], "Blue and red.", 1),
        (["red", "blue"], "Red only.", 0),
        ([2, "lamp"], "Two lamps.", 0),
        ([2, "lamps"], "Two lamps.", 1),
        ({"red": 2, "blue": 1}, "Red has 2 and blue has 1.", 1),
        ({"red": 2, "blue": 3}, "Red has 2 and blue has 1.", 0),
        ("yes", "", 0),
        (None, "Anything.", None),
        (True, "Yes, true.", None),
        ("?!", "Anything.", None),
        ([], "Anything.", None),
    ],
)
def test_the_expected_answer_is_found_in_the_text(gold: Any, text: str, wanted: float | None):
    assert answer_match(gold, text) == wanted


INTENT = Intent(kind="retrieve", question="?", language="en", searches=(), collections=())
FOUND: dict[str, Any] = {
    "trace_id": "", "query": "?", "intent": INTENT, "plan": (), "hits": (), "outcomes": (), "status": "found",
    "took_ms": 1.0,
}  # fmt: skip


def answer(*sentences: str, documents: str = "", **given: Any) -> Answer:
    """An answer of these sentences; its passages are of the documents "a", "b", ... in turn."""
    text, said = " ".join(sentences), []
    for one in sentences:
        start = text.index(one)
        said.append(AnswerSentence(text=one, start=start, end=start + len(one), citations=(3,)))
    citations = tuple(
        Citation(n=n, document_id=id, chunk_id=f"c/{id}#0", title=id, url=None, start=0, end=9)
        for n, id in enumerate(documents, 1)
    )
    made = {"messages": (), "prompt": "", "citations": citations, "tokens": 1, "answer": text, "answered": True}
    return Answer(**{**FOUND, **made, "sentences": tuple(said), "model": "m", **given})


def test_the_documents_that_the_text_cites_are_compared_with_the_right_ones():
    # It cites a, twice, and c; d is not shown, and 3 in `citations` of the sentences was added by the check.
    made = answer("Red [1].", "Blue [1, 3].", "Green [9].", documents="abca", faithfulness=0.5)

    assert cited_documents(made) == ["a", "c"]
    assert score_answer(made, gold="blue", relevant={"a", "b", "d"}) == {
        "answer_match": 1.0, "supported": 0.5, "citation_precision": 1 / 2, "citation_recall": 1 / 3
    }  # fmt: skip


def test_an_answer_that_cites_nothing_has_no_right_citation_and_one_that_no_model_wrote_is_not_judged_by_them():
    silent = score_answer(answer("Red.", documents="a"), gold=None, relevant={"a"})
    passages = score_answer(answer("Red [1].", documents="a", model=None), gold="red", relevant={"a"})

    assert (silent["citation_precision"], silent["citation_recall"], silent["answer_match"]) == (0.0, 0.0, None)
    assert passages == {"answer_match": 1.0, "supported": None}
    unjudged = score_answer(answer("Red [1].", documents="a"), gold="red", relevant=())
    assert unjudged.keys() == {"answer_match", "supported"}
    assert (missing_answer_scores(gold="red"), missing_answer_scores(gold=None)) == (
        {"answer_match": 0.0},
        {"answer_match": None},
    )


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        (answer("Red.", status="weak"), 1),
        (answer("Red.", status="nothing_found", model=None, answered=False), 1),
        (answer("Red.", status="refused", model=None, answered=False), 1),
        (answer("The documents do not say.", answered=False), 1),
        (answer("Red."), 0),
        (answer("A passage.", model=None, answered=False), 0),
        (Result(**{**FOUND, "status": "weak"}), 1),
        (Result(**FOUND), 0),
    ],
)
def test_a_question_without_an_answer_must_not_be_answered(result: Result, wanted: float):
    assert refused_right(result, answerable=False) == wanted
    assert refused_right(result, answerable=True) is None


# Grading


def answered(text: str, **given: Any) -> Answer:
    """An answer of one sentence over one passage."""
    hit = RankedHit(
        rank=1, id="c/a#0", document_id="a", title="Oven", text="It is repaired.", start=0, end=15, url=None,
        metadata={}, score=1.0, scores={}, sources=("vector",), ranks={"vector": 1}, highlights=(),
    )  # fmt: skip
    return answer(text, documents="a", hits=(hit,), **given)


@pytest.mark.parametrize(
    ("reply", "score", "why"),
    [
        ('{"grade": "right", "why": "It says so."}', 1.0, "It says so."),
        ('```json\n{"grade": "partly"}\n```', 0.5, ""),
        ('{"grade": "wrong", "why": "No."}', 0.0, "No."),
    ],
)
async def test_a_model_s_grade_is_a_score_and_the_model_sees_what_is_compared(reply: str, score: float, why: str):
    with ScriptedServer([reply]) as server:
        model = open_model("openai/scripted", base_url=server.base_url, api_key="any")
        assert model is not None
        question = LabelledQuestion("q", "Is the oven whole?", "en", relevant={"a": 1}, answer=["yes", 2])
        graded = await grade(model, question, answered("It is whole [1]."), templates=packaged_templates())
        (asked,) = server.requests

    assert graded is not None
    assert (graded.score, graded.why, graded.usage.completion_tokens) == (score, why, len(reply.split()))
    shown = asked.body["messages"][-1]["content"]
    compared = ("Is the oven whole?", '["yes", 2]', "Oven\nIt is repaired.", "It is whole [1].")
    assert [one for one in compared if one not in shown] == []


async def test_what_no_model_wrote_is_wrong_without_a_call_and_what_cannot_be_compared_gets_no_grade():
    open_question = LabelledQuestion("q", "Hello?", "en")
    known = LabelledQuestion("q", "Is the oven whole?", "en", answer="yes")
    with ScriptedServer() as server:
        model = open_model("openai/scripted", base_url=server.base_url, api_key="any")
        assert model is not None
        nobody = await grade(model, known, answered("Passage.", model=None), templates=packaged_templates())
        greeting = await grade(model, open_question, answered("Hello!"), templates=packaged_templates())
        assert server.requests == []
        failed = await grade(model, known, answered("Yes [1]."), templates=packaged_templates())

    assert (nobody and nobody.score, greeting) == (0.0, None)
    assert failed is not None
    assert (failed.score, failed.usage.completion_tokens) == (None, 0)
    assert failed.why
