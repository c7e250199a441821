"""Vector retrieval: the passages nearest to the question's vector (DESIGN section 4).

The index is walked while a filter leaves many passages; when it leaves few, or the index gives fewer
than there are, all of them are scored (`signalbox.nearest`).
"""

from dataclasses import dataclass

import numpy as np
from pgvector import HalfVector

from retrievers.core.errors import Unavailable
from retrievers.core.filters import to_jsonpath
from retrievers.core.types import Card, Collection, Hit, Query
from retrievers.embed import Embedder
from retrievers.postgres.database import Database
from retrievers.postgres.hits import hits_of
from retrievers.registry import Resources

CARD = Card(name="vector", good_for="meaning: paraphrases and questions whose words are not in the text")

_SEARCH = """
    SELECT tenant, collection, document_id, ordinal, score
    FROM signalbox.nearest(%(scope)s, %(among)s, %(model)s, %(question)b, %(wanted)s::jsonpath, %(amount)s)
"""


@dataclass(frozen=True, slots=True)
class Vector:
    database: Database
    embedder: Embedder

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Hits by cosine, in [-1, 1]; see `Retriever.search`."""
        collections = self._searchable(query)
        if not collections:
            return []
        vector = await self.embedder.embed_query(query.gloss or query.text)
        if vector.shape[0] != collections[0].dimension:
            raise Unavailable(CARD.name, f"the embedder {self.embedder.name} changed its vectors' length")
        rows = await self.database.search(
            _SEARCH,
            {
                "scope": self.database.scope(query.scope.tenant),
                "among": [collection.number for collection in collections],
                "model": collections[0].embedder_number,
                "question": HalfVector(vector.astype(np.float16)),
                "wanted": to_jsonpath(query.filter) if query.filter else None,
                "amount": query.limit,
            },
        )
        return hits_of(rows, query, CARD.name)

    def _searchable(self, query: Query) -> list[Collection]:
        """The collections in scope that hold vectors of this embedder; vectors of two models never meet."""
        filled = [collection for collection in query.scope.collections if collection.chunks]
        same = [collection for collection in filled if collection.embedder == self.embedder.name]
        if filled and not same:
            raise Unavailable(
                CARD.name,
                f'collection "{filled[0].name}" holds vectors of {filled[0].embedder}, the service uses '
                f"{self.embedder.name}: set EMBEDDER={filled[0].embedder}, or ingest the collection again",
            )
        return same


def build(resources: Resources) -> Vector:
    """The retriever over the service's database and embedder."""
    return Vector(resources.database, resources.embedder)
