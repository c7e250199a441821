"""What is left of a question when constraints, fields and the words of asking are taken away: its topic."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from agent.intent import lexicon, wording
from agent.intent.found import Found
from agent.intent.sentence import Sentence
from agent.intent.text import has_chinese
from agent.intent.words import table

# Whatever is done the most is asked of who does it: "who has piled up the most".
_DEED = re.compile(
    r"\b\w+(?:\s+(?:up|out|in|on|off|of)){0,2}(?=\s+the\s+(?:most|fewest|least|highest\s+number)\b)|\bmost\s+often\b",
    re.IGNORECASE,
)
_OPENED = re.compile(r"[\u4e00-\u9fff]{2,6}\s*[（(]\s*$")
_NO_CHINESE = re.compile(r"[^\u4e00-\u9fff]+")
_LETTERS = re.compile(r"[^\W\d_]+")


@cache
def plain_of(language: str, kind: str) -> frozenset[str]:
    """Words of a language that say nothing of what documents are about: anywhere, or where something is counted."""
    return frozenset(table("plain", language)[kind].split())


def topic_of(found: Found) -> list[str]:
    """The words that neither constrain, nor name fields or documents, nor ask: what documents would say.

    Of "how many accepted PEPs about packaging are there" that is "packaging".
    """
    sentence = found.sentence
    taken = [(one.start, one.end) for one in (*found.pieces, *found.lengths)] + [
        (one.start, one.end) for one in found.dates
    ]
    # Of "more permits than Anders Holm" the second name is part of the constraint that stands at the first.
    meant = {(one.field, value) for one in found.constraints for value in one.values}
    taken += [
        (one.start, one.end)
        for one in sentence.mentions
        if any((name.field, name.value) in meant for name in one.known)
    ]
    taken += [match.span() for match in _DEED.finditer(sentence.text)]
    # What is not made of these is told by the numbers in them.
    for pattern in (wording.AT_LEAST, wording.AT_MOST, wording.EXACTLY, wording.TOP_N, wording.LEAVING_OUT):
        taken += [match.span() for match in pattern.finditer(sentence.text)]
    for pattern in (wording.NTH, wording.ORDERED, wording.PERIODICAL, wording.MERELY, wording.NAMING):
        taken += [match.span() for match in pattern.finditer(sentence.text)]
    taken += list(_explained(sentence))
    counts = wording.is_calculating(sentence.text) or _asks_for_an_end(sentence)
    words = []
    for index, token in enumerate(sentence.tokens):
        if token.kind != "word" or any(first <= token.start < last for first, last in taken):
            continue
        is_plain = token.folded in lexicon.STOP_WORDS or token.folded in plain_of("en", "words")
        # "3.9 or 3.10, which [release] had more", "how many did Grace Kim [inspect]"
        asks = index > 0 and (sentence.folded(index - 1) in ("which", "what") or _is_deed_of(sentence, index))
        is_plain = (
            is_plain
            or (counts and asks)
            or (counts and (token.folded in plain_of("en", "of_numbers") or token.stem in plain_of("en", "deeds")))
        )
        # "about typing" names a topic, although types are a field.
        is_subject = sentence.in_about(token.start) and (
            any(one.first <= index < one.last for one in found.left) or _is_counted_subject(sentence, index)
        )
        if (is_subject and not (counts and asks)) or (
            not is_plain and not sentence.is_noun(index) and not sentence.cue_fields(index)
        ):
            words.append(token.folded)
    text = list(sentence.text)
    for first, last in taken:
        text[first:last] = "，" * (last - first)
    cues = ["".join(cue) for cue in sentence.vocabulary.cues if cue and has_chinese(cue[0])]
    cues += [noun for noun in sentence.nouns if has_chinese(noun)]
    if wording.HOW_MANY_ZH.search(sentence.text):
        cues = [cue for cue in cues if not re.search(rf"(?:关于|有关|涉及){re.escape(cue)}", sentence.text)]
    return words + _chinese_words("".join(text), (*cues, *plain_of("zh", "of_numbers")) if counts else cues)


def _is_counted_subject(sentence: Sentence, index: int) -> bool:
    """ "how many reports [about costs]" counts those, although they have a field of costs."""
    about = sentence.folded(index - 1) in ("about", "regarding", "concerning")
    return about and bool(sentence.cue_fields(index)) and wording.HOW_MANY.search(sentence.text) is not None


def _asks_for_an_end(sentence: Sentence) -> bool:
    """ "what is the newest report that is already final", 最近一个被拒绝的提案是哪个."""
    ends = (wording.NEWEST, wording.OLDEST, wording.LARGEST, wording.SMALLEST)
    return wording.WHICH_DOCUMENT.search(sentence.text) is not None and any(one.search(sentence.text) for one in ends)


def _is_deed_of(sentence: Sentence, index: int) -> bool:
    """Whether a verb says what somebody did: the documents that somebody has to do with are those of the person."""
    maker = sentence.mention_at(index - 1)
    if maker is None or sentence.mention_at(index) is not None:
        return False
    # The inspector is who inspects.
    verb = sentence.tokens[index].stem
    is_own = any(one.field.startswith(verb) for one in maker.known) and len(verb) > 3
    return is_own and sentence.folded(maker.first - 1) in ("did", "does", "do", "has", "have")


def _explained(sentence: Sentence) -> Iterator[tuple[int, int]]:
    """类型标注（Typing）: a Chinese word for the value that stands in brackets behind it."""
    for mention in sentence.mentions:
        opened = _OPENED.search(sentence.text[: mention.start])
        if opened is not None and sentence.text[mention.end :].lstrip().startswith((")", "）")):
            yield opened.start(), mention.end


def plain_words(text: str) -> list[str]:
    """The words of a text that carry meaning, by general lists alone."""
    words = (word for word in _LETTERS.findall(text.casefold()) if not has_chinese(word))
    kept = [word for word in words if word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS]
    return kept + _chinese_words(text)


def _chinese_words(text: str, more: Iterable[str] = ()) -> list[str]:
    """What is left of a text's Chinese without words for documents, plain words and those given."""
    if not has_chinese(text):
        return []
    rest = _NO_CHINESE.sub("，", text)
    for word in sorted((*lexicon.CHINESE_DOCUMENT_NOUNS, *plain_of("zh", "words"), *more), key=len, reverse=True):
        rest = rest.replace(word, "，")
    return [run for run in rest.split("，") if run]
