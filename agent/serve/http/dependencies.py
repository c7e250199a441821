"""What handlers are given: the service, and who is calling."""

from typing import Annotated

from fastapi import Depends, Request

from agent.app import Service
from agent.serve.identity import Caller, Identify


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _caller(request: Request) -> Caller:
    identify: Identify = request.app.state.identify
    # Of several, none is the one that counts.
    return await identify(", ".join(request.headers.getlist("authorization")) or None)


TheService = Annotated[Service, Depends(_service)]
TheCaller = Annotated[Caller, Depends(_caller)]
