"""Results: hits, a prompt or an answer, with the record of how they were found."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agent.types.base import ApiModel, Message
from agent.types.intent import Intent

Status = Literal["found", "weak", "nothing_found", "no_retrieval_needed", "refused"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class SourceSummary(ApiModel):
    """A source that questions can be sent to; `name` is the name to use in the `sources` of a request.

    Attributes:
        kind: `documents` searches texts, `metadata` calculates over metadata, `outside` asks an external service.
        named: whether the source is defined as `[sources.NAME]` in the settings.
        collections: for a source of kind "collections" in the settings: those of its collections that the caller may
            read; empty for any other source.
        top_k: maximum hits per search; None if the source sets no maximum.
        min_relevance: hits of this source with a lower relevance are left out.
        timeout_s: time limit of one search.
        cost: US dollars per search.
        resting: whether the source has just failed too often and is not searched for some seconds.
    """

    name: str
    kind: Literal["documents", "metadata", "outside"]
    description: str
    examples: tuple[str, ...] = ()
    named: bool = False
    collections: tuple[str, ...] = ()
    top_k: int | None = None
    min_relevance: float | None = None
    timeout_s: float
    cost: float = 0.0
    resting: bool = False


class Step(ApiModel):
    """One search at one source.

    Attributes:
        search: the text to search for.
        step: steps with the same number run at the same time, from 1; those with higher numbers run later.
    """

    source: str
    search: str
    filter: dict[str, Any] | None
    timeout_s: float
    step: int = 1


class Outcome(ApiModel):
    """How a `Step` ended.

    Attributes:
        reason: why it failed or was skipped; None if neither.
    """

    source: str
    step: int
    status: Literal["ok", "empty", "timeout", "error", "skipped"]
    hits: int
    elapsed_ms: float
    reason: str | None = None


class RankedHit(ApiModel):
    """A hit of the result. `scores` holds each source's own score and the fused and reranked scores.

    Attributes:
        start, end: character range [start, end) of the passage in its document's text.
        ranks: rank of the passage in the hits of each source, from 1.
        highlights: character ranges [start, end) in `text` to emphasise.
        relevance: probability that the passage answers the question, 0 to 1, comparable across questions. None for a
            hit of an external source, for which it cannot be computed.
        page: page of the PDF on which the passage begins, from 1; None if its file has no pages.
        place: position in its file, such as "pages 3-4", "slide 2" or "sheet Prices, rows 7-12"; "" if it has none.
    """

    rank: int
    id: str
    document_id: str
    title: str
    text: str
    start: int
    end: int
    url: str | None
    metadata: dict[str, Any]
    score: float
    scores: dict[str, float]
    sources: tuple[str, ...]
    ranks: dict[str, int]
    highlights: tuple[tuple[int, int], ...]
    relevance: float | None = None
    page: int | None = None
    place: str = ""


class Table(ApiModel):
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sql: str


class Relaxed(ApiModel):
    dropped: dict[str, Any]
    reason: str


class Result(ApiModel):
    """The hits and the record of how they were found.

    Attributes:
        status: `weak` if there are hits but none is relevant enough to answer the question.
        explanation: the whole decision record, as returned by `Service.explain`. Only present if the request set
            `explain`.
        refusal: the message to the user if an advisor refused the question. Only present then; nothing was searched,
            and `trace_id` is empty.
        relaxed: conditions that were dropped, each with the reason, such as that no document satisfies all of them.
        degraded: names of what was unavailable or skipped, such as "intent_unavailable".
        total: number of documents that satisfy the filter, if a complete list was asked for and there is a filter; else
            None.
        complete: whether this page and the pages before it show all documents; None if no complete list was asked for.
    """

    trace_id: str
    query: str
    intent: Intent
    plan: tuple[Step, ...]
    hits: tuple[RankedHit, ...]
    table: Table | None = None
    outcomes: tuple[Outcome, ...]
    relaxed: tuple[Relaxed, ...] = ()
    degraded: tuple[str, ...] = ()
    status: Status
    took_ms: float
    total: int | None = None
    complete: bool | None = None
    explanation: Annotated[dict[str, Any] | None, Field(exclude_if=lambda value: value is None)] = None
    refusal: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None


class Citation(ApiModel):
    """A passage that the prompt cites as number `n`: characters [start, end) of a document, in the section `heading`.

    `page` and `place` are as in `RankedHit`.
    """

    n: int
    document_id: str
    chunk_id: str
    title: str
    url: str | None
    start: int
    end: int
    heading: str = ""
    page: int | None = None
    place: str = ""


class Prompt(Result):
    """A result together with the prompt made from its hits.

    Attributes:
        messages: the whole prompt, as a system and a user message.
        prompt: the text of the user message.
        tokens: estimated number of tokens of the messages.
    """

    messages: tuple[Message, ...]
    prompt: str
    citations: tuple[Citation, ...]
    tokens: int


class AnswerSentence(ApiModel):
    """One sentence of an answer: its characters [start, end), and whether the cited passages support it.

    Attributes:
        citations: numbers of the passages that the sentence cites; numbers without a passage are left out. A sentence
            that cites nothing gets the number of the passage that supports it, if there is one.
        supported: None if the sentence claims nothing, or if only a model could decide, as for a paraphrase.
        score: how far the cited passages support it, 0 to 1; None whenever `supported` is None.
    """

    text: str
    start: int
    end: int
    citations: tuple[int, ...] = ()
    supported: bool | None = None
    score: float | None = None


class Usage(ApiModel):
    """Tokens used by the model calls of a request, and their cost in US dollars if known."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class Answer(Prompt):
    """A prompt together with the model's answer.

    Attributes:
        answer: the text as it was streamed; without a model, the passages of the prompt.
        answered: False if the text says that the documents do not contain the answer, or if no model answered.
        sentences: the sentences of `answer` in order, if a model wrote it.
        faithfulness: share of the sentences with claims that are supported; None if no sentence claims anything.
        checked_by: whether rules alone or also a model checked the sentences.
        model: the model that wrote the answer; None if no model did.
        usage: total of all model calls of the request.
        finish_reason: `length` if the text was cut or broke off, `tool_calls` if the model calls the caller's tools.
        tool_calls: the model's calls of the caller's tools, in OpenAI's form.
    """

    answer: str
    answered: bool
    sentences: tuple[AnswerSentence, ...] = ()
    faithfulness: float | None = None
    checked_by: Literal["rules", "llm"] = "rules"
    model: str | None = None
    usage: Usage = Usage()
    finish_reason: FinishReason = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()
