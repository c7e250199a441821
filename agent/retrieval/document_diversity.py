"""Diversity: keep passages of one document from filling a page while other documents are relevant.

The whole ranking is reordered once, whatever page is asked for, so a short page is always the beginning of a longer
one.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from operator import itemgetter

from agent.retrieval.fusion import FusedHit, cap_rising_scores, reorder_within_parts
from retrievers.text.folding import fold

LEAST_SHARE = 0.1
"""Minimum share of the best score at which a hit counts as relevant.

Measured on PEPs (dev split, no model): with 2 passages per document, ten hits come from 6.5 documents instead of 5.1,
and nDCG@10 of documents rises from 0.826 to 0.840. With 1 passage it is 0.844, the same as over 100 hits. With a share
of 0.25 it is 0.838, with 0.4 0.834.
"""
NAMED_AMONG = 10
"""Number of top hits whose documents are checked for being named in the question."""
_LEAST_WORDS = 2
_LEAST_HAN = 4

Document = tuple[str, str, str]
"""Tenant, collection and id of a document: the first three items of a chunk's id."""


def diversify(
    ranking: Sequence[FusedHit],
    per_document: int,
    *,
    whole: Collection[Document] = (),
    least_share: float = LEAST_SHARE,
) -> list[FusedHit]:
    """Reorder a ranking so that passages of one document do not fill a page while other documents are relevant.

    The new order consists of rounds: a round has the next `per_document` relevant passages of every document, in the
    old order. Passages that are not relevant follow unchanged. If the question has several parts, each keeps its
    places, see `agent.retrieval.fusion.reorder_within_parts`.

    Args:
        ranking: best first; may be empty.
        per_document: passages of a document per round, at least 1.
        whole: documents whose passages all come in the first round, because the question names the document.
        least_share: minimum share of the best score at which a hit is relevant; 0 if a filter decides what is relevant.
    Returns:
        The same hits. Where the order changed, scores are lowered so that no hit scores more than the hit before it.
    Raises:
        ValueError: `per_document` is less than 1.
    """
    if per_document < 1:
        raise ValueError(f"per_document is {per_document}; it must be at least 1")
    best = ranking[0].score if ranking else 0.0
    least = least_share * best if best > 0 else -math.inf  # without a positive best score, nothing can be called weak
    relevant = next((place for place, hit in enumerate(ranking) if hit.score < least), len(ranking))
    given: dict[Document, int] = {}
    rounds: list[tuple[int, FusedHit]] = []
    for hit in ranking[:relevant]:
        document = hit.id[:3]
        before = given.get(document, 0)
        given[document] = before + 1
        rounds.append((0 if document in whole else before // per_document, hit))
    if not any(number for number, _ in rounds):
        return list(ranking)
    rounds.sort(key=itemgetter(0))  # the sort is stable: within a round the order stays
    return cap_rising_scores(reorder_within_parts(ranking, [*(hit for _, hit in rounds), *ranking[relevant:]]))


def limit_per_document(ranking: Sequence[FusedHit], per_document: int) -> list[FusedHit]:
    """Return the ranking with only the first `per_document` passages of each document."""
    given: Counter[Document] = Counter()
    kept = []
    for hit in ranking:
        given[hit.id[:3]] += 1
        if given[hit.id[:3]] <= per_document:
            kept.append(hit)
    return kept


def dominant_document_hits(ranking: Sequence[FusedHit], per_document: int) -> list[FusedHit]:
    """Return the best hit of each document that has more than `per_document` of the first `NAMED_AMONG` hits."""
    first = ranking[:NAMED_AMONG]
    counts = Counter(hit.id[:3] for hit in first)
    best: dict[Document, FusedHit] = {}
    for hit in first:
        best.setdefault(hit.id[:3], hit)
    return [hit for document, hit in best.items() if counts[document] > per_document]


def names_document(question: str, document_id: str, title: str) -> bool:
    """Return whether a question names a document, by its whole id or its whole title.

    A title counts only if it has at least two words or four Chinese characters. An id counts only if it contains a
    digit, since other ids may be ordinary words.
    """
    asked = fold(question)
    id, name = fold(document_id), fold(title)
    if any(letter.isdigit() for letter in id) and _holds(asked, id):
        return True
    is_long = len(name.split()) >= _LEAST_WORDS or sum("\u3400" <= letter <= "\u9fff" for letter in name) >= _LEAST_HAN
    return is_long and _holds(asked, name)


def _holds(text: str, words: str) -> bool:
    """Return whether the phrase occurs in the text and does not begin or end inside a word.

    Only words of ASCII letters and digits count here, since Chinese has no spaces between words.
    """
    place = text.find(words)
    while place >= 0:
        before, behind = text[place - 1 : place], text[place + len(words) : place + len(words) + 1]
        if not (_joins(before, words[0]) or _joins(words[-1], behind)):
            return True
        place = text.find(words, place + 1)
    return False


def _joins(left: str, right: str) -> bool:
    """Return whether two adjacent characters belong to one word, that is, are both ASCII letters or digits."""
    return (left + right).isascii() and left.isalnum() and right.isalnum()
