"""Shared code of the adapters: call a `Service` or a `BlockingService`, and build a hit's metadata."""

from collections.abc import Mapping
from typing import Any

from agent.integrations.blocking import BlockingService
from agent.service.service import Service
from agent.types import RankedHit, Result
from retrievers.core.optional_dependencies import install_command

AnyService = Service | BlockingService

PROVENANCE = "signalbox"
"""Metadata key of a mapping with everything that signalbox adds to the document's own metadata."""


def retrieve(service: AnyService, query: str, options: Mapping[str, Any]) -> Result:
    """Return the hits for a question in synchronous code.

    Raises:
        RuntimeError: the service runs on an event loop, which a synchronous call would block.
    """
    if isinstance(service, BlockingService):
        return service.retrieve(query, **options)
    raise RuntimeError(
        "a synchronous call would block the event loop of this service: use the asynchronous method (ainvoke, "
        "aretrieve, run_async), or open the service with agent.integrations.blocking.open_blocking()"
    )


async def aretrieve(service: AnyService, query: str, options: Mapping[str, Any]) -> Result:
    """Return the hits for a question. A `Service` must be called on its own event loop, a `BlockingService` on any."""
    if isinstance(service, BlockingService):
        return await service.acall(service.service.retrieve(query, **options))
    return await service.retrieve(query, **options)


def check_service(service: object) -> None:
    """Raise TypeError if this is not an open service. Otherwise the first question would fail with an unclear error."""
    if not isinstance(service, Service | BlockingService):
        what = "an open service from agent.open_service() or open_blocking()"
        raise TypeError(f"an adapter needs {what}, not {type(service).__name__}")


def merge_options(given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the options of a request and drop those that are None; `more` wins over `given`."""
    return {name: value for name, value in {**given, **more}.items() if value is not None}


def hit_metadata(result: Result, hit: RankedHit, **own: Any) -> dict[str, Any]:
    """Return a hit's metadata: title, URL and `own`, overridden by the document's metadata, plus a "signalbox" object.

    The object has trace_id, document_id, id (of the passage), rank, score, relevance, scores and ranks per source,
    the character range [start, end) of the passage in its document, and the highlights in the passage.
    """
    said = hit.model_dump(
        mode="json",
        include={
            "document_id", "id", "rank", "score", "relevance", "scores", "ranks", "start", "end", "highlights",
        },
    )  # fmt: skip
    shown = {"title": hit.title, **({"url": hit.url} if hit.url else {}), **own}
    return {**shown, **hit.metadata, PROVENANCE: {"trace_id": result.trace_id, **said}}


def missing_package_error(module: str, package: str, error: ImportError) -> ImportError:
    """Return an ImportError that says how to install a missing framework; return any other import error unchanged."""
    if not isinstance(error, ModuleNotFoundError):
        return error
    return ImportError(f"{module} needs {package}: {install_command('adapters')}")
