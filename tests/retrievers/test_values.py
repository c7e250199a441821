"""The field catalogue: what it says is what the documents say."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from retrievers.core.collection_schema import read_schema
from retrievers.core.errors import BadDocument, BadRequest
from retrievers.core.metadata import Field, fields_from_json, fields_to_json
from retrievers.core.types import PLATFORM, FieldValues
from retrievers.ingest import collections, document_store
from retrievers.ingest.documents import Document
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue import field_values as reading
from retrievers.postgres.catalogue import value_merging, visible_collections
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.postgres.server.embedded import EmbeddedServer
from retrievers.postgres.server.schema_migrations import ROLES, SQL_ROLE, migrate, packaged_migrations
from retrievers.testing import HashEmbedder
from retrievers.text.folding import fold

TENANT = "acme"


def document(
    id: str, public: bool = False, title: str = "", text: str = "Oil the bearing.", **metadata: Any
) -> Document:
    return Document(where=id, id=id, title=title, text=text, metadata=metadata, public=public)


async def load(database: Database, *documents: Document, tenant: str = TENANT, collection: str = "docs", **given: Any):
    report = await ingest(database, HashEmbedder(), tenant, collection, documents, **given)
    assert report.failed == []


async def fields(database: Database, collection: str | None = "docs", tenant: str = TENANT) -> dict[str, FieldValues]:
    catalogue = Catalogue(database)
    return dict((await catalogue.fields(await catalogue.scope(tenant, collection))).fields)


async def remove(database: Database, *ids: str) -> None:
    async with database.transaction(TENANT) as connection:
        number = (await collections.open_collection(connection, TENANT, "docs"))[0]
        await document_store.remove_documents(connection, TENANT, number, ids)


# What it says.


async def test_values_come_with_the_number_of_documents_that_have_them(database: Database):
    await load(
        database,
        document("a", team="infra", tags=["x", "y", "x"], open=True, day="2024-03-01", size=5),
        document("b", team="infra", tags=["x"], open=False, day="2023-01-31T08:30:00Z", size=2.5, public=True),
        document("c", team="hr", title="Holidays", day="2024-03-01"),
    )

    found = await fields(database)

    assert set(found) == {"team", "tags", "open", "day", "size", "language", "public"}
    assert list(found["team"].values.items()) == [("infra", 2), ("hr", 1)]
    assert found["tags"].values == {"x": 2, "y": 1}
    assert (found["tags"].distinct, found["tags"].documents) == (2, 2)
    assert found["open"].values == {"true": 1, "false": 1}
    assert found["public"].values == {"false": 2, "true": 1}
    assert found["language"].values == {"en": 3}
    day, size = found["day"], found["size"]
    assert (day.low, day.high, day.distinct, day.documents) == ("2023-01-31T08:30:00", "2024-03-01", 2, 3)
    assert (size.low, size.high, size.distinct, size.documents, size.values) == (2.5, 5, 2, 2, {})


async def test_a_replaced_or_deleted_document_takes_its_values_with_it(database: Database):
    await load(database, document("a", team="infra", size=1), document("b", team="infra", size=9))
    await load(database, document("a", team="hr", size=4))
    found = await fields(database)
    assert (found["team"].values, found["size"].low, found["size"].high) == ({"hr": 1, "infra": 1}, 4, 9)

    await remove(database, "b", "unknown")
    found = await fields(database)
    assert (found["team"].values, found["team"].distinct, found["size"].high) == ({"hr": 1}, 1, 4)
    await remove(database, "a")
    found = await fields(database)
    assert (found["team"].values, found["team"].documents, found["size"].low) == ({}, 0, None)


async def test_one_number_is_one_value_however_it_is_written(database: Database, owner_url: str):
    numbers = [1, 1.0, 1e22, 10**22, -0.0, 0, 0.1, 12345678901234567]
    await load(database, *(document(f"d{n}", size=number) for n, number in enumerate(numbers)))
    assert (await fields(database))["size"].distinct == 5

    await remove(database, *(f"d{n}" for n in range(len(numbers))))
    with psycopg.connect(owner_url) as connection:
        assert connection.execute("SELECT * FROM signalbox.field_value").fetchall() == []


async def test_long_text_is_counted_and_not_kept(database: Database):
    await load(
        database,
        document("a", summary="x" * 201, note="y" * 200),
        document("b", summary="z" * 500),
        document("c", summary="short"),
    )
    found = await fields(database)
    summary = found["summary"]
    assert (summary.values, summary.distinct, summary.documents) == ({"short": 1}, 3, 3)
    assert found["note"].values == {"y" * 200: 1}


async def test_a_document_s_own_title_is_no_value_but_a_field_of_that_name_is(database: Database):
    await load(database, document("a", title="One"))
    await load(database, Document("b", "b", "Two", "Text.", metadata={"title": "Dr"}))
    assert (await fields(database))["title"].values == {"Dr": 1}
    await load(database, document("a", title="Three"))
    assert (await fields(database))["title"].values == {"Dr": 1}


async def test_random_changes_leave_what_the_documents_say(database: Database):
    choose = random.Random(4)
    stored: dict[str, dict[str, Any]] = {}
    for _ in range(12):
        batch = {}
        for _ in range(choose.randrange(1, 25)):
            batch[f"d{choose.randrange(40)}"] = {
                "team": choose.choice(["a", "b", "c", "É"]),
                "tags": choose.sample(["x", "y", "z", "long" * 60], choose.randrange(4)),
                "size": choose.choice([1, 2.5, 7]),
            }
        await load(database, *(document(id, **metadata) for id, metadata in batch.items()))
        stored.update(batch)
        gone = choose.sample(sorted(stored), min(len(stored), choose.randrange(6)))
        await remove(database, *gone)
        for id in gone:
            del stored[id]

        found = await fields(database)
        teams = Counter(metadata["team"] for metadata in stored.values())
        tags = Counter(tag for metadata in stored.values() for tag in metadata["tags"] if len(tag) < 200)
        assert found["team"].values == teams
        assert found["tags"].values == tags
        assert found["tags"].documents == sum(bool(metadata["tags"]) for metadata in stored.values())
        sizes = [metadata["size"] for metadata in stored.values()]
        assert (found["size"].low, found["size"].distinct) == (min(sizes, default=None), len(set(sizes)))


async def test_of_many_values_the_commonest_are_held(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(value_merging, "MAX_VALUES", 3)
    authors = ["b", "b", "c", "c", "c", "z", "y", "x"]
    await load(database, *(document(f"d{n}", author=author) for n, author in enumerate(authors)))
    author = (await fields(database))["author"]
    assert (list(author.values.items()), author.distinct) == ([("c", 3), ("b", 2), ("x", 1)], 5)


async def test_of_many_values_in_all_fields_those_of_the_largest_are_cut_and_still_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(value_merging, "MAX_ALL_BYTES", 8 * 25)
    stored = [document(f"d{n}", author=f"Ann {n}", team=f"Team {n % 6}", open=n % 2 == 0) for n in range(9)]
    await load(database, *stored, document("d9", author="Ann 8"))
    catalogue = Catalogue(database)
    scope = await catalogue.scope(TENANT, "docs")
    found = (await catalogue.fields(scope)).fields
    kept = {name: list(one.values) for name, one in found.items()}
    assert kept["open"] == ["true", "false"]
    assert kept["author"] == ["Ann 8", "Ann 0", "Ann 1"][: len(kept["author"])]
    assert sum(map(len, kept.values())) <= 8
    assert (found["author"].distinct, found["team"].distinct) == (9, 6)
    assert await catalogue.find_values(scope, ["ann 7"]) == [("author", "Ann 7", 1)]
    assert await catalogue.find_values(scope, ["team 5"]) == [("team", "Team 5", 1)]


async def test_of_very_many_fields_the_rarest_come_without_values(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "_MOST_FIELDS", 4)
    await load(database, document("a", team="infra", size=3, rare="x"), document("b", team="infra", size=4))
    found = await fields(database)
    assert (found["team"].values, found["size"].high) == ({"infra": 2}, 4)
    assert (found["rare"].values, found["rare"].documents, found["rare"].distinct) == ({}, 1, 1)


async def test_collections_are_merged_and_a_field_of_two_types_is_left_out(database: Database):
    await load(database, document("a", team="infra", size=1, day="2024-01-01"))
    await load(database, document("a", team="infra", size=8, day="soon"), document("b", team="hr"), collection="more")
    found = await fields(database, None)
    assert found["team"].values == {"infra": 2, "hr": 1}
    assert (found["team"].distinct, found["team"].documents) == (2, 3)
    assert (found["size"].low, found["size"].high) == (1, 8)
    assert "day" not in found


async def test_spellings_that_fold_alike_are_told(database: Database):
    names = ["Marc-André Lemburg", "Marc-Andre Lemburg", "marc andre lemburg", "Guido van Rossum"]
    await load(database, *(document(f"d{n}", author=name) for n, name in enumerate(names)))
    assert (await fields(database))["author"].spellings == {
        "marc andre lemburg": ("Marc-Andre Lemburg", "Marc-André Lemburg", "marc andre lemburg")
    }


# Who sees it, and when.


async def test_no_tenant_sees_another_s_values_and_all_see_the_platform_s_public_ones(database: Database):
    await load(database, document("a", team="secret"), tenant="other")
    await load(database, document("a", team="shown", public=True), tenant=PLATFORM)
    await load(database, document("a", team="hidden"), tenant=PLATFORM, collection="inside")
    await load(database, document("a", team="own"))

    assert (await fields(database, None))["team"].values == {"own": 1, "shown": 1}
    for table in ("field_value", "field_word"):
        rows = await database.fetch(TENANT, f"SELECT value FROM signalbox.{table} WHERE field = 'team'", {})  # type: ignore[arg-type]  # noqa: S608
        assert sorted(row[0] for row in rows) == ["own", "shown"]


async def test_it_is_read_once_until_something_changes(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reading, "_FRESH_S", 60.0)
    monkeypatch.setattr(visible_collections, "_FRESH_S", 60.0)
    await load(database, document("a", team="infra"))
    catalogue = Catalogue(database)
    first = await catalogue.fields(await catalogue.scope(TENANT, "docs"))
    with monkeypatch.context() as silent:
        silent.setattr(database.reads, "fetch", None)
        scope = await catalogue.scope(TENANT, "docs")
        assert await catalogue.fields(scope) is first

    await load(database, document("b", team="hr"))
    scope = await catalogue.scope(TENANT, "docs", fresh=True)
    # While documents come in, what is a moment old will do, unless it is asked for as of now.
    assert await catalogue.fields(scope) is first
    second = await catalogue.fields(scope, fresh=True)
    assert second.key != first.key
    assert second.fields["team"].values == {"hr": 1, "infra": 1}
    assert second.documents == 2

    await load(database, document("c", team="hr"))
    scope = await catalogue.scope(TENANT, "docs", fresh=True)
    later = time.monotonic() + 61
    monkeypatch.setattr(reading.time, "monotonic", lambda: later)
    assert (await catalogue.fields(scope)).fields["team"].values == {"hr": 2, "infra": 1}


# Names in a question.


@pytest.fixture
async def named(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Fields with more values than are held: two people, and teams, of which there are few."""
    monkeypatch.setattr(value_merging, "MAX_VALUES", 2)
    names = ["Guido van Rossum", "Guido Muster", "Łukasz Langa", "林志远", "Guido", "Rossum GmbH"]
    await load(database, *(document(f"d{n}", author=name, team="guido") for n, name in enumerate(names)))
    await load(database, document("d9", author="Guido van Rossum"))
    return database


