"""What a calculation groups by: a stated group, a group that a superlative ranks, or values that are compared."""

import re
from dataclasses import dataclass

from agent.intent.calculation.part import NUMBER, PIECE, RECORD, UNKNOWN, VALUE
from agent.intent.calculation.question import LINKING, Question, Unclear
from agent.intent.calculation.slots import ENDS, NTH, RankOrder, is_dated, is_records
from agent.intent.found import date_field
from agent.intent.lexicon import name_words

_ADJECTIVES = {"annual": "year", "annually": "year"}
_PERIODS = {"year": "year", "month": "year_month", "quarter": "quarter"}
_PERIODS_OF_MONTHS = {12: "year", 6: "half", 3: "quarter", 1: "month"}
_SPAN = re.compile(r"(?:\bfrom\b|从|自).{1,60}?(?:\b(?:to|through|until|till)\b|到|至)", re.IGNORECASE)
"""Two values joined like this mean the whole span between them."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a calculation groups by.

    Attributes:
        expression: the expression of the aggregate: `author` or `year(created)`; "" if `per_record`.
        place: index of the part that names the group.
        per_record: True for "per document", where each record is its own group.
    """

    expression: str
    place: int
    per_record: bool = False


def read_group(question: Question) -> Group | None:
    """Return the group that the question states, or None: "per year", "by department", 按地区 ("by region").

    Raises:
        Unclear: it states more than one group.
    """
    groups: list[Group] = []
    for place in question.of_kind("per", "by"):
        made = _group_behind(question, place)
        if made is not None and made.expression not in {one.expression for one in groups}:
            groups.append(made)
    periodical = _periodical(question) if not groups else None
    groups += [periodical] if periodical is not None else []
    if len([one for one in groups if not one.per_record]) > 1:
        raise Unclear("more than one grouping")
    for one in groups:
        question.used.update((one.place, *question.of_kind("per")))
        question.taken.add(one.expression)
    return next((one for one in groups if not one.per_record), groups[0] if groups else None)


def _group_behind(question: Question, place: int) -> Group | None:
    """Return the group that follows the part `place`, which is "per" or "by"; None if no group follows."""
    behind = question.beside(place, 1, over=(*LINKING, "distinct", "per"))
    if behind is None:
        return None
    part = question.parts[behind]
    if part.kind in _PERIODS and (date := question.date()):
        question.used.update((place, behind))
        return Group(question.periods_of(date, _each(question, part.kind)), behind)
    if is_dated(question, part) and question.has(*ENDS):
        question.used.update((place, behind))  # "the latest, by creation date"
        return None
    following = question.parts[behind + 1] if behind + 1 < len(question.parts) else None
    beside_value = following is not None and following.kind in (PIECE, VALUE)
    name = question.group_of(part) if part.fields else None
    name = people_meant(question) if part.kind == "people" and name is None else name
    if name is not None and not (beside_value and question.parts[place].kind == "by"):
        question.used.update((place, behind))
        _refuse_second(question, behind)
        return Group(name, behind)
    # In the average length of a list, an unknown noun after "per" stands for the records.
    listed = part.kind == UNKNOWN and question.has("avg", "median") and any(
        question.columns.is_list(name) for _, one in question.fields() for name in one.fields
    )  # fmt: skip
    if (part.kind == RECORD or listed or is_records(question, behind)) and question.parts[place].kind == "per":
        question.used.update((place, behind))
        return Group("", behind, per_record=True)
    return None


def people_meant(question: Question) -> str | None:
    """Return the field of people (such as `author`) that a noun, value or verb of the question names.

    If none is named, return the only field of people, without sponsors and reviewers if possible. Else return None.
    """
    columns = question.columns
    people = columns.people()
    deeds = {stem: name for name in people for stem in columns.stems[name][:1] if len(columns.stems[name]) > 1}
    said = [name for _, part in question.fields() for name in part.fields if name in people]
    done = [deeds[one] for _, part in question.fields() for name in part.fields
            for one in columns.stems[name][:1] if one in deeds]  # fmt: skip
    pieces = [part.piece.field for part in question.parts if part.piece is not None and part.piece.field in people]
    named = list(dict.fromkeys((*said, *pieces))) or list(dict.fromkeys(done))
    if len(named) == 1:
        meant = {*named, *(name for name in columns.stems if columns.stems[name][:1] == columns.stems[named[0]][:1])}
        question.used.update(place for place, part in question.fields() if set(part.fields) & meant)
        return named[0]
    # If none is named, sponsors and reviewers are not meant: others have done the work.
    everyone = columns.vocabulary.of_role("person") or people
    doers = [name for name in everyone if not {"sponsor", "reviewer"} & columns.vocabulary.concepts[name]] or everyone
    return doers[0] if len(doers) == 1 and not named else None


