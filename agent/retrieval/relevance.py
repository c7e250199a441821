"""Relevance: the probability that a hit answers the question, 0 to 1, comparable across questions.

BM25 scores and cosines are not comparable across questions, so each is put on a scale: BM25 is divided by the total
weight of the question's words, including words that occur in no document; the cosine is measured from that of unrelated
texts. A logistic regression combines both; `evals/train_relevance.py` fits its coefficients.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent.retrieval import fusion
from agent.retrieval.fusion import FusedHit
from agent.retrieval.plan_execution import StepResult
from agent.retrieval.search_stage import SearchResults
from agent.types import Intent
from retrievers.core.types import ChunkId, Hit, Query, Retriever, Scope, TermCounter
from retrievers.embed import cosine_scale
from retrievers.embed.embedders import Embedders
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.text.analysis import analyse
from retrievers.text.bm25 import idf
from retrievers.text.chinese_dictionary import contains_chinese
from retrievers.text.question_terms import analyse_question, question_term_weights

UNAVAILABLE = "relevance_unavailable"
"""Entry in `Result.degraded`: the database did not return the document frequencies in time, or the embedder failed."""

_MOST_SHARE = 1.5
_LEAST_WEIGHT = 1e-9

Numbers = NDArray[np.float64]


class SearchScores(NamedTuple):
    """The scores of one search.

    Attributes:
        bm25_scores: BM25 score by passage; None if no source searched by words.
        cosines: cosine by passage, rescaled so that unrelated texts have 0; None if no source searched by vectors or
            the embedder does not know the language.
        query_weight: summed weight of all words of the query, in units of BM25.
        condition_weight: weight of the question's words that state conditions. It is added to every hit's score, since
            every hit satisfies the conditions; 0 if some were dropped.
    """

    bm25_scores: Mapping[ChunkId, float] | None
    cosines: Mapping[ChunkId, float] | None
    query_weight: float
    condition_weight: float = 0.0

    @property
    def kind(self) -> str:
        """Names of the scores that exist, such as "words+near"; each combination has its own coefficients."""
        return "+".join(name for name, one in (("words", self.bm25_scores), ("near", self.cosines)) if one is not None)


class RelevanceWeights(NamedTuple):
    """The fitted parameters.

    Attributes:
        found: minimum relevance of the best hit at which the result's status is `found`, not `weak`.
        coefficients: for each `SearchScores.kind`, one per column of `score_features`; the last is the constant.
    """

    found: float
    coefficients: Mapping[str, Sequence[float]]


@cache
def packaged_weights() -> RelevanceWeights:
    """Return the packaged parameters."""
    return RelevanceWeights(
        **json.loads(files("agent.retrieval").joinpath("relevance.json").read_text(encoding="utf-8"))
    )


def score_features(evidence: SearchScores, ids: Sequence[ChunkId]) -> Numbers:
    """Return the regression's inputs: share of the query's words, nearness, and 1; shape (passages, columns)."""
    columns: list[Numbers] = []
    if evidence.bm25_scores is not None:
        held = np.array([evidence.bm25_scores.get(id, 0.0) for id in ids]) + evidence.condition_weight
        columns.append(
            np.minimum(held / max(evidence.query_weight + evidence.condition_weight, _LEAST_WEIGHT), _MOST_SHARE)
        )
    if evidence.cosines is not None:
        lowest = min(evidence.cosines.values(), default=0.0)
        columns.append(np.array([evidence.cosines.get(id, lowest) for id in ids]))
    return np.stack([*columns, np.ones(len(ids))], axis=1)


def best_relevance(evidence: Sequence[SearchScores], ids: Sequence[ChunkId]) -> Numbers:
    """Return per passage the highest relevance that any search gives it, shape (passages,)."""
    best = np.zeros(len(ids))
    for one in evidence:
        if (coefficients := packaged_weights().coefficients.get(one.kind)) is not None:
            best = np.maximum(best, predict_relevance(score_features(one, ids), coefficients))
    return best


def predict_relevance(rows: Numbers, coefficients: Sequence[float]) -> Numbers:
    """Apply the logistic regression to rows of features; returns probabilities, shape (rows,)."""
    return np.asarray(1 / (1 + np.exp(-(rows @ np.array(coefficients)))))


async def estimate_relevance(
    results: SearchResults,
    ranking: Sequence[FusedHit],
    *,
    scope: Scope,
    catalogue: Catalogue,
    sources: Mapping[str, Retriever],
    embedder: Embedders,
    is_listing: bool = False,
) -> dict[ChunkId, float]:
    """Return {id of a hit: relevance, 0 to 1}; hits of external sources (web, cloud) cannot be judged and are left out.

    Relevance is 1 for hits of a calculation, for documents whose id the query names, and for all hits if the question
    consists of conditions only.

    Args:
        is_listing: whether the question consists of conditions only.
    Raises:
        Unavailable: the database cannot return document frequencies, or the embedder fails.
    """
    kinds = {name: source.card.kind for name, source in sources.items()}
    satisfied = satisfies_constraints(results)
    outside = {name for name, kind in kinds.items() if kind == "outside"}
    own = [hit.id for hit in ranking if not (outside and outside.issuperset(hit.ranks))]
    if is_listing and satisfied:
        return dict.fromkeys(own, 1.0)
    answers = [one for one in results.answers if one.query is not None and not one.is_failed]
    certain = {hit.id for one in answers if kinds[one.step.source] == "metadata" for hit in one.hits}
    certain |= {hit.id for one in answers for hit in one.hits if hit.chunk and _is_named(hit, one.step.search)}
    texts = [one for one in answers if kinds[one.step.source] == "documents"]
    evidence = await collect_search_scores(
        texts, results.planned.intent, scope, catalogue, sources, embedder, satisfied=satisfied
    )
    judged = zip(own, best_relevance(evidence, own).round(4).tolist(), strict=True)
    return {**dict(judged), **dict.fromkeys(certain.intersection(own), 1.0)}


def satisfies_constraints(results: SearchResults) -> bool:
    """Return whether the question states firm constraints and the hits satisfy them all."""
    return results.level is not None and not results.level.dropped and bool(results.planned.constraints.firm)


async def collect_search_scores(
    answers: Sequence[StepResult],
    intent: Intent,
    scope: Scope,
    catalogue: Catalogue,
    sources: Mapping[str, Retriever],
    embedder: Embedders,
    *,
    satisfied: bool,
) -> list[SearchScores]:
    """Return the BM25 scores, cosines and query weight of each search.

    The term counts read here are usually in the catalogue's cache, since the searches have read them.

    Args:
        satisfied: whether every hit satisfies the firm constraints read from the question.
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
            others = [hit for hit in answer.hits if not (hit.chunk and _is_named(hit, search))]
            rankings.setdefault(answer.step.source, []).extend(others)
        measured = fusion.merge_by_scale(rankings)
        words, near = measured.get("fulltext"), measured.get("vector")
        language = "en" if query.translation else query.language
        known = embedder.languages_in(scope)
        if known is not None and language not in known:
            near = None
        common = await cosine_scale.unrelated_cosine(embedder) if near else 0.0
        terms = _terms(query)
        weight = await _weight(terms, scope, catalogue, sources)
        stated = 0.0
        if satisfied and not query.translation and contains_chinese(search) == contains_chinese(intent.question):
            beside = question_term_weights(intent.question, query.language).keys() - terms.keys()
            stated = weight / max(len(terms), 1) * len(beside)
        evidence.append(
            SearchScores(
                None if words is None else {hit.id: hit.score for hit in words},
                None if near is None else {hit.id: (hit.score - common) / (1 - common) for hit in near},
                weight * _missing_senses(query, intent.question),
                stated,
            )
        )
    return evidence


