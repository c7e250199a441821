"""The settings of a calculation (order and limit, group size, operand, decimals), each read independently."""

from dataclasses import dataclass

from agent.intent.calculation.segment import CONDITION, FIELD, NUMBER, RECORD, UNIT, UNKNOWN, Segment
from agent.intent.calculation.segmented_question import LINKING, SegmentedQuestion, UnclearCalculation
from agent.intent.language.numerals import parse_count
from agent.intent.language.units import unit_of
from agent.intent.values.field_words import concepts_of
from retrievers.core.aggregates import MAX_LIMIT

SUPERLATIVES = {
    "most": "desc", "highest": "desc", "newest": "desc", "slowest": "desc",
    "fewest": "asc", "lowest": "asc", "oldest": "asc", "fastest": "asc",
}  # fmt: skip
"""The direction of each kind of superlative. "fastest" is that of a time (the least); of a speed it is the opposite."""
_BY_DATE = ("newest", "oldest")
_BY_COUNT = ("most", "fewest")
ORDINALS = {"second": 2, "third": 3, "fourth": 4, "fifth": 5}
_JUDGING_WORDS = frozenset(["best", "worst", "最好", "最差"])
_VERBS = frozenset("are is was were have has had did do does got".split())


@dataclass(frozen=True, slots=True)
class RankOrder:
    """What a superlative asks for: the order of records or groups, and how many of the first ones to take.

    Attributes:
        kind: a key of `SUPERLATIVES`: "most", "highest", "newest" or another class of superlatives.
        direction: "asc" or "desc".
        index: index of the segment that is the superlative.
        nth: True if only the last of the first `limit` is meant ("the second oldest").
    """

    kind: str
    direction: str
    index: int
    limit: int = 1
    nth: bool = False

    @property
    def is_by_date(self) -> bool:
        """Return whether the order is by date."""
        return self.kind in _BY_DATE

    @property
    def may_be_by_count(self) -> bool:
        """Return whether the order may be by the number of records: "most" or "fewest"."""
        return self.kind in _BY_COUNT


def read_order(question: SegmentedQuestion) -> RankOrder | None:
    """Return the order that the superlative of the question states; None if none, or if two contradict."""
    indices = question.indices_of(*SUPERLATIVES)
    nth = question.indices_of(*ORDINALS)
    top = question.indices_of("top")
    kinds = {question.segments[index].kind for index in indices}
    directions = {SUPERLATIVES[kind] for kind in kinds}
    if not indices and top and question.neighbour(top[0], 1) in question.indices_of(NUMBER):
        indices, kinds, directions = top[:1], {"most"}, {"desc"}
    if not indices and top and _names_one_number(question, question.neighbour(top[0], 1)):
        indices, kinds, directions = top[:1], {"highest"}, {"desc"}  # "the top speed", "on top in age"
    elif kinds == {"oldest"} and _is_place_in_number(question, indices[0]):
        kinds, directions = {"highest"}, {"desc"}  # "ranks first in altitude"
    elif kinds == {"newest"} and _is_place_in_number(question, indices[0]):
        kinds, directions = {"lowest"}, {"asc"}
    if len(directions) != 1 or (kinds & set(_BY_DATE) and kinds - set(_BY_DATE)):
        return None
    kind = next((one for one in ("most", "fewest", *SUPERLATIVES) if one in kinds), "most")
    question.used.update(indices)
    question.used.update(top)
    question.used.update(nth[:1])
    limit = _limit(question, indices)
    rank = ORDINALS[question.segments[nth[0]].kind] if nth else 0
    return RankOrder(kind, next(iter(directions)), indices[0], rank or limit, bool(rank))


def _is_place_in_number(question: SegmentedQuestion, index: int) -> bool:
    """Return whether "first" or "last" (`index`) is a place by a number: "[ranks first in] altitude"."""
    behind = question.segments[index + 1 : index + 2]
    joined = bool(behind) and question.parsed.sentence.folded(behind[0].first) in ("in", "by")
    ranked = index > 0 and question.segments[index - 1].kind == "rank"
    return joined and ranked and _names_one_number(question, question.neighbour(index, 1))


