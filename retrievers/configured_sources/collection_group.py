"""A group of collections as a source: full text and vectors over these collections only."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.ranking import blend_scores
from retrievers.core.types import Card, ChunkId, Hit, Query, Retriever, Scope

# Weights of words and vectors when this is the only source; beside other sources the fusion decides.
_WEIGHTS = {"fulltext": 0.6, "vector": 0.4}


@dataclass(frozen=True, slots=True)
class CollectionGroup:
    """A retriever that searches some collections of the database, under a name of its own.

    Args:
        collections: names of the collections. A request searches those that its caller may read.
        searchers: the retrievers "fulltext" and "vector", by these names.
    """

    card: Card
    collections: tuple[str, ...]
    searchers: Mapping[str, Retriever]

    def missing(self, scope: Scope) -> tuple[str, ...]:
        """Return the names of the group's collections that are not in a scope: they are missing or not readable."""
        there = {one.name for one in scope.collections}
        return tuple(name for name in self.collections if name not in there)

    async def search(self, query: Query) -> list[Hit]:
        """Return hits scored in [0, 1] by words and meaning together. See `Retriever.search`.

        `component_scores` of a hit contains its BM25 score if full text found it ("fulltext"), and its cosine if the
        vectors did ("vector").

        Raises:
            BadRequest: the scope contains none of the collections.
            Unavailable: neither full text nor vectors can be searched.
        """
        scope = replace(query.scope.restricted_to(self.collections), external_collections=())
        if not scope.collections:
            raise BadRequest(f"{self.card.name}: none of its collections can be searched here", where="collection")
        inner = replace(query, scope=scope)
        given = await asyncio.gather(*(one.search(inner) for one in self.searchers.values()), return_exceptions=True)
        found: dict[str, list[Hit]] = {}
        failed: list[BaseException] = []
        for measure, hits in zip(self.searchers, given, strict=True):
            if isinstance(hits, BaseException):
                failed.append(hits)
            else:
                found[measure] = hits
        # One successful measure is enough. An exception that is not a source failure is a bug and is raised.
        unexpected = [one for one in failed if not isinstance(one, Unavailable | OSError)]
        if unexpected or not found:
            raise (unexpected or failed)[0]
        return self._blended(found, query.limit)

    def _blended(self, found: Mapping[str, list[Hit]], limit: int) -> list[Hit]:
        measured: dict[str, dict[ChunkId, float]] = {
            measure: {hit.id: hit.score for hit in hits} for measure, hits in found.items()
        }
        read = {hit.id: hit.chunk for hits in found.values() for hit in hits if hit.chunk is not None}
        return [
            Hit(
                id, score, self.card.name, read.get(id),
                component_scores={measure: scores[id] for measure, scores in measured.items() if id in scores},
            )
            for id, score in blend_scores(measured, _WEIGHTS)[:limit]
        ]  # fmt: skip
