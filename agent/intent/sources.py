"""Which sources one request may be put to, and which are asked where nobody chooses. Decided here alone."""

from collections.abc import Collection, Mapping

from agent.types import SourceSummary
from retrievers.core.types import Card, Holder, Retriever, Scope
from retrievers.named.group import CollectionGroup

WEB = "web"
"""The source for questions about the world, also where none is set up."""


def offered(sources: Mapping[str, Retriever], scope: Scope, named: Collection[str] = ()) -> dict[str, Retriever]:
    """The sources that a request may be put to, in their order: those that hold something of its scope.

    No other is shown to a model, chosen by rules, or turned to by the ladder.

    Args:
        scope: what the request may read.
        named: by the caller: these stay, so that their outcome says why they have nothing.
    """
    return {name: one for name, one in sources.items() if name in named or _holds_something(one, scope)}


def partial(sources: Mapping[str, Retriever], scope: Scope) -> frozenset[str]:
    """The groups of collections of which some are not in the scope."""
    return frozenset(name for name, one in sources.items() if isinstance(one, CollectionGroup) and one.missing(scope))


def usual(cards: Mapping[str, Card]) -> list[str]:
    """The sources of documents that are asked where nobody chooses; a part of what others search is not."""
    return [name for name, card in cards.items() if card.kind == "documents" and not card.part]


def cheapest_world(cards: Mapping[str, Card]) -> str:
    """The source for questions about the world; `WEB` where there is none, so that the answer says so."""
    if WEB in cards:
        return WEB
    return min(
        (name for name, card in cards.items() if card.world), key=lambda name: (cards[name].cost, name), default=WEB
    )


def is_place(source: Retriever) -> bool:
    """Whether choosing the source says where to look, and not only how."""
    return source.card.named or isinstance(source, Holder)


def summary(source: Retriever, scope: Scope, *, timeout_s: float, resting: bool) -> SourceSummary:
    """What a caller is told of a source: nothing of its address, its keys, or collections outside the scope.

    Args:
        timeout_s: for one search, where the source has none of its own.
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
    if isinstance(source, Holder):
        return any(one.name == source.card.name for one in scope.beside)
    return True
