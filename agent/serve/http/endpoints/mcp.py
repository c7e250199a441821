"""MCP over HTTP at /mcp. The first request imports the protocol's package; a server without any never does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from agent.serve.authentication import Caller
from agent.serve.http.dependencies import waited_s
from agent.serve.http.json_body import LARGE_BODY_BYTES, check_content_type, check_value_count
from agent.serve.http.problems import Problem
from agent.serve.request_limits import TOOL_CALL_LIMITS
from agent.service.service import Service

_MOST_BYTES = 1 << 20
"""Maximum size of a message. No tool takes documents; a filter and advisors of the largest size fit in."""

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


def router() -> APIRouter:
    """Return the endpoint's routes. They are not part of the OpenAPI document."""
    endpoint = McpEndpoint()

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


class McpEndpoint:
    """ASGI endpoint of MCP's streamable HTTP without sessions: each request is independent and gets one JSON document.

    So each request is authorised by its own key, any process can answer it, and a restart loses nothing. A client
    cancels a call by disconnecting.
    """

    path = "/mcp"
    """The route under which its requests are logged and counted."""

    def __init__(self) -> None:
        self._manager: asyncio.Future[StreamableHTTPSessionManager] | None = None
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self
        request = Request(scope, receive)
        check_content_type(request.headers, suffixed=False)  # the protocol allows only application/json
        body = await request.body()
        if len(body) > _MOST_BYTES:
            raise Problem(413, "body-too-large", f"a message of MCP is at most {_MOST_BYTES >> 20} MiB")
        manager = await self._start_manager(request.app.state.service)
        _check_accept(request)
        if len(body) > LARGE_BODY_BYTES:
            await asyncio.to_thread(_check_message, body)
        else:
            _check_message(body)

        async def replay() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        await manager.handle_request(scope, replay, send)

    async def aclose(self) -> None:
        """Cancel the requests in progress."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _start_manager(self, service: Service) -> "StreamableHTTPSessionManager":
        if self._manager is None or self._running is None or self._running.done():
            self._manager = asyncio.get_running_loop().create_future()
            self._running = asyncio.create_task(self._run(service, self._manager))
        return await asyncio.shield(self._manager)

    async def _run(self, service: Service, ready: "asyncio.Future[StreamableHTTPSessionManager]") -> None:
        """Keep the manager's task group open in this task, because the task that enters it must also leave it.

        Args:
            ready: receives the manager, or the error if it could not be started.
        """
        try:
            # The import takes a second, during which other requests are served.
            await asyncio.to_thread(import_module, "agent.serve.mcp.server")
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            from agent.serve.mcp.server import build_server

            server = build_server(service, _caller_of, _waited_s)
            # The middleware has checked Host and Origin before this point, as for every path.
            manager = StreamableHTTPSessionManager(
                server, json_response=True, stateless=True, max_request_body_size=_MOST_BYTES
            )
            async with manager.run():
                ready.set_result(manager)
                await asyncio.Event().wait()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)  # for the waiting requests; the next request tries again


def _caller_of(context: "ServerRequestContext[Any]") -> Caller:
    """Return the caller of the HTTP request, which the middleware has identified."""
    caller: Caller = _request_of(context).state.caller
    return caller


def _waited_s(context: "ServerRequestContext[Any]") -> float:
    return waited_s(_request_of(context))


def _request_of(context: "ServerRequestContext[Any]") -> Request:
    request: Request | None = context.request
    assert request is not None  # the transport attaches it to every message
    return request


def _check_accept(request: Request) -> None:
    from mcp.server.streamable_http import check_accept_headers

    takes_json, _ = check_accept_headers(request)
    if not takes_json:
        raise Problem(406, "not-acceptable", "send the header Accept: application/json, text/event-stream")


def _check_message(body: bytes) -> None:
    """Reject a body that is not a message of the protocol with a problem, as other endpoints do."""
    from mcp_types import jsonrpc_message_adapter

    from agent.serve.mcp.server import malformed_message_reason

    check_value_count(body, TOOL_CALL_LIMITS)
    try:
        jsonrpc_message_adapter.validate_json(body, by_name=False)
    except ValidationError as error:
        raise Problem(400, "malformed-message", f"the body is {malformed_message_reason(error)}") from None
