"""Records of what was asked in chats: the question first, its answer later, and what people thought of it."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.trace import storable
from retrievers.core.types import Viewer, whole
from retrievers.postgres.database import Database

_SWEEP_BATCH = 100

_BEGIN = """
    INSERT INTO signalbox.exchange (tenant, id, conversation, asker, question, principals, as_of, expires_at)
    VALUES (%s, %s, %s, %s, %s, %s, coalesce((SELECT changed FROM signalbox.access), 0),
            now() + make_interval(days => %s)) RETURNING id
"""
_END = """
    UPDATE signalbox.exchange SET status = %s, answer = %s, trace = %s, ended_at = now() WHERE id = %s
"""
_SWEEP = """
    DELETE FROM signalbox.exchange WHERE (tenant, id) IN (
        SELECT tenant, id FROM signalbox.exchange WHERE expires_at <= now() ORDER BY expires_at LIMIT %s
        FOR UPDATE SKIP LOCKED)
"""
_LIST = """
    SELECT e.id, e.conversation, e.asker, e.question, e.answer, e.status, e.trace, e.created_at, e.ended_at,
           f.score, f.comment
    FROM signalbox.exchange e LEFT JOIN signalbox.feedback f ON (f.tenant, f.trace) = (e.tenant, e.trace)
    WHERE e.expires_at > now() AND (%(conversation)s::text IS NULL OR e.conversation = %(conversation)s)
      AND (%(asker)s::text IS NULL OR e.asker = %(asker)s)
    ORDER BY e.created_at DESC, e.id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question with its answer.

    Attributes:
        user: who asked, as the caller named them.
        status: `unanswered` while it is under way, and for ever when the process died meanwhile.
        score: of the feedback, 0 to 10.
    """

    id: str
    conversation: str | None
    user: str | None
    question: str
    answer: str | None
    status: str
    trace_id: str | None
    created_at: datetime
    ended_at: datetime | None
    score: int | None
    comment: str | None


@dataclass(frozen=True, slots=True)
class Records:
    """The records of all tenants.

    Args:
        days: how long one is kept, > 0.
    """

    database: Database
    days: int

    async def begin(
        self, who: str | Viewer, id: str, question: str, *, conversation: str | None = None, asker: str | None = None
    ) -> None:
        """Keep a question that is about to be answered.

        Raises:
            Unavailable: the database cannot be asked; so do the others.
        """
        tenant, principals = Viewer.of(who)
        values = (tenant, uuid.UUID(id), conversation, asker, storable(question), list(principals), self.days)
        await self.database.fetch(whole(tenant), _BEGIN, values)

    async def end(self, tenant: str, id: str, status: str, answer: str | None, trace_id: str | None) -> None:
        """Keep what became of a question. `trace_id` is the answer's, which feedback is about."""
        trace = uuid.UUID(trace_id) if trace_id else None
        async with self.database.transaction(whole(tenant)) as connection:
            values = (status, storable(answer) if answer else None, trace, uuid.UUID(id))
            await connection.execute(_END, values)
            await connection.execute(_SWEEP, (_SWEEP_BATCH,))

    async def newest(
        self, who: str | Viewer, *, conversation: str | None = None, asker: str | None = None, limit: int = 50
    ) -> list[Exchange]:
        """Records that the viewer sees, the newest first; of one conversation, of one asker, or all."""
        values = {"conversation": conversation, "asker": asker, "limit": limit}
        rows = await self.database.fetch(who, _LIST, values)
        return [_exchange(*row) for row in rows]


def _exchange(id: uuid.UUID, *more: Any) -> Exchange:
    conversation, user, question, answer, status, trace, created_at, ended_at, score, comment = more
    trace_id = trace.hex if trace else None
    return Exchange(
        id.hex, conversation, user, question, answer, status, trace_id, created_at, ended_at, score, comment
    )