def _refuse_second(question: Question, place: int) -> None:
    """Check that no second group follows the group that the part `place` names: "per district [and kind]".

    Raises:
        Unclear: a second group follows.
    """
    behind = question.parts[place + 1 : place + 3]
    words = question.found.sentence.text[behind[0].start : behind[0].end].casefold() if behind else ""
    if len(behind) == 2 and words in ("and", "和", "与") and behind[1].fields and question.group_of(behind[1]):
        raise Unclear("more than one grouping")


def _periodical(question: Question) -> Group | None:
    """Return the group by period that an adjective states: "yearly counts", "monthly totals"; None if there is none.

    Raises:
        Unclear: "average monthly pay" may mean pay for a month, or the average by month.
    """
    for place in question.of_kind(*_PERIODS):
        part = question.parts[place]
        word = question.found.sentence.text[part.start : part.end].casefold()
        if word.endswith("ly") or word.startswith("annual"):
            behind = question.parts[place + 1] if place + 1 < len(question.parts) else part
            number = question.number_of(behind) if question.has("avg", "median") else None
            if number is not None and part.kind not in _periods_of(number):
                raise Unclear("one period or every period")  # "average monthly pay"
            if number is not None:
                question.used.add(place)
                return None
        else:
            continue
        if date := question.date():
            return Group(question.periods_of(date, _each(question, part.kind)), place)
    return None


def _each(question: Question, kind: str) -> str:
    """Return the aggregate function for a period (`kind`): "month" -> "year_month", "quarter" -> "year_quarter".

    If the question states a date, "quarter" stays "quarter".
    """
    return "year_quarter" if kind == "quarter" and not question.found.dates else _PERIODS[kind]


def _periods_of(number: str) -> set[str]:
    """Return the words of a field's name, adjectives of periods as nouns: `annual_pay` -> "year", "pay"."""
    words = {word.removesuffix("ly") for word in name_words(number)}
    return {_ADJECTIVES.get(word, word) for word in words}


def read_ranked_group(question: Question, order: RankOrder | None) -> Group | None:
    """Return the group that a superlative ranks, or None: "[who] wrote most", "which [district] has the fewest".

    Args:
        order: the order that the superlative states; None if the question has no superlative.
    """
    for place in question.of_kind(*_PERIODS):
        before = question.beside(place, -1)
        led = before is not None and question.parts[before].kind in ("which", *ENDS, *NTH)
        if (date := question.date()) and (led or _is_behind(question, place, "which")):
            question.used.update((place, *((before,) if led and before is not None else ())))
            return Group(question.periods_of(date, _within(question, question.parts[place].kind)), place)
    when = question.of_kind("when")
    if when and order is not None and order.counts and (date := question.date()):
        text = question.found.sentence.text[question.parts[when[0]].start : question.parts[when[0]].end]
        if "年" in text or "月" in text:
            question.used.update(when)
            return Group(question.periods_of(date, "year" if "年" in text else "year_month"), when[0])
    named = [(place, name) for place, part in question.fields() if (name := question.group_of(part))]
    named = [(place, name) for place, name in named if part_is_free(question, place, name)]
    led_by = [(place, name) for place, name in named if _is_led(question, place)]
    people = question.columns.people()
    if question.has("who"):
        own = [one for one in named if one[1] in people]
        chosen = (own or led_by or named)[:1]
        if chosen and chosen[0][1] in people:
            return _taken(question, chosen)
        meant = people_meant(question) if not led_by else None
        if meant is not None:
            question.taken.add(meant)
            return Group(meant, question.of_kind("who")[0])
        return _taken(question, led_by)
    return _taken(question, led_by or (named if len({name for _, name in named}) == 1 else []))


def part_is_free(question: Question, place: int, name: str) -> bool:
    """Return whether the part `place` is unused and its field `name` has no condition other than "not X"."""
    return place not in question.used and name not in {
        part.piece.field for part in question.parts if part.piece is not None and part.piece.filter["type"] != "ne"
    }


