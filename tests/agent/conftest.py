"""Question sets to try the rules on, without a database: catalogues from JSON, readings judged by meaning."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.intent import rules
from agent.intent.rules import Context, RulesReading
from agent.intent.time.periods import Calendar
from agent.types import Message
from evals.filters import Corpus, corpus_of
from evals.metrics import route_accuracy
from retrievers.core.fields import RESERVED, Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues
from retrievers.ingest.documents import Document
from retrievers.ingest.read import read

DATA = Path(__file__).with_name("intent_data")
NOW = datetime(2026, 11, 20, tzinfo=UTC)
CARDS = {
    name: Card(name, "", kind)  # type: ignore[arg-type]
    for name, kind in (("fulltext", "documents"), ("sql", "metadata"), ("vector", "documents"))
}


@dataclass(frozen=True)
class Ground:
    """What questions are read against, and how readings are compared with gold filters."""

    context: Context
    corpus: Corpus

    def read(self, text: str, history: list[dict[str, str]] | None = None) -> RulesReading:
        turns = [Message.model_validate(turn) for turn in history or []]
        return rules.read_rules(text, turns, self.context)

    def same(self, gold: dict[str, Any] | None, reading: RulesReading) -> bool:
        return self.corpus.exact(self.corpus.read(gold), self.corpus.read(reading.filter)) == 1.0


@cache
def _ground(domain: str) -> Ground:
    """The catalogue of an invented domain."""
    given = json.loads((DATA / f"{domain}.catalogue.json").read_text(encoding="utf-8"))
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
    context = Context(catalogue, rules.nouns_of(given["nouns"]), CARDS, Calendar(date(2026, 11, 20)), NOW)
    return Ground(context, Corpus(known, {}, whole))


@cache
def _ground_of_corpus(path: Path) -> Ground:
    """The catalogue of documents in a file, as ingesting them would make it."""
    documents = [one for one in read([path]) if isinstance(one, Document)]
    corpus = corpus_of(documents)
    fields: dict[str, FieldValues] = {}
    for name in [name for name in corpus.fields if name not in ("id", "title")]:
        field = corpus.fields[name]
        held = [one[name] for one in corpus.documents.values() if one.get(name) is not None]
        every = [item for value in held for item in (value if isinstance(value, list) else [value])]
        if every and field.item in ("number", "date"):
            fields[name] = FieldValues(field, {}, len(set(every)), len(held), min(every), max(every), {})
        elif every:
            counts = Counter(str(item).lower() if isinstance(item, bool) else item for item in every)
            fields[name] = FieldValues(field, dict(counts.most_common(1000)), len(counts), len(held), None, None, {})
    catalogue = FieldCatalogue(((1, 1),), len(corpus.documents), fields)
    context = Context(catalogue, rules.nouns_of([path.parent.name]), CARDS, Calendar(date(2026, 11, 20)), NOW)
    return Ground(context, corpus)


@pytest.fixture
def ground(shared_data: Callable[[str], Path]) -> Callable[[str], Ground]:
    """Makes the ground of an invented domain, "city", "food" or "hospital", or of the "peps" of the shared data."""
    return lambda domain: (
        _ground_of_corpus(shared_data("peps") / "corpus.jsonl") if domain == "peps" else _ground(domain)
    )


@pytest.fixture
def questions() -> Callable[[str], list[dict[str, Any]]]:
    """Reads the questions of a file of the data."""

    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]

    return read


@pytest.fixture
def routed() -> Callable[[dict[str, Any], RulesReading], bool]:
    """Says whether the right sources were chosen."""

    def judge(question: dict[str, Any], reading: RulesReading) -> bool:
        chosen = ["none"] if reading.kind == "none" else [choice.name for choice in reading.sources]
        return route_accuracy(question["sources"], chosen) == 1.0

    return judge
