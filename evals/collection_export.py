"""Read the documents of a stored collection: as a dataset's corpus, and their values by id."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.service.service import Service
from evals.corpus import Note
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field, MetadataValues, fields_to_json
from retrievers.core.types import Scope

_BATCH = 200
_LINE_EVERY_S = 5.0

# The tenant's own document comes before the platform's with the same id.
_EXPORT = """
    SELECT DISTINCT ON (d.id) d.id, d.title, d.body, d.url, d.metadata, d.important, d.questions
    FROM signalbox.document d
    WHERE d.collection = ANY (%(among)s) AND d.enabled AND (d.expires_at IS NULL OR d.expires_at > now())
      AND d.id > %(after)s
    ORDER BY d.id, d.tenant <> %(tenant)s LIMIT %(most)s
"""
_VALUES = """
    SELECT id, fields, language FROM signalbox.document
    WHERE collection = ANY (%(among)s) AND id = ANY (%(ids)s) AND enabled
      AND (expires_at IS NULL OR expires_at > now())
"""


async def export_corpus(service: Service, scope: Scope, path: Path, note: Note) -> int:
    """Write the documents of a scope as a corpus file, ordered by id. Returns their number.

    Who may read a document and when it expires is left out.

    Raises:
        BadRequest: the file cannot be written.
        Unavailable: the database cannot be reached.
    """
    among = [one.number for one in scope.collections]
    values: dict[str, Any] = {"among": among, "after": "", "tenant": scope.tenant, "most": _BATCH}
    count, last = 0, time.monotonic()
    try:
        with path.open("w", encoding="utf-8") as file:
            while rows := await service.database.fetch(scope.viewer, _EXPORT, values):
                file.writelines(json.dumps(_document(*row), ensure_ascii=False) + "\n" for row in rows)
                values["after"], count = rows[-1][0], count + len(rows)
                if time.monotonic() - last >= _LINE_EVERY_S:
                    last = time.monotonic()
                    note(f"{count:,} documents copied")
    except OSError as error:
        raise BadRequest(f"{path}: the file cannot be written: {error.strerror}", where="--dataset") from error
    return count


def _document(
    id: str, title: str, text: str, url: str | None, metadata: Mapping[str, Any], important: list[str],
    questions: list[str],
) -> dict[str, Any]:  # fmt: skip
    document = {"id": id, "title": title, "text": text, "url": url, "metadata": metadata}
    more = {"important": important, "questions": questions}
    return document | {name: held for name, held in more.items() if held}


def schema_of_scope(scope: Scope) -> dict[str, Any]:
    """Return the fields of a scope in the form of a schema file, so that a copy of its documents gets equal fields."""
    fields: dict[str, Field] = {}
    for collection in reversed(scope.collections):
        fields |= collection.fields
    stored = fields_to_json(fields)
    kept = {
        name: {key: value for key, value in spec.items() if key != "declared" and value not in (None, "")}
        for name, spec in sorted(stored.items())
    }
    records = next((one.records for one in scope.collections if one.records), ())
    return {"fields": kept} | ({"records": list(records)} if records else {})


async def document_values(service: Service, scope: Scope, ids: Iterable[str]) -> dict[str, MetadataValues]:
    """Return the filterable values of these documents by id; documents that are not stored are left out."""
    wanted = sorted(set(ids))
    among = [one.number for one in scope.collections]
    found: dict[str, MetadataValues] = {}
    for start in range(0, len(wanted), _BATCH):
        values = {"among": among, "ids": wanted[start : start + _BATCH]}
        for id, held, language in await service.database.fetch(scope.viewer, _VALUES, values):
            found[id] = {"language": language, **held}
    return found
