"""The body of a chat completion, as OpenAI's clients send it, and what the service is asked by it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from agent.serve.http.problems import Problem, field_problem
from agent.types import AskRequest, Metadata, ModelOptions, Shape, UserName

ANSWERS = "signalbox"
PROMPTS = "signalbox-prompt"
MODELS = (ANSWERS, PROMPTS)

_OF_OPENAI = ("query", "messages", "model_options", "following", "user", "metadata")
"""What of a request has a place of its own in OpenAI's body."""

ChatOptions: type[BaseModel] = create_model(
    "ChatOptions",
    __base__=Shape,
    **{name: (one.annotation, one) for name, one in AskRequest.model_fields.items() if name not in _OF_OPENAI},
)  # type: ignore[call-overload]
ChatOptions.__doc__ = "What a request says to signalbox beside OpenAI's keys, as in /v1/augment."


class Part(BaseModel):
    """A part of a turn."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    type: str
    text: Annotated[str, Field(max_length=100_000)] | None = None


class Turn(BaseModel):
    """A turn of a conversation; keys that are not here are passed over."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str, Field(max_length=100_000)] | Annotated[tuple[Part, ...], Field(max_length=100)] | None = (
        None
    )
    name: str | None = None
    tool_calls: Annotated[tuple[dict[str, Any], ...], Field(max_length=128)] | None = None
    tool_call_id: str | None = None


class StreamOptions(BaseModel):
    """What a stream holds beside the text."""

    include_usage: bool | None = None


class ChatBody(ModelOptions):
    """A chat completion's request. Keys of OpenAI's API that are not here are accepted and change nothing."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: Annotated[tuple[Turn, ...], Field(min_length=1, max_length=200)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = Field(None, description="an answer is one choice")
    user: UserName | None = None
    metadata: Metadata | None = None
    signalbox: ChatOptions | None = None  # type: ignore[valid-type]

    @property
    def options(self) -> dict[str, Any]:
        """The keys of the `signalbox` object that the caller sent."""
        return self.signalbox.model_dump(exclude_unset=True) if self.signalbox is not None else {}

    @property
    def asked_by(self) -> dict[str, Any]:
        """Who asks, and what is said of the request."""
        return {"user": self.user, "metadata": self.metadata or {}}

    @property
    def for_model(self) -> dict[str, Any]:
        """What is for the model behind."""
        return self.model_dump(include=set(ModelOptions.model_fields), exclude_none=True)

    @property
    def counts_usage(self) -> bool:
        """Whether a stream is to say what it used."""
        return bool(self.stream_options and self.stream_options.include_usage)


def question_of(body: ChatBody) -> dict[str, Any]:
    """`messages` and `following` of `agent.types.AskRequest`.

    The last turn of the user is the question. Turns after it go to the model as they are: its tool calls and what they
    gave. Of the turns before it only texts count: what became of earlier tool calls stands in the answers after them.

    Raises:
        Problem: no turn is the user's, or one holds more than text.
    """
    texts = [_text(turn, place) for place, turn in enumerate(body.messages)]
    last = max((place for place, turn in enumerate(body.messages) if turn.role == "user"), default=-1)
    if last < 0:
        raise field_problem("messages", "no turn is the user's: the last of them is the question")
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
            **turn.model_dump(include={"name", "tool_calls", "tool_call_id"}, exclude_none=True),
        }
        for turn, text in zip(body.messages[last + 1 :], texts[last + 1 :], strict=True)
    ]
    return {"messages": before, "following": following}


def known_model(name: str) -> str:
    """The name, which is one of ours.

    Raises:
        Problem: it is none.
    """
    if name not in MODELS:
        detail = f"there is no such model here; there are: {', '.join(MODELS)}"
        raise Problem(404, "model-not-found", detail, errors=field_problem("model", detail, MODELS).errors)
    return name


def _role(turn: Turn) -> str:
    return "system" if turn.role == "developer" else turn.role


def _text(turn: Turn, place: int) -> str:
    if turn.content is None or isinstance(turn.content, str):
        return turn.content or ""
    for number, part in enumerate(turn.content):
        if part.type != "text" or part.text is None:
            raise field_problem(f"messages.{place}.content.{number}", "only parts of type text can be read", ["text"])
    return "\n".join(part.text or "" for part in turn.content)
