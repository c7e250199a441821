"""Convert cosines between embedders: unrelated texts have a cosine near 0 in one model and near 0.7 in another."""

import asyncio
import time

import numpy as np

from retrievers.core.errors import Unavailable
from retrievers.embed import Embedder

# Texts without a common word or subject. Whatever their vectors have in common is common to all vectors of the
# embedder.
_UNRELATED = (
    "How long does bread dough need to rise?", "The committee rejected the budget for the new bridge.",
    "Whales sing to find each other over great distances.", "Replace the battery when the red light blinks.",
    "Her first violin concerto was played in Vienna.", "Which vaccine protects against measles?",
    "The striker scored twice in the second half.", "Interest on the loan is due every quarter.",
)  # fmt: skip

# The value of the packaged model, so that it need not be measured.
_measured = {"minilm": 0.0095}


# By embedder, the measurement that is running or has failed, and its start time.
_measuring: dict[str, tuple[asyncio.Task[float], float]] = {}
_PATIENCE_S, _REST_S = 1.0, 10.0


async def unrelated_cosine(embedder: Embedder) -> float:
    """Return the mean cosine of unrelated texts, 0 to 0.95. Measured once per embedder.

    Raises:
        Unavailable: the measurement has been running for more than 1 s, or was started less than 10 s ago and failed.
            A running measurement goes on, and later callers no longer wait for it.
    """
    if (known := _measured.get(embedder.name)) is not None:
        return known
    task, began = _measuring.get(embedder.name, (None, 0.0))
    now = time.monotonic()
    if task is None or task.get_loop() is not asyncio.get_running_loop() or (task.done() and now - began > _REST_S):
        task, began = asyncio.ensure_future(_measure(embedder)), now
        # retrieves the exception, since no caller may be waiting any more
        task.add_done_callback(lambda one: one.cancelled() or one.exception())
        _measuring[embedder.name] = task, began
    await asyncio.wait({task}, timeout=max(began + _PATIENCE_S - now, 0))
    if not task.done():
        raise Unavailable(f"the embedder {embedder.name}", "its vectors have not been measured yet")
    try:
        return task.result()
    except asyncio.CancelledError:
        raise Unavailable(f"the embedder {embedder.name}", "the request was cancelled") from None


async def _measure(embedder: Embedder) -> float:
    vectors = await embedder.embed(_UNRELATED)
    cosines = vectors @ vectors.T
    known = float(cosines[np.triu_indices(len(vectors), 1)].mean())
    _measured[embedder.name] = min(max(known, 0.0), 0.95)
    return _measured[embedder.name]


def rescale_cosine(cosine: float, unrelated_from: float, unrelated_to: float) -> float:
    """Convert a cosine of one embedder to the scale of another, so that unrelated texts and equal texts score the same.

    Args:
        unrelated_from, unrelated_to: mean cosine of unrelated texts under the two embedders, below 1.
    """
    return unrelated_to + (1 - unrelated_to) * (cosine - unrelated_from) / (1 - unrelated_from)
