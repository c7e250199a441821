"""Follow-ups: what a turn takes over from earlier turns.

"only the ones from this year" narrows the question before; "and who sponsored it?" asks about a document of its answer.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.intent import coreference
from agent.intent.analysis.negation import is_mention_negated
from agent.intent.calculation import find_calculation, read_calculation
from agent.intent.conditions.date_fields import is_ordered
from agent.intent.conditions.filter_json import constraint_filter, filter_fields, is_negation, shift_years, with_field
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.conditions.versions import version_sort_key
from agent.intent.deciding.constraints import Constraint
from agent.intent.language import calculation_patterns, lexicon
from agent.intent.language.text import readable
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.rejections import SEARCHED, unread_words
from agent.intent.topic.topic_words import topic_words
from agent.intent.values.value_linking import Mention
from agent.types import Message

_RECORDS = {"how many": "documents", "多少": "份文档", "几": "份文档"}
_REFINES = re.compile(
    r"\b(?:only|just|those|the\s+(?:\w+\s+)?ones|these|of\s+them|among\s+(?:them|those|these)|narrow|restrict|limit|instead|"
    r"exclude|excluding|leave\s+out|drop|remove|skip|ignore|without|except|filter)\b|"
    r"去掉|排除|只要|只看|只保留|仅|其中|除了|不要|剔除|筛|里面",
    re.IGNORECASE,
)
_SAME = re.compile(
    r"也(?:查|看|来|要|给|列)|(?:^|[.!?]\s)\W*(?:(?:and|but|so|or|then|ok(?:ay)?)\W*)?(?:what|how)\s+about\b|"
    r"\b(?:make|change|switch)\s+(?:that|it|this)\b|\bsame\b\W+(?:for|thing|question|with|again|but|in|by|from|on|only)\b|"
    r"^\W*(?:and\s+(?:for|in|from|by|on|the|those)|(?:and\s+|ok(?:ay)?\W+)?now)\b|"
    r"^\W*and\s+[\w'’-]+(?:\s+[\w'’-]+)?\s*\?\W*$|"
    r"^\W*(?:那|那么|还有|换成|改成|同样)|呢\W*$",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"^\W*(?:and|but|so|then|also|plus|or|ok(?:ay)?|那|那么|还有|再|另外|后来|以及|最后这)", re.IGNORECASE
)
_LEAD_WORDS = re.compile(r"^\W*(?:and|but|so|then|also|what\s+about|how\s+about|那么?|还有)(?![a-z])", re.IGNORECASE)
_AMONG = re.compile(r"\b(?:of|among|in)\s+(?:them|those|these)\b|其中|里面|这些(?:里|中)", re.IGNORECASE)
_BEGINS_REFINING = re.compile(
    r"^\W*(?:(?:ok(?:ay)?|and|now|but|please|then|那|再)\W+)*(?:only|just|只要|只看|只保留|仅)", re.IGNORECASE
)
_ONES = re.compile(r"\b(?:ones|them|those|these)\b|列出来|哪些|哪几", re.IGNORECASE)
_VALUES = ("label", "tag", "language", "person", "version")
_SHORT_WORDS, _SHORT_CHARACTERS = 12, 24
_LONGEST_FOLLOWUP = 200
"""Maximum characters of a follow-up; text without blanks would not count as words."""
_LONGEST_CONTEXT, _MOST_TOPIC_WORDS, _MOST_TURNS = 240, 3, 4
_ADJACENT = re.compile(
    r"\b(?:(?P<before>previous|preceding|prior)|next|following)\s+(?P<unit>year|version|release)\b|"
    r"\b(?P<unit2>year|version|release)\s+(?:(?:right|just|directly)\s+)?(?:(?P<before2>before|earlier|prior)|after|later)\b|"
    r"(?P<before3>[上前])一个?(?P<unit3>年|版)|[下后]一个?(?P<unit4>年|版)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_PLAIN = ("eq", "in")
_OPPOSITE = {"ne": "eq", "nin": "in"}
Conditions = Sequence[StatedCondition]
TextParser = Callable[[str], ParsedQuestion]


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up with what it takes over.

    Attributes:
        parsed, previous: the follow-up, and the question before, on which it depends.
        conditions: those of the follow-up and those taken over.
        context: words of earlier turns that a search for the turn needs; "" if none.
        narrows_list: True if the follow-up narrows a list of documents, or asks the same about other values.
        repeats_question: True if the follow-up asks the question before with other constraints.
    """

    parsed: ParsedQuestion
    previous: ParsedQuestion
    conditions: tuple[StatedCondition, ...]
    context: str
    narrows_list: bool
    repeats_question: bool = False


