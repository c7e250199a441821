"""Whether a question is about something the collections do not know, held against their own words.

Rules alone cannot tell a library from a product nobody wrote about: both are a name. What decides is
whether the name occurs in any document, beside words for what changes or is sold out in the world.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Protocol

from agent.intent import lexicon
from agent.intent.filters import Json
from agent.intent.rules import Context, RulesReading
from agent.intent.text import has_chinese, tokenize
from agent.intent.vocabulary import Vocabulary, build
from agent.intent.worldly import worldly
from agent.types import SourceChoice
from retrievers.core.types import Scope
from retrievers.text.analysis import analyse
from retrievers.text.languages import STOP_WORDS

# What neither asks nor speaks of now is a claim, or words to search for.
_MAY_ASK = re.compile(
    r"[?？]|^\W*(?:who|what|when|where|which|how|is|are|was|has|have|did|does|do|can|will|any)\b|"
    r"\b(?:latest|newest|current(?:ly)?|now|nowadays|today|tonight|tomorrow|yesterday|weather|news|price|cost|rate|version|"
    r"release)\b|[吗呢几谁哪]|什么|多少|怎么|最新|最近|现在|目前|今[年天日晚]|这[周月]|上[周月]|明天|昨天",
    re.IGNORECASE,
)
# Asked of the world whatever the subject is.
_ALWAYS = re.compile(
    r"\b(?:salar(?:y|ies)|wages?|job\s+market|layoffs?|mortgage|tickets?\s+(?:for|to)|early\s+bird|meetups?|bankruptcy|"
    r"near\s+me|traffic|jammed|horoscope|recipe|(?:video|online)\s+courses?|"
    r"where\s+(?:does|do|is|did)\s+[\w ]{2,40}\s+(?:work|live)(?:\s+(?:now|these\s+days))?|"
    r"stock\s+price|share\s+price)\b|"
    r"工资|薪资|薪水|年薪|房价|高铁|火车票|机票|口碑|附近|报名|颁给|诺贝尔|录取",
    re.IGNORECASE,
)
# Asked of the world when the subject is not what the documents are about.
_WORLDLY = re.compile(
    # companies
    r"\b(?:ceo|cto|founder|president|prime\s+minister|secretary)\b|\b(?:acquire[ds]?|bought|bankrupt|ipo)\b|"
    r"\b(?:announce[ds]?|launch(?:ed|es)?|unveil\w*)\b|"
    # releases
    r"\b(?:latest|newest|next|current|upcoming|most\s+recent)\b.{0,24}"
    r"\b(?:version|release|stable|update|vulnerability|meetup|conference|price|model)\b|"
    r"\blts\b|\b(?:beta|rc\d?)\b.{0,8}\bout\b|\bcome[s]?\s+out\b|\bout\s+yet\b|"
    r"\bstill\s+(?:maintained|alive|supported|developed|free)\b|\b(?:stars|downloads|followers)\b|"
    # prices
    r"\blicen[cs]e\s+(?:change|cost|price|fee)|"
    r"\b(?:pricing|price|free\s+tier|subscription|per\s+(?:year|month|seat|user))\b|"
    r"\b(?:does|do|would|will|is|are)\b.{0,30}\bcosts?\b|\bcosts?\s+(?:of|for)\s+(?:an?|one|the)\b|"
    # what is down, what is better
    r"\b(?:outage|down\s+for|is\s+\w+\s+down|broke)\b|\brelease\s+(?:notes?|date)\b|"
    r"\b(?:prefer|better|best|popular|recommend\w*)\b.{0,30}\b(?:today|now|nowadays|these\s+days|currently)\b|"
    r"\bvs\.?\b.{0,60}\b(?:prefer|better|faster|today)\b|\b(?:tutorial|course|book)s?\b|"
    r"\bcves?\b|\bvulnerabilit(?:y|ies)\b.{0,30}\b(?:lately|latest|recent|new)\b|"
    r"\b(?:patched|fixed)\s+(?:version|release)\b|\bsurvey\b|\brank(?:s|ed|ing)?\b|\bfree\s+for\b|"
    r"\b(?:drop|add)(?:ped|s|ed)?\s+[\w. ]{1,24}\s+support\b|\bwho\s+(?:won|owns|runs|makes)\b|"
    r"\bnew\s+[\w ]{0,16}model\b|"
    # events; what is held keeps its name
    r"\b(?:where|(?:which|what)\s+(?:city|country|venue))\b(?=.{0,40}\b(?:held|host(?:s|ed|ing)?|tak(?:es?|ing)\s+place)\b)|"
    r"\btickets?\b(?=.{0,30}\bcosts?\b)|\bcosts?\b(?=.{0,30}\btickets?\b)|"
    r"在哪(?:里|儿|个城市|座城市|个国家|个地方)(?:举行|举办|召开|办|开)|(?:什么时候|何时|哪天)(?:开幕|举行|举办|召开|开(?=[?？]|$))|"
    r"多少钱|价格|售价|排名|排第|还有人维护|维护吗|教程|推荐|新闻|更好用|好用吗|调查|出了?新|又出|出了吗|"
    r"什么时候(?:发布|出|上线)|几点|现任|收购|宣布|下载量|免费|许可证变|涨价|门票|是谁(?:创办|收购)",
    re.IGNORECASE,
)
RARE = 0.02
"""A name that is in no more than this share of the passages is not what the documents are about."""
COMMON = 0.1
"""A name in more of them is what they are about."""
_RARER = 0.002
"""The same for a word that is no name."""
_UNHEARD = 0.0005
"""A name in no more of them is of something else, whatever else the question names."""
_SPOKEN_OF = 0.02
"""A question all of whose words are in more of them may be theirs, whatever it sounds like."""
_PERHAPS, _LIKELY, _SURE, _CERTAIN, _UNDENIABLE = 0.5, 0.6, 0.75, 0.7, 0.85
"""From which score on a question is the world's: with a word that no document has; with names that few have; without
either; although it names a person or a version that the documents have; and although it speaks of documents, or of days
that are not fresh."""
_ENOUGH = 100
"""Passages; in fewer a word may well be missing by chance."""
_FRESH_DAYS, _PRESENT_DAYS = 8, 62
"""News are of the last week (a week ago may be yesterday's week elsewhere), or else of this month or the last."""
_MOST_WORDS = 12
_LONGEST_QUESTION = 300


class TermCounts(Protocol):
    """What is asked of a catalogue."""

    async def term_counts(self, scope: Scope, terms: Sequence[str], /) -> Mapping[int, Mapping[str, int]]:
        """In how many passages each term occurs, by the number of its collection."""
        ...


def subjects(question: str, vocabulary: Vocabulary, nouns: frozenset[str]) -> tuple[list[str], list[str]]:
    """The names in a question, and its other words of weight: what it may be about.

    A name is written with a capital inside a sentence, in Latin among Chinese, or with a version.
    """
    tokens = tokenize(question)
    chinese = any(token.kind == "cjk" for token in tokens)
    names: dict[str, None] = {}
    others: dict[str, None] = {}
    last = -1
    for index, token in enumerate(tokens):
        plain = token.folded in STOP_WORDS["en"] or token.folded in lexicon.STOP_WORDS or token.folded in nouns
        if token.kind != "word" or len(token.text) < 2 or plain:
            continue
        inner = index > 0 and tokens[index - 1].text not in ".?!"
        versioned = index + 1 < len(tokens) and tokens[index + 1].kind == "number"
        named = (token.is_capital and (inner or versioned)) or chinese or versioned
        if not token.is_capital and (token.folded,) in vocabulary.cues:
            continue
        if named and names and last == index - 1 and token.is_capital and tokens[last].is_capital:
            # Side by side they are one name: "Stack Overflow".
            before = names.popitem()[0]
            names[f"{before} {token.text}"] = None
        else:
            (names if named else others)[token.text] = None
        last = index if named else last
    return list(names)[:_MOST_WORDS], list(others)[:_MOST_WORDS]


async def refine(
    reading: RulesReading, question: str, context: Context, scope: Scope, catalogue: TermCounts
) -> RulesReading:
    """The reading, sent to the web or kept from it by what the documents speak of.

    Args:
        context: what the reading was made against.
        catalogue: says how often terms occur, see `Catalogue.term_counts`.
    """
    if reading.kind != "retrieve" or len(question) > _LONGEST_QUESTION:
        return reading
    vocabulary, nouns = build(context.catalogue), context.nouns
    fresh = {name for name, role in vocabulary.roles.items() if role == "date"}
    # "yesterday" and "this week" are also said of the world.
    said = [match.span() for match in _WORLDLY.finditer(question)]
    stated = [
        piece
        for piece in reading.pieces
        # In "Django 6.1 release notes" the release is the world's, not a topic.
        if piece.field not in fresh and not any(first < piece.end and piece.start < last for first, last in said)
    ]
    if stated:
        return await _by_sound(reading, question, context, scope, catalogue)
    if _ALWAYS.search(question):
        return _sent(reading)
    chosen = [choice.name for choice in reading.sources] == ["web"]
    if not chosen and not said:
        return await _by_sound(reading, question, context, scope, catalogue)
    names, others = _asked_about(question, vocabulary, nouns, scope)
    known = await _shares([*names, *others], scope, catalogue)
    if names:
        shares = [known[name] for name in names]
        is_foreign = all(share <= RARE for share in shares) or min(shares) <= _UNHEARD
    else:
        # Of a question with no name most words must be strange: any collection lacks some word.
        is_foreign = 2 * sum(known[word] <= _RARER for word in others) >= max(len(others), 1)
    if is_foreign:
        return _sent(reading)
    if not chosen:
        return await _by_sound(reading, question, context, scope, catalogue)
    all_common = not names and min((known[word] for word in others), default=0) >= _SPOKEN_OF
    if (all_common or any(known[name] > COMMON for name in names)) and worldly(question) < _UNDENIABLE:
        # What the documents are full of is theirs to answer.
        documents = [name for name, card in context.cards.items() if card.kind == "documents"]
        reason = "the documents speak of it"
        return replace(
            reading, sources=tuple(SourceChoice(name=name, confidence=0.6, reason=reason) for name in documents)
        )
    return reading


async def _by_sound(
    reading: RulesReading, question: str, context: Context, scope: Scope, catalogue: TermCounts
) -> RulesReading:
    """The reading, sent to the web when the question sounds like one for the world and the documents leave it to that.

    One that states constraints, calculates or speaks of documents is theirs; a person, a version or the last few
    days are also spoken of elsewhere.
    """
    if reading.kind != "retrieve" or len(reading.searches) > 1:
        return reading  # of several questions one may well be the documents'
    vocabulary = build(context.catalogue)
    spoken = reading.complete or _speaks_of_documents(question, context.nouns)
    chunks = sum(one.chunks for one in scope.collections)
    least = _UNDENIABLE if spoken else _PERHAPS if chunks >= _ENOUGH else _SURE
    for piece in reading.pieces:
        role = vocabulary.roles.get(piece.field)
        if role not in ("person", "version", "date", "number"):
            return reading
        if role == "date" and not _is_fresh(piece.filter, context.now.date()):
            least = _UNDENIABLE if _is_fresh(piece.filter, context.now.date(), _PRESENT_DAYS) else 1.0
        least = max(least, _CERTAIN if role != "date" else _PERHAPS)
    sounds = worldly(question) if _MAY_ASK.search(question) else 0.0
    if sounds < least:
        return reading
    names, others = _asked_about(question, vocabulary, context.nouns, scope)
    known = await _shares([*names, *others], scope, catalogue)
    if sounds < _UNDENIABLE and known and all(share > COMMON for share in (known[name] for name in names or others)):
        return reading  # what the documents often name, they may tell of
    if sounds < _SURE:
        strange = sum(share <= _UNHEARD for share in known.values())
        unheard = any(known[name] <= _UNHEARD for name in names) or (
            2 * strange >= max(len(known), 1) and (names or sounds >= _LIKELY)
        )
        rare = bool(names) and all(known[name] <= RARE for name in names) and sounds >= _LIKELY
        if not unheard and not rare:
            return reading
    return _sent(reading)


def _asked_about(
    question: str, vocabulary: Vocabulary, nouns: frozenset[str], scope: Scope
) -> tuple[list[str], list[str]]:
    """The names and the other words of a question without those that ask, "CEO" or "newest"."""
    asking = {word for match in _WORLDLY.finditer(question) for word in match[0].split()}
    names, others = subjects(question, vocabulary, nouns)
    names = [word for word in names if word not in asking]
    if not names and any(one.languages.get("zh") for one in scope.collections):
        others += [term.text for term in analyse(question, "zh") if has_chinese(term.text) and len(term.text) > 1]
    return names, [word for word in others if word not in asking][:_MOST_WORDS]


def _speaks_of_documents(question: str, nouns: frozenset[str]) -> bool:
    own = nouns | lexicon.DOCUMENT_NOUNS
    return any(token.folded in own for token in tokenize(question)) or any(
        noun in question for noun in lexicon.CHINESE_DOCUMENT_NOUNS
    )


def _is_fresh(filter: Json, today: date, days: int = _FRESH_DAYS) -> bool:
    """Whether a filter on days begins no longer ago than so many: those of news, if nothing else is said."""
    bounds: list[Json] = filter.get("filters", [filter])
    lows = [str(one["value"])[:10] for one in bounds if one.get("type") in ("gte", "gt", "eq")]
    return bool(lows) and min(lows) >= (today - timedelta(days=days)).isoformat()


def _sent(reading: RulesReading) -> RulesReading:
    web = SourceChoice(name="web", confidence=0.75, reason="it asks for what changes in the world")
    return replace(reading, sources=(web,), pieces=(), confidence=0.75, complete=False)


async def _shares(words: Sequence[str], scope: Scope, catalogue: TermCounts) -> dict[str, float]:
    """In which share of the passages each word occurs."""
    terms = {
        word: [term.text for term in analyse(word, "zh" if has_chinese(word) else "en") if not term.extra]
        for word in words
    }
    counts = await catalogue.term_counts(scope, [term for one in terms.values() for term in one])
    chunks = max(sum(one.chunks for one in scope.collections), 1)
    return {
        word: min((sum(known.get(term, 0) for known in counts.values()) for term in one), default=0) / chunks
        for word, one in terms.items()
    }
