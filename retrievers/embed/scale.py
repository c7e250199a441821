"""What a cosine says under each embedder: that of unrelated texts is near 0 under one model, near 0.7 under another."""

import numpy as np

from retrievers.embed import Embedder

# Of texts without a word or a subject in common. What their vectors have in common, all vectors of the embedder have.
_UNRELATED = (
    "How long does bread dough need to rise?", "The committee rejected the budget for the new bridge.",
    "Whales sing to find each other over great distances.", "Replace the battery when the red light blinks.",
    "Her first violin concerto was played in Vienna.", "Which vaccine protects against measles?",
    "The striker scored twice in the second half.", "Interest on the loan is due every quarter.",
)  # fmt: skip

# The packaged one's, so that it is not embedded for that.
_measured = {"minilm": 0.0095}


async def unrelated(embedder: Embedder) -> float:
    """Mean cosine of texts that have nothing to do with each other, 0 to 0.95; measured once for each embedder.

    Raises:
        Unavailable: the embedder does not answer.
    """
    known = _measured.get(embedder.name)
    if known is None:
        vectors = await embedder.embed(_UNRELATED)
        cosines = vectors @ vectors.T
        known = float(cosines[np.triu_indices(len(vectors), 1)].mean())
        known = _measured[embedder.name] = min(max(known, 0.0), 0.95)
    return known


def rescaled(cosine: float, unrelated_from: float, unrelated_to: float) -> float:
    """A cosine of one embedder as the cosine of another that says the same: unrelated and equal texts meet.

    Args:
        unrelated_from, unrelated_to: mean cosine of unrelated texts under the two, below 1.
    """
    return unrelated_to + (1 - unrelated_to) * (cosine - unrelated_from) / (1 - unrelated_from)
