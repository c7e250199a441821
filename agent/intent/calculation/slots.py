"""The slots of a calculation, each read by itself: order and limit, size of groups, group, operand, digits."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agent.intent.calculation.parts import FIELD, FILLER, MARK, NUMBER, PIECE, RECORD, UNIT, UNKNOWN, VALUE, Part, says
from agent.intent.columns import Columns
from agent.intent.filters import Json
from agent.intent.found import Found, date_field
from agent.intent.numbers import NUMBER as NUMBER_OF
from agent.intent.numbers import unit_of
from agent.intent.numerals import parse_count
from agent.intent.vocabulary import concepts_of

ENDS = {"most": "desc", "highest": "desc", "newest": "desc", "fewest": "asc", "lowest": "asc", "oldest": "asc"}
_BY_DATE = ("newest", "oldest")
_BY_COUNT = ("most", "fewest")
_NTH = {"second": 2, "third": 3, "fourth": 4, "fifth": 5}
_PERIODS = {"year": "year", "month": "year_month", "quarter": "quarter"}
_BOUNDS: dict[str, Callable[[int], Json]] = {
    "at_least": lambda n: {"at_least": n},
    "more_than": lambda n: {"at_least": n + 1},
    "at_most": lambda n: {"at_most": n},
    "fewer_than": lambda n: {"at_most": n - 1},
    "exactly": lambda n: {"at_least": n, "at_most": n},
    "or_more": lambda n: {"at_least": n},
    "or_fewer": lambda n: {"at_most": n},
}
_LINKING = (FILLER, MARK, "by", "name_of")
_VERBS = frozenset("are is was were have has had did do does got".split())
_CLASSIFIERS = frozenset("个篇份条起件项门位名首道部次")


class Unclear(Exception):
    """The words may mean several things, or nothing that can be calculated: nothing is."""


@dataclass(slots=True)
class Question:
    """The parts of a question, and which of them the slots have taken up."""

    found: Found
    columns: Columns
    parts: tuple[Part, ...]
    used: set[int] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    within: list[Json] = field(default_factory=list)
    absent: list[Json] = field(default_factory=list)

    def says(self, kind: str) -> bool:
        """Whether a word of a class stands anywhere, within a constraint as well."""
        return self.has(kind) or says(self.found.sentence, kind)

    def of_kind(self, *kinds: str) -> list[int]:
        """The places of parts of these kinds."""
        return [place for place, part in enumerate(self.parts) if part.kind in kinds]

    def take(self, *kinds: str) -> bool:
        """Take up all parts of these kinds; whether there is any."""
        places = self.of_kind(*kinds)
        self.used.update(places)
        return bool(places)

    def has(self, *kinds: str) -> bool:
        """Whether a part is of one of these kinds."""
        return any(part.kind in kinds for part in self.parts)

    def beside(self, place: int, step: int, *, over: tuple[str, ...] = _LINKING) -> int | None:
        """The nearest part before (-1) or behind (1) a place that is of no kind to look over."""
        place += step
        while 0 <= place < len(self.parts):
            if self.parts[place].kind not in over:
                return place
            place += step
        return None

    def unread(self) -> list[str]:
        """The words that no slot has taken up."""
        negated = _is_negated(self.found)
        words = []
        for place, part in enumerate(self.parts):
            if place in self.used or part.is_soft:
                continue
            if part.kind in ("negation", "lacking") and negated:
                continue
            if part.kind == "or" and _is_chosen(self.found):
                continue
            if part.kind in (UNIT, UNKNOWN) and self._is_own_unit(part):
                continue
            if part.kind == NUMBER and self.found.sentence.text[part.start : part.end] == "一":
                continue  # 一门课 is any of them
            if part.kind == FIELD and self._is_said_by_piece(place):
                continue
            words.append(self.found.sentence.text[part.start : part.end])
        return words

    def _is_own_unit(self, part: Part) -> bool:
        """Whether a unit is that of a number that was taken up: "the total fine in euros"."""
        text = self.found.sentence.text[part.start : part.end]
        units = [self.columns.measures[name].units for name in self.taken if name in self.columns.measures]
        return any(len(one) == 1 and (one[0] == unit_of(text) or one[0].kind == text.casefold()) for one in units)

    def _is_said_by_piece(self, place: int) -> bool:
        """Whether a word for a field only leads to a value of it, or tells what became of every record."""
        part = self.parts[place]
        if part.strength <= 2 and place and self.parts[place - 1].kind == FIELD and self._is_said_by_piece(place - 1):
            return True  # 产品类别
        stated = {one.piece.field for one in self.parts if one.piece is not None}
        if stated & set(part.fields) or (part.strength <= 2 and self.taken & set(part.fields)):
            return True
        dates = set(self.columns.dates())
        return set(part.fields) <= dates and any(self.columns.is_everywhere(name) for name in part.fields)

    def fields(self, *, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Part]]:
        """The parts that point at fields, between two places."""
        for place, part in enumerate(self.parts[:end]):
            if place >= start and part.fields and part.kind != PIECE:
                yield place, part

    # -- columns

    def group_of(self, part: Part) -> str | None:
        """The field whose values the words of a part group by; None where it is none, or one of several."""
        names = [name for name in part.fields if self.columns.is_group(name)]
        if len(names) > 1:
            names = [name for name in names if name not in self.columns.people()] or names
            free = [name for name in names if name not in self._constrained()]
            names = free or names
        return names[0] if len(names) == 1 or (names and part.strength <= 2) else None

    def number_of(self, part: Part) -> str | None:
        """The expression of the number that the words of a part mean."""
        names = [name for name in part.fields if name in self.columns.measures]
        return self.expressed(names[0]) if len(names) == 1 else None

    def expressed(self, name: str) -> str:
        """A number field as an expression of the aggregates: of numbers in texts the number."""
        self.taken.add(name)
        if len(self.columns.measures[name].units) > 1:
            self._keep_to_unit(name)
        return NUMBER_OF.format(name) if self.columns.measures[name].texts else name

    def _keep_to_unit(self, name: str) -> None:
        """Of amounts in several currencies those in the one that is said are calculated with.

        Raises:
            Unclear: none is said.
        """
        measure = self.columns.measures[name]
        said = {unit_of(token.folded) for token in self.found.sentence.tokens} & set(measure.units)
        if len(said) != 1:
            raise Unclear("amounts in several units")
        text = next(text for text, (_, unit) in measure.texts.items() if unit in said)
        sign = "".join(c for c in text if not (c.isdigit() or c in ".,+-")).strip()
        kept: Json = {"type": "prefix" if text.startswith(sign) else "contains", "key": name, "value": sign}
        if kept not in self.within:
            self.within.append(kept)

    def _constrained(self) -> set[str]:
        return {part.piece.field for part in self.parts if part.piece is not None}

    def is_condition(self, name: str) -> bool:
        """Whether a field is named for a bound on it."""
        bare = name.removeprefix("number(").rstrip(")")
        return any(one.field == bare for one in self.found.numbers)

    def date(self) -> str | None:
        """The date field that the question orders or groups by: a named one, else when documents came to be."""
        if self.found.dates and (of_range := date_field(self.found.sentence, self.found.dates[0])):
            return of_range
        dates = self.columns.dates()
        named = [name for _, part in self.fields() for name in part.fields if name in dates]
        return next(iter((*named, *dates)), None)


def _is_negated(found: Found) -> bool:
    filters = [piece.filter for piece in (*found.pieces, *found.lengths)]
    return any(one.negated for one in found.constraints) or any(
        one["type"] in ("ne", "nin", "not", "lt", "lte")
        or (one["type"] in ("exists", "eq") and (one["value"] is False or one["value"] == 0))
        or one["type"] == "or"
        for one in filters
    )


def _is_chosen(found: Found) -> bool:
    """Whether an "or" of the question became alternatives."""
    fields = {one.field for one in found.constraints}
    several = any(len(one.values) > 1 or one.also for one in found.constraints) or len(found.dates) > 1
    return several or len(fields) < 2


# --- order and limit


@dataclass(frozen=True, slots=True)
class Order:
    """One end of an order, and how many there.

    Attributes:
        kind: "most", "highest" or "newest", or one of their opposites.
        place: of the part that says it.
        nth: the one meant stands last.
    """

    kind: str
    direction: str
    place: int
    limit: int = 1
    nth: bool = False

    @property
    def is_dated(self) -> bool:
        """Whether it is by date."""
        return self.kind in _BY_DATE

    @property
    def counts(self) -> bool:
        """Whether it may be by how many there are."""
        return self.kind in _BY_COUNT


def read_order(question: Question) -> Order | None:
    """The end of an order that is asked for; None where there is none, or where two ends are."""
    places = question.of_kind(*ENDS)
    nth = question.of_kind(*_NTH)
    top = question.of_kind("top")
    kinds = {question.parts[place].kind for place in places}
    directions = {ENDS[kind] for kind in kinds}
    if not places and nth and _is_rank(question, nth[0]):
        places, kinds, directions = nth[:1], {"most"}, {"desc"}
    if not places and top and question.beside(top[0], 1) in question.of_kind(NUMBER):
        places, kinds, directions = top[:1], {"most"}, {"desc"}
    if len(directions) != 1 or (kinds & set(_BY_DATE) and kinds - set(_BY_DATE)):
        return None
    kind = next((one for one in ("most", "fewest", *ENDS) if one in kinds), "most")
    question.used.update(places)
    question.used.update(top)
    question.used.update(nth[:1])
    limit = _limit(question, places)
    rank = _NTH[question.parts[nth[0]].kind] if nth else 0
    return Order(kind, next(iter(directions)), places[0], rank or limit, bool(rank))


def _is_rank(question: Question, place: int) -> bool:
    """Whether an ordinal says by itself how much there is: "runner-up", 第三多."""
    part = question.parts[place]
    text = question.found.sentence.text[part.start : part.end].casefold()
    return text.startswith("runner") or text.endswith(("多", "名")) or text.startswith("排")


def _limit(question: Question, places: list[int]) -> int:
    """ "top three", "the 5 newest", 最多的三份."""
    for place in question.of_kind(NUMBER):
        around = [question.beside(place, -1), question.beside(place, 1)]
        near = any(
            one in places or (one is not None and question.parts[one].kind in ("which", "top")) for one in around
        )
        behind = around[1]
        leads = behind is not None and behind > 0 and question.parts[behind].kind in (FIELD, RECORD, PIECE)
        number = question.parts[place].number
        if place not in question.used and number and (near or leads):
            question.used.add(place)
            return number
    return 1


# --- how many records a group has


def read_size(question: Question) -> Json | None:
    """How many records a group must have, where a number of records is stated: "at least 5 reports"."""
    for place in question.of_kind(*_BOUNDS):
        made = _size_at(question, place)
        if made is not None:
            return made
    for place in question.of_kind("exactly"):
        question.used.add(place)  # "only" restricts nothing without a number
    return None


def _size_at(question: Question, place: int) -> Json | None:
    part = question.parts[place]
    text = question.found.sentence.text[part.start : part.end].casefold()
    if part.kind in ("or_more", "or_fewer"):
        number = next((n for n in (place - 1, place - 2) if n >= 0 and question.parts[n].kind == NUMBER), None)
        record = question.beside(place, 1, over=(*_LINKING, PIECE)) if number == place - 1 else place - 1
    elif part.kind == "exactly" and ("single" in text or text.endswith(" one")):
        number, record = None, question.beside(place, 1, over=(*_LINKING,))
    else:
        number = question.beside(place, 1)
        if number is None or question.parts[number].kind != NUMBER:
            return None
        record = question.beside(number, 1, over=(*_LINKING,))
        while record is not None and question.parts[record].kind == PIECE and not _is_records(question, record):
            record = question.beside(record, 1)
    if not (_is_records(question, record) or _classifies(question, number, place)):
        return None
    question.used.update(one for one in (place, number) if one is not None)
    stated = 1 if number is None else question.parts[number].number
    return None if stated is None else _BOUNDS[part.kind](stated)


def _is_records(question: Question, place: int | None) -> bool:
    """Whether a part stands for records: a word for them, or a kind of them."""
    if place is None:
        return False
    part = question.parts[place]
    if part.kind == RECORD:
        return True
    return part.piece is not None and "kind" in concepts_of(part.piece.field)


def _classifies(question: Question, number: int | None, place: int) -> bool:
    """文件[超过 10 份]的作者: in Chinese the records may stand before."""
    if number is None or number + 1 >= len(question.parts):
        return False
    behind = question.parts[number + 1]
    unit = question.found.sentence.text[behind.start : behind.start + 1]
    before = question.beside(place, -1)
    after = question.beside(number, 1)
    return unit in _CLASSIFIERS and (_is_records(question, before) or _is_records(question, after))


# --- groups


@dataclass(frozen=True, slots=True)
class Group:
    """What is grouped by, as an expression, and the place that says it; `per_record` for "per document"."""

    expression: str
    place: int
    per_record: bool = False


def read_group(question: Question) -> Group | None:
    """What is grouped by where the question says so: "per year", "by department", 按地区.

    Raises:
        Unclear: by more than one thing, or by something that is no field.
    """
    groups: list[Group] = []
    for place in question.of_kind("per", "by"):
        made = _group_behind(question, place)
        if made is not None and made.expression not in {one.expression for one in groups}:
            groups.append(made)
    periodical = _periodical(question) if not groups else None
    groups += [periodical] if periodical is not None else []
    if len([one for one in groups if not one.per_record]) > 1:
        raise Unclear("by more than one thing")
    for one in groups:
        question.used.update((one.place, *question.of_kind("per")))
        question.taken.add(one.expression)
    return next((one for one in groups if not one.per_record), groups[0] if groups else None)


def _group_behind(question: Question, place: int) -> Group | None:
    behind = question.beside(place, 1, over=(*_LINKING, "distinct", "per"))
    if behind is None:
        return None
    part = question.parts[behind]
    if part.kind in _PERIODS and (date := question.date()):
        question.used.update((place, behind))
        return Group(f"{_PERIODS[part.kind]}({date})", behind)
    if _is_dated(question, part) and question.has(*ENDS):
        question.used.update((place, behind))  # "the latest, by creation date"
        return None
    if part.piece is not None and question.parts[place].kind == "per" and not _is_records(question, behind):
        return _period_within(question, place, part)
    following = question.parts[behind + 1] if behind + 1 < len(question.parts) else None
    beside_value = following is not None and following.kind in (PIECE, VALUE)
    name = question.group_of(part) if part.fields else None
    if name is not None and not (beside_value and question.parts[place].kind == "by"):
        question.used.update((place, behind))
        _refuse_second(question, behind)
        return Group(name, behind)
    if (part.kind == RECORD or _is_records(question, behind)) and question.parts[place].kind == "per":
        question.used.update((place, behind))
        return Group("", behind, per_record=True)
    return None


def _refuse_second(question: Question, place: int) -> None:
    """Raises Unclear for "per district [and kind]"."""
    behind = question.parts[place + 1 : place + 3]
    words = question.found.sentence.text[behind[0].start : behind[0].end].casefold() if behind else ""
    if len(behind) == 2 and words in ("and", "和", "与") and behind[1].fields and question.group_of(behind[1]):
        raise Unclear("by more than one thing")


def _period_within(question: Question, place: int, part: Part) -> Group | None:
    """ "in each of [the last five years]"."""
    assert part.piece is not None
    words = question.found.sentence.text[part.start : part.end].casefold().split()
    period = next((_PERIODS[word.rstrip("s")] for word in words if word.rstrip("s") in _PERIODS), None)
    if period is None or part.piece.field not in question.columns.dates():
        return None
    question.used.add(place)
    return Group(f"{period}({part.piece.field})", place)


def _periodical(question: Question) -> Group | None:
    """ "yearly counts", "monthly totals"."""
    for place in question.of_kind(*_PERIODS):
        part, date = question.parts[place], question.date()
        word = question.found.sentence.text[part.start : part.end].casefold()
        if date and (word.endswith("ly") or word.startswith("annual")):
            return Group(f"{_PERIODS[part.kind]}({date})", place)
    return None


def read_ranked_group(question: Question, order: Order | None) -> Group | None:
    """What is compared with its like: "[who] wrote most", "which [district] has the fewest", 哪[年]."""
    for place in question.of_kind(*_PERIODS):
        before = question.beside(place, -1)
        led = before is not None and question.parts[before].kind in ("which", *ENDS, *_NTH)
        if (date := question.date()) and (led or _is_behind(question, place, "which")):
            question.used.update((place, *((before,) if led and before is not None else ())))
            return Group(f"{_within(question, question.parts[place].kind)}({date})", place)
    when = question.of_kind("when")
    if when and order is not None and order.counts and (date := question.date()):
        text = question.found.sentence.text[question.parts[when[0]].start : question.parts[when[0]].end]
        if "年" in text or "月" in text:
            question.used.update(when)
            return Group(f"{'year' if '年' in text else 'year_month'}({date})", when[0])
    named = [(place, name) for place, part in question.fields() if (name := question.group_of(part))]
    named = [(place, name) for place, name in named if part_is_free(question, place, name)]
    led_by = [(place, name) for place, name in named if _is_led(question, place)]
    people = question.columns.people()
    if question.has("who"):
        own = [one for one in named if one[1] in people]
        chosen = (own or led_by or named)[:1]
        if chosen and chosen[0][1] in people:
            return _taken(question, chosen)
        if people and not led_by:
            question.taken.add(people[0])
            return Group(people[0], question.of_kind("who")[0])
        return _taken(question, led_by)
    return _taken(question, led_by or (named if len({name for _, name in named}) == 1 else []))


def part_is_free(question: Question, place: int, name: str) -> bool:
    """Whether a part that names a field does not only lead to a value of it."""
    return place not in question.used and name not in {
        part.piece.field for part in question.parts if part.piece is not None and part.piece.filter["type"] != "ne"
    }


def _taken(question: Question, named: list[tuple[int, str]]) -> Group | None:
    if not named:
        return None
    place, name = named[0]
    question.used.update(one for one, other in named if other == name)
    question.taken.add(name)
    return Group(name, place)


def _is_led(question: Question, place: int) -> bool:
    """Whether "which", a number or an end of an order stands right before a field."""
    before = question.beside(place, -1, over=(*_LINKING, NUMBER, "distinct", *_NTH))
    return before is not None and question.parts[before].kind in ("which", "who", "top", "rank")


def _is_behind(question: Question, place: int, kind: str) -> bool:
    return place > 0 and question.parts[place - 1].kind == kind


def _within(question: Question, kind: str) -> str:
    """Of one year months are told by their number, of several with their year."""
    if kind != "month":
        return _PERIODS[kind]
    text = question.found.sentence.text
    return "month" if "calendar month" in text or "一年中" in text or "不分年份" in text else "year_month"


# --- what is counted or calculated


def read_target(question: Question, place: int) -> int | None:
    """The part that a counting word counts: behind it, in Chinese also before it."""
    over = (*_LINKING, "distinct", "sum", PIECE, "most", "having", "more")
    behind = question.beside(place, 1, over=over)
    kinds = (RECORD, FIELD, "people")
    if behind is None or behind in question.used:
        return _record_before(question, place)
    part = question.parts[behind]
    if (part.kind not in kinds and not _is_named(question, behind)) or _is_dated(question, part):
        return _record_before(question, place)
    verbs = any(
        token.folded in _VERBS for token in question.found.sentence.tokens[question.parts[place].last : part.first]
    )
    if verbs:
        return None  # "how many are of type G"
    following = question.parts[behind + 1] if behind + 1 < len(question.parts) else None
    if question.parts[behind].kind == FIELD and following is not None and following.kind == RECORD:
        return behind + 1
    return behind


def _is_named(question: Question, place: int) -> bool:
    return bool(question.parts[place].fields) and question.parts[place].strength >= 4


def _record_before(question: Question, place: int) -> int | None:
    before = question.beside(place, -1, over=(*_LINKING, PIECE, "sum", "distinct", "which", "having"))
    english = question.found.sentence.tokens[question.parts[place].first].kind != "cjk"
    if before is None or before in question.used or (english and before != place - 1):
        return None
    part = question.parts[before]
    return before if part.kind in (RECORD, FIELD, "people") and not _is_dated(question, part) else None


def _is_dated(question: Question, part: Part) -> bool:
    """Whether a part points at dates alone."""
    return bool(part.fields) and set(part.fields) <= set(question.columns.dates())


def read_operand(question: Question) -> str | None:
    """The number that is calculated with: the one number field that the question names and puts no bound on.

    Raises:
        Unclear: there are several, or the words may mean several.
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
        return name
    return None


