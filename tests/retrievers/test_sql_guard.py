"""The guard: hostile statements are refused, analytic ones accepted, each in no time."""

import random
import runpy
import time
from pathlib import Path
from typing import Any

import pytest

from retrievers.postgres.guard.allowlists import NEVER_NAMES
from retrievers.postgres.guard.guard import MAX_ROWS, GuardVerdict, judge_statement
from retrievers.postgres.guard.lexer import MAX_BYTES
from retrievers.postgres.sql.view import quoted_name

DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("data_sql.py")))
COLUMNS: dict[str, str] = DATA["COLUMNS"]
LONGEST_S = 1.0


def judged(statement: str) -> GuardVerdict:
    started = time.process_time()
    verdict = judge_statement(statement, COLUMNS)
    assert time.process_time() - started < LONGEST_S, statement[:200]
    return verdict


def test_every_analytic_statement_is_accepted():
    refused = [(verdict.reason, one) for one in DATA["BENIGN"] if not (verdict := judged(one)).ok]
    assert refused == []
    assert len(DATA["BENIGN"]) >= 100


def test_every_hostile_statement_is_refused_with_a_reason_in_one_line():
    accepted = [one for one in DATA["HOSTILE"] if judged(one).ok]
    assert accepted == []
    assert len(DATA["HOSTILE"]) >= 250
    for one in DATA["HOSTILE"]:
        verdict = judge_statement(one, COLUMNS)
        assert verdict.reason
        assert verdict.sql is None
        assert verdict.reason.isprintable(), one
        assert len(verdict.reason) < 300


def test_a_hostile_call_is_refused_wherever_an_analytic_statement_could_hold_it():
    dice = random.Random(0)
    places = ["{} ", "coalesce({}, 'x')", "CASE WHEN {} IS NULL THEN 1 END", "({})::text", "ARRAY[{}]", "lower({})"]
    for call in DATA["BAD_CALLS"]:
        if call in ("row_to_json(documents)", "json_agg(documents)"):  # said to be refused by the column's name
            continue
        inside = dice.choice(places).format(call)
        statement = dice.choice(DATA["BENIGN"])
        changed = statement.replace("SELECT ", f"SELECT {inside}, ", 1)
        if changed != statement and "SELECT DISTINCT" not in changed:
            assert not judged(changed).ok, changed


@pytest.mark.parametrize(
    ("statement", "sql"),
    [
        ("SELECT id FROM documents", "SELECT id FROM documents\nLIMIT 1000"),
        ("  SELECT id FROM documents ; ", "SELECT id FROM documents\nLIMIT 1000"),
        ("SELECT id FROM documents LIMIT 5", "SELECT id FROM documents LIMIT 5"),
        ("SELECT id FROM documents LIMIT 5000", "SELECT id FROM documents LIMIT 1000"),
        ("SELECT id FROM documents LIMIT 5000 OFFSET 7000", "SELECT id FROM documents LIMIT 1000 OFFSET 7000"),
        ("SELECT id FROM documents OFFSET 5", "SELECT id FROM documents OFFSET 5\nLIMIT 1000"),
        (
            "SELECT id FROM documents FETCH FIRST 2000 ROWS ONLY",
            "SELECT id FROM documents FETCH FIRST 1000 ROWS ONLY",
        ),
        (
            "(SELECT id FROM documents LIMIT 5000) UNION ALL (SELECT id FROM documents)",
            "(SELECT id FROM documents LIMIT 5000) UNION ALL (SELECT id FROM documents)\nLIMIT 1000",
        ),
        (
            "SELECT id FROM (SELECT id FROM documents LIMIT 9999) x LIMIT 4000",
            "SELECT id FROM (SELECT id FROM documents LIMIT 9999) x LIMIT 1000",
        ),
    ],
)
def test_the_text_that_runs_is_the_one_given_with_a_limit(statement: str, sql: str):
    assert MAX_ROWS == 1000
    assert judged(statement).sql == sql


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT pg_sleep(1) FROM documents", "pg_sleep"),
        ("SELECT colour FROM documents", 'no column "colour"'),
        ("SELECT id FROM document", 'no table "document"; the only one is "documents"'),
        ("SELECT id FROM signalbox.document", "signalbox"),
        ("DELETE FROM documents", "only a SELECT"),
        ("SELECT id FROM documents; DELETE FROM documents", "more than one statement"),
        ("SELECT id FROM documents -- all", "comments"),
        ('SELECT "Final" FROM documents', "'Final'"),
        ("SELECT id FROM documents a, documents b", "condition"),
        ("SELECT " + "x" * MAX_BYTES, "longer than 8,192 bytes"),
    ],
)
def test_a_refusal_names_what_to_change(statement: str, reason: str):
    assert reason in judged(statement).reason


