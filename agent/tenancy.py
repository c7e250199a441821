"""What holds for a tenant: its settings laid over those of the service, the sources it may ask, its quotas."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, ValidationError, field_validator

from agent.answer import Answerer
from agent.errors import readable
from agent.intent.reader import Cascade
from agent.languages import check_language
from agent.llm import Messages, Model, Reply
from agent.pipeline import Pipeline
from agent.rerank.llm import ListwiseReranker
from agent.settings import Settings, check_time_zone
from agent.tokens import estimate_tokens
from agent.types import Shape
from retrievers import registry
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable, listing
from retrievers.core.tasks import within
from retrievers.core.types import Retriever
from retrievers.ingest.run import check_name
from retrievers.postgres.database import Database
from retrievers.postgres.tenants import NAMES, OWN, QuotaUsedUp, Rules, State, Tenants

MOST_PER_DAY = 10**15
_GATHER_S, _REST_S, _WRITE_S, _DRAIN_S = 0.25, 5.0, 2.0, 3.0
"""How long use is gathered before it is written; how long a database that fails is left alone; how long it may take."""

_log = logging.getLogger(__name__)

told: ContextVar[list[State] | None] = ContextVar("told", default=None)
"""Where a door wants to know the states of the tenants that its request is counted for, it sets a list."""


def sources_for(sources: Mapping[str, Retriever], rules: Rules) -> Mapping[str, Retriever]:
    """The sources that a request may be put to: the one place where that is decided."""
    if rules.sources is None:
        return sources
    return {name: source for name, source in sources.items() if name in rules.sources}


def known_sources(settings: Settings) -> tuple[str, ...]:
    """Names that a tenant's sources may have, whether the service has such a source now or not."""
    return registry.names()


def settings_for(settings: Settings, rules: Rules) -> Settings:
    """The settings of the service with the tenant's in their place."""
    own = {name: getattr(rules, name) for name in OWN if name in Settings.model_fields}
    own = {name: value for name, value in own.items() if value is not None}
    return settings.model_copy(update=own) if own else settings


class TenantChanges(Shape):
    """Settings of a tenant. Those that are left out stay as they are, null is as the service says again."""

    sources: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100)], ...] | None,
        Field(min_length=1, max_length=100, description="names of sources that may be asked, between commas"),
    ] = None
    time_zone: Annotated[
        str | None, Field(max_length=100, description="a time zone, such as Asia/Shanghai or Europe/Berlin")
    ] = None
    week_start: Annotated[int | None, Field(ge=0, le=6, description="0 (Monday) to 6 (Sunday)")] = None
    fiscal_year_start: Annotated[
        int | None, Field(ge=1, le=12, description="a month, 1 (January) to 12 (December)")
    ] = None
    collection: Annotated[str | None, Field(min_length=1, max_length=128, description="the name of a collection")] = (
        None
    )
    language: Annotated[str | None, Field(max_length=100, description="a code of ISO 639-1, such as en or zh")] = None
    questions_per_day: Annotated[
        int | None, Field(ge=0, le=MOST_PER_DAY, description=f"a whole number from 0 to {MOST_PER_DAY}")
    ] = None
    tokens_per_day: Annotated[
        int | None, Field(ge=0, le=MOST_PER_DAY, description=f"a whole number from 0 to {MOST_PER_DAY}")
    ] = None

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, value: str | None) -> str | None:
        return value if value is None else check_time_zone(value)

    @field_validator("language")
    @classmethod
    def _language(cls, value: str | None) -> str | None:
        return check_language(value)

    @field_validator("collection")
    @classmethod
    def _collection(cls, value: str | None) -> str | None:
        try:
            if value is not None:
                check_name(value)
        except BadRequest as error:
            raise ValueError(str(error)) from None
        return value

    def checked(self, settings: Settings) -> dict[str, Any]:
        """The changes by name.

        Raises:
            BadRequest: there is no source of a name.
        """
        valid = known_sources(settings)
        if unknown := [name for name in self.sources or () if name not in valid]:
            what = f"sources: there is no source {listing(unknown)}; there are: {listing(valid, len(valid))}"
            raise BadRequest(what, where="sources", valid=valid)
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return given if self.sources is None else given | {"sources": list(dict.fromkeys(self.sources))}


def read_changes(pairs: Sequence[str]) -> TenantChanges:
    """The changes of a command line, KEY=VALUE each; an empty value is as the service says again.

    Raises:
        BadRequest: one line that names the valid keys, or the valid values of a key.
    """
    given: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in NAMES:
            what = f'there is no setting "{key[:80]}" of a tenant' if equals else f'"{pair[:80]}" is not KEY=VALUE'
            raise BadRequest(f"{what}; there are: {listing(NAMES)}", where=key[:80], valid=NAMES)
        if key in given:
            raise BadRequest(f"{key} is there twice", where=key)
        given[key] = value.strip() or None
    if given.get("sources"):
        given["sources"] = tuple(filter(None, map(str.strip, given["sources"].split(","))))
    try:
        return TenantChanges.model_validate(given)
    except ValidationError as error:
        problem = readable(error)
        wanted = TenantChanges.model_fields[problem.where.partition(".")[0]].description
        raise BadRequest(f"{problem}; wanted is {wanted}", where=problem.where) from None


def shown(tenant: str, state: State, settings: Settings, sources: Sequence[str]) -> dict[str, Any]:
    """A tenant's settings as set (null where the service's hold), as they hold, and its use of today.

    Args:
        settings: those of the service.
        sources: of the service.
    """
    own, use = asdict(state.rules), state.use
    holds = settings_for(settings, state.rules)
    in_force = own | {name: getattr(holds, name) for name in OWN if name in Settings.model_fields}
    allowed = state.rules.sources
    in_force["sources"] = [name for name in sources if allowed is None or name in allowed]
    assert use is not None
    return {"tenant": tenant, "settings": own, "in_force": in_force, "use": use._asdict()}


