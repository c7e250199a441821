"""The service for synchronous code. It runs in a thread of its own, on its own event loop.

with open_blocking() as service:
    result = service.retrieve("How are sockets inherited?", collection="peps")
"""

import asyncio
import atexit
import concurrent.futures
import queue
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.types import Answer, Prompt, Result
from retrievers.core.metadata import Field
from retrievers.core.types import Collection
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.report import IngestReport, Progress

_T = TypeVar("_T")


def open_blocking(settings: Settings | None = None, **changes: Any) -> "BlockingService":
    """Open the service. `close()` or the end of a `with` block closes it.

    A program that ends without closing it loses at most the decision records of its last answers.

    Args:
        settings, changes: as for `agent.open_service`, which also documents the errors.
    """
    return BlockingService(settings, **changes)


class BlockingService:
    """The methods of `agent.Service` as synchronous calls. Any number of threads may call them.

    Call other methods of `Service` as `service.call(service.service.METHOD(...))`.

    Attributes:
        service: the open service. It belongs to another event loop, so its methods must go through `call` or `acall`.
    """

    service: Service

    def __init__(self, settings: Settings | None = None, **changes: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._lock = threading.Lock()
        self._closed = False
        self._running: set[concurrent.futures.Future[Any]] = set()
        self._over: concurrent.futures.Future[None] = concurrent.futures.Future()
        opened = threading.Event()
        # A daemon thread: otherwise a program that does not close the service would never end.
        self._thread = threading.Thread(
            target=self._run, args=(settings, changes, opened), name="signalbox", daemon=True
        )
        self._thread.start()
        opened.wait()
        if self._over.done():
            self._closed = True
            self._over.result()
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancel running calls and close the service. Closing it again does nothing.

        Raises:
            Exception: the service could not be closed cleanly.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            running = list(self._running)
        atexit.unregister(self.close)
        for future in running:
            future.cancel()
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        self._over.result()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of `service` and return its result or raise its error.

        Raises:
            RuntimeError: the service is closed, or the call comes from its own thread, which would wait for itself.
            concurrent.futures.CancelledError: the service was closed during the call.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "a blocking call from the service's own thread would never return: await the coroutine there"
            )
        future = self._submit(coroutine)
        try:
            return future.result()
        finally:
            future.cancel()  # stops the call after a KeyboardInterrupt, for example; no effect if it is done

    async def acall(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Do the same as `call` without blocking the event loop of the caller, which may be any event loop."""
        return await asyncio.wrap_future(self._submit(coroutine))

    def retrieve(self, query: str | None = None, **options: Any) -> Result:
        """See `Service.retrieve`."""
        return self.call(self.service.retrieve(query, **options))

    def augment(self, query: str | None = None, **options: Any) -> Prompt:
        """See `Service.augment`."""
        return self.call(self.service.augment(query, **options))

    def ask(self, query: str | None = None, **options: Any) -> Answer:
        """See `Service.ask`."""
        return self.call(self.service.ask(query, **options))

    def ask_stream(self, query: str | None = None, **options: Any) -> Iterator[str | Answer]:
        """See `Service.ask_stream`. Closing the iterator stops the model."""
        pieces: queue.SimpleQueue[str | Answer | None] = queue.SimpleQueue()

        async def pump() -> None:
            async with aclosing(self.service.ask_stream(query, **options)) as stream:
                async for piece in stream:
                    pieces.put(piece)

        future = self._submit(pump())
        future.add_done_callback(lambda _: pieces.put(None))
        try:
            while (piece := pieces.get()) is not None:
                yield piece
            future.result()
        finally:
            future.cancel()

    def ingest(
        self,
        items: Iterable[Document | RejectedItem],
        collection: str,
        *,
        tenant: str | None = None,
        schema: Mapping[str, Field] | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """See `Service.ingest`. `items` is read and `progress` called in the service's thread."""
        return self.call(self.service.ingest(items, collection, tenant=tenant, schema=schema, progress=progress))

    def collections(self, *, tenant: str | None = None) -> Sequence[Collection]:
        """See `Service.collections`."""
        return self.call(self.service.collections(tenant=tenant))

    def describe(self, collection: str, *, tenant: str | None = None) -> dict[str, Any]:
        """See `Service.describe`."""
        return self.call(self.service.describe(collection, tenant=tenant))

    def declare(self, collection: str, schema: Mapping[str, Any], *, tenant: str | None = None) -> dict[str, Any]:
        """See `Service.declare`."""
        return self.call(self.service.declare(collection, schema, tenant=tenant))

    def delete(self, collection: str, document: str | None = None, *, tenant: str | None = None) -> int:
        """See `Service.delete`."""
        return self.call(self.service.delete(collection, document, tenant=tenant))

    def as_tool(self, api: Literal["chat", "responses"] = "chat") -> dict[str, Any]:
        """See `Service.as_tool`."""
        return self.service.as_tool(api)

    def call_tool(self, arguments: str | Mapping[str, Any], *, tenant: str | None = None) -> str:
        """See `Service.call_tool`."""
        return self.call(self.service.call_tool(arguments, tenant=tenant))

    def _submit(self, coroutine: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        with self._lock:
            if self._closed:
                coroutine.close()
                raise RuntimeError("the service is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._running.add(future)
        future.add_done_callback(self._running.discard)
        return future

    def _run(self, settings: Settings | None, changes: Mapping[str, Any], opened: threading.Event) -> None:
        """Run the service until it is closed; the target of its thread.

        Args:
            opened: set once the service is open or could not be opened.
        """

        async def serve() -> None:
            async with open_service(settings, **changes) as self.service:
                opened.set()
                await self._ended.wait()

        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(serve())
        except BaseException as error:
            self._over.set_exception(error)
        else:
            self._over.set_result(None)
        finally:
            opened.set()
