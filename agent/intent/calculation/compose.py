"""The slots of a question put together, and the one table of what may go together.

A calculation is made only when every word of the question is accounted for: a number that left out a word which might
restrict it, or that took a column by default, would be a wrong answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.intent.calculation import between, shares
from agent.intent.calculation.parts import FIELD, NUMBER, PIECE, RECORD, split
from agent.intent.calculation.rows import named_rows
from agent.intent.calculation.slots import (
    ENDS,
    Group,
    Order,
    Question,
    Unclear,
    read_decimals,
    read_group,
    read_length,
    read_operand,
    read_order,
    read_ranked_group,
    read_size,
    read_target,
)
from agent.intent.columns import Columns, columns_of
from agent.intent.filters import Json, both
from agent.intent.found import Found, Piece
from agent.intent.numbers import CURRENCIES
from agent.intent.vocabulary import concepts_of
from agent.intent.words import table

_LISTINGS = frozenset("list listed chart table listing 表 列表".split())
"""Words for the order in which records are written down."""
_MOST_SHOWN = 4
_OF_GROUPS = frozenset(["of", "group_by", "order", "limit", "ties", "between", "where", "decimals"])
GOES_WITH: Mapping[str, frozenset[str]] = {
    "count": _OF_GROUPS | {"at_least", "at_most", "over"},
    "sum": _OF_GROUPS | {"over"},
    "avg": _OF_GROUPS | {"over"},
    "median": _OF_GROUPS | {"over"},
    "min": _OF_GROUPS,
    "max": _OF_GROUPS,
    "share": _OF_GROUPS - {"of"},
    "difference": frozenset(["of", "group_by", "between", "where", "order"]),
    "list": frozenset(["of", "order", "limit", "ties", "where", "show"]),
}
"""What may stand beside each operation of an aggregate."""
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "sum": ("of",), "avg": ("of",), "median": ("of",), "min": ("of",), "max": ("of",), "share": ("where",),
    "difference": ("group_by", "between"), "list": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calculation:
    """An aggregate (the JSON of retrievers.core.aggregates) and the filter it works within.

    Attributes:
        pieces: what is left of the constraints as a filter: a share's condition is none.
        sure: the words ask for it; otherwise it only happens that nothing but metadata was asked for.
    """

    aggregate: Json
    pieces: tuple[Piece, ...]
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: a calculation, or the words for which none was made of a question that asks for one."""

    calculation: Calculation | None = None
    unread: tuple[str, ...] = ()


_CALCULATING = (
    "count", "how_much", "distinct", "avg", "median", "sum", "share", "rate", "ratio", "difference", "at_least",
    "at_most", *ENDS, "second", "third",
)  # fmt: skip


def find_calculation(found: Found) -> Calculation | None:
    """The calculation that a question asks for, None for a question about what documents say."""
    return read_calculation(found).calculation


def read_calculation(found: Found) -> Read:
    """The calculation that a question asks for, with what stands in its way."""
    question = question_of(found)
    if question.has("hindering"):
        return Read(unread=_words(question, "hindering") if question.has(*_CALCULATING) else ())
    try:
        made = _operation(question)
    except Unclear as error:
        return Read(unread=(str(error),))
    unread = tuple(question.unread())
    if made is None or unread:
        return Read(unread=unread if question.has(*_CALCULATING) else ())
    made = _conditioned(made, question)
    return Read(made) if made is not None and is_possible(made.aggregate) else Read()


def question_of(found: Found) -> Question:
    """The parts of a question, with constraints on names that only whole rows have."""
    columns = columns_of(found.sentence.vocabulary)
    parts = split(found, columns)
    rows = named_rows(found, columns, parts)
    return Question(found, columns, split(found, columns, rows) if rows else parts, within=_without_totals(columns))


