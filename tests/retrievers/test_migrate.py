"""The schema: what migrations make of an empty database, and what they say when they cannot."""

import os
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from retrievers.core.errors import Unavailable
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server import schema_migrations as migrating
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import Migration, is_schema_current, migrate, packaged_migrations

# What an owner must be able to pass on where another database of the server has made the roles.
OURS = ", ".join(role for role in migrating.ROLES if role != migrating.SQL_ROLE)
SNAPSHOT = Path(migrating.__file__).parents[1] / "schema.sql"


@pytest.fixture
def empty(server: EmbeddedServer, template: str) -> Iterator[Callable[..., str]]:
    """Makes empty databases on a server that has the roles; `owner` is who they belong to."""
    made: list[str] = []

    def make(owner: str = "postgres") -> str:
        made.append(f"empty_{uuid.uuid4().hex[:12]}")
        run(server, f"CREATE DATABASE {made[-1]} OWNER {owner}")
        return server.conninfo(database=made[-1])

    yield make
    for name in made:
        run(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(server: EmbeddedServer) -> Iterator[str]:
    """A role without any right."""
    name = f"owner_{uuid.uuid4().hex[:8]}"
    run(server, f"CREATE ROLE {name} LOGIN")
    yield name
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        owned = connection.execute(
            "SELECT datname FROM pg_database WHERE datdba = %s::regrole AND datallowconn", (name,)
        ).fetchall()
    for database in ["postgres", *(row[0] for row in owned)]:
        with psycopg.connect(server.conninfo(database=database), autocommit=True) as connection:
            connection.execute(f"REASSIGN OWNED BY {name} TO postgres; DROP OWNED BY {name} CASCADE".encode())
    run(server, f"DROP ROLE {name}")


def run(server: EmbeddedServer, statement: str) -> None:
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(statement.encode())


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def refused(action: Callable[[], object]) -> str:
    """What an impossible migration says: always one line."""
    with pytest.raises(Unavailable) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def dump(server: EmbeddedServer, url: str) -> str:
    """The schema as pg_dump writes it, without what changes from release to release."""
    program = server._binaries() / "pg_dump"
    text = subprocess.run(
        [str(program), "--schema-only", "--no-owner", "--schema=signalbox", f"--dbname={url}"],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    ).stdout
    lines = [line for line in text.splitlines() if not re.match(r"--|\\(un)?restrict|SET |SELECT pg_catalog", line)]
    return re.sub(r"\n{2,}", "\n\n", "\n".join(lines)).strip() + "\n"


def test_migrations_make_exactly_the_committed_schema(server: EmbeddedServer, empty: Callable[..., str]):
    if server._version != 18:
        pytest.skip("the snapshot is of PostgreSQL 18")
    url = empty()
    migrate(url)

    made = dump(server, url)

    if os.environ.get("SIGNALBOX_WRITE_SCHEMA"):
        SNAPSHOT.write_text(made, encoding="utf-8")
    assert made == SNAPSHOT.read_text(encoding="utf-8"), "run this test once with SIGNALBOX_WRITE_SCHEMA=1"


def test_a_second_run_applies_nothing(empty: Callable[..., str]):
    url = empty()

    assert [one.version for one in migrate(url)] == [one.version for one in packaged_migrations()]
    assert migrate(url) == []
    with psycopg.connect(url) as connection:
        assert is_schema_current(connection)


def test_four_that_migrate_at_once_apply_each_migration_once(empty: Callable[..., str]):
    url = empty()

    with ThreadPoolExecutor(4) as pool:
        applied = list(pool.map(migrate, [url] * 4))

    assert sorted(len(one) for one in applied) == [0, 0, 0, len(packaged_migrations())]


def test_databases_of_one_server_can_be_migrated_at_once(empty: Callable[..., str], role: str, server: EmbeddedServer):
    # Roles are shared by the databases of a server, locks are not.
    run(server, f"ALTER ROLE {role} CREATEROLE SUPERUSER")
    urls = [make_conninfo(empty(role), user=role) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        assert [len(one) for one in pool.map(migrate, urls)] == [len(packaged_migrations())] * 4


def test_a_migration_is_applied_whole_or_not_at_all(empty: Callable[..., str]):
    url = empty()
    broken = Migration(9999, "broken", "CREATE TABLE half (a int); SELECT 1 / 0;")

    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(url, [*packaged_migrations(), broken])

    assert rows(url, "SELECT to_regclass('signalbox.half')") == [(None,)]
    assert migrate(url) == []


def test_a_file_that_changed_after_it_was_applied_is_refused(owner_url: str):
    first, *others = packaged_migrations()
    changed = replace(first, statements=first.statements + "-- later")

    assert "was changed after it was applied" in refused(lambda: migrate(owner_url, [changed, *others]))
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("UPDATE signalbox.migration SET checksum = 'other'")
        assert not is_schema_current(connection)


def test_a_schema_newer_than_the_program_is_refused(owner_url: str):
    rows(owner_url, "INSERT INTO signalbox.migration VALUES (9999, 'later', '')")

    assert refused(lambda: migrate(owner_url)).endswith("newer than this program (migration 9999): upgrade signalbox")


def test_an_owner_who_may_create_roles_and_schemas_need_be_no_superuser(
    empty: Callable[..., str], role: str, server: EmbeddedServer
):
    run(server, f"ALTER ROLE {role} CREATEROLE")
    run(server, f"GRANT {OURS} TO {role} WITH ADMIN OPTION")
    url = empty(role)
    rows(url, "CREATE EXTENSION vector")

    assert len(migrate(make_conninfo(url, user=role))) == len(packaged_migrations())


async def test_an_ordinary_owner_can_serve_what_it_migrated(
    empty: Callable[..., str], role: str, server: EmbeddedServer
):
    run(server, f"GRANT {OURS} TO {role} WITH ADMIN OPTION")
    run(server, f"ALTER ROLE {role} CREATEROLE")
    url = empty(role)
    rows(url, "CREATE EXTENSION vector")

    async with Database(make_conninfo(url, user=role)) as database:
        seen = await database.fetch("acme", "SELECT current_user, session_user, count(*) FROM signalbox.document", {})
        [(name, hashed)] = rows(url, "SELECT name, rolpassword FROM signalbox.login JOIN pg_authid ON rolname = name")
        assert seen == [("signalbox_app", name, 0)]
        assert hashed.startswith("SCRAM-SHA-256$")
    async with Database(make_conninfo(url, user=role)) as database:
        assert await database.fetch("acme", "SELECT session_user", {}) == [(name,)]


async def test_an_owner_who_may_not_make_a_login_is_told_to_bring_one(
    empty: Callable[..., str], role: str, server: EmbeddedServer
):
    run(server, f"GRANT {OURS} TO {role} WITH ADMIN OPTION")
    url = empty(role)
    rows(url, "CREATE EXTENSION vector")
    owner = make_conninfo(url, user=role)

    with pytest.raises(Unavailable, match=r"CREATEROLE, or set SERVICE_URL") as caught:
        async with Database(owner):
            pass
    assert "\n" not in str(caught.value)

    async with Database(owner, make_conninfo(url, user="signalbox_app")) as database:
        assert await database.fetch("acme", "SELECT session_user", {}) == [("signalbox_app",)]


async def test_a_login_that_went_missing_is_made_again(owner_url: str, server: EmbeddedServer):
    async with Database(owner_url):
        pass
    [(name,)] = rows(owner_url, "SELECT name FROM signalbox.login")
    run(server, f"DROP ROLE {name}")

    async with Database(owner_url) as database:
        assert await database.fetch("acme", "SELECT session_user", {}) == [(name,)]


async def test_a_service_login_that_row_security_does_not_bind_is_refused(owner_url: str, role: str):
    with pytest.raises(Unavailable, match="which row security does not restrict"):
        async with Database(owner_url, owner_url):
            pass
    with pytest.raises(Unavailable, match="is not a member of it"):
        async with Database(owner_url, make_conninfo(owner_url, user=role)):
            pass
    with pytest.raises(Unavailable, match=r"cannot log in: .*; check SERVICE_URL"):
        async with Database(owner_url, make_conninfo(owner_url, user="nobody_at_all")):
            pass


@pytest.mark.parametrize("lacking", ["CREATEROLE", "CREATE on the database", "the extension"])
def test_an_owner_who_lacks_a_right_is_told_which(
    empty: Callable[..., str], role: str, server: EmbeddedServer, lacking: str
):
    url = empty(role if lacking == "CREATEROLE" else "postgres")
    if lacking != "the extension":
        rows(url, "CREATE EXTENSION vector")
    if lacking != "CREATEROLE":
        run(
            server,
            f"GRANT {OURS} TO {role} WITH ADMIN OPTION",
        )

    message = refused(lambda: migrate(make_conninfo(url, user=role)))

    assert f"the role {role} may not prepare it" in message
    assert f"ALTER ROLE {role} CREATEROLE; GRANT CREATE ON DATABASE ... TO {role}; CREATE EXTENSION vector" in message


class StandIn:
    """A server of any age: answers what the checks ask."""

    def __init__(self, postgres: int, installed: str | None, offered: str | None) -> None:
        self.info = self
        self.server_version = postgres * 10000 + 3
        self._answers = [(installed,) if installed else None, (offered,) if offered else None]

    def execute(self, statement: str) -> "StandIn":
        assert statement.startswith("SELECT"), statement
        return self

    def fetchone(self) -> tuple[str] | None:
        return self._answers.pop(0)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ((15, "0.8.0", None), "it is PostgreSQL 15; signalbox needs 16 or newer: upgrade the server"),
        ((17, "0.7.4", None), "pgvector is 0.7.4; signalbox needs 0.8 or newer: upgrade it"),
        ((17, None, "0.5.1"), "pgvector is 0.5.1; signalbox needs 0.8 or newer: upgrade it"),
        ((17, None, None), "the extension pgvector is not installed on the server: install it"),
    ],
)
def test_a_server_that_is_too_old_is_told_apart(server: tuple[int, str | None, str | None], message: str):
    stand_in: Any = StandIn(*server)
    assert message in refused(lambda: migrating._check_server(stand_in))


