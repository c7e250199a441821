"""Exchanges: stored records of each question, its user, its outcome, and the feedback on its answer."""

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from agent.records.encoding import encode_json, storable_value
from agent.types import Kind
from retrievers.core.errors import Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.postgres.connections.database import Database

_SWEEP_BATCH = 100
_MOST_WRITING = 256
# Seconds for which outcomes are gathered and then stored together: a transaction each would slow the answers down.
_GATHER_S = 0.1
_WRITE_S = 5.0
_DRAIN_S = 3.0

_BEGIN = """
    INSERT INTO signalbox.exchange
        (tenant, id, kind, conversation, asker, question, metadata, principals, as_of, created_at, expires_at)
    SELECT %(tenant)s, %(id)s, %(kind)s, %(conversation)s, %(asker)s, %(question)s, %(metadata)s::jsonb,
           %(principals)s, coalesce((SELECT changed FROM signalbox.access), 0), %(at)s,
           now() + make_interval(days => %(days)s)
    WHERE NOT signalbox.erased(%(asker)s, %(conversation)s, %(principals)s, %(at)s)
    RETURNING id
"""
# Delete the row instead if its question was erased: a row written during an erasure was not seen by it.
_END = """
    WITH gone AS (
        DELETE FROM signalbox.exchange
        WHERE id = %(id)s AND signalbox.erased(asker, conversation, principals, created_at))
    UPDATE signalbox.exchange SET status = %(status)s, answer = %(answer)s, trace = %(trace)s, ended_at = now()
    WHERE id = %(id)s AND NOT signalbox.erased(asker, conversation, principals, created_at)
"""
# Skip questions erased while they were answered.
_KEEP = """
    WITH gone AS (
        DELETE FROM signalbox.exchange WHERE (tenant, id) IN (
            SELECT tenant, id FROM signalbox.exchange WHERE expires_at <= now() ORDER BY expires_at LIMIT %(sweep)s
            FOR UPDATE SKIP LOCKED))
    INSERT INTO signalbox.exchange
        (tenant, id, kind, conversation, asker, question, metadata, principals, as_of, created_at, expires_at,
         status, answer, trace, ended_at)
    SELECT %(tenant)s, id, kind, conversation, asker, question, metadata, principals,
           coalesce((SELECT changed FROM signalbox.access), 0), at, now() + make_interval(days => days),
           status, answer, trace, now()
    FROM jsonb_to_recordset(%(records)s::jsonb) AS new
        (id uuid, kind text, conversation text, asker text, question text, metadata jsonb, principals text[],
         at timestamptz, days integer, status text, answer text, trace uuid)
    WHERE NOT signalbox.erased(asker, conversation, principals, at)
    RETURNING id
"""
_KEPT = {"synchronous_commit": "off"}
_SWEEP = """
    DELETE FROM signalbox.exchange WHERE (tenant, id) IN (
        SELECT tenant, id FROM signalbox.exchange WHERE expires_at <= now() ORDER BY expires_at LIMIT %s
        FOR UPDATE SKIP LOCKED)
"""
_LIST = """
    SELECT e.id, e.kind, e.conversation, e.asker, e.metadata, e.question, e.answer, e.status, e.trace, e.created_at,
           e.ended_at, f.score, f.comment
    FROM signalbox.exchange e LEFT JOIN signalbox.feedback f ON (f.tenant, f.trace) = (e.tenant, e.trace)
    WHERE e.expires_at > now() AND (%(conversation)s::text IS NULL OR e.conversation = %(conversation)s)
      AND (%(asker)s::text IS NULL OR e.asker = %(asker)s)
    ORDER BY e.created_at DESC, e.id LIMIT %(limit)s
"""

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())


