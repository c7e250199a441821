"""Questions drafted by a model from documents, each checked against the document before a person sees it."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel

import prompts
from agent.answering import text_features
from agent.llm.model import Model, ModelFailed
from agent.service.service import Service
from evals.corpus import Note
from evals.datasets import LabelledQuestion
from evals.review import CandidateQuestion, folded, question_id
from evals.sampling import DrawnDocument, DrawOptions, draw_documents
from retrievers.core.errors import BadRequest
from retrievers.core.filters import matches_filter, parse_filter
from retrievers.core.metadata import RESERVED, Field
from retrievers.postgres.catalogue.value_merging import filterable_fields
from retrievers.text.languages import detect_language

Json = dict[str, Any]

STAGE = "questions"
PER_DOCUMENT = 2
TIMEOUT_S = 120.0

_AT_ONCE = 4
_READ_CHARACTERS = 6000
_LONGEST_QUESTION = 500
_LONGEST_ANSWER = 500
_LINE_EVERY_S = 5.0
_OPERATORS = ("eq", "gte", "lt", "lte", "gt")


class DraftedCondition(BaseModel):
    """A condition that the question states."""

    field: str
    operator: str = "eq"
    value: str | float | bool


class DraftedQuestion(BaseModel):
    """A question with the passage of the document that answers it, word for word."""

    question: str
    answer: str
    conditions: list[DraftedCondition] = []


class DraftedQuestions(BaseModel):
    """The model's reply for one document."""

    questions: list[DraftedQuestion]


@dataclass(slots=True)
class DraftingResult:
    """The candidates, and how many drafts were dropped for which reason."""

    candidates: list[CandidateQuestion] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


async def draft_questions(
    service: Service, model: Model, collection: str, note: Note, wanted: DrawOptions
) -> DraftingResult:
    """Return drafted questions that passed the checks, not yet accepted.

    A draft passes if its answer is in the document, its filter is valid and allows the document, and all names in it
    occur in the document. At most `wanted.count` documents are sent to the model, each once.

    Raises:
        BadRequest: there is no such collection.
        ModelFailed: the model gave no usable reply for any of the first documents.
        Unavailable: the database cannot be reached.
    """
    scope = await service.catalogue.scope(wanted.viewer, collection)
    drafting = _Drafting(model, collection, filterable_fields(scope))
    last = time.monotonic()
    batch: list[DrawnDocument] = []
    asked = 0
    async for document in draw_documents(service, scope, wanted.seed):
        if not document.text.strip():
            continue
        batch.append(document)
        asked += 1
        if len(batch) == _AT_ONCE:
            await drafting.add(batch)
            batch = []
        if asked == wanted.count or len(drafting.found.candidates) >= wanted.count:
            break
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            note(f"{len(drafting.found.candidates):,} of {wanted.count:,} questions drafted")
    if batch and len(drafting.found.candidates) < wanted.count:
        await drafting.add(batch)
    del drafting.found.candidates[wanted.count :]
    return drafting.found


