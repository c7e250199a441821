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

from agent.intent import rules, transform, turn, vocabulary
from agent.intent.caller import Offered, Stating, ignored_by
from agent.intent.derived import nouns_of
from agent.intent.model import ask as model_step
from agent.intent.model import sqlwriter
from agent.intent.reading import Reading, Transforms, question_language
from agent.intent.rules import Context, RulesReading
from agent.intent.same import Same
from agent.intent.sources import WEB
from agent.intent.text import chinese_pairs, readable, tokenize
from agent.intent.time.periods import Calendar
from agent.intent.transform.base import TransformInput as Transformable
from agent.intent.vocabulary import Vocabulary
from agent.llm.calls import Calls
from agent.llm.model import Model, ModelFailed
from agent.settings import Settings
from agent.types import Intent, Message, Request, SourceChoice
from prompts import Library, packaged
from retrievers.core.breakers import Breaker
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.tasks import within
from retrievers.core.types import Card, FieldCatalogue, Scope
from retrievers.embed import Embedder
from retrievers.postgres.catalogue import Catalogue, filterable
from retrievers.text import glosses
from retrievers.text.analysis import analyse
from retrievers.text.ids import first_passages, only_id

Told = TypeVar("Told")
Columns = Callable[[Scope], Awaitable[Mapping[str, str]]]

_LARGE = 1000
_LONG = 250
"""Minimum characters of a question that is read in a thread, because reading it may take tens of milliseconds."""
_MANY_VALUES = 300
"""Maximum number of values whose names are collected on the event loop; 2,000 take 0.2 s."""
_AHEAD_S = 0.5
"""Seconds after a question before the dictionary is preloaded; by then a one-question process has ended."""
_HELP_SHARE = 0.1
"""Share of the remaining time that each optional database lookup may take."""
_LONGEST_SPAN = 4
_MOST_SPANS = 400
_MOST_WORDS = 80
"""Maximum number of words for which passage counts are looked up."""
_MOST_COLLECTIONS = 40
"""Maximum number of collections that are described to the model."""
# Share of the remaining time by which the model must have answered; the rest is for merging its reading. Its later
# calls, for SQL and query transformers, share this limit, so that a slow one does not cost the reading.
_MODEL_BY = 0.75
# Share of the configured timeout after which a silent model counts as failed. It is measured against the setting, not
# against the caller's own timeout, because all requests share the breaker.
_PATIENCE = 0.6
_TRANSFORMS_S = 5.0

