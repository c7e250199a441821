"""All that rules find in the words of one turn, before history and routing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agent.intent import lexicon, wording
from agent.intent.comparing import NumberRange, find_quantities, is_key, year_ranges
from agent.intent.deciding import Constraint, read_constraints
from agent.intent.filters import Json, both, either, of_constraint, of_date, of_number, outside
from agent.intent.flags import read_flags
from agent.intent.lengths import find_lengths
from agent.intent.linking import Mention, find_mentions
from agent.intent.negation import is_denied, is_negated
from agent.intent.reading import SURE
from agent.intent.sentence import Sentence, about_regions
from agent.intent.text import stem, tokenize
from agent.intent.time.dates import DateRange, read_dates
from agent.intent.time.periods import Calendar
from agent.intent.translating import translated_cues
from agent.intent.versions import version_ranges
from agent.intent.vocabulary import Vocabulary, concepts_of


@dataclass(frozen=True, slots=True)
class Piece:
    """One filter with the field it is on and the characters that state it; `why` is the evidence, in words."""

    field: str
    filter: Json
    start: int
    end: int
    confidence: float = 1.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What the words state.

    Attributes:
        pieces: filters, one per constraint, in the order of the question.
        left: values that were named as a topic, or of which it is not clear who or what is meant.
        lengths: conditions on how many values a list holds, which calculations know and searches do not.
        unread_dates: characters [first, last) of words of dates that could not be read whole.
        rest: the question without what the sure pieces stand for; what is only likely is searched for as well.
    """

    sentence: Sentence
    constraints: tuple[Constraint, ...]
    dates: tuple[DateRange, ...]
    numbers: tuple[NumberRange, ...]
    pieces: tuple[Piece, ...]
    left: tuple[Mention, ...]
    lengths: tuple[Piece, ...] = ()
    unread_dates: tuple[tuple[int, int], ...] = ()

    @property
    def filter(self) -> Json | None:
        return both([piece.filter for piece in self.pieces]) if self.pieces else None

    @property
    def rest(self) -> str:
        text = self.sentence.text
        sure = [piece for piece in self.pieces if piece.confidence >= SURE]
        for piece in sorted(sure, key=lambda piece: -piece.start):
            # What only led to the constraint goes with it: "by", "in", quotes, 由.
            text = f"{_LEADING.sub('', text[: piece.start])} {_TRAILING.sub('', text[piece.end :])}"
        return " ".join(text.split()).strip(" ,;:，；：、")


def find(
    text: str,
    vocabulary: Vocabulary,
    nouns: frozenset[str],
    calendar: Calendar,
    now: datetime,
    more: Sequence[tuple[str, str, int]] = (),
    *,
    counted: bool = False,
    frequencies: Mapping[str, float] | None = None,
) -> Found:
    """Everything that one turn states about metadata.

    Args:
        counted, frequencies: see `Sentence`.
        nouns: words for the documents of the collections in scope ("pep", "peps").
        now: in the time zone of who asks, which days are of.
        more: values looked up in fields too large to know, see `find_mentions`.
    """
    tokens = tokenize(text)
    more_cues = translated_cues(tokens, vocabulary)
    if more_cues:
        vocabulary = replace(vocabulary, cues={**vocabulary.cues, **more_cues})
    nouns = nouns | _numbered(vocabulary)
    about = about_regions(text, tokens, (*nouns, *vocabulary.kinds))
    sentence = Sentence(
        text, tokens, find_mentions(tokens, vocabulary, more), vocabulary, nouns, about=about, counted=counted,
        frequencies=frequencies or {}, calculates=wording.is_calculating(text),
    )  # fmt: skip
    denials = {one.first: is_negated(sentence, one) for one in sentence.mentions}
    if len(tokens) > _STORY:
        denials = {place: None if denied else denied for place, denied in denials.items()}
    sentence = replace(sentence, denials=denials)
    ranges, unread_dates = read_dates(text, calendar)
    dates = [one for one in ranges if _is_stated(one, sentence, calendar)]
    dates = [one for one in dates if not any(_holds(mention, one) for mention in sentence.mentions)]
    sentence = replace(sentence, taken=tuple((one.start, one.end) for one in dates), dated=bool(dates))
    numbers = [*find_quantities(sentence), *year_ranges(sentence, dates)]
    sentence = replace(sentence, taken=(*sentence.taken, *((one.start, one.end) for one in numbers)))
    constraints, left = read_constraints(sentence)
    constraints = [*version_ranges(sentence, constraints), *read_flags(sentence)]
    fields = vocabulary.catalogue.fields
    pieces = [Piece(one.field, of_constraint(one, fields), one.start, one.end, one.confidence) for one in constraints]
    stated = [Piece(one.field, of_number(one), one.start, one.end) for one in numbers]
    stated += _date_pieces(sentence, dates, now)
    if len(tokens) > _STORY:
        stated = [replace(one, confidence=_TOLD) for one in stated]
    pieces += stated
    pieces += _existence(sentence, {piece.field for piece in pieces})
    pieces.sort(key=lambda piece: piece.start)
    lengths = tuple(
        Piece(name, {"type": operator, "key": f"len({name})", "value": number}, start, end)
        for name, operator, number, start, end in find_lengths(sentence)
    )
    return Found(
        sentence,
        tuple(constraints),
        tuple(dates),
        tuple(numbers),
        tuple(pieces),
        tuple(left),
        lengths,
        tuple(unread_dates),
    )


