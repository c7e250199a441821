"""The decision: how a result came about, from the first reading to the passages of the prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import prompts
from agent.answering.lookups import Lookups
from agent.intent.reading import Stated
from agent.llm.model import Calls
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
    """How a result came about, beside what the result says itself.

    Attributes:
        first: the reading that the first searches ran by.
        later: the model's, when it arrived; then it is the result's intent.
        answers: every step of the plan with its query and its raw hits, in the plan's order.
        ranking: the fused ranking that pages are cut from, before reranking.
        page: the result's hits, with their chunks.
        stated: the constraints the first reading found in the question, with how sure each is.
        calls: of the model; one that was given up may be noted after the result is there.
        weights: full text's share of the fused score, per search of the first round where the method has one.
        rounds: how it was judged what was found, and searched on.
        wanted: the filter that every hit satisfies.
        elapsed_ms: per stage, in their order.
        reranking: what a reranker made of the ranking; None where none was to.
        passages: what stands under each number of the prompt, when one was made.
        found: what `Pipeline.fuse` made the ranking of.
        templates: of prompts, as they are in force for the tenant.
        lookups: where the model searches itself: its searches, made after this was decided.
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
