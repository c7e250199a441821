"""Full-text retrieval: BM25 as the inner product of two sparse vectors (DESIGN section 4).

Candidates come from the index on lexemes, by the question's rarest terms first until enough passages
hold one of them; BM25 over all of the question's terms ranks them. Text in quotes must occur as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from pgvector import SparseVector

from retrievers.core.filters import to_jsonpath
from retrievers.core.types import Card, Hit, Query
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.database import Database
from retrievers.postgres.hits import hits_of
from retrievers.registry import Resources
from retrievers.text import weights
from retrievers.text.questions import Phrase, question_terms, quoted_phrases, weigh

CARD = Card(name="fulltext", good_for="exact words: names, codes, identifiers, error messages, quoted phrases")

CANDIDATES = 1000
"""Passages to score: terms are taken, rarest first, until so many hold one of them."""

_SEARCH = """
    SELECT tenant, collection, document_id, ordinal, score
    FROM signalbox.matching(%(scope)s, %(among)s, %(candidates)s::tsquery, %(wider)s::tsquery, %(question)b,
                            %(wanted)s::jsonpath, %(amount)s)
"""

Counts = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class FullText:
    database: Database
    catalogue: Catalogue

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Hits by BM25, above 0 and unbounded; see `Retriever.search`."""
        shares = question_terms(query.text, query.language, query.gloss)
        counts = await self.catalogue.term_counts(query.scope, shares)
        total = {term: sum(known.get(term, 0) for known in counts.values()) for term in shares}
        weighted = weigh(shares, total, sum(collection.chunks for collection in query.scope.collections))
        if not weighted:
            return []
        present = list(weighted)
        question: dict[int, float] = {}
        for term, weight in weighted.items():
            dimension = weights.hashed(term)
            question[dimension] = max(question.get(dimension, 0.0), weight)
        phrases = _phrases(query, counts)
        hits: list[Hit] = []
        if phrases is not None:
            hits = await self._matching(query, phrases, None, question)
        if not hits:
            rarest, every = _candidates(present, total, counts, CANDIDATES), _candidates(present, total, counts)
            hits = await self._matching(query, rarest, every, question)
        return hits

    async def _matching(
        self, query: Query, candidates: str, wider: str | None, question: dict[int, float]
    ) -> list[Hit]:
        rows = await self.database.search(
            _SEARCH,
            {
                "scope": self.database.scope(query.scope.tenant),
                "among": [collection.number for collection in query.scope.collections],
                "candidates": candidates,
                "wider": wider,
                "question": SparseVector(question, weights.DIMENSIONS),
                "wanted": to_jsonpath(query.filter) if query.filter else None,
                "amount": query.limit,
            },
        )
        return hits_of(rows, query, CARD.name)


def _candidates(present: list[str], total: Mapping[str, int], counts: Counts, budget: int | None = None) -> str:
    """A tsquery for the rarest terms that together reach the budget, or for every term."""
    chosen: list[str] = []
    reached = 0
    for term in present:
        if chosen and budget is not None and reached >= budget:
            break
        chosen.append(term)
        reached += total[term]
    return " | ".join(_lexeme(number, term) for number, known in counts.items() for term in chosen if term in known)


def _phrases(query: Query, counts: Counts) -> str | None:
    """A tsquery that asks for every quoted phrase, None when the question quotes nothing."""
    phrases = quoted_phrases(query.text, query.language)
    if not phrases:
        return None
    per_collection = []
    for number in counts:
        per_collection.append(" & ".join(f"({_phrase(number, phrase)})" for phrase in phrases))
    return " | ".join(f"({one})" for one in per_collection)


def _phrase(number: int, phrase: Phrase) -> str:
    """Adjacent terms at their distances."""
    text = _lexeme(number, phrase[0][1])
    for (before, _), (position, term) in pairwise(phrase):
        text += f" <{position - before}> {_lexeme(number, term)}"
    return text


def _lexeme(number: int, term: str) -> str:
    return "'" + f"{number}:{term}".replace("\\", "\\\\").replace("'", "''") + "'"


def build(resources: Resources) -> FullText:
    """The retriever over the service's database."""
    return FullText(resources.database, resources.catalogue)
