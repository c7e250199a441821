"""How much of what was asked for the passages found speak of: words in common, weighed by how rare they are."""

import re
from collections.abc import Sequence

from agent.fusion import Fused
from agent.intent.off import question_language
from retrievers.core.types import Scope
from retrievers.postgres.catalogue import Catalogue
from retrievers.text.analysis import analyse
from retrievers.text.weights import idf

_SHORT = 3
"""Letters; a term of no more must be a word of its own, since it also stands inside many others."""


async def coverage(texts: Sequence[str], hits: Sequence[Fused], scope: Scope, catalogue: Catalogue) -> list[float]:
    """For each text the largest share of its words that one of the hits holds, in [0, 1].

    A word weighs its inverse document frequency over the collections in scope. It is looked up as the beginning its
    forms have in common: to analyse ten passages would take ten times the millisecond that this may take.

    Args:
        hits: with their chunks.
    Raises:
        Unavailable: the database cannot say how often the words occur.
    """
    terms = [_terms(text, question_language(text, scope)) for text in texts]
    counts = await catalogue.term_counts(scope, {term for one in terms for term in one})
    chunks = sum(one.chunks for one in scope.collections)
    weights = {term: idf(sum(known.get(term, 0) for known in counts.values()), chunks) for one in terms for term in one}
    held = [f"{hit.chunk.title}\n{hit.chunk.text}".casefold() for hit in hits if hit.chunk is not None]
    known = {term: _occurrences(term, held) for term in weights}
    return [_best_share(one, weights, known, len(held)) for one in terms]


def _terms(text: str, language: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(term.text for term in analyse(text, language) if not term.extra))


def _occurrences(term: str, texts: Sequence[str]) -> frozenset[int]:
    """The texts that hold a term."""
    if term.isascii() and len(term) <= _SHORT:
        word = re.compile(rf"\b{re.escape(term)}\b")
        return frozenset(place for place, text in enumerate(texts) if word.search(text))
    # The stem of "library" is "librari".
    beginning = term[:-1] if term.isascii() and term.endswith("i") else term
    return frozenset(place for place, text in enumerate(texts) if beginning in text)


def _best_share(terms: Sequence[str], weights: dict[str, float], known: dict[str, frozenset[int]], count: int) -> float:
    total = sum(weights[term] for term in terms)
    if not total:
        return 0.0
    held = (sum(weights[term] for term in terms if place in known[term]) for place in range(count))
    return round(max(held, default=0.0) / total, 4)
