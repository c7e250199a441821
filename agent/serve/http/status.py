"""Whether the service runs, whether it can answer, and its figures. No key is asked for, and nothing secret said."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic_core import to_jsonable_python

from agent.observe.metrics import CONTENT_TYPE
from agent.serve.http.observing import Observation


async def _observation(request: Request) -> Observation:
    observation: Observation = request.app.state.observation
    return observation


TheObservation = Annotated[Observation, Depends(_observation)]


def router() -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(tags=["status"])
    routes.get("/healthz")(healthz)
    routes.get("/readyz", responses={503: {"description": "no question can be answered now"}})(readyz)
    routes.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus' text form"}},
    )(metrics)
    return routes


async def healthz() -> dict[str, str]:
    """Whether the process runs."""
    return {"status": "ok"}


async def readyz(observation: TheObservation) -> Response:
    """Whether questions can be answered, and how each part does: `status` is ready, degraded or unavailable.

    A part that fails says since when; one elsewhere that nothing has asked yet is `untried`. The answer is 503 only
    where no question can be answered without the part. Where several processes serve, this is how the one that
    answers sees them.
    """
    health = observation.health
    await health.look()
    report: dict[str, Any] = to_jsonable_python(health.report())
    return JSONResponse(report, 200 if health.ready else 503, headers={"Cache-Control": "no-store"})


async def metrics(observation: TheObservation) -> Response:
    """The figures of the service since it started, in Prometheus' text form.

    Where several processes serve, all are told of: each figure says by its label `process` whose it is.
    """
    return Response(await observation.figures(), headers={"Content-Type": CONTENT_TYPE})
