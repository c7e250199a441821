"""Step back: add a more general question, to find the background that an answer needs.

Source:
    Zheng et al., Take a Step Back, ICLR 2024, arXiv:2310.06117.
"""

from agent.intent.transform.base import LONGEST_QUERY, Transformed, TransformInput, reply_to, text_in, unchanged
from agent.llm.model import Model, ModelFailed


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return the question and the more general one, see `agent.intent.transform.base.Transform`."""
    try:
        reply = await reply_to("stepback", asked, model, deadline, inputs={})
        general = text_in(reply, longest=LONGEST_QUERY)
    except ModelFailed as error:
        return unchanged(asked, f"stepback: {error.reason}")
    return Transformed(tuple(dict.fromkeys((asked.question, general))))