@pytest.mark.parametrize(
    ("spans", "found"),
    [
        (["guido van rossum"], ["Guido van Rossum"]),
        (["van rossum"], ["Guido van Rossum"]),
        (["guido"], ["Guido", "Guido van Rossum", "Guido Muster"]),
        (["rossum", "the", ""], ["Guido van Rossum", "Rossum GmbH"]),
        (["gui", "guido v", "rossum guido", "%", "guido van rossum wrote"], []),
        (["lukasz langa", "林志远"], ["Łukasz Langa", "林志远"]),
        (["0"], []),
        ([], []),
    ],
)
async def test_a_value_is_found_by_whole_words_of_its_name(named: Database, spans: list[str], found: list[str]):
    catalogue = Catalogue(named)
    rows = await catalogue.find_values(await catalogue.scope(TENANT, "docs"), spans)
    counts = {"Guido van Rossum": 2}
    assert [(field, value, count) for field, value, count in rows] == [
        ("author", name, counts.get(name, 1)) for name in found
    ]


async def test_a_value_that_went_is_not_found(named: Database):
    await remove(named, "d2")
    catalogue = Catalogue(named)
    assert await catalogue.find_values(await catalogue.scope(TENANT, "docs"), ["langa"]) == []


async def test_small_fields_need_no_query(database: Database, monkeypatch: pytest.MonkeyPatch):
    await load(database, document("a", author="Guido"))
    catalogue = Catalogue(database)
    scope = await catalogue.scope(TENANT, "docs")
    await catalogue.fields(scope)
    monkeypatch.setattr(database.reads, "fetch", None)
    assert await catalogue.find_values(scope, ["guido"]) == []


