"""Extract the features by which sentences are compared: words, numbers, names, negations, in English and Chinese."""

import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, islice

from agent.answering.number_forms import (
    MONTH,
    NumberForms,
    extract_numbers,
    number_words,
    plain_numbers,
    spelled_numbers,
    without_number_words,
)
from agent.answering.sentences import sentence_spans, without_citations
from retrievers.text import chinese_segmentation
from retrievers.text.analysis import analyse, fold_term, stem
from retrievers.text.chinese_dictionary import contains_chinese
from retrievers.text.languages import DEFAULT_LANGUAGE, STOP_WORDS, detect_language
from retrievers.text.prompt_sanitising import sanitise_prompt_text
from retrievers.text.unicode_normalisation import nfkc

_HARD_WRAP = re.compile(r"(?<=\S)[ \t]*\n[ \t]*(?=[^\s\-*•#>|\d])")
_MARKUP = re.compile(r"[`*_]{1,3}|\[(?=[^\[\]]*\]\()|(?<=\])\([^()\s]*\)|\]\(")
# A letter, digit or underscore of a script that separates words by blanks.
_L = r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_NAME = re.compile(
    rf"(?<!{_L})(?<!\.)(?:[A-Za-z]+\d{_L}*(?:\.\d+)*|[A-Z](?:{_L}|['’])*{_L}|{_L}*[a-z][A-Z]{_L}*|[a-z]{_L}*_{_L}+)"
)
_NAME_PART = re.compile(r"[^\W_]+(?:\.\d+)*")
_FRAME = re.compile(
    r"^\W*(?:according to|(?:as\s)?(?:stated|mentioned|described|reported) in)\s(?:the|this|these)\s"
    r"(?:\w+\s)?(?:passages?|documents?|texts?|sources?|articles?)\b,?\s?"
    r"|^\W*(?:(?:the|this|these)\s(?:\w+\s)?(?:passages?|documents?|texts?|sources?|articles?)|it)\s(?:\w+ly\s|also\s)?"
    r"(?:states?|says?|describes?|mentions?|discuss(?:es)?|reports?|notes?|explains?|indicates?)\b(?:\sthat\b)?"
    r"|^\W*(?:根据|依据|按照)[^，,。]{0,8}(?:文档|文件|资料|段落|文章|上下文)[^，,。]{0,4}[，,]"
    r"|^\W*(?:文档|文件|资料|段落|文章|文)(?:中|里)?(?:还|也)?(?:提到|指出|说明|说|写道)[，,：:]?",
    re.IGNORECASE,
)
"""Leading words that name the source, such as "According to the passage,"."""
_POSSESSIVE = re.compile(r"['’]s?$")
_ROOT = 4
"""Minimum number of initial characters that two forms of a name share."""
_ENDINGS = frozenset(
    ["", *"a e i y n s an ian n ish ese ic ain ay egian ia en istan istani land lander landic c ca".split()]
)
"""Ends of the names of countries, their adjectives and peoples, after the shared characters: "Ital" + "y", "ian"."""
_COUNTRIES = {
    "french": "franc", "spanish": "spain", "danish": "denmark", "dutch": "netherland", "greek": "greec",
    "swiss": "switzerland", "welsh": "wale", "irish": "ireland", "polish": "poland", "finnish": "finland",
}  # fmt: skip
"""Stem of an adjective to stem of its country, for pairs whose shared beginning is too short or whose ends differ."""
_NEGATIONS = frozenset("no not never neither nor none nothing nobody without cannot".split())
_CHINESE_NEGATIONS = frozenset(
    "不 没 没有 未 无 非 并非 从未 并未 尚未 未能 未曾 无法 毫无 从不 决不 绝不 不可以 不存在 不允许".split()
)
_NO_NEGATIONS = frozenset(
    "不同 不断 不仅 不过 不久 不少 不论 不管 不但 不如 不安 不良 不足 不满 不幸 不料 不惜 不禁 不只 不错 不妨".split()
)
"""Words that begin with 不 ("not") but do not negate: 不同 ("different"). All others of two characters negate."""
_SHORT = 40
"""Maximum characters of a text that is read as English without detecting its language, which needs a longer text."""
_LONGEST_CACHED = 500
"""Maximum characters of a text whose features are cached. Those of 4,000 characters take 100 KB."""
_REACH = 2
"""Number of content words to which the negation or number before them applies."""
_COUNTED_WITHIN = 60
"""Number of characters after a number that are searched for counted words."""
_TOKEN = re.compile(r"[^\W_]+(?:['’]t)?")


Count = tuple[NumberForms, str]


@dataclass(frozen=True, slots=True)
class TextFeatures:
    """Features of the wording of a text.

    Attributes:
        words: stems of the words; for Chinese, words and pairs of characters.
        numbers: for each number the set of ways to write it.
        names: stems of words that are written like names.
        negated: for each negation the stems of the first content words after it: "not red" -> ("red",).
        worded: those of `numbers` that the text writes as words, such as "three".
        counts: (ways to write a number, stem of a following word that the number may count).
    """

    words: frozenset[str]
    numbers: frozenset[NumberForms]
    names: frozenset[str]
    negated: frozenset[tuple[str, ...]]
    worded: frozenset[NumberForms] = frozenset()
    counts: frozenset[Count] = frozenset()

    def __or__(self, other: "TextFeatures") -> "TextFeatures":
        return TextFeatures(
            self.words | other.words,
            self.numbers | other.numbers,
            self.names | other.names,
            self.negated | other.negated,
            self.worded | other.worded,
            self.counts | other.counts,
        )


