"""Observe every HTTP request: write a log line, update metrics and, if enabled, create a span."""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.observe import logs
from agent.observe.evaluation_metrics import EvaluationMetrics
from agent.observe.health import Health
from agent.observe.metrics import Metrics, merge_processes
from agent.records.observers import Observer
from agent.serve.http.middleware.admission import Gate
from agent.serve.http.problems import problem_of

if TYPE_CHECKING:
    from agent.observe.spans import SpanRecorder
    from agent.service.service import Service

UNMATCHED = "unmatched"
"""Route label of requests that match no route."""
CLIENT_CLOSED_REQUEST = 499
"""Status recorded for requests whose client disconnected before the response (as nginx does)."""
_LONGEST_PATH = 200
# Monitoring requests these every few seconds: their log lines would bury the others.
_MONITORING_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})

_log = logging.getLogger("signalbox.http")


CollectMetrics = Callable[[bytes], Awaitable[Mapping[int, bytes]]]
"""Takes the metrics of this process; returns those of all server processes, by process number."""


class Observability:
    """Creates the observers of a service (health, metrics, log lines, spans) and registers them with it.

    Args:
        collect_metrics: returns the metrics of all server processes; None if there is only one process.
    """

    def __init__(
        self,
        service: "Service",
        gates: Mapping[str, Gate],
        span_recorder: "SpanRecorder | None" = None,
        collect_metrics: CollectMetrics | None = None,
    ) -> None:
        self.health = Health(service)
        self.metrics = Metrics(service, self.health, gates)
        self._evaluations = EvaluationMetrics(service.database)
        self.span_recorder = span_recorder
        self._collect_metrics = collect_metrics
        observers: list[Observer] = [self.health, self.metrics, logs.LogContextObserver()]
        for observer in (*observers, *([span_recorder] if span_recorder is not None else [])):
            service.observers.add(observer)

    async def render_metrics(self) -> bytes:
        """Return the metrics of all server processes, and the evaluations, in Prometheus' text format."""
        own = self.metrics.render()
        text = own if self._collect_metrics is None else merge_processes(await self._collect_metrics(own))
        # The evaluations come from the database, so they are added once and not per process.
        return text + await self._evaluations.render()


_INCOMPLETE = frozenset([408, CLIENT_CLOSED_REQUEST])
"""Statuses of requests that the client sent too slowly or left. The metrics have all of them, the log has few."""
_SPARING_S = 1.0
"""Seconds without a further log line after that of such a request."""


class ObservabilityMiddleware:
    """ASGI middleware that writes a log line, counts a metric and, with a span recorder, makes a span for each request.

    It runs inside `middleware.RequestContextMiddleware`, which sets `scope["state"]["request_id"]`, and outside all
    other middleware.
    """

    def __init__(self, app: ASGIApp, observability: Observability) -> None:
        self._app = app
        self._metrics, self._span_recorder = observability.metrics, observability.span_recorder
        self._logs_incomplete_from = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), CLIENT_CLOSED_REQUEST
        method = scope["method"]

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        request_id = scope.setdefault("state", {}).setdefault("request_id", uuid.uuid4().hex)
        span_recorder = self._span_recorder
        with (
            logs.log_context(request_id),
            span_recorder.request_span(method, Headers(scope=scope))
            if span_recorder is not None
            else nullcontext() as span,
            self._metrics.at_work.track_inprogress(),
        ):
            try:
                await self._app(scope, receive, send_noting_status)
            except BaseException as error:
                if status == CLIENT_CLOSED_REQUEST:
                    # The status that `RequestContextMiddleware` sends: the request failed, or the server is stopping.
                    status = problem_of(error).status if isinstance(error, Exception) else 503
                raise
            finally:
                route = _route(scope)
                elapsed_s = time.monotonic() - started
                self._metrics.record_request(method, route, status, elapsed_s)
                if span_recorder is not None and span is not None:
                    span_recorder.set_response(span, method, route, status)
                if status not in _INCOMPLETE or self._may_log_incomplete():
                    _log_request(scope, route, status, elapsed_s)

    def _may_log_incomplete(self) -> bool:
        """Return whether no incomplete request was logged just before; a flood of them would fill the log."""
        now = time.monotonic()
        if now < self._logs_incomplete_from:
            return False
        self._logs_incomplete_from = now + _SPARING_S
        return True


def _route(scope: Scope) -> str:
    """Return the route template, such as "/v1/jobs/{id}". Unlike the path, it contains no text of the caller."""
    if (route := getattr(scope.get("route"), "path", None)) is not None:
        return str(route)
    # The request ended before routing, or the path is mounted, such as /mcp.
    return matching_route(scope["path"], scope["app"]) or str(scope.get("root_path") or UNMATCHED)


def matching_route(path: str, app: FastAPI) -> str | None:
    """Return the route template that matches a path, whatever the method; None if there is none."""
    if path == app.openapi_url:
        return path  # `app.state.routes` does not contain this route of FastAPI
    return next((str(one.path) for one in app.state.routes if one.path_regex.match(path)), None)


def _log_request(scope: Scope, route: str, status: int, elapsed_s: float) -> None:
    level = logging.DEBUG if route in _MONITORING_ROUTES and status < 500 else logging.INFO
    if not _log.isEnabledFor(level):
        return
    path = scope["path"][:_LONGEST_PATH] if route == UNMATCHED else route
    ms = round(elapsed_s * 1000, 1)
    fields = {"method": scope["method"], "route": route, "status": status, "ms": ms}
    if (caller := scope["state"].get("caller")) is not None:
        fields["tenant"] = caller.tenant
    _log.log(level, "%s %s", scope["method"], path, extra={"fields": fields})
