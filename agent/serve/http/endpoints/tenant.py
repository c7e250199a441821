"""The tenant's settings and usage, and the quota headers of every answer."""

from datetime import date, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.serve.authentication import Caller, Forbidden
from agent.serve.http.dependencies import CallerDep, ServiceDep, WriterDep
from agent.serve.http.endpoints.native import json_response, openapi_response
from agent.serve.http.json_body import JsonBody
from agent.service import metering
from agent.service.tenancy import TenantChanges
from retrievers.postgres.accounts.tenants import SELF_SERVICE_SETTINGS, TenantState


class TenantValues(BaseModel):
    """Settings of a tenant; the sources are in the service's order."""

    sources: list[str] | None
    time_zone: str | None
    week_start: int | None
    fiscal_year_start: int | None
    collection: str | None
    language: str | None
    questions_per_day: int | None
    tokens_per_day: int | None


class TenantUse(BaseModel):
    """The tenant's usage in the current day, which ends at `ends_at`."""

    day: date
    questions: int
    tokens: int
    ends_at: datetime


class CallerBody(BaseModel):
    """What the caller may do: `trusted` callers may state other `principals` to read as, `writes` also stores."""

    principals: list[str]
    trusted: bool
    writes: bool


class TenantBody(BaseModel):
    """A tenant: `settings` as set (null: the service's), `in_force` the effective values (null: no value)."""

    tenant: str
    settings: TenantValues
    in_force: TenantValues
    use: TenantUse
    caller: CallerBody


_EXAMPLE = {"time_zone": "Asia/Shanghai", "week_start": 6, "fiscal_year_start": 4, "language": "zh"}


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["tenant"])
    routes.get("/tenant", responses=openapi_response(TenantBody))(get_tenant)
    routes.put("/tenant", responses=openapi_response(TenantBody))(set_tenant)
    return routes


async def get_tenant(service: ServiceDep, caller: CallerDep) -> Response:
    """Return the settings of the caller's tenant, its quotas, today's usage, and what the caller may do."""
    return _tenant_response(caller, await service.tenant(tenant=caller.viewer))


async def set_tenant(
    service: ServiceDep,
    caller: WriterDep,
    body: Annotated[TenantChanges, Depends(JsonBody(TenantChanges, example=_EXAMPLE))],
) -> Response:
    """Change settings of the caller's tenant. Missing keys stay unchanged; null resets a key to the service's setting.

    Sources and quotas can be set only by the operator, on the command line; here they give a 403.
    """
    if foreign := sorted(body.model_fields_set - set(SELF_SERVICE_SETTINGS)):
        raise Forbidden(
            f"{', '.join(foreign)}: only the operator may set this, with `signalbox tenants set`; "
            f"a key of the tenant may set {', '.join(SELF_SERVICE_SETTINGS)}"
        )
    return _tenant_response(caller, await service.change_tenant(body, tenant=caller.viewer))


def _tenant_response(caller: Caller, shown: dict[str, Any]) -> Response:
    may = CallerBody(principals=list(caller.principals), trusted=caller.trusted, writes=caller.can_write)
    return json_response(TenantBody.model_validate({**shown, "caller": may}))


class QuotaHeaderMiddleware:
    """Add the tenant's remaining quota to the headers of every answer to a question, if the tenant has a quota.

    The header names are those OpenAI's clients know; one request is one question.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        states: list[TenantState] = []

        async def send_with_quota(message: Message) -> None:
            if message["type"] == "http.response.start" and states:
                MutableHeaders(scope=message).update(quota_headers(states[-1]))
            await send(message)

        before = metering.admitted_states.set(states)
        try:
            await self._app(scope, receive, send_with_quota)
        finally:
            metering.admitted_states.reset(before)


def quota_headers(state: TenantState) -> dict[str, str]:
    """Return headers with each quota of a tenant, its remainder and the seconds until its reset; {} without quotas."""
    rules, use = state.rules, state.use
    if use is None:
        return {}
    headers = {}
    for name, most, used in (
        ("Requests", rules.questions_per_day, use.questions),
        ("Tokens", rules.tokens_per_day, use.tokens),
    ):
        if most is not None:
            headers[f"X-RateLimit-Limit-{name}"] = str(most)
            headers[f"X-RateLimit-Remaining-{name}"] = str(max(most - used, 0))
            headers[f"X-RateLimit-Reset-{name}"] = f"{use.left_s:.0f}s"
    return headers
