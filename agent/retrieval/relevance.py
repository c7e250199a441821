"""Relevance: how likely a hit answers the question, from 0 to 1 and comparable across questions (DESIGN section 5).

Scores of BM25 and cosines mean nothing by themselves, so each is put beside what it could be: BM25 beside the weight of
the question's words, those included that no document has; the cosine beside that of texts that have nothing to do with
each other. A logistic regression weighs both; `evals/train_relevance.py` makes its coefficients.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.retrieval import fusion
from agent.retrieval.execute import StepResult
from agent.retrieval.fusion import Fused
from agent.retrieval.search import SearchResults
from agent.types import Intent
from retrievers.core.types import ChunkId, Counting, Hit, Query, Retriever, Scope
from retrievers.embed import scale
from retrievers.embed.pool import Embedders
from retrievers.postgres.catalogue import Catalogue
from retrievers.text.analysis import analyse
from retrievers.text.glosses import is_chinese
from retrievers.text.questions import question_terms
from retrievers.text.weights import idf

UNAVAILABLE = "relevance_unavailable"
"""In `Result.degraded`: the database did not say in time how rare the question's words are, or the embedder how its
vectors compare."""

_MOST_SHARE = 1.5
_LEAST_WEIGHT = 1e-9

Numbers = NDArray[np.float64]


class SearchEvidence(NamedTuple):
    """What one search says of its hits.

    Attributes:
        words: BM25 by passage; None where nobody searched by words.
        near: cosine by passage, 0 for that of unrelated texts; None where nobody searched by meaning, or the vectors
            do not know the language.
        weight: of all words of the question, in the units of BM25.
        stated: the weight of its words that are conditions, which every hit satisfies.
    """

    words: Mapping[ChunkId, float] | None
    near: Mapping[ChunkId, float] | None
    weight: float
    stated: float = 0.0

    @property
    def kind(self) -> str:
        """Which measures there are: the coefficients are different ones."""
        return "+".join(name for name, one in (("words", self.words), ("near", self.near)) if one is not None)


class RelevanceWeights(NamedTuple):
    """The learned numbers.

    Attributes:
        found: least relevance of some hit at which the documents speak of what was asked.
        coefficients: of the columns of `features`, the last a constant, by `SearchEvidence.kind`.
    """

    found: float
    coefficients: Mapping[str, Sequence[float]]


@cache
def weights() -> RelevanceWeights:
    """Those of the package."""
    return RelevanceWeights(
        **json.loads(files("agent.retrieval").joinpath("relevance.json").read_text(encoding="utf-8"))
    )


def features(evidence: SearchEvidence, ids: Sequence[ChunkId]) -> Numbers:
    """What the regression sees of passages: share of the words, nearness, and 1; shape (passages, columns)."""
    columns: list[Numbers] = []
    if evidence.words is not None:
        held = np.array([evidence.words.get(id, 0.0) for id in ids]) + evidence.stated
        columns.append(np.minimum(held / max(evidence.weight + evidence.stated, _LEAST_WEIGHT), _MOST_SHARE))
    if evidence.near is not None:
        lowest = min(evidence.near.values(), default=0.0)
        columns.append(np.array([evidence.near.get(id, lowest) for id in ids]))
    return np.stack([*columns, np.ones(len(ids))], axis=1)


def relevance(evidence: Sequence[SearchEvidence], ids: Sequence[ChunkId]) -> Numbers:
    """Of each passage the highest that a search gives it, shape (passages,)."""
    best = np.zeros(len(ids))
    for one in evidence:
        if (coefficients := weights().coefficients.get(one.kind)) is not None:
            best = np.maximum(best, weighed(features(one, ids), coefficients))
    return best


def weighed(rows: Numbers, coefficients: Sequence[float]) -> Numbers:
    """The logistic regression of rows of features, shape (rows,)."""
    return np.asarray(1 / (1 + np.exp(-(rows @ np.array(coefficients)))))


async def judge(
    found: SearchResults,
    ranking: Sequence[Fused],
    *,
    scope: Scope,
    catalogue: Catalogue,
    sources: Mapping[str, Retriever],
    embedder: Embedders,
    is_listing: bool = False,
) -> dict[ChunkId, float]:
    """The relevance of the hits of a ranking. A hit from outside is left out: nobody here can judge it.

    What a calculation lists, what a question names by its id, and what satisfies a question of conditions alone has 1.

    Args:
        is_listing: whether nothing is asked beside the conditions.
    Raises:
        Unavailable: neither the database nor the embedder says what the scores mean.
    """
    kinds = {name: source.card.kind for name, source in sources.items()}
    satisfied = satisfies(found)
    inside = {name for name, kind in kinds.items() if kind != "outside"}
    own = [hit.id for hit in ranking if not inside.isdisjoint(hit.ranks)]
    if is_listing and satisfied:
        return dict.fromkeys(own, 1.0)
    answers = [one for one in found.answers if one.query is not None and not one.failed]
    certain = {hit.id for one in answers if kinds[one.step.source] == "metadata" for hit in one.hits}
    certain |= {hit.id for one in answers for hit in one.hits if _is_named(hit, one.step.search)}
    texts = [one for one in answers if kinds[one.step.source] == "documents"]
    evidence = await gather(texts, found.course.intent, scope, catalogue, sources, embedder, satisfied=satisfied)
    judged = zip(own, relevance(evidence, own).round(4).tolist(), strict=True)
    return {**dict(judged), **dict.fromkeys(certain.intersection(own), 1.0)}


def satisfies(found: SearchResults) -> bool:
    """Whether the hits satisfy the conditions that the question states, and there are such."""
    return found.rung is not None and not found.rung.dropped and bool(found.course.constraints.firm)


async def gather(
    answers: Sequence[StepResult],
    intent: Intent,
    scope: Scope,
    catalogue: Catalogue,
    sources: Mapping[str, Retriever],
    embedder: Embedders,
    *,
    satisfied: bool,
) -> list[SearchEvidence]:
    """What each search says; the words were counted for the searches before, so that nothing is asked again.

    Args:
        satisfied: whether every hit satisfies what was read from the question as conditions.
    """
    by_search: dict[str, list[StepResult]] = {}
    for answer in answers:
        by_search.setdefault(answer.step.search, []).append(answer)
    evidence = []
    for search, group in by_search.items():
        query = group[0].query
        assert query is not None
        rankings: dict[str, list[Hit]] = {}
        for answer in group:
            named = (hit for hit in answer.hits if not _is_named(hit, search))
            rankings.setdefault(answer.step.source, []).extend(named)
        measured = fusion.by_measure(rankings)
        words, near = measured.get("fulltext"), measured.get("vector")
        language = "en" if query.gloss else query.language
        known = embedder.languages_in(scope)
        if known is not None and language not in known:
            near = None
        common = await scale.unrelated(embedder) if near else 0.0
        terms = _terms(query)
        weight = await _weight(terms, scope, catalogue, sources)
        stated = 0.0
        if satisfied and not query.gloss and is_chinese(search) == is_chinese(intent.question):
            beside = question_terms(intent.question, query.language).keys() - terms.keys()
            stated = weight / max(len(terms), 1) * len(beside)
        evidence.append(
            SearchEvidence(
                None if words is None else {hit.id: hit.score for hit in words},
                None if near is None else {hit.id: (hit.score - common) / (1 - common) for hit in near},
                weight * _missing_senses(query, intent.question),
                stated,
            )
        )
    return evidence


def _terms(query: Query) -> dict[str, float]:
    """The question's terms that some document could hold, with their shares."""
    terms = question_terms(query.text, query.language, query.gloss)
    if not query.gloss or any(one.languages.get("zh") for one in query.scope.all):
        return terms
    return {term: share for term, share in terms.items() if not is_chinese(term)} or terms


