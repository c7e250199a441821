"""What goes in and out of the service: the shapes of the contract, the same in Python, JSON and HTTP."""

import json
from contextlib import suppress
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from agent.context import Context
from agent.fusion import LEAST_DEPTH, MOST_DEPTH, Method
from agent.rank_features import parse as parse_rank_features
from retrievers.core.errors import BadRequest
from retrievers.core.principals import check_principals

MAX_QUERY_CHARACTERS = 8000
MOST_TOOLS = 128
MOST_TOOL_CHARACTERS = 200_000
"""Of the JSON of a request's tools together, without blanks."""
LEAST_TIMEOUT_S = 0.1
"""In less nothing can be answered."""
MAX_TOP_K = 100
MAX_COMPLETE = 1000
"""Most hits of one answer to a request for a complete list; a prompt is made of at most `MAX_TOP_K`."""

MOST_METADATA = 16
"""Keys of a request's metadata; as in OpenAI's API, as are the lengths of keys and texts."""
MOST_ADVISORS = 16
MOST_PARAMETER_CHARACTERS = 20_000
"""Of the JSON of one advisor's parameters."""

Kind = Literal["retrieve", "augment", "ask"]
"""What a request asks for: hits, a prompt or an answer."""
Status = Literal["found", "weak", "nothing_found", "no_retrieval_needed", "refused"]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
Text = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)]
PerDocument = Annotated[int, Field(ge=1, le=MAX_TOP_K)]


class Shape(BaseModel):
    """Base of every shape: frozen, and unknown keys are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _moment(value: object) -> object:
    """A text as the moment that it names; JSON is read strictly, and there a day alone would be none."""
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return datetime.fromisoformat(value.upper())
    raise ValueError("must be a day or a moment of ISO 8601, such as 2026-11-20 or 2026-11-20T09:30:00+08:00")


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date"}]}),
]
"""A moment, or a day as its midnight; without an offset it is of the settings' time zone."""


def _rank_features(value: str) -> str:
    parse_rank_features(value)
    return value


def _principals(said: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return check_principals(said, everything=True)
    except BadRequest as error:
        raise ValueError(str(error)) from None


Principals = Annotated[tuple[str, ...], AfterValidator(_principals)]


def _name(value: str) -> str:
    if not value.isprintable():
        raise ValueError("must be of printable characters")
    return value


Conversation = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_name)]
UserName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_name)]
_MetadataKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_name)]
_MetadataValue = Annotated[str, Field(max_length=512)] | bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | float
Metadata = Annotated[dict[_MetadataKey, _MetadataValue], Field(max_length=MOST_METADATA)]
"""What an application says of a request: it labels and routes it, and opens nothing."""


class AdvisorChoice(Shape):
    """An advisor of a request, with its parameters beside the name: `{"name": "guard", "words": ["merger"]}`."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=64)]

    @property
    def parameters(self) -> dict[str, Any]:
        """What is said beside the name."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _bounded(self) -> "AdvisorChoice":
        try:
            size = len(json.dumps(self.parameters, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            raise ValueError("its parameters must be of JSON") from None
        if size > MOST_PARAMETER_CHARACTERS:
            raise ValueError(f"its parameters must be at most {MOST_PARAMETER_CHARACTERS:,} characters of JSON")
        return self


Advisors = Annotated[tuple[AdvisorChoice, ...], Field(max_length=MOST_ADVISORS)]


class Message(Shape):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=100_000)]


