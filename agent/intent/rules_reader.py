"""Read a question without a model and check the reading against the field catalogue."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from agent.intent import calculation as calculations
from agent.intent import coreference, followup
from agent.intent.calculation import MAX_LIST_ROWS, Calculation, requested_fields
from agent.intent.conditions.conflicts import (
    are_contradictory,
    doubt_if_compared,
    drop_nested_conditions,
    in_any_person_field,
)
from agent.intent.conditions.filter_json import Json, all_of, any_of, is_exclusion
from agent.intent.conditions.question_parser import ParsedQuestion, parse_question
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.text import MOST_CHARACTERS, readable
from agent.intent.reading import FILTERS_FROM
from agent.intent.rejections import add_unread_words, find_rejections, is_partly_unread
from agent.intent.sources import default_sources
from agent.intent.time.periods import Calendar
from agent.intent.topic import question_parts, small_talk
from agent.intent.topic.catalogue_overlap import CatalogueOverlap, measure_overlap
from agent.intent.topic.identifiers import is_identifier_query, words_beside_identifiers
from agent.intent.topic.question_parts import split_questions
from agent.intent.topic.topic_words import topic_words
from agent.intent.values import vocabulary
from agent.types import Message, Rejected, SourceChoice
from retrievers.core.aggregates import MAX_LIMIT
from retrievers.core.types import Card, FieldCatalogue

_HEAD = re.compile(
    r"\W*(?:(?:for|in|of|about|regarding|concerning)\s|关于|针对|在)[^?？:：]{1,80}[:：](?=\D)", re.IGNORECASE
)
_MOST_SEARCHES = 4
_LEAST_COUNTED = 0.6
"""Minimum probability of a constraint that a calculation may treat as sure."""


@dataclass(frozen=True, slots=True)
class RulesReading:
    """The reading of a question by the rules.

    Attributes:
        conditions: in the order of the question.
        complete: True if a model could add nothing: small talk, identifiers, questions about metadata only.
        catalogue_overlap: how much of the question names values and fields; None if it is surely for the documents.
        is_listing: True if the question consists of constraints only: "all Final PEPs by Guido".
        wants: what the answer is made of, for example passages or a complete list.
    """

    kind: str
    question: str
    searches: tuple[str, ...]
    conditions: tuple[StatedCondition, ...]
    sources: tuple[SourceChoice, ...]
    aggregate: Json | None
    confidence: float
    rejected: tuple[Rejected, ...]
    complete: bool
    catalogue_overlap: CatalogueOverlap | None = None
    is_listing: bool = False
    wants: question_parts.Wants = "passages"

    @property
    def filter(self) -> Json | None:
        return all_of([one.filter for one in self.conditions]) if self.conditions else None


class QuestionParser(Protocol):
    """A function that parses a text: `question_parser.parse_question` with all other arguments fixed."""

    def __call__(self, text: str, /, *, counts_documents: bool = False, searches_text: bool = False) -> ParsedQuestion:
        """Return a text with its conditions and topics; the arguments are those of `Sentence`."""
        ...


@dataclass(frozen=True, slots=True)
class ReadingContext:
    """What a question is read with: the catalogue, nouns, sources and the date.

    Attributes:
        nouns: nouns that stand for a document ("pep", "peps"), see `inferred_words.document_nouns_of`.
        now: in the time zone of the asker.
        more: (field, value, number of documents) looked up in fields with too many values to keep in memory.
        frequencies: share of the passages that contain a word, by the folded word.
    """

    catalogue: FieldCatalogue
    nouns: frozenset[str]
    cards: Mapping[str, Card]
    calendar: Calendar
    now: datetime
    more: Sequence[tuple[str, str, int]] = ()
    frequencies: Mapping[str, float] = field(default_factory=dict)


def read_by_rules(question: str, history: Sequence[Message], context: ReadingContext) -> RulesReading:
    """Return the rules' reading of a question, which may be a follow-up to the turns in `history`."""
    reading = _with_breadth(
        _read(readable(question), history, context), question_parts.read_wants(readable(question), context.nouns)
    )
    if len(question) > MOST_CHARACTERS and reading.kind != "none":
        # The rules read only a part of a long question. The search uses all of it.
        return replace(reading, question=question, searches=(question,))
    return reading


