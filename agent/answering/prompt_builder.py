"""Build one prompt with numbered citations from ranked hits: choose and fill in the template, and add notes.

The passages are placed between fence lines that occur in none of them. Budget that is left over goes to the text around
the passages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import prompts
from agent.answering.context_expansion import SurroundingPassages
from agent.answering.passage_selection import (
    PromptPassage,
    add_surroundings,
    drop_near_duplicates,
    fit_to_budget,
    join_adjacent,
    passage_citation,
    render_passage,
)
from agent.llm.token_estimates import estimate_tokens
from agent.options import languages
from agent.types import Citation, Message
from retrievers.core.types import Chunk
from retrievers.text.prompt_sanitising import sanitise_prompt_text

EMPTY_TEMPLATE = "empty"
DIRECT_TEMPLATE = "direct"
"""Template for requests for which nothing was searched. `EMPTY_TEMPLATE` is for searches that found nothing."""
SYSTEM_TEMPLATE = "system"
TOOL_TEMPLATE = "tool_result"
TOOL_SYSTEM_TEMPLATE = "tool_system"
"""Template for requests for which the model calls the search tool itself."""


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    messages: tuple[Message, ...]
    prompt: str
    citations: tuple[Citation, ...]
    tokens: int
    passages: tuple[str, ...] = ()
    """Text of each citation in the prompt: title, metadata and passage."""


@dataclass(frozen=True, slots=True)
class ToolNumbering:
    """How the passages in an answer of the search tool are numbered.

    Attributes:
        first: number of the first passage in the answer.
        again: numbers of passages that were shown before and are not repeated.
    """

    first: int
    again: Sequence[int] = ()


def build_prompt(
    question: str,
    chunks: Sequence[Chunk],
    *,
    budget_tokens: int,
    template: str | None = None,
    templates: prompts.TemplateLibrary | None = None,
    dropped_conditions: Sequence[str] = (),
    partly_dropped_conditions: Sequence[str] = (),
    unapplied_words: Sequence[str] = (),
    was_searched: bool = True,
    surroundings: SurroundingPassages | None = None,
    total: int | None = None,
    language: str | None = None,
    tool_numbering: ToolNumbering | None = None,
) -> BuiltPrompt:
    """Assemble the prompt for a question, or the answer of the model's search tool.

    Args:
        chunks: chunks of the ranked hits, best first; may contain duplicates.
        budget_tokens: maximum tokens of the passages with their titles and metadata, by `estimate_tokens`. The first
            passage is always kept, cut to the budget if needed.
        template: name of an answer template; None means the newest. Without passages, the template for empty results is
            used instead.
        templates: the tenant's prompt templates; None means the packaged ones.
        dropped_conditions: conditions of the request that were dropped because nothing satisfies them all, in words.
        partly_dropped_conditions: conditions that only some passages satisfy.
        unapplied_words: words of the request that may be conditions but were not understood.
        was_searched: whether anything was searched; False for small talk.
        surroundings: see `agent.answering.context_expansion.load_surroundings`. These passages are added while the
            budget lasts, nearest first, after all passages that fit.
        total: number of documents that satisfy the conditions, if all of these are asked for; else None.
        language: language of the answer, a code of `agent.options.languages`; None means that of the request.
        tool_numbering: set for the answer of a tool, which does not repeat the question.
    Raises:
        prompts.BadTemplate: the template does not exist.
    """
    templates = templates or prompts.packaged_templates()
    answer = templates.answer_template(template)
    found = {chunk.id: chunk for chunk in reversed(chunks)}
    passages = fit_to_budget(join_adjacent(drop_near_duplicates(chunks)), budget_tokens)
    if surroundings:
        passages = add_surroundings(passages, found, surroundings, budget_tokens)
    numbered = list(enumerate(passages, tool_numbering.first if tool_numbering else 1))
    blocks = tuple(render_passage(n, passage) for n, passage in numbered)
    prompt = _render(question, blocks, answer, templates, tool_numbering, was_searched=was_searched)
    # Without these notes the model would not know that conditions of the request were not applied to the passages.
    notes = (
        (_UNREAD, unapplied_words),
        (_LEFT_OUT_IN_PART, partly_dropped_conditions),
        (_LEFT_OUT, dropped_conditions),
    )
    prompt = _with_notes(prompt, passages, notes, total) if passages else prompt
    prompt = _with_shown_numbers(prompt, tool_numbering) if tool_numbering else with_answer_language(prompt, language)
    system = templates.load(SYSTEM_TEMPLATE).render({})
    return BuiltPrompt(
        messages=(Message(role="system", content=system), Message.model_construct(role="user", content=prompt)),
        prompt=prompt,
        citations=tuple(passage_citation(n, passage, found.keys()) for n, passage in numbered),
        tokens=estimate_tokens(system) + estimate_tokens(prompt),
        passages=blocks,
    )


def _render(
    question: str,
    blocks: Sequence[str],
    answer: prompts.PromptTemplate,
    templates: prompts.TemplateLibrary,
    tool: ToolNumbering | None,
    *,
    was_searched: bool,
) -> str:
    """Return the prompt without notes, from the template that fits the request and its passages."""
    if not blocks and tool:
        return "" if tool.again else _NOTHING
    if not blocks:
        return templates.load(EMPTY_TEMPLATE if was_searched else DIRECT_TEMPLATE).render({"question": question})
    fence = prompts.fence(question, *blocks)
    values = {"passages": "\n\n".join(f"{fence} {block}" for block in blocks), "fence": fence}
    if tool:
        return templates.load(TOOL_TEMPLATE).render(values)
    return answer.render({"question": question, **values})


def _with_notes(
    prompt: str,
    passages: Sequence[PromptPassage],
    notes: Sequence[tuple[str, Sequence[str]]],
    total: int | None,
) -> str:
    """Return the prompt with notes before it: conditions not applied, and how many of `total` documents are shown.

    Args:
        notes: (text with a placeholder, the conditions to insert); without conditions a note is left out.
    """
    for note, conditions in notes:
        if conditions:
            prompt = f"{note.format(sanitise_prompt_text('; '.join(conditions)))}\n\n{prompt}"
    if total is None:
        return prompt
    shown = len({chunk.id[:3] for passage in passages for chunk in passage.chunks})
    return f"{_TOTAL.format(min(shown, total), total)}\n\n{prompt}"


def _with_shown_numbers(prompt: str, tool: ToolNumbering) -> str:
    """Return the tool's answer followed by the numbers of passages that were shown before, if there are any."""
    if not tool.again:
        return prompt
    return f"{prompt}\n\n{_AGAIN.format(', '.join(f'[{n}]' for n in tool.again))}".strip()


def with_answer_language(prompt: str, language: str | None) -> str:
    """Return the prompt followed by the instruction to answer in `language`; unchanged if that is None.

    At the end of the prompt, the instruction overrides what the template says about the language.
    """
    return prompt if language is None else f"{prompt}\n\n{_LANGUAGE.format(languages.NAMES[language])}"


_LEFT_OUT = (
    "Nothing was found that satisfies all the request states. The passages below were found without these conditions, "
    "so say that they were not met: {}"
)
_LEFT_OUT_IN_PART = (
    "For a part of the request nothing was found that satisfies all it states. Some of the passages below were found "
    "without these conditions, so say where they were not met: {}"
)


_UNREAD = (
    "These words of the request were not applied as conditions when the passages were chosen, so check the passages "
    "against them: {}"
)

_LANGUAGE = "Write the answer in {0}, whatever the language of the request is: this service answers in {0} alone."
_NOTHING = "Nothing was found for this query."
_AGAIN = "Found as well, and shown before: {}"

_TOTAL = (
    "The request is for all documents that satisfy its conditions. Passages of {:,} of the {:,} such documents follow, "
    "so say if some are left out."
)
