"""Memory advisor: add the stored turns of a conversation to the request, and store the new turns afterwards."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from agent.chat.advisors.base import Call, End
from agent.chat.memory import WINDOW, Memory, StoredTurn, joined
from agent.types import Message, Shape
from retrievers.core.errors import Unavailable


class MemoryParameters(Shape):
    """How many of the newest stored messages to use; the summary of the older ones is then left out."""

    window: Annotated[int, Field(ge=1, le=WINDOW)]


@dataclass(frozen=True, slots=True)
class Remember:
    """Reads and stores conversations.

    A question is stored with its answer, or if the answer broke off, with the text that the caller saw. A question for
    hits or a prompt is stored alone. Questions that were refused or failed without any text are not stored. Nothing is
    stored while the model waits for tools: the question will be sent again with their results.

    Attributes:
        window: number of newest messages to use, without a summary; None for the usual number and the summary.
    """

    name: ClassVar[str] = "memory"
    parameters: ClassVar[type[Shape]] = MemoryParameters
    always: ClassVar[bool] = True

    memory: Memory
    window: int | None = None
    order: int = 300

    def with_parameters(self, parameters: MemoryParameters) -> "Remember":
        """Return an advisor whose window is the given number of messages."""
        return replace(self, window=parameters.window)

    async def before(self, call: Call) -> Call:
        request = call.request
        if request.conversation is None:
            return call
        try:
            stored = await call.stored(self.memory.read(call.viewer, request.conversation, self.window))
        except Unavailable:
            return call.without("memory")
        # A question sent again, for another page or for an answer, is not a follow-up of itself.
        while stored and (stored[-1].role, stored[-1].content) == ("user", request.question):
            stored = stored[:-1]
        turns = (*joined(stored, request.history), Message.model_construct(role="user", content=request.question))
        call.context["memory.sent"] = request.history
        return replace(call, request=request.model_copy(update={"query": None, "messages": turns}))

    async def after(self, end: End) -> End:
        request = end.call.request
        awaits_tools = end.answer is not None and end.answer.finish_reason == "tool_calls"
        is_found = request.kind != "ask" and end.status == "answered" and request.page == 1
        if request.conversation is None or awaits_tools or not (is_found or end.text) or end.status == "refused":
            return end
        turns = [StoredTurn("user", request.question), *([StoredTurn("assistant", end.text)] if end.text else [])]
        sent = end.call.context.pop("memory.sent", request.history)
        before = [StoredTurn(turn.role, turn.content) for turn in sent if turn.role != "system"]
        as_of = end.call.decision.scope.changed if end.call.decision is not None else 0
        added = self.memory.add(
            end.call.viewer, request.conversation, turns, before=before, as_of=as_of, asker=request.user, at=end.call.at
        )
        await end.call.stored(added)
        return end
