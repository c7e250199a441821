"""Follow-ups: what a turn takes over from earlier turns.

"only the ones from this year" narrows the question before; "and who sponsored it?" asks about a document of the answer;
那 2021 年的呢？ ("and of 2021?") asks the same about another year. A turn is one question of the conversation.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent.intent import lexicon, pointing, wording
from agent.intent.calculation import find_calculation, read_calculation
from agent.intent.date_fields import is_ordered
from agent.intent.deciding import Constraint
from agent.intent.filter_json import excludes, keyed, keys_named, of_constraint, of_years_later
from agent.intent.found import Found, Piece
from agent.intent.linking import Mention
from agent.intent.negation import is_denied_mention
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.rejected import SEARCHED, unread
from agent.intent.text import readable
from agent.intent.topic import topic_of
from agent.intent.versions import version_numbers
from agent.types import Message

_RECORDS = {"how many": "documents", "多少": "份文档", "几": "份文档"}
_REFINES = re.compile(
    r"\b(?:only|just|those|the\s+(?:\w+\s+)?ones|these|of\s+them|among\s+(?:them|those|these)|narrow|restrict|limit|instead|"
    r"exclude|excluding|leave\s+out|drop|remove|skip|ignore|without|except|filter)\b|"
    r"去掉|排除|只要|只看|只保留|仅|其中|除了|不要|剔除|筛|里面",
    re.IGNORECASE,
)
_SAME = re.compile(
    r"也(?:查|看|来|要|给|列)|(?:^|[.!?]\s)\W*(?:(?:and|but|so|or|then|ok(?:ay)?)\W*)?(?:what|how)\s+about\b|"
    r"\b(?:make|change|switch)\s+(?:that|it|this)\b|\bsame\b\W+(?:for|thing|question|with|again|but|in|by|from|on|only)\b|"
    r"^\W*(?:and\s+(?:for|in|from|by|on|the|those)|(?:and\s+|ok(?:ay)?\W+)?now)\b|"
    r"^\W*and\s+[\w'’-]+(?:\s+[\w'’-]+)?\s*\?\W*$|"
    r"^\W*(?:那|那么|还有|换成|改成|同样)|呢\W*$",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"^\W*(?:and|but|so|then|also|plus|or|ok(?:ay)?|那|那么|还有|再|另外|后来|以及|最后这)", re.IGNORECASE
)
_LEAD_WORDS = re.compile(r"^\W*(?:and|but|so|then|also|what\s+about|how\s+about|那么?|还有)(?![a-z])", re.IGNORECASE)
_AMONG = re.compile(r"\b(?:of|among|in)\s+(?:them|those|these)\b|其中|里面|这些(?:里|中)", re.IGNORECASE)
_BEGINS_REFINING = re.compile(
    r"^\W*(?:(?:ok(?:ay)?|and|now|but|please|then|那|再)\W+)*(?:only|just|只要|只看|只保留|仅)", re.IGNORECASE
)
_ONES = re.compile(r"\b(?:ones|them|those|these)\b|列出来|哪些|哪几", re.IGNORECASE)
_VALUES = ("label", "tag", "language", "person", "version")
_SHORT_WORDS = 12
_SHORT_CHARACTERS = 24
_LONGEST_FOLLOWUP = 200
"""Maximum characters of a follow-up; text without blanks would not count as words."""
_LONGEST_CONTEXT = 240
_MOST_TOPIC_WORDS = 3
_MOST_TURNS = 4
_BESIDE = re.compile(
    r"\b(?:(?P<before>previous|preceding|prior)|next|following)\s+(?P<unit>year|version|release)\b|"
    r"\b(?P<unit2>year|version|release)\s+(?:(?:right|just|directly)\s+)?(?:(?P<before2>before|earlier|prior)|after|later)\b|"
    r"(?P<before3>[上前])一个?(?P<unit3>年|版)|[下后]一个?(?P<unit4>年|版)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\d+(?:\.\d+)*")
_PLAIN = ("eq", "in")
_OPPOSITE = {"ne": "eq", "nin": "in"}

Finder = Callable[[str], Found]


@dataclass(frozen=True, slots=True)
class Carried:
    """A follow-up with what it takes over.

    Attributes:
        found: what was found in the follow-up itself.
        pieces: the constraints of the follow-up and those taken over.
        context: words of earlier turns that a search for the turn needs; "" if none.
        before: what was found in the question before, on which the follow-up depends.
        lists: True if the follow-up narrows a list of documents, or asks the same about other values.
        again: True if the follow-up asks the question before with other constraints.
    """

    found: Found
    before: Found
    pieces: tuple[Piece, ...]
    context: str
    lists: bool
    again: bool = False


def carry(found: Found, history: Sequence[Message], find: Finder, *, turns: int = _MOST_TURNS) -> Carried | None:
    """Return a turn with what it takes over from the conversation; None if the turn is complete by itself.

    Args:
        found: what was found in the turn.
        find: finds the conditions in another text, for the same collections and date.
        turns: maximum number of earlier questions to follow; a follow-up to a follow-up takes over from both.
    """
    places = [place for place, turn in enumerate(history) if turn.role == "user" and turn.content.strip()]
    asked = history[places[-1]].content if places else ""
    answered = readable(next((turn.content for turn in reversed(history) if turn.role == "assistant"), ""))
    if not asked or not leans(found):
        return None
    before = find(readable(asked))
    earlier = carry(before, history[: places[-1]], find, turns=turns - 1) if turns > 1 and len(places) > 1 else None
    if earlier is not None:
        # A question about the same documents ("do any have a study?") adds no constraints, so those before it stay.
        before = replace(before, pieces=earlier.pieces if earlier.lists else before.pieces or earlier.before.pieces)
    said = find(answered) if answered else before
    found = _of_records(found, find)
    measured = _of_what_was_measured(found, before, find)
    found = measured or found
    text = found.sentence.text
    context = _context(before, answered, thing=pointing.THING.search(text) is not None)
    found = _in_the_same_fields(_on_the_same_date(found, before), before)
    # After a list, a value alone is a constraint: "the rejected ones".
    bare = _with_bare_values(found, before)
    if any(one.search(text) for one in (_REFINES, _SAME)) or _is_fragment(bare):
        # A turn that changes a question has hardly any words but conditions, so likely ones are sure.
        found = replace(bare, pieces=_firm(bare.pieces))
    return (
        _of_the_same(found, before, said, context)
        or _narrowing(found, before, context, same=measured is not None)
        or _of_person(found, before, said)
        or _of_document(found, before, said, answered, context)
        or _counting(found, before, context)
        or Carried(found, before, found.pieces, context, lists=False)
    )


def _of_records(found: Found, find: Finder) -> Found:
    """Read "how many per stage?" as "how many documents per stage?"; return other turns unchanged."""
    unread, text = read_calculation(found).unread, found.sentence.text
    noun = _RECORDS.get(unread[0].casefold()) if len(unread) == 1 else None
    return find(text.replace(unread[0], f"{unread[0]} {noun}", 1)) if noun is not None else found


def _of_what_was_measured(found: Found, before: Found, find: Finder) -> Found | None:
    """Read "and over 50?" as a comparison of the numeric field in the question before; return None for other turns."""
    numbers = found.sentence.vocabulary.of_role("number")
    measured = {piece.field: piece for piece in before.pieces if piece.field in numbers}
    said = _comparison(found)
    if said is None or len(measured) != 1:
        return None
    sentence = before.sentence
    word = next((sentence.tokens[place].text for place, names in sentence.cued if measured.keys() & set(names)), None)
    again = find(found.sentence.text.replace(said, f"{word} {said}", 1)) if word else found
    field, piece = measured.popitem()
    if said.isdigit() and "value" in piece.filter:
        # "make it 4" after "at least 3" means at least 4
        others = (one for one in again.pieces if one.field != field)
        return replace(again, pieces=(*others, replace(piece, filter={**piece.filter, "value": int(said)})))
    return again if any(one.field == field for one in again.pieces) else None


def _narrowing(found: Found, before: Found, context: str, *, same: bool) -> Carried | None:
    """Read a turn that changes the constraints of the question before: "only the rejected ones", "and in 2022?".

    The result is None for any other turn. `same`: whether the turn is known to ask the question before again.
    """
    text = found.sentence.text
    before = replace(before, pieces=_firm(before.pieces))
    beside = _beside(found, before)
    if beside is not None:
        return Carried(found, before, _overridden(before.pieces, (beside,)), context, lists=True, again=True)
    pieces = _overridden(before.pieces, found.pieces, _grouped(found))
    refines = _REFINES.search(text)
    same = same or bool(_SAME.search(text) or _is_fragment(found))
    if (refines and found.pieces) or (same and (found.pieces or before.pieces)):
        return Carried(found, before, pieces, context, lists=True, again=same)
    if before.pieces and (_BEGINS_REFINING.match(text) or (not found.pieces and _comparison(found))):
        # Words that were not understood narrow the question further, so the documents are searched for them.
        return Carried(found, before, before.pieces, context, lists=False)
    if _AMONG.search(text) and topic_of(found) and before.pieces:
        return Carried(found, before, pieces, "", lists=False)
    if _LEADS.search(text) and found.pieces and before.pieces and not topic_of(found):
        return Carried(found, before, pieces, context, lists=True)
    return None


def _comparison(found: Found) -> str | None:
    """Return a comparison that made no condition: "under 300" for "hmm. under 300?"; None if there is none."""
    left = (one.what for one in unread(found) if one.reason == SEARCHED and any(map(str.isdigit, one.what)))
    return next(left, None)


def _of_the_same(found: Found, before: Found, said: Found, context: str) -> Carried | None:
    """Read "by the same inspector" as that of the question before, else of the answer `said`; None for other turns."""
    match = pointing.THE_SAME.search(found.sentence.text)
    if match is None:
        return None
    fields = found.sentence.cue_fields(found.sentence.index_from(match.end()))
    piece = next((piece for piece in before.pieces if piece.field in fields and not excludes(piece.filter)), None)
    piece = piece or pointing.last_named(said, fields)
    if piece is None:
        return None
    own = found.pieces if topic_of(found) else _firm(found.pieces)  # "same author, but rejected"
    pieces = (replace(piece, start=0, end=0), *(one for one in own if one.field != piece.field))
    return Carried(found, before, pieces, context, lists=not topic_of(found))


def _of_person(found: Found, before: Found, said: Found) -> Carried | None:
    """Resolve "she" in "what else did she write" to the last person in the answer `said`, else in the question before.

    The result is None if the turn has no such pronoun or names a person itself, or if nobody was named.
    """
    people = found.sentence.vocabulary.of_role("person")
    named = any(piece.field in people for piece in found.pieces)
    if named or not pointing.PERSON.search(found.sentence.text) or _is_of_records(found, before):
        return None
    person = pointing.last_named(said, people) or pointing.last_named(before, people)
    if person is None:
        return None
    pieces = (pointing.as_asked(person, found, people), *found.pieces)
    return Carried(found, before, pieces, "", lists=not topic_of(found))


def _is_of_records(found: Found, before: Found) -> bool:
    """Return whether "they" in a calculation may mean documents: the question before constrains more than a person."""
    people = found.sentence.vocabulary.of_role("person")
    others = any(piece.field not in people for piece in before.pieces)
    return others and bool(pointing.OF_MANY.search(found.sentence.text)) and find_calculation(found) is not None


def _of_document(found: Found, before: Found, said: Found, answered: str, context: str) -> Carried | None:
    """Resolve "it" to a document that the answer (text `answered`, conditions `said`) names; None if none is meant."""
    text = found.sentence.text
    document = pointing.document_meant(found, before, said, answered) if pointing.THING.search(text) else None
    if document is None:
        return None
    # "which older proposal did it grow out of" asks for another document.
    others = any(found.sentence.is_noun(index) for index in range(len(found.sentence.tokens)))
    is_spoken_of = [piece.filter for piece in before.pieces] == [document.filter]
    if pointing.IT.search(text) and not others and is_spoken_of:
        return Carried(found, before, (document,), "", lists=False)
    if not topic_of(found) and pointing.asks_field(found):
        return Carried(found, before, (document,), context, lists=False)
    return None


def _counting(found: Found, before: Found, context: str) -> Carried | None:
    """Read "how many is that" as a calculation over the documents of the question before; None for other turns."""
    if topic_of(found) or not (find_calculation(found) or _ONES.search(found.sentence.text)):
        return None
    return Carried(found, before, _overridden(before.pieces, (), _grouped(found)), context, lists=True)


def _grouped(found: Found) -> str | None:
    """Return the field by which a turn groups documents: `stage` for "how many per stage?"; None if it does not."""
    calculation = find_calculation(found)
    return calculation.aggregate.get("group_by") if calculation is not None else None


def _is_fragment(found: Found) -> bool:
    """Return whether a turn consists of constraints only: "Lakeview?", "in 2024?"."""
    taken = [(one.start, one.end) for one in found.pieces]
    return bool(taken) and all(
        token.kind == "mark"
        or token.folded in lexicon.STOP_WORDS
        or any(first <= token.start < last for first, last in taken)
        for token in found.sentence.tokens
    )


def _with_bare_values(found: Found, before: Found) -> Found:
    """Add a constraint for each value that a turn names outside of its constraints, if the value's field is clear."""
    stated, asked = {piece.field for piece in found.pieces}, {piece.field for piece in before.pieces}
    more = [piece for mention in found.left if (piece := _bare(found, mention, stated, asked)) is not None]
    return replace(found, pieces=(*found.pieces, *more)) if more else found


