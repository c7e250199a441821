"""HyDE: let the model write a passage that would answer the question, and search for passages similar to it.

The passage is for vectors only: full text would search for every word that the model made up.

Source:
    Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023, arXiv:2212.10496.
"""

from agent.intent.transform.base import Transformed, TransformInput, reply_to, text_in, unchanged
from agent.llm.model import Model, ModelFailed

_LONGEST = 3000


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return the passage, marked `only` for vectors; see `agent.intent.transform.base.Transform`."""
    try:
        reply = await reply_to("hyde", asked, model, deadline, inputs={})
        return Transformed((text_in(reply, longest=_LONGEST),), only="vector")
    except ModelFailed as error:
        return unchanged(asked, f"hyde: {error.reason}")
