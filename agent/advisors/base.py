"""What is common to advisors: the protocol, a chat request on its way, and how it ended.

An advisor of your own is a class with `order`, `before` and `after`, handed to `open_service`:

    class Greeting:
        order = 350  # behind memory (300), before retrieval (400)

        async def before(self, call: Call) -> Call:
            call.context["greeting.began"] = call.at
            return call

        async def after(self, end: End) -> End:
            return end

    async with open_service(advisors=[Greeting()]) as service:
        answer = await service.chat("When does the rotor stop?")
        answer.context["greeting.began"]

`before` is called in the order of `order`, `after` in reverse, for streams and whole answers alike. `after` is called
exactly once for every advisor whose `before` returned: when the answer is whole, when an advisor refused to have it
answered, when something failed, and when the asker went away; `End.status` says which. It comes before the last piece
of a stream is handed out, and runs to its end even when the asker is gone by then.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar

from agent.pipeline import Decision, Pipeline
from agent.types import Answer, ChatRequest, Citation, FinishReason, Prompt, Usage
from retrievers.core.errors import Unavailable
from retrievers.core.tasks import within
from retrievers.core.types import Viewer

Status = Literal["answered", "refused", "failed", "abandoned"]

STORE_SHARE = 0.1
"""Of the request's time that an advisor may wait for what it stores or has stored."""

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class Call:
    """A chat request on its way to the model.

    Attributes:
        at: when it came; `started` is the same moment of `time.monotonic()`, `timeout_s` counts from it.
        context: shared by all advisors of this request, and part of its answer. Keys begin with the advisor's name.
        degraded: what went without, for the answer to say.
        refusal: answers in place of the model. The advisors behind the one that sets it are not asked.
        prompt: what the model is asked, with the decision that it came about by.
        pipeline: with the settings and the sources of the tenant.
    """

    viewer: Viewer
    request: ChatRequest
    at: datetime
    started: float
    timeout_s: float
    context: dict[str, Any] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    refusal: str | None = None
    prompt: Prompt | None = None
    decision: Decision | None = None
    pipeline: Pipeline | None = None

    @property
    def tenant(self) -> str:
        return self.viewer.tenant

    def without(self, what: str) -> "Call":
        """The call, whose answer says that something was not at hand."""
        return replace(self, degraded=(*self.degraded, f"{what}_unavailable"))

    async def stored(self, work: Awaitable[Returned]) -> Returned:
        """What a store answers within its share of the request's time.

        Raises:
            Unavailable: it did not, or cannot be asked.
        """
        try:
            return await within(work, STORE_SHARE * self.timeout_s)
        except (TimeoutError, ConnectionAbortedError) as error:
            raise Unavailable("the database", "it did not answer in time") from error


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer to a turn of a conversation.

    Attributes:
        text: as it was streamed.
        context: what the advisors left for the asker.
        details: the answer with the whole result; None where an advisor refused to have the question answered.
        degraded: what it went without, retrieval and model included.
    """

    text: str
    context: Mapping[str, Any]
    details: Answer | None
    degraded: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """`refused`, or the result's."""
        return self.details.status if self.details else "refused"

    @property
    def trace_id(self) -> str | None:
        return self.details.trace_id if self.details else None

    @property
    def citations(self) -> tuple[Citation, ...]:
        return self.details.citations if self.details else ()

    @property
    def usage(self) -> Usage:
        return self.details.usage if self.details else Usage()

    @property
    def finish_reason(self) -> FinishReason:
        """A refusal ends as OpenAI's own filter does."""
        return self.details.finish_reason if self.details else "content_filter"

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        return self.details.tool_calls if self.details else ()


@dataclass(frozen=True, slots=True)
class End:
    """How a chat request ended.

    Attributes:
        call: as far as it came.
        text: what the asker was shown, which may be a part of an answer.
        answer: None unless it is whole.
        error: what failed.
    """

    call: Call
    status: Status
    text: str
    answer: ChatAnswer | None = None
    error: BaseException | None = None


class Advisor(Protocol):
    """A step around the answer to a chat."""

    @property
    def order(self) -> int:
        """Smaller is further out. Of those here: log 0, record 100, guard 200, memory 300, retrieval 400."""
        ...

    async def before(self, call: Call) -> Call:
        """The call as it goes on.

        Raises:
            BadRequest: the request cannot be.
            Unavailable: it cannot be answered.
        """
        ...

    async def after(self, end: End) -> End:
        """The end as it goes on; what it raises is logged and changes nothing."""
        ...
