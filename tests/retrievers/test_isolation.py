"""No tenant sees another: what the database itself grants and refuses, and what the searches give."""

import asyncio
import os
import random
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector import HalfVector, SparseVector
from psycopg.conninfo import make_conninfo

from retrievers.core.errors import BadRequest, Unavailable, UnknownCollection
from retrievers.core.filters import FieldCondition
from retrievers.core.types import PLATFORM, ChunkId, Hit, Query, Viewer
from retrievers.embed.embedders import Embedders
from retrievers.fulltext import FullText
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE
from retrievers.testing import HashEmbedder
from retrievers.text import bm25
from retrievers.vector import Vector

TENANTS = [f"tenant{n}" for n in range(1, 9)]
A, B = TENANTS[:2]
EMBEDDER = HashEmbedder()


def documents(tenant: str, count: int = 12) -> list[Document]:
    """Documents alike but for a word that only this tenant has; ids are the same for every tenant."""
    return [
        Document(
            where=f"{n}",
            id=f"doc-{n}",
            title=f"Report {n}",
            text=f"The quarterly report number {n} about turbines. canary{tenant} appears here. Colour {n % 3}.",
            metadata={"number": n, "team": "red" if n % 2 else "blue"},
        )
        for n in range(count)
    ]


def platform_documents() -> list[Document]:
    past, future = datetime(2020, 1, 1, tzinfo=UTC), datetime(2090, 1, 1, tzinfo=UTC)
    kinds: dict[str, dict[str, Any]] = {
        "public": {"public": True},
        "lasting": {"public": True, "expires_at": future},
        "private": {"public": False},
        "expired": {"public": True, "expires_at": past},
    }
    text = "A shared note about turbines"
    return [
        Document(where=name, id=name, title=name, text=f"{text}, {name}.", metadata={"team": "red"}, **given)
        for name, given in kinds.items()
    ]


@pytest.fixture(scope="module")
def world(module_url: str) -> str:
    """A database with eight tenants and the platform; the owner's connection string."""

    async def fill() -> None:
        async with Database(module_url, make_conninfo(module_url, user=SERVICE_ROLE), size=4) as database:
            for tenant in TENANTS:
                report = await ingest(database, EMBEDDER, tenant, "docs", documents(tenant))
                assert (report.inserted, report.failed) == (12, [])
            shared = [one for one in platform_documents() if one.public]
            inside = [one for one in platform_documents() if not one.public]
            await ingest(database, EMBEDDER, PLATFORM, "shared", shared)
            await ingest(database, EMBEDDER, PLATFORM, "inside", inside)

    asyncio.run(fill())
    return module_url


@pytest.fixture(params=["directly", "through PgBouncer"])
async def service(request: pytest.FixtureRequest, world: str) -> AsyncIterator[Database]:
    """The service's connections, and those of a pooler that gives all tenants one server process in turn."""
    own = make_conninfo(world, user=SERVICE_ROLE)
    if request.param == "through PgBouncer":
        own = request.getfixturevalue("pgbouncer")(own)
    async with Database(world, own, size=4) as database:
        yield database


@pytest.fixture(params=["given login", "made login"])
async def either(request: pytest.FixtureRequest, world: str) -> AsyncIterator[Database]:
    """The service logged in as its own role (embedded), and as a login made for it (one DATABASE_URL)."""
    own = make_conninfo(world, user=SERVICE_ROLE) if request.param == "given login" else None
    async with Database(world, own, size=2) as database:
        yield database


def owner_rows(world: str, statement: str) -> list[Any]:
    with psycopg.connect(world) as connection:
        return connection.execute(statement.encode()).fetchall()


def tenant_tables(world: str) -> list[str]:
    """Every table with a column `tenant`, from the catalogue."""
    found = owner_rows(
        world,
        "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " WHERE a.attname = 'tenant' AND c.relkind IN ('r', 'p') AND NOT a.attisdropped ORDER BY 1",
    )
    return [row[0] for row in found]


# What the database says of itself.


async def test_the_service_s_role_is_bound_by_row_security_and_owns_nothing(either: Database):
    rows = await either.fetch(
        A,
        """SELECT current_user, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb,
                  (SELECT count(*) FROM pg_class WHERE relowner = r.oid),
                  (SELECT count(*) FROM pg_proc WHERE proowner = r.oid),
                  (SELECT string_agg(roleid::regrole::text || inherit_option || admin_option, ' ')
                   FROM pg_auth_members WHERE member = r.oid)
           FROM pg_roles r WHERE rolname = current_user""",
        {},
    )
    assert rows == [(SERVICE_ROLE, False, False, False, False, 0, 0, "signalbox_sqlfalsefalse")]


