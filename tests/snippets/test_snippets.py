"""Every block of the README and docs/ is executed.

The blocks of a page run from top to bottom, in one folder and on one database that holds what the tour stores. A
command may therefore use what an earlier one of its page wrote.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent import open_service
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field
from retrievers.ingest.readers.file_input import read_record
from retrievers.postgres.server.embedded import EmbeddedServer

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "evals" / "data" / "sample"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = {"chat", "deployment", "evaluation", "http", "operations", "tour"}
"""Pages that start a process."""

NOT_RUN = {
    "README.md: make demo": "installs from a package index; `signalbox demo` runs as a command of the tour",
    "README.md: make test": "would run this test again",
    "tour.md: make demo": "installs from a package index; the next block runs `signalbox demo`",
    "tour.md: pip install": "installs from a package index",
    "tour.md: signalbox --install-completion": "asks which shell started the program; no shell starts a test",
    "deployment.md: docker": "needs a container engine and an image registry",
    "deployment.md: kubectl": "needs a cluster",
    "deployment.md: useradd": "changes the users of the machine",
    "deployment.md: cd /opt/signalbox": "installs from a package index, in a folder of the system",
    "deployment.md: install -D": "writes to /etc",
    "deployment.md: install -m 644": "writes to /etc and starts a unit of systemd",
    "deployment.md: printf 'POSTGRES_PASSWORD": "writes a password beside the compose file of the checkout",
    "evaluation.md: signalbox eval access": "takes 40 s at the least; a test of its own runs it",
    "evaluation.md: signalbox eval bench DATASET --peers": "needs environments with the peers, from an index",
}
"""Beginnings of commands that cannot run in a test, each with the reason."""

SMALLER = {
    "evals/data/reading/*": "evals/data/reading/mails",
    "reading-more/* --groups 4 --size 6": "reading/mails evals/data/reading/hotels --groups 1 --size 2 --questions 4",
    "--seconds 600": "--seconds 1",
    "--seconds 60": "--seconds 1",
    "--connections 16": "--connections 2",
    "--processes 4": "--processes 2",
    "--port 8000": "--port 0",
    "eval ablate DATASET... --out": "eval ablate DATASET... --only fusion --limit 2 --out",
    "--only reranker --only fusion --limit 100": "--only fusion --limit 2",
    "eval bench DATASET": "eval bench DATASET --questions 2",
    "eval bench FOLDER": "eval bench FOLDER --questions 2",
}
"""Sizes of the pages, and those that the test takes instead; a free port instead of a fixed one."""

HANDBOOK = {
    "oncall.md": "---\ntitle: On call\nteam: payments\nupdated: 2026-10-01\n---\nAna Ruiz is on call for payments.\n",
    "laptops.md": "---\ntitle: Laptops\nteam: it\nupdated: 2026-05-12\n---\nAsk Bo Lind for a laptop.\n",
}


@pytest.fixture
def empty_server(request: pytest.FixtureRequest) -> Iterator[Callable[[], EmbeddedServer]]:
    """Starts a server without the database of the service."""
    with ExitStack() as stack:

        def start() -> EmbeddedServer:
            home = tempfile.TemporaryDirectory(prefix="signalbox-empty-", ignore_cleanup_errors=True)
            server = EmbeddedServer(Path(stack.enter_context(home)), request.getfixturevalue("server")._version)
            server.start()
            stack.callback(server.stop)
            with psycopg.connect(server.conninfo(database="postgres"), autocommit=True) as connection:
                connection.execute("DROP DATABASE signalbox WITH (FORCE)")
            return server

        yield start


def prepare(reader: Any, empty_server: Callable[[], EmbeddedServer]) -> None:
    """Write the files that a page takes as given, and store what it speaks of."""
    folder, name, setenv = reader.folder, reader.page.name, reader.monkeypatch.setenv
    write_files(folder)
    if name == "tour.md":
        shutil.rmtree(folder / "handbook")
        return
    reader.bash("signalbox ingest handbook --collection handbook\n" * (name != "sources.md"))
    if name in ("chat.md", "http.md", "python.md"):
        setenv("SIGNALBOX_LLM", "openai/scripted")
    if name in ("documents.md", "evaluation.md"):
        asyncio.run(store_events(reader))
    if name == "evaluation.md":
        reader.bash("signalbox eval reading evals/data/reading/mails --out before.json")
    if name == "troubleshooting.md":
        reader.bash("signalbox retrieve laptops --collection handbook")
    if name == "deployment.md":
        empty = empty_server()
        setenv("SERVER_URL", empty.conninfo(database="postgres"))
        setenv("RESTORED_URL", empty.conninfo(database="signalbox"))


def write_files(folder: Path) -> None:
    """Two pages of a handbook, records, folders of the sources, and a dataset of eight questions."""
    for name in ("handbook", "docs"):
        (folder / name).mkdir()
        for file, text in HANDBOOK.items():
            (folder / name / file).write_text(text, encoding="utf-8")
    (folder / "docs" / "wiki").mkdir()
    (folder / "docs" / "wiki" / "old-page.md").write_text("The old way to the canteen.", encoding="utf-8")
    record = {"id": "w1", "text": "The wiki moves.", "metadata": {"team": "infra", "size": 12, "tags": "a,b"}}
    lines = {
        "wiki.jsonl": [record],
        "records.jsonl": [{**record, "id": "r1"}],
        "tiny/corpus.jsonl": [],
        "tiny/queries.jsonl": [],
        "replies.jsonl": [{"id": "q1", "searches": ["basket"], "filter": None, "sources": ["fulltext"]}],
    }
    for number, word in enumerate("anchor basket candle dragon engine feather garden hammer".split()):
        lines["tiny/corpus.jsonl"].append(
            {"_id": f"d{number}", "title": word, "text": f"The {word} is number {number}."}
        )
        question = {"id": f"q{number}", "text": f"Which number is the {word}?", "lang": "en", "now": "2026-11-20"}
        judged = {"split": ("dev", "test")[number % 2], "relevant": {f"d{number}": 1}, "history": [], "class": "word"}
        lines["tiny/queries.jsonl"].append(
            {**question, **judged, "filter": None, "sources": ["fulltext"], "answer": None}
        )
    for name, values in lines.items():
        (folder / name).parent.mkdir(exist_ok=True)
        text = "".join(json.dumps(value) + "\n" for value in values)
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copytree(folder / "tiny", folder / "other")
    lines_of_csv = "question,document\nwho is on call for payments?,oncall.md\nwho hands out laptops?,laptops.md\n"
    (folder / "questions.csv").write_text(lines_of_csv, encoding="utf-8")
    (folder / "evals" / "data" / "reading").mkdir(parents=True)
    shutil.copytree(folder / "tiny", folder / "evals" / "data" / "sample")
    (folder / "evals" / "data" / "reading" / "mails").symlink_to(ROOT / "evals" / "data" / "reading" / "mails")


async def store_events(reader: Any) -> None:
    """Feedback, a job with a document that failed for a reason that is gone, and a job that waits for a worker."""
    number = {"id": "first", "text": "x", "metadata": {"n": 1}}
    async with open_service() as service:
        for question in ("who is on call for payments?", "who is on call?", "payments on call", "ana ruiz", "call ana"):
            result = await service.retrieve(question, collection="handbook")
            await service.feedback(result.trace_id, 9, document_ids=["oncall.md"])
        await service.submit("zoo", [number])
        failed = await service.submit("zoo", [{"id": "b", "text": "b", "metadata": {"n": "x"}}])
        await service.delete("zoo", "first")
        text = {"n": Field("n", "string", "string", declared=True)}
        await service.ingest([read_record(number, "")], "zoo", schema=text)
        waiting = await service.rebuild("handbook")
    with psycopg.connect(reader.url) as connection:  # else a command that works on jobs may finish it first
        later = "UPDATE signalbox.job SET free_at = now() + interval '1 hour' WHERE id = %s"
        assert connection.execute(later, [waiting.id]).rowcount == 1
    reader.ids |= {"FAILED": failed.id, "ID": waiting.id}


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in PAGES]
)
def test_every_block_of_a_page_runs(
    page: Path, reader_of: Callable[..., Any], empty_server: Callable[[], EmbeddedServer]
):
    reader = reader_of(page, NOT_RUN, SMALLER)

    with reader.stack:
        prepare(reader, empty_server)
        reader.run()

    own = {name for name in NOT_RUN if name.startswith(f"{page.name}: ")}
    assert own <= reader.used, "no command of the page begins so any more"


def test_the_lists_name_what_pages_have():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

    assert [name for name in NOT_RUN if name.partition(": ")[0] not in {page.name for page in PAGES}] == []
    assert [written for written in SMALLER if written not in text] == []


@pytest.mark.parametrize(
    "block",
    [
        "```bash\nsignalbox sources --no-such-option\n```\n",
        "```bash\ncat no-such-file | signalbox ingest - --collection x\n```\n",
        "Text.\n\n    mkdir no/such/folder\n",
        "```text\n$ signalbox sources\nno such line\n```\n",
        "```python\nfrom agent import no_such_name\n```\n",
        "```toml\nNO_SUCH_SETTING = 1\n```\n",
        '```json\n{"type": "eq", "filters": []}\n```\n',
        "Text.\n\n    SELECT no_such_column FROM signalbox.chunk;\n",
    ],
)
def test_a_wrong_block_is_found(block: str, reader_of: Callable[..., Any], tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(block, encoding="utf-8")

    with pytest.raises((AssertionError, ImportError, BadRequest, psycopg.Error)):
        reader_of(page, {}, {}).run()
