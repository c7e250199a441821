"""Track which parts of the service work: database, embedder, sources, model, reranker, disk, worker and standbys.

Parts are judged by their results in questions. Only the database is also called just to check it.
"""

import asyncio
import logging
import shutil
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.retrieval.plan_execution import StepResult
from retrievers.core.circuit_breakers import State
from retrievers.core.errors import TooCostly, Unavailable
from retrievers.core.timeouts import wait_within

if TYPE_CHECKING:
    from agent.records.trace import Trace
    from agent.service.service import Service

LEAST_FREE_BYTES = 1 << 30
"""Minimum free disk space in bytes; with less, the embedded database is at risk."""

_DATABASE_TIMEOUT_S = 1.0
# Seconds for which the state of the database is reused: otherwise frequent health checks would each query it.
_FRESH_S = 1.0
# Minimum share of TIMEOUT_S a request must have had for its timeouts to count as failures of a source.
_PATIENCE = 0.5
_IN_DATABASE = frozenset({"fulltext", "vector", "sql"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartHealth:
    """The state of one part of the service, such as the database, the model or a source.

    Attributes:
        since: time of the last change between working and failing.
        failures: number of failures since the service started.
        reason: kind of the last failure, "timeout" or "error", or the `Fault` of a standby; "" if the part works.
            Details go to the log only, because anyone may read /readyz.
        tried: False for an external part that no question has used yet.
    """

    works: bool
    since: datetime
    failures: int = 0
    reason: str = ""
    tried: bool = True


class Health:
    """Observer (see `agent.records.observers`) that learns the state of every part of a service from its questions."""

    def __init__(self, service: "Service") -> None:
        settings = service.settings
        names = ["database", "embedder", *service.pipeline.sources]
        names += ["model"] if service.pipeline.model is not None else []
        names += ["reranker"] if service.pipeline.reranker is not None else []
        names += [] if settings.database_url else ["disk"]
        names += [one.name for one in service.database.reads.standbys()]
        self._service = service
        self._parts = dict.fromkeys(names, PartHealth(True, datetime.now(UTC)))
        elsewhere = [name for name, source in service.pipeline.sources.items() if source.card.kind == "outside"]
        for name in {"model", "reranker", *elsewhere} & self._parts.keys():
            self._parts[name] = replace(self._parts[name], tried=False)
        self._missed = 0
        self._database_seen_at = float("-inf")
        self._database_check: asyncio.Task[None] | None = None

    def parts(self) -> dict[str, PartHealth]:
        """Return the known state of every part, by name."""
        return dict(self._parts)

    def breakers(self) -> dict[str, State]:
        """Return the state of each circuit breaker in use, by the name of its part."""
        pipeline, parts = self._service.pipeline, {name: name for name in self._parts}
        if pipeline.reranker is not None:
            parts[f"the reranker {pipeline.reranker.name}"] = "reranker"
        states = {parts[name]: state for name, state in pipeline.breakers.states().items() if name in parts}
        return states | ({"model": pipeline.model_breaker.state} if pipeline.model is not None else {})

    @property
    def ready(self) -> bool:
        """True if questions can be answered: the database or a standby works. All other parts are optional."""
        standbys = [one.name for one in self._service.database.reads.standbys()]
        return any(self._parts[name].works for name in ("database", *standbys))

    def report(self) -> dict[str, Any]:
        """Return the body of /readyz: `status` (ready, degraded or unavailable) and `parts` by name."""
        works = all(part.works for part in self._parts.values())
        status = "unavailable" if not self.ready else "ready" if works else "degraded"
        breakers = self.breakers()
        parts = {name: self._part_report(name, breakers) for name in self._parts}
        for one in self._service.database.reads.standbys():
            if one.lag_s is not None:
                parts[one.name]["lag_s"] = round(one.lag_s, 3)
        return {"status": status, "parts": parts}

    def _part_report(self, name: str, breakers: dict[str, State]) -> dict[str, Any]:
        part = self._parts[name]
        status = "failing" if not part.works else "ok" if part.tried else "untried"
        said: dict[str, Any] = {"status": status, "since": part.since}
        if not part.works:
            said["reason"] = part.reason
        if name in breakers:
            said["breaker"] = breakers[name]
        return said

    async def refresh(self) -> None:
        """Check disk, worker and standby databases, and store their states in `parts`. Takes up to 1 s.

        The database is checked too, unless a question or check has reached it in the last second.
        """
        if "disk" in self._parts:
            free = free_bytes(self._service.settings.home)
            self.record_part("disk", free >= LEAST_FREE_BYTES, "error", f"{free / 2**30:.1f} GiB free")
        if (works := self._service.worker.is_polling) is not None:
            self._parts.setdefault("worker", PartHealth(True, datetime.now(UTC)))
            self.record_part("worker", works, "error", "the worker has stopped")
        for one in self._service.database.reads.standbys():
            self.record_part(one.name, one.fault is None, one.fault or "", f"{one.host}: {one.reason}")
        if time.monotonic() - self._database_seen_at >= _FRESH_S:
            await asyncio.shield(self._start_database_check())

    def _start_database_check(self) -> "asyncio.Task[None]":
        """Start a database check, or return the one already running; concurrent callers share it."""
        if self._database_check is None or self._database_check.done():
            self._database_check = asyncio.ensure_future(self._check_database())
        return self._database_check

    async def _check_database(self) -> None:
        try:
            await wait_within(self._service.database.fetch_autocommit("SELECT 1", {}), _DATABASE_TIMEOUT_S)
            self.record_part("database", True)
        except TimeoutError:
            self.record_part("database", False, "timeout", f"no answer within {_DATABASE_TIMEOUT_S:g} s")
        except (Unavailable, OSError) as error:
            self.record_part("database", False, "error", str(error))
        self._database_seen_at = time.monotonic()

    def record_part(self, name: str, works: bool, reason: str = "", details: str = "") -> None:
        """Record that a part works or fails. Log the first failure and the first success after it.

        Args:
            reason: kind of the failure, see `PartHealth.reason`.
            details: what failed, for the log only.
        """
        before = self._parts[name]
        if works and before.works and before.tried:
            return
        changed = before.works != works
        self._parts[name] = PartHealth(
            works,
            datetime.now(UTC) if changed else before.since,
            before.failures + (not works),
            "" if works else reason,
        )
        if changed and works:
            _log.info("%s works again", name)
        elif changed:
            _log.warning("%s does not work: %s", name, details)

    def on_answer(self, trace: "Trace") -> None:
        """See `Observer.on_answer`."""
        decision, timeout_s = trace.decision, trace.decision.request.timeout_s
        # If the caller set a short timeout, a source that was too slow for it has not failed.
        had_time = timeout_s is None or timeout_s >= _PATIENCE * trace.settings.timeout_s
        for answer in decision.step_results:
            self._record_search(answer, had_time)
        if trace.replay_of is not None:
            return  # the model and the reranker of a replay are recordings
        for call in decision.calls.records:
            if call.error is None:
                self.record_part("model", True)
            elif had_time:
                self.record_part("model", False, "error", call.error)
        reranking = decision.reranking
        configured = self._service.pipeline.reranker
        # A request may have chosen another reranker, which is always local.
        if reranking is not None and configured is not None and reranking.by == configured.name:
            if reranking.error is None:
                self.record_part("reranker", True)
            elif had_time:
                self.record_part("reranker", False, "error", reranking.error)

    def _record_search(self, answer: StepResult, had_time: bool) -> None:
        name, status = answer.step.source, answer.outcome.status
        if status in ("ok", "empty"):
            self.record_part(name, True)
            # With standbys, the search may have used one of them, and the primary may fail.
            if status == "ok" and name in _IN_DATABASE and not self._service.database.reads.has_standbys:
                self._database_seen_at = time.monotonic()
                self.record_part("database", True)
            # Without a new cache miss, the vector came from the cache, and the embedder may fail.
            if name == "vector" and self._service.embedder.query_cache.misses > self._missed:
                self.record_part("embedder", True)
        elif status in ("error", "timeout") and isinstance(answer.error, Unavailable):
            if isinstance(answer.error, TooCostly) or (status == "timeout" and not had_time):
                return
            self._record_failure(answer.error, name, status)

    def _record_failure(self, error: Unavailable, name: str, status: str) -> None:
        """Record a failure of the database or the embedder if the error names either, otherwise of the source `name`.

        Args:
            status: kind of the failure, "timeout" or "error".
        """
        part = name
        if error.source == "the database":
            part = "database"
        elif error.source.startswith("the embedder "):
            part, self._missed = "embedder", self._service.embedder.query_cache.misses
        self.record_part(part, False, status, error.reason)

    def on_failure(self, error: Unavailable) -> None:
        """See `Observer.on_failure`."""
        if error.source == "the database":
            self.record_part("database", False, "error", error.reason)
            return
        # A question waited too long for something: check whether the database is the cause.
        self._start_database_check()


def free_bytes(folder: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    folder = folder.expanduser()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