def _with_breadth(reading: RulesReading, wants: question_parts.Wants) -> RulesReading:
    """Return the reading with `wants` set; a list that must be complete gets the maximum row limit."""
    aggregate = reading.aggregate
    if aggregate is not None and (wants, aggregate["op"], aggregate.get("limit")) == ("all", "list", MAX_LIST_ROWS):
        aggregate = {**aggregate, "limit": MAX_LIMIT}
    return replace(reading, wants=wants, aggregate=aggregate)


def _read(question: str, history: Sequence[Message], context: ReadingContext) -> RulesReading:
    """Read a turn as the first of these that it is: small talk, a follow-up, several questions, a single question."""
    if small_talk.is_small_talk(question) or small_talk.is_text_task(question):
        return _small_talk_reading(question)
    known = vocabulary.build_vocabulary(context.catalogue)

    def parse(text: str, *, counts_documents: bool = False, searches_text: bool = False) -> ParsedQuestion:
        return drop_nested_conditions(
            parse_question(
                text, known, context.nouns, context.calendar, context.now, context.more,
                counts_documents=counts_documents, searches_text=searches_text, frequencies=context.frequencies,
            )
        )  # fmt: skip

    parsed = parse(question)
    follow_up = followup.resolve_followup(parsed, history, parse) if history else None
    if follow_up is not None:
        return _read_follow_up(follow_up, question, context)
    parts = split_questions(question)
    if len(parts) > 1:
        separate = [_with_calculation(parse(part), parse)[0] for part in parts]
        # "show both counts" is no question of its own.
        asking = [
            part for part in separate if part.conditions or topic_words(part) or calculations.find_calculation(part)
        ]
        if len(asking) > 1:
            return _read_several(question, separate, parsed, context)
    parsed, calculation = _with_calculation(parsed, parse)
    if calculations.asks_for_unmatched_values(parsed):
        return _read_negative(question, parsed, context)
    calculation = calculation or calculations.find_lookup(parsed) or calculations.find_list(parsed)
    if calculation is None and parsed.unclear_comparisons:
        parsed = parse(question, searches_text=True)
    made = _read_single(question, parsed, calculation, context)
    may_be = made.kind == "retrieve" and calculation is None
    return replace(made, catalogue_overlap=measure_overlap(parsed)) if may_be else made


def _read_negative(question: str, parsed: ParsedQuestion, context: ReadingContext) -> RulesReading:
    """Read "who has not ..." as a search without excluding filters: documents with other values do not answer it."""
    kept = tuple(one for one in parsed.conditions if not is_exclusion(one.filter))
    return _read_single(question, replace(parsed, conditions=kept), None, context)


def document_id_reading(made: RulesReading, context: ReadingContext) -> RulesReading:
    """Return the reading of a question that is only a document's id, without conditions read from parts of the id."""
    sources = made.sources if made.kind == "retrieve" and made.aggregate is None else _source_choices(context)
    return replace(
        made, kind="retrieve", searches=(made.question,), conditions=(), sources=sources, aggregate=None,
        confidence=0.9, rejected=(), complete=True, catalogue_overlap=None, is_listing=False,
    )  # fmt: skip


def drop_conditions(made: RulesReading, conditions: Sequence[StatedCondition], context: ReadingContext) -> RulesReading:
    """Return a reading without `conditions`, which match no document: a search, without a calculation."""
    reason = "no document has such a value"
    return replace(
        made, kind="retrieve" if made.kind == "aggregate" else made.kind, searches=(made.question,),
        conditions=tuple(one for one in made.conditions if one not in conditions),
        sources=_source_choices(context) if made.aggregate is not None else made.sources, aggregate=None,
        rejected=(*made.rejected, *(Rejected(what=f"filter on {one.field}", reason=reason) for one in conditions)),
        complete=False,
    )  # fmt: skip


