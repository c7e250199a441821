"""`signalbox ask`: text as it comes, then the citations; exit codes; nothing of a document drives the terminal."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from agent.serve.cli import run
from agent.testing import Fault, ScriptedServer
from retrievers.postgres.server.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
# Long enough for two passages, so that each is known by its heading.
# For a busy machine: without a model's answer in time, the passages are printed.
ENOUGH_TIME = {"TIMEOUT_S": "120", "ANSWER_TIMEOUT_S": "300", "SOURCE_TIMEOUT_S": "60"}
TEXT = "# Care\n\nOil the main bearing every winter.\n\n# Rotor\n\n" + "The rotor turns in the wind. " * 80
SAID = "Oil the main bearing every winter [1]. It costs 9 euros."


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Answer]


@pytest.fixture(scope="module")
def url(server: EmbeddedServer, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database with one document in the collection `docs`."""
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE kept_by_ask TEMPLATE {template}".encode())
    address = server.conninfo(database="kept_by_ask")
    path = tmp_path_factory.mktemp("ask") / "oil.jsonl"
    record = {"id": "a", "title": "Oil\x1b[31m", "text": TEXT, "url": "https://docs.example/oil"}
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIGNALBOX_DATABASE_URL", address)
        assert run(["ingest", str(path), "--collection", "docs"]) == 0
    yield address
    with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
        connection.execute("DROP DATABASE kept_by_ask WITH (FORCE)")


@pytest.fixture
def ask(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Runs `signalbox ask`, with the model of a scripted server if there is one."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", url)
    monkeypatch.setenv("SIGNALBOX_INTENT", "rules")
    for name in ENOUGH_TIME:
        monkeypatch.setenv(f"SIGNALBOX_{name}", ENOUGH_TIME[name])

    def call(*arguments: str, model: ScriptedServer | None = None) -> Answer:
        if model is not None:
            monkeypatch.setenv("SIGNALBOX_LLM", "openai/small")
            monkeypatch.setenv("SIGNALBOX_LLM_BASE_URL", model.base_url)
        capsys.readouterr()
        code = run(["ask", *arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert "\x1b" not in captured.out + captured.err
        return Answer(code, captured.out, captured.err)

    return call


def test_the_answer_is_followed_by_its_citations_and_what_is_not_borne_out(ask: Ask):
    with ScriptedServer([SAID]) as model:
        answer = ask("When is the bearing oiled?", "--collection", "docs", model=model)
    assert answer.code == 0
    assert answer.out.splitlines() == [
        SAID,
        "",
        "[1] Oil [31m, Care (https://docs.example/oil)",
        "",
        "Not supported by the cited passages:",
        "[?] It costs 9 euros.  (cites no passage)",
    ]
    assert "signalbox: small, " in answer.err
    assert "50% of its claims supported" in answer.err
    assert "signalbox explain " in answer.err


def test_as_json_there_is_one_document_and_nothing_else(ask: Ask):
    with ScriptedServer([SAID]) as model:
        answer = ask("When is the bearing oiled?", "--json", model=model)
    told = json.loads(answer.out)
    assert answer.code == 0
    assert (told["answer"], told["answered"], told["faithfulness"]) == (SAID, True, 0.5)
    assert [(one["text"], one["citations"], one["supported"]) for one in told["sentences"]] == [
        ("Oil the main bearing every winter [1].", [1], True),
        ("It costs 9 euros.", [], False),
    ]
    assert told["citations"][0]["heading"] == "Care"
    assert {"messages", "prompt", "hits", "trace_id", "model", "usage"} <= set(told)


def test_it_takes_the_options_of_the_prompt(ask: Ask):
    alone = json.loads(ask("main bearing", "--top-k", "1", "--json").out)
    wide = json.loads(ask("main bearing", "--top-k", "1", "--context", "window", "--reranker", "hybrid", "--json").out)
    assert "rerank" not in alone["hits"][0]["scores"]
    assert "rerank" in wide["hits"][0]["scores"]
    assert alone["citations"][0]["end"] < wide["citations"][0]["end"]
    refused = ask("main bearing", "--reranker", "http://elsewhere.example")
    assert (refused.code, refused.out) == (2, "")


def test_without_a_model_the_passages_are_printed(ask: Ask):
    answer = ask("When is the bearing oiled?")
    assert answer.code == 0
    assert "Oil the main bearing every winter." in answer.out
    assert "no model is set: these are the passages" in answer.err


def test_small_talk_without_a_model_promises_no_passages(ask: Ask):
    answer = ask("hello!")
    assert answer.code == 0
    assert "no model is set: and no passages were found" in answer.err


def test_the_callers_filter_is_not_told_as_read_from_the_question(ask: Ask):
    answer = ask("the bearing of 1999", "--filter", '{"type": "eq", "key": "id", "value": "a"}', "--reranker", "hybrid")
    assert answer.code == 0
    assert "read as:" not in answer.err


def test_a_model_that_is_down_leaves_the_passages(ask: Ask):
    with ScriptedServer(faults=[Fault(status=401)] * 9) as model:
        answer = ask("When is the bearing oiled?", model=model)
    assert answer.code == 0
    assert "Oil the main bearing every winter." in answer.out
    assert "the model gave no answer: these are the passages" in answer.err


def test_an_answer_that_breaks_off_says_so(ask: Ask):
    with ScriptedServer([SAID], faults=[Fault(truncated=True)]) as model:
        answer = ask("When is the bearing oiled?", model=model)
    assert answer.code == 0
    assert answer.out.startswith("Oil the main")
    assert "the answer broke off here" in answer.err


def test_what_a_model_writes_cannot_drive_the_terminal(ask: Ask):
    with ScriptedServer(["\x1b]0;owned\x07Oil \x1b[2Jit [1]. 加油\u202e\r\n"]) as model:
        answer = ask("When is the bearing oiled?", model=model)
    assert answer.out.splitlines()[0] == "]0;ownedOil [2Jit [1]. 加油"


@pytest.mark.parametrize("form", ["list", "lines"])
def test_the_conversation_before_comes_from_a_file(ask: Ask, tmp_path: Path, form: str):
    turns = [{"role": "user", "content": "What is a bearing?"}, {"role": "assistant", "content": "A part [1]."}]
    path = tmp_path / "history.json"
    path.write_text(json.dumps(turns) if form == "list" else "\n".join(map(json.dumps, turns)) + "\n", encoding="utf-8")
    with ScriptedServer([SAID]) as model:
        answer = ask("When is the bearing oiled?", "--history", str(path), model=model)
    assert answer.code == 0
    sent = model.requests[0].body["messages"]
    assert [turn["content"] for turn in sent[1:3]] == ["What is a bearing?", "A part ."]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"\xff\xfe\x00", "it is not UTF-8"),
        (b"hello", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"role": "user"}', "turn 0.content: field required"),
        (b'[{"role": "pirate", "content": "x"}]', "turn 0.role: input should be"),
        (b'["x"]', "turn 0: input should be"),
        (b'{"role": "user", "content": "x"}\n\n{', "line 3, column 2: not JSON"),
    ],
)
def test_a_history_that_is_none_is_one_line_and_bad_input(ask: Ask, tmp_path: Path, content: bytes | None, reason: str):
    path = tmp_path / "history.json"
    if content is not None:
        path.write_bytes(content)
    answer = ask("When?", "--history", str(path))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith(f"signalbox: --history {path}")
    assert reason in answer.err


