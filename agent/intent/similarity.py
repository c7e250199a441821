"""Likeness of a question to the examples of each source, where rules have no better reason for a choice."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from agent.intent.rules import RulesReading
from agent.types import SourceChoice
from retrievers.core.errors import RetrievalError
from retrievers.core.types import Card
from retrievers.embed import Embedder

LEAST = 0.6
"""Cosine to the nearest example from which on a source counts as meant."""
MARGIN = 0.1
"""How much nearer its example must be than those of every other source."""


async def refine(reading: RulesReading, cards: Mapping[str, Card], embedder: Embedder, language: str) -> RulesReading:
    """The reading with a source outside put first when the question is like its examples and like no other's.

    Only sources outside the documents are chosen in this way: documents are asked by default, and
    metadata only by a calculation. The question's vector is needed by the search all the same.
    """
    outside = {name: card for name, card in cards.items() if card.kind == "outside" and card.examples}
    unsure = reading.kind == "retrieve" and reading.confidence <= LEAST and not reading.pieces
    if not outside or not unsure or (embedder.languages is not None and language not in embedder.languages):
        return reading
    try:
        scores = {
            name: await _likeness(reading.question, card, embedder) for name, card in cards.items() if card.examples
        }
    except RetrievalError:
        return reading
    best = max(outside, key=lambda name: (scores[name], name))
    others = max((score for name, score in scores.items() if name != best), default=0.0)
    if scores[best] < LEAST or scores[best] - others < MARGIN:
        return reading
    choice = SourceChoice(name=best, confidence=round(scores[best], 2), reason="the question is like its examples")
    return replace(reading, sources=(choice,), confidence=round(scores[best], 2))


async def _likeness(question: str, card: Card, embedder: Embedder) -> float:
    """Cosine of the question and the nearest example."""
    asked = await embedder.embed_query(question)
    examples = [await embedder.embed_query(example) for example in card.examples]
    return max(float(np.dot(asked, example)) for example in examples)
