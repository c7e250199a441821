"""Check without a model whether the cited passages support a sentence: by words, numbers, names and negations.

A place is two consecutive sentences of a passage. A sentence is compared with the places that share most words with
it. A number, name or negation that is missing there counts against the sentence. Missing words do not,
because answers reword passages, unless nearly all are missing. The check compares wordings, not meanings.
"""

import asyncio
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from operator import or_

from agent.answering.sentences import cited_numbers, sentence_spans, without_citations
from agent.answering.text_features import (
    NO_FEATURES,
    PassageFeatures,
    TextFeatures,
    check_time,
    extract_features,
    extract_passage_features,
    is_same_name,
)
from agent.types import AnswerSentence
from retrievers.core.errors import Unavailable
from retrievers.core.timeouts import wait_within
from retrievers.embed import Embedder
from retrievers.text.chinese_dictionary import contains_chinese
from retrievers.text.languages import detect_language

SUPPORTED_FROM = 0.6
"""Minimum share of a sentence's words that its passages must contain to support it by wording."""
_PARAPHRASED_FROM = 0.3
"""Minimum share of these words at which the sentence may be a paraphrase: it stays open instead of unsupported."""
_ALIKE_FROM = 0.6
"""Minimum cosine at which the embedder supports a sentence.

In measurements, no claim paired with an abstract on another subject reached it.
"""
_WIDTH = 2
"""Number of consecutive sentences of a passage that form a place."""
_PLACES = 2
"""Maximum number of places per cited passage that a sentence may draw on."""
_UNCONFIRMED = 0.5
"""Factor on the score when a number, name or negation is not confirmed."""

