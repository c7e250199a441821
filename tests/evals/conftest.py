"""Small datasets, written anew for every test."""

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.settings import Settings
from evals import metrics
from evals.run_files import FORMAT
from evals.timing import summary

Lines = Iterable[Mapping[str, Any]]

TOPICS = {
    "volcano": "Molten rock rises through the crust and erupts as lava and ash.",
    "glacier": "A river of ice moves slowly down the valley and carves the rock.",
    "bakery": "Bread dough rests overnight, then goes into the oven at dawn.",
    "railway": "The night train stops at every station because of track repairs.",
    "orchard": "Apple trees are pruned in winter and blossom in April.",
    "lighthouse": "The keeper lights the lamp so that ships avoid the reef.",
}


def write_lines(path: Path, lines: Lines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    """A folder in BEIR form: six documents, five questions that each quote one of them, and an unjudged question."""
    folder = tmp_path / "tiny"
    write_lines(
        folder / "corpus.jsonl",
        [{"_id": f"d-{name}", "title": name.title(), "text": text, "metadata": {}} for name, text in TOPICS.items()],
    )
    names = list(TOPICS)[:5]
    write_lines(
        folder / "queries.jsonl",
        [{"_id": f"q-{name}", "text": f"{name}: {TOPICS[name][:30]}"} for name in names]
        + [{"_id": "q-unjudged", "text": "Nobody has judged this one."}],
    )
    qrels = folder / "qrels" / "test.tsv"
    qrels.parent.mkdir()
    qrels.write_text("query-id\tcorpus-id\tscore\n" + "".join(f"q-{name}\td-{name}\t1\n" for name in names))
    return folder


@pytest.fixture
def routed(tmp_path: Path) -> Callable[..., Path]:
    """Writes a folder in routed form: three documents and the given questions."""

    def write(*questions: Mapping[str, Any], name: str = "routed") -> Path:
        folder = tmp_path / name
        write_lines(
            folder / "corpus.jsonl",
            [
                {"id": "a", "title": "Oven", "text": "The oven is repaired.", "team": "bakers", "day": "2025-01-31"},
                {"id": "b", "title": "Lamp", "text": "The lamp is lit.", "team": "keepers", "day": "2025-06-30"},
                {"id": "c", "title": "Reef", "text": "The reef is near.", "team": "keepers", "day": "2026-02-01"},
            ],
        )
        write_lines(folder / "queries.jsonl", questions)
        return folder

    return write


@pytest.fixture
def run_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a run of these rows as `eval run` does; measures that a row does not give apply to no question."""

    def write(name: str, *rows: Mapping[str, Any], **given: Any) -> Path:
        questions = [_row(**row) for row in rows]
        run = {
            "format": FORMAT, "dataset": "tiny", "form": "routed", "split": "test", "tenant": "eval",
            "collections": ["tiny"], "filters": "none", "documents": 6, "chunks": 6, "settings": {"fusion": "convex"},
            "prompts": {"answer/v1": "abc"}, "versions": {"python": "3.11"}, "started_at": "2026-11-20T09:00:00+00:00",
            "metrics": metrics.averages(row["metrics"] for row in questions),
            "latency_ms": summary([row["latency_ms"] for row in questions]), "questions": questions, **given,
        }  # fmt: skip
        path = tmp_path / name
        path.write_text(json.dumps(run), encoding="utf-8")
        return path

    return write


def _row(id: str, measures: Mapping[str, float] | None = None, **given: Any) -> dict[str, Any]:
    scores = {**dict.fromkeys(metrics.NAMES), **(measures or {})}
    plain = {"text": f"What of {id}?", "class": None, "language": "en", "collection": "tiny", "status": "found"}
    return {"id": id, **plain, "latency_ms": 10.0, "trace_id": f"trace-{id}", "metrics": scores, **given}


@pytest.fixture
def settings(owner_url: str) -> Settings:
    """Settings of a service that uses this test's own database."""
    return Settings(database_url=owner_url)


ADAPTER = '''
    import json, os, sys, time

    PACKAGES = ("pytest", "no-such-package")

    async def connect(*, database, dimension, depth, language, connections, options):
        print("a library that prints")
        return {"passages": [], "given": [database["dbname"], dimension, depth, language, connections]}

    async def ingest(searcher, batches):
        for batch in batches:
            searcher["passages"] += batch

    async def search(searcher, text, vector, limit):
        """Return the passages nearest to the vector."""
        def nearness(one):
            return sum(a * b for a, b in zip(one.vector, vector))
        return [one.document for one in sorted(searcher["passages"], key=nearness, reverse=True)[:limit]]

    async def close(searcher):
        pass
'''


@pytest.fixture
def adapter(tmp_path: Path) -> Callable[..., Path]:
    """Writes an adapter that compares vectors in memory, with some of its lines replaced."""

    def write(name: str = "nearest", **replaced: str) -> Path:
        text = textwrap.dedent(ADAPTER)
        for call, body in replaced.items():
            head, _, rest = text.partition(f"async def {call}(")
            signature = rest.partition(":\n")[0]
            after = rest[rest.find("\nasync def ") :] if "\nasync def " in rest else ""
            text = f"{head}async def {call}({signature}:\n    {body}\n{after}"
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        return path

    return write
