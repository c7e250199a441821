"""Choose a source by the example questions that are configured for it."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from agent.intent.language.text import readable, words_of, words_of_question
from agent.types import SourceChoice
from retrievers.core.errors import RetrievalError
from retrievers.core.types import Card
from retrievers.embed import Embedder

_LIKE, _NEARER = 0.6, 0.1
"""Minimum cosine of a question to an example of a source, and its minimum lead over all other sources."""


def source_with_example(question: str, cards: Mapping[str, Card]) -> SourceChoice | None:
    """Return the only configured source (`[sources.NAME]`) with this question, word for word, among its examples.

    None if no such source has it, or several have.

    Args:
        cards: the sources by name.
    """
    said = words_of_question(readable(question))
    names = [name for name, card in cards.items() if card.named and any(words_of(one) == said for one in card.examples)]
    return SourceChoice(name=names[0], confidence=1.0, reason="it is one of its examples") if len(names) == 1 else None


async def most_similar_source(
    question: str, cards: Mapping[str, Card], embedder: Embedder, language: str
) -> SourceChoice | None:
    """Return the source whose examples or description the question clearly resembles most; None if there is none.

    Only an outside source or a configured one (`[sources.NAME]`) is returned, and only if it leads over all other
    sources with examples. The result is also None if the embedder fails or does not know the language.
    """
    told = {name: (*card.examples, *((card.good_for,) if card.named else ())) for name, card in cards.items()}
    told = {name: texts for name, texts in told.items() if texts}
    may_be = [name for name in told if cards[name].kind == "outside" or cards[name].named]
    if not may_be or (embedder.languages is not None and language not in embedder.languages):
        return None
    try:
        scores = {name: await _likeness(question, texts, embedder) for name, texts in told.items()}
    except RetrievalError:
        return None
    best = max(may_be, key=lambda name: (scores[name], name))
    others = max((score for name, score in scores.items() if name != best), default=0.0)
    if scores[best] < _LIKE or scores[best] - others < _NEARER:
        return None
    return SourceChoice(name=best, confidence=round(scores[best], 2), reason="the question is like its examples")


async def _likeness(question: str, texts: Sequence[str], embedder: Embedder) -> float:
    """Return the largest cosine between the question and one of the texts."""
    asked, *told = await asyncio.gather(*map(embedder.embed_query, (question, *texts)))
    return max(float(np.dot(asked, one)) for one in told)
