"""The `ingest` command: show progress, one line per failed document, and a summary."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.serve.cli import output
from retrievers.core.collection_schema import Schema, read_description
from retrievers.core.errors import BadDocument, BadRequest
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.file_input import input_bytes, read_paths
from retrievers.ingest.readers.schema_file import read_schema_file, schema_of
from retrievers.ingest.report import IngestReport

if TYPE_CHECKING:
    from agent.service.service import Service

_LINE_EVERY_S = 10.0
_MOST_FAILURES_SHOWN = 100


async def run(
    service: "Service",
    paths: Sequence[str],
    collection: str,
    *,
    tenant: str | None,
    schema: Path | None,
    description: str | None = None,
    as_json: bool,
) -> int:
    """Ingest the paths. Return 0 if every document was stored, 2 if one failed.

    Without `schema`, a single folder's own `schema.json` is used. `description` overrides the schema's description.
    """
    started = time.monotonic()
    sources: list[Path | Literal["-"]] = ["-" if path == "-" else Path(path) for path in paths]
    if schema is None and len(sources) == 1 and isinstance(sources[0], Path):
        schema = schema_of(sources[0])
        if schema:
            output.print_note(f"fields as declared in {schema}")
    declared = read_schema_file(schema) if schema else Schema()
    if description is not None:
        declared.description = _check_description(description)
    with _progress(sources) as meter:
        report = await service.ingest(
            meter.watch(read_paths(sources, stdin=sys.stdin.buffer, progress=meter.read_more)),
            collection,
            tenant=tenant,
            schema=declared,
            progress=meter.update,
        )
    for note in report.notes:
        output.print_note(note)
    for failure in report.failed[:_MOST_FAILURES_SHOWN]:
        output.print_note(f"{failure.where}: {failure.reason}")
    if len(report.failed) > _MOST_FAILURES_SHOWN:
        output.print_note(f"{len(report.failed) - _MOST_FAILURES_SHOWN:,} more failed; --json lists all of them")
    if as_json:
        output.write_json({"collection": collection, **asdict(report)})
    else:
        print(_summary(collection, report, time.monotonic() - started))
    return 2 if report.failed else 0


def _check_description(description: str) -> str:
    try:
        return read_description(description)
    except BadDocument as error:
        raise BadRequest(str(error), where="--description") from error


def _summary(collection: str, report: IngestReport, elapsed_s: float) -> str:
    counts = [
        f"{report.inserted:,} added",
        f"{report.updated:,} updated",
        f"{report.unchanged:,} unchanged",
        f"{len(report.failed):,} failed",
    ]
    return f"{collection}: {', '.join(counts)} ({report.chunks:,} passages written, {elapsed_s:.1f} s)"


@dataclass
class _ProgressMeter:
    """Progress of an ingestion. `done_bytes` estimates the bytes of the documents that are done."""

    read_bytes: int = 0
    read_documents: int = 0
    report: IngestReport = field(default_factory=IngestReport)

    def watch(self, items: Iterator[Document | RejectedItem]) -> Iterator[Document | RejectedItem]:
        for item in items:
            self.read_documents += 1
            yield item

    def read_more(self, count: int) -> None:
        self.read_bytes += count

    def update(self, report: IngestReport) -> None:
        self.report = report
        self.show()

    @property
    def done_bytes(self) -> float:
        return self.read_bytes * min(self.report.done / max(self.read_documents, 1), 1.0)

    def show(self) -> None:
        """Show the progress; does nothing here."""


@contextmanager
def _progress(sources: Sequence[Path | Literal["-"]]) -> Iterator[_ProgressMeter]:
    total = input_bytes(sources)
    if not sys.stderr.isatty():
        yield _ProgressLines(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.fields[documents]:,} documents"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rate]:.0f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total or None, documents=0, rate=0.0)
        started = time.monotonic()

        class Bar(_ProgressMeter):
            def show(self) -> None:
                rate = self.report.done / max(time.monotonic() - started, 0.1)
                bar.update(task, completed=self.done_bytes, documents=self.report.done, rate=rate)

        yield Bar()


class _ProgressLines(_ProgressMeter):
    """Progress without a terminal: a line every ten seconds."""

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._started = self._last = time.monotonic()

    def show(self) -> None:
        now = time.monotonic()
        if now - self._last < _LINE_EVERY_S:
            return
        self._last = now
        done, elapsed = self.report.done, now - self._started
        share = self.done_bytes / self._total if self._total else 0.0
        left = f", about {elapsed / share - elapsed:.0f} s left" if 0 < share < 1 else ""
        output.print_note(f"{done:,} documents, {done / elapsed:.0f}/s{left}")
