"""Liveness, readiness and metrics endpoints. They need no key and reveal no secret."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_jsonable_python

from agent.observe.metrics import CONTENT_TYPE
from agent.serve.http.middleware.observability import Observability


async def _observability(request: Request) -> Observability:
    observability: Observability = request.app.state.observability
    return observability


ObservabilityDep = Annotated[Observability, Depends(_observability)]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(tags=["status"])
    routes.get("/healthz")(healthz)
    routes.get("/readyz", responses={503: {"description": "the service cannot answer questions now"}})(readyz)
    routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text form"}},
    )(metrics)
    return routes


async def healthz() -> dict[str, str]:
    """Return 200 while the process runs."""
    return {"status": "ok"}


async def readyz(observability: ObservabilityDep) -> Response:
    """Return the state of the service and of each part; `status` is ready, degraded or unavailable.

    A failing part reports since when it fails; an external part not used yet is `untried`. The response is a 503 only
    if no question can be answered. With several processes, the response is the view of the process that answers.
    """
    health = observability.health
    await health.refresh()
    report: dict[str, Any] = to_jsonable_python(health.report())
    return JSONResponse(report, 200 if health.ready else 503, headers={"Cache-Control": "no-store"})


async def metrics(observability: ObservabilityDep) -> Response:
    """Return the metrics of the service since it started, in Prometheus' text format.

    With several processes, all are included; the label `process` tells them apart. Published evaluations are included
    once.
    """
    return Response(await observability.render_metrics(), headers={"Content-Type": CONTENT_TYPE})
