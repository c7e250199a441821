"""The HTTP application: what it is made of and in which order a request passes through it."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from fastapi import FastAPI

from agent.app import Service
from agent.serve.http import native, problems, status
from agent.serve.http.observing import Observation, Observing
from agent.serve.identity import Identify, everyone

if TYPE_CHECKING:
    from agent.observe.telemetry import Tracing


def create_app(service: Service, *, identify: Identify | None = None, tracing: "Tracing | None" = None) -> FastAPI:
    """The application over an open service.

    Args:
        identify: who is calling; the tenant of the settings when None.
        tracing: where spans go; none are made when None.
    """
    app = FastAPI(
        title="signalbox",
        version=version("signalbox"),
        openapi_url="/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.service = service
    app.state.identify = identify or everyone(service.settings.tenant)
    app.state.error_forms = {}
    """Path to what makes a Response of a Problem there: doors whose clients expect errors of another form."""
    problems.install(app)
    observation = app.state.observation = Observation(service, tracing)
    app.add_middleware(Observing, observation=observation)
    # Further doors are included here: modules of this package with a function `router`.
    for door in (native, status):
        app.include_router(door.router())
    return app
