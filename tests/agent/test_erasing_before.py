"""What was asked before the schema knew whose it is (0020) is erased with its person and its conversation too."""

# ruff: noqa: S608 - the statements are made of constants

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.types.json import Jsonb

from agent.chat import erasure
from agent.chat.erasure import ErasureCounts
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server import schema_migrations as migrating
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import migrate, packaged_migrations

ASKED, ANSWERED = "When does the rotor stop?", "At 25 m/s."


@pytest.fixture
def before(server: EmbeddedServer, template: str) -> Iterator[str]:
    """A database of an owner that row security binds, as it was before 0020."""
    name, owner = f"before_{uuid.uuid4().hex[:8]}", f"owner_{uuid.uuid4().hex[:8]}"
    roles = ", ".join(role for role in migrating.ROLES if role != migrating.SQL_ROLE)
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE".encode())
        connection.execute(f"GRANT {roles} TO {owner} WITH ADMIN OPTION".encode())
        connection.execute(f"CREATE DATABASE {name} OWNER {owner}".encode())
    with psycopg.connect(server.conninfo(database=name), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    address = psycopg.conninfo.make_conninfo(server.conninfo(database=name), user=owner)
    migrate(address, [one for one in packaged_migrations() if one.version < 20])
    yield address
    with psycopg.connect(server.conninfo(database=name), autocommit=True) as connection:
        connection.execute(f"REASSIGN OWNED BY {owner} TO postgres; DROP OWNED BY {owner} CASCADE".encode())
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def past_row_security(address: str) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(address, user="postgres", autocommit=True) as connection:
        yield connection


def asked(
    address: str, user: str | None, conversation: str, *, at: int, question: str = ASKED, tenant: str = "default",
    principals: tuple[str, ...] = (), recorded: bool = True, traced: bool = True,
) -> None:  # fmt: skip
    """A question with its answer, judgement and replay, as they were stored before 0020.

    Args:
        at: minutes.
    """
    trace, replay = uuid.uuid4(), uuid.uuid4()
    stored = "\n".join((conversation, *principals))
    request = {"kind": "ask", "query": question, "conversation": conversation} | ({"user": user} if user else {})
    values = {
        "tenant": tenant, "trace": trace, "replay": replay, "user": user, "conversation": conversation,
        "stored": stored, "principals": list(principals), "question": question, "answer": ANSWERED, "at": at,
        "request": Jsonb(request),
        "bare": Jsonb({"kind": "ask", "query": question}), "record": Jsonb({"replay_of": trace.hex}), "none": Jsonb({}),
    }  # fmt: skip
    moment = "timestamptz '2026-11-01' + make_interval(mins => %(at)s)"
    later = "now() + interval '1 day'"
    statements = [
        f"""INSERT INTO signalbox.conversation (tenant, id, expires_at, principals)
            VALUES (%(tenant)s, %(stored)s, {later}, %(principals)s) ON CONFLICT DO NOTHING""",
        *(
            f"""INSERT INTO signalbox.message (tenant, conversation, number, role, content, created_at)
                SELECT %(tenant)s, %(stored)s, count(*) + 1, '{role}', %({content})s, {moment} + interval '5 s'
                FROM signalbox.message WHERE tenant = %(tenant)s AND conversation = %(stored)s"""
            for role, content in (("user", "question"), ("assistant", "answer"))
        ),
        "INSERT INTO signalbox.feedback (tenant, trace, score) VALUES (%(tenant)s, %(trace)s, 9)",
    ]
    if recorded:
        statements.append(
            f"""INSERT INTO signalbox.exchange (tenant, id, conversation, asker, question, answer, status, trace,
                                                created_at, ended_at, expires_at, principals)
                VALUES (%(tenant)s, gen_random_uuid(), %(conversation)s, %(user)s, %(question)s, %(answer)s, 'answered',
                        %(trace)s, {moment}, {moment} + interval '5 s', {later}, %(principals)s)"""
        )
    if traced:
        statements += [
            f"""INSERT INTO signalbox.trace (tenant, id, created_at, expires_at, request, record, principals)
                VALUES (%(tenant)s, %({id})s, {moment}, {later}, %({request})s, %({record})s, %(principals)s)"""
            for id, request, record in (("trace", "request", "none"), ("replay", "bare", "record"))
        ]
    with past_row_security(address) as connection:
        for statement in statements:
            connection.execute(statement.encode(), values)


def left(address: str) -> dict[str, int]:
    with past_row_security(address) as connection:
        rows = {
            table: connection.execute(f"SELECT count(*) FROM signalbox.{table}".encode()).fetchone()
            for table in ("exchange", "trace", "message", "feedback", "conversation")
        }
    return {table: int(str(row[0])) for table, row in rows.items() if row}


async def erased(address: str, who: Viewer | None = None, **subject: str | None) -> ErasureCounts:
    async with Database(address) as database:
        both = {"user": None, "conversation": None} | subject
        await erasure.record_erasure(database, who or unrestricted_viewer("default"), **both)
        return await erasure.erase(database, who or unrestricted_viewer("default"), **both)


async def test_what_a_person_asked_before_goes_with_them_and_nothing_of_others(before: str):
    asked(before, "ann", "c1", at=1)
    asked(before, "ann", "c2", at=2, traced=False)
    asked(before, "ann", "c3", at=3, recorded=False)
    asked(before, "ann", "c4", at=4, principals=("user:7", "group:x"))
    asked(before, "bob", "c1", at=60)  # the same words in the same conversation, at another time
    asked(before, "bob", "c5", at=5)
    asked(before, "ann", "c1", at=6, tenant="rival")
    migrate(before)
    assert await erased(before, user="ann") == ErasureCounts(records=3, traces=8, turns=8, conversations=3, feedback=4)
    # Of the others' traces those of the shared conversation repeat what was said before it, as since 0020.
    assert left(before) == {"exchange": 3, "trace": 4, "message": 6, "feedback": 3, "conversation": 3}
    assert (await erased(before, user="bob")).turns == 4
    assert await erased(before, user="ann", who=unrestricted_viewer("rival")) == ErasureCounts(1, 2, 2, 1, 1)
    assert set(left(before).values()) == {0}


async def test_a_conversation_of_before_goes_with_its_traces_replays_and_judgements(before: str):
    asked(before, "ann", "c1", at=1)
    asked(before, None, "c1", at=2, question="And then?")
    asked(before, "ann", "c2", at=3)
    migrate(before)
    assert await erased(before, conversation="c1") == ErasureCounts(
        records=2, traces=4, turns=4, conversations=1, feedback=2
    )
    assert left(before) == {"exchange": 1, "trace": 2, "message": 2, "feedback": 1, "conversation": 1}


async def test_what_came_with_the_first_question_is_of_who_sent_it(before: str):
    asked(before, "ann", "c1", at=1)
    with past_row_security(before) as connection:
        connection.execute("UPDATE signalbox.message SET number = number + 2")
        connection.execute(
            "INSERT INTO signalbox.message (tenant, conversation, number, role, content, created_at)"
            " SELECT tenant, conversation, number - 2, role, 'said elsewhere', created_at FROM signalbox.message"
        )
    migrate(before)
    assert (await erased(before, user="ann")).turns == 4


def test_nobody_is_kept_waiting_and_no_right_is_left_behind(before: str):
    for n in range(3):
        asked(before, f"user {n}", "c1", at=n)
    migrate(before, [one for one in packaged_migrations() if one.version < 25])
    (last,) = [one for one in packaged_migrations() if one.version == 25]
    locks = "SELECT DISTINCT mode FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'signalbox.trace'::regclass"
    rights = "SELECT has_column_privilege('signalbox_app', 'signalbox.trace', 'asker', 'UPDATE')"
    with psycopg.connect(before) as connection:
        migrating._set_path(connection)
        connection.execute(last.statements.encode())
        held = {row[0] for row in connection.execute(locks).fetchall()}
        assert "RowExclusiveLock" in held
        assert not held & {"AccessExclusiveLock", "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock"}
        assert connection.execute(rights).fetchone() == (False,)
        assert connection.execute("SELECT current_user = session_user").fetchone() == (True,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="no tenant is set"):
            connection.execute("SELECT FROM signalbox.trace")  # the owner's eyes are bound again