def resolve_followup(
    parsed: ParsedQuestion, history: Sequence[Message], parse: TextParser, *, turns: int = _MOST_TURNS
) -> FollowUp | None:
    """Return a turn with what it takes over from the conversation; None if the turn is complete by itself.

    Args:
        parse: parses another text, for the same collections and date.
        turns: maximum number of earlier questions to follow; a follow-up to a follow-up takes over from both.
    """
    places = [place for place, turn in enumerate(history) if turn.role == "user" and turn.content.strip()]
    asked = history[places[-1]].content if places else ""
    answered = readable(next((turn.content for turn in reversed(history) if turn.role == "assistant"), ""))
    if not asked or not may_be_followup(parsed):
        return None
    previous = parse(readable(asked))
    earlier = None
    if turns > 1 and len(places) > 1:
        earlier = resolve_followup(previous, history[: places[-1]], parse, turns=turns - 1)
    if earlier is not None:
        # A question about the same documents ("do any have a study?") adds no constraints, so those before it stay.
        own = previous.conditions or earlier.previous.conditions
        previous = replace(previous, conditions=earlier.conditions if earlier.narrows_list else own)
    said = parse(answered) if answered else previous
    parsed = _with_document_noun(parsed, parse)
    measured = _with_measured_field(parsed, previous, parse)
    parsed = measured or parsed
    text = parsed.sentence.text
    context = _context(previous, answered, thing=coreference.THING.search(text) is not None)
    parsed = _in_the_same_fields(_on_the_same_date(parsed, previous), previous)
    # After a list, a value alone is a constraint: "the rejected ones".
    bare = _with_bare_values(parsed, previous)
    if any(one.search(text) for one in (_REFINES, _SAME)) or _is_fragment(bare):
        # A turn that changes a question has hardly any words but conditions, so likely ones are sure.
        parsed = replace(bare, conditions=_as_certain(bare.conditions))
    return (
        _read_same(parsed, previous, said, context)
        or _read_narrowing(parsed, previous, context, same=measured is not None)
        or _resolve_person(parsed, previous, said)
        or _resolve_document(parsed, previous, said, answered, context)
        or _read_count(parsed, previous, context)
        or FollowUp(parsed, previous, parsed.conditions, context, narrows_list=False)
    )


def _with_document_noun(parsed: ParsedQuestion, parse: TextParser) -> ParsedQuestion:
    """Read "how many per stage?" as "how many documents per stage?"; return other turns unchanged."""
    unread, text = read_calculation(parsed).unread_words, parsed.sentence.text
    noun = _RECORDS.get(unread[0].casefold()) if len(unread) == 1 else None
    return parse(text.replace(unread[0], f"{unread[0]} {noun}", 1)) if noun is not None else parsed


def _with_measured_field(parsed: ParsedQuestion, previous: ParsedQuestion, parse: TextParser) -> ParsedQuestion | None:
    """Read "and over 50?" as a comparison of the numeric field in the question before; return None for other turns."""
    numbers = parsed.sentence.vocabulary.of_role("number")
    measured = {one.field: one for one in previous.conditions if one.field in numbers}
    said = _comparison(parsed)
    if said is None or len(measured) != 1:
        return None
    cued = (place for place, names in previous.sentence.cued_tokens if measured.keys() & set(names))
    word = next((previous.sentence.tokens[place].text for place in cued), None)
    again = parse(parsed.sentence.text.replace(said, f"{word} {said}", 1)) if word else parsed
    field, condition = measured.popitem()
    if said.isdigit() and "value" in condition.filter:
        # "make it 4" after "at least 3" means at least 4
        others = (one for one in again.conditions if one.field != field)
        return replace(again, conditions=(*others, replace(condition, filter={**condition.filter, "value": int(said)})))
    return again if any(one.field == field for one in again.conditions) else None


