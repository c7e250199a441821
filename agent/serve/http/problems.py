"""Turn every error of the HTTP API into RFC 9457 `application/problem+json`."""

import asyncio
import errno
import json
import logging
import math
import re
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Scope

from agent.errors import error_path, simplify_message
from agent.serve.authentication import Forbidden, MissingKey, Unauthenticated
from agent.serve.http.schemas import FailedDocument
from retrievers.core.errors import BadRequest, EmbedderMismatch, NotFound, QuotaUsedUp, RetrievalError, Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.ingest.readers.text_cleaning import plain_line

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:signalbox:problem:"
_QUOTED = re.compile(r"'([^']*)'")
_LONGEST_NAME = 80
_MOST_ERRORS = 20

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())


class ProblemError(BaseModel):
    """One error in a request."""

    where: str = Field(description="the wrong field, as a dotted path", examples=["filter.filters.0.key"])
    detail: str = Field(description="the fault of the field")
    valid: list[str] | None = Field(None, description="the valid values, if the list is short")


class ProblemBody(BaseModel):
    """An error in the form of RFC 9457."""

    type: str = Field(description="URI of the kind of problem", examples=[f"{_TYPE}invalid-request"])
    title: str
    status: int
    detail: str = Field(description="the fault, its place and the remedy")
    request_id: str = Field(description="the X-Request-ID of the request, to find it in the log")
    errors: list[ProblemError] | None = Field(None, description="the faults of the request, one by one")
    job_id: str | None = Field(None, description="id of the ingestion job that stored nothing or is not done")
    failed: list[FailedDocument] | None = Field(None, description="the failed documents, with the reasons")


