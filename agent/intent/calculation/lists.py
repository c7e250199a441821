"""Lists of records, and values of single records: "what is the price of P-1042", "permits denied in 2023"."""

import re
from collections.abc import Sequence
from dataclasses import replace

from agent.intent import lexicon
from agent.intent.calculation.compose import assumed_nouns, is_possible, question_of
from agent.intent.calculation.ends import read_shown
from agent.intent.calculation.groups import people_meant
from agent.intent.calculation.part import PIECE, RECORD, Part
from agent.intent.calculation.question import Calculation, Question, hindering_words, pieces_of, words_of_kind
from agent.intent.calculation.slots import ENDS
from agent.intent.date_fields import is_ordered
from agent.intent.filter_json import Json, both, takes_away, values_allowed
from agent.intent.found import Found, Piece, date_field
from agent.intent.numbered import is_key
from agent.intent.text import has_chinese
from agent.intent.vocabulary import concepts_of

MOST_LISTED = 100
"""Maximum rows of a list, unless all are asked for."""
_MOST_SHOWN = 4
_MOST_NAMED = 10
_NAMES = frozenset(["name", "names"])
_NO_LIST = (
    *"more fewer versus between spending count how_much avg median sum share rate difference".split(),
    *ENDS,
)


def find_lookup(found: Found) -> Calculation | None:
    """Return a list of the few records that the question names, with the fields that it asks for; else None.

    "who sponsored PEP 703" -> the field `sponsor` of one record.
    """
    keys = {one.field for one in found.numbers if one.values and is_key(found.sentence.vocabulary, one.field)}
    question = question_of(found)
    if hindering_words(question) or question.has("more", "fewer"):
        return None
    pieces = pieces_of(question)
    few = _are_few(question, pieces)
    if not keys and not few:
        return None
    question.used.update(
        place for place, part in question.fields() if set(part.fields) <= {one.field for one in pieces}
    )
    shown = [name for name in read_shown(question) if name.removeprefix("number(").rstrip(")") not in keys]
    question.take("value")
    if len(shown) == 1 and any(question.selects_one(piece.filter) for piece in pieces):
        question.take("how_big", "how_much")  # "how long was Ann Lee in office"
    if not shown or question.unread():
        return None
    return replace(values_of(shown, pieces), sure=bool(keys))


def _are_few(question: Question, pieces: Sequence[Piece]) -> bool:
    """Return whether the constraints select so few records that the values of all of them can be shown."""
    fields = question.columns.vocabulary.catalogue.fields
    least = None
    for piece in pieces:
        if piece.filter["type"] in ("eq", "in") and isinstance(piece.filter["value"], str | list):
            values = values_allowed(piece.filter)
            held = sum(fields[piece.field].values.get(value, 0) for value in values) if piece.field in fields else 0
            least = held if least is None else min(least, held)
    return least is not None and 0 < least <= _MOST_NAMED


def find_listing(found: Found) -> Calculation | None:
    """Return a list of records for a question that states only constraints: "permits denied in 2023"; else None.

    None also if the question names only single records by their numbers.
    """
    sentence = found.sentence
    keys = {name for name in sentence.vocabulary.of_role("number") if is_key(sentence.vocabulary, name)}
    question = question_of(found)
    pieces = pieces_of(question)
    if found.left and not found.pieces and sentence.folded(0) in lexicon.AUXILIARIES:
        return None  # in "is trade open" the named value is a topic, no condition
    named = all(piece.field in keys and piece.filter["type"] == "eq" for piece in pieces)
    if (named and not found.lengths) or question.has(*_NO_LIST) or hindering_words(question):
        return None
    if any(sentence.in_about(part.start) for _, part in question.fields()):
        return None  # "reports on version numbers" are about them
    shown = read_shown(question)
    records = question.has(RECORD) or any("kind" in concepts_of(piece.field) for piece in pieces)
    if question.has("which", "who", "when", "where") and not shown and not records:
        return None  # no field holds what is asked for
    settled = {piece.field for piece in pieces if piece.filter["type"] == "eq"}
    if question.unread() or (question.has("which", "who") and settled & set(shown)):
        return None
    if question.has("which"):
        if not shown and any(question.selects_one(piece.filter) for piece in pieces):
            return None  # "what breed is Bella" asks for a value that no field shows
        names = question.columns.names() if _is_name_asked(question) else []
        shown = list(dict.fromkeys((*names, *shown)))
    shown = [name for name in shown if name not in settled]
    made = listing(replace(found, pieces=pieces), shown, question.within)
    # "which towns have over 1,000 riders" may mean towns, although each record is a station.
    return replace(made, assumed=assumed_nouns(question)) if question.has("which") and found.numbers else made


def _is_name_asked(question: Question) -> bool:
    """Return whether the question asks for names: by that word, or by a noun taken for documents by its position."""
    said = words_of_kind(question, "which")
    named = any(set(words.casefold().split()) & _NAMES for words in said)
    return named or any(question.parts[place].guessed for place in question.of_kind(RECORD))


_HAS_NOT = re.compile(
    r"^\W*(?:which|what)\s(?:\w+\s){1,3}?(?:ha(?:s|ve|d)|d(?:o|oes|id)|was|were)(?:\s(?:not|never|no|none|yet\sto)\b|n['’]t\b)|"
    r"哪(?:些|个|位|几).{1,8}?(?:从未|从没|没有|没被|未曾|没)",
    re.IGNORECASE,
)
_DEEDS = frozenset("has have had hasn haven hadn did do does didn don doesn made make makes took take takes".split())
_BESIDE_DEED = _DEEDS | frozenset("ever yet still also so far t that which".split())


