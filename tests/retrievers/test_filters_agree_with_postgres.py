"""A filter means the same in Python and in PostgreSQL, on generated documents and filters."""

import json
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from retrievers.core.filters import (
    MAX_SOUGHT_CHARACTERS,
    OPERATORS,
    And,
    FieldCondition,
    Filter,
    Not,
    Or,
    filter_to_json,
    filter_to_jsonpath,
    matches_filter,
    parse_filter,
)
from retrievers.core.metadata import Field, flatten_metadata, normalise_metadata

PROFILE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=list(HealthCheck),
)
DOCUMENTS, FILTERS = 120, 40
FIELDS = {
    field.name: field
    for field in [
        Field("text", "string", "string"),
        Field('odd key "$.\\\t%s', "string", "string"),
        Field("texts", "list", "string"),
        Field("split", "list", "string", ","),
        Field("number", "number", "number"),
        Field("numbers", "list", "number"),
        Field("date", "date", "date"),
        Field("dates", "list", "date"),
        Field("flag", "boolean", "boolean"),
        Field("flags", "list", "boolean"),
    ]
}
ODD_TEXTS = [
    "", "a", "ab", "abc", "A", "%", "%s", "$", "$.a", "'", '"', "\\", "\\\\", "\\n", "\n", "\t", "\r", "\x01", "\x7f",
    "a.c", "[a]", "(", "*", "^a", "a$", "\\d", "中", "中文", "包管理", "é", "e\u0301", "🙂", "👩‍👩‍👧", "\ufeff",
    "\uffff", "1", "true", "null", "2024-01-01", "\u2028", "ﬀ", "ß", "SS", "\U0010ffff", "/", "\x0b", "a b", "***:a",
    "(?i)a",
]  # fmt: skip
ODD_NUMBERS = [
    0, -0.0, 1, 1.0, -1, 0.1, 0.3, 0.30000000000000004, 1e-7, 1e16, 10**16, 10**16 + 1, 1e22, 1e23, 10**23, 10**23 + 1,
    99999999999999991611392, 2**53, 2**53 + 1, float(2**53), 2**63, 1e308, 10**308, -(10**300), 5e-324, 1.5e300, 100,
]  # fmt: skip
ODD_DATES = [
    "2024-01-01", "2024-01-01T00:00:00", "2024-01-01T00:00:00+08:00", "2023-12-31T16:00:00Z", "2024-1-1", "0001-01-01",
    "9999-12-31", "2024-01-01T00:00:00.5", "2024-01-01T00:00:00.500000", "2024-01-01T00:00:01", "2024-01-01 08:30",
    "2024-02-29",
]  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
numbers = st.integers(-(10**20), 10**20) | st.floats(-1e308, 1e308)
moments = st.datetimes().map(lambda moment: moment.isoformat()) | st.dates().map(lambda day: day.isoformat())
pools = st.fixed_dictionaries(
    {
        "string": st.lists(texts, max_size=6).map(lambda drawn: drawn * 2 + ODD_TEXTS),
        "number": st.lists(numbers, max_size=6).map(lambda drawn: drawn * 2 + ODD_NUMBERS),
        "date": st.lists(moments, max_size=4).map(lambda drawn: drawn * 2 + ODD_DATES),
        "boolean": st.just([True, False]),
    }
)
Pool = dict[str, list[Any]]


@pytest.fixture(scope="module")
def connection(server: Any) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        yield connection


def document(dice: random.Random, pool: Pool) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for field in FIELDS.values():
        if dice.random() < 0.2:
            continue
        values = dice.sample(pool[field.item], dice.choice([0, 1, 1, 2, 3]) % len(pool[field.item]))
        if field.separator:
            metadata[field.name] = field.separator.join(values)
        elif field.type == "list":
            metadata[field.name] = values
        else:
            metadata[field.name] = values[0] if values else None
    return normalise_metadata(flatten_metadata(metadata), FIELDS)


