"""Resolve which collections a request may search, and parse its filter against their fields."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.types import Request
from retrievers.core.errors import BadRequest, UnknownCollection, join_names
from retrievers.core.filters import Filter, parse_filter
from retrievers.core.protocol_checks import holds_documents
from retrievers.core.types import Retriever, Scope, Viewer
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields


@dataclass(frozen=True, slots=True)
class ScopeResolver:
    """Reads what a request may search. Arguments as for `Pipeline`.

    Attributes:
        changed: the counter of changes to the documents' readers, if already known; None to read it.
    """

    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    changed: int | None = None

    async def resolve_scope_and_filter(self, who: Viewer, request: Request) -> tuple[Scope, Filter | None]:
        """Return the collections that the request may search, and its filter, parsed; None without a filter.

        Raises:
            BadRequest: the collection does not exist, or the filter does not fit its fields.
            Unavailable: the database cannot return the tenant's collections.
        """
        try:
            scope = await self.readable_scope(who, request.collection)
        except UnknownCollection:
            outside = {self.sources[one].card.kind for one in request.sources or ()} == {"outside"}
            if not outside or request.collection is not None or request.filter is not None:
                raise
            # Sources outside can be asked without any collection.
            scope = Scope(who.tenant, (), principals=who.principals)
        if request.filter is None:
            return scope, None
        try:
            return scope, await _parsed(request.filter, scope)
        except BadRequest:
            # The field may be newer than the cached catalogue.
            scope = await self.readable_scope(who, request.collection, fresh=True)
            return scope, await _parsed(request.filter, scope)

    async def readable_scope(self, who: Viewer, collection: str | None, *, fresh: bool = False) -> Scope:
        """Return the collections that the viewer may read: of the database and of sources with documents of their own.

        Args:
            collection: the only collection to return; None for all.
            fresh: whether to read the database instead of a cache.
        """
        holders = {name: source for name, source in self.sources.items() if holds_documents(source)}
        asked = [one for name, one in holders.items() if collection in (None, name)]
        beside = tuple([await one.collection(fresh=fresh) for one in asked])
        try:
            scope = await self.catalogue.scope(who, collection, fresh=fresh, changed=self.changed)
        except UnknownCollection as error:
            if not holders:
                raise
            if not beside:
                names = {*error.valid, *holders}
                what = f'there is no collection "{collection}"; there are: {join_names(names)}'
                raise UnknownCollection(what, where="collection", valid=names) from None
            scope = Scope(who.tenant, (), principals=who.principals)
        return replace(scope, external_collections=beside)


async def _parsed(given: object, scope: Scope) -> Filter:
    """Parse a filter in a thread: it may have 120,000 values, which would block the event loop."""
    return await asyncio.to_thread(parse_filter, given, filterable_fields(scope))