def _with_calculation(parsed: ParsedQuestion, parse: QuestionParser) -> tuple[ParsedQuestion, Calculation | None]:
    """Return what was found in a question, and the calculation that it asks for; None for a search.

    A calculation searches no text, so a value named as a topic is a constraint: "the most documents about security".
    So is a date that may be a topic.
    """
    calculation = calculations.find_calculation(parsed)
    has_unused = parsed.unused_mentions or parsed.has_doubtful_dates
    if not has_unused or (calculation is None and not parsed.sentence.has_calculation_word):
        return parsed, calculation
    counted = parse(parsed.sentence.text, counts_documents=True)
    if is_partly_unread(counted):
        return parsed, None
    again = calculations.find_calculation(counted)
    # A remaining topic must be searched for, with only the constraints that the question states outright.
    return (counted, again) if again is not None else (parsed, calculation)


def _read_single(
    question: str, parsed: ParsedQuestion, calculation: Calculation | None, context: ReadingContext
) -> RulesReading:
    """Read one question: calculate from metadata, or search within its constraints."""
    rejected = find_rejections(parsed)
    left = calculations.read_calculation(parsed).unread_words if calculation is None else ()
    if calculation is not None and are_contradictory(calculation.conditions, context.catalogue.fields):
        left = tuple(question[one.start : one.end] for one in calculation.conditions)
    elif calculation is not None:
        is_list = calculation.aggregate["op"] == "list"
        known = [in_any_person_field(one, parsed.sentence) if is_list else one for one in calculation.conditions]
        calculation = replace(calculation, conditions=tuple(map(_as_certain, known)))
        left = tuple(question[one.start : one.end] for one in calculation.conditions if one.confidence < FILTERS_FROM)
    if left:
        # A number that ignores a condition would be wrong. The documents may hold the answer.
        reason = "it could not be matched to one metadata field, so nothing was calculated"
        rejected = (*rejected, Rejected(what=" ".join(left)[:200], reason=reason))
        calculation = None
    if calculation is not None and "sql" in context.cards:
        reason = "read as a word for the documents that are counted or listed"
        rejected = (*rejected, *(Rejected(what=word, reason=reason) for word in calculation.assumed_nouns))
        # A name that was not used may mean something to a model.
        complete = not rejected and not parsed.unused_mentions and calculation.is_certain
        confidence = _confidence(calculation.conditions, 0.9)
        return _aggregate_reading(question, calculation, context, confidence, rejected, complete=complete)
    parsed = replace(parsed, conditions=tuple(doubt_if_compared(one, parsed.sentence) for one in parsed.conditions))
    exact = is_identifier_query(parsed)
    is_listing = bool(parsed.conditions) and not topic_words(parsed)
    search = parsed.remaining_text if parsed.conditions and not is_listing else question
    return RulesReading(
        kind="retrieve", question=question, searches=(search,), conditions=parsed.conditions,
        sources=_source_choices(context, exact=exact), aggregate=None,
        confidence=0.9 if exact else _confidence(parsed.conditions, 0.6), rejected=add_unread_words(rejected, parsed),
        complete=exact and not rejected and not words_beside_identifiers(parsed), is_listing=is_listing,
    )  # fmt: skip


def _as_certain(one: StatedCondition) -> StatedCondition:
    """Return a likely constraint as a sure one, any other unchanged: a calculation uses a value for nothing else."""
    return replace(one, confidence=FILTERS_FROM) if _LEAST_COUNTED <= one.confidence < FILTERS_FROM else one