def test_every_table_with_a_tenant_has_row_security_forced(world: str):
    tables = tenant_tables(world)
    assert {"signalbox.collection", "signalbox.document", "signalbox.chunk", "signalbox.term"} <= set(tables)

    unsafe = owner_rows(
        world,
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE a.attname = 'tenant'"
        " AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND c.relforcerowsecurity)",
    )
    assert unsafe == []


@pytest.mark.parametrize("lacking", ["NO FORCE ROW LEVEL SECURITY", "DISABLE ROW LEVEL SECURITY"])
async def test_a_service_does_not_start_beside_a_table_of_tenants_without_row_security(owner_url: str, lacking: str):
    own = make_conninfo(owner_url, user=SERVICE_ROLE)
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE signalbox.added (tenant text NOT NULL)")
        connection.execute("ALTER TABLE signalbox.added ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    async with Database(owner_url, own):
        pass
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE signalbox.added {lacking}".encode())
    with pytest.raises(
        Unavailable, match=r"security of signalbox.added is off.*: ALTER TABLE signalbox.added ENABLE ROW"
    ):
        async with Database(owner_url, own):
            pass


def test_the_service_can_call_only_what_it_needs(world: str):
    allowed = owner_rows(
        world,
        "SELECT proname FROM pg_proc WHERE pronamespace = 'signalbox'::regnamespace"
        " AND has_function_privilege('signalbox_app', oid, 'EXECUTE') ORDER BY 1",
    )
    assert [row[0] for row in allowed] == [
        "access_changed", "concealed", "erased", "erases", "erasure_subject", "evaluations", "expired_documents",
        "matching", "move_feedback", "narrowed", "nearest", "note_use", "parts", "parts", "passages", "principals",
        "readable", "refresh_statistics", "register_embedder", "retired_collections", "reweighed_collections",
        "shadows", "sweep", "take_job", "tenant", "tenant_rules", "term_counts", "verified_key", "verified_principals",
        "verified_tenant",
    ]  # fmt: skip


def test_functions_that_act_for_others_fix_their_search_path(world: str):
    loose = owner_rows(
        world,
        "SELECT proname FROM pg_proc WHERE pronamespace = 'signalbox'::regnamespace AND prosecdef"
        " AND NOT coalesce(array_to_string(proconfig, ' '), '') LIKE '%search_path=%pg_temp%'",
    )
    assert loose == []


def test_the_search_role_can_neither_log_in_nor_make_anything(world: str):
    found = owner_rows(
        world,
        "SELECT rolcanlogin, rolsuper, rolbypassrls, has_schema_privilege(oid, 'signalbox', 'CREATE')"
        " FROM pg_roles WHERE rolname = 'signalbox_search'",
    )
    assert found == [(False, False, False, False)]


FORBIDDEN = {
    "secret": "SELECT key FROM signalbox.secret",
    "table": "CREATE TABLE signalbox.mine ()",
    "public table": "CREATE TABLE public.mine ()",
    "function": "CREATE FUNCTION signalbox.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "few_passages": "SELECT signalbox.few_passages('tenant2', '{1,2,3}', '$', '{}')",
    "search role": "SET ROLE signalbox_search",
    "search role by set_config": "SELECT set_config('role', 'signalbox_search', true)",
    "superuser": "SET ROLE postgres",
    "session": "SET SESSION AUTHORIZATION postgres",
    "bypass": "ALTER ROLE signalbox_app BYPASSRLS",
    "row security off": "ALTER TABLE signalbox.document DISABLE ROW LEVEL SECURITY",
    "policy": "CREATE POLICY mine ON signalbox.document USING (true)",
    "truncate": "TRUNCATE signalbox.document",
    "drop": "DROP TABLE signalbox.chunk",
    "embedder": "INSERT INTO signalbox.embedder (name, dimension) VALUES ('mine', 3)",
    "migration": "DELETE FROM signalbox.migration",
    "file": "SELECT pg_read_file('/etc/passwd')",
    "folder": "SELECT pg_ls_dir('.')",
    "program": "COPY signalbox.embedder TO PROGRAM 'cat'",
    "large object": "SELECT lo_import('/etc/passwd')",
    "extension": "CREATE EXTENSION plpgsql SCHEMA public",
    "logging": "SET log_statement = 'none'",
}


@pytest.mark.parametrize("statement", FORBIDDEN.values(), ids=FORBIDDEN.keys())
async def test_the_service_s_role_may_not(service: Database, statement: str):
    with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.DuplicateObject)) as caught:
        async with service.transaction(A) as connection:
            await connection.execute(statement.encode())
    assert statement.startswith("CREATE EXTENSION") or isinstance(caught.value, psycopg.errors.InsufficientPrivilege)