NO_FEATURES = TextFeatures(frozenset(), frozenset(), frozenset(), frozenset())


def extract_features(text: str) -> TextFeatures:
    """Return the features of one sentence, of an answer or of a passage."""
    # Passages were cleaned for the prompt, but quotations of them may not be.
    bare = _FRAME.sub("", _MARKUP.sub("", without_citations(sanitise_prompt_text(text))))
    return _read(bare) if len(bare) <= _LONGEST_CACHED else _read.__wrapped__(bare)


@lru_cache(maxsize=2048)
def _read(text: str) -> TextFeatures:
    text = nfkc(text)
    detected = detect_language(text) if len(text) > _SHORT else DEFAULT_LANGUAGE
    language = detected if detected in STOP_WORDS else DEFAULT_LANGUAGE
    undated = MONTH.sub(" ", text)
    terms = [term.text for term in analyse(without_number_words(undated), language)]
    words = frozenset(term for term in terms if not any(c.isdigit() for c in term))
    worded = frozenset(ways for ways, _ in number_words(text))
    return TextFeatures(
        words,
        extract_numbers(text) | worded,
        _names(without_number_words(undated), language),
        _negated(text, language),
        worded,
        _counts(text, language),
    )


def _counts(text: str, language: str) -> frozenset[Count]:
    """Return (number, stem) for each number and each of the next `_REACH` content words, which it may count.

    "three wheels" -> ({"3"}, "wheel").
    """
    stops = STOP_WORDS.get(language, frozenset())
    found = set()
    for ways, end in (*number_words(text), *plain_numbers(text)):
        behind = islice(_TOKEN.finditer(text, end, end + _COUNTED_WITHIN), 2 * _REACH)
        words = [fold_term(token[0]) for token in behind]
        things = [stem(word, language) for word in words if word not in stops and not word.isdigit()]
        found |= {(ways, thing) for thing in things[:_REACH]}
    return frozenset(found)


def _names(text: str, language: str) -> frozenset[str]:
    names = set()
    for found in _NAME.finditer(text):
        name = _POSSESSIVE.sub("", found[0])
        begins = not text[: found.start()].strip() or text[: found.start()].rstrip()[-1:] in ".!?:\"'(“‘"
        plain = (name[1:].islower() and not any(map(str.isdigit, name))) or len(name) == 1
        if plain and (begins or fold_term(name) in STOP_WORDS.get(language, ())):
            continue
        for part in _NAME_PART.findall(name):
            # v2.6.1 is also a v2.6 and a v2.
            versions = accumulate(part.split("."), "{}.{}".format)
            names |= {stem(fold_term(version), language) for version in versions}
    return frozenset(names)


def is_same_name(name: str, other: str) -> bool:
    """Return whether two stems are forms of one name, such as "America" and "American", "Britain" and "British"."""
    if name[:_ROOT] != other[:_ROOT]:
        return other in (_COUNTRIES.get(name), name) or _COUNTRIES.get(other) == name
    shared = next((n for n, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), None)
    shared = min(len(name), len(other)) if shared is None else shared
    return {name[shared:], other[shared:]} <= _ENDINGS


def _negated(text: str, language: str) -> frozenset[tuple[str, ...]]:
    """Return for each negation the stems of the first `_REACH` content words after it: "not red" -> ("red",)."""
    groups: list[list[str]] = []
    reach = 0
    stops = STOP_WORDS.get(language, frozenset())
    for token in _tokens(text):
        folded = fold_term(token)
        if folded in _NEGATIONS or folded.endswith(("n't", "n’t")) or _denies(token):
            groups.append([])
            reach = _REACH
        elif reach and folded not in stops:
            groups[-1].append(stem(folded, language))
            reach -= 1
    return frozenset(tuple(group) for group in groups if group)


def _denies(word: str) -> bool:
    short = word.startswith("不") and len(word) == 2 and word not in _NO_NEGATIONS
    return short or word in _CHINESE_NEGATIONS


def _tokens(text: str) -> Iterable[str]:
    if not contains_chinese(text):
        return _TOKEN.findall(text)
    return [word for word in chinese_segmentation.words(text) if word.strip() and (word[0].isalnum())]


@dataclass(frozen=True, slots=True)
class PassageFeatures:
    """The features of one passage.

    Attributes:
        head: features of the first sentence, usually title and metadata; they apply to the whole passage.
        sentences: features of each sentence, the first included.
        texts: the sentences.
    """

    head: TextFeatures
    sentences: tuple[TextFeatures, ...]
    texts: tuple[str, ...]


def extract_passage_features(passage: str, deadline: float = math.inf) -> PassageFeatures:
    """Return the features of a passage as the prompt shows it, with title and metadata in its first lines.

    Raises:
        TimeoutError: `deadline` of `time.monotonic()` has passed.
    """
    text = _HARD_WRAP.sub(" ", passage)
    texts = tuple(text[span.start : span.end] for span in sentence_spans(text, code=True))
    features = []
    for one in texts:
        check_time(deadline)
        said = extract_features(one)
        features.append(replace(said, numbers=said.numbers | spelled_numbers(one)))
    return PassageFeatures(features[0] if features else NO_FEATURES, tuple(features), texts)


def check_time(deadline: float) -> None:
    """Raise TimeoutError if `deadline` of `time.monotonic()` has passed."""
    if time.monotonic() >= deadline:
        raise TimeoutError
