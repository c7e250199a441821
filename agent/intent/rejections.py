"""Report the words of a question without effect: unknown values, ambiguous names, and words that made no condition."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from agent.intent import words
from agent.intent.analysis.comparisons import find_comparisons
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.filter_json import is_outside_range
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language import calculation_patterns, lexicon
from agent.intent.model.resolution import suggested_values
from agent.intent.time.lexer import is_day_month_ambiguous
from agent.types import Rejected

Span = tuple[int, int]

SEARCHED = "it was not read as a filter, so it is only searched for as words"
NOT_EXCLUDED = "it was not read as a filter, so it excludes nothing"

_QUOTED = re.compile(r"\"[^\"]{2,80}\"|“[^”]{2,80}”|「[^」]{2,80}」|《[^》]{2,80}》|(?<!\w)'[^']{2,80}'(?!\w)")
_EXACT = re.compile(r"[\d_@/.:-]|(?<=[a-z])[A-Z]|\s")
_NUMBER = re.compile(r"(?<![A-Za-z\d_.:/#-])[$€£¥]?\d+(?:[.,:]\d+)*(?![A-Za-z\d_/-])")
"""A number that is no part of a code."""
_CLAUSE = re.compile(r"[,;:.?!，；：。？！]")
_REACH, _REACH_BACK = 40, 12
_MOST = 5
_BETWEEN = frozenset(["of", "is", "=", ":", "called", "named", "the"])
_BEFORE_PEOPLE = frozenset(["by", "did", "does", "has"])
_BEFORE_GROUPS = frozenset(["by", "of", "from", "in"])
_NO_NAMES = frozenset(
    "same whole entire right wrong other first last next previous own responsible new old current former".split()
)
_MOST_WORDS = 4
_UNCERTAIN = ("also", "doubtful")
"""Kinds of negation that may deny nothing, see `Negator`."""
_NAMED_BY_FIELD = ("label", "person")


class RejectedValue(Rejected):
    """A report to the caller that a name in the question is no known value, or may mean several values.

    Attributes:
        fields: the fields that hold the values in `valid`, in any order; not shown to the caller.
        instead: for an ambiguous name: the caller's filter may leave one or none of its values, so that it is no longer
            ambiguous. Then these reports replace this one, none if the tuple is empty. None for an unknown name.
    """

    fields: tuple[str, ...]
    instead: "tuple[RejectedValue, ...] | None" = None


def find_rejections(parsed: ParsedQuestion) -> tuple[Rejected, ...]:
    """Return reports of names that may mean several people, of unknown names, and of dates not read or doubtful."""
    people = tuple(parsed.sentence.vocabulary.of_role("person"))
    several = [
        mention for mention in parsed.unused_mentions if len({known.value for known in mention.matches_in(*people)}) > 1
    ]
    unknown: tuple[Rejected, ...] = (*unknown_values(parsed), *_unread_dates(parsed))
    if not several:
        return unknown
    # What to report if none of these people exist inside the caller's filter: their names are unknown then.
    only = [mention for mention in several if len(mention.matches_in(*people)) == len(mention.matches)]
    strange = set(unknown_values(replace(parsed, sentence=parsed.sentence.without(only)))) - set(unknown)
    rejected = []
    for mention in several:
        name, valid = (
            parsed.sentence.text[mention.start : mention.end],
            {one.value for one in mention.matches_in(*people)},
        )
        rejected.append(
            RejectedValue(
                what=name,
                reason="it may mean several people",
                valid=tuple(sorted(valid)),
                fields=people,
                instead=tuple(one for one in strange if name in one.what),
            )
        )
    return (*rejected, *unknown)


def _unread_dates(parsed: ParsedQuestion) -> Iterator[Rejected]:
    """Yield reports of date words that could not be read, and of dates whose day and month may be swapped."""
    for start, end in parsed.unread_dates:
        phrase = parsed.sentence.text[start:end]
        yield Rejected(what=phrase[:200], reason="it could not be read as a date, so it was not used as a filter")
    for one in parsed.dates:
        if is_day_month_ambiguous(one.phrase, parsed.sentence.text):
            reason = "its day and month may be swapped; write the month as a word"
            yield Rejected(what=one.phrase[:200], reason=reason)


def add_unread_words(rejected: tuple[Rejected, ...], parsed: ParsedQuestion) -> tuple[Rejected, ...]:
    """Return the reports `rejected`, and those from `unread_words` whose words none of `rejected` quotes."""
    return (*rejected, *(one for one in unread_words(parsed) if not any(one.what in told.what for told in rejected)))


def unread_words(parsed: ParsedQuestion) -> tuple[Rejected, ...]:
    """Return reports of numbers, days, comparisons, quotations, exact values and negations that made no condition.

    An exact value is written as in the catalogue and has a digit, a mark, a blank or a capital inside: "ERR_5".
    """
    sentence = parsed.sentence
    conditions = (*parsed.conditions, *parsed.length_conditions)
    meant = {(one.field, value) for one in parsed.constraints for value in one.values}
    stated = {one.field for one in conditions}
    read = [(one.start, one.end) for one in conditions]
    read += [(one.start, one.end) for one in sentence.mentions if {(k.field, k.value) for k in one.matches} & meant]
    if stated & set(sentence.vocabulary.of_role("date")):
        # A condition of several distant ranges of days has the place of the first only.
        read += [(one.start, one.end) for one in parsed.dates]
    named = [(one.start, one.end) for one in sentence.mentions]
    exact = [
        (one.start, one.end)
        for one in parsed.unused_mentions
        if any(one_of.value == sentence.text[one.start : one.end] for one_of in one.matches)
        and _EXACT.search(sentence.text[one.start : one.end])
    ]
    dates = [(one.start, one.end) for one in parsed.dates]
    denied = [(one.start, one.end) for one in conditions if _may_be_negation(one)]
    stays = [*_unused_comparisons(parsed, read), *_unused_values(sentence.text, [*exact, *dates], read)]
    stays += _unused_negations(sentence, [*named, *dates], read, denied)
    return tuple(_reports(sentence.text, stays))


def _unused_values(text: str, more: Sequence[Span], read: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    """Yield (span, reason) for each quotation, number, day or month, and span in `more` that no condition covers.

    The span yielded includes a comparison before the number: "since 2020".

    Args:
        more: spans of exact values and dates.
        read: the spans of the conditions.
    """
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    days = [match.span() for match in _word_pattern("day").finditer(text)]
    numbers = [match.span() for match in _NUMBER.finditer(text)]
    for start, end in (*quoted, *more, *days, *numbers):
        if any(start < last and first < end for first, last in read):
            continue
        near = max(start - _REACH, 0)
        before = _comparison_pattern().search(text[near:start])
        yield (near + before.start() if before else start, end), SEARCHED


def _unused_comparisons(parsed: ParsedQuestion, read: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    """Yield (span, reason) for comparisons of amounts outside the spans `read` of conditions: "under 300".

    A number in words without a comparison ("two") is left out, because it is hardly a condition.
    """
    compared, unclear = find_comparisons(parsed.sentence)
    why = {(start, end): reason for start, end, reason in parsed.unclear_comparisons}
    said = (one for one in compared if not one.is_bare or not all(amount.is_worded for amount in one.amounts))
    spans = [*unclear, *((one.start, one.end) for one in said)]
    for span in spans:
        if not any(span[0] < last and first < span[1] for first, last in read):
            yield span, why.get(span, SEARCHED)


def _unused_negations(
    sentence: Sentence, named: Sequence[Span], stated: Sequence[Span], denied: Sequence[Span]
) -> Iterator[tuple[Span, str]]:
    """Yield (span, reason) for each negation that made no excluding condition.

    The span ends with the next name, or with the clause if no name follows. A plain "not" is reported only if a name
    follows in its clause.

    Args:
        named: the spans of names and dates.
        stated: the spans of all conditions; a negation inside one of them had an effect.
        denied: the spans of the conditions that exclude something.
    """
    text = sentence.text
    for negator in sentence.negators.values():
        start, end = sentence.tokens[negator.first].start, sentence.tokens[negator.last - 1].end
        clause = _CLAUSE.search(text, end)
        until = min(end + _REACH, clause.start() if clause else len(text))
        near = any(start - _REACH_BACK <= last and first <= until for first, last in denied)
        if near or any(first <= start < last for first, last in stated):
            continue
        excluded = [last for first, last in named if end <= first < until]
        names = text[start:end].casefold() in words.word_table("negation")["naming"]
        if excluded or names or negator.kind in ("excluding", "lacking", "prefix"):
            yield (start, min(excluded) if excluded else until), NOT_EXCLUDED


def _reports(text: str, stays: Iterable[tuple[Span, str]]) -> Iterator[Rejected]:
    """Yield reports of (span, reason) in order, at most five. Of overlapping spans the first and longest is kept."""
    last, count = 0, 0
    for (start, end), reason in sorted(stays, key=lambda one: (one[0][0], -one[0][1])):
        said = text[start:end].strip()
        if start >= last and said and count < _MOST:
            yield Rejected(what=said[:200], reason=reason)
            last, count = end, count + 1


@cache
def _word_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern that matches any word of the list `name` in the table "unread"; longer words are tried first."""
    listed = sorted(words.word_table("unread")[name], key=len, reverse=True)
    said = (rf"(?<![A-Za-z]){re.escape(one)}(?![A-Za-z])" if one.isascii() else re.escape(one) for one in listed)
    return re.compile("|".join(said), re.IGNORECASE)


