import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evals.cli import app
from evals.datasets import load
from evals.reply_recording import write_recording
from retrievers.core.errors import BadRequest


@pytest.fixture
def address(owner_url: str) -> list[str]:
    return ["--set", f"DATABASE_URL={owner_url}"]


def test_run_prints_one_json_document_and_writes_the_same(beir: Path, address: list[str], tmp_path: Path):
    out = tmp_path / "RUN.json"

    done = CliRunner().invoke(
        app, ["run", str(beir), *address, "--set", "FUSION=rrf", "--json", "--out", str(out)], standalone_mode=False
    )

    assert done.exception is None
    printed = json.loads(done.stdout)
    assert printed == json.loads(out.read_text())
    assert printed["settings"]["fusion"] == "rrf"
    assert printed["metrics"]["hit@1"] == 1.0
    assert "6 documents, 6 passages" in done.stderr


def test_run_prints_a_table_with_the_averages(beir: Path, address: list[str]):
    done = CliRunner().invoke(app, ["run", str(beir), *address, "--limit", "3"], standalone_mode=False)

    assert done.exception is None
    assert "tiny (test): 6 documents, 6 passages" in done.stdout
    assert "nDCG@10" in done.stdout
    assert "filter_exact" not in done.stdout
    assert "latency: p50" in done.stdout


def test_recorded_replies_are_served_as_the_model(routed: Callable[..., Path], address: list[str], tmp_path: Path):
    asked = {"text": "Who is mentioned near the reef?", "now": "2026-11-20", "sources": ["vector"]}
    folder = routed({"id": "q", "relevant": {"b": 1}, **asked}, {"id": "other", "relevant": {"c": 1}, **asked})
    wanted = {"type": "eq", "key": "team", "value": "bakers"}
    replies, out = tmp_path / "replies.jsonl", tmp_path / "RUN.json"
    replies.write_text(json.dumps({"id": "q", "searches": ["oven"], "filter": wanted, "sources": ["vector"]}) + "\n")

    done = CliRunner().invoke(
        app, ["run", str(folder), *address, "--limit", "1", "--replies", str(replies), "--out", str(out)],
        standalone_mode=False,
    )  # fmt: skip

    assert done.exception is None
    assert "the model read 1 of 1 questions" in done.stdout
    assert json.loads(out.read_text())["questions"][0]["intent_filter"] == wanted


def test_replies_to_questions_without_a_date_are_told(routed: Callable[..., Path], tmp_path: Path):
    text = "Who is mentioned near the reef?"
    folder = routed(
        {"id": "q", "text": text, "now": "2026-11-20", "relevant": {"b": 1}},
        {"id": "undated", "text": text, "relevant": {"b": 1}},
        {"id": "silent", "text": text, "relevant": {"b": 1}},
    )
    replies, recording = tmp_path / "replies.jsonl", tmp_path / "recording.jsonl"
    told: list[str] = []
    replies.write_text('{"id": "q", "filter": null}\n{"id": "undated", "filter": null}\n')

    assert write_recording(load(folder, split="all"), replies, recording, told.append) == 1

    assert len(recording.read_text().splitlines()) == 1
    assert told == [
        '1 of 2 replies are not used: "undated"; a reply belongs to a date: add it to the question as `now`'
    ]
    replies.write_text('{"id": "undated", "filter": null}\n')
    with pytest.raises(BadRequest, match='no question has a `now`: "undated"'):
        write_recording(load(folder, split="all"), replies, recording, told.append)


def test_bench_prints_figures_with_units(beir: Path, address: list[str]):
    done = CliRunner().invoke(app, ["bench", str(beir), *address, "--questions", "2"], standalone_mode=False)

    assert done.exception is None
    assert "tiny: 2 questions, 6 documents, 6 passages" in done.stdout
    assert "questions/s" in done.stdout
    assert " ms" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "FUSION"], "--set needs KEY=VALUE"),
        (["--set", "FUSHION=rrf"], 'there is no setting "FUSHION"'),
        (["--set", "FUSION=best"], "setting FUSION"),
        (["--out", "/nowhere/RUN.json"], "the file cannot be written"),
        (["--split", "train"], 'no split "train"'),
        (["--replies", "/nowhere/replies.jsonl"], "cannot be read"),
        (["--replies", __file__], "the file is not JSON lines"),
    ],
)
def test_bad_usage_raises_one_line_for_the_main_command_line(beir: Path, arguments: list[str], message: str):
    done = CliRunner().invoke(app, ["run", str(beir), *arguments], standalone_mode=False)

    assert isinstance(done.exception, BadRequest)
    assert message in str(done.exception)
    assert done.stdout == ""
