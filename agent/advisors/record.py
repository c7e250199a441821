"""The record of a question, written before anything is done about it, and of its answer, afterwards."""

import uuid
from dataclasses import dataclass

from agent.advisors.base import Call, End
from agent.records import Records
from retrievers.core.errors import Unavailable

_ID = "record.id"


@dataclass(frozen=True, slots=True)
class Record:
    """Records of questions, as an advisor; one that cannot be written is no reason not to answer."""

    records: Records
    order: int = 100

    async def before(self, call: Call) -> Call:
        id = uuid.uuid4().hex
        request = call.request
        begun = self.records.begin(
            call.viewer, id, request.question, conversation=request.conversation, asker=request.user
        )
        try:
            await call.stored(begun)
        except Unavailable:
            return call.without("record")
        call.context[_ID] = id
        return call

    async def after(self, end: End) -> End:
        if (id := end.call.context.get(_ID)) is not None:
            trace = end.answer.trace_id if end.answer else None
            await end.call.stored(self.records.end(end.call.tenant, id, end.status, end.text or None, trace))
        return end
