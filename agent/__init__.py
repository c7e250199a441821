"""signalbox: one question in, one cited prompt out.

async with open_service() as service:
    result = await service.retrieve("How are sockets inherited?", collection="peps")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.service.factory import open_service
    from agent.service.service import Service

__all__ = ["Service", "open_service"]


def __getattr__(name: str) -> Any:
    # Importing the package alone must stay cheap: the command line does it to print its help.
    if name == "Service":
        from agent.service.service import Service

        return Service
    if name == "open_service":
        from agent.service.factory import open_service

        return open_service
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
