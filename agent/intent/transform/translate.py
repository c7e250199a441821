"""Translate: put the question into the documents' language. If it is in that language, the model is not called."""

from agent.intent.transform.base import TransformInput, TransformResult, complete_stage, parse_text, unchanged_result
from agent.llm.model import Model, ModelFailed

_NAMES = {
    "en": "English", "zh": "Chinese", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian",
    "pt": "Portuguese", "nl": "Dutch", "ru": "Russian", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
_LONGEST_GROWTH = 6
_LEAST = 200


async def transform(transform_input: TransformInput, model: Model, deadline: float) -> TransformResult:
    """Return the question in `target_language`, see `agent.intent.transform.base.Transformer`."""
    if transform_input.target_language is None or transform_input.target_language == transform_input.language:
        return unchanged_result(transform_input)
    language = _NAMES.get(transform_input.target_language, transform_input.target_language)
    try:
        reply = await complete_stage("translate", transform_input, model, deadline, inputs={"language": language})
        # One Chinese character may become a whole word.
        return TransformResult(
            (parse_text(reply, longest=max(_LEAST, _LONGEST_GROWTH * len(transform_input.question))),)
        )
    except ModelFailed as error:
        return unchanged_result(transform_input, f"translate: {error.reason}")
