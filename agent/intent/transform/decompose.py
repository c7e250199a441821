"""Decompose: split a question with several parts into one question per part."""

from agent.intent.transform.base import TransformInput, TransformResult, complete_stage, parse_queries, unchanged_result
from agent.llm.model import Model, ModelFailed

MOST_PARTS = 4


async def transform(transform_input: TransformInput, model: Model, deadline: float) -> TransformResult:
    """Return one question per part, or the question if it has one; see `agent.intent.transform.base.Transformer`."""
    try:
        reply = await complete_stage("decompose", transform_input, model, deadline, inputs={"count": str(MOST_PARTS)})
        parts = parse_queries(reply, most=MOST_PARTS)
    except ModelFailed as error:
        return unchanged_result(transform_input, f"decompose: {error.reason}")
    return TransformResult(tuple(parts)) if len(parts) > 1 else unchanged_result(transform_input)
