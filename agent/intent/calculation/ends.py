"""Extremes: who wrote most, the department with the highest total cost, the three latest."""

from collections.abc import Sequence
from dataclasses import replace

from agent.intent.calculation.groups import Group, read_group, read_ranked_group
from agent.intent.calculation.part import FIELD, NUMBER, PIECE, RECORD
from agent.intent.calculation.places import is_place_named
from agent.intent.calculation.question import Calculation, Question, Unclear, pieces_of
from agent.intent.calculation.slots import ENDS, RankOrder, read_length, read_operand
from agent.intent.date_fields import is_main_unclear, is_ordered
from agent.intent.filter_json import Json
from agent.intent.found import Piece
from agent.intent.numbers import CURRENCIES
from agent.intent.vocabulary import concepts_of

LISTINGS = frozenset("list listed chart table listing 表 列表".split())
"""Words after which "first" and "last" mean the order of the records in their list."""
_OFTEN = ("often", "frequent", "common", "常", "频繁")
_LASTING = frozenset("take takes took taking last lasts lasted lasting 花 耗时 用时".split())
"""Words beside which "longer" means a time, not a length."""
_MOST_SHOWN = 4
_MOST_LISTED = 10


def read_ranked(question: Question, order: RankOrder) -> Calculation | None:
    """Return the calculation of an extreme: "who wrote most", "the three latest"; None if it cannot be calculated."""
    order = _by_number(question, order)
    middle = read_middle(question)
    if middle is not None and order.is_dated:
        return None  # "the average of the first three" needs the first three alone, which no aggregate selects
    explicit = read_group(question)
    if explicit is not None and explicit.per_record:
        explicit = None
    if middle is not None or (question.has("sum") and not order.is_dated):
        return _ranked_by_number(question, order, middle, explicit)
    if order.counts:
        return _most(question, order, explicit)
    if explicit is not None and not order.is_dated:
        operand = read_operand(question) or implied(question, order.place)
        op = "max" if order.direction == "desc" else "min"
        return Calculation({"op": op, "of": operand, "group_by": explicit.expression}, pieces_of(question))
    return _end(question, order)


_OPPOSITE = {"asc": "desc", "desc": "asc"}
_PERIODS = ("year", "month", "quarter")
_AGES = ("oldest",)


def _by_number(question: Question, order: RankOrder) -> RankOrder:
    """Return the order with the direction that fits the numeric field; "fastest", "slowest" and ages may reverse it.

    "fastest" means the lowest time but the highest speed. "oldest" means the earliest date but the highest age.

    Raises:
        Unclear: the field is neither a time nor a speed, or "oldest" may mean an age or a date.
    """
    named = [name for _, part in question.fields() for name in part.fields if name in question.columns.measures]
    opposite = replace(order, direction=_OPPOSITE[order.direction])
    if order.is_dated:
        if implied(question, order.place) is None or not set(named) <= set(question.columns.implied(_AGES, "ends")):
            return order
        people = set(question.columns.people())
        aged = named or question.has("who", "people") or any(people & set(part.fields) for _, part in question.fields())
        dated = question.columns.dates() or _year_of(question) is not None
        if (dated and not aged) or _are_others(question, order.place + 1):
            raise Unclear("an age or a date")
        return replace(opposite, kind="highest" if opposite.direction == "desc" else "lowest")
    if order.kind not in ("fastest", "slowest"):
        return order
    if order.kind == "slowest" and not named and (question.has(*_PERIODS) or implied(question, order.place) is None):
        return replace(opposite, kind="fewest")  # the slowest month has the fewest records
    if named and set(named) <= set(question.columns.implied(["speed"], "nouns")):
        return opposite
    if named and not set(named) <= set(question.columns.implied(["time"], "nouns")):
        raise Unclear("neither a time nor a speed")
    return order


def _are_others(question: Question, place: int) -> bool:
    """Return whether the part `place` names others than the records: "the oldest [owner]", if each record is a dog."""
    part = question.parts[place] if place < len(question.parts) else None
    return part is not None and part.kind == FIELD and question.columns.keys.isdisjoint(part.fields)


def _ranked_by_number(
    question: Question, order: RankOrder, middle: str | None, explicit: Group | None
) -> Calculation | None:
    operand = read_operand(question)
    group = explicit or read_ranked_group(question, order)
    question.take("avg", "median", "sum")
    if operand is None or group is None:
        return None
    aggregate: Json = {"op": middle or "sum", "of": operand, "group_by": group.expression}
    aggregate |= {"order": order.direction, "limit": order.limit, "ties": True}
    return Calculation(aggregate | ({"decimals": 2} if middle == "avg" else {}), pieces_of(question))