# The scope.


async def test_without_a_tenant_every_table_is_an_error_and_not_empty(service: Database, world: str):
    for table in tenant_tables(world):
        for statement in ("SELECT * FROM {}", "SELECT count(*) FROM {}", "DELETE FROM {}"):
            # Nobody has a right to delete settings and counts of tenants, whatever the tenant is.
            never = statement.startswith("DELETE") and table in ("signalbox.tenant_setting", "signalbox.tenant_use")
            said = f"permission denied for table {table.rpartition('.')[2]}" if never else "no tenant is set"
            async with service.connection() as connection:
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match=said):
                    await connection.execute(statement.format(table).encode())


def forged(service: Database) -> list[str]:
    own = service.scope(A)
    return [
        B,
        f":{B}",
        f"{'0' * 64}:{B}",
        own.replace(A, B),
        own[:65] + B,
        own + "\n" + B,
        own.replace(A, ""),
        own.upper(),
        own[1:],
        " " + own,
        "",
    ]


async def test_a_forged_scope_is_an_error(service: Database):
    for scope in forged(service):
        async with service.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('signalbox.scope', %s, true)", (scope,))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute("SELECT * FROM signalbox.document")


async def test_the_searches_refuse_a_forged_scope(service: Database, world: str):
    among = [
        row[0] for row in owner_rows(world, "SELECT number FROM signalbox.collection ORDER BY tenant <> 'tenant1'")
    ]
    question = HalfVector(EMBEDDER.vector("turbines").astype(np.float16))
    for scope in forged(service):
        for statement, values in (
            ("SELECT * FROM signalbox.nearest(%s, %s, 1::smallint, %b, NULL, 10)", (scope, among, question)),
            (
                "SELECT * FROM signalbox.matching(%s, %s, '''1:turbin''', NULL, %b, NULL, 10)",
                (scope, among, SparseVector({1: 1.0}, bm25.DIMENSIONS)),
            ),
            ("SELECT * FROM signalbox.passages(%s, %s, %s, %s, %s)", (scope, [A], among[:1], ["doc-1"], [0])),
        ):
            async with service.connection() as connection:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await connection.execute(statement.encode(), values)


CHANGES = {
    "where": "SELECT tenant FROM signalbox.document WHERE set_config('signalbox.scope', %(to)s, true) IS NOT NULL",
    "cte": """WITH changed AS MATERIALIZED (SELECT set_config('signalbox.scope', %(to)s, true) AS s)
              SELECT tenant FROM changed, signalbox.document WHERE s <> ''""",
    "lateral": """SELECT d.tenant FROM (SELECT set_config('signalbox.scope', %(to)s, true) AS s OFFSET 0) c,
                  LATERAL (SELECT * FROM signalbox.document WHERE c.s <> '' OFFSET 0) d""",
    "union": """SELECT set_config('signalbox.scope', %(to)s, true) WHERE false
                UNION ALL SELECT set_config('signalbox.scope', %(to)s, true) WHERE false
                UNION ALL SELECT tenant FROM signalbox.chunk""",
    "subselect": "SELECT tenant FROM signalbox.chunk WHERE (SELECT set_config('signalbox.scope', %(to)s, true)) <> ''",
    "before": "SELECT tenant FROM (SELECT set_config('signalbox.scope', %(to)s, false)) s, signalbox.term",
    "row security": "SELECT tenant FROM signalbox.term WHERE set_config('row_security', 'off', true) IS NOT NULL",
    "path": """SELECT tenant FROM signalbox.collection
               WHERE set_config('search_path', 'pg_temp,public', true) IS NOT NULL""",
    "count": "SELECT tenant FROM signalbox.term WHERE (SELECT count(set_config('signalbox.scope', %(to)s, true))) > 0",
}


# These change nothing that decides on rows, or too late: they run.
UNMOVED = {"union", "row security", "path"}


