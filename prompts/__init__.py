"""Prompt templates: load versioned files and fill in their placeholders. A released version is never edited.

Values are cleaned by `retrievers.text.visible.prompt_text`: no invisible character and no control token reaches a
model.
"""

from prompts.library import ANSWER, Library, open_library, packaged
from prompts.template import BadTemplate, PromptTemplate, fence, parse

__all__ = ["ANSWER", "BadTemplate", "Library", "PromptTemplate", "fence", "open_library", "packaged", "parse"]