def _without_totals(columns: Columns) -> list[Json]:
    """The condition that leaves out records which sum up the others: a row "Total" among those of nations."""
    fields = columns.vocabulary.catalogue.fields
    made: list[Json] = []
    for name in sorted(columns.keys):
        totals = [value for value in fields[name].values if value.casefold() in table("calculation")["summing_up"]]
        made += [{"type": "nin", "key": name, "value": totals}] if totals else []
    return made


def is_possible(aggregate: Json) -> bool:
    """Whether what an aggregate names may go together."""
    given = {key for key, value in aggregate.items() if value not in (None, (), [], False) and key != "op"}
    needed = _NEEDED.get(aggregate["op"], ())
    return given <= GOES_WITH[aggregate["op"]] and all(aggregate.get(key) for key in needed)


def _words(question: Question, kind: str) -> tuple[str, ...]:
    text = question.found.sentence.text
    return tuple(text[question.parts[place].start : question.parts[place].end] for place in question.of_kind(kind))


def _conditioned(made: Calculation, question: Question) -> Calculation | None:
    """The calculation within conditions on the lengths of lists; a count also states which fields must be there."""
    stated = [*question.within, *question.absent, *(piece.filter for piece in question.found.lengths)]
    where = made.aggregate.get("where")
    existing = [piece for piece in made.pieces if piece.filter["type"] == "exists"]
    if made.aggregate["op"] == "count" and existing and not where:
        made = replace(made, pieces=tuple(piece for piece in made.pieces if piece not in existing))
        stated = [*(piece.filter for piece in existing), *stated]
    if not stated or where == both(stated) or (made.aggregate["op"] == "share" and stated == question.absent):
        return made
    if made.aggregate["op"] in ("share", "difference"):
        return None
    return replace(made, aggregate={**made.aggregate, "where": both([where, *stated] if where else stated)})


def _operation(question: Question) -> Calculation | None:
    """What the words calculate, read by the one that says most."""
    take_absent(question)
    if question.has("share", "rate"):
        return shares.read_share(question)
    part = shares.read_part_of_count(question)
    if part is not None:
        return part
    size = read_size(question)
    if size is not None:
        return _sized(question, size)
    told = between.read_several(question)
    if question.has("difference") and told is not None:
        return _difference(question, told)
    if told is not None and (made := _compared(question, told)) is not None:
        return made
    ordered = question.has("ordered_down", "ordered_up")
    order = None if ordered else read_order(question)
    if order is not None:
        return _ranked(question, order)
    if not ordered and question.has(*ENDS):
        return None
    return _plain(question)


def pieces_of(question: Question) -> tuple[Piece, ...]:
    """The constraints of a question, those on whole rows included."""
    pieces = list(question.found.pieces)
    for part in question.parts:
        stated = {str(piece.filter) for piece in (*pieces, *question.found.lengths)}
        if part.piece is not None and str(part.piece.filter) not in stated:
            pieces.append(part.piece)
    return tuple(pieces)


def take_absent(question: Question) -> None:
    """ "nations with no gold medals": a number that is zero, or a field that is not there."""
    for place in question.of_kind("lacking"):
        behind = place + 1
        part = question.parts[behind] if behind < len(question.parts) else None
        if part is None or len(part.fields) != 1 or question.is_condition(part.fields[0]):
            continue
        name = part.fields[0]
        if name in question.columns.measures and not question.columns.measures[name].texts:
            question.absent.append({"type": "eq", "key": name, "value": 0})
        elif not question.columns.is_everywhere(name) and question.columns.is_group(name):
            question.absent.append({"type": "exists", "key": name, "value": False})
        else:
            continue
        question.used.update((place, behind))


# --- groups by their size