@pytest.mark.parametrize("name", CHANGES)
async def test_no_statement_changes_its_own_scope(either: Database, name: str):
    ran = 0
    refusals: list[str] = []
    for scope in forged(either):
        try:
            rows = await either.fetch(A, CHANGES[name], {"to": scope})  # type: ignore[arg-type]
        except psycopg.errors.InsufficientPrivilege as error:
            refusals.append(str(error))
            continue
        ran += 1
        # An empty scope makes some conditions false before a row is looked at.
        assert {row[0] for row in rows} == ({A, PLATFORM} if name in UNMOVED else set()), scope
        assert name in UNMOVED or scope == ""
    count = len(forged(either))
    assert all(re.match("no tenant is set|the tenant scope is not signed", one) for one in refusals)
    assert (ran, len(refusals)) in ([(count, 0)] if name in UNMOVED else [(0, count), (1, count - 1)])


HIDDEN = {
    "secret": "SELECT to_tsvector(encode(key, ''hex'')) FROM signalbox.secret",
    "login": "SELECT to_tsvector(password) FROM signalbox.login",
    "documents": "SELECT to_tsvector(tenant) FROM signalbox.document",
}
# Two functions that run a statement held in a text, and one more way to be somebody else.
REWRITE = "SELECT ''a''::tsquery, tenant::tsquery FROM signalbox.document ORDER BY tenant = ''tenant2'' DESC"
LEAVES = {
    **{
        name: f"SELECT set_config('role', %(role)s, true), * FROM ts_stat('{hidden}')"  # noqa: S608
        for name, hidden in HIDDEN.items()
    },
    "rewrite": f"SELECT set_config('role', %(role)s, true), ts_rewrite('a', '{REWRITE}')::text",
    "session": "SELECT set_config('session_authorization', %(role)s, true), tenant FROM signalbox.document",
}


@pytest.mark.parametrize("role", ["none", "postgres", "signalbox_search"])
@pytest.mark.parametrize("name", LEAVES)
async def test_no_statement_leaves_its_role(either: Database, name: str, role: str):
    # "none" is the login itself, whom the same rows are hidden from.
    if role == "none" and name in ("documents", "rewrite"):
        rows = await either.fetch(A, LEAVES[name], {"role": role})  # type: ignore[arg-type]
        assert rows
        assert B not in str(rows), "rows of another tenant"
        return
    with pytest.raises(psycopg.Error) as caught:
        await either.fetch(A, LEAVES[name], {"role": role})  # type: ignore[arg-type]
    reasons = "permission denied (for table (secret|login)|to set (role|session authorization))"
    assert re.match('role "none" does not exist' if (name, role) == ("session", "none") else reasons, str(caught.value))


async def test_the_same_statements_show_the_owner_what_is_hidden(either: Database, world: str):
    for name, hidden in HIDDEN.items():
        rows = owner_rows(world, f"SELECT * FROM ts_stat('{hidden}')")  # noqa: S608
        assert rows or (name == "login" and not owner_rows(world, "SELECT FROM signalbox.login"))
        assert name != "documents" or B in str(rows)
    assert owner_rows(world, f"SELECT ts_rewrite('a', '{REWRITE}')::text") == [(f"'{B}'",)]


async def test_a_connection_forgets_the_tenant_with_its_transaction(world: str):
    async with Database(world, make_conninfo(world, user=SERVICE_ROLE), size=1) as database:
        for _ in range(5):
            for tenant in (A, B):
                rows = await database.fetch(tenant, "SELECT DISTINCT tenant FROM signalbox.chunk ORDER BY 1", {})
                assert rows == [(PLATFORM,), (tenant,)]
        async with database.connection() as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no tenant"):
                await connection.execute("SELECT 1 FROM signalbox.chunk")


