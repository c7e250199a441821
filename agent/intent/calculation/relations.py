"""Compare records with a named one: "more medals than Canada", "the same score as Ann", "who finished after Bo"."""

from dataclasses import dataclass, replace

from agent.intent.calculation.compared_values import THAN
from agent.intent.calculation.extremes import implied_field, read_shown_fields
from agent.intent.calculation.named_records import raise_name_confidence
from agent.intent.calculation.parameters import SUPERLATIVES, find_counted_segment, read_operand, read_order
from agent.intent.calculation.rank_conditions import is_rank_verb, order_fields
from agent.intent.calculation.segment import RECORD, UNKNOWN, segment_text
from agent.intent.calculation.segmented_question import MAX_LIST_ROWS, Calculation, SegmentedQuestion, all_conditions
from agent.intent.conditions.filter_json import Json
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.words import word_table

_COMPARING = ("more", "fewer", "rising", "falling", "versus", "together", "alone", "exactly", *SUPERLATIVES)
"""Kinds of words that compare: each of them must be a part of the relation."""
_OPPOSITE = {"gt": "lt", "lt": "gt"}
_LEAST = 0.6
"""Minimum confidence of the constraint that names the record."""
_SEVERAL = frozenset(["all", "list", "every", "any", "哪些", "所有"])
_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True)
class _NamedRecord:
    """The record that others are compared with: its conditions, and all other conditions of the question."""

    filter: Json
    index: int
    others: tuple[StatedCondition, ...]


def read_relation(question: SegmentedQuestion) -> Calculation | None:
    """Return the count or list of the records that a question compares with a named record; None if it names none."""
    named = _named_record(question)
    if named is None:
        return None
    used, used_fields = set(question.used), set(question.used_fields)
    for read in (_read_same, _read_than, _read_next_extreme, _read_neighbours):
        made = read(question, named)
        # "fewer laps and more points than Ann" compares twice, which one relation cannot say.
        if made is not None and all(index in question.used for index in question.indices_of(*_COMPARING)):
            question.used.add(named.index)
            return made
        question.used, question.used_fields = set(used), set(used_fields)
    return None


def _named_record(question: SegmentedQuestion) -> _NamedRecord | None:
    """Return the record that is named once, by a field whose values are all different; None if none or several are."""
    fields = question.columns.vocabulary.catalogue.fields
    named: list[tuple[int, StatedCondition]] = []
    for index, segment in enumerate(question.segments):
        one = segment.condition
        if one is None or one.filter["type"] != "eq" or raise_name_confidence(one, question).confidence < _LEAST:
            continue
        value = one.filter["value"]
        held = fields.get(one.field)
        if isinstance(value, str) and held is not None and value in held.values and held.distinct >= held.documents:
            named.append((index, one))
    if len(named) != 1:
        return None
    index, record = named[0]
    said = segment_text(question.parsed.sentence, question.segments[index]).casefold()
    is_shared = sum(said in one.casefold() for one in fields[record.field].values) > 1
    mentions = [one for one in question.parsed.sentence.mentions if one.matches_in(record.field)]
    if is_shared or len(mentions) > 1:
        return None
    others = tuple(one for one in all_conditions(question) if one.filter != record.filter)
    return _NamedRecord(record.filter, index, others)


def _word_before(question: SegmentedQuestion, named: _NamedRecord) -> int | None:
    """Return the index of the segment before the named record, without articles; None if there is none."""
    return question.neighbour(named.index, -1, over=("filler", "mark"))


