"""Vector retrieval: return the passages whose vectors are nearest to the question's vector.

Up to `MOST_SCORED` passages (twice as many under a filter) are all scored. If there are more, an index returns
approximately the nearest, unless scoring all is cheaper. If it returns fewer than requested, all are scored. The SQL
function `signalbox.nearest` decides this.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pgvector import HalfVector

from retrievers.core.errors import Unavailable
from retrievers.core.filters import filter_to_jsonpath
from retrievers.core.ranking import sort_by_score
from retrievers.core.types import Card, Collection, Hit, Query, Scope
from retrievers.embed import Embedder, cosine_scale
from retrievers.embed.embedders import Embedders
from retrievers.postgres.connections.database import Database
from retrievers.postgres.documents.hits import hits_from_rows
from retrievers.registry import Resources

CARD = Card(name="vector", good_for="meaning: paraphrases and questions whose words are not in the text")

MOST_SCORED = 10_000
"""Up to this number of passages the index is not used, so that the hits depend on nothing but the documents. The SQL
function `signalbox.nearest` has the same number.
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

    def backend_scopes(self, scope: Scope) -> dict[str, Scope]:
        """Split the scope into one scope per embedder of its collections. See `MultiBackend.backend_scopes`.

        Collections whose embedder cannot be opened are left out.
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
        return sort_by_score([hit for hits in found for hit in hits])[: query.limit]

    async def _nearest(self, query: Query, name: str, collections: Sequence[Collection]) -> list[Hit]:
        embedder = await self.embedder.get(name)
        if name == self.embedder.name:
            return await self._hits(query, embedder, collections)
        # Both at once: if the service's embedder is down, waiting for it must not use up the time of this search.
        hits, own = await asyncio.gather(self._hits(query, embedder, collections), self._own_scale())
        other = await cosine_scale.unrelated_cosine(embedder)
        return [hit._replace(score=cosine_scale.rescale_cosine(hit.score, other, own)) for hit in hits]

    async def _hits(self, query: Query, embedder: Embedder, collections: Sequence[Collection]) -> list[Hit]:
        """Return hits of collections that share this embedder. The scores are cosines of its vectors, not converted."""
        vector = await embedder.embed_query(query.translation or query.text)
        if vector.shape[0] != collections[0].dimension:
            raise Unavailable(CARD.name, f"the embedder {embedder.name} changed its vectors' length")
        rows = await self.database.reads.fetch_autocommit(
            query.scope.viewer,
            _SEARCH,
            {
                "among": [collection.number for collection in collections],
                "model": collections[0].embedder_number,
                "question": HalfVector(vector.astype(np.float16)),
                "wanted": filter_to_jsonpath(query.filter) if query.filter else None,
                "amount": query.limit,
            },
        )
        return hits_from_rows(rows, query, CARD.name)

    async def _own_scale(self) -> float:
        """Return the mean cosine of unrelated texts under the service's embedder. 0 if that embedder is down."""
        try:
            return await cosine_scale.unrelated_cosine(self.embedder)
        except Unavailable:
            return 0.0

    def _searchable(self, query: Query) -> dict[str, list[Collection]]:
        """Return embedder name to the collections in scope that have vectors of this embedder.

        Raises:
            Unavailable: there are such collections, but none of their embedders can be opened.
        """
        groups, missing = self._groups(query.scope)
        if missing is not None and not groups:
            raise Unavailable(
                CARD.name,
                f'collection "{missing.name}" holds vectors of {missing.embedder}, which this service cannot open: set '
                f"EMBEDDER={missing.embedder}, or `signalbox reembed {missing.name} --embedder {self.embedder.name}`",
            )
        return groups

    def _groups(self, scope: Scope) -> tuple[dict[str, list[Collection]], Collection | None]:
        """Return ({embedder: its collections with vectors}, a collection whose embedder cannot be opened, or None)."""
        groups: dict[str, list[Collection]] = {}
        missing: Collection | None = None
        for collection in scope.collections:
            if collection.chunks and collection.embedder is not None:
                if self.embedder.can_open(collection.embedder):
                    groups.setdefault(collection.embedder, []).append(collection)
                else:
                    missing = collection
        return groups, missing


def may_use_index(query: Query) -> bool:
    """Return whether hits may come from an index, so that rebuilding the index may change them.

    Counts all passages in scope, because only the database knows how many satisfy the filter. So the result may be
    True although the database does not use the index.
    """
    return sum(collection.chunks for collection in query.scope.collections) > MOST_SCORED


def build(resources: Resources) -> Vector:
    """Build the retriever over the service's database and embedder."""
    return Vector(resources.database, Embedders.of(resources.embedder))
