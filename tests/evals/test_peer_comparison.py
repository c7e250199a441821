"""Peers run in real processes over a real database; the adapters here need no third-party package."""

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from agent.settings import Settings
from evals import peer_report
from evals.bench import bench
from evals.cli import app
from evals.datasets import load
from evals.peer_comparison import OWN, OWN_EMBEDDING, OWN_SQL, PEERS, PeerOptions
from evals.peer_process import PeerError, PeerMissing, PeerProcess, PeerQuestionError, encoded
from retrievers.core.errors import BadRequest

PYTHON = Path(sys.executable)
GIVEN = {
    "database": {"dbname": "none"},
    "dimension": 2,
    "depth": 7,
    "language": "simple",
    "connections": 3,
    "options": {},
}


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    """Three passages of two documents."""
    path = tmp_path / "passages.jsonl"
    vectors = {"east": (1.0, 0.0), "north": (0.0, 1.0), "east ": (0.8, 0.6)}
    path.write_text(
        "".join(
            json.dumps({"document": name.strip(), "text": name, "key": "", "vector": encoded(np.array(one))}) + "\n"
            for name, one in vectors.items()
        )
    )
    return path


async def test_an_adapter_stores_and_finds_through_the_pipe(adapter: Callable[..., Path], passages: Path):
    async with PeerProcess(PYTHON, adapter()) as process:
        assert list(process.packages) == ["pytest"]
        await process.connect(**GIVEN)
        assert await process.ingest(passages) >= 0
        found, took_ms = await process.search("where?", np.array([0.1, 0.9]), 3)
        # By hand: north 0.9, the second passage of east 0.8 * 0.1 + 0.6 * 0.9 = 0.62, east 0.1.
        assert found == ["north", "east"]
        assert took_ms > 0
        seconds, failed = await process.throughput([("a", np.array([1.0, 0.0]))] * 5, 2, 1)
        assert (seconds > 0, failed) == (True, 0)
        assert await process.close() > 1


async def test_a_failed_question_costs_only_itself(adapter: Callable[..., Path], passages: Path):
    body = 'return ["east"] if text != "bad" else 1 / 0'
    async with PeerProcess(PYTHON, adapter(search=body)) as process:
        await process.connect(**GIVEN)
        with pytest.raises(PeerQuestionError, match="ZeroDivisionError: division by zero"):
            await process.search("bad", None, 1)
        assert (await process.search("good", None, 1))[0] == ["east"]
        assert (await process.throughput([("bad", None), ("good", None), ("bad", None)], 2, 1))[1] == 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('sys.exit("out of memory")', r"ended with code 1"),
        ("os._exit(3)", "ended with code 3"),
        ("time.sleep(60)", "no answer after 0.5 s"),
        ('return {"a": {1, 2}}', "TypeError: Object of type set is not JSON"),
        ('return "x"', 'its reply has no "found"'),
    ],
)
async def test_a_peer_that_dies_hangs_or_answers_wrongly_is_an_error(
    adapter: Callable[..., Path], body: str, reason: str
):
    async with PeerProcess(PYTHON, adapter(search=body)) as process:
        await process.connect(**GIVEN)
        with pytest.raises(PeerError, match=reason):
            await process.search("where?", None, 1, timeout_s=0.5 if "sleep" in body else 30)


async def test_an_interpreter_that_writes_rubbish_or_does_not_exist_is_an_error(
    adapter: Callable[..., Path], tmp_path: Path
):
    rubbish = tmp_path / "python"
    rubbish.write_text("#!/bin/sh\necho welcome\n")
    rubbish.chmod(0o755)
    with pytest.raises(PeerError, match="wrote b'welcome"):
        async with PeerProcess(rubbish, adapter()):
            pass
    with pytest.raises(PeerError, match="cannot be started: No such file"):
        async with PeerProcess(tmp_path / "none", adapter()):
            pass


async def test_missing_packages_are_named(tmp_path: Path):
    path = tmp_path / "adapter.py"
    path.write_text("import no_such_library")
    with pytest.raises(PeerMissing, match="No module named 'no_such_library'"):
        async with PeerProcess(PYTHON, path):
            pass