def _aggregate_reading(
    question: str,
    calculation: Calculation,
    context: ReadingContext,
    confidence: float,
    rejected: tuple[Rejected, ...],
    *,
    complete: bool,
) -> RulesReading:
    return RulesReading(
        kind="aggregate", question=question, searches=(question,), conditions=calculation.conditions,
        sources=_source_choices(context, sql="metadata answers it", documents=not calculation.is_certain),
        aggregate=calculation.aggregate, confidence=confidence, rejected=rejected, complete=complete,
    )  # fmt: skip


def _read_follow_up(follow_up: followup.FollowUp, question: str, context: ReadingContext) -> RulesReading:
    """Read a follow-up: calculate from metadata if it asks for that, else search with words of earlier turns."""
    parsed = follow_up.parsed
    about = follow_up.context if not follow_up.narrows_list or topic_words(follow_up.previous) else ""
    said = followup.without_back_references(question) if not follow_up.narrows_list or topic_words(parsed) else ""
    search = " ".join(filter(None, (said, about))) or follow_up.previous.sentence.text
    # Keep the turn as written and add the earlier question: a model that reads the prompt sees only this text.
    whole = f'{question} (said after: "{follow_up.previous.sentence.text}")'
    calculation = _follow_up_calculation(follow_up)
    if calculation is not None and "sql" in context.cards:
        made = _aggregate_reading(whole, calculation, context, 0.7, find_rejections(parsed), complete=False)
        return replace(made, searches=(search,))
    return RulesReading(
        kind="retrieve", question=whole, searches=(search,), conditions=follow_up.conditions,
        sources=_source_choices(context), aggregate=None, confidence=0.6,
        rejected=add_unread_words(find_rejections(parsed), parsed), complete=False,
        is_listing=bool(follow_up.conditions and follow_up.narrows_list) and not (said or about),
    )  # fmt: skip


def _follow_up_calculation(follow_up: followup.FollowUp) -> Calculation | None:
    """Return the calculation that a follow-up asks for, or None."""
    parsed, conditions = follow_up.parsed, follow_up.conditions
    named = {"id", *parsed.sentence.vocabulary.of_role("number")}
    asked = requested_fields(parsed, {one.field for one in conditions} & named)
    if len(conditions) == 1 and conditions[0].field in named and asked and not topic_words(parsed):
        # "the latest one" has selected a document; the follow-up asks for a field of it.
        return calculations.values_calculation(asked, conditions)
    calculation = calculations.find_calculation(parsed)
    if calculation is None and follow_up.repeats_question and not _has_unread_words(follow_up):
        # "what about 2022?" repeats the calculation.
        calculation = calculations.find_calculation(follow_up.previous)
    if calculation is not None and _is_of_one_thing(follow_up, calculation):
        return None
    if calculation is not None:
        return replace(calculation, conditions=conditions, is_certain=True) if conditions else calculation
    is_more = asked and follow_up.narrows_list and not follow_up.repeats_question
    if is_more and conditions and not parsed.conditions and not topic_words(parsed):
        return calculations.values_calculation(asked, conditions)  # "and who led it?"
    if follow_up.narrows_list and conditions and not (follow_up.context and topic_words(follow_up.previous)):
        return calculations.list_calculation(replace(parsed, conditions=conditions))
    return None


def _is_of_one_thing(follow_up: followup.FollowUp, calculation: Calculation) -> bool:
    """Return whether an amount of one document is asked for ("how much did it cost?"), so that a sum would be wrong."""
    is_amount = calculation.aggregate.get("op") not in ("count", "list")
    return is_amount and coreference.IT.search(follow_up.parsed.sentence.text) is not None


def _has_unread_words(follow_up: followup.FollowUp) -> bool:
    """Return whether a follow-up has words not understood ("make it 3000"), so repeating the calculation is wrong."""
    is_same = follow_up.conditions == follow_up.previous.conditions
    return is_same or bool(calculations.read_calculation(follow_up.parsed).unread_words)


