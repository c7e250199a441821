"""Questions whose reading is judged: load them with their labels from a folder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from evals.datasets import QUERIES, lines
from retrievers.core.errors import BadRequest

Json = dict[str, Any]
Days = tuple[tuple[date | None, date | None], ...]
"""Runs of days as (first day, last day), both included; None for an open side."""

PHRASES, QUESTIONS = "phrases.jsonl", "questions.jsonl"
CALCULATED = "calculation"


@dataclass(frozen=True, slots=True)
class ReadingQuestion:
    """A question with its labels.

    Attributes:
        filters: right filters, any of which will do; None among them means no filter; empty if the filter is not
            judged.
        spans: (first day, day after the last), any of which will do; empty if periods are not judged.
        sources: right sets of sources, any of which will do; empty if sources are not judged.
        answer: values that the first rows of a calculated table must contain; None if nothing is to be calculated.
        private: whether no public source may be asked.
        periods: right readings to the day, any of which will do; a reading without runs means no period at all.
    """

    id: str
    text: str
    collection: str
    klass: str = ""
    history: tuple[Json, ...] = ()
    now: str | None = None
    filters: tuple[Json | None, ...] = ()
    spans: tuple[tuple[date, date], ...] = ()
    sources: tuple[frozenset[str], ...] = ()
    answer: tuple[str, ...] | None = None
    private: bool = False
    periods: tuple[Days, ...] = ()


def questions_of(folder: Path) -> Iterator[ReadingQuestion]:
    """Yield the questions of a folder in any of the forms that README.md names."""
    if (folder / PHRASES).is_file():
        yield from (_phrase(folder, line) for _, line in lines(folder / PHRASES))
    elif (folder / QUESTIONS).is_file():
        yield from (_of_tables(folder, line) for _, line in lines(folder / QUESTIONS))
    elif (folder / QUERIES).is_file():
        yield from (_labelled(folder, line) for _, line in lines(folder / QUERIES))
    else:
        raise BadRequest(f"{folder}: no {PHRASES}, {QUESTIONS} or {QUERIES}", where="dataset")


def _phrase(folder: Path, line: Mapping[str, Any]) -> ReadingQuestion:
    spans = tuple((date.fromisoformat(start), date.fromisoformat(end)) for start, end in line.get("spans", ()))
    periods = tuple(tuple((_day(low), _day(high)) for low, high in reading) for reading in line.get("periods", ()))
    return ReadingQuestion(
        line["id"], line["text"], folder.name, line["lang"], now=line["now"], spans=spans, periods=periods
    )


def _day(text: str | None) -> date | None:
    return date.fromisoformat(text) if text is not None else None


def _of_tables(folder: Path, line: Mapping[str, Any]) -> ReadingQuestion:
    if "table" in line:
        return ReadingQuestion(line["id"], line["text"], line["table"], CALCULATED, answer=tuple(line["answer"]))
    wanted = {"type": "in", "key": "source", "value": line["sources"]}
    return ReadingQuestion(line["id"], line["text"], folder.name, filters=(wanted,))


def _labelled(folder: Path, line: Mapping[str, Any]) -> ReadingQuestion:
    filters = line.get("filters", [line.get("filter")])
    sources = line.get("sources") or []
    if sources and isinstance(sources[0], str):
        sources = [sources]
    answer = line.get("answer")
    values = answer if isinstance(answer, list) else [answer]
    return ReadingQuestion(
        line["id"], line["text"], line.get("collection") or folder.name, line.get("class") or "",
        tuple(line.get("history") or ()),
        line.get("now"), tuple(filters), (), tuple(frozenset(one) for one in sources),
        tuple(str(one) for one in values) if answer is not None and not isinstance(answer, dict) else None,
        bool(line.get("private", frozenset(["web"]) not in map(frozenset, sources))),
    )  # fmt: skip
