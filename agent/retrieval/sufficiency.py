"""The model's judgement of what was found: which parts of the question it answers, and what to search for next."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field

import prompts
from agent.llm.model import CallUsage, Model
from agent.llm.tokens import estimate_tokens
from agent.retrieval.fusion import Fused
from retrievers.core.filters import Filter, in_words, to_json

STAGE = "sufficiency"
MOST_PARTS = 4
PASSAGE_CHARACTERS = 1500
"""Of each passage as much is shown."""
_LONGEST = 500


class _Part(BaseModel):
    part: str
    answered: bool
    by: list[int] = []
    missing: str | None = None
    search: str | None = None


class Sufficiency(BaseModel):
    """The reply as it is asked for."""

    parts: Annotated[list[_Part], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class QuestionPart:
    """One thing that a question asks for.

    Attributes:
        answered: whether the passages found answer it.
        by: those that do, numbers from 1 in the order of the ranking.
        missing: what is still to be found; "" when it is answered, or when nobody says.
        search: what would find it; "" when there is nothing to search for.
    """

    part: str
    answered: bool
    by: tuple[int, ...] = ()
    missing: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True)
class SufficiencyQuestion:
    """What the model is asked.

    Attributes:
        collection: the one searched, None for all.
        searches: made so far.
        hits: with their chunks, best first.
        filter: what all of them satisfy.
        templates: those of the tenant.
    """

    text: str
    collection: str | None
    searches: Sequence[str]
    hits: Sequence[Fused]
    filter: Filter | None = None
    templates: prompts.Library = field(default_factory=prompts.packaged)

    def messages(self) -> list[dict[str, str]]:
        """The prompt."""
        passages = "\n\n".join(_shown(number, hit) for number, hit in enumerate(self.hits, 1)) or "none"
        searches = "\n".join(self.searches)
        constraints = in_words(to_json(self.filter)) if self.filter else "nothing"
        fence = prompts.fence(self.text, constraints, searches, passages)
        values = {"question": self.text, "constraints": constraints, "searches": searches, "passages": passages}
        return self.templates.load(STAGE).messages({**values, "fence": fence})

    def key(self) -> dict[str, object]:
        """What identifies the call in a recording: the same question over other passages is another one."""
        return {
            "question": self.text,
            "collection": self.collection,
            "filter": to_json(self.filter) if self.filter else None,
            "searches": list(self.searches),
            "passages": [str(hit.id) for hit in self.hits],
        }


async def judge(question: SufficiencyQuestion, model: Model, deadline: float) -> tuple[list[QuestionPart], CallUsage]:
    """The parts of the question as the model sees them, at most four, and what the call used.

    A number that no passage has is left out, and what no passage answers is not answered, whatever the model says.

    Raises:
        ModelFailed: no usable reply in time.
    """
    messages = question.messages()
    reply = await model.complete(messages, stage=STAGE, deadline=deadline, key=question.key(), schema=Sufficiency)
    said: Sufficiency = reply.parsed
    usage = reply.usage
    if not usage.prompt_tokens:
        usage = CallUsage(tokens_of(messages), estimate_tokens(reply.text))
    return [_checked(one, len(question.hits)) for one in said.parts[:MOST_PARTS]], usage


def tokens_of(messages: Sequence[dict[str, str]]) -> int:
    """What a prompt takes, estimated."""
    return sum(estimate_tokens(turn["content"]) for turn in messages)


def _checked(said: _Part, passages: int) -> QuestionPart:
    by = tuple(dict.fromkeys(number for number in said.by if 0 < number <= passages))
    part = _line(said.part)
    if said.answered and by:
        return QuestionPart(part, True, by)
    return QuestionPart(part, False, by, _line(said.missing or ""), _line(said.search or "") or part)


def _line(text: str) -> str:
    """One line of printable characters, cut at a word when it is too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST]).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST].rsplit(" ", 1)[0]


def _shown(number: int, hit: Fused) -> str:
    assert hit.chunk is not None
    return f"[{number}] {hit.chunk.title}\n{hit.chunk.text[:PASSAGE_CHARACTERS]}"
