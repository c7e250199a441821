"""Resolve words of a follow-up that point back: "she", "it", "the latest one", 同一个作者 ("the same author")."""

import re
from collections.abc import Sequence

from agent.intent.conditions.document_numbers import document_number_nouns, is_key_field
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.reading import FILTERS_FROM

PERSON = re.compile(
    r"\b(?:he|she|him|her|his|hers|they|them|their)\b|(?<!其)他(?!们的?答)|她|这位|那位|本人|此人", re.IGNORECASE
)
OF_MANY = re.compile(r"\b(?:they|them|their)\b", re.IGNORECASE)
THING = re.compile(
    r"\b(?:it|its|that|this|that\s+one|this\s+one|"
    r"the\s+(?:first|second|last|latest|newest|oldest|former|latter)(?:\s+one)?|they|them|these|those|there)\b|"
    r"它|该|这个|那个|这份|那份|这篇|那篇|前者|后者|上述|其(?!中|他|实)|此",
    re.IGNORECASE,
)
_NEWEST = re.compile(r"\b(?:latest|newest|last|most\s+recent|second|latter)\b|最新|最后|后者|最近", re.IGNORECASE)
_OLDEST = re.compile(r"\b(?:first|oldest|earliest|former)\b|最早|第一|前者", re.IGNORECASE)
_ID = re.compile(r"\b[a-z][a-z0-9]*(?:-[a-z0-9]+)*-\d[\w-]*\b")
IT = re.compile(r"\b(?:it|its)\b|它|该(?:提案|文档|文件|方案)", re.IGNORECASE)
_WHO_OR_WHEN = re.compile(r"\b(?:who|when)\b|谁|什么时候|何时", re.IGNORECASE)
THE_SAME = re.compile(
    r"\bthe\s+same\s+|\bsame\s+|\bthat\s+same\s+|同一(?:个|位|名|家|款|类|份)?|相同的?", re.IGNORECASE
)


def last_named_value(parsed: ParsedQuestion, fields: Sequence[str]) -> StatedCondition | None:
    """Return a condition on the last unambiguous value of `fields` that a turn names; None if the turn names none."""
    for mention in reversed(parsed.sentence.mentions):
        known = mention.matches_in(*fields)
        if len({one.value for one in known}) == 1:
            return _equal(next(name for name in fields if mention.matches_in(name)), known[0].value)
    return None


def in_asked_field(person: StatedCondition, parsed: ParsedQuestion, people: Sequence[str]) -> StatedCondition:
    """Return the condition on a person, moved to the field that the turn asks about: "what did she sponsor".

    If the turn asks about none of the fields, the condition is returned unchanged.

    Args:
        people: all fields of people.
    """
    cued: list[str] = []
    for index in range(len(parsed.sentence.tokens)):
        names = [name for name in parsed.sentence.cue_fields(index) if name in people]
        # A word that points at several fields of people does not say which.
        cued += names if len(names) == 1 else []
    return _equal(cued[-1], person.filter["value"]) if cued else person


def _equal(field: str, value: str | int) -> StatedCondition:
    return StatedCondition(field, {"type": "eq", "key": field, "value": value}, 0, 0, FILTERS_FROM)


def resolve_document(
    parsed: ParsedQuestion, previous: ParsedQuestion, said: ParsedQuestion, answered: str
) -> StatedCondition | None:
    """Return a condition on the number or id of the document that "it" or "the latest one" means; None if unclear.

    A single document is clear. Of several, the turn must choose the first ("the oldest") or the last ("the latest").

    Args:
        parsed: the follow-up with "it".
        previous: the question before it.
        said: the answer to that question; the question itself if there is no answer.
        answered: the text of that answer, "" if there is none.
    """
    text = parsed.sentence.text
    is_last, chooses = _NEWEST.search(text), _NEWEST.search(text) or _OLDEST.search(text)
    numbers_of = parsed.sentence.vocabulary.of_role("number")
    key = next((name for name in numbers_of if is_key_field(parsed.sentence.vocabulary, name)), None)
    if key is None:
        ids = list(dict.fromkeys(_ID.findall(answered)))
        return _equal("id", ids[-1] if is_last else ids[0]) if len(ids) == 1 or (ids and chooses) else None
    for turn in (said, previous):
        numbers = _numbers(turn, key)
        if len(numbers) == 1 or (numbers and chooses):
            return _equal(key, numbers[-1] if is_last else numbers[0])
    return None


def _numbers(turn: ParsedQuestion, key: str) -> list[int]:
    """Return the different document numbers in a turn ("PEP 703"), in order; `key` is the field that has them."""
    nouns = document_number_nouns(turn.sentence, key)
    values = turn.sentence.vocabulary.catalogue.fields[key]
    numbers: list[int] = []
    for index, token in enumerate(turn.sentence.tokens):
        if token.kind == "number" and turn.sentence.folded(index - 1) in nouns and token.folded.isdigit():
            number = int(token.folded)
            if (
                isinstance(values.low, int | float)
                and isinstance(values.high, int | float)
                and values.low <= number <= values.high
            ):
                numbers.append(number)
    return list(dict.fromkeys(numbers))


def asks_for_field(parsed: ParsedQuestion) -> bool:
    """Return whether a turn seems to ask for the value of a field: "who sponsored it".

    It contains a word that points at a field ("sponsored"), or "who" or "when", in English or Chinese.
    """
    sentence = parsed.sentence
    cued = any(sentence.cue_fields(index) for index in range(len(sentence.tokens)))
    return cued or _WHO_OR_WHEN.search(sentence.text) is not None
