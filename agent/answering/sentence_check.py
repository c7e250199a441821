"""Whether the passages that a sentence cites bear it out, without a model: words, numbers, names and negation.

What is read of a sentence is looked for where the passages come nearest to it. Words may be missing, for an answer
rewords; a number, a name or a negation that is not there speaks against it. The check knows wordings, not meanings.
"""

import asyncio
import math
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import islice
from operator import or_

import rjieba

from agent.answering.sentences import cited, spans, without_citations
from agent.intent.numerals import parse_amount, parse_count
from agent.types import Sentence
from retrievers.core.errors import Unavailable
from retrievers.core.tasks import within
from retrievers.embed import Embedder
from retrievers.text.analysis import analyse, fold, stem
from retrievers.text.glosses import is_chinese
from retrievers.text.languages import DEFAULT, STOP_WORDS, detect
from retrievers.text.marks import nfkc
from retrievers.text.visible import prompt_text

SUPPORTED_FROM = 0.6
"""Least share of a sentence's words that its passages must hold."""
_PARAPHRASED_FROM = 0.3
"""From this share on, the likeness of the nearest place can make up for missing words."""
_ALIKE_FROM = 0.6
"""Least cosine that does. Of claims beside abstracts on other subjects, none reached it."""
_WIDTH = 2
"""Sentences of a passage that are read together."""
_PLACES = 2
"""Such places per cited passage that a sentence may draw on."""
_UNCONFIRMED = 0.5
"""What is left of the score when a number, a name or a negation is not borne out."""

