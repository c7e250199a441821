"""Diversity: passages of one document must not fill a page while other documents are relevant.

The whole ranking is ordered once, whatever the page: so a page of k hits is the beginning of a longer one.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from operator import itemgetter

from agent.retrieval.fusion import Fused, in_turns, never_rising
from retrievers.text.folding import fold

LEAST_SHARE = 0.1
"""Share of the best score from which on a hit counts as relevant beside the best one.

Ten hits over the PEPs were of 5.1 documents and are of 6.5 with 2 passages of each (dev split, no model); nDCG@10 of
documents was 0.826 and is 0.840, with 1 passage of each 0.844, as over 100 hits. With 0.25 it is 0.838, with 0.4 0.834.
"""
NAMED_AMONG = 10
"""Hits whose documents may be the one that a question names."""
_LEAST_WORDS = 2
_LEAST_HAN = 4

Document = tuple[str, str, str]
"""Tenant, collection and id of a document: the first three parts of a chunk's identity."""


def spread(
    ranking: Sequence[Fused],
    per_document: int,
    *,
    whole: Collection[Document] = (),
    least_share: float = LEAST_SHARE,
) -> list[Fused]:
    """The ranking with at most `per_document` passages of each document before the next relevant document.

    Passages are given in rounds: in each, every document gives its next `per_document` relevant ones, in the order of
    their scores. Passages that are not relevant follow as they are. The parts of a question keep their turns.

    Args:
        ranking: best first; empty is allowed.
        per_document: passages of a document in one round, at least 1.
        whole: documents that are asked for themselves; all their passages stand in the first round.
        least_share: of the best score, from which on a hit is relevant; 0 where conditions say which documents are.
    Returns:
        The same hits; where the order is another, `score` is never more than that of the hit before.
    Raises:
        ValueError: `per_document` is less than 1.
    """
    if per_document < 1:
        raise ValueError(f"per_document is {per_document}, it must be at least 1")
    best = ranking[0].score if ranking else 0.0
    least = least_share * best if best > 0 else -math.inf  # without a scale nothing can be said to be weak
    relevant = next((place for place, hit in enumerate(ranking) if hit.score < least), len(ranking))
    given: Counter[Document] = Counter()
    rounds: list[tuple[int, Fused]] = []
    for hit in ranking[:relevant]:
        document = hit.id[:3]
        rounds.append((0 if document in whole else given[document] // per_document, hit))
        given[document] += 1
    if not any(number for number, _ in rounds):
        return list(ranking)
    rounds.sort(key=itemgetter(0))  # a stable sort: within a round the order stays
    return never_rising(in_turns(ranking, [*(hit for _, hit in rounds), *ranking[relevant:]]))


def first_of_each(ranking: Sequence[Fused], per_document: int) -> list[Fused]:
    """The ranking without the passages of a document behind its first `per_document`."""
    given: Counter[Document] = Counter()
    kept = []
    for hit in ranking:
        given[hit.id[:3]] += 1
        if given[hit.id[:3]] <= per_document:
            kept.append(hit)
    return kept


def crowding(ranking: Sequence[Fused], per_document: int) -> list[Fused]:
    """The best hit of every document that has more than `per_document` of the first `NAMED_AMONG` hits."""
    first = ranking[:NAMED_AMONG]
    counts = Counter(hit.id[:3] for hit in first)
    best: dict[Document, Fused] = {}
    for hit in first:
        best.setdefault(hit.id[:3], hit)
    return [hit for document, hit in best.items() if counts[document] > per_document]


def is_named(question: str, document_id: str, title: str) -> bool:
    """Whether a question names a document: it holds the words of its id or of its title, in their order.

    Of a title at least two words or four Chinese characters; an id must hold a digit, as a word may be said for itself.
    """
    asked = fold(question)
    id, name = fold(document_id), fold(title)
    if any(letter.isdigit() for letter in id) and _holds(asked, id):
        return True
    is_long = len(name.split()) >= _LEAST_WORDS or sum("\u3400" <= letter <= "\u9fff" for letter in name) >= _LEAST_HAN
    return is_long and _holds(asked, name)


def _holds(text: str, words: str) -> bool:
    """Whether the words stand in the text, not as a part of longer words; Chinese has no blanks between words."""
    place = text.find(words)
    while place >= 0:
        before, behind = text[place - 1 : place], text[place + len(words) : place + len(words) + 1]
        if not (_joins(before, words[0]) or _joins(words[-1], behind)):
            return True
        place = text.find(words, place + 1)
    return False


def _joins(left: str, right: str) -> bool:
    """Whether two neighbours are letters or digits of one word."""
    return (left + right).isascii() and left.isalnum() and right.isalnum()
