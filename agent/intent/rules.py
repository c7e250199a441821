"""Read a question without a model and check the reading against the field catalogue."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from agent.intent import asking, followup, pointing, smalltalk, vocabulary
from agent.intent import calculation as calculations
from agent.intent.asking import parts_of
from agent.intent.calculation import MOST_LISTED, Calculation, fields_shown
from agent.intent.covered import contradict, without_covered
from agent.intent.filter_json import Json, both, either, takes_away
from agent.intent.found import Found, Piece, find
from agent.intent.identifiers import beside_identifiers, is_identifier
from agent.intent.mentioned import Mentioned, mentioned
from agent.intent.reading import FILTERS_FROM
from agent.intent.rejected import leaves_out, rejected_of, with_unread
from agent.intent.sources import usual
from agent.intent.text import MOST_CHARACTERS, readable
from agent.intent.time.periods import Calendar
from agent.intent.topic import topic_of
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
        pieces: the constraints, in the order of the question.
        complete: True if a model could add nothing: small talk, identifiers, questions about metadata only.
        mentioned: how much of the question names values and fields; None if it is surely for the documents.
        is_listing: True if the question consists of constraints only: "all Final PEPs by Guido".
        wants: what the answer is made of, for example passages or a complete list.
    """

    kind: str
    question: str
    searches: tuple[str, ...]
    pieces: tuple[Piece, ...]
    sources: tuple[SourceChoice, ...]
    aggregate: Json | None
    confidence: float
    rejected: tuple[Rejected, ...]
    complete: bool
    mentioned: Mentioned | None = None
    is_listing: bool = False
    wants: asking.Wants = "passages"

    @property
    def filter(self) -> Json | None:
        return both([piece.filter for piece in self.pieces]) if self.pieces else None


class Finder(Protocol):
    """Function that finds constraints in a text: `agent.intent.found.find` with all other arguments fixed."""

    def __call__(self, text: str, /, *, counted: bool = False) -> Found:
        """Find the constraints and topics in a text; `counted` as in `Sentence`."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a question is read with: the catalogue, nouns, sources and the date.

    Attributes:
        nouns: nouns that stand for a document ("pep", "peps"), see `derived.nouns_of`.
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


def read_rules(question: str, history: Sequence[Message], context: Context) -> RulesReading:
    """Return the rules' reading of a question, which may be a follow-up to the turns in `history`."""
    reading = _with_breadth(
        _read(readable(question), history, context), asking.wants_of(readable(question), context.nouns)
    )
    if len(question) > MOST_CHARACTERS and reading.kind != "none":
        # The rules read only a part of a long question. The search uses all of it.
        return replace(reading, question=question, searches=(question,))
    return reading


def _with_breadth(reading: RulesReading, wants: asking.Wants) -> RulesReading:
    """Return the reading with `wants` set; a list that must be complete gets the maximum row limit."""
    aggregate = reading.aggregate
    if wants == "all" and aggregate is not None and aggregate["op"] == "list" and aggregate.get("limit") == MOST_LISTED:
        aggregate = {**aggregate, "limit": MAX_LIMIT}
    return replace(reading, wants=wants, aggregate=aggregate)


