"""Coverage: estimate whether passages answer a search.

It measures the share of the search's words that a passage holds, weighted by rarity, and whether the cosine of a
passage stands out from the others.
"""

import re
import statistics
from collections.abc import Collection, Mapping, Sequence

from agent.intent.reading import question_language
from agent.retrieval.execute import StepResult
from agent.retrieval.fusion import Fused
from retrievers.core.types import ChunkId, Scope
from retrievers.postgres.catalogue import Catalogue
from retrievers.text import glosses
from retrievers.text.bm25 import idf
from retrievers.text.questions import analysed

_SHORT = 3
"""Maximum letters of a short term. Short terms must match whole words, since they occur inside many longer ones."""

OUTSTANDING = 0.18
"""Minimum cosine above the median of the hits at which a passage stands out.

The cosine of unrelated texts differs between embedders, but this difference hardly does. 55 % of the passages that
answer a search reach it, 27 % of the best other passages, and 1 % of the passages found for subjects that the
collection does not cover (PEPs, SciFact's claims).
"""
_ENOUGH_HITS = 20
"""Minimum number of hits for a meaningful median."""
_RARE = 0.5
"""Minimum weight of a specific term, as a share of the weight of a term that occurs nowhere."""


async def coverage(texts: Sequence[str], hits: Sequence[Fused], scope: Scope, catalogue: Catalogue) -> list[float]:
    """Return for each text the largest weighted share of its words that a single hit holds, 0 to 1.

    A word's weight is its inverse document frequency over the collections in scope. Words are matched by the beginning
    that their forms share, because analysing ten passages would take ten times the one millisecond available here.

    Args:
        hits: hits with their chunks loaded.
    Raises:
        Unavailable: the database cannot return the document frequencies.
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
    """Return whether a passage's cosine to the search stands out from the median by at least `OUTSTANDING`.

    Args:
        answers: results of all sources; only the results of vectors are used.
        among: ids of the passages to consider.
    """
    for answer in answers:
        if answer.step.source != "vector" or answer.step.search != search or len(answer.hits) < _ENOUGH_HITS:
            continue
        usual = statistics.median(hit.score for hit in answer.hits)
        if any(hit.score - usual >= OUTSTANDING for hit in answer.hits if hit.id in among):
            return True
    return False


def _words(hit: Fused) -> str:
    """Return the text of a hit with its title and field names, so that "sponsor" matches a field of that name."""
    assert hit.chunk is not None
    return "\n".join((hit.chunk.title, hit.chunk.text, *hit.chunk.metadata)).casefold()


def _findable(terms: tuple[str, ...], scope: Scope, weights: Mapping[str, float], highest: float) -> tuple[str, ...]:
    """Drop Chinese terms where no document is Chinese, if the other terms are specific enough.

    "PYTHONUTF8 是什么" -> "pythonutf8": no English document could hold the Chinese words.
    """
    if any(one.languages.get("zh") for one in scope.all):
        return terms
    shared = tuple(term for term in terms if not glosses.is_chinese(term))
    return shared if any(weights[term] >= _RARE * highest for term in shared) else terms


def _terms(text: str, language: str) -> tuple[str, ...]:
    """Return the words of a text, and its identifiers as wholes: `__set_name__` says more than "set" and "name"."""

    written = text.casefold()
    terms = analysed(text, language)
    identifiers = (term.text for term in terms if term.extra and "-" in term.text and term.text not in written)
    return tuple(dict.fromkeys((*(term.text for term in terms if not term.extra), *identifiers)))


def _occurrences(term: str, texts: Sequence[str]) -> frozenset[int]:
    """Return the indexes of the texts that hold the term."""
    if term.isascii() and len(term) <= _SHORT:
        word = re.compile(rf"(?<![^\W_]){re.escape(term)}(?![^\W_])")
        return frozenset(place for place, text in enumerate(texts) if word.search(text))
    if term.isascii() and "-" in term:
        identifier = re.compile("[^a-z0-9]{0,2}".join(map(re.escape, term.split("-"))))
        return frozenset(place for place, text in enumerate(texts) if identifier.search(text))
    # The stem of "library" is "librari", which the word itself does not begin with.
    beginning = term[:-1] if term.isascii() and term.endswith("i") else term
    return frozenset(place for place, text in enumerate(texts) if beginning in text)


def _best_share(terms: Sequence[str], weights: dict[str, float], known: dict[str, frozenset[int]], count: int) -> float:
    total = sum(weights[term] for term in terms)
    if not total:
        return 0.0
    held = (sum(weights[term] for term in terms if place in known[term]) for place in range(count))
    return round(max(held, default=0.0) / total, 4)
