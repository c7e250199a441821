"""A question of several parts as one question per part."""

from agent.intent.transform.base import Transformed, TransformInput, queries_in, reply_to, unchanged
from agent.llm.model import Model, ModelFailed

MOST_PARTS = 4


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """The parts, or the question where there is only one; see `agent.intent.transform.base.Transform`."""
    try:
        reply = await reply_to("decompose", asked, model, deadline, inputs={"count": str(MOST_PARTS)})
        parts = queries_in(reply, most=MOST_PARTS)
    except ModelFailed as error:
        return unchanged(asked, f"decompose: {error.reason}")
    return Transformed(tuple(parts)) if len(parts) > 1 else unchanged(asked)
