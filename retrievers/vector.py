"""Vector retrieval: the passages nearest to the question's vector (DESIGN section 4).

Up to `MOST_SCORED` passages all of them are scored; of more, an index gives the nearest, or nearly so. Where it gives
fewer than there are, all are scored after all (`signalbox.nearest`).
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

MOST_SCORED = 10_000
"""Most passages of which every one is scored, so that hits follow from the documents alone; see `signalbox.nearest`."""

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
                "scope": self.database.scope(query.scope.viewer),
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


def may_use_index(query: Query) -> bool:
    """Whether hits may come from an index: when it is built again, others may be the nearest that it finds.

    A filter that leaves up to `MOST_SCORED` passages prevents it, but only the database knows how many it leaves.
    """
    return sum(collection.chunks for collection in query.scope.collections) > MOST_SCORED


def build(resources: Resources) -> Vector:
    """The retriever over the service's database and embedder."""
    return Vector(resources.database, resources.embedder)
