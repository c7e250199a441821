"""The language model as the stages see it: one call with a deadline, and the reply with its tokens and cost."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from agent.types import FinishReason
from retrievers.core.errors import Unavailable
from retrievers.http.provider_hits import finite_number

Messages = Sequence[Mapping[str, Any]]
"""Turns of a conversation, each with `role` and `content`; tool turns have the further keys of OpenAI's API."""

FaultKind = Literal["down", "late", "answer"]
_MOST_TOKENS = 1 << 40


class ModelFailed(Unavailable):
    """The model gave no usable answer; the caller continues without it. The reason never quotes the SDK or the server.

    Attributes:
        fault: `down`: the server is unreachable, fails or is out of quota; `late`: the deadline passed; `answer`:
            anything else, which does not predict how the next call will go.
    """

    def __init__(self, reason: str, *, retry_after_s: float | None = None, fault: FaultKind = "answer") -> None:
        super().__init__("the model", reason, retry_after_s=retry_after_s)
        self.source, self.fault = "model", fault


def timeout_reason(given_s: float) -> str:
    """Return the reason text for a call that did not answer within `given_s` seconds."""
    return f"no answer within {given_s:{'.2g' if given_s < 10 else '.0f'}} s"


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Tokens and cost of a call, including retries as far as the server reports them.

    Attributes:
        cost: US dollars; None if unknown.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: "CallUsage") -> "CallUsage":
        costs = [one.cost for one in (self, other) if one.cost is not None]
        return CallUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(costs) if costs else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the usage as JSON values."""
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens, "cost": self.cost}

    @classmethod
    def from_json(cls, data: object) -> "CallUsage":
        """Read the usage that a server or a recording states. Invalid token counts become 0, an invalid cost None."""
        given = data if isinstance(data, Mapping) else {}
        prompt, completion, cost = (given.get(key) for key in ("prompt_tokens", "completion_tokens", "cost"))
        cost = finite_number(cost)
        return cls(_count(prompt), _count(completion), cost if cost is not None and cost >= 0 else None)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    Attributes:
        text: as received, including reasoning and code fences.
        parsed: the reply as an instance of the schema; None without a schema.
        finish_reason: `length` if the caller's own token limit cut the answer.
        tool_calls: in the form of OpenAI's API, whether or not the tools were offered; see
            `agent.answering.tool_call_check.permitted_calls`.
        attempts: requests sent, including retries, rejected output forms and the repair.
    """

    text: str
    parsed: Any = None
    usage: CallUsage = CallUsage()
    model: str = ""
    attempts: int = 1
    elapsed_ms: float = 0.0
    finish_reason: FinishReason = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()


class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """The name in the settings; contains no secret."""
        ...

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        """Return one answer.

        Args:
            stage: the calling stage, such as "intent"; identifies the call together with `key`.
            deadline: `time.monotonic()` time by which the call answers or fails.
            key: the input as JSON values (question, history, date, collection), not the prompt.
            schema: the reply must be one JSON object of this schema; it is returned in `Reply.parsed`.
        Raises:
            ModelFailed: no usable answer before the deadline.
        """
        ...

    def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        """Yield one answer as pieces of text without the reasoning, then the whole Reply.

        Args: as for `complete`; the last piece must arrive before the deadline.
            options: values of `agent.types.ModelOptions`, by name. Sampling options that the model rejects are dropped.
        Raises:
            BadRequest: the model rejects an option that changes the meaning of the answer, such as the tools.
            ModelFailed: no answer, possibly after some pieces: the stream broke off, was cut at the token limit, or was
                late.
        """
        ...

    async def probe(self, deadline: float) -> str:
        """Return one line that says how the model would answer a call; raise ModelFailed if it would not."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...
