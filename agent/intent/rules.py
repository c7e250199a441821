"""Rules: a question as it reads without a model, checked against the field catalogue."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from agent.intent import asking, followup, pointing, smalltalk, turn, vocabulary, wording
from agent.intent import calculation as calculations
from agent.intent.asking import parts_of
from agent.intent.calculation import MOST_LISTED, Calculation, fields_shown
from agent.intent.filters import Json, both, either, excludes
from agent.intent.found import Found, Piece, find
from agent.intent.reading import SURE
from agent.intent.rejected import leaves_out, rejected_of, with_unread
from agent.intent.sources import usual
from agent.intent.text import MOST_CHARACTERS, has_chinese, readable
from agent.intent.time.periods import Calendar
from agent.intent.topic import plain_words, topic_of
from agent.types import Message, Rejected, SourceChoice
from retrievers.core.aggregates import MAX_LIMIT
from retrievers.core.types import Card, FieldCatalogue

# A part of a name is at most so long: a text without blanks must not be read over and over.
_PART = r"[A-Za-z0-9]{0,40}"
_IDENTIFIER = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # sev-1, net.tcp_mem, max_age, main(), os.path, ERR42, std::move, etc/hosts.conf, camelCase
    rf"{_PART}\d{_PART}[-_.][\w.-]{{1,60}}|{_PART}[-_.]{_PART}\d\w{{0,40}}|"
    r"\w{1,60}_\w{1,60}|\w{1,60}\(\)|[A-Za-z]\w{0,40}(?:\.\w{1,40}){1,6}|[A-Z]{2,20}[-\d]\w{0,40}|"
    r"\w{1,60}::\w{1,60}|\w{1,40}/\w{1,40}\.\w{1,40}|[a-z]{1,30}[A-Z]\w{1,40})"
)
_HEAD = re.compile(
    r"\W*(?:(?:for|in|of|about|regarding|concerning)\s|关于|针对|在)[^?？:：]{1,80}[:：](?=\D)", re.IGNORECASE
)
_MOST_SEARCHES = 4
_LEAST_COUNTED = 0.6
"""Least probability of a constraint of a calculation all of whose words are accounted for."""


@dataclass(frozen=True, slots=True)
class RulesReading:
    """What the rules made of a question.

    Attributes:
        pieces: the constraints, the surest last.
        complete: whether a model could add nothing: small talk, identifiers, questions of metadata alone.
        mentioned: what of the catalogue is mentioned; None where the question is for the documents, see `turn`.
        is_listing: whether nothing is asked beside the constraints: "all Final PEPs by Guido".
        wants: what the answer is to be made of.
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
    mentioned: turn.Mentioned | None = None
    is_listing: bool = False
    wants: asking.Wants = "passages"

    @property
    def filter(self) -> Json | None:
        return both([piece.filter for piece in self.pieces]) if self.pieces else None