@pytest.mark.parametrize(
    "arguments", [["--judge", "jury"], ["--template", "nope"], ["--filter", "{"], ["--top-k", "0"]]
)
def test_bad_input_is_refused_before_anything_is_printed(ask: Ask, arguments: list[str]):
    answer = ask("When?", *arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_text_is_printed_as_it_comes_and_an_interrupt_ends_it_cleanly(url: str, tmp_path: Path):
    with ScriptedServer(["word " * 200], faults=[Fault(pause_s=0.2)]) as model:
        settings = {"DATABASE_URL": url, "INTENT": "rules", "LLM": "openai/small", "LLM_BASE_URL": model.base_url}
        settings |= ENOUGH_TIME
        process = subprocess.Popen(
            [sys.executable, "-c", "from agent.serve.cli import main; main()", "ask", "When is the bearing oiled?"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **{f"SIGNALBOX_{key}": one for key, one in settings.items()}},
            # What a shell runs in the background ignores interrupts, and so would all that it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        killer = threading.Timer(240, process.kill)
        killer.start()
        assert process.stdout is not None
        first = process.stdout.read(4)
        process.send_signal(signal.SIGINT)
        rest, told = process.communicate()
        killer.cancel()
    assert first == b"word"
    assert rest.count(b"word") < 199
    assert process.returncode == 130
    assert b"Traceback" not in told


def test_the_model_may_search_itself_and_the_trace_tells_its_searches(ask: Ask, capsys: pytest.CaptureFixture[str]):
    arguments = json.dumps({"query": "oil the main bearing", "top_k": 1})
    call = {"id": "c", "type": "function", "function": {"name": "search_knowledge", "arguments": arguments}}
    with ScriptedServer([{"content": None, "tool_calls": [call]}, SAID]) as model:
        answer = ask("When is it oiled?", "--mode", "tool", model=model)
        assert answer.out.startswith(f"{SAID}\n\n[1] Oil")
        trace = answer.err.split("signalbox explain ")[1].split()[0]
        assert run(["explain", trace]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"Searches by the model\n.*\n.*\n +1 +oil the main bearing +found +\[1\]", shown)
    assert ask("When?", "--mode", "tools").code == 2


def test_it_answers_by_a_template_of_ones_own(ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    folder = tmp_path / "templates" / "answer"
    folder.mkdir(parents=True)
    head = '+++\ninputs = ["question", "passages", "fence"]\n+++\n'
    (folder / "brief.md").write_text(head + "In ten words: $question $passages $fence", encoding="utf-8")
    monkeypatch.setenv("SIGNALBOX_PROMPTS", str(folder.parent))
    with ScriptedServer([SAID]) as model:
        assert ask("When is it oiled?", "--template", "answer/brief", model=model).code == 0
        assert model.requests[0].body["messages"][-1]["content"].startswith("In ten words: When is it oiled?")
    refused = ask("When is it oiled?", "--template", "system")
    assert refused.code == 2
    assert 'there is no answer template "system"; there are: answer/brief, answer/v1' in refused.err
    (folder / "brief.md").write_text(head + "$question $passages", encoding="utf-8")
    refused = ask("When is it oiled?")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert f"setting PROMPTS: {folder}/brief.md declares" in refused.err
