"""Other wordings of the question, searched beside it. Asked for only where one wording is likely too few."""

from agent.llm import Model, ModelFailed
from agent.transform.base import Asked, Transformed, queries_in, reply_to, unchanged

VARIANTS = 3
LONG_QUESTION = 512
"""Characters beyond which a question says so much at once that parts of it get lost in one search."""


async def transform(asked: Asked, model: Model, deadline: float) -> Transformed:
    """The question and its variants, see `agent.transform.base.Transform`.

    A question that is short, and whose first try was not weak, comes back alone.
    """
    if len(asked.question) <= LONG_QUESTION and not asked.weak:
        return unchanged(asked)
    try:
        reply = await reply_to("expand", asked, model, deadline, inputs={"count": str(VARIANTS)})
        variants = queries_in(reply, most=VARIANTS, besides=[asked.question])
    except ModelFailed as error:
        return unchanged(asked, f"expand: {error.reason}")
    return Transformed((asked.question, *variants))