_BOLD_LINE = re.compile(r"\*\*[^*]{1,100}[^*.!?。！？]\*\*")
_FEWEST_WORDS = 2
_MOST_COMPARED = 100
"""Maximum number of an answer's sentences that are embedded; they take some hundred milliseconds."""
MOST_SENTENCES = 2000
"""Maximum number of an answer's sentences that are checked."""
_LONGEST = 4000
"""Maximum number of characters of a sentence that is judged."""
_COURTESY = re.compile(
    r"(?:i|i['’]m|let me|please|sorry|hello|hi|thanks?|thank you|sure|certainly|of course|you['’]re welcome|feel free)"
    r"(?![\w-])"
    r"|您好|你好|谢谢|感谢|抱歉|对不起|不客气|当然|好的|请问|希望|如需|如果您",
    re.IGNORECASE,
)
_NOT_IN_THE_DOCUMENTS = re.compile(
    r"\b(?:(?:can|could)(?:not|n?['’]t| not)|unable to|not able to|impossible to)\s(?:be\s)?"
    r"(?:answer|determine|say|tell|find|establish|confirm)"
    r"|\b(?:documents?|passages?|sources?|context|texts?|information)\b[^.;]{0,40}"
    r"(?:(?:do|does|did)(?:n['’]t| not)|never)\s(?:\w+\s)?"
    r"(?:contain|hold|answer|mention|provide|say|state|include|specify|address|cover|describe|discuss|give|explain)"
    r"|\b(?:no|not enough|insufficient)\s(?:\w+\s)?(?:information|mention|answer|passages?|details?)\b"
    r"|\bnot\s(?:\w+\s)?(?:in|found in|mentioned in|stated in|covered by|provided in|available in)\s(?:the|these|any)\s"
    r"(?:\w+\s)?(?:documents?|passages?|sources?|context)"
    r"|(?:文档|文件|资料|段落|文中|材料|上下文|信息)[^。；]{0,20}(?:没有|未|并未|不包含|不足|无法|找不到)"
    r"|(?:没有|未|并未|未能|无法|不能)[^。；，]{0,12}(?:提及|提到|说明|找到|回答|得知|确定|相关信息|答案)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SentenceSupport:
    """How far passages support a sentence.

    The chosen places (each is two consecutive sentences of a passage) share most words with that sentence.

    Attributes:
        coverage: share of the sentence's words that the chosen places contain, 0 to 1.
        missing: numbers that the chosen places lack, names that all passages lack, and negations that differ, such as
            "not wheel" or "wheel without not".
        place: text of the place that shares most words with the sentence; "" if there is no place.
    """

    coverage: float
    missing: tuple[str, ...]
    place: str

    @property
    def score(self) -> float:
        """`coverage`, reduced if a fact is missing; 0 to 1."""
        return round(self.coverage * (_UNCONFIRMED if self.missing else 1), 4)

    @property
    def is_supported(self) -> bool:
        """Whether the passages say the same in nearly the same words.

        No number, name or negation is missing, and `coverage` is at least `SUPPORTED_FROM`.
        """
        return not self.missing and self.coverage >= SUPPORTED_FROM

    @property
    def may_be_paraphrase(self) -> bool:
        """Whether the passages may say the same in other words: they share a word, and no fact is missing."""
        return not self.missing and 0 < self.coverage < SUPPORTED_FROM

    @property
    def is_undecided(self) -> bool:
        """Whether wording alone leaves the support open: enough words are shared for a paraphrase."""
        return self.may_be_paraphrase and self.coverage >= _PARAPHRASED_FROM


def measure_support(
    said: TextFeatures, passages: Sequence[PassageFeatures], deadline: float = math.inf
) -> SentenceSupport:
    """Return how far the passages support a sentence with the features `said`.

    Raises:
        TimeoutError: `deadline` of `time.monotonic()` has passed.
    """
    around = NO_FEATURES
    windows: list[tuple[TextFeatures, str]] = []
    for passage in passages:
        check_time(deadline)
        around |= passage.head
        for first in range(max(1, len(passage.sentences) - _WIDTH + 1)):
            joined = reduce(or_, passage.sentences[first : first + _WIDTH], NO_FEATURES)
            windows.append((joined, " ".join(passage.texts[first : first + _WIDTH])))
    chosen, place = around, ""
    for number in range(_PLACES * len(passages)):
        check_time(deadline)
        left = said.words - chosen.words
        best, text = max(windows, key=lambda one: len(left & one[0].words))
        if number and left.isdisjoint(best.words):
            break
        chosen |= best
        place = place or text
    held = said.words & chosen.words
    coverage = len(held) / len(said.words) if said.words else 0.0
    ways = frozenset().union(*chosen.numbers) if chosen.numbers else frozenset()
    # A summary names a person in one sentence; the passage may name that person anywhere.
    everything = {word for passage in passages for one in passage.sentences for word in one.words | one.names}
    counted = {thing for _, thing in chosen.counts}
    idle = said.worded - {ways for ways, thing in said.counts if thing in counted}
    missing = sorted(min(one) for one in said.numbers - idle if not one & ways)
    for name in sorted(said.names - everything):
        check_time(deadline)
        missing += [] if any(map(partial(is_same_name, name), everything)) else [name]
    single = (one for passage in passages for one in passage.sentences)
    nearest = max(single, key=lambda one: len(said.words & one.words), default=NO_FEATURES)
    missing += [f"not {' '.join(one)}" for one in sorted(_contradicted_negations(said, chosen))]
    missing += [f"{' '.join(one)} without not" for one in sorted(_contradicted_negations(nearest, said))]
    return SentenceSupport(coverage, tuple(missing), place)


def _contradicted_negations(one: TextFeatures, other: TextFeatures) -> list[tuple[str, ...]]:
    """Return the negated groups of words in `one` that `other` contains without negation.

    "it is not red" and "it is red" -> [("red",)].
    """
    denied = {word for group in other.negated for word in group}
    return [group for group in one.negated if other.words.issuperset(group) and denied.isdisjoint(group)]


def split_answer(answer: str, passages: int) -> tuple[AnswerSentence, ...]:
    """Return the first `MOST_SENTENCES` sentences of an answer with their citations, not yet judged.

    Args:
        passages: number of passages; citations of larger numbers are dropped.
    """
    found = []
    for span in islice(sentence_spans(answer), MOST_SENTENCES):
        text = answer[span.start : span.end]
        numbers = tuple(n for n in cited_numbers(text) if 1 <= n <= passages)
        found.append(AnswerSentence(text=text, start=span.start, end=span.end, citations=numbers))
    return tuple(found)


def is_checkable(text: str) -> bool:
    """Return whether a sentence states a fact that can be checked.

    False for headings, questions, courtesies, and sentences that say that the documents lack the answer.
    """
    text = without_citations(text).strip()
    if _BOLD_LINE.fullmatch(text):
        return False
    bare = text.strip(" \t*_")
    if bare.endswith(("?", "？", ":", "：")) or says_answer_missing(bare) or _COURTESY.match(bare):
        return False
    said = extract_features(bare)
    return len(said.words) >= _FEWEST_WORDS or bool(said.numbers)


def says_answer_missing(text: str) -> bool:
    """Return whether a text says that the documents don't hold the answer."""
    return _NOT_IN_THE_DOCUMENTS.search(text) is not None


def faithfulness(sentences: Iterable[AnswerSentence]) -> float | None:
    """Return the share of judged sentences that are supported, 0 to 1; None if none was judged."""
    judged = [one.supported for one in sentences if one.supported is not None]
    return round(sum(judged) / len(judged), 4) if judged else None


@dataclass(frozen=True, slots=True)
class _ParaphraseCandidate:
    """Two sentences of a passage (a place) that a sentence of the answer may paraphrase; the embedder decides.

    Attributes:
        text: the text of the place.
        citations: the citations that the answer's sentence gets if the embedder finds it similar to the place.
    """

    text: str
    citations: tuple[int, ...]


async def check_sentences(
    sentences: Sequence[AnswerSentence],
    passages: Sequence[str],
    embedder: Embedder | None = None,
    *,
    deadline: float = math.inf,
    patience_s: float = 3.0,
) -> tuple[AnswerSentence, ...]:
    """Return the sentences, each judged by the passages it cites.

    A sentence without a citation is compared with every passage. It gets the citation of a passage that supports it; if
    none does, it is unsupported. A sentence that shares words with its cited passages and contradicts none is
    unsupported only if it shares very few. Otherwise it stays open (`supported` is None), unless the embedder supports
    it.

    Args:
        passages: the text of each citation in the prompt, from number 1.
        embedder: decides where wording does not, for languages it knows.
        deadline: moment of `time.monotonic()`; sentences not compared with all their passages by then stay unjudged.
        patience_s: maximum wait for the embedder in seconds; without its answer the wording decides.
    """
    # In a thread: a sentence takes some milliseconds, which would block the event loop.
    judged = await asyncio.to_thread(_judge_by_wording, sentences, passages, embedder, deadline)
    checked = [one for one, _ in judged]
    unsure = dict(islice(((n, (one, close)) for n, (one, close) in enumerate(judged) if close), _MOST_COMPARED))
    left_s = min(patience_s, deadline - time.monotonic())
    if embedder is not None and unsure and left_s > 0:
        for n, one in zip(unsure, await _judge_by_embedding(list(unsure.values()), embedder, left_s), strict=True):
            checked[n] = one
    return tuple(checked)


def _judge_by_wording(
    sentences: Sequence[AnswerSentence], passages: Sequence[str], embedder: Embedder | None, deadline: float
) -> list[tuple[AnswerSentence, _ParaphraseCandidate | None]]:
    """Return each sentence judged by wording, with the place (see `_ParaphraseCandidate`) to embed with it.

    The place is None where wording decides, or where the embedder does not know the sentence's language.
    """
    known: dict[int, PassageFeatures] = {}
    judged: list[tuple[AnswerSentence, _ParaphraseCandidate | None]] = []
    for sentence in sentences:
        if time.monotonic() >= deadline or len(sentence.text) > _LONGEST or not is_checkable(sentence.text):
            judged.append((sentence, None))
            continue
        try:
            held = {
                n: _passage_features(known, n, passages, deadline)
                for n in sentence.citations or range(1, len(passages) + 1)
            }
            one, close = (
                _judge_cited(sentence, held, deadline)
                if sentence.citations
                else _judge_uncited(sentence, held, deadline)
            )
        except TimeoutError:
            one, close = sentence, None
        judged.append((one, close if _knows_language(embedder, sentence.text) else None))
    return judged


def _passage_features(
    known: dict[int, PassageFeatures], number: int, passages: Sequence[str], deadline: float
) -> PassageFeatures:
    """Return the features of a passage, extracted once and kept in `known`. Raises TimeoutError after the deadline."""
    if number not in known:
        known[number] = extract_passage_features(passages[number - 1], deadline)
    return known[number]


def _judge_cited(
    sentence: AnswerSentence, cites: Mapping[int, PassageFeatures], deadline: float
) -> tuple[AnswerSentence, _ParaphraseCandidate | None]:
    """Return a sentence judged by all the passages it cites together, and the place to embed; None if there is none.

    Raises TimeoutError after the deadline.
    """
    held = list(cites.values())
    if not _comparable(sentence.text, held):
        return _judge_by_numbers(sentence, held), None
    found = measure_support(extract_features(sentence.text), held, deadline)
    close = _ParaphraseCandidate(found.place, sentence.citations) if found.may_be_paraphrase else None
    if found.is_undecided:
        return sentence, close
    return sentence.model_copy(update={"supported": found.is_supported, "score": found.score}), close


def _judge_uncited(
    sentence: AnswerSentence, passages: Mapping[int, PassageFeatures], deadline: float
) -> tuple[AnswerSentence, _ParaphraseCandidate | None]:
    """Judge a sentence without citations by every passage; return it, and the place to embed (None if there is none).

    The sentence gets the citation of the passage that supports it. If no passage does, it is marked unsupported. If
    all passages are in another script, only numbers are compared. Raises TimeoutError after the deadline.
    """
    said = extract_features(sentence.text)
    comparable = {n: one for n, one in passages.items() if _comparable(sentence.text, [one])}
    if passages and not comparable:
        return _judge_by_numbers(sentence, list(passages.values())), None
    looked = [(measure_support(said, [one], deadline), n) for n, one in comparable.items()]
    found, n = max(looked, key=lambda one: (not one[0].missing, one[0].coverage, -one[1]), default=(None, 0))
    if found is None:
        return sentence.model_copy(update={"supported": False, "score": 0.0}), None
    citations = (n,) if found.is_supported else ()
    judged = {"supported": found.is_supported, "score": found.score, "citations": citations}
    return sentence.model_copy(update=judged), _ParaphraseCandidate(
        found.place, (n,)
    ) if found.may_be_paraphrase else None


def _judge_by_numbers(sentence: AnswerSentence, held: Sequence[PassageFeatures]) -> AnswerSentence:
    """Return a sentence judged by passages in another script: unsupported if a number is missing, else left open."""
    figures = {way for one in held for facts in one.sentences for ways in facts.numbers for way in ways}
    is_wrong = any(figures.isdisjoint(ways) for ways in extract_features(sentence.text).numbers)
    return sentence.model_copy(update={"supported": False, "score": 0.0}) if is_wrong else sentence


def _comparable(text: str, cites: Sequence[PassageFeatures]) -> bool:
    """Return whether some passage is in the script of the text, Chinese or not; if not, only numbers are comparable."""
    return contains_chinese(text) in {contains_chinese(place) for one in cites for place in one.texts[1:] or one.texts}


def _knows_language(embedder: Embedder | None, text: str) -> bool:
    return embedder is not None and (embedder.languages is None or detect_language(text) in embedder.languages)


async def _judge_by_embedding(
    unsure: Sequence[tuple[AnswerSentence, _ParaphraseCandidate]], embedder: Embedder, patience_s: float
) -> Sequence[AnswerSentence]:
    """Return the sentences; one whose embedding is similar to that of its place is marked supported.

    All sentences are unchanged if the embedder fails or takes longer than `patience_s`.
    """
    texts = [text for one, close in unsure for text in (without_citations(one.text), close.text)]
    try:
        vectors = await wait_within(embedder.embed(texts), patience_s)
    except (Unavailable, OSError):
        return [one for one, _ in unsure]
    judged = []
    for (sentence, close), said, held in zip(unsure, vectors[::2], vectors[1::2], strict=True):
        score = min(round(float(said @ held), 4), 1.0)
        if score >= _ALIKE_FROM:
            alike = {"supported": True, "score": score, "citations": close.citations}
            sentence = sentence.model_copy(update=alike)
        judged.append(sentence)
    return judged
