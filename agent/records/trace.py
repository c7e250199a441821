"""Traces: the decision record of each answer as JSON, enough to explain it and to run it again.

A trace holds ids and scores of passages, never their texts, and only those settings that decide what is found: no
address and no key.
"""

import asyncio
import hashlib
import logging
import math
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic_core import PydanticSerializationError, from_json, to_json

from agent.answering import answer as answering
from agent.answering import assemble
from agent.answering.decision import Decision
from agent.retrieval.execute import StepResult
from agent.retrieval.rerank.stage import Reranking
from agent.settings import Settings
from agent.types import Answer, AugmentRequest, Prompt, Request, Result
from prompts import ANSWER
from retrievers import vector
from retrievers.core.errors import NotFound, Unavailable
from retrievers.core.secrets import without_credentials
from retrievers.core.tasks import within
from retrievers.core.types import EVERYTHING, ChunkId, Viewer, whole
from retrievers.postgres.database import Database

Json = dict[str, Any]
AnyResult = TypeVar("AnyResult", bound=Result)

MOST_HITS = 100
"""Maximum hits stored per source answer and for the fused ranking."""
_MOST_ROWS = 100
_LONGEST_TITLE = 200

REPLAYABLE = (
    "intent", "transforms", "fusion", "fusion_weights", "lexical_weight", "depth", "per_document", "rank_features",
    "reranker", "rerank_min_score", "rerank_blend", "min_relevance", "context", "prompt_fields", "fallback",
    "timeout_s", "source_timeout_s", "max_rounds", "loop_calls", "loop_tokens", "loop_share", "time_zone", "week_start",
    "fiscal_year_start", "language", "llm", "judge",
)  # fmt: skip
"""Settings that decide what is found and that a replay may change. Only these and the embedder are recorded."""

_CAPACITY = 256
_BATCH = 64
_LONGEST_RECORD = 8_000_000
_SWEEP_BATCH = 500
_SWEEP_EVERY_S = 3600.0
_MOST_TENANTS = 1024
# Limits how long a locked table or hanging server holds a connection; after a failure, writing pauses for a
# while.
_LOCK_TIMEOUT = "200ms"
_WRITE_S = 5.0
_REST_S = 5.0
_DRAIN_S = 3.0
# Traces within this time are written together: many small transactions would slow the answers down.
_GATHER_S = 0.1
_ELSEWHERE_S = 0.3
"""How soon another process has stored a trace that it has just made, unless it is very busy."""

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
"""Maximum seconds to wait for the database to say whether readers have changed."""

# All traces are kept equally long, so the newest expire last; that order has an index.
_RECENT = """
    SELECT id, created_at, expires_at, request ->> 'kind', request ->> 'collection', record ->> 'query',
           record ->> 'status', record ->> 'replay_of', jsonb_array_length(record -> 'hits')
    FROM signalbox.trace WHERE expires_at > now() ORDER BY expires_at DESC LIMIT %s
"""
_SUMMARY = ("kind", "collection", "query", "status", "replay_of", "hits")

_log = logging.getLogger(__name__)