class Request(Shape):
    """A question with what the caller fixes. `filter` and `sources` are hard: nothing overrides them.

    Attributes:
        ignore: conditions that are not to be read from the question, such as an earlier answer's intent had.
        fusion, lexical_weight, depth, rank_features: in place of the settings of these names.
        context: what a prompt shows around its passages; a hit is always the passage alone.
        min_relevance: hits with a lower relevance are left out; the setting when None.
        per_document: most passages of one document while others are relevant; the setting when None.
        complete: list every document that satisfies the filter, `MAX_COMPLETE` a page whatever `top_k` says, each with
            its `per_document` best passages, 1 when None; as the question asks when None.
        principals: users and groups on whose behalf is asked; documents with other readers are not there.
        user: who asks, as the caller names them; a label for records, traces, advisors and routes, which opens nothing.
        metadata: what the caller says of the request, for the same.
        conversation: whose stored turns come before those of `messages`, and which this one joins; none when None.
        advisors: those that take part with parameters of the request's own, see `agent.advisors.chosen`.
    """

    kind: ClassVar[Kind] = "retrieve"

    query: Text | None = None
    messages: Annotated[tuple[Message, ...], Field(max_length=200)] | None = None
    collection: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    filter: dict[str, Any] | None = None
    ignore: Annotated[tuple[dict[str, Any], ...], Field(max_length=32)] = ()
    sources: Annotated[tuple[str, ...], Field(min_length=1, max_length=16)] | None = None
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10
    page: Annotated[int, Field(ge=1, le=1000)] = 1
    intent: Literal["auto", "rules", "llm", "off"] | None = None
    reranker: Annotated[str, Field(max_length=200)] | None = None
    fusion: Method | None = None
    lexical_weight: Annotated[float, Field(ge=0, le=1)] | None = None
    depth: Annotated[int, Field(ge=LEAST_DEPTH, le=MOST_DEPTH)] | None = None
    rank_features: Annotated[str, Field(max_length=500), AfterValidator(_rank_features)] | None = None
    context: Context | None = None
    fallback: Literal["ordered_backoff", "do_not_route", "route_to_all", "fail"] | None = None
    now: Moment | None = None
    timeout_s: Annotated[float, Field(ge=LEAST_TIMEOUT_S, le=120)] | None = None
    explain: bool = False
    min_relevance: Annotated[float, Field(ge=0, le=1)] | None = None
    per_document: PerDocument | None = None
    complete: bool | None = None
    principals: Principals | None = None
    user: UserName | None = None
    metadata: Metadata = {}
    conversation: Conversation | None = None
    advisors: Advisors = ()

    @property
    def question(self) -> str:
        """The query, or the last thing the user said."""
        if self.query is not None:
            return self.query
        return next((m.content for m in reversed(self.messages or ()) if m.role == "user"), "")

    @property
    def history(self) -> tuple[Message, ...]:
        """The turns before the question."""
        turns = self.messages or ()
        if self.query is not None:
            return turns
        last = max((place for place, turn in enumerate(turns) if turn.role == "user"), default=len(turns))
        return turns[:last]


class AugmentRequest(Request):
    """A request for the prompt instead of the hits.

    Attributes:
        template: an answer template by its name, "answer/v1"; the newest one when None.
    """

    kind: ClassVar[Kind] = "augment"

    template: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="an answer template by its name, such as answer/v1; the newest when null"
    )
    budget_tokens: Annotated[int, Field(ge=50, le=1_000_000)] = 3000


class ModelOptions(Shape):
    """What a caller sets of the model's call, as in OpenAI's API; the model's own where None.

    `max_tokens` is the older name of `max_completion_tokens`; a server that knows one only is sent that.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    stop: Annotated[str, Field(max_length=1000)] | Annotated[tuple[str, ...], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    response_format: dict[str, Any] | None = None
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None

    @field_validator("tools")
    @classmethod
    def _bounded(cls, tools: tuple[dict[str, Any], ...] | None) -> tuple[dict[str, Any], ...] | None:
        try:
            size = len(json.dumps(tools or (), ensure_ascii=False, separators=(",", ":")))
        except (TypeError, ValueError, RecursionError):
            raise ValueError("must be of JSON") from None
        if size > MOST_TOOL_CHARACTERS:
            raise ValueError(f"must together be at most {MOST_TOOL_CHARACTERS:,} characters of JSON")
        return tools


class AskRequest(AugmentRequest):
    """A request for the answer.

    Attributes:
        judge: whether a model checks the answer as well; the setting when None.
        model_options: of the call that answers; no other call of the request takes them.
        mode: `retrieve` searches once, before the model is asked; in `tool` the model searches itself, as often as it
            needs and MAX_ROUNDS allows, within the request's own bounds.
        following: turns after the question, as OpenAI's API has them: the model's tool calls and what they gave.
    """

    kind: ClassVar[Kind] = "ask"

    judge: Literal["off", "llm"] | None = None
    model_options: ModelOptions | None = None
    mode: Literal["retrieve", "tool"] = Field(
        "retrieve", description="retrieve: one retrieval before the answer; tool: the model searches itself"
    )
    following: Annotated[tuple[dict[str, Any], ...], Field(max_length=200)] = ()


class SourceChoice(Shape):
    name: str
    confidence: float
    reason: str


class Rejected(Shape):
    """Something asked for that does not exist, with what does."""

    what: str
    reason: str
    valid: tuple[str, ...] = ()


class Missing(Shape):
    """A source or a collection that a reading chose, and that is not there for this request; or the choice itself."""

    kind: Literal["source", "collection", "choice"]
    name: str


class Intent(Shape):
    """What the question asks for, checked against what exists.

    Attributes:
        missing: what the reading chose and is not there: how the router takes it is the fallback strategy's.
        wants: what the answer is made of: the passages that fit best, a list of documents, or all documents.
        scope: of `collections`, where the request named none and not all were asked: how sure it is that each is meant,
            and why.
    """

    kind: Literal["retrieve", "aggregate", "none"] = "retrieve"
    question: str
    language: str
    searches: tuple[str, ...]
    collections: tuple[str, ...]
    filter: dict[str, Any] | None = None
    soft_filter: dict[str, Any] | None = None
    sources: tuple[SourceChoice, ...] = ()
    aggregate: dict[str, Any] | None = None
    by: Literal["rules", "llm", "caller"] = "caller"
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    rejected: tuple[Rejected, ...] = ()
    wants: Literal["passages", "documents", "all"] = "passages"
    scope: tuple[SourceChoice, ...] = ()
    missing: Annotated[tuple[Missing, ...], Field(exclude_if=lambda value: not value)] = ()


class SourceSummary(Shape):
    """A source that questions may be put to, as `sources` of a request names it.

    Attributes:
        kind: the documents' texts, calculations over their metadata, or something outside.
        named: whether it is a `[sources.NAME]` of the settings.
        collections: those that a group searches, of the caller's; else empty.
        top_k: most hits of one search; as many as are asked for when None.
        min_relevance: its hits with a lower relevance are left out.
        timeout_s: for one search.
        cost: of one search, in US dollars.
        resting: whether it failed too often lately, and is left alone for some seconds.
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


