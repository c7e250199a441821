"""Follow-ups: what a turn takes over from the ones before it.

"only the ones from this year" narrows the question before; "and who sponsored it?" asks about a document
of the answer; 那 2021 年的呢？ asks the same of another year.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.intent import lexicon
from agent.intent.calculations import find_calculation
from agent.intent.constraints import Constraint
from agent.intent.filters import Json, of_constraint
from agent.intent.found import Found, Piece
from agent.intent.quantities import is_key, number_nouns
from agent.intent.topic import topic_of
from agent.types import Message

_REFINES = re.compile(
    r"\b(?:only|just|those|the\s+ones|these|of\s+them|among\s+(?:them|those|these)|narrow|restrict|limit|exclude|excluding|leave\s+out|drop|remove|without|except|filter)\b|"
    r"去掉|排除|只要|只看|只保留|仅|其中|除了|不要|剔除|筛|里面",
    re.IGNORECASE,
)
_SAME = re.compile(
    r"^\W*(?:and|but|so|or|then|ok(?:ay)?)?\W*(?:what|how)\s+about\b|\b(?:make|change|switch)\s+(?:that|it|this)\b|\bsame\s+(?:for|thing|question|with|again)\b|^\W*and\s+(?:for|in|from|by|on|the|those)\b|^\W*and\s+[\w'’-]+(?:\s+[\w'’-]+)?\s*\?\W*$|"
    r"^\W*(?:那|那么|还有|换成|改成|同样)|呢\W*$",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"^\W*(?:and|but|so|then|also|plus|or|ok(?:ay)?|那|那么|还有|再|另外|后来|以及|最后这)", re.IGNORECASE
)
_PERSON = re.compile(
    r"\b(?:he|she|him|her|his|hers|they|them|their)\b|(?<!其)他(?!们的?答)|她|这位|那位|本人|此人", re.IGNORECASE
)
_THING = re.compile(
    r"\b(?:it|its|that|this|that\s+one|this\s+one|the\s+(?:first|second|last|latest|newest|oldest|former|latter)(?:\s+one)?|they|them|these|those|there)\b|"
    r"它|该|这个|那个|这份|那份|这篇|那篇|前者|后者|上述|其(?!中|他|实)|此",
    re.IGNORECASE,
)
_NEXT_VERSION = re.compile(r"\b(?:next|following|after)\b|下一|之后的?版本|后一", re.IGNORECASE)
_PREVIOUS_VERSION = re.compile(r"\b(?:previous|before|prior)\b|上一|之前的?版本|前一", re.IGNORECASE)
_NEWEST = re.compile(r"\b(?:latest|newest|last|most\s+recent|second|latter)\b|最新|最后|后者|最近", re.IGNORECASE)
_OLDEST = re.compile(r"\b(?:first|oldest|earliest|former)\b|最早|第一|前者", re.IGNORECASE)
_SAME_PERIOD = re.compile(r"same\s+(?:period|quarter|time|months?)|同期|同一?(?:时期|季度|时间)", re.IGNORECASE)
_EARLIER = re.compile(
    r"\b(?:earlier|older|before\s+(?:that|it)|previous|predecessor)\b|更早|之前|此前|早先", re.IGNORECASE
)
_LATER = re.compile(
    r"\b(?:later|newer|after\s+(?:that|it)|successor|since\s+then)\b|更晚|之后|后来|此后", re.IGNORECASE
)
_ID = re.compile(r"\b[a-z][a-z0-9]*(?:-[a-z0-9]+)*-\d[\w-]*\b")
_AMONG = re.compile(r"\bof\s+(?:them|those|these)\b|其中|这些(?:里|中)", re.IGNORECASE)
_SAYS = re.compile(
    r"\b(?:does|did)\s+it\s+(?:say|mention|cover|explain|support|allow|define|describe|list)\b|\bwhat\s+does\s+it\s+say\b|它(?:里面)?(?:说|提到|讲|有没有|支持)",
    re.IGNORECASE,
)
_SHORT_WORDS = 12
_SHORT_CHARACTERS = 24
_LONGEST_CONTEXT = 240

Finder = Callable[[str], Found]


@dataclass(frozen=True, slots=True)
class Carried:
    """A follow-up with what it takes over.

    Attributes:
        pieces: the constraints of the turn together with those taken over.
        context: words of the turns before that a search needs.
        before: the question that it leans on.
        lists: the turn narrows a list, or asks the same of other values.
        again: it asks the same.
    """

    found: Found
    before: Found
    pieces: tuple[Piece, ...]
    context: str
    lists: bool
    again: bool = False


def carry(found: Found, history: Sequence[Message], find: Finder) -> Carried | None:
    """What a turn takes over from the conversation; None when it stands for itself.

    Args:
        find: reads one turn as the present one was read.
    """
    asked = next((turn.content for turn in reversed(history) if turn.role == "user" and turn.content.strip()), "")
    answered = next((turn.content for turn in reversed(history) if turn.role == "assistant"), "")
    text = found.sentence.text
    if not asked or not leans(found):
        return None
    before = find(asked[:2000])
    said = find(answered[:2000]) if answered else before
    context = _context(before, answered)
    refines, same = _REFINES.search(text), _SAME.search(text)
    if refines or same:
        # After a list a bare value is a constraint: "the rejected ones", 那护士用的呢.
        found = _with_bare_values(found)
    version = _version_shift(found, before, said)
    if version is not None:
        return Carried(found, before, _overridden(before.pieces, (*found.pieces, version)), context, lists=True)
    if _SAME_PERIOD.search(text) and found.dates:
        return Carried(found, before, _overridden(before.pieces, _same_period(found, before)), context, lists=True)
    if (refines and found.pieces) or (same and (found.pieces or before.pieces)):
        pieces = _overridden(before.pieces, found.pieces)
        return Carried(found, before, pieces, context, lists=True, again=same is not None)
    if _AMONG.search(text) and not found.pieces and not topic_of(found) and find_calculation(found) is not None:
        return Carried(found, before, before.pieces, context, lists=True)
    if _LEADS.search(text) and found.pieces and not topic_of(found) and before.pieces:
        return Carried(found, before, _overridden(before.pieces, found.pieces), context, lists=True)
    people = found.sentence.vocabulary.of_role("person")
    if _PERSON.search(text) and people and not any(piece.field in people for piece in found.pieces):
        person = _last_person(said, people) or _last_person(before, people)
        if person is not None:
            person = _as_asked(person, found, people)
            return Carried(found, before, (person, *found.pieces), "", lists=not topic_of(found))
    document = _document(found, before, said, answered) if _THING.search(text) else None
    if document is not None and _SAYS.search(text):
        return Carried(found, before, (document,), "", lists=False)
    if document is not None and not topic_of(found) and _asks_field(found):
        return Carried(found, before, (document,), context, lists=False)
    if find_calculation(found) is not None and not found.pieces and not topic_of(found):
        return Carried(found, before, before.pieces, context, lists=True)
    bound = _before_or_after(found, said, before)
    return Carried(found, before, (*found.pieces, *bound), context, lists=False)


_EXCLUDES = re.compile(
    r"\b(?:exclude|excluding|leave\s+out|drop|remove|without|except|not)\b|去掉|排除|除了|不要|剔除", re.IGNORECASE
)


def _with_bare_values(found: Found) -> Found:
    """The turn with the values it names and does nothing else with as constraints."""
    roles = found.sentence.vocabulary.roles
    negated = _EXCLUDES.search(found.sentence.text) is not None
    fields = found.sentence.vocabulary.catalogue.fields
    stated = {piece.field for piece in found.pieces}
    more = []
    for mention in found.left:
        known = [
            one for one in mention.known if roles[one.field] in ("label", "tag", "language") and one.field not in stated
        ]
        if known:
            one = Constraint(
                known[0].field, (known[0].value,), mention.start, mention.end, negated=negated, confidence=0.8
            )
            more.append(Piece(one.field, of_constraint(one, fields), one.start, one.end, one.confidence))
    for name in found.sentence.vocabulary.of_role("boolean"):
        words = [*lexicon.name_words(name), *lexicon.bilingual().get(" ".join(lexicon.name_words(name)), ())]
        if name not in stated and any(
            word in found.sentence.text.casefold() for word in words if len(word) > 1 and word not in ("is", "has")
        ):
            more.append(Piece(name, {"type": "eq", "key": name, "value": not negated}, 0, 0, 0.8))
    return replace(found, pieces=(*found.pieces, *more)) if more else found


def leans(found: Found) -> bool:
    """Whether a turn makes sense only after the ones before: short, or with words that point back."""
    text = found.sentence.text
    words = sum(token.kind in ("word", "number") for token in found.sentence.tokens)
    characters = sum(token.kind == "cjk" for token in found.sentence.tokens)
    short = words <= _SHORT_WORDS and characters <= _SHORT_CHARACTERS
    points = any(pattern.search(text) for pattern in (_PERSON, _THING, _LEADS, _SAME, _REFINES))
    return short and (points or len(topic_of(found)) <= 3)


def _context(before: Found, answered: str) -> str:
    """What the conversation is about: the words of the question before, or of its answer when it only named something."""
    rest = before.rest
    if topic_of(before):
        return rest[:_LONGEST_CONTEXT]
    return f"{rest} {answered}".strip()[:_LONGEST_CONTEXT]


def _overridden(before: Sequence[Piece], now: Sequence[Piece]) -> tuple[Piece, ...]:
    """Constraints taken over, but for fields that are stated anew; what is excluded now stays beside."""
    stated = {piece.field for piece in now if not _excludes(piece.filter)}
    return (*(piece for piece in before if piece.field not in stated), *now)


def _excludes(filter: Json) -> bool:
    return filter["type"] in ("ne", "nin", "not")


def _last_person(found: Found, fields: Sequence[str]) -> Piece | None:
    for mention in reversed(found.sentence.mentions):
        known = mention.of(*fields)
        if known and len({one.value for one in known}) == 1:
            name = next((name for name in fields if mention.of(name)), fields[0])
            return Piece(name, {"type": "eq", "key": name, "value": known[0].value}, 0, 0, 0.8)
    return None


def _as_asked(person: Piece, found: Found, people: Sequence[str]) -> Piece:
    """The person in the field that the turn asks about: "what did she sponsor"."""
    cued = [
        name
        for index in range(len(found.sentence.tokens))
        for name in found.sentence.cue_fields(index)
        if name in people and len([one for one in found.sentence.cue_fields(index) if one in people]) == 1
    ]
    if not cued or cued[-1] == person.field:
        return person
    return Piece(cued[-1], {**person.filter, "key": cued[-1]}, 0, 0, person.confidence)


def _document(found: Found, before: Found, said: Found, answered: str) -> Piece | None:
    """The document that "it" or "the latest one" means: one that the answer names."""
    vocabulary = found.sentence.vocabulary
    text = found.sentence.text
    key = next((name for name in vocabulary.of_role("number") if is_key(found.sentence, name)), None)
    if key is not None:
        for turn in (said, before):
            numbers = _numbers(turn, key)
            if numbers:
                chosen = numbers[-1] if _NEWEST.search(text) else numbers[0]
                if len(numbers) == 1 or _NEWEST.search(text) or _OLDEST.search(text):
                    return Piece(key, {"type": "eq", "key": key, "value": chosen}, 0, 0, 0.8)
        return None
    ids = list(dict.fromkeys(_ID.findall(answered)))
    if len(ids) == 1 or (ids and (_NEWEST.search(text) or _OLDEST.search(text))):
        chosen_id = ids[-1] if _NEWEST.search(text) else ids[0]
        return Piece("id", {"type": "eq", "key": "id", "value": chosen_id}, 0, 0, 0.8)
    return None


def _numbers(turn: Found, key: str) -> list[int]:
    """The documents that a turn names by their numbers, in its order."""
    nouns = number_nouns(turn.sentence, key)
    values = turn.sentence.vocabulary.catalogue.fields[key]
    found: list[int] = []
    for index, token in enumerate(turn.sentence.tokens):
        if token.kind == "number" and turn.sentence.folded(index - 1) in nouns and token.folded.isdigit():
            number = int(token.folded)
            if (
                isinstance(values.low, int | float)
                and isinstance(values.high, int | float)
                and values.low <= number <= values.high
            ):
                found.append(number)
    return list(dict.fromkeys(found))


def _asks_field(found: Found) -> bool:
    sentence = found.sentence
    cued = any(sentence.cue_fields(index) for index in range(len(sentence.tokens)))
    return cued or re.search(r"\b(?:who|when)\b|谁|什么时候|何时", sentence.text, re.IGNORECASE) is not None


def _version_shift(found: Found, before: Found, said: Found) -> Piece | None:
    """ "the version after that": the neighbour, among those there are, of the one spoken of."""
    text = found.sentence.text
    later, earlier = _NEXT_VERSION.search(text), _PREVIOUS_VERSION.search(text)
    named = re.search(r"\bversion\b|\brelease\b|版本|下一(?:个)?版|上一(?:个)?版", text, re.IGNORECASE)
    vocabulary = found.sentence.vocabulary
    if not named or not (later or earlier):
        return None
    for name in vocabulary.of_role("version"):
        spoken = [
            one.value for turn in (before, said) for mention in turn.sentence.mentions for one in mention.of(name)
        ]
        ordered = sorted(vocabulary.catalogue.fields[name].values, key=_numeric)
        if spoken and spoken[0] in ordered:
            place = ordered.index(spoken[0]) + (1 if later else -1)
            if 0 <= place < len(ordered):
                return Piece(name, {"type": "eq", "key": name, "value": ordered[place]}, 0, 0, 0.8)
    return None


def _numeric(value: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", value))


def _same_period(found: Found, before: Found) -> tuple[Piece, ...]:
    """The range of the question before, in the year that is named now."""
    then = next((one.period for one in before.dates if one.period.low), None)
    year = next((one.period.low.year for one in found.dates if one.period.low), None)
    piece = next((piece for piece in before.pieces if piece.field in found.sentence.vocabulary.of_role("date")), None)
    if then is None or year is None or piece is None or then.low is None:
        return found.pieces
    moved = _moved(piece.filter, year - then.low.year)
    return (replace(piece, filter=moved, start=0, end=0), *(one for one in found.pieces if one.field != piece.field))


def _moved(filter: Any, years: int) -> Json:
    if "filters" in filter:
        return {**filter, "filters": [_moved(one, years) for one in filter["filters"]]}
    value = str(filter["value"])
    return {**filter, "value": f"{int(value[:4]) + years:04d}{value[4:]}"}


def _before_or_after(found: Found, said: Found, before: Found) -> tuple[Piece, ...]:
    """ "an earlier try": before the day that the answer names."""
    text = found.sentence.text
    days = [one for one in said.dates if one.period.is_bounded and (one.period.high - one.period.low).days == 1]  # type: ignore[operator]
    fields = found.sentence.vocabulary.of_role("date")
    if len(days) != 1 or not fields or found.dates or not found.constraints:
        return ()
    name, low, high = fields[0], days[0].period.low, days[0].period.high
    assert low is not None
    assert high is not None
    if _EARLIER.search(text):
        return (Piece(name, {"type": "lt", "key": name, "value": low.isoformat()}, 0, 0, 0.7),)
    if _LATER.search(text):
        return (Piece(name, {"type": "gte", "key": name, "value": high.isoformat()}, 0, 0, 0.7),)
    return ()


def stripped(text: str) -> str:
    """A turn without the words that only point back, for a search."""
    plain = _PERSON.sub(" ", text)
    plain = re.sub(
        r"^\W*(?:and|but|so|then|also|what\s+about|how\s+about|那么?|还有)(?![a-z])", " ", plain, flags=re.IGNORECASE
    )
    words = [word for word in plain.split() if word.casefold().strip("?.,!") not in lexicon.STOP_WORDS]
    return " ".join(words) or text
