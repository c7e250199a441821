"""Documents of a tenant and its collections: store, describe, read and delete them."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.intent.values.inferred_words import infer_words, with_inferred_words
from agent.intent.values.measures import check_units
from agent.service.time_limit import with_time_limit
from agent.settings import Settings
from retrievers.core.collection_schema import Schema, read_schema
from retrievers.core.errors import BadDocument, BadRequest, NotFound, UnknownCollection
from retrievers.core.metadata import Field
from retrievers.core.principals import check_principals
from retrievers.core.types import ALL_PRINCIPALS, Collection, FieldValues, Scope, Viewer, unrestricted_viewer
from retrievers.embed import Embedder
from retrievers.ingest import collections, document_store
from retrievers.ingest.collection_schema import store_schema
from retrievers.ingest.collections import check_collection_name
from retrievers.ingest.derived_data import update_derived_data
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.jobs import job_queue as queue
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.passage_weights import reweigh_collection
from retrievers.ingest.report import IngestReport, Progress
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields
from retrievers.postgres.connections.database import Database
from retrievers.postgres.documents.stored import StoredDocument, read_document
from retrievers.sync import manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentService:
    """Stores, describes, reads and deletes documents.

    Every method takes `tenant`; None means the tenant of the settings. A tenant's name reads only documents without
    readers; a `Viewer` also reads what its principals may read. Methods that write use only the tenant.
    """

    settings: Settings
    database: Database
    embedder: Embedder
    catalogue: Catalogue
    worker: Worker

    def viewer(self, given: str | Viewer | None, principals: Sequence[str] | None = None) -> Viewer:
        """Return the viewer on whose behalf a call reads; None means the tenant of the settings.

        An empty tenant name never means the default tenant: later checks reject it.

        Args:
            principals: users and groups that replace those of the given viewer; None keeps them.
        """
        viewer = Viewer.of(self.settings.tenant if given is None else given)
        if principals is None:
            return viewer
        return Viewer(viewer.tenant, check_principals(principals, everything=True))

    @with_time_limit
    async def own_collection(self, who: Viewer, collection: str, *, error_viewer: Viewer | None = None) -> Collection:
        """Return the collection of that name that belongs to the viewer's tenant, not to the platform.

        Args:
            told: viewer to whom an error is shown: it lists only the collections that this viewer sees. None means
                `who`.
        Raises:
            UnknownCollection: the tenant has no such collection of its own.
        """
        try:
            scope = await self.catalogue.scope(who, collection, fresh=True)
        except UnknownCollection:
            scope = await self.catalogue.scope(error_viewer or who, collection, fresh=True)
        own = next((one for one in scope.collections if one.tenant == who.tenant), None)
        if own is None:
            raise UnknownCollection(
                f'the collection "{collection}" belongs to the platform; only its operator can change it',
                where="collection",
            )
        return own

    async def ingest(
        self,
        items: Iterable[Document | RejectedItem],
        collection: str,
        *,
        tenant: str | Viewer | None = None,
        schema: Mapping[str, Field] | None = None,
        progress: Progress | None = None,
    ) -> IngestReport:
        """Store documents, see `retrievers.ingest.run.ingest`.

        Args:
            schema: declared fields; a `retrievers.core.collection_schema.Schema` also declares nouns that stand for a
                document, such as "invoices".
        Raises:
            BadRequest: an item is not a document; `ingest.readers.record.read_record` makes one from a mapping. Or
                an amount in a unit of the schema cannot be read from a question.
        """
        who = self.viewer(tenant).tenant
        check_units(schema or {})
        items = _documents(items)
        try:
            return await ingest(
                self.database, self.embedder, who, collection, items, declared=schema, progress=progress
            )
        finally:
            # Clear the cache, so that this process finds the new documents at once.
            self.catalogue.invalidate(who)

    @with_time_limit
    async def document(self, collection: str, id: str, *, tenant: str | Viewer | None = None) -> StoredDocument:
        """Return one stored document.

        Raises:
            UnknownCollection: the viewer sees no such collection.
            NotFound: the collection has no such document that the viewer may see.
        """
        _check_id(id)
        scope = await self.catalogue.scope(self.viewer(tenant), collection, fresh=True)
        found = await read_document(self.database.reads, scope, id)
        if found is None:
            raise NotFound(f'the collection "{collection}" has no document "{id[:80]}"', where="id")
        return found

    async def delete(self, collection: str, document: str | None = None, *, tenant: str | Viewer | None = None) -> int:
        """Delete one document, or a collection with all its documents; return the number of deleted documents.

        Raises:
            UnknownCollection: the tenant has no such collection of its own.
        """
        viewer = self.viewer(tenant)
        who = viewer.tenant
        while True:
            try:
                if document is not None:
                    return await self._delete_document(viewer, collection, document)
                own = await self.own_collection(unrestricted_viewer(who), collection, error_viewer=viewer)
                async with self.database.transaction(unrestricted_viewer(who)) as connection:
                    # Lock rows before jobs, in the same order as writers do.
                    await collections.lock_with_shadows(connection, who, own.number)
                    await manifest.forget_documents(connection, who, collection)
                    await queue.cancel_collection_jobs(connection, who, collection)
                    count = await collections.delete_collection(connection, who, own.number)
                self.catalogue.invalidate(who)
                return count
            except collections.CollectionReplaced:
                continue

    @with_time_limit
    async def _delete_document(self, viewer: Viewer, collection: str, document: str) -> int:
        _check_id(document)
        tenant = viewer.tenant
        own = await self.own_collection(unrestricted_viewer(tenant), collection, error_viewer=viewer)
        async with self.database.transaction(unrestricted_viewer(tenant)) as connection:
            count = await document_store.remove_documents(connection, tenant, own.number, [document])
            await manifest.forget_documents(connection, tenant, collection, document)
            await queue.forget_document_payloads(connection, tenant, collection, [document])
            await update_derived_data(connection, tenant, own.number)
        if not self.worker.is_polling:
            await reweigh_collection(self.database, tenant, own.number)
        self.catalogue.invalidate(tenant)
        return count

    @with_time_limit
    async def collections(self, *, tenant: str | Viewer | None = None) -> Sequence[Collection]:
        """Return the collections that the viewer may see."""
        return await self.catalogue.collections(self.viewer(tenant), fresh=True)

    @with_time_limit
    async def describe(self, collection: str, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return a collection's field catalogue: types, ranges and the most frequent values with counts.

        It also has units, nouns that stand for a document ("invoices") and phrases that stand for a field, both
        declared and inferred, and under `job` the rebuild that is running, or None.

        Raises:
            UnknownCollection: the viewer sees no such collection.
        """
        scope = await self.catalogue.scope(self.viewer(tenant), collection, fresh=True)
        described, fields = await self.catalogue.describe(scope), await self.catalogue.fields(scope)
        described["job"] = await self._running_rebuild(self.viewer(tenant), scope)
        # In a thread: inferring from tens of thousands of values takes seconds and would block all other requests.
        return with_inferred_words(
            described, await asyncio.to_thread(infer_words, fields, await self.catalogue.document_nouns(scope))
        )

    async def _running_rebuild(self, viewer: Viewer, scope: Scope) -> dict[str, Any] | None:
        """Return the running rebuild of the tenant's own collection.

        None if there is none, if the collection is the platform's, or if the viewer is limited to some principals.
        """
        own = any(one.tenant == viewer.tenant for one in scope.collections)
        if not own or viewer.principals not in ((), ALL_PRINCIPALS):
            return None
        job = await self.worker.jobs.unfinished_rebuild(viewer, scope.collections[0].name)
        if job is None:
            return None
        return {"job_id": job.id, "kind": job.kind, "embedder": job.embedder, "status": job.status}

    @with_time_limit
    async def declare(
        self, collection: str, schema: Mapping[str, Any], *, tenant: str | Viewer | None = None
    ) -> dict[str, Any]:
        """Declare a collection's fields and the nouns that stand for its documents.

        See `retrievers.core.collection_schema.read_schema`. A missing collection is created. Fields that the schema
        does not mention stay unchanged.

        Returns:
            The collection as returned by `describe`.
        Raises:
            BadRequest: the schema is not valid, or changes the type of a field that documents already have.
        """
        who = self.viewer(tenant).tenant
        check_collection_name(collection)
        # In a thread: only the size of a request limits the number of aliases, so reading the schema may take long.
        declared = await asyncio.to_thread(_schema_of, schema)
        await store_schema(self.database, who, collection, declared)
        self.catalogue.invalidate(who)
        viewer = self.viewer(tenant)
        await self.catalogue.fields(await self.catalogue.scope(viewer, collection, fresh=True), fresh=True)
        return await self.describe(collection, tenant=viewer)

    @with_time_limit
    async def fields(
        self, collection: str, *, tenant: str | Viewer | None = None
    ) -> tuple[Mapping[str, Field], Mapping[str, FieldValues]]:
        """Return two mappings by field name: the fields that filters on a collection may use, and stored values.

        Raises:
            UnknownCollection: the viewer sees no such collection.
        """
        scope = await self.catalogue.scope(self.viewer(tenant), collection)
        return filterable_fields(scope), (await self.catalogue.fields(scope)).fields


def _documents(items: Iterable[object]) -> Iterator[Document | RejectedItem]:
    for number, item in enumerate(items):
        if not isinstance(item, Document | RejectedItem):
            form = "convert a mapping with retrievers.ingest.readers.file_input.read_record(mapping, where)"
            raise BadRequest(f"item {number} is a {type(item).__name__}, not a Document: {form}", where=str(number))
        yield item


def _schema_of(given: Mapping[str, Any]) -> Schema:
    try:
        schema = read_schema(given)
    except BadDocument as error:
        raise BadRequest(str(error), where="schema") from error
    check_units(schema)
    return schema


def _check_id(document: str) -> None:
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in document):
        raise BadRequest("the document id contains a character that no stored id can contain", where="document")
