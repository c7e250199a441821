"""The SQL source on a real server: what it calculates, and what holds when the guard errs."""

import asyncio
import json
import random
import re
import runpy
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from retrievers.core.aggregates import parse_aggregate
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter, filter_to_json, matches_filter, parse_filter
from retrievers.core.metadata import Field
from retrievers.core.types import PLATFORM, Collection, Query, ResultTable, Scope
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields
from retrievers.postgres.connections.database import Database
from retrievers.postgres.guard.guard import judge_statement
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE
from retrievers.postgres.sql import execution
from retrievers.postgres.sql.aggregate import compile_filter
from retrievers.postgres.sql.view import DocumentsViews, describe_columns, make_view, short_name
from retrievers.sql import Sql
from retrievers.testing import HashEmbedder

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("data_sql.py")))
PAIRS: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("test_filters_agree_with_postgres.py")))
EMBEDDER = HashEmbedder()
A, B = "acme", "globex"
CANARY = "canaryofglobex"
REPORTS: list[dict[str, Any]] = [
    {"team": "red", "authors": ["Ann", "Bob"], "day": "2023-05-01", "pages": 10, "final": True, "cost": 1.5},
    {"team": "red", "authors": ["Ann"], "day": "2024-02-01", "pages": 20, "final": False, "cost": 2.25},
    {"team": "blue", "authors": ["Bob", "Cy", "Dee"], "day": "2024-03-01", "pages": 30, "final": True},
    {"team": "blue", "authors": ["Cy"], "day": "2025-01-15", "pages": 30, "final": False, "Größe m²": 3},
    {"team": "O'Hara", "day": "2025-01-15", "pages": 7, "final": True, "moment": "2025-01-15T10:30:00"},
]


def reports() -> list[Document]:
    return [
        Document(f"{n}", f"r{n}", f"Report {n}", f"Text of report {n} about oil.", url=f"https://x/{n}", metadata=one)
        for n, one in enumerate(REPORTS, 1)
    ]


@pytest.fixture(scope="module")
def world(server: EmbeddedServer, template: str) -> Iterator[str]:
    """A database with two tenants and the platform, as the embedded server has it; the owner's connection string."""
    with filled_world(server, template) as name:
        server.secure(name)
        yield server.conninfo(database=name)


@pytest.fixture(scope="module")
def open_world(server: EmbeddedServer, template: str) -> Iterator[str]:
    """The same on a server of the user's own, where everybody may call what PostgreSQL lets everybody call."""
    with filled_world(server, template) as name:
        yield server.conninfo(database=name)


@contextmanager
def filled_world(server: EmbeddedServer, template: str) -> Iterator[str]:
    name = f"world_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE {template}'.encode())
    url = server.conninfo(database=name)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    foreign = [
        Document(f"{n}", f"r{n}{CANARY}", CANARY, f"{CANARY} text", url=f"https://{CANARY}/", metadata={"team": CANARY})
        for n in range(20)
    ]
    shared = [
        Document("s", "shared", "Shared", "A shared text.", metadata={"team": "green"}, public=True),
        Document("h", "hidden", f"Hidden {CANARY}", f"Inside {CANARY}.", metadata={"team": CANARY}),
        Document("e", "expired", f"Old {CANARY}", "Old text.", metadata={"team": CANARY}, public=True, expires_at=past),
    ]

    async def fill() -> None:
        async with Database(url, make_conninfo(url, user=SERVICE_ROLE), size=4) as database:
            await ingest(database, EMBEDDER, A, "reports", reports())
            await ingest(database, EMBEDDER, B, "reports", foreign)
            await ingest(database, EMBEDDER, PLATFORM, "reports", shared)

    asyncio.run(fill())
    yield name
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture(params=["embedded", "own server"])
async def either(request: pytest.FixtureRequest, world: str, open_world: str) -> AsyncIterator[Database]:
    """The service logged in as its own role (embedded), and as a login made for it (one DATABASE_URL)."""
    owner, service = (
        (world, make_conninfo(world, user=SERVICE_ROLE)) if request.param == "embedded" else (open_world, None)
    )
    async with Database(owner, service, size=2) as database:
        yield database


@pytest.fixture
async def service(world: str) -> AsyncIterator[Database]:
    async with Database(world, make_conninfo(world, user=SERVICE_ROLE), size=2) as database:
        yield database


async def scope_of(database: Database, tenant: str = A) -> Scope:
    return await Catalogue(database).scope(tenant, "reports")


async def own_scope(database: Database, tenant: str = A) -> Scope:
    scope = await scope_of(database, tenant)
    return Scope(tenant, tuple(one for one in scope.collections if one.tenant == tenant))


async def unguarded(database: Database, statement: str, timeout_s: float = 3.0) -> ResultTable:
    scope = await scope_of(database)
    return await execution.run_statement(
        database, scope, await DocumentsViews(database).of(scope), statement, timeout_s=timeout_s
    )


async def calculated(
    database: Database, aggregate: dict[str, Any], filter: dict[str, Any] | None = None
) -> ResultTable:
    scope = await own_scope(database)
    fields = filterable_fields(scope)
    query = Query(
        "",
        "en",
        scope,
        filter=None if filter is None else parse_filter(filter, fields),
        aggregate=parse_aggregate(aggregate, fields),
    )
    return await Sql(database, DocumentsViews(database)).answer(query)


# Calculations.


TEAM_RED, TEAM_BLUE = ({"type": "eq", "key": "team", "value": team} for team in ("red", "blue"))


@pytest.mark.parametrize(
    ("than", "reason"),
    [
        ({"type": "near", "of": "pages", "record": TEAM_RED}, 'one of "eq", "gt", "lt"'),
        ({"type": "gt", "of": "authors", "record": TEAM_RED}, "compares single values"),
        ({"type": "gt", "of": "pages"}, "filter"),
    ],
)
async def test_a_comparison_with_other_documents_is_checked(service: Database, than: Any, reason: str):
    with pytest.raises(BadRequest, match=reason):
        await calculated(service, {"op": "count", "than": than})


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "many"])
async def test_a_group_of_numbers_is_asked_for_by_a_number(service: Database, value: str):
    with pytest.raises(BadRequest, match="is not a value of pages"):
        await calculated(service, {"op": "count", "group_by": "pages", "between": [value]})