@dataclass(frozen=True, slots=True)
class NewExchange:
    """A question to be recorded.

    Attributes:
        at: when it arrived.
        user, metadata: the caller's labels.
        days: days that this record is kept; None means the setting.
    """

    question: str
    kind: Kind
    at: datetime
    conversation: str | None = None
    user: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    days: int | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded question and its outcome.

    Attributes:
        kind: what was requested: hits (`retrieve`), a prompt (`augment`) or an answer (`ask`).
        user: the caller's name for the end user.
        answer: text of the answer; None for hits and prompts.
        status: `unanswered` while it is being answered, and for good if the process died meanwhile.
        score: feedback, 0 to 10.
    """

    id: str
    kind: Kind
    conversation: str | None
    user: str | None
    metadata: Mapping[str, Any]
    question: str
    answer: str | None
    status: str
    trace_id: str | None
    created_at: datetime
    ended_at: datetime | None
    score: int | None
    comment: str | None


class ExchangeStore:
    """Stores and returns the records of all tenants. Open inside `async with`.

    Args:
        days: days that a record is kept, > 0.
    """

    def __init__(self, database: Database, days: int) -> None:
        self.database, self.days = database, days
        self._writing: set[asyncio.Task[None]] = set()
        self._gathered: list[tuple[str, dict[str, Any]]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait a few seconds for pending writes, then cancel them."""
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=_DRAIN_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def begin(self, who: str | Viewer, id: str, exchange: NewExchange) -> None:
        """Store a question before it is answered.

        Args:
            id: the new record's id, a UUID in hex, to be given to `end`.
        Raises:
            Unavailable: the database cannot be reached.
        """
        viewer = Viewer.of(who)
        await self.database.fetch(unrestricted_viewer(viewer.tenant), _BEGIN, self._values(viewer, id, exchange))

    def end(self, tenant: str, id: str, status: str, answer: str | None, trace_id: str | None) -> None:
        """Store the outcome of a question, in the background. Feedback refers to `trace_id`."""
        ended = {"status": status, "answer": storable_value(answer) if answer else None, "trace": _uuid(trace_id)}
        self._soon(self._end(tenant, {"id": uuid.UUID(id), **ended}))

    def store(
        self, viewer: Viewer, exchange: NewExchange, status: str, answer: str | None, trace_id: str | None
    ) -> None:
        """Store a question together with its outcome, in the background. Arguments as for `begin` and `end`."""
        ended = {"status": status, "answer": storable_value(answer) if answer else None, "trace": trace_id}
        record = self._values(viewer, uuid.uuid4().hex, exchange) | ended | {"metadata": dict(exchange.metadata)}
        if len(self._gathered) >= _MOST_WRITING:
            self._warn_of_loss()
            return
        self._gathered.append((viewer.tenant, record))
        if len(self._gathered) == 1:
            self._run(self._keep_gathered())

    async def wait_until_idle(self) -> None:
        """Wait until all pending writes are done or have failed."""
        await asyncio.gather(*self._writing)

    async def recent(
        self, who: str | Viewer, *, conversation: str | None = None, asker: str | None = None, limit: int = 50
    ) -> list[Exchange]:
        """Return the newest records that the viewer may see, newest first; of one conversation, one user, or all.

        Raises:
            Unavailable: the database cannot be reached.
        """
        await self.wait_until_idle()
        values = {"conversation": conversation, "asker": asker, "limit": limit}
        rows = await self.database.fetch(who, _LIST, values)
        return [_exchange(*row) for row in rows]

    def _values(self, viewer: Viewer, id: str, exchange: NewExchange) -> dict[str, Any]:
        return {
            "tenant": viewer.tenant,
            "id": uuid.UUID(id),
            "kind": exchange.kind,
            "conversation": exchange.conversation,
            "asker": exchange.user,
            "question": storable_value(exchange.question),
            "metadata": encode_json(dict(exchange.metadata)),
            "principals": list(viewer.principals),
            "at": exchange.at,
            "days": exchange.days or self.days,
        }

    async def _end(self, tenant: str, values: dict[str, object]) -> None:
        async with self.database.transaction(unrestricted_viewer(tenant)) as connection:
            await connection.execute(_END, values)
            await connection.execute(_SWEEP, (_SWEEP_BATCH,))

    async def _keep_gathered(self) -> None:
        """Store the records that arrive within `_GATHER_S`, with one statement per tenant."""
        await asyncio.sleep(_GATHER_S)
        gathered, self._gathered = self._gathered, []
        for tenant in dict.fromkeys(tenant for tenant, _ in gathered):
            await self._written(self._keep(tenant, [record for owner, record in gathered if owner == tenant]))

    async def _keep(self, tenant: str, records: list[dict[str, Any]]) -> None:
        values = {"tenant": tenant, "records": encode_json(records), "sweep": _SWEEP_BATCH}
        await self.database.fetch(unrestricted_viewer(tenant), _KEEP, values, parameters=_KEPT)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Write a record in the background; if too many writes are pending, the record is lost and a line logged."""
        if len(self._writing) >= _MOST_WRITING:
            work.close()
            self._warn_of_loss()
            return
        self._run(self._written(work))

    def _warn_of_loss(self) -> None:
        _log.warning("the record of a question was not stored: records arrive faster than the database stores them")

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _written(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(_WRITE_S):
                await work
        except (Unavailable, TimeoutError) as error:
            _log.warning("the record of a question was not stored: %s", type(error).__name__)
        except Exception:
            _log.exception("the record of a question was not stored")


def _uuid(id: str | None) -> uuid.UUID | None:
    return uuid.UUID(id) if id else None


def _exchange(id: uuid.UUID, *more: Any) -> Exchange:
    kind, conversation, user, metadata, question, answer, status, trace, *rest = more
    trace_id = trace.hex if trace else None
    return Exchange(id.hex, kind, conversation, user, metadata, question, answer, status, trace_id, *rest)
