"""Step back: add a more general question, to find the background that an answer needs.

Source:
    Zheng et al., Take a Step Back, ICLR 2024, arXiv:2310.06117.
"""

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
    """Return the question and the more general one, see `agent.intent.transform.base.Transformer`."""
    try:
        reply = await complete_stage("stepback", transform_input, model, deadline, inputs={})
        general = parse_text(reply, longest=LONGEST_QUERY)
    except ModelFailed as error:
        return unchanged_result(transform_input, f"stepback: {error.reason}")
    return TransformResult(tuple(dict.fromkeys((transform_input.question, general))))