@pytest.mark.parametrize("version", ["0.8", "0.8.5", "0.10.0", "1.0"])
def test_newer_versions_of_pgvector_are_taken(version: str):
    stand_in: Any = StandIn(16, version, None)
    migrating._check_server(stand_in)


ADDRESSES = {
    "nobody listens": "host=127.0.0.1 port=1 user=u password=hunter2 dbname=x",
    "no such socket": "host=/nonexistent user=u password=hunter2 dbname=x",
    "garbage": "hunter2 is no address",
    "wrong scheme": "postgres//user:hunter2@host/x",
    "a blank in the password": "postgresql://user:hunter2 @host/x",
    "open bracket": "postgresql://u:hunter2@[::1/x",
    "not a port": "postgresql://u:hunter2@127.0.0.1:abc/x",
    "unknown option": "postgresql://u:hunter2@127.0.0.1/x?hunter2=1",
}


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES.keys())
def test_an_address_that_leads_nowhere_is_one_line_without_the_password(address: str):
    message = refused(lambda: migrate(address))

    assert "DATABASE_URL" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES.keys())
async def test_the_service_says_the_same_of_an_address_that_leads_nowhere(address: str):
    with pytest.raises(Unavailable, match="DATABASE_URL") as caught:
        async with Database(address):
            pass
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_role_that_did_not_migrate_is_told_what_to_do(owner_url: str, service_url: str):
    with pytest.raises(Unavailable, match="`signalbox migrate`") as caught:
        async with Database(service_url):
            pass
    assert "\n" not in str(caught.value)
