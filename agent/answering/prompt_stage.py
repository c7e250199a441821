"""Make the prompt from a result and its decision record."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.answering import prompt_builder, tool_searches
from agent.answering.context_expansion import SurroundingPassages, load_surroundings
from agent.answering.decision_record import DecisionRecord
from agent.intent import collection_choice as scoping
from agent.llm.token_estimates import estimate_tokens
from agent.options import prompt_fields
from agent.retrieval.passage_loader import PassageLoader
from agent.retrieval.result_builder import distinct
from agent.retrieval.stage_times import StageTimes
from agent.settings import Settings
from agent.types import AugmentRequest, Citation, Message, Prompt, Result
from retrievers.core.errors import Unavailable
from retrievers.core.filters import describe_filter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Chunk, ChunkId
from retrievers.text import chinese_dictionary
from retrievers.text.prompt_sanitising import sanitise_prompt_text


@dataclass(frozen=True, slots=True)
class PromptStage:
    """Makes prompts. Arguments as for `Pipeline`."""

    settings: Settings
    loader: PassageLoader

    async def build(
        self,
        request: AugmentRequest,
        result: Result,
        decision: DecisionRecord,
        started: float,
        *,
        shown: Sequence[Citation] | None = None,
    ) -> tuple[Prompt, DecisionRecord]:
        """Return the prompt made from a result, and the decision with its passages.

        Args:
            started: when the request arrived, on the clock of `time.monotonic`.
            shown: citations of earlier searches, to make the answer of the search tool; None to make a whole prompt.
        """
        times = StageTimes(dict(decision.elapsed_ms))
        chunks = [hit.chunk for hit in decision.page_hits if hit.chunk is not None]
        tool_numbering = None
        if shown is not None:
            known = {chunk.id: tool_searches.shown_number(chunk, shown) for chunk in chunks}
            again = sorted({number for number in known.values() if number is not None})
            tool_numbering = prompt_builder.ToolNumbering(len(shown) + 1, again)
            chunks = [chunk for chunk in chunks if known[chunk.id] is None]
        left_s = started + (request.timeout_s or self.settings.timeout_s) - time.monotonic()
        surroundings, degraded = await self._surroundings(request, decision, chunks, left_s)
        # A dropped choice of collections is not mentioned: the service chose them, the question did not state them.
        relaxed = distinct(
            *(describe_filter(one.dropped) for one in result.relaxed if one.reason != scoping.RELAXED_REASON)
        )
        level = decision.search_results.level if decision.search_results is not None else None
        # Constraints that only later rounds left out may still hold for the first round's hits.
        dropped_conditions = distinct(*(describe_filter(one.dropped) for one in (level.dropped if level else ())))
        fields = prompt_fields.parse_prompt_fields(self.settings.prompt_fields)
        made = prompt_builder.build_prompt(
            _with_original_wording(request.question, result.query),
            [prompt_fields.keep_prompt_fields(chunk, fields) for chunk in chunks],
            budget_tokens=request.budget_tokens,
            template=request.template,
            templates=decision.templates,
            dropped_conditions=dropped_conditions,
            partly_dropped_conditions=[one for one in relaxed if one not in dropped_conditions],
            unapplied_words=[one.what for one in result.intent.rejected] if result.intent.by == "rules" else (),
            was_searched=result.status != "no_retrieval_needed",
            surroundings={
                id: {other: prompt_fields.keep_prompt_fields(chunk, fields) for other, chunk in nearby.items()}
                for id, nearby in surroundings.items()
            },
            total=result.total,
            language=self.settings.language,
            tool_numbering=tool_numbering,
        )
        given = {name: getattr(result, name) for name in Result.model_fields}
        given["degraded"] = distinct(*result.degraded, *degraded)
        given["took_ms"] = round((time.monotonic() - started) * 1000, 3)
        prompt = Prompt.model_construct(
            **given, messages=made.messages, prompt=made.prompt, citations=made.citations, tokens=made.tokens
        )
        times.end_stage("assemble")
        return prompt, replace(decision, elapsed_ms=times.elapsed_ms, passages=made.passages)

    async def _surroundings(
        self, request: AugmentRequest, decision: DecisionRecord, chunks: Sequence[Chunk], left_s: float
    ) -> tuple[SurroundingPassages, tuple[str, ...]]:
        """Return the passages around each ranked passage, and notes for `degraded`.

        ({}, ()) if the request does not ask for them; ({}, ("context_unavailable",)) if they cannot be loaded.
        """
        kind = request.context or self.settings.context
        if kind == "passage":
            return {}, ()

        async def load(ids: Iterable[ChunkId]) -> Mapping[ChunkId, Chunk]:
            return await self.loader.load_chunks(decision.scope, ids, decision.required_filter)

        reading = load_surroundings(chunks, kind, load, budget_tokens=request.budget_tokens)
        try:
            return await wait_within(reading, min(self.settings.source_timeout_s, left_s)), ()
        except (Unavailable, OSError):
            return {}, ("context_unavailable",)


def tool_mode_prompt(request: AugmentRequest, result: Result, decision: DecisionRecord, language: str | None) -> Prompt:
    """Return the prompt for a question for which the model searches by tool calls: instructions and question only."""
    system = decision.templates.load(prompt_builder.TOOL_SYSTEM_TEMPLATE).render({"tool": tool_searches.NAME})
    question = prompt_builder.with_answer_language(sanitise_prompt_text(request.question), language)
    messages = (Message(role="system", content=system), Message.model_construct(role="user", content=question))
    given = {name: getattr(result, name) for name in Result.model_fields}
    tokens = estimate_tokens(system) + estimate_tokens(question)
    return Prompt.model_construct(**given, messages=messages, prompt=question, citations=(), tokens=tokens)


def _with_original_wording(asked: str, question: str) -> str:
    """Return `question`, preceded by `asked` if one of them is Chinese and the other is not: "ASKED (QUESTION)".

    The user's own words show the model the language in which to answer.

    Args:
        asked: the user's own words.
        question: the self-contained question, which a model may have translated.
    """
    return (
        question
        if chinese_dictionary.contains_chinese(asked) == chinese_dictionary.contains_chinese(question)
        else f"{asked} ({question})"
    )