@cache
def _comparison_pattern() -> re.Pattern[str]:
    """Return a pattern that matches a comparison at the end of the text before a number: "since", ">="."""
    return re.compile(rf"(?:{_word_pattern('comparison').pattern}|[<>≥≤]=?)\s*$", re.IGNORECASE)


def _may_be_negation(condition: StatedCondition) -> bool:
    """Return whether a condition may come from a negation: it excludes values, sets a maximum, or demands "false"."""
    one = condition.filter
    return (
        one["type"] in ("ne", "nin", "not", "lt", "lte")
        or (one["type"] in ("exists", "eq") and one.get("value") is False)
        or (one["type"] == "and" and any(inner["type"] in ("ne", "nin", "not") for inner in one["filters"]))
        or is_outside_range(one)
    )


def is_partly_unread(parsed: ParsedQuestion) -> bool:
    """Return whether a negation made no excluding condition, or an "or" between values of two fields no alternative."""
    sentence = parsed.sentence
    denies = any(one.negated for one in parsed.constraints) or any(
        map(_may_be_negation, (*parsed.conditions, *parsed.length_conditions))
    )
    if not denies and any(one.kind not in _UNCERTAIN for one in sentence.negators.values()):
        return True
    fields = {one.field for one in parsed.constraints}
    chooses = any(len(one.values) > 1 or one.alternative_fields for one in parsed.constraints) or len(parsed.dates) > 1
    return len(fields) > 1 and not chooses and calculation_patterns.CHOOSING.search(sentence.text) is not None


