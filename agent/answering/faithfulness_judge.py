"""Judge: ask a model in one structured call which passages support each sentence of an answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

import prompts
from agent.llm.model import Model, ModelFailed
from agent.types import AnswerSentence

STAGE = "judge"


class Verdict(BaseModel):
    """The model's verdict on one sentence: its number, whether it is supported, and numbers of supporting passages."""

    sentence: int
    supported: bool
    passages: list[int] = []


class Verdicts(BaseModel):
    verdicts: list[Verdict]


async def judge_faithfulness(
    model: Model,
    sentences: Sequence[AnswerSentence],
    passages: Sequence[str],
    deadline: float,
    key: Mapping[str, Any],
    *,
    templates: prompts.TemplateLibrary | None = None,
) -> tuple[AnswerSentence, ...]:
    """Return the sentences with the model's verdicts in `supported` and `score`.

    A sentence is supported only if the model says so and names an existing passage. A sentence without a verdict is not
    supported. Sentences that claim nothing are unchanged.

    Args:
        sentences: already checked by rules. A sentence that is not judged and cites nothing claims nothing.
        passages: text of each citation in the prompt, from number 1.
        deadline: time of `time.monotonic()`.
        key: identifies the question and its passages in a recording.
        templates: the tenant's prompt templates; None means the packaged ones.
    Raises:
        ModelFailed: there are no verdicts in time.
    """
    numbered = [(n, one) for n, one in enumerate(sentences, 1) if one.supported is not None or one.citations]
    if not numbered:
        return tuple(sentences)
    shown = "\n".join(f"{n}. {' '.join(one.text.split())}" for n, one in numbered)
    given = "\n\n".join(passages)
    values = {"passages": given, "sentences": shown, "fence": prompts.fence(given, shown)}
    asked = {**key, "sentences": [one.text for _, one in numbered]}
    ask = (templates or prompts.packaged_templates()).load(STAGE).messages(values)
    reply = await model.complete(ask, stage=STAGE, deadline=deadline, key=asked, schema=Verdicts)
    if not isinstance(reply.parsed, Verdicts):
        raise ModelFailed("its reply contains no verdicts")
    by = {
        one.sentence: one.supported and any(1 <= n <= len(passages) for n in one.passages)
        for one in reply.parsed.verdicts
    }
    judged = {n for n, _ in numbered}
    return tuple(
        one.model_copy(update={"supported": by.get(n, False), "score": float(by.get(n, False))}) if n in judged else one
        for n, one in enumerate(sentences, 1)
    )