def comparison(dice: random.Random, pool: Pool) -> dict[str, Any]:
    field = dice.choice(list(FIELDS.values()))
    valid = {
        "string": OPERATORS,
        "number": [op for op in OPERATORS if op != "prefix"],
        "date": [op for op in OPERATORS if op != "prefix"],
        "boolean": ["eq", "ne", "in", "nin", "contains", "exists"],
    }[field.item]
    ops = [op for op in valid if op != "contains" or field.item == "string" or field.type == "list"]
    op = dice.choice(ops)
    value: Any = dice.choice(pool[field.item])
    if op == "exists":
        value = dice.random() < 0.5
    elif op in ("in", "nin"):
        value = dice.sample(pool[field.item], min(dice.choice([0, 1, 2, 20]), len(pool[field.item])))
    elif isinstance(value, str) and field.item == "string" and dice.random() < 0.3:
        value = value[: dice.randint(0, len(value))]
    return {"type": op, "key": field.name, "value": value}


def expression(dice: random.Random, pool: Pool, depth: int = 1) -> dict[str, Any]:
    if depth > 4 or dice.random() < 0.4:
        return comparison(dice, pool)
    kind = dice.choice(["and", "or", "not"])
    if kind == "not":
        return {"type": "not", "filter": expression(dice, pool, depth + 1)}
    return {"type": kind, "filters": [expression(dice, pool, depth + 1) for _ in range(dice.randint(1, 3))]}


def in_postgres(
    connection: psycopg.Connection, wanted: list[Filter], documents: list[dict[str, Any]]
) -> list[list[bool]]:
    """Per filter, per document: what PostgreSQL says."""
    rows = connection.execute(
        """
        WITH document AS MATERIALIZED (
            SELECT n, fields FROM jsonb_array_elements(%s::jsonb) WITH ORDINALITY AS given (fields, n)),
        filter AS MATERIALIZED (
            SELECT n, path::jsonpath AS path FROM unnest(%s::text[]) WITH ORDINALITY AS given (path, n))
        SELECT array_agg(d.fields @@ f.path ORDER BY d.n) FROM filter f CROSS JOIN document d GROUP BY f.n ORDER BY f.n
        """,
        (json.dumps(documents), [filter_to_jsonpath(one) for one in wanted]),
    ).fetchall()
    return [row[0] for row in rows]


def differences(
    connection: psycopg.Connection, wanted: list[Filter], documents: list[dict[str, Any]]
) -> list[tuple[Any, str, dict[str, Any]]]:
    """Return each filter, as JSON and as jsonpath, with a document that Python and PostgreSQL judge differently."""
    return [
        (filter_to_json(one), filter_to_jsonpath(one), values)
        for one, answers in zip(wanted, in_postgres(connection, wanted, documents), strict=True)
        for values, answer in zip(documents, answers, strict=True)
        if matches_filter(one, values) is not answer
    ]


@PROFILE
@given(pool=pools, seed=st.integers(0, 2**32))
@example(pool={"string": ODD_TEXTS, "number": ODD_NUMBERS, "date": ODD_DATES, "boolean": [True, False]}, seed=0)
def test_python_and_postgres_agree_on_every_generated_pair(
    connection: psycopg.Connection, pool: Pool, seed: int
) -> None:
    dice = random.Random(seed)
    documents = [document(dice, pool) for _ in range(DOCUMENTS)]
    wanted = [parse_filter(expression(dice, pool), FIELDS) for _ in range(FILTERS)]
    assert differences(connection, wanted, documents) == []


@pytest.mark.parametrize("key", ["text", "texts", "number", "numbers"])
def test_every_odd_value_is_compared_alike_with_every_other(connection: psycopg.Connection, key: str) -> None:
    field = FIELDS[key]
    pool = ODD_TEXTS if field.item == "string" else ODD_NUMBERS
    documents = [{key: [value] if field.type == "list" else value} for value in pool]
    documents += [{}, {key: []}] if field.type == "list" else [{}]
    ops = ["eq", "ne", "gt", "gte", "lt", "lte"]
    ops += ["prefix", "contains"] if field.item == "string" else []
    wanted: list[Filter] = [FieldCondition(op, key, value) for op in ops for value in pool]
    assert differences(connection, wanted, documents) == []


def test_values_of_another_type_than_the_field_are_compared_alike(connection: psycopg.Connection) -> None:
    values: list[Any] = ["1", "true", "a", 1, 0, True, False, [1, "1", True], ["a"], [], [0, False]]
    documents = [{"mixed": value} for value in values] + [{}]
    scalars: list[Any] = ["1", "true", "a", "", 1, 0, True, False, 0.5]
    wanted: list[Filter] = [
        FieldCondition(op, "mixed", value)
        for op in ("eq", "ne", "gt", "gte", "lt", "lte", "contains")
        for value in scalars
        if not (isinstance(value, bool) and op in ("gt", "gte", "lt", "lte"))
    ]
    wanted += [FieldCondition("prefix", "mixed", value) for value in ("", "1", "t")]
    wanted += [
        FieldCondition(op, "mixed", tuple(some)) for op in ("in", "nin") for some in ([], [1], ["1", True], [False, 0])
    ]
    assert differences(connection, wanted, documents) == []


