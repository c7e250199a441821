"""Open the service for one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from agent.service.service import Service

Returned = TypeVar("Returned")


def run_with_service(action: Callable[["Service"], Awaitable[Returned]]) -> Returned:
    """Open the service, run one action and close the service."""
    from agent.service.factory import open_service

    async def run() -> Returned:
        async with open_service() as service:
            return await action(service)

    return asyncio.run(run())
