"""What handlers are given: the service, who is calling, and how long they waited.

Dependencies are coroutines, though none waits: FastAPI would call others in a thread each.
"""

import time
from typing import Annotated

from fastapi import Depends, Request

from agent.serve.identity import Caller, Forbidden, Unauthenticated
from agent.service.service import Service

_NOTABLE_WAIT_S = 0.05


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _caller(request: Request) -> Caller:
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        raise Unauthenticated  # the path is open to everybody: no data of a tenant may be behind it
    return caller


async def _writer(request: Request) -> Caller:
    caller = await _caller(request)
    if not caller.writes:
        raise Forbidden("who reads as certain principals alone stores and deletes nothing, and sees no jobs")
    return caller


async def _waited_s(request: Request) -> float:
    return waited_s(request)


def waited_s(request: Request) -> float:
    """Seconds since the request arrived, which count against its deadline; 0 while they are too few to tell."""
    passed_s: float = time.monotonic() - request.scope["state"]["arrived"]
    return passed_s if passed_s >= _NOTABLE_WAIT_S else 0.0


TheService = Annotated[Service, Depends(_service)]
TheCaller = Annotated[Caller, Depends(_caller)]
TheWriter = Annotated[Caller, Depends(_writer)]
WaitedS = Annotated[float, Depends(_waited_s)]
"""See `waited_s`."""
