"""Store a dataset's documents in the service: one collection per dataset, under a separate tenant."""

import time
from collections.abc import Callable, Iterator

from agent.service.service import Service
from evals.datasets import Dataset
from retrievers.core.errors import BadRequest
from retrievers.core.types import Collection
from retrievers.ingest import document_store
from retrievers.ingest.derived_data import settle_collection
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.file_input import read_paths
from retrievers.ingest.readers.schema_file import read_schema_file, schema_of
from retrievers.ingest.report import IngestReport

TENANT = "eval"

Note = Callable[[str], None]
"""Receives a progress line."""

_LINE_EVERY_S = 5.0
_MOST_FAILURES_NAMED = 5


def documents(dataset: Dataset) -> Iterator[Document | RejectedItem]:
    """Return the corpus as ingestion reads it."""
    return read_paths(dataset.corpus)


async def store_corpus(service: Service, dataset: Dataset, note: Note) -> Collection:
    """Make the dataset's collection equal to the corpus, and return it; unchanged documents are not stored again.

    The fields are those declared in the folder's `schema.json`, if present.

    Raises:
        BadRequest: no document could be stored, or the schema is invalid.
    """
    given: set[str] = set()

    def watched() -> Iterator[Document | RejectedItem]:
        for item in documents(dataset):
            if isinstance(item, Document):
                given.add(item.id)
            yield item

    path = schema_of(dataset.folder)
    schema = read_schema_file(path) if path else None
    report = await service.ingest(watched(), dataset.name, tenant=TENANT, schema=schema, progress=Ticker(note))
    for failure in report.failed[:_MOST_FAILURES_NAMED]:
        note(f"{failure.where}: {failure.reason}")
    if len(report.failed) > _MOST_FAILURES_NAMED:
        note(f"{len(report.failed) - _MOST_FAILURES_NAMED} more documents were left out")
    if report.done == len(report.failed):
        reason = f": {report.failed[0].where}: {report.failed[0].reason}" if report.failed else ""
        raise BadRequest(f"{dataset.folder}: no document could be stored{reason}", where="dataset")
    await _remove_strays(service, dataset.name, given)
    collection = await stored(service, dataset.name)
    new = report.inserted + report.updated
    note(f"collection {dataset.name}: {collection.documents:,} documents, {collection.chunks:,} passages ({new:,} new)")
    return collection


async def stored(service: Service, name: str) -> Collection:
    """Return the current state of the evaluation tenant's own collection of that name, which must exist."""
    return next(one for one in await service.collections(tenant=TENANT) if (one.tenant, one.name) == (TENANT, name))


async def _remove_strays(service: Service, name: str, given: set[str]) -> None:
    """Delete documents of an earlier corpus or of another dataset with the same name."""
    number = (await stored(service, name)).number
    rows = await service.database.fetch(
        TENANT, "SELECT id FROM signalbox.document WHERE tenant = %s AND collection = %s", (TENANT, number)
    )
    strays = [row[0] for row in rows if row[0] not in given]
    if strays:
        async with service.database.transaction(TENANT) as connection:
            await document_store.remove_documents(connection, TENANT, number, strays)
        await settle_collection(service.database, TENANT, number)


class Ticker:
    """Reports ingestion progress, one line every five seconds."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._started = self._last = time.monotonic()

    def __call__(self, report: IngestReport) -> None:
        now = time.monotonic()
        if now - self._last >= _LINE_EVERY_S:
            self._last = now
            self._note(f"{report.done:,} documents stored, {report.done / (now - self._started):.0f}/s")
