"""MCP over HTTP at /mcp. The protocol's package is loaded by the first request: who never uses it never pays for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.message import Message as Header
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anyio import create_task_group
from fastapi import APIRouter, FastAPI
from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from agent.app import Service
from agent.serve.http.problems import Problem
from agent.serve.identity import Caller

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_MOST_BODY_BYTES = 8 << 20


def router() -> APIRouter:
    """The endpoint, which is no operation of the OpenAPI document."""
    endpoint = Endpoint()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await endpoint.aclose()

    routes: list[BaseRoute] = [
        Route(path, endpoint, methods=["POST"], include_in_schema=False) for path in ("/mcp", "/mcp/")
    ]
    return APIRouter(routes=routes, lifespan=lifespan)


class Endpoint:
    """Streamable HTTP without sessions: every request stands for itself and is answered by one JSON document.

    So each is judged by the key that it carries, any process can answer it, a restart loses nothing, and a client
    that goes away leaves nothing behind.
    """

    def __init__(self) -> None:
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request.state.caller = await request.app.state.identify(request.headers.get("authorization"))
        _check_content_type(request.headers.get("content-type"))
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        manager = await self._started(request.app.state.service)
        _check(request, body)
        await _answer(manager, body, scope, receive, send)

    async def aclose(self) -> None:
        """End what is under way."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _started(self, service: Service) -> "StreamableHTTPSessionManager":
        if self._manager is None or self._running is None or self._running.done():
            self._manager = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(service, self._manager))
        return await asyncio.shield(self._manager)

    async def _run(self, service: Service, ready: "asyncio.Future[StreamableHTTPSessionManager]") -> None:
        """Keep the manager's tasks: the group they are in must be left by the task that entered it."""
        try:
            # It takes a second, in which others are answered.
            await asyncio.to_thread(import_module, "agent.serve.mcp")
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from agent.serve.mcp import build_server

            server = build_server(service, _tenant_of)
            # Whoever calls here has passed the checks of Host and Origin that hold for every path.
            manager = StreamableHTTPSessionManager(
                server, json_response=True, stateless=True, max_request_body_size=_MOST_BODY_BYTES
            )
            async with manager.run():
                ready.set_result(manager)
                await asyncio.Event().wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)  # for who waits; the next request tries again


def _tenant_of(context: "ServerRequestContext[Any]") -> str:
    """The tenant of the key that the request came with."""
    request: Request | None = context.request
    assert request is not None  # the transport gives it with every message
    caller: Caller = request.state.caller
    return caller.tenant


async def _answer(
    manager: "StreamableHTTPSessionManager", body: bytes, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer the request. A client that goes away meanwhile has cancelled its call."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return whole.pop() if whole else await asyncio.Future()

    async def cancel_when_gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        tasks.cancel_scope.cancel()

    async with create_task_group() as tasks:
        tasks.start_soon(cancel_when_gone)
        await manager.handle_request(scope, read, send)
        tasks.cancel_scope.cancel()


def _check_content_type(header: str | None) -> None:
    """A page of another origin may send other types without asking."""
    given = Header()
    given["content-type"] = header or ""
    if not header or given.get_content_type() != "application/json":
        raise Problem(415, "unsupported-media-type", "send JSON-RPC as Content-Type: application/json")


def _check(request: Request, body: bytes) -> None:
    """Refuse here, as everywhere, what is no request of the protocol."""
    from mcp.server.streamable_http import check_accept_headers
    from mcp_types import jsonrpc_message_adapter

    from agent.serve.mcp import unreadable

    takes_json, _ = check_accept_headers(request)
    if not takes_json:
        raise Problem(406, "not-acceptable", "answers are JSON: send Accept: application/json, text/event-stream")
    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError as error:
        raise Problem(400, "malformed-message", f"the body is {unreadable(error)}") from None