@PROFILE
@given(pool=pools, seed=st.integers(0, 2**32))
def test_a_filter_and_its_negation_part_the_documents(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    documents = [document(dice, pool) for _ in range(40)]
    for _ in range(20):
        wanted = parse_filter(expression(dice, pool), FIELDS)
        for values in documents:
            assert matches_filter(wanted, values) is not matches_filter(Not(wanted), values)


@PROFILE
@given(pool=pools, seed=st.integers(0, 2**32))
def test_ne_and_nin_are_exact_opposites_of_eq_and_in(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    documents = [document(dice, pool) for _ in range(40)]
    for field in FIELDS.values():
        value = dice.choice(pool[field.item])
        for values in documents:
            one = parse_filter({"type": "eq", "key": field.name, "value": value}, FIELDS)
            other = parse_filter({"type": "ne", "key": field.name, "value": value}, FIELDS)
            assert matches_filter(one, values) is not matches_filter(other, values)
            one = parse_filter({"type": "in", "key": field.name, "value": [value]}, FIELDS)
            other = parse_filter({"type": "nin", "key": field.name, "value": [value]}, FIELDS)
            assert matches_filter(one, values) is not matches_filter(other, values)


@PROFILE
@given(pool=pools, seed=st.integers(0, 2**32))
def test_a_further_condition_never_adds_a_document_and_an_alternative_never_loses_one(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    documents = [document(dice, pool) for _ in range(40)]
    for _ in range(10):
        one, other = (parse_filter(expression(dice, pool), FIELDS) for _ in range(2))
        for values in documents:
            assert (
                matches_filter(And((one, other)), values)
                <= matches_filter(one, values)
                <= matches_filter(Or((one, other)), values)
            )


@PROFILE
@given(pool=pools, seed=st.integers(0, 2**32))
def test_a_filter_written_as_json_is_read_back_the_same(pool: Pool, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        wanted = parse_filter(expression(dice, pool), FIELDS)
        assert parse_filter(json.loads(json.dumps(filter_to_json(wanted))), FIELDS) == wanted


DIFFERENT = "".join(map(chr, range(0x4E00, 0x4E00 + MAX_SOUGHT_CHARACTERS)))
"""PostgreSQL's memory grows with the number of different characters times the length."""


@pytest.mark.parametrize(
    "wanted",
    [
        FieldCondition("contains", "text", "x" * MAX_SOUGHT_CHARACTERS),
        FieldCondition("contains", "text", DIFFERENT),
        FieldCondition("contains", "text", "(" * MAX_SOUGHT_CHARACTERS),
        FieldCondition("prefix", "text", "x" * 8000),
        FieldCondition("eq", "text", "\\" * 8000),
        FieldCondition("in", "text", tuple(f"value {n}" for n in range(1000))),
        FieldCondition("nin", "number", tuple(range(1000))),
        And(tuple(FieldCondition("in", "text", tuple(f"{n} {m}" for m in range(1000))) for n in range(127))),
    ],
    ids=["contains", "contains different", "contains brackets", "prefix", "eq", "in", "nin", "the largest filter"],
)
def test_the_largest_values_work_in_postgres(connection: psycopg.Connection, wanted: Filter) -> None:
    documents: list[dict[str, Any]] = [
        {"text": "x" * 9000},
        {"text": f"中{DIFFERENT}中"},
        {"text": "(" * 8001},
        {"number": 999},
        {},
    ]
    assert differences(connection, [wanted, Not(wanted)], documents) == []


def test_deepest_nesting_works_in_postgres(connection: psycopg.Connection) -> None:
    node: dict[str, Any] = {"type": "eq", "key": "flag", "value": True}
    for _ in range(7):
        node = {"type": "not", "filter": node}
    assert differences(connection, [parse_filter(node, FIELDS)], [{"flag": True}, {"flag": False}, {}]) == []
