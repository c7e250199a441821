"""Record which documents have each metadata value, to tell which values occur together in a document."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

MOST_DOCUMENTS = 2_000
"""A scope with more documents gets an empty `Cooccurrence`: all documents must be read again after each change."""
_MOST_VALUES = 5_000
"""Maximum number of values of all fields, which take at most 2 MB. Fields with many values are left out for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Cooccurrence:
    """The documents that have each metadata value. Empty for a scope with too many documents.

    A set of documents is an integer whose bit n stands for the n-th document of the scope.

    Attributes:
        having: (field, value) to the set of documents that have the value. All values are texts, as in
            `FieldValues.values`.
        fields: field to the set of documents that have any value for it.
    """

    having: Mapping[tuple[str, str], int] = field(default_factory=dict)
    fields: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, documents: Iterable[Mapping[str, Any]], distinct: Mapping[str, int]) -> Self:
        """Build the sets from the metadata of all documents of a scope.

        Args:
            documents: for each document, field to its value or list of values.
            distinct: field to its number of distinct values, for the fields to keep.
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

    def documents_with_values(self, name: str, values: Iterable[str]) -> int:
        """Return the set of documents that have any of these values for a field, as an integer of bits."""
        found = 0
        for value in values:
            found |= self.having.get((name, value), 0)
        return found

    def documents_with_field(self, name: str) -> int:
        """Return the set of documents that have any value for a field, as an integer of bits."""
        return self.fields.get(name, 0)
