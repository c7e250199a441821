"""Complete the OpenAPI document with the bodies, errors and keys that FastAPI does not know of."""

from collections.abc import Callable, Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agent.serve.http import problems
from agent.serve.http.json_body import JsonBody

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/{model}"
_KEY = {"type": "http", "scheme": "bearer", "description": "an API key; it fixes the tenant"}


def describe_bodies(router: APIRouter) -> None:
    """Add the request body to every operation that reads it with a `JsonBody`."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            for body in _json_bodies(route):
                content: Json = {"schema": {"$ref": _REFERENCE.format(model=body.body_model.__name__)}}
                if body.example is not None:
                    content["example"] = body.example
                described = {"required": not body.optional, "content": {"application/json": content}}
                route.openapi_extra = {**(route.openapi_extra or {}), "requestBody": described}


def complete_openapi(app: FastAPI, routers: list[APIRouter], *, is_open: Callable[[str], bool], keys: bool) -> None:
    """Make the application's OpenAPI document list the body models, error responses and paths that need a key."""
    generated = app.openapi
    body_models = [
        body.body_model for router in routers for route in router.routes if isinstance(route, APIRoute)
        for body in _json_bodies(route)
    ]  # fmt: skip

    def openapi() -> Json:
        if app.openapi_schema is None:
            said = generated()
            schemas = said.setdefault("components", {}).setdefault("schemas", {})
            _, defined = models_json_schema(
                [
                    *((body_model, "validation") for body_model in dict.fromkeys(body_models)),
                    (problems.ProblemBody, "serialization"),
                ],
                ref_template=_REFERENCE,
            )
            for name, schema in defined.get("$defs", {}).items():
                schemas.setdefault(name, schema)
            if keys:
                said["components"]["securitySchemes"] = {"key": _KEY}
            for path, operations in said["paths"].items():
                for operation in operations.values():
                    _add_errors(
                        operation, own=problems.error_formatter_for(path, app.state.error_formatters) is not None
                    )
                    if keys and not is_open(path):
                        operation["security"] = [{"key": []}]
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_errors(operation: Json, *, own: bool) -> None:
    """Remove FastAPI's 422, which is never sent, and add the problem responses.

    Args:
        own: whether errors of the path have a form of their own, such as OpenAI's; then no problem response is added.
    """
    responses = operation["responses"]
    responses.pop("422", None)
    if own:
        return
    content = {problems.MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model=problems.ProblemBody.__name__)}}}
    responses["4XX"] = {
        "description": "the request is wrong: the fault, the field and the valid values",
        "content": content,
    }
    responses["5XX"] = {"description": "the service failed; a 503 says when to try again", "content": content}


def _json_bodies(route: APIRoute) -> Iterator[JsonBody[BaseModel]]:
    for dependency in route.dependant.dependencies:
        if isinstance(dependency.call, JsonBody):
            yield dependency.call
