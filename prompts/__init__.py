"""Prompt templates: versioned files, read and filled in. A released version is never edited.

Values go in as `retrievers.text.visible.prompt_text` has them: nothing unseen and no control token reaches a model.
"""

from prompts.library import ANSWER, Library, open_library, packaged
from prompts.template import BadTemplate, Prompt, fence, parse

__all__ = ["ANSWER", "BadTemplate", "Library", "Prompt", "fence", "open_library", "packaged", "parse"]
