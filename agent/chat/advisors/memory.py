"""Memory advisor: add the stored turns of a conversation to the request, and store the new turns afterwards."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome
from agent.chat.conversation_memory import WINDOW, ConversationMemory, StoredTurn, merge_turns
from agent.types import ApiModel, Message
from retrievers.core.errors import Unavailable


class MemoryParameters(ApiModel):
    """How many of the newest stored messages to use; the summary of the older ones is then left out."""

    window: Annotated[int, Field(ge=1, le=WINDOW)]


@dataclass(frozen=True, slots=True)
class MemoryAdvisor:
    """Reads and stores conversations.

    A question is stored with its answer, or if the answer broke off, with the text that the caller saw. A question for
    hits or a prompt is stored alone. Questions that were refused or failed without any text are not stored. Nothing is
    stored while the model waits for tools: the question will be sent again with their results.

    Attributes:
        window: number of newest messages to use, without a summary; None for the usual number and the summary.
    """

    name: ClassVar[str] = "memory"
    parameters: ClassVar[type[ApiModel]] = MemoryParameters
    always: ClassVar[bool] = True

    memory: ConversationMemory
    window: int | None = None
    order: int = 300

    def with_parameters(self, parameters: MemoryParameters) -> "MemoryAdvisor":
        """Return an advisor whose window is the given number of messages."""
        return replace(self, window=parameters.window)

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        request = call.request
        if request.conversation is None:
            return call
        try:
            stored = await call.await_storage(self.memory.read(call.viewer, request.conversation, self.window))
        except Unavailable:
            return call.with_unavailable("memory")
        # A question sent again, for another page or for an answer, is not a follow-up of itself.
        while stored and (stored[-1].role, stored[-1].content) == ("user", request.question):
            stored = stored[:-1]
        turns = (*merge_turns(stored, request.history), Message.model_construct(role="user", content=request.question))
        call.context["memory.sent"] = request.history
        return replace(call, request=request.model_copy(update={"query": None, "messages": turns}))

    async def after(self, outcome: RequestOutcome) -> RequestOutcome:
        request = outcome.call.request
        awaits_tools = outcome.answer is not None and outcome.answer.finish_reason == "tool_calls"
        is_found = request.kind != "ask" and outcome.status == "answered" and request.page == 1
        if (
            request.conversation is None
            or awaits_tools
            or not (is_found or outcome.text)
            or outcome.status == "refused"
        ):
            return outcome
        turns = [
            StoredTurn("user", request.question),
            *([StoredTurn("assistant", outcome.text)] if outcome.text else []),
        ]
        sent = outcome.call.context.pop("memory.sent", request.history)
        before = [StoredTurn(turn.role, turn.content) for turn in sent if turn.role != "system"]
        as_of = outcome.call.decision.scope.changed if outcome.call.decision is not None else 0
        added = self.memory.add(
            outcome.call.viewer,
            request.conversation,
            turns,
            before=before,
            as_of=as_of,
            asker=request.user,
            at=outcome.call.at,
        )
        await outcome.call.await_storage(added)
        return outcome