def unknown_values(parsed: ParsedQuestion) -> tuple[RejectedValue, ...]:
    """Return reports of names beside the word for a field that are no value of the field: "department of [Geology]".

    If there are none, an unknown person is reported: "by [Zoe Quinn]". A field is checked only if all its values are
    known. Values of other fields, dates, and nouns for documents such as "report" are not reported.
    """
    sentence = parsed.sentence
    rejected: dict[str, RejectedValue] = {}
    for index in range(len(sentence.tokens)):
        fields, behind = sentence.cue(index)
        if len(fields) == 1 and sentence.vocabulary.roles.get(fields[0]) in _NAMED_BY_FIELD:
            is_set = _is_assigned(sentence, index, behind) and not any(
                one.field == fields[0] for one in parsed.conditions
            )
            after = _name_after(sentence, behind, is_set=is_set)
            name = _unread_name(parsed, after or _name_before(sentence, index))
            rejected |= _unknown_value_report(parsed, fields, name)
    return tuple((rejected or _unknown_person(parsed)).values())


def _unknown_person(parsed: ParsedQuestion) -> dict[str, RejectedValue]:
    """Return {name: report} for the first unknown person, {} if there is none: "reports by [Zoe Quinn]"."""
    sentence = parsed.sentence
    everybody = sentence.vocabulary.of_role("person")
    cued = [name for index, names in sentence.cued_tokens if not sentence.mention_at(index) for name in names]
    people = tuple(dict.fromkeys(name for name in cued if name in everybody)) or everybody
    for place in range(len(sentence.tokens) - 2) if people else ():
        words = _names_from(sentence, place + 1)
        if sentence.folded(place) in _BEFORE_PEOPLE and 1 < len(words) < _MOST_WORDS:
            return _unknown_value_report(parsed, people, _unread_name(parsed, words))
    return {}


