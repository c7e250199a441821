"""Record advisor: store each question and its outcome; for an answer, the record is begun before any other work."""

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
    """How long to keep the record of this request, in days. More than the setting CHAT_DAYS is refused."""

    days: Annotated[int, Field(ge=1, le=3650)]


@dataclass(frozen=True, slots=True)
class RecordAdvisor:
    """Stores records of questions. If a record cannot be written, the question is answered anyway.

    A question for a model is stored before it is answered, so that it is known even if the process dies. Hits and
    prompts take milliseconds, so their record is a single row, written in the background afterwards.
    """

    name: ClassVar[str] = "record"
    parameters: ClassVar[type[Shape]] = RecordParameters
    always: ClassVar[bool] = True

    records: ExchangeStore
    days: int | None = None
    order: int = 100

    def with_parameters(self, parameters: RecordParameters) -> "RecordAdvisor":
        """Return a copy that keeps the record for the given days.

        Raises:
            BadRequest: these are more than the setting CHAT_DAYS.
        """
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