@pytest.mark.slow
async def test_every_contender_is_measured_and_a_dying_peer_costs_only_itself(
    beir: Path, settings: Settings, adapter: Callable[..., Path], tmp_path: Path
):
    missing = tmp_path / "missing.py"
    missing.write_text("import no_such_library")
    adapters = {
        "nearest": adapter(),
        "dying": adapter("dying", search='os._exit(3) if "glacier" in text else None; return []'),
        "refusing": adapter("refusing", ingest='raise ValueError("too many passages")'),
        "missing": missing,
    }
    lines: list[str] = []
    options = PeerOptions([PYTHON], adapters)

    found = await bench(load(beir), settings, lines.append, limit=5, peers=options)

    beside = found["beside"]
    assert list(beside["contenders"]) == [OWN, OWN_EMBEDDING, OWN_SQL, "nearest"]
    assert beside["left_out"] == {
        "missing": "not installed (No module named 'no_such_library')",
        "refusing": "ValueError: too many passages",
        "dying": "it ended with code 3: a library that prints",
    }
    assert "missing is left out: not installed (No module named 'no_such_library')" in lines
    for one in beside["contenders"].values():
        # Every question quotes the first words of its only right document.
        assert one["metrics"] == {"nDCG@10": 1.0, "R@10": 1.0}
        assert set(one["latency_ms"]) == {"p50", "p95", "p99", "mean"}
        assert list(one["queries_per_s"]) == ["1", "4", "16"]
        assert one["failed_questions"] == 0
        assert min(one["passages_per_s"], one["peak_rss_mb"]) > 0
    assert beside["contenders"][OWN_SQL]["growth_mb"] > 0
    assert (beside["passages"], beside["text_search_configuration"]) == (6, "english")
    with psycopg.connect(str(settings.database_url)) as connection:
        left = connection.execute("SELECT count(*) FROM pg_database WHERE datname LIKE 'signalbox_bench_%'").fetchone()
    assert left == (0,)

    files = peer_report.write_report(tmp_path / "out", found)
    assert [one.name for one in files] == [
        "tiny-latency.svg", "tiny-quality.svg", "tiny-throughput.svg", "tiny.json", "tiny.md",
    ]  # fmt: skip
    written = json.loads((tmp_path / "out" / "tiny.json").read_text())
    assert found["settings"].keys() - written["settings"].keys() == {"home"}
    assert written == {**found, "settings": written["settings"]}
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "| nearest | 1.000 | 1.000 |" in page
    assert "- dying: it ended with code 3" in page
    assert "6 documents, 6 passages, 5 questions" in page


CONTENDER = {
    "metrics": {"nDCG@10": 0.5, "R@10": 0.75}, "latency_ms": {"p50": 2.0, "p95": 3.0, "p99": 4.0, "mean": 2.5},
    "failed_questions": 1, "packages": {}, "ingest_s": 2.0, "passages_per_s": 50.0, "growth_mb": 1.25,
    "queries_per_s": {"1": 400.0, "4": 500.0, "16": 600.0}, "peak_rss_mb": 80.4,
}  # fmt: skip


def test_the_longest_bar_is_the_largest_value_and_a_contender_without_times_has_none():
    silent = {**CONTENDER, "metrics": {"nDCG@10": 0.25, "R@10": 0.0}, "latency_ms": {}}
    beside = {"contenders": {OWN: CONTENDER, "<silent>": silent}}

    assert peer_report.contender_rows(beside) == [
        (OWN, "0.500", "0.750", "2.0", "3.0", "4.0", "400", "500", "600", "50", "1.2", "80", "1"),
        ("<silent>", "0.250", "0.000", "-", "-", "-", "400", "500", "600", "50", "1.2", "80", "1"),
    ]
    drawn = {kind: ElementTree.fromstring(plot) for kind, plot in peer_report.plots(beside).items()}
    rectangles = {
        kind: [float(one.get("width", "")) for one in plot.iter("{http://www.w3.org/2000/svg}rect")]
        for kind, plot in drawn.items()
    }
    # 640 wide, less 170 for names and 90 for values: 380 for the largest.
    assert rectangles == {"quality": [380.0, 190.0], "latency": [380.0], "throughput": [380.0, 380.0]}


@pytest.mark.parametrize("path", PEERS.values(), ids=lambda path: path.stem)
async def test_each_adapter_names_its_missing_package_or_loads(path: Path):
    process, missing = PeerProcess(PYTHON, path), ""
    try:
        async with process:
            pass
    except PeerMissing as error:
        missing = str(error)
    assert process.packages or "No module named" in missing


def test_out_without_peers_is_refused(beir: Path, tmp_path: Path):
    done = CliRunner().invoke(app, ["bench", str(beir), "--out", str(tmp_path / "out")], standalone_mode=False)
    assert isinstance(done.exception, BadRequest)
    assert "give --peers PYTHON, too" in str(done.exception)
    assert not (tmp_path / "out").exists()
