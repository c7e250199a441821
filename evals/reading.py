"""Judge what the rules read from questions, by collection: filters, periods, sources, values, and privacy."""

import json
import operator
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.types import Result
from evals import metrics
from evals.corpus import TENANT, Note, store_corpus
from evals.datasets import CORPUS, Dataset, read_text
from evals.filter_equality import FilterCorpus, corpus_of
from evals.reading_questions import CALCULATED, Days, ReadingQuestion, questions_of
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import And, Filter, Or, matches_filter
from retrievers.core.types import Scope
from retrievers.ingest.documents import Document
from retrievers.ingest.readers.file_input import read_paths
from retrievers.postgres.catalogue.catalogue import filterable_fields

Json = dict[str, Any]
_WITHOUT_FILTER = frozenset([CALCULATED, "analytic"])
"""Classes whose questions are judged by their calculated value, not by their filter."""
_FIRST_ROWS = 10
_CLOSE = 0.01
"""Maximum relative error of a calculated number that counts as right."""
_COMPARED = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
_NUMBER = re.compile(r"[^\d.-]{0,5}(?P<number>-?\d[\d,]*(?:\.\d+)?)\s*[^\d]{0,5}")
_BINS = 10
_AROUND_DAYS = 800
"""Number of days that are tried before and after a period."""


@dataclass(slots=True)
class ReadingTally:
    """The outcomes of one collection's questions.

    Attributes:
        counts: number of questions by outcome, such as "filter right".
        stated: (probability, whether it is right) of each condition that was read.
    """

    counts: Counter[str] = field(default_factory=Counter)
    stated: list[tuple[float, bool]] = field(default_factory=list)

    def figures(self) -> dict[str, float | int | None]:
        """Return shares in [0, 1] with the counts they refer to; a share is None if nothing was judged.

        "left the house" is the number of private questions that chose the source "web"; "world to the web" is the share
        of the questions labelled for the web that chose it.
        """
        c = self.counts
        stated = c["filter right"] + c["filter wrong"] + c["filter partial"] + c["filter missing"]
        periods = c["period right"] + c["period wrong"] + c["period unread"]
        calculated = c["value right"] + c["value wrong"]
        values = calculated + c["value none"]
        return {
            "stated": stated,
            "right": _share(c["filter right"], stated),
            "wrong": _share(c["filter wrong"], stated),
            "partial": _share(c["filter partial"], stated),
            "missing": _share(c["filter missing"], stated),
            "none invented": _share(c["filter none"], c["filter none"] + c["filter invented"]),
            "sources": _share(c["sources right"], c["sources right"] + c["sources wrong"]),
            "values": values,
            "right of calculated": _share(c["value right"], calculated),
            "right of all values": _share(c["value right"], values),
            "periods": periods,
            "period right": _share(c["period right"], periods),
            "period wrong": _share(c["period wrong"], periods),
            "left the house": c["left the house"],
            "world to the web": _share(c["world right"], c["world right"] + c["world wrong"]),
            "calibration error": calibration_error(self.stated),
        }


async def measure(folders: Sequence[Path], settings: Settings, note: Note) -> Json:
    """Ask the questions of every folder and judge the readings.

    Returns:
        `collections`: the figures of each folder; `all`: those of all folders together; `readings`: the reading of each
            question with its outcomes, by "folder/id".
    Raises:
        BadRequest: a folder has none of the known forms, or a line is malformed.
    """
    tallies: dict[str, ReadingTally] = {}
    readings: dict[str, Json] = {}
    async with open_service(settings.model_copy(update={"chat_days": 0})) as service:
        for folder in (one for one in folders if not one.is_file()):  # a shell pattern also matches the README
            tally = tallies.setdefault(folder.name, ReadingTally())
            async for asked, made in _readings(service, folder, note):
                readings[f"{folder.name}/{asked.id}"] = made
                tally.counts.update(made["outcomes"])
                tally.stated += [(one["probability"], one["right"]) for one in made["stated"] if "right" in one]
    every = ReadingTally()
    for tally in tallies.values():
        every.counts += tally.counts
        every.stated += tally.stated
    figures = {name: tally.figures() for name, tally in tallies.items()}
    return {"collections": figures, "all": every.figures(), "readings": readings}


async def _readings(service: Service, folder: Path, note: Note) -> Any:
    """Yield (question, judged reading) for every question of a folder."""
    corpora: dict[str, FilterCorpus] = {}
    for asked in questions_of(folder):
        if asked.collection not in corpora:
            corpora[asked.collection] = await _stored(service, folder, asked.collection, note)
        yield asked, await _read(service, asked, corpora[asked.collection])


async def _stored(service: Service, folder: Path, collection: str, note: Note) -> FilterCorpus:
    """Store the documents of a collection under its name; return their filterable values."""
    places = (folder / f"{collection}.jsonl", folder.parent / collection / CORPUS, folder / CORPUS)
    file = next((place for place in places if place.is_file()), places[-1])
    stored = await store_corpus(service, Dataset(collection, folder, "routed", "all", (file,), ()), note)
    fields = filterable_fields(Scope(TENANT, (stored,)))
    return corpus_of((item for item in read_paths((file,)) if isinstance(item, Document)), fields)


