"""A table or query of another database as a source: one document per row, as for a CSV file.

The column `id` identifies the row. The columns `text`, `title`, `url`, `metadata`, `readers` and those named like the
other keys of a JSON record have the meaning of that key. All other columns are metadata. A query can rename columns
(`SELECT article_id AS id, ...`).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from retrievers.core.errors import BadRequest
from retrievers.ingest.readers.file_input import read_record
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.sandbox import CancelCheck
from retrievers.sync.external_database import Rows, query_rows
from retrievers.sync.source import (
    MOST_ITEMS,
    ItemDocument,
    ItemEnd,
    ItemRequest,
    Listing,
    ReadEvent,
    SourceItem,
    raise_if_cancelled,
)

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")
_LONGEST_SHOWN = 200
_LOOK_EVERY = 1000


@dataclass(frozen=True, slots=True)
class TableSource:
    """Rows of a foreign database, which is only read.

    Attributes:
        url: address of the database; may contain a password.
        redacted_url: the address without user, password and options.
        table: table name, with or without a schema; "" with a query.
        query: a SELECT; "" with a table.
        updated_at: name of a column that changes with every change of a row, so that the listing reads only this column
            and `id`; "" to read and compare whole rows.
    """

    url: str
    redacted_url: str
    table: str = ""
    query: str = ""
    updated_at: str = ""

    def __post_init__(self) -> None:
        if bool(self.table) == bool(self.query):
            raise BadRequest("a database needs either --table or --query", where="source")
        for name, value in (("--table", self.table), ("--updated-at", self.updated_at)):
            if value and not _PLAIN_NAME.fullmatch(value):
                reason = "is not a plain name of a table or column; use --query"
                raise BadRequest(f'{name} "{one_line(value, 80)}" {reason}', where=name)
        if self.query and not re.match(r"\s*(select|with)\b", self.query, re.IGNORECASE):
            raise BadRequest("--query is not a SELECT", where="--query")

    @property
    def name(self) -> str:
        """See `Source.name`."""
        what = self.table or " ".join(self.query.split())
        if len(what) > _LONGEST_SHOWN:
            what = f"{what[:_LONGEST_SHOWN]}... {hashlib.sha256(what.encode()).hexdigest()[:8]}"
        return f"{self.redacted_url} {what}"

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """See `Source.list_items`."""
        columns = f"id, {self.updated_at}" if self.updated_at else "*"
        items: dict[str, str] = {}
        with self._rows(columns) as rows:
            for row in _checked_rows(rows, is_cancelled):
                key = _key(row)
                if key in items:
                    raise BadRequest(f'two rows have the id "{one_line(key, 80)}"; it must be unique', where="source")
                if len(items) >= MOST_ITEMS:
                    raise BadRequest(f"it has more than {MOST_ITEMS:,} rows: sync it in parts", where="source")
                items[key] = self._version(row)
        return Listing([SourceItem(key, version) for key, version in items.items()])

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """See `Source.read`. Scans all rows again, in the database's order; rows that no longer exist are left out."""
        if not requests:
            return
        keys = {one.key for one in requests}
        with self._rows("*") as rows:
            for row in _checked_rows(rows, is_cancelled):
                if (key := _key(row)) in keys:
                    record = {name: value for name, value in row.items() if value is not None}
                    yield ItemDocument(key, read_record({**record, "id": key}, f"{self.redacted_url} {key}"))
                    yield ItemEnd(key)

    def _version(self, row: dict[str, Any]) -> str:
        if self.updated_at:
            return str(row[self.updated_at])
        return hashlib.sha256(json.dumps(row, sort_keys=True, default=str).encode(errors="surrogatepass")).hexdigest()

    @contextmanager
    def _rows(self, columns: str) -> Iterator[Iterator[dict[str, Any]]]:
        source = f"({self.query}) AS source_rows" if self.query else self.table
        # Built from checked names, or from the query that the operator wrote. No value comes from anybody else.
        with query_rows(self.url, self.redacted_url, f"SELECT {columns} FROM {source}") as rows:  # noqa: S608
            yield _json_rows(rows)


def _checked_rows(rows: Iterator[dict[str, Any]], is_cancelled: CancelCheck) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        if number % _LOOK_EVERY == 0:
            raise_if_cancelled(is_cancelled)
        yield row


def _key(row: dict[str, Any]) -> str:
    if row.get("id") is None:
        reason = (
            "has no value in some rows"
            if "id" in row
            else "is missing: select one with --query (SELECT article_id AS id, ...)"
        )
        raise BadRequest(f"the column id {reason}", where="source")
    return str(row["id"])


def _json_rows(rows: Rows) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    """Convert a column's value to JSON. None for a value without a JSON form, such as bytes."""
    match value:
        case bool() | int() | float() | str() | None:
            return value
        case Decimal():
            return int(value) if value == value.to_integral_value() and abs(value) < 10**15 else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case list() | tuple():
            return [_json_value(one) for one in value]
        case dict():
            return {str(key): _json_value(one) for key, one in value.items()}
        case bytes() | bytearray() | memoryview():
            return None
        case _:
            return str(value)
