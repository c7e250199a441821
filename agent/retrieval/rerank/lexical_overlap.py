"""Lexical overlap: the share of a question's words that a passage holds, weighted by rarity and field."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection as AnyCollection
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import truncate_longest
from retrievers.core.types import Chunk
from retrievers.text.analysis import analyse
from retrievers.text.bm25 import FIELD_WEIGHTS

_UNIGRAM, _BIGRAM = 0.4, 0.6
_FIELDS = tuple(FIELD_WEIGHTS[label] for label in "DABC")
"""Weights of text, titles, important terms and questions, the same as in full text."""

Unit = str | tuple[str, str]
"""A word, or a pair of adjacent words."""


def lexical_overlap(question: str, language: str, pool: Sequence[FusedHit]) -> list[float]:
    """Return the share of the question's words and word pairs that each passage contains, in [0, 1).

    A word is weighted by its rarity within the pool, a pair by its rarer word. A unit that occurs c times contributes
    c / (1 + c) of its weight; an occurrence counts by the weight of its field: more in a title than in the text.

    Args:
        language: ISO 639-1 code of the question.
        pool: not empty, chunks loaded.
    Source:
        RAGFlow, rag/nlp/query.py: token_similarity, with words 0.4 and pairs 0.6; its field weights are title 2,
        important terms 5 and questions 6.
    """
    asked = _counted([question], language, (1.0,))
    held = [_counted(parts, language, _FIELDS, asked) for parts in _cut([_parts(hit.chunk) for hit in pool])]
    rarity = _rarities(asked, held)
    weights = {unit: count * _importance(unit, rarity) for unit, count in asked.items()}
    total = math.fsum(weights.values())
    if not total:
        return [0.0] * len(pool)
    shares = (math.fsum(weights[unit] * _saturated(count) for unit, count in units.items()) for units in held)
    return [share / total for share in shares]


def _parts(chunk: Chunk | None) -> tuple[str, ...]:
    """Return the texts of a passage, in the order of `_FIELDS`."""
    assert chunk is not None
    titles = "\n".join(filter(None, (chunk.title, chunk.heading)))
    return chunk.text, titles, "\n".join(chunk.important), "\n".join(chunk.questions)


def _cut(passages: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the passages with each field cut so that all together can be analysed in a fraction of a second."""
    return list(zip(*(truncate_longest(field) for field in zip(*passages, strict=True)), strict=True))


def _counted(
    texts: Iterable[str], language: str, weights: Iterable[float], among: AnyCollection[Unit] | None = None
) -> dict[Unit, float]:
    """Count words and pairs of adjacent words; an occurrence counts by its text's weight. No pair spans two texts.

    Args:
        texts, weights: fields of a passage, or the question alone, and the weight of each.
        among: the units to count; None for all.
    """
    counts: defaultdict[Unit, float] = defaultdict(float)
    for text, weight in zip(texts, weights, strict=True):
        words = [term.text for term in analyse(text, language, derived=False)]
        units: Iterable[Unit] = chain(words, pairwise(words))
        # Few units of a passage are in `among`; `filter` with a method of the dictionary drops the others at C speed.
        for unit in units if among is None else filter(among.__contains__, units):
            counts[unit] += weight
    return counts


def _rarities(asked: Mapping[Unit, float], held: Sequence[Mapping[Unit, float]]) -> dict[str, float]:
    """Return the inverse document frequency, > 0, of the question's words within the pool."""
    count = len(held)
    found = Counter(unit for units in held for unit in units)
    words = (unit for unit in asked if isinstance(unit, str))
    return {word: math.log(1 + (count - found[word] + 0.5) / (found[word] + 0.5)) for word in words}


def _importance(unit: Unit, rarity: Mapping[str, float]) -> float:
    if isinstance(unit, str):
        return _UNIGRAM * rarity[unit]
    return _BIGRAM * max(rarity[word] for word in unit)


def _saturated(count: float) -> float:
    return count / (1 + count)
