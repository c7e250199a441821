"""Build, without a database, the data a question is read against: field catalogue, nouns and term frequencies."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.intent.reader import terms_of
from agent.intent.rules_reader import ReadingContext
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from evals.filter_equality import FilterCorpus, corpus_of
from retrievers.core.cooccurrence import Cooccurrence
from retrievers.core.metadata import RESERVED, Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues
from retrievers.ingest.documents import Document
from retrievers.ingest.preparation import prepare
from retrievers.ingest.readers.file_input import read_paths
from retrievers.ingest.rows import term_counts
from retrievers.text.document_ids import MOST_IDS, infer_document_nouns

_CARDS = {
    name: Card(name, "", kind)  # type: ignore[arg-type]
    for name, kind in (("fulltext", "documents"), ("sql", "metadata"), ("vector", "documents"))
}
_MOST_VALUES = 1000


@dataclass(frozen=True)
class ReadingData:
    """A collection's data for reading questions.

    Attributes:
        corpus: the documents' filterable values; without documents only the fields.
        nouns: nouns that stand for a document of the collection, such as "invoices".
        counts: number of passages that contain a term, by term; empty without texts.
        passages: number of passages.
    """

    catalogue: FieldCatalogue
    corpus: FilterCorpus
    nouns: frozenset[str]
    counts: Mapping[str, int]
    passages: int = 0

    def context(self, question: str, now: datetime) -> ReadingContext:
        """Return what the rules need to read a question that is asked at the time `now`."""
        terms = terms_of([question]) if self.counts else {}
        frequencies = {word: self.counts.get(term, 0) / self.passages for word, term in terms.items()}
        return ReadingContext(self.catalogue, self.nouns, _CARDS, Calendar(now.date()), now, frequencies=frequencies)


def corpus_reading_data(path: Path) -> ReadingData:
    """Return the data for reading questions over the documents of a corpus file, as ingestion would make it.

    Aliases of values are read from `schema.json` beside the file, if present.
    """
    documents = [one for one in read_paths([path]) if isinstance(one, Document)]
    corpus = corpus_of(documents)
    fields = {
        name: one
        for name in corpus.fields
        if name not in ("id", "title") and (one := _values(corpus.fields[name], corpus)) is not None
    }
    schema = path.with_name("schema.json")
    if schema.is_file():
        fields = {name: _declared(one, json.loads(schema.read_text(encoding="utf-8"))) for name, one in fields.items()}
    together = Cooccurrence.of(
        corpus.documents.values(), {name: len(one.values) for name, one in fields.items() if one.values}
    )
    catalogue = FieldCatalogue(((1, 1),), len(corpus.documents), fields, cooccurrence=together)
    # As in the service, the nouns for a document come from ids and titles, and never from the folder's name.
    first = sorted(documents, key=lambda one: one.id)[:MOST_IDS]
    nouns = document_nouns_of(infer_document_nouns([(one.id, one.title) for one in first]), catalogue)
    # Count per passage, as ingestion does: a long document has many passages, and a common word is not in all of them.
    prepared = [prepare(one, {}, b"") for one in documents]
    passages = sum(len(one.passages) for one in prepared)
    return ReadingData(catalogue, corpus, nouns, dict(term_counts(prepared)), passages)


def _values(field: Field, corpus: FilterCorpus) -> FieldValues | None:
    held = [one[field.name] for one in corpus.documents.values() if one.get(field.name) is not None]
    every: list[Any] = [item for value in held for item in (value if isinstance(value, list) else [value])]
    if not every:
        return None
    if field.item in ("number", "date"):
        return FieldValues(field, {}, len(set(every)), len(held), min(every), max(every), {})
    counts = Counter(str(item).lower() if isinstance(item, bool) else item for item in every)
    return FieldValues(field, dict(counts.most_common(_MOST_VALUES)), len(counts), len(held), None, None, {})


def _declared(values: FieldValues, schema: Mapping[str, Any]) -> FieldValues:
    declared = schema.get("fields", {}).get(values.field.name, {})
    aliases = declared.get("aliases") if isinstance(declared, dict) else None
    if not aliases:
        return values
    by_alias = {alias: value for value, names in aliases.items() for alias in names}
    return replace(values, aliases=by_alias)


def catalogue_reading_data(path: Path) -> ReadingData:
    """Return the data for reading questions from a JSON file that describes fields and nouns, without documents."""
    given = json.loads(path.read_text(encoding="utf-8"))
    fields: dict[str, FieldValues] = {}
    for name, one in given["fields"].items():
        field = Field(name, one["type"], one.get("item") or one["type"])
        values = one.get("values") or {}
        fields[name] = FieldValues(
            field,
            {} if field.item in ("number", "date") else values,
            one.get("distinct") or len(values),
            one.get("documents") or given["documents"],
            one.get("low"),
            one.get("high"),
            one.get("aliases") or {},
        )
    catalogue = FieldCatalogue(((1, 1),), given["documents"], fields)
    known = {name: Field(name, kind, kind) for name, kind in RESERVED.items()} | {n: v.field for n, v in fields.items()}
    whole = frozenset(name for name, field in known.items() if field.item in ("number", "date"))
    return ReadingData(catalogue, FilterCorpus(known, {}, whole), document_nouns_of(given["nouns"]), {})


def question_time(text: str | None) -> datetime:
    """Return the time of a question; 20 November 2026, the date of the question sets, if it has none."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else datetime(2026, 11, 20, tzinfo=UTC)