async def test_what_is_of_all_groups_has_no_limit(service: Database):
    with pytest.raises(BadRequest, match="over uses all groups"):
        await calculated(service, {"op": "count", "group_by": "team", "over": "avg", "order": "desc", "limit": 1})


@pytest.mark.parametrize(
    ("aggregate", "filter", "rows"),
    [
        ({"op": "count"}, None, [(5,)]),
        ({"op": "count"}, {"type": "eq", "key": "team", "value": "red"}, [(2,)]),
        ({"op": "count"}, {"type": "eq", "key": "team", "value": "O'Hara"}, [(1,)]),
        ({"op": "count", "where": {"type": "eq", "key": "final", "value": True}}, None, [(3,)]),
        ({"op": "count"}, {"type": "ne", "key": "authors", "value": "Ann"}, [(3,)]),
        ({"op": "count"}, {"type": "exists", "key": "authors", "value": False}, [(1,)]),
        ({"op": "count"}, {"type": "gte", "key": "day", "value": "2024-03-01"}, [(3,)]),
        ({"op": "count"}, {"type": "gt", "key": "Größe m²", "value": 2}, [(1,)]),
        ({"op": "count"}, {"type": "gt", "key": "moment", "value": "2025-01-15T10:00:00"}, [(1,)]),
        ({"op": "count", "where": {"type": "gte", "key": "len(authors)", "value": 2}}, None, [(2,)]),
        ({"op": "count", "where": {"type": "eq", "key": "len(authors)", "value": 0}}, None, [(1,)]),
        ({"op": "count", "group_by": "authors", "at_least": 2}, None, [("Ann", 2), ("Bob", 2), ("Cy", 2)]),
        ({"op": "count", "of": "authors", "at_least": 2}, None, [(3,)]),
        ({"op": "count", "of": "year(day)", "at_least": 2}, None, [(2,)]),
        ({"op": "count", "of": "team", "at_least": 3}, None, [(0,)]),
        ({"op": "count", "group_by": "authors", "at_most": 1}, None, [("Dee", 1)]),
        ({"op": "count", "of": "authors", "at_least": 1, "at_most": 1}, None, [(1,)]),
        ({"op": "sum", "of": "pages"}, None, [(97,)]),
        ({"op": "avg", "of": "pages", "decimals": 1}, None, [(19.4,)]),
        ({"op": "avg", "of": "len(authors)", "decimals": 2}, None, [(1.4,)]),
        ({"op": "median", "of": "pages"}, None, [(20,)]),
        ({"op": "median", "of": "pages", "group_by": "team"}, None, [("O'Hara", 7), ("blue", 30), ("red", 15)]),
        ({"op": "count", "group_by": "year(day)", "over": "avg", "decimals": 2}, None, [(1.67, 3)]),
        ({"op": "count", "group_by": "team", "over": "median"}, None, [(2, 3)]),
        ({"op": "count", "group_by": "team", "over": "max", "between": ["red", "O'Hara"]}, None, [(2, 2)]),
        ({"op": "sum", "of": "pages", "group_by": "team", "over": "min"}, None, [(7, 3)]),
        ({"op": "median", "of": "pages", "group_by": "team", "over": "avg", "decimals": 2}, None, [(17.33, 3)]),
        ({"op": "median", "of": "pages", "group_by": "team", "over": "max", "decimals": 1}, None, [(30, 3)]),
        ({"op": "median", "of": "pages", "decimals": 1}, {"type": "eq", "key": "team", "value": "none"}, [(None,)]),
        ({"op": "avg", "of": "cost", "group_by": "team", "over": "median", "decimals": 2}, None, [(1.88, 3)]),
        ({"op": "count", "of": "authors", "group_by": "year(day)", "over": "avg", "decimals": 2}, None, [(2.33, 3)]),
        (
            {
                "op": "count",
                "group_by": "authors",
                "over": "avg",
                "between": ["Ann", "Bob", "Dee"],
                "at_least": 2,
                "where": {"type": "gte", "key": "len(authors)", "value": 1},
            },
            None,
            [(2, 2)],
        ),
        ({"op": "count", "group_by": "half(day)"}, None, [(1, 5)]),
        ({"op": "max", "of": "pages"}, None, [(30,)]),
        ({"op": "min", "of": "day"}, None, [("2023-05-01",)]),
        ({"op": "max", "of": "year(day)"}, None, [(2025,)]),
        ({"op": "sum", "of": "cost"}, None, [(3.75,)]),
        ({"op": "share", "where": {"type": "eq", "key": "final", "value": True}}, None, [(60.0, 3, 5)]),
        (
            {"op": "share", "where": {"type": "eq", "key": "team", "value": "blue"}, "decimals": 2},
            {"type": "exists", "key": "authors"},
            [(50.0, 2, 4)],
        ),
        ({"op": "difference", "group_by": "team", "between": ["red", "O'Hara"]}, None, [(1,)]),
        ({"op": "difference", "group_by": "authors", "between": ["Cy", "Dee"]}, None, [(1,)]),
        ({"op": "difference", "group_by": "year(day)", "between": [2025, "2023"]}, None, [(1,)]),
        ({"op": "count", "group_by": "team"}, None, [("O'Hara", 1), ("blue", 2), ("red", 2)]),
        (
            {"op": "count", "group_by": "authors", "order": "desc"},
            None,
            [("Ann", 2), ("Bob", 2), ("Cy", 2), ("Dee", 1)],
        ),
        ({"op": "count", "group_by": "authors", "order": "desc", "limit": 1}, None, [("Ann", 2)]),
        (
            {"op": "count", "group_by": "authors", "order": "desc", "limit": 1, "ties": True},
            None,
            [("Ann", 2), ("Bob", 2), ("Cy", 2)],
        ),
        ({"op": "count", "group_by": "year(day)"}, None, [(2023, 1), (2024, 2), (2025, 2)]),
        ({"op": "count", "group_by": "quarter(day)", "order": "desc", "limit": 1}, None, [(1, 4)]),
        ({"op": "count", "group_by": "month(day)", "between": [1, 5]}, None, [(1, 2), (5, 1)]),
        ({"op": "count", "group_by": "year_month(day)", "order": "desc", "limit": 1}, None, None),
        ({"op": "count", "group_by": "year_month(day)", "between": ["2023-05"]}, None, [("2023-05", 1)]),
        ({"op": "count", "group_by": "len(authors)"}, None, [(0, 1), (1, 2), (2, 1), (3, 1)]),
        ({"op": "count", "group_by": "final"}, None, [(False, 2), (True, 3)]),
        (
            {"op": "sum", "of": "pages", "group_by": "team", "order": "asc"},
            None,
            [("O'Hara", 7), ("red", 30), ("blue", 60)],
        ),
        ({"op": "avg", "of": "pages", "group_by": "authors", "decimals": 0, "order": "desc", "limit": 1}, None, None),
        ({"op": "count", "group_by": "team", "between": ["blue", "red"]}, None, [("blue", 2), ("red", 2)]),
        (
            {"op": "share", "group_by": "team", "where": {"type": "eq", "key": "final", "value": True}, "decimals": 0},
            None,
            [("O'Hara", 100), ("blue", 50), ("red", 50)],
        ),
    ],
    ids=lambda value: json.dumps(value, ensure_ascii=False)[:60] if isinstance(value, dict) else "",
)
async def test_calculations(service: Database, aggregate: Any, filter: Any, rows: list[Any] | None):
    table = await calculated(service, aggregate, filter)
    if rows is not None:
        assert [*table.rows] == rows
    again = judge_statement(table.sql, (await DocumentsViews(service).of(await own_scope(service))).columns)
    assert again.sql == table.sql, "what is shown can be run again"


