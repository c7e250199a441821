"""Compress: rewrite a follow-up question so that it stands alone. Without history the model is not called."""

from agent.intent.transform.base import Transformed, TransformInput, history_lines, reply_to, text_in, unchanged
from agent.llm.model import Model, ModelFailed

_LONGEST = 1000


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return the self-contained question, see `agent.intent.transform.base.Transform`."""
    if not history_lines(asked.history):
        return unchanged(asked)
    try:
        reply = await reply_to("compress", asked, model, deadline, inputs={}, history=True)
        return Transformed((text_in(reply, longest=_LONGEST),))
    except ModelFailed as error:
        return unchanged(asked, f"compress: {error.reason}")
