"""Answer coverage: estimate by words and cosines, without a model, whether passages answer a search.

It measures the share of the search's words that a passage contains, weighted by rarity, and whether the cosine of a
passage stands out from those of the other passages.
"""

import re
import statistics
from collections.abc import Collection, Mapping, Sequence

from agent.intent.reading import question_language
from agent.retrieval.fusion import FusedHit
from agent.retrieval.plan_execution import StepResult
from retrievers.core.types import ChunkId, Scope
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.text import chinese_dictionary
from retrievers.text.bm25 import idf
from retrievers.text.question_terms import analyse_question

_SHORT = 3
"""Maximum letters of a short term. Short terms must match whole words, since they occur inside many longer ones."""

OUTSTANDING = 0.18
"""Minimum difference between a passage's cosine and the median cosine of the hits for the passage to stand out.

Cosines of unrelated texts vary between embedders, but this difference hardly varies. 55 % of the passages that answer a
search reach it, 27 % of the best other passages, and 1 % of the passages found for subjects that the collection does
not cover (PEPs, SciFact's claims).
"""
_ENOUGH_HITS = 20
"""Minimum number of hits for a meaningful median."""
_RARE = 0.5
"""Minimum weight at which a term counts as specific, as a share of the weight of a term that occurs in no passage."""


async def measure_coverage(
    texts: Sequence[str], hits: Sequence[FusedHit], scope: Scope, catalogue: Catalogue
) -> list[float]:
    """Return for each text the largest weighted share of its words that a single hit contains, 0 to 1.

    A word's weight is its inverse document frequency over the collections in scope. A hit contains a word if its stem
    occurs anywhere in the hit's text. Analysing ten passages instead would take 10 ms; 1 ms is available here.

    Args:
        texts: searches, or parts of a question.
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


def has_outstanding_cosine(search: str, answers: Sequence[StepResult], among: Collection[ChunkId]) -> bool:
    """Return whether a passage in `among` has a cosine at least `OUTSTANDING` above the median of the vector search.

    False if the vector search found fewer than `_ENOUGH_HITS` hits.

    Args:
        search: text of the search whose cosines count.
        answers: results of all sources; only those of the source `vector` are used.
    """
    for answer in answers:
        if answer.step.source != "vector" or answer.step.search != search or len(answer.hits) < _ENOUGH_HITS:
            continue
        usual = statistics.median(hit.score for hit in answer.hits)
        if any(hit.score - usual >= OUTSTANDING for hit in answer.hits if hit.id in among):
            return True
    return False


def _words(hit: FusedHit) -> str:
    """Return title, text and metadata field names of a hit, so that "sponsor" also matches a field of that name."""
    assert hit.chunk is not None
    return "\n".join((hit.chunk.title, hit.chunk.text, *hit.chunk.metadata)).casefold()


def _findable(terms: tuple[str, ...], scope: Scope, weights: Mapping[str, float], highest: float) -> tuple[str, ...]:
    """Return the terms without Chinese ones if no document is Chinese and one of the other terms is specific.

    "PYTHONUTF8 是什么" ("what is PYTHONUTF8") -> ("pythonutf8",): no English document contains the Chinese words.

    Args:
        highest: weight of a term that occurs in no passage.
    """
    if any(one.languages.get("zh") for one in scope.all_collections):
        return terms
    shared = tuple(term for term in terms if not chinese_dictionary.contains_chinese(term))
    return shared if any(weights[term] >= _RARE * highest for term in shared) else terms


def _terms(text: str, language: str) -> tuple[str, ...]:
    """Return the distinct stems of a text's words without stop words, then its identifiers as hyphenated terms.

    `__set_name__` -> set, name, set-name. An identifier that the text itself writes with hyphens is not added.
    """
    written = text.casefold()
    terms = analyse_question(text, language)
    identifiers = (term.text for term in terms if term.derived and "-" in term.text and term.text not in written)
    return tuple(dict.fromkeys((*(term.text for term in terms if not term.derived), *identifiers)))


def _occurrences(term: str, texts: Sequence[str]) -> frozenset[int]:
    """Return the indexes of the texts that contain the term."""
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