def _sized(question: Question, size: Json) -> Calculation | None:
    """ "which authors have at least 30 reports", "how many people wrote only one": groups by their size."""
    if question.has("avg", "median"):
        return None
    pieces = pieces_of(question)
    field = _counted_field(question)
    if field is not None:
        return Calculation({"op": "count", "of": field, **size}, pieces)
    group = read_group(question) or read_ranked_group(question, None)
    if group is not None:
        question.take("more", "fewer")
        return Calculation({"op": "count", "group_by": group.expression, "order": "desc", **size}, pieces)
    # "did Ann write more than 30 reports" is answered by their number.
    asks = question.found.sentence.folded(0) in ("did", "do", "does", "has", "have", "had", "is", "are", "was", "were")
    asks = asks or question.found.sentence.text.rstrip("？?。 ").endswith(("吗", "么"))
    return Calculation({"op": "count"}, pieces) if asks and pieces else None


def _counted_field(question: Question) -> str | None:
    """The field whose values are counted: "how many authors", 几位作者, "distinct inspectors"."""
    for place in question.of_kind("count", "distinct"):
        target = read_target(question, place)
        if target is None:
            continue
        part = question.parts[target]
        if part.kind == RECORD:
            return None
        name = _people_meant(question) if part.kind == "people" and not part.fields else None
        if part.kind == "people" and not name and not part.fields:
            return None
        name = name or question.group_of(part)
        if name is not None and not question.has("distinct") and not question.columns.is_repeated(name):
            return None  # one a record, or nearly so: it may be the records that are counted
        if name is not None and not _is_constrained_value(question, name):
            question.used.update((place, target))
            question.taken.add(name)
            question.take("distinct", "sum")
            return name
    return None


def _people_meant(question: Question) -> str | None:
    """The field of the people who are counted: the one whose word is said, else the one that there is."""
    people = question.columns.people()
    said = [name for _, part in question.fields() for name in part.fields if name in people]
    pieces = [part.piece.field for part in question.parts if part.piece is not None and part.piece.field in people]
    named = list(dict.fromkeys((*said, *pieces)))
    if len(named) == 1:
        question.used.update(place for place, part in question.fields() if set(part.fields) & set(named))
        return named[0]
    return people[0] if people and not named and question.has(RECORD) else None


def _is_constrained_value(question: Question, name: str) -> bool:
    """Whether the field is only named beside a value of its own, which is one and not counted."""
    return any(
        part.piece is not None and part.piece.field == name and part.piece.filter["type"] == "eq"
        and not question.columns.is_list(name)
        for part in question.parts
    )  # fmt: skip


# --- values told apart


def _difference(question: Question, told: between.Several) -> Calculation | None:
    question.take("difference", "more", "fewer", "count", "versus", "apart", "between", "or")
    operand = read_operand(question)
    op = "difference"
    more: Json = {}
    if question.has("avg", "median"):
        question.take("avg", "median")
        op = "median" if question.has("median") else "avg"
        more = {"decimals": 2} if op == "avg" else {}
    if len(told.values) != 2 and op == "difference":
        return None
    directed = any(
        "more" in word or "fewer" in word or "longer" in word or "多" in word for word in _words(question, "difference")
    )
    if operand is not None and op == "difference" and not directed and not told.is_row:
        op = "sum"
    if op == "difference" and not directed:
        more = {"order": "desc"}
    aggregate: Json = {"op": op, "of": operand, "group_by": told.expression, "between": list(told.values), **more}
    return Calculation(aggregate, pieces_of(question))


