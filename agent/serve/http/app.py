"""The HTTP application: what it is made of and in which order a request passes through it."""

from importlib.metadata import version

from fastapi import FastAPI

from agent.app import Service
from agent.serve.http import console, native, problems
from agent.serve.identity import Identify, everyone


def create_app(service: Service, *, identify: Identify | None = None) -> FastAPI:
    """The application over an open service.

    Args:
        identify: who is calling; the tenant of the settings when None.
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
    # Further doors are included here: modules of this package with a function `router`.
    for door in (native, console):
        app.include_router(door.router())
    return app