@dataclass(slots=True)
class Account:
    """Tokens that the model calls of one request have taken and that are not written down yet."""

    tokens: int = 0

    def taken(self) -> int:
        """The tokens; they are the caller's to write down."""
        tokens, self.tokens = self.tokens, 0
        return tokens


@dataclass(frozen=True, slots=True)
class _Metered:
    """A model whose tokens go on an account, also of calls that nobody waits for to their end."""

    model: Model
    account: Account

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
        """Count what the server says it used, or an estimate where it says nothing."""
        used = reply.usage.prompt_tokens + reply.usage.completion_tokens if reply is not None else 0
        asked = "\n".join(str(one.get("content") or "") for one in messages)
        self.account.tokens += used or estimate_tokens(asked) + estimate_tokens(text)

    async def probe(self, deadline: float) -> str:
        return await self.model.probe(deadline)

    async def aclose(self) -> None:
        """The model outlives the request."""


def _may_have_cost(error: BaseException) -> bool:
    """Whether a model may have worked on a call that failed or was given up: not where nobody could be asked."""
    return not isinstance(error, BadRequest) and getattr(error, "fault", "") != "down"


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts of the service as one request of a tenant has them."""

    tenant: str
    state: State
    settings: Settings
    pipeline: Pipeline
    answerer: Answerer
    account: Account = field(default_factory=Account)


def desk_for(tenant: str, state: State, pipeline: Pipeline, answerer: Answerer) -> Desk:
    """The parts with the tenant's settings, its sources alone, and a model that is counted.

    Args:
        pipeline, answerer: of the service.
    """
    rules, account = state.rules, Account()
    settings = settings_for(pipeline.settings, rules)
    sources = sources_for(pipeline.sources, rules)
    # Also names that are no sources of the service now: a question may seem to need the web where none is connected.
    withheld = frozenset() if rules.sources is None else frozenset({*known_sources(settings), *pipeline.sources})
    withheld -= frozenset(rules.sources or ())

    def metered(model: Model | None) -> Model | None:
        return _Metered(model, account) if model is not None else None

    reader, reranker = pipeline.reader, pipeline.reranker
    if isinstance(reader, Cascade):
        reader = replace(
            reader,
            settings=settings,
            cards={name: card for name, card in reader.cards.items() if name not in withheld},
            model=metered(reader.model),
            columns=None if "sql" in withheld else reader.columns,
            withheld=withheld,
        )
    if isinstance(reranker, ListwiseReranker):
        reranker = replace(reranker, model=_Metered(reranker.model, account))
    chooser = replace(pipeline.chooser, sources=sources) if pipeline.chooser is not None else None
    own = replace(
        pipeline,
        settings=settings,
        sources=sources,
        reader=reader,
        chooser=chooser,
        reranker=reranker,
        model=metered(pipeline.model),
        withheld=withheld,
        changed=state.changed,
        default_collection=rules.collection,
    )
    mine = replace(answerer, settings=settings_for(answerer.settings, rules), model=metered(answerer.model))
    return Desk(tenant, state, settings, own, mine, account)


class Tenancy:
    """Lets requests of tenants in and writes down what they use; open between `async with`.

    A quota is counted before a request is answered, in the statement that reads the tenant's settings. Where there is
    none, use is gathered and written a moment later.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self.tenants = Tenants(database, settings.time_zone)
        self._pending: dict[str, tuple[int, int]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await within(self.flush(), _DRAIN_S)
        except (TimeoutError, ConnectionAbortedError, RetrievalError, OSError):
            _log.warning("the use of %d tenants could not be written down", len(self._pending))
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def admit(self, tenant: str) -> State:
        """What holds for a request, which is counted; raises as `Tenants.admit`."""
        listeners = told.get()
        try:
            state = await self.tenants.admit(tenant)
        except QuotaUsedUp as error:
            if listeners is not None:
                listeners.append(error.state)
            raise
        if state.use is None:
            self._note(tenant, 1, 0)
        elif listeners is not None:
            listeners.append(state)
        return state

    async def settle(self, desk: Desk) -> None:
        """Write down the tokens of a request: before its answer ends where there is a quota of them."""
        if not (tokens := desk.account.taken()):
            return
        if desk.state.rules.tokens_per_day is not None:
            try:
                await within(self.tenants.note(desk.tenant, 0, tokens), _WRITE_S)
                return
            except (TimeoutError, ConnectionAbortedError, Unavailable, OSError):
                pass  # written when the database is there again
        self._note(desk.tenant, 0, tokens)

    def leave(self, desk: Desk) -> None:
        """A request has ended, however it has: what is not written down yet will be."""
        if tokens := desk.account.taken():
            self._note(desk.tenant, 0, tokens)

    async def state(self, tenant: str) -> State:
        """The rules of a tenant and its use of today, with all that this process has counted."""
        await self.flush()
        return await self.tenants.state(tenant)

    async def flush(self) -> None:
        """Write down what was gathered.

        Raises:
            Unavailable: the database cannot be asked; nothing is lost.
        """
        async with self._flushing:
            while self._pending:
                tenant, (questions, tokens) = self._pending.popitem()
                try:
                    await self.tenants.note(tenant, questions, tokens)
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
                await within(self.flush(), _WRITE_S)
            except (TimeoutError, ConnectionAbortedError, RetrievalError, OSError):
                await asyncio.sleep(_REST_S)
