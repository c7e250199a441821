"""Rewrite: reword the question as a query, with spelling corrected and politeness and chatter left out."""

from agent.intent.transform.base import LONGEST_QUERY, Transformed, TransformInput, reply_to, text_in, unchanged
from agent.llm.model import Model, ModelFailed


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return the query, see `agent.intent.transform.base.Transform`."""
    try:
        reply = await reply_to("rewrite", asked, model, deadline, inputs={})
        return Transformed((text_in(reply, longest=LONGEST_QUERY),))
    except ModelFailed as error:
        return unchanged(asked, f"rewrite: {error.reason}")
