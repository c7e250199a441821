"""Decide whether a question goes to the documents, to the web or another source outside them, or to no source.

The web is asked only if the question says nothing like "our", states no value of the catalogue, has hardly a word that
the documents contain, and a classifier (`choose_outside_source`) is sure. Inputs of the classifier are the wording and
how much of it the catalogue and the documents know; `evals/train_turn.py` makes its weights.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from agent.intent.rules_reader import RulesReading
from agent.intent.sources import cheapest_world_source
from agent.intent.topic import small_talk
from agent.intent.topic.catalogue_overlap import CatalogueOverlap
from agent.intent.topic.term_coverage import DocumentIndex, TermCoverage, measure_term_coverage
from agent.intent.turn.source_examples import most_similar_source, source_with_example
from agent.intent.turn.wording_classifier import wording_logit, wording_vector, world_weights
from agent.types import SourceChoice
from retrievers.core.errors import RetrievalError
from retrievers.core.types import Card, Scope
from retrievers.embed import Embedder, Vectors
from retrievers.text.document_ids import candidate_chunk_ids, find_id_candidates

WEB_FROM = 0.8
"""Minimum probability at which a question is sent to the web; of those to collections not trained on, 1 % reach it."""
_TALKS = 4.5
"""Minimum logit at which a turn is addressed to the assistant and asks nothing."""
_MOST_KNOWN = 0.7
"""Minimum weighted share of words in the documents at which a question is about their subject."""
_MOST_NAMED = 0.25
"""Minimum share of a question's letters in names of values at which it is about these values."""
_MOST_TOLD = 3.0
"""Maximum total weight of known words; more of them add no evidence."""
_FARTHEST = 4.0
"""Maximum absolute logit of the wording."""
_LONGEST_QUESTION = 300


async def choose_outside_source(
    reading: RulesReading,
    scope: Scope,
    catalogue: DocumentIndex,
    cards: Mapping[str, Card],
    embedder: Embedder,
    language: str,
) -> RulesReading:
    """Return the reading, with other sources if the question is not for the documents alone.

    A question that resembles a source's examples goes to that source; small talk goes to no source. A question that is
    surely about the world goes to the web, and the documents are searched as well.

    Args:
        catalogue: counts terms in the passages, and loads passages by their ids.
        embedder: the service's; compares the question with examples.
    """
    example = source_with_example(reading.question, cards)
    if example is not None:
        return replace(
            reading, kind="retrieve", searches=(reading.question,), sources=(example,), aggregate=None,
            confidence=example.confidence,
        )  # fmt: skip
    if reading.catalogue_overlap is None or len(reading.question) > _LONGEST_QUESTION:
        return reading
    if reading.catalogue_overlap.values >= _MOST_NAMED:
        return reading
    liked = (
        await most_similar_source(reading.question, cards, embedder, language)
        if not any(reading.catalogue_overlap)
        else None
    )
    if liked is not None:
        return replace(reading, sources=(liked,), confidence=liked.confidence)
    text = small_talk.strip_greeting(reading.question)
    coverage = await measure_term_coverage(text, scope, catalogue)
    if coverage.known_share >= _MOST_KNOWN or coverage.has_only_codes:
        return reading
    if any(reading.catalogue_overlap) and _probability(_FARTHEST, coverage, reading.catalogue_overlap) < WEB_FROM:
        return reading  # even the strongest wording would not reach `WEB_FROM`
    try:
        whole = await wording_vector(reading.question, embedder)
        vector = await wording_vector(text, embedder) if text != reading.question else whole
    except RetrievalError:
        return reading
    if not any(reading.catalogue_overlap) and wording_logit("talk", reading.question, whole) >= _TALKS:
        none = SourceChoice(name="none", confidence=0.95, reason="small talk")
        return replace(reading, kind="none", searches=(), sources=(none,), confidence=none.confidence, complete=True)
    wording = wording_logit("world", text, vector)
    probability = _probability(wording, coverage, reading.catalogue_overlap)
    if probability < WEB_FROM or await _names_a_document(text, scope, catalogue):
        return reading
    web = SourceChoice(
        name=cheapest_world_source(cards), confidence=round(probability, 2), reason="it asks about the world"
    )
    return replace(reading, sources=(web, *reading.sources), conditions=(), confidence=web.confidence, complete=False)


async def _names_a_document(text: str, scope: Scope, catalogue: DocumentIndex) -> bool:
    """Return whether a word of the question is the id of a document; an id need not occur in any text."""
    ids = candidate_chunk_ids(find_id_candidates(text)[0], scope.collections)
    return bool(ids and await catalogue.load(scope, ids))


def _probability(wording: float, coverage: TermCoverage, catalogue: CatalogueOverlap) -> float:
    weights = world_weights()
    return _logistic(float(np.dot(weights[:-1], world_features(wording, coverage, catalogue)) + weights[-1]))


def world_features(wording: float, coverage: TermCoverage, catalogue: CatalogueOverlap) -> Vectors:
    """Return the inputs of the classifier of questions about the world, shape (8,).

    Args:
        wording: the logit of `wording_logit` for the kind "world".
        coverage: how many of the question's words the documents contain.
        catalogue: how much of the question names values and fields.
    """
    return np.array(
        [
            max(min(wording, _FARTHEST), -_FARTHEST),
            min(coverage.known_weight, _MOST_TOLD),
            math.log1p(coverage.unknown_weight),
            coverage.is_cross_language,
            coverage.has_unknown_name,
            *catalogue,
        ]
    )


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))
