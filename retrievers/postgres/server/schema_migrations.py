"""Schema migrations: plain SQL files, each applied once, in order, under an advisory lock."""

import hashlib
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from retrievers.core.errors import Unavailable
from retrievers.postgres.server.errors import convert_server_errors, first_line

LEAST_POSTGRES = 16
LEAST_VECTOR = (0, 8)
ROLES = ("signalbox_app", "signalbox_search", "signalbox_sql", "signalbox_keys", "signalbox_tenants")
SERVICE_ROLE = "signalbox_app"
SQL_ROLE = "signalbox_sql"
SET_CONFIG = "pg_catalog.set_config(text, text, boolean)"
# An arbitrary fixed number: every process that migrates this database takes this lock.
MIGRATION_LOCK = 7_306_521_445_210_918
_UNREADABLE = (
    "DATABASE_URL is no connection string; it looks like postgresql://USER:PASSWORD@HOST/NAME, "
    "with @, : and / in the password written %40, %3A and %2F"
)
_SOURCE = "the database"
_LOOKS_AT_POOLER = 3
_ADVICE = "check DATABASE_URL and that the server runs"


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    statements: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the file's text."""
        return hashlib.sha256(self.statements.encode()).hexdigest()


def packaged_migrations() -> list[Migration]:
    """Return the migrations that this package contains, sorted by version."""
    found = []
    for file in files("retrievers.postgres").joinpath("migrations").iterdir():
        name = re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name)
        if name:
            found.append(Migration(int(name[1]), name[2], file.read_text(encoding="utf-8")))
    return sorted(found, key=lambda migration: migration.version)


def migrate(conninfo: str, known: Sequence[Migration] | None = None) -> list[Migration]:
    """Bring the schema up to date.

    Args:
        conninfo: the owner's connection string. The owner must be allowed to create roles, a schema and, unless it
            exists, the extension vector.
        known: the migrations to apply; None for those of this package.
    Returns:
        The migrations that were applied by this call.
    Raises:
        Unavailable: the server cannot be reached, is too old, lacks pgvector or permissions, or has a migration that
            this program does not know. The message says what to do.
    """
    known = packaged_migrations() if known is None else known
    check_conninfo(conninfo)
    try:
        with (
            convert_server_errors(_ADVICE),
            psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection,
        ):
            refuse_pooler(connection, conninfo)
            connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            _check_server(connection)
            return _apply(connection, known)
    except psycopg.errors.InsufficientPrivilege as error:
        user = _user(conninfo)
        raise Unavailable(
            _SOURCE,
            f"the role {user} may not prepare it ({first_line(error)}); run `signalbox migrate` once as a role that "
            f"may: ALTER ROLE {user} CREATEROLE; GRANT CREATE ON DATABASE ... TO {user}; CREATE EXTENSION vector",
        ) from error
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise
        # The original message would quote the string, which may contain a password.
        raise Unavailable(_SOURCE, _UNREADABLE) from None


def check_conninfo(address: str) -> None:
    """Check a connection string, because the errors for a malformed one could quote parts of its password.

    Raises:
        Unavailable: the string does not parse, or an unescaped character in its password splits it at a wrong place.
    """
    try:
        parts = {key: str(value) for key, value in conninfo_to_dict(address).items()}
    except psycopg.ProgrammingError:
        raise Unavailable(_SOURCE, _UNREADABLE) from None
    ports = parts.get("port", "").split(",")
    if "@" in parts.get("host", "") + parts.get("dbname", "") or not all(port.isdigit() or not port for port in ports):
        raise Unavailable(_SOURCE, _UNREADABLE)


def refuse_pooler(connection: "psycopg.Connection[tuple[object, ...]]", address: str) -> None:
    """Check that the owner's address is not that of a connection pooler in transaction mode.

    Migrations and index builds hold locks that belong to a session, but such a pooler would run their statements in
    different sessions. A pooler shows by two signs: it reports another process number than the server, and two
    connections to it share one process of the server.

    Args:
        connection: a connection to `address`, outside a transaction.
        address: the owner's connection string.
    Raises:
        Unavailable: there is such a pooler at the address.
    """
    for _ in range(_LOOKS_AT_POOLER):
        own = connection.execute("SELECT pg_backend_pid()").fetchone()
        if own == (connection.info.backend_pid,):
            return
        with psycopg.connect(address, autocommit=True, prepare_threshold=None, connect_timeout=10) as other:
            if other.execute("SELECT pg_backend_pid()").fetchone() == own:
                raise Unavailable(
                    _SOURCE,
                    "DATABASE_URL leads through a pooler in transaction mode, where locks of a session get lost; "
                    "let it name PostgreSQL itself, and SERVICE_URL the pooler",
                )


