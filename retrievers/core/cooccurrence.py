"""Documents of metadata values: they tell which values occur together."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MOST_DOCUMENTS = 2_000
"""Maximum number of documents of a scope whose values are kept: they are read again after each change."""
_MOST_VALUES = 5_000
"""Maximum number of values that are kept, at most 2 MB; the fields with the most values are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """The documents of each metadata value. Empty for a scope with too many documents.

    Attributes:
        having: by (field, value), a number whose bit n is set if document n has the value. Values are texts, as in
            `FieldValues.values`.
        fields: by field, the documents that have a value.
    """

    having: Mapping[tuple[str, str], int] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]], distinct: Mapping[str, int]) -> Self:
        """Return the documents of each value; a document has one value or a list for a field.

        Args:
            distinct: the fields that are kept, with their numbers of distinct values.
        """
        kept, values = set(), 0
        for name, count in sorted(distinct.items(), key=lambda one: (one[1], one[0])):
            values += count
            if values <= _MOST_VALUES:
                kept.add(name)
        having: dict[tuple[str, str], int] = defaultdict(int)
        fields: dict[str, int] = defaultdict(int)
        for number, document in enumerate(documents):
            if number >= MOST_DOCUMENTS:
                return cls()
            for name in document.keys() & kept:
                value = document[name]
                for one in value if isinstance(value, list) else (value,):
                    having[name, str(one).lower() if isinstance(one, bool) else str(one)] |= 1 << number
                fields[name] |= 1 << number
        return cls(dict(having), dict(fields))

    def documents_with(self, name: str, values: Iterable[str]) -> int:
        """Return the documents with any of the values in a field, as bits."""
        found = 0
        for value in values:
            found |= self.having.get((name, value), 0)
        return found

    def documents_of(self, name: str) -> int:
        """Return the documents with any value in a field, as bits."""
        return self.fields.get(name, 0)