def _compared(question: Question, told: between.Several) -> Calculation | None:
    """ "more in Old Town or in Eastfield", "Ann and Bo each", "the median in 2022 and 2023"."""
    middle = _middle(question)
    counts, summed = question.has("count"), question.has("sum")
    chooses = question.has("more", "fewer", *ENDS) and not question.has("count", "how_much", "apart", "difference")
    compared = question.has("more", "fewer", "apart", "ratio") or question.says("versus")
    together = question.has("together", "sum") and not compared
    compares = compared or question.has("per") or (chooses and question.has(*ENDS))
    if together or not (compares or counts or middle) or (middle is None and question.has("per") and not counts):
        return None
    question.take("versus", "more", "fewer", "apart", "ratio", "count", "or", "sum", "together", "between", *ENDS)
    question.take("per")
    aggregate: Json = {"group_by": told.expression, "between": list(told.values)}
    which = question.has("which", "who") or told.is_row
    if chooses and which:
        low = question.has("fewer", "fewest", "lowest")
        aggregate |= {"order": "asc" if low else "desc", "limit": 1, "ties": True}
    operand = read_operand(question)
    if operand is not None and question.is_condition(operand):
        operand = None
    if middle is not None:
        if operand is None:
            return None
        question.take("avg", "median")
        aggregate |= {"op": middle, "of": operand} | ({"decimals": 2} if middle == "avg" else {})
    elif operand is not None and (told.is_row or not counts or summed or _counts_operand(question)):
        aggregate |= {"op": "sum", "of": operand}
    elif told.is_row and not counts:
        return None  # one row has no number of records
    else:
        aggregate |= {"op": "count"}
        _take_counted(question)
    return Calculation(aggregate, pieces_of(question))


def _counts_operand(question: Question) -> bool:
    """Whether it is a number field that "how many" is asked of: "how many points did Ann and Bo score"."""
    for place in question.of_kind("count"):
        target = read_target(question, place)
        if target is not None and question.number_of(question.parts[target]):
            return True
    return False


def _take_counted(question: Question) -> None:
    """Words for the field of people stand for who did it, not for something else that is counted."""
    for place, part in question.fields():
        if part.strength <= 2 and set(part.fields) & set(question.columns.people()):
            question.used.add(place)


# --- one end of an order


def _ranked(question: Question, order: Order) -> Calculation | None:
    """ "who wrote most", "the department with the highest total cost", "the three latest"."""
    middle = _middle(question)
    explicit = read_group(question)
    if explicit is not None and explicit.per_record:
        explicit = None
    if middle is not None or (question.has("sum") and not order.is_dated):
        return _ranked_by_number(question, order, middle, explicit)
    if order.counts:
        return _most(question, order, explicit)
    if explicit is not None and not order.is_dated:
        operand = read_operand(question) or _implied(question, order)
        op = "max" if order.direction == "desc" else "min"
        return Calculation({"op": op, "of": operand, "group_by": explicit.expression}, pieces_of(question))
    return _end(question, order)


def _ranked_by_number(
    question: Question, order: Order, middle: str | None, explicit: Group | None
) -> Calculation | None:
    operand = read_operand(question)
    group = explicit or read_ranked_group(question, order)
    question.take("avg", "median", "sum")
    if operand is None and order.counts and middle is None and group is not None:
        question.take("count")
        aggregate: Json = {"op": "count", "group_by": group.expression}
    elif operand is None or group is None:
        return None
    else:
        aggregate = {"op": middle or "sum", "of": operand, "group_by": group.expression}
    aggregate |= {"order": order.direction, "limit": order.limit, "ties": True}
    return Calculation(aggregate | ({"decimals": 2} if middle == "avg" else {}), pieces_of(question))


def _most(question: Question, order: Order, explicit: Group | None) -> Calculation | None:
    """By how many records, or by the sum of a number, if one is named."""
    asked = _asked_records(question)
    length = read_length(question) if asked else None
    if length is not None:
        return _listed(question, order, length)
    operand = read_operand(question) or _spent(question)
    group = explicit or (None if asked and operand is not None else read_ranked_group(question, order))
    if group is None or _is_key(question, group.expression):
        own = [group.expression] if group is not None else []
        return _listed(question, order, operand, own) if operand is not None else None
    question.take("count")
    if group.expression in _single_values(question):
        return None
    aggregate: Json = {
        "op": "sum" if operand else "count", "of": operand, "group_by": group.expression, "order": order.direction,
    }  # fmt: skip
    # Among the authors of what Ann wrote Ann herself comes first.
    theirs = any(one.field == group.expression and not one.negated for one in question.found.constraints)
    aggregate |= {"limit": order.limit + theirs, "ties": True}
    return Calculation(aggregate, pieces_of(question))


