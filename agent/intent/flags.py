"""Fields that are true or false, named as a property of documents: "public documents", "with parking", 不公开的文档."""

import re
from collections.abc import Iterator, Mapping

from agent.intent import lexicon
from agent.intent.catalogue import Known, truth_of
from agent.intent.deciding import Constraint
from agent.intent.linking import Mention
from agent.intent.negation import is_denied_mention
from agent.intent.sentence import ENDS, Sentence
from agent.intent.text import has_chinese
from agent.intent.words import ordinary, table

_CONFIDENCE = 0.92
_SHORTEST = 3
"""Letters of a field's word that a word of a question may go on from: `obs`, obsolete."""
_DENIED_ZH = re.compile(r"(?:不对外\s*|没有被?|没被?|尚未|未被?|非|不|无)$")
_OF_ONE = re.compile(r"(?:\b(?:it|he|she|they|i|you|we)|(?:^|[,;])\s*(?:this|that|these|those))\s+$", re.IGNORECASE)


def read_flags(sentence: Sentence) -> list[Constraint]:
    """The fields that a question asks to be true, or not to be."""
    found = []
    for name, truth in _truths(sentence).items():
        made = next(_stated(sentence, name, truth), None)
        if made is not None:
            found.append(made)
    return found


def _truths(sentence: Sentence) -> dict[str, Mapping[bool, str]]:
    """What stands for true and for false, by field; only of fields that hold both."""
    fields = sentence.vocabulary.catalogue.fields
    found: dict[str, Mapping[bool, str]] = {}
    for name, values in fields.items():
        if sentence.vocabulary.roles[name] == "boolean":
            if values.distinct > 1:
                found[name] = {True: "true", False: "false"}
        elif (truth := truth_of(values)) is not None:
            found[name] = truth
    return found


def _stated(sentence: Sentence, name: str, truth: Mapping[bool, str]) -> Iterator[Constraint]:
    for first, last in (*_latin(sentence, name), *_chinese(sentence, name)):
        start, end = sentence.tokens[first].start, sentence.tokens[last - 1].end
        if sentence.in_about(start) or any(low < end and start < high for low, high in sentence.taken):
            continue
        mention = Mention(first, last, start, end, (Known(name, truth[True], "flag"),))
        failed = _failed_at(sentence, name, first)
        negated = failed is not None or is_denied_mention(sentence, mention)
        prefixed = sentence.tokens[first].folded.startswith(_OPPOSITE) and not _own_words(name)[0].startswith(_OPPOSITE)
        if not (negated or prefixed or _is_property(sentence, mention)) or _OF_ONE.match(sentence.text):
            continue
        said = prefixed or _DENIED_ZH.search(sentence.text[:start])
        if negated is None:
            continue
        value = truth[not (negated or said)]
        lead = start
        if isinstance(said, re.Match):
            lead = said.start()
        elif failed is not None:
            lead = sentence.tokens[failed].start
        elif negated:
            place = first - 1
            while place >= 0 and sentence.folded(place) in _DENYING | {"-", "been", "be", "a", "an", "any"}:
                lead, place = sentence.tokens[place].start, place - 1
        yield Constraint(name, (value,), lead, end, confidence=_CONFIDENCE)


_OPPOSITE = ("un", "non")
"""What makes a word of English its opposite: "unanswered"."""
_DENYING = frozenset("not non no without never".split())


def _own_words(name: str) -> list[str]:
    """The words of a field's name without those that only say that it is true or false."""
    plain = frozenset(table("link", "en")["truth"]["plain"].split())
    return [word for word in lexicon.name_words(name) if word not in plain and not has_chinese(word)]


def _latin(sentence: Sentence, name: str) -> Iterator[tuple[int, int]]:
    """Places of the field's words, each as it is or as the beginning of a longer one."""
    words = _own_words(name)
    if not words:
        return
    for first in range(len(sentence.tokens)):
        place, left = first, list(words)
        while left and place < len(sentence.tokens) and _is_word(sentence.folded(place), left[0], len(words)):
            left.pop(0)
            place += 1
            if left and sentence.folded(place) == "-":
                place += 1
        if not left:
            yield first, place


def _is_word(said: str, word: str, count: int) -> bool:
    if said in (word, f"{word}s", *(f"{opposite}{word}" for opposite in _OPPOSITE)):
        return True
    is_cut = len(word) >= _SHORTEST and said.startswith(word) and len(said) > len(word) + 1
    return is_cut and (count > 1 or ordinary().get(word, 0) == 0 or said[len(word) :] in ("ed", "ing", "al", "able"))


def _chinese(sentence: Sentence, name: str) -> Iterator[tuple[int, int]]:
    """Places of Chinese words for the whole name."""
    own = " ".join(_own_words(name))
    plain = table("link", "zh")["truth"]["plain"].split()
    whole = set(lexicon.bilingual().get(own, ()))
    whole |= {name.removeprefix(word) for word in ("", *plain) if has_chinese(name)}
    for index, token in enumerate(sentence.tokens):
        if token.kind != "cjk":
            continue
        for word in sorted(whole, key=len, reverse=True):
            if has_chinese(word) and sentence.text.startswith(word, token.start):
                yield index, index + len(word)
        fields, behind = sentence.cue(index)
        if name in fields and " " not in own and behind - index > 1:
            yield index, behind


def _failed_at(sentence: Sentence, name: str, first: int) -> int | None:
    """The place of what makes "a [missed] SLA" of a field `sla_ok`; None where nothing does."""
    failing = frozenset(table("link", "en")["truth"]["failing"].split())
    if {"ok", "met", "kept"}.isdisjoint(lexicon.name_words(name)):
        return None
    return next((place for place in range(max(first - 3, 0), first) if sentence.tokens[place].stem in failing), None)


def _is_property(sentence: Sentence, mention: Mention) -> bool:
    """Whether the words stand before documents that they describe, or are said of documents."""
    first, last = mention.first, mention.last
    before, following = sentence.folded(first - 1), sentence.token(last)
    while before in ("a", "an", "any", "been", "not", "never", "t", "'", "’"):
        first -= 1
        before = sentence.folded(first - 1)
    if before in ("with", "without", "no", "non", "has", "have", "having") or sentence.folded(mention.first - 1) == "-":
        return not _OF_ONE.search(sentence.text[: sentence.tokens[first - 1].start])
    if has_chinese(sentence.text[mention.start : mention.end]):
        return _is_property_zh(sentence, mention)
    being = before in ("is", "are", "was", "were", "be", "get", "got", "s", *lexicon.AUXILIARIES) or before == "so"
    if being and not sentence.is_noun(last):
        of_one = _OF_ONE.search(sentence.text[: sentence.tokens[first - 1].start])
        return of_one is None and any(sentence.is_noun(place) for place in range(first))
    if sentence.is_noun(last) or (following is not None and following.folded in ("ones", "only", "stuff", "things")):
        return True
    plural = following is not None and following.kind == "word" and following.folded.endswith("s")
    failed = _failed_at(sentence, mention.known[0].field, mention.first) is not None
    failed = failed and any(sentence.is_noun(place) for place in range(mention.first))
    return bool(plural and following and following.folded not in lexicon.STOP_WORDS) or failed


def _is_property_zh(sentence: Sentence, mention: Mention) -> bool:
    behind = sentence.text[mention.end :].lstrip()
    denied = _DENIED_ZH.search(sentence.text[: mention.start]) is not None
    return behind.startswith("的") or sentence.is_noun(mention.last) or (denied and behind[:1] in ENDS)