# Folding.


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("Marc-André  LEMBURG", "marc andre lemburg"),
        ("Łukasz Ørsted, Straße Đorđe", "lukasz orsted strasse dorde"),
        ("ＡＢＣ　１２", "abc 12"),
        ("J.K. O’Brien", "jk obrien"),
        ("Python 3.12.", "python 3.12"),
        ("C++ / C#", "c++ c#"),
        ("data_platform--team", "data platform team"),
        ("卡洛斯·门德斯（基础设施）", "卡洛斯 门德斯 基础设施"),
        ("İstanbul", "istanbul"),
        ("が 한국어", "が 한국어"),
        ("...", ""),
    ],
)
def test_folding(text: str, folded: str):
    assert fold(text) == folded
    assert fold(folded) == folded


def test_folding_twice_changes_nothing_more_and_leaves_no_control_character():
    for code in range(0x30000):
        if not 0xD800 <= code <= 0xDFFF:
            once = fold(f"a{chr(code)}1")
            assert fold(once) == once
            assert not any(character < " " for character in once)


# Aliases.


def test_aliases_are_read_and_survive_the_database():
    schema = read_schema(
        {
            "fields": {
                "team": {"type": "string", "description": "Who wrote it", "aliases": {"infra": ["基础设施", "ops"]}}
            }
        }
    )
    assert schema["team"].aliases == {"infra": ("基础设施", "ops")}
    assert fields_from_json(fields_to_json(schema)) == schema
    old = {"team": {"type": "string", "item": "string", "separator": None, "declared": False, "description": ""}}
    assert fields_from_json(old) == {"team": Field("team", "string", "string")}
    assert fields_to_json(fields_from_json(old)) == old


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "string", "aliases": ["a"]}, "must be an object like"),
        ({"type": "string", "aliases": {"a": "b"}}, 'for "a" must be a list of names'),
        ({"type": "string", "aliases": {"a": [1]}}, 'for "a" must be a list of names'),
        ({"type": "string", "aliases": {"a": [" "]}}, 'for "a" must be a list of names'),
        ({"type": "string", "aliases": {"a": ["x" * 101]}}, "is longer than 100 characters"),
        ({"type": "string", "aliases": {"a": [f"n{n}" for n in range(1001)]}}, "there are more than 1,000"),
        ({"type": "string", "aliases": {"a": ["Ops"], "b": ["ops"]}}, '"ops" stands for both "a" and "b"'),
        ({"type": "string", "aliases": {"a": ["b"], "b": []}}, '"b" stands for both "b" and "a"'),
        ({"type": "number", "aliases": {"1": ["one"]}}, "are for text and true/false; this is a number field"),
        ({"type": "boolean", "aliases": {"yes": ["ja"]}}, 'can be for "true" and "false" only, not for "yes"'),
    ],
)
def test_aliases_that_cannot_be_are_refused(spec: dict[str, Any], message: str):
    with pytest.raises(BadDocument, match='schema field "f": aliases') as caught:
        read_schema({"fields": {"f": spec}})
    assert message in str(caught.value)