def _names_one_number(question: SegmentedQuestion, index: int | None) -> bool:
    """Return whether the segment `index` names exactly one field, a numeric one."""
    segment = question.segments[index] if index is not None else None
    return (
        segment is not None
        and segment.kind == FIELD
        and len(segment.fields) == 1
        and segment.fields[0] in question.columns.measures
    )


def _limit(question: SegmentedQuestion, indices: list[int]) -> int:
    """Return the stated limit, 1 by default: "top three", "the 5 newest", 最多的三份 ("the three with most").

    Args:
        indices: indices of the segments that are superlatives.
    """
    for index in question.indices_of(NUMBER):
        around = [question.neighbour(index, -1), question.neighbour(index, 1)]
        near = any(
            one in indices or (one is not None and question.segments[one].kind in ("which", "top")) for one in around
        )
        behind = around[1]
        leads = behind is not None and behind > 0 and question.segments[behind].kind in (FIELD, RECORD, CONDITION)
        number = question.segments[index].number
        if index not in question.used and number and number <= MAX_LIMIT and (near or leads):
            question.used.add(index)
            return number
    return 1


def denotes_records(question: SegmentedQuestion, index: int | None) -> bool:
    """Return whether the segment `index` names the records, by a noun for them or a value of their kind ("permits")."""
    if index is None:
        return False
    segment = question.segments[index]
    if segment.kind == RECORD:
        return True
    return segment.condition is not None and "kind" in concepts_of(segment.condition.field)


def find_counted_segment(question: SegmentedQuestion, index: int) -> int | None:
    """Return the index of the segment that the counting word `index` counts; None if there is none.

    The counted segment follows the counting word or, mostly in Chinese, precedes it.
    """
    over = (*LINKING, "distinct", "sum", CONDITION, "most", "having", "more")
    behind = question.neighbour(index, 1, over=over)
    kinds = (RECORD, FIELD, "people")
    if behind is None or behind in question.used:
        return _record_before(question, index)
    segment = question.segments[behind]
    if (segment.kind not in kinds and not _is_named(question, behind)) or names_only_dates(question, segment):
        return _record_before(question, index)
    verbs = any(
        token.folded in _VERBS
        for token in question.parsed.sentence.tokens[question.segments[index].last : segment.first]
    )
    if verbs:
        return None  # "how many are of type G"
    return behind


def _is_named(question: SegmentedQuestion, index: int) -> bool:
    return bool(question.segments[index].fields) and question.segments[index].strength >= 4


def _record_before(question: SegmentedQuestion, index: int) -> int | None:
    """Return the index of the segment counted by a later word `index` (in English, the next word); else None."""
    before = question.neighbour(index, -1, over=(*LINKING, CONDITION, "sum", "distinct", "which", "having"))
    english = question.parsed.sentence.tokens[question.segments[index].first].kind != "cjk"
    if before is None or before in question.used or (english and before != index - 1):
        return None
    segment = question.segments[before]
    if names_only_dates(question, segment) or (segment.fields and set(segment.fields) <= question.constrained_fields()):
        return None
    return before if segment.kind in (RECORD, FIELD, "people") else None


def names_only_dates(question: SegmentedQuestion, segment: Segment) -> bool:
    """Return whether a segment names date fields only."""
    return bool(segment.fields) and set(segment.fields) <= set(question.columns.date_fields())


