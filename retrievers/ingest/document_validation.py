"""Check documents before they are stored: their form, their metadata, and who may see them. Called in threads."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from retrievers.core.errors import BadDocument
from retrievers.core.metadata import Field, Scalar, flatten_metadata
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.preparation import check_document, digest_of, field_values

MIXED_VISIBILITY = "a collection of the platform tenant holds either public or private documents: use another one"


def flatten_valid(
    items: Iterable[tuple[int, Document | RejectedItem]],
) -> tuple[dict[int, Mapping[str, Any]], dict[int, str]]:
    """Return the flattened metadata of valid documents, and why the other items are invalid, both by index.

    The metadata of a disabled document are {}, because they are not searched.
    """
    flat: dict[int, Mapping[str, Any]] = {}
    faults: dict[int, str] = {}
    for index, item in items:
        if isinstance(item, RejectedItem):
            faults[index] = item.reason
            continue
        try:
            check_document(item)
            flat[index] = flatten_metadata(item.metadata) if item.enabled else {}
        except BadDocument as error:
            faults[index] = str(error)
    return flat, faults


def find_misfits(documents: Mapping[int, Document], fields: Mapping[str, Field]) -> dict[int, str]:
    """Return for the first documents why each does not fit the collection's fields, by index.

    Stops at the first document that fits; {} if that is the very first.
    """
    misfits = {}
    for index, document in documents.items():
        try:
            field_values(document, fields)
        except BadDocument as error:
            misfits[index] = str(error)
        else:
            break
    return misfits


def values_and_digest(
    document: Document, fields: Mapping[str, Field]
) -> tuple[dict[str, Scalar | list[Scalar]], bytes]:
    """Return the document's filterable values (`field_values`) and its digest. Raises like `field_values`."""
    values = field_values(document, fields)
    return values, digest_of(document, values)


def reject_mixed_visibility(
    public: bool | None, items: Iterable[Document | RejectedItem]
) -> Iterator[Document | RejectedItem]:
    """Yield the items, with documents rejected whose `public` differs from that of the collection.

    Args:
        public: `public` of the documents already in the collection; None to take it from the first document here.
    """
    for item in items:
        if isinstance(item, Document):
            public = item.public if public is None else public
            if item.public != public:
                item = RejectedItem(item.where, item.id, MIXED_VISIBILITY, item.readers)
        yield item
