"""The request body of a chat completion, and its translation into a request of the service."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from agent.serve.http.problems import Problem, field_problem
from agent.types import ApiModel, AskRequest, Metadata, ModelOptions, ToolCallsMade, UserName

ANSWER_MODEL = "signalbox"
PROMPT_MODEL = "signalbox-prompt"
MODELS = (ANSWER_MODEL, PROMPT_MODEL)

_OPENAI_FIELDS = ("query", "messages", "model_options", "following", "user", "metadata")
"""Fields of `AskRequest` that are not in `ChatOptions`, because OpenAI's body has its own form for them."""

ChatOptions: type[BaseModel] = create_model(
    "ChatOptions",
    __base__=ApiModel,
    **{name: (one.annotation, one) for name, one in AskRequest.model_fields.items() if name not in _OPENAI_FIELDS},
)  # type: ignore[call-overload]
ChatOptions.__doc__ = "Options of signalbox in a request in OpenAI's form; the same as in /v1/augment."


class ContentPart(BaseModel):
    """A part of a turn's content."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    type: str
    text: Annotated[str, Field(max_length=100_000)] | None = None


class Turn(BaseModel):
    """A turn of a conversation. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[str, Field(max_length=100_000)] | Annotated[tuple[ContentPart, ...], Field(max_length=100)] | None
    ) = None
    name: str | None = None
    tool_calls: ToolCallsMade | None = None
    tool_call_id: str | None = None


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatBody(ModelOptions):
    """The request body of a chat completion. Other keys of OpenAI's API are accepted and ignored."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: Annotated[tuple[Turn, ...], Field(min_length=1, max_length=200)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = Field(None, description="only one choice per answer is supported: n must be 1")
    user: UserName | None = None
    metadata: Metadata | None = None
    signalbox: ChatOptions | None = None  # type: ignore[valid-type]

    @property
    def options(self) -> dict[str, Any]:
        """The keys of the `signalbox` object that the caller sent."""
        return self.signalbox.model_dump(exclude_unset=True) if self.signalbox is not None else {}

    @property
    def caller_fields(self) -> dict[str, Any]:
        """The user and the metadata of the request."""
        return {"user": self.user, "metadata": self.metadata or {}}

    @property
    def llm_options(self) -> dict[str, Any]:
        """The options passed on to the language model."""
        return self.model_dump(include=set(ModelOptions.model_fields), exclude_none=True)

    @property
    def reports_usage(self) -> bool:
        """True if the stream should report its token usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


def question_fields(body: ChatBody) -> dict[str, Any]:
    """Return the fields `messages` and `following` of `agent.types.AskRequest`.

    `messages` ends with the user's last turn, the question. Of the turns before it only the texts are kept, without
    tool results, because the answers that followed rest on these. `following` contains the later turns (tool calls and
    their results) with the keys of `agent.types.LaterTurn`.

    Raises:
        Problem: there is no user turn, the question is empty, or a turn has content that is not text.
    """
    texts = [_text(turn, place) for place, turn in enumerate(body.messages)]
    last = max((place for place, turn in enumerate(body.messages) if turn.role == "user"), default=-1)
    if last < 0:
        raise field_problem("messages", "no message has the role user; the last message of the user is the question")
    before = [
        {"role": _role(turn), "content": text}
        for turn, text in zip(body.messages[: last + 1], texts, strict=False)
        if turn.role != "tool" and text
    ]
    if not texts[last].strip():
        raise field_problem(f"messages.{last}.content", "the question is empty")
    following = [
        {
            "role": _role(turn),
            "content": text or None,
            **turn.model_dump(include={"name", "tool_calls", "tool_call_id"}, exclude_unset=True, exclude_none=True),
        }
        for turn, text in zip(body.messages[last + 1 :], texts[last + 1 :], strict=True)
    ]
    return {"messages": before, "following": following}


def check_model(name: str) -> str:
    """Return the model name unchanged.

    Raises:
        Problem: 404 if this service has no such model.
    """
    if name not in MODELS:
        detail = f"there is no such model; there are: {', '.join(MODELS)}"
        raise Problem(404, "model-not-found", detail, errors=field_problem("model", detail, MODELS).errors)
    return name


def _role(turn: Turn) -> str:
    return "system" if turn.role == "developer" else turn.role


def _text(turn: Turn, place: int) -> str:
    if turn.content is None or isinstance(turn.content, str):
        return turn.content or ""
    for number, part in enumerate(turn.content):
        if part.type != "text" or part.text is None:
            raise field_problem(f"messages.{place}.content.{number}", "only parts of type text are supported", ["text"])
    return "\n".join(part.text or "" for part in turn.content)