async def test_writing_for_another_tenant_is_refused(service: Database):
    insert = "INSERT INTO signalbox.collection (tenant, name, analysis) VALUES ('tenant2', 'mine', 1)"
    for statement in (insert, "UPDATE signalbox.collection SET tenant = 'tenant2', number = 9999"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            async with service.transaction(A) as connection:
                await connection.execute(statement.encode())
    async with service.transaction(A) as connection:
        for statement in (
            "UPDATE signalbox.document SET title = 'mine' WHERE tenant <> 'tenant1'",
            "DELETE FROM signalbox.document WHERE tenant <> 'tenant1'",
        ):
            assert (await connection.execute(statement.encode())).rowcount == 0


@pytest.mark.parametrize("tenant", ["", "x" * 129, "a\nb", "a\0b", "\ud800"])
def test_what_cannot_be_a_tenant_is_refused(tenant: str):
    with pytest.raises(BadRequest, match="1 to 128 printable characters"):
        Database("unused").scope(tenant)


# The searches.


async def search(service: Database, tenant: str | Viewer, text: str, source: str, **changes: Any) -> list[Hit]:
    catalogue = Catalogue(service)
    scope = changes.pop("scope", None) or await catalogue.scope(tenant, changes.pop("collection", None))
    retriever = Vector(service, Embedders(EMBEDDER)) if source == "vector" else FullText(service, catalogue)
    return await retriever.search(Query(text, "en", scope, **changes))


async def test_tenants_that_share_a_server_process_never_meet(world: str, pgbouncer: Callable[[str], str]):
    own = pgbouncer(make_conninfo(world, user=SERVICE_ROLE))
    look = "SELECT pg_backend_pid(), tenant FROM signalbox.chunk WHERE tenant <> %s GROUP BY tenant"
    async with Database(world, own, size=1) as one, Database(world, own, size=1) as other:
        processes = set()
        for _ in range(5):
            for database, tenant in ((one, A), (other, B)):
                async with database.transaction(tenant) as connection:
                    rows = await (await connection.execute(look, (PLATFORM,))).fetchall()
                seen = await database.fetch(tenant, look, (PLATFORM,))
                processes.add(rows[0][0])
                assert rows == seen == [(rows[0][0], tenant)]
                # What the last transaction was is not left for whoever comes next.
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no tenant"):
                    await database.fetch_autocommit("SELECT 1 FROM signalbox.chunk", {})
                with pytest.raises(RuntimeError):
                    async with database.transaction(tenant):
                        raise RuntimeError
        assert len(processes) == 1


def pgbouncer_version() -> tuple[int, ...]:
    """Return the version of the installed PgBouncer; (0,) if there is none."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    told = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout if program else "0"
    return tuple(int(number) for number in re.findall(r"\d+", told)[:2])


@pytest.mark.skipif(
    pgbouncer_version() < (1, 21),
    reason="PgBouncer before 1.21 may exit when a statement is cancelled (pgbouncer #822)",
)
async def test_a_statement_that_is_cancelled_behind_a_pooler_ends_and_hits_nobody_else(
    world: str, pgbouncer: Callable[[str], str]
):
    own = pgbouncer(make_conninfo(world, user=SERVICE_ROLE))
    async with Database(world, own, size=2) as one, Database(world, own, size=2) as other:
        for _ in range(5):
            task = asyncio.ensure_future(one.fetch(A, "SELECT pg_sleep(600)::text", {}))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(3):
                assert await other.fetch(B, "SELECT 7", {}) == [(7,)]


async def test_an_owner_behind_a_pooler_in_transaction_mode_is_refused(world: str, pgbouncer: Callable[[str], str]):
    own = make_conninfo(world, user=SERVICE_ROLE)
    with pytest.raises(Unavailable, match="let it name PostgreSQL itself, and SERVICE_URL the pooler"):
        async with Database(pgbouncer(world), own):
            pass


@pytest.mark.parametrize("source", ["vector", "fulltext"])
async def test_a_search_finds_own_and_public_documents_only(service: Database, source: str):
    hits = await search(service, A, "turbines report", source)

    found = {(hit.id.tenant, hit.id.document_id) for hit in hits}
    own = {(A, f"doc-{n}") for n in range(12)}
    assert found == own | {(PLATFORM, "public"), (PLATFORM, "lasting")}


@pytest.mark.parametrize("source", ["vector", "fulltext"])
async def test_a_scope_made_for_another_tenant_s_collections_finds_nothing(service: Database, source: str):
    foreign = await Catalogue(service).scope(B, None)

    hits = await search(service, A, f"turbines canary{B}", source, scope=replace(foreign, tenant=A))
    assert {hit.id.tenant for hit in hits} <= {PLATFORM}
    # The numbers and names of the other tenant's collections, under the name of the own tenant.
    renamed = tuple(replace(one, tenant=A) for one in foreign.collections)
    hits = await search(
        service, A, f"turbines canary{B}", source, scope=replace(foreign, tenant=A, collections=renamed)
    )
    assert {hit.id.tenant for hit in hits} <= {PLATFORM}


async def test_another_tenant_s_passages_cannot_be_loaded_by_their_identity(service: Database, world: str):
    number = owner_rows(world, "SELECT number FROM signalbox.collection WHERE tenant = 'tenant2'")[0][0]
    scope = await Catalogue(service).scope(A, None)
    foreign = tuple(replace(one, number=number) if one.tenant == A else one for one in scope.collections)

    loaded = await Catalogue(service).load(scope, [ChunkId(B, "docs", "doc-1", 0)])
    assert loaded == {}
    loaded = await Catalogue(service).load(replace(scope, collections=foreign), [ChunkId(A, "docs", "doc-1", 0)])
    assert loaded == {}
    rows = await service.fetch_autocommit(
        "SELECT * FROM signalbox.passages(%(s)s, %(t)s, %(n)s, %(d)s, %(o)s)",
        {"s": service.scope(A), "t": [B, B], "n": [number] * 2, "d": ["doc-1", "doc-2"], "o": [0, 0]},
    )
    assert rows == []


async def test_platform_documents_are_seen_when_public_and_not_expired(service: Database):
    scope = await Catalogue(service).scope(A, "shared")
    ids = [ChunkId(PLATFORM, "shared", name, 0) for name in ("public", "lasting", "private", "expired")]

    loaded = await Catalogue(service).load(scope, ids)
    assert sorted(id.document_id for id in loaded) == ["lasting", "public"]
    for name in ("id", "team"):
        wanted = FieldCondition("exists", name, True)
        for source in ("vector", "fulltext"):
            hits = await search(service, A, "turbines", source, scope=scope, filter=wanted)
            assert sorted(hit.id.document_id for hit in hits) == ["lasting", "public"]
    own = await search(service, PLATFORM, "turbines", "fulltext", collection="shared")
    assert sorted(hit.id.document_id for hit in own) == ["lasting", "public"]
    rows = await service.fetch(A, "SELECT id FROM signalbox.document WHERE tenant = '0' AND NOT public", {})
    assert rows == []


async def test_private_platform_documents_lend_no_count_word_or_field_to_others(service: Database):
    catalogue = Catalogue(service)
    with pytest.raises(UnknownCollection):
        await catalogue.scope(A, "inside", fresh=True)
    assert await search(service, PLATFORM, "private", "fulltext", collection="inside") != []
    assert not any((await catalogue.term_counts(await catalogue.scope(A, None), ["privat"])).values())

    mixed = await ingest(service, EMBEDDER, PLATFORM, "shared", platform_documents())
    assert [(one.id, "either public or private documents" in one.reason) for one in mixed.failed] == [("private", True)]


async def test_how_often_words_occur_elsewhere_is_not_told_to_one_who_names_the_place(service: Database, world: str):
    places = owner_rows(
        world, "SELECT tenant, number FROM signalbox.collection WHERE NOT (tenant = '0' AND name = 'shared')"
    )
    statement = "SELECT * FROM signalbox.term_counts(%(scope)s, %(tenants)s, %(among)s, %(terms)s)"
    values = {
        "scope": service.scope(A),
        "tenants": [tenant for tenant, _ in places],
        "among": [number for _, number in places],
        "terms": ["turbin", "privat", *(f"canary{tenant}" for tenant in TENANTS)],
    }
    own = [number for tenant, number in places if tenant == A]
    found = await service.fetch_autocommit(statement, values)
    assert {(number, term) for number, term, _ in found} == {(own[0], "turbin"), (own[0], f"canary{A}")}
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="not signed"):
        await service.fetch_autocommit(statement, {**values, "scope": service.scope(A)[:65] + B})


async def test_a_canary_of_another_tenant_is_a_word_that_does_not_exist(service: Database):
    catalogue = Catalogue(service)
    for tenant in (A, PLATFORM):
        scope = await catalogue.scope(tenant, None)
        assert not any((await catalogue.term_counts(scope, [f"canary{B}"])).values())
        assert await search(service, tenant, f"canary{B}", "fulltext") == []
    described = await catalogue.describe(await catalogue.scope(A, "docs"))
    assert described["documents"] == 12


async def test_eight_tenants_at_once_on_four_connections_never_meet(service: Database):
    catalogue = Catalogue(service)
    choose = random.Random(8)

    async def ask(tenant: str) -> set[str]:
        source = choose.choice(["vector", "fulltext"])
        wanted = choose.choice([None, FieldCondition("eq", "team", "red"), FieldCondition("gte", "number", 3)])
        text = choose.choice(["turbines report", f"canary{choose.choice(TENANTS)}", "quarterly colour 2"])
        hits = await search(service, tenant, text, source, filter=wanted)
        loaded = await catalogue.load(await catalogue.scope(tenant, None), [hit.id for hit in hits])
        rows = await service.fetch(tenant, "SELECT DISTINCT tenant FROM signalbox.document", {})
        texts = " ".join(chunk.text for chunk in loaded.values())
        canaries = {other for other in TENANTS if f"canary{other} " in texts}
        return ({hit.id.tenant for hit in hits} | canaries | {row[0] for row in rows}) - {tenant, PLATFORM}

    asked = [tenant for tenant in TENANTS for _ in range(25)]
    choose.shuffle(asked)
    assert set().union(*await asyncio.gather(*(ask(tenant) for tenant in asked))) == set()


# Plans, and completeness beside many foreign rows.


def scans(url: str) -> dict[str, int]:
    """How often each index of `chunk` was used, and how often the table was read whole."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT indexrelname, idx_scan FROM pg_stat_user_indexes WHERE relname = 'chunk'"
            " UNION ALL SELECT 'whole', seq_scan FROM pg_stat_user_tables WHERE relname = 'chunk'"
        ).fetchall()
    return {row[0]: row[1] for row in found}