@pytest.mark.parametrize(
    ("aggregate", "ids"),
    [
        ({"op": "list"}, ["r1", "r2", "r3", "r4", "r5"]),
        ({"op": "list", "of": "pages", "order": "desc", "limit": 1}, ["r3"]),
        ({"op": "list", "of": "pages", "order": "desc", "limit": 1, "ties": True}, ["r3", "r4"]),
        ({"op": "list", "of": "len(authors)", "order": "desc", "limit": 2}, ["r3", "r1"]),
        ({"op": "list", "of": "day", "order": "asc", "limit": 2}, ["r1", "r2"]),
        ({"op": "list", "of": "cost", "order": "desc"}, ["r2", "r1", "r3", "r4", "r5"]),
        ({"op": "list", "of": "authors", "order": "desc", "limit": 1}, ["r3"]),
        ({"op": "list", "than": {"type": "gt", "of": "pages", "record": TEAM_RED}}, ["r3", "r4"]),
        ({"op": "list", "than": {"type": "lt", "of": "pages", "record": TEAM_BLUE}}, ["r1", "r2", "r5"]),
        ({"op": "list", "than": {"type": "eq", "of": "final", "record": TEAM_RED}}, ["r3", "r4", "r5"]),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
async def test_a_list_is_its_documents_in_order(service: Database, aggregate: Any, ids: list[str]):
    scope = await own_scope(service)
    query = Query("", "en", scope, aggregate=parse_aggregate(aggregate, filterable_fields(scope)))

    hits = await Sql(service, DocumentsViews(service)).search(query)

    assert [hit.id.document_id for hit in hits] == ids
    assert all(hit.chunk is None and hit.id.ordinal == 0 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].table is not None
    assert hits[0].table.columns[:2] == ("id", "title")
    assert [hit.table for hit in hits[1:]] == [None] * (len(ids) - 1)


async def test_a_calculation_is_one_hit_to_cite_that_is_no_document(service: Database):
    scope = await own_scope(service)
    query = Query(
        "", "en", scope, aggregate=parse_aggregate({"op": "count", "group_by": "team"}, filterable_fields(scope))
    )

    hits = await Sql(service, DocumentsViews(service)).search(query)

    assert len(hits) == 1
    chunk = hits[0].chunk
    assert chunk is not None
    assert chunk.title == "Calculated over reports (5 documents)"
    assert chunk.text.startswith("team | count\nO'Hara | 1\nblue | 2\nred | 2\n")
    assert "SELECT team, count(*) AS count\nFROM documents" in chunk.text
    assert hits[0].id.document_id.startswith("table:")
    assert hits[0].table == ResultTable(("team", "count"), (("O'Hara", 1), ("blue", 2), ("red", 2)), hits[0].table.sql)  # type: ignore[union-attr]


async def test_nothing_to_calculate_is_no_hit(service: Database):
    assert await Sql(service, DocumentsViews(service)).search(Query("how many", "en", await scope_of(service))) == []


async def test_a_statement_is_judged_and_run(service: Database):
    source, scope = Sql(service, DocumentsViews(service)), await scope_of(service)

    hits = await source.search(Query("", "en", scope, statement="SELECT team, count(*) FROM documents GROUP BY 1"))
    assert hits[0].table is not None
    assert sorted(hits[0].table.rows) == [("O'Hara", 1), ("blue", 2), ("green", 1), ("red", 2)]
    listed = await source.search(
        Query("", "en", scope, statement="SELECT id FROM documents ORDER BY pages DESC LIMIT 3")
    )
    assert [str(hit.id) for hit in listed] == ["0:reports/shared#0", "reports/r3#0", "reports/r4#0"]
    with pytest.raises(BadRequest, match='refused: the name "pg_sleep" is not accepted'):
        await source.search(Query("", "en", scope, statement="SELECT pg_sleep(1) FROM documents"))
    with pytest.raises(BadRequest, match="PostgreSQL refuses the statement: division by zero"):
        await source.search(Query("", "en", scope, statement="SELECT 1 / (pages - pages) FROM documents"))


async def test_a_caller_that_gives_up_ends_the_statement_in_the_server_too(service: Database, world: str):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(unguarded(service, "SELECT pg_sleep(60)"), 0.3)
    with psycopg.connect(world) as owner:
        running = owner.execute(
            "SELECT query FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(60)%'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    assert running == []
    assert (await unguarded(service, "SELECT 1")).rows == ((1,),), "the connection is usable"


async def test_a_statement_over_its_time_is_ended(service: Database):
    with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
        await unguarded(service, "SELECT pg_sleep(10)", timeout_s=0.2)
    rows = await service.fetch(A, "SELECT current_user::text", {})
    assert rows == [(SERVICE_ROLE,)], "the connection is as it was"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 2000000)",
        "SELECT array_agg(g) FROM generate_series(1, 1000000) g",
        "SELECT repeat('x', 90000) FROM generate_series(1, 1000)",
    ],
)
async def test_an_answer_too_large_is_refused(service: Database, statement: str):
    with pytest.raises(BadRequest, match="too large"):
        await unguarded(service, statement)


