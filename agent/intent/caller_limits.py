"""Combine readings of a question with what the caller fixed: filter, sources and collections."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.intent.conditions.filter_json import Json, all_of, filter_fields
from agent.intent.model import resolution
from agent.intent.model.reply import ModelReading
from agent.intent.model.resolution import translate_aggregate
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM, ConstraintRecord, Reading, question_language
from agent.intent.rules_reader import ReadingContext, RulesReading
from agent.intent.sources import WEB, cheapest_world_source, default_sources
from agent.intent.topic.question_parts import Wants
from agent.intent.values import vocabulary
from agent.types import Intent, Missing, Rejected, Request, SourceChoice
from retrievers.core.aggregates import aggregate_to_json, parse_aggregate
from retrievers.core.errors import BadRequest
from retrievers.core.filters import And, Filter, describe_filter, filter_keys, filter_to_json, parse_filter
from retrievers.core.metadata import Field
from retrievers.core.types import Card, Scope
from retrievers.text.chinese_dictionary import second_search_translation

_NONE = "none"


@dataclass(frozen=True, slots=True)
class IntentBuilder:
    """Turns a reading of a question into an intent that keeps to the caller's filter, sources and collections.

    Attributes:
        wanted: the caller's filter, parsed; None if there is none.
        fields: the fields that filters may name, by name.
        cards: the cards of the available sources by name.
        ignored: conditions that no reading may infer, see `ignored_conditions`.
        withheld: sources that no reading may choose.
    """

    request: Request
    scope: Scope
    wanted: Filter | None
    fields: Mapping[str, Field]
    cards: Mapping[str, Card]
    ignored: frozenset[Filter] = frozenset()
    withheld: frozenset[str] = frozenset()

    def from_rules(self, made: RulesReading) -> Reading:
        """Return what the rules read: sure conditions filter, likely ones only boost documents, others are dropped."""
        firm: list[tuple[float, Filter]] = []
        soft: list[tuple[float, Filter]] = []
        made = self._without_unsure_calculation(made)
        rejected = list(made.rejected)
        stated: list[ConstraintRecord] = []
        unread = False
        for condition in made.conditions:
            is_firm = condition.confidence >= FILTERS_FROM
            if condition.confidence < BOOSTS_FROM:
                unread = True
                continue
            try:
                parsed = parse_filter(condition.filter, self.fields)
                if parsed in self.ignored:
                    unread = True
                    continue
                (firm if is_firm else soft).append((condition.confidence, parsed))
                stated.append(ConstraintRecord(filter_to_json(parsed), condition.confidence, is_firm, condition.why))
            except BadRequest as error:
                rejected.append(
                    Rejected(what=f"filter on {condition.field}", reason=str(error)[:300], valid=error.valid[:40])
                )
        if unread and made.kind == "retrieve":
            # A condition that was dropped leaves its words unread, so the whole question is searched.
            made = replace(made, searches=(made.question,))
        # The filters on the caller's own fields may contradict the caller's filter, so they are relaxed first.
        fixed = filter_keys(self.wanted) if self.wanted else set()
        weakest = [one for _, one in sorted(firm, key=lambda pair: (not filter_keys(pair[1]) & fixed, pair[0]))]
        softest = [one for _, one in sorted(soft, key=lambda pair: pair[0])]
        intent = self._intent(
            by="rules", question=made.question, language=question_language(self.request.question, self.scope),
            kind=made.kind, searches=self._in_both_languages(made), filter=self._join_filters(weakest),
            soft_filter=all_of([filter_to_json(one) for one in softest]) if softest else None,
            sources=made.sources, aggregate=made.aggregate, confidence=made.confidence, rejected=rejected,
            wants=made.wants,
        )  # fmt: skip
        is_listing = made.is_listing and not (unread or softest)
        return Reading(intent, None, tuple(weakest), tuple(softest), stated=tuple(stated), is_listing=is_listing)

    def _without_unsure_calculation(self, made: RulesReading) -> RulesReading:
        """Replace a calculation by a search if the calculation would leave out a condition that is only likely."""
        unsure = [describe_filter(one.filter) for one in made.conditions if one.confidence < FILTERS_FROM]
        if made.aggregate is None or not unsure:
            return made
        reason = "it may not be a condition, so nothing was calculated"
        sources = tuple(
            SourceChoice(name=name, confidence=0.7, reason="documents may answer it")
            for name in default_sources(self.cards)
        )
        rejected = (*made.rejected, Rejected(what="; ".join(unsure)[:200], reason=reason))
        return replace(made, kind="retrieve", aggregate=None, sources=sources, rejected=rejected, complete=False)

    def _in_both_languages(self, made: RulesReading) -> tuple[str, ...]:
        """Return the searches; if the collections have Chinese and English documents, add a Chinese one in English."""
        languages = [one.languages for one in self.scope.all_collections]
        english = (
            second_search_translation(made.searches[0], languages) if made.kind == "retrieve" and made.searches else ""
        )
        return (*made.searches, english) if english else made.searches

    def from_model(self, said: ModelReading, context: ReadingContext, made: RulesReading) -> Intent:
        """Return the intent of `said`, the model's reading, after checking each part of `said`.

        Parts of the model's filter that were rejected are replaced by constraints of `made`, the rules' reading.
        """
        known = vocabulary.build_vocabulary(context.catalogue)
        filter, rejected = resolution.resolve_filter(said, known, self.fields, context.calendar, context.now)
        if rejected or any(problem.what.startswith(("filter", "time")) for problem in said.problems):
            filter = _repair_filter(filter, made)
        rejected += [Rejected(what=problem.what[:200], reason=problem.reason[:300]) for problem in said.problems]
        question = said.question or self.request.question
        sources, unknown = self._sources(said.sources)
        collections, others = self._collections(said.collections, said.confidence)
        rejected += [*(_unknown("source", name, self.cards) for name in unknown), *others]
        missing = [Missing(kind="source", name=name[:200]) for name in unknown]
        if len(known_collections := {one.name for one in self.scope.collections}) > 1:
            gone = dict.fromkeys(name for name in said.collections if name not in known_collections)
            missing += [Missing(kind="collection", name=name[:200]) for name in gone]
        aggregate = None
        if said.aggregate is not None and "sql" in self.cards:
            try:
                parsed = parse_aggregate(
                    translate_aggregate(said.aggregate, question=question, filter=filter), self.fields
                )
                aggregate = aggregate_to_json(parsed)
            except BadRequest as error:
                rejected.append(Rejected(what="aggregate", reason=str(error)[:300], valid=error.valid[:40]))
        if aggregate is not None and aggregate["op"] == "list" and aggregate["limit"] is None:
            # A plain list of documents also gets a search of their texts.
            texts, named = default_sources(self.cards), {choice.name for choice in sources}
            sources += [
                SourceChoice(name=name, confidence=0.6, reason="in addition to the list")
                for name in texts
                if name not in named
            ]
        parts = [] if filter is None else filter["filters"] if filter["type"] == "and" else [filter]
        language = question_language(question, self.scope)
        kind = "aggregate" if aggregate and said.kind == "aggregate" else "retrieve"
        # A question with constraints is no small talk, even if the model says so.
        if said.kind == "none" and not self.request.sources and not made.conditions:
            kind = "none"
        return self._intent(
            by="llm", question=question, language=language, kind=kind,
            searches=() if kind == "none" else said.searches or (question,),
            filter=self._join_filters(
                [one for part in parts if (one := parse_filter(part, self.fields)) not in self.ignored]
            ),
            soft_filter=None, sources=sources, aggregate=aggregate, confidence=said.confidence, rejected=rejected,
            wants=made.wants, scope=collections, missing=missing,
        )  # fmt: skip

    def _intent(
        self, *, by: str, kind: str, question: str, language: str, searches: Sequence[str], filter: Json | None,
        soft_filter: Json | None, sources: Sequence[SourceChoice], aggregate: Json | None, confidence: float,
        rejected: Sequence[Rejected], wants: Wants, scope: Sequence[SourceChoice] = (), missing: Sequence[Missing] = (),
    ) -> Intent:  # fmt: skip
        if self.request.sources:
            sources = [
                SourceChoice(name=name, confidence=1.0, reason="named by the caller")
                for name in dict.fromkeys(self.request.sources)
            ]
            kind = "retrieve" if kind == "none" else kind
        return Intent(
            kind=kind, question=question, language=language,  # type: ignore[arg-type]
            searches=tuple(searches) or ((question,) if kind != "none" else ()),
            collections=tuple(
                sorted({one.name for one in (*(scope or self.scope.collections), *self.scope.external_collections)})
            ),
            filter=filter, soft_filter=soft_filter, sources=tuple(sources), aggregate=aggregate,
            by=by, confidence=max(0.0, min(1.0, confidence)), rejected=tuple(rejected), wants=wants,  # type: ignore[arg-type]
            scope=tuple(scope), missing=() if self.request.sources else tuple(missing),
        )  # fmt: skip

    def _join_filters(self, inferred: Sequence[Filter]) -> Json | None:
        parts = [filter_to_json(one) for one in ((self.wanted,) if self.wanted else ())] + [
            filter_to_json(one) for one in inferred
        ]
        return all_of(parts) if parts else None

    def _collections(self, named: Sequence[str], confidence: float) -> tuple[tuple[SourceChoice, ...], list[Rejected]]:
        """Return the collections that the model chose, () if it chose all, and a rejection for each unknown name."""
        known = sorted({one.name for one in self.scope.collections})
        chosen = [name for name in dict.fromkeys(named) if name in known]
        unknown = [_unknown("collection", name, known) for name in dict.fromkeys(named) if name not in known]
        if len(chosen) == len(known) and (len(known) == 1 or not unknown):
            return (), unknown
        reason = "chosen by the model"
        return tuple(SourceChoice(name=name, confidence=confidence, reason=reason) for name in chosen), unknown

    def _sources(self, named: Sequence[str]) -> tuple[list[SourceChoice], list[str]]:
        """Return the sources that the model chose, and the names in `named` that are no source."""
        chosen, unknown = [], []
        world = cheapest_world_source(self.cards)
        for name in dict.fromkeys(world if name == WEB else name for name in named):
            if name in self.cards or (name in (_NONE, WEB) and name not in self.withheld):
                chosen.append(SourceChoice(name=name, confidence=0.8, reason="chosen by the model"))
            else:
                unknown.append(name)
        return chosen, unknown


def _unknown(kind: str, name: str, valid: Iterable[str]) -> Rejected:
    return Rejected(what=f"{kind} {name}"[:200], reason=f"there is no such {kind}", valid=tuple(valid)[:40])


def ignored_conditions(request: Request, fields: Mapping[str, Field]) -> Iterator[Filter]:
    """Yield the conditions in `request.ignore`, which no reading may infer, and the members of each "and" in it.

    The members are added because a range may be read as one condition or as two.
    """
    for number, condition in enumerate(request.ignore):
        try:
            parsed = parse_filter(condition, fields, f"ignore.{number}")
        except BadRequest as error:
            raise BadRequest(str(error), where=error.where, valid=error.valid) from None
        yield parsed
        if isinstance(parsed, And):
            yield from parsed.filters


def _repair_filter(filter: Json | None, made: RulesReading) -> Json | None:
    """Return the model's filter joined with the rules' constraints on other fields; None if there are neither."""
    named = filter_fields(filter) if filter else set()
    parts = [one.filter for one in made.conditions if one.field not in named]
    return all_of([*([filter] if filter else []), *parts]) if filter or parts else None