def hide_every_third(url: str, tenant: str) -> None:
    """Give documents of the bulk readers, as ingestion would."""
    with psycopg.connect(url) as connection:
        part = connection.execute(
            "INSERT INTO signalbox.collection (tenant, number, part_of, name, readers, analysis, documents, chunks)"
            " SELECT tenant, -number, number, 'x', '{user:1}', 1, 0, 0 FROM signalbox.collection WHERE name = 'bulk'"
            " RETURNING number"
        ).fetchone()
        assert part is not None
        for statement in (
            "UPDATE signalbox.document SET part = %s WHERE tenant = %s AND substr(id, 2)::integer %% 3 = 1",
            "UPDATE signalbox.chunk SET part = %s WHERE tenant = %s AND substr(document_id, 2)::integer %% 3 = 1",
        ):
            connection.execute(statement.encode(), (part[0], tenant))
        connection.execute("SELECT pg_stat_force_next_flush()")


async def used(
    database: Database, url: str, tenant: str | Viewer, text: str, source: str
) -> tuple[int, dict[str, int]]:
    before = scans(url)
    hits = await search(database, tenant, text, source)
    async with database.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")
    after = scans(url)
    return len(hits), {name: after[name] - before[name] for name in after if after[name] != before[name]}


def bulk(url: str, tenant: str, vectors: Sequence[Any], text: str) -> None:
    """Many documents of a tenant at once, written by the owner; the vector index is built afterwards."""
    with psycopg.connect(url) as connection:
        connection.execute("DROP INDEX signalbox.chunk_embedding_1")
        number = connection.execute(
            "INSERT INTO signalbox.collection (tenant, name, analysis, embedder, documents, chunks, mean_length)"
            " VALUES (%s, 'bulk', 1, 1, %s, %s, 8) RETURNING number",
            (tenant, len(vectors), len(vectors)),
        ).fetchone()
        assert number is not None
        connection.execute(
            "INSERT INTO signalbox.document (tenant, collection, id, title, body, metadata, fields, language, digest,"
            " chunks, words) SELECT %s, %s, 'd' || n, '', '', '{}', '{}', 'en', '', 1, 8 FROM generate_series(0, %s) n",
            (tenant, number[0], len(vectors) - 1),
        )
        columns = "tenant, collection, document_id, ordinal, embedder, public, start_character, end_character, length"
        copy = f"COPY signalbox.chunk ({columns}, embedding, bm25, fields, heading, digest, lexemes, body) FROM STDIN"
        with connection.cursor().copy(copy.encode()) as writer:
            for n, vector in enumerate(vectors):
                numbers = "[" + ",".join(f"{value:.4f}" for value in vector) + "]"
                lexemes = f"'{number[0]}:{text}':1 '{number[0]}:word{n % 500}':2"
                sparse = str(SparseVector({bm25.term_dimension(text): 1.0}, bm25.DIMENSIONS).to_text())
                writer.write_row(
                    (tenant, number[0], f"d{n}", 0, 1, False, 0, 9, 8, numbers, sparse, "{}", "", b"", lexemes, "")
                )
        connection.execute("SET maintenance_work_mem = '256MB'")
        connection.execute(
            "CREATE INDEX chunk_embedding_1 ON signalbox.chunk"
            " USING hnsw ((embedding::halfvec(64)) halfvec_ip_ops) WHERE embedder = 1"
        )
        connection.execute("ANALYZE signalbox.chunk, signalbox.document, signalbox.collection")
        connection.execute("SELECT pg_stat_force_next_flush()")


