"""Decompose: split a question with several parts into one question per part."""

from agent.intent.transform.base import Transformed, TransformInput, queries_in, reply_to, unchanged
from agent.llm.model import Model, ModelFailed

MOST_PARTS = 4


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return one question per part, or the question if it has only one; see `agent.intent.transform.base.Transform`."""
    try:
        reply = await reply_to("decompose", asked, model, deadline, inputs={"count": str(MOST_PARTS)})
        parts = queries_in(reply, most=MOST_PARTS)
    except ModelFailed as error:
        return unchanged(asked, f"decompose: {error.reason}")
    return Transformed(tuple(parts)) if len(parts) > 1 else unchanged(asked)
