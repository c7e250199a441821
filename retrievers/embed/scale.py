"""What a cosine says under each embedder: that of unrelated texts is near 0 under one model, near 0.7 under another."""

import asyncio
import time

import numpy as np

from retrievers.core.errors import Unavailable
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


# By embedder the measurement under way or failed, and when it began.
_measuring: dict[str, tuple[asyncio.Task[float], float]] = {}
_PATIENCE_S, _REST_S = 1.0, 10.0


async def unrelated(embedder: Embedder) -> float:
    """Mean cosine of texts that have nothing to do with each other, 0 to 0.95; measured once for each embedder.

    Raises:
        Unavailable: the embedder has not answered within 1 s. Nobody waits for it again in the next 10 s.
    """
    if (known := _measured.get(embedder.name)) is not None:
        return known
    task, began = _measuring.get(embedder.name, (None, 0.0))
    now = time.monotonic()
    if task is None or task.get_loop() is not asyncio.get_running_loop() or (task.done() and now - began > _REST_S):
        task, began = asyncio.ensure_future(_measure(embedder)), now
        task.add_done_callback(lambda one: one.cancelled() or one.exception())  # who gave up waiting asks no more
        _measuring[embedder.name] = task, began
    await asyncio.wait({task}, timeout=max(began + _PATIENCE_S - now, 0))
    if not task.done():
        raise Unavailable(f"the embedder {embedder.name}", "it is slow to say how its vectors compare")
    try:
        return task.result()
    except asyncio.CancelledError:
        raise Unavailable(f"the embedder {embedder.name}", "what it was asked was broken off") from None


async def _measure(embedder: Embedder) -> float:
    vectors = await embedder.embed(_UNRELATED)
    cosines = vectors @ vectors.T
    known = float(cosines[np.triu_indices(len(vectors), 1)].mean())
    _measured[embedder.name] = min(max(known, 0.0), 0.95)
    return _measured[embedder.name]


def rescaled(cosine: float, unrelated_from: float, unrelated_to: float) -> float:
    """A cosine of one embedder as the cosine of another that says the same: unrelated and equal texts meet.

    Args:
        unrelated_from, unrelated_to: mean cosine of unrelated texts under the two, below 1.
    """
    return unrelated_to + (1 - unrelated_to) * (cosine - unrelated_from) / (1 - unrelated_from)