def _bare(found: Found, mention: Mention, stated: set[str], asked: set[str]) -> Piece | None:
    """Return the constraint for a value of a turn, "the [rejected] ones"; None if unclear or its field is in `stated`.

    Fields in `asked`, which the question before constrained, are preferred.
    """
    roles = found.sentence.vocabulary.roles
    known = [one for one in mention.known if roles[one.field] in _VALUES and one.field not in stated]
    # A name of several people is unclear.
    known = [one for one in known if one.field in asked] or known
    denied = is_denied_mention(found.sentence, mention)
    if not known or denied is None or (roles[known[0].field] == "person" and len({one.value for one in known}) > 1):
        return None
    one = Constraint(known[0].field, (known[0].value,), mention.start, mention.end, negated=denied)
    filter = of_constraint(one, found.sentence.vocabulary.catalogue.fields)
    return Piece(one.field, filter, one.start, one.end, FILTERS_FROM)


def leans(found: Found) -> bool:
    """Return whether a turn may depend on earlier ones: it is short, and refers back ("it") or has few topic words."""
    text = found.sentence.text
    words = sum(token.kind in ("word", "number") for token in found.sentence.tokens)
    characters = sum(token.kind == "cjk" for token in found.sentence.tokens)
    short = words <= _SHORT_WORDS and characters <= _SHORT_CHARACTERS and len(text) <= _LONGEST_FOLLOWUP
    points = any(pattern.search(text) for pattern in (pointing.PERSON, pointing.THING, _LEADS, _SAME, _REFINES))
    return short and (points or len(topic_of(found)) <= _MOST_TOPIC_WORDS)


