"""Question sets for the rules, without a database: catalogues from JSON, readings compared by meaning."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent.intent import rules_reader
from agent.intent.deciding.decision_trees import TreeEnsemble
from agent.intent.rules_reader import ReadingContext, RulesReading
from agent.types import Message
from evals import reading_data
from evals.filter_equality import FilterCorpus
from evals.metrics import route_accuracy
from retrievers.core.types import Card

DATA = Path(__file__).with_name("intent_data")
NOW = datetime(2026, 11, 20, tzinfo=UTC)
CARDS = {
    name: Card(name, "", kind)  # type: ignore[arg-type]
    for name, kind in (("fulltext", "documents"), ("sql", "metadata"), ("vector", "documents"))
}


@dataclass(frozen=True)
class Ground:
    """The catalogue that questions are read against, and the comparison of readings with gold filters."""

    known: reading_data.ReadingData
    context: ReadingContext

    @property
    def corpus(self) -> FilterCorpus:
        return self.known.corpus

    def read(self, text: str, history: list[dict[str, str]] | None = None) -> RulesReading:
        turns = [Message.model_validate(turn) for turn in history or []]
        said = " ".join([text, *(turn.content for turn in turns)])
        context = replace(self.context, frequencies=self.known.context(said, NOW).frequencies)
        return rules_reader.read_by_rules(text, turns, context)

    def same(self, gold: dict[str, Any] | None, reading: RulesReading) -> bool:
        return self.corpus.exact(self.corpus.read(gold), self.corpus.read(reading.filter)) == 1.0


@cache
def _ground(path: Path) -> Ground:
    """Load the catalogue of an invented domain (.json) or of documents in a file, once per path."""
    known = (reading_data.catalogue_reading_data if path.suffix == ".json" else reading_data.corpus_reading_data)(path)
    return Ground(known, known.context("", NOW))


@pytest.fixture
def ground(shared_data: Callable[[str], Path]) -> Callable[[str], Ground]:
    """Returns the ground of an invented domain, "city", "food" or "hospital", or of the "peps" of the shared data."""
    return lambda domain: _ground(
        shared_data("peps") / "corpus.jsonl" if domain == "peps" else DATA / f"{domain}.catalogue.json"
    )


@pytest.fixture
def questions() -> Callable[[str], list[dict[str, Any]]]:
    """Reads the questions of a data file."""

    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]

    return read


@pytest.fixture
def routed() -> Callable[[dict[str, Any], RulesReading], bool]:
    """Returns whether the reading chose the right sources."""

    def judge(question: dict[str, Any], reading: RulesReading) -> bool:
        chosen = ["none"] if reading.kind == "none" else [choice.name for choice in reading.sources]
        return route_accuracy(question["sources"], chosen) == 1.0

    return judge


@pytest.fixture
def sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every named value as a sure condition, so that a test covers the calculation, not the learned weights."""
    monkeypatch.setattr(TreeEnsemble, "probability", lambda self, held: 0.97)
