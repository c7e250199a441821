"""Known-item questions without a model: each asks for one document by its title, its values or its rarest sentence.

The questions share words with their document, so they measure whether documents can be found and filters are read, not
whether paraphrases are understood.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.answering.sentences import sentence_spans, without_citations
from agent.service.service import Service
from evals.corpus import Note
from evals.datasets import LabelledQuestion
from evals.review import CandidateQuestion, question_id
from evals.sampling import DrawnDocument, DrawOptions, draw_documents
from retrievers.core.filters import matches_filter, parse_filter
from retrievers.core.metadata import RESERVED
from retrievers.core.types import FieldCatalogue, Scope
from retrievers.postgres.catalogue.value_merging import filterable_fields
from retrievers.text.analysis import analyse
from retrievers.text.chinese_dictionary import contains_chinese

Json = dict[str, Any]

_KINDS = ("title", "value", "sentence")
_SENTENCE_CHARACTERS = range(30, 220)
_CHINESE_CHARACTERS = range(12, 90)
_READ_CHARACTERS = 20_000
_LONGEST_TITLE = 200
_LONGEST_VALUE = 40
_MOST_CONDITIONS = 2
_SUBJECT_WORDS = 3
_LINE_EVERY_S = 5.0
_WORD = re.compile(r"[^\W\d_]{4,}")
_NUMBER = re.compile(r"[\d一二三四五六七八九十百千年月日周季]")
_YEAR = re.compile(r"(\d{4})-\d\d-\d\d")
_CLAUSE = re.compile(r"[，。；：、！？\s,.;:!?()（）]+")


async def known_items(service: Service, collection: str, note: Note, wanted: DrawOptions) -> list[CandidateQuestion]:
    """Return questions with labels that hold by construction, as accepted candidates.

    A question by values is labelled with the filter that it states; the filters of other questions are not judged. The
    kinds of questions take turns over randomly drawn documents. A document for which no question can be made is
    skipped.

    Raises:
        BadRequest: there is no such collection.
        Unavailable: the database cannot be reached.
    """
    scope = await service.catalogue.scope(wanted.viewer, collection)
    maker = _Maker(service, scope, collection, await service.catalogue.fields(scope))
    made: dict[str, CandidateQuestion] = {}
    last = time.monotonic()
    async for document in draw_documents(service, scope, wanted.seed):
        turn = len(made) % len(_KINDS)
        for kind in (*_KINDS[turn:], *_KINDS[:turn]):
            question = await maker.make(kind, document)
            if question is not None and question.id not in made:
                shown = [{"document": document.id, "title": document.title}]
                made[question.id] = CandidateQuestion(
                    question, accept=True, hits=shown, origin=[{"document": document.id}]
                )
                break
        if len(made) >= wanted.count:
            break
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            note(f"{len(made):,} of {wanted.count:,} questions made")
    return list(made.values())


@dataclass(frozen=True, slots=True)
class _Maker:
    service: Service
    scope: Scope
    collection: str
    catalogue: FieldCatalogue

    async def make(self, kind: str, document: DrawnDocument) -> LabelledQuestion | None:
        """Return a question of this kind; None if the document allows none."""
        wanted: Json | None = None
        if kind == "title":
            text: str | None = " ".join(document.title.split()) if document.is_alone else None
            text = text if text is not None and len(text) <= _LONGEST_TITLE else None
        elif kind == "sentence":
            text = await self._rarest_sentence(document)
        else:
            text, wanted = await self._by_values(document)
        if not text:
            return None
        return LabelledQuestion(
            id=question_id(self.collection, text),
            text=text,
            language=document.language,
            filter=wanted,
            judges_filter=wanted is not None,
            relevant={document.id: 1},
            klass=kind,
            collection=self.collection,
        )

    async def _rarest_sentence(self, document: DrawnDocument) -> str | None:
        """Return the sentence whose words occur in the fewest passages; None without sentences of a fitting length."""
        found = list(_sentences(document.text))
        counts = await self._counts(document, found)
        rarity = [(_mean_rarity(counts, one, document.language), -place) for place, one in enumerate(found)]
        return found[-max(rarity)[1]] if rarity else None

    async def _by_values(self, document: DrawnDocument) -> tuple[str | None, Json | None]:
        """Return (question that states values of the document, its filter); (None, None) if there are none to state."""
        conditions = list(self._conditions(document))[:_MOST_CONDITIONS]
        subject = await self._subject(document)
        if not conditions or subject is None:
            return None, None
        parts = [filter for _, filter in conditions]
        wanted: Json = parts[0] if len(parts) == 1 else {"type": "and", "filters": parts}
        assert matches_filter(parse_filter(wanted, filterable_fields(self.scope)), document.values)
        chinese = contains_chinese(subject)
        stated = ("、" if chinese else " and ").join(words(chinese) for words, _ in conditions)
        text = f"{stated}的文档，关于{subject}" if chinese else f"documents with {stated} about {subject}"
        return text, wanted

    def _conditions(self, document: DrawnDocument) -> Iterator[tuple[Callable[[bool], str], Json]]:
        """Yield conditions on values that several but not most documents have, in a random order fixed by the id.

        Each is a function that returns its words, in Chinese if its argument is True, and the filter. Conditions on
        lists come last, because lists mostly contain topics, and a topic in a question need not be a condition.
        """
        found: list[tuple[bool, bytes, Callable[[bool], str], Json]] = []
        for name, one in self.catalogue.fields.items():
            held = document.values.get(name)
            if name in RESERVED or held in (None, []):
                continue
            values = held if isinstance(held, list) else [held]
            label = name.replace("_", " ").replace(".", " ")
            place = isinstance(held, list), hashlib.sha256(f"{document.id}\n{name}".encode()).digest()
            if one.field.item == "string":
                counted = [(one.values.get(str(value), 0), str(value)) for value in values]
                usual = [pair for pair in counted if 2 <= pair[0] <= self.catalogue.documents / 2]
                if usual and len(value := min(usual)[1]) <= _LONGEST_VALUE:
                    words = _stating(label, value)
                    found.append((*place, words, {"type": "eq", "key": name, "value": value}))
            elif one.field.item == "date" and (year := _YEAR.match(str(values[0]))) and not isinstance(held, list):
                bounds = [{"type": "gte", "key": name, "value": f"{year[1]}-01-01"},
                          {"type": "lt", "key": name, "value": f"{int(year[1]) + 1:04}-01-01"}]  # fmt: skip
                found.append((*place, _dated(label, year[1]), {"type": "and", "filters": bounds}))
        for _, _, words, wanted in sorted(found, key=lambda one: one[:2]):
            yield words, wanted

    async def _subject(self, document: DrawnDocument) -> str | None:
        """Return the document's rarest words, or its rarest clause in Chinese, without values of fields; else None."""
        known = {word for one in self.catalogue.fields.values() for value in one.values for word in _words(value)}
        text = f"{document.title}\n{document.text[:_READ_CHARACTERS]}"
        if contains_chinese(text):
            clauses = [one for one in _CLAUSE.split(text) if 4 <= len(one) <= 20 and contains_chinese(one)]
            plain = [one for one in clauses if not _NUMBER.search(one) and not any(name in one for name in known)]
            return await self._rarest(document, plain)
        words = [one for one in dict.fromkeys(_WORD.findall(text)) if one.casefold() not in known]
        counts = await self._counts(document, words)
        rarest = sorted(words, key=lambda one: (_mean_rarity(counts, one, document.language), one), reverse=True)
        chosen = set(rarest[:_SUBJECT_WORDS])
        return " ".join(one for one in words if one in chosen) or None

    async def _rarest(self, document: DrawnDocument, texts: Sequence[str]) -> str | None:
        counts = await self._counts(document, texts)
        return max(texts, key=lambda one: (_mean_rarity(counts, one, document.language), one), default=None)

    async def _counts(self, document: DrawnDocument, texts: Sequence[str]) -> Mapping[str, int]:
        """Return the number of passages that contain each term of the texts."""
        terms = {term.text for text in texts for term in analyse(text, document.language)}
        total: dict[str, int] = {}
        for counts in (await self.service.catalogue.term_counts(self.scope, terms)).values():
            for term, count in counts.items():
                total[term] = total.get(term, 0) + count
        return total


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text that are neither short nor long, as one line each."""
    head = text[:_READ_CHARACTERS]
    for span in sentence_spans(head):
        sentence = " ".join(without_citations(head[span.start : span.end]).split())
        allowed = _CHINESE_CHARACTERS if contains_chinese(sentence) else _SENTENCE_CHARACTERS
        if not span.heading and len(sentence) in allowed and not sentence.startswith("|"):
            yield sentence


def _mean_rarity(counts: Mapping[str, int], text: str, language: str) -> float:
    """Return the mean of 1 / passages over the terms of a text; 0 without terms."""
    terms = [term.text for term in analyse(text, language) if not term.derived]
    return sum(1 / max(counts.get(term, 1), 1) for term in terms) / len(terms) if terms else 0.0


def _words(value: str) -> list[str]:
    return [value.casefold()] if contains_chinese(value) else [one.casefold() for one in _WORD.findall(value)]


def _stating(label: str, value: str) -> Callable[[bool], str]:
    return lambda chinese: f"{label}为{value}" if chinese else f"{label} {value}"


def _dated(label: str, year: str) -> Callable[[bool], str]:
    return lambda chinese: f"{label}在{year}年" if chinese else f"{label} in {year}"
