"""Dependencies of the handlers: the service, the caller and the time a request waited.

All are coroutines although none awaits: FastAPI would call plain functions in a thread each.
"""

import time
from typing import Annotated

from fastapi import Depends, Request

from agent.serve.authentication import Caller, Forbidden, Unauthenticated
from agent.service.service import Service

_NOTABLE_WAIT_S = 0.05


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _caller(request: Request) -> Caller:
    caller: Caller | None = request.scope["state"].get("caller")
    if caller is None:
        raise Unauthenticated  # the path is open to everyone, so it must not expose a tenant's data
    return caller


async def _writer(request: Request) -> Caller:
    caller = await _caller(request)
    if not caller.can_write:
        raise Forbidden("callers limited to certain principals may not store or delete documents or see jobs")
    return caller


async def _waited_s(request: Request) -> float:
    return waited_s(request)


def waited_s(request: Request) -> float:
    """Return the seconds since the request arrived, which count against its deadline; 0 if negligible (< 0.05 s)."""
    passed_s: float = time.monotonic() - request.scope["state"]["arrived"]
    return passed_s if passed_s >= _NOTABLE_WAIT_S else 0.0


ServiceDep = Annotated[Service, Depends(_service)]
CallerDep = Annotated[Caller, Depends(_caller)]
WriterDep = Annotated[Caller, Depends(_writer)]
WaitedDep = Annotated[float, Depends(_waited_s)]
"""Seconds since the request arrived; see `waited_s`."""
