"""What the query transformers share: what they are given and give back, and how their replies are read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import prompts
from agent.llm.json import without_thoughts
from agent.llm.model import Model, ModelFailed
from agent.types import Message

LONGEST_QUERY = 500
_MOST_TURNS = 8
_LONGEST_TURN = 1500

# A digit after the point makes it a number: "3.15 release date".
_NUMBERING = re.compile(
    r"\s*(?:[-*•–]\s+|\(?\d{1,2}[.):、](?!\d)\s*|\(?[a-h]\)\s+|(?:Q|Query|Question)\s*\d*:\s*)", re.IGNORECASE
)
_FENCE = re.compile(r"```[\w-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("「", "」"), ("`", "`"), ("**", "**"))


@dataclass(frozen=True, slots=True)
class TransformInput:
    """A question with what a transformer may need to know of it.

    Attributes:
        history: the turns before it; those of the system are not used.
        collection: part of what identifies the call, see `agent.llm.model.Model.complete`.
        language: of the question, ISO 639-1.
        into: language of the documents, for `translate`; nothing is translated when None.
        templates: those of the tenant.
    """

    question: str
    history: Sequence[Message] = ()
    collection: str | None = None
    language: str = "en"
    into: str | None = None
    templates: prompts.Library = field(default_factory=prompts.packaged)


@dataclass(frozen=True, slots=True)
class Transformed:
    """What a transformer made of a question.

    Attributes:
        texts: at least one; the question itself where the transformer keeps it or could not do its work.
        degraded: why it could not, None when it could or had nothing to do.
        only: the one source the texts are for, None when they are for all.
    """

    texts: tuple[str, ...]
    degraded: str | None = None
    only: Literal["vector"] | None = None


class Transform(Protocol):
    """A transformer. It never raises for what a model does: the question comes back as it was."""

    async def __call__(self, asked: TransformInput, model: Model, deadline: float) -> Transformed: ...


def unchanged(asked: TransformInput, degraded: str | None = None) -> Transformed:
    """The question as it was."""
    return Transformed((asked.question,), degraded)


async def reply_to(
    stage: str,
    asked: TransformInput,
    model: Model,
    deadline: float,
    *,
    inputs: Mapping[str, str],
    history: bool = False,
) -> str:
    """The model's reply to the stage's prompt, without thoughts and fences.

    Args:
        inputs: values of the prompt beside the question, its fence and, when asked for, the history.
    Raises:
        ModelFailed: there is none.
    """
    turns = history_lines(asked.history) if history else ""
    fence = prompts.fence(asked.question, turns)
    values = {"question": asked.question, "fence": fence, **inputs, **({"history": turns} if history else {})}
    key = {"question": asked.question, "collection": asked.collection, **inputs}
    if history:
        key["history"] = turns
    messages = asked.templates.load(stage).messages(values)
    reply = await model.complete(messages, stage=stage, deadline=deadline, key=key)
    text = without_thoughts(reply.text)
    fenced = _FENCE.fullmatch(text)
    return (fenced[1] if fenced else text).strip()


def history_lines(history: Sequence[Message]) -> str:
    """The last turns as lines "User: ..." and "AI: ..."; the system's are left out."""
    speakers = {"user": "User", "assistant": "AI"}
    turns = [
        f"{speakers[turn.role]}: {' '.join(turn.content[:_LONGEST_TURN].split())}"
        for turn in history
        if turn.role in speakers and turn.content.strip()
    ]
    return "\n".join(turns[-_MOST_TURNS:])


def queries_in(reply: str, *, most: int, besides: Sequence[str] = ()) -> list[str]:
    """The lines of a reply as queries: no numbering, no blank lines, no two alike, none too long.

    Args:
        most: as many are kept.
        besides: what they must also differ from.
    Raises:
        ModelFailed: no line is one.
    """
    seen = {_folded(text) for text in besides}
    found: list[str] = []
    for line in reply[: 4 * most * LONGEST_QUERY].splitlines():
        query = _plain(_NUMBERING.sub("", line, count=1))
        # "Here are three variants:" is no query.
        if not query or query.endswith((":", "：")) or len(query) > LONGEST_QUERY or _folded(query) in seen:
            continue
        seen.add(_folded(query))
        found.append(query)
    if not found:
        raise ModelFailed("its reply holds no query")
    return found[:most]


def text_in(reply: str, *, longest: int) -> str:
    """A reply that is one text, on one line.

    Raises:
        ModelFailed: it is empty or longer than asked for, so probably something else.
    """
    text = _plain(reply[: 4 * longest])
    if not text:
        raise ModelFailed("its reply is empty")
    if len(text) > longest:
        raise ModelFailed(f"its reply has more than {longest} characters")
    return text


def _plain(text: str) -> str:
    """One line of printable characters, without quotation marks around it."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for opening, closing in _QUOTES:
        while len(line) > 1 and line.startswith(opening) and line.endswith(closing):
            line = line.removeprefix(opening).removesuffix(closing).strip()
    return line


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
