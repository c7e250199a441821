"""`signalbox sql`: a guarded, read-only SELECT over a collection's view `documents`."""

import asyncio
import json
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agent.serve.cli import output
from retrievers.core.errors import BadRequest, RetrievalError
from retrievers.core.types import ResultTable, Scope, Viewer
from retrievers.postgres.guard.guard import GuardVerdict, judge_statement
from retrievers.postgres.sql import execution
from retrievers.postgres.sql.view import DocumentsView, DocumentsViews

if TYPE_CHECKING:
    from agent.service.service import Service

_CELL_CHARACTERS = 60


async def run(
    service: "Service", statement: str, collection: str, *, check: bool, as_json: bool, viewer: Viewer
) -> int:
    """Check a statement and, unless `check` is set, run it. `-` reads statements from stdin, one per line.

    Returns:
        The exit code.
    Raises:
        BadRequest: the statement is refused.
        Unavailable: it took too long, or the database is not there.
    """
    scope = await service.catalogue.scope(viewer, collection, fresh=True)
    view = await DocumentsViews(service.database).of(scope)
    if statement == "-":
        await _run_lines(service, scope, view, check=check)
        return 0
    verdict = judge_statement(statement, view.columns)
    if as_json and (check or verdict.sql is None):
        output.write_json(_verdict_json(verdict))
    if verdict.sql is None:
        raise BadRequest(f"the statement is refused: {verdict.reason}", where="statement")
    if check:
        if not as_json:
            print(output.terminal_text(verdict.sql))
        return 0
    table = await execution.run_statement(service.database, scope, view, verdict.sql)
    if as_json:
        output.write_json({**_verdict_json(verdict), "columns": table.columns, "rows": table.rows})
    else:
        print("\n".join(_lines(table)))
        output.print_note(f"{len(table.rows):,} row{'' if len(table.rows) == 1 else 's'}")
    return 0


async def _run_lines(service: "Service", scope: Scope, view: DocumentsView, *, check: bool) -> None:
    """Write one JSON line for every input line, immediately; a bad line does not affect the others."""
    while line := await asyncio.to_thread(_read_line):
        print(json.dumps(await _run_line(service, scope, view, line, check=check), default=str), flush=True)


async def _run_line(
    service: "Service", scope: Scope, view: DocumentsView, line: bytes, *, check: bool
) -> dict[str, Any]:
    try:
        statement = json.loads(line)
    except (ValueError, RecursionError):
        return _verdict_json(GuardVerdict(False, "the line is not JSON"))
    if not isinstance(statement, str):
        return _verdict_json(GuardVerdict(False, "the line is not a JSON string"))
    verdict = judge_statement(statement, view.columns)
    if check or verdict.sql is None:
        return _verdict_json(verdict)
    try:
        table = await execution.run_statement(service.database, scope, view, verdict.sql)
    except RetrievalError as error:
        return _verdict_json(GuardVerdict(False, str(error), verdict.sql))
    return {**_verdict_json(verdict), "columns": table.columns, "rows": table.rows}


def _read_line() -> bytes:
    stream = getattr(sys.stdin, "buffer", None)
    return bytes(stream.readline()) if stream is not None else sys.stdin.readline().encode(errors="replace")


def _verdict_json(verdict: GuardVerdict) -> dict[str, Any]:
    return {"ok": verdict.ok, "reason": verdict.reason, "sql": verdict.sql}


def _lines(table: ResultTable) -> Iterator[str]:
    """Yield the table in aligned columns; wide characters count as two."""
    if not table.rows:
        yield "(no rows)"
        return
    written = [table.columns, *([_cell(value) for value in row] for row in table.rows)]
    widths = [max(_width(row[n]) for row in written) for n in range(len(table.columns))]
    for number, row in enumerate(written):
        cells = (cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        value = ", ".join(map(_cell, value))
    elif isinstance(value, Mapping | bool):
        value = json.dumps(value, ensure_ascii=False, default=str)
    text = " ".join(output.terminal_text("" if value is None else str(value)).split())
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…"


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