async def test_a_later_schema_changes_names_and_descriptions_but_no_type(database: Database):
    await load(database, document("a", team="infra"))
    named = {"type": "string", "description": "Who wrote it", "aliases": {"infra": ["ops"], "none yet": ["nobody"]}}
    await load(database, document("a", team="infra"), declared=read_schema({"fields": {"team": named}}))

    team = (await fields(database))["team"]
    assert (team.aliases, team.field.description) == ({"ops": "infra", "nobody": "none yet"}, "Who wrote it")
    catalogue = Catalogue(database)
    shown = (await catalogue.describe(await catalogue.scope(TENANT, "docs")))["fields"][0]
    assert (shown["aliases"], shown["top"]) == ({"infra": ["ops"], "none yet": ["nobody"]}, [["infra", 1]])

    await load(database, document("a", team="infra"), declared=read_schema({"fields": {"team": "string"}}))
    assert (await fields(database))["team"].aliases == {}
    with pytest.raises(BadRequest, match='changes the type of "team"'):
        await load(database, document("b"), declared=read_schema({"fields": {"team": "number"}}))


# A database from before.


def rows_of(connection: psycopg.Connection[Any], tables: Sequence[str]) -> list[Any]:
    return [connection.execute(f"TABLE signalbox.{name} ORDER BY {name}".encode()).fetchall() for name in tables]