def is_schema_current(connection: "psycopg.Connection[tuple[object, ...]]") -> bool:
    """Return whether all migrations of this package are applied to the database. Fast, and takes no lock."""
    if connection.execute("SELECT to_regclass('signalbox.migration')").fetchone() == (None,):
        return False
    rows = connection.execute("SELECT version, checksum FROM signalbox.migration ORDER BY version").fetchall()
    return rows == [(migration.version, migration.checksum) for migration in packaged_migrations()]


def service_conninfo(owner: str) -> str:
    """Return the connection string of the login that the service uses by default. Creates the login if needed.

    Each database has its own login. The role `signalbox_app` cannot serve as login: all databases of the server share
    it, so two services would overwrite each other's password.

    Raises:
        Unavailable: the owner may not create the login.
    """
    try:
        with convert_server_errors(_ADVICE), psycopg.connect(owner, autocommit=True, connect_timeout=10) as connection:
            connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
            name, password = _ensure_login(connection)
    except psycopg.errors.InsufficientPrivilege as error:
        user = _user(owner)
        raise Unavailable(
            _SOURCE,
            f"the role {user} may not make the service's login ({first_line(error)}): ALTER ROLE {user} CREATEROLE, "
            f"or set SERVICE_URL to a login of your own IN ROLE {SERVICE_ROLE}",
        ) from error
    return make_conninfo(owner, user=name, password=password)


def _check_server(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    version = connection.info.server_version // 10000
    if version < LEAST_POSTGRES:
        raise Unavailable(
            _SOURCE, f"it is PostgreSQL {version}; signalbox needs {LEAST_POSTGRES} or newer: upgrade the server"
        )
    installed = connection.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    if installed is None:
        offered = connection.execute(
            "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
        ).fetchone()
        if offered is None:
            raise Unavailable(
                _SOURCE,
                "the extension pgvector is not installed on the server: "
                "install it (>= 0.8), then run `signalbox migrate`",
            )
        _check_vector(str(offered[0]))
        connection.execute("CREATE EXTENSION vector")
    else:
        _check_vector(str(installed[0]))


def _check_vector(version: str) -> None:
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < LEAST_VECTOR:
        raise Unavailable(
            _SOURCE,
            f"pgvector is {version}; signalbox needs 0.8 or newer: upgrade it, then ALTER EXTENSION vector UPDATE",
        )


def _apply(connection: "psycopg.Connection[tuple[object, ...]]", known: Sequence[Migration]) -> list[Migration]:
    _ensure_roles(connection)
    connection.execute("CREATE SCHEMA IF NOT EXISTS signalbox")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS signalbox.migration"
        " (version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
        " applied_at timestamptz NOT NULL DEFAULT now())"
    )
    rows = connection.execute("SELECT version, checksum FROM signalbox.migration").fetchall()
    done = {int(str(version)): str(checksum) for version, checksum in rows}
    shipped = {migration.version: migration for migration in known}
    unknown = sorted(set(done) - set(shipped))
    if unknown:
        raise Unavailable(
            _SOURCE, f"its schema is newer than this program (migration {unknown[-1]}): upgrade signalbox"
        )
    applied = []
    for version, migration in shipped.items():
        if version in done:
            if done[version] != migration.checksum:
                raise Unavailable(
                    _SOURCE,
                    f"migration {version} ({migration.name}) was changed after it was applied: restore its file",
                )
            continue
        with connection.transaction():
            _set_path(connection)
            connection.execute(migration.statements.encode())
            connection.execute("REVOKE CREATE ON SCHEMA signalbox FROM signalbox_search")
            connection.execute(
                "INSERT INTO signalbox.migration (version, name, checksum) VALUES (%s, %s, %s)",
                (version, migration.name, migration.checksum),
            )
        applied.append(migration)
    return applied


