"""Middleware for every request before its handler: request id, origin, authentication and body size.

Each class is plain ASGI middleware with one task; `app.create_app` sets their order.
"""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.serve.authentication import PRINCIPALS_HEADER, Authenticator, Forbidden, RecentTenants, Unauthenticated
from agent.serve.http.problems import Problem, logged_problem, problem_of, problem_response, unavailable_problem
from retrievers.core import process_memory
from retrievers.core.errors import BadRequest, Unavailable

MAX_BODY_BYTES = 8 << 20
_MOST_RESERVED_BYTES, _FOR_SMALL_BYTES = 80 << 20, 16 << 20
"""Maximum bytes of all bodies in memory at once, and how many of them are reserved for small bodies.

A body counts from its first byte to the end of its request. Parsing it takes several times its size in addition.
"""
_SMALL_BODY_BYTES = 64 << 10

_BODY_WITHIN_S, _PIECE_WITHIN_S = 60.0, 5.0
_RELEASE_EVERY_S = 4.0
_LOOPBACK = re.compile(r"(?:localhost|[a-z0-9-]+\.localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
_SAFE_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""Default headers of every response; a response that is not a page needs to load nothing."""

_log = logging.getLogger(__name__)


class RequestContextMiddleware:
    """ASGI middleware that sets each request's id and arrival time, and the default headers of each response.

    An unexpected error is logged and answered with a problem document (RFC 9457).

    HEAD is handled as GET without content, because monitoring tools use it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        id = given if is_safe_request_id(given) else uuid.uuid4().hex
        scope.setdefault("state", {}).update(request_id=id, arrived=time.monotonic())
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # a copy: the server reads the original method to omit the content
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = id
                add_default_headers(headers)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except asyncio.CancelledError as error:
            if begun:
                raise
            await problem_response(scope, problem_of(error))(scope, receive, send_with_headers)
        except Exception as error:
            problem = logged_problem(error, _log, "request %s failed: %s %r", id, scope["method"], scope["path"])
            if begun:
                raise
            await problem_response(scope, problem)(scope, receive, send_with_headers)


def is_safe_request_id(id: str) -> bool:
    """Return whether a client's request id is safe to use unchanged in headers and log lines."""
    return _SAFE_REQUEST_ID.fullmatch(id) is not None


def add_default_headers(headers: MutableHeaders) -> None:
    """Add the default headers that a response does not set itself."""
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)


class OriginMiddleware:
    """ASGI middleware that rejects requests from other sites' pages, by their Origin and Host headers.

    Args:
        loopback_only: accept only local names in the Host header, against DNS rebinding. Needed without API keys,
            because then any page that reaches the server could use it.
    """

    def __init__(self, app: ASGIApp, *, loopback_only: bool) -> None:
        self._app, self._loopback_only = app, loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._find_problem(Headers(scope=scope))):
            await problem_response(scope, problem)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _find_problem(self, headers: Headers) -> Problem | None:
        host = headers.get("host", "")
        if self._loopback_only and not _LOOPBACK.fullmatch(host):
            detail = "without API keys, the Host must be localhost; to allow other hosts, set SIGNALBOX_AUTH=keys"
            return Problem(421, "wrong-host", detail)
        origin = headers.get("origin")
        if origin is None:
            return None
        try:
            same = urlsplit(origin).netloc.lower() == host.lower() != ""
        except ValueError:
            same = False
        return (
            None
            if same
            else Problem(403, "foreign-origin", "the Origin header names a different site than the Host header")
        )


