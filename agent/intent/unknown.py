"""Values that a question names beside a field and that no document has: "the department of Geology"."""

from agent.intent import lexicon
from agent.intent.found import Found
from agent.intent.ground import candidates
from agent.intent.sentence import Sentence
from agent.types import Rejected

_BETWEEN = frozenset(["of", "is", "=", ":", "called", "named", "the"])
_MOST_WORDS = 4
_NAMED_BY_FIELD = ("label", "person")


def unknown_values(found: Found) -> tuple[Rejected, ...]:
    """What is written with capitals beside the word for a field, and is no value of it.

    Only fields whose values are all known are judged; a value of another field, a date and a word for the
    documents are what they are.
    """
    sentence = found.sentence
    taken = [(piece.start, piece.end) for piece in found.pieces] + [(one.start, one.end) for one in found.dates]
    rejected: dict[str, Rejected] = {}
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
        reason = f'"{fields[0]}" has no such value'
        rejected[name] = Rejected(what=f"{fields[0]} = {name}"[:200], reason=reason, valid=candidates(name, values))
    return tuple(rejected.values())


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
    return words


def _is_name(sentence: Sentence, place: int) -> bool:
    token = sentence.token(place)
    return (
        token is not None
        and token.kind == "word"
        and token.is_capital
        and token.folded not in lexicon.STOP_WORDS
        and sentence.mention_at(place) is None
        and not sentence.is_noun(place)
        and not sentence.cue_fields(place)
    )
