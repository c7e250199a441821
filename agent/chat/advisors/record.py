"""Record advisor: store each question and its outcome; for an answer, the record is begun before any other work."""

import uuid
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome
from agent.chat.exchanges import ExchangeStore, NewExchange
from agent.types import ApiModel
from retrievers.core.errors import BadRequest, Unavailable

_ID = "record.id"


class RecordParameters(ApiModel):
    """How long to keep the record of this request, in days. More than the setting CHAT_DAYS is refused."""

    days: Annotated[int, Field(ge=1, le=3650)]


@dataclass(frozen=True, slots=True)
class RecordAdvisor:
    """Stores records of questions. If a record cannot be written, the question is answered anyway.

    A question for a model is stored before it is answered, so that it is known even if the process dies. Hits and
    prompts take milliseconds, so their record is a single row, written in the background afterwards.
    """

    name: ClassVar[str] = "record"
    parameters: ClassVar[type[ApiModel]] = RecordParameters
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

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        if call.request.kind != "ask":
            return call
        id = uuid.uuid4().hex
        try:
            await call.await_storage(self.records.begin(call.viewer, id, self._new_exchange(call)))
        except Unavailable:
            return call.with_unavailable("record")
        call.context[_ID] = id
        return call

    async def after(self, outcome: RequestOutcome) -> RequestOutcome:
        trace = outcome.answer.trace_id if outcome.answer else None
        if outcome.call.request.kind != "ask":
            self.records.store(
                outcome.call.viewer, self._new_exchange(outcome.call), outcome.status, outcome.text or None, trace
            )
        elif (id := outcome.call.context.get(_ID)) is not None:
            self.records.end(outcome.call.tenant, id, outcome.status, outcome.text or None, trace)
        return outcome

    def _new_exchange(self, call: AdvisedRequest) -> NewExchange:
        request = call.request
        return NewExchange(
            request.question, request.kind, call.at, conversation=request.conversation, user=request.user,
            metadata=request.metadata, days=self.days,
        )  # fmt: skip
