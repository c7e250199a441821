"""Figures of stored collections, from `eval run --publish` to /metrics."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest
from click.testing import Result
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from typer.testing import CliRunner

from agent.observe import evaluation_metrics as observing
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.settings import Settings
from evals import publishing
from evals.cli import app
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.ingest.documents import Document
from retrievers.postgres.accounts.evaluations import list_evaluations
from retrievers.postgres.accounts.evaluations import publish_figures as store

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {"oven": "The oven is cleaned every Friday.", "lamp": "The lamp in the tower is lit at dusk."}
RIGHT = "question,document\nwhen is the oven cleaned?,oven\nwhen is the lamp lit?,lamp\n"
WRONG = "question,document\nwhen is the oven cleaned?,lamp\nwhen is the lamp lit?,lamp\n"


@pytest.fixture(autouse=True)
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each request of /metrics read the database."""
    monkeypatch.setattr(observing, "_FRESH_S", 0.0)


@pytest.fixture
async def handbook(settings: Settings) -> Settings:
    """A collection "handbook" of two documents for each of two tenants."""
    async with open_service(settings) as service:
        for tenant in ("default", "acme"):
            documents = [Document(where=id, id=id, title=id, text=text) for id, text in TEXTS.items()]
            await service.ingest(documents, "handbook", tenant=tenant)
    return settings


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.csv"
    path.write_text(RIGHT, encoding="utf-8")
    return path


def invoke(settings: Settings, *arguments: object, tenant: str = "default") -> Result:
    address = ["--set", f"DATABASE_URL={settings.database_url}", "--set", f"TENANT={tenant}"]
    return CliRunner().invoke(app, [*map(str, arguments), *address], standalone_mode=False)


def publish(settings: Settings, questions: Path, name: str, tenant: str = "default") -> Result:
    return invoke(settings, "run", questions, "--collection", "handbook", "--publish", name, tenant=tenant)


def refusal(done: Result) -> str:
    """The message of a command that refuses its input, before it prints anything."""
    assert isinstance(done.exception, BadRequest), done.exception
    assert done.stdout == ""
    return str(done.exception)


@asynccontextmanager
async def monitoring(settings: Settings) -> AsyncIterator[Callable[[], Awaitable[httpx2.Response]]]:
    """A running service; gives what requests /metrics."""
    async with open_service(settings) as service:
        transport = httpx2.ASGITransport(create_app(service))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            yield lambda: client.get("/metrics")


def figures(settings: Settings) -> dict[tuple[str, ...], float]:
    """The series of evaluations at /metrics, by name and labels."""

    async def read() -> str:
        async with monitoring(settings) as request:
            return (await request()).text

    return series(asyncio.run(read()))


def series(text: str) -> dict[tuple[str, ...], float]:
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    found = [one for one in samples if one.name.startswith("signalbox_evaluation")]
    assert len({(one.name, *one.labels.items()) for one in found}) == len(found)
    return {(one.name.removeprefix("signalbox_evaluation"), *one.labels.values()): one.value for one in found}


def test_published_figures_are_in_the_metrics_and_those_of_the_next_run_replace_them(
    handbook: Settings, questions: Path
):
    assert figures(handbook) == {}
    before = time.time()

    done = publish(handbook, questions, "quality")

    assert done.exception is None
    assert "published as quality" in done.stderr
    first = figures(handbook)
    assert first["", "quality", "hit@1"] == first["", "quality", "nDCG@10"] == 1.0
    assert (first["_questions", "quality", "answered"], first["_questions", "quality", "failed"]) == (2, 0)
    assert before <= first["_timestamp_seconds", "quality"] <= time.time()
    assert first["_failures_total", "quality"] == 0
    # A measure that applies to no question, and the interval of a run that is not repeated, are left out.
    assert {key for key in first if "filter_exact" in key or "_interval_seconds" in key} == set()
    questions.write_text(WRONG, encoding="utf-8")
    assert publish(handbook, questions, "quality").exception is None
    second = figures(handbook)
    assert second["", "quality", "hit@1"] == 0.5
    assert second.keys() == first.keys()
    assert second["_timestamp_seconds", "quality"] > first["_timestamp_seconds", "quality"]


def test_a_name_belongs_to_one_tenant_and_no_tenant_or_collection_is_in_the_metrics(
    handbook: Settings, questions: Path
):
    assert publish(handbook, questions, "quality").exception is None

    refused = publish(handbook, questions, "quality", tenant="acme")

    assert 'another tenant publishes figures as "quality"' in refusal(refused)
    questions.write_text(WRONG, encoding="utf-8")
    assert publish(handbook, questions, "theirs", tenant="acme").exception is None
    found = figures(handbook)
    assert (found["", "quality", "hit@1"], found["", "theirs", "hit@1"]) == (1.0, 0.5)
    assert [key for key in found if {"acme", "default", "handbook", "questions"} & set(key)] == []


