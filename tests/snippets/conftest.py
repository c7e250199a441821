"""Runs the blocks of a page: commands, requests, Python, settings, records and printed output."""

import asyncio
import glob
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from agent import open_service
from agent.serve.cli import run as run_command
from agent.settings import load_settings
from agent.testing import ScriptedServer
from evals import load
from retrievers.postgres.server.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "evals" / "data" / "sample"
_HEX = r"[0-9a-f]{32}"
_BEGUN = r"signalbox listens on (http://\S+?);|worker \S+ runs up to|evaluation \S+: \d+ questions"
"""What a process says when it works."""


class Block(NamedTuple):
    """A block of a page: fenced, or indented by four spaces."""

    page: Path
    line: int
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in order. An indented one is SQL if it begins with SELECT, otherwise a shell's."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$|^\n((?: {4}[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL):
        language, fenced, indented = match.groups()
        body = fenced if indented is None else re.sub(r"^ {4}", "", indented, flags=re.MULTILINE)
        if indented is not None:
            language = "sql" if body.startswith("SELECT") else "bash"
        found.append(Block(page, text.count("\n", 0, match.start()) + 1, language, body))
    return found


def shell_lines(text: str) -> Iterator[str]:
    """The commands of a block; a command goes on over lines that end with a backslash or inside quotes."""
    whole = ""
    for line in text.splitlines():
        whole = f"{whole}\n{line}" if whole else line
        try:
            shlex.split(whole, comments=True)
        except ValueError:
            continue
        if not whole.endswith("\\"):
            if whole.strip():
                yield whole.replace("\\\n", " ")
            whole = ""
    assert not whole, f"a command without an end: {whole}"


def reply(body: dict[str, Any]) -> Any:
    """What the scripted model says: two searches where it may search, a grade where it grades, else cited sentences."""
    tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    text = json.dumps(body["messages"])
    if "search_knowledge" in tools and '"tool"' not in text:
        queries = ("who is on call for payments?", "who hands out laptops?")
        calls = [
            {"id": f"call_{number}", "type": "function",
             "function": {"name": "search_knowledge", "arguments": json.dumps({"query": query})}}
            for number, query in enumerate(queries)
        ]  # fmt: skip
        return {"content": None, "tool_calls": calls}
    if "You grade the answers" in text:
        return json.dumps({"grade": "right", "why": "It says the same."})
    return "Ana Ruiz is on call for payments [1]."


