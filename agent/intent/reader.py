"""Read a question in a cascade: rules first, similarity to the sources' examples next, and a model where it helps.

The rules' reading is ready in milliseconds and its searches start at once. The model's reading is added when it
arrives. The model is not called where it could add nothing (see `RulesReading.complete`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from agent.intent import rules_reader, transform
from agent.intent.caller_limits import IntentBuilder, ignored_conditions
from agent.intent.language.text import chinese_pairs, readable, tokenize
from agent.intent.model import request as model_step
from agent.intent.model import sql_generation
from agent.intent.reading import Reading, TransformOutcome, question_language
from agent.intent.rules_reader import ReadingContext, RulesReading
from agent.intent.sources import WEB
from agent.intent.time.periods import Calendar
from agent.intent.transform.base import TransformInput as Transformable
from agent.intent.turn import outside_sources
from agent.intent.value_guard import ValueGuard
from agent.intent.values import vocabulary
from agent.intent.values.inferred_words import document_nouns_of
from agent.intent.values.vocabulary import Vocabulary
from agent.llm.call_log import CallLog
from agent.llm.model import Model, ModelFailed
from agent.options import deadline_shares
from agent.settings import Settings
from agent.types import Intent, Message, Request, SourceChoice
from prompts import TemplateLibrary, packaged_templates
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Card, FieldCatalogue, Scope
from retrievers.embed import Embedder
from retrievers.postgres.catalogue.catalogue import Catalogue, filterable_fields
from retrievers.text import chinese_dictionary
from retrievers.text.analysis import analyse
from retrievers.text.document_ids import candidate_chunk_ids, sole_id

T = TypeVar("T")
ViewColumns = Callable[[Scope], Awaitable[Mapping[str, str]]]

_LONG = 250
"""Minimum characters of a question that is read in a thread, because reading it may take tens of milliseconds."""
_MANY_VALUES = 300
"""Maximum number of values whose names are collected on the event loop; 2,000 take 0.2 s."""
_PRELOAD_AFTER_S = 0.5
"""Seconds after a question before the dictionary is preloaded; by then a one-question process has ended."""
_LONGEST_SPAN = 4
_MOST_SPANS = 400
_MOST_WORDS = 80
"""Maximum number of words for which passage counts are looked up."""
_MOST_COLLECTIONS = 40
"""Maximum number of collections that are described to the model."""
# Share of the configured timeout after which a silent model counts as failed. It is measured against the setting, not
# against the caller's own timeout, because all requests share the breaker.
_PATIENCE = 0.6
_TRANSFORMS_S = 5.0

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())
# Without a handler, Python would print these lines to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class CascadeReader:
    """Reads the question of a request by rules, and by a model where these are not enough. See `IntentReader`.

    Args:
        cards: cards of the available sources.
        model: called when the rules are not enough. None: rules only.
        columns: returns name and type of each column of the metadata view in a scope. None: no source runs SQL.
        withheld: sources that the tenant may not use: they are not in `cards`, and no reading may choose them.
        templates: prompt templates of all tenants.
        collecting: running tasks that build the vocabulary of a catalogue, by the id of the object.
    """

    settings: Settings
    catalogue: Catalogue
    cards: Mapping[str, Card]
    embedder: Embedder
    model: Model | None = None
    columns: ViewColumns | None = None
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    withheld: frozenset[str] = frozenset()
    templates: TemplateLibrary = field(default_factory=packaged_templates)
    collecting: dict[int, "asyncio.Task[Vocabulary]"] = field(default_factory=dict)

    def with_sources(self, cards: Mapping[str, Card], withheld: frozenset[str] = frozenset()) -> "CascadeReader":
        """See `IntentReader.with_sources`."""
        return replace(self, cards=cards, withheld=self.withheld | withheld)

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """See `IntentReader.read`."""
        mode = request.intent or self.settings.intent
        if mode == "llm" and self.model is None:
            raise BadRequest('intent "llm" needs a model: set LLM', where="intent", valid=("auto", "rules", "off"))
        question, history = request.question, request.history
        language = question_language(question, scope)

        async def read(context: ReadingContext) -> RulesReading:
            values = sum(len(one.values) for one in context.catalogue.fields.values())
            if values > _MANY_VALUES:
                await self._collect_names(context.catalogue)
            is_slow = bool(history) or len(question) > _LONG or values > _MANY_VALUES
            if is_slow or not chinese_dictionary.is_dictionary_loaded():
                # Each of these may block the event loop for too long: a conversation has several turns, the names of
                # many values are collected anew after each change, and Chinese field names may load the dictionary.
                made = await asyncio.to_thread(rules_reader.read_by_rules, question, history, context)
                asyncio.get_running_loop().call_later(_PRELOAD_AFTER_S, chinese_dictionary.preload_dictionary)
            else:
                made = rules_reader.read_by_rules(question, history, context)
            if not history and await self._names_a_document(question, scope, wanted, deadline):
                return rules_reader.document_id_reading(made, context)
            made = await outside_sources.choose_outside_source(
                made, scope, self.catalogue, self.cards, self.embedder, language
            )
            return replace(made, sources=tuple(one for one in made.sources if one.name not in self.withheld))

        context = await self._context(question, request, scope, deadline)
        made = await read(context)
        guard = ValueGuard(self.catalogue, scope, wanted, deadline) if wanted is not None else None
        if guard is not None:
            made = await guard.check_rules_reading(made, history, context, read)
        fields = filterable_fields(scope)
        ignored = frozenset(ignored_conditions(request, fields))
        builder = IntentBuilder(request, scope, wanted, fields, self.cards, ignored, self.withheld)
        is_long = len(question) > _LONG  # glossing its Chinese words would block the event loop too long
        reading = await asyncio.to_thread(builder.from_rules, made) if is_long else builder.from_rules(made)
        searched = reading.first.kind == "retrieve"
        # Listed as skipped until the transformers have run.
        transforms = TransformOutcome(degraded=transform.skipped_notes(self.settings.transforms) if searched else ())
        reading = replace(reading, transforms=transforms)
        if self.model is None or mode == "rules" or (made.complete and mode != "llm"):
            return reading
        calls = CallLog()
        later = self._read_by_model(
            calls.logged_model(self.model), builder, context, history, made, deadline, guard, transforms
        )
        return replace(reading, later=later, calls=calls)

    async def _collect_names(self, catalogue: FieldCatalogue) -> None:
        """Build a catalogue's vocabulary, so that it is in the cache of `build_vocabulary`; this may take seconds.

        One thread builds it for all requests that wait. If each used its own thread, none would be left for other work.
        """
        key = id(catalogue)  # the task keeps the catalogue, so no other has this id
        if key not in self.collecting:
            self.collecting[key] = asyncio.create_task(asyncio.to_thread(vocabulary.build_vocabulary, catalogue))
            self.collecting[key].add_done_callback(lambda _: self.collecting.pop(key))
        await asyncio.shield(self.collecting[key])

    async def _names_a_document(self, question: str, scope: Scope, wanted: Filter | None, deadline: float) -> bool:
        """Return whether a question is only the id of a document that meets the caller's filter `wanted`."""
        word = sole_id(question)
        ids = candidate_chunk_ids([word], scope.collections) if word else []
        return bool(ids and await _in_time(self.catalogue.load(scope, ids, wanted), {}, deadline))

    async def _context(self, question: str, request: Request, scope: Scope, deadline: float) -> ReadingContext:
        fields = await self.catalogue.fields(scope)
        now = local(request.now, self.settings.zone)
        calendar = Calendar(now.date(), self.settings.week_start, self.settings.fiscal_year_start)
        more: Sequence[tuple[str, str, int]] = ()
        if any(one.distinct > len(one.values) and one.field.item == "string" for one in fields.fields.values()):
            more = await self.catalogue.find_values(scope, _spans(question, request))
        called = await _in_time(self.catalogue.document_nouns(scope), (), deadline)
        nouns = document_nouns_of(called, fields)
        frequencies = await _in_time(self._frequencies(question, request, scope), {}, deadline)
        return ReadingContext(fields, nouns, self.cards, calendar, now, more, frequencies)

    async def _frequencies(self, question: str, request: Request, scope: Scope) -> Mapping[str, float]:
        """Map each word of the question and of the last three turns to the share of passages that contain it."""
        terms = terms_of((question, *(turn.content for turn in (request.messages or ())[-3:])))
        counts = await self.catalogue.term_counts(scope, list(terms.values()))
        chunks = max(sum(one.chunks for one in scope.collections), 1)
        return {word: sum(known.get(term, 0) for known in counts.values()) / chunks for word, term in terms.items()}

    def _read_by_model(
        self,
        model: Model,
        builder: IntentBuilder,
        context: ReadingContext,
        history: Sequence[Message],
        ruled: RulesReading,
        deadline: float,
        guard: ValueGuard | None,
        transforms: TransformOutcome,
    ) -> Awaitable[Intent | None]:
        """Return a coroutine that asks the model for a reading, writes SQL if needed, and applies the transformers.

        The coroutine starts when it is awaited. Its result is None if the model's breaker is open or the model fails.

        Args:
            ruled: the rules' reading.
            guard: limits the values shown to the model to those inside the caller's filter; None without a filter.
            transforms: filled with what the transformers did.
        """

        async def reading() -> Intent | None:
            nonlocal context
            question, collection = builder.request.question, builder.request.collection
            if guard is not None:
                context = replace(context, catalogue=await guard.catalogue_for_model(context.catalogue))
            if not self.breaker.admit():
                return None
            started = time.monotonic()
            by = started + deadline_shares.MODEL_CALLS_BY * (deadline - started)
            patience_s = _PATIENCE * self.settings.timeout_s
            works: bool | None = None
            try:
                said = await model_step.request_reading(
                    model,
                    question,
                    history,
                    context.now,
                    context.catalogue,
                    _model_sources(self.cards, self.withheld),
                    by,
                    collection,
                    languages=_languages(builder.scope),
                    collections=await self._collection_descriptions(builder.scope, by),
                    templates=self.templates.for_tenant(builder.scope.tenant),
                )
                works = True
            except ModelFailed as error:
                silent = error.fault == "late" and time.monotonic() - started >= patience_s
                works = False if silent or error.fault == "down" else None
                _log.warning("the model's reading was not used: %s", _printable(error.reason))
                return None
            except asyncio.CancelledError:
                # The request stopped waiting. This is the model's fault only if the model was silent for `patience_s`.
                works = False if time.monotonic() - started >= patience_s else None
                raise
            finally:
                self.breaker.record_outcome(works)
            intent = builder.from_model(said, context, ruled)
            if said.kind == "aggregate" and intent.aggregate is None and self.columns is not None:
                intent = await self._with_sql(self.columns, model, intent, builder, context, by)
            if intent.kind == "none":
                transforms.degraded = ()
                return intent
            return await self._transformed(intent, model, history, builder, by, transforms)

        return reading()

    async def _collection_descriptions(self, scope: Scope, deadline: float) -> Mapping[str, str]:
        """Map each collection's name to its description, "" if the lookup fails or is late.

        The result is {} for fewer than two collections, because the model then has none to choose.
        """
        names = list(dict.fromkeys(one.name for one in scope.collections if one.chunks))[:_MOST_COLLECTIONS]
        if len(names) < 2:
            return {}

        async def described(name: str) -> str:
            return (await self.catalogue.description(scope.restricted_to([name])))[0]

        return {name: await _in_time(described(name), "", deadline) for name in names}

    async def _transformed(
        self,
        intent: Intent,
        model: Model,
        history: Sequence[Message],
        builder: IntentBuilder,
        deadline: float,
        done: TransformOutcome,
    ) -> Intent:
        """Return the intent with the searches that the configured query transformers make from the question.

        Args:
            done: filled with what the transformers did.
        """
        names = self.settings.transforms
        if not names:
            return intent
        into = next(iter(_languages(builder.scope)), None)
        asked = Transformable(
            intent.question,
            history,
            builder.request.collection,
            intent.language,
            into,
            self.templates.for_tenant(builder.scope.tenant),
        )
        made = await transform.run_transformers(names, asked, model, min(deadline, time.monotonic() + _TRANSFORMS_S))
        done.vector_only, done.degraded = made.vector_only, transform.unavailable_notes(made.failed)
        done.replaced = made.question != intent.question
        own = (made.question,) if done.replaced else intent.searches
        return intent.model_copy(update={"searches": tuple(dict.fromkeys((*own, *made.searches)))})

    async def _with_sql(
        self, columns: ViewColumns, model: Model, intent: Intent, builder: IntentBuilder, context: ReadingContext,
        deadline: float,
    ) -> Intent:  # fmt: skip
        """Return the intent with SQL written by the model, for a calculation that no aggregate expresses.

        The SQL source's guard checks the statement later; if it refuses, the result reports that as this source's
        outcome. If the model or the view is unavailable, the intent is returned unchanged.
        """
        try:
            view = await columns(builder.scope)
            statement = await sql_generation.write_sql(
                model, intent.question, view, context.now, deadline,
                collection=builder.request.collection, catalogue=context.catalogue,
                templates=self.templates.for_tenant(builder.scope.tenant),
            )  # fmt: skip
        except (ModelFailed, Unavailable):
            return intent
        chosen = {choice.name: choice for choice in intent.sources}
        sql = SourceChoice(name="sql", confidence=0.6, reason="SQL written by the model, if the guard accepts it")
        sources = (chosen.pop("sql", sql), *chosen.values())
        return intent.model_copy(
            update={"kind": "aggregate", "aggregate": {"op": "sql", "statement": statement}, "sources": sources}
        )