def _most(question: Question, order: RankOrder, explicit: Group | None) -> Calculation | None:
    """Return the ranking of groups by number of records, or by the sum of the numeric field that the question names.

    Without a group, return the list of the records with the highest or lowest value of the field, or with the longest
    or shortest list ("most authors"). None if the question is unclear.
    """
    asked = _asked_records(question)
    length = read_length(question) if asked else None
    if length is not None:
        return listed(question, order, length)
    said = question.found.sentence.text[question.parts[order.place].start : question.parts[order.place].end].casefold()
    # "most often" asks for a number of records, not for a sum.
    operand = None if any(word in said for word in _OFTEN) else read_operand(question)
    is_record = any(not question.parts[place].guessed for place in question.of_kind(RECORD))
    if operand is None and "amount" in said and question.columns.measures and not is_record:
        raise Unclear("an amount that no field is named for")
    if operand is not None and explicit is not None and said.startswith(("maximum", "minimum")):
        op = "max" if order.direction == "desc" else "min"  # "maximum number of beds per department"
        return Calculation({"op": op, "of": operand, "group_by": explicit.expression}, pieces_of(question))
    group = explicit or (None if asked and operand is not None else read_ranked_group(question, order))
    if group is None or _is_key(question, group.expression):
        own = [group.expression] if group is not None else []
        return listed(question, order, operand, own) if operand is not None else None
    question.take("count")
    if group.expression in _single_values(question):
        return None
    aggregate: Json = {
        "op": "sum" if operand else "count", "of": operand, "group_by": group.expression, "order": order.direction,
    }  # fmt: skip
    # Ann comes first among the authors of her own documents, so ask for one more.
    theirs = any(one.field == group.expression and not one.negated for one in question.found.constraints)
    aggregate |= {"limit": order.limit + theirs, "ties": True}
    return Calculation(aggregate, pieces_of(question))


def _single_values(question: Question) -> set[str]:
    """Return the single-valued fields for which a constraint demands one value."""
    stated = (part.piece for part in question.parts if part.piece is not None and part.piece.filter["type"] == "eq")
    return {piece.field for piece in stated if not question.columns.is_list(piece.field)}


def _is_money(question: Question, expression: str) -> bool:
    """Return whether a numeric field, or an expression of one, is an amount of money."""
    name = expression.removeprefix("number(").rstrip(")")
    measure = question.columns.measures.get(name)
    units = {unit.kind for unit in measure.units} if measure is not None else set()
    return bool(units & CURRENCIES) or "money" in concepts_of(name)


def _is_key(question: Question, expression: str) -> bool:
    return expression in question.columns.keys


def _asked_records(question: Question) -> bool:
    """Return whether the question asks for records: "which document has the most authors", 作者最多的文件是哪份."""
    for place in question.of_kind(RECORD):
        before = question.beside(place, -1, over=("filler", "mark", NUMBER, PIECE, "by"))
        behind = question.beside(place, 1)
        after = behind is not None and question.parts[behind].kind == "which"
        ended = before is not None and question.parts[before].kind in ("which", *ENDS)
        last_zh = behind is None and not question.found.sentence.text.isascii()
        if ended and (after or last_zh or question.parts[before or 0].kind == "which"):
            return True
    return False


def _end(question: Question, order: RankOrder) -> Calculation | None:
    """Return the list of the first records in an order, or the "min" or "max" of its field; None if no field fits."""
    if order.is_dated:
        if is_place_named(question.found.sentence.text, question.columns):
            raise Unclear("a place or a date")
        of = _numbered_by(question) or question.date()
        for place, part in question.fields():
            if of in part.fields:
                question.used.add(place)
        if of is not None and of not in question.columns.measures and not is_ordered(question.columns.vocabulary, of):
            return _on_one_day(question, order, of)
        of = of or _year_of(question)
    else:
        of = read_length(question) or read_operand(question)
        other = implied(question, order.place) if of is None or not _is_money(question, of) else None
        if of is None or (other is not None and _is_money(question, other)):
            of = other  # "the dearest bottle" means the price, not the field for the number of bottles
    if of is None:
        return None
    wants_records = _wants_records(question, order, of)
    if order.is_dated and question.has("when") and not question.has("which"):
        return Calculation({"op": "max" if order.direction == "desc" else "min", "of": of}, pieces_of(question))
    if not wants_records and not order.is_dated and order.limit == 1:
        question.take("count")
        return Calculation({"op": "max" if order.direction == "desc" else "min", "of": of}, pieces_of(question))
    return listed(question, order, of)


def _on_one_day(question: Question, order: RankOrder, of: str) -> Calculation | None:
    """Return the list of the records of the first or last period of the date field `of`, whose texts cannot be sorted.

    None if the question has other conditions, asks for several records, or asks for a value that no field holds.
    """
    units = question.columns.vocabulary.units[of]
    if order.limit > 1 or pieces_of(question) or question.absent or question.within or said_of_list(question):
        return None
    text = units.last() if order.direction == "desc" else units.first()
    shown = read_shown(question, of)
    if not shown and not question.has("when") and not any(of in part.fields for _, part in question.fields()):
        return None  # no field holds what is asked for
    question.take("when", "value")
    piece = Piece(of, {"type": "eq", "key": of, "value": text}, 0, 0)
    return Calculation({"op": "list", "limit": _MOST_LISTED, "show": [*shown[: _MOST_SHOWN - 1], of]}, (piece,))


