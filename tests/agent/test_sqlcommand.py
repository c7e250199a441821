"""`signalbox sql`: what is judged, what runs, and what a program reads of it."""

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.serve.cli import run

DOCUMENTS = [
    {"id": "a", "title": "Oil", "text": "Oil the bearing.", "team": "crew", "tags": ["oil", "油"]},
    {"id": "b", "title": "Bolts", "text": "Tighten the bolts.", "team": "office", "tags": ["bolt"]},
    {"id": "c", "title": "Storm", "text": "The rotor stops.", "team": "crew"},
]
Ran = tuple[int, str, str]


@pytest.fixture
def signalbox(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Runs a command line on a database with three documents."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = run(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    (tmp_path / "docs.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)), encoding="utf-8")
    assert call("ingest", "docs.jsonl", "--collection", "docs")[0] == 0
    return call


def test_a_statement_is_run_and_shown_as_a_table(signalbox: Callable[..., Ran]):
    code, out, err = signalbox(
        "sql", "SELECT team, count(*) AS n FROM documents GROUP BY team ORDER BY n DESC", "--collection", "docs"
    )
    assert (code, out) == (0, "team    n\n------  -\ncrew    2\noffice  1\n")
    assert err == "signalbox: 2 rows\n"


def test_with_json_there_is_one_document(signalbox: Callable[..., Ran]):
    code, out, _ = signalbox("sql", "SELECT id, tags FROM documents LIMIT 2", "--collection", "docs", "--json")
    assert code == 0
    assert json.loads(out) == {
        "ok": True,
        "reason": "",
        "sql": "SELECT id, tags FROM documents LIMIT 2",
        "columns": ["id", "tags"],
        "rows": [["a", ["oil", "油"]], ["b", ["bolt"]]],
    }


@pytest.mark.parametrize("more", [[], ["--json"], ["--check"], ["--check", "--json"]])
def test_a_refused_statement_ends_with_2_and_one_line(signalbox: Callable[..., Ran], more: list[str]):
    code, out, err = signalbox("sql", "DELETE FROM documents", "--collection", "docs", *more)
    assert code == 2
    assert err == "signalbox: the statement is refused: only a SELECT is accepted\n"
    if "--json" in more:
        assert json.loads(out) == {"ok": False, "reason": "only a SELECT is accepted", "sql": None}
    else:
        assert out == ""


def test_check_does_not_run(signalbox: Callable[..., Ran]):
    code, out, _ = signalbox("sql", "SELECT id::int FROM documents", "--collection", "docs", "--check")
    assert (code, out) == (0, "SELECT id::int FROM documents\nLIMIT 1000\n")
    code, _, err = signalbox("sql", "SELECT id::int FROM documents", "--collection", "docs")
    assert code == 2
    assert 'invalid input syntax for type integer: "a"' in err


def test_a_statement_per_line_has_an_answer_per_line(signalbox: Callable[..., Ran]):
    lines = [
        b'"SELECT count(*) FROM documents"',
        b"no json",
        b"5",
        b'"SELECT 1"',
        b"\xff",
        b'"\\ud800"',
        b"",
        b"[" * 99999,
    ]
    code, out, _ = signalbox("sql", "-", "--collection", "docs", "--check", stdin=b"\n".join(lines) + b"\n")
    answers: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [answer["ok"] for answer in answers] == [True] + [False] * 7
    assert answers[0] == {"ok": True, "reason": "", "sql": "SELECT count(*) FROM documents\nLIMIT 1000"}
    assert all(set(answer) == {"ok", "reason", "sql"} for answer in answers)
    assert all(answer["reason"] for answer in answers[1:])


def test_a_collection_that_is_not_there_is_named(signalbox: Callable[..., Ran]):
    code, _, err = signalbox("sql", "SELECT 1", "--collection", "none", "--check")
    assert code == 2
    assert 'there is no collection "none"; there are: "docs"' in err