def test_a_name_is_looked_up_in_its_own_scope_only():
    assert judged("SELECT q.y FROM (SELECT id AS y FROM documents) q").ok
    assert not judged("SELECT q.id FROM (SELECT id AS y FROM documents) q").ok
    assert not judged("SELECT x.y FROM documents d, (SELECT 1 AS y) q").ok
    assert not judged("SELECT d.y FROM documents d, (SELECT 1 AS y) q").ok
    assert not judged("SELECT id FROM documents WHERE EXISTS (WITH t AS (SELECT 1 AS a) SELECT a FROM t) AND a = 1").ok
    assert not judged("SELECT * FROM documents, (WITH t AS (SELECT 1 AS a) SELECT a FROM t) q, t").ok
    assert judged("SELECT d.id FROM documents d WHERE EXISTS (SELECT 1 FROM documents e WHERE e.id = d.sponsor)").ok
    assert not judged("SELECT * FROM documents d, (SELECT d.id AS y) q").ok, "only LATERAL sees the tables beside it"
    assert judged("SELECT * FROM documents d, LATERAL (SELECT d.id AS y) q").ok


def test_names_with_quotes_are_compared_as_they_are_written():
    assert judged('SELECT "title" FROM documents').ok
    assert judged("SELECT TITLE FROM DOCUMENTS").ok
    assert not judged('SELECT "TITLE" FROM documents').ok
    assert not judged('SELECT title FROM "DOCUMENTS"').ok


SLOW = [
    opened * n + core + closed * n
    for n in (5, 10, 15, 20, 25, 29, 200)
    for opened, core, closed in [
        ("SELECT * FROM documents JOIN documents ", "", ""),
        ("SELECT ARRAY[", "1", "]"),
        ("SELECT (", "1", ")"),
        ("SELECT text(", "1", ")"),
        ("SELECT DATE (", "1", ")"),
        ("SELECT INTERVAL (", "1", ")"),
        ("SELECT date(row(", "1", "))"),
        ("SELECT CASE WHEN ", "1", " END"),
        ("(SELECT 1 UNION ", "SELECT 1", ")"),
        ("WITH a AS (", "SELECT 1", ") SELECT 1"),
    ]
]
SLOW += ["SELECT " + one.removeprefix("SELECT ").replace("SELECT ", "") + " FROM documents" for one in SLOW]  # noqa: S608


@pytest.mark.parametrize("name", sorted(NEVER_NAMES))
def test_a_field_with_the_name_of_a_refused_word_can_be_calculated_with(name: str):
    column = quoted_name(name)
    statement = f"SELECT {column}, count(*) FROM documents WHERE {column} = 'a' GROUP BY {column}"  # noqa: S608

    assert judge_statement(statement, {name: "text"}).ok


def test_statements_made_to_be_slow_to_read_are_judged_in_no_time():
    """An exponential reading of one of them would outlast the time limit of a test."""
    for one in SLOW:
        verdict = judged(one)
        assert verdict.ok is (verdict.sql is not None)


def test_any_text_is_judged_without_an_error():
    dice = random.Random(7)
    words = (
        [word for one in DATA["BENIGN"] for word in one.split()] + DATA["BAD_VALUES"] + list("()[],.;'\"\\$\0\ud800")
    )
    for _ in range(1500):
        text = " ".join(dice.choices(words, k=dice.randint(1, 40)))
        verdict = judged(dice.choice(["", "SELECT ", "SELECT * FROM documents WHERE "]) + text)
        assert verdict.ok is (verdict.sql is not None)
