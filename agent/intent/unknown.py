"""Values that a question names beside a field and that no document has: "the department of Geology"."""

from agent.intent import lexicon
from agent.intent.found import Found
from agent.intent.model.ground import candidates
from agent.intent.rejected import RejectedValue
from agent.intent.sentence import Sentence
from retrievers.core.types import FieldValues

_BETWEEN = frozenset(["of", "is", "=", ":", "called", "named", "the"])
_BEFORE_PEOPLE = frozenset(["by", "did", "does", "has"])
_BEFORE_GROUPS = frozenset(["by", "of", "from", "in"])
_NO_NAMES = frozenset(
    "same whole entire right wrong other first last next previous own responsible new old current former".split()
)
_MOST_WORDS = 4
_NAMED_BY_FIELD = ("label", "person")


def unknown_values(found: Found) -> tuple[RejectedValue, ...]:
    """What is written with capitals beside the word for a field, and is no value of it.

    Only fields whose values are all known are judged; a value of another field, a date and a word for the
    documents are what they are.
    """
    sentence = found.sentence
    taken = [(piece.start, piece.end) for piece in found.pieces] + [(one.start, one.end) for one in found.dates]
    rejected: dict[str, RejectedValue] = {}
    for index in range(len(sentence.tokens)):
        fields, behind = sentence.cue(index)
        if len(fields) != 1 or sentence.vocabulary.roles.get(fields[0]) not in _NAMED_BY_FIELD:
            continue
        values = sentence.vocabulary.catalogue.fields[fields[0]]
        if values.distinct > len(values.values):
            continue
        words = _after(sentence, behind) or _before(sentence, index)
        start, end = (words[0], words[-1]) if words else (0, 0)
        if not words or any(
            first < sentence.tokens[end].end and sentence.tokens[start].start < last for first, last in taken
        ):
            continue
        name = sentence.text[sentence.tokens[start].start : sentence.tokens[end].end]
        rejected[name] = _no_value(fields[0], name, values)
    return tuple(rejected.values()) or _strangers(found)


def _strangers(found: Found) -> tuple[RejectedValue, ...]:
    """ "reports by [Zoe Quinn]", "what did [Zoe Quinn] write": nobody whom a document names."""
    sentence = found.sentence
    everybody = sentence.vocabulary.of_role("person")
    cued = [name for index, names in sentence.cued if not sentence.mention_at(index) for name in names]
    people = tuple(dict.fromkeys(name for name in cued if name in everybody)) or everybody
    taken = [(piece.start, piece.end) for piece in found.pieces] + [(one.start, one.end) for one in found.dates]
    fields = [sentence.vocabulary.catalogue.fields[name] for name in people]
    if not people or any(one.distinct > len(one.values) for one in fields):
        return ()
    for place in range(len(sentence.tokens) - 2):
        if sentence.folded(place) not in _BEFORE_PEOPLE:
            continue
        words: list[int] = []
        while _is_name(sentence, place + 1 + len(words)):
            words.append(place + 1 + len(words))
        if 1 < len(words) < _MOST_WORDS:
            start, end = sentence.tokens[words[0]].start, sentence.tokens[words[-1]].end
            if not any(first < end and start < last for first, last in taken):
                name = sentence.text[start:end]
                return (_no_value(people[0], name, fields[0]),)
    return ()


def _no_value(field: str, name: str, values: FieldValues) -> RejectedValue:
    reason = f'"{field}" has no such value'
    return RejectedValue(what=f"{field} = {name}"[:200], reason=reason, valid=candidates(name, values), fields=(field,))


def _after(sentence: Sentence, place: int) -> list[int]:
    """The name that follows: "department of Geology", "status: Frozen"."""
    while sentence.folded(place) in _BETWEEN:
        place += 1
    words: list[int] = []
    while _is_name(sentence, place) and len(words) < _MOST_WORDS:
        words.append(place)
        place += 1
    return words


def _before(sentence: Sentence, place: int) -> list[int]:
    """The name that leads: "the Geology department". The first word of a question has a capital anyway."""
    words: list[int] = []
    while place > 1 and _is_name(sentence, place - 1) and len(words) < _MOST_WORDS:
        place -= 1
        words.insert(0, place)
    if not words and place > 2 and _is_typed_small(sentence, place - 1):
        return [place - 1]
    return words


def _is_typed_small(sentence: Sentence, place: int) -> bool:
    """ "by the [marketing] team"."""
    named = sentence.folded(place - 1) in ("the", "our") and sentence.folded(place - 2) in _BEFORE_GROUPS
    return named and _is_name(sentence, place, small=True) and sentence.folded(place) not in _NO_NAMES


def _is_name(sentence: Sentence, place: int, *, small: bool = False) -> bool:
    token = sentence.token(place)
    return (
        token is not None
        and token.kind == "word"
        and (small or token.is_capital)
        and token.folded not in lexicon.STOP_WORDS
        and sentence.mention_at(place) is None
        and not sentence.is_noun(place)
        and not sentence.cue_fields(place)
    )