def test_row_security_keeps_a_tenant_from_the_figures_of_another(handbook: Settings, questions: Path):
    assert publish(handbook, questions, "quality").exception is None

    async def look() -> None:
        async with publishing.open_database(handbook) as database:
            mine = "SELECT name FROM signalbox.evaluation"
            assert await database.fetch("default", mine, ()) == [("quality",)]
            assert await database.fetch("acme", mine, ()) == []
            assert await database.fetch("acme", "DELETE FROM signalbox.evaluation RETURNING name", ()) == []
            for scope in (database.scope("default"), "", "0" * 64 + ":\nworker"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    await database.fetch_autocommit("SELECT * FROM signalbox.evaluations(%(pass)s)", {"pass": scope})
            # Between the check of the name and the end of the run another tenant may have taken it.
            (stored,) = await list_evaluations(database)
            with pytest.raises(BadRequest, match="another tenant"):
                await store(database, "acme", "quality", stored.figures)

    asyncio.run(look())


def test_what_is_published_is_listed_and_removed(handbook: Settings, questions: Path):
    assert "nothing is published" in invoke(handbook, "published").stdout
    assert publish(handbook, questions, "quality", tenant="acme").exception is None

    (listed,) = json.loads(invoke(handbook, "published", "--json").stdout)

    assert (listed["name"], listed["tenant"], listed["collections"]) == ("quality", "acme", ["handbook"])
    assert list(listed["measures"])[:2] == ["nDCG@10", "R@10"]
    shown = invoke(handbook, "published").stdout
    assert "acme" in shown
    assert "nDCG@10 1.000" in shown
    assert 'nothing is published as "other"' in refusal(invoke(handbook, "published", "--remove", "other"))
    assert "nothing is published" in invoke(handbook, "published", "--remove", "quality").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--publish", "Quality Of Acme"], "a name is a small letter, then"),
        (["--publish", "q", "--every", "0s"], '--every: "0s" is not a duration; write it as 30s, 15m, 2h or 1d'),
        (["--publish", "q", "--every", "-1h"], '--every: "-1h" is not a duration'),
        (["--publish", "q", "--every", "soon"], '--every: "soon" is not a duration'),
        (["--every", "1h"], "--every needs --publish NAME"),
        (["--publish", "q", "--every", "1h", "--json"], "--every needs --publish NAME and no --resume or --json"),
        (["--publish", "q", "--collection", "cellar"], 'there is no collection "cellar"'),
        (["--publish", "q", "--every", "1h", "--collection", "cellar"], 'there is no collection "cellar"'),
    ],
)
def test_what_cannot_be_published_is_refused(handbook: Settings, questions: Path, arguments: list[str], message: str):
    given = arguments if "--collection" in arguments else [*arguments, "--collection", "handbook"]

    assert message in refusal(invoke(handbook, "run", questions, *given))

    assert figures(handbook) == {}


def test_a_run_that_would_store_documents_is_not_published(handbook: Settings, beir: Path, tmp_path: Path):
    refused = invoke(handbook, "run", beir, "--publish", "quality")

    assert "--publish measures a stored collection: give --collection NAME" in refusal(refused)
    missing = invoke(handbook, "run", tmp_path / "none.csv", "--publish", "quality", "--every", "1h")
    assert "the file does not exist" in refusal(missing)