def _read_several(
    question: str, parts: Sequence[ParsedQuestion], whole: ParsedQuestion, context: ReadingContext
) -> RulesReading:
    """Read separate questions in one turn: one search each, and a filter only if every question has constraints."""
    made = [calculations.find_calculation(part) for part in parts]
    together = calculations.merge_counts(made)
    if together is not None and "sql" in context.cards:
        confidence = _confidence(together.conditions, 0.9)
        return _aggregate_reading(question, together, context, confidence, find_rejections(whole), complete=True)
    aggregate: Json | None = None
    filters: list[Json | None] = []
    searches: list[str] = []
    for part, calculation in zip(parts, made, strict=True):
        if calculation is not None and aggregate is None and "sql" in context.cards:
            aggregate = _with_inner_filter(calculation)
            filters.append(None)
        else:
            filters.append(all_of([one.filter for one in part.conditions]) if part.conditions else None)
            searches.append(part.sentence.text)
    if not searches:
        return _read_single(question, whole, calculations.find_calculation(whole), context)
    stated = [one for one in filters if one is not None]
    conditions = _shared_conditions(whole)
    if not conditions and stated and len(stated) == len(filters):
        distinct = [one for place, one in enumerate(stated) if one not in stated[:place]]
        least = min(one.confidence for part in parts for one in part.conditions)
        name = whole.conditions[0].field if whole.conditions else ""
        conditions = (StatedCondition(name, any_of(distinct), 0, 0, least),)
    return RulesReading(
        kind="retrieve", question=question, searches=tuple(searches[:_MOST_SEARCHES]), conditions=conditions,
        sources=_source_choices(context, sql="metadata answers a part of it" if aggregate else None),
        aggregate=aggregate, confidence=0.6,
        rejected=find_rejections(whole) if aggregate else add_unread_words(find_rejections(whole), whole),
        complete=False,
    )  # fmt: skip


def _shared_conditions(whole: ParsedQuestion) -> tuple[StatedCondition, ...]:
    """Return the constraints before the first of several questions: "For 3.14: what changed in A, and what is B?"."""
    head = _HEAD.match(whole.sentence.text)
    return tuple(one for one in whole.conditions if one.end <= head.end()) if head else ()


def _with_inner_filter(calculation: Calculation) -> Json:
    """Return the aggregate with its filter inside, because the filter does not apply to the turn's other questions."""
    if not calculation.conditions:
        return calculation.aggregate
    filter = all_of([one.filter for one in calculation.conditions])
    return {**calculation.aggregate, "where": filter}


def _small_talk_reading(question: str) -> RulesReading:
    choice = SourceChoice(name="none", confidence=0.95, reason="small talk")
    return RulesReading("none", question, (), (), (choice,), None, 0.95, (), complete=True)


def _source_choices(
    context: ReadingContext, *, sql: str | None = None, documents: bool = True, exact: bool = False
) -> tuple[SourceChoice, ...]:
    """Return the sources to use.

    Args:
        sql: the reason to query the metadata; None to leave the metadata out.
        documents: whether to search texts as well as the metadata.
        exact: whether the question is an identifier; only full text is searched then, if there is such a source.
    """
    chosen = []
    if sql is not None and "sql" in context.cards:
        chosen.append(SourceChoice(name="sql", confidence=0.9, reason=sql))
    if sql is None or documents:
        reason = "it names an identifier" if exact else "documents may answer it"
        names = default_sources(context.cards)
        # Identifiers are found by full text; an embedding does not represent them.
        first = [name for name in names if name == "fulltext"] if exact else []
        chosen += [SourceChoice(name=name, confidence=0.9 if exact else 0.7, reason=reason) for name in first or names]
    return tuple(chosen)


def _confidence(conditions: Sequence[StatedCondition], least: float) -> float:
    return round(min((one.confidence for one in conditions), default=least), 2)