def _context(before: Found, answered: str, *, thing: bool) -> str:
    """Return the question before, for a search; add the answer if it has no topic or `thing` (the turn says "it")."""
    rest = before.rest
    if topic_of(before) and not thing:
        return rest[:_LONGEST_CONTEXT]
    return f"{rest} {answered}".strip()[:_LONGEST_CONTEXT]


def stripped(text: str) -> str:
    """Return a turn for a search, without stop words and words that only refer back."""
    plain = pointing.PERSON.sub(" ", text)
    plain = _LEAD_WORDS.sub(" ", plain)
    words = [word for word in plain.split() if word.casefold().strip("?.,!") not in lexicon.STOP_WORDS]
    return " ".join(words) or text


def _on_the_same_date(found: Found, before: Found) -> Found:
    """Move the turn's dates to the date field of the question before, unless a word of the turn names another field."""
    dates = found.sentence.vocabulary.of_role("date")
    field = next((piece.field for piece in before.pieces if piece.field in dates), None)
    units = found.sentence.vocabulary.units
    if field is None or field in units:
        return found
    others = set(dates) - units.keys() - {name for _, names in found.sentence.cued for name in names}
    pieces = (
        replace(one, field=field, filter=keyed(one.filter, field)) if one.field in others else one
        for one in found.pieces
    )
    return replace(found, pieces=tuple(pieces))