class Problem(Exception):
    """An error response.

    Args:
        kind: last part of the problem's type; a stable name ("malformed-json").
        detail: what is wrong and what to do, in one line.
        errors: the invalid fields.
        job_id, failed: the id and the failed documents of an ingestion job that stored nothing or is not done.

    The texts may quote names from the request, so they are cleaned here, for every error form.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Iterable[ProblemError] = (),
        headers: Mapping[str, str] | None = None,
        job_id: str | None = None,
        failed: Iterable[FailedDocument] = (),
    ) -> None:
        detail = plain_line(detail)
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.errors, self.headers = tuple(map(_cleaned, errors)), dict(headers or {})
        self.job_id, self.failed = job_id, tuple(failed)


ErrorFormatter = Callable[[Problem], Response]
"""Turns a problem into a response in the error form of another API."""


def field_problem(where: str, detail: str, valid: Iterable[str] = ()) -> Problem:
    """Return a 422 for one field."""
    error = ProblemError(where=where, detail=detail, valid=list(valid) or None)
    return Problem(422, "invalid-request", f"{where}: {detail}" if where else detail, errors=[error])


def problem_of(error: Exception | CancelledError) -> Problem:
    """Return the problem for an error. An unexpected error becomes a 500 without details."""
    match error:
        case Problem():
            return error
        case NotFound():
            return Problem(404, "not-found", str(error), errors=_errors_of(error))
        case EmbedderMismatch():
            return Problem(409, "embedder-mismatch", str(error), errors=_errors_of(error))
        case BadRequest():
            return Problem(422, "invalid-request", str(error), errors=_errors_of(error))
        case QuotaUsedUp():
            # Retrying earlier does not help; OpenAI's clients read the second header.
            headers = {"Retry-After": str(math.ceil(error.retry_after_s) or 1), "X-Should-Retry": "false"}
            return Problem(429, "quota-used-up", str(error), headers=headers)
        case Unavailable():
            return unavailable_problem(str(error), error.retry_after_s)
        case Unauthenticated():
            detail = str(error) or "send an API key: Authorization: Bearer KEY"
            headers = {"WWW-Authenticate": 'Bearer realm="signalbox"'}
            errors = (
                [ProblemError(where="Authorization", detail=detail, valid=None)]
                if isinstance(error, MissingKey)
                else []
            )
            return Problem(401, "unauthenticated", detail, errors=errors, headers=headers)
        case Forbidden():
            return Problem(403, "forbidden", str(error))
        case ValidationError() | RequestValidationError():
            return validation_problem(error)
        case HTTPException():
            kind = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
            return Problem(error.status_code, kind, str(error.detail), headers=error.headers)
        case CancelledError():
            # The client is still connected: the server stops and its grace period is over.
            return stopping_problem()
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return unavailable_problem("the service has no free file descriptor; try again", 2)
        case _:
            return Problem(500, "internal", "the service failed; its log has the error under the request id")


def logged_problem(error: Exception | CancelledError, log: logging.Logger, message: str, *values: object) -> Problem:
    """Return the problem of an error. Log an internal error with a traceback, a lack of file descriptors in one line.

    Args:
        log, message, values: the log line of an internal error.
    """
    problem = problem_of(error)
    if isinstance(error, OSError) and problem.status == 503:
        _log.warning("requests fail: %s", error.strerror)
    elif problem.status == 500:
        log.error(message, *values, exc_info=error)
    return problem


def unavailable_problem(detail: str, retry_after_s: float | None = None, *, kind: str = "unavailable") -> Problem:
    """Return a 503 with Retry-After in whole seconds, at least 1."""
    return Problem(503, kind, detail, headers={"Retry-After": str(max(1, math.ceil(retry_after_s or 1)))})


def stopping_problem() -> Problem:
    """Return the 503 of a stopping server."""
    return unavailable_problem("the service is stopping", 5, kind="stopping")


def validation_problem(
    error: ValidationError | RequestValidationError, body_model: type[BaseModel] | None = None, given: object = None
) -> Problem:
    """Return a 422 with pydantic's errors by field; the input is never quoted.

    Args:
        body_model: the body's model; its keys are listed if the body has an unknown key.
        given: the body. With it, the types of unions that pydantic adds to the paths of fields are left out.
    """
    # pydantic returns all errors at once, perhaps a hundred thousand: report the first `_MOST_ERRORS` fields.
    errors = [(one["loc"] if given is None else error_path(one, given), one) for one in error.errors()]
    # An error inside a value shows which type of a union was meant. Drop the errors at the value itself: they come from
    # the other types.
    outer = {tuple(place[:length]) for place, _ in errors for length in range(len(place))}
    errors = [(place, one) for place, one in errors if tuple(place) not in outer]
    by_place: dict[tuple[int | str, ...], ProblemError] = {}
    for place, one in errors:
        if place in by_place:  # from another type of the same union
            by_place[place].detail += f", or {simplify_message(one['msg'])}"
        elif len(by_place) < _MOST_ERRORS:
            by_place[place] = _readable(one, place, body_model)
    found = list(by_place.values())
    others = len({place for place, _ in errors}) - 1
    more = f" (and {others} more)" if others else ""
    return Problem(422, "invalid-request", f"{found[0].where}: {found[0].detail}{more}", errors=found)


def problem_body(problem: Problem, request_id: str) -> ProblemBody:
    """Return the problem as its JSON document."""
    return ProblemBody(
        type=_TYPE + problem.kind,
        title=HTTPStatus(problem.status).phrase,
        status=problem.status,
        detail=problem.detail,
        request_id=request_id,
        errors=list(problem.errors) or None,
        job_id=problem.job_id,
        failed=list(problem.failed) or None,
    )


def problem_response(scope: Scope, problem: Problem) -> Response:
    """Return the problem as a response, in the error form of the path."""
    form = error_formatter_for(scope["path"], scope["app"].state.error_formatters)
    if form is not None:
        return form(problem)
    body = problem_body(problem, scope.get("state", {}).get("request_id", ""))
    # Keep a null id of a failed document, as in a successful answer.
    failed = {"failed": [one.model_dump() for one in problem.failed]} if problem.failed else {}
    # A quoted name may hold half of a surrogate pair; JSON escapes can still encode it.
    text = json.dumps(body.model_dump(exclude_none=True, exclude={"failed"}) | failed)
    return Response(text, problem.status, problem.headers, MEDIA_TYPE)


def error_formatter_for(path: str, forms: Mapping[str, ErrorFormatter]) -> ErrorFormatter | None:
    """Return the function that writes errors for a path; None if the path answers with problem documents.

    Args:
        forms: the functions, by the beginning of the paths that they serve.
    """
    return next((form for beginning, form in forms.items() if path.startswith(beginning)), None)


def install_error_handlers(app: FastAPI) -> None:
    """Register handlers that answer expected errors with a problem. `RequestContextMiddleware` handles the others."""

    async def answer(request: Request, error: Exception) -> Response:
        problem = problem_of(error)
        if problem.failed:
            return await asyncio.to_thread(problem_response, request.scope, problem)  # there may be thousands
        return problem_response(request.scope, problem)

    async def no_route(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        what = f"{request.method} {printable_name(request.url.path)}"
        if error.status_code == 404:
            error = Problem(404, "not-found", f"there is no {what}; /openapi.json lists the endpoints")
        elif error.status_code == 405:
            path = request.scope["path"]
            routes = (route for route in app.state.routes if route.path_regex.match(path))
            found = {method for route in routes for method in route.methods or ()}
            allowed = ", ".join(sorted(found)) or (error.headers or {}).get("Allow", "")
            error = Problem(405, "method-not-allowed", f"{what}: use {allowed}", headers={"Allow": allowed})
        return problem_response(request.scope, problem_of(error))

    for kind in (Problem, RetrievalError, Unauthenticated, Forbidden, RequestValidationError):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(HTTPException, no_route)


def printable_name(name: object) -> str:
    """Return a name from a request for use in a response: at most 80 characters, unprintable ones replaced."""
    text = str(name)
    shown = "".join(one if one.isprintable() else "\ufffd" for one in text[:_LONGEST_NAME])
    return shown + "…" * (len(text) > _LONGEST_NAME)


def _cleaned(error: ProblemError) -> ProblemError:
    valid = [plain_line(name) for name in error.valid] if error.valid is not None else None
    return ProblemError(where=plain_line(error.where), detail=plain_line(error.detail), valid=valid)


def _errors_of(error: BadRequest) -> list[ProblemError]:
    if not error.where:
        return []
    return [ProblemError(where=error.where, detail=str(error), valid=list(error.valid) or None)]


def _readable(found: Any, place: tuple[int | str, ...], body_model: type[BaseModel] | None) -> ProblemError:
    where = ".".join(printable_name(part) for part in place) or "body"
    detail = simplify_message(found["msg"])
    valid: list[str] | None = None
    if found["type"] == "extra_forbidden":
        detail = "there is no such key"
        valid = list(body_model.model_fields) if body_model is not None and len(place) == 1 else None
    elif found["type"] == "literal_error":
        valid = _QUOTED.findall(found["ctx"]["expected"])
    return ProblemError(where=where, detail=detail, valid=valid)