def read_operand(question: SegmentedQuestion) -> str | None:
    """Return the numeric field to calculate with, as a `SegmentedQuestion.field_expression`; None if there is none.

    It is the field that the question names, if possible one without a bound ("over 500"). If the question names none,
    it is the field with the unit that is asked for.

    Raises:
        UnclearCalculation: several fields may be meant, or the field does not suit, see `_check_operand`.
    """
    named: dict[str, list[int]] = {}
    unclear = False
    for index, segment in question.field_segments():
        if index in question.used:
            continue
        names = [name for name in segment.fields if name in question.columns.measures]
        if names and _describes_number(question, index):
            question.used.add(index)
            continue
        if len(names) == 1:
            named.setdefault(question.field_expression(names[0]), []).append(index)
        unclear |= len(names) > 1
    free = {name: indices for name, indices in named.items() if not question.has_bound(name)} or named
    sure = {
        name: indices
        for name, indices in free.items()
        if any(question.segments[index].strength > 2 for index in indices)
    } or free
    if len(sure) > 1:  # in "a lower score in the throws category", "score" adds nothing
        named_only = {name: at for name, at in sure.items() if any(question.segments[n].kind == FIELD for n in at)}
        sure = named_only or sure
    if len(sure) > 1 or (unclear and not sure):
        raise UnclearCalculation("one of several numbers")
    for name, indices in sure.items():
        _check_operand(question, name, indices)
        question.used.update(indices)
        for index in indices:
            _use_compound_words(question, name, index)
        return name
    return None if named else read_operand_by_unit(question)


def _describes_number(question: SegmentedQuestion, index: int) -> bool:
    """Return whether a numeric field's name only describes the one directly after it: "[population] density"."""
    segment, behind = question.segments[index], question.segments[index + 1 : index + 2]
    return (
        segment.kind == FIELD
        and bool(behind)
        and behind[0].kind == FIELD
        and behind[0].first == segment.last
        and min(segment.strength, behind[0].strength) > 2
        and set(behind[0].fields).isdisjoint(segment.fields)
        and not question.columns.measures.keys().isdisjoint(behind[0].fields)
    )


def read_operand_by_unit(question: SegmentedQuestion) -> str | None:
    """Return the only numeric field with the unit that is asked for ("how many minutes on average"), or None."""
    for index in question.indices_of(UNIT):
        segment = question.segments[index]
        unit = unit_of(question.parsed.sentence.text[segment.start : segment.end])
        names = [name for name, one in question.columns.measures.items() if unit in one.units]
        if len(names) == 1 and not question.has_bound(names[0]):
            _check_operand(question, names[0], [])
            question.used.add(index)
            return question.field_expression(names[0])
    return None


_TELLING_SHARE = (0.03, 0.6)
"""A word that this share of the passages contains, from least to most, may tell documents apart."""
_CLAUSE = 6
"""Maximum number of tokens between "does" and its verb."""
_DOING = frozenset("do does did".split())


def _no_verb_follows(question: SegmentedQuestion, index: int) -> bool:
    """Return whether the segment `index` is followed by no word that may be a verb."""
    return all(segment.kind not in (FIELD, UNKNOWN, RECORD) for segment in question.segments[index + 1 :])


def _use_compound_words(question: SegmentedQuestion, name: str, index: int) -> None:
    """Mark unknown words before a numeric field's name as used, because they belong to that name: "[asking] price".

    Stop at a word that may restrict the documents: a capitalised one, a number, or one that only some texts contain.

    Args:
        index: index of the segment that names the field.
    """
    tokens, frequencies = question.parsed.sentence.tokens, question.parsed.sentence.frequencies
    first = question.segments[index].first
    asked = (token.folded for token in tokens[max(first - _CLAUSE, 0) : first])
    if not _DOING.isdisjoint(asked) and _no_verb_follows(question, index):
        return  # in "does a new lantern cost" the field's name is the verb, and the word before is the subject
    if question.parsed.sentence.text[question.segments[index].start] > "\u3400":
        # 停[多少分钟] ("stops how many minutes"), 停了[多久]: the verb 停 is part of the field's name.
        index = min(question.neighbour(index, -1, over=("count", "filler")) or index, index - 1) + 1
    while index and question.segments[index - 1].kind == UNKNOWN:
        index -= 1
        token, segment = tokens[question.segments[index].first], question.segments[index]
        told = _TELLING_SHARE[0] <= frequencies.get(token.folded, 0.0) <= _TELLING_SHARE[1]
        if (
            token.is_capital
            or told
            or (token.kind == "cjk" and segment.last - segment.first > 1)
            or token.kind == "number"
        ):
            return
        question.used.add(index)