async def _read(service: Service, asked: ReadingQuestion, corpus: FilterCorpus) -> Json:
    request: Json = {"collection": asked.collection, "top_k": 1, "now": asked.now, "explain": True}
    if asked.history:
        request["messages"] = [*asked.history, {"role": "user", "content": asked.text}]
    else:
        request["query"] = asked.text
    try:
        result = await service.retrieve(tenant=TENANT, **request)
    except (BadRequest, Unavailable) as error:
        return {"text": asked.text, "error": str(error), "outcomes": ["error"], "stated": []}
    return {
        "text": asked.text,
        "kind": result.intent.kind,
        "filter": result.intent.filter,
        "soft_filter": result.intent.soft_filter,
        "sources": sorted(_sources(result)),
        "aggregate": result.intent.aggregate,
        "rows": [[str(cell) for cell in row] for row in result.table.rows[:_FIRST_ROWS]] if result.table else None,
        "rejected": [one.what for one in result.intent.rejected],
        "stated": list(_stated(asked, result, corpus)),
        "outcomes": list(_outcomes(asked, result, corpus)),
    }


def _outcomes(asked: ReadingQuestion, result: Result, corpus: FilterCorpus) -> Iterator[str]:
    found = corpus.read(result.intent.filter)
    sources = _sources(result)
    if asked.spans:
        yield f"period {_span_verdict(asked.spans, found, corpus)}"
    if asked.periods:
        yield f"period {period_verdict(asked.periods, found, corpus)}"
    if asked.filters and asked.klass not in _WITHOUT_FILTER:
        yield f"filter {filter_verdict([_gold(one, corpus) for one in asked.filters], found, corpus)}"
    if asked.sources:
        right = any(metrics.route_accuracy(sorted(one), sources) for one in asked.sources)
        yield f"sources {'right' if right else 'wrong'}"
    if asked.answer is not None:
        rows = result.table.rows[:_FIRST_ROWS] if result.table else None
        yield f"value {'none' if rows is None else 'right' if contains_answer(rows, asked.answer) else 'wrong'}"
    if asked.private and "web" in sources:
        yield "left the house"
    if frozenset(["web"]) in asked.sources:
        yield f"world {'right' if 'web' in sources else 'wrong'}"


def filter_verdict(golds: Sequence[Filter | None], found: Filter | None, corpus: FilterCorpus) -> str:
    """Return the verdict on a filter.

    It is "right" if the filter equals a gold filter, "none" if there rightly is none, "invented" if there should be
    none, "missing" if there is none but should be, "partial" if it allows all documents of a gold filter and others,
    otherwise "wrong".

    Args:
        golds: the gold filters, any of which is right; None means no filter.
        found: the filter that was read.
    """
    if any(corpus.exact(gold, found) for gold in golds):
        return "none" if found is None else "right"
    if None in golds:
        return "invented"
    if found is None:
        return "missing"
    return "partial" if any(corpus.allowed(gold) <= corpus.allowed(found) for gold in golds) else "wrong"


def _span_verdict(spans: Sequence[tuple[date, date]], found: Filter | None, corpus: FilterCorpus) -> str:
    if found is None:
        return "unread"
    key = _date_field(corpus)
    for start, end in spans:
        days = [start + timedelta(days=n) for n in range(-_AROUND_DAYS, (end - start).days + _AROUND_DAYS)]
        let = [day for day in days if matches_filter(found, {key: day.isoformat()})]
        if any(let == [day for day in days if start <= day < last] for last in _ends(end)):
            return "right"
    return "wrong"


def period_verdict(readings: Sequence[Days], found: Filter | None, corpus: FilterCorpus) -> str:
    """Return "right" if the filter allows exactly the days of a right reading, otherwise "wrong".

    Without a filter it is "right" if a right reading has no days, otherwise "unread".
    """
    if found is None:
        return "right" if () in readings else "unread"
    key = _date_field(corpus)
    bounds = [day for reading in readings for run in reading for day in run if day is not None]
    if not bounds:
        return "wrong"
    first, last = min(bounds) - timedelta(days=_AROUND_DAYS), max(bounds) + timedelta(days=_AROUND_DAYS)
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    let = [matches_filter(found, {key: day.isoformat()}) for day in days]
    is_right = any(reading and let == [_contains_day(reading, day) for day in days] for reading in readings)
    return "right" if is_right else "wrong"


def _contains_day(reading: Days, day: date) -> bool:
    return any((low is None or low <= day) and (high is None or day <= high) for low, high in reading)


def _date_field(corpus: FilterCorpus) -> str:
    """Return the collection's first date field other than `updated_at`; "" if none."""
    return next((name for name, one in corpus.fields.items() if one.type == "date" and one.name != "updated_at"), "")


