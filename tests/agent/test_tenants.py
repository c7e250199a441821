"""No tenant sees another, by whatever door; what is public everybody sees, and what is disabled nobody."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import httpx2
import psycopg
import pytest

from agent.serve.authentication import open_authenticator
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.types import Answer, Result
from retrievers.core.errors import BadRequest, NotFound, Unavailable, UnknownCollection
from retrievers.core.types import PLATFORM
from retrievers.ingest.documents import Document
from retrievers.ingest.readers.file_input import read_record
from retrievers.postgres.guard.guard import judge_statement
from retrievers.postgres.sql import execution
from retrievers.postgres.sql.view import DocumentsViews

TENANTS = ["acme", "globex", "initech", "umbrella"]
DOCUMENTS = 6
QUESTIONS = (
    "What does the turbine report say?",
    "turbines and rotors",
    "How many reports are there?",
    "List the reports by the red team",
    "Which report number is the highest?",
)


def canary(tenant: str) -> str:
    """A word that stands in all that a tenant has, and that no question asks for."""
    return f"canary{tenant}"


def documents(tenant: str, *, edition: int = 0) -> list[Document]:
    """The documents of a tenant: ids and most words are the same for all."""
    mark = canary(tenant)
    return [
        Document(
            where=str(n),
            id=f"doc-{n}",
            title=f"Report {n} {mark}",
            text=f"The turbine report number {n}, edition {edition}. {mark} says the rotor stops.",
            url=f"https://example.org/{mark}/{n}",
            metadata={"number": n, "team": "red" if n % 2 else "blue", "owner": mark, f"field_{mark}": n},
        )
        for n in range(DOCUMENTS)
    ]


def foreign(tenant: str, seen: object) -> list[str]:
    """Whose canary is in what a tenant was shown, but its own."""
    text = json.dumps(seen, default=str, ensure_ascii=False)
    return [other for other in TENANTS if other != tenant and canary(other) in text]


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4)
    async with open_service(settings) as service:
        yield service


@pytest.fixture
async def filled(service: Service) -> Service:
    """Four tenants with the collection `docs` and one of a name that only they have."""
    for tenant in TENANTS:
        await service.ingest(documents(tenant), "docs", tenant=tenant)
        await service.ingest(documents(tenant)[:1], f"of-{canary(tenant)}", tenant=tenant)
    return service


def owner_rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


class Visitor:
    """A tenant that tries every method, with its own names and with those of others."""

    def __init__(self, service: Service, tenant: str, theirs: Sequence[str], choose: random.Random) -> None:
        self._service, self._tenant, self._choose = service, tenant, choose
        self._theirs = theirs
        """Traces of other tenants."""
        self._others = [other for other in TENANTS if other != tenant]
        self.seen: list[object] = []
        self.refused = 0

    def calls(self) -> list[Callable[[], Awaitable[object]]]:
        """What can be done, each once."""
        who: dict[str, Any] = {"tenant": self._tenant}
        service, choose, other = self._service, self._choose, self._choose.choice(self._others)
        question, trace = choose.choice(QUESTIONS), choose.choice(self._theirs)
        place = f"of-{canary(other)}"
        foreign_filter = {"type": "eq", "key": "owner", "value": canary(other)}

        def refused(call: Callable[[], Awaitable[object]], kind: type[BadRequest]) -> Callable[[], Awaitable[object]]:
            async def run() -> None:
                with pytest.raises(kind):
                    await call()
                self.refused += 1

            return run

        return [
            lambda: service.retrieve(question, **who, explain=True),
            lambda: service.retrieve(question, **who, collection="docs", sources=("sql",)),
            lambda: service.retrieve(question, **who, sources=("vector",), top_k=100),
            lambda: service.retrieve(question, **who, sources=("fulltext",), top_k=100),
            lambda: service.augment(question, **who, budget_tokens=20_000),
            lambda: service.ask(question, **who),
            lambda: service.collections(**who),
            lambda: service.describe("docs", **who),
            lambda: service.document("docs", f"doc-{choose.randrange(DOCUMENTS)}", **who),
            lambda: service.recent_traces(**who),
            lambda: service.ingest(documents(self._tenant, edition=choose.randrange(9)), "docs", **who),
            self._own_trace,
            self._sql,
            refused(lambda: service.explain(trace, **who), NotFound),
            refused(lambda: service.replay(trace, **who), NotFound),
            refused(lambda: service.feedback(trace, 9, **who), NotFound),
            refused(lambda: service.describe(place, **who), UnknownCollection),
            refused(lambda: service.retrieve(question, **who, collection=place), UnknownCollection),
            refused(lambda: service.document(place, "doc-0", **who), UnknownCollection),
            refused(lambda: service.delete(place, **who), UnknownCollection),
            refused(lambda: service.delete(place, "doc-0", **who), UnknownCollection),
            lambda: self._nothing(filter=foreign_filter),
        ]

    async def visit(self, call: Callable[[], Awaitable[object]], *, patience_s: float | None) -> None:
        """Do it, or give up on it in the middle; what comes back is kept."""
        with suppress(TimeoutError):
            self.seen.append(_plain(await asyncio.wait_for(call(), patience_s)))

    async def _own_trace(self) -> object:
        result = await self._service.retrieve(self._choose.choice(QUESTIONS), tenant=self._tenant)
        record = await self._service.explain(result.trace_id, tenant=self._tenant)
        await self._service.feedback(result.trace_id, 7, tenant=self._tenant)
        again = await self._service.replay(result.trace_id, tenant=self._tenant, changes={"depth": 50})
        return [record, _plain(again)]

    async def _sql(self) -> object:
        """What a statement is shown that a person or a model wrote."""
        scope = await self._service.catalogue.scope(self._tenant, "docs", fresh=True)
        view = await DocumentsViews(self._service.database).of(scope)
        verdict = judge_statement("SELECT * FROM documents ORDER BY id", view.columns)
        assert verdict.sql is not None
        table = await execution.run_statement(self._service.database, scope, view, verdict.sql)
        assert len(table.rows) == DOCUMENTS
        return table

    async def _nothing(self, **options: Any) -> None:
        result = await self._service.retrieve("turbine report", tenant=self._tenant, **options)
        assert result.hits == ()


def _plain(value: object) -> object:
    if isinstance(value, Result | Answer):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value  # type: ignore[call-overload]


async def test_tenants_that_use_every_method_at_once_never_meet(filled: Service, owner_url: str):
    choose = random.Random(5)
    traces = {}
    for tenant in TENANTS:
        traces[tenant] = (await filled.retrieve("turbine report", tenant=tenant)).trace_id
    visitors = [
        Visitor(filled, tenant, [traces[other] for other in TENANTS if other != tenant], choose) for tenant in TENANTS
    ]
    gate = asyncio.Semaphore(16)

    async def visit(visitor: Visitor, call: Callable[[], Awaitable[object]], patience_s: float | None) -> None:
        async with gate:
            await visitor.visit(call, patience_s=patience_s)

    work = [(visitor, call, None) for visitor in visitors for call in visitor.calls()]
    work += [(visitor, call, choose.uniform(0, 0.1)) for visitor in visitors for call in visitor.calls()]  # type: ignore[misc]
    choose.shuffle(work)
    await asyncio.gather(*(visit(*one) for one in work))

    for visitor in visitors:
        assert foreign(visitor._tenant, visitor.seen) == []
        assert canary(visitor._tenant) in json.dumps(visitor.seen, default=str)
        assert visitor.refused >= 8
    # Cancelled or not, everybody still has what they had.
    held = owner_rows(owner_url, "SELECT tenant, name, documents FROM signalbox.collection ORDER BY tenant, name")
    assert held == sorted(
        one for tenant in TENANTS for one in [(tenant, "docs", DOCUMENTS), (tenant, f"of-{canary(tenant)}", 1)]
    )
    while filled.traces._waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    traces_kept = owner_rows(owner_url, "SELECT tenant, request, record FROM signalbox.trace")
    # A word of another's is in the trace of a request only where the request itself held it.
    plain = [(tenant, record) for tenant, request, record in traces_kept if not foreign(tenant, request)]
    assert len(plain) >= 4 * 7
    assert [tenant for tenant, record in plain if foreign(tenant, record)] == []


async def test_connections_that_are_killed_amid_questions_mix_nobody_s_rows(filled: Service, owner_url: str):
    over = asyncio.Event()

    def kill() -> None:
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND usename = 'signalbox_app' ORDER BY random() LIMIT 2"
            )

    async def killing() -> None:
        while not over.is_set():
            await asyncio.to_thread(kill)
            await asyncio.sleep(0.05)

    async def ask(tenant: str, number: int) -> tuple[str, object]:
        try:
            result = await filled.retrieve(QUESTIONS[number % len(QUESTIONS)], tenant=tenant, top_k=100)
        except Unavailable:
            return tenant, None
        return tenant, result.model_dump(mode="json")

    killer = asyncio.create_task(killing())
    seen = await asyncio.gather(*(ask(tenant, number) for number in range(8) for tenant in TENANTS))
    over.set()
    await killer
    assert [tenant for tenant, result in seen if foreign(tenant, result)] == []
    for _ in range(50):
        after = [await ask(tenant, 0) for tenant in TENANTS]
        if all(canary(tenant) in str(result) for tenant, result in after):
            break
    assert all(canary(tenant) in str(result) for tenant, result in after)


async def test_what_belongs_to_another_looks_like_what_never_was(filled: Service):
    theirs = (await filled.retrieve("turbine report", tenant="globex")).trace_id
    place = f"of-{canary('globex')}"

    async def said(call: Callable[[str], Awaitable[object]], name: str) -> str:
        with pytest.raises(BadRequest) as caught:
            await call(name)
        return str(caught.value).replace(name, "NAME")

    for call in (
        lambda name: filled.explain(name, tenant="acme"),
        lambda name: filled.replay(name, tenant="acme"),
        lambda name: filled.feedback(name, 1, tenant="acme"),
    ):
        assert await said(call, theirs) == await said(call, "0" * 32)
    for call in (
        lambda name: filled.describe(name, tenant="acme"),
        lambda name: filled.delete(name, tenant="acme"),
        lambda name: filled.document(name, "doc-0", tenant="acme"),
        lambda name: filled.retrieve("turbine", collection=name, tenant="acme"),
    ):
        assert await said(call, place) == await said(call, "of-nobody")


# What is public, private, expired or disabled.


def note(id: str, **more: Any) -> Document:
    return Document(id, id, id, f"A shared note about windmills, {id}.", metadata={"team": id}, **more)


async def everything_found(service: Service, tenant: str, collection: str | None = None) -> set[str]:
    """Ids of what a tenant finds by any source, in lists and by name."""
    found = set()
    for sources in (None, ("vector",), ("fulltext",), ("sql",)):
        for question in ("shared note about windmills", "list all notes"):
            result = await service.retrieve(
                question, tenant=tenant, collection=collection, sources=sources, top_k=100, explain=True
            )
            found |= {hit.document_id for hit in result.hits}
            if result.table is not None:
                found |= {str(cell) for row in result.table.rows for cell in row}
    return found


async def by_id(service: Service, tenant: str, collection: str, ids: Sequence[str]) -> list[str]:
    there = []
    for id in ids:
        with suppress(NotFound):
            there.append((await service.document(collection, id, tenant=tenant)).id)
    return there


async def test_public_documents_of_the_platform_are_seen_by_all_and_others_of_it_by_nobody(service: Service):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    public = [note("public", public=True), note("late", public=True, expires_at=past)]
    public.append(note("off", public=True, enabled=False))
    await service.ingest(public, "shared", tenant=PLATFORM)
    await service.ingest([note("private")], "inside", tenant=PLATFORM)
    await service.ingest([note("claims to be", public=True)], "docs", tenant="globex")

    for tenant in ("acme", "initech"):
        assert await everything_found(service, tenant) & {"public", "private", "late", "off", "claims to be"} == {
            "public"
        }
        assert await by_id(service, tenant, "shared", ["public", "late", "off"]) == ["public"]
        assert [one.name for one in await service.collections(tenant=tenant)] == ["shared"]
        described = await service.describe("shared", tenant=tenant)
        assert described["documents"] == 1
        assert not {"off", "late"} & set(json.dumps(described, default=str).split('"'))
        with pytest.raises(BadRequest, match="belongs to the platform"):
            await service.delete("shared", tenant=tenant)


async def test_a_disabled_document_is_found_by_nobody_and_counts_nowhere(service: Service, owner_url: str):
    on, off = note("here"), note("gone", enabled=False)
    report = await service.ingest([on, off], "docs", tenant="acme")
    assert (report.inserted, report.failed) == (2, [])

    assert await everything_found(service, "acme") & {"here", "gone"} == {"here"}
    assert await by_id(service, "acme", "docs", ["here", "gone"]) == ["here"]
    described = await service.describe("docs", tenant="acme")
    assert described["documents"] == 1
    assert "gone" not in json.dumps(described, default=str)
    assert [one.documents for one in await service.collections(tenant="acme")] == [1]
    for table in ("chunk", "term", "field_value", "field_word"):
        assert "gone" not in str(owner_rows(owner_url, f"SELECT t::text FROM signalbox.{table} t"))  # noqa: S608


async def test_a_document_is_switched_off_and_on_again_by_giving_it_again(service: Service, owner_url: str):
    state = "SELECT documents, chunks, words, languages, public_documents, fields FROM signalbox.collection"
    counts = "SELECT term, chunks FROM signalbox.term ORDER BY 1"
    for one in (note("here"), note("one")):
        await service.ingest([one], "docs", tenant="acme")
    before = owner_rows(owner_url, state), owner_rows(owner_url, counts)

    report = await service.ingest([note("one", enabled=False)], "docs", tenant="acme")
    assert (report.updated, report.embedded) == (1, 0)
    assert "one" not in await everything_found(service, "acme")
    assert owner_rows(owner_url, state)[0][0] == 1
    again = await service.ingest([note("one", enabled=False)], "docs", tenant="acme")
    assert (again.unchanged, again.updated) == (1, 0)

    await service.ingest([note("one")], "docs", tenant="acme")
    assert "one" in await everything_found(service, "acme")
    assert (owner_rows(owner_url, state), owner_rows(owner_url, counts)) == before

    assert await service.delete("docs", "one", tenant="acme") == 1
    await service.ingest([note("two", enabled=False)], "docs", tenant="acme")
    assert await service.delete("docs", "two", tenant="acme") == 1
    assert owner_rows(owner_url, state)[0][0] == 1


async def test_an_expired_document_counts_nowhere_and_is_known_when_it_comes_again(service: Service, owner_url: str):
    past, future = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2099))
    report = await service.ingest([note("here"), note("gone", expires_at=past)], "docs", tenant="acme")
    assert (report.inserted, report.failed) == (2, [])

    described = await service.describe("docs", tenant="acme")
    assert (described["documents"], "gone" in json.dumps(described, default=str)) == (1, False)
    for table in ("chunk", "term", "field_value", "field_word"):
        assert "gone" not in str(owner_rows(owner_url, f"SELECT t::text FROM signalbox.{table} t"))  # noqa: S608

    again = await service.ingest([note("gone", expires_at=past)], "docs", tenant="acme")
    assert (again.unchanged, again.embedded) == (1, 0)
    await service.ingest([note("gone", expires_at=future)], "docs", tenant="acme")
    assert "gone" in await everything_found(service, "acme")
    assert await service.delete("docs", "gone", tenant="acme") == 1
    assert [one.documents for one in await service.collections(tenant="acme")] == [1]


async def test_a_worker_takes_documents_out_of_the_counts_when_they_expire(service: Service, owner_url: str):
    state = "SELECT documents, chunks, words, languages, public_documents FROM signalbox.collection ORDER BY tenant"
    counts = "SELECT tenant, term, chunks FROM signalbox.term ORDER BY 1, 2"
    for tenant in ("acme", "globex"):
        await service.ingest([note("here")], "docs", tenant=tenant)
    before = owner_rows(owner_url, state), owner_rows(owner_url, counts)
    for tenant in ("acme", "globex"):
        report = await service.ingest(
            [note("gone", expires_at=datetime(2099, 1, 1, tzinfo=UTC))], "docs", tenant=tenant
        )
        assert report.inserted == 1
    for table in ("document", "chunk"):
        expire = f"UPDATE signalbox.{table} SET expires_at = now() WHERE expires_at IS NOT NULL RETURNING 1"  # noqa: S608
        owner_rows(owner_url, expire)

    async with service.worker:
        for _ in range(1200):
            if (owner_rows(owner_url, state), owner_rows(owner_url, counts)) == before:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("they still count")

    assert "gone" not in json.dumps(await service.describe("docs", tenant="acme"), default=str)


async def test_only_a_worker_s_pass_is_told_what_has_expired(service: Service):
    database = service.database
    for scope in (database.scope("acme"), database.scope("worker"), "", "\nworker"):
        async with database.connection() as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute("SELECT * FROM signalbox.expired_documents(%s, 1)", (scope,))


async def test_a_collection_of_disabled_documents_alone_is_empty_and_takes_others_later(service: Service):
    await service.ingest([note("gone", enabled=False)], "docs", tenant="acme")
    assert await everything_found(service, "acme") & {"gone", "here"} == set()
    await service.ingest([note("here")], "docs", tenant="acme")
    assert await everything_found(service, "acme") & {"gone", "here"} == {"here"}


@pytest.mark.parametrize(("given", "enabled"), [(True, True), (False, False), (None, True)])
def test_a_record_says_whether_it_is_enabled(given: bool | None, enabled: bool):
    read = read_record({"id": "a", "text": "text", "enabled": given}, "here")
    assert isinstance(read, Document)
    assert (read.enabled, read.metadata) == (enabled, {})


@pytest.mark.parametrize("given", ["no", 0, [], {}])
def test_a_record_that_says_it_in_another_way_is_refused(given: object):
    read = read_record({"id": "a", "text": "text", "enabled": given}, "here")
    assert not isinstance(read, Document)
    assert read.reason.endswith("it must be true or false")


# Over HTTP, with keys that change meanwhile.


class Club:
    """Tenants that ask and ingest through the HTTP door, with keys that are changed under them."""

    def __init__(self, service: Service, client: httpx2.AsyncClient, tenants: Sequence[str]) -> None:
        self._service, self._client = service, client
        self._keys: dict[str, str] = {}
        self._under_way: Counter[str] = Counter()
        self._tenants = tenants
        self.leaks: list[str] = []
        self.statuses: dict[int, int] = {}

    async def change_key(self, tenant: str) -> None:
        """A new key, and the old one revoked once its requests are answered."""
        before = self._keys.get(tenant)
        _, self._keys[tenant] = await self._service.keys.create(tenant)
        if before is not None:
            while self._under_way[before]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await self._service.keys.revoke(before.split("_")[1])

    async def ask(self, tenant: str, number: int) -> None:
        """One request of one of the kinds, and a look at what came back."""
        body = {"query": QUESTIONS[number % len(QUESTIONS)], "collection": "docs"}
        other = self._tenants[(self._tenants.index(tenant) + 1 + number) % len(self._tenants)]
        kinds: list[tuple[str, str, Any]] = [
            ("POST", "/v1/retrieve", body),
            ("POST", "/v1/augment", {**body, "budget_tokens": 20_000}),
            ("POST", "/v1/retrieve", {**body, "sources": ["sql"]}),
            ("POST", "/v1/ask", body),
            ("GET", "/v1/collections", None),
            ("GET", "/v1/collections/docs", None),
            ("GET", "/v1/traces", None),
            ("POST", "/v1/documents", {"collection": "docs", "documents": [self._record(tenant, number)]}),
        ]
        if other != tenant:
            kinds.append(("GET", f"/v1/collections/of-{canary(other)}", None))
        method, path, content = kinds[number % len(kinds)]
        key = self._keys[tenant]
        self._under_way[key] += 1
        answer = await self._client.request(method, path, json=content, headers={"Authorization": f"Bearer {key}"})
        self._under_way[key] -= 1
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        text = answer.text.replace(canary(other), "") if path.endswith(canary(other)) else answer.text
        self.leaks += [
            f"{tenant} sees {one} at {path}" for one in self._tenants if one != tenant and canary(one) in text
        ]

    def _record(self, tenant: str, number: int) -> dict[str, Any]:
        one = documents(tenant, edition=number)[number % DOCUMENTS]
        return {"id": one.id, "title": one.title, "text": one.text, "metadata": one.metadata}

    async def meet(self, questions: int, *, changes: int) -> None:
        """Every tenant asks so many questions, 16 at once, while its key is changed so many times."""
        for tenant in self._tenants:
            await self.change_key(tenant)
        work = [(tenant, number) for number in range(questions) for tenant in self._tenants]
        pending = iter(work)

        async def worker() -> None:
            for tenant, number in pending:
                await self.ask(tenant, number)

        async def change_keys() -> None:
            for _ in range(changes):
                await asyncio.gather(*(self.change_key(tenant) for tenant in self._tenants))

        await asyncio.gather(change_keys(), *(worker() for _ in range(16)))


async def test_tenants_with_changing_keys_never_meet_over_http(filled: Service):
    await filled.keys.create("somebody")
    app = create_app(filled, authenticate=await open_authenticator(filled, "keys"))
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
        club = Club(filled, client, TENANTS)
        await club.meet(18, changes=2)
    assert club.leaks == []
    # The eight questions of each kind, and the names of others' collections, which are not there.
    assert club.statuses == {200: 4 * 16, 404: 4 * 2}
