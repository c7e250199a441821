"""The values of metadata fields of several collections as one, and limits on how many are kept."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from retrievers.core.metadata import RESERVED, Field
from retrievers.core.types import FieldValues, Scope
from retrievers.text.folding import fold

MAX_VALUES = 1000
"""Maximum number of values of a field that are read: the most common ones."""
MAX_ALL_BYTES = 250_000
"""Maximum size of all values of a scope together. Making their names takes some 4 µs of processor per byte."""
MAX_PART_BYTES = 1_000_000
"""The same for one part of a collection, whose values of number and date fields count too."""
_LEAST_BYTES = 25
"""A value counts as at least this many bytes."""
_LONGEST_SPELT_BYTES = 250


@dataclass(frozen=True, slots=True)
class PartFieldValues:
    """Field values of one part of a collection (see `Collection`), or of its documents without readers.

    Attributes:
        number, version: number and version of the part, or of the collection.
        documents: number of documents in it.
        records: declared nouns for a document of the collection, see `Collection.records`.
        values: field to its values. For numbers and dates, too, the most common values are included.
    """

    number: int
    version: int
    documents: int
    records: tuple[str, ...]
    fields: Mapping[str, Field]
    values: Mapping[str, FieldValues]


def shared_document_nouns(held: Sequence[PartFieldValues]) -> tuple[str, ...]:
    """Return the nouns for a document that all collections declare, since any other noun would not fit some of them."""
    first, *others = [one.records for one in held] or [()]
    return tuple(word for word in first if all(word in words for words in others))


def merge_values(held: Sequence[PartFieldValues], fields: Mapping[str, Field]) -> dict[str, FieldValues]:
    """Merge the values of these fields in several collections; return field to merged values.

    Numbers of documents are added. The number of distinct values is exact if all values were read. Otherwise a value
    that is in two collections, but too rare to be read, is counted twice.
    """
    return {name: _merged(field, [one.values[name] for one in held if name in one.values], held)
            for name, field in fields.items()}  # fmt: skip


def _merged(field: Field, parts: Sequence[FieldValues], held: Sequence[PartFieldValues]) -> FieldValues:
    counts: Counter[str] = Counter()
    for part in parts:
        counts.update(part.values)
    twice = sum(len(part.values) for part in parts) - len(counts)
    # The values of a single collection are already sorted.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0])) if len(parts) > 1 else list(counts.items())
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    values = dict(ranked[:MAX_VALUES])
    return FieldValues(
        field,
        values=values,
        distinct=sum(part.distinct for part in parts) - twice,
        documents=sum(part.documents for part in parts),
        low=min(lows, key=_order) if lows else None,
        high=max(highs, key=_order) if highs else None,
        aliases=_aliases([one.fields[field.name] for one in held if field.name in one.fields]),
        spellings=_spellings(values) if field.item == "string" else {},
    )


def _order(bound: str | float) -> tuple[float, str]:
    """Return a sort key for the lowest or highest value of a field; the keys of one field can be compared."""
    return (0.0, bound) if isinstance(bound, str) else (bound, "")


def _aliases(fields: Iterable[Field]) -> dict[str, str]:
    """Return alias to value for a field of several collections, without aliases that stand for different values."""
    meant: dict[str, set[str]] = {}
    for field in fields:
        for value, names in field.aliases.items():
            for name in names:
                meant.setdefault(name, set()).add(value)
    return {name: next(iter(values)) for name, values in meant.items() if len(values) == 1}


def _spellings(values: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the values with other spellings, by their folded form; without long ones, which no question names."""
    alike: dict[str, list[str]] = {}
    for value in values:
        if _size(value) <= _LONGEST_SPELT_BYTES:
            alike.setdefault(fold(value), []).append(value)
    return {folded: tuple(same) for folded, same in alike.items() if folded and len(same) > 1}


def with_limited_values(fields: Mapping[str, FieldValues], most_bytes: int) -> dict[str, FieldValues]:
    """Return the fields with at most `most_bytes` of values: those with the largest values lose their rarest."""
    sizes = {name: sum(map(_size, one.values)) for name, one in fields.items()}
    most = left = most_bytes
    for place, size in enumerate(sorted(sizes.values())):
        most = left // (len(fields) - place)
        if size > most:
            break
        left -= size
    else:
        return dict(fields)
    return {name: _cut(one, most) if sizes[name] > most else one for name, one in fields.items()}


def _cut(one: FieldValues, most: int) -> FieldValues:
    sizes = accumulate(map(_size, one.values))
    kept = dict(item for item, size in zip(one.values.items(), sizes, strict=True) if size <= most)
    return replace(one, values=kept, spellings=_spellings(kept))


def _size(value: str) -> int:
    return max(len(value.encode(errors="replace")), _LEAST_BYTES)


def filterable_fields(scope: Scope) -> Mapping[str, Field]:
    """Return the fields that a filter over the scope may use, by name.

    A field whose value type differs between collections is left out: it can be used only within a single collection. A
    field that is a list in one of them is treated as a list. Sources outside the database
    (`Scope.external_collections`) add fields but do not change any, so that a folder cannot invalidate a collection's
    filters.
    """
    fields = {name: Field(name, kind, kind) for name, kind in RESERVED.items()}
    disagreed: set[str] = set()
    for name, field in ((name, field) for collection in scope.collections for name, field in collection.fields.items()):
        known = fields.get(name)
        if known is not None and known.item != field.item and name not in RESERVED:
            disagreed.add(name)
        elif known is None or name in RESERVED or field.type == "list":
            fields[name] = field
        elif known.unit != field.unit:
            fields[name] = replace(known, unit=None)  # a number with different units has none
    for one in scope.external_collections:
        fields = {**one.fields, **fields}
    return {name: field for name, field in fields.items() if name not in disagreed}
