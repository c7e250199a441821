"""Decide whether two filters mean the same over a corpus.

They are equal if they allow the same documents and have the same normal form. The normal form ignores only spelling:
the order and nesting of groups, `eq` against `in` with one value, `not` moved inwards, and half-open against closed
ranges if a field holds only whole numbers or whole days.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

from retrievers.core.errors import BadDocument
from retrievers.core.filters import And, FieldCondition, Filter, Not, Or, matches_filter, parse_filter
from retrievers.core.metadata import RESERVED, Field, MetadataValues, Scalar, flatten_metadata, infer_fields
from retrievers.ingest.documents import Document
from retrievers.ingest.preparation import field_values
from retrievers.text.languages import detect_language

_DAY_CHARACTERS = len("2025-07-01")


@dataclass(frozen=True, slots=True)
class FilterCorpus:
    """The fields of a corpus, and each document's filterable values in normal form.

    Attributes:
        whole: fields that hold only whole numbers or only whole days.
    """

    fields: Mapping[str, Field]
    documents: Mapping[str, MetadataValues]
    whole: frozenset[str] = field(default=frozenset())

    def read(self, expression: Mapping[str, Any] | None) -> Filter | None:
        """Parse a filter expression against the fields; None for None.

        Raises:
            BadFilter: it is malformed or names a field that the corpus lacks.
        """
        return None if expression is None else parse_filter(expression, self.fields)

    def allowed(self, wanted: Filter | None) -> frozenset[str]:
        """Return the ids of the documents that the filter allows; all of them for None."""
        return frozenset(
            id for id, values in self.documents.items() if wanted is None or matches_filter(wanted, values)
        )

    def exact(self, gold: Filter | None, found: Filter | None) -> float:
        """Return 1 if the filters are equal, otherwise 0."""
        same = self.normal(gold) == self.normal(found) and self.allowed(gold) == self.allowed(found)
        return float(same)

    def f1(self, gold: Filter | None, found: Filter | None) -> float:
        """Return the overlap of the allowed documents, 2 |both| / (|gold| + |found|), 0 to 1; 1 if both allow none."""
        wanted, given = self.allowed(gold), self.allowed(found)
        return 2 * len(wanted & given) / (len(wanted) + len(given)) if wanted or given else 1.0

    def normal(self, wanted: Filter | None) -> Hashable:
        """Return the normal form: equal values for filters that differ only in spelling."""
        return None if wanted is None else self._normal(wanted, negated=False)

    def parts(self, wanted: Filter | None) -> list[Hashable]:
        """Return the normal form of the filter, then those of its conditions if it is an "and"; [] for None."""
        if wanted is None:
            return []
        inner = wanted.filters if isinstance(wanted, And) else ()
        return [self.normal(wanted), *(self.normal(one) for one in inner)]

    def _normal(self, wanted: Filter, *, negated: bool) -> Hashable:
        match wanted:
            case Not(part):
                return self._normal(part, negated=not negated)
            case And(parts) | Or(parts):
                kind = "and" if isinstance(wanted, And) != negated else "or"
                return _group(kind, [self._normal(part, negated=negated) for part in parts])
            case FieldCondition():
                return self._leaf(wanted, negated)

    def _leaf(self, wanted: FieldCondition, negated: bool) -> Hashable:
        op, key, value = wanted.op, wanted.key, wanted.value
        if op == "exists":
            return ("exists", key, bool(value) != negated)
        if op in ("eq", "in", "ne", "nin") or (op == "contains" and self.fields[key].type == "list"):
            within = (op not in ("ne", "nin")) != negated
            values = value if isinstance(value, tuple) else (value,)
            return ("in" if within else "nin", key, frozenset(values))
        leaf: Hashable = (op, key, value)
        if op in ("gt", "gte", "lt", "lte") and key in self.whole and not isinstance(value, tuple):
            least, above = _whole(value)
            # No whole value lies between, so every bound can be written as `gte` or `lt`.
            leaf = ("gte" if op in ("gt", "gte") else "lt", key, above if op in ("gt", "lte") else least)
        return ("not", leaf) if negated else leaf


def _group(kind: str, parts: list[Hashable]) -> Hashable:
    """Return a group without nested groups of its own kind, and with the memberships of each field merged."""
    flat: set[Hashable] = set()
    for part in parts:
        if isinstance(part, tuple) and part[0] == kind:
            flat |= part[1]
        else:
            flat.add(part)
    # "in A or in B" is "in the union of A and B"; likewise "not in A and not in B".
    joined = "in" if kind == "or" else "nin"
    values: dict[str, frozenset[Scalar]] = {}
    for part in list(flat):
        if isinstance(part, tuple) and part[0] == joined:
            values[part[1]] = values.get(part[1], frozenset()) | part[2]
            flat.discard(part)
    flat |= {(joined, key, members) for key, members in values.items()}
    return flat.pop() if len(flat) == 1 else (kind, frozenset(flat))


def _whole(value: Scalar) -> tuple[Scalar, Scalar]:
    """Return the least whole number or day that is not below the value, and the least that is above it.

    2.5 -> (3, 3); 3 -> (3, 4); "2025-07-01" -> ("2025-07-01", "2025-07-02").
    """
    if not isinstance(value, str):
        return math.ceil(value), math.floor(value) + 1
    day = value[:_DAY_CHARACTERS]
    try:
        after = (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except OverflowError:
        after = value + "+"
    return (value if value == day else after), after


def corpus_of(documents: Iterable[Document], fields: Mapping[str, Field] | None = None) -> FilterCorpus:
    """Return the filterable values of documents, in the form that ingestion stores.

    Args:
        fields: fields of the collection; inferred from the documents if None. Documents that do not fit them are left
            out, as in ingestion.
    """
    documents = list(documents)
    known = dict(fields) if fields is not None else infer_fields(_flat(documents))
    known = {**{name: Field(name, kind, kind) for name, kind in RESERVED.items()}, **known}
    values: dict[str, MetadataValues] = {}
    for document in documents:
        try:
            found = field_values(document, known)
        except (BadDocument, KeyError):
            continue
        found.setdefault("language", detect_language(f"{document.title}\n{document.text}"))
        values.setdefault(document.id, found)
    return corpus_of_values(known, values)


def corpus_of_values(fields: Mapping[str, Field], documents: Mapping[str, MetadataValues]) -> FilterCorpus:
    """Return the corpus of documents by id whose values are already in normal form.

    Args:
        fields: fields of the collection; the reserved ones are added.
    """
    known = {**{name: Field(name, kind, kind) for name, kind in RESERVED.items()}, **fields}
    whole = frozenset(name for name, one in known.items() if _is_whole(one, documents.values()))
    return FilterCorpus(known, documents, whole)


def _flat(documents: Iterable[Document]) -> Iterable[Mapping[str, Any]]:
    for document in documents:
        try:
            yield flatten_metadata(document.metadata)
        except BadDocument:
            continue


def _is_whole(one: Field, documents: Iterable[MetadataValues]) -> bool:
    if one.item not in ("number", "date"):
        return False
    for values in documents:
        held = values.get(one.name)
        for item in held if isinstance(held, list) else [] if held is None else [held]:
            whole = len(item) == _DAY_CHARACTERS if isinstance(item, str) else float(item).is_integer()
            if not whole:
                return False
    return True
