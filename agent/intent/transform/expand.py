"""Expand: add other wordings of the question as queries."""

from agent.intent.transform.base import TransformInput, TransformResult, complete_stage, parse_queries, unchanged_result
from agent.llm.model import Model, ModelFailed

VARIANTS = 3


async def transform(transform_input: TransformInput, model: Model, deadline: float) -> TransformResult:
    """Return the question and its variants, see `agent.intent.transform.base.Transformer`."""
    try:
        reply = await complete_stage("expand", transform_input, model, deadline, inputs={"count": str(VARIANTS)})
        variants = parse_queries(reply, most=VARIANTS, besides=[transform_input.question])
    except ModelFailed as error:
        return unchanged_result(transform_input, f"expand: {error.reason}")
    return TransformResult((transform_input.question, *variants))
