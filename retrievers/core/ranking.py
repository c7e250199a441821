"""Sort scored items, and blend the scores of several measures into one ranking."""

from collections.abc import Hashable, Iterable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from retrievers.core.types import ChunkId


class Scored(Protocol):
    """An item of a ranking."""

    @property
    def id(self) -> ChunkId:
        """Identity of the item. It breaks ties."""
        ...

    @property
    def score(self) -> float:
        """Score of the item, higher is better."""
        ...


Item = TypeVar("Item", bound=Scored)
Key = TypeVar("Key", bound=Hashable)

_SCORE, _ID = attrgetter("score"), attrgetter("id")

# Creates a named tuple at half the cost of calling its class; a question creates some 400. It checks nothing, so every
# field must be given.
new_tuple = tuple.__new__


def sort_by_score(items: Iterable[Item]) -> list[Item]:
    """Sort by score, highest first, ties by id."""
    ordered = sorted(items, key=_SCORE, reverse=True)
    if len(set(map(_SCORE, ordered))) == len(ordered):
        return ordered
    return [item for _, tied in groupby(ordered, _SCORE) for item in sorted(tied, key=_ID)]


def blend_scores(measured: Mapping[str, Mapping[Key, float]], weights: Mapping[str, float]) -> list[tuple[Key, float]]:
    """Add the weighted scores of several measures, each scaled to [0, 1] (min-max).

    Args:
        measured: measure to scores by key. The weight of a measure without any scores is divided among the other
            measures, in proportion to their weights.
        weights: measure to weight.
    Returns:
        (key, score) of every key, highest score first, ties by key. A measure that has no score for a key adds 0 to it.
    """
    total = sum(weights[measure] for measure, found in measured.items() if found)
    scores: dict[Any, float] = {}
    for measure, found in measured.items():
        low, high = min(found.values(), default=0.0), max(found.values(), default=0.0)
        for key, score in found.items():
            scaled = (score - low) / (high - low) if high > low else 1.0
            scores[key] = scores.get(key, 0.0) + weights[measure] / total * scaled
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))