def _read_narrowing(parsed: ParsedQuestion, previous: ParsedQuestion, context: str, *, same: bool) -> FollowUp | None:
    """Read a turn that changes the constraints of the question before: "only the rejected ones", "and in 2022?".

    The result is None for any other turn. `same`: whether the turn is known to ask the question before again.
    """
    text = parsed.sentence.text
    previous = replace(previous, conditions=_as_certain(previous.conditions))
    beside = _adjacent_year_or_version(parsed, previous)
    if beside is not None:
        conditions = _override(previous.conditions, (beside,))
        return FollowUp(parsed, previous, conditions, context, narrows_list=True, repeats_question=True)
    conditions = _override(previous.conditions, parsed.conditions, _group_field(parsed))
    same = same or bool(_SAME.search(text) or _is_fragment(parsed))
    if (_REFINES.search(text) and parsed.conditions) or (same and (parsed.conditions or previous.conditions)):
        return FollowUp(parsed, previous, conditions, context, narrows_list=True, repeats_question=same)
    if previous.conditions and (_BEGINS_REFINING.match(text) or (not parsed.conditions and _comparison(parsed))):
        # Words that were not understood narrow the question further, so the documents are searched for them.
        return FollowUp(parsed, previous, previous.conditions, context, narrows_list=False)
    if _AMONG.search(text) and topic_words(parsed) and previous.conditions:
        return FollowUp(parsed, previous, conditions, "", narrows_list=False)
    if _LEADS.search(text) and parsed.conditions and previous.conditions and not topic_words(parsed):
        return FollowUp(parsed, previous, conditions, context, narrows_list=True)
    return None


def _comparison(parsed: ParsedQuestion) -> str | None:
    """Return a comparison that made no condition: "under 300" for "hmm. under 300?"; None if there is none."""
    left = (one.what for one in unread_words(parsed) if one.reason == SEARCHED)
    return next((words for words in left if any(map(str.isdigit, words))), None)


def _read_same(parsed: ParsedQuestion, previous: ParsedQuestion, said: ParsedQuestion, context: str) -> FollowUp | None:
    """Read "by the same inspector" as that of the question before, else of the answer `said`; None for other turns."""
    match = coreference.THE_SAME.search(parsed.sentence.text)
    if match is None:
        return None
    fields = parsed.sentence.cue_fields(parsed.sentence.index_from(match.end()))
    condition = next((one for one in previous.conditions if one.field in fields and not is_negation(one.filter)), None)
    condition = condition or coreference.last_named_value(said, fields)
    if condition is None:
        return None
    own = parsed.conditions if topic_words(parsed) else _as_certain(parsed.conditions)  # "same author, but rejected"
    conditions = (replace(condition, start=0, end=0), *(one for one in own if one.field != condition.field))
    return FollowUp(parsed, previous, conditions, context, narrows_list=not topic_words(parsed))


def _resolve_person(parsed: ParsedQuestion, previous: ParsedQuestion, said: ParsedQuestion) -> FollowUp | None:
    """Resolve "she" in "what else did she write" to the last person in the answer `said`, else in the question before.

    The result is None if the turn has no such pronoun or names a person itself, or if nobody was named.
    """
    people = parsed.sentence.vocabulary.of_role("person")
    named = any(one.field in people for one in parsed.conditions)
    if named or not coreference.PERSON.search(parsed.sentence.text) or _may_mean_documents(parsed, previous):
        return None
    person = coreference.last_named_value(said, people) or coreference.last_named_value(previous, people)
    if person is None:
        return None
    conditions = (coreference.in_asked_field(person, parsed, people), *parsed.conditions)
    return FollowUp(parsed, previous, conditions, "", narrows_list=not topic_words(parsed))


def _may_mean_documents(parsed: ParsedQuestion, previous: ParsedQuestion) -> bool:
    """Return whether "they" in a calculation may mean documents: the question before constrains more than a person."""
    people = parsed.sentence.vocabulary.of_role("person")
    others = any(one.field not in people for one in previous.conditions)
    return others and bool(coreference.OF_MANY.search(parsed.sentence.text)) and find_calculation(parsed) is not None


def _resolve_document(
    parsed: ParsedQuestion, previous: ParsedQuestion, said: ParsedQuestion, answered: str, context: str
) -> FollowUp | None:
    """Resolve "it" to a document that the answer (text `answered`, conditions `said`) names; None if none is meant."""
    text = parsed.sentence.text
    points = coreference.THING.search(text)
    document = coreference.resolve_document(parsed, previous, said, answered) if points else None
    if document is None:
        return None
    # "which older proposal did it grow out of" asks for another document.
    others = any(parsed.sentence.is_noun(index) for index in range(len(parsed.sentence.tokens)))
    is_spoken_of = [one.filter for one in previous.conditions] == [document.filter]
    if coreference.IT.search(text) and not others and is_spoken_of:
        return FollowUp(parsed, previous, (document,), "", narrows_list=False)
    if not topic_words(parsed) and coreference.asks_for_field(parsed):
        return FollowUp(parsed, previous, (document,), context, narrows_list=False)
    return None