async def test_values_of_every_kind_are_json(service: Database):
    table = await unguarded(
        service,
        """SELECT DATE '2024-02-29' AS a, TIMESTAMP '2024-01-01 00:00' AS b, TIMESTAMP '2024-01-01 10:30' AS c,
                  INTERVAL '25 years 5 months 1 day 01:02:03.5' AS d, 1.50 AS e, 7::numeric AS f, 'NaN'::float8 AS g,
                  ARRAY[DATE '2024-02-29', NULL] AS h, (1, 'x') AS i, NULL AS j, true AS k, 12345678901234567890 AS l,
                  '{"a": [1, null]}'::jsonb AS m, 1e400::numeric AS n, INTERVAL '-1 day' AS o, TIME '10:00' AS p""",
    )
    assert table.rows[0] == (
        "2024-02-29", "2024-01-01", "2024-01-01T10:30:00", "25 years 5 months 1 day 01:02:03.5", 1.5, 7, "NaN",
        ["2024-02-29", None], [1, "x"], None, True, 12345678901234567890, {"a": [1, None]}, "1.000000000000000E+400",
        "-1 day", "10:00:00",
    )  # fmt: skip
    json.dumps(table.rows)


# The view.


async def test_the_view_has_a_typed_column_for_every_field(service: Database):
    view = await DocumentsViews(service).of(await own_scope(service))
    assert view.columns == {
        "id": "text", "title": "text", "url": "text", "language": "text", "public": "boolean",
        "created_at": "timestamp", "updated_at": "timestamp", "Größe m²": "numeric", "authors": "text[]",
        "cost": "numeric", "day": "date", "final": "boolean", "moment": "timestamp", "pages": "numeric", "team": "text",
    }  # fmt: skip
    described = describe_columns(view, {"team": ["red", "O'Hara"]})
    assert '  "Größe m²" numeric' in described
    assert "  team text  -- values such as 'red', 'O''Hara'" in described


async def test_the_view_holds_the_platform_s_public_documents_and_no_expired_ones(service: Database):
    table = await unguarded(service, "SELECT id FROM documents ORDER BY id")
    assert [row[0] for row in table.rows] == ["r1", "r2", "r3", "r4", "r5", "shared"]


async def test_a_list_written_as_text_is_both(service: Database):
    documents = [
        Document(f"{n}", f"v{n}", "t", "text", metadata={"version": version})
        for n, version in enumerate(["3.1", "3.2", "3.1, 3.2", "3.2, 3.1", "3.1"])
    ]
    await ingest(service, EMBEDDER, "versions", "v", documents)
    scope = await Catalogue(service).scope("versions", "v", fresh=True)
    view = await DocumentsViews(service).of(scope)
    table = await execution.run_statement(
        service, scope, view, "SELECT id FROM documents WHERE version = '3.1' OR '3.1' = ANY (version_list) ORDER BY id"
    )
    assert [row[0] for row in table.rows] == ["v0", "v2", "v3", "v4"]
    assert (await execution.run_statement(service, scope, view, "SELECT version FROM documents ORDER BY id")).rows[
        2
    ] == ("3.1, 3.2",)
    written = compile_filter(
        parse_filter({"type": "eq", "key": "version", "value": "3.2"}, filterable_fields(scope)), view
    )
    assert written == "'3.2' = ANY (version_list)"


async def calculated_over(database: Database, tenant: str, aggregate: dict[str, Any]) -> ResultTable:
    scope = await Catalogue(database).scope(tenant, "c", fresh=True)
    query = Query("", "en", scope, aggregate=parse_aggregate(aggregate, filterable_fields(scope)))
    return await Sql(database, DocumentsViews(database)).answer(query)


async def said(database: Database, tenant: str, statement: str) -> ResultTable:
    scope = await Catalogue(database).scope(tenant, "c", fresh=True)
    return await Sql(database, DocumentsViews(database)).answer(Query("", "en", scope, statement=statement))


async def test_a_stored_field_without_a_name_is_left_out_and_harms_no_statement(service: Database, world: str):
    tenant = "nameless"
    await ingest(service, EMBEDDER, tenant, "c", [Document("1", "d1", "T", "Text.", metadata={"team": "red"})])
    text = {"type": "string", "item": "string"}
    with psycopg.connect(world, autocommit=True) as owner:  # as it was accepted once
        owner.execute(
            "UPDATE signalbox.collection SET fields = fields || %s, version = version + 1 WHERE tenant = %s",
            (json.dumps({"": text, " ": text}), tenant),
        )
        owner.execute(
            """UPDATE signalbox.document SET fields = fields || '{"": "x", " ": "y"}' WHERE tenant = %s""", (tenant,)
        )

    assert (await said(service, tenant, "SELECT team FROM documents")).rows == (("red",),)
    everything = await said(service, tenant, "SELECT * FROM documents")
    assert {"", " "}.isdisjoint(everything.columns)
    assert (await calculated_over(service, tenant, {"op": "count"})).rows == ((1,),)
    with pytest.raises(BadRequest, match='the field "" has no column in SQL'):
        await calculated_over(service, tenant, {"op": "count", "group_by": ""})


