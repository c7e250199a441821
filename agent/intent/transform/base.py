"""Shared by all query transformers: their input and result, the model call, and functions that read replies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import prompts
from agent.llm.model import Model, ModelFailed
from agent.llm.reply_json import strip_reasoning
from agent.types import Message

LONGEST_QUERY = 500
_MOST_TURNS = 8
_LONGEST_TURN = 1500

# A digit after the point means a decimal number, not a list number: "3.15 release date".
_NUMBERING = re.compile(
    r"\s*(?:[-*•–]\s+|\(?\d{1,2}[.):、](?!\d)\s*|\(?[a-h]\)\s+|(?:Q|Query|Question)\s*\d*:\s*)", re.IGNORECASE
)
_FENCE = re.compile(r"```[\w-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("「", "」"), ("`", "`"), ("**", "**"))


@dataclass(frozen=True, slots=True)
class TransformInput:
    """The input of a transformer.

    Attributes:
        history: the turns before the question; system turns are ignored.
        collection: part of the call's key in recordings, see `agent.llm.model.Model.complete`.
        language: ISO 639-1 code of the question.
        target_language: of `translate`, that of the documents; None means no translation.
        templates: the tenant's prompt templates.
    """

    question: str
    history: Sequence[Message] = ()
    collection: str | None = None
    language: str = "en"
    target_language: str | None = None
    templates: prompts.TemplateLibrary = field(default_factory=prompts.packaged_templates)


@dataclass(frozen=True, slots=True)
class TransformResult:
    """The result of a transformer.

    Attributes:
        texts: at least one; the question itself if the transformer keeps it or failed.
        failure: why the transformer failed; None if it succeeded or had nothing to do.
        only_source: the only source that the texts are for; None means all.
    """

    texts: tuple[str, ...]
    failure: str | None = None
    only_source: Literal["vector"] | None = None


class Transformer(Protocol):
    """A transformer. If the model fails, it returns the question unchanged instead of raising."""

    async def __call__(self, transform_input: TransformInput, model: Model, deadline: float) -> TransformResult: ...


def unchanged_result(transform_input: TransformInput, failure: str | None = None) -> TransformResult:
    """Return the question unchanged."""
    return TransformResult((transform_input.question,), failure)


async def complete_stage(
    stage: str,
    transform_input: TransformInput,
    model: Model,
    deadline: float,
    *,
    inputs: Mapping[str, str],
    history: bool = False,
) -> str:
    """Return the model's reply to the stage's prompt, without thoughts and code fences.

    Args:
        inputs: values of the prompt other than the question, the fence and the history.
        history: whether the prompt takes the history.
    Raises:
        ModelFailed: there is no reply.
    """
    turns = format_history(transform_input.history) if history else ""
    fence = prompts.fence(transform_input.question, turns)
    values = {"question": transform_input.question, "fence": fence, **inputs, **({"history": turns} if history else {})}
    key = {"question": transform_input.question, "collection": transform_input.collection, **inputs}
    if history:
        key["history"] = turns
    messages = transform_input.templates.load(stage).messages(values)
    reply = await model.complete(messages, stage=stage, deadline=deadline, key=key)
    text = strip_reasoning(reply.text)
    fenced = _FENCE.fullmatch(text)
    return (fenced[1] if fenced else text).strip()


def format_history(history: Sequence[Message]) -> str:
    """Return the last turns as lines "User: ..." and "AI: ..."; system turns are left out."""
    speakers = {"user": "User", "assistant": "AI"}
    turns = [
        f"{speakers[turn.role]}: {' '.join(turn.content[:_LONGEST_TURN].split())}"
        for turn in history
        if turn.role in speakers and turn.content.strip()
    ]
    return "\n".join(turns[-_MOST_TURNS:])


def parse_queries(reply: str, *, most: int, besides: Sequence[str] = ()) -> list[str]:
    """Read the lines of a reply as queries, without numbering, blank lines, duplicates or overlong lines.

    Args:
        most: maximum number of queries.
        besides: texts that the queries must also differ from.
    Raises:
        ModelFailed: no line is a query.
    """
    seen = {_folded(text) for text in besides}
    found: list[str] = []
    for line in reply[: 4 * most * LONGEST_QUERY].splitlines():
        query = _plain(_NUMBERING.sub("", line, count=1))
        # "Here are three variants:" is not a query.
        if not query or query.endswith((":", "：")) or len(query) > LONGEST_QUERY or _folded(query) in seen:
            continue
        seen.add(_folded(query))
        found.append(query)
    if not found:
        raise ModelFailed("its reply contains no query")
    return found[:most]


def parse_text(reply: str, *, longest: int) -> str:
    """Read a reply as a single text on one line.

    Raises:
        ModelFailed: the reply is empty or longer than `longest` characters, so probably not what was asked for.
    """
    text = _plain(reply[: 4 * longest])
    if not text:
        raise ModelFailed("its reply is empty")
    if len(text) > longest:
        raise ModelFailed(f"its reply has more than {longest} characters")
    return text


def _plain(text: str) -> str:
    """Return the text as one line of printable characters, without quotation marks around it."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    for opening, closing in _QUOTES:
        while len(line) > 1 and line.startswith(opening) and line.endswith(closing):
            line = line.removeprefix(opening).removesuffix(closing).strip()
    return line


def _folded(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
