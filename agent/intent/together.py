"""Evidence for a candidate from the documents: whether those with its value have the other values that are named.

Who asks for two conditions at once mostly knows of documents that satisfy both, while a value that is named by chance
meets the others as often as chance has it.
"""

import math
from collections.abc import Iterator, Sequence

from agent.intent.catalogue import Known
from agent.intent.linking import Mention
from agent.intent.sentence import Sentence


def signs_of_documents(sentence: Sentence, mention: Mention, known: Sequence[Known]) -> Iterator[tuple[str, float]]:
    """Yield (sign, number) for how often the candidate's values occur together with the question's other names.

    Another name stands for its values in all other fields. Nothing is yielded if the documents are unknown or if no
    other name has values in them.

    Args:
        known: the values of the candidate, all of one field.
    """
    documents = sentence.vocabulary.catalogue.cooccurrence
    own = documents.documents_with(known[0].field, [one.value for one in known])
    met, expected, everywhere = [], [], own
    for other in _others(sentence, mention):
        having = 0
        for one in other.known:
            if one.field != known[0].field:
                having |= documents.documents_with(one.field, (one.value,))
        if own and having:
            met.append((own & having).bit_count())
            expected.append(own.bit_count() * having.bit_count() / documents.documents)
            everywhere &= having
    if not met:
        return
    lifts = [math.log2((count + 0.5) / (chance + 0.5)) for count, chance in zip(met, expected, strict=True)]
    yield "names beside", float(len(met))
    yield "never met", float(met.count(0))
    yield "met none", float(not any(met))
    yield "met all at once", float(bool(everywhere))
    yield "least lift", round(min(lifts), 1)
    yield "most lift", round(max(lifts), 1)
    yield "least expected", round(min(expected), 2)


def _others(sentence: Sentence, mention: Mention) -> Iterator[Mention]:
    for other in sentence.mentions:
        if other is not mention and (other.end <= mention.start or mention.end <= other.start):
            yield other