def _terms(query: Query) -> Mapping[str, float]:
    """Return the query's terms with their weights.

    Chinese terms are left out if the query has an English translation and no document is Chinese.
    """
    terms = question_term_weights(query.text, query.language, query.translation)
    if not query.translation or any(one.languages.get("zh") for one in query.scope.all_collections):
        return terms
    return {term: share for term, share in terms.items() if not contains_chinese(term)} or terms


async def _weight(
    terms: Mapping[str, float], scope: Scope, catalogue: Catalogue, sources: Mapping[str, Retriever]
) -> float:
    """Return the BM25 score of a passage of average length that holds every term once."""
    stored = await catalogue.term_counts(scope, terms) if scope.collections else {}
    counts: list[Mapping[str, int]] = [*stored.values()]
    beside = {one.name for one in scope.external_collections}
    counts += [
        one.term_counts(terms) for name, one in sources.items() if name in beside and isinstance(one, TermCounter)
    ]
    chunks = sum(one.chunks for one in scope.all_collections)
    return sum(share * idf(sum(one.get(term, 0) for one in counts), chunks) for term, share in terms.items())


def _missing_senses(query: Query, question: str) -> float:
    """Return the ratio of words in the Chinese question to words in its English translation; at least 1.

    The translation lacks words that the dictionary does not know, and its few remaining words may match anything. So
    the query's weight is multiplied by this ratio, which lowers the relevance of all hits.
    """
    chinese, english = (query.text, query.translation) if query.translation else (question, query.text)
    if contains_chinese(english) or not contains_chinese(chinese):
        return 1.0
    words = sum(not term.derived for term in analyse_question(chinese, "zh"))
    return max(words / max(len(analyse(english, "en")), 1), 1.0)


def _is_named(hit: Hit, search: str) -> bool:
    """Return whether the search names the hit's document by id; such hits come with their text loaded."""
    return hit.chunk is not None and hit.component_scores is None and hit.id.document_id.casefold() in search.casefold()
