"""Rewrite: reword the question as a query, with spelling corrected and politeness and chatter left out."""

from agent.intent.transform.base import (
    LONGEST_QUERY,
    TransformInput,
    TransformResult,
    complete_stage,
    parse_text,
    unchanged_result,
)
from agent.llm.model import Model, ModelFailed


async def transform(transform_input: TransformInput, model: Model, deadline: float) -> TransformResult:
    """Return the query, see `agent.intent.transform.base.Transformer`."""
    try:
        reply = await complete_stage("rewrite", transform_input, model, deadline, inputs={})
        return TransformResult((parse_text(reply, longest=LONGEST_QUERY),))
    except ModelFailed as error:
        return unchanged_result(transform_input, f"rewrite: {error.reason}")
