"""Extract the features by which it is judged whether a date in a question is a condition on a date field.

A feature is a pair of a name and a number, as in `agent.intent.deciding.features`: what stands beside the date, how the
date is written, what the field is called, and which of the field's dates lie in the range.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import chain

from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.conditions import date_fields
from agent.intent.conditions.document_numbers import holds_years
from agent.intent.deciding.features import is_content_word
from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese
from agent.intent.time.periods import Period
from agent.intent.time.run_reader import DateRange
from agent.intent.values.field_words import chinese_field_words, concepts_of
from agent.intent.words import LANGUAGES, word_table
from retrievers.core.types import FieldValues

Span = tuple[int, int]
"""Characters [start, end)."""
_CONCEPTS = ("published", "created", "updated", "decided", "effective", "expires")
_PREPOSITION_GROUPS = """
in during / on at / from / since / before / after / until by / between / for / of / this / last
""".split("/")
_PREPOSITIONS = {word: place for place, words in enumerate(_PREPOSITION_GROUPS, 1) for word in words.split()}
_PARTS = {"none": 1.0, "all": 2.0, "some": 3.0}
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_PLURAL = re.compile(r"[a-z]{3,}s")
_AHEAD = frozenset("due upcoming coming next expiring expire expires deadline planned scheduled will".split())
_OPENINGS = {
    "auxiliary": frozenset("is are was were do does did can could may should would will has have".split()),
    "how": frozenset("how why when".split()),
    "what": frozenset("who what which where whose".split()),
}
"""First words of questions. "Does it freeze in May?" is about the world more often than "What froze in May?"."""
_JOINS = re.compile(r"[\s,，、&/]*(?:and|or|vs\.?|和|与|或者?|及)?[\s]*", re.IGNORECASE)
_NEAR, _WORD = 40, 6
"""Maximum characters to a word for an event, and the characters of a short word."""
_MOST_COUNTED = 30


@dataclass(frozen=True, slots=True)
class DateCandidate:
    """A range of days in a question, read as a condition on one date field.

    Attributes:
        stated: the range as the question states it.
        meant: the range; if it names no year, the occurrence that is meant, see `choose_occurrence`.
        is_occurrence_sure: whether the choice of the occurrence is sure.
        is_possible: whether its words may also be a name or a topic, see `DateReading.possible`.
    """

    stated: DateRange
    meant: DateRange
    field: str
    is_occurrence_sure: bool
    is_possible: bool


def date_candidates(
    sentence: Sentence, ranges: Sequence[DateRange], possible: Sequence[DateRange], today: date
) -> list[DateCandidate]:
    """Return a candidate for each range and date field; the arguments are those of `DateReading`."""
    fields = sentence.vocabulary.catalogue.fields
    made = []
    for one, is_possible in (*((one, False) for one in ranges), *((one, True) for one in possible)):
        for name in sentence.vocabulary.of_role("date"):
            meant, is_sure = date_fields.choose_occurrence(date_fields.for_start_field(one, name), fields[name], today)
            made.append(DateCandidate(one, meant, name, is_sure, is_possible))
    return made


def features_of(sentence: Sentence, candidates: Sequence[DateCandidate], today: date) -> list[dict[str, float]]:
    """Return {name of a feature: number} for each candidate; a feature that is missing counts as 0."""
    stated = sorted({id(one.stated): one.stated for one in candidates}.values(), key=lambda each: each.start)
    lists = list(listed_ranges(sentence.text, stated))
    spans = {id(one): (listed[0].start, listed[-1].end) for listed in lists for one in listed}
    others = {key: [each for each in set(spans.values()) if each != span] for key, span in spans.items()}
    of_range: dict[int, dict[str, float]] = {}
    for listed in lists:
        for each in listed:
            features = chain(
                _form_features(each, today),
                _context_features(sentence, each),
                _event_features(sentence, spans[id(each)], others[id(each)]),
            )
            of_range[id(each)] = {
                **dict(features), "other ranges": float(len(stated) - 1), "listed": float(len(listed) > 1)
            }  # fmt: skip
    return [
        {
            **of_range[id(one.stated)],
            **dict(_field_features(sentence, one, today)),
            **dict(_cue_features(sentence, one, spans[id(one.stated)], others[id(one.stated)])),
        }
        for one in candidates
    ]


def listed_ranges(text: str, ranges: Sequence[DateRange]) -> Iterator[list[DateRange]]:
    """Yield the ranges in their order; those that only commas and conjunctions separate as one list."""
    listed: list[DateRange] = []
    for one in ranges:
        if listed and _JOINS.fullmatch(text, listed[-1].end, one.start) is None:
            yield listed
            listed = []
        listed.append(one)
    if listed:
        yield listed


def _form_features(one: DateRange, today: date) -> Iterator[tuple[str, float]]:
    period, phrase = one.period, one.phrase.strip()
    first = phrase.split(maxsplit=1)[0].casefold() if phrase else ""
    yield "preposition", float(_PREPOSITIONS.get(first, 0))
    yield "yearless", float(period.next_occurrence is not None)
    yield "year", float(_YEAR.search(phrase) is not None)
    yield "year alone", float(_YEAR.fullmatch(phrase) is not None)
    yield "digits", float(sum(one.isdigit() for one in phrase))
    yield "words", float(len(phrase.split()))
    yield "chinese", float(has_chinese(phrase))
    yield "capital", float(phrase[:1].isupper())
    yield "open", float(period.low is None) + 2 * float(period.high is None)
    yield "up to now", float(period.until is not None)
    if period.is_bounded:
        yield "days", math.log2(1 + period.days)
    near = period.low or period.high
    if near is not None:
        yield "ahead", float(near > today)


def _context_features(sentence: Sentence, one: DateRange) -> Iterator[tuple[str, float]]:
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    before, after = sentence.token(first - 1), sentence.token(last)
    yield "starts", float(before is None)
    yield "ends", float(after is None)
    for name, token, place in (("before", before, first - 1), ("after", after, last)):
        if token is None:
            continue
        yield f"mark {name}", float(token.text in ENDS)
        yield f"capital {name}", float(token.is_capital)
        yield f"number {name}", float(token.kind == "number")
        yield f"noun {name}", float(sentence.is_noun(place))
        yield f"value {name}", float(sentence.mention_at(place) is not None)
        yield f"cue {name}", float(bool(sentence.cue_fields(place)))
        yield f"stop word {name}", float(token.folded in lexicon.STOP_WORDS)
        yield f"plural {name}", float(_PLURAL.fullmatch(token.folded) is not None)
        yield f"content {name}", float(is_content_word(sentence, place))
        yield f"past {name}", float(date_fields.is_past_verb(token.folded))
        yield f"preposition {name}", float(_PREPOSITIONS.get(token.folded, 0))
    covering = [mention for mention in sentence.mentions if mention.start < one.end and one.start < mention.end]
    yield "named", float(bool(covering))
    yield "named longer", float(any(mention.last - mention.first > last - first for mention in covering))
    inside = range(first, last)
    outside = [place for place in range(min(len(sentence.tokens), _MOST_COUNTED)) if place not in inside]
    yield "tokens", float(len(sentence.tokens))
    yield "content words", float(sum(is_content_word(sentence, place) for place in outside))
    yield "values", float(len({sentence.mention_at(place) for place in outside} - {None}))
    yield "nouns", float(sum(sentence.is_noun(place) for place in outside))
    yield from ((f"opens with {name}", float(sentence.folded(0) in words)) for name, words in _OPENINGS.items())
    yield "question mark", float(sentence.text.rstrip().endswith(("?", "？")))
    yield "past verbs", float(sum(date_fields.is_past_verb(token.folded) for token in sentence.tokens[:_MOST_COUNTED]))
    yield "looks ahead", float(any(token.folded in _AHEAD for token in sentence.tokens[:_MOST_COUNTED]))
    yield "calculation", float(sentence.has_calculation_word)
    yield "of asker", float(date_fields.is_about_asker(sentence, one))
    yield "in topic", float(sentence.is_in_topic(one.start))
    yield "in title", float(date_fields.is_in_title(sentence.text, one))
    yield "other verb", float(date_fields.is_of_another_date(sentence, one))


def _field_features(sentence: Sentence, candidate: DateCandidate, today: date) -> Iterator[tuple[str, float]]:
    stated = candidate.stated
    vocabulary = sentence.vocabulary
    names, name = vocabulary.of_role("date"), candidate.field
    values = vocabulary.catalogue.fields[name]
    yield "possible", float(candidate.is_possible)
    yield "date fields", float(len(names))
    yield "rank", float(date_fields.date_rank(name))
    yield "ranks above", float(sum(date_fields.date_rank(other) < date_fields.date_rank(name) for other in names))
    yield "ranks beside", float(sum(date_fields.date_rank(other) == date_fields.date_rank(name) for other in names) - 1)
    yield "main", float(date_fields.main_date_field(vocabulary) == name)
    for concept in concepts_of(name).intersection(_CONCEPTS):
        yield f"is {concept}", 1.0
    yield "year fields", float(sum(holds_years(vocabulary, other) for other in vocabulary.of_role("number")))
    yield "units", float(name in vocabulary.date_units)
    units = vocabulary.date_units.get(name)
    yield "written alike", float(units is not None and units.is_written(stated.period, stated.phrase))
    yield "documents", values.documents / max(vocabulary.catalogue.documents, 1)
    known = [vocabulary.catalogue.fields[other] for other in names]
    yield "earlier fields", float(sum(str(other.low or "") < str(values.low or "") for other in known))
    yield "later fields", float(sum(str(other.high or "") > str(values.high or "") for other in known))
    yield "reaches ahead", float(str(values.high or "")[:10] > today.isoformat())
    yield "occurrence sure", float(candidate.is_occurrence_sure)
    yield "part", _PARTS[date_fields.part_in(candidate.meant.period, values)]
    yield "share", _share(candidate.meant.period, values)
    cued, by_verb, by_noun = sentence.cached(
        ("date fields named", stated.start, stated.end), lambda: _named_fields(sentence, stated, names)
    )
    yield "cued", float(name in cued)
    yield "only cued", float(cued == {name})
    yield "other cued", float(bool(cued - {name}))
    yield "verb names", float(by_verb == name)
    yield "verb names other", float(by_verb is not None and by_verb != name)
    yield "noun names", float(by_noun == name)
    yield "noun names other", float(by_noun is not None and by_noun != name)
    yield "unnamed words", float(date_fields.count_unnamed_words(sentence, name))


def _event_features(sentence: Sentence, span: Span, others: Sequence[Span]) -> Iterator[tuple[str, float]]:
    """Yield, for each kind of event, how near a word for it stands before and after a list: 1 is beside it."""
    for start, end, events in event_words(sentence):
        near = _nearness(span, start, end, others)
        if near:
            side = "before" if end <= span[0] else "after"
            yield from ((f"{event} {side}", near) for event in events)


def _cue_features(
    sentence: Sentence, candidate: DateCandidate, span: Span, others: Sequence[Span]
) -> Iterator[tuple[str, float]]:
    """Yield how near a word for the field stands, and one for another field, of words nearest to this list."""
    names, own = sentence.vocabulary.of_role("date"), field_events(candidate.field)
    rival = frozenset[str]().union(*(field_events(name) for name in names if name != candidate.field))
    near = dict.fromkeys(("cue", "other cue", "event", "other event", "any event"), 0.0)
    for place, fields in sentence.cued_tokens:
        token = sentence.tokens[place]
        if not span[0] <= token.start < span[1] and not sentence.is_noun(place):
            nearness = _nearness(span, token.start, token.end, others)
            for name in fields:
                kind = "cue" if name == candidate.field else "other cue"
                near[kind] = max(near[kind], nearness if name in names else 0.0)
    for start, end, events in event_words(sentence):
        nearness = _nearness(span, start, end, others)
        for kind, is_meant in (("event", events & own), ("other event", events & rival - own), ("any event", events)):
            near[kind] = max(near[kind], nearness if is_meant else 0.0)
    yield from ((f"{kind} near", nearness) for kind, nearness in near.items())
    yield "events of field", float(len(own))
    yield from ((f"field {event}", 1.0) for event in own)


def _nearness(span: Span, start: int, end: int, others: Sequence[Span]) -> float:
    """Return how near the characters [start, end) are to a span, 1 if beside it; 0 if another span is nearer."""
    gap = _gap(span, start, end)
    if gap >= _NEAR or any(_gap(other, start, end) < gap for other in others):
        return 0.0
    return 1 / (1 + gap / _WORD)


def _gap(span: Span, start: int, end: int) -> int:
    """Return the characters between a span and the characters [start, end); 0 if they overlap."""
    return max(start - span[1], span[0] - end, 0)


def event_words(sentence: Sentence) -> list[tuple[int, int, frozenset[str]]]:
    """Return (first character, character after the last, kinds of events) for each word of the table "events".

    Nouns for documents are no events: "orders".
    """
    return sentence.cached_for_words("events", lambda: list(_event_words(sentence)))


def _event_words(sentence: Sentence) -> Iterator[tuple[int, int, frozenset[str]]]:
    events, longest, chinese = _events()
    if has_chinese(sentence.text):
        for found in chinese.finditer(sentence.text):
            if not sentence.is_noun(sentence.index_from(found.start())):
                yield *found.span(), events[found[0]]
    place = 0
    while place < len(sentence.tokens):
        sizes = range(min(longest, len(sentence.tokens) - place), 0, -1)
        size = next((size for size in sizes if _phrase(sentence, place, size) in events), 0)
        if size and not sentence.is_noun(place):
            last = sentence.tokens[place + size - 1]
            yield sentence.tokens[place].start, last.end, events[_phrase(sentence, place, size)]
        place += max(size, 1)


def _phrase(sentence: Sentence, place: int, size: int) -> str:
    return " ".join(token.folded for token in sentence.tokens[place : place + size])


@cache
def field_events(field: str) -> frozenset[str]:
    """Return the kinds of events that the words in a field's name mean: "close" for `closedAt` and `ja_rq`."""
    events, longest, chinese = _events()
    words = lexicon.name_words(field)
    phrases = (" ".join(words[at : at + size]) for at in range(len(words)) for size in range(1, longest + 1))
    names = (*phrases, *chinese_field_words(field), *chinese.findall(field))
    return frozenset[str]().union(*(events.get(name, frozenset()) for name in names))