def _related(
    question: SegmentedQuestion, named: _NamedRecord, relation: str, of: str, *, nearest: bool = False
) -> Calculation | None:
    """Return the count or list of the records whose value of `of` stands in a relation to that of the named record."""
    if not _is_known_of_all(question, of):
        return None
    than: Json = {"type": relation, "of": of, "record": named.filter}
    counting = [index for index in question.indices_of("count") if index not in question.used]
    if counting:
        is_counted = _counts_records(question, counting[0], named.filter["key"])
        return Calculation({"op": "count", "than": than}, named.others) if is_counted else None
    shown = [name for name in read_shown_fields(question) if name not in (_bare(of), of)]
    if shown and named.filter["key"] not in shown and not question.has_kind("who", RECORD):
        return None  # "which team has more points than Ann": Ann is no team
    if not (shown or question.has_kind("who", RECORD)):
        return None  # "what happened after Ann won" asks for no record
    if question.has_kind("who") or not shown:
        shown = [named.filter["key"]]
    order: Json = {"of": of, "order": "asc" if relation == "gt" else "desc"}
    order |= {"limit": 1, "ties": True} if nearest else {"limit": MAX_LIST_ROWS}
    return Calculation({"op": "list", **order, "show": [*shown[: _MOST_SHOWN - 1], of], "than": than}, named.others)


def _counts_records(question: SegmentedQuestion, index: int, key: str) -> bool:
    """Return whether the counting word `index` counts records, by a noun or by the field `key`."""
    target = find_counted_segment(question, index)
    if target is None:
        return False
    segment = question.segments[target]
    question.used.update((index, target))
    return segment.kind == RECORD or question.group_field(segment) == key


def _read_than(question: SegmentedQuestion, named: _NamedRecord) -> Calculation | None:
    """Read "more gold medals than [Canada]" and "older than [Ann]"."""
    before = _word_before(question, named)
    if before is None or question.segments[before].kind != "versus":
        return None
    than = segment_text(question.parsed.sentence, question.segments[before]).casefold()
    comparing = [one for one in _comparing_segments(question) if (one[0] > named.index) is (than == "比")]
    if than not in THAN or len(comparing) != 1:
        return None
    index, relation = comparing[0]
    of = read_operand(question) or implied_field(question, index)
    if of is None:
        return None
    question.used.update((before, index))
    return _related(question, named, _OPPOSITE[relation] if question.columns.is_rank(of) else relation, of)


def _comparing_segments(question: SegmentedQuestion) -> list[tuple[int, str]]:
    """Return (index, "gt" or "lt") of each segment that says how records compare: "more", 高 in 比王芳得分高."""
    words = word_table("neighbours", "zh")
    kinds = {"more": "gt", "rising": "gt", "fewer": "lt", "falling": "lt"}
    adjectives = {**dict.fromkeys(words["rising"].split(), "gt"), **dict.fromkeys(words["falling"].split(), "lt")}
    found = []
    for index, segment in enumerate(question.segments):
        said = segment_text(question.parsed.sentence, segment)
        relation = kinds.get(segment.kind) or (adjectives.get(said) if segment.kind == UNKNOWN else None)
        if relation is not None:
            found.append((index, relation))
    return found


def _read_same(question: SegmentedQuestion, named: _NamedRecord) -> Calculation | None:
    """Read "the same [area] as [Center]", for a field whose values several records share."""
    same = question.indices_of("same")
    before = _word_before(question, named)
    if len(same) != 1 or before is None or same[0] > named.index:
        return None
    fields = {
        (index, name)
        for index, segment in question.field_segments(start=same[0] + 1, end=named.index)
        for name in segment.fields
    }
    if len({name for _, name in fields}) != 1:
        return None
    name = next(name for _, name in fields)
    held = question.columns.vocabulary.catalogue.fields[name]
    if held.field.type == "list" or held.distinct >= held.documents:
        return None
    amounts = [index for index in question.indices_of("count") if same[0] < index < named.index]
    question.used.update((same[0], *amounts, *(index for index, _ in fields)))
    is_number = name in question.columns.measures and question.columns.measures[name].is_plain
    return _related(question, named, "eq", question.field_expression(name) if is_number else name)


def _read_next_extreme(question: SegmentedQuestion, named: _NamedRecord) -> Calculation | None:
    """Read "after [Sedan], which town has the next highest population"."""
    before = _word_before(question, named)
    order = read_order(question) if before is not None and _direction(question, before) == "gt" else None
    if before is None or order is None or order.is_by_date or order.limit > 1 or order.index < named.index:
        return None
    of = read_operand(question) or implied_field(question, order.index)
    if of is None or question.columns.is_rank(of) or _asks_for_several(question, named):
        return None
    if before > 0 and "next" not in question.parsed.sentence.text.casefold().split():
        return None  # "which house after Sedan is the oldest" means the order of the table
    question.used.add(before)
    _use_adverbs(question)
    return _related(question, named, "lt" if order.direction == "desc" else "gt", of, nearest=True)


