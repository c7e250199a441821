"""Whether the passages found speak of what was asked for: by words in common, weighed by how rare they are, and by
how far the best vectors stand out."""

import re
import statistics
from collections.abc import Collection, Mapping, Sequence

from agent.intent.reading import question_language
from agent.retrieval.execute import StepResult
from agent.retrieval.fusion import Fused
from retrievers.core.types import ChunkId, Scope
from retrievers.postgres.catalogue import Catalogue
from retrievers.text import glosses
from retrievers.text.analysis import analyse
from retrievers.text.weights import idf

_SHORT = 3
"""Letters; a term of no more must be a word of its own, since it also stands inside many others."""

OUTSTANDING = 0.18
"""Cosine above the median of the hits from which on a passage stands out.

Embedders differ in what cosine unrelated texts have, hardly in this: it is reached by 55 % of the passages that answer
a search, by 27 % of the best others, and by 1 % of those found for what the collection does not speak of (PEPs,
SciFact's claims).
"""
_ENOUGH_HITS = 20
"""Fewer have no median to stand out from."""
_RARE = 0.5
"""Share of the weight of a word that occurs nowhere."""


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
    terms = [_findable(one, scope, weights, idf(0, chunks)) for one in terms]
    held = [_words(hit) for hit in hits if hit.chunk is not None]
    known = {term: _occurrences(term, held) for term in weights}
    return [_best_share(one, weights, known, len(held)) for one in terms]


def stands_out(search: str, answers: Sequence[StepResult], among: Collection[ChunkId]) -> bool:
    """Whether one of the passages is as near to the search as only what speaks of it is.

    Args:
        answers: of all sources; those of vectors count.
        among: the passages that may.
    """
    for answer in answers:
        if answer.step.source != "vector" or answer.step.search != search or len(answer.hits) < _ENOUGH_HITS:
            continue
        usual = statistics.median(hit.score for hit in answer.hits)
        if any(hit.score - usual >= OUTSTANDING for hit in answer.hits if hit.id in among):
            return True
    return False


def _words(hit: Fused) -> str:
    """What a hit says, with what is known of it: "sponsor" is answered by the field of that name."""
    assert hit.chunk is not None
    return "\n".join((hit.chunk.title, hit.chunk.text, *hit.chunk.metadata)).casefold()


def _findable(terms: tuple[str, ...], scope: Scope, weights: Mapping[str, float], highest: float) -> tuple[str, ...]:
    """The terms that some document could hold: beside a name like `PYTHONUTF8` no English one has a Chinese word."""
    if any(one.languages.get("zh") for one in scope.all):
        return terms
    shared = tuple(term for term in terms if not glosses.is_chinese(term))
    return shared if any(weights[term] >= _RARE * highest for term in shared) else terms


def _terms(text: str, language: str) -> tuple[str, ...]:
    """The words of a text, and the identifiers as wholes: `__set_name__` is more than "set" and "name"."""
    written = text.casefold()
    terms = analyse(text, language)
    identifiers = (term.text for term in terms if term.extra and "-" in term.text and term.text not in written)
    return tuple(dict.fromkeys((*(term.text for term in terms if not term.extra), *identifiers)))


def _occurrences(term: str, texts: Sequence[str]) -> frozenset[int]:
    """The texts that hold a term."""
    if term.isascii() and len(term) <= _SHORT:
        word = re.compile(rf"(?<![^\W_]){re.escape(term)}(?![^\W_])")
        return frozenset(place for place, text in enumerate(texts) if word.search(text))
    if term.isascii() and "-" in term:
        identifier = re.compile("[^a-z0-9]{0,2}".join(map(re.escape, term.split("-"))))
        return frozenset(place for place, text in enumerate(texts) if identifier.search(text))
    # The stem of "library" is "librari".
    beginning = term[:-1] if term.isascii() and term.endswith("i") else term
    return frozenset(place for place, text in enumerate(texts) if beginning in text)


def _best_share(terms: Sequence[str], weights: dict[str, float], known: dict[str, frozenset[int]], count: int) -> float:
    total = sum(weights[term] for term in terms)
    if not total:
        return 0.0
    held = (sum(weights[term] for term in terms if place in known[term]) for place in range(count))
    return round(max(held, default=0.0) / total, 4)