def _check_operand(question: SegmentedQuestion, name: str, indices: list[int]) -> None:
    """Check that a numeric field can be the operand of the calculation.

    Args:
        name: the field, or `number(FIELD)` for numbers written as text.
        indices: indices of the segments that name the field.
    Raises:
        UnclearCalculation: the question asks for one of these:
            - a sum, mean or median of a field that only numbers the records;
            - a sum of years, or a sum or an extreme of ranks;
            - the "best" of a field with a unit: the best time is the shortest;
            - a unit that the field does not have;
            - another field, not numeric, whose name follows directly: the last word of a compound noun is meant.
    """
    bare = name.removeprefix("number(").rstrip(")")
    if question.has_kind("sum", "avg", "median", "how_much") and question.columns.is_serial_number(bare):
        raise UnclearCalculation("a number that only identifies the records")
    if question.has_kind("sum", "how_much") and question.columns.is_year(bare):
        raise UnclearCalculation("a sum of years")
    if question.has_kind("highest", "lowest", "most", "fewest", "sum") and question.columns.is_rank(bare):
        raise UnclearCalculation("a position in an order")
    ends = {question.parsed.sentence.text[segment.start : segment.end].casefold() for segment in question.segments}
    if ends & _JUDGING_WORDS and question.columns.measures[bare].units:
        raise UnclearCalculation("the best value")
    check_stated_units(question, name)
    for index in indices:
        behind = question.segments[index + 1] if index + 1 < len(question.segments) else None
        of_other = behind is not None and behind.kind == FIELD and bare not in behind.fields
        if behind is not None and of_other and index + 1 not in indices and not question.numeric_field(behind):
            raise UnclearCalculation(question.parsed.sentence.text[question.segments[index].start : behind.end])


def check_stated_units(question: SegmentedQuestion, name: str) -> None:
    """Check that every unit in the question is a unit of the numeric field `name`.

    Raises:
        UnclearCalculation: another unit is named: "how many minutes", but the field holds hours.
    """
    units = question.columns.measures[name.removeprefix("number(").rstrip(")")].units
    for segment in question.segments:
        text = question.parsed.sentence.text[segment.start : segment.end]
        if (
            segment.condition is None
            and len(text.encode()) > 1
            and units
            and (said := unit_of(text))
            and said not in units
        ):
            raise UnclearCalculation(text)


def read_list_length(question: SegmentedQuestion) -> str | None:
    """Return the expression for the length of a list that is asked for: `len(authors)` for "most authors"; or None."""
    for index, segment in question.field_segments():
        lists = [name for name in segment.fields if question.columns.is_list(name)]
        before = question.neighbour(index, -1, over=(*LINKING, "distinct", NUMBER))
        counted = before is not None and question.segments[before].kind in ("count", *_BY_COUNT)
        behind = question.neighbour(index, 1)
        listed = behind is not None and question.segments[behind].kind in ("count", "listed", *_BY_COUNT)
        if lists and (counted or listed or question.has_kind("avg", "median")):
            question.used.add(index)
            question.mark_used("listed")
            return f"len({lists[0]})"
    return None


def read_decimals(question: SegmentedQuestion) -> int | None:
    """Return the stated number of decimals: 2 for "to two decimals"; None if none is stated."""
    for index in question.indices_of("decimals"):
        segment = question.segments[index]
        question.used.add(index)
        text = question.parsed.sentence.text[segment.start : segment.end].split()[0]
        return parse_count(text if text.isascii() else text[0])
    return None