def _in_the_same_fields(found: Found, before: Found) -> Found:
    """Move the turn's values ("same for Ito") to fields of the question before, unless a word names another field."""
    cued = {name for _, names in found.sentence.cued for name in names}
    fields = found.sentence.vocabulary.catalogue.fields
    asked = [one.field for one in before.pieces if one.filter["type"] in _PLAIN]
    pieces = []
    for piece in found.pieces:
        inner = piece.filter.get("filters", [piece.filter])
        values = {str(one.get("value")) for one in inner if one["type"] == "eq"}
        keys = {one.get("key") for one in inner}
        field = next((name for name in asked if name in keys or values <= fields[name].values.keys()), None)
        if len(values) == 1 and field is not None and keys != {field} and keys.isdisjoint(cued - {field}):
            piece = replace(piece, field=field, filter={"type": "eq", "key": field, "value": inner[0]["value"]})
        pieces.append(piece)
    return replace(found, pieces=tuple(pieces))


def _overridden(before: Sequence[Piece], now: Sequence[Piece], grouped: str | None = None) -> tuple[Piece, ...]:
    """Return the earlier constraints on fields that no new one (`now`) constrains, and then the new ones.

    Earlier ones on `grouped`, the field by which the turn groups, are left out. A new exclusion ("not Bo") replaces
    only the constraint that it denies ("by Bo").
    """
    stated = {grouped, *(key for piece in now if not excludes(piece.filter) for key in keys_named(piece.filter))}
    denied = [
        {**piece.filter, "type": _OPPOSITE[piece.filter["type"]]} for piece in now if piece.filter["type"] in _OPPOSITE
    ]
    kept = (one for one in before if stated.isdisjoint(keys_named(one.filter)) and one.filter not in denied)
    return (*kept, *now)


