"""What the database lets the roles of tenants' settings do."""

from typing import Any

import psycopg
import pytest

from retrievers.core.errors import BadRequest
from retrievers.postgres.accounts.tenants import SELF_SERVICE_SETTINGS, SETTING_NAMES, Tenants, TenantSettings
from retrievers.postgres.connections.database import Database


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def test_the_role_that_counts_sees_no_document_and_no_key(owner_url: str):
    rights = rows(
        owner_url,
        "SELECT c.relname || '.' || a.attname, p FROM unnest(ARRAY['SELECT','INSERT','UPDATE']) p,"
        " pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
        " WHERE c.relnamespace = 'signalbox'::regnamespace AND c.relkind IN ('r', 'S', 'v')"
        " AND has_column_privilege('signalbox_tenants', c.oid, a.attnum, p)",
    )
    others = {(name, right) for name, right in rights if not name.startswith(("tenant_setting.", "tenant_use."))}
    names = ("access.changed", "access.tenant", "api_key.tenant", "collection.tenant")
    assert others == {(name, "SELECT") for name in names}
    found = rows(
        owner_url,
        "SELECT rolcanlogin, rolsuper, rolbypassrls, has_schema_privilege(oid, 'signalbox', 'CREATE')"
        " FROM pg_roles WHERE rolname = 'signalbox_tenants'",
    )
    assert found == [(False, False, False, False)]


def test_the_service_writes_the_harmless_settings_alone_and_no_use(owner_url: str):
    rights = rows(
        owner_url,
        "SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
        " AND a.attnum > 0 WHERE c.relname IN ('tenant_setting', 'tenant_use')"
        " AND has_column_privilege('signalbox_app', c.oid, a.attnum, 'UPDATE')",
    )
    assert {name for (name,) in rights} == {f"tenant_setting.{name}" for name in SELF_SERVICE_SETTINGS}
    assert set(SETTING_NAMES) - set(SELF_SERVICE_SETTINGS) == {"sources", "questions_per_day", "tokens_per_day"}


async def test_a_tenant_is_told_its_own_rules_and_no_signature_but_its_own_opens_them(database: Database):
    tenants = Tenants(database)
    await tenants.change_any_settings("acme", {"sources": ["vector"], "questions_per_day": 3})
    assert (await tenants.state("acme")).rules == TenantSettings(sources=("vector",), questions_per_day=3)
    assert (await tenants.state("globex")).rules == TenantSettings()
    for scope in ("", "acme", "0" * 64 + ":acme", database.scope("globex").replace("globex", "acme")):
        for call in ("tenant_rules(%(scope)s, 'UTC', 1)", "note_use(%(scope)s, 'UTC', 1, 1)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await database.fetch_autocommit(f"SELECT 1 FROM signalbox.{call}", {"scope": scope})  # noqa: S608
    assert (await tenants.state("acme")).use.questions == 0  # type: ignore[union-attr]


async def test_no_use_is_taken_back(database: Database):
    tenants = Tenants(database)
    await tenants.add_usage("acme", 2, 50)
    await tenants.add_usage("acme", -2, -50)
    use = (await tenants.state("acme")).use
    assert use is not None
    assert (use.questions, use.tokens) == (2, 50)


@pytest.mark.parametrize("tenant", ["", "a\nb", "a\0b", "x" * 300])
async def test_what_can_be_no_tenant_has_no_settings(database: Database, tenant: str):
    with pytest.raises(BadRequest):
        await Tenants(database).change_any_settings(tenant, {"week_start": 1})
