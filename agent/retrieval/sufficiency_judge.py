"""Sufficiency judge: ask a model which parts of the question the hits answer, and what to search for next."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field

import prompts
from agent.llm.model import CallUsage, Model
from agent.llm.token_estimates import estimate_tokens
from agent.retrieval.fusion import FusedHit
from retrievers.core.filters import Filter, describe_filter, filter_to_json

STAGE = "sufficiency"
MOST_PARTS = 4
PASSAGE_CHARACTERS = 1500
"""Maximum characters of each passage shown to the model."""
_LONGEST = 500


class _Part(BaseModel):
    part: str
    answered: bool
    by: list[int] = []
    missing: str | None = None
    search: str | None = None


class Sufficiency(BaseModel):
    """The parts of the question, and which passages answer each."""

    parts: Annotated[list[_Part], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """One thing that a question asks for.

    Attributes:
        answered: whether the hits answer it.
        by: numbers of the hits that answer it, from 1 in ranking order.
        missing: what still has to be found; "" if the part is answered or the model does not say.
        search: query that should find it; "" if there is nothing to search for.
    """

    part: str
    answered: bool
    by: tuple[int, ...] = ()
    missing: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True)
class SufficiencyInput:
    """The input of a judgement: whether these passages are sufficient.

    Attributes:
        text: the user's question.
        collection: the collection searched, None for all.
        searches: queries made so far.
        hits: hits with their chunks, best first.
        filter: the filter that all hits satisfy.
        templates: the tenant's prompt templates.
    """

    text: str
    collection: str | None
    searches: Sequence[str]
    hits: Sequence[FusedHit]
    filter: Filter | None = None
    templates: prompts.TemplateLibrary = field(default_factory=prompts.packaged_templates)

    def messages(self) -> list[dict[str, str]]:
        """Return the chat messages of the prompt."""
        passages = "\n\n".join(_shown(number, hit) for number, hit in enumerate(self.hits, 1)) or "none"
        searches = "\n".join(self.searches)
        constraints = describe_filter(filter_to_json(self.filter)) if self.filter else "nothing"
        fence = prompts.fence(self.text, constraints, searches, passages)
        values = {"question": self.text, "constraints": constraints, "searches": searches, "passages": passages}
        return self.templates.load(STAGE).messages({**values, "fence": fence})

    def key(self) -> dict[str, object]:
        """Return the key under which a recording stores this call; other passages mean another key."""
        return {
            "question": self.text,
            "collection": self.collection,
            "filter": filter_to_json(self.filter) if self.filter else None,
            "searches": list(self.searches),
            "passages": [str(hit.id) for hit in self.hits],
        }


async def judge_sufficiency(
    question: SufficiencyInput, model: Model, deadline: float
) -> tuple[list[JudgedPart], CallUsage]:
    """Return the parts of the question as the model sees them, at most `MOST_PARTS`, and the usage of the call.

    Passage numbers that do not exist are dropped. A part for which the model names no existing passage counts as
    unanswered.

    Raises:
        ModelFailed: no usable reply came in time.
    """
    messages = question.messages()
    reply = await model.complete(messages, stage=STAGE, deadline=deadline, key=question.key(), schema=Sufficiency)
    said: Sufficiency = reply.parsed
    usage = reply.usage
    if not usage.prompt_tokens:
        usage = CallUsage(estimate_prompt_tokens(messages), estimate_tokens(reply.text))
    return [_checked(one, len(question.hits)) for one in said.parts[:MOST_PARTS]], usage


def estimate_prompt_tokens(messages: Sequence[dict[str, str]]) -> int:
    """Estimate the number of tokens of a prompt."""
    return sum(estimate_tokens(turn["content"]) for turn in messages)


def _checked(said: _Part, passages: int) -> JudgedPart:
    by = tuple(dict.fromkeys(number for number in said.by if 0 < number <= passages))
    part = _line(said.part)
    if said.answered and by:
        return JudgedPart(part, True, by)
    return JudgedPart(part, False, by, _line(said.missing or ""), _line(said.search or "") or part)


def _line(text: str) -> str:
    """Return the text as one line of printable characters, cut at a word to at most `_LONGEST`."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST].rsplit(" ", 1)[0]


def _shown(number: int, hit: FusedHit) -> str:
    assert hit.chunk is not None
    return f"[{number}] {hit.chunk.title}\n{hit.chunk.text[:PASSAGE_CHARACTERS]}"