def _single_values(question: Question) -> set[str]:
    """Fields of one value each that the constraints have settled."""
    stated = (part.piece for part in question.parts if part.piece is not None and part.piece.filter["type"] == "eq")
    return {piece.field for piece in stated if not question.columns.is_list(piece.field)}


def _spent(question: Question) -> str | None:
    """The amount of money that "spent" and "paid" speak of."""
    if not question.has("spending"):
        return None
    money = [
        name for name, one in question.columns.measures.items()
        if {unit.kind for unit in one.units} & CURRENCIES or "money" in concepts_of(name)
    ]  # fmt: skip
    if len(money) != 1:
        return None
    question.take("spending")
    return question.expressed(money[0])


def _is_key(question: Question, expression: str) -> bool:
    return expression in question.columns.keys


def _asked_records(question: Question) -> bool:
    """Whether records are asked for: "which document has the most authors", 作者最多的文件是哪份."""
    for place in question.of_kind(RECORD):
        before = question.beside(place, -1, over=("filler", "mark", NUMBER, PIECE, "by"))
        behind = question.beside(place, 1)
        after = behind is not None and question.parts[behind].kind == "which"
        ended = before is not None and question.parts[before].kind in ("which", *ENDS)
        if (ended and question.parts[before or 0].kind == "which") or (after and ended):
            return True
        if ended and not question.found.sentence.text.isascii() and behind is None:
            return True
    return False


def _end(question: Question, order: Order) -> Calculation | None:
    """The records at one end of an order, or the value there."""
    if order.is_dated:
        of = question.date()
        for place, part in question.fields():
            if of in part.fields:
                question.used.add(place)
        of = of or _numbered_by(question) or _year_of(question)
    else:
        of = read_length(question) or read_operand(question) or _implied(question, order)
    if of is None:
        return None
    wants_records = _wants_records(question, order, of)
    if order.is_dated and question.has("when") and not question.has("which"):
        return Calculation({"op": "max" if order.direction == "desc" else "min", "of": of}, pieces_of(question))
    if not wants_records and not order.is_dated and order.limit == 1:
        question.take("count")
        return Calculation({"op": "max" if order.direction == "desc" else "min", "of": of}, pieces_of(question))
    return _listed(question, order, of)


def _numbered_by(question: Question) -> str | None:
    """ "ranked first", "the last city listed": a place in an order, or the number that records are listed by."""
    ranks = [(place, name) for place, part in question.fields() for name in part.fields
             if name in question.columns.measures and question.columns.is_rank(name)]  # fmt: skip
    if len(ranks) == 1:
        question.used.add(ranks[0][0])
        return ranks[0][1]
    said = {token.folded for token in question.found.sentence.tokens} & _LISTINGS
    running = [name for name in question.columns.measures if question.columns.is_running(name)]
    return running[0] if said and len(running) == 1 else None


def _year_of(question: Question) -> str | None:
    """A number that is a year, where records have no date."""
    fields = question.columns.vocabulary.catalogue.fields
    years = [
        name for name in question.columns.measures
        if isinstance(fields[name].low, int | float) and isinstance(fields[name].high, int | float)
        and float(fields[name].low or 0) >= 1000 and float(fields[name].high or 0) <= 2100
    ]  # fmt: skip
    return years[0] if len(years) == 1 else None


def _wants_records(question: Question, order: Order, of: str) -> bool:
    """Whether records are asked for at the end of an order, rather than the value that stands there."""
    if question.has("who"):
        return True
    for place, part in enumerate(question.parts):
        if part.kind == RECORD and place not in question.used:
            return True
        before = question.beside(place, -1, over=("filler", "mark", NUMBER))
        led = before is not None and (question.parts[before].kind == "which" or before == order.place)
        if part.piece is not None and (led or before == order.place):
            return True
        if part.fields and of not in part.fields and led and not question.number_of(part):
            return True
    return False