@dataclass(slots=True)
class _Drafting:
    model: Model
    collection: str
    fields: Mapping[str, Field]
    found: DraftingResult = field(default_factory=DraftingResult)
    _ids: set[str] = field(default_factory=set)
    _answered: bool = False

    async def add(self, documents: Sequence[DrawnDocument]) -> None:
        """Let the model draft questions for all these documents at once; add those that pass, in the documents' order.

        Raises:
            ModelFailed: the model has not answered for any document so far.
        """
        replies = await asyncio.gather(*map(self._ask, documents))
        failures = [one for one in replies if isinstance(one, ModelFailed)]
        self._answered |= len(failures) < len(replies)
        if not self._answered:
            raise failures[0]
        for document, reply in zip(documents, replies, strict=True):
            if isinstance(reply, ModelFailed):
                self.found.dropped["the model gave no usable reply"] += 1
                continue
            for drafted in reply.questions[:PER_DOCUMENT]:
                self._add(document, drafted)

    async def _ask(self, document: DrawnDocument) -> DraftedQuestions | ModelFailed:
        text, title = document.text[:_READ_CHARACTERS], document.title
        fields = self._fields_text(document)
        values = {
            "count": str(PER_DOCUMENT),
            "fields": fields or "none",
            "title": title or "untitled",
            "text": text,
            "fence": prompts.fence(fields, title, text),
        }
        key = {"document": document.id, "collection": self.collection, "count": PER_DOCUMENT}
        try:
            reply = await self.model.complete(
                prompts.packaged_templates().load(STAGE).messages(values),
                stage=STAGE,
                deadline=time.monotonic() + TIMEOUT_S,
                key=key,
                schema=DraftedQuestions,
            )
        except ModelFailed as error:
            return error
        if not isinstance(reply.parsed, DraftedQuestions):
            return ModelFailed("its reply holds no questions")
        return reply.parsed

    def _fields_text(self, document: DrawnDocument) -> str:
        """Return a line for each field of the document with its value."""
        held = {name: value for name, value in document.values.items() if name not in RESERVED and name in self.fields}
        return "\n".join(f"- {name} ({self.fields[name].type}): {value}" for name, value in sorted(held.items()))

    def _add(self, document: DrawnDocument, drafted: DraftedQuestion) -> None:
        """Add a draft to the candidates, or count why it was dropped."""
        text = " ".join(drafted.question.split())
        id = question_id(self.collection, text)
        try:
            wanted = self._wanted(drafted.conditions)
        except BadRequest:
            self.found.dropped["its filter does not fit the collection"] += 1
            return
        reason = _rejection_reason(document, text, drafted.answer)
        if (
            reason is None
            and wanted is not None
            and not matches_filter(parse_filter(wanted, self.fields), document.values)
        ):
            reason = "its filter excludes the document"
        if reason is None and id in self._ids:
            reason = "it was drafted before"
        if reason is not None:
            self.found.dropped[reason] += 1
            return
        self._ids.add(id)
        question = LabelledQuestion(
            id=id, text=text, language=detect_language(text), filter=wanted, relevant={document.id: 1}, klass="drafted",
            collection=self.collection,
        )  # fmt: skip
        shown = [{"document": document.id, "title": document.title}]
        origin = [{"document": document.id, "answer": " ".join(drafted.answer.split())}]
        self.found.candidates.append(CandidateQuestion(question, hits=shown, origin=origin))

    def _wanted(self, conditions: Sequence[DraftedCondition]) -> Json | None:
        """Return the filter of the conditions, checked against the fields; None without conditions.

        Raises:
            BadRequest: a field, operator or value is not valid.
        """
        if any(one.operator not in _OPERATORS for one in conditions):
            raise BadRequest("an operator is not valid")
        parts: list[Json] = [{"type": one.operator, "key": one.field, "value": one.value} for one in conditions]
        for part in parts:
            parse_filter(part, self.fields)
        return None if not parts else parts[0] if len(parts) == 1 else {"type": "and", "filters": parts}


def _rejection_reason(document: DrawnDocument, text: str, answer: str) -> str | None:
    """Return why a draft cannot be used; None if it can."""
    if not text or len(text) > _LONGEST_QUESTION:
        return "the question is empty or too long"
    if not answer.strip() or len(answer) > _LONGEST_ANSWER or folded(answer) not in folded(document.text):
        return "its answer is not in the document"
    stated = "\n".join(str(value) for value in document.values.values())
    if invented_names(text, f"{document.title}\n{document.text}\n{stated}"):
        return "it names what the document does not"
    return None


def invented_names(text: str, source: str) -> list[str]:
    """Return the stems of the names in a text that do not occur in the source, sorted; only Latin letters are read."""
    known = {word for one in text_features.extract_passage_features(source).sentences for word in one.words | one.names}
    names = text_features.extract_features(text).names - known
    return sorted(name for name in names if not any(map(partial(text_features.is_same_name, name), known)))
