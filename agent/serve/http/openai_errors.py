"""Errors as OpenAI has them, so that its clients raise the exceptions that their users know."""

from fastapi.responses import JSONResponse

from agent.serve.http.problems import Problem

_UNREADABLE = 422
_CODES = {401: "invalid_api_key", 404: "not_found", 413: "request_too_large", 429: "rate_limit_exceeded"}


def openai_error(problem: Problem) -> JSONResponse:
    """`{"error": {"message", "type", "param", "code"}}`; what is wrong with a request is a 400 there."""
    status = 400 if problem.status == _UNREADABLE else problem.status
    error = {
        "message": problem.detail,
        "type": "server_error" if status >= 500 else "invalid_request_error",
        "param": problem.errors[0].where if problem.errors else None,
        "code": _CODES.get(status, problem.kind.replace("-", "_")),
    }
    return JSONResponse({"error": error}, status, problem.headers)
