"""Build the result of a request from its final ranking."""

import time
import uuid
from collections.abc import Mapping, Sequence

from agent.intent.reading import Reading
from agent.retrieval import relevance
from agent.retrieval.fusion import FusedHit
from agent.retrieval.highlight import Highlighter
from agent.retrieval.paging import HitPage
from agent.retrieval.planning import RequestContext
from agent.retrieval.ranking_stage import FinalRanking
from agent.retrieval.search_loop import LoopResult
from agent.retrieval.search_stage import SearchResults
from agent.types import Intent, RankedHit, Result, Status
from retrievers.core.file_positions import describe_positions, first_page
from retrievers.core.types import ChunkId, Scope
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders


def build_result(
    context: RequestContext,
    reading: Reading,
    intent: Intent,
    loop_result: LoopResult,
    ranked: FinalRanking,
    page: HitPage,
    *,
    listed: bool,
    embedder: Embedder,
) -> Result:
    """Return the result that shows a page of the final ranking.

    Args:
        listed: whether the caller asked for a complete list.
    """
    results = loop_result.results
    least = relevance.packaged_weights().found if ranked.minimum is None else ranked.minimum
    return Result.model_construct(
        trace_id=uuid.uuid4().hex,
        query=intent.question,
        intent=intent,
        plan=tuple(answer.step for answer in results.answers),
        hits=_ranked(page.hits, page.first, intent, ranked.relevance),
        table=ranked.table,
        outcomes=tuple(answer.outcome for answer in results.answers),
        relaxed=(*(results.level.dropped if results.level else ()), *loop_result.relaxed),
        degraded=distinct(
            *reading.degraded,
            *results.degraded,
            *(f"{answer.step.source}_unavailable" for answer in results.answers if answer.is_unavailable),
            *_partial(results, context.scope, embedder),
            *(ranked.reranking.degraded if ranked.reranking else ()),
            *loop_result.degraded,
            *ranked.degraded,
        ),
        status=_status(intent, ranked, page.hits, least=least, listed=listed),
        took_ms=round((time.monotonic() - context.started) * 1000, 3),
        total=page.total,
        complete=page.complete,
    )


def _status(intent: Intent, ranked: FinalRanking, page: Sequence[FusedHit], *, least: float, listed: bool) -> Status:
    """Return the status of the result: `found`, `weak`, `nothing_found` or `no_retrieval_needed`.

    Args:
        page: the hits to be shown.
        least: with relevance (0 to 1) below this for all hits, the status is `weak`.
        listed: whether the caller asked for a complete list; then any document makes the status `found`.
    """
    if intent.kind == "none":
        return "no_retrieval_needed"
    if ranked.table is not None and ranked.table.rows:
        return "found"
    if not ranked.hits and not page:
        return "nothing_found"
    # Without ranked hits, the page has documents whose metadata satisfies the filter.
    is_found = listed or not ranked.hits
    is_found = is_found or any(ranked.relevance.get(hit.id, 1.0) >= least for hit in ranked.hits)
    return "found" if is_found else "weak"


def distinct(*names: str) -> tuple[str, ...]:
    """Return the names without repeats, in order."""
    return tuple(dict.fromkeys(names))


def _ranked(
    page: Sequence[FusedHit], before: int, intent: Intent, judged: Mapping[ChunkId, float]
) -> tuple[RankedHit, ...]:
    """Return the hits of a page as `RankedHit`, with ranks from `before` + 1.

    Args:
        judged: relevance by chunk id, 0 to 1.
    """
    mark = Highlighter(intent.question, intent.language)
    hits = []
    for rank, hit in enumerate(page, before + 1):
        chunk = hit.chunk
        assert chunk is not None
        scores = {**hit.scores, "fused": hit.fused_score}
        hits.append(
            RankedHit.model_construct(
                rank=rank,
                id=str(hit.id),
                document_id=hit.id.document_id,
                title=chunk.title,
                text=chunk.text,
                start=chunk.start,
                end=chunk.end,
                url=chunk.url,
                metadata=dict(chunk.metadata),
                score=hit.score,
                scores=scores,
                sources=tuple(hit.ranks),
                ranks=dict(hit.ranks),
                highlights=mark(chunk.text),
                relevance=judged.get(hit.id),
                page=first_page([chunk.places]),
                place=describe_positions([chunk.places]),
            )
        )
    return tuple(hits)


def _partial(results: SearchResults, scope: Scope, embedder: Embedder) -> tuple[str, ...]:
    """Return a note such as "vector_partial" for each source that searched only some of its documents; () if none."""
    if partial := [answer for answer in results.answers if answer.is_partial]:
        return distinct(*(f"{answer.step.source}_partial" for answer in partial))
    uses_vector = any(answer.step.source == "vector" and answer.query for answer in results.answers)
    embedders = Embedders.of(embedder)
    served = {embedders.can_open(one.embedder or "") for one in scope.collections if one.chunks}
    return ("vector_partial",) if uses_vector and served == {True, False} else ()
