"""Questions that metadata answers by calculation: counts, groups, extremes, sums, shares, lists."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from agent.intent import wording
from agent.intent.asked import (
    compared_group,
    counts_documents,
    date_asked,
    field_counted,
    fields_named,
    fields_shown,
    group_asked,
    is_condition,
    is_length,
    is_of_documents,
    number_asked,
    several_asked,
    unconstrained,
)
from agent.intent.calculation import Calculation
from agent.intent.filters import Json, both
from agent.intent.found import Found, Piece
from agent.intent.numerals import parse_count, parse_exact
from agent.intent.quantities import is_key
from agent.intent.shares import difference, part_of_count, share
from agent.intent.topic import topic_of
from agent.intent.unread import leaves_out, unread_numbers
from agent.intent.vocabulary import concepts_of

_MOST_LISTED = 100
_MOST_SHOWN = 4
_MOST_NAMED = 10
_BESIDE_NOUNS = frozenset("different of the new 篇 份 个 项 次 不 同 的".split())


def find_calculation(found: Found) -> Calculation | None:
    """The calculation that a question asks for, None for a question about what documents say."""
    text = found.sentence.text
    if wording.NO_CALCULATION.search(text) or leaves_out(found):
        return None
    if wording.AVERAGE.search(text) and wording.MEDIAN.search(text):
        return None  # both, or one of the other
    for reader in (
        part_of_count,
        share,
        difference,
        _frequent,
        _top_group,
        _groups,
        _distinct,
        _average,
        _extreme,
        _count,
    ):
        made = reader(found)
        if made is None:
            continue
        if len(unread_numbers(found)) > (reader is _frequent):
            return None  # a number that nothing was made of would be left out
        if _leaves_an_end_out(made, found):
            return None
        return _conditioned(_rounded(_with_existence(made), found.sentence.text), found)
    return None


def merged(parts: Sequence[Calculation | None]) -> Calculation | None:
    """ "How many are final, and how many were rejected?": counts that differ in one value, side by side.

    What constrains the first holds for the others too.
    """
    counts = [one for one in parts if one is not None and one.aggregate == {"op": "count"} and one.pieces]
    if len(counts) < len(parts) or len(counts) < 2:
        return None
    last = counts[-1].pieces[-1].filter
    if last["type"] != "eq":
        return None
    field: str = last["key"]
    values: list[str] = []
    rest: tuple[Piece, ...] = ()
    for place, one in enumerate(counts):
        named = [piece for piece in one.pieces if piece.field == field]
        others = tuple(piece for piece in one.pieces if piece.field != field)
        # A part that names its own documents stands for itself; only one that leaves them out takes the first's.
        allowed = (rest,) if "kind" in concepts_of(field) else ((), rest)
        if len(named) != 1 or named[0].filter["type"] != "eq" or (place and others not in allowed):
            return None
        values.append(named[0].filter["value"])
        rest = rest if place else others
    if len(set(values)) < len(values):
        return None
    piece = replace(counts[0].pieces[-1], field=field, filter={"type": "in", "key": field, "value": values})
    return Calculation({"op": "count", "group_by": field, "between": values}, (*rest, piece))


def find_lookup(found: Found) -> Calculation | None:
    """Fields of one document that is named by its number: "who sponsored PEP 703"."""
    keys = {one.field for one in found.numbers if one.values and is_key(found.sentence.vocabulary, one.field)}
    asked = fields_shown(found, keys)
    if not keys or not asked or topic_of(found):
        return None
    return values_of(asked, tuple(piece for piece in found.pieces if piece.field in keys))


def find_listing(found: Found) -> Calculation | None:
    """A list of documents, when a question states constraints and nothing else; of one document there is none."""
    sentence = found.sentence
    keys = {name for name in sentence.vocabulary.of_role("number") if is_key(sentence.vocabulary, name)}
    named = all(piece.field in keys and piece.filter["type"] == "eq" for piece in found.pieces)
    if (named and not found.lengths) or topic_of(found) or leaves_out(found) or unread_numbers(found):
        return None
    return listing(found)


def listing(found: Found) -> Calculation:
    """The documents that satisfy the constraints, the newest first.

    A condition on lengths is no filter: what is searched for beside the list would not satisfy it.
    """
    order = date_asked(found)
    aggregate: Json = {"op": "list", "of": order, "order": "desc" if order else None, "limit": _MOST_LISTED}
    made = _conditioned(Calculation(aggregate, found.pieces, sure=bool(found.lengths)), found)
    assert made is not None
    return made


def values_of(fields: Sequence[str], pieces: tuple[Piece, ...]) -> Calculation:
    """Fields of the documents that were named."""
    return Calculation({"op": "list", "limit": _MOST_NAMED, "show": list(fields)[:_MOST_SHOWN]}, pieces)


def _leaves_an_end_out(made: Calculation, found: Found) -> bool:
    """Whether it is of some documents at one end of an order: "the average budget of the ten largest contracts"."""
    aggregate = made.aggregate
    if aggregate.get("order") or not (aggregate["op"] in ("avg", "median", "sum") or aggregate.get("over")):
        return False
    ends = (wording.LARGEST, wording.SMALLEST, wording.NEWEST, wording.OLDEST, wording.MOST, wording.LEAST)
    text = _undated(found)
    return any(pattern.search(text) for pattern in ends)


def _with_existence(made: Calculation) -> Calculation:
    """ "how many lack a sponsor": which fields are there is a condition of what is counted."""
    stated = tuple(piece for piece in made.pieces if piece.filter["type"] == "exists")
    if not stated or made.aggregate["op"] != "count" or "where" in made.aggregate:
        return made
    others = tuple(piece for piece in made.pieces if piece not in stated)
    where = both([piece.filter for piece in stated])
    return replace(made, aggregate={**made.aggregate, "where": where}, pieces=others)


def _conditioned(made: Calculation, found: Found) -> Calculation | None:
    """The calculation within the conditions on lengths; None where it has none of its own, and would leave them out."""
    stated = [piece.filter for piece in found.lengths]
    if not stated or made.aggregate.get("where") == both(stated):
        return made
    if made.aggregate["op"] in ("share", "difference"):
        return None
    where = made.aggregate.get("where")
    return replace(made, aggregate={**made.aggregate, "where": both([where, *stated] if where else stated)})


def _rounded(made: Calculation, text: str) -> Calculation:
    """ "to two decimals"."""
    digits = wording.DECIMALS.search(text)
    if digits is None or made.aggregate["op"] not in ("avg", "sum", "share"):
        return made
    return replace(made, aggregate={**made.aggregate, "decimals": parse_count(digits["n"])})


def _frequent(found: Found) -> Calculation | None:
    """ "which authors have at least 30 reports", "how many people wrote only one": groups by their size."""
    sized = _group_size(found)
    if sized is None or _middle(found.sentence.text) is not None:
        return None
    counted = field_counted(found)
    if counted:
        return Calculation({"op": "count", "of": counted[0], **sized}, found.pieces)
    group = compared_group(found)
    if group is not None:
        return Calculation({"op": "count", "group_by": group, "order": "desc", **sized}, found.pieces)
    # "did Ann write more than 30 reports" is answered by their number.
    is_answered = wording.YES_OR_NO.search(found.sentence.text) and found.pieces and not topic_of(found)
    return Calculation({"op": "count"}, found.pieces) if is_answered else None


def _group_size(found: Found) -> Json | None:
    """How many documents a group must have, when a number of documents is stated."""
    sentence = found.sentence
    for pattern in (wording.AT_LEAST, wording.AT_MOST, wording.EXACTLY):
        stated = pattern.search(sentence.text)
        if stated is None or any(
            stated.start() < one.end and one.start < stated.end() for one in (*found.pieces, *found.lengths)
        ):
            continue
        said = stated.groupdict()
        index = sentence.index_from(stated.end())
        # "more than 30 accepted reports", 至少 9 篇 PEP
        while not sentence.is_noun(index) and (sentence.mention_at(index) or sentence.folded(index) in _BESIDE_NOUNS):
            index += 1
        if said.get("n2") and not sentence.is_noun(index):
            index = sentence.index_from(stated.start()) + 1  # "five reports or more"
        written = next((said[key] for key in ("n", "n_zh", "n2", "n3") if said.get(key)), None)
        # "a single report"
        number = 1 if written is None else parse_exact(written)
        if number is None or not (sentence.is_noun(index) or _counts_noun_before(found, stated)):
            continue
        if pattern is wording.AT_LEAST:
            return {"at_least": number + 1 if said["more"] or said["more_zh"] else number}
        if pattern is wording.AT_MOST:
            return {"at_most": number - 1 if said["fewer"] or said["fewer_zh"] else number}
        return {"at_least": number, "at_most": number}
    return None


def _counts_noun_before(found: Found, stated: re.Match[str]) -> bool:
    """提案[超过 40] 个: in Chinese the number may stand behind what it counts."""
    sentence = found.sentence
    unit = sentence.text[stated.end() :].lstrip()[:1] in ("个", "篇", "份", "条")
    return unit and sentence.ends_with_noun(stated.start())


def _top_group(found: Found) -> Calculation | None:
    """ "who wrote most", "the two most used tags", "in which year were the most"."""
    text = found.sentence.text
    if wording.ORDERED.search(text) and group_asked(found) is not None:
        return None  # "complaints by district, most first" is a group
    ranked = _ranked_by_number(found)
    if ranked is not None:
        return ranked
    most = wording.MOST.search(text)
    if not most and not wording.LEAST.search(text):
        return None
    group = compared_group(found)
    if group is None or (topic_of(found) and not wording.WHO.search(text)):
        return None
    number = number_asked(found)
    behind = found.sentence.index_from(most.end()) if most else 0
    if number is not None and is_length(number) and number != f"len({group})" and _is_said(found, number, behind):
        return None  # "which author has the most tags" adds up what documents have
    money = [name for name in found.sentence.vocabulary.of_role("number") if "money" in concepts_of(name)]
    if wording.SPENDING.search(text):
        number = number or next(iter(money), None)
    of = None if number is None or is_length(number) or number.startswith(group) else number
    aggregate: Json = {
        "op": "sum" if of else "count", "of": of, "group_by": group,
        "order": "desc" if most else "asc",
    }  # fmt: skip
    if not wording.ORDERED.search(text):
        # Among the authors of what Ann wrote Ann herself comes first.
        is_theirs = any(one.field == group and not one.negated for one in found.constraints)
        aggregate |= {"limit": _how_many(text) + is_theirs, "ties": True}
    return Calculation(aggregate, found.pieces)


def _is_said(found: Found, length: str, index: int) -> bool:
    """Whether the list whose length it is is named at a place."""
    return any(length == f"len({name})" for name in found.sentence.cue_fields(index))


def _ranked_by_number(found: Found) -> Calculation | None:
    """ "which department has the highest total cost", 平均费用最高的部门."""
    text = found.sentence.text
    largest, smallest = wording.LARGEST.search(text), wording.SMALLEST.search(text)
    op = _middle(text) or ("sum" if wording.SUM.search(text) else None)
    if op is None or not (largest or smallest):
        return None
    number = number_asked(found)
    fields = unconstrained(found, fields_named(found, "label", "tag", "person", "version"))
    group = group_asked(found) or next(iter(fields), None)
    if number is None or is_length(number) or not group or topic_of(found):
        return None
    aggregate: Json = {
        "op": op, "of": number, "group_by": group, "order": "desc" if largest else "asc",
        "limit": _how_many(text), "ties": True,
    }  # fmt: skip
    return Calculation(aggregate | ({"decimals": 2} if op == "avg" else {}), found.pieces)


def _groups(found: Found) -> Calculation | None:
    """ "complaints per district", "more in Old Town or in Eastfield"."""
    text = found.sentence.text
    group, counts = group_asked(found), counts_documents(found)
    middle, number = _middle(text), number_asked(found)
    if group is not None and wording.TWO_GROUPS.search(text) and len(fields_named(found, "label", "tag", "person")) > 1:
        return None  # "per kind and department"
    if group is not None:
        each = _each_of(found, number) if middle is not None and not topic_of(found) else None
        if each is not None:
            aggregate = {**each, "group_by": group, "over": middle, "decimals": 2}
            return None if _is_more_than_groups(found, group) else Calculation(aggregate, found.pieces)
        op, of = _calculated(found)
        if of is None and not counts and (middle is not None or wording.SUM.search(text)):
            return None  # of what is not known, and a count is something else
        asked = counts or of is not None or wording.BREAKDOWN.search(text) or wording.COUNTED.search(text)
        if asked or not topic_of(found):
            more: Json = {"decimals": 2} if op == "avg" else {}
            ordered = wording.ORDERED.search(text)
            if ordered is not None:
                more["order"] = "asc" if ordered["rising"] or ordered["rising_zh"] else "desc"
            return Calculation({"op": op, "of": of, "group_by": group, **more}, found.pieces)
    if counts and middle is not None:
        return _average_group(found)
    several = several_asked(found)
    if several is not None and number is not None and middle is not None and not topic_of(found):
        aggregate = {"op": middle, "of": number, "group_by": several[0], "between": list(several[1])}
        return Calculation(aggregate | ({"decimals": 2} if middle == "avg" else {}), found.pieces)
    is_compared = wording.VERSUS.search(text) or wording.MORE_THAN.search(text)
    if several is not None and is_compared and not topic_of(found):
        told_apart: Json = {"group_by": several[0], "between": list(several[1])}
        if (
            wording.WHICH_OF_TWO.search(text)
            and wording.ONE_OF_TWO.search(text)
            and not wording.BOTH_SIDES.search(text)
        ):
            told_apart |= {"order": "asc" if wording.FEWER.search(text) else "desc", "limit": 1, "ties": True}
        if number is not None and not counts and not is_length(number):
            return Calculation({"op": "sum", "of": number, **told_apart}, found.pieces)
        return Calculation({"op": "count", **told_apart}, found.pieces)
    if several is not None and counts and not topic_of(found) and not wording.TOGETHER.search(text):
        return Calculation({"op": "count", "group_by": several[0], "between": list(several[1])}, found.pieces)
    return None


def _each_of(found: Found, number: str | None) -> Json | None:
    """What is calculated of each group when the groups are averaged: a count or a sum; None where neither is asked."""
    if number is None or is_length(number) or is_condition(found, number):
        if not counts_documents(found):
            return None
        values = field_counted(found)  # "how many reports per year on average", 平均每年有多少位作者
        return {"op": "count", "of": values[0]} if values else {"op": "count"}
    # "total fines per year on average"
    return {"op": "sum", "of": number} if wording.SUM.search(found.sentence.text) else None


def _is_more_than_groups(found: Found, group: str) -> bool:
    """Whether the average of how many documents the groups have would leave something out.

    That is a second group or a comparison; of the quarters of several years there are more than four, and the last
    three years lie in four, of which two are not whole.
    """
    text = found.sentence.text
    if group.startswith(("quarter(", "month(", "half(")) and not _is_within_a_year(found):
        return True
    known = found.sentence.vocabulary.catalogue.fields
    if group in known and known[group].field.type == "list" and group in {one.field for one in found.constraints}:
        return True  # who wrote with the authors named would be counted, too
    told_apart = wording.VERSUS.search(text) or wording.EACH.search(text)
    compared = several_asked(found) is not None and told_apart
    several = len(wording.FOR_EACH.findall(text)) > 1 or wording.TWO_GROUPS.search(text)
    return bool(several or compared or _is_cut(found, group))


def _is_cut(found: Found, group: str) -> bool:
    """Whether the dates begin or end inside one of the years or months that are grouped by."""
    bounds = [one for dated in found.dates for one in (dated.period.low, dated.period.high) if one is not None]
    months = {"year": 12, "quarter": 3, "year_month": 1}.get(group.partition("(")[0])
    return months is not None and any(one.day != 1 or (one.month - 1) % months for one in bounds)


def _is_within_a_year(found: Found) -> bool:
    bounds = [(one.period.low, one.period.high) for one in found.dates]
    return len(bounds) == 1 and all(low and high and high <= low + timedelta(days=366) for low, high in bounds)


def _average_group(found: Found) -> Calculation | None:
    """ "how many reports does the average author have": of each author so many, and of these the average."""
    fields = unconstrained(found, fields_named(found, "label", "tag", "person", "version"))
    if not fields or topic_of(found) or not wording.A_GROUP.search(found.sentence.text):
        return None
    aggregate: Json = {"op": "count", "group_by": fields[0], "over": _middle(found.sentence.text), "decimals": 2}
    return Calculation(aggregate, found.pieces)


def _calculated(found: Found) -> tuple[str, str | None]:
    """What is calculated for each group: the average, median, sum or an end of a number, else a count of documents."""
    number, text = number_asked(found), found.sentence.text
    middle = _middle(text)
    if number is not None and middle is not None:
        return middle, number
    if number is not None and not is_length(number):
        if wording.SUM.search(text):
            return "sum", number
        if counts_documents(found):
            return "count", None
        if wording.LARGEST.search(text) or wording.SMALLEST.search(text):
            return ("max" if wording.LARGEST.search(text) else "min"), number
    return "count", None


def _middle(text: str) -> str | None:
    """The average or the median, where one is asked for."""
    return "median" if wording.MEDIAN.search(text) else "avg" if wording.AVERAGE.search(text) else None


def _distinct(found: Found) -> Calculation | None:
    """ "how many authors", "how many different tags": values are counted, not documents."""
    text = found.sentence.text
    if _middle(text) is not None:
        return None
    if is_of_documents(found) and (wording.LARGEST.search(text) or wording.SMALLEST.search(text)):
        return None  # "which report has the most authors, and how many"
    fields = field_counted(found)
    if not fields and wording.DISTINCT.search(text):
        fields = unconstrained(found, fields_named(found, "label", "tag", "person", "version", "language"))
        if not fields and wording.PEOPLE.search(text):
            fields = found.sentence.vocabulary.of_role("person")
    return Calculation({"op": "count", "of": fields[0]}, found.pieces) if fields else None


def _average(found: Found) -> Calculation | None:
    """ "average budget", "the median number of authors", "total downtime of the incidents"."""
    if _middle(found.sentence.text) is None and not wording.SUM.search(found.sentence.text):
        return None
    op, number = _calculated(found)
    is_length_of = number is not None and is_length(number) and wording.HOW_MANY.search(found.sentence.text)
    if counts_documents(found) and (is_condition(found, number) or is_length_of):
        return None  # "the average number of permits with a budget over 100k", "of permits per applicant"
    if is_condition(found, number) and unconstrained(found, fields_named(found, "label", "tag", "person", "version")):
        return None  # "which districts have an average budget over 1 million": of each, not of all
    if op == "avg":
        return Calculation({"op": "avg", "of": number, "decimals": 2}, found.pieces)
    if op == "median":
        return Calculation({"op": "median", "of": number}, found.pieces)
    if op == "sum" and not counts_documents(found):
        return Calculation({"op": "sum", "of": number}, found.pieces)
    return None


def _extreme(found: Found) -> Calculation | None:
    """The documents at one end of an order ("the three latest"), or the value there ("when was the first")."""
    text = _undated(found)
    if (wording.NEWEST.search(text) and wording.OLDEST.search(text)) or (
        wording.LARGEST.search(text) and wording.SMALLEST.search(text)
    ):
        return None  # "the years between the first and the latest"
    newest, largest = wording.NEWEST.search(text), wording.LARGEST.search(text)
    if not (newest or largest or wording.OLDEST.search(text) or wording.SMALLEST.search(text)):
        return None
    number = number_asked(found) if largest or wording.SMALLEST.search(text) else None
    if number is not None and wording.LARGEST_NUMBER.search(text) and not _asks_for_documents(found):
        return Calculation({"op": "max" if largest else "min", "of": number}, found.pieces)
    keyed = [name for name in fields_named(found, "number") if is_key(found.sentence.vocabulary, name)]
    if (largest or wording.SMALLEST.search(text)) and keyed and number is None and not topic_of(found):
        if wording.WHICH_ONE.search(text):
            order = "desc" if largest else "asc"
            listed: Json = {"op": "list", "of": keyed[0], "order": order, "limit": _how_many(text), "show": keyed[:1]}
            return Calculation(listed, found.pieces)
        return Calculation({"op": "max" if largest else "min", "of": keyed[0]}, found.pieces)
    by_date = newest or wording.OLDEST.search(text) or (largest and _is_long_ago(text))
    of = number or (date_asked(found) if by_date else None)
    if of is None or not _names_documents(found, topic_of(found)):
        return None
    descending = bool(largest) if number else bool(newest)
    if number is None and wording.WHEN.search(text) and not wording.WHICH_ONE.search(text):
        return Calculation({"op": "max" if descending else "min", "of": of}, found.pieces)
    limit = _how_many(text)
    shown = unconstrained(found, fields_named(found, "person", "label"))
    if not shown and wording.WHO.search(text):
        shown = found.sentence.vocabulary.of_role("person")
    aggregate: Json = {
        "op": "list", "of": of, "order": "desc" if descending else "asc", "limit": limit,
        "show": [*shown[: _MOST_SHOWN - 1], of],
        # "which documents are the longest" may be several of one length.
        "ties": limit == 1 and wording.SEVERAL.search(text) is not None,
    }  # fmt: skip
    return Calculation(aggregate, found.pieces)


def _asks_for_documents(found: Found) -> bool:
    """ "which recall involved the highest number of cases": the recall, not the number."""
    sentence = found.sentence
    return any(
        sentence.folded(index) in ("which", "what") and sentence.is_noun(index + 1)
        for index in range(len(sentence.tokens) - 1)
    )


def _undated(found: Found) -> str:
    """The question with its dates blanked: "the first half of 2023" asks for no first document."""
    if not found.dates:
        return found.sentence.text
    text = list(found.sentence.text)
    for one in found.dates:
        text[one.start : one.end] = " " * (one.end - one.start)
    return "".join(text)


def _names_documents(found: Found, topic: Sequence[str]) -> bool:
    """Whether all that is left is one noun beside the superlative: "the most expensive object", 最贵的藏品."""
    if len(topic) > 1:
        return False
    text = found.sentence.text.casefold()
    ends = [match.end() for pattern in (wording.LARGEST, wording.SMALLEST) for match in pattern.finditer(text)]
    return not topic or any(text[end:].lstrip(" 的").startswith(topic[0][:4]) and len(topic[0]) < 12 for end in ends)


def _is_long_ago(text: str) -> bool:
    """ "has been in Draft the longest" orders by age."""
    return wording.LONGEST.search(text) is not None and wording.OF_TIME.search(text) is not None


def _how_many(text: str) -> int:
    """ "top three", "the 5 newest", 前十个; one when no number is said, with a runner-up two: it stands last."""
    nth = wording.NTH.search(text)
    if nth is not None:
        said = nth["nth"] or nth["nth_zh"] or nth["nth_zh2"]
        return wording.ORDINALS[said.casefold()] if said else 2
    count = wording.TOP_N.search(text)
    said = next(filter(None, count.groups()), None) if count else None
    return (parse_count(said) if said else None) or 1


def _count(found: Found) -> Calculation | None:
    """ "how many permits were denied"."""
    text = found.sentence.text
    if _middle(text) is not None:
        return None  # their number is no average
    if not counts_documents(found):
        return None
    # Of two counts side by side one would be left out.
    several = len(wording.HOW_MANY_ITSELF.findall(text)) > 1 or wording.TWO_SIDES.search(text) or group_asked(found)
    return None if several else Calculation({"op": "count"}, found.pieces)
