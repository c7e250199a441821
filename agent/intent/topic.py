"""Find the topic of a question: the words left after removing constraints, fields and words of asking."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from agent.intent import lexicon, wording
from agent.intent.found import Found
from agent.intent.sentence import Sentence
from agent.intent.text import has_chinese
from agent.intent.words import table

# The verb of a superlative belongs to the question, not to its topic: "who has piled up the most".
_DEED = re.compile(
    r"\b\w+(?:\s+(?:up|out|in|on|off|of)){0,2}(?=\s+the\s+(?:most|fewest|least|highest\s+number)\b)|\bmost\s+often\b",
    re.IGNORECASE,
)
_OF_NUMBERS = (
    wording.AT_LEAST, wording.AT_MOST, wording.EXACTLY, wording.TOP_N, wording.LEAVING_OUT, wording.NTH,
    wording.ORDERED, wording.PERIODICAL, wording.MERELY, wording.NAMING,
)  # fmt: skip
_OPENED = re.compile(r"[\u4e00-\u9fff]{2,6}\s*[（(]\s*$")
_NO_CHINESE = re.compile(r"[^\u4e00-\u9fff]+")
_LETTERS = re.compile(r"[^\W\d_]+")


@cache
def plain_of(language: str, kind: str) -> frozenset[str]:
    """Return words that are no topic: "words" in any question, "of_numbers" and "deeds" where something is counted."""
    return frozenset(table("plain", language)[kind].split())


def topic_of(found: Found) -> list[str]:
    """Return the words that documents would contain; [] if the question has no topic.

    Constraints, words for fields, nouns for documents and question words are left out: "how many accepted PEPs about
    packaging are there" -> packaging.
    """
    sentence, taken = found.sentence, _taken(found)
    counts = sentence.calculates
    words = [
        token.folded
        for index, token in enumerate(sentence.tokens)
        if token.kind == "word"
        and not any(first <= token.start < last for first, last in taken)
        and _is_topic(found, index, counts=counts)
    ]
    if not has_chinese(sentence.text):
        return words
    text = list(sentence.text)
    for first, last in taken:
        text[first:last] = "，" * (last - first)
    cues = ["".join(cue) for cue in sentence.vocabulary.cues if cue and has_chinese(cue[0])]
    cues += [noun for noun in sentence.nouns if has_chinese(noun)]
    return words + _chinese_words("".join(text), (*cues, *plain_of("zh", "of_numbers")) if counts else cues)


def _taken(found: Found) -> list[tuple[int, int]]:
    """Return the characters [first, last) of constraints, dates, and words of amount and order."""
    sentence = found.sentence
    taken = [(one.start, one.end) for one in (*found.pieces, *found.lengths)]
    taken += [(one.start, one.end) for one in found.dates]
    # In "more permits than Anders Holm" the constraint stands at the first name and covers the second as well.
    meant = {(one.field, value) for one in found.constraints for value in one.values}
    taken += [
        (one.start, one.end)
        for one in sentence.mentions
        if any((name.field, name.value) in meant for name in one.known)
    ]
    # The words of a calculation are no topic, even if no calculation could be made.
    for pattern in (_DEED, *_OF_NUMBERS):
        taken += [match.span() for match in pattern.finditer(sentence.text)]
    return [*taken, *_explained(sentence)]


def _is_topic(found: Found, index: int, *, counts: bool) -> bool:
    """Return whether a word is about the content of documents.

    Args:
        counts: whether something is counted or compared, so that more words belong to the question.
    """
    sentence, token = found.sentence, found.sentence.tokens[index]
    # Words of asking: "3.9 or 3.10, which [release] had more", "how many did Grace Kim [inspect]".
    asks = counts and (sentence.folded(index - 1) in ("which", "what") or _is_deed_of(sentence, index))
    if sentence.in_about(token.start) and any(one.first <= index < one.last for one in found.left):
        return not asks  # "about typing" names a topic, although typing is a value
    is_plain = asks or token.folded in lexicon.STOP_WORDS or token.folded in plain_of("en", "words")
    if counts:
        is_plain |= token.folded in plain_of("en", "of_numbers") or token.stem in plain_of("en", "deeds")
    return not is_plain and not sentence.is_noun(index) and not sentence.cue_fields(index)


def _is_deed_of(sentence: Sentence, index: int) -> bool:
    """Return whether a verb after a person belongs to the person's field: "did Grace Kim [inspect]" for `inspector`."""
    maker = sentence.mention_at(index - 1)
    if maker is None or sentence.mention_at(index) is not None:
        return False
    # The field's name begins with the verb.
    verb = sentence.tokens[index].stem
    is_own = any(one.field.startswith(verb) for one in maker.known) and len(verb) > 3
    return is_own and sentence.folded(maker.first - 1) in ("did", "does", "do", "has", "have")


def _explained(sentence: Sentence) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of Chinese words followed by their translation, a value in brackets: 类型标注（Typing）."""
    for mention in sentence.mentions:
        opened = _OPENED.search(sentence.text[: mention.start])
        if opened is not None and sentence.text[mention.end :].lstrip().startswith((")", "）")):
            yield opened.start(), mention.end


def plain_words(text: str) -> list[str]:
    """Return the content words of a text, judged by general word lists only."""
    words = (word for word in _LETTERS.findall(text.casefold()) if not has_chinese(word))
    kept = [word for word in words if word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS]
    return kept + _chinese_words(text)


def _chinese_words(text: str, more: Iterable[str] = ()) -> list[str]:
    """Return the runs of Chinese that remain without nouns for documents, question words and the words in `more`."""
    if not has_chinese(text):
        return []
    rest = _NO_CHINESE.sub("，", text)
    for word in sorted((*lexicon.CHINESE_DOCUMENT_NOUNS, *plain_of("zh", "words"), *more), key=len, reverse=True):
        rest = rest.replace(word, "，")
    return [run for run in rest.split("，") if run]
