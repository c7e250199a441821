"""Vector retrieval: return the passages whose vectors are nearest to the question's vector.

If the filter leaves at most `MOST_SCORED` passages, all of them are scored. If it leaves more, an index returns the
(approximately) nearest passages. If the index returns fewer than requested, all passages are scored
(`signalbox.nearest`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pgvector import HalfVector

from retrievers.core.errors import Unavailable
from retrievers.core.filters import to_jsonpath
from retrievers.core.ranking import best_first
from retrievers.core.types import Card, Collection, Hit, Query, Scope
from retrievers.embed import Embedder, scale
from retrievers.embed.pool import Embedders
from retrievers.postgres.database import Database
from retrievers.postgres.hits import hits_of
from retrievers.registry import Resources

CARD = Card(name="vector", good_for="meaning: paraphrases and questions whose words are not in the text")

MOST_SCORED = 10_000
"""Maximum number of passages that are all scored, so that the hits depend on nothing but the documents; see
`signalbox.nearest`.
"""

_SEARCH = """
    SELECT tenant, collection, document_id, ordinal, score
    FROM signalbox.nearest(%(scope)s, %(among)s, %(model)s, %(question)b, %(wanted)s::jsonpath, %(amount)s)
"""


@dataclass(frozen=True, slots=True)
class Vector:
    database: Database
    embedder: Embedders

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    def parts(self, scope: Scope) -> dict[str, Scope]:
        """Return the collections of each embedder, without those of embedders that cannot be opened. See
        `Divided.parts`.
        """
        return {
            CARD.name if name == self.embedder.name else f"the embedder {name}": replace(
                scope, collections=tuple(group)
            )
            for name, group in self._groups(scope)[0].items()
        }

    async def search(self, query: Query) -> list[Hit]:
        """Return hits by cosine, in [-1, 1]; see `Retriever.search`.

        The question is embedded once for each embedder of the collections in scope. Cosines of other embedders are
        converted to the scale of the service's embedder, so that hits of several embedders can be compared.
        """
        groups = self._searchable(query)
        searches = [self._nearest(query, name, group) for name, group in groups.items()]
        if len(searches) < 2:
            return await searches[0] if searches else []
        found = await asyncio.gather(*searches)
        return best_first([hit for hits in found for hit in hits])[: query.limit]

    async def _nearest(self, query: Query, name: str, collections: Sequence[Collection]) -> list[Hit]:
        embedder = await self.embedder.named(name)
        if name == self.embedder.name:
            return await self._hits(query, embedder, collections)
        # At once: the service's embedder may be down, and waiting for it must not use up the time of this search.
        hits, own = await asyncio.gather(self._hits(query, embedder, collections), self._own_scale())
        other = await scale.unrelated(embedder)
        return [hit._replace(score=scale.rescaled(hit.score, other, own)) for hit in hits]

    async def _hits(self, query: Query, embedder: Embedder, collections: Sequence[Collection]) -> list[Hit]:
        """Return the hits of the collections of one embedder, by its cosines."""
        vector = await embedder.embed_query(query.gloss or query.text)
        if vector.shape[0] != collections[0].dimension:
            raise Unavailable(CARD.name, f"the embedder {embedder.name} changed its vectors' length")
        rows = await self.database.reads.search(
            query.scope.viewer,
            _SEARCH,
            {
                "among": [collection.number for collection in collections],
                "model": collections[0].embedder_number,
                "question": HalfVector(vector.astype(np.float16)),
                "wanted": to_jsonpath(query.filter) if query.filter else None,
                "amount": query.limit,
            },
        )
        return hits_of(rows, query, CARD.name)

    async def _own_scale(self) -> float:
        """Return the mean cosine of unrelated texts under the service's embedder. 0 if that embedder is down."""
        try:
            return await scale.unrelated(self.embedder)
        except Unavailable:
            return 0.0

    def _searchable(self, query: Query) -> dict[str, list[Collection]]:
        """Group the collections in scope that hold vectors by embedder. Vectors of two models are never compared."""
        groups, missing = self._groups(query.scope)
        if missing is not None and not groups:
            raise Unavailable(
                CARD.name,
                f'collection "{missing.name}" holds vectors of {missing.embedder}, which this service cannot open: set '
                f"EMBEDDER={missing.embedder}, or `signalbox reembed {missing.name} --embedder {self.embedder.name}`",
            )
        return groups

    def _groups(self, scope: Scope) -> tuple[dict[str, list[Collection]], Collection | None]:
        """Group collections by embedder. Also return one whose embedder cannot be opened, or None."""
        groups: dict[str, list[Collection]] = {}
        missing: Collection | None = None
        for collection in scope.collections:
            if collection.chunks and collection.embedder is not None:
                if self.embedder.has(collection.embedder):
                    groups.setdefault(collection.embedder, []).append(collection)
                else:
                    missing = collection
        return groups, missing


def may_use_index(query: Query) -> bool:
    """Return whether hits may come from an index, so that rebuilding the index may change them.

    If the filter leaves at most `MOST_SCORED` passages the index is not used, but only the database knows how many it
    leaves.
    """
    return sum(collection.chunks for collection in query.scope.collections) > MOST_SCORED


def build(resources: Resources) -> Vector:
    """Build the retriever over the service's database and embedder."""
    return Vector(resources.database, Embedders.of(resources.embedder))