async def _in_time(work: Awaitable[T], otherwise: T, deadline: float) -> T:
    """Return the result of an optional lookup, or `otherwise` if the database fails or does not answer in time."""
    try:
        return await wait_within(work, deadline_shares.READING_LOOKUP * (deadline - time.monotonic()))
    except (TimeoutError, ConnectionAbortedError, Unavailable):
        return otherwise


def local(now: datetime | None, zone: tzinfo) -> datetime:
    """Return the time of the question: the present for None; a time without a zone is taken to be in `zone`."""
    if now is None:
        return datetime.now(zone)
    return now.replace(tzinfo=zone) if now.tzinfo is None else now


def terms_of(texts: Sequence[str]) -> dict[str, str]:
    """Map words and pairs of Chinese characters in the texts to the terms they are searched by, at most 80."""
    terms: dict[str, str] = {}
    for tokens in map(tokenize, map(readable, texts)):
        terms |= {token.folded: _term(token.folded) for token in tokens if token.kind == "word"}
        terms |= {pair: pair for pair in chinese_pairs(tokens)}
    return {word: term for word, term in islice(terms.items(), _MOST_WORDS) if term}


@lru_cache(maxsize=4096)
def _term(word: str) -> str:
    """Return the full-text term that a word is searched by; "" for a word that is not searched."""
    return next((term.text for term in analyse(word, "en") if not term.derived), "")


