"""Build the HTTP application: its routes, its middleware and their order."""

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.middleware import Middleware
from starlette.routing import Route

from agent.serve import identity
from agent.serve.http import (
    console,
    dify,
    documents,
    mcp,
    native,
    openai_chat,
    openapi,
    problems,
    rebuilding,
    records,
    rerank,
    status,
    syncs,
    tenant,
    vector_stores,
    web_search,
)
from agent.serve.http.admission import Admission, Gates
from agent.serve.http.early_refusal import EarlyRefusal
from agent.serve.http.limits import Bodies, Callers, Envelope, Origins
from agent.serve.http.observing import Figures, Observation, Observing
from agent.serve.identity import Identify, RecentTenants
from agent.service.service import Service

if TYPE_CHECKING:
    from agent.observe.telemetry import Tracing

OPEN = frozenset({"/", "/favicon.ico", "/healthz", "/readyz", "/metrics", "/openapi.json"})
"""Paths answered for everyone and at any load: they expose no tenant's data."""
OPEN_BELOW = "/console/"
"""Prefix of the console's own files, open as well; its data comes through the API like any client's."""


def create_app(
    service: Service,
    *,
    identify: Identify | None = None,
    tracing: "Tracing | None" = None,
    processes: int = 1,
    everyone: Figures | None = None,
) -> FastAPI:
    """Build the application over an open service.

    Args:
        identify: maps a request to its caller. None means AUTH=off: every caller is the tenant of the settings, and
            only requests to local host names are answered.
        tracing: destination of the spans; None for no spans.
        processes: number of server processes; this process admits its share of the load.
        everyone: returns the metrics of all processes; None if there is only one.
    """
    keys = identify is not None
    identify = identify or identity.everyone(service.settings.tenant)
    seen = RecentTenants()
    has_model = service.answerer.model is not None
    gates = Gates(has_model=has_model, searches_wait=service.settings.waits_for_others, processes=processes)
    observation = Observation(service, gates.named(), tracing, everyone)
    callers = Middleware(Callers, identify=identify, is_open=is_open, seen=seen)
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
            Middleware(Envelope),
            Middleware(Observing, observation=observation),
            Middleware(Origins, loopback_only=not keys),
            callers,
            Middleware(Bodies),
            Middleware(Admission, gates=gates, patience_s=service.settings.timeout_s),
            callers,  # again, because the key may have been revoked while the request was uploaded or waited
            Middleware(tenant.Quotas),
        ],
    )
    app.state.service = service
    app.state.grace_s, app.state.stop_jobs = service.settings.grace_s, service.worker.stop
    app.state.identify = identify
    app.state.observation = observation
    app.state.gates = gates
    app.state.early_refusal = EarlyRefusal(app, gates, observation, seen=seen, is_open=is_open)
    app.state.error_forms = openai_chat.ERROR_FORMS | vector_stores.ERROR_FORMS | dify.ERROR_FORMS | rerank.ERROR_FORMS
    """Functions that turn a Problem into a response, by path prefix: some clients expect another form of errors."""
    routers = [*_stateless_routers(), mcp.router()]
    for router in routers:
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    """All routes, for middleware that handles a request before it is routed."""
    problems.install(app)
    openapi.document(app, routers, is_open=is_open, keys=keys)
    return app


@cache
def _stateless_routers() -> list[APIRouter]:
    """Return the routers that keep no state of an application, with their bodies described.

    All applications of a process share them, because describing the parameters of all endpoints takes 0.15 s.
    """
    # A new family of routes is added here: a module of this package with a function `router`.
    families = (
        native,
        documents,
        rebuilding,
        records,
        syncs,
        tenant,
        status,
        openai_chat,
        vector_stores,
        dify,
        rerank,
        web_search,
        console,
    )
    routers = [family.router() for family in families]
    for router in routers:
        openapi.describe_bodies(router)
    return routers


def is_open(path: str) -> bool:
    """Return whether a path is answered for everyone, without a key."""
    return path in OPEN or path.startswith(OPEN_BELOW)
