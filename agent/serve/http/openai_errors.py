"""Errors in the form that OpenAI's clients read, with the status that makes them raise the right exception."""

import json

from fastapi import Response

from agent.serve.http.problems import Problem

_CODES = {"unauthenticated": "invalid_api_key"}


def as_openai(problem: Problem) -> Response:
    """The problem as OpenAI's API answers it: what it calls invalid is a 400 there."""
    status = 400 if problem.status == 422 else problem.status
    return Response(json.dumps({"error": error_of(problem)}), status, problem.headers, media_type="application/json")


def error_of(problem: Problem) -> dict[str, str | None]:
    """`message`, `type`, `param` and `code` of a problem."""
    kind = "server_error" if problem.status >= 500 else "invalid_request_error"
    return {
        "message": problem.detail,
        "type": "rate_limit_error" if problem.status == 429 else kind,
        "param": problem.errors[0].where if problem.errors else None,
        "code": _CODES.get(problem.kind) or problem.kind.replace("-", "_"),
    }
