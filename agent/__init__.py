"""signalbox: one question in, one cited prompt out.

async with open_service() as service:
    result = await service.retrieve("How are sockets inherited?", collection="peps")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.app import Service, open_service

__all__ = ["Service", "open_service"]


def __getattr__(name: str) -> Any:
    # Importing the package alone must stay cheap: the command line does it to print its help.
    if name in __all__:
        from agent import app

        return getattr(app, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