def _read(question: str, history: Sequence[Message], context: Context) -> RulesReading:
    """Read a turn as the first of these that it is: small talk, a follow-up, several questions, a single question."""
    if smalltalk.is_small_talk(question) or smalltalk.is_text_work(question):
        return _nothing(question)
    known = vocabulary.build(context.catalogue)

    def finder(text: str, *, counted: bool = False) -> Found:
        return without_covered(
            find(
                text, known, context.nouns, context.calendar, context.now, context.more,
                counted=counted, frequencies=context.frequencies,
            )
        )  # fmt: skip

    found = finder(question)
    carried = followup.carry(found, history, finder) if history else None
    if carried is not None:
        return _followed(carried, question, context)
    parts = parts_of(question)
    if len(parts) > 1:
        separate = [_counted(finder(part), finder)[0] for part in parts]
        # "show both counts" is no question of its own.
        asking = [part for part in separate if part.pieces or topic_of(part) or calculations.find_calculation(part)]
        if len(asking) > 1:
            return _several(question, separate, found, context)
    found, calculation = _counted(found, finder)
    if calculations.asks_who_has_not(found):
        return _of_what_is_not(question, found, context)
    calculation = calculation or calculations.find_lookup(found) or calculations.find_listing(found)
    made = _single(question, found, calculation, context)
    may_be = made.kind == "retrieve" and calculation is None
    return replace(made, mentioned=mentioned(found)) if may_be else made


def _of_what_is_not(question: str, found: Found, context: Context) -> RulesReading:
    """Read "who has not ..." as a search without excluding filters: documents with other values do not answer it."""
    kept = tuple(piece for piece in found.pieces if not takes_away(piece.filter))
    return _single(question, replace(found, pieces=kept), None, context)


def of_document(made: RulesReading, context: Context) -> RulesReading:
    """Return the reading of a question that is only a document's id, without conditions read from parts of the id."""
    sources = made.sources if made.kind == "retrieve" and made.aggregate is None else _choices(context)
    return replace(
        made, kind="retrieve", searches=(made.question,), pieces=(), sources=sources, aggregate=None,
        confidence=0.9, rejected=(), complete=True, mentioned=None, is_listing=False,
    )  # fmt: skip


def without(made: RulesReading, pieces: Sequence[Piece], context: Context) -> RulesReading:
    """Return a reading without the constraints `pieces`, which match no document: a search, without a calculation."""
    reason = "no document has such a value"
    return replace(
        made,
        kind="retrieve" if made.kind == "aggregate" else made.kind,
        searches=(made.question,),
        pieces=tuple(piece for piece in made.pieces if piece not in pieces),
        sources=_choices(context) if made.aggregate is not None else made.sources,
        aggregate=None,
        rejected=(*made.rejected, *(Rejected(what=f"filter on {piece.field}", reason=reason) for piece in pieces)),
        complete=False,
    )


def _counted(found: Found, finder: Finder) -> tuple[Found, Calculation | None]:
    """Return what was found in a question, and the calculation that it asks for; None for a search.

    A calculation searches no text, so a value named as a topic is a constraint: "the most documents about security".
    """
    calculation = calculations.find_calculation(found)
    if not found.left or (calculation is None and not found.sentence.calculates):
        return found, calculation
    counted = finder(found.sentence.text, counted=True)
    if leaves_out(counted):
        return found, None
    again = calculations.find_calculation(counted)
    # A remaining topic must be searched for, with only the constraints that the question states outright.
    return (counted, again) if again is not None else (found, calculation)


def _single(question: str, found: Found, calculation: Calculation | None, context: Context) -> RulesReading:
    """Read one question: calculate from metadata, or search within its constraints."""
    rejected = rejected_of(found)
    left = calculations.read_calculation(found).unread if calculation is None else ()
    if calculation is not None and contradict(calculation.pieces, context.catalogue.fields):
        left = tuple(question[one.start : one.end] for one in calculation.pieces)
    elif calculation is not None:
        calculation = replace(calculation, pieces=tuple(map(_meant, calculation.pieces)))
        left = tuple(question[one.start : one.end] for one in calculation.pieces if one.confidence < FILTERS_FROM)
    if left:
        # A number that ignores a condition would be wrong. The documents may hold the answer.
        reason = "it could not be matched to one metadata field, so nothing was calculated"
        rejected = (*rejected, Rejected(what=" ".join(left)[:200], reason=reason))
        calculation = None
    if calculation is not None and "sql" in context.cards:
        reason = "read as a word for the documents that are counted or listed"
        rejected = (*rejected, *(Rejected(what=word, reason=reason) for word in calculation.assumed))
        # A name that was not used may mean something to a model.
        complete = not rejected and not found.left and calculation.sure
        confidence = _confidence(calculation.pieces, 0.9)
        return _aggregated(question, calculation, context, confidence, rejected, complete=complete)
    exact = is_identifier(found)
    is_listing = bool(found.pieces) and not topic_of(found)
    search = found.rest if found.pieces and not is_listing else question
    return RulesReading(
        kind="retrieve",
        question=question,
        searches=(search,),
        pieces=found.pieces,
        sources=_choices(context, exact=exact),
        aggregate=None,
        confidence=0.9 if exact else _confidence(found.pieces, 0.6),
        rejected=with_unread(rejected, found),
        complete=exact and not rejected and not beside_identifiers(found),
        is_listing=is_listing,
    )


