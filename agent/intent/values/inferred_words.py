"""Infer nouns for documents, units of fields and phrases for fields, in addition to those that a schema declares."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese, stem
from agent.intent.language.units import unit_of
from agent.intent.values import field_words, vocabulary
from agent.intent.values.measures import measure_of
from retrievers.core.types import FieldCatalogue

_MOST_NAMES = 16
_WHOLES = frozenset("source collection corpus dataset series".split())


@dataclass(frozen=True, slots=True)
class InferredWords:
    """What was inferred about a collection's words, beyond what its schema declares.

    Attributes:
        document_nouns: nouns for a document, such as "pep" and "peps".
        units: {field: unit} for numeric fields whose name states the unit.
        field_phrases: {field: phrases of a question that point at the field}.
    """

    document_nouns: tuple[str, ...]
    units: Mapping[str, str]
    field_phrases: Mapping[str, tuple[str, ...]]


def infer_words(catalogue: FieldCatalogue, document_nouns: Sequence[str]) -> InferredWords:
    """Infer nouns for documents, units and phrases that point at fields.

    Args:
        document_nouns: nouns that ids and titles of the documents contain: "pep" for documents named "PEP 8".
    """
    words = document_nouns_of(document_nouns, catalogue) - noun_forms(catalogue.records)
    names: dict[str, list[str]] = {}
    for cue, fields in vocabulary.build_vocabulary(catalogue).cues.items():
        for name in fields:
            names.setdefault(name, []).append(("" if has_chinese(cue[0]) else " ").join(cue))
    return InferredWords(
        tuple(sorted(words)),
        {name: unit for name in catalogue.fields if (unit := _unit_of(catalogue, name))},
        {name: tuple(words[:_MOST_NAMES]) for name, words in names.items()},
    )


def document_nouns_of(document_nouns: Sequence[str], catalogue: FieldCatalogue | None = None) -> frozenset[str]:
    """Return the nouns for a document, in singular and plural: "pep" and "peps".

    Args:
        document_nouns: see `infer_words`.
        catalogue: adds the nouns declared by the schema, which always count, and a value that all documents share
            ("source: peps").
    """
    # Units are no nouns for documents: a title may be "Minutes of 3 May", but "20 minutes" is a time.
    names = [
        *(word for word in document_nouns if unit_of(word) is None),
        *(_said_of_all(catalogue) if catalogue is not None else ()),
    ]
    words = {word for name in names for word in re.findall(r"[^\W\d_]+", name.casefold()) if len(word) > 1}
    nouns = noun_forms(words)
    # If a collection "hotel" has a field "hotel", the word points at the field.
    fields = {stem(word) for name in (catalogue.fields if catalogue else ()) for word in lexicon.name_words(name)}
    declared = noun_forms(catalogue.records) if catalogue is not None else frozenset()
    return declared | {word for word in nouns if stem(word) not in fields}


def noun_forms(words: Collection[str]) -> frozenset[str]:
    """Return the nouns with their plural and singular forms, in lower case."""
    known = {word.casefold() for word in words}
    singular = {word[:-1] for word in known if len(word) > 3 and word.endswith("s") and not word.endswith("ss")}
    return frozenset(known | singular | {f"{word}s" for word in known if word.isascii() and not word.endswith("s")})


def _said_of_all(catalogue: FieldCatalogue) -> Iterator[str]:
    """Yield one-word values that all documents share, in fields that say what documents are ("kind", "source")."""
    for name, values in catalogue.fields.items():
        says_what = "kind" in field_words.concepts_of(name) or not _WHOLES.isdisjoint(lexicon.name_words(name))
        if not says_what or values.distinct != 1 or values.documents < catalogue.documents:
            continue
        value = next(iter(values.values), "")
        if re.fullmatch(r"[^\W\d_]{2,20}", value):
            yield value


def _unit_of(catalogue: FieldCatalogue, name: str) -> str | None:
    """Return the unit in a numeric field's name, as written there; None without one, or if the schema declares one."""
    field = catalogue.fields[name].field
    if field.item != "number" or field.unit is not None:
        return None
    measure = measure_of(catalogue.fields[name])
    if measure is None:
        return None
    said = [word for word in lexicon.name_words(name) if word in measure.words - {"per"}]
    return ("/" if any("/" in unit.kind for unit in measure.units) else " ").join(said) or None


def with_inferred_words(described: Mapping[str, Any], inferred: InferredWords) -> dict[str, Any]:
    """Return a collection's description with the inferred nouns, units and phrases added.

    Args:
        described: the description, as `Catalogue.describe` returns it; it is not changed.
    """
    fields = [
        {
            **field,
            "derived_unit": inferred.units.get(field["name"]),
            "names": list(inferred.field_phrases.get(field["name"], ())),
        }
        for field in described["fields"]
    ]
    return {**described, "derived_records": list(inferred.document_nouns), "fields": fields}