async def _weight(
    terms: Mapping[str, float], scope: Scope, catalogue: Catalogue, sources: Mapping[str, Retriever]
) -> float:
    """BM25 of a passage of usual length that holds every term once."""
    stored = await catalogue.term_counts(scope, terms) if scope.collections else {}
    counts: list[Mapping[str, int]] = [*stored.values()]
    beside = {one.name for one in scope.beside}
    counts += [one.term_counts(terms) for name, one in sources.items() if name in beside and isinstance(one, Counting)]
    chunks = sum(one.chunks for one in scope.all)
    return sum(share * idf(sum(one.get(term, 0) for one in counts), chunks) for term, share in terms.items())


def _missing_senses(query: Query, question: str) -> float:
    """How many times more words the Chinese question has than its gloss; at least 1.

    Words that the dictionary does not know are missing in the gloss, and what is left may be found anywhere.
    """
    chinese, english = (query.text, query.gloss) if query.gloss else (question, query.text)
    if is_chinese(english) or not is_chinese(chinese):
        return 1.0
    words = sum(not term.extra for term in analyse(chinese, "zh"))
    return max(words / max(len(analyse(english, "en")), 1), 1.0)


def _is_named(hit: Hit, search: str) -> bool:
    """Whether a search names the hit's document by its id: such hits come with their beginning."""
    return hit.chunk is not None and hit.parts is None and hit.id.document_id.casefold() in search.casefold()
