"""Base of the request and result types, and a conversation's messages."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator


class ApiModel(BaseModel):
    """Base of all types here: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Message(ApiModel):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=100_000)]


class CalledFunction(BaseModel):
    """The function of a tool call. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True)

    name: str
    arguments: str


class CustomInput(BaseModel):
    """The input of a call of a custom tool. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True)

    name: str
    input: str


class ToolCall(BaseModel):
    """A model's call of a tool, in OpenAI's form. Unknown keys are ignored.

    Attributes:
        extra_content: data that the model's server expects back with the call, such as Gemini's `thought_signature`.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    id: str | None = None
    type: Literal["function", "custom"] | None = None
    function: CalledFunction | None = None
    custom: CustomInput | None = None
    extra_content: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _is_of_its_type(self) -> Self:
        kind = self.type or "function"
        if getattr(self, kind) is None:
            raise ValueError(f"{kind} is missing")
        return self


ToolCallsMade = Annotated[tuple[ToolCall, ...], Field(max_length=128)]


class TextPart(BaseModel):
    """A text in the content of a turn, where the content is a list. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True)

    type: Literal["text"]
    text: Annotated[str, Field(max_length=100_000)]


class LaterTurn(BaseModel):
    """A turn after the question, in OpenAI's form: a tool call or its result. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[str, Field(max_length=100_000)] | Annotated[tuple[TextPart, ...], Field(max_length=100)] | None
    ) = None
    name: str | None = None
    tool_calls: ToolCallsMade | None = None
    tool_call_id: str | None = None

    @property
    def to_openai(self) -> dict[str, Any]:
        """The turn as it is sent to a model: the keys that the caller gave, without unknown ones."""
        return self.model_dump(exclude_unset=True)
