"""The HTTP application: what it is made of and in which order a request passes through it."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI
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
from agent.serve.http.limits import Bodies, Callers, Envelope, Origins
from agent.serve.http.observing import Figures, Observation, Observing
from agent.serve.identity import Identify, Seen
from agent.serve.shedding import Shedding
from agent.service.service import Service

if TYPE_CHECKING:
    from agent.observe.telemetry import Tracing

OPEN = frozenset({"/", "/favicon.ico", "/healthz", "/readyz", "/metrics", "/openapi.json"})
"""Paths that are answered to everybody and at any load: nothing of a tenant is behind them."""
OPEN_BELOW = "/console/"
"""As are the console's own files; its data comes by the doors that all others use."""


def create_app(
    service: Service,
    *,
    identify: Identify | None = None,
    tracing: "Tracing | None" = None,
    processes: int = 1,
    everyone: Figures | None = None,
) -> FastAPI:
    """The application over an open service.

    Args:
        identify: who is calling. None is AUTH=off: whoever calls is the tenant of the settings, and only requests
            to this machine's own names are answered.
        tracing: where spans go; none are made when None.
        processes: how many serve side by side; this one takes in its share of what the machine can work on.
        everyone: the figures of all of them.
    """
    keys = identify is not None
    identify = identify or identity.everyone(service.settings.tenant)
    seen = Seen()
    gates = Gates(
        has_model=service.answerer.model is not None,
        searches_wait=service.settings.waits_for_others,
        processes=processes,
    )
    observation = Observation(service, gates.named(), tracing, everyone)
    app = FastAPI(
        title="signalbox",
        version=version("signalbox-retrieval"),
        summary="One question in, one cited prompt out: retrieval over documents with metadata.",
        openapi_url="/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        middleware=[
            Middleware(Envelope),
            Middleware(Observing, observation=observation),
            Middleware(Origins, loopback_only=not keys),
            Middleware(Callers, identify=identify, is_open=is_open, seen=seen),
            Middleware(Bodies),
            Middleware(Admission, gates=gates, patience_s=service.settings.timeout_s),
            # Once more: a key may have been revoked while its request was sent slowly or waited for its turn.
            Middleware(Callers, identify=identify, is_open=is_open, seen=seen),
            Middleware(tenant.Quotas),
        ],
    )
    app.state.service = service
    app.state.grace_s = service.settings.grace_s
    app.state.identify = identify
    app.state.observation = observation
    app.state.gates = gates
    app.state.shedding = Shedding(app, gates, observation, seen=seen, is_open=is_open)
    app.state.error_forms = openai_chat.ERROR_FORMS | vector_stores.ERROR_FORMS | dify.ERROR_FORMS | rerank.ERROR_FORMS
    """Beginnings of paths to what makes a Response of a Problem there: some clients expect errors of another form."""
    # Further doors are included here: modules of this package with a function `router`.
    doors = (
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
        mcp,
        console,
    )
    routers = [door.router() for door in doors]
    for router in routers:
        openapi.describe_bodies(router)
        app.include_router(router)
    app.state.routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    """Of all doors, for those who are asked about a request that did not come to its route."""
    problems.install(app)
    openapi.document(app, routers, is_open=is_open, keys=keys)
    return app


def is_open(path: str) -> bool:
    """Whether a path is answered to everybody."""
    return path in OPEN or path.startswith(OPEN_BELOW)