def _listed(question: Question, order: Order, of: str | None, own: Sequence[str] = ()) -> Calculation:
    """Records at one end of an order, with the fields that are asked for.

    Args:
        own: fields that are asked for and were taken up before.
    """
    shown = list(dict.fromkeys((*own, *read_shown(question, of))))
    aggregate: Json = {
        "op": "list", "of": of, "order": order.direction, "limit": order.limit,
        "show": [*shown[: _MOST_SHOWN - 1], *([of] if of else [])], "ties": order.limit == 1 and not order.nth,
    }  # fmt: skip
    question.take("count", "when", "value", "how_much")
    return Calculation(aggregate, pieces_of(question))


def read_shown(question: Question, of: str | None = None) -> list[str]:
    """The fields that are asked for, and no condition."""
    shown: list[str] = []
    for place, part in question.fields():
        if place in question.used or part.kind not in (FIELD, "year", "month", "name_of", "people", "filler", "value"):
            continue
        if part.kind == "filler" and part.strength < 5:
            continue
        names = [name for name in part.fields if name in question.columns.vocabulary.roles]
        if not names or (len(names) > 1 and part.strength > 2):
            continue
        question.used.add(place)
        shown.append(names[0])
    people = question.columns.people()
    if question.has("who") and people and not set(shown) & set(people):
        shown.append(people[0])
    if question.has("when") and not question.columns.dates():
        pass
    elif question.has("when") and not set(shown) & set(question.columns.dates()):
        shown.append(question.date() or "")
    return [name for name in dict.fromkeys(shown) if name and name != of]


def _implied(question: Question, order: Order) -> str | None:
    """The number that the end of an order speaks of: "most expensive" of a price, "longest" of a time or a length."""
    part = question.parts[order.place]
    sentence, measures = question.found.sentence, question.columns.measures
    named = {name for index in range(part.first, part.last) for name in sentence.cue_fields(index) if name in measures}
    if len(named) == 1:
        return question.expressed(named.pop())
    words = sentence.text[part.start : part.end].casefold().split()
    meant = {
        kind for one in table("implied").get("ends", ()) if set(one["words"]) & set(words) for kind in one["kinds"]
    }
    if "money" in meant:
        meant |= CURRENCIES
    of_unit = [name for name, one in measures.items() if {unit.kind for unit in one.units} & meant]
    of_concept = [name for name in measures if concepts_of(name) & meant]
    found = of_unit or of_concept
    return question.expressed(found[0]) if len(found) == 1 else None


# --- counts, sums, middles


def _middle(question: Question) -> str | None:
    """The average or the median, where one is asked for.

    Raises:
        Unclear: both are.
    """
    if question.has("avg") and question.has("median"):
        raise Unclear("average and median")
    return "median" if question.has("median") else "avg" if question.has("avg") else None


def _plain(question: Question) -> Calculation | None:
    middle, group = _middle(question), read_group(question)
    if middle is not None:
        return _middled(question, middle, group)
    decimals = read_decimals(question)
    made = _counted(question, group) or _summed(question, group) or _grouped(question, group) or _total(question)
    if made is None or decimals is None:
        return made
    return replace(made, aggregate={**made.aggregate, "decimals": decimals})