def _ensure_roles(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    """Create the roles of the service, which all databases of the server share, and grant them to the owner."""
    present = {
        row[0] for row in connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY (%s)", (list(ROLES),))
    }
    for role in ROLES:
        name = sql.Identifier(role)
        if role not in present:
            login = sql.SQL("LOGIN" if role == SERVICE_ROLE else "NOLOGIN")
            create = sql.SQL("CREATE ROLE {} {} NOSUPERUSER NOBYPASSRLS").format(name, login)
            # Another database of the same server may be migrated at the same time.
            with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
                connection.execute(create)
        member = connection.execute("SELECT pg_has_role(current_user, %s, 'SET')", (role,)).fetchone()
        if member != (True,):
            _grant(connection, sql.SQL("GRANT {} TO CURRENT_USER").format(name))
    # The service switches to this role for single statements, and does not otherwise inherit its rights and policies.
    if connection.execute("SELECT pg_has_role(%s, %s, 'SET')", (SERVICE_ROLE, SQL_ROLE)).fetchone() != (True,):
        names = sql.Identifier(SQL_ROLE), sql.Identifier(SERVICE_ROLE)
        _grant(connection, sql.SQL("GRANT {} TO {} WITH INHERIT FALSE, SET TRUE").format(*names))
    # In the embedded server's database, PUBLIC may not call this function (`EmbeddedServer.secure`).
    rights = "SELECT has_function_privilege(%s, %s, 'EXECUTE')"
    if connection.execute(rights, (SERVICE_ROLE, SET_CONFIG)).fetchone() != (True,):
        service = sql.Identifier(SERVICE_ROLE)
        _grant(connection, sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(sql.SQL(SET_CONFIG), service))


def _ensure_login(connection: "psycopg.Connection[tuple[object, ...]]") -> tuple[str, str]:
    """Return (name, password) of the service's login. If needed, create the login and make it a member of the role."""
    row = connection.execute("SELECT name, password FROM signalbox.login").fetchone()
    name, password = (str(row[0]), str(row[1])) if row else _new_login(connection)
    # Each step checks whether it is needed, which repairs a restored or half-finished database.
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,)).fetchone() is None:
        # Sent as a hash, because a failing statement is written to the server's log.
        hashed = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD {}").format(
                sql.Identifier(name), sql.Literal(hashed.decode())
            )
        )
    if connection.execute("SELECT pg_has_role(%s, %s, 'SET')", (name, SERVICE_ROLE)).fetchone() != (True,):
        _grant(connection, sql.SQL("GRANT {} TO {}").format(sql.Identifier(SERVICE_ROLE), sql.Identifier(name)))
    return name, password


def _new_login(connection: "psycopg.Connection[tuple[object, ...]]") -> tuple[str, str]:
    name, password = f"signalbox_{secrets.token_hex(6)}", secrets.token_urlsafe(32)
    connection.execute("INSERT INTO signalbox.login (name, password) VALUES (%s, %s)", (name, password))
    return name, password


def _grant(connection: "psycopg.Connection[tuple[object, ...]]", statement: sql.Composed) -> None:
    """Run a GRANT, and retry it: in PostgreSQL, concurrent grants fail instead of waiting."""
    for _ in range(20):
        try:
            connection.execute(statement)
            return
        except (psycopg.errors.InternalError_, psycopg.errors.UniqueViolation):
            time.sleep(0.05)
    connection.execute(statement)


def _set_path(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    row = connection.execute(
        "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    assert row is not None
    connection.execute(sql.SQL("SET LOCAL search_path = signalbox, {}, pg_temp").format(sql.SQL(str(row[0]))))
    # Loads the library of pgvector, because migrations define functions with its settings ("SET hnsw.ef_search").
    connection.execute("SELECT '[1]'::vector")
    # The role that owns the search functions needs this right while a migration creates them.
    connection.execute("GRANT CREATE ON SCHEMA signalbox TO signalbox_search")


def _user(conninfo: str) -> str:
    return str(conninfo_to_dict(conninfo).get("user") or "in DATABASE_URL")
