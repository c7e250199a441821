"""Features of a value, for `features`: do documents with it also have the other values that the question names?

A person who states two conditions mostly knows documents that satisfy both. A value named by accident occurs together
with the others only by chance. Values that never occur together say nothing: a person may ask whether they do.
"""

import math
from collections.abc import Iterator, Sequence

from agent.intent.analysis.sentence import Sentence
from agent.intent.values.value_linking import Mention
from agent.intent.values.value_match import ValueMatch
from retrievers.core.cooccurrence import Cooccurrence

COOCCURRENCE_FEATURES = frozenset(("occurs beside", "beside all at once", "most lift", "least lift", "least expected"))


def cooccurrence_features(
    sentence: Sentence, mention: Mention, known: Sequence[ValueMatch]
) -> Iterator[tuple[str, float]]:
    """Yield (feature, number) for how often the candidate's values occur together with other values of the question.

    "occurs beside" is the number of other fields with a value that occurs together with the candidate's. "beside all at
    once" is 1 if a document has a value of each of these fields, else 0. A lift is the binary logarithm of how many
    times more documents have both values than chance would give ("least expected").

    The other values of one field are alternatives. A denied name is not compared, because documents with its value are
    not meant.

    Args:
        mention: the candidate's name in the question.
        known: the values that the candidate's name may mean, all of one field.
    """
    documents = sentence.vocabulary.catalogue.cooccurrence
    if not documents.having or sentence.negations.get(mention.first):
        return
    field = known[0].field
    own = documents.documents_with_values(field, [one.value for one in known])
    lifts, all_at_once, compared = [], own, 0
    for other, having in _others(sentence, mention, field, documents).items():
        both = documents.documents_with_field(field) & documents.documents_with_field(other)
        expected = (own & both).bit_count() * (having & both).bit_count() / max(both.bit_count(), 1)
        if not expected:
            continue  # the fields occur together in no document with these values, as in two collections
        compared += 1
        met = (own & having).bit_count()
        all_at_once &= having
        if met:
            lifts.append((math.log2((met + 0.5) / (expected + 0.5)), expected))
    if not lifts:
        return
    yield "occurs beside", float(len(lifts))
    yield "beside all at once", float(len(lifts) == compared and bool(all_at_once))
    yield "most lift", round(max(lift for lift, _ in lifts), 1)
    yield "least lift", round(min(lift for lift, _ in lifts), 1)
    yield "least expected", round(min(expected for _, expected in lifts), 2)


def _others(sentence: Sentence, mention: Mention, field: str, documents: Cooccurrence) -> dict[str, int]:
    """Return for each field the documents, as bits, with a value that other names of the question stand for.

    A name with values in several fields counts for the field whose value has the most documents. It does not count at
    all if it may be a value of the candidate's field.
    """
    found: dict[str, int] = {}
    for other in sentence.mentions:
        apart = other.end <= mention.start or mention.end <= other.start
        if not apart or sentence.negations.get(other.first) or any(one.field == field for one in other.matches):
            continue
        if other.matches:
            first = max(other.matches, key=lambda one: one.documents)
            values = [one.value for one in other.matches if one.field == first.field]
            found[first.field] = found.get(first.field, 0) | documents.documents_with_values(first.field, values)
    return {name: having for name, having in found.items() if having}
