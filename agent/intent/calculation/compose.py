"""Combine what a question asks for (operation, group, order, conditions) into one calculation.

A calculation is made only if every word of the question is accounted for. A number that ignores a restricting word, or
that uses a default column, would be a wrong answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from agent.intent.calculation import shares
from agent.intent.calculation.amounts import read_amount, read_counted_field
from agent.intent.calculation.ends import implied, read_middle, read_ranked
from agent.intent.calculation.groups import Several, is_span, read_group, read_ranked_group, read_several
from agent.intent.calculation.part import RECORD, Part, part_text
from agent.intent.calculation.parts import question_parts
from agent.intent.calculation.places import places
from agent.intent.calculation.question import Calculation, Question, Unclear, hindering_words, pieces_of, words_of_kind
from agent.intent.calculation.rows import NAMED, named_rows
from agent.intent.calculation.slots import ENDS, read_operand, read_order, read_size
from agent.intent.columns import Columns, columns_of
from agent.intent.filter_json import Json, both, values_allowed
from agent.intent.found import Found, Piece
from agent.intent.same import Same
from agent.intent.text import has_chinese, words_of
from agent.intent.words import table

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
"""The keys that an aggregate may have beside "op", by operation."""
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "sum": ("of",), "avg": ("of",), "median": ("of",), "min": ("of",), "max": ("of",), "share": ("where",),
    "difference": ("group_by", "between"), "list": (),
}  # fmt: skip
"""The keys that an aggregate must have beside "op", by operation."""
_CALCULATING = (
    "count", "how_much", "distinct", "avg", "median", "sum", "share", "rate", "ratio", "difference", "at_least",
    "at_most", *ENDS, "second", "third",
)  # fmt: skip
_LIKELY = 0.5
"""Minimum confidence of a constraint that `named_surely` may raise."""
_ASKING = frozenset("did do does has have had is are was were".split())
"""First words of a question for yes or no, or for one of two: "did Ann or Bo write more"."""
_ALWAYS_SHOWN = frozenset("id ids title titles 编号 标题".split())
"""Words for fields that every row of a list shows anyway."""


@dataclass(frozen=True, slots=True)
class Read:
    """The calculation of a question; or, if it asks for one that cannot be made, the words that prevent it."""

    calculation: Calculation | None = None
    unread: tuple[str, ...] = ()


def find_calculation(found: Found) -> Calculation | None:
    """Return the calculation that a question asks for; None if it asks for none, or for one that cannot be made."""
    return read_calculation(found).calculation


def read_calculation(found: Found) -> Read:
    """Return the calculation that a question asks for, or the words that prevent the calculation.

    The result is cached for the object `found`.
    """
    return _read(Same(found))


@lru_cache(maxsize=16)
def _read(key: Same[Found]) -> Read:
    found = key.held
    question = question_of(found)
    if hindering := hindering_words(question):
        return Read(unread=hindering if question.has(*_CALCULATING) else ())
    try:
        made = _operation(question)
    except Unclear as error:
        return Read(unread=(str(error),))
    unread = tuple(question.unread())
    if made is not None and made.aggregate["op"] == "list":
        unread = tuple(word for word in unread if word.casefold() not in _ALWAYS_SHOWN)
    if made is not None and made.aggregate["op"] == "count" and not (made.aggregate.get("of") or found.numbers):
        amounts = table("general", "en")["amounts"].split() if not question.absent else ()
        unread = (*unread, *(token.text for token in found.sentence.tokens if token.folded in amounts))
    if made is None or unread:
        return Read(unread=unread if question.has(*_CALCULATING) else ())
    if made.aggregate["op"] == "count" and made.aggregate.get("of") and made.pieces and question.has("exactly"):
        return Read(unread=words_of_kind(question, "exactly"))  # "only went to Spain" is more than "went to Spain"
    doubtful = _part_of_others(made, question) or _other_things(made, question) or _span_of(question)
    doubtful = doubtful or _read_twice(made, question)
    if doubtful:
        return Read(unread=(doubtful,))
    made = _conditioned(made, question)
    if made is not None and made.aggregate["op"] in ("count", "share", "difference") and not made.aggregate.get("of"):
        made = replace(made, assumed=assumed_nouns(question))
    if made is None or not is_possible(made.aggregate):
        return Read()
    return Read(replace(made, pieces=tuple(named_surely(piece, question) for piece in made.pieces)))


def named_surely(piece: Piece, question: Question) -> Piece:
    """Return the constraint, with a higher confidence if it was likely and is probably meant as a name.

    That is so if its value has several words, or its field identifies records.
    """
    if piece.filter["type"] not in ("eq", "in") or not _LIKELY <= piece.confidence < NAMED:
        return piece
    values = values_allowed(piece.filter)
    # Every Chinese character is a word here: 处理了 ("handled") does not mean the value 处理中 ("in progress").
    is_name = all(isinstance(value, str) and not has_chinese(value) and len(words_of(value)) > 1 for value in values)
    return replace(piece, confidence=NAMED) if is_name or piece.field in question.columns.keys else piece


def assumed_nouns(question: Question) -> tuple[str, ...]:
    """Return the plurals taken for the documents only by their position; perhaps only some documents are about them."""
    text = question.found.sentence.text
    said = (text[part.start : part.end] for part in question.parts if part.kind == RECORD and part.guessed)
    return tuple(word for word in said if word.isascii() and word.endswith("s") and word != "times")


def _other_things(made: Calculation, question: Question) -> str:
    """Return a noun taken for the documents by its position, although a schema declares their nouns; "" if none."""
    if made.aggregate["op"] == "list" or not question.columns.vocabulary.catalogue.records:
        return ""
    text = question.found.sentence.text
    said = (text[part.start : part.end] for part in question.parts if part.kind == RECORD and part.guessed)
    return next((word for word in said if word.casefold() not in ("time", "times")), "")


def _part_of_others(made: Calculation, question: Question) -> str:
    """Return a constraint's value that is part of a longer value of its field; or "".

    The constraint may select too few records: occupation "Student" leaves out "Medical Student".
    """
    fields = question.columns.vocabulary.catalogue.fields
    for piece in made.pieces:
        held, value = fields.get(piece.field), _value(piece)
        if held is None or not value or held.distinct * 2 <= held.documents:
            continue
        said = words_of(value)
        if piece.filter["type"] == "eq" and any(
            _holds(words_of(other), said) for other in held.values if other != value
        ):
            return value
    return ""


def _read_twice(made: Calculation, question: Question) -> str:
    """Return the words that are read as constraints on two fields, so that one constraint must be wrong; "" if none."""
    for one in made.pieces:
        for part in question.parts:
            if (
                part.piece is not None
                and part.piece.field != one.field
                and one.start < part.end
                and part.start < one.end
            ):
                return part_text(question.found.sentence, part)
    return ""


def _span_of(question: Question) -> str:
    """Return the words of a span between two text values ("Monday to Friday"), "" if none.

    Such a span prevents the calculation, because it is not known which values lie between the two.
    """
    text = question.found.sentence.text
    for piece in pieces_of(question):
        if piece.filter["type"] == "in" and len(piece.filter["value"]) == 2:
            said = [one for one in question.parts if one.piece is not None and one.piece.filter == piece.filter]
            start, end = min([piece.start, *(one.start for one in said)]), max([piece.end, *(one.end for one in said)])
            if is_span(text, start, end):
                return text[start:end]
    return ""


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    """Return whether `words` contains the consecutive words of `part` and is longer."""
    size = len(part)
    return len(words) > size and any(words[n : n + size] == part for n in range(len(words) - size + 1))


def question_of(found: Found) -> Question:
    """Return the question split into parts; single records and ranks that it names are constraints too."""
    found, columns, parts, within = _split(Same(found))
    return Question(found, columns, parts, within=list(within))


@lru_cache(maxsize=16)
def _split(key: Same[Found]) -> tuple[Found, Columns, tuple[Part, ...], list[Json]]:
    """Return (question without values such as "total", its columns, its parts, the conditions of `_without_totals`).

    Cached, because several kinds of calculation are tried on one question.
    """
    found = key.held
    columns = columns_of(found.sentence.vocabulary)
    totals = table("calculation")["summing_up"]
    # In "the total number", "total" does not mean the row "Total" that sums up the other rows.
    found = replace(found, pieces=tuple(one for one in found.pieces if _value(one).casefold() not in totals))
    parts = question_parts(found, columns)
    keys = tuple(one for one in found.pieces if one.filter["type"] in ("eq", "in") and one.field in columns.keys)
    rows = named_rows(found, columns, parts, keys)
    rows = (*rows, *places(found, columns, [*found.pieces, *rows]))
    found = replace(found, pieces=tuple(one for one in found.pieces if one not in keys or one in rows))
    more = [one for one in rows if one not in found.pieces]
    return found, columns, question_parts(found, columns, more) if more else parts, _without_totals(columns)


def _value(piece: Piece) -> str:
    value = piece.filter.get("value")
    return value if isinstance(value, str) else ""


def _without_totals(columns: Columns) -> list[Json]:
    """Return conditions that leave out the records that sum up the others, such as a row "Total" among nations."""
    fields = columns.vocabulary.catalogue.fields
    made: list[Json] = []
    for name in sorted(columns.keys):
        totals = [value for value in fields[name].values if value.casefold() in table("calculation")["summing_up"]]
        made += [{"type": "nin", "key": name, "value": totals}] if totals else []
    return made


def is_possible(aggregate: Json) -> bool:
    """Return whether an aggregate has only keys that its operation allows, and all that it needs."""
    given = {key for key, value in aggregate.items() if value not in (None, (), [], False) and key != "op"}
    needed = _NEEDED.get(aggregate["op"], ())
    return given <= GOES_WITH[aggregate["op"]] and all(aggregate.get(key) for key in needed)


def _conditioned(made: Calculation, question: Question) -> Calculation | None:
    """Return the calculation with the conditions that state no value: length of a list, existence of a field, `within`.

    These conditions become the "where" of the aggregate. For a share, return None unless they are the condition of the
    share itself.
    """
    stated = [*question.absent, *(piece.filter for piece in question.found.lengths)]
    where = made.aggregate.get("where")
    if made.aggregate["op"] == "share":
        kept = tuple(Piece(str(one["key"]), one, 0, 0) for one in question.within)
        own = not stated or where == both(stated)
        return replace(made, pieces=(*made.pieces, *kept)) if own else None
    existing = [piece for piece in made.pieces if piece.filter["type"] == "exists"]
    if made.aggregate["op"] == "count" and existing and not where:
        made = replace(made, pieces=tuple(piece for piece in made.pieces if piece not in existing))
        stated = [*(piece.filter for piece in existing), *stated]
    stated = [*question.within, *stated]
    if not stated or where == both(stated):
        return made
    return replace(made, aggregate={**made.aggregate, "where": both([where, *stated] if where else stated)})


def _operation(question: Question) -> Calculation | None:
    """Return the calculation that the question asks for, or None; the most specific words are tried first."""
    take_absent(question)
    if question.has("share", "rate"):
        return shares.read_share(question)
    part = shares.read_part_of_count(question)
    if part is not None:
        return part
    size = read_size(question)
    if size is not None:
        return _sized(question, size)
    told = read_several(question)
    if question.has("difference") and told is not None:
        return _difference(question, told)
    if told is not None and (made := _compared(question, told)) is not None:
        return made
    ordered = question.has("ordered_down", "ordered_up")
    order = None if ordered else read_order(question)
    if order is not None:
        return read_ranked(question, order)
    return read_amount(question)


def take_absent(question: Question) -> None:
    """Add conditions such as "with no gold medals" to `question.absent`: the number is zero, or the field missing."""
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


def _sized(question: Question, size: Json) -> Calculation | None:
    """Return a count or list of the groups of some size: "which authors have at least 30 reports"; or None.

    Args:
        size: {"at_least": N} or {"at_most": N}, or both.
    """
    pieces = pieces_of(question)
    field = read_counted_field(question)
    if field is not None:
        return Calculation({"op": "count", "of": field, **size}, pieces)
    group = read_group(question) or read_ranked_group(question, None)
    if group is not None:
        question.take("more", "fewer")
        return Calculation({"op": "count", "group_by": group.expression, "order": "desc", **size}, pieces)
    # Answer "did Ann write more than 30 reports" with the number of her reports.
    asks = question.found.sentence.folded(0) in _ASKING
    asks = asks or question.found.sentence.text.rstrip("？?。 ").endswith(("吗", "么"))
    return Calculation({"op": "count"}, pieces) if asks and pieces else None


def _difference(question: Question, told: Several) -> Calculation | None:
    """Return the difference between two values that are compared; None if it cannot be calculated.

    Raises:
        Unclear: totals or averages may be meant, or an amount that no field is named for.
    """
    question.take("difference", "how_big", "more", "fewer", "count", "versus", "apart", "between", "or")
    operand = read_operand(question)
    if operand is None and told.is_row:
        operand = next((implied(question, place) for place in question.of_kind("difference")), None)
    more: Json = {}
    if len(told.values) != 2 or question.has("avg", "median"):
        return None
    said = words_of_kind(question, "difference")
    directed = any(more in word for word in said for more in ("more", "fewer", "longer", "higher", "larger", "多"))
    compares = any(more in word for word in said for more in ("longer", "higher", "larger"))
    pieces = pieces_of(question)
    totals = operand is not None and not directed and not told.is_row
    compares |= totals and len(pieces) > 1
    if compares and not told.is_row and not question.has("sum"):
        raise Unclear("totals or averages")
    if operand is None and (told.is_row or any("how much" in word.casefold() for word in said)):
        raise Unclear("an amount that no field is named for")  # "how much taller" counts no records
    if not directed and not totals:
        more = {"order": "desc"}
    op = "sum" if totals else "difference"  # show both totals instead of their difference: averages may be meant
    aggregate: Json = {"op": op, "of": operand, "group_by": told.expression, "between": list(told.values), **more}
    return Calculation(aggregate, pieces)


def _compared(question: Question, told: Several) -> Calculation | None:
    """Return a calculation for each of the compared values, or for the higher or lower one; None if none are compared.

    Examples: "more in Old Town or in Eastfield", "Ann and Bo each", "the median in 2022 and 2023".
    """
    middle = read_middle(question)
    counts, summed = question.has("count"), question.has("sum")
    implying = question.of_kind("rising", "falling") if told.is_row else []
    chooses = (question.has("more", "fewer", *ENDS) or bool(implying)) and not question.has(
        "count", "how_much", "apart", "difference"
    )
    compared = question.has("more", "fewer", "apart", "ratio") or bool(implying) or question.says("versus")
    together = question.has("together", "sum") and not compared
    compares = compared or question.has("per") or (chooses and question.has(*ENDS))
    if together or not (compares or counts or middle) or (middle is None and question.has("per") and not counts):
        return None
    question.take("versus", "more", "fewer", "apart", "ratio", "count", "or", "sum", "together", "between", *ENDS)
    question.take("per")
    aggregate: Json = {"group_by": told.expression, "between": list(told.values)}
    which = question.has("which", "who") or told.is_row
    if question.found.sentence.folded(0) in _ASKING:  # "is Ann taller than Bo" is answered by both numbers
        which = any(token.folded in table("calculation")["or"] for token in question.found.sentence.tokens)
    if chooses and which:
        low = question.has("fewer", "fewest", "lowest", "falling")
        aggregate |= {"order": "asc" if low else "desc", "limit": 1, "ties": True}
    operand = read_operand(question) or next((implied(question, place) for place in implying), None)
    question.used.update(implying)
    if middle is not None:
        if operand is None:
            return None
        question.take("avg", "median")
        aggregate |= {"op": middle, "of": operand} | ({"decimals": 2} if middle == "avg" else {})
    elif operand is not None and (told.is_row or not counts or summed):
        aggregate |= {"op": "sum", "of": operand}
    elif told.is_row:
        return None  # the values are single records, so there is no number of records
    else:
        aggregate |= {"op": "count"}
    return Calculation(aggregate, pieces_of(question))
