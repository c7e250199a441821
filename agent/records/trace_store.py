"""The store of traces: written to the database in batches in the background, kept for some days."""

import asyncio
import logging
import time
import uuid
from collections import OrderedDict
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Self, TypeVar

from agent.records.encoding import Json, encode_json, unpack_rankings
from agent.records.trace import Trace
from agent.types import Result
from retrievers.core import process_memory
from retrievers.core.errors import NotFound, Unavailable
from retrievers.core.timeouts import wait_within
from retrievers.core.types import ALL_PRINCIPALS, Viewer, unrestricted_viewer
from retrievers.postgres.connections.database import Database

AnyResult = TypeVar("AnyResult", bound=Result)

_CAPACITY = 256
_BATCH = 64
_LONGEST_RECORD = 8_000_000
_SWEEP_BATCH = 500
_SWEEP_EVERY_S = 3600.0
_MOST_TENANTS = 1024
# Limits of the time for which a locked table or a hanging server can hold a connection, the pause after a failed write,
# and the limit of the last write when the store closes.
_LOCK_TIMEOUT = "200ms"
_WRITE_S = 5.0
_REST_S = 5.0
_DRAIN_S = 3.0
# Seconds for which traces are collected and then written together: many small transactions would delay answers.
_GATHER_S = 0.1
_ELSEWHERE_S = 0.3
"""Seconds to wait for a trace that is not found: another process may have made it and not stored it yet."""

_PARAMETERS = {"lock_timeout": _LOCK_TIMEOUT, "synchronous_commit": "off"}
_INSERT = """
    INSERT INTO signalbox.trace
        (tenant, id, created_at, expires_at, principals, as_of, asker, conversation, request, record)
    SELECT %s, id, at, until, string_to_array(principals, E'\n'), as_of, asker, conversation,
           request::jsonb, record::jsonb
    FROM unnest(%b::uuid[], %b::timestamptz[], %b::timestamptz[], %b::text[], %b::bigint[], %b::text[], %b::text[],
                %b::text[], %b::text[])
        AS new (id, at, until, principals, as_of, asker, conversation, request, record)
    WHERE NOT signalbox.erased(asker, conversation, string_to_array(principals, E'\n'), at)
    ON CONFLICT DO NOTHING RETURNING id
"""
_SWEEP = """
    DELETE FROM signalbox.trace WHERE (tenant, id) IN (
        SELECT tenant, id FROM signalbox.trace WHERE expires_at <= now() ORDER BY expires_at LIMIT %s)
    RETURNING id
"""
_LOAD = "SELECT request, record, created_at, expires_at FROM signalbox.trace WHERE id = %s AND expires_at > now()"

_NARROWED_S = 1.0
"""Maximum seconds to wait for the database to return the last change that hid a document from some readers."""

# Newest first: all traces are kept equally long, so the newest expire last. `expires_at` has an index.
_RECENT = """
    SELECT id, created_at, expires_at, request ->> 'kind', request ->> 'collection', record ->> 'query',
           record ->> 'status', record ->> 'replay_of', jsonb_array_length(record -> 'hits')
    FROM signalbox.trace WHERE expires_at > now() ORDER BY expires_at DESC LIMIT %s
"""
_SUMMARY = ("kind", "collection", "query", "status", "replay_of", "hits")

_log = logging.getLogger(__name__)


