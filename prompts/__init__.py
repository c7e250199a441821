"""Prompt templates: load versioned files and fill in their placeholders. A released version is never edited.

Values are cleaned by `retrievers.text.prompt_sanitising.sanitise_prompt_text`: no invisible character and no control
token reaches a model.
"""

from prompts.library import ANSWER, TemplateLibrary, open_library, packaged_templates
from prompts.template import BadTemplate, PromptTemplate, fence, parse_template

__all__ = [
    "ANSWER", "BadTemplate", "PromptTemplate", "TemplateLibrary", "fence", "open_library", "packaged_templates",
    "parse_template",
]  # fmt: skip