_log = logging.getLogger(__name__)
# Without a handler, Python would print these lines to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Cascade:
    """Reads the question of a request by rules, and by a model where these are not enough. See `IntentReader`.

    Args:
        cards: cards of the available sources.
        model: called when the rules are not enough. None: rules only.
        columns: returns name and type of each column of the metadata view in a scope. None: no source runs SQL.
        withheld: sources that the tenant may not use: they are not in `cards`, and no reading may choose them.
        templates: prompt templates of all tenants.
        collecting: running tasks that build the vocabulary of a catalogue, by catalogue.
    """

    settings: Settings
    catalogue: Catalogue
    cards: Mapping[str, Card]
    embedder: Embedder
    model: Model | None = None
    columns: Columns | None = None
    breaker: Breaker = field(default_factory=Breaker)
    withheld: frozenset[str] = frozenset()
    templates: Library = field(default_factory=packaged)
    collecting: dict[Same[FieldCatalogue], "asyncio.Task[Vocabulary]"] = field(default_factory=dict)

    def over(self, cards: Mapping[str, Card], withheld: frozenset[str] = frozenset()) -> "Cascade":
        """See `IntentReader.over`."""
        return replace(self, cards=cards, withheld=self.withheld | withheld)

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        """See `IntentReader.read`."""
        mode = request.intent or self.settings.intent
        if mode == "llm" and self.model is None:
            raise BadRequest('intent "llm" needs a model: set LLM', where="intent", valid=("auto", "rules", "off"))
        question, history = request.question, request.history
        language = question_language(question, scope)

        async def read(context: Context) -> RulesReading:
            values = sum(len(one.values) for one in context.catalogue.fields.values())
            if values > _MANY_VALUES:
                await self._collect_names(context.catalogue)
            if history or len(question) > _LONG or values > _MANY_VALUES or not glosses.is_loaded():
                # Each of these may block the event loop for too long: a conversation has several turns, the names of
                # many values are collected anew after each change, and Chinese field names may load the dictionary.
                made = await asyncio.to_thread(rules.read_rules, question, history, context)
                asyncio.get_running_loop().call_later(_AHEAD_S, glosses.read_ahead)
            else:
                made = rules.read_rules(question, history, context)
            if not history and await self._names_a_document(question, scope, wanted, deadline):
                return rules.of_document(made, context)
            made = await turn.judge(made, scope, self.catalogue, self.cards, self.embedder, language)
            return replace(made, sources=tuple(one for one in made.sources if one.name not in self.withheld))

        context = await self._context(question, request, scope, deadline)
        made = await read(context)
        offered = Offered(self.catalogue, scope, wanted, deadline) if wanted is not None else None
        if offered is not None:
            made = await offered.in_rules(made, history, context, read)
        fields = filterable(scope)
        ignored = frozenset(ignored_by(request, fields))
        stating = Stating(request, scope, wanted, fields, self.cards, ignored, self.withheld)
        is_long = len(question) > _LONG  # glossing its Chinese words would block the event loop too long
        reading = await asyncio.to_thread(stating.of_rules, made) if is_long else stating.of_rules(made)
        searched = reading.first.kind == "retrieve"
        # Listed as skipped until the transformers have run.
        transforms = Transforms(degraded=transform.skipped(self.settings.transforms) if searched else ())
        reading = replace(reading, transforms=transforms)
        if self.model is None or mode == "rules" or (made.complete and mode != "llm"):
            return reading
        calls = Calls()
        later = self._later(calls.watch(self.model), stating, context, history, made, deadline, offered, transforms)
        return replace(reading, later=later, calls=calls)

    async def _collect_names(self, catalogue: FieldCatalogue) -> None:
        """Build a catalogue's vocabulary, so that it is in the cache of `vocabulary.build`; this may take seconds.

        One thread builds it for all requests that wait. If each used its own thread, none would be left for other work.
        """
        key = Same(catalogue)
        if key not in self.collecting:
            self.collecting[key] = asyncio.create_task(asyncio.to_thread(vocabulary.build, catalogue))
            self.collecting[key].add_done_callback(lambda _: self.collecting.pop(key))
        await asyncio.shield(self.collecting[key])

    async def _names_a_document(self, question: str, scope: Scope, wanted: Filter | None, deadline: float) -> bool:
        """Return whether a question is only the id of a document that meets the caller's filter `wanted`."""
        word = only_id(question)
        ids = first_passages([word], scope.collections) if word else []
        return bool(ids and await _in_time(self.catalogue.load(scope, ids, wanted), {}, deadline))

    async def _context(self, question: str, request: Request, scope: Scope, deadline: float) -> Context:
        fields = await self.catalogue.fields(scope)
        now = local(request.now, self.settings.zone)
        calendar = Calendar(now.date(), self.settings.week_start, self.settings.fiscal_year_start)
        more: Sequence[tuple[str, str, int]] = ()
        if any(one.distinct > _LARGE for one in fields.fields.values()):
            more = await self.catalogue.find_values(scope, _spans(question, request))
        called = await _in_time(self.catalogue.called(scope), (), deadline)
        nouns = nouns_of(called, fields)
        frequencies = await _in_time(self._frequencies(question, request, scope), {}, deadline)
        return Context(fields, nouns, self.cards, calendar, now, more, frequencies)

    async def _frequencies(self, question: str, request: Request, scope: Scope) -> Mapping[str, float]:
        """Map each word of the question and of the last three turns to the share of passages that contain it."""
        terms = terms_of((question, *(turn.content for turn in (request.messages or ())[-3:])))
        counts = await self.catalogue.term_counts(scope, list(terms.values()))
        chunks = max(sum(one.chunks for one in scope.collections), 1)
        return {word: sum(known.get(term, 0) for known in counts.values()) / chunks for word, term in terms.items()}

    def _later(
        self,
        model: Model,
        stating: Stating,
        context: Context,
        history: Sequence[Message],
        ruled: RulesReading,
        deadline: float,
        offered: Offered | None,
        transforms: Transforms,
    ) -> Awaitable[Intent | None]:
        """Return a coroutine that asks the model for a reading, writes SQL if needed, and applies the transformers.

        The coroutine starts when it is awaited. Its result is None if the model's breaker is open or the model fails.

        Args:
            ruled: the rules' reading.
            offered: limits the values shown to the model to those inside the caller's filter; None without a filter.
            transforms: filled with what the transformers did.
        """

        async def reading() -> Intent | None:
            nonlocal context
            question, collection = stating.request.question, stating.request.collection
            if offered is not None:
                context = replace(context, catalogue=await offered.for_model(context.catalogue))
            if not self.breaker.admit():
                return None
            started = time.monotonic()
            by = started + _MODEL_BY * (deadline - started)
            patience_s = _PATIENCE * self.settings.timeout_s
            works: bool | None = None
            try:
                said = await model_step.ask(
                    model,
                    question,
                    history,
                    context.now,
                    context.catalogue,
                    _offered(self.cards, self.withheld),
                    by,
                    collection,
                    languages=_languages(stating.scope),
                    collections=await self._held(stating.scope, by),
                    templates=self.templates.of(stating.scope.tenant),
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
                self.breaker.ended(works)
            intent = stating.of_model(said, context, ruled)
            if said.kind == "aggregate" and intent.aggregate is None and self.columns is not None:
                intent = await self._with_statement(self.columns, model, intent, stating, context, by)
            if intent.kind == "none":
                transforms.degraded = ()
                return intent
            return await self._transformed(intent, model, history, stating, by, transforms)

        return reading()

    async def _held(self, scope: Scope, deadline: float) -> Mapping[str, str]:
        """Map each collection's name to its description, "" if the lookup fails or is late.

        The result is {} for fewer than two collections, because the model then has none to choose.
        """
        names = list(dict.fromkeys(one.name for one in scope.collections if one.chunks))[:_MOST_COLLECTIONS]
        if len(names) < 2:
            return {}

        async def described(name: str) -> str:
            return (await self.catalogue.description(scope.only([name])))[0]

        return {name: await _in_time(described(name), "", deadline) for name in names}

    async def _transformed(
        self,
        intent: Intent,
        model: Model,
        history: Sequence[Message],
        stating: Stating,
        deadline: float,
        done: Transforms,
    ) -> Intent:
        """Return the intent with the searches that the configured query transformers make from the question.

        Args:
            done: filled with what the transformers did.
        """
        names = self.settings.transforms
        if not names:
            return intent
        into = next(iter(_languages(stating.scope)), None)
        asked = Transformable(
            intent.question,
            history,
            stating.request.collection,
            intent.language,
            into,
            self.templates.of(stating.scope.tenant),
        )
        made = await transform.apply(names, asked, model, min(deadline, time.monotonic() + _TRANSFORMS_S))
        done.vector_only, done.degraded = made.vector_only, transform.unavailable(made.failed)
        done.replaced = made.question != intent.question
        own = (made.question,) if done.replaced else intent.searches
        return intent.model_copy(update={"searches": tuple(dict.fromkeys((*own, *made.searches)))})

    async def _with_statement(
        self, columns: Columns, model: Model, intent: Intent, stating: Stating, context: Context, deadline: float
    ) -> Intent:
        """Return the intent with SQL written by the model, for a calculation that no aggregate expresses.

        The SQL source's guard checks the statement later; if it refuses, the result reports that as this source's
        outcome. If the model or the view is unavailable, the intent is returned unchanged.
        """
        try:
            view = await columns(stating.scope)
            statement = await sqlwriter.write(
                model, intent.question, view, context.now, deadline,
                collection=stating.request.collection, catalogue=context.catalogue,
                templates=self.templates.of(stating.scope.tenant),
            )  # fmt: skip
        except (ModelFailed, Unavailable):
            return intent
        chosen = {choice.name: choice for choice in intent.sources}
        sql = SourceChoice(name="sql", confidence=0.6, reason="SQL written by the model, if the guard accepts it")
        sources = (chosen.pop("sql", sql), *chosen.values())
        return intent.model_copy(
            update={"kind": "aggregate", "aggregate": {"op": "sql", "statement": statement}, "sources": sources}
        )


async def _in_time(work: Awaitable[Told], otherwise: Told, deadline: float) -> Told:
    """Return the result of an optional lookup, or `otherwise` if the database fails or does not answer in time."""
    try:
        return await within(work, _HELP_SHARE * (deadline - time.monotonic()))
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
    return next((term.text for term in analyse(word, "en") if not term.extra), "")


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


def _offered(cards: Mapping[str, Card], withheld: Collection[str]) -> list[Card]:
    """Return the sources that the model may choose from.

    The web is offered even where no web source is connected, so that the answer can say that it was needed.
    """
    world = any(card.world for card in cards.values())
    web = Card(WEB, "fresh or outside knowledge that no document of the collection can hold", "outside")
    return [*cards.values(), *([] if world or WEB in withheld else [web])]


def _languages(scope: Scope) -> tuple[str, ...]:
    """Return the ISO 639-1 codes of the documents' languages, the most frequent first."""
    counts: dict[str, int] = {}
    for one in scope.all:
        for language, count in one.languages.items():
            counts[language] = counts.get(language, 0) + count
    return tuple(sorted(counts, key=lambda language: (-counts[language], language)))