async def test_public_and_private_documents_of_the_platform_that_come_at_once_stay_apart(database: Database):
    public, _, private, _ = platform_documents()
    reports = await asyncio.gather(
        ingest(database, EMBEDDER, PLATFORM, "new", [public]), ingest(database, EMBEDDER, PLATFORM, "new", [private])
    )
    assert sorted(one.inserted for one in reports) == [0, 1]
    assert ["either public or private documents" in one.reason for report in reports for one in report.failed] == [True]
    assert len(await database.fetch(PLATFORM, "SELECT id FROM signalbox.document", {})) == 1


async def test_the_searches_use_their_indexes(owner_url: str, service_url: str, database: Database):
    random_vectors = np.random.default_rng(3).standard_normal((3000, 64))
    random_vectors /= np.linalg.norm(random_vectors, axis=1, keepdims=True)
    await ingest(database, EMBEDDER, B, "docs", documents(B))
    bulk(owner_url, A, random_vectors, "needle")
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "INSERT INTO signalbox.term SELECT tenant, number, 'word' || n, 6 FROM signalbox.collection,"
            " generate_series(0, 499) n WHERE name = 'bulk'"
        )

    # A connection that has counted nothing yet.
    async with Database(owner_url, service_url, size=1) as fresh:
        found, plan = await used(fresh, owner_url, A, "word7", "fulltext")
        # A word by itself may also be an id: a passage of such a document is looked for by its key. The third index
        # says that no passage has readers of its own.
        assert (found, plan.pop("chunk_lexemes"), set(plan) - {"chunk_pkey"}) == (6, 1, {"chunk_part"})
        # So few vectors are all scored: the hits follow from them alone, whatever the database holds beside them.
        found, plan = await used(fresh, owner_url, A, "word7", "vector")
        # PostgreSQL 16 counts a scan for each tenant that is looked for, 18 one for all.
        assert (found, set(plan)) == (100, {"chunk_collection", "chunk_part"})
        with psycopg.connect(owner_url) as connection:
            connection.execute("UPDATE signalbox.collection SET chunks = 10001 WHERE name = 'bulk'")
        found, plan = await used(fresh, owner_url, A, "word7", "vector")
        assert (found, plan) == (100, {"chunk_embedding_1": 1})
        # With readers on every third document the same indexes serve whoever asks.
        hide_every_third(owner_url, A)
        for who, seen in ((A, 4), (Viewer(A, ("user:1",)), 6)):
            found, plan = await used(fresh, owner_url, who, "word7", "fulltext")
            assert (found, plan.pop("chunk_lexemes"), set(plan) <= {"chunk_pkey", "chunk_part"}) == (seen, 1, True)
            found, plan = await used(fresh, owner_url, who, "word7", "vector")
            assert (found, plan["chunk_embedding_1"]) == (100, 1)


