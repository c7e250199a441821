"""Compress: rewrite a follow-up question so that it stands alone. Without history the model is not called."""

from agent.intent.transform.base import (
    TransformInput,
    TransformResult,
    complete_stage,
    format_history,
    parse_text,
    unchanged_result,
)
from agent.llm.model import Model, ModelFailed

_LONGEST = 1000


async def transform(transform_input: TransformInput, model: Model, deadline: float) -> TransformResult:
    """Return the self-contained question, see `agent.intent.transform.base.Transformer`."""
    if not format_history(transform_input.history):
        return unchanged_result(transform_input)
    try:
        reply = await complete_stage("compress", transform_input, model, deadline, inputs={}, history=True)
        return TransformResult((parse_text(reply, longest=_LONGEST),))
    except ModelFailed as error:
        return unchanged_result(transform_input, f"compress: {error.reason}")