class AuthenticationMiddleware:
    """ASGI middleware that authenticates the caller by the Authorization header and stores it in `scope["state"]`.

    A request without a valid key or token gets a 401. Paths that are open to everyone have no caller. Handlers get the
    caller from `dependencies.CallerDep`.

    Args:
        is_open: returns whether a path is open to everyone.
        recent_tenants: gets the tenant of each header, so that `EarlyRejection` can find it without checking the key.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticate: Authenticator,
        is_open: Callable[[str], bool],
        recent_tenants: RecentTenants,
    ) -> None:
        self._app, self._authenticate, self._is_open, self._recent_tenants = app, authenticate, is_open, recent_tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            sent = Headers(scope=scope).getlist("authorization")  # several are joined below, which makes all invalid
            header = ", ".join(sent)
            try:
                caller = (await self._authenticate(header or None)).on_behalf_of(_principals_in_header(scope))
            except (Unauthenticated, Forbidden, Unavailable, BadRequest) as error:
                await problem_response(scope, problem_of(error))(scope, receive, send)
                return
            if "caller" not in scope["state"]:
                self._recent_tenants.add(header, caller.tenant)
            scope["state"]["caller"] = caller
        await self._app(scope, receive, send)


def _principals_in_header(scope: Scope) -> list[str] | None:
    """Return the users and groups that the header `PRINCIPALS_HEADER` names; None without the header."""
    said = Headers(scope=scope).getlist(PRINCIPALS_HEADER)
    return [one.strip() for line in said for one in line.split(",") if one.strip()] if said else None


class BodyMiddleware:
    """ASGI middleware that reads each body completely, up to a size limit, before its request is queued.

    Otherwise a slow sender would occupy a place among the running requests.

    The length is stored in `scope["state"]` as `body_bytes`.

    The bodies of all current requests share one limit in bytes. When large bodies fill it, small bodies still pass. The
    body of a request without a caller is not read here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._reserved_bytes = 0
        self._freed_large = False
        self._release: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "caller" not in scope["state"]:
            await self._app(scope, receive, send)
            return
        with self._reservation() as reserve:
            await self._forward_with_body(scope, receive, send, reserve)
        if self._freed_large and (self._release is None or self._release.done()):
            self._release = asyncio.create_task(self._release_memory())

    async def _release_memory(self) -> None:
        """Release the memory of large bodies every few seconds, not after each: it stops all threads for 50 ms."""
        while self._freed_large:
            await asyncio.sleep(_RELEASE_EVERY_S)
            self._freed_large = False
            await asyncio.to_thread(process_memory.release_memory)

    async def _forward_with_body(
        self, scope: Scope, receive: Receive, send: Send, reserve: Callable[[int], None]
    ) -> None:
        try:
            whole = await self._read_body(scope, receive, reserve)
        except Problem as problem:
            await problem_response(scope, problem)(scope, receive, send)
            return
        if whole is None:
            return
        scope["state"]["body_bytes"] = len(whole)

        async def replay() -> Message:
            nonlocal whole
            if whole is None:
                return await receive()
            message: Message = {"type": "http.request", "body": whole, "more_body": False}
            whole = None
            return message

        await self._app(scope, replay, send)

    @contextmanager
    def _reservation(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves memory for the body of one request, until the end of the block.

        Its argument is the size of the body in bytes; it may be called again with a larger size. It raises `Problem`
        (503) if the bodies of all requests would exceed their common limit.
        """
        held = 0

        def reserve(size: int) -> None:
            nonlocal held
            more = max(0, size - held)
            kept = _FOR_SMALL_BYTES if size > _SMALL_BODY_BYTES else 0
            if self._reserved_bytes + more > _MOST_RESERVED_BYTES - kept:
                raise unavailable_problem("too many large request bodies at once; try again", 5, kind="overloaded")
            held += more
            self._reserved_bytes += more

        try:
            yield reserve
        finally:
            self._reserved_bytes -= held
            self._freed_large |= held >= process_memory.LARGE_BYTES

    async def _read_body(self, scope: Scope, receive: Receive, reserve: Callable[[int], None]) -> bytes | None:
        """Return the body; None if the client disconnected before its end."""
        headers = Headers(scope=scope)
        announced = headers.get("content-length", "0")
        if "transfer-encoding" in headers and "content-length" in headers:
            # With both headers, a proxy and this server may disagree about the body's length (request smuggling).
            raise Problem(400, "malformed-http", "send Content-Length or Transfer-Encoding, not both")
        if not announced.isdecimal() or len(announced) > 20 or int(announced) > MAX_BODY_BYTES:
            raise _too_large()
        reserve(int(announced))
        body = bytearray()
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                while True:
                    async with asyncio.timeout(_PIECE_WITHIN_S):
                        message = await receive()
                    if message["type"] != "http.request":
                        return None
                    piece: bytes = message.get("body", b"")
                    if len(body) + len(piece) > MAX_BODY_BYTES:
                        raise _too_large()
                    reserve(len(body) + len(piece))
                    body += piece
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            limits = f"{_PIECE_WITHIN_S:g} s between two parts, {_BODY_WITHIN_S:g} s in all"
            detail = f"the body arrived too slowly; the limits are {limits}"
            raise Problem(408, "slow-body", detail, headers={"Connection": "close"}) from None


def _too_large() -> Problem:
    detail = f"the body is larger than {MAX_BODY_BYTES >> 20} MiB; split it into several requests"
    return Problem(413, "body-too-large", detail)