_QUERY = re.compile(r"\?\S*")


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer with its decision, not yet encoded as a record; that is done in the background.

    Attributes:
        settings: the settings in force.
        embedder: name of the embedder of the question.
        at: when the request arrived.
        clocked: whether the request's time is the clock's rather than given by the caller.
        replay_of: id of the trace that was replayed.
        changes: settings changed for the replay.
    """

    settings: Settings
    embedder: str
    result: Result
    decision: Decision
    at: datetime
    clocked: bool = True
    replay_of: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.result.trace_id

    @property
    def tenant(self) -> str:
        return self.decision.tenant

    def shows_to(self, viewer: Viewer, narrowed: int) -> bool:
        """Return whether the viewer may see everything in it; the same rule as row security for stored traces.

        Args:
            narrowed: number of the last change of readers that took a document from somebody, as the viewer sees it.
        """
        scope = self.decision.scope
        return viewer.sees_all_of(scope.principals) and scope.changed >= narrowed

    def request(self) -> Json:
        """Return the request in the form that `request_of` reads."""
        request = self.decision.request
        # `top_k` limits a complete list only if the caller has set it.
        left_out = {name for name in ("top_k", "metadata", "advisors") if name not in request.model_fields_set}
        return {"kind": request.kind, **request.model_dump(exclude_none=True, exclude=left_out)}

    def record(self) -> Json:
        """Return the record stored with the request, as plain Python values for `encoded`; see `_unpacked`."""
        result, searches = self.result, self.decision.lookups
        decision = self.decision if searches is None else searches.whole(self.decision)
        names = _Names()
        readings = [decision.first, *([decision.later] if decision.later is not None else [])]
        return {
            "at": self.at,
            "clocked": self.clocked,
            "replay_of": self.replay_of,
            "changes": dict(self.changes),
            "settings": shown_settings(self.settings),
            "versions": {"signalbox": _version(), "embedder": self.embedder},
            "scope": [
                {
                    "tenant": one.tenant,
                    "name": one.name,
                    "version": one.version + sum(version for _, version in one.parts),
                    "chunks": one.chunks,
                }
                for one in decision.scope.all
            ],
            "principals": decision.scope.principals,
            "query": result.query,
            "intent": result.intent.model_dump(),
            "readings": [reading.model_dump() for reading in readings],
            "stated": [
                {"filter": one.filter, "confidence": one.confidence, "firm": one.firm, "why": one.why}
                for one in decision.stated
            ],
            "plan": [step.model_dump() for step in result.plan],
            "outcomes": [outcome.model_dump() for outcome in result.outcomes],
            "answers": [
                {
                    "count": len(answer.hits),
                    "approximate": _is_approximate(answer),
                    "hits": _packed([(names[hit.id], hit.score) for hit in answer.hits[:MOST_HITS]]),
                }
                for answer in decision.answers
            ],
            "rounds": [one.to_json() for one in decision.rounds],
            "lookups": [one.to_json() for one in searches.records] if searches is not None else [],
            "lexical_weights": dict(decision.weights),
            "ranked": len(decision.ranking),
            "reranking": _reranking(decision.reranking),
            # The raw scores are in the answers of the sources.
            "ranking": _packed([(names[one.id], one.fused) for one in decision.ranking[:MOST_HITS]]),
            "hits": [
                {
                    "rank": hit.rank,
                    "id": hit.id,
                    "document_id": hit.document_id,
                    "title": hit.title[:_LONGEST_TITLE],
                    "url": hit.url,
                    "score": hit.score,
                    "scores": dict(hit.scores),
                    "ranks": hit.ranks,
                    "relevance": hit.relevance,
                }
                for hit in result.hits
            ],
            "table": _table(result),
            "relaxed": [one.model_dump() for one in result.relaxed],
            "degraded": list(result.degraded),
            "status": result.status,
            "total": result.total,
            "complete": result.complete,
            "took_ms": result.took_ms,
            "elapsed_ms": dict(decision.elapsed_ms),
            "calls": decision.calls.to_json(),
            "prompt": _prompt(result, decision.request),
            "answer": _answer(result),
            "prompts": self._digests(),
        }

    def json(self) -> Json:
        """Return request and record in the form in which the store returns them."""
        request, record = from_json(encoded(self.request())), from_json(encoded(self.record()))
        return {"trace_id": self.id, "request": request, **_unpacked(record)}

    def _digests(self) -> dict[str, str]:
        """Return the digest of every prompt template used, by its name."""
        # The answer's template is added below, as named by the request.
        used = [call.stage for call in self.decision.calls.records if call.stage != answering.STAGE]
        request = self.decision.request
        if self.decision.lookups is not None:
            used += [assemble.TOOL_SYSTEM_TEMPLATE, assemble.TOOL_TEMPLATE]
        elif isinstance(self.result, Prompt) and isinstance(request, AugmentRequest):
            looked = self.result.status != "no_retrieval_needed"
            empty = assemble.EMPTY_TEMPLATE if looked else assemble.DIRECT_TEMPLATE
            used += [assemble.SYSTEM_TEMPLATE, (request.template or ANSWER) if self.result.citations else empty]
        templates = self.decision.templates
        stages = {name.rpartition("/")[0] for name in templates.names()} if used else set()
        loaded = [templates.load(one) for one in dict.fromkeys(used) if one in stages or "/" in one]
        return {one.name: one.digest for one in loaded}


def _is_approximate(answer: StepResult) -> bool:
    """Return whether a repeated search may have other hits although no document has changed."""
    source, query = answer.step.source, answer.query
    return source == vector.CARD.name and query is not None and vector.may_use_index(query)


class _Names(dict[ChunkId, str]):
    """Caches ids as text, since most passages occur in several rankings of a record."""

    def __missing__(self, id: ChunkId) -> str:
        name = self[id] = str(id)
        return name


def _packed(held: Sequence[tuple[str, float]]) -> str | list[list[Any]]:
    """Encode ids with their scores, to six digits, as one text.

    As separate JSON values they would make up most of a record: PostgreSQL would need twice the time and half as much
    space again.
    """
    packed = "\n".join([f"{score:.6g} {id}" for id, score in held])
    is_plain = packed.count("\n") < max(len(held), 1)  # an id may itself contain line breaks
    return packed if is_plain else [[id, score] for id, score in held]


def _unpacked(record: Json) -> Json:
    """Return a stored record with every ranking as a list of [id, score], the form of earlier versions."""

    def listed(ranking: Any) -> Any:
        if not isinstance(ranking, str):
            return ranking
        lines = (line.partition(" ") for line in ranking.split("\n")) if ranking else ()
        return [[id, float(score) if math.isfinite(float(score)) else None] for score, _, id in lines]

    answers = [{**answer, "hits": listed(answer["hits"])} for answer in record["answers"]]
    return {**record, "answers": answers, "ranking": listed(record["ranking"])}


def encoded(value: Json) -> str:
    """Return JSON that PostgreSQL can store: without NUL, lone surrogates, NaN and infinities."""
    try:
        text = to_json(value, inf_nan_mode="null", fallback=str)
    except (PydanticSerializationError, UnicodeError):
        text = to_json(storable(value), inf_nan_mode="null", fallback=str)
    if b"\\u0000" in text:
        text = to_json(storable(from_json(text)))
    return text.decode()


class TraceStore:
    """Traces in the database, written in the background. Open inside `async with`.

    Failures here never affect an answer: traces that cannot be written are logged and lost, and if too many are
    waiting, new ones are lost.

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
            _log.warning("%d traces were not stored: the database did not take them in time", len(self._waiting))
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
        """Drop waiting traces of a user or a conversation, as far as the viewer may erase them."""
        for key, trace in list(self._waiting.items()):
            request = trace.decision.request
            named = (user, request.user), (conversation, request.conversation)
            is_meant = any(one is not None and one == other for one, other in named)
            if trace.tenant == viewer.tenant and is_meant and viewer.erases(trace.decision.scope.principals):
                del self._waiting[key]

    def noted(self, result: AnyResult) -> AnyResult:
        """Return the result, marked degraded if the last traces could not be stored, since its own probably cannot."""
        if self._works:
            return result
        return result.model_copy(update={"degraded": (*result.degraded, "trace_unavailable")})

    async def load(self, who: str | Viewer, trace_id: str) -> Json:
        """Return one trace: `trace_id`, `created_at`, `expires_at`, `request`, and the keys of `Trace.record`.

        Raises:
            NotFound: the tenant has no such trace any more, or it may show something that the viewer may not see.
            Unavailable: the database cannot be reached.
        """
        try:
            id = uuid.UUID(trace_id)
        except ValueError:
            raise self.unknown(trace_id) from None
        viewer = Viewer.of(who)
        waiting = self._waiting.get((viewer.tenant, id.hex))
        if waiting is not None and await self._may_show(waiting, viewer):
            return waiting.json() | _times(waiting.at, waiting.at + timedelta(days=self.days))
        rows = await self._database.fetch(viewer, _LOAD, (id,))
        if not rows:
            await asyncio.sleep(_ELSEWHERE_S)
            rows = await self._database.fetch(viewer, _LOAD, (id,))
        if not rows:
            raise self.unknown(trace_id)
        request, record, created, expires = rows[0]
        return {"trace_id": id.hex, "request": request, **_unpacked(record)} | _times(created, expires)

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
            if owner == viewer.tenant and trace.shows_to(viewer, narrowed):
                request, record = trace.request(), trace.record()
                said = (request.get("kind"), request.get("collection"), *(record[name] for name in _SUMMARY[2:5]))
                times = _times(trace.at, trace.at + timedelta(days=self.days))
                found[id] = dict(zip(_SUMMARY, (*said, len(record["hits"])), strict=True)) | times
        for id, created, expires, *stored in await self._database.fetch(viewer, _RECENT, (limit,)):
            found.setdefault(id.hex, dict(zip(_SUMMARY, stored, strict=True)) | _times(created, expires))
        return [{"trace_id": id, **summary} for id, summary in islice(found.items(), limit)]

    async def _narrowed(self, viewer: Viewer) -> int:
        """Return the last change of readers before which a trace may show what the viewer may no longer see."""
        if viewer.principals == EVERYTHING:
            return 0
        return int((await self._database.fetch(viewer, "SELECT signalbox.narrowed()", ()))[0][0])

    async def _may_show(self, trace: Trace, viewer: Viewer) -> bool:
        """Return whether a waiting trace may be shown, see `Trace.shows_to`."""
        try:
            return trace.shows_to(viewer, await within(self._narrowed(viewer), _NARROWED_S))
        except (Unavailable, TimeoutError):
            # If readers have never changed, assume that they have not while the database does not respond.
            if trace.decision.scope.changed:
                raise
            return trace.shows_to(viewer, 0)

    def unknown(self, trace_id: str) -> NotFound:
        kept = f"traces are kept for {self.days} days" if self.days else "none is kept while TRACE_DAYS is 0"
        return NotFound(f'there is no trace "{trace_id[:80]}"; {kept}', where="trace_id")

    async def _write(self) -> None:
        """Write traces in batches until the store is closed."""
        while True:
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
                # No error may end the writing, and only the log can be told.
                self._lost += sum((one.tenant, one.id) in self._waiting for one in traces)
                if not self._lost:
                    _log.warning("expired traces were not deleted: %s", type(error).__name__)
                self._report_lost(type(error).__name__)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _REST_S)
            finally:
                self._forget(traces)
            self._report_lost("more came than could be written")
            if None in batch:
                return

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
                # Encoding a usual record takes 0.3 ms. A thread would delay answers more: up to 5 ms until it releases
                # the interpreter.
                await asyncio.sleep(0)
            if rows:
                values = (tenant, *map(list, zip(*rows, strict=True)))
                await self._database.fetch(whole(tenant), _INSERT, values, parameters=_PARAMETERS)
            self._forget(own)

    def _row(self, trace: Trace) -> list[tuple[object, ...]]:
        """Return the row to store; an empty list if the trace cannot be encoded or is too long."""
        try:
            texts = encoded(trace.request()), encoded(trace.record())
        except Exception as error:
            # A trace that cannot be encoded must not stop the rest of its batch.
            _log.warning("a trace was not stored: %s", type(error).__name__)
            return []
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
        """Delete one batch of expired traces; if more are left, the next write continues."""
        if not self._sweep_is_due(tenant):
            return
        gone = await self._database.fetch(whole(tenant), _SWEEP, (_SWEEP_BATCH,), parameters=_PARAMETERS)
        if len(gone) < _SWEEP_BATCH:
            self._swept[tenant] = time.monotonic()
            while len(self._swept) > _MOST_TENANTS:
                self._swept.popitem(last=False)