class TraceStore:
    """Traces in the database, written in the background. Open inside `async with`.

    Failures here never affect an answer. Traces that cannot be written are lost, and so are new ones while too many
    wait; the log reports their number.

    Args:
        days: days that a trace is kept; 0 stores none.
    Attributes:
        lost: number of traces lost since the store was opened.
    """

    def __init__(self, database: Database, *, days: int = 30) -> None:
        self.days = days
        self.lost = 0
        self._database = database
        self._queue: asyncio.Queue[Trace | str | None] = asyncio.Queue(_CAPACITY + 1)
        self._waiting: dict[tuple[str, str], Trace] = {}
        self._swept: OrderedDict[str, float] = OrderedDict()
        self._lost = 0
        self._works = True
        self._is_large = False  # whether a trace was written whose memory is to be returned to the system
        self._closing = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write waiting traces for at most a few seconds."""
        assert self._writer is not None
        self._closing.set()
        self._queue.put_nowait(None)  # the queue reserves a place for this
        _, late = await asyncio.wait({self._writer}, timeout=_DRAIN_S)
        if late:
            _log.warning("%d traces were not stored: the database did not store them in time", len(self._waiting))
            self._writer.cancel()
            await asyncio.wait(late, timeout=1)

    @property
    def waiting(self) -> int:
        """Number of traces still to be stored."""
        return len(self._waiting)

    def save(self, trace: Trace) -> None:
        """Store a trace in the background; returns at once and never raises."""
        tenant = trace.tenant
        if self._queue.qsize() >= _CAPACITY or self._closing.is_set():
            self._lost += 1
        elif self.days:
            self._waiting[tenant, trace.id] = trace
            self._queue.put_nowait(trace)
        elif self._sweep_is_due(tenant):
            self._queue.put_nowait(tenant)  # expired traces must still be deleted

    def forget(self, viewer: Viewer, *, user: str | None, conversation: str | None) -> None:
        """Drop the waiting traces of a user or of a conversation, except those that the viewer may not erase."""
        for key, trace in list(self._waiting.items()):
            request = trace.decision.request
            named = (user, request.user), (conversation, request.conversation)
            is_meant = any(one is not None and one == other for one, other in named)
            if trace.tenant == viewer.tenant and is_meant and viewer.may_erase(trace.decision.scope.principals):
                del self._waiting[key]

    def mark_degraded(self, result: AnyResult) -> AnyResult:
        """Return the result; with "trace_unavailable" in `degraded` if the last write of traces failed.

        Then the trace of this result can probably not be stored either.
        """
        if self._works:
            return result
        return result.model_copy(update={"degraded": (*result.degraded, "trace_unavailable")})

    async def load(self, who: str | Viewer, trace_id: str) -> Json:
        """Return one trace: `trace_id`, `created_at`, `expires_at`, `request`, and the keys of `Trace.record`.

        Raises:
            NotFound: the tenant has no such trace, it has expired, or it may show what the viewer may not see.
            Unavailable: the database cannot be reached.
        """
        try:
            id = uuid.UUID(trace_id)
        except ValueError:
            raise self.not_found_error(trace_id) from None
        viewer = Viewer.of(who)
        waiting = self._waiting.get((viewer.tenant, id.hex))
        if waiting is not None and await self._may_show(waiting, viewer):
            return waiting.json() | _times(waiting.at, waiting.at + timedelta(days=self.days))
        rows = await self._database.fetch(viewer, _LOAD, (id,))
        if not rows:
            await asyncio.sleep(_ELSEWHERE_S)
            rows = await self._database.fetch(viewer, _LOAD, (id,))
        if not rows:
            raise self.not_found_error(trace_id)
        request, record, created, expires = rows[0]
        return {"trace_id": id.hex, "request": request, **unpack_rankings(record)} | _times(created, expires)

    async def recent(self, who: str | Viewer, limit: int) -> list[Json]:
        """Return the latest traces that the viewer may see, newest first.

        Each has `trace_id`, `created_at`, `expires_at`, `kind`, `collection`, `query`, `status`, `replay_of`, and
        `hits`, the number of hits.

        Raises:
            Unavailable: the database cannot be reached.
        """
        found: dict[str, Json] = {}
        viewer = Viewer.of(who)
        narrowed = await self._narrowed(viewer) if self._waiting else 0
        for (owner, id), trace in reversed(self._waiting.items()):
            if owner == viewer.tenant and trace.is_visible_to(viewer, narrowed):
                request, record = trace.request(), trace.record()
                said = (request.get("kind"), request.get("collection"), *(record[name] for name in _SUMMARY[2:5]))
                times = _times(trace.at, trace.at + timedelta(days=self.days))
                found[id] = dict(zip(_SUMMARY, (*said, len(record["hits"])), strict=True)) | times
        for id, created, expires, *stored in await self._database.fetch(viewer, _RECENT, (limit,)):
            found.setdefault(id.hex, dict(zip(_SUMMARY, stored, strict=True)) | _times(created, expires))
        return [{"trace_id": id, **summary} for id, summary in islice(found.items(), limit)]

    async def _narrowed(self, viewer: Viewer) -> int:
        """Return `narrowed` of `Trace.is_visible_to`: the number of the last change that hid a document from a reader.

        0 for a viewer that sees all documents.
        """
        if viewer.principals == ALL_PRINCIPALS:
            return 0
        return int((await self._database.fetch(viewer, "SELECT signalbox.narrowed()", ()))[0][0])

    async def _may_show(self, trace: Trace, viewer: Viewer) -> bool:
        """Return whether a trace that is not yet in the database may be shown to the viewer, see `Trace.is_visible_to`.

        Raises:
            Unavailable, TimeoutError: the database cannot say whether a document has been hidden since.
        """
        try:
            return trace.is_visible_to(viewer, await wait_within(self._narrowed(viewer), _NARROWED_S))
        except (Unavailable, TimeoutError):
            # If no document's readers had changed when the trace was made, assume that none have changed since.
            if trace.decision.scope.changed:
                raise
            return trace.is_visible_to(viewer, 0)

    def not_found_error(self, trace_id: str) -> NotFound:
        """Return the error for a trace that does not exist or that the viewer may not see."""
        kept = f"traces are kept for {self.days} days" if self.days else "no traces are kept while TRACE_DAYS is 0"
        return NotFound(f'there is no trace "{trace_id[:80]}"; {kept}', where="trace_id")

    async def _write(self) -> None:
        """Write traces in batches until the store is closed."""
        while await self._write_batch():
            if self._is_large:
                self._is_large = False
                await asyncio.to_thread(process_memory.release_memory)

    async def _write_batch(self) -> bool:
        """Wait for traces and write them; return False if the store is closed.

        A method of its own, because its variables would otherwise keep the last traces alive until the next arrive.
        """
        batch = [await self._queue.get()]
        if self._queue.qsize() < _BATCH:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _GATHER_S)
        while len(batch) < _BATCH and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        traces = [one for one in batch if isinstance(one, Trace)]
        tenants = dict.fromkeys(one if isinstance(one, str) else one.tenant for one in batch if one is not None)
        try:
            async with asyncio.timeout(_WRITE_S):
                await self._store(traces)
                for tenant in tenants:
                    await self._sweep(tenant)
            self._works = True
        except Exception as error:
            self._works = False
            # An error must not end the loop, since no later trace would be stored. No caller waits: log it.
            self._lost += sum((one.tenant, one.id) in self._waiting for one in traces)
            if not self._lost:
                _log.warning("expired traces were not deleted: %s", type(error).__name__)
            self._report_lost(type(error).__name__)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), _REST_S)
        finally:
            self._forget(traces)
        self._report_lost("they arrived faster than the database could store them")
        return None not in batch

    def _report_lost(self, reason: str) -> None:
        if self._lost:
            _log.warning("%d traces were not stored: %s", self._lost, reason)
        self.lost += self._lost
        self._lost = 0

    def _forget(self, traces: list[Trace]) -> None:
        for trace in traces:
            self._waiting.pop((trace.tenant, trace.id), None)

    async def _store(self, traces: list[Trace]) -> None:
        if not traces:
            return
        by_tenant: dict[str, list[Trace]] = {}
        for trace in traces:
            by_tenant.setdefault(trace.tenant, []).append(trace)
        for tenant, own in by_tenant.items():
            rows = []
            for trace in own:
                if (tenant, trace.id) not in self._waiting:
                    continue  # erased meanwhile
                rows += self._row(trace)
                # Let questions go on between two records, each of which takes about 0.3 ms to encode. Encoding in a
                # thread would delay them more: it may keep the interpreter for 5 ms.
                await asyncio.sleep(0)
            if rows:
                values = (tenant, *map(list, zip(*rows, strict=True)))
                await self._database.fetch(
                    unrestricted_viewer(tenant), _INSERT, values, parameters=_PARAMETERS, prepare=True
                )
            self._forget(own)

    def _row(self, trace: Trace) -> list[tuple[object, ...]]:
        """Return the row to store; an empty list if the trace cannot be encoded or is too long."""
        try:
            texts = encode_json(trace.request()), encode_json(trace.record())
        except Exception as error:
            # The other traces of the batch must be stored all the same.
            _log.warning("a trace was not stored: %s", type(error).__name__)
            return []
        self._is_large |= sum(map(len, texts)) >= process_memory.LARGE_BYTES
        if sum(map(len, texts)) > _LONGEST_RECORD:
            _log.warning("a trace was not stored: it has more than %d characters", _LONGEST_RECORD)
            return []
        scope = trace.decision.scope
        until = trace.at + timedelta(days=self.days)
        request = trace.decision.request
        asked_by = (request.user, request.conversation)
        return [(uuid.UUID(trace.id), trace.at, until, "\n".join(scope.principals), scope.changed, *asked_by, *texts)]

    def _sweep_is_due(self, tenant: str) -> bool:
        return time.monotonic() - self._swept.get(tenant, -_SWEEP_EVERY_S) >= _SWEEP_EVERY_S

    async def _sweep(self, tenant: str) -> None:
        """Delete one batch of a tenant's expired traces, once an hour; if more are left, the next write continues."""
        if not self._sweep_is_due(tenant):
            return
        gone = await self._database.fetch(unrestricted_viewer(tenant), _SWEEP, (_SWEEP_BATCH,), parameters=_PARAMETERS)
        if len(gone) < _SWEEP_BATCH:
            self._swept[tenant] = time.monotonic()
            while len(self._swept) > _MOST_TENANTS:
                self._swept.popitem(last=False)


def _times(created: datetime, expires: datetime) -> Json:
    return {"created_at": created.isoformat(timespec="seconds"), "expires_at": expires.isoformat(timespec="seconds")}