async def test_of_very_many_fields_the_commonest_are_always_there_and_the_others_when_named(service: Database):
    tenant = "wide"
    documents = [
        Document(f"{n}", f"d{n}", "T", "Text.", metadata={"team": "red", **{f"f{n}_{k}": n * k for k in range(250)}})
        for n in range(8)
    ]
    await ingest(service, EMBEDDER, tenant, "c", documents)
    view = await DocumentsViews(service).of(await Catalogue(service).scope(tenant, "c", fresh=True))
    assert len(view.columns) > 1664

    assert (await said(service, tenant, "SELECT id, f7_249 FROM documents WHERE f7_249 > 0")).rows == (("d7", 1743),)
    assert (await said(service, tenant, "SELECT sum(a.f7_249 + b.f0_2) FROM documents a, documents b "
                       "WHERE a.team = b.team")).rows == ((1743,),)  # fmt: skip
    assert (await calculated_over(service, tenant, {"op": "max", "of": "f6_100"})).rows == ((600,),)
    assert (await calculated_over(service, tenant, {"op": "count", "group_by": "team"})).rows == (("red", 8),)
    everything = await said(service, tenant, "SELECT * FROM documents ORDER BY id")
    assert everything.columns[:7] == ("id", "title", "url", "language", "public", "created_at", "updated_at")
    assert "team" in everything.columns, "what every document has"
    assert len(everything.columns) == 7 + 500
    assert (await said(service, tenant, "SELECT * FROM documents ORDER BY id")).columns == everything.columns


LONG = "这是一个非常长的字段名称用来检查数据库标识符长度"
"""69 bytes, and the same first 63 as another."""
LONGEST = "x" * 127


async def test_names_that_postgresql_would_cut_stay_whole_and_apart(service: Database):
    tenant = "long"
    assert (LONG + "甲").encode()[:63] == (LONG + "乙").encode()[:63]
    documents = [
        Document(id, id, "T", "Text.", metadata={LONG + "甲": a, LONG + "乙": "b", f"{LONGEST}1": x, f"{LONGEST}2": 3})
        for id, a, x in (("d1", 1, 2), ("d2", 5, 7))
    ]
    await ingest(service, EMBEDDER, tenant, "c", documents)

    columns = f'"{LONG}甲", d."{LONG}乙", {LONGEST.upper()}1'
    table = await said(service, tenant, f"SELECT {columns} FROM documents d ORDER BY 1")  # noqa: S608
    assert table.columns == (LONG + "甲", LONG + "乙", f"{LONGEST}1")
    assert table.rows == ((1, "b", 2), (5, "b", 7))
    assert f'"{LONG}甲"' in table.sql
    everything = await said(service, tenant, "SELECT * FROM documents")
    assert {LONG + "甲", LONG + "乙", f"{LONGEST}1", f"{LONGEST}2"} <= set(everything.columns)
    inside = await said(
        service,
        tenant,
        f'WITH t AS (SELECT "{LONG}甲" AS "{LONGEST}3" FROM documents) SELECT sum({LONGEST}3) FROM t',  # noqa: S608
    )
    assert inside.rows == ((6,),)
    quoted = await said(service, tenant, f"SELECT '\"{LONG}甲\"' AS a FROM documents LIMIT 1")  # noqa: S608
    assert quoted.rows == ((f'"{LONG}甲"',),), "a text is no name"
    grouped = await calculated_over(service, tenant, {"op": "sum", "of": LONG + "甲", "group_by": LONG + "乙"})
    assert (grouped.columns, grouped.rows) == ((LONG + "乙", "sum"), (("b", 6),))
    counted = await calculated_over(service, tenant, {"op": "count", "group_by": f"len({LONG}乙)"})
    assert counted.columns == (f"number of {LONG}乙", "count")
    with pytest.raises(BadRequest, match=f'column "documents.{LONG}甲" must appear in the GROUP BY clause'):
        await said(service, tenant, f'SELECT "{LONG}甲" FROM documents GROUP BY "{LONG}乙"')  # noqa: S608


def test_a_field_that_is_called_as_the_short_name_of_another_is_left_out():
    short = short_name(LONGEST)
    assert len(short.encode()) <= 63
    fields = {name: Field(name, "string", "string") for name in (LONGEST, short, "a" * 63, "id", "metadata.id")}
    view = make_view(fields, fields)
    assert short not in view.columns
    assert {LONGEST, "a" * 63, "id", "metadata.id", "metadata.id_"} <= set(view.columns)


# A filter means the same.

FIELDS = PAIRS["FIELDS"]


@pytest.fixture(scope="module")
def filled(world: str) -> Iterator[tuple[str, asyncio.Runner]]:
    """The database for generated documents, and the loop it is used in."""
    with asyncio.Runner() as runner:
        yield world, runner


def conditions_on(
    url: str, runner: asyncio.Runner, documents: list[dict[str, Any]], wanted: list[Filter]
) -> list[list[bool]]:
    """Per filter, per document: whether the statement finds it."""

    async def ask() -> list[list[bool]]:
        tenant = f"pairs{uuid.uuid4().hex[:8]}"
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("INSERT INTO signalbox.collection (tenant, name, analysis) VALUES (%s, 'c', 1)", (tenant,))
            owner.execute(
                """INSERT INTO signalbox.document
                       (tenant, collection, id, title, body, metadata, fields, language, digest, chunks, words)
                   SELECT %s, (SELECT number FROM signalbox.collection WHERE tenant = %s), n, '', '', '{}', given, 'en',
                          '', 0, 0
                   FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS one (given, n)""",
                (tenant, tenant, json.dumps(documents)),
            )
            row = owner.execute("SELECT number FROM signalbox.collection WHERE tenant = %s", (tenant,)).fetchone()
        assert row is not None
        view = make_view(FIELDS, FIELDS, ["date", "dates"], collation='pg_catalog."C"')
        columns = ", ".join(f"({compile_filter(one, view)}) IS TRUE AS c{n}" for n, one in enumerate(wanted))
        async with Database(url, make_conninfo(url, user=SERVICE_ROLE), size=1) as database:
            scope = Scope(tenant, (Collection(row[0], tenant, "c"),))
            statement = f"SELECT {columns} FROM documents ORDER BY id::int"  # noqa: S608
            table = await execution.run_statement(database, scope, view, statement)
        return [list(column) for column in zip(*table.rows, strict=True)]

    return runner.run(ask())


