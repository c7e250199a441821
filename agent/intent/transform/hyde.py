"""HyDE: let the model write a passage that would answer the question, and search for passages similar to it.

The passage is for vectors only: full text would search for every word that the model made up.

Source:
    Gao et al., Precise Zero-Shot Dense Retrieval without Relevance Labels, ACL 2023, arXiv:2212.10496.
"""

from agent.intent.transform.base import TransformInput, TransformResult, complete_stage, parse_text, unchanged_result
from agent.llm.model import Model, ModelFailed

_LONGEST = 3000


async def transform(transform_input: TransformInput, model: Model, deadline: float) -> TransformResult:
    """Return the passage, with `only_source` "vector"; see `agent.intent.transform.base.Transformer`."""
    try:
        reply = await complete_stage("hyde", transform_input, model, deadline, inputs={})
        return TransformResult((parse_text(reply, longest=_LONGEST),), only_source="vector")
    except ModelFailed as error:
        return unchanged_result(transform_input, f"hyde: {error.reason}")