def _taken(question: Question, named: list[tuple[int, str]]) -> Group | None:
    """Return the first of (index of a part, field that it names) as a group, marked as used; None if `named` is []."""
    if not named:
        return None
    place, name = named[0]
    question.used.update(one for one, other in named if other == name)
    question.taken.add(name)
    return Group(name, place)


def _is_led(question: Question, place: int) -> bool:
    """Return whether "which", "who" or a word of ranking ("top") stands directly before the part `place`."""
    before = question.beside(place, -1, over=(*LINKING, NUMBER, "distinct", *NTH))
    return before is not None and question.parts[before].kind in ("which", "who", "top", "rank")


def _is_behind(question: Question, place: int, kind: str) -> bool:
    return place > 0 and question.parts[place - 1].kind == kind


def _within(question: Question, kind: str) -> str:
    """Return the aggregate function for a ranked period (`kind`): "month" -> "year_month".

    For "calendar month", which means the same month of all years, it is "month".
    """
    if kind != "month":
        return _PERIODS[kind]
    text = question.found.sentence.text
    return "month" if "calendar month" in text or "一年中" in text or "不分年份" in text else "year_month"


@dataclass(frozen=True, slots=True)
class Several:
    """Two or more values to compare.

    Attributes:
        expression: the expression of the aggregate that has these values: `author` or `year(created)`.
        is_row: True if each value identifies a single record.
    """

    expression: str
    values: tuple[object, ...]
    is_row: bool = False


def read_several(question: Question) -> Several | None:
    """Return the values of one field that the question names as alternatives to compare; None if fewer than two."""
    roles = question.columns.vocabulary.roles
    text = question.found.sentence.text
    for one in question.found.constraints:
        # "3.10 or later" has many versions as values, but names only one of them.
        ranged = roles[one.field] == "version" and any(value not in text for value in one.values)
        said = (mention.of(one.field) for mention in question.found.sentence.mentions)
        named = [known for known in said if not {each.value for each in known}.isdisjoint(one.values)]
        if is_span(text, one.start, one.end):
            continue  # "from Monday to Friday" includes the days between
        if len(named) > 1 and len(one.values) > 1 and not one.together and not one.negated and not ranged:
            return Several(one.field, one.values, one.field in question.columns.keys)
    for part in question.parts:
        piece = part.piece
        if piece is None or piece.filter["type"] != "in" or piece in question.found.pieces:
            continue
        alike = [one for one in question.parts if one.piece is not None and one.piece.filter == piece.filter]
        if len(alike) > 1 and not is_span(text, alike[0].start, alike[-1].end):
            return Several(piece.field, tuple(piece.filter["value"]), piece.field in question.columns.keys)
    return _several_periods(question)


def is_span(text: str, start: int, end: int) -> bool:
    """Return whether the characters [start, end) are a span between two values: "from Monday to Friday"."""
    return _SPAN.search(text[max(start - len("from "), 0) : end]) is not None


def _several_periods(question: Question) -> Several | None:
    """Return the periods to compare: several years, or several halves, quarters or months of one year.

    Return None for any other dates.
    """
    found = question.found
    bounds = [(dated.period.low, dated.period.high) for dated in found.dates]
    if len(bounds) < 2 or len({date_field(found.sentence, dated) for dated in found.dates}) > 1:
        return None
    name = question.date()
    if name is None:
        return None
    months_of = {
        low: (high.year - low.year) * 12 + high.month - low.month
        for low, high in bounds
        if low is not None and high is not None and (low.day, high.day) == (1, 1)
    }
    if len(months_of) < len(bounds):
        return None
    starts, lengths = list(months_of), set(months_of.values())
    months = lengths.pop()
    if lengths or months not in _PERIODS_OF_MONTHS or any((low.month - 1) % months for low in starts):
        return None
    function = _PERIODS_OF_MONTHS[months]
    units = question.columns.vocabulary.units.get(name)
    if units is not None:
        texts = tuple(map(units.text_of, starts))
        return Several(name, texts) if months == units.months and all(texts) else None
    if function != "year" and len({low.year for low in starts}) > 1:
        return None
    values = (low.year if function == "year" else (low.month - 1) // months + 1 for low in starts)
    return Several(f"{function}({name})", tuple(values))
