"""Build the HTTP application: its routes, its middleware and their order."""

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.routing import Route

from agent.serve import authentication
from agent.serve.authentication import Authenticator, RecentTenants
from agent.serve.http import openapi, problems
from agent.serve.http.compatible import dify, open_webui, rerank
from agent.serve.http.compatible.openai import chat, vector_stores
from agent.serve.http.endpoints import console, documents, maintenance, mcp, native, records, status, syncs, tenant
from agent.serve.http.middleware.admission import AdmissionMiddleware, Gates
from agent.serve.http.middleware.early_rejection import EarlyRejection
from agent.serve.http.middleware.observability import CollectMetrics, Observability, ObservabilityMiddleware
from agent.serve.http.middleware.request_checks import (
    AuthenticationMiddleware,
    BodyMiddleware,
    OriginMiddleware,
    RequestContextMiddleware,
)
from agent.service.service import Service

if TYPE_CHECKING:
    from agent.observe.spans import SpanRecorder

OPEN = frozenset({"/", "/favicon.ico", "/healthz", "/readyz", "/metrics", "/openapi.json"})
"""Paths answered for everyone and at any load: they expose no tenant's data."""
OPEN_BELOW = "/console/"
"""Prefix of the console's own files, open as well; its data comes through the API like any client's."""


def create_app(
    service: Service,
    *,
    authenticate: Authenticator | None = None,
    span_recorder: "SpanRecorder | None" = None,
    processes: int = 1,
    collect_metrics: CollectMetrics | None = None,
) -> FastAPI:
    """Build the application over an open service.

    Args:
        authenticate: maps a request to its caller. None means AUTH=off: every caller is the tenant of the settings, and
            only requests to local host names are answered.
        span_recorder: creates the spans; None for no spans.
        processes: number of server processes; this process admits its share of the load.
        collect_metrics: returns the metrics of all processes; None if there is only one.
    """
    keys = authenticate is not None
    authenticate = authenticate or authentication.anonymous_authenticator(service.settings.tenant)
    recent_tenants = RecentTenants()
    has_model = service.answerer.model is not None
    gates = Gates(has_model=has_model, searches_wait=service.settings.uses_external_services, processes=processes)
    observability = Observability(service, gates.by_name(), span_recorder, collect_metrics)
    callers = Middleware(
        AuthenticationMiddleware, authenticate=authenticate, is_open=is_open, recent_tenants=recent_tenants
    )
    app = FastAPI(
        title="signalbox",
        version=version("signalbox-retrieval"),
        summary="One question in, one cited prompt out: retrieval over documents with metadata.",
        # FastAPI's documentation pages load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        middleware=[
            Middleware(RequestContextMiddleware),
            Middleware(ObservabilityMiddleware, observability=observability),
            Middleware(OriginMiddleware, loopback_only=not keys),
            callers,
            Middleware(BodyMiddleware),
            Middleware(AdmissionMiddleware, gates=gates, max_wait_s=service.settings.timeout_s),
            callers,  # again, because the key may have been revoked while the request was uploaded or waited
            Middleware(tenant.QuotaHeaderMiddleware),
        ],
    )
    app.state.service = service
    app.state.grace_s, app.state.stop_jobs = service.settings.grace_s, service.worker.stop
    app.state.authenticate = authenticate
    app.state.observability = observability
    app.state.gates = gates
    app.state.early_rejection = EarlyRejection(
        app, gates, observability, recent_tenants=recent_tenants, is_open=is_open
    )
    app.state.error_formatters = (
        chat.ERROR_FORMATTERS | vector_stores.ERROR_FORMATTERS | dify.ERROR_FORMATTERS | rerank.ERROR_FORMATTERS
    )
    """Functions that turn a Problem into a response, by path prefix: some clients expect another form of errors."""
    routers = [*_stateless_routers(), mcp.router()]
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    """All routes, for middleware that handles a request before it is routed."""
    problems.install_error_handlers(app)
    openapi.complete_openapi(app, routers, is_open=is_open, keys=keys)
    return app


@cache
def _stateless_routers() -> list[APIRouter]:
    """Return the routers that keep no state of an application, with their bodies described.

    All applications of a process share them, because describing the parameters of all endpoints takes 0.15 s.
    """
    # A new family of routes is added here: a module of `endpoints` or `compatible` with a function `router`.
    families = (
        native,
        documents,
        maintenance,
        records,
        syncs,
        tenant,
        status,
        chat,
        vector_stores,
        dify,
        rerank,
        open_webui,
        console,
    )
    routers = [family.router() for family in families]
    for router in routers:
        openapi.describe_bodies(router)
    return routers


def is_open(path: str) -> bool:
    """Return whether a path is answered for everyone, without a key."""
    return path in OPEN or path.startswith(OPEN_BELOW)