async def test_a_small_tenant_among_many_foreign_vectors_misses_nothing(owner_url: str, database: Database):
    topics = ["turbine blade", "rotor bearing", "gear oil", "blade pitch", "tower bolt", "grid code"]
    choose = random.Random(50)
    own = [
        Document(where=str(n), id=f"own-{n}", title="", text=f"{choose.choice(topics)} {choose.choice(topics)} {n}",
                 metadata={"half": n % 2})
        for n in range(50)
    ]  # fmt: skip
    await ingest(database, EMBEDDER, A, "docs", own)
    # The foreign vectors lie exactly where the questions are asked.
    around = np.stack([EMBEDDER.vector(topic) for topic in topics])
    noise = np.random.default_rng(7).standard_normal((20_000, 64)) * 0.08
    foreign = around[np.arange(20_000) % len(topics)] + noise
    bulk(owner_url, B, foreign / np.linalg.norm(foreign, axis=1, keepdims=True), "foreign")

    vectors = {document.id: EMBEDDER.vector(document.text) for document in own}
    for n in range(50):
        text = f"{choose.choice(topics)} {choose.choice(topics)}"
        wanted = FieldCondition("eq", "half", n % 2) if n % 3 == 0 else None
        question = EMBEDDER.vector(text)
        allowed = [document.id for document in own if not wanted or document.metadata["half"] == wanted.value]
        exact = sorted((float(question @ vectors[id]) for id in allowed), reverse=True)[:10]

        hits = await search(database, A, text, "vector", filter=wanted, limit=10)

        assert {hit.id.tenant for hit in hits} == {A}
        assert {hit.id.document_id for hit in hits} <= set(allowed)
        assert [hit.score for hit in hits] == pytest.approx(exact, abs=2e-3)