@pytest.mark.parametrize("owner", ["postgres", "mortal"])
async def test_what_was_stored_before_is_catalogued_by_the_migration(server: EmbeddedServer, owner: str):
    name = f"before_{owner}"
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        if owner == "mortal":
            connection.execute("DROP ROLE IF EXISTS mortal; CREATE ROLE mortal LOGIN CREATEROLE")
            connection.execute(
                f"GRANT {', '.join(one for one in ROLES if one != SQL_ROLE)} TO mortal WITH ADMIN OPTION".encode()
            )
        connection.execute(f"CREATE DATABASE {name} OWNER {owner}".encode())
    try:
        with psycopg.connect(server.conninfo(database=name), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        url = server.conninfo(database=name, user=owner)
        migrate(url)
        documents = [
            document("a", title="One", author="Łukasz van Langa", tags=["x", "x"], size=1.50, summary="s" * 300),
            document("b", author="Guido", tags=["x", "y"], size=1.5, day="2024-01-01", public=True),
            document("c", author="Guido", size=1e22, open=True, summary="t" * 300),
        ]
        async with Database(url, size=2) as database:
            await load(database, *documents)
        with psycopg.connect(server.conninfo(database=name)) as connection:
            tables = ("field_value", "field_count", "field_word")
            whole = rows_of(connection, tables)
            for table in tables:
                connection.execute(f"DROP TABLE signalbox.{table}".encode())
            connection.execute("ALTER TABLE signalbox.collection DROP COLUMN folding")
            connection.execute("DELETE FROM signalbox.migration WHERE version = 4")
        assert [one.version for one in migrate(url)] == [4]

        with psycopg.connect(server.conninfo(database=name)) as connection:
            again = rows_of(connection, tables)
        assert again[:2] == whole[:2]
        assert {row[2] for row in again[2]} >= {"guido", "van langa", "langa"}
        async with Database(url, size=2) as database:
            await load(database, *documents)
        with psycopg.connect(server.conninfo(database=name)) as connection:
            again = rows_of(connection, tables)
        assert again == whole
    finally:
        with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_the_migration_is_the_fourth():
    assert [one.name for one in packaged_migrations() if one.version == 4] == ["field_values"]
