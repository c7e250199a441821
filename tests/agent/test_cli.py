"""The command line: exit codes, one line for an error, one JSON document for a program."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from agent.serve.cli import run
from retrievers.postgres.server.embedded import EmbeddedServer
from tests.conftest import PATIENT_DEFAULTS

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = [
    {"id": "a", "title": "Oil", "text": "Oil the main bearing every winter.", "team": "crew", "day": "2024-01-01"},
    {"id": "b", "title": "Bolts", "text": "Tighten the tower bolts.", "team": "office", "day": "2024-02-01"},
    {"id": "c", "title": "Storm", "text": "In a storm the rotor stops.", "team": "crew", "day": "2024-03-01"},
]


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Signalbox = Callable[..., Answer]


@pytest.fixture
def run_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Signalbox]:
    """Makes what runs a command line on a database, in an empty folder."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Answer:
        code = run(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err or "--debug" in arguments
        return Answer(code, captured.out, captured.err)

    def on(url: str) -> Signalbox:
        monkeypatch.setenv("SIGNALBOX_DATABASE_URL", url)
        return call

    return on


@pytest.fixture
def signalbox(run_in: Callable[[str], Signalbox], owner_url: str) -> Signalbox:
    """Runs a command line on a fresh database."""
    return run_in(owner_url)


@pytest.fixture
def filled(signalbox: Signalbox, tmp_path: Path) -> Signalbox:
    """The same, with three documents in the collection `docs`."""
    assert signalbox("ingest", str(jsonl(tmp_path, SAMPLE)), "--collection", "docs").code == 0
    return signalbox


@pytest.fixture(scope="module")
def kept_url(server: EmbeddedServer, template: str) -> Iterator[str]:
    """A database that the tests of this module only read."""
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE kept_by_cli TEMPLATE {template}".encode())
    yield server.conninfo(database="kept_by_cli")
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute("DROP DATABASE kept_by_cli WITH (FORCE)")


@pytest.fixture
def kept(run_in: Callable[[str], Signalbox], kept_url: str, tmp_path: Path) -> Signalbox:
    """As `filled`, on the database that all tests share."""
    signalbox = run_in(kept_url)
    path = jsonl(tmp_path, SAMPLE)
    with psycopg.connect(kept_url) as connection:
        empty = connection.execute("SELECT count(*) = 0 FROM signalbox.document").fetchone() == (True,)
    if empty:
        assert signalbox("ingest", str(path), "--collection", "docs").code == 0
    return signalbox


def jsonl(folder: Path, records: list[Any]) -> Path:
    path = folder / "docs.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def one_line(answer: Answer) -> str:
    assert answer.out == ""
    assert answer.err.startswith("signalbox: ")
    assert answer.err.count("\n") == 1
    assert answer.err[:-1].isprintable()
    return answer.err.removeprefix("signalbox: ").strip()


# What the commands answer.


def test_a_collection_that_is_called_list_is_still_shown(signalbox: Signalbox, tmp_path: Path):
    assert signalbox("ingest", str(jsonl(tmp_path, SAMPLE)), "--collection", "list").code == 0
    assert signalbox("collections", "list").out.split()[:2] == ["list", "3"]
    assert "team  (string" in signalbox("collections", "show", "list").out


def test_a_question_is_ranked_as_its_options_say(kept: Signalbox):
    for command in ("retrieve", "augment", "ask"):
        options = ["--collection", "docs", "--fusion", "rrf", "--depth", "10", "--rank-features", "recency:day/365=0.1"]
        found = json.loads(kept(command, "main bearing", *options, "--json").out)["hits"]
        assert found[0]["scores"]["fused"] <= 2 / 61, command
        assert "recency" in found[0]["scores"], command
        whole = kept(command, "main bearing", "--collection", "docs", "--lexical-weight", "1", "--json")
        assert json.loads(whole.out)["hits"][0]["score"] == 1.0, command
        for wrong in (["--fusion", "max"], ["--depth", "9"], ["--lexical-weight", "2"], ["--rank-features", "age"]):
            refused = kept(command, "main bearing", *wrong)
            assert refused.code == 2
            assert one_line(refused).startswith(wrong[0].lstrip("-").replace("-", "_")), command


def test_a_schema_that_no_document_fits_leaves_nothing_behind(signalbox: Signalbox, tmp_path: Path):
    path, schema = str(jsonl(tmp_path, SAMPLE)), tmp_path / "fields.json"
    for mistake in ('{"fields": {"team": "number"}}', '{"fields": {"team": "nmber"}}', '{"fields": [', "{}"):
        schema.write_text(mistake, encoding="utf-8")
        assert signalbox("ingest", path, "--collection", "docs", "--schema", str(schema)).code == 2
        assert signalbox("collections", "--json").out == "[]\n"
    schema.write_text('{"fields": {"team": "string"}}', encoding="utf-8")
    assert signalbox("ingest", path, "--collection", "docs", "--schema", str(schema)).code == 0
    assert "team  (string" in signalbox("collections", "show", "docs").out


def test_documents_are_ingested_found_described_and_deleted(filled: Signalbox, tmp_path: Path):
    again = filled("ingest", str(tmp_path / "docs.jsonl"), "--collection", "docs")
    assert again.code == 0
    assert again.out.startswith("docs: 0 added, 0 updated, 3 unchanged, 0 failed")

    found = filled("retrieve", "who oils the bearing?", "--collection", "docs", "--top-k", "1", "--explain")
    assert found.code == 0
    assert "  1. Oil  [docs/a#0]" in found.out
    assert "team: crew" in found.out
    assert 'step 1     vector "who oils the bearing?": ok, 3 hits' in found.out
    assert "1 hit in" in found.err

    prompt = filled("augment", "who oils the bearing?")
    assert prompt.code == 0
    assert "Oil the main bearing every winter." in prompt.out
    assert "[1] Oil (a, characters 0 to 34)" in prompt.out

    assert filled("collections").out.split()[:2] == ["docs", "3"]
    assert filled("collections", "list").out == filled("collections").out
    described = filled("collections", "show", "docs").out
    assert "team  (string, 2 values in 3 documents)\n    crew (2), office (1)" in described
    assert "day  (date, 3 values in 3 documents, 2024-01-01 to 2024-03-01)" in described

    assert filled("delete", "--collection", "docs", "--document", "a").out == "docs: 1 document deleted\n"
    assert filled("delete", "--collection", "docs").out == "docs: 2 documents deleted\n"
    assert "no collection yet" in filled("collections").out


def test_who_migrates_a_database_in_use_is_told_to_restart_what_runs_on_it(signalbox: Signalbox, owner_url: str):
    assert "restart" not in signalbox("migrate").err
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(
            "DROP FUNCTION signalbox.note_changed CASCADE; DROP TABLE signalbox.changed;"
            "ALTER TABLE signalbox.sync DROP COLUMN forgotten_at, DROP COLUMN heard_at;"
            "ALTER TABLE signalbox.sync_document DROP COLUMN former;"
            "DELETE FROM signalbox.migration WHERE version = 26"
        )
    answer = signalbox("migrate")
    assert answer.out == "applied 0026 following\n"
    assert "still answer, but may not run jobs: restart them" in answer.err


@pytest.mark.parametrize(
    ("arguments", "shows"),
    [
        (["retrieve", "oil", "--top-k", "2"], lambda value: len(value["hits"]) == 2 and value["status"] == "found"),
        (["retrieve", "oil", "--source", "fulltext"], lambda value: [h["document_id"] for h in value["hits"]] == ["a"]),
        (
            ["retrieve", "oil", "--complete", "--per-document", "1", "--top-k", "1"],
            lambda value: value["complete"] and len(value["hits"]) == value["total"] > 1,
        ),
        (["retrieve", "oil", "--top-k", "1", "--page", "2"], lambda value: value["hits"][0]["rank"] == 2),
        (
            ["retrieve", "oil", "--reranker", "hybrid"],
            lambda value: all("rerank" in h["scores"] for h in value["hits"]),
        ),
        (["augment", "oil"], lambda value: "Oil the main bearing" in value["prompt"] and value["citations"]),
        (["collections"], lambda value: value[0]["name"] == "docs" and value[0]["documents"] == 3),
        (["collections", "show", "docs"], lambda value: {f["name"] for f in value["fields"]} >= {"team", "day"}),
        (["delete", "--collection", "docs", "--document", "b"], lambda value: value["deleted"] == 1),
        (["migrate"], lambda value: value == {"applied": []}),
        (
            ["doctor"],
            lambda value: {check["name"] for check in value if check["ok"]} >= {"database", "reranker", "disk"},
        ),
        (["ingest", "docs.jsonl", "--collection", "docs"], lambda value: value["unchanged"] == 3),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_json_is_one_document_on_stdout_and_nothing_else(filled: Signalbox, arguments: list[str], shows: Any):
    answer = filled(*arguments, "--json")

    assert answer.code == 0
    assert answer.out.count("\n") == 1
    assert shows(json.loads(answer.out))


def test_a_filter_narrows_what_is_found(kept: Signalbox):
    wanted = {"type": "and", "filters": [{"type": "eq", "key": "team", "value": "crew"},
                                         {"type": "gt", "key": "day", "value": "2024-01-15"}]}  # fmt: skip
    found = json.loads(kept("retrieve", "oil", "--filter", json.dumps(wanted), "--json").out)
    assert [hit["document_id"] for hit in found["hits"]] == ["c"]


def test_tenants_do_not_see_each_other(kept: Signalbox):
    answer = kept("retrieve", "oil", "--tenant", "other")
    assert answer.code == 2
    assert "there is no collection yet" in one_line(answer)
    assert "no collection yet" in kept("collections", "--tenant", "other").out


def test_standard_input_is_read_as_jsonl(signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch):
    text = "".join(json.dumps(record) + "\n" for record in SAMPLE)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert signalbox("ingest", "-", "--collection", "docs").out.startswith("docs: 3 added")


def test_help_is_shown_on_stdout_and_without_a_command(signalbox: Signalbox):
    for arguments in ((), ("--help",), ("retrieve", "--help")):
        answer = signalbox(*arguments)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.lstrip().startswith("Usage: signalbox")


def test_a_schema_fixes_types(signalbox: Signalbox, tmp_path: Path):
    (tmp_path / "schema.json").write_text('{"fields": {"version": "string"}}')
    path = jsonl(tmp_path, [{"id": "a", "text": "oil", "version": 3}])

    assert signalbox("ingest", str(path), "--collection", "docs", "--schema", "schema.json").code == 0
    described = json.loads(signalbox("collections", "show", "docs", "--json").out)
    field = next(field for field in described["fields"] if field["name"] == "version")
    assert (field["type"], field["declared"], field["top"]) == ("string", True, [["3", 1]])


def test_a_folder_s_own_schema_is_used_and_its_names_are_shown(signalbox: Signalbox, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    jsonl(folder, [{"id": "a", "text": "oil", "team": "crew"}])
    team = {"type": "string", "description": "Who does it", "aliases": {"crew": ["班组", "gang"]}}
    (folder / "schema.json").write_text(json.dumps({"fields": {"team": team}}))

    answer = signalbox("ingest", str(folder), "--collection", "docs")
    assert (answer.code, "1 added" in answer.out) == (0, True)
    assert f"fields as declared in {folder / 'schema.json'}" in answer.err
    shown = signalbox("collections", "show", "docs").out
    assert "Who does it\n    crew (1)\n    crew is also called 班组, gang\n" in shown
    fields = json.loads(signalbox("collections", "show", "docs", "--json").out)["fields"]
    assert [field["aliases"] for field in fields] == [{"crew": ["班组", "gang"]}]

    (folder / "schema.json").write_text('{"fields": {"team": {"type": "sort"}}}')
    answer = signalbox("ingest", str(folder), "--collection", "docs")
    assert (answer.code, "type must be one of" in answer.err) == (2, True)


# Bad input.


def test_one_bad_document_is_one_line_and_loses_nobody_else(signalbox: Signalbox, tmp_path: Path):
    bad = {
        17: '{"id": "cut", "text": ',
        21: json.dumps({"id": "empty", "text": "  "}),
        23: json.dumps({"id": "long", "text": "five megabytes " * 350_000}),
        25: json.dumps({"id": "keys", "text": "x", "metadata": {f"k{n}": n for n in range(10_000)}}),
        27: json.dumps({"id": "late", "text": "x", "day": "99999-01-01"}),
        29: json.dumps({"id": "good1", "text": "another text under the same id"}),
        31: "[1, 2]",
        33: '{"id": "nan", "text": "x", "n": NaN}',
        35: "[" * 100_000,
    }
    mended = {
        19: '{"id": "nul", "text": "a\\u0000b"}',
        20: '{"id": "half", "text": "a \\ud800 b", "title": "\\udfff"}',
        37: '{"id": "raw", "text": "a\0b"}',
    }
    lines = []
    for number in range(1, 41):
        good = json.dumps({"id": f"good{number}", "text": f"Text {number}", "day": "2024-01-01"})
        lines.append(bad.get(number) or mended.get(number) or good)
    (tmp_path / "docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    answer = signalbox("ingest", "docs.jsonl", "--collection", "docs", "--json")

    assert answer.code == 2
    report = json.loads(answer.out)
    failed = {failure["index"] + 1: failure for failure in report["failed"]}
    assert set(failed) - {37} == set(bad)
    assert report["inserted"] == 40 - len(failed)
    for number, failure in failed.items():
        assert failure["where"].endswith(f"docs.jsonl:{number}")
    said = answer.err.splitlines()
    assert all(line.startswith("signalbox: ") and line.isprintable() and len(line) < 400 for line in said)
    for number in failed:
        assert sum(f"docs.jsonl:{number}: " in line for line in said) == 1, number
    assert any("docs.jsonl:19: 1 control character replaced" in line for line in said)
    again = json.loads(signalbox("ingest", "docs.jsonl", "--collection", "docs", "--json").out)
    assert (again["inserted"], again["updated"], again["unchanged"]) == (0, 0, 40 - len(failed))


def test_a_path_that_is_missing_is_reported_and_the_others_are_read(signalbox: Signalbox, tmp_path: Path):
    path = jsonl(tmp_path, SAMPLE)
    answer = signalbox("ingest", "nowhere.jsonl", str(path), "--collection", "docs")
    assert answer.code == 2
    assert "nowhere.jsonl" in answer.err
    assert "3 added" in answer.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_reported(signalbox: Signalbox, tmp_path: Path):
    (tmp_path / "locked.jsonl").touch(mode=0)
    answer = signalbox("ingest", "locked.jsonl", str(jsonl(tmp_path, SAMPLE)), "--collection", "docs")
    assert answer.code == 2
    assert "locked.jsonl" in answer.err
    assert "3 added" in answer.out


BAD_USAGE: dict[str, tuple[list[str], str]] = {
    "no question": (["retrieve"], "Missing argument"),
    "unknown option": (["retrieve", "oil", "--nope"], "No such option: --nope"),
    "unknown command": (["nope"], "No such command 'nope'"),
    "no collection": (["ingest", "docs.jsonl"], "Missing option '--collection'"),
    "top-k 0": (["retrieve", "oil", "--top-k", "0"], "top_k: "),
    "top-k 1000": (["retrieve", "oil", "--top-k", "1000"], "top_k: "),
    "top-k abc": (["retrieve", "oil", "--top-k", "abc"], "'--top-k': Input should be a valid integer"),
    "per-document 0": (["retrieve", "oil", "--per-document", "0"], "per_document: "),
    "per-document 1000": (["augment", "oil", "--per-document", "1000"], "per_document: "),
    "page 0": (["retrieve", "oil", "--page", "0"], "page: "),
    "filter no JSON": (["retrieve", "oil", "--filter", "{team: crew}"], "--filter is not valid JSON"),
    "filter too deep": (
        ["retrieve", "oil", "--filter", "[" * 100_000],
        "--filter is not valid JSON: nested too deeply",
    ),
    "filter a list": (["retrieve", "oil", "--filter", "[]"], "--filter must be an object"),
    "filter key": (
        ["retrieve", "oil", "--filter", '{"type": "eq", "key": "colour", "value": 1}'],
        'filter.key is "colour"; valid keys: "day", "id", "language", "public", "team", "title"',
    ),
    "filter operator": (["retrieve", "oil", "--filter", '{"type": "like", "key": "team"}'], 'filter.type is "like"'),
    "filter value": (
        ["retrieve", "oil", "--filter", '{"type": "gt", "key": "day", "value": "soon"}'],
        '"soon" is not an ISO 8601 date',
    ),
    "missing collection": (["retrieve", "oil", "--collection", "none"], 'no collection "none"; there are: "docs"'),
    "escape in a name": (["retrieve", "oil", "--collection", "\x1b[31mred"], "no collection"),
    "empty question": (["retrieve", ""], "query: "),
    "blank question": (["retrieve", " \n "], "the question is empty"),
    "long question": (["retrieve", "x" * 9000], "query: "),
    "half a character": (["retrieve", "\udcff"], "argument 2 is not valid UTF-8"),
    "half in an id": (["delete", "--collection", "docs", "--document", "\udcff"], "not valid UTF-8"),
    "NUL in an id": (["delete", "--collection", "docs", "--document", "a\0b"], "NUL"),
    "source": (["retrieve", "oil", "--source", "web"], 'no source "web"; there are: "fulltext", "sql", "vector"'),
    "tenant": (["retrieve", "oil", "--tenant", "a\nb"], "a tenant is a name"),
    "template": (["augment", "oil", "--template", "none"], "none"),
    "budget": (["augment", "oil", "--budget-tokens", "1"], "budget_tokens: "),
    "show nothing": (["collections", "show"], "signalbox collections show NAME"),
    "show something else": (["collections", "drop"], "signalbox collections show NAME"),
    "show a slip": (["collections", "lst"], "no `signalbox collections lst`; use `signalbox collections list`"),
    "list a name": (["collections", "list", "docs"], "signalbox collections show NAME"),
    "show none": (["collections", "show", "none"], 'no collection "none"'),
    "delete none": (["delete", "--collection", "none"], 'no collection "none"'),
    "delete no document": (["delete", "--collection", "docs", "--document", "z"], 'holds no document "z"'),
    "collection name": (["ingest", "docs.jsonl", "--collection", "a/b"], "a collection's name has"),
    "no schema": (["ingest", "docs.jsonl", "--collection", "docs", "--schema", "none.json"], 'no file "none.json" to'),
}


@pytest.mark.parametrize(("arguments", "says"), BAD_USAGE.values(), ids=BAD_USAGE.keys())
def test_bad_usage_is_one_line_and_exit_code_2(kept: Signalbox, arguments: list[str], says: str):
    for as_json in ((), ("--json",)):
        answer = kept(*arguments, *as_json)
        assert says in one_line(answer)
        assert answer.code == 2


@pytest.mark.parametrize("schema", ["", "[]", '{"fields": {"a": "money"}}', "\xff"])
def test_a_bad_schema_is_one_line(kept: Signalbox, tmp_path: Path, schema: str):
    (tmp_path / "schema.json").write_bytes(schema.encode("latin-1"))
    answer = kept("ingest", "docs.jsonl", "--collection", "docs", "--schema", "schema.json")
    assert one_line(answer).startswith("schema.json: ")
    assert answer.code == 2


@pytest.mark.parametrize(
    "arguments",
    [["retrieve", "oil"], ["augment", "oil"], ["collections"], ["migrate"], ["delete", "--collection", "docs"],
     ["ingest", "docs.jsonl", "--collection", "docs"]],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_dead_database_is_one_line_and_exit_code_3(
    signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
):
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", "postgresql://user:hunter2@127.0.0.1:1/x")

    answer = signalbox(*arguments)

    assert "check DATABASE_URL and that the server runs" in one_line(answer)
    assert "hunter2" not in answer.err
    assert answer.code == 3


def test_the_doctor_names_what_is_wrong_and_how_to_mend_it(signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch):
    assert signalbox("doctor").code == 0
    for address in ("postgresql://user:hunter2@127.0.0.1:1/x", "host=127.0.0.1 port=1 password=hunter2"):
        monkeypatch.setenv("SIGNALBOX_DATABASE_URL", address)
        answer = signalbox("doctor")
        assert answer.code == 3
        assert "BAD  database" in answer.out
        assert "fix: check DATABASE_URL and that the server runs" in answer.out
        assert "hunter2" not in answer.out + answer.err
    monkeypatch.setenv("SIGNALBOX_EMBEDDER", "onnx:/nowhere")
    assert "set EMBEDDER to an embedder that can be loaded" in signalbox("doctor").out
    monkeypatch.setenv("SIGNALBOX_TIMEOUT_S", "soon")
    assert "BAD  settings" in signalbox("doctor").out


def test_a_bad_setting_is_one_line_that_says_where_it_came_from(
    signalbox: Signalbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SIGNALBOX_TIMEOUT_S", "soon")
    answer = signalbox("retrieve", "oil")
    assert one_line(answer).startswith("setting TIMEOUT_S (the environment): ")
    assert answer.code == 2
    monkeypatch.delenv("SIGNALBOX_TIMEOUT_S")
    for text, says in (("colour = 1", 'there is no setting "COLOUR"'), ("= =", "signalbox.toml cannot be read")):
        (tmp_path / "signalbox.toml").write_text(text)
        answer = signalbox("retrieve", "oil")
        assert says in one_line(answer)
        assert answer.code == 2


def test_another_embedder_is_refused_with_what_to_do(filled: Signalbox, owner_url: str):
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.embedder SET name = 'openai/some-model'")
    answer = filled("ingest", "docs.jsonl", "--collection", "docs")
    assert "set EMBEDDER=openai/some-model, or delete the collection" in one_line(answer)
    assert answer.code == 2


def test_debug_adds_the_traceback(kept: Signalbox):
    answer = kept("retrieve", "oil", "--collection", "none", "--debug")
    assert answer.code == 2
    assert answer.err.startswith("Traceback (most recent call last):")
    assert answer.err.splitlines()[-1].startswith('signalbox: there is no collection "none"')


def test_a_document_cannot_drive_the_terminal(filled: Signalbox, owner_url: str):
    # Cleaned on the way in; here somebody else has written them.
    evil = "\x1b[2J\x1b]0;owned\x07 \x9b31m \r\b"
    with psycopg.connect(owner_url) as connection:
        connection.execute(
            "UPDATE signalbox.document"
            " SET title = %(evil)s, url = %(evil)s, metadata = jsonb_build_object('team', %(evil)s::text)",
            {"evil": evil},
        )
        connection.execute("UPDATE signalbox.chunk SET body = %s || body", (evil,))

    for arguments in (["retrieve", "oil", "--explain"], ["augment", "oil"], ["collections", "show", "docs"]):
        answer = filled(*arguments)
        assert answer.code == 0
        assert (answer.out + answer.err).replace("\n", "").replace("\t", "").isprintable()


# The program itself.


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose server runs, so that each command finds it."""
    home = tmp_path_factory.mktemp("cli")
    server = EmbeddedServer(home)
    server.start()
    yield home
    server.stop()


def program(home: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    patient = {f"SIGNALBOX_{name.upper()}": str(seconds) for name, seconds in PATIENT_DEFAULTS.items()}
    environment |= {"SIGNALBOX_HOME": str(home), **patient, **options.pop("env", {})}
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "cwd": home, **options}
    command = [str(Path(sys.executable).with_name("signalbox")), *arguments]
    return subprocess.run(command, env=environment, check=False, **options)


@pytest.mark.slow
@pytest.mark.database
def test_the_program_ingests_and_answers_in_separate_processes(home: Path):
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in SAMPLE)
    text += json.dumps({"id": "zh", "text": "每年冬天给主轴承上油 😀"}) + "\n"

    done = program(home, "ingest", "-", "--collection", "docs", "--json", input=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["inserted"] == 4
    done = program(home, "retrieve", "主轴承", "--json")
    assert json.loads(done.stdout)["hits"][0]["text"] == "每年冬天给主轴承上油 😀"

    plain = {"PYTHONIOENCODING": "ascii"}
    done = program(home, "retrieve", "主轴承", "--json", env=plain)
    assert json.loads(done.stdout)["hits"][0]["text"] == "每年冬天给主轴承上油 😀"
    done = program(home, "retrieve", "主轴承", env=plain)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "?????" in done.stdout

    done = program(home, "retrieve", "oil", "--top-k", "x")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    done = program(home, "collections", env={"SIGNALBOX_DATABASE_URL": "postgresql://127.0.0.1:1/x"})
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)


@pytest.mark.database
def test_a_reader_that_goes_away_is_no_error(home: Path):
    environment = {**os.environ, "SIGNALBOX_HOME": str(home)}
    command = f"{Path(sys.executable).with_name('signalbox')} doctor | true"
    done = subprocess.run(
        ["bash", "-c", command], env=environment, cwd=home, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


HEAVY = ("litellm", "fastapi", "onnxruntime", "sqlglot", "openai", "tokenizers", "rjieba", "psycopg", "torch")


@pytest.mark.parametrize(
    "statement",
    ["import agent", "import agent.serve.cli", "import sys; from agent.serve.cli import run; run(['--help'])",
     "from agent.serve.cli import run; run(['retrieve', '--help'])", "import retrievers", "import prompts"],
)  # fmt: skip
def test_what_is_quick_imports_nothing_heavy(statement: str):
    code = f"{statement}\nimport sys\nprint('loaded:', *sorted(set({HEAVY!r}) & set(sys.modules)))"
    # A setting in the environment is checked by every command, which loads all settings.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_variables_that_are_no_settings_are_said_in_one_line_by_every_command(
    signalbox: Signalbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("SIGNALBOX_DATABSE_URL", "SIGNALBOX_ZZZ", "SIGNALBOX_KEY_OF_WIKI", "SIGNALBOX_TEST_X"):
        monkeypatch.setenv(name, "the value")
    said_of_it = (
        "the environment variable SIGNALBOX_DATABSE_URL is not a setting (did you mean SIGNALBOX_DATABASE_URL?)"
    )
    meant = f"signalbox: {said_of_it}; "
    for command in (["collections", "--json"], ["ingest", "--help"], ["keys", "list"], ["jobs"], ["--version"]):
        answer = signalbox(*command)
        assert answer.code == 0, command
        said = [line for line in answer.err.splitlines() if "is not a setting" in line]
        assert len(said) == 1, command
        assert said[0].startswith(meant), command
        assert "SIGNALBOX_ZZZ" in said[0]
        assert "TEST_X" not in answer.err
        assert "the value" not in answer.err
    assert json.loads(signalbox("collections", "--json").out) == []
    # A variable that a source's key is in is none.
    (tmp_path / "signalbox.toml").write_text(
        '[sources.news]\nkind = "web"\nprovider = "tavily"\ndescription = "News"\n'
        'api_key_env = "SIGNALBOX_KEY_OF_WIKI"\n'
    )
    assert "KEY_OF_WIKI" not in signalbox("collections").err
    for name in ("SIGNALBOX_DATABSE_URL", "SIGNALBOX_ZZZ"):
        monkeypatch.delenv(name)
    assert "is not a setting" not in signalbox("collections").err