@cache
def _events() -> tuple[Mapping[str, frozenset[str]], int, re.Pattern[str]]:
    """Return the events of each word or phrase, words of the longest phrase, and a pattern of the Chinese words."""
    events: dict[str, frozenset[str]] = {}
    for language in LANGUAGES:
        for event, words in word_table("events", language).items():
            for word in words.split():
                phrase = word.replace("_", " ")
                events[phrase] = events.get(phrase, frozenset()) | {event}
    chinese = sorted(filter(has_chinese, events), key=len, reverse=True)
    return events, max(len(one.split()) for one in events), re.compile("|".join(map(re.escape, chinese)))


def _named_fields(sentence: Sentence, one: DateRange, names: Sequence[str]) -> tuple[set[str], str | None, str | None]:
    """Return the date fields that words outside a range mean.

    Returns:
        All fields that a word points at, but a noun for documents ("orders"); the field that the nearest word names,
        without such nouns; and with them, if no other word does. The last two are None with a single date field.
    """
    cued = {
        name
        for place, fields in sentence.cued_tokens
        if not one.start <= sentence.tokens[place].start < one.end and not sentence.is_noun(place)
        for name in fields
        if name in names
    }
    if len(names) < 2:
        return cued, None, None
    by_verb = date_fields.named_date_field(sentence, one, names, by_noun=False)
    return cued, by_verb, by_verb or date_fields.named_date_field(sentence, one, names)


def _share(period: Period, values: FieldValues) -> float:
    """Return the share of the span of a field's dates that lies in a period, 0 to 1; 0 if the span is unknown."""
    try:
        low, high = (date.fromisoformat(str(end)[:10]).toordinal() for end in (values.low, values.high))
    except ValueError:
        return 0.0
    first = max(low, period.low.toordinal() if period.low is not None else low)
    last = min(high + 1, period.high.toordinal() if period.high is not None else high + 1)
    return max(last - first, 0) / max(high + 1 - low, 1)