def test_the_number_of_names_is_limited(handbook: Settings, questions: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(publishing, "MOST_NAMES", 1)
    assert publish(handbook, questions, "one").exception is None

    assert "remove one: signalbox eval published --remove NAME" in refusal(publish(handbook, questions, "two"))

    assert publish(handbook, questions, "one").exception is None


def test_a_failed_run_is_counted_and_the_earlier_figures_stay(handbook: Settings, questions: Path):
    assert publish(handbook, questions, "quality").exception is None
    questions.write_text("question,document\nwhen is the oven cleaned?,gone\n", encoding="utf-8")

    assert 'holds no document "gone"' in refusal(publish(handbook, questions, "quality"))

    found = figures(handbook)
    assert (found["_failures_total", "quality"], found["", "quality", "hit@1"]) == (1, 1.0)


@pytest.fixture
def shut(handbook: Settings) -> Iterator[Callable[[bool], None]]:
    """Shuts the database of the test, or opens it again."""
    assert handbook.database_url
    name = conninfo_to_dict(handbook.database_url)["dbname"]

    def allow(connections: bool) -> None:
        with psycopg.connect(make_conninfo(handbook.database_url, dbname="postgres"), autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS {connections}'.encode())
            if not connections:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    yield lambda is_shut: allow(not is_shut)
    allow(True)


def test_the_metrics_keep_the_figures_while_the_database_is_away(
    handbook: Settings, questions: Path, shut: Callable[[bool], None]
):
    assert publish(handbook, questions, "quality").exception is None

    async def look() -> tuple[httpx2.Response, httpx2.Response, float]:
        async with monitoring(handbook) as request:
            before = await request()
            shut(True)
            started = time.monotonic()
            return before, await request(), time.monotonic() - started

    before, without, took_s = asyncio.run(look())

    assert (before.status_code, without.status_code) == (200, 200)
    assert series(without.text) == series(before.text)
    assert series(before.text)["", "quality", "hit@1"] == 1.0
    assert took_s < 10
    assert isinstance(publish(handbook, questions, "quality").exception, Unavailable)


def test_a_database_that_hangs_holds_the_metrics_up_for_a_second_at_most(
    handbook: Settings, questions: Path, monkeypatch: pytest.MonkeyPatch
):
    assert publish(handbook, questions, "quality").exception is None
    monkeypatch.setattr(observing, "_TIMEOUT_S", 1.0)

    async def look() -> tuple[httpx2.Response, httpx2.Response, float]:
        async with monitoring(handbook) as request:
            before = await request()
            async with await psycopg.AsyncConnection.connect(str(handbook.database_url)) as holding:
                await holding.execute("LOCK TABLE signalbox.evaluation")
                started = time.monotonic()
                requests = [asyncio.create_task(request()) for _ in range(3)]
                without = [await one for one in requests]
                return before, without[-1], time.monotonic() - started

    before, without, took_s = asyncio.run(look())

    assert without.status_code == 200
    assert series(without.text) == series(before.text) != {}
    assert 1.0 <= took_s < 60


class Repeating:
    """`signalbox eval run --publish quality --every 1s` in a process of its own."""

    def __init__(self, settings: Settings, questions: Path) -> None:
        self.log, self.out = questions.with_name("log"), questions.with_name("run.json")
        program = [sys.executable, "-c", "from agent.serve.cli import main; main()"]
        options = ["--collection", "handbook", "--publish", "quality", "--every", "1s", "--out", str(self.out)]
        environment = os.environ | {"SIGNALBOX_DATABASE_URL": str(settings.database_url)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, "eval", "run", str(questions), *options],
                cwd=ROOT, env=environment, stdout=log, stderr=log,
            )  # fmt: skip

    def wait_for(self, pattern: str, times: int = 1) -> None:
        """Wait until so many new lines of the log have the pattern."""
        begun, deadline = self.log.read_text(encoding="utf-8"), time.monotonic() + 180
        while len(re.findall(pattern, self.log.read_text(encoding="utf-8")[len(begun) :])) < times:
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, self.log.read_text(encoding="utf-8")
            time.sleep(0.05)

    def end(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        try:
            assert self.process.wait(60) == 0
        finally:
            self.process.kill()
            self.process.wait()
        return self.log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_runs_repeat_until_a_signal_whatever_fails_on_the_way(
    handbook: Settings, questions: Path, shut: Callable[[bool], None]
):
    repeating = Repeating(handbook, questions)
    good = r"INFO signalbox.eval evaluation quality: 2 questions; nDCG@10 1.000, .* hit@1 1.000; next at 20"
    try:
        repeating.wait_for(good, 2)
        questions.unlink()
        repeating.wait_for(r"WARNING signalbox.eval evaluation quality: failed: \S+: the file does not exist; next at")
        questions.write_text(RIGHT, encoding="utf-8")
        repeating.wait_for(good)
        shut(True)
        repeating.wait_for("WARNING signalbox.eval evaluation quality: failed: the database is unavailable: ", 2)
        shut(False)
        repeating.wait_for(good)
    finally:
        log = repeating.end(signal.SIGTERM)

    assert log.endswith("evaluation quality is stopped\n")
    assert "Traceback" not in log
    lines = [line for line in log.splitlines() if "signalbox.eval" in line]
    found = figures(handbook)
    assert found["_failures_total", "quality"] == sum("failed: " in line for line in lines)
    assert found["_interval_seconds", "quality"] == 1
    assert found["", "quality", "hit@1"] == 1.0
    assert json.loads(repeating.out.read_text())["metrics"]["hit@1"] == 1.0


@pytest.mark.slow
def test_ctrl_c_ends_a_run_under_way(handbook: Settings, questions: Path):
    more = "".join(f"when is the lamp number {number} lit?,lamp\n" for number in range(3000))
    questions.write_text(RIGHT + more, encoding="utf-8")
    repeating = Repeating(handbook, questions)
    try:
        repeating.wait_for("evaluation quality runs every 1 s")
        time.sleep(3)
    finally:
        log = repeating.end(signal.SIGINT)

    assert log.splitlines()[-1].endswith("evaluation quality is stopped")
    assert "Traceback" not in log
