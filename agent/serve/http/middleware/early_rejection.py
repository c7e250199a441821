"""Reject requests early: a request that would get a 503 anyway gets it before it is parsed (`admission` decides)."""

import asyncio
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from functools import lru_cache
from typing import TYPE_CHECKING

from agent.serve.http import problems
from agent.serve.http.middleware import request_checks
from agent.serve.http.middleware.admission import overloaded_problem
from agent.serve.http.middleware.observability import UNMATCHED, matching_route

if TYPE_CHECKING:
    from fastapi import FastAPI

    from agent.serve.authentication import RecentTenants
    from agent.serve.http.middleware.admission import Gates
    from agent.serve.http.middleware.observability import Observability

# The request line that almost all clients send. Any other goes to the HTTP parser and is rejected more slowly.
_PLAIN = re.compile(rb"(GET|POST|PUT|DELETE) (/[A-Za-z0-9/._~-]{0,500})(?:\?[!-~]{0,2000})? HTTP/1\.1\r\n")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_READ = frozenset({b"host", b"authorization", b"content-length", b"connection", b"x-request-id"})
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_CLOSE = (b"connection", b"close")
_ID = "0" * 32
_REPORT_AFTER_S = 1.0

_log = logging.getLogger("signalbox.http")


class EarlyRejection:
    """Answers a complete request with a 503 if there is no room for it, at a fraction of the normal cost.

    A normal rejection costs about a millisecond, so ten times more requests than can be processed would leave no time
    for processing any. Here only the Authorization header and the end of the request are parsed. If either is
    uncertain, or the header is not in `recent_tenants`, the request is parsed and judged normally. No key is checked
    here, so this code can reject requests but not admit them.

    Args:
        recent_tenants: the tenants of recent Authorization headers.
        is_open: returns whether a path is open to everyone.
    """

    def __init__(
        self,
        app: "FastAPI",
        gates: "Gates",
        observability: "Observability",
        *,
        recent_tenants: "RecentTenants",
        is_open: Callable[[str], bool],
    ) -> None:
        self._app, self._gates, self._metrics = app, gates, observability.metrics
        self._recent_tenants, self._is_open = recent_tenants, is_open
        self._unreported = 0
        # Callers choose the paths that are the keys of these caches, so the size is limited.
        self._route = lru_cache(1000)(matching_route)
        self._answer = lru_cache(1000)(self._build_response)

    def rejection(self, data: bytes, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bool] | None:
        """Return a 503 if `data`, received on an idle connection, is a request to reject; None to parse it normally.

        Args:
            headers: the server's default headers, added to the answer.
        Returns:
            The bytes of the answer, and whether the connection must be closed after them.
        """
        if not self._gates.may_reject:
            return None
        found = _parse_plain_request(data)
        if found is None:
            return None
        method, path, sent = found
        tenant = self._recent_tenants.tenant(sent.get(b"authorization", b""))
        gate = self._gates.gate_for(method, path, int(sent.get(b"content-length", b"0")))
        if tenant is None or self._is_open(path) or gate.has_room(tenant):
            return None
        gate.record_rejection(tenant)
        self._count_rejection(method, path)
        given = sent.get(b"x-request-id", b"").decode("latin-1")
        id = given if request_checks.is_safe_request_id(given) else uuid.uuid4().hex
        head, body = self._answer(path)
        body = body.replace(_ID.encode(), id.encode())
        sent_too = [*headers]
        if sent.get(b"connection", b"").lower() == b"close" and _CLOSE not in sent_too:
            sent_too.append(_CLOSE)
        header_lines = b"".join(b"%s: %s\r\n" % header for header in sent_too)
        ends = b"x-request-id: %s\r\ncontent-length: %d\r\n\r\n%s" % (id.encode(), len(body), body)
        return head + header_lines + ends, _CLOSE in sent_too

    def _build_response(self, path: str) -> tuple[bytes, bytes]:
        """Return head and body of the 503 in the error form of the path, with `_ID` in place of the request's id."""
        scope = {"path": path, "app": self._app, "state": {"request_id": _ID}}
        answer = problems.problem_response(scope, overloaded_problem())
        request_checks.add_default_headers(answer.headers)
        lines = (b"%s: %s\r\n" % one for one in answer.raw_headers if one[0] != b"content-length")
        return b"".join([b"HTTP/1.1 503 Service Unavailable\r\n", *lines]), bytes(answer.body)

    def _count_rejection(self, method: str, path: str) -> None:
        self._metrics.record_request(method, self._route(path, self._app) or UNMATCHED, 503, 0.0)
        if not self._unreported:
            # One line per rejection would cost more than the rejections. The timer runs in an empty context, because
            # data may arrive in the context of an earlier request.
            asyncio.get_running_loop().call_later(_REPORT_AFTER_S, self._report, context=Context())
        self._unreported += 1

    def _report(self) -> None:
        fields = {"status": 503, "requests": self._unreported}
        _log.warning("too many requests at once: rejected before parsing", extra={"fields": fields})
        self._unreported = 0


def _parse_plain_request(data: bytes) -> tuple[str, str, Mapping[bytes, bytes]] | None:
    """Return the method, the path and the headers in `_READ` of a request; None if it is incomplete or unusual."""
    plain = _PLAIN.match(data)
    head, end, body = data.partition(b"\r\n\r\n")
    if plain is None or not end:
        return None
    sent: dict[bytes, bytes] = {}
    for line in head[plain.end() :].split(b"\r\n"):
        header = _HEADER.fullmatch(line)
        if header is None:
            return None
        name, value = header[1].lower(), header[2]
        if name in _UNUSUAL or name in sent:
            return None
        if name in _READ:
            sent[name] = value.strip(b" \t")
    length = sent.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 9 or int(length) != len(body):
        return None
    if b"host" not in sent or sent.get(b"connection", b"close").lower() not in (b"keep-alive", b"close"):
        return None
    return plain[1].decode(), plain[2].decode(), sent