def _read_count(parsed: ParsedQuestion, previous: ParsedQuestion, context: str) -> FollowUp | None:
    """Read "how many is that" as a calculation over the documents of the question before; None for other turns."""
    if topic_words(parsed) or not (find_calculation(parsed) or _ONES.search(parsed.sentence.text)):
        return None
    conditions = _override(previous.conditions, (), _group_field(parsed))
    return FollowUp(parsed, previous, conditions, context, narrows_list=True)


def _group_field(parsed: ParsedQuestion) -> str | None:
    """Return the field by which a turn groups documents: `stage` for "how many per stage?"; None if it does not."""
    calculation = find_calculation(parsed)
    return calculation.aggregate.get("group_by") if calculation is not None else None


def _is_fragment(parsed: ParsedQuestion) -> bool:
    """Return whether a turn consists of constraints only: "Lakeview?", "in 2024?"."""
    taken = [(one.start, one.end) for one in parsed.conditions]
    return bool(taken) and all(
        token.kind == "mark"
        or token.folded in lexicon.STOP_WORDS
        or any(first <= token.start < last for first, last in taken)
        for token in parsed.sentence.tokens
    )


def _with_bare_values(parsed: ParsedQuestion, previous: ParsedQuestion) -> ParsedQuestion:
    """Add a constraint for each value that a turn names outside of its constraints, if the value's field is clear."""
    stated, asked = {one.field for one in parsed.conditions}, {one.field for one in previous.conditions}
    made = (_bare_value(parsed, mention, stated, asked) for mention in parsed.unused_mentions)
    more = [one for one in made if one is not None]
    return replace(parsed, conditions=(*parsed.conditions, *more)) if more else parsed


def _bare_value(parsed: ParsedQuestion, mention: Mention, stated: set[str], asked: set[str]) -> StatedCondition | None:
    """Return the constraint for a value of a turn, "the [rejected] ones"; None if unclear or its field is in `stated`.

    Fields in `asked`, which the question before constrained, are preferred.
    """
    roles = parsed.sentence.vocabulary.roles
    known = [one for one in mention.matches if roles[one.field] in _VALUES and one.field not in stated]
    # A name of several people is unclear.
    known = [one for one in known if one.field in asked] or known
    denied = is_mention_negated(parsed.sentence, mention)
    if not known or denied is None or (roles[known[0].field] == "person" and len({one.value for one in known}) > 1):
        return None
    one = Constraint(known[0].field, (known[0].value,), mention.start, mention.end, negated=denied)
    filter = constraint_filter(one, parsed.sentence.vocabulary.catalogue.fields)
    return StatedCondition(one.field, filter, one.start, one.end, FILTERS_FROM)


def may_be_followup(parsed: ParsedQuestion) -> bool:
    """Return whether a turn may depend on earlier ones: it is short, and refers back ("it") or has few topic words."""
    text = parsed.sentence.text
    words = sum(token.kind in ("word", "number") for token in parsed.sentence.tokens)
    characters = sum(token.kind == "cjk" for token in parsed.sentence.tokens)
    short = words <= _SHORT_WORDS and characters <= _SHORT_CHARACTERS and len(text) <= _LONGEST_FOLLOWUP
    points = any(pattern.search(text) for pattern in (coreference.PERSON, coreference.THING, _LEADS, _SAME, _REFINES))
    return short and (points or len(topic_words(parsed)) <= _MOST_TOPIC_WORDS)


def _context(previous: ParsedQuestion, answered: str, *, thing: bool) -> str:
    """Return the question before, for a search; add the answer if it has no topic or `thing` (the turn says "it")."""
    more = "" if topic_words(previous) and not thing else answered
    return f"{previous.remaining_text} {more}".strip()[:_LONGEST_CONTEXT]


def without_back_references(text: str) -> str:
    """Return a turn for a search, without stop words and words that only refer back."""
    plain = _LEAD_WORDS.sub(" ", coreference.PERSON.sub(" ", text))
    words = [word for word in plain.split() if word.casefold().strip("?.,!") not in lexicon.STOP_WORDS]
    return " ".join(words) or text