def _meant(piece: Piece) -> Piece:
    """Return a likely constraint as a sure one, any other unchanged: a calculation uses a value for nothing else."""
    return replace(piece, confidence=FILTERS_FROM) if _LEAST_COUNTED <= piece.confidence < FILTERS_FROM else piece


def _aggregated(
    question: str,
    calculation: Calculation,
    context: Context,
    confidence: float,
    rejected: tuple[Rejected, ...],
    *,
    complete: bool,
) -> RulesReading:
    return RulesReading(
        kind="aggregate",
        question=question,
        searches=(question,),
        pieces=calculation.pieces,
        sources=_choices(context, sql="metadata answers it", documents=not calculation.sure),
        aggregate=calculation.aggregate,
        confidence=confidence,
        rejected=rejected,
        complete=complete,
    )


def _followed(carried: followup.Carried, question: str, context: Context) -> RulesReading:
    """Read a follow-up: calculate from metadata if it asks for that, else search with words of earlier turns."""
    found = carried.found
    about = carried.context if not carried.lists or topic_of(carried.before) else ""
    said = followup.stripped(question) if not carried.lists or topic_of(found) else ""
    search = " ".join(filter(None, (said, about))) or carried.before.sentence.text
    # Keep the turn as written and add the earlier question: a model that reads the prompt sees only this text.
    whole = f'{question} (said after: "{carried.before.sentence.text}")'
    calculation = _carried_calculation(carried)
    if calculation is not None and "sql" in context.cards:
        made = _aggregated(whole, calculation, context, 0.7, rejected_of(found), complete=False)
        return replace(made, searches=(search,))
    return RulesReading(
        kind="retrieve",
        question=whole,
        searches=(search,),
        pieces=carried.pieces,
        sources=_choices(context),
        aggregate=None,
        confidence=0.6,
        rejected=with_unread(rejected_of(found), found),
        complete=False,
        is_listing=bool(carried.pieces and carried.lists) and not (said or about),
    )


def _carried_calculation(carried: followup.Carried) -> Calculation | None:
    """Return the calculation that a follow-up asks for, or None."""
    found, pieces = carried.found, carried.pieces
    named = {"id", *found.sentence.vocabulary.of_role("number")}
    asked = fields_shown(found, {piece.field for piece in pieces} & named)
    if len(pieces) == 1 and pieces[0].field in named and asked and not topic_of(found):
        # "the latest one" has selected a document; the follow-up asks for a field of it.
        return calculations.values_of(asked, pieces)
    calculation = calculations.find_calculation(found)
    if calculation is None and carried.again and not _says_more(carried):
        # "what about 2022?" repeats the calculation.
        calculation = calculations.find_calculation(carried.before)
    if calculation is not None and _is_of_one_thing(carried, calculation):
        return None
    if calculation is not None:
        return replace(calculation, pieces=pieces, sure=True) if pieces else calculation
    if asked and carried.lists and pieces and not carried.again and not found.pieces and not topic_of(found):
        return calculations.values_of(asked, pieces)  # "and who led it?"
    if carried.lists and pieces and not (carried.context and topic_of(carried.before)):
        return calculations.listing(replace(found, pieces=pieces))
    return None


