"""Which parts of the service work, by what they last did: nothing is called to find out, but the database."""

import asyncio
import logging
import shutil
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.breaker import State
from agent.retrieve import Answer
from retrievers.core.errors import TooCostly, Unavailable
from retrievers.core.tasks import within

if TYPE_CHECKING:
    from agent.app import Service
    from agent.trace import Trace

LEAST_FREE_BYTES = 1 << 30
"""With less on the disk, the embedded database is in danger."""

_DATABASE_TIMEOUT_S = 1.0
# What was known this lately is not asked again, however often somebody wants to know.
_FRESH_S = 1.0
# Share of TIMEOUT_S; requests that had to wait for their turn have less than the whole.
_PATIENCE = 0.5
_IN_DATABASE = frozenset({"fulltext", "vector", "sql"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """How a part of the service does.

    Attributes:
        since: when it began to work, or not to.
        failures: since the service started.
        reason: "timeout" or "error" of its last failure, a `Fault` of a standby; details are in the log, since
            anybody may ask.
        tried: whether it has worked or failed; of what is elsewhere nothing is known before.
    """

    works: bool
    since: datetime
    failures: int = 0
    reason: str = ""
    tried: bool = True


class Health:
    """The parts of one service; an observer of its questions, see `agent.observe.observer`."""

    def __init__(self, service: "Service") -> None:
        settings = service.settings
        names = ["database", "embedder", *service.pipeline.sources]
        names += ["model"] if service.pipeline.model is not None else []
        names += ["reranker"] if service.pipeline.reranker is not None else []
        names += [] if settings.database_url else ["disk"]
        names += [one.name for one in service.database.reads.standbys()]
        self._service = service
        self._parts = dict.fromkeys(names, Part(True, datetime.now(UTC)))
        elsewhere = [name for name, source in service.pipeline.sources.items() if source.card.kind == "outside"]
        for name in {"model", "reranker", *elsewhere} & self._parts.keys():
            self._parts[name] = replace(self._parts[name], tried=False)
        self._missed = 0
        self._database_seen_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def parts(self) -> dict[str, Part]:
        """Every part by its name, as far as is known by now."""
        return dict(self._parts)

    def breakers(self) -> dict[str, State]:
        """The breakers that have been used, by part."""
        pipeline, parts = self._service.pipeline, {name: name for name in self._parts}
        if pipeline.reranker is not None:
            parts[f"the reranker {pipeline.reranker.name}"] = "reranker"
        states = {parts[name]: state for name, state in pipeline.breakers.states().items() if name in parts}
        return states | ({"model": pipeline.model_breaker.state} if pipeline.model is not None else {})

    @property
    def ready(self) -> bool:
        """Whether questions can be answered at all; without anything but the database, or a standby of it, they can."""
        standbys = [one.name for one in self._service.database.reads.standbys()]
        return any(self._parts[name].works for name in ("database", *standbys))

    def report(self) -> dict[str, Any]:
        """What /readyz answers: `status` (ready, degraded, unavailable), and `parts` by their names."""
        works = all(part.works for part in self._parts.values())
        status = "unavailable" if not self.ready else "ready" if works else "degraded"
        breakers = self.breakers()
        parts = {name: self._said(name, breakers) for name in self._parts}
        for one in self._service.database.reads.standbys():
            if one.lag_s is not None:
                parts[one.name]["lag_s"] = round(one.lag_s, 3)
        return {"status": status, "parts": parts}

    def _said(self, name: str, breakers: dict[str, State]) -> dict[str, Any]:
        part = self._parts[name]
        status = "failing" if not part.works else "ok" if part.tried else "untried"
        said: dict[str, Any] = {"status": status, "since": part.since}
        if not part.works:
            said["reason"] = part.reason
        if name in breakers:
            said["breaker"] = breakers[name]
        return said

    async def look(self) -> None:
        """Look at what no question tells of, and ask the database unless one just did; takes a second at most."""
        if "disk" in self._parts:
            free = free_bytes(self._service.settings.home)
            self.note("disk", free >= LEAST_FREE_BYTES, "error", f"{free / 2**30:.1f} GiB free")
        if (works := self._service.worker.works) is not None:
            self._parts.setdefault("worker", Part(True, datetime.now(UTC)))
            self.note("worker", works, "error", "it has stopped")
        for one in self._service.database.reads.standbys():
            self.note(one.name, one.fault is None, one.fault or "", f"{one.host}: {one.reason}")
        if time.monotonic() - self._database_seen_at >= _FRESH_S:
            await asyncio.shield(self._ask_database())

    def _ask_database(self) -> "asyncio.Task[None]":
        """The asking, which all share who want to know meanwhile."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._probe())
        return self._asking

    async def _probe(self) -> None:
        try:
            await within(self._service.database.search("SELECT 1", {}), _DATABASE_TIMEOUT_S)
            self.note("database", True)
        except TimeoutError:
            self.note("database", False, "timeout", f"no answer within {_DATABASE_TIMEOUT_S:g} s")
        except (Unavailable, OSError) as error:
            self.note("database", False, "error", str(error))
        self._database_seen_at = time.monotonic()

    def note(self, name: str, works: bool, reason: str = "", details: str = "") -> None:
        """A part has worked, or has not. The first failure and the first success after it are logged.

        Args:
            reason: for anybody: "timeout" or "error".
            details: for the log.
        """
        before = self._parts[name]
        if works and before.works and before.tried:
            return
        changed = before.works != works
        self._parts[name] = Part(
            works,
            datetime.now(UTC) if changed else before.since,
            before.failures + (not works),
            "" if works else reason,
        )
        if changed and works:
            _log.info("%s works again", name)
        elif changed:
            _log.warning("%s does not work: %s", name, details)

    def answered(self, trace: "Trace") -> None:
        """See `Observer.answered`."""
        decision, timeout_s = trace.decision, trace.decision.request.timeout_s
        # A caller in a hurry learns nothing of those who were too slow for it.
        patient = timeout_s is None or timeout_s >= _PATIENCE * trace.settings.timeout_s
        for answer in decision.answers:
            self._searched(answer, patient)
        if trace.replay_of is not None:
            return  # its model and its reranker were recordings
        for call in decision.calls.records:
            if call.error is None:
                self.note("model", True)
            elif patient:
                self.note("model", False, "error", call.error)
        reranking = decision.reranking
        configured = self._service.pipeline.reranker
        # A request may have chosen another, which is always at hand.
        if reranking is not None and configured is not None and reranking.by == configured.name:
            if reranking.error is None:
                self.note("reranker", True)
            elif patient:
                self.note("reranker", False, "error", reranking.error)

    def _searched(self, answer: Answer, patient: bool) -> None:
        name, status = answer.step.source, answer.outcome.status
        if status in ("ok", "empty"):
            self.note(name, True)
            # What was found on a standby says nothing of the primary.
            if status == "ok" and name in _IN_DATABASE and not self._service.database.reads.spread:
                self._database_seen_at = time.monotonic()
                self.note("database", True)
            # A vector that was at hand says nothing of the embedder.
            if name == "vector" and self._service.embedder.recent.missed > self._missed:
                self.note("embedder", True)
        elif status in ("error", "timeout") and isinstance(answer.error, Unavailable):
            if isinstance(answer.error, TooCostly) or (status == "timeout" and not patient):
                return
            self._failed(answer.error, name, status)

    def _failed(self, error: Unavailable, name: str, status: str) -> None:
        """A failure is that of the part which the error names, where it is none of the source's own."""
        part = name
        if error.source == "the database":
            part = "database"
        elif error.source.startswith("the embedder "):
            part, self._missed = "embedder", self._service.embedder.recent.missed
        self.note(part, False, status, error.reason)

    def failed(self, error: Unavailable) -> None:
        """See `Observer.failed`."""
        if error.source == "the database":
            self.note("database", False, "error", error.reason)
            return
        # Something made a question wait for too long: is it the database?
        self._ask_database()


def free_bytes(folder: Path) -> int:
    """What is free on the disk of a folder, which need not be there yet."""
    folder = folder.expanduser()
    return shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.exists())).free
