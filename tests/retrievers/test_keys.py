"""API keys: who holds one is known at once, and known no more within a second of its end."""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.postgres.accounts import api_keys as module
from retrievers.postgres.accounts.api_keys import ApiKeyStore, InvalidKey
from retrievers.postgres.connections.database import Database


@pytest.fixture
def keys(database: Database) -> ApiKeyStore:
    return ApiKeyStore(database)


@pytest.fixture
async def elsewhere(owner_url: str, service_url: str) -> AsyncIterator[ApiKeyStore]:
    """The keys as another process sees them."""
    async with Database(owner_url, service_url, size=1) as database:
        yield ApiKeyStore(database)


class Asked:
    """Counts what the database is asked about keys."""

    def __init__(self, keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        ask = keys._ask

        async def counted(id: str, digest: bytes) -> str:
            self.count += 1
            return await ask(id, digest)

        monkeypatch.setattr(keys, "_ask", counted)


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


async def refusal(keys: ApiKeyStore, key: str) -> str:
    with pytest.raises(InvalidKey) as caught:
        await keys.verify(key)
    return str(caught.value)


async def test_a_key_tells_its_tenant_and_its_id(keys: ApiKeyStore):
    made, key = await keys.create("acme", "front end")
    other, another = await keys.create("globex")

    assert (await keys.verify(key))[:2] == ("acme", made.id)
    assert (await keys.verify(another))[:2] == ("globex", other.id)
    assert key.startswith(f"sbx_{made.id}_")
    assert len(key.rsplit("_", 1)[1]) == 64 + 16


async def test_what_is_stored_is_a_digest_and_the_key_is_nowhere(keys: ApiKeyStore, owner_url: str):
    made, key = await keys.create("acme", "front end")
    await keys.verify(key)

    stored = rows(owner_url, "SELECT digest, k::text FROM signalbox.api_key k")
    assert [bytes(row[0]) for row in stored] == [hashlib.sha256(key.encode()).digest()]  # type: ignore[arg-type]
    secret = key.rsplit("_", 1)[1]
    for text in (str(stored), repr(made), repr(keys), str(made.json()), repr(vars(keys))):
        assert secret not in text
        assert secret[:16] not in text


async def test_a_revoked_key_stops_within_a_second_in_every_process(keys: ApiKeyStore, elsewhere: ApiKeyStore):
    made, key = await keys.create("acme")
    for process in (keys, elsewhere):
        assert (await process.verify(key))[:2] == ("acme", made.id)

    revoked = await keys.revoke(made.id)

    assert revoked.state == "revoked"
    await asyncio.sleep(module.FRESH_S)
    for process in (keys, elsewhere):
        assert await refusal(process, key) == f"the key {made.id} has been revoked"
    assert module.FRESH_S < 1


async def test_an_answer_that_was_long_in_coming_is_not_believed_for_longer(
    keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
):
    """What counts is when the database was asked: what it saw may be that old."""
    made, key = await keys.create("acme")
    ask, slow = keys._ask, asyncio.Event()

    async def late(id: str, digest: bytes) -> str:
        tenant = await ask(id, digest)
        await slow.wait()
        return tenant

    monkeypatch.setattr(keys, "_ask", late)
    first = asyncio.create_task(keys.verify(key))
    await asyncio.sleep(module.FRESH_S)
    monkeypatch.setattr(keys, "_ask", ask)
    await keys.revoke(made.id)
    assert await refusal(keys, key) == f"the key {made.id} has been revoked"
    slow.set()
    assert await first == ("acme", made.id, (), False)
    assert await refusal(keys, key) == f"the key {made.id} has been revoked"


async def test_a_key_ends_on_its_day(keys: ApiKeyStore, owner_url: str):
    made, key = await keys.create("acme", days=1)
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).total_seconds() == pytest.approx(86_400, abs=5)
    assert (await keys.verify(key))[:2] == ("acme", made.id)

    rows(owner_url, "UPDATE signalbox.api_key SET expires_at = now()")

    assert await refusal(ApiKeyStore(keys._database), key) == f"the key {made.id} has expired"
    assert [one.state for one in await keys.list_keys("acme")] == ["expired"]
    assert not await keys.has_live_key()


