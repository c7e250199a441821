"""Requests for hits, a prompt or an answer."""

import json
from contextlib import suppress
from datetime import date, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from agent.options.fusion import LEAST_DEPTH, MOST_DEPTH, FusionMethod
from agent.options.rank_features import parse_rank_features
from agent.types.base import ApiModel, LaterTurn, Message
from retrievers.core.errors import BadRequest
from retrievers.core.principals import check_principals

MAX_QUERY_CHARACTERS = 8000
MOST_TOOLS = 128
MOST_TOOL_CHARACTERS = 200_000
"""Maximum length of a request's tools, in characters of compact JSON, all tools together."""
LEAST_TIMEOUT_S = 0.1
"""Minimum `timeout_s` of a request: no question can be answered in less."""
MAX_TOP_K = 100
MAX_COMPLETE = 1000
"""Maximum hits per page of a complete list. A prompt gets at most `MAX_TOP_K` of them."""

MOST_METADATA = 16
"""Maximum number of metadata keys of a request. This limit and the lengths of keys and values are OpenAI's."""
MOST_ADVISORS = 16
MOST_PARAMETER_CHARACTERS = 20_000
"""Maximum length of the parameters of one advisor, in characters of JSON."""

Kind = Literal["retrieve", "augment", "ask"]
"""What a request returns: hits, a prompt or an answer."""
Context = Literal["passage", "window", "section"]
"""Which text of a document the prompt shows.

`passage`: the ranked passages only. `window`: also the passages next to them. `section`: also the other passages under
the same heading.
"""
Text = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)]
PerDocument = Annotated[int, Field(ge=1, le=MAX_TOP_K)]


def _moment(value: object) -> object:
    """Parse an ISO 8601 string into a datetime; a day becomes its midnight.

    Pydantic's strict mode, which reads JSON requests, rejects a plain day as a datetime.

    Raises:
        ValueError: the value is neither a date nor an ISO 8601 string.
    """
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return datetime.fromisoformat(value.upper())
    raise ValueError("must be a date or a time of ISO 8601, such as 2026-11-20 or 2026-11-20T09:30:00+08:00")


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "anyOf": [{"format": "date-time"}, {"format": "date"}]}),
]
"""A datetime, or a day, which means its midnight. A value without offset is in the time zone of the settings."""


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
        raise ValueError("must contain only printable characters")
    return value


Conversation = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_name)]
UserName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_name)]
_MetadataKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_name)]
_MetadataValue = Annotated[str, Field(max_length=512)] | bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | float
Metadata = Annotated[dict[_MetadataKey, _MetadataValue], Field(max_length=MOST_METADATA)]
"""Labels that an application attaches to a request, used for records and routes. They grant no access."""


class AdvisorChoice(ApiModel):
    """An advisor (a step around the request) to run, with parameters: `{"name": "guard", "words": ["merger"]}`."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(min_length=1, max_length=64)]

    @property
    def parameters(self) -> dict[str, Any]:
        """The keys of the object other than `name`."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _bounded(self) -> "AdvisorChoice":
        try:
            size = len(json.dumps(self.parameters, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            raise ValueError("its parameters must be JSON") from None
        if size > MOST_PARAMETER_CHARACTERS:
            raise ValueError(f"its parameters must be at most {MOST_PARAMETER_CHARACTERS:,} characters of JSON")
        return self


Advisors = Annotated[tuple[AdvisorChoice, ...], Field(max_length=MOST_ADVISORS)]


class Request(ApiModel):
    """A question with the caller's options. Nothing that is inferred from the question overrides `filter` or `sources`.

    Attributes:
        ignore: conditions not to infer from the question, in the form of the `filter` of an earlier answer's intent.
        fusion, lexical_weight, depth, rank_features: override the settings of the same names.
        context: which text around the passages a prompt shows; a hit is always the passage alone.
        min_relevance: leave out hits with a lower relevance; None means the setting.
        per_document: maximum passages of one document while other documents are relevant; None means the setting.
        complete: list every document that satisfies the filter, `MAX_COMPLETE` hits a page whatever `top_k` says, each
            document with its `per_document` best passages (1 if None). None: True if the question asks for all.
        principals: users and groups for whom the request is made; documents that only others may read are not found.
        user: the caller's name for the end user. A label for records, traces, advisors and routes; it grants no access.
        metadata: further labels of the request by name, for the same purposes.
        conversation: id of a stored conversation: its turns come before `messages`, and this turn is added to it.
        advisors: advisors to run with this request's parameters, see `agent.chat.advisors.selection`.
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
    fusion: FusionMethod | None = None
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
    metadata: Metadata = Field(default={})
    conversation: Conversation | None = None
    advisors: Advisors = ()

    @property
    def question(self) -> str:
        """The query, or else the last user message; "" without either."""
        if self.query is not None:
            return self.query
        return next((m.content for m in reversed(self.messages or ()) if m.role == "user"), "")

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages before the question; all of them if the question is in `query`."""
        turns = self.messages or ()
        if self.query is not None:
            return turns
        last = max((place for place, turn in enumerate(turns) if turn.role == "user"), default=len(turns))
        return turns[:last]


class AugmentRequest(Request):
    """A request for a prompt instead of hits.

    Attributes:
        template: name of an answer template, such as "answer/v1"; None means the newest.
    """

    kind: ClassVar[Kind] = "augment"

    template: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="name of an answer template, such as answer/v1; the newest when null"
    )
    budget_tokens: Annotated[int, Field(ge=50, le=1_000_000)] = 3000


class ModelOptions(ApiModel):
    """Sampling options, response format and tools of the model call, as in OpenAI's API; None: the model's default.

    `max_tokens` is the older name of `max_completion_tokens`. A server that knows only one of the names gets that one.
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
            raise ValueError("must be JSON") from None
        if size > MOST_TOOL_CHARACTERS:
            raise ValueError(f"must be at most {MOST_TOOL_CHARACTERS:,} characters of JSON in total")
        return tools


class AskRequest(AugmentRequest):
    """A request for an answer.

    Attributes:
        judge: whether a model also checks the answer; None means the setting.
        model_options: options of the call that writes the answer; other model calls do not get them.
        mode: in `retrieve`, the service searches before it calls the model. In `tool`, the model searches by tool
            calls, at most MAX_ROUNDS times and only within the collection, filter and sources of the request.
        following: messages after the question in OpenAI's form: the model's tool calls and their results.
    """

    kind: ClassVar[Kind] = "ask"

    judge: Literal["off", "llm"] | None = None
    model_options: ModelOptions | None = None
    mode: Literal["retrieve", "tool"] = Field(
        "retrieve", description="retrieve: one retrieval before the answer; tool: the model searches itself"
    )
    following: Annotated[tuple[LaterTurn, ...], Field(max_length=200)] = ()