_HARD_WRAP = re.compile(r"(?<=\S)[ \t]*\n[ \t]*(?=[^\s\-*•#>|\d])")
_MARKUP = re.compile(r"[`*_]{1,3}|\[(?=[^\[\]]*\]\()|(?<=\])\([^()\s]*\)|\]\(")
_AMOUNT = re.compile(
    r"(?<![A-Za-z0-9_.])(?P<number>\d[\d,，]{0,30}(?:\.\d{1,30}){0,4})(?:\s?(?P<unit>thousand|million|billion|[百千]?[万亿]))?",
    re.IGNORECASE,
)
_NUMBER_WORD = re.compile(
    r"\b(?:(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:-(?:one|two|three|four|five|six|seven|eight|nine))?"
    r"|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen)\b",
    re.IGNORECASE,
)
_CHINESE_NUMBER = re.compile(r"[零〇一二两三四五六七八九十百千]{1,8}")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH_NAME = rf"(?:{'|'.join(_MONTHS)})[a-z]{{0,6}}"
_MONTH = re.compile(
    rf"\b{_MONTH_NAME}\.?(?=,?\s(?:of\s)?\d)|(?<=\d\s){_MONTH_NAME}\b|(?<=\d-){_MONTH_NAME}(?=-\d)", re.IGNORECASE
)
_DATE = re.compile(
    r"(?<!\d)(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?|年(?P<month_zh>\d{1,2})月(?:(?P<day_zh>\d{1,2})日)?)"
    rf"|\b(?P<name>{_MONTH_NAME})\.?\s(?:(?P<day_en>\d{{1,2}})(?:st|nd|rd|th)?,?\s)?(?:of\s)?(?P<year_en>\d{{4}})"
    rf"|\b(?P<day_eu>\d{{1,2}})(?:st|nd|rd|th)?[\s-](?P<name_eu>{_MONTH_NAME})\.?,?[\s-](?P<year_eu>\d{{4}})",
    re.IGNORECASE,
)
# A letter, digit or underscore of a script that is written with blanks.
_L = r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
_NAME = re.compile(
    rf"(?<!{_L})(?<!\.)(?:[A-Z](?:{_L}|['’])*{_L}|[A-Za-z]+\d{_L}*|{_L}*[a-z][A-Z]{_L}*|[a-z]{_L}*_{_L}+)"
)
_NEGATIONS = frozenset("no not never neither nor none nothing nobody without cannot".split())
_CHINESE_NEGATIONS = frozenset(
    "不 没 没有 未 无 非 并非 从未 并未 尚未 未能 未曾 无法 毫无 从不 决不 绝不 不可以 不存在 不允许".split()
)
_NO_NEGATIONS = frozenset(
    "不同 不断 不仅 不过 不久 不少 不论 不管 不但 不如 不安 不良 不足 不满 不幸 不料 不惜 不禁 不只 不错 不妨".split()
)
"""Words that begin with 不 and deny nothing; the others of two characters do."""
_SHORT = 40
"""Characters up to which a language is not told from a text."""
_REACH = 2
"""Content words behind a negation that it is about."""
_FEWEST_WORDS = 2
_MOST_COMPARED = 100
"""Sentences of an answer for which the embedder is asked: some hundred milliseconds."""
_LONGEST = 4000
"""Characters of a sentence that is judged; what is longer is none."""
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
_TOKEN = re.compile(r"[^\W_]+(?:['’]t)?")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a text says, as far as its wording shows.

    Attributes:
        words: stems; of Chinese, words and pairs of characters.
        numbers: one entry per figure, with every way to write it.
        names: stems of words that only names are written like.
        negated: per negation the stems of the words behind it.
    """

    words: frozenset[str]
    numbers: frozenset[frozenset[str]]
    names: frozenset[str]
    negated: frozenset[frozenset[str]]

    def __or__(self, other: "Facts") -> "Facts":
        return Facts(
            self.words | other.words,
            self.numbers | other.numbers,
            self.names | other.names,
            self.negated | other.negated,
        )


_NOTHING = Facts(frozenset(), frozenset(), frozenset(), frozenset())


def read(text: str) -> Facts:
    """What a sentence or a place of a passage says."""
    # A passage has been cleaned for the prompt, what quotes it may not be.
    return _read(_MARKUP.sub("", without_citations(prompt_text(text))))


@lru_cache(maxsize=4096)
def _read(text: str) -> Facts:
    text = nfkc(text)
    detected = detect(text) if len(text) > _SHORT else DEFAULT
    language = detected if detected in STOP_WORDS else DEFAULT
    undated = _MONTH.sub(" ", text)
    terms = [term.text for term in analyse(undated, language)]
    words = frozenset(term for term in terms if not any(c.isdigit() for c in term))
    return Facts(words, _numbers(text), _names(undated, language), _negated(text, language))


def _numbers(text: str) -> frozenset[frozenset[str]]:
    found: set[frozenset[str]] = set()
    for amount in _AMOUNT.finditer(text):
        digits = re.sub("[,，]", "", amount["number"])
        ways = {digits.lstrip("0") or "0", digits}
        if amount["unit"] and (value := parse_amount(f"{digits} {amount['unit']}".lower())) is not None:
            ways = {str(int(value)) if value == int(value) else str(value)}
        found.add(frozenset(ways))
    for word in _NUMBER_WORD.finditer(text):
        found.add(frozenset({str(parse_count(word[0]))}))
    for month in _MONTH.finditer(text):
        found.add(frozenset({_month(month[0])}))
    for date in _DATE.finditer(text):
        part = {name.partition("_")[0]: value for name, value in date.groupdict().items() if value}
        month_of = f"{part['year']}-{_month(part['name']) if 'name' in part else int(part['month'])}"
        # Whoever states the day states the month too, not the other way round.
        found |= {frozenset({month_of}), *({frozenset({f"{month_of}-{int(part['day'])}"})} if "day" in part else ())}
    return frozenset(found)


def _month(name: str) -> str:
    return str(_MONTHS.index(name[:3].lower()) + 1)


def _spelled(text: str) -> frozenset[frozenset[str]]:
    """Numbers in Chinese characters: too common in other words to be asked for, good enough to be found."""
    values = (parse_count(found[0]) for found in _CHINESE_NUMBER.finditer(text))
    return frozenset(frozenset({str(value)}) for value in values if value is not None)


def _names(text: str, language: str) -> frozenset[str]:
    names = set()
    for found in _NAME.finditer(text):
        name = found[0]
        begins = not text[: found.start()].strip() or text[: found.start()].rstrip()[-1:] in ".!?:\"'(“‘"
        plain = name[1:].islower() or len(name) == 1
        if plain and (begins or fold(name) in STOP_WORDS.get(language, ())):
            continue
        names |= {stem(fold(part), language) for part in re.findall(r"[^\W_]+", name)}
    return frozenset(names)


def _negated(text: str, language: str) -> frozenset[frozenset[str]]:
    """The content words that stand directly behind each negation."""
    groups: list[set[str]] = []
    reach = 0
    stops = STOP_WORDS.get(language, frozenset())
    for token in _tokens(text):
        folded = fold(token)
        if folded in _NEGATIONS or folded.endswith(("n't", "n’t")) or _denies(token):
            groups.append(set())
            reach = _REACH
        elif reach and folded not in stops:
            groups[-1].add(stem(folded, language))
            reach -= 1
    return frozenset(frozenset(group) for group in groups if group)


def _denies(word: str) -> bool:
    short = word.startswith("不") and len(word) == 2 and word not in _NO_NEGATIONS
    return short or word in _CHINESE_NEGATIONS


def _tokens(text: str) -> Iterable[str]:
    if not is_chinese(text):
        return _TOKEN.findall(text)
    return [word for word in rjieba.cut(text) if word.strip() and (word[0].isalnum())]


@dataclass(frozen=True, slots=True)
class CitedPassage:
    """One passage.

    Attributes:
        head: what its title and metadata say, which run on into the first sentence; they hold for all of it.
        sentences: what each sentence says, that one included.
    """

    head: Facts
    sentences: tuple[Facts, ...]
    texts: tuple[str, ...]


def evidence(passage: str) -> CitedPassage:
    """A passage as the prompt shows it, its head (title, metadata) in the first lines."""
    text = _HARD_WRAP.sub(" ", passage)
    texts = tuple(text[span.start : span.end] for span in spans(text, code=True))
    facts = []
    for one in texts:
        said = read(one)
        facts.append(Facts(said.words, said.numbers | _spelled(one), said.names, said.negated))
    return CitedPassage(facts[0] if facts else _NOTHING, tuple(facts), texts)


@dataclass(frozen=True, slots=True)
class SentenceSupport:
    """How far passages bear a sentence out.

    Attributes:
        covered: share of its words that they hold, near each other.
        missing: the numbers and names they do not hold there, and the negations they do not share.
        place: the text of the place that is nearest.
    """

    covered: float
    missing: tuple[str, ...]
    place: str


def look(said: Facts, passages: Sequence[CitedPassage]) -> SentenceSupport:
    """A sentence beside the passages it cites."""
    around = _NOTHING
    windows: list[tuple[Facts, str]] = []
    for passage in passages:
        around |= passage.head
        for first in range(max(1, len(passage.sentences) - _WIDTH + 1)):
            joined = reduce(or_, passage.sentences[first : first + _WIDTH], _NOTHING)
            windows.append((joined, " ".join(passage.texts[first : first + _WIDTH])))
    chosen, place = around, ""
    for number in range(_PLACES * len(passages)):
        best, text = max(windows, key=lambda one: len(said.words & (one[0].words | chosen.words)))
        if number and not (said.words & best.words) - chosen.words:
            break
        chosen |= best
        place = place or text
    held = said.words & chosen.words
    covered = len(held) / len(said.words) if said.words else 0.0
    ways = frozenset().union(*chosen.numbers) if chosen.numbers else frozenset()
    missing = [min(one) for one in said.numbers if not one & ways]
    missing += sorted(said.names - chosen.words - chosen.names)
    single = (one for passage in passages for one in passage.sentences)
    nearest = max(single, key=lambda one: len(said.words & one.words), default=_NOTHING)
    missing += [f"not {' '.join(sorted(one))}" for one in _only_here(said, chosen)]
    missing += [f"{' '.join(sorted(one))} without not" for one in _only_here(nearest, said)]
    return SentenceSupport(covered, tuple(missing), place)


def _only_here(one: Facts, other: Facts) -> list[frozenset[str]]:
    """What one text denies and the other speaks of and does not."""
    denied = frozenset().union(*other.negated) if other.negated else frozenset()
    return [group for group in one.negated if group & other.words and not group & denied]


def in_sentences(answer: str, passages: int) -> tuple[Sentence, ...]:
    """The sentences of an answer with the passages they cite, not yet judged; numbers beyond `passages` cite none."""
    found = []
    for span in spans(answer):
        text = answer[span.start : span.end]
        numbers = tuple(n for n in cited(text) if 1 <= n <= passages)
        found.append(Sentence(text=text, start=span.start, end=span.end, citations=numbers))
    return tuple(found)


def claims(text: str) -> bool:
    """Whether a sentence states something that a passage could bear out: no heading, question or courtesy."""
    bare = without_citations(text).strip(" \t*_")
    if bare.endswith(("?", "？", ":", "：")) or says_nothing_found(bare) or _COURTESY.match(bare):
        return False
    said = read(bare)
    return len(said.words) >= _FEWEST_WORDS or bool(said.numbers)


def says_nothing_found(text: str) -> bool:
    """Whether a text says that the documents do not hold the answer."""
    return _NOT_IN_THE_DOCUMENTS.search(text) is not None


def faithfulness(sentences: Iterable[Sentence]) -> float | None:
    """Share of the judged sentences that are supported; None where none was judged."""
    judged = [one.supported for one in sentences if one.supported is not None]
    return round(sum(judged) / len(judged), 4) if judged else None


async def check(
    sentences: Sequence[Sentence],
    passages: Sequence[str],
    embedder: Embedder | None = None,
    *,
    deadline: float = math.inf,
    patience_s: float = 3.0,
) -> tuple[Sentence, ...]:
    """The sentences, each judged by the passages it cites; one that claims something and cites none is unsupported.

    Args:
        passages: what stands under each number of the prompt, from 1.
        embedder: asked where words alone do not decide, for languages it knows.
        deadline: moment of `time.monotonic()`; what is not read by then stays unjudged.
        patience_s: how long the embedder is waited for; without its answer the words alone decide.
    """
    # Some milliseconds a sentence, during which others are to be answered.
    judged = await asyncio.to_thread(_by_wording, sentences, passages, embedder, deadline)
    checked = [one for one, _ in judged]
    unsure = dict(islice(((n, (one, place)) for n, (one, place) in enumerate(judged) if place), _MOST_COMPARED))
    left_s = min(patience_s, deadline - time.monotonic())
    if embedder is not None and unsure and left_s > 0:
        for n, one in zip(unsure, await _by_likeness(list(unsure.values()), embedder, left_s), strict=True):
            checked[n] = one
    return tuple(checked)


def _by_wording(
    sentences: Sequence[Sentence], passages: Sequence[str], embedder: Embedder | None, deadline: float
) -> list[tuple[Sentence, str | None]]:
    """The sentences, judged; with the place to compare with where words alone do not decide and the embedder can."""
    known: dict[int, CitedPassage] = {}
    judged: list[tuple[Sentence, str | None]] = []
    for sentence in sentences:
        if time.monotonic() >= deadline or len(sentence.text) > _LONGEST or not claims(sentence.text):
            judged.append((sentence, None))
            continue
        for n in sentence.citations:
            known[n] = known.get(n) or evidence(passages[n - 1])
        cites = [known[n] for n in sentence.citations]
        said, place = read(sentence.text), None
        supported: bool | None
        score: float | None
        if not cites:
            supported, score = False, 0.0
        elif not _comparable(sentence.text, cites):
            figures = [ways for one in cites for facts in one.sentences for ways in facts.numbers]
            wrong = any(not any(ways & other for other in figures) for ways in said.numbers)
            supported, score = (False, 0.0) if wrong else (None, None)
        else:
            found = look(said, cites)
            score = round(found.covered * (_UNCONFIRMED if found.missing else 1), 4)
            supported = not found.missing and score >= SUPPORTED_FROM
            if not found.missing and _PARAPHRASED_FROM <= score < SUPPORTED_FROM and _knows(embedder, sentence.text):
                place = found.place
        judged.append((sentence.model_copy(update={"supported": supported, "score": score}), place))
    return judged


def _comparable(text: str, cites: Sequence[CitedPassage]) -> bool:
    """Whether text and passages share a script: wordings of two languages cannot be compared, only their figures."""
    return is_chinese(text) in {is_chinese(place) for one in cites for place in one.texts[1:] or one.texts}


def _knows(embedder: Embedder | None, text: str) -> bool:
    return embedder is not None and (embedder.languages is None or detect(text) in embedder.languages)


async def _by_likeness(
    unsure: Sequence[tuple[Sentence, str]], embedder: Embedder, patience_s: float
) -> Sequence[Sentence]:
    """The sentences as their cosines to the places have them, where the embedder says so in time."""
    texts = [text for one, place in unsure for text in (without_citations(one.text), place)]
    try:
        vectors = await within(embedder.embed(texts), patience_s)
    except (Unavailable, OSError):
        return [one for one, _ in unsure]
    judged = []
    for (sentence, _), said, held in zip(unsure, vectors[::2], vectors[1::2], strict=True):
        score = max(sentence.score or 0.0, round(float(said @ held), 4))
        judged.append(sentence.model_copy(update={"supported": score >= _ALIKE_FROM, "score": min(score, 1.0)}))
    return judged