def said_of_list(question: Question) -> bool:
    """Return whether "first" and "last" mean the order in which the records are listed: "the last city listed"."""
    return bool({token.folded for token in question.found.sentence.tokens} & LISTINGS)


def _numbered_by(question: Question) -> str | None:
    """Return the numeric field of ranks ("ranked first") or of running numbers ("the last city listed"); else None."""
    ranks = [(place, name) for place, part in question.fields() for name in part.fields
             if name in question.columns.measures and question.columns.is_rank(name)]  # fmt: skip
    if len(ranks) == 1:
        question.used.add(ranks[0][0])
        return ranks[0][1]
    said = said_of_list(question)
    running = [name for name in question.columns.measures if question.columns.is_running(name)]
    return running[0] if said and len(running) == 1 else None


def _year_of(question: Question) -> str | None:
    """Return the only numeric field that holds years, which can stand for a date; None if there is not exactly one."""
    if said_of_list(question):
        return None  # the first record of a list is not the earliest
    years = [name for name in question.columns.measures if question.columns.is_year(name)]
    return years[0] if len(years) == 1 else None


def _wants_records(question: Question, order: RankOrder, of: str) -> bool:
    """Return whether the question asks for the first records in an order, not for their value of the field `of`."""
    for place, part in enumerate(question.parts):
        before = question.beside(place, -1, over=("filler", "mark", NUMBER))
        led = before is not None and (question.parts[before].kind == "which" or before == order.place)
        if part.kind == RECORD and place not in question.used and (led or place < order.place):
            return True
        if part.piece is not None and led:
            return True
        if part.fields and of not in part.fields and led and not question.number_of(part):
            return True
    return False


def listed(question: Question, order: RankOrder, of: str | None, own: Sequence[str] = ()) -> Calculation:
    """Return the calculation that lists the first records in an order, with the fields that the question asks for.

    Args:
        of: the expression to order by, such as `number(price)`.
        own: more fields to show, before the others.
    """
    shown = list(dict.fromkeys((*own, *read_shown(question, of)))) or question.columns.names()
    aggregate: Json = {
        "op": "list", "of": of, "order": order.direction, "limit": order.limit,
        "show": [*shown[: _MOST_SHOWN - 1], *([of] if of else [])], "ties": order.limit == 1 and not order.nth,
    }  # fmt: skip
    question.take("count", "when", "value", "how_much")
    return Calculation(aggregate, pieces_of(question))


def read_shown(question: Question, of: str | None = None) -> list[str]:
    """Return the fields whose values the question asks for, without `of`, and mark the words for these as used."""
    shown: list[str] = []
    for place, part in question.fields():
        if place in question.used or part.kind not in (FIELD, "year", "month", "name_of", "people", "filler", "value"):
            continue
        if (part.kind == "filler" and part.strength < 5) or (question.is_state(place) and not question.has("when")):
            continue
        names = [name for name in part.fields if name in question.columns.vocabulary.roles]
        if not names or (len(names) > 1 and part.strength > 2):
            continue
        question.used.add(place)
        shown.append(names[0])
    people = question.columns.people()
    if question.has("who") and people and not set(shown) & set(people):
        shown.append(people[0])
    dates = question.columns.dates()
    if question.has("when") and not set(shown) & set(dates):
        shown += dates if is_main_unclear(question.columns.vocabulary) else [question.date() or ""]
    return [name for name in dict.fromkeys(shown) if name and name != of]


def implied(question: Question, place: int) -> str | None:
    """Return the one numeric field that the part `place` implies: the price for "most expensive"; or None."""
    part = question.parts[place]
    sentence, measures = question.found.sentence, question.columns.measures
    named = {name for index in range(part.first, part.last) for name in sentence.cue_fields(index) if name in measures}
    if len(named) == 1:
        return question.expressed(named.pop())
    said = sentence.text[part.start : part.end].casefold()
    found = question.columns.implied([said, *said.split()], "ends")
    if any(token.folded in _LASTING for token in sentence.tokens):
        times = question.columns.implied(["time"], "nouns")
        found = tuple(name for name in found if name in times)
    return question.expressed(found[0]) if len(found) == 1 else None


def read_middle(question: Question) -> str | None:
    """Return "avg" or "median", or None if neither is asked for.

    Raises:
        Unclear: both are asked for.
    """
    if question.has("avg") and question.has("median"):
        raise Unclear("average and median")
    return "median" if question.has("median") else "avg" if question.has("avg") else None
