"""The record of a question and of what became of it; for an answer it is begun before anything is done about it."""

import uuid
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from agent.chat.advisors.base import Call, End
from agent.chat.exchanges import Asking, ExchangeStore
from agent.types import Shape
from retrievers.core.errors import BadRequest, Unavailable

_ID = "record.id"


class RecordParameters(Shape):
    """How long a request's record is kept, in days: at most CHAT_DAYS."""

    days: Annotated[int, Field(ge=1, le=3650)]


@dataclass(frozen=True, slots=True)
class RecordAdvisor:
    """Records of questions, as an advisor; one that cannot be written is no reason not to answer.

    A question that a model answers is written down first, so that one that died on the way is known. Hits and prompts
    are there in milliseconds: their record is one row, written when they are, and nobody waits for it.
    """

    name: ClassVar[str] = "record"
    parameters: ClassVar[type[Shape]] = RecordParameters
    always: ClassVar[bool] = True

    records: ExchangeStore
    days: int | None = None
    order: int = 100

    def using(self, parameters: RecordParameters) -> "RecordAdvisor":
        """The record that is kept for less time."""
        if parameters.days > self.records.days:
            raise BadRequest(f"records are kept for at most {self.records.days} days (CHAT_DAYS)", where="days")
        return replace(self, days=parameters.days)

    async def before(self, call: Call) -> Call:
        if call.request.kind != "ask":
            return call
        id = uuid.uuid4().hex
        try:
            await call.stored(self.records.begin(call.viewer, id, self._asking(call)))
        except Unavailable:
            return call.without("record")
        call.context[_ID] = id
        return call

    async def after(self, end: End) -> End:
        trace = end.answer.trace_id if end.answer else None
        if end.call.request.kind != "ask":
            self.records.keep(end.call.viewer, self._asking(end.call), end.status, end.text or None, trace)
        elif (id := end.call.context.get(_ID)) is not None:
            self.records.end(end.call.tenant, id, end.status, end.text or None, trace)
        return end

    def _asking(self, call: Call) -> Asking:
        request = call.request
        return Asking(
            request.question, request.kind, call.at, conversation=request.conversation, user=request.user,
            metadata=request.metadata, days=self.days,
        )  # fmt: skip