class Step(Shape):
    """One source asked one search. Step 1 runs at once, later steps are fallbacks."""

    source: str
    search: str
    filter: dict[str, Any] | None
    timeout_s: float
    step: int = 1


class Outcome(Shape):
    """What became of a step."""

    source: str
    step: int
    status: Literal["ok", "empty", "timeout", "error", "skipped"]
    hits: int
    elapsed_ms: float
    reason: str | None = None


class RankedHit(Shape):
    """A hit of the answer. `scores` holds each source's own score, and the fused and reranked ones.

    Attributes:
        start, end: the passage's characters [start, end) in its document's text.
        relevance: how likely the passage answers the question, 0 to 1, comparable across questions; None for a hit
            from outside, which nobody here can judge.
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


class Table(Shape):
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    sql: str


class Relaxed(Shape):
    dropped: dict[str, Any]
    reason: str


class Result(Shape):
    """The hits and the record of how they were found.

    Attributes:
        status: `weak` where there are hits and none is relevant enough to answer the question.
        explanation: the whole decision record, as `Service.explain` answers it, when the request asked to `explain`;
            otherwise it is no part of the answer.
        refusal: what is said to who asked, where an advisor refused to have the question answered; otherwise it is no
            part of the answer. Nothing was looked up then, and `trace_id` is empty.
        total: how many documents satisfy the filter, where all were asked for and a filter says which; else None.
        complete: whether this page and those before it hold all of them; None where not all were asked for.
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


class Citation(Shape):
    """The place in a document that a number in the prompt stands for: characters [start, end), under `heading`."""

    n: int
    document_id: str
    chunk_id: str
    title: str
    url: str | None
    start: int
    end: int
    heading: str = ""


class Prompt(Result):
    """A result with the single prompt made of its hits."""

    messages: tuple[Message, ...]
    prompt: str
    citations: tuple[Citation, ...]
    tokens: int


class Sentence(Shape):
    """One sentence of an answer: its characters [start, end), and whether the passages bear it out.

    Attributes:
        citations: numbers of passages that it cites, a number that no passage has being none; of a sentence that cites
            none, that of the passage that bears it out.
        supported: None where it claims nothing, or where only a model could tell, as of a paraphrase.
        score: how far the cited passages bear it out, from 0 to 1; None where `supported` is.
    """

    text: str
    start: int
    end: int
    citations: tuple[int, ...] = ()
    supported: bool | None = None
    score: float | None = None


class Usage(Shape):
    """Tokens that a request's model calls took, and US dollars where somebody says."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None


class Answer(Prompt):
    """A prompt with what a model answered to it.

    Attributes:
        answer: the text as it was streamed; without a model, the prompt's passages.
        answered: False when it says that the documents do not hold the answer, or when nobody answered.
        sentences: of `answer` where a model wrote it, in order.
        faithfulness: share of the claiming sentences that are supported; None where none claims anything.
        checked_by: what judged the sentences.
        model: who wrote it; None when no model did.
        usage: of all calls of the request.
        finish_reason: `length` where it was cut or broke off, `tool_calls` where the model asks for tools.
        tool_calls: what the model asks the caller's tools, as OpenAI's API has it.
    """

    answer: str
    answered: bool
    sentences: tuple[Sentence, ...] = ()
    faithfulness: float | None = None
    checked_by: Literal["rules", "llm"] = "rules"
    model: str | None = None
    usage: Usage = Usage()
    finish_reason: FinishReason = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()
