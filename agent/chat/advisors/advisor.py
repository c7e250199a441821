"""The protocol of advisors, the request that they receive, and its outcome.

Advisors wrap every request, for hits, a prompt or an answer, over any interface. An advisor of your own is a class with
`order`, `before` and `after`, passed to `open_service`:

    class Greeting:
        order = 350  # after memory (300), before retrieval (400)

        async def before(self, call: AdvisedRequest) -> AdvisedRequest:
            call.context["greeting.began"] = call.at
            return call

        async def after(self, outcome: RequestOutcome) -> RequestOutcome:
            return outcome

    async with open_service(advisors=[Greeting()]) as service:
        answer = await service.chat("When does the rotor stop?")
        answer.context["greeting.began"]

`before` is called in the order of `order`, `after` in reverse, for streams and whole answers alike. `after` is called
exactly once for every advisor whose `before` returned: when the answer, hits or prompt are complete, when an advisor
refused the question, when something failed, and when the caller went away; `RequestOutcome.status` says which. It is
called before the last piece of a stream is yielded, and runs to its end even if the caller has gone.

A request can name an advisor that has a `name`, with parameters: see `Parametrised`.
"""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from agent.answering.decision_record import DecisionRecord
from agent.options import deadline_shares
from agent.types import Answer, ApiModel, Citation, FinishReason, Prompt, Request, Result, Usage
from retrievers.core.errors import Unavailable
from retrievers.core.protocol_checks import implements
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Viewer

OutcomeStatus = Literal["answered", "refused", "failed", "abandoned"]

Returned = TypeVar("Returned")


@dataclass(frozen=True, slots=True)
class AdvisedRequest:
    """A request on its way through the advisors.

    Attributes:
        request: its `kind` says what it asks for; `user` and `metadata` are the caller's labels and grant no access.
        at: when it arrived; `started` is the same time on the clock of `time.monotonic()`, from which `timeout_s`
            counts.
        context: shared by all advisors of this request and returned with its answer. Keys begin with the advisor's
            name.
        degraded: notes about what was unavailable, for the answer.
        refusal: returned instead of an answer. The advisors after the one that sets it are not called.
        result: the hits, if the request asks only for them.
        prompt: the prompt for the model or for the caller; `decision` is its decision record.
        language: language of answers, a code of `agent.options.languages`; None means the question's.
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
    decision: DecisionRecord | None = None
    language: str | None = None

    @property
    def tenant(self) -> str:
        return self.viewer.tenant

    def with_unavailable(self, what: str) -> "AdvisedRequest":
        """Return a copy with one more note in `degraded`: "memory" -> "memory_unavailable"."""
        return replace(self, degraded=(*self.degraded, f"{what}_unavailable"))

    async def await_storage(self, work: Awaitable[Returned]) -> Returned:
        """Await a storage operation for at most `deadline_shares.ADVISOR_STORAGE` of the request's time.

        Raises:
            Unavailable: it took longer, or the database cannot be reached.
        """
        try:
            return await wait_within(work, deadline_shares.ADVISOR_STORAGE * self.timeout_s)
        except (TimeoutError, ConnectionAbortedError) as error:
            raise Unavailable("the database", "it did not answer in time") from error


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The outcome of a request.

    Attributes:
        text: the answer as streamed; empty for hits and prompts.
        context: what the advisors left for the caller.
        details: the answer, prompt or hits; None if an advisor refused the question.
        degraded: notes about what was unavailable, including retrieval and model.
    """

    text: str
    context: Mapping[str, Any]
    details: Result | None
    degraded: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """`refused`, or the status of the result."""
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
        """`content_filter` for a refusal, as for OpenAI's own filter."""
        if self.details is None:
            return "content_filter"
        return self.details.finish_reason if isinstance(self.details, Answer) else "stop"

    @property
    def tool_calls(self) -> tuple[dict[str, Any], ...]:
        return self.details.tool_calls if isinstance(self.details, Answer) else ()


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """How a request ended.

    Attributes:
        call: the call as far as it got.
        text: the text that the caller was shown, possibly only a part of an answer.
        answer: the complete answer; None if it is not complete.
        error: the exception, if the request failed.
    """

    call: AdvisedRequest
    status: OutcomeStatus
    text: str
    answer: ChatAnswer | None = None
    error: BaseException | None = None


class Advisor(Protocol):
    """A step that wraps the answering of a request."""

    @property
    def order(self) -> int:
        """The place among the advisors: a smaller order means an earlier `before` and a later `after`.

        Built in: log 0, record 100, guard 200, memory 300, retrieval 400.
        """
        ...

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        """Return the call for the next advisor, changed or not.

        Raises:
            BadRequest: the request is not valid.
            Unavailable: the request cannot be answered.
        """
        ...

    async def after(self, outcome: RequestOutcome) -> RequestOutcome:
        """Return the end for the next advisor, changed or not. If this raises, `Chat` logs it and keeps `outcome`."""
        ...


@runtime_checkable
class Parametrised(Advisor, Protocol):
    """An advisor that a request may name, with parameters:

        class Tone:
            name, order, parameters, always = "tone", 350, ToneParameters, False

            def with_parameters(self, parameters: ToneParameters) -> "Tone": ...

    Attributes:
        parameters: type of the parameters. Parameters that do not fit it are rejected with status 422, which lists the
            valid ones, before any work is done.
        always: whether it also takes part, without parameters, in requests that do not name it.
    """

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> type[ApiModel]: ...

    @property
    def always(self) -> bool: ...

    def with_parameters(self, parameters: Any) -> Advisor:
        """Return the advisor for one request.

        Args:
            parameters: an instance of the type `parameters`.
        Raises:
            BadRequest: a value is not allowed; `where` is the parameter's name.
        """
        ...


def is_parametrised(advisor: Advisor) -> TypeGuard[Parametrised]:
    """Return whether a request may name the advisor; see `Parametrised`."""
    return implements(advisor, Parametrised)