async def test_a_key_of_another_database_or_none_is_refused_without_asking_the_database(
    keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
):
    made, key = await keys.create("acme")
    asked = Asked(keys, monkeypatch)
    id, random, seal = key[4:20], key[21:85], key[85:]
    wrong_seal = hmac.digest(b"another database", f"{id}_{random}".encode(), "sha256").hex()[:16]

    for bad in (
        "",
        "sbx_",
        "x" * 100_000,
        key[:-1],
        key + "0",
        key + "\n",
        key.upper(),
        f"sbx_{id}_{'0' * 64}{seal}",
        f"sbx_{'0' * 16}_{random}{seal}",
        f"sbx_{id}_{random}{wrong_seal}",
        f"sbx_{id}_{random}' OR ''='",
        "sbx_" + "٣" * 16 + key[20:],
    ):
        assert await refusal(keys, bad) == "this service does not know it"

    assert asked.count == 0
    assert len(keys._asked) == 0
    assert (await keys.verify(key))[:2] == ("acme", made.id)


async def test_an_issued_key_that_is_no_longer_stored_is_refused(keys: ApiKeyStore, owner_url: str):
    _, key = await keys.create("acme")
    rows(owner_url, "DELETE FROM signalbox.api_key")
    assert await refusal(keys, key) == "this service does not know it"


