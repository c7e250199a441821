"""Which metadata values occur in the same documents."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MOST_DOCUMENTS = 2_000
"""Maximum number of documents of a scope whose values are kept. There is no sample of a larger scope, because values
that only meet in the other documents would seem never to meet.
"""
_MOST_VALUES = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """The documents of each metadata value. Empty for a scope with too many documents or values.

    Attributes:
        documents: number of documents.
        having: by (field, value), a number whose bit n is set if document n has the value. Values are texts, as in
            `FieldValues.values`.
    """

    documents: int = 0
    having: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]], fields: Collection[str]) -> Self:
        """Return the documents of each value of the given fields; a document has one value or a list for a field."""
        having: dict[tuple[str, str], int] = {}
        number = 0
        for number, document in enumerate(documents, 1):
            bit = 1 << (number - 1)
            for name in document.keys() & fields:
                held = document[name]
                for value in held if isinstance(held, list) else (held,):
                    key = name, str(value).lower() if isinstance(value, bool) else str(value)
                    having[key] = having.get(key, 0) | bit
            if number > MOST_DOCUMENTS or len(having) > _MOST_VALUES:
                return cls()
        return cls(number, having)

    def documents_with(self, name: str, values: Iterable[str]) -> int:
        """Return the documents with any of the values in a field, as bits."""
        found = 0
        for value in values:
            found |= self.having.get((name, value), 0)
        return found