def _printable(reason: str) -> str:
    """Return the reason with blanks for unprintable characters, which the question that it quotes may have."""
    return "".join(c if c.isprintable() else " " for c in reason)


def _spans(question: str, request: Request) -> list[str]:
    """Return the runs of one to four words in the question and the last three turns, at most 400: possible names."""
    texts = [readable(question), *(readable(turn.content) for turn in (request.messages or ())[-3:])]
    spans: dict[str, None] = {}
    for text in texts:
        words = [token.folded for token in tokenize(text) if token.kind != "mark"]
        for size in range(1, _LONGEST_SPAN + 1):
            for first in range(len(words) - size + 1):
                run = words[first : first + size]
                joined = "".join(run) if all(not word.isascii() for word in run) else " ".join(run)
                if len(joined) > 2:
                    spans[joined] = None
    return list(spans)[:_MOST_SPANS]


def _model_sources(cards: Mapping[str, Card], withheld: Collection[str]) -> list[Card]:
    """Return the sources that the model may choose from.

    The web is offered even where no web source is connected, so that the answer can say that it was needed.
    """
    world = any(card.world for card in cards.values())
    web = Card(WEB, "fresh or outside knowledge that no document of the collection can hold", "outside")
    return [*cards.values(), *([] if world or WEB in withheld else [web])]


def _languages(scope: Scope) -> tuple[str, ...]:
    """Return the ISO 639-1 codes of the documents' languages, the most frequent first."""
    counts: dict[str, int] = {}
    for one in scope.all_collections:
        for language, count in one.languages.items():
            counts[language] = counts.get(language, 0) + count
    return tuple(sorted(counts, key=lambda language: (-counts[language], language)))