def _middled(question: Question, middle: str, group: Group | None) -> Calculation | None:
    """An average or a median: of a number, of the lengths of a list, or of groups by how many records they have."""
    given = read_decimals(question)
    decimals: Json = {"decimals": 2 if given is None else given} if middle == "avg" or given is not None else {}
    per_record, groups = group is not None and group.per_record, group is not None and not group.per_record
    question.take("avg", "median")
    counts = question.has("count")
    if groups and group is not None and (_is_cut(question, group.expression) or between.read_several(question)):
        return None
    if per_record and (length := read_length(question)) is not None:
        question.take("count", "sum")
        return Calculation({"op": middle, "of": length, **decimals}, pieces_of(question))
    target = next((read_target(question, place) for place in question.of_kind("count")), None)
    records = counts and target is not None and question.parts[target].kind == RECORD
    records = records or (counts and target is None and bool(pieces_of(question)))
    if not groups and counts:
        group = _group_of_one(question) if records or _is_kind_counted(question) else None
        groups = group is not None
    if groups and group is not None and (records or counts):
        question.take("count", "sum")
        values = None if records or target is None else question.group_of(question.parts[target])
        if target is not None:
            question.used.add(target)
        of: Json = {"op": "count", "of": values} if values else {"op": "count"}
        return Calculation({**of, "group_by": group.expression, "over": middle, **decimals}, pieces_of(question))
    operand = read_operand(question) or (None if records else read_length(question))
    if operand is None or (question.is_condition(operand) and (counts or not groups)):
        return None
    question.take("count")
    if groups and group is not None and question.take("sum"):
        each = {"op": "sum", "of": operand, "group_by": group.expression, "over": middle}
        return Calculation({**each, **decimals}, pieces_of(question))
    by: Json = {"group_by": group.expression} if groups and group is not None else {}
    return Calculation({"op": middle, "of": operand, **by, **_direction(question), **decimals}, pieces_of(question))


def _direction(question: Question) -> Json:
    down, up = question.take("ordered_down"), question.take("ordered_up")
    return {"order": "desc" if down else "asc"} if down or up else {}


def _is_kind_counted(question: Question) -> bool:
    return any(part.piece is not None and "kind" in concepts_of(part.piece.field) for part in question.parts)


def _group_of_one(question: Question) -> Group | None:
    """ "how many permits does the average inspector handle": one of those that are averaged over."""
    for place in question.of_kind("avg", "median"):
        behind = question.beside(place, 1)
        if behind is not None and (name := question.group_of(question.parts[behind])):
            question.used.add(behind)
            return Group(name, behind)
    return None


def _is_cut(question: Question, group: str) -> bool:
    """Whether periods are not whole, or not one after the other: then their average says something else."""
    bounds = [one for dated in question.found.dates for one in (dated.period.low, dated.period.high) if one is not None]
    name, _, rest = group.partition("(")
    if rest and name in ("quarter", "month", "half"):
        whole = len(bounds) == 2 and (bounds[1] - bounds[0]).days <= 366
        return not whole
    months = {"year": 12, "year_month": 1}.get(name) if rest else None
    if months is not None:
        return any(one.day != 1 or (one.month - 1) % months for one in bounds)
    named = {one.field for one in question.found.constraints}
    return group in named and question.columns.is_list(group)


def _counted(question: Question, group: Group | None) -> Calculation | None:
    """How many records there are, or values of a field."""
    if not question.has("count", "distinct"):
        return None
    if len(question.of_kind("count")) > 1 and not _says_once(question):
        return None
    pieces = pieces_of(question)
    by: Json = {"group_by": group.expression} if group is not None and not group.per_record else {}
    number = _counted_number(question)
    if number is None and _is_of_one(question, pieces):
        return None  # one record is no number of records
    if number is not None:
        return Calculation({"op": "sum", "of": number, **by, **_direction(question)}, pieces) if pieces or by else None
    field = _counted_field(question)
    if field is not None:
        return Calculation({"op": "count", "of": field, **by, **_direction(question)}, pieces)
    if not question.has("count") or not _counts_records(question):
        return None
    question.take("count", "sum", "breakdown", "together")
    if by:
        question.take("apart")
    counted: Json = {"op": "count", "of": None, **by, **_direction(question)} if by else {"op": "count"}
    return Calculation(counted, pieces)