def _ends(end: date) -> Iterator[date]:
    """Yield the accepted ends of a span: its end, and a day, a month and a year later.

    A phrase such as "until May" may include the day, month or year that it names.
    """
    month = date(end.year + end.month // 12, end.month % 12 + 1, min(end.day, 28))
    yield from (end, end + timedelta(days=1), month, end.replace(year=end.year + 1, day=min(end.day, 28)))


def _gold(wanted: Json | None, corpus: FilterCorpus) -> Filter | None:
    """Parse a gold filter; None for None.

    The value null stands for documents without a value. If a text field is compared with a number, the condition
    becomes an "in" with the texts of the collection that satisfy it: cost > 5 -> cost in ["$6", "EUR 7"].
    """
    return corpus.read(_expressed(wanted, corpus) if wanted is not None else None)


def _expressed(wanted: Json, corpus: FilterCorpus) -> Json:
    if "filters" in wanted:
        return {**wanted, "filters": [_expressed(one, corpus) for one in wanted["filters"]]}
    if "filter" in wanted:
        return {**wanted, "filter": _expressed(wanted["filter"], corpus)}
    key, value = wanted["key"], wanted["value"]
    if value is None:
        return {"type": "exists", "key": key, "value": wanted["type"] == "ne"}
    if wanted["type"] not in _COMPARED or isinstance(value, str) or corpus.fields[key].item != "string":
        return wanted
    satisfies = _COMPARED[wanted["type"]]
    texts = {held for values in corpus.documents.values() if isinstance(held := values.get(key), str)}
    right = [text for text in texts if (number := _number(text)) is not None and satisfies(number, value)]
    return {"type": "in", "key": key, "value": sorted(right)}


def _stated(asked: ReadingQuestion, result: Result, corpus: FilterCorpus) -> Iterator[Json]:
    """Yield each condition that was read, its probability, and whether a right filter has it."""
    trace = result.explanation or {}
    golds = [part for one in asked.filters for part in corpus.parts(_gold(one, corpus))]
    for one in trace.get("stated", ()):
        read: Json = {"filter": one["filter"], "probability": one["confidence"]}
        if asked.filters and asked.klass not in _WITHOUT_FILTER:
            read["right"] = is_stated(corpus.read(one["filter"]), golds, corpus)
        yield read


def is_stated(condition: Filter | None, golds: Collection[Hashable], corpus: FilterCorpus) -> bool:
    """Return whether the right filters contain a condition: of an "and" all conditions, of an "or" at least one.

    Args:
        golds: the normal forms of the right filters and of their conditions, see `FilterCorpus.parts`.
    """
    if corpus.normal(condition) in golds:
        return True
    match condition:
        case And(parts):
            return all(is_stated(one, golds, corpus) for one in parts)
        case Or(parts):
            return any(is_stated(one, golds, corpus) for one in parts)
    return False


def _sources(result: Result) -> set[str]:
    if result.intent.kind == "none":
        return {"none"}
    return {choice.name for choice in result.intent.sources}


def contains_answer(rows: Sequence[Sequence[Any]], answer: Sequence[str]) -> bool:
    """Return whether the rows contain every value of an answer.

    Numbers may differ by 1 %; of texts only letters and digits are compared, whatever the case.
    """
    cells = [cell for row in rows for cell in row]
    return all(any(_same(cell, one) for cell in cells) for one in answer)


def _same(cell: Any, wanted: str) -> bool:
    given, right = _number(str(cell)), _number(wanted)
    if given is not None and right is not None:
        return abs(given - right) <= _CLOSE * abs(right) + 1e-9
    return _letters(str(cell)) == _letters(wanted)


def _number(text: str) -> float | None:
    """Return the number in a cell such as "1,200", "$3.5", "EUR 20", "12 %"; None for other texts."""
    found = _NUMBER.fullmatch(text.strip())
    return float(found["number"].replace(",", "")) if found else None


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


def calibration_error(stated: Iterable[tuple[float, bool]]) -> float | None:
    """Return the expected calibration error over ten bins of equal width; None without conditions."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for probability, right in stated:
        bins.setdefault(min(int(probability * _BINS), _BINS - 1), []).append((probability, right))
    count = sum(map(len, bins.values()))
    if not count:
        return None
    return round(sum(abs(sum(p for p, _ in one) - sum(right for _, right in one)) for one in bins.values()) / count, 4)


def changed_outcomes(before: Json, now: Json) -> list[str]:
    """Return a line for every question whose outcomes differ from those of an earlier measurement."""
    texts = []
    for id, now_read in now["readings"].items():
        was = before["readings"].get(id)
        if was is not None and was["outcomes"] != now_read["outcomes"]:
            change = f"{', '.join(was['outcomes'])} -> {', '.join(now_read['outcomes'])}"
            texts.append(f"{id}: {change}: {now_read['text']}")
    return texts


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def load_measurement(path: Path) -> Json:
    """Return an earlier measurement from the file that `signalbox eval reading --out` wrote.

    Raises:
        BadRequest: the file cannot be read, or is no such measurement.
    """
    text = read_text(path)
    try:
        measured: Json = json.loads(text)
        measured["readings"].items()
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise BadRequest(f"{path}: this is not a file of `signalbox eval reading --out`", where="against") from None
    return measured