class Reader:
    """Runs the blocks of one page.

    Attributes:
        left_out, smaller: beginnings of commands that are not run, with the reasons; sizes to write otherwise.
        printed: what the commands of the page printed, by line.
        answer: the JSON of the last request.
        ids: of traces, keys and jobs, by the name that pages give them.
        used: the names of `left_out` that the page has.
    """

    def __init__(
        self, page: Path, folder: Path, url: str, left_out: Mapping[str, str], smaller: Mapping[str, str], fixtures: Any
    ) -> None:
        self.page, self.folder, self.url, self.left_out, self.smaller = page, folder, url, left_out, smaller
        self.monkeypatch, self.capsys = fixtures
        self.stack = ExitStack()
        self.printed: list[str] = []
        self.answer: Any = None
        self.base = ""
        self.ids: dict[str, str] = {}
        self.used: set[str] = set()

    def run(self) -> None:
        """Run all blocks of the page, and end what they started."""
        for block in blocks(self.page):
            getattr(self, block.language)(block.text)

    # Shell

    def bash(self, text: str) -> None:
        for line in shell_lines(text):
            left_out = [name for name in self.left_out if f"{self.page.name}: {line}".startswith(name)]
            self.used.update(left_out)
            if not left_out:
                self._command(line)

    def _command(self, line: str) -> None:
        for written, taken in self.smaller.items():
            if re.search(rf"{re.escape(written)}\b", line):
                line = re.sub(rf"{re.escape(written)}\b", taken, line)
                break
        feeds, pipe, fed = line.partition(" | signalbox ")
        stdin = self._shell(feeds) if pipe else ""
        words = shlex.split(f"signalbox {fed}" if pipe else line, comments=True)
        variables = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, variables[name] = words.pop(0).partition("=")
        if not words or words[0] not in ("signalbox", "curl", "export", ".venv/bin/signalbox"):
            self._shell(line)
            return
        words = [os.path.expandvars(word) for word in words]
        with self.monkeypatch.context() as changed:
            for name, value in variables.items():
                changed.setenv(name, os.path.expandvars(value))
            if "--judge" in words:
                changed.setenv("SIGNALBOX_LLM", "openai/scripted")
            if words[0] == "export":
                self._export(words[1:])
            elif words[0] == "curl":
                self._curl(words[1:])
            elif words[1] in ("serve", "worker") or "--every" in words:
                self._start(words[1:])
            else:
                self._signalbox(line, self._filled(words[1:]), stdin, changed)

    def _shell(self, line: str) -> str:
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{self.page.name}: {line}\n{done.stderr}"
        return done.stdout

    def _export(self, words: list[str]) -> None:
        for word in words:
            name, _, value = word.partition("=")
            if name == "SIGNALBOX_READ_URLS":  # two replicas, which the machine does not have
                value = ",".join([self.url] * len(value.split(",")))
            self.monkeypatch.setenv(name, value)
        load_settings()

    def _filled(self, words: list[str]) -> list[str]:
        """The words with files and ids in the place of names in capitals."""
        known = {
            "DATASET": "tiny", "DATASET...": "tiny", "FOLDER": "tiny", "FILE": "replies.jsonl",
            "SAMPLE": str(SAMPLE / "corpus.jsonl"), **self.ids,
        }  # fmt: skip
        if words[:2] == ["jobs", "retry"]:
            known["ID"] = self.ids["FAILED"]
        if "--accept" in words:  # as a person does who has looked at the questions
            review = Path("review.jsonl")
            review.write_text(review.read_text(encoding="utf-8").replace('"accept": null', '"accept": true'))
        if "later.json" in words:  # a run of another day
            shutil.copy("run.json", "later.json")
        if words[:2] == ["eval", "load"]:
            words = [word for word in words if word not in ("--url", "http://127.0.0.1:8000")]
            words += ["--url", self._served()]
        words = [known.get(word, word) for word in words]
        if "FOLDER..." in words:
            at = words.index("FOLDER...")
            words[at : at + 1] = ["tiny", "other"]
        return [name for word in words for name in (sorted(glob.glob(word)) if "/*" in word else [word])]

    def _signalbox(self, line: str, words: list[str], stdin: str, changed: pytest.MonkeyPatch) -> None:
        changed.setattr(sys, "stdin", TextIOWrapper(BytesIO(stdin.encode()), encoding="utf-8"))
        self.capsys.readouterr()
        code = run_command(words)
        out, err = self.capsys.readouterr()
        assert code == 0, f"{self.page.name}: {line}: exit code {code}\n{out[-2000:]}\n{err[-2000:]}"
        self.printed += [*err.splitlines(), *out.splitlines()]
        for name, pattern in (("TRACE_ID", rf"signalbox explain ({_HEX})"), ("ID", r"signalbox: key (\S+) of")):
            if match := re.search(pattern, err):
                self.ids[name] = match[1]

    def _start(self, words: list[str]) -> None:
        """Start a process that goes on until the end of the page, and wait until it says that it works."""
        command = [sys.executable, "-c", "from agent.serve.cli import main; main()", *words]
        if words == ["serve"]:
            command += ["--port", "0"]
        log = self.folder / f"{words[0]}-{uuid.uuid4().hex[:6]}.log"
        with log.open("w") as file:
            process = subprocess.Popen(command, cwd=self.folder, stdout=file, stderr=file)
        self.stack.callback(self._end, process, log)
        while not (said := re.search(_BEGUN, log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.base = said[1] or self.base

    def _end(self, process: subprocess.Popen[bytes], log: Path) -> None:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()

    def _served(self) -> str:
        if not self.base:
            self._start(["serve"])
        return self.base

    def _curl(self, words: list[str]) -> None:
        headers, body, address = {}, None, ""
        while words:
            match words:
                case ["-H", header, *words]:
                    name, _, value = header.partition(": ")
                    headers[name] = value
                case ["-d", body, *words]:
                    pass
                case [address, *words]:
                    assert not address.startswith("-"), f"an option of curl that the test does not know: {address}"
        url = self._served() + address.removeprefix("http://").removeprefix("localhost:8000")
        answer = httpx2.request("GET" if body is None else "POST", url, headers=headers, content=body, timeout=60)
        assert answer.status_code == 200, answer.text
        self.answer = answer.json()

    # Other languages

    def text(self, text: str) -> None:
        """Run the commands after `$`, and compare the other lines with what the page's commands printed."""
        printed = {" ".join(line.split()) for line in self.printed}
        for line in text.splitlines():
            if line.startswith("$ "):
                self.bash(line[2:])
                printed = {" ".join(line.split()) for line in self.printed}
                continue
            pattern = ".*".join(re.escape(" ".join(part.split())) for part in line.split("[...]"))
            # Ids are new each time, and the last digits of a score depend on the processor.
            pattern = re.sub(_HEX, _HEX, re.sub(r"\d\\\.\d{3}", r"\\d+\\.\\d{3}", pattern))
            assert any(re.fullmatch(pattern, one) for one in printed), (
                f"{self.page.name}: nothing printed {line!r}, only:\n" + "\n".join(self.printed)
            )

    def python(self, text: str) -> None:
        if "agent.integrations.langchain" in text:
            pytest.importorskip("langchain_core")
        text = text.replace("http://127.0.0.1:8000", self._served()) if "http://127.0.0.1:8000" in text else text
        names: dict[str, Any] = {}
        code = compile(text, str(self.page), "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT)

        async def all_of_it() -> None:
            if inspect.iscoroutine(left := eval(code, names)):
                await left
            if inspect.iscoroutinefunction(main := names.get("main")):
                await main()
            if advisor := names.get("Greeting"):
                async with open_service(advisors=[advisor()]) as service:
                    await service.retrieve("who is on call?", collection="handbook")

        asyncio.run(all_of_it())
        if (client := names.get("client")) is not None:
            client.close()

    def toml(self, text: str) -> None:
        for name in set(re.findall(r'api_key_env = "(\w+)"', text)):
            self.monkeypatch.setenv(name, "key")
        (self.folder / "settings").mkdir(exist_ok=True)
        (self.folder / "settings" / "signalbox.toml").write_text(text, encoding="utf-8")
        read = load_settings(folder=self.folder / "settings")
        assert read != load_settings()

    def sql(self, text: str) -> None:
        with psycopg.connect(self.url) as connection:
            assert connection.execute(text.encode()).fetchall()

    def json(self, text: str) -> None:
        value = json.loads(text)
        match value:
            case {"mcpServers": servers}:
                self._mcp(servers)
            case {"fields": _}:
                (self.folder / "schema.json").write_text(text, encoding="utf-8")
                self._command("signalbox ingest wiki.jsonl --collection declared --schema schema.json")
            case {"id": _, "text": _}:
                (self.folder / "record.jsonl").write_text(json.dumps(value) + "\n", encoding="utf-8")
                self._command("signalbox ingest record.jsonl --collection records")
            case {"filters": _}:
                self._command(f"signalbox retrieve costs --collection sample --filter {shlex.quote(text)}")
            case {"type": _, "status": status}:
                request = {"query": "x", "collection": "handbook", "filter": {"type": "eq", "key": "color", "value": 1}}
                answer = httpx2.post(f"{self._served()}/v1/retrieve", json=request, timeout=60)
                assert answer.status_code == status
                assert _shape(value, answer.json()) == []
            case {"choices": _}:
                assert _shape(value, self.answer) == []
            case _:
                pytest.fail(f"{self.page.name}: no test knows what this JSON is for: {text}")

    def _mcp(self, servers: dict[str, Any]) -> None:
        (server,) = servers.values()
        assert server["command"] == "signalbox"
        client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
        command = [sys.executable, "-c", "from agent.serve.cli import main; main()", *server["args"]]
        done = subprocess.run(
            command, cwd=self.folder, input=json.dumps(hello) + "\n", capture_output=True, text=True, check=False
        )
        assert "serverInfo" in json.loads(done.stdout)["result"], done.stderr

    def mermaid(self, text: str) -> None:
        """A drawing, which runs nothing; the site's build draws it."""


def _shape(shown: Any, got: Any, where: str = "") -> list[str]:
    """Where an answer has no such key or another type than the page shows."""
    if isinstance(shown, dict) and isinstance(got, dict):
        missing = [f"{where}.{key}" for key in shown if key not in got]
        return missing + [one for key in shown if key in got for one in _shape(shown[key], got[key], f"{where}.{key}")]
    if isinstance(shown, list) and isinstance(got, list):
        short = [] if len(got) >= len(shown) else [f"{where}: {len(got)} entries"]
        return short + [one for a, b in zip(shown, got, strict=False) for one in _shape(a, b, f"{where}[]")]
    return [] if type(shown) is type(got) else [f"{where}: {got!r}"]


# Fixtures


@pytest.fixture(scope="module")
def prepared(module_url: str) -> str:
    """The name of a database that holds the sample and the handbook of the tour; pages get copies of it."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("SIGNALBOX_DATABASE_URL", module_url)
        sample = ["ingest", str(SAMPLE / "corpus.jsonl"), "--collection", "sample"]
        assert run_command([*sample, "--schema", str(SAMPLE / "schema.json")]) == 0
    return str(conninfo_to_dict(module_url)["dbname"])


@pytest.fixture
def page_url(copy_of: Callable[[str], AbstractContextManager[str]], prepared: str) -> Iterator[str]:
    """Connection string of the owner of a copy of the prepared database."""
    with copy_of(prepared) as url:
        yield url


@pytest.fixture
def reader_of(
    page_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    server: EmbeddedServer,
) -> Iterator[Callable[..., Reader]]:  # fmt: skip
    """Makes what runs a page, in an empty folder, with a scripted model."""
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_") and "TIMEOUT" not in name]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{server._binaries()}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_URL", page_url)
    monkeypatch.setenv("SIGNALBOX_PROCESSES", "1")  # each loads the models
    monkeypatch.setattr(load, "_TIMEOUT_S", 120.0)  # twice what a request may take in tests
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", page_url)
    with ScriptedServer(reply) as model:
        monkeypatch.setenv("SIGNALBOX_LLM_BASE_URL", model.base_url)
        monkeypatch.setenv("SIGNALBOX_EMBEDDERS", f"openai/bge-m3={model.base_url}")

        def reader(page: Path, left_out: Mapping[str, str], smaller: Mapping[str, str]) -> Reader:
            return Reader(page, tmp_path, page_url, left_out, smaller, (monkeypatch, capsys))

        yield reader
