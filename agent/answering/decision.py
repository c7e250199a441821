"""The decision record: how a result came about, from the first reading to the passages of the prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import prompts
from agent.answering.lookups import Lookups
from agent.intent.reading import Stated
from agent.llm.calls import Calls
from agent.retrieval.execute import StepResult
from agent.retrieval.fusion import Fused
from agent.retrieval.rerank.stage import Reranking
from agent.retrieval.rounds import Round
from agent.retrieval.search import SearchResults
from agent.types import Intent, Request
from retrievers.core.filters import Filter
from retrievers.core.types import Scope


@dataclass(frozen=True, slots=True)
class Decision:
    """How a result came about, in addition to what the result itself says.

    Attributes:
        first: the first reading, used by the first searches.
        later: the model's reading, which is then the result's intent; None if it did not arrive.
        answers: the result of every step of the plan, with its query and raw hits, in plan order.
        ranking: the fused ranking before reranking.
        page: the result's hits, with their chunks.
        stated: constraints that the first reading found in the question, each with its confidence.
        calls: the model calls; an abandoned call may be added after the result is returned.
        weights: {search of the first round: weight of full text against vectors}; {} if the fusion method has none.
        rounds: the rounds of searches, each with the judgement on its hits.
        wanted: the filter that every hit satisfies.
        elapsed_ms: milliseconds by stage, in order.
        reranking: the record of the reranking; None if there was none.
        passages: text of each citation in the prompt, from number 1; empty if no prompt was made.
        found: the search results that `ResultMerger.fuse` merged.
        templates: the tenant's prompt templates.
        lookups: the model's own searches in mode "tool", which run after this decision.
    """

    tenant: str
    request: Request
    scope: Scope
    first: Intent
    later: Intent | None
    answers: tuple[StepResult, ...]
    ranking: tuple[Fused, ...]
    page: tuple[Fused, ...]
    stated: tuple[Stated, ...] = ()
    calls: Calls = field(default_factory=Calls)
    weights: Mapping[str, float] = field(default_factory=dict)
    elapsed_ms: Mapping[str, float] = field(default_factory=dict)
    wanted: Filter | None = None
    reranking: Reranking | None = None
    passages: tuple[str, ...] = ()
    found: SearchResults | None = None
    rounds: tuple[Round, ...] = ()
    templates: prompts.Library = field(default_factory=prompts.packaged)
    lookups: Lookups | None = None
