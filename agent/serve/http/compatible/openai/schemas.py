"""Response models of the chat endpoints, in OpenAI's form."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.types import Citation, FinishReason


def _is_nothing(value: object) -> bool:
    return value is None


class _Answered(BaseModel):
    model_config = ConfigDict(frozen=True)


class ModelEntry(_Answered):
    """A model of this service."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["signalbox"] = "signalbox"


class Models(_Answered):
    """The models of this service."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Said(_Answered):
    """The answer as a turn; `content` is null if it consists of tool calls only."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[dict[str, Any]] | None = Field(None, exclude_if=_is_nothing)


class CompletionChoice(_Answered):
    """The only choice of an answer."""

    index: Literal[0] = 0
    message: Said
    finish_reason: FinishReason
    logprobs: None = None


class Used(_Answered):
    """Tokens of all model calls of the request, including those that read the question and check the answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Extra(_Answered):
    """What signalbox adds to OpenAI's form: citations, status and how the answer was produced."""

    trace_id: str | None = Field(description="id for /v1/traces and /v1/feedback; null if nothing was searched")
    citations: list[Citation]
    status: Literal["found", "weak", "nothing_found", "no_retrieval_needed", "refused"]
    degraded: list[str]
    total: int | None = Field(
        None, exclude_if=_is_nothing, description="number of documents that satisfy the filter, if all were requested"
    )
    complete: bool | None = Field(
        None, exclude_if=_is_nothing, description="whether the prompt contains passages of all of these documents"
    )
    explanation: dict[str, Any] | None = Field(
        None, exclude_if=_is_nothing, description="if the request sets `explain`"
    )


class Completion(_Answered):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Used
    signalbox: Extra


class ErrorDetails(_Answered):
    """Details of an error; `param` is the invalid field."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(_Answered):
    """An error in OpenAI's form."""

    error: ErrorDetails
