"""The decision record: how a result came about, from the first reading to the passages of the prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import prompts
from agent.answering.tool_searches import ToolSearches
from agent.intent.reading import ConstraintRecord
from agent.llm.call_log import CallLog
from agent.retrieval.fusion import FusedHit
from agent.retrieval.plan_execution import StepResult
from agent.retrieval.rerank.reordering import RerankRecord
from agent.retrieval.search_loop import SearchRound
from agent.retrieval.search_stage import SearchResults
from agent.types import Intent, Request
from retrievers.core.filters import Filter
from retrievers.core.types import Scope


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """How a result came about, in addition to what the result itself says.

    Attributes:
        first_intent: the first reading, used by the first searches.
        model_intent: the model's reading, which is then the result's intent; None if it did not arrive.
        step_results: the result of every step of the plan, with its query and raw hits, in plan order.
        ranking: the fused ranking before reranking.
        page_hits: the result's hits, with their chunks.
        stated: constraints that the first reading found in the question, each with its confidence.
        calls: the model calls; an abandoned call may be added after the result is returned.
        lexical_weights: {search of the first round: weight of full text}; {} if the fusion method has none.
        rounds: the rounds of searches, each with the judgement on its hits.
        required_filter: the filter that every hit satisfies.
        elapsed_ms: milliseconds by stage, in order.
        reranking: the record of the reranking; None if there was none.
        passages: text of each citation in the prompt, from number 1; empty if no prompt was made.
        search_results: the search results that `FusionStage.fuse` merged.
        templates: the tenant's prompt templates.
        tool_searches: the model's own searches in mode "tool", which run after this decision.
    """

    tenant: str
    request: Request
    scope: Scope
    first_intent: Intent
    model_intent: Intent | None
    step_results: tuple[StepResult, ...]
    ranking: tuple[FusedHit, ...]
    page_hits: tuple[FusedHit, ...]
    stated: tuple[ConstraintRecord, ...] = ()
    calls: CallLog = field(default_factory=CallLog)
    lexical_weights: Mapping[str, float] = field(default_factory=dict)
    elapsed_ms: Mapping[str, float] = field(default_factory=dict)
    required_filter: Filter | None = None
    reranking: RerankRecord | None = None
    passages: tuple[str, ...] = ()
    search_results: SearchResults | None = None
    rounds: tuple[SearchRound, ...] = ()
    templates: prompts.TemplateLibrary = field(default_factory=prompts.packaged_templates)
    tool_searches: ToolSearches | None = None