def _check_operand(question: Question, name: str, places: list[int]) -> None:
    """Raises Unclear where a number cannot be what is meant: of a compound the last word is."""
    bare = name.removeprefix("number(").rstrip(")")
    if question.has("sum", "avg", "median", "how_much") and question.columns.is_running(bare):
        raise Unclear("a number that only numbers the records")
    if question.has("highest", "lowest", "most", "fewest") and question.columns.is_rank(bare):
        raise Unclear("a place in an order")
    for place in places:
        behind = question.parts[place + 1] if place + 1 < len(question.parts) else None
        if behind is not None and behind.kind == FIELD and place + 1 not in places and not question.number_of(behind):
            raise Unclear(question.found.sentence.text[question.parts[place].start : behind.end])


def read_length(question: Question) -> str | None:
    """The length of a list that is named, with a word for its number: "most authors", "number of hazards"."""
    for place, part in question.fields():
        lists = [name for name in part.fields if question.columns.is_list(name)]
        before = question.beside(place, -1, over=(*_LINKING, "distinct", NUMBER))
        counted = before is not None and question.parts[before].kind in ("count", *_BY_COUNT)
        behind = question.beside(place, 1)
        listed = behind is not None and question.parts[behind].kind in ("count", "listed", *_BY_COUNT)
        if lists and (counted or listed or question.has("avg", "median")):
            question.used.add(place)
            question.take("listed")
            return f"len({lists[0]})"
    return None


def read_decimals(question: Question) -> int | None:
    """ "to two decimals"."""
    for place in question.of_kind("decimals"):
        part = question.parts[place]
        question.used.add(place)
        text = question.found.sentence.text[part.start : part.end].split()[0]
        return parse_count(text if text.isascii() else text[0])
    return None