def _unread_name(parsed: ParsedQuestion, places: range) -> str:
    """Return the text of the tokens at `places`; "" if there are none or a condition covers a part of it."""
    if not places:
        return ""
    start, end = parsed.sentence.tokens[places[0]].start, parsed.sentence.tokens[places[-1]].end
    taken = [(one.start, one.end) for one in parsed.conditions] + [(one.start, one.end) for one in parsed.dates]
    return "" if any(first < end and start < last for first, last in taken) else parsed.sentence.text[start:end]


def _unknown_value_report(parsed: ParsedQuestion, fields: Sequence[str], name: str) -> dict[str, RejectedValue]:
    """Return {name: report} for a name that is no value of a field; {} for no name or if values are not all known."""
    known = parsed.sentence.vocabulary.catalogue.fields
    if not name or any(known[field].distinct > len(known[field].values) for field in fields):
        return {}
    field, reason = fields[0], f'"{fields[0]}" has no such value'
    valid = suggested_values(name, known[field])
    return {name: RejectedValue(what=f"{field} = {name}"[:200], reason=reason, valid=valid, fields=(field,))}


def _names_from(sentence: Sentence, place: int) -> range:
    """Return the indices of the words from `place` on that are written as a name, at most four and perhaps none."""
    last = place
    while _is_name(sentence, last) and last - place < _MOST_WORDS:
        last += 1
    return range(place, last)


def _name_after(sentence: Sentence, place: int, *, is_set: bool) -> range:
    """Return the indices of the name after the word for a field: "department of [Geology]", "status: [Frozen]".

    Args:
        place: the token after the word for the field.
        is_set: whether the name may be in lower case, see `_is_assigned`.
    """
    while sentence.folded(place) in _BETWEEN:
        place += 1
    names = _names_from(sentence, place)
    return range(place, place + 1) if not names and is_set and _may_be_lower_case_value(sentence, place) else names


def _is_assigned(sentence: Sentence, first: int, place: int) -> bool:
    """Return whether a value is assigned to a field: "with status ...", or "status: ..." at the beginning of a clause.

    Args:
        first, place: the first token of the word for the field, and the token after it.
    """
    begins = first == 0 or _CLAUSE.search(sentence.folded(first - 1)) is not None
    return (sentence.folded(place) in (":", "=") and begins) or sentence.folded(first - 1) == "with"


def _may_be_lower_case_value(sentence: Sentence, place: int) -> bool:
    """Return whether the word at `place` may be a value in lower case: "status: [frozen]", but not "status updates".

    The word must end its clause and be no plural.
    """
    following = sentence.token(place + 1)
    ends = following is None or following.kind == "mark" or following.folded in ("and", "or")
    word = sentence.folded(place)
    is_plural = word.endswith("s") and not word.endswith(("ss", "us", "is"))
    may_be_value = not is_plural and word not in words.word_table("unread")["no_value"]
    return ends and may_be_value and _is_name(sentence, place, small=True)


def _name_before(sentence: Sentence, place: int) -> range:
    """Return the indices of the name before the word for a field at `place`: "the [Geology] department".

    The first word of the question does not count, because it always has a capital.
    """
    first = place
    while first > 1 and _is_name(sentence, first - 1) and place - first < _MOST_WORDS:
        first -= 1
    if first == place and place > 2 and _may_be_lower_case_name(sentence, place - 1):
        first -= 1
    return range(first, place)


def _may_be_lower_case_name(sentence: Sentence, place: int) -> bool:
    """Return whether the words before a word in lower case allow it to be a name: "by the [marketing] team"."""
    named = sentence.folded(place - 1) in ("the", "our") and sentence.folded(place - 2) in _BEFORE_GROUPS
    return named and _is_name(sentence, place, small=True) and sentence.folded(place) not in _NO_NAMES


def _is_name(sentence: Sentence, place: int, *, small: bool = False) -> bool:
    token = sentence.token(place)
    return (
        token is not None
        and token.kind == "word"
        and (small or token.is_capital)
        and token.folded not in lexicon.STOP_WORDS
        and sentence.mention_at(place) is None
        and not sentence.is_noun(place)
        and not sentence.cue_fields(place)
    )
