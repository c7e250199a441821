"""The settings of a calculation (order and limit, group size, operand, decimals), each read independently."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.intent.calculation.part import FIELD, NUMBER, PIECE, RECORD, UNIT, UNKNOWN, Part
from agent.intent.calculation.question import LINKING, Question, Unclear
from agent.intent.filter_json import Json
from agent.intent.numbers import unit_of
from agent.intent.numerals import parse_count
from agent.intent.vocabulary import concepts_of
from retrievers.core.aggregates import MAX_LIMIT

ENDS = {
    "most": "desc", "highest": "desc", "newest": "desc", "slowest": "desc",
    "fewest": "asc", "lowest": "asc", "oldest": "asc", "fastest": "asc",
}  # fmt: skip
"""The direction of each kind of superlative. "fastest" is that of a time (the least); of a speed it is the opposite."""
_BY_DATE = ("newest", "oldest")
_BY_COUNT = ("most", "fewest")
NTH = {"second": 2, "third": 3, "fourth": 4, "fifth": 5}
_BOUNDS: dict[str, Callable[[int], Json]] = {
    "at_least": lambda n: {"at_least": n},
    "more_than": lambda n: {"at_least": n + 1},
    "at_most": lambda n: {"at_most": n},
    "fewer_than": lambda n: {"at_most": n - 1},
    "exactly": lambda n: {"at_least": n, "at_most": n},
    "or_more": lambda n: {"at_least": n},
    "or_fewer": lambda n: {"at_most": n},
}
_JUDGING = frozenset(["best", "worst", "最好", "最差"])
_VERBS = frozenset("are is was were have has had did do does got".split())
_CLASSIFIERS = frozenset("个篇份条起件项门位名首道部次")


@dataclass(frozen=True, slots=True)
class RankOrder:
    """What a superlative asks for: the order of records or groups, and how many of the first ones to take.

    Attributes:
        kind: a key of `ENDS`: "most", "highest", "newest" or another class of superlatives.
        direction: "asc" or "desc".
        place: index of the part that is the superlative.
        nth: True if only the last of the first `limit` is meant ("the second oldest").
    """

    kind: str
    direction: str
    place: int
    limit: int = 1
    nth: bool = False

    @property
    def is_dated(self) -> bool:
        """Return whether the order is by date."""
        return self.kind in _BY_DATE

    @property
    def counts(self) -> bool:
        """Return whether the order may be by the number of records: "most" or "fewest"."""
        return self.kind in _BY_COUNT


def read_order(question: Question) -> RankOrder | None:
    """Return the order that the superlative of the question states; None if none, or if two contradict."""
    places = question.of_kind(*ENDS)
    nth = question.of_kind(*NTH)
    top = question.of_kind("top")
    kinds = {question.parts[place].kind for place in places}
    directions = {ENDS[kind] for kind in kinds}
    if not places and top and question.beside(top[0], 1) in question.of_kind(NUMBER):
        places, kinds, directions = top[:1], {"most"}, {"desc"}
    if not places and top and _is_number(question, top[0] + 1):
        places, kinds, directions = top[:1], {"highest"}, {"desc"}  # "the top speed"
    if len(directions) != 1 or (kinds & set(_BY_DATE) and kinds - set(_BY_DATE)):
        return None
    kind = next((one for one in ("most", "fewest", *ENDS) if one in kinds), "most")
    question.used.update(places)
    question.used.update(top)
    question.used.update(nth[:1])
    limit = _limit(question, places)
    rank = NTH[question.parts[nth[0]].kind] if nth else 0
    return RankOrder(kind, next(iter(directions)), places[0], rank or limit, bool(rank))


def _is_number(question: Question, place: int) -> bool:
    """Return whether the part `place` names exactly one field, a numeric one."""
    part = question.parts[place] if place < len(question.parts) else None
    return (
        part is not None
        and part.kind == FIELD
        and len(part.fields) == 1
        and part.fields[0] in question.columns.measures
    )


def _limit(question: Question, places: list[int]) -> int:
    """Return the stated limit, 1 by default: "top three", "the 5 newest", 最多的三份 ("the three with most").

    Args:
        places: indices of the parts that are superlatives.
    """
    for place in question.of_kind(NUMBER):
        around = [question.beside(place, -1), question.beside(place, 1)]
        near = any(
            one in places or (one is not None and question.parts[one].kind in ("which", "top")) for one in around
        )
        behind = around[1]
        leads = behind is not None and behind > 0 and question.parts[behind].kind in (FIELD, RECORD, PIECE)
        number = question.parts[place].number
        if place not in question.used and number and number <= MAX_LIMIT and (near or leads):
            question.used.add(place)
            return number
    return 1


def read_size(question: Question) -> Json | None:
    """Return the stated bounds on the records in a group: {"at_least": 5} for "at least 5 reports"; None if none."""
    for place in question.of_kind(*_BOUNDS):
        made = _size_at(question, place)
        if made is not None:
            return made
    for place in question.of_kind("exactly"):
        question.used.add(place)  # "only" restricts nothing without a number
    return None


def _size_at(question: Question, place: int) -> Json | None:
    """Return the bounds that the part `place` ("at least") states, as `read_size`; None if it counts no records."""
    part = question.parts[place]
    text = question.found.sentence.text[part.start : part.end].casefold()
    if part.kind in ("or_more", "or_fewer"):
        number = next((n for n in (place - 1, place - 2) if n >= 0 and question.parts[n].kind == NUMBER), None)
        record = question.beside(place, 1, over=(*LINKING, PIECE)) if number == place - 1 else place - 1
    elif part.kind == "exactly" and ("single" in text or text.endswith(" one")):
        number, record = None, question.beside(place, 1, over=(*LINKING,))
    else:
        number = question.beside(place, 1)
        if number is None or question.parts[number].kind != NUMBER:
            return None
        record = question.beside(number, 1, over=(*LINKING,))
        while record is not None and _describes(question, record):
            record = question.beside(record, 1)
    if not (is_records(question, record) or _classifies(question, number, place)):
        return None
    question.used.update(one for one in (place, number) if one is not None)
    stated = 1 if number is None else question.parts[number].number
    return None if stated is None else _BOUNDS[part.kind](stated)


def _describes(question: Question, place: int) -> bool:
    """Return whether a part only describes records: a constraint or a date field, as in "40 [submitted] reports"."""
    part = question.parts[place]
    return (part.kind == PIECE and not is_records(question, place)) or (part.kind == FIELD and is_dated(question, part))


def is_records(question: Question, place: int | None) -> bool:
    """Return whether the part `place` stands for the records: a noun for them, or a value of their kind ("permits")."""
    if place is None:
        return False
    part = question.parts[place]
    if part.kind == RECORD:
        return True
    return part.piece is not None and "kind" in concepts_of(part.piece.field)


def _classifies(question: Question, number: int | None, place: int) -> bool:
    """Return whether a Chinese classifier after a number shows that the number counts records.

    The noun for the records may be before the number: 文件[超过 10 份]的作者 ("authors of over 10 files").

    Args:
        number: index of the part that is the number; None returns False.
        place: index of the part that states the bound (超过).
    """
    if number is None or number + 1 >= len(question.parts):
        return False
    behind = question.parts[number + 1]
    unit = question.found.sentence.text[behind.start : behind.start + 1]
    before = question.beside(place, -1)
    after = question.beside(number, 1)
    return unit in _CLASSIFIERS and (is_records(question, before) or is_records(question, after))


def read_target(question: Question, place: int) -> int | None:
    """Return the index of the part that the counting word `place` counts; None if there is none.

    The counted part follows the counting word or, mostly in Chinese, precedes it.
    """
    over = (*LINKING, "distinct", "sum", PIECE, "most", "having", "more")
    behind = question.beside(place, 1, over=over)
    kinds = (RECORD, FIELD, "people")
    if behind is None or behind in question.used:
        return _record_before(question, place)
    part = question.parts[behind]
    if (part.kind not in kinds and not _is_named(question, behind)) or is_dated(question, part):
        return _record_before(question, place)
    verbs = any(
        token.folded in _VERBS for token in question.found.sentence.tokens[question.parts[place].last : part.first]
    )
    if verbs:
        return None  # "how many are of type G"
    return behind


def _is_named(question: Question, place: int) -> bool:
    return bool(question.parts[place].fields) and question.parts[place].strength >= 4


def _record_before(question: Question, place: int) -> int | None:
    """Return the index of the counted part before the counting word `place` (in English directly before); or None."""
    before = question.beside(place, -1, over=(*LINKING, PIECE, "sum", "distinct", "which", "having"))
    english = question.found.sentence.tokens[question.parts[place].first].kind != "cjk"
    if before is None or before in question.used or (english and before != place - 1):
        return None
    part = question.parts[before]
    if is_dated(question, part) or (part.fields and set(part.fields) <= question.constrained()):
        return None
    return before if part.kind in (RECORD, FIELD, "people") else None


def is_dated(question: Question, part: Part) -> bool:
    """Return whether a part names date fields only."""
    return bool(part.fields) and set(part.fields) <= set(question.columns.dates())


def read_operand(question: Question) -> str | None:
    """Return the numeric field to calculate with, as an expression (see `Question.expressed`); None if there is none.

    It is the field that the question names, if possible one without a bound ("over 500"). If the question names none,
    it is the field with the unit that is asked for.

    Raises:
        Unclear: several fields may be meant, or the field does not suit the calculation, see `_check_operand`.
    """
    named: dict[str, list[int]] = {}
    unclear = False
    for place, part in question.fields():
        if place in question.used:
            continue
        names = [name for name in part.fields if name in question.columns.measures]
        if len(names) == 1:
            named.setdefault(question.expressed(names[0]), []).append(place)
        unclear |= len(names) > 1
    free = {name: places for name, places in named.items() if not question.is_condition(name)} or named
    sure = {
        name: places for name, places in free.items() if any(question.parts[place].strength > 2 for place in places)
    } or free
    if len(sure) > 1 or (unclear and not sure):
        raise Unclear("one of several numbers")
    for name, places in sure.items():
        _check_operand(question, name, places)
        question.used.update(places)
        for place in places:
            _take_compound(question, name, place)
        return name
    return None if named else read_unit(question)


def read_unit(question: Question) -> str | None:
    """Return the only numeric field with the unit that is asked for ("how many minutes on average"), or None."""
    for place in question.of_kind(UNIT):
        part = question.parts[place]
        unit = unit_of(question.found.sentence.text[part.start : part.end])
        names = [name for name, one in question.columns.measures.items() if unit in one.units]
        if len(names) == 1 and not question.is_condition(names[0]):
            _check_operand(question, names[0], [])
            question.used.add(place)
            return question.expressed(names[0])
    return None


_APART = (0.03, 0.6)
"""A word that this share of the passages contains, from least to most, may tell documents apart."""
_CLAUSE = 6
"""Maximum number of tokens between "does" and its verb."""
_DOING = frozenset("do does did".split())


def _ends(question: Question, place: int) -> bool:
    """Return whether the part `place` is followed by no word that may be a verb."""
    return all(part.kind not in (FIELD, UNKNOWN, RECORD) for part in question.parts[place + 1 :])


def _take_compound(question: Question, name: str, place: int) -> None:
    """Mark unknown words before a numeric field's name as used, because they belong to that name: "[asking] price".

    Stop at a word that may restrict the documents: a capitalised one, a number, or one that only some texts contain.

    Args:
        place: index of the part that names the field.
    """
    tokens, frequencies = question.found.sentence.tokens, question.found.sentence.frequencies
    first = question.parts[place].first
    asked = (token.folded for token in tokens[max(first - _CLAUSE, 0) : first])
    if not _DOING.isdisjoint(asked) and _ends(question, place):
        return  # in "does a new lantern cost" the field's name is the verb, and the word before is the subject
    if question.found.sentence.text[question.parts[place].start] > "\u3400":
        # 停[多少分钟] ("stops how many minutes"), 停了[多久]: the verb 停 is part of the field's name.
        place = min(question.beside(place, -1, over=("count", "filler")) or place, place - 1) + 1
    while place and question.parts[place - 1].kind == UNKNOWN:
        place -= 1
        token, part = tokens[question.parts[place].first], question.parts[place]
        told = _APART[0] <= frequencies.get(token.folded, 0.0) <= _APART[1]
        if token.is_capital or told or (token.kind == "cjk" and part.last - part.first > 1) or token.kind == "number":
            return
        question.used.add(place)


def _check_operand(question: Question, name: str, places: list[int]) -> None:
    """Check that a numeric field can be the operand of the calculation.

    Args:
        name: the field, or `number(FIELD)` for numbers written as text.
        places: indices of the parts that name the field.
    Raises:
        Unclear: the question asks for one of these:
            - a sum, mean or median of a field that only numbers the records;
            - a sum of years, or a sum or an extreme of ranks;
            - the "best" of a field with a unit: the best time is the shortest;
            - a unit that the field does not have;
            - another field, not numeric, whose name follows directly: the last word of a compound noun is meant.
    """
    bare = name.removeprefix("number(").rstrip(")")
    if question.has("sum", "avg", "median", "how_much") and question.columns.is_running(bare):
        raise Unclear("a number that only identifies the records")
    if question.has("sum", "how_much") and question.columns.is_year(bare):
        raise Unclear("a sum of years")
    if question.has("highest", "lowest", "most", "fewest", "sum") and question.columns.is_rank(bare):
        raise Unclear("a position in an order")
    ends = {question.found.sentence.text[part.start : part.end].casefold() for part in question.parts}
    if ends & _JUDGING and question.columns.measures[bare].units:
        raise Unclear("the best value")
    check_unit(question, name)
    for place in places:
        behind = question.parts[place + 1] if place + 1 < len(question.parts) else None
        of_other = behind is not None and behind.kind == FIELD and bare not in behind.fields
        if behind is not None and of_other and place + 1 not in places and not question.number_of(behind):
            raise Unclear(question.found.sentence.text[question.parts[place].start : behind.end])


def check_unit(question: Question, name: str) -> None:
    """Check that every unit in the question is a unit of the numeric field `name`.

    Raises:
        Unclear: another unit is named: "how many minutes", but the field holds hours.
    """
    units = question.columns.measures[name.removeprefix("number(").rstrip(")")].units
    for part in question.parts:
        text = question.found.sentence.text[part.start : part.end]
        if part.piece is None and len(text.encode()) > 1 and units and (said := unit_of(text)) and said not in units:
            raise Unclear(text)


def read_length(question: Question) -> str | None:
    """Return the expression for the length of a list that is asked for: `len(authors)` for "most authors"; or None."""
    for place, part in question.fields():
        lists = [name for name in part.fields if question.columns.is_list(name)]
        before = question.beside(place, -1, over=(*LINKING, "distinct", NUMBER))
        counted = before is not None and question.parts[before].kind in ("count", *_BY_COUNT)
        behind = question.beside(place, 1)
        listed = behind is not None and question.parts[behind].kind in ("count", "listed", *_BY_COUNT)
        if lists and (counted or listed or question.has("avg", "median")):
            question.used.add(place)
            question.take("listed")
            return f"len({lists[0]})"
    return None


def read_decimals(question: Question) -> int | None:
    """Return the stated number of decimals: 2 for "to two decimals"; None if none is stated."""
    for place in question.of_kind("decimals"):
        part = question.parts[place]
        question.used.add(place)
        text = question.found.sentence.text[part.start : part.end].split()[0]
        return parse_count(text if text.isascii() else text[0])
    return None
