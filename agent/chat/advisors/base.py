"""What is common to advisors: the protocol, a request on its way, and how it ended.

They stand around every question, for hits, a prompt or an answer, whatever door it comes by. An advisor of your own is
a class with `order`, `before` and `after`, handed to `open_service`:

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
exactly once for every advisor whose `before` returned: when the answer is whole (or the hits, or the prompt), when an
advisor refused to have it answered, when something failed, and when the asker went away; `End.status` says which. It
comes before the last piece of a stream is handed out, and runs to its end even when the asker is gone by then.

One that has a `name` can be named by a request, with parameters: see `Parametrised`.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from agent.answering.decision import Decision
from agent.types import Answer, Citation, FinishReason, Prompt, Request, Result, Shape, Usage
from retrievers.core.errors import Unavailable
from retrievers.core.tasks import within
from retrievers.core.types import Viewer

Status = Literal["answered", "refused", "failed", "abandoned"]

STORE_SHARE = 0.1
"""Of the request's time that an advisor may wait for what it stores or has stored."""

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way.

    Attributes:
        request: what it asks for is its `kind`; its `user` and `metadata` are the caller's word, and no right.
        at: when it came; `started` is the same moment of `time.monotonic()`, `timeout_s` counts from it.
        context: shared by all advisors of this request, and part of its answer. Keys begin with the advisor's name.
        degraded: what went without, for the answer to say.
        refusal: answers in place of the model. The advisors behind the one that sets it are not asked.
        result: the hits, of a request that asks for no more.
        prompt: what the model is asked, or the request asks for; with the decision that it came about by.
        language: of answers, a code of `agent.options.languages`; None is that of the question.
    """

    viewer: Viewer
    request: Request
    at: datetime
    started: float
    timeout_s: float
    context: dict[str, Any] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    refusal: str | None = None
    result: Result | None = None
    prompt: Prompt | None = None
    decision: Decision | None = None
    language: str | None = None

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
    """What a question was answered with.

    Attributes:
        text: as it was streamed; empty where hits or a prompt were asked for.
        context: what the advisors left for the asker.
        details: the answer, prompt or hits; None where an advisor refused to have the question answered.
        degraded: what it went without, retrieval and model included.
    """

    text: str
    context: Mapping[str, Any]
    details: Result | None
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
        return self.details.citations if isinstance(self.details, Prompt) else ()

    @property
    def usage(self) -> Usage:
        return self.details.usage if isinstance(self.details, Answer) else Usage()

    @property
    def finish_reason(self) -> FinishReason:
        """A refusal ends as OpenAI's own filter does."""
        if self.details is None:
            return "content_filter"
        return self.details.finish_reason if isinstance(self.details, Answer) else "stop"

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        return self.details.tool_calls if isinstance(self.details, Answer) else ()


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended.

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
    """A step around the answer to a question."""

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


@runtime_checkable
class Parametrised(Advisor, Protocol):
    """An advisor that a request may name, with parameters:

        class Tone:
            name, order, parameters, always = "tone", 350, ToneParameters, False

            def using(self, parameters: ToneParameters) -> "Tone": ...

    Attributes:
        parameters: their shape. What does not fit it is a 422 that says what would, before anything is done.
        always: whether it also takes part, as it is, in requests that do not name it.
    """

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> type[Shape]: ...

    @property
    def always(self) -> bool: ...

    def using(self, parameters: Any) -> Advisor:
        """The advisor as one request has it.

        Args:
            parameters: of the shape `parameters`.
        Raises:
            BadRequest: they do not fit in some other way; `where` is the parameter's name.
        """
        ...
