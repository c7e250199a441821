"""What the adapters share: asking a service of either kind, and what they say of a hit."""

from collections.abc import Mapping
from typing import Any

from agent.integrations.blocking import BlockingService
from agent.service.service import Service
from agent.types import RankedHit, Result
from retrievers.core.extras import install_command

AnyService = Service | BlockingService

PROVENANCE = "signalbox"
"""The key of a passage's metadata under which everything is that is not the document's own."""


def retrieve(service: AnyService, query: str, options: Mapping[str, Any]) -> Result:
    """Hits for a question, in synchronous code.

    Raises:
        RuntimeError: the service lives on an event loop that would wait for itself.
    """
    if isinstance(service, BlockingService):
        return service.retrieve(query, **options)
    raise RuntimeError(
        "this service is open on an event loop, which a synchronous call would stop for ever: use the asynchronous "
        "method (ainvoke, aretrieve, run_async), or a service of agent.integrations.blocking.open_blocking()"
    )


async def aretrieve(service: AnyService, query: str, options: Mapping[str, Any]) -> Result:
    """Hits for a question: of a `Service` on its own event loop, of a `BlockingService` from any."""
    if isinstance(service, BlockingService):
        return await service.acall(service.service.retrieve(query, **options))
    return await service.retrieve(query, **options)


def check_service(service: object) -> None:
    """Raise TypeError for what is no open service, at once and not with the first question."""
    if not isinstance(service, Service | BlockingService):
        what = "an open service, of agent.open_service() or open_blocking()"
        raise TypeError(f"an adapter needs {what}, not {type(service).__name__}")


def options_of(given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a request: those with a value, then `more`, which wins."""
    return {name: value for name, value in {**given, **more}.items() if value is not None}


def metadata_of(result: Result, hit: RankedHit, **own: Any) -> dict[str, Any]:
    """A hit's metadata: title, URL and `own`, over them the document's own, and what signalbox says of the hit.

    The last is an object under "signalbox": trace_id, document_id, id (of the passage), rank, score, relevance,
    scores and ranks per source, the characters [start, end) of the passage in its document, and highlights in it.
    """
    said = hit.model_dump(
        mode="json",
        include={
            "document_id", "id", "rank", "score", "relevance", "scores", "ranks", "start", "end", "highlights",
        },
    )  # fmt: skip
    shown = {"title": hit.title, **({"url": hit.url} if hit.url else {}), **own}
    return {**shown, **hit.metadata, PROVENANCE: {"trace_id": result.trace_id, **said}}


def not_installed(module: str, package: str, error: ImportError) -> ImportError:
    """What to say when a framework is missing; another error of its import is passed on as it is."""
    if not isinstance(error, ModuleNotFoundError):
        return error
    return ImportError(f"{module} needs {package}: {install_command('adapters')}")