def shown_settings(settings: Settings) -> Json:
    """Return the settings that decide what is found, without secrets."""
    names = ("embedder", *REPLAYABLE)
    values = ((name, getattr(settings, name)) for name in names)
    return {
        name: _QUERY.sub("", without_credentials(value)) if isinstance(value, str) else value for name, value in values
    }


def _times(created: datetime, expires: datetime) -> Json:
    return {"created_at": created.isoformat(timespec="seconds"), "expires_at": expires.isoformat(timespec="seconds")}


def _table(result: Result) -> Json | None:
    if result.table is None:
        return None
    rows = [list(row) for row in islice(result.table.rows, _MOST_ROWS)]
    return {"columns": result.table.columns, "rows": rows, "count": len(result.table.rows), "sql": result.table.sql}


def _reranking(done: Reranking | None) -> Json | None:
    if done is None:
        return None
    names = ("by", "question", "comparable", "error", "minimum", "left_out")
    return {name: getattr(done, name) for name in names} | {
        "scores": [[str(id), score] for id, score in done.scores.items()]
    }


def _prompt(result: Result, request: Request) -> Json | None:
    """Return the citations of the prompt, and a digest to compare prompts by."""
    if not isinstance(result, Prompt) or not isinstance(request, AugmentRequest):
        return None
    text = "\n".join(f"{turn.role}\n{turn.content}" for turn in result.messages)
    return {
        "template": request.template,
        "digest": hashlib.sha256(text.encode(errors="replace")).hexdigest(),
        "tokens": result.tokens,
        "citations": [
            {**citation.model_dump(), "title": citation.title[:_LONGEST_TITLE]} for citation in result.citations
        ],
    }


def _answer(result: Result) -> Json | None:
    """Return the model's answer and its check; passages shown in place of an answer are not stored."""
    if not isinstance(result, Answer):
        return None
    kept = result.model_dump(include={"answered", "faithfulness", "checked_by", "model", "usage"})
    sentences = [one.model_dump(exclude={"text"}) for one in result.sentences]
    return {**kept, "text": result.answer if result.model else None, "sentences": sentences}


def storable(value: Any) -> Any:
    """Return the value with every text in a form that PostgreSQL can store."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable(key): storable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [storable(one) for one in value]
    return value


@cache
def _version() -> str:
    try:
        return version("signalbox-retrieval")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"
