"""Make the prompt from a result and its decision record."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.answering import assemble, lookups
from agent.answering.context import Around, surroundings
from agent.answering.decision import Decision
from agent.intent import scope as scoping
from agent.llm.token_estimates import estimate_tokens
from agent.options import prompt_fields
from agent.retrieval.loading import PassageLoader
from agent.retrieval.results import distinct
from agent.retrieval.stage_times import StageTimes
from agent.settings import Settings
from agent.types import AugmentRequest, Citation, Message, Prompt, Result
from retrievers.core.errors import Unavailable
from retrievers.core.filters import in_words
from retrievers.core.tasks import within
from retrievers.core.types import Chunk, ChunkId
from retrievers.text import glosses
from retrievers.text.visible import prompt_text


@dataclass(frozen=True, slots=True)
class PromptStage:
    """Makes prompts. Arguments as for `Pipeline`."""

    settings: Settings
    loader: PassageLoader

    async def assemble(
        self,
        request: AugmentRequest,
        result: Result,
        decision: Decision,
        started: float,
        *,
        shown: Sequence[Citation] | None = None,
    ) -> tuple[Prompt, Decision]:
        """Return the prompt made from a result, and the decision with its passages.

        Args:
            started: when the request arrived, on the clock of `time.monotonic`.
            shown: citations of earlier searches, to make the answer of the search tool; None to make a whole prompt.
        """
        times = StageTimes(dict(decision.elapsed_ms))
        chunks = [hit.chunk for hit in decision.page if hit.chunk is not None]
        answering_tool = None
        if shown is not None:
            known = {chunk.id: lookups.number_of(chunk, shown) for chunk in chunks}
            again = sorted({number for number in known.values() if number is not None})
            answering_tool = assemble.AnsweringTool(len(shown) + 1, again)
            chunks = [chunk for chunk in chunks if known[chunk.id] is None]
        left_s = started + (request.timeout_s or self.settings.timeout_s) - time.monotonic()
        around, degraded = await self._surroundings(request, decision, chunks, left_s)
        # A dropped choice of collections is not mentioned: the service chose them, the question did not state them.
        relaxed = distinct(*(in_words(one.dropped) for one in result.relaxed if one.reason != scoping.LET_GO))
        rung = decision.found.rung if decision.found is not None else None
        # Constraints that only later rounds left out may still hold for the first round's hits.
        left_out = distinct(*(in_words(one.dropped) for one in (rung.dropped if rung else ())))
        fields = prompt_fields.parse(self.settings.prompt_fields)
        made = assemble.assemble(
            _in_own_words(request.question, result.query),
            [prompt_fields.with_prompt_fields(chunk, fields) for chunk in chunks],
            budget_tokens=request.budget_tokens,
            template=request.template,
            templates=decision.templates,
            left_out=left_out,
            left_out_in_part=[one for one in relaxed if one not in left_out],
            unread=[one.what for one in result.intent.rejected] if result.intent.by == "rules" else (),
            looked=result.status != "no_retrieval_needed",
            around={
                id: {other: prompt_fields.with_prompt_fields(chunk, fields) for other, chunk in beside.items()}
                for id, beside in around.items()
            },
            total=result.total,
            language=self.settings.language,
            answering_tool=answering_tool,
        )
        given = {name: getattr(result, name) for name in Result.model_fields}
        given["degraded"] = distinct(*result.degraded, *degraded)
        given["took_ms"] = round((time.monotonic() - started) * 1000, 3)
        prompt = Prompt.model_construct(
            **given, messages=made.messages, prompt=made.prompt, citations=made.citations, tokens=made.tokens
        )
        times.ended("assemble")
        return prompt, replace(decision, elapsed_ms=times.elapsed_ms, passages=made.passages)

    async def _surroundings(
        self, request: AugmentRequest, decision: Decision, chunks: Sequence[Chunk], left_s: float
    ) -> tuple[Around, tuple[str, ...]]:
        """Return the passages around each ranked passage, and notes for `degraded`.

        ({}, ()) if the request does not ask for them; ({}, ("context_unavailable",)) if they cannot be loaded.
        """
        kind = request.context or self.settings.context
        if kind == "passage":
            return {}, ()

        async def load(ids: Iterable[ChunkId]) -> Mapping[ChunkId, Chunk]:
            return await self.loader.chunks(decision.scope, ids, decision.wanted)

        reading = surroundings(chunks, kind, load, budget_tokens=request.budget_tokens)
        try:
            return await within(reading, min(self.settings.source_timeout_s, left_s)), ()
        except (Unavailable, OSError):
            return {}, ("context_unavailable",)


def question_prompt(request: AugmentRequest, result: Result, decision: Decision, language: str | None) -> Prompt:
    """Return the prompt for a question for which the model searches by tool calls: instructions and question only."""
    system = decision.templates.load(assemble.TOOL_SYSTEM_TEMPLATE).render({"tool": lookups.NAME})
    question = assemble.in_language(prompt_text(request.question), language)
    messages = (Message(role="system", content=system), Message.model_construct(role="user", content=question))
    given = {name: getattr(result, name) for name in Result.model_fields}
    tokens = estimate_tokens(system) + estimate_tokens(question)
    return Prompt.model_construct(**given, messages=messages, prompt=question, citations=(), tokens=tokens)


def _in_own_words(asked: str, question: str) -> str:
    """Return `question`, preceded by `asked` if one of them is Chinese and the other is not: "ASKED (QUESTION)".

    The user's own words show the model the language in which to answer.

    Args:
        asked: the user's own words.
        question: the self-contained question, which a model may have translated.
    """
    return question if glosses.is_chinese(asked) == glosses.is_chinese(question) else f"{asked} ({question})"
