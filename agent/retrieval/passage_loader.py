"""Load the passages of hits and list documents, from the database and from sources with documents of their own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.retrieval.fusion import FusedHit
from retrievers.core.filters import Filter
from retrievers.core.protocol_checks import holds_documents
from retrievers.core.types import Chunk, ChunkId, Retriever, Scope
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.documents.listing import DocumentListing


@dataclass(frozen=True, slots=True)
class PassageLoader:
    """Loads passages and lists documents. Arguments as for `Pipeline`."""

    catalogue: Catalogue
    sources: Mapping[str, Retriever]

    async def load_chunks(self, scope: Scope, ids: Iterable[ChunkId], wanted: Filter | None) -> Mapping[ChunkId, Chunk]:
        """Return the chunks by id, from the database and from sources that hold documents of their own.

        Chunks that do not exist or do not satisfy the filter `wanted` are missing from the result.
        """
        known = list(ids)
        stored = {(one.tenant, one.name) for one in scope.collections}
        # A folder with the name of a stored collection is not searched: its passages would have the same ids.
        held = {(one.tenant, one.name) for one in scope.external_collections} - stored
        chunks = await self.catalogue.load(scope, [id for id in known if id[:2] in stored], wanted)
        for source in self.sources.values():
            if holds_documents(source):
                chunks.update(source.load([id for id in known if id[:2] in held], wanted))
        return chunks

    async def load_hits(self, scope: Scope, wanted: Filter | None, hits: Sequence[FusedHit]) -> list[FusedHit]:
        """Return the hits with their chunks loaded; hits whose document was deleted meanwhile are left out."""
        chunks = await self.load_chunks(scope, [hit.id for hit in hits if hit.chunk is None], wanted)
        loaded = (hit._replace(chunk=hit.chunk or chunks.get(hit.id)) for hit in hits)
        return [hit for hit in loaded if hit.chunk is not None]

    async def list_documents(
        self, scope: Scope, wanted: Filter | None, known: Sequence[ChunkId], skip: int, most: int
    ) -> DocumentListing:
        """List the documents that satisfy a filter, from the database and from sources with documents of their own.

        Args:
            known: passages whose documents are not listed again.
            skip, most: of the documents to list, the number to skip and the maximum number to return.
        """
        found = await self.catalogue.documents(scope, wanted, known, skip=skip, most=most)
        stored = {(one.tenant, one.name) for one in scope.collections}
        ranked, held = {id[:3] for id in known}, {(one.tenant, one.name) for one in scope.external_collections} - stored
        for source in self.sources.values():
            own = [id for id in source.documents(wanted) if id[:2] in held] if holds_documents(source) else []
            others = [id for id in own if id[:3] not in ranked]
            start = max(skip - found.unknown, 0)
            first = [*found.first, *others[start : start + most - len(found.first)]]
            found = DocumentListing(found.total + len(own), found.unknown + len(others), first)
        return found
