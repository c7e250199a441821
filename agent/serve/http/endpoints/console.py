"""Serve the web console: the page at `/` and its files, under a policy that blocks content from other hosts."""

from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from agent.serve.http.problems import Problem

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    # The browser revalidates each time, so an upgrade of the service shows at the next visit.
    "Cache-Control": "no-cache",
}
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def router() -> APIRouter:
    """Return the routes of the page and its files. They are not part of the API, so not in the OpenAPI document."""
    routes = APIRouter(include_in_schema=False)
    routes.get("/")(page)
    routes.get("/console/{name}")(asset)
    return routes


async def page() -> Response:
    """Return the page."""
    return _file_response("index.html")


async def asset(name: str) -> Response:
    """Return one of the page's files."""
    return _file_response(name)


def _file_response(name: str) -> Response:
    content = _console_files().get(name)
    if content is None:
        raise Problem(404, "not-found", "the console has no such file")
    kind = _TYPES[name[name.rindex(".") :]]
    return Response(content, headers=_HEADERS, media_type=kind)


@cache
def _console_files() -> dict[str, bytes]:
    """Return all files by name. A request path is only used as a key here, never as a file path."""
    folder = files("agent.serve").joinpath("console")
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name.endswith(tuple(_TYPES))}
