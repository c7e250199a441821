"""Paging: cut a page out of the final ranking, or list all documents that satisfy a filter."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from agent.retrieval.document_diversity import (
    LEAST_SHARE,
    Document,
    diversify,
    dominant_document_hits,
    limit_per_document,
    names_document,
)
from agent.retrieval.fusion import FusedHit
from agent.settings import Settings
from agent.types import MAX_COMPLETE, MAX_TOP_K, AugmentRequest, Intent, Request
from retrievers.core.types import ChunkId
from retrievers.postgres.documents.listing import DocumentListing

COMPLETE_DEPTH = 1000
"""Minimum hits requested from each source for a complete list. Documents without a hit follow them, ordered by id."""

Load = Callable[[Sequence[FusedHit]], Awaitable[list[FusedHit]]]
"""Loads the passages of hits."""
List = Callable[[Sequence[ChunkId], int, int], Awaitable[DocumentListing]]
"""Lists the documents that satisfy the filter. Arguments: ranked passages, whose documents are not listed again; number
of other documents to skip; number to list.
"""


class PageWindow(NamedTuple):
    """The range of a ranking that a request gets, and how the ranking is ordered before it is cut.

    Attributes:
        first, last: half-open range of places, from 0.
        per_document: see `agent.retrieval.document_diversity.diversify`.
        complete: whether to list every document that satisfies the filter, each with at most `per_document` passages.
        bounded: whether hits below a minimum score were left out, so that unranked documents must not be listed.
        named: whether a document that the question names is shown with all its passages.
        all: whether all documents are asked for. If `complete` is nevertheless False, no filter says which ones.
        least_share: see `agent.retrieval.document_diversity.diversify`.
    """

    first: int
    last: int
    per_document: int
    complete: bool = False
    bounded: bool = False
    named: bool = False
    all: bool = False
    least_share: float = LEAST_SHARE


class HitPage(NamedTuple):
    """The hits to show.

    Attributes:
        hits: with their passages loaded.
        first: place of the first hit in the ranking, from 0.
        total: number of documents in the complete list; None if the page is not part of a complete list.
        complete: whether this page and those before it show all documents; None if not all were asked for.
    """

    hits: list[FusedHit]
    first: int
    total: int | None = None
    complete: bool | None = None


def wants_complete_list(request: Request, intent: Intent) -> bool:
    """Return whether a complete list is asked for: by the request's `complete`, or if that is None, by the question."""
    if intent.kind == "none":
        return False
    if request.complete is not None:
        return request.complete
    is_calculated = intent.aggregate is not None and intent.aggregate.get("op") != "list"
    return intent.wants == "all" and not is_calculated


def page_window(
    request: Request,
    intent: Intent,
    settings: Settings,
    *,
    filtered: bool,
    relaxed: bool = False,
    bounded: bool = False,
) -> PageWindow:
    """Return which hits a request gets: their range, and whether they are a page of a complete list or the best few.

    Args:
        filtered: whether there is a filter. Without one, a question for all documents gets the best few, because it
            does not say which documents it means. `request.complete` overrides this.
        relaxed: whether constraints were dropped because no document satisfies them all; the hits are then not a
            complete list of anything.
        bounded: see `PageWindow.bounded`.
    """
    is_for_all = wants_complete_list(request, intent)
    complete = is_for_all and not relaxed and (filtered or request.complete is True)
    size = request.top_k
    if complete and (request.complete or "top_k" not in request.model_fields_set):
        size = MAX_TOP_K if isinstance(request, AugmentRequest) else MAX_COMPLETE
    listed = complete or intent.wants == "documents"
    return PageWindow(
        first=(request.page - 1) * size,
        last=request.page * size,
        per_document=request.per_document or (1 if listed else settings.per_document),
        complete=complete,
        bounded=bounded,
        named=request.per_document is None and not listed,
        all=is_for_all,
        # Documents that satisfy a filter, or belong to a list, are relevant even if their words match weakly.
        least_share=0.0 if filtered or listed or request.per_document is not None else LEAST_SHARE,
    )


async def cut_page(ranking: Sequence[FusedHit], window: PageWindow, question: str, load: Load, listed: List) -> HitPage:
    """Return the hits of a window.

    Args:
        ranking: the final ranking, the same for every window.
        question: the question, completed with what earlier turns say.
        load: loads the passages of hits.
        listed: lists the documents that satisfy the filter, for a complete list.
    Raises:
        Unavailable: the database cannot return the passages or list the documents.
    """
    first, last, per_document = window.first, window.last, window.per_document
    if window.complete:
        return await _complete(ranking, window, load, listed)
    page = diversify(ranking, per_document, least_share=window.least_share)[first:last]
    crowd = dominant_document_hits(ranking, per_document) if window.named else []
    loaded = {hit.id: hit for hit in await load(list({hit.id: hit for hit in (*page, *crowd)}.values()))}
    whole = _named(question, [loaded[hit.id] for hit in crowd if hit.id in loaded])
    complete = False if window.all else None
    if not whole:
        return HitPage(
            [loaded[hit.id]._replace(score=hit.score) for hit in page if hit.id in loaded], first, None, complete
        )
    return HitPage(
        await load(diversify(ranking, per_document, whole=whole, least_share=window.least_share)[first:last]),
        first,
        None,
        complete,
    )


async def _complete(ranking: Sequence[FusedHit], window: PageWindow, load: Load, listed: List) -> HitPage:
    """Return the page of a complete list: the ranked documents in order, then all others ordered by id.

    The others satisfy the filter, but no source ranked them. If the window is `bounded`, the list ends with the ranked
    documents, and the total counts only these.
    """
    ordered = limit_per_document(diversify(ranking, window.per_document, least_share=0.0), window.per_document)
    if window.bounded:
        total, is_last = len({hit.id[:3] for hit in ordered}), window.last >= len(ordered)
        return HitPage(await load(ordered[window.first : window.last]), window.first, total, is_last)
    skip = max(window.first - len(ordered), 0)
    shown = ordered[window.first : window.last]
    found = await listed([hit.id for hit in ordered], skip, window.last - window.first - len(shown))
    unranked = [FusedHit(id, 0.0, 0.0, {}, {}) for id in found.first]
    is_last = window.last >= len(ordered) + found.unknown
    return HitPage(await load([*shown, *unranked]), window.first, found.total, is_last)


def _named(question: str, hits: Sequence[FusedHit]) -> set[Document]:
    return {hit.id[:3] for hit in hits if hit.chunk and names_document(question, hit.id.document_id, hit.chunk.title)}
