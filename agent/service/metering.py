"""Metering: count the questions of each tenant when they are admitted, and the tokens of each model call."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel

from agent.llm.model import Messages, Model, Reply
from agent.llm.token_estimates import estimate_tokens
from retrievers.core.errors import BadRequest, QuotaUsedUp, Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.timeouts import wait_within
from retrievers.postgres.accounts.tenants import Tenants, TenantState
from retrievers.postgres.connections.database import Database

_GATHER_S, _REST_S, _WRITE_S, _DRAIN_S = 0.25, 5.0, 2.0, 3.0
"""In seconds: time to collect usage before a write, pause after a failed write, limit of one write, limit of the last
write when the service closes."""

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())

admitted_states: ContextVar[list[TenantState] | None] = ContextVar("admitted_states", default=None)
"""List to which `Metering.admit` adds the state of each tenant with a quota. A request handler sets it; else None."""


@dataclass(slots=True)
class TokenAccount:
    """The token account of one request.

    Attributes:
        state: the tenant's settings and usage when the request began.
        tokens: tokens that its model calls have used and that are not yet in the database.
    """

    tenant: str
    state: TenantState
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class MeteredModel:
    """A model that adds the tokens of its calls to an account, even if a call fails or is abandoned."""

    model: Model
    account: TokenAccount

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        try:
            reply = await self.model.complete(messages, stage=stage, deadline=deadline, key=key, schema=schema)
        except BaseException as error:
            if _may_have_cost(error):
                self._count(messages, "")
            raise
        self._count(messages, reply.text, reply)
        return reply

    async def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        said: list[str] = []
        reply: Reply | None = None
        try:
            stream = self.model.stream(messages, stage=stage, deadline=deadline, key=key, options=options)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        reply = piece
                        self._count(messages, piece.text, piece)
                    else:
                        said.append(piece)
                    yield piece
        except BaseException as error:
            if reply is None and (said or _may_have_cost(error)):
                self._count(messages, "".join(said))
            raise

    def _count(self, messages: Messages, text: str, reply: Reply | None = None) -> None:
        """Add to the account the tokens that the server reports, or an estimate if it reports none.

        Args:
            text: the text that the model has written; may be incomplete.
            reply: the complete reply; None if the call failed or was abandoned.
        """
        used = reply.usage.prompt_tokens + reply.usage.completion_tokens if reply is not None else 0
        asked = "\n".join(str(one.get("content") or "") for one in messages)
        self.account.tokens += used or estimate_tokens(asked) + estimate_tokens(text)

    async def probe(self, deadline: float) -> str:
        return await self.model.probe(deadline)

    async def aclose(self) -> None:
        """Do nothing: the model is shared and outlives the request."""


def _may_have_cost(error: BaseException) -> bool:
    """Return whether a failed or abandoned model call may have used tokens.

    False if the request was invalid or the server is down.
    """
    return not isinstance(error, BadRequest) and getattr(error, "fault", "") != "down"


class Metering:
    """Admits requests of tenants, and stores how many questions and tokens they use. Open inside `async with`.

    If the tenant has a quota, the statement that reads its settings also counts the question, before it is answered.
    Otherwise usage is collected in memory and written to the database a quarter of a second later.

    Args:
        zone: time zone of tenants that have set none.
    """

    def __init__(self, database: Database, zone: str = "UTC") -> None:
        self.tenants = Tenants(database, zone)
        self._pending: dict[str, tuple[int, int]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await wait_within(self.flush(), _DRAIN_S)
        except Exception as failed:
            _log.warning("cannot store the last usage of the tenants: %s", type(failed).__name__)
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def admit(self, tenant: str) -> TokenAccount:
        """Count a question of a tenant and return the account of its request.

        Raises:
            QuotaUsedUp: the tenant has used up its quota for today; nothing was counted.
            Unavailable: the database cannot be reached, or cannot count.
        """
        state = await self.tenants.admit(tenant)
        if state.use is None:
            self._note(tenant, 1, 0)
        elif (listeners := admitted_states.get()) is not None:
            listeners.append(state)
        if state.refused:
            raise _used_up(state)
        return TokenAccount(tenant, state)

    async def settle(self, account: TokenAccount) -> None:
        """Write the tokens of a request to the database if its tenant has a token quota.

        Called before the answer ends, so that the quota check of the tenant's next question includes these tokens.
        Without a quota, or if writing fails, `release` has the tokens written later.
        """
        tokens = account.tokens
        if tokens and account.state.rules.tokens_per_day is not None:
            with suppress(TimeoutError, ConnectionAbortedError, Unavailable, OSError):
                await wait_within(self.tenants.add_usage(account.tenant, 0, tokens), _WRITE_S)
                account.tokens -= tokens

    def count_tokens(self, tenant: str, tokens: int) -> None:
        """Count the tokens of a model call that belongs to no request."""
        self._note(tenant, 0, tokens)

    def release(self, account: TokenAccount) -> None:
        """End a request, however it ended, and schedule the writing of its remaining tokens."""
        if account.tokens:
            self._note(account.tenant, 0, account.tokens)

    async def state(self, tenant: str) -> TenantState:
        """Return a tenant's settings and today's usage. Usage collected in memory is first written, if possible."""
        with suppress(Unavailable):
            await self.flush()
        return await self.tenants.state(tenant)

    async def flush(self) -> None:
        """Write the collected usage of all tenants to the database.

        Raises:
            Unavailable: the database cannot be reached; usage that was not written stays collected.
        """
        async with self._flushing:
            while self._pending:
                tenant, (questions, tokens) = self._pending.popitem()
                try:
                    await self.tenants.add_usage(tenant, questions, tokens)
                except BaseException:
                    self._add(tenant, questions, tokens)
                    raise

    def _note(self, tenant: str, questions: int, tokens: int) -> None:
        self._add(tenant, questions, tokens)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    def _add(self, tenant: str, questions: int, tokens: int) -> None:
        before = self._pending.get(tenant, (0, 0))
        self._pending[tenant] = (before[0] + questions, before[1] + tokens)

    async def _write(self) -> None:
        while self._pending:
            await asyncio.sleep(_GATHER_S)
            try:
                await wait_within(self.flush(), _WRITE_S)
            except Exception as error:
                _log.warning("cannot store the usage of the tenants now, will try again: %s", type(error).__name__)
                await asyncio.sleep(_REST_S)


def _used_up(state: TenantState) -> QuotaUsedUp:
    rules, use = state.rules, state.use
    assert use is not None
    used = [("questions", use.questions, rules.questions_per_day), ("tokens", use.tokens, rules.tokens_per_day)]
    said = " and ".join(f"{most:,} {what} a day" for what, n, most in used if most is not None and n >= most)
    ends_at = use.ends_at.isoformat(timespec="seconds")
    what = f"the daily quota of this tenant is used up ({said}); it starts again at {ends_at}"
    return QuotaUsedUp(what, use.ends_at)
