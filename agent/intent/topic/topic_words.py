"""Find the topic of a question: the words left after removing constraints, fields and words of asking."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.language import lexicon
from agent.intent.language.calculation_patterns import (
    AT_LEAST,
    AT_MOST,
    EXACTLY,
    LEAVING_OUT,
    MERELY,
    NAMING,
    NTH,
    ORDERED,
    PERIODICAL,
    TOP_N,
)  # fmt: skip
from agent.intent.language.text import has_chinese
from agent.intent.words import word_table

# The verb of a superlative belongs to the question, not to its topic: "who has piled up the most".
_DEED = re.compile(
    r"\b\w+(?:\s+(?:up|out|in|on|off|of)){0,2}(?=\s+the\s+(?:most|fewest|least|highest\s+number)\b)|\bmost\s+often\b",
    re.IGNORECASE,
)
_OF_NUMBERS = (
    AT_LEAST, AT_MOST, EXACTLY, TOP_N, LEAVING_OUT, NTH, ORDERED, PERIODICAL, MERELY, NAMING,
)  # fmt: skip
_OPENED = re.compile(r"[\u4e00-\u9fff]{2,6}\s*[（(]\s*$")
_NO_CHINESE = re.compile(r"[^\u4e00-\u9fff]+")
_LETTERS = re.compile(r"[^\W\d_]+")


@cache
def non_topic_words(language: str, kind: str) -> frozenset[str]:
    """Return words that are no topic: "words" in any question, "of_numbers" and "deeds" where something is counted."""
    return frozenset(word_table("plain", language)[kind].split())


def topic_words(parsed: ParsedQuestion) -> list[str]:
    """Return the words that documents would contain; [] if the question has no topic.

    Constraints, words for fields, nouns for documents and question words are left out: "how many accepted PEPs about
    packaging are there" -> packaging.
    """
    sentence, taken = parsed.sentence, _used_spans(parsed)
    counts = sentence.has_calculation_word
    words = [
        token.folded
        for index, token in enumerate(sentence.tokens)
        if token.kind == "word"
        and not any(first <= token.start < last for first, last in taken)
        and _is_topic(parsed, index, counts=counts)
    ]
    if not has_chinese(sentence.text):
        return words
    text = list(sentence.text)
    for first, last in taken:
        text[first:last] = "，" * (last - first)
    cues = ["".join(cue) for cue in sentence.vocabulary.cues if cue and has_chinese(cue[0])]
    cues += [noun for noun in sentence.nouns if has_chinese(noun)]
    return words + _chinese_words("".join(text), (*cues, *non_topic_words("zh", "of_numbers")) if counts else cues)


def _used_spans(parsed: ParsedQuestion) -> list[tuple[int, int]]:
    """Return the characters [first, last) of constraints, dates, and words of amount and order."""
    sentence = parsed.sentence
    taken = [(one.start, one.end) for one in (*parsed.conditions, *parsed.length_conditions)]
    taken += [(one.start, one.end) for one in parsed.dates]
    # In "more permits than Anders Holm" the constraint stands at the first name and covers the second as well.
    meant = {(one.field, value) for one in parsed.constraints for value in one.values}
    taken += [
        (one.start, one.end)
        for one in sentence.mentions
        if any((name.field, name.value) in meant for name in one.matches)
    ]
    # The words of a calculation are no topic, even if no calculation could be made.
    for pattern in (_DEED, *_OF_NUMBERS):
        taken += [match.span() for match in pattern.finditer(sentence.text)]
    return [*taken, *_translated_spans(sentence)]


def _is_topic(parsed: ParsedQuestion, index: int, *, counts: bool) -> bool:
    """Return whether a word is about the content of documents.

    Args:
        counts: whether something is counted or compared, so that more words belong to the question.
    """
    sentence, token = parsed.sentence, parsed.sentence.tokens[index]
    # Words of asking: "3.9 or 3.10, which [release] had more", "how many did Grace Kim [inspect]".
    asks = counts and (sentence.folded(index - 1) in ("which", "what") or _is_verb_of_person(sentence, index))
    if sentence.is_in_topic(token.start) and any(one.first <= index < one.last for one in parsed.unused_mentions):
        return not asks  # "about typing" names a topic, although typing is a value
    is_plain = asks or token.folded in lexicon.STOP_WORDS or token.folded in non_topic_words("en", "words")
    if counts:
        is_plain |= token.folded in non_topic_words("en", "of_numbers") or token.stem in non_topic_words("en", "deeds")
    return not is_plain and not sentence.is_noun(index) and not sentence.cue_fields(index)


def _is_verb_of_person(sentence: Sentence, index: int) -> bool:
    """Return whether a verb after a person belongs to the person's field: "did Grace Kim [inspect]" for `inspector`."""
    maker = sentence.mention_at(index - 1)
    if maker is None or sentence.mention_at(index) is not None:
        return False
    # The field's name begins with the verb.
    verb = sentence.tokens[index].stem
    is_own = any(one.field.startswith(verb) for one in maker.matches) and len(verb) > 3
    return is_own and sentence.folded(maker.first - 1) in ("did", "does", "do", "has", "have")


def _translated_spans(sentence: Sentence) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of Chinese words followed by their translation, a value in brackets: 类型标注（Typing）."""
    for mention in sentence.mentions:
        opened = _OPENED.search(sentence.text[: mention.start])
        if opened is not None and sentence.text[mention.end :].lstrip().startswith((")", "）")):
            yield opened.start(), mention.end


def content_words(text: str) -> list[str]:
    """Return the content words of a text, judged by general word lists only."""
    words = (word for word in _LETTERS.findall(text.casefold()) if not has_chinese(word))
    kept = [word for word in words if word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS]
    return kept + _chinese_words(text)


def _chinese_words(text: str, more: Iterable[str] = ()) -> list[str]:
    """Return the runs of Chinese that remain without nouns for documents, question words and the words in `more`."""
    if not has_chinese(text):
        return []
    rest = _NO_CHINESE.sub("，", text)
    for word in sorted(
        (*lexicon.CHINESE_DOCUMENT_NOUNS, *non_topic_words("zh", "words"), *more), key=len, reverse=True
    ):
        rest = rest.replace(word, "，")
    return [run for run in rest.split("，") if run]
