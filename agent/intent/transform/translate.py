"""Translate: put the question into the documents' language. If it is in that language, the model is not called."""

from agent.intent.transform.base import Transformed, TransformInput, reply_to, text_in, unchanged
from agent.llm.model import Model, ModelFailed

_NAMES = {
    "en": "English", "zh": "Chinese", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian",
    "pt": "Portuguese", "nl": "Dutch", "ru": "Russian", "ja": "Japanese", "ko": "Korean",
}  # fmt: skip
_LONGEST_GROWTH = 6
_LEAST = 200


async def transform(asked: TransformInput, model: Model, deadline: float) -> Transformed:
    """Return the question translated into `asked.into`, see `agent.intent.transform.base.Transform`."""
    if asked.into is None or asked.into == asked.language:
        return unchanged(asked)
    language = _NAMES.get(asked.into, asked.into)
    try:
        reply = await reply_to("translate", asked, model, deadline, inputs={"language": language})
        # One Chinese character may become a whole word.
        return Transformed((text_in(reply, longest=max(_LEAST, _LONGEST_GROWTH * len(asked.question))),))
    except ModelFailed as error:
        return unchanged(asked, f"translate: {error.reason}")
