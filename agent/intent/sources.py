"""Decide which sources a request may use, and which it uses if neither the caller nor a reading chooses any."""

from collections.abc import Collection, Mapping

from agent.types import SourceSummary
from retrievers.configured_sources.collection_group import CollectionGroup
from retrievers.core.protocol_checks import holds_documents
from retrievers.core.types import Card, Retriever, Scope

WEB = "web"
"""Name of the source for questions about the world, even if no web source is configured."""


def readable_sources(
    sources: Mapping[str, Retriever], scope: Scope, named: Collection[str] = ()
) -> dict[str, Retriever]:
    """Return the sources that hold something the request may read, in the order of `sources`.

    Only these are shown to a model, chosen by rules, or searched because the chosen ones found too little.

    Args:
        scope: what the request may read.
        named: sources named by the caller; they are kept, so that their outcome says why they have no hits.
    """
    return {name: one for name, one in sources.items() if name in named or _holds_something(one, scope)}


def partial_groups(sources: Mapping[str, Retriever], scope: Scope) -> frozenset[str]:
    """Return the names of groups of collections that are only partly in the scope."""
    return frozenset(name for name, one in sources.items() if isinstance(one, CollectionGroup) and one.missing(scope))


def default_sources(cards: Mapping[str, Card]) -> list[str]:
    """Return the document sources used if none is chosen, without those that search a part of what others search."""
    return [name for name, card in cards.items() if card.kind == "documents" and not card.part]


def cheapest_world_source(cards: Mapping[str, Card]) -> str:
    """Return the source for questions about the world: `WEB`, else the cheapest that answers such questions.

    If there is none, `WEB` is returned, so that the result reports it as unavailable.
    """
    if WEB in cards:
        return WEB
    return min(
        (name for name, card in cards.items() if card.world), key=lambda name: (cards[name].cost, name), default=WEB
    )


def is_location(source: Retriever) -> bool:
    """Return whether choosing this source says where to look (a folder), and not only how (full text)."""
    return source.card.named or holds_documents(source)


def summarise_source(source: Retriever, scope: Scope, *, timeout_s: float, resting: bool) -> SourceSummary:
    """Describe a source for the caller, without its address, its keys, or collections outside the scope.

    Args:
        timeout_s: time limit of one search, for a source without one of its own.
        resting: whether the source is left alone for a while because it failed repeatedly.
    """
    card, group = source.card, source if isinstance(source, CollectionGroup) else None
    return SourceSummary(
        name=card.name, kind=card.kind, description=card.good_for, examples=tuple(card.examples), named=card.named,
        collections=tuple(name for name in group.collections if name not in group.missing(scope)) if group else (),
        top_k=card.top_k, min_relevance=card.min_relevance, timeout_s=card.timeout_s or timeout_s, cost=card.cost,
        resting=resting,
    )  # fmt: skip


def _holds_something(source: Retriever, scope: Scope) -> bool:
    if isinstance(source, CollectionGroup):
        return len(source.missing(scope)) < len(source.collections)
    name = source.card.name
    return not holds_documents(source) or any(one.name == name for one in scope.external_collections)
