"""Expand: add other wordings of the question as queries."""

from agent.intent.transform.base import Transformed, TransformInput, queries_in, reply_to, unchanged
from agent.llm.model import Model, ModelFailed

VARIANTS = 3


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return the question and its variants, see `agent.intent.transform.base.Transform`."""
    try:
        reply = await reply_to("expand", asked, model, deadline, inputs={"count": str(VARIANTS)})
        variants = queries_in(reply, most=VARIANTS, besides=[asked.question])
    except ModelFailed as error:
        return unchanged(asked, f"expand: {error.reason}")
    return Transformed((asked.question, *variants))