def _beside(found: Found, before: Found) -> Piece | None:
    """Return the year or version next to that of the question before: "and the year before?"; None for other turns."""
    said = _BESIDE.search(found.sentence.text)
    if said is None or wording.YES_OR_NO.search(found.sentence.text):
        return None  # "was it in the next release?" asks about a document found before
    names = said.groupdict()
    unit = next(names[one] for one in names if one.startswith("unit") and names[one])
    step = -1 if any(names[one] for one in names if one.startswith("before")) else 1
    if unit.casefold() not in ("year", "年"):
        return _version_beside(before, step)
    vocabulary = before.sentence.vocabulary
    dates = [name for name in vocabulary.of_role("date") if is_ordered(vocabulary, name)]
    piece = next((piece for piece in before.pieces if piece.field in dates), None)
    if piece is None or len(before.dates) != 1 or not before.dates[0].period.is_bounded:
        return None
    return replace(piece, filter=of_years_later(piece.filter, step), start=0, end=0)


def _version_beside(before: Found, step: int) -> Piece | None:
    """Return the known version `step` places after that of the question before, as a condition; None without one."""
    vocabulary = before.sentence.vocabulary
    versions = vocabulary.of_role("version")
    piece = next((one for one in before.pieces if one.field in versions and one.filter["type"] == "eq"), None)
    if piece is None:
        return None
    known = sorted(filter(_VERSION.fullmatch, vocabulary.catalogue.fields[piece.field].values), key=version_numbers)
    place = known.index(piece.filter["value"]) + step if piece.filter["value"] in known else -1
    if not 0 <= place < len(known):
        return None
    return replace(piece, filter={**piece.filter, "value": known[place]}, start=0, end=0)


def _firm(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Make likely conditions sure, because the follow-up confirms them; guesses among several fields stay guesses."""
    return tuple(
        replace(one, confidence=max(one.confidence, FILTERS_FROM)) if one.confidence > BOOSTS_FROM else one
        for one in pieces
    )