def _read_neighbours(question: SegmentedQuestion, named: _NamedRecord) -> Calculation | None:
    """Read "who finished after [Bo]": the next record in the only order that the records have."""
    before = _word_before(question, named)
    relation = _direction(question, before) if before is not None else None
    if before is None or relation is None:
        return None
    ranked = [
        index
        for index in range(before)
        if is_rank_verb(segment_text(question.parsed.sentence, question.segments[index]))
    ]
    numbers = [
        (index, name)
        for index, segment in question.field_segments(end=before)
        for name in order_fields(question.columns, ranks_only=False)
        if name in segment.fields
    ]
    fields = [name for _, name in numbers] or order_fields(question.columns, ranks_only=bool(ranked))
    if len(fields) != 1 or _names_other_order(question, before, fields[0]):
        return None
    # In "who won before Ann won in 2006", the year is that of the named record.
    others = tuple(one for one in named.others if not (one.field == fields[0] and question.columns.is_year(one.field)))
    if others:
        return None
    question.used.update((before, *ranked, *(index for index, _ in numbers)))
    _use_adverbs(question)
    nearest = not question.has_kind("count") and not _asks_for_several(question, named)
    return _related(question, replace(named, others=()), relation, fields[0], nearest=nearest)


def _names_other_order(question: SegmentedQuestion, end: int, order: str) -> bool:
    """Return whether a number or date field before the segment `end` gives another order: "who was [elected] after"."""
    fields = question.columns.vocabulary.catalogue.fields
    named = {name for _, segment in question.field_segments(end=end) for name in segment.fields} - {_bare(order), order}
    return any(fields[name].field.item in ("number", "date") for name in named if name in fields)


def _asks_for_several(question: SegmentedQuestion, named: _NamedRecord) -> bool:
    """Return whether the question asks for all such records: "which clubs", "list all clubs", 哪些."""
    before = question.segments[: named.index]
    texts = [segment_text(question.parsed.sentence, one).casefold() for one in before]
    nouns = [
        text for one, text in zip(before, texts, strict=True) if one.kind == RECORD or named.filter["key"] in one.fields
    ]
    return not _SEVERAL.isdisjoint(texts) or any(text.endswith("s") for text in nouns)


def _is_known_of_all(question: SegmentedQuestion, expression: str) -> bool:
    """Return whether all records have a value of an expression, except those that sum up the others.

    Without it, nobody knows how they compare: "DNF" is no place, and a ship without a crew may have a larger one.
    """
    catalogue = question.columns.vocabulary.catalogue
    field = catalogue.fields[_bare(expression)]
    summing_up = max((len(one["value"]) for one in question.extra_conditions), default=0)
    is_number = _bare(expression) == expression or all(any(map(str.isdigit, text)) for text in field.values)
    return is_number and field.documents >= catalogue.documents - summing_up


def _bare(expression: str) -> str:
    return expression.removeprefix("number(").removesuffix(")")


def _direction(question: SegmentedQuestion, index: int) -> str | None:
    """Return "gt" for a word such as "after" and "lt" for one such as "before"; None for any other segment."""
    words = word_table("neighbours")
    said = segment_text(question.parsed.sentence, question.segments[index]).casefold()
    return "gt" if said in words["behind"] else "lt" if said in words["ahead"] else None


def _use_adverbs(question: SegmentedQuestion) -> None:
    """Mark the words before "after" that add nothing: "[next] after", "[directly] above"."""
    adverbs = word_table("neighbours")["adverbs"]
    for index in question.indices_of(UNKNOWN, "hindering"):
        if segment_text(question.parsed.sentence, question.segments[index]).casefold() in adverbs:
            question.used.add(index)