def asks_who_has_not(found: Found) -> bool:
    """Return whether a question asks which values have no matching document: "which bridges has Ann never seen?".

    A filter cannot answer this. A bridge with a document by another inspector may have one by Ann as well. For the same
    reason "how many couriers have never been to Rome" cannot be answered with a count of documents.
    """
    question = question_of(found)
    said = _HAS_NOT.search(found.sentence.text)
    several = said is not None and any(_is_group_said(question, name, said.group()) for name in read_shown(question))
    start = said.start() if said is not None and several else _start_of_denied_deed(question)
    return start is not None and any(piece.start >= start and takes_away(piece.filter) for piece in found.pieces)


def _start_of_denied_deed(question: Question) -> int | None:
    """Return the position of the first character of the noun for those who did not do something, or None.

    In "which [pilots] never flew", it is the position of "pilots".
    """
    sentence = question.found.sentence
    for negator in sentence.negators.values():
        if negator.kind not in ("not", "lacking"):
            continue
        words = [sentence.folded(place) for place in range(negator.first, negator.last)]
        place, has_deed = negator.first - 1, "never" in words
        while place >= 0 and (sentence.folded(place) in _BESIDE_DEED or sentence.tokens[place].kind == "mark"):
            has_deed |= sentence.folded(place) in _DEEDS
            place -= 1
        if negator.kind == "lacking":
            # In "who made no trip", the word between the subject and "no" is the verb.
            has_deed |= sentence.is_noun(negator.last) and place < negator.first - 1
        asked = next((one for one in question.parts if one.first <= place < one.last), None)
        if asked is not None and has_deed and _is_group_asked(question, asked):
            return asked.start
    return None


def _is_group_said(question: Question, name: str, said: str) -> bool:
    """Return whether a word in `said` is the noun of the field `name`, and several records may share a value of it.

    "samples" is not the noun of a field `sampler`: it names the records.
    """
    is_named = has_chinese(said) or any(question.columns.is_called(name, word) for word in re.findall(r"\w+", said))
    return is_named and question.columns.is_repeated(name)


def _is_group_asked(question: Question, asked: Part) -> bool:
    """Return whether `asked` is the first noun of the question, and a field whose values several records share."""
    before = [one for one in question.parts[: question.parts.index(asked)] if one.kind in (RECORD, PIECE)]
    if asked.kind in ("who", "people"):
        names = [people] if (people := people_meant(question)) is not None else list(question.columns.people())
    else:
        said = question.found.sentence.text[asked.start : asked.end]
        groups = [name for name in asked.fields if question.columns.is_group(name)]
        names = [name for name in groups if _is_group_said(question, name, said)]
    return not before and any(map(question.columns.is_repeated, names))


def listing(found: Found, shown: Sequence[str] = (), within: Sequence[Json] = ()) -> Calculation:
    """Return the calculation that lists the records that satisfy the constraints of `found`, the newest first.

    Conditions on lengths of lists go into the aggregate's "where", because the search that also runs cannot apply them.

    Args:
        shown: fields to show.
        within: more conditions, see `Question.within`.
    """
    vocabulary = found.sentence.vocabulary
    dates = [name for name in vocabulary.of_role("date") if is_ordered(vocabulary, name)]
    near = [name for _, named in found.sentence.cued for name in named if name in dates]
    of_range = date_field(found.sentence, found.dates[0]) if found.dates else None
    order = of_range if of_range in dates else next(iter((*near, *dates)), None)
    aggregate: Json = {"op": "list", "of": order, "order": "desc" if order else None, "limit": MOST_LISTED}
    if shown:
        aggregate["show"] = [name for name in shown if name != order][:_MOST_SHOWN]
    if found.lengths or within:
        aggregate["where"] = both([*within, *(piece.filter for piece in found.lengths)])
    assert is_possible(aggregate)
    return Calculation(aggregate, found.pieces, sure=bool(found.lengths))


def values_of(fields: Sequence[str], pieces: tuple[Piece, ...]) -> Calculation:
    """Return the calculation that lists the records that satisfy the constraints `pieces`, with these fields."""
    return Calculation({"op": "list", "limit": _MOST_NAMED, "show": list(fields)[:_MOST_SHOWN]}, pieces)


def fields_shown(found: Found, besides: set[str]) -> tuple[str, ...]:
    """Return the fields whose value a question asks for, except `besides`: `sponsor` for "who sponsored PEP 703"."""
    question = question_of(found)
    return tuple(name for name in read_shown(question) if name not in besides)


def merged(parts: Sequence[Calculation | None]) -> Calculation | None:
    """Merge counts that differ in one value into a count by group: "How many are final, and how many were rejected?".

    The constraints of the first count apply to the others too. Return None if the counts cannot be merged.

    Args:
        parts: the calculation of each clause of the question; None for a clause without one.
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
        # Counts of different kinds of documents must repeat the constraints of the first; other counts may omit them.
        allowed = (rest,) if "kind" in concepts_of(field) else ((), rest)
        if len(named) != 1 or named[0].filter["type"] != "eq" or (place and others not in allowed):
            return None
        values.append(named[0].filter["value"])
        rest = rest if place else others
    if len(set(values)) < len(values):
        return None
    piece = replace(counts[0].pieces[-1], field=field, filter={"type": "in", "key": field, "value": values})
    return Calculation({"op": "count", "group_by": field, "between": values}, (*rest, piece))
