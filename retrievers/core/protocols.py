"""Check whether objects implement a protocol, and remember the answer for each class.

`isinstance` with a protocol takes 0.05 ms on Python 3.11, and a question needs 30 such checks.
"""

from typing import Any, TypeGuard

from retrievers.core.types import Divided, Holder

_known: dict[tuple[type, type], bool] = {}


def implements(value: object, protocol: Any) -> bool:
    """Return whether the value's class implements the runtime-checkable protocol. Calls `isinstance` once per class."""
    key = type(value), protocol
    if key not in _known:
        _known[key] = isinstance(value, protocol)
    return _known[key]


def is_holder(source: object) -> TypeGuard[Holder]:
    """Return whether the source holds documents of its own; see `Holder`."""
    return implements(source, Holder)


def is_divided(source: object) -> TypeGuard[Divided]:
    """Return whether the source searches several backends; see `Divided`."""
    return implements(source, Divided)