def _is_of_one_thing(carried: followup.Carried, calculation: Calculation) -> bool:
    """Return whether an amount of one document is asked for ("how much did it cost?"), so that a sum would be wrong."""
    is_amount = calculation.aggregate.get("op") not in ("count", "list")
    return is_amount and pointing.IT.search(carried.found.sentence.text) is not None


def _says_more(carried: followup.Carried) -> bool:
    """Return whether a follow-up has words not understood ("make it 3000"), so repeating the calculation is wrong."""
    return carried.pieces == carried.before.pieces or bool(calculations.read_calculation(carried.found).unread)


def _several(question: str, parts: Sequence[Found], whole: Found, context: Context) -> RulesReading:
    """Read separate questions in one turn: one search each, and a filter only if every question has constraints."""
    made = [calculations.find_calculation(part) for part in parts]
    together = calculations.merged(made)
    if together is not None and "sql" in context.cards:
        confidence = _confidence(together.pieces, 0.9)
        return _aggregated(question, together, context, confidence, rejected_of(whole), complete=True)
    aggregate: Json | None = None
    filters: list[Json | None] = []
    searches: list[str] = []
    for part, calculation in zip(parts, made, strict=True):
        if calculation is not None and aggregate is None and "sql" in context.cards:
            aggregate = _within(calculation)
            filters.append(None)
        else:
            filters.append(both([piece.filter for piece in part.pieces]) if part.pieces else None)
            searches.append(part.sentence.text)
    if not searches:
        return _single(question, whole, calculations.find_calculation(whole), context)
    stated = [one for one in filters if one is not None]
    pieces = _for_all(whole)
    if not pieces and stated and len(stated) == len(filters):
        distinct = [one for place, one in enumerate(stated) if one not in stated[:place]]
        least = min(piece.confidence for part in parts for piece in part.pieces)
        pieces = (Piece(whole.pieces[0].field if whole.pieces else "", either(distinct), 0, 0, least),)
    return RulesReading(
        kind="retrieve",
        question=question,
        searches=tuple(searches[:_MOST_SEARCHES]),
        pieces=pieces,
        sources=_choices(context, sql="metadata answers a part of it" if aggregate else None),
        aggregate=aggregate,
        confidence=0.6,
        rejected=rejected_of(whole) if aggregate else with_unread(rejected_of(whole), whole),
        complete=False,
    )


def _for_all(whole: Found) -> tuple[Piece, ...]:
    """Return the constraints before the first of several questions: "For 3.14: what changed in A, and what is B?"."""
    head = _HEAD.match(whole.sentence.text)
    return tuple(piece for piece in whole.pieces if piece.end <= head.end()) if head else ()


def _within(calculation: Calculation) -> Json:
    """Return the aggregate with its filter inside, because the filter does not apply to the turn's other questions."""
    if not calculation.pieces:
        return calculation.aggregate
    filter = both([piece.filter for piece in calculation.pieces])
    return {**calculation.aggregate, "where": filter}


def _nothing(question: str) -> RulesReading:
    choice = SourceChoice(name="none", confidence=0.95, reason="small talk")
    return RulesReading("none", question, (), (), (choice,), None, 0.95, (), complete=True)


def _choices(
    context: Context, *, sql: str | None = None, documents: bool = True, exact: bool = False
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
        names = usual(context.cards)
        # Identifiers are found by full text; an embedding does not represent them.
        first = [name for name in names if name == "fulltext"] if exact else []
        chosen += [SourceChoice(name=name, confidence=0.9 if exact else 0.7, reason=reason) for name in first or names]
    return tuple(chosen)


def _confidence(pieces: Sequence[Piece], least: float) -> float:
    return round(min((piece.confidence for piece in pieces), default=least), 2)
