"""Errors in OpenAI's form, with the status for which its clients raise the matching exception."""

import json

from fastapi import Response

from agent.serve.http.problems import Problem

_CODES = {"unauthenticated": "invalid_api_key"}


def openai_error(problem: Problem) -> Response:
    """Return the problem as a response in OpenAI's form; a 422 becomes a 400."""
    status = 400 if problem.status == 422 else problem.status
    return Response(
        json.dumps({"error": openai_error_fields(problem)}), status, problem.headers, media_type="application/json"
    )


def openai_error_fields(problem: Problem) -> dict[str, str | None]:
    """Return `message`, `type`, `param` and `code` of a problem."""
    kind = "server_error" if problem.status >= 500 else "invalid_request_error"
    return {
        "message": problem.detail,
        "type": "rate_limit_error" if problem.status == 429 else kind,
        "param": problem.errors[0].where if problem.errors else None,
        "code": _CODES.get(problem.kind) or problem.kind.replace("-", "_"),
    }
