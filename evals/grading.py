"""Let the model of the setting LLM grade an answer against the expected answer or the passages that it cites."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

import prompts
from agent.llm.model import CallUsage, Model, ModelFailed
from agent.types import Answer, Citation, RankedHit
from evals.answer_scores import cited_passages
from evals.datasets import LabelledQuestion

STAGE = "grade"
TIMEOUT_S = 120.0
SCORES: Mapping[str, float] = {"right": 1.0, "partly": 0.5, "wrong": 0.0}

_PASSAGE_CHARACTERS = 2000
_LONGEST_WHY = 300
_NONE = "none"


class Grade(BaseModel):
    """The model's reply for one answer."""

    grade: Literal["right", "partly", "wrong"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """A grade, or the reason why there is none.

    Attributes:
        score: 1 right, 0.5 partly, 0 wrong; None without a usable reply.
        why: the model's reason, or that of the failure.
        usage: tokens of the grading.
    """

    score: float | None
    why: str
    usage: CallUsage = field(default_factory=CallUsage)

    def to_json(self) -> dict[str, Any]:
        """Return the grade as JSON values for a run file."""
        return {"score": self.score, "why": self.why, **self.usage.to_json()}


async def grade(
    model: Model, question: LabelledQuestion, answer: Answer, *, templates: prompts.TemplateLibrary
) -> GradedAnswer | None:
    """Return the model's grade of an answer.

    An answer that no model wrote consists of passages; it is graded 0 without a call.

    Returns:
        None if there is nothing to compare with: neither an expected answer, nor right documents, nor a cited passage.
    """
    passages = _cited_hits(answer)
    if question.answer is None and not question.relevant and not passages:
        return None
    if answer.model is None:
        return GradedAnswer(0.0, "no model wrote an answer")
    values = {
        "question": _conversation(question),
        "expected": _NONE if question.answer is None else _shown(question.answer),
        "passages": "\n\n".join(passages.values()) or _NONE,
        "answer": answer.answer,
    }
    key = {
        "question": question.text,
        "history": [dict(turn) for turn in question.history],
        "expected": question.answer,
        "answer": answer.answer,
        "passages": list(passages),
    }
    messages = templates.load(STAGE).messages({**values, "fence": prompts.fence(*values.values())})
    deadline = time.monotonic() + TIMEOUT_S
    try:
        reply = await model.complete(messages, stage=STAGE, deadline=deadline, key=key, schema=Grade)
    except ModelFailed as error:
        return GradedAnswer(None, str(error))
    given: Grade = reply.parsed
    return GradedAnswer(SCORES[given.grade], " ".join(given.why.split())[:_LONGEST_WHY], reply.usage)


def _cited_hits(answer: Answer) -> dict[str, str]:
    """Return the title and the shortened text of each hit that the answer cites, by passage id."""
    cited = cited_passages(answer)
    return {
        hit.id: f"{hit.title}\n{hit.text[:_PASSAGE_CHARACTERS]}"
        for hit in answer.hits
        if any(hit.id == one.chunk_id or _overlap(hit, one) for one in cited)
    }


def _overlap(hit: RankedHit, cited: Citation) -> bool:
    return hit.document_id == cited.document_id and hit.start < cited.end and cited.start < hit.end


def _conversation(question: LabelledQuestion) -> str:
    turns = [f"{turn['role']}: {turn['content']}" for turn in question.history]
    return "\n".join([*turns, question.text])


def _shown(gold: Any) -> str:
    return gold if isinstance(gold, str) else json.dumps(gold, ensure_ascii=False)