@settings(derandomize=True, database=None, deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(pool=PAIRS["pools"], seed=st.integers(0, 2**32))
def test_a_filter_means_in_sql_what_it_means_in_python(
    filled: tuple[str, asyncio.Runner], pool: dict[str, list[Any]], seed: int
):
    dice = random.Random(seed)
    documents = [PAIRS["document"](dice, pool) for _ in range(100)]
    wanted = [parse_filter(PAIRS["expression"](dice, pool), FIELDS) for _ in range(60)]
    for one, answers in zip(wanted, conditions_on(*filled, documents, wanted), strict=True):
        for values, answer in zip(documents, answers, strict=True):
            assert matches_filter(one, values) is answer, (filter_to_json(one), values)


def test_every_odd_value_is_compared_in_sql_as_in_python(filled: tuple[str, asyncio.Runner]):
    for key in ("text", "texts", "number", "numbers"):
        field = FIELDS[key]
        pool = PAIRS["ODD_TEXTS"] if field.item == "string" else PAIRS["ODD_NUMBERS"]
        documents = [{key: [value] if field.type == "list" else value} for value in pool] + [{}]
        ops = ["eq", "ne", "gt", "gte", "lt", "lte"] + (["prefix", "contains"] if field.item == "string" else [])
        for op in ops:
            wanted = [parse_filter({"type": op, "key": key, "value": value}, FIELDS) for value in pool]
            for one, answers in zip(wanted, conditions_on(*filled, documents, wanted), strict=True):
                for values, answer in zip(documents, answers, strict=True):
                    assert matches_filter(one, values) is answer, (filter_to_json(one), values)


def test_a_compiled_filter_is_accepted_by_the_guard():
    dice = random.Random(3)
    pool = {
        key: PAIRS[name] for key, name in (("string", "ODD_TEXTS"), ("number", "ODD_NUMBERS"), ("date", "ODD_DATES"))
    }
    view = make_view(FIELDS, FIELDS, ["date", "dates"])
    for _ in range(300):
        data = PAIRS["expression"](dice, {**pool, "boolean": [True, False]})
        if "odd key" in json.dumps(data):
            continue  # such a name cannot be written in a statement that the guard reads
        statement = f"SELECT id FROM documents WHERE {compile_filter(parse_filter(data, FIELDS), view)}"  # noqa: S608
        verdict = judge_statement(statement, view.columns)
        assert verdict.ok or len(statement) > 4000, (verdict.reason, statement)


# With the guard switched off: the second wall.

ESCAPES = [
    "SELECT 1) AS answer; DELETE FROM signalbox.document; SELECT * FROM (SELECT 1",
    "SELECT 1) AS answer; COMMIT; BEGIN; SELECT * FROM (SELECT 1",
    "SELECT tenant, id FROM signalbox.document", "SELECT * FROM signalbox.document", "TABLE signalbox.document",
    "SELECT body FROM signalbox.document", "SELECT metadata FROM signalbox.document",
    "SELECT * FROM signalbox.secret", "SELECT * FROM signalbox.login", "SELECT * FROM signalbox.chunk",
    "SELECT * FROM signalbox.collection", "SELECT * FROM signalbox.term", "SELECT * FROM signalbox.migration",
    "SELECT * FROM pg_authid", "SELECT * FROM pg_shadow", "SELECT usename, query FROM pg_stat_activity",
    "SELECT * FROM pg_stats WHERE schemaname = 'signalbox'", "SELECT * FROM pg_statistic",
    "SELECT * FROM pg_largeobject",
    "SELECT set_config('signalbox.scope', '{B}', true), tenant, id FROM signalbox.document",
    "SELECT tenant, id FROM signalbox.document WHERE set_config('signalbox.scope', '{forged}', true) IS NOT NULL",
    "WITH x AS MATERIALIZED (SELECT set_config('signalbox.scope', '{forged}', true)) SELECT d.id FROM x, "
    "signalbox.document d",
    "SELECT d.id FROM (SELECT set_config('signalbox.scope', '{forged}', true)) x, LATERAL (SELECT id FROM "
    "signalbox.document) d",
    "SELECT set_config('role', 'none', true), tenant, id FROM signalbox.document",
    "SELECT set_config('role', 'postgres', true), tenant, id FROM signalbox.document",
    "SELECT set_config('role', 'signalbox_search', true), tenant, id FROM signalbox.document",
    "SELECT set_config('session_authorization', 'postgres', true), tenant, id FROM signalbox.document",
    "SELECT set_config('row_security', 'off', true), tenant, id FROM signalbox.document",
    "SELECT set_config('transaction_read_only', 'off', true), 1",
    "SELECT ts_rewrite('a', 'COMMIT')", "SELECT ts_rewrite('a', 'SET ROLE none')",
    "SELECT ts_rewrite('a', 'CREATE TEMP TABLE x ()')",
    "SELECT * FROM ts_stat('DELETE FROM signalbox.document RETURNING to_tsvector(''a'')')",
    "SELECT * FROM signalbox.nearest('{forged}', '{1,2,3}', 1::smallint, NULL, NULL, 10)",
    "SELECT * FROM signalbox.passages('{forged}', '{globex}', '{2}', '{x}', '{0}')",
    "SELECT signalbox.verified_tenant('{forged}')", "SELECT signalbox.tenant()",
    "SELECT signalbox.refresh_statistics()",
    "SELECT signalbox.few_passages('globex', '{1,2,3}', '$', '{}')", "SELECT signalbox.register_embedder('x', 3)",
    "SELECT nextval('signalbox.collection_number')", "SELECT setval('signalbox.collection_number', 1)",
    "SELECT lo_create(0)", "SELECT lo_from_bytea(0, 'x')", "SELECT lo_import('/etc/passwd')",
    "SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('.')", "SELECT pg_stat_file('PG_VERSION')",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity",
    "SELECT pg_advisory_lock(7306521445210918)", "SELECT pg_notify('x', 'y')", "SELECT pg_reload_conf()",
    "WITH x AS (DELETE FROM signalbox.document RETURNING id) SELECT * FROM x",
    "WITH x AS (UPDATE signalbox.document SET title = 'x' RETURNING id) SELECT * FROM x",
    "SELECT * INTO TEMP documents FROM signalbox.document", "SELECT * FROM signalbox.document FOR UPDATE",
    "SELECT id FROM signalbox.document WHERE 1 / length(id) IS NOT NULL",
    "SELECT ctid, xmin, tableoid FROM signalbox.document",
    "SELECT row_to_json(d) FROM signalbox.document d", "SELECT d FROM signalbox.document d",
]  # fmt: skip


# Run by a function that takes a statement as text. As the owner the first four show what is hidden, the others write.
TELLS = [
    "SELECT array_to_tsvector(ARRAY[encode(key, ''hex'')]) FROM signalbox.secret",
    "SELECT array_to_tsvector(ARRAY[password]) FROM signalbox.login",
    "SELECT array_to_tsvector(ARRAY[id]) FROM signalbox.document",
    "SELECT array_to_tsvector(ARRAY[document_id]) FROM signalbox.chunk",
    "SELECT array_to_tsvector(ARRAY[lo_create(0)::text])",
    "SELECT array_to_tsvector(ARRAY[nextval(''signalbox.collection_number'')::text])",
    "SELECT array_to_tsvector(ARRAY[signalbox.register_embedder(''x'', 3)::text])",
]
ESCAPES += [f"SELECT word FROM ts_stat('{one}')" for one in TELLS]  # noqa: S608
ESCAPES += [
    f"SELECT set_config('role', '{role}', true), word FROM ts_stat('{one}')"  # noqa: S608
    for one in TELLS
    for role in ("none", "signalbox_app", "signalbox_search")
]


async def state(owner: psycopg.AsyncConnection[Any]) -> list[Any]:
    """What there is: rows of every table, roles, objects, locks that outlive a transaction."""
    found = []
    tables = await (
        await owner.execute(
            "SELECT oid::regclass::text FROM pg_class"
            " WHERE relnamespace = 'signalbox'::regnamespace AND relkind = 'r' ORDER BY 1"
        )
    ).fetchall()
    for (table,) in tables:
        cursor = await owner.execute(f"SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {table} t".encode())  # noqa: S608
        found.append((table, await cursor.fetchone()))
    for statement in (
        "SELECT count(*) FROM pg_class", "SELECT count(*) FROM pg_roles",
        "SELECT count(*) FROM pg_largeobject_metadata",
        "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE locktype = 'advisory' AND datname = current_database()",
        "SELECT last_value, is_called FROM signalbox.collection_number", "SELECT count(*) FROM pg_prepared_xacts",
    ):  # fmt: skip
        found.append((statement, await (await owner.execute(statement.encode())).fetchone()))
    return found


async def test_what_is_tried_below_works_for_the_owner(open_world: str):
    async with (
        Database(open_world, None, size=1),
        await psycopg.AsyncConnection.connect(open_world, autocommit=True) as owner,
    ):
        secret = await (await owner.execute("SELECT encode(key, 'hex') FROM signalbox.secret")).fetchone()
        login = await (await owner.execute("SELECT password FROM signalbox.login")).fetchone()
        assert secret
        assert login
        for told, word in zip(TELLS, (secret[0], login[0], CANARY, CANARY), strict=False):
            rows = await (await owner.execute(f"SELECT word FROM ts_stat('{told}')".encode())).fetchall()  # noqa: S608
            assert word in str(rows), told
        for done in TELLS[4:]:
            before = await state(owner)
            async with owner.transaction(force_rollback=True):
                await owner.execute(f"SELECT word FROM ts_stat('{done}')".encode())  # noqa: S608
                assert await state(owner) != before, done


async def test_without_the_guard_nothing_is_written_and_nothing_foreign_read(
    either: Database, request: pytest.FixtureRequest
):
    scope = await scope_of(either)
    view = await DocumentsViews(either).of(scope)
    forged = either.scope(A)[:65] + B
    statements = ESCAPES
    if request.node.callspec.params["either"] == "own server":
        statements = ESCAPES + DATA["BAD_CALLS"] + DATA["HOSTILE"][::5]
    ran = 0
    refusals: dict[str, str] = {}
    async with await psycopg.AsyncConnection.connect(either.owner, autocommit=True) as owner:
        secret = await (await owner.execute("SELECT encode(key, 'hex') FROM signalbox.secret")).fetchone()
        login = await (await owner.execute("SELECT password FROM signalbox.login")).fetchone()
        hidden = [CANARY, B, *(str(row[0]) for row in (secret, login) if row)]
        before = await state(owner)
        for given in statements:
            statement = given.replace("{forged}", forged).replace("{B}", B)
            if "\0" in statement or "\ud800" in statement or "00000000" in statement:
                continue  # no text that is sent, or one that fills the memory of this machine
            if not statement.upper().lstrip("( ;\\").startswith(("SELECT", "WITH", "TABLE", "VALUES")):
                statement = f"SELECT {statement}" if given in DATA["BAD_CALLS"] else statement
            try:
                table = await execution.run_statement(either, scope, view, statement, timeout_s=0.3)
            except (BadRequest, Unavailable) as refused:
                refusals[given] = str(refused)
                continue
            ran += 1
            for word in hidden:
                # What the statement itself says it may show.
                assert word not in str(table.rows) or word in statement, statement
        assert await state(owner) == before
    assert ran >= (5 if statements is ESCAPES else 100), "much of it runs, and does no harm"
    badly_written = re.compile("unsupported|syntax error|does not exist")
    assert not [one for one in ESCAPES if badly_written.search(refusals.get(one, ""))], "refused, but for its rights"
    rows = await either.fetch(A, "SELECT current_user::text, current_setting('transaction_read_only')", {})
    assert rows == [(SERVICE_ROLE, "off")], "the connection is as it was"


BESIDE = "canaryofastatementbeside"
# It runs for as long as the test holds the lock, and sleeps meanwhile.
UNTIL_UNLOCKED = f"""
    WITH RECURSIVE tried AS (
        SELECT pg_try_advisory_lock_shared(7) AS got
        UNION ALL SELECT pg_try_advisory_lock_shared(7) FROM tried WHERE NOT got AND pg_sleep(0.02) IS NOT NULL
    ) SELECT '{BESIDE}' FROM tried WHERE got"""  # noqa: S608
SEES = "SELECT string_agg(query, ' ') FROM pg_stat_activity WHERE query LIKE '%canaryof%' AND pid <> pg_backend_pid()"
FLIPS = [
    "SELECT set_config('role', '{role}', true), ({then})",
    "SELECT ({then}) FROM (SELECT set_config('role', '{role}', true) OFFSET 0) AS flipped",
    "WITH flipped AS MATERIALIZED (SELECT set_config('role', '{role}', true) AS role) "
    "SELECT ({then}) FROM flipped WHERE role <> ''",
]


@asynccontextmanager
async def running_beside(
    url: str, service: str | None
) -> AsyncIterator[tuple[int, Callable[[], Awaitable[ResultTable]]]]:
    """A statement of the other tenant that runs under the same login: the number of its process, and what ends it."""
    async with (
        Database(url, service, size=1) as database,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as owner,
    ):
        scope = await scope_of(database, B)
        view = await DocumentsViews(database).of(scope)
        await owner.execute("SELECT pg_advisory_lock(7)")
        task = asyncio.ensure_future(execution.run_statement(database, scope, view, UNTIL_UNLOCKED, timeout_s=250))
        row = None
        while row is None:
            await asyncio.sleep(0.01)
            active = f"SELECT pid FROM pg_stat_activity WHERE query LIKE '%{BESIDE}%' AND wait_event = 'PgSleep'"  # noqa: S608
            row = await (await owner.execute(active.encode())).fetchone()

        async def end() -> ResultTable:
            assert not task.done(), "it still runs"
            await owner.execute("SELECT pg_advisory_unlock(7)")
            return await task

        yield row[0], end


async def test_on_the_embedded_server_a_statement_neither_sees_nor_ends_what_runs_beside(world: str, service: Database):
    async with running_beside(world, make_conninfo(world, user=SERVICE_ROLE)) as (pid, end):
        tried = [
            SEES,
            "SELECT string_agg(pg_stat_get_backend_activity(one), ' ') FROM pg_stat_get_backend_idset() AS one",
            "SELECT string_agg(query, ' ') FROM pg_stat_get_activity(NULL)",
            f"SELECT pg_terminate_backend({pid})::text",
            f"SELECT pg_cancel_backend({pid})::text",
        ]
        for then in tried:
            with pytest.raises(BadRequest, match="permission denied for function"):
                await unguarded(service, then)
            for flip in FLIPS:
                for role in ("signalbox_app", "none"):
                    with pytest.raises(BadRequest, match="permission denied for function"):
                        await unguarded(service, flip.format(role=role, then=then))
                    with pytest.raises(BadRequest, match="permission denied for function set_config"):
                        await unguarded(service, flip.format(role=role, then="SELECT 1"))
        assert (await end()).rows == ((BESIDE,),)


async def test_on_a_server_of_the_user_s_own_it_sees_them_with_the_service_s_login_only(open_world: str):
    # What the README says of it; and that the test above could fail.
    async with Database(open_world, None, size=1) as database, running_beside(open_world, None) as (_, end):
        assert BESIDE not in str((await unguarded(database, SEES)).rows)
        assert BESIDE in str((await unguarded(database, FLIPS[0].format(role="none", then=SEES))).rows)
        assert (await end()).rows == ((BESIDE,),)


def test_the_role_of_statements_has_no_other_rights(world: str):
    with psycopg.connect(world) as owner:
        rights = owner.execute(
            """SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
               WHERE c.relnamespace = 'signalbox'::regnamespace AND NOT a.attisdropped
                 AND (has_column_privilege('signalbox_sql', c.oid, a.attnum, 'SELECT')
                      OR has_column_privilege('signalbox_sql', c.oid, a.attnum, 'INSERT')
                      OR has_column_privilege('signalbox_sql', c.oid, a.attnum, 'UPDATE'))"""
        ).fetchall()
        assert sorted(rights) == [
            ("document", name)
            for name in sorted(
                (
                    "tenant",
                    "collection",
                    "id",
                    "title",
                    "url",
                    "fields",
                    "language",
                    "public",
                    "enabled",
                    "expires_at",
                    "created_at",
                    "updated_at",
                )
            )
        ]
        tables = owner.execute(
            """SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'signalbox'::regnamespace
               AND relkind IN ('r', 'p', 'v', 'm') AND has_table_privilege('signalbox_sql', oid,
                   'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')"""
        ).fetchall()
        assert tables == []
        functions = owner.execute(
            """SELECT proname FROM pg_proc WHERE pronamespace = 'signalbox'::regnamespace
               AND has_function_privilege('signalbox_sql', oid, 'EXECUTE') ORDER BY 1"""
        ).fetchall()
        assert [row[0] for row in functions] == [
            "parts", "parts", "principals", "readable", "tenant", "verified_principals", "verified_tenant",
        ]  # fmt: skip
        role = owner.execute(
            """SELECT rolcanlogin, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb,
                      has_schema_privilege(oid, 'signalbox', 'CREATE'), has_schema_privilege(oid, 'public', 'CREATE'),
                      (SELECT count(*) FROM pg_auth_members WHERE member = r.oid),
                      pg_has_role('signalbox_app', oid, 'USAGE'), pg_has_role('signalbox_app', oid, 'SET')
               FROM pg_roles r WHERE rolname = 'signalbox_sql'"""
        ).fetchone()
        assert role == (False, False, False, False, False, False, False, 0, False, True)


async def test_every_analytic_statement_is_read_by_postgresql(service: Database):
    fields = {
        "authors": ["x"], "status": "Final", "type": "Process", "created": "2024-01-01", "python_version": "3.1",
        "topics": ["Typing"], "sponsor": "y", "number": 3, "pages": 2, "weights": [1, 2], "final": True,
        "Reading time": 4, "owner": {"name": "z"}, "价格": 5,
    }  # fmt: skip
    await ingest(service, EMBEDDER, "analyst", "a", [Document("1", "d1", "Title", "Text.", metadata=fields)])
    scope = await Catalogue(service).scope("analyst", "a", fresh=True)
    source = Sql(service, DocumentsViews(service))
    assert set((await source.views.of(scope)).columns) == set(DATA["COLUMNS"])
    for statement in DATA["BENIGN"]:
        await source.answer(Query("", "en", scope, statement=statement))