def _on_the_same_date(parsed: ParsedQuestion, previous: ParsedQuestion) -> ParsedQuestion:
    """Move the turn's dates to the date field of the question before, unless a word of the turn names another field."""
    dates = parsed.sentence.vocabulary.of_role("date")
    field = next((one.field for one in previous.conditions if one.field in dates), None)
    units = parsed.sentence.vocabulary.date_units
    if field is None or field in units:
        return parsed
    others = set(dates) - units.keys() - {name for _, names in parsed.sentence.cued_tokens for name in names}
    conditions = (
        replace(one, field=field, filter=with_field(one.filter, field)) if one.field in others else one
        for one in parsed.conditions
    )
    return replace(parsed, conditions=tuple(conditions))


def _in_the_same_fields(parsed: ParsedQuestion, previous: ParsedQuestion) -> ParsedQuestion:
    """Move the turn's values ("same for Ito") to fields of the question before, unless a word names another field."""
    cued = {name for _, names in parsed.sentence.cued_tokens for name in names}
    fields = parsed.sentence.vocabulary.catalogue.fields
    asked = [one.field for one in previous.conditions if one.filter["type"] in _PLAIN]
    conditions = []
    for condition in parsed.conditions:
        inner = condition.filter.get("filters", [condition.filter])
        values = {str(one.get("value")) for one in inner if one["type"] == "eq"}
        keys = {one.get("key") for one in inner}
        field = next((name for name in asked if name in keys or values <= fields[name].values.keys()), None)
        if len(values) == 1 and field is not None and keys != {field} and keys.isdisjoint(cued - {field}):
            condition = replace(condition, field=field, filter={"type": "eq", "key": field, "value": inner[0]["value"]})
        conditions.append(condition)
    return replace(parsed, conditions=tuple(conditions))


def _override(previous: Conditions, now: Conditions, grouped: str | None = None) -> tuple[StatedCondition, ...]:
    """Return the earlier constraints on fields that no new one (`now`) constrains, and then the new ones.

    Earlier ones on `grouped`, the field by which the turn groups, are left out. A new exclusion ("not Bo") replaces
    only the constraint that it denies ("by Bo").
    """
    stated = {grouped, *(key for one in now if not is_negation(one.filter) for key in filter_fields(one.filter))}
    denied = [{**one.filter, "type": _OPPOSITE[one.filter["type"]]} for one in now if one.filter["type"] in _OPPOSITE]
    kept = (one for one in previous if stated.isdisjoint(filter_fields(one.filter)) and one.filter not in denied)
    return (*kept, *now)


def _adjacent_year_or_version(parsed: ParsedQuestion, previous: ParsedQuestion) -> StatedCondition | None:
    """Return the year or version next to that of the question before: "and the year before?"; None for other turns."""
    said = _ADJACENT.search(parsed.sentence.text)
    if said is None or calculation_patterns.YES_OR_NO.search(parsed.sentence.text):
        return None  # "was it in the next release?" asks about a document found before
    names = said.groupdict()
    unit = next(names[one] for one in names if one.startswith("unit") and names[one])
    step = -1 if any(names[one] for one in names if one.startswith("before")) else 1
    if unit.casefold() not in ("year", "年"):
        return _adjacent_version(previous, step)
    vocabulary = previous.sentence.vocabulary
    dates = [name for name in vocabulary.of_role("date") if is_ordered(vocabulary, name)]
    condition = next((one for one in previous.conditions if one.field in dates), None)
    if condition is None or len(previous.dates) != 1 or not previous.dates[0].period.is_bounded:
        return None
    return replace(condition, filter=shift_years(condition.filter, step), start=0, end=0)


def _adjacent_version(previous: ParsedQuestion, step: int) -> StatedCondition | None:
    """Return the known version `step` places after that of the question before, as a condition; None without one."""
    versions = previous.sentence.vocabulary.of_role("version")
    condition = next((one for one in previous.conditions if one.field in versions and one.filter["type"] == "eq"), None)
    if condition is None:
        return None
    values = previous.sentence.vocabulary.catalogue.fields[condition.field].values
    known = sorted(filter(_VERSION.fullmatch, values), key=version_sort_key)
    place = known.index(condition.filter["value"]) + step if condition.filter["value"] in known else -1
    if not 0 <= place < len(known):
        return None
    return replace(condition, filter={**condition.filter, "value": known[place]}, start=0, end=0)


def _as_certain(conditions: Conditions) -> tuple[StatedCondition, ...]:
    """Make likely conditions sure, because the follow-up confirms them; guesses among several fields stay guesses."""
    return tuple(
        replace(one, confidence=max(one.confidence, FILTERS_FROM)) if one.confidence > BOOSTS_FROM else one
        for one in conditions
    )
