"""Decide whether a question is for the documents or for the world outside them.

The web is asked only if the question says nothing like "our", states no value of the catalogue, has hardly a word that
the documents contain, and a classifier (`judge`) is sure. The classifier uses the wording and how much of it the
catalogue and the documents know; `evals/train_turn.py` makes its weights.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from agent.intent import smalltalk
from agent.intent.examples import example_of, source_like
from agent.intent.mentioned import Mentioned
from agent.intent.rules import RulesReading
from agent.intent.sources import cheapest_world
from agent.intent.subjects import DocumentIndex, Told, look_up
from agent.intent.turn_wording import by_wording, meaning, sign_weights
from agent.types import SourceChoice
from retrievers.core.errors import RetrievalError
from retrievers.core.types import Card, Scope
from retrievers.embed import Embedder, Vectors
from retrievers.text.ids import first_passages, may_be_ids

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


async def judge(
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
    example = example_of(reading.question, cards)
    if example is not None:
        return replace(
            reading, kind="retrieve", searches=(reading.question,), sources=(example,), aggregate=None,
            confidence=example.confidence,
        )  # fmt: skip
    if reading.mentioned is None or len(reading.question) > _LONGEST_QUESTION:
        return reading
    if reading.mentioned.values >= _MOST_NAMED:
        return reading
    liked = await source_like(reading.question, cards, embedder, language) if not any(reading.mentioned) else None
    if liked is not None:
        return replace(reading, sources=(liked,), confidence=liked.confidence)
    text = smalltalk.without_greeting(reading.question)
    told = await look_up(text, scope, catalogue)
    if told.known_share >= _MOST_KNOWN or told.only_code:
        return reading
    if any(reading.mentioned) and _probability(_FARTHEST, told, reading.mentioned) < WEB_FROM:
        return reading  # even the strongest wording would not reach `WEB_FROM`
    try:
        whole = await meaning(reading.question, embedder)
        vector = await meaning(text, embedder) if text != reading.question else whole
    except RetrievalError:
        return reading
    if not any(reading.mentioned) and by_wording("talk", reading.question, whole) >= _TALKS:
        none = SourceChoice(name="none", confidence=0.95, reason="small talk")
        return replace(reading, kind="none", searches=(), sources=(none,), confidence=none.confidence, complete=True)
    wording = by_wording("world", text, vector)
    probability = _probability(wording, told, reading.mentioned)
    if probability < WEB_FROM or await _names_a_document(text, scope, catalogue):
        return reading
    web = SourceChoice(name=cheapest_world(cards), confidence=round(probability, 2), reason="it asks about the world")
    return replace(reading, sources=(web, *reading.sources), pieces=(), confidence=web.confidence, complete=False)


async def _names_a_document(text: str, scope: Scope, catalogue: DocumentIndex) -> bool:
    """Return whether a word of the question is the id of a document; an id need not occur in any text."""
    ids = first_passages(may_be_ids(text)[0], scope.collections)
    return bool(ids and await catalogue.load(scope, ids))


def _probability(wording: float, told: Told, catalogue: Mentioned) -> float:
    weights = sign_weights()
    return _logistic(float(np.dot(weights[:-1], signs(wording, told, catalogue)) + weights[-1]))


def signs(wording: float, told: Told, catalogue: Mentioned) -> Vectors:
    """Return the inputs of the classifier of questions about the world, shape (8,).

    Args:
        wording: the logit of `by_wording` for the kind "world".
        told: how many of the question's words the documents contain.
        catalogue: how much of the question names values and fields.
    """
    return np.array(
        [
            max(min(wording, _FARTHEST), -_FARTHEST),
            min(told.known, _MOST_TOLD),
            math.log1p(told.unknown),
            told.foreign,
            told.stranger,
            *catalogue,
        ]
    )


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-max(min(logit, 500.0), -500.0)))