class Finder(Protocol):
    """`agent.intent.found.find` in one context."""

    def __call__(self, text: str, /, *, counted: bool = False) -> Found:
        """What a text states."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """What a question is read against.

    Attributes:
        nouns: words for the documents ("pep", "peps"), see `derived.nouns_of`.
        now: in the time zone of who asks.
        more: values looked up in fields too large to know.
        frequencies: see `Sentence`.
    """

    catalogue: FieldCatalogue
    nouns: frozenset[str]
    cards: Mapping[str, Card]
    calendar: Calendar
    now: datetime
    more: Sequence[tuple[str, str, int]] = ()
    frequencies: Mapping[str, float] = field(default_factory=dict)


def read_rules(question: str, history: Sequence[Message], context: Context) -> RulesReading:
    """The reading of a question."""
    reading = _with_breadth(
        _read(readable(question), history, context), asking.wants_of(readable(question), context.nouns)
    )
    if len(question) > MOST_CHARACTERS and reading.kind != "none":
        # Rules read a part of a long question; the whole question is searched for.
        return replace(reading, question=question, searches=(question,))
    return reading


def _with_breadth(reading: RulesReading, wants: asking.Wants) -> RulesReading:
    """The reading with what the answer is to be made of; a list that is to be whole ends at the most rows there are."""
    aggregate = reading.aggregate
    if wants == "all" and aggregate is not None and aggregate["op"] == "list" and aggregate.get("limit") == MOST_LISTED:
        aggregate = {**aggregate, "limit": MAX_LIMIT}
    return replace(reading, wants=wants, aggregate=aggregate)


def _read(question: str, history: Sequence[Message], context: Context) -> RulesReading:
    """Small talk first, then what leans on the conversation, several questions, and one that stands for itself."""
    if smalltalk.is_small_talk(question) or smalltalk.is_text_work(question):
        return _nothing(question)
    known = vocabulary.build(context.catalogue)

    def finder(text: str, *, counted: bool = False) -> Found:
        return find(
            text, known, context.nouns, context.calendar, context.now, context.more,
            counted=counted, frequencies=context.frequencies,
        )  # fmt: skip

    found = finder(question)
    carried = followup.carry(found, history, finder) if history else None
    if carried is not None:
        return _followed(carried, question, context)
    parts = parts_of(question)
    if len(parts) > 1:
        separate = [_counted(finder(part), finder)[0] for part in parts]
        # "show both counts" asks nothing of its own.
        asking = [part for part in separate if part.pieces or topic_of(part) or calculations.find_calculation(part)]
        if len(asking) > 1:
            return _several(question, separate, found, context)
    found, calculation = _counted(found, finder)
    if calculation is None and calculations.asks_who_has_not(found):
        return _of_what_is_not(question, found, context)
    calculation = calculation or calculations.find_lookup(found) or calculations.find_listing(found)
    made = _single(question, found, calculation, context)
    may_be = made.kind == "retrieve" and calculation is None
    return replace(made, mentioned=turn.mentioned(found)) if may_be else made


def _of_what_is_not(question: str, found: Found, context: Context) -> RulesReading:
    """What no document says is not found by the documents that say something else: all are searched."""
    kept = tuple(piece for piece in found.pieces if not excludes(piece.filter))
    return _single(question, replace(found, pieces=kept), None, context)


def without(made: RulesReading, pieces: Sequence[Piece], context: Context) -> RulesReading:
    """The reading without constraints that nothing fits: the question is searched for whole, and nothing calculated."""
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
    """What was found, with the calculation that it asks for.

    "the most documents about security": no text is searched, so a value that a text would be about constrains.
    """
    calculation = calculations.find_calculation(found)
    text = found.sentence.text
    if not found.left or (calculation is None and not wording.is_calculating(text)):
        return found, calculation
    counted = finder(text, counted=True)
    if leaves_out(counted):
        return found, None
    again = calculations.find_calculation(counted)
    # What is left as a topic is searched for, with what the question states and no more.
    return (counted, again) if again is not None else (found, calculation)


def _single(question: str, found: Found, calculation: Calculation | None, context: Context) -> RulesReading:
    """One question: calculated from metadata, or searched for within its constraints."""
    rejected = rejected_of(found)
    left = calculations.read_calculation(found).unread if calculation is None else ()
    if calculation is not None:
        calculation = replace(calculation, pieces=tuple(map(_meant, calculation.pieces)))
        left = tuple(question[one.start : one.end] for one in calculation.pieces if one.confidence < SURE)
    if left:
        # A number that leaves out a condition would be a wrong answer: the documents may tell.
        reason = "metadata says nothing of it, so nothing was calculated"
        rejected = (*rejected, Rejected(what=" ".join(left)[:200], reason=reason))
        calculation = None
    if calculation is not None and "sql" in context.cards:
        reason = "taken for what a document is called: documents are counted"
        rejected = (*rejected, *(Rejected(what=word, reason=reason) for word in calculation.assumed))
        # What was named and not used may be what a model would understand.
        complete = not rejected and not found.left and calculation.sure
        confidence = _confidence(calculation.pieces, 0.9)
        return _aggregated(question, calculation, context, confidence, rejected, complete=complete)
    exact = _is_identifier(found)
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
        complete=exact and not rejected,
        is_listing=is_listing,
    )


def _meant(piece: Piece) -> Piece:
    """A likely constraint of a calculation that says nothing else: what would it be said for?"""
    return replace(piece, confidence=SURE) if _LEAST_COUNTED <= piece.confidence < SURE else piece


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
        sources=_choices(context, sql="it is answered by metadata", documents=not calculation.sure),
        aggregate=calculation.aggregate,
        confidence=confidence,
        rejected=rejected,
        complete=complete,
    )


def _followed(carried: followup.Carried, question: str, context: Context) -> RulesReading:
    """A follow-up: asked of the metadata when nothing but metadata is left, else searched with its context."""
    found = carried.found
    about = carried.context if not carried.lists or topic_of(carried.before) else ""
    said = followup.stripped(question) if not carried.lists or topic_of(found) else ""
    search = " ".join(filter(None, (said, about))) or carried.before.sentence.text
    # The turn as it was said, and what makes it understood: a model that reads the prompt sees no more.
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
    """What a follow-up asks of the metadata."""
    found, pieces = carried.found, carried.pieces
    named = {"id", *found.sentence.vocabulary.of_role("number")}
    asked = fields_shown(found, {piece.field for piece in pieces} & named)
    if len(pieces) == 1 and pieces[0].field in named and asked and not topic_of(found):
        # "the latest one" has said which document; what is asked of it is the field.
        return calculations.values_of(asked, pieces)
    calculation = calculations.find_calculation(found)
    if calculation is None and carried.again and not _says_more(carried):
        # "what about 2022?" asks for the same calculation.
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
    """Whether a number of one document is asked for, "how much did it cost?": a sum over many would be another one."""
    is_amount = calculation.aggregate.get("op") not in ("count", "list")
    return is_amount and pointing.IT.search(carried.found.sentence.text) is not None


def _says_more(carried: followup.Carried) -> bool:
    """Whether a turn was not understood: the number before is no answer to "and the maximum?", "make it 3000"."""
    return carried.pieces == carried.before.pieces or bool(calculations.read_calculation(carried.found).unread)


def _several(question: str, parts: Sequence[Found], whole: Found, context: Context) -> RulesReading:
    """Separate questions in one turn: a search for each; a filter only when every part is constrained."""
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
        sources=_choices(context, sql="a part of it is answered by metadata" if aggregate else None),
        aggregate=aggregate,
        confidence=0.6,
        rejected=rejected_of(whole) if aggregate else with_unread(rejected_of(whole), whole),
        complete=False,
    )


def _for_all(whole: Found) -> tuple[Piece, ...]:
    """What is said once, before all the questions: "For 3.14: what changed in A, and what is B?"."""
    head = _HEAD.match(whole.sentence.text)
    return tuple(piece for piece in whole.pieces if piece.end <= head.end()) if head else ()


def _within(calculation: Calculation) -> Json:
    """A calculation that carries its own filter, for a turn whose other parts have none."""
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
    """The sources to ask.

    Args:
        sql: why the metadata is asked; None when it is not.
        documents: whether texts are searched beside the metadata.
        exact: whether the question is an identifier, which is found by its letters.
    """
    chosen = []
    if sql is not None and "sql" in context.cards:
        chosen.append(SourceChoice(name="sql", confidence=0.9, reason=sql))
    if sql is None or documents:
        reason = "it names an identifier" if exact else "documents may answer it"
        names = usual(context.cards)
        # Words that stand for themselves are found by the words; a vector knows nothing of them.
        first = [name for name in names if name == "fulltext"] if exact else []
        chosen += [SourceChoice(name=name, confidence=0.9 if exact else 0.7, reason=reason) for name in first or names]
    return tuple(chosen)


def _confidence(pieces: Sequence[Piece], least: float) -> float:
    return round(min((piece.confidence for piece in pieces), default=least), 2)


def _is_identifier(found: Found) -> bool:
    """Whether a question is little more than names of code, errors or parts."""
    text = found.sentence.text
    names = _IDENTIFIER.findall(text)
    if not names:
        return False
    rest = _IDENTIFIER.sub(" ", text)
    words = plain_words(rest)
    return len(words) <= (2 if not has_chinese(text) else 3)
