"""What the reading takes the words of a collection to mean, shown beside what its schema declares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.intent import rules, vocabulary
from agent.intent.measures import measure_of
from agent.intent.text import has_chinese
from retrievers.core.types import FieldCatalogue

_MOST_NAMES = 16


@dataclass(frozen=True, slots=True)
class Derived:
    """What nobody declared.

    Attributes:
        records: words for a document.
        units: of numbers, by field.
        names: words that point at a field, by field.
    """

    records: tuple[str, ...]
    units: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]


def derive(catalogue: FieldCatalogue, called: Sequence[str]) -> Derived:
    """What is read from the names of the fields and from what documents are called."""
    words = rules.nouns_of(called, catalogue) - rules.forms_of(catalogue.records)
    names: dict[str, list[str]] = {}
    for cue, fields in vocabulary.build(catalogue).cues.items():
        for name in fields:
            names.setdefault(name, []).append(("" if has_chinese(cue[0]) else " ").join(cue))
    return Derived(
        tuple(sorted(words)),
        {name: unit for name in catalogue.fields if (unit := _unit_of(catalogue, name))},
        {name: tuple(words[:_MOST_NAMES]) for name, words in names.items()},
    )


def _unit_of(catalogue: FieldCatalogue, name: str) -> str | None:
    """The unit that the name of a number says; None where one is declared."""
    field = catalogue.fields[name].field
    if field.item != "number" or field.unit is not None:
        return None
    measure = measure_of(catalogue.fields[name])
    return next(iter(measure.words), None) if measure is not None else None


def with_derived(described: Mapping[str, Any], derived: Derived) -> dict[str, Any]:
    """The description of a collection (`Catalogue.describe`) with what was derived."""
    fields = [
        {**field, "derived_unit": derived.units.get(field["name"]), "names": list(derived.names.get(field["name"], ()))}
        for field in described["fields"]
    ]
    return {**described, "derived_records": list(derived.records), "fields": fields}