def _is_of_one(question: Question, pieces: Sequence[Piece]) -> bool:
    """Whether a constraint names one record by what no other has."""
    fields = question.columns.vocabulary.catalogue.fields
    return any(
        piece.field in question.columns.keys and piece.filter["type"] == "eq"
        and fields[piece.field].values.get(piece.filter["value"], 0) == 1
        for piece in pieces
    )  # fmt: skip


def _says_once(question: Question) -> bool:
    """Whether the counting words count one thing: "give me the number of permits, the count please"."""
    targets = {read_target(question, place) for place in question.of_kind("count")} - {None}
    return len(targets) < 2


def _counts_records(question: Question) -> bool:
    """Whether it is records that are counted, rather than something nobody knows."""
    for place in question.of_kind("count"):
        target = read_target(question, place)
        if target is not None and question.parts[target].kind == RECORD:
            return True
        name = question.group_of(question.parts[target]) if target is not None else None
        if target is not None and name is not None and question.columns.is_almost_key(name):
            question.used.add(target)
            return True
        if target is None:
            continue
        condition = next((one for one in question.parts[target].fields if question.is_condition(one)), None)
        if condition is not None:
            question.used.add(target)
            return True  # "how many scores were above 15"
        return False
    last = question.parts[question.of_kind("count")[-1]]
    return bool(pieces_of(question)) or question.has(RECORD) or question.found.sentence.text[last.end - 1] in "篇份件起"


def _counted_number(question: Question) -> str | None:
    """ "how many points did Ann score": the number field that "how many" is asked of."""
    for place in question.of_kind("count"):
        target = read_target(question, place)
        if target is None or question.parts[target].kind == RECORD:
            continue
        name = question.number_of(question.parts[target])
        if name is not None and not question.is_condition(name):
            question.used.update((place, target))
            question.take("sum")
            behind = target + 1
            if behind < len(question.parts) and question.parts[behind].kind == RECORD:
                question.used.add(behind)
            return name
    return None


def _summed(question: Question, group: Group | None) -> Calculation | None:
    """The sum of a number."""
    if not question.has("sum", "how_much"):
        return None
    operand = read_operand(question)
    if operand is None or question.is_condition(operand):
        return None
    question.take("sum", "how_much", "breakdown")
    by: Json = {"group_by": group.expression} if group is not None and not group.per_record else {}
    return Calculation({"op": "sum", "of": operand, **by, **_direction(question)}, pieces_of(question))


def _total(question: Question) -> Calculation | None:
    """ "denied permits: what is the total?": of records, where no number is named."""
    pieces = pieces_of(question)
    if not question.has("sum") or not (pieces or question.has(RECORD)) or any(question.fields()):
        return None
    question.take("sum")
    return Calculation({"op": "count"}, pieces)


def _grouped(question: Question, group: Group | None) -> Calculation | None:
    """ "complaints by district", "list all districts", "which statuses are there": records by group."""
    pieces = pieces_of(question)
    if group is not None and not group.per_record:
        question.take("breakdown", "apart")
        if question.has("sum", "avg", "median"):
            return None
        return Calculation({"op": "count", "of": None, "group_by": group.expression, **_direction(question)}, pieces)
    fields = [(place, name) for place, part in question.fields() if (name := question.group_of(part))]
    asks = (question.has("exists") and question.has("which")) or question.has("listed")
    if asks and len(fields) == 1 and fields[0][1] not in {piece.field for piece in pieces}:
        question.used.add(fields[0][0])
        question.take("exists", "listed")
        return Calculation({"op": "count", "group_by": fields[0][1]}, pieces)
    if question.has("ordered_down", "ordered_up", "breakdown", "rank") and len(fields) == 1:
        question.used.add(fields[0][0])
        question.take("count", "breakdown", "rank")
        direction = _direction(question) or {"order": "desc"}
        return Calculation({"op": "count", "group_by": fields[0][1], **direction}, pieces)
    return None
