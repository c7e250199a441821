"""Check whether objects implement a protocol, and remember the answer for each class.

`isinstance` with a protocol takes 0.05 ms on Python 3.11, and a question needs 30 such checks.
"""

from typing import Any, TypeGuard

from retrievers.core.types import DocumentHolder, MultiBackend

_known: dict[tuple[type, type], bool] = {}


def implements(value: object, protocol: Any) -> bool:
    """Return whether the value's class implements the runtime-checkable protocol. Calls `isinstance` once per class."""
    key = type(value), protocol
    if key not in _known:
        _known[key] = isinstance(value, protocol)
    return _known[key]


def holds_documents(source: object) -> TypeGuard[DocumentHolder]:
    """Return whether the source holds documents of its own; see `DocumentHolder`."""
    return implements(source, DocumentHolder)


def has_backends(source: object) -> TypeGuard[MultiBackend]:
    """Return whether the source searches several backends; see `MultiBackend`."""
    return implements(source, MultiBackend)