async def test_a_thousand_calls_at_once_ask_the_database_once(keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FRESH_S", 30)
    made, key = await keys.create("acme")
    asked = Asked(keys, monkeypatch)

    assert set(await asyncio.gather(*(keys.verify(key) for _ in range(1000)))) == {("acme", made.id, (), False)}
    assert asked.count == 1

    await keys.revoke(made.id)
    keys._asked.clear()
    refusals = await asyncio.gather(*(keys.verify(key) for _ in range(1000)), return_exceptions=True)
    assert {str(one) for one in refusals} == {f"the key {made.id} has been revoked"}
    assert asked.count == 2


async def test_a_caller_that_goes_away_takes_nobody_else_s_answer_along(keys: ApiKeyStore):
    made, key = await keys.create("acme")
    first = asyncio.create_task(keys.verify(key))
    second = asyncio.create_task(keys.verify(key))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ("acme", made.id, (), False)


async def test_what_is_remembered_of_keys_is_bounded(keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_CACHED", 3)
    made = [await keys.create("acme", str(n)) for n in range(5)]
    for one, key in made:
        assert (await keys.verify(key))[:2] == ("acme", one.id)
    assert len(keys._asked) == 3


@contextmanager
def down(url: str) -> Iterator[None]:
    """The database lets nobody in, and has thrown out who was in."""
    name = conninfo_to_dict(url)["dbname"]
    elsewhere = make_conninfo(url, dbname="postgres")
    rows(elsewhere, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    rows(elsewhere, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")  # noqa: S608
    try:
        yield
    finally:
        rows(elsewhere, f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


async def test_a_database_that_is_down_makes_no_key_a_wrong_one_and_is_asked_twice_a_second_at_most(
    keys: ApiKeyStore, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(module, "FRESH_S", 30)
    made, key = await keys.create("acme")
    asked = Asked(keys, monkeypatch)
    with down(owner_url):
        for _ in range(20):
            with pytest.raises(Unavailable, match="the database is unavailable"):
                await keys.verify(key)
        assert asked.count == 1
        # What is no key needs no database to be refused.
        assert await refusal(keys, key[:-1]) == "this service does not know it"
    monkeypatch.setattr(module, "FRESH_S", 0.05)
    for _ in range(600):
        await asyncio.sleep(0.1)
        with suppress(Unavailable):
            assert (await keys.verify(key))[:2] == ("acme", made.id)
            return
    pytest.fail("the key is not known again a minute after the database is back")


async def test_a_key_s_last_use_is_kept_to_the_minute(keys: ApiKeyStore, owner_url: str):
    made, key = await keys.create("acme")
    assert made.last_used_at is None
    await keys.verify(key)
    [first] = await keys.list_keys("acme")
    assert first.last_used_at is not None
    await ApiKeyStore(keys._database).verify(key)
    assert await keys.list_keys("acme") == [first]

    rows(owner_url, "UPDATE signalbox.api_key SET last_used_at = now() - interval '2 minutes'")
    await ApiKeyStore(keys._database).verify(key)
    assert (await keys.list_keys("acme"))[0].last_used_at > first.last_used_at  # type: ignore[operator]


async def test_who_revokes_a_key_at_this_moment_is_not_waited_for(keys: ApiKeyStore, owner_url: str):
    made, key = await keys.create("acme")
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.api_key SET revoked_at = now()")
        assert (await keys.verify(key))[:2] == ("acme", made.id)
        connection.commit()
    assert await refusal(ApiKeyStore(keys._database), key) == f"the key {made.id} has been revoked"


async def test_keys_are_listed_by_tenant_or_all_and_revoked_once(keys: ApiKeyStore):
    first, _ = await keys.create("acme", "one")
    second, _ = await keys.create("globex", "two")

    assert await keys.list_keys("acme") == [first]
    assert await keys.list_keys() == [first, second]
    assert await keys.list_keys("initech") == []
    revoked = await keys.revoke(first.id)
    assert await keys.revoke(first.id) == revoked
    assert [one.state for one in await keys.list_keys()] == ["revoked", "live"]
    assert await keys.has_live_key()
    await keys.revoke(second.id)
    assert not await keys.has_live_key()


@pytest.mark.parametrize("id", ["", "nothing", "' OR ''='", "\0", "\ud800", "x" * 10_000])
async def test_what_is_no_id_revokes_nothing(keys: ApiKeyStore, id: str):
    await keys.create("acme")
    with pytest.raises(BadRequest, match="there is no key with that id"):
        await keys.revoke(id)
    assert await keys.has_live_key()


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a\nb"}, "tenant"),
        ({"name": "a\0b"}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"days": 0}, "expires"),
        ({"days": -1}, "expires"),
        ({"days": float("nan")}, "expires"),
        ({"days": float("inf")}, "expires"),
    ],
)
async def test_what_cannot_be_a_key_is_not_made(keys: ApiKeyStore, given: dict[str, Any], where: str):
    with pytest.raises(BadRequest) as caught:
        await keys.create(**{"tenant": "acme", **given})
    assert caught.value.where == where
    assert await keys.list_keys() == []


async def test_the_service_cannot_read_the_keys_of_two_tenants_and_calls_nothing_but_the_one_function(
    keys: ApiKeyStore, database: Database
):
    await keys.create("acme")
    await keys.create("globex")
    found = await database.fetch("acme", "SELECT DISTINCT tenant FROM signalbox.api_key", ())
    assert found == [("acme",)]
    for tenant in ("globex", "0"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            async with database.transaction("acme") as connection:
                await connection.execute(
                    "INSERT INTO signalbox.api_key (tenant, id, name, digest) VALUES (%s, 'i', '', sha256('x'))",
                    (tenant,),
                )
    for statement in ("SET ROLE signalbox_keys", "SELECT set_config('role', 'signalbox_keys', true)"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with database.transaction("acme") as connection:
                await connection.execute(statement.encode())


def test_the_role_of_the_function_reads_keys_and_nothing_else(owner_url: str):
    rights = rows(
        owner_url,
        "SELECT c.relname || coalesce('.' || a.attname, ''), p FROM unnest(ARRAY['SELECT','INSERT','UPDATE']) p,"
        " pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relnamespace = 'signalbox'::regnamespace AND c.relkind IN ('r', 'S', 'v')"
        " AND has_column_privilege('signalbox_keys', c.oid, a.attnum, p)",
    )
    assert {one.split(".")[0] for one, _ in rights} == {"api_key"}  # type: ignore[attr-defined]
    assert [one for one, right in rights if right == "INSERT"] == []
    assert [one for one, right in rights if right == "UPDATE"] == ["api_key.last_used_at"]
    owned = rows(
        owner_url, "SELECT proname FROM pg_proc JOIN pg_roles r ON r.oid = proowner WHERE rolname = 'signalbox_keys'"
    )
    assert owned == [("verified_key",)]
    found = rows(
        owner_url,
        "SELECT rolcanlogin, rolsuper, rolbypassrls, has_schema_privilege(oid, 'signalbox', 'CREATE')"
        " FROM pg_roles WHERE rolname = 'signalbox_keys'",
    )
    assert found == [(False, False, False, False)]


async def test_no_key_is_in_a_log_whatever_goes_wrong(
    keys: ApiKeyStore, owner_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(module, "TIMEOUT_S", 2)
    _, key = await keys.create("acme", "front end")
    await keys.verify(key)
    with down(owner_url), pytest.raises(Unavailable) as caught:
        await ApiKeyStore(keys._database).verify(key)
    wrong = await refusal(keys, key[:-2] + "zz")
    secret = key.rsplit("_", 1)[1]
    for text in (caplog.text, wrong, *map(repr, (caught.value, caught.value.__cause__, keys._asked))):
        assert secret[:12] not in text