def _holds(mention: Mention, one: DateRange) -> bool:
    """ "Business Today" is no day."""
    is_whole = mention.known[0].how == "exact" and mention.last - mention.first > 1
    return is_whole and mention.start <= one.start and one.end <= mention.end


def _numbered(vocabulary: Vocabulary) -> frozenset[str]:
    """Words for documents by the field that numbers them: case_number is of cases."""
    keys = (name for name in vocabulary.of_role("number") if is_key(vocabulary, name))
    words = {word for name in keys for word in lexicon.name_words(name) if word not in lexicon.CONCEPTS["number"][0]}
    return frozenset(words | {f"{word}s" for word in words})


# What makes a document's date, the likeliest first.
_DATES = ("published", "created", "updated", "effective")
_STORY = 36
"""Words from which on a question tells a story: its days and numbers may be of what happened, not of the documents."""
_TOLD = 0.8
_NEAR = 40
"""Characters between a date and the word for its field."""
_LONGEST_PHRASE = 60
_LEADING = re.compile(
    r"(?:\b(?:by|in|from|of|on|at|for|with|since|during|within|the|a|an|that|which|who|is|are|was|were|not|and|or)\s+)+$|"
    r"[由在从自于‘“「『\"'（(和与、]+\s*$",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"^\s*(?:['’]s\b|[’”」』\"'）)]+|的(?=[^\u4e00-\u9fff]|$))+", re.IGNORECASE)
_TODAY = re.compile(r"(?:for\s+)?today|今[天日]", re.IGNORECASE)
_STILL = re.compile(r"\b(?:still|yet|any\s?more)\b|还|仍", re.IGNORECASE)
_MONTH_ALONE = re.compile(r"in\s+\w+$", re.IGNORECASE)


def _is_stated(one: DateRange, sentence: Sentence, calendar: Calendar) -> bool:
    """Whether a range can be about when documents were made.

    Not when it lies after all of them ("the year 2038 problem"); a month alone and "today" only where the
    question speaks of documents or of making them ("an hour repeats in October", "can one do it today").
    """
    vocabulary = sentence.vocabulary
    dates = vocabulary.of_role("date")
    highs = [str(vocabulary.catalogue.fields[name].high or "") for name in dates]
    if one.period.low is not None and highs and one.period.low.isoformat() > max(*highs, calendar.today.isoformat()):
        return False
    phrase = one.phrase.strip()
    is_month = _MONTH_ALONE.fullmatch(phrase) is not None and not any(c.isdigit() for c in phrase)
    is_today = _TODAY.fullmatch(phrase) is not None
    if not is_month and not is_today:
        return True
    if is_today and _STILL.search(sentence.text):
        return False
    places = range(len(sentence.tokens))
    is_made = any(not set(sentence.cue_fields(place)).isdisjoint(dates) for place in places)
    return is_made or any(sentence.is_noun(place) for place in places)


_WITHOUT = re.compile(
    r"(?:(?:\b(?:without|lack(?:s|ing)?|miss(?:es|ing)|never\s+(?:had|have|has|got|listed|named)|"
    r"not\s+(?:have|has|had|got|list|name|state)|"
    r"(?:with|ha(?:ve|s|d)|nam(?:e|es|ing)|list(?:s|ing)?|giv(?:e|es|ing)|stat(?:e|es|ing))\s+no)|"
    r"n['’]t\s+(?:have|list|name|state|give))(?:\s+(?:a|an|any|\w+))?|"
    r"没有|缺少|不带|(?:没有?|未)(?:写明?|注明|标明?|填写?)|(?:不带|没有|无)任何)$",
    re.IGNORECASE,
)
_MAY_LACK = ("person", "label", "version", "number", "tag", "date")
_UNWRITTEN = re.compile(r"(?:没有?|未)(?:写明|注明|标明|填写?)任?何?$")
_HAVING = re.compile(r"\b(?:have|has|had|list|lists|name|names|carry|carries)\s+(?:a|an|any)$", re.IGNORECASE)
_WITH = re.compile(
    r"(?:\b(?:that\s+have|that\s+has|with)\s+(?:a|an)|(?:^|[，。；]|第[一二三四五六\d]+[个篇份条])有)$", re.IGNORECASE
)


def _existence(sentence: Sentence, constrained: set[str]) -> list[Piece]:
    """ "without a sponsor": a field that is or is not there."""
    catalogue, roles = sentence.vocabulary.catalogue, sentence.vocabulary.roles
    pieces: list[Piece] = []
    for index, token in enumerate(sentence.tokens):
        fields, behind = sentence.cue(index)
        name = next((one for one in fields if roles[one] in _MAY_LACK), None)
        known = constrained | {piece.field for piece in pieces}
        if name is None or name in known or sentence.mention_at(index) is not None:
            continue
        # A field that all documents have is never missing; only its own name can be.
        is_always = catalogue.fields[name].documents >= catalogue.documents
        before = sentence.text[: token.start].rstrip()
        without = _WITHOUT.search(before)
        # Without a word for it in Chinese is without the field; in English "no date" may be anything.
        # But how many are without it asks of documents, whatever it is called.
        counts = any(pattern.search(sentence.text) for pattern in (wording.COUNTING, wording.SHARE))
        is_named = _is_own_name(sentence, name, index, behind) or (
            token.kind == "cjk" and (counts or _UNWRITTEN.search(before) or _WITH.search(before))
        )
        if is_always or not is_named or wording.NO_CALCULATION.search(sentence.text):
            continue
        of_documents = sentence.has_document_noun(sentence.text) or any(
            "kind" in concepts_of(one) for one in constrained
        )
        if token.kind == "cjk" and not of_documents:
            continue  # 没有预算怎么办 speaks of no documents
        # "how many have a sponsor": elsewhere that only asks whether.
        having = _HAVING.search(before) if counts else None
        stated = without or _WITH.search(before) or having
        if stated:
            filter: Json = {"type": "exists", "key": name, "value": without is None}
            pieces.append(Piece(name, filter, stated.start(), sentence.tokens[behind - 1].end, 0.9))
    return pieces


def _is_own_name(sentence: Sentence, field: str, index: int, behind: int) -> bool:
    """Whether the cue at these places is the field's own name, or Chinese for it."""
    token, words = sentence.tokens[index], lexicon.name_words(field)
    if token.kind == "cjk":
        said = sentence.text[token.start : sentence.tokens[behind - 1].end]
        name = " ".join(words)
        return any(said in lexicon.bilingual().get(one, ()) for one in (name, name.removesuffix("s")))
    return token.stem in {stem(word) for word in words}


def _date_pieces(sentence: Sentence, dates: Sequence[DateRange], now: datetime) -> list[Piece]:
    """One filter for each date field: ranges side by side are alternatives, unless their open ends meet."""
    zone = now.tzinfo
    assert zone is not None
    by_field: dict[str, list[DateRange]] = {}
    for one in dates:
        name = date_field(sentence, one)
        if name is not None:
            by_field.setdefault(name, []).append(one)
    pieces = []
    for name, ranges in by_field.items():
        made = [of_date(one, sentence.vocabulary.catalogue.fields[name], zone) for one in ranges]
        if len(made) == 1 and is_denied(sentence, ranges[0].start, sentence.vocabulary.of_role("date")):
            made = [outside(made[0])]
        lows = [one.period.low for one in ranges if one.period.low is not None]
        highs = [one.period.high for one in ranges if one.period.high is not None]
        # "before 2001 or after 2024" leaves no day for both.
        is_open = len(lows) < len(ranges) and len(highs) < len(ranges)
        meet = is_open and bool(lows) and bool(highs) and max(lows) < min(highs)
        start, end = min(one.start for one in ranges), max(one.end for one in ranges)
        if end - start >= _LONGEST_PHRASE:
            # Too far apart for one phrase: the words between them are not of dates.
            start, end = ranges[0].start, ranges[0].end
        pieces.append(Piece(name, both(made) if meet else either(made), start, end))
    return pieces


def date_field(sentence: Sentence, one: DateRange) -> str | None:
    """The date field that a range is about: one whose word stands near, else when documents came to be."""
    fields = sentence.vocabulary.of_role("date")
    if not fields:
        return None
    near: list[tuple[int, str]] = []
    for index, token in enumerate(sentence.tokens):
        gap = token.start - one.end if token.start >= one.end else one.start - token.end
        if token.kind != "mark" and 0 <= gap < _NEAR:
            near += [(gap, name) for name in sentence.cue_fields(index) if name in fields]
    if near and len(fields) > 1:
        return min(near)[1]
    # When something ends is not when it came to be; of fields whose names say nothing the one of most documents is.
    last = len(_DATES)
    return min(
        fields,
        key=lambda name: min(
            (_DATES.index(c) for c in concepts_of(name) if c in _DATES),
            default=last + ("expires" in concepts_of(name)),
        ),
    )
