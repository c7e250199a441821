"""Decide what a turn asks for (passages, some documents or all documents), and split it into its separate questions.

"Which proposals change the parser?" asks for documents, "list all rejected proposals" for all of them, "what do
proposals say of the parser?" for passages, and "who leads Atlas, and when does it end?" for two things.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Literal

from agent.intent.language import lexicon
from agent.intent.language.text import Token, has_chinese, tokenize
from agent.intent.topic.topic_words import content_words
from agent.intent.words import word_table

Wants = Literal["passages", "documents", "all"]

_CLAUSES = re.compile(r"[.!?;:,，。！？；：\n]\s*")
_MOST_MODIFIERS = 7
_PARTS = re.compile(
    r"(?<!\s)(?:\s*[,;，；])?\s*\b(?:and\s+separately|and\s+also|also|"
    r"(?<!\bhow\s)(?<!\bwho\s)(?<!\bwhy\s)(?<!\bwhat\s)(?<!\bwhen\s)(?<!\bwhere\s)"
    # "and are still active" continues the same question.
    r"and\s+(?=(?:how|what|who|where|when|why|which|is|are|do|does|did|can)\b)"
    r"(?!(?:is|are)\s+(?!(?:there|it|they|the|any)\b)(?-i:(?:[a-z]+\s+){0,2}[a-z]+)\s*[?？.]*$)|"
    r"plus|on\s+top\s+of\s+that|besides|as\s+well\s+as\s+(?=how|what))\W*|"
    r"(?<!\s)\s*[，,；;。？?]\s*(?:另外|还有|此外|同时|以及|顺便|再问|再说)[，,]?\s*|(?<=[?？])\s*(?=\S)|(?<!\s)\s*[;；]\s*",
    re.IGNORECASE,
)
_BACK_REFERENCE = re.compile(
    r"\b(?:it|them|they|its|their|those|these|this|he|she|his|her)\b(?!\s+\w+\s+(?:is|are)\b)|"
    # "a library that turns a script into a daemon" does not refer back
    r"\bthat\b(?=\s*(?:[?,.;]|$|(?:one|same|is|was|mean|count|number|change)\b))|\bhow\s+many\s+(?:are|were)\s+(?:there|those)\b|"
    r"^\s*(?:this|these|those)\s+\w+|^\s*how\s+many(?:\s+\w+)?\s*[?？]*$|"
    r"它|他|她|分别|各|^(?:写|有|用|花|一共)?了?(?:多少|几)|什么时候能|呢[?？]*$",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:who|what|where|when|why|how|which|is|are|do|does|did|can|could|should|tell|explain|list|show|became)\b|"
    r"怎么|什么|多少|几|谁|哪|如何|是否|吗|为何|为什么|呢|应该|还是|能不能|可不可以",
    re.IGNORECASE,
)
# A list follows: "two things: this and that", 一是……，二是…… ("first ..., second ...").
_COUNTED_OUT = re.compile(
    r"^[^:：?？]{0,60}\b(?:both|two|three|four|several|following|few)\b[^:：?？]{0,30}[:：](?P<list>.+)$", re.IGNORECASE
)
_BETWEEN_LISTED = re.compile(r"\s*[,;，；]\s*(?:and\s+|以及)?|\s+and\s+|以及", re.IGNORECASE)
_COUNTER_ZH = re.compile(r"(?:^|[，,；;。：:\s])(?:[一二三四]是|第[一二三四](?:[个点，,、]|是)|其[一二三四][，,是]?)")
_SENTENCE_END = re.compile(r"(?<=[?？!！。;；])\s*(?=\S)|(?<=\w\.)\s+(?=[A-Z])")
_WANTS = re.compile(
    r"^\W*(?:please\s+)?(?:point|show|give|tell|find|explain|describe|list|compare|summari[sz]e|difference)\b|"
    r"^\W*(?:请|介绍|说明|解释|比较|对比|列出)",
    re.IGNORECASE,
)
_ASKING_WORD = re.compile(r"\b(?:who|what|where|when|why|how|which)\b", re.IGNORECASE)
_SUBJECT = re.compile(
    r"\w+\s+(?:not\s+)?(?:(?:the|an?|any|some|all|every|each|this|that|these|those|there|it|they|we|you|he|she|i|my|our|your|"
    r"its|their|his|her)\b|(?-i:[A-Z\"'“‘\d]))",
    re.IGNORECASE,
)
_AUXILIARY = r"(?:is|are|was|were|do|does|did|has|have|had|can|could|should|will|would)"
_INVERTED = re.compile(rf"{_AUXILIARY}\b", re.IGNORECASE)
_WH = re.compile(rf"\b(?:who|which|what|how\s+many)\b(?:(?:\s+\w+){{0,3}}?\s+(?P<verb>{_AUXILIARY})\b)?", re.IGNORECASE)
_PLURAL = frozenset("are were do have".split())
_SINGULAR = frozenset("is was does has".split())
_RELATIVE = re.compile(r"\w,?\s+(who|whose|which|that|where)\b", re.IGNORECASE)
_RELATIVE_PLACE = re.compile(rf"(?:where|when)\s+(?!{_AUXILIARY}\b|to\b)", re.IGNORECASE)
_RELATIVE_NOUN = re.compile(rf"(?:who|which)\s+{_AUXILIARY}\b", re.IGNORECASE)
"""Three ways in which a further clause continues the same question, see `_continues_question`."""
_IDENTIFIES = re.compile(r"who\s+(?:is|are|was|were)\s+(?:the|an?|his|her|its|their)\b", re.IGNORECASE)
"""Asks for a person ("who is the ..."): another question, unless the text before it describes a person."""
_DOES = re.compile(r"(?:do|does|did)\s+(?!not\b)", re.IGNORECASE)
_MOST_PARTS = 5


def read_wants(text: str, nouns: Collection[str]) -> Wants:
    """Return "all" if a turn asks for all documents of a kind, "documents" if it asks for some, else "passages".

    Args:
        nouns: the collections' own words for a document ("pep", "peps"), see `inferred_words.document_nouns_of`.
    """
    read = _chinese_wants if has_chinese(text) else _english_wants
    found = {read(clause, nouns) for clause in _CLAUSES.split(text) if clause.strip()}
    return "all" if "all" in found else "documents" if "documents" in found else "passages"


def _english_wants(clause: str, nouns: Collection[str]) -> Wants:
    words = [token for token in tokenize(clause) if token.kind != "mark"]
    said = word_table("listing", "en")
    place, openers = _read_openers(words)
    is_listing = not openers.isdisjoint(said["listing"])
    if is_listing and words[place - 1].folded == "what":
        return "all"  # "list what Roe inspected": the documents have no noun
    first, determiners = place, _determiners()
    while place < len(words) and (words[place].folded in determiners or words[place].kind == "number"):
        place += 1
    before = {word.folded for word in words[first:place]}
    if place < len(words) and words[place].folded in (said["whole"], said["anything"]):
        if place + 1 < len(words) and words[place + 1].folded in said["of_one"].split():
            return "passages"  # "everything about the night ferry" asks for passages, not for a list
        return "all" if words[place].folded == said["whole"] else "documents"
    is_all = not before.isdisjoint(said["quantifiers"].split())
    is_number = any(
        word.kind == "number" or word.folded in said["numbers"].split() for word in words[first : place + 1]
    )
    is_some = not before.isdisjoint(said["some"].split())
    noun = _noun(words[place:], nouns, singular=is_all or is_some)
    if noun is None:
        # "all the brutalism" is a list, "all the details of the brutalist house" is not.
        is_told = is_all and not openers.isdisjoint(said["imperatives"]) and place < len(words)
        is_of_one = any(word.folded in said["of_one"].split() for word in words[place + 1 :])
        return "all" if is_told and not is_of_one and words[place].folded not in _stops() else "passages"
    if is_all or (is_listing and not is_number):
        return "all"
    # A phrase without "which" or "show me" may be a topic: "vacation rules".
    is_head = noun in nouns or noun in said["heads"].split()
    return "documents" if openers or is_some or is_head else "passages"


def _read_openers(words: Sequence[Token]) -> tuple[int, set[str]]:
    """Return (index after the opening phrases, these phrases): "please show me all reports" -> (3, {"show me"})."""
    polite = word_table("listing", "en")["polite"].split()
    place, openers = 0, set[str]()
    while True:
        while place < len(words) and words[place].folded in polite:
            place += 1
        begun = _openers().get(words[place].folded, ()) if place < len(words) else ()
        phrase = next((one for one in begun if _matches_phrase(one, words, place)), None)
        if phrase is None:
            return place, openers
        place += len(phrase)
        openers.add(" ".join(phrase))


@cache
def _determiners() -> frozenset[str]:
    said = word_table("listing", "en")
    return frozenset(word for kind in ("determiners", "quantifiers", "some") for word in said[kind].split())


@cache
def _stops() -> frozenset[str]:
    return frozenset(word_table("listing", "en")["stops"].split())


@cache
def _openers() -> Mapping[str, Sequence[tuple[str, ...]]]:
    """Map the first word of each opening phrase to the phrases, as tuples of words, the longest first."""
    said = word_table("listing", "en")
    phrases = (tuple(phrase.split()) for phrase in (*said["openers"], *said["imperatives"], *said["listing"]))
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in sorted(phrases, key=len, reverse=True):
        found.setdefault(phrase[0], []).append(phrase)
    return found


def _matches_phrase(phrase: Sequence[str], words: Sequence[Token], place: int) -> bool:
    return [word.folded for word in words[place : place + len(phrase)]] == list(phrase)


def _noun(words: Sequence[Token], nouns: Collection[str], *, singular: bool) -> str | None:
    """Return the noun for documents that a phrase begins with, after at most seven modifiers: "reports"; else None.

    Args:
        singular: whether a noun in the singular counts too.
    """
    for word in words[: _MOST_MODIFIERS + 1]:
        if word.folded in _stops():
            return None
        is_noun = word.folded in nouns or word.folded in lexicon.DOCUMENT_NOUNS
        if is_noun and (singular or word.folded.endswith("s")):
            return word.folded
    return None


def _chinese_wants(clause: str, nouns: Collection[str]) -> Wants:
    said = word_table("listing", "zh")
    if _has_any(clause, said["asking"]):
        return "passages"
    if _enumerating().match(clause) or clause.rstrip().endswith(tuple(said["enumerated"])):
        return "all"
    if not _has_any(clause.casefold(), {*nouns, *lexicon.CHINESE_DOCUMENT_NOUNS}):
        return "passages"
    if _has_any(clause, said["every"]):
        return "all"
    is_head = clause.casefold().rstrip(" 呢啊的").endswith((*nouns, *said["heads"]))
    return "documents" if is_head or _has_any(clause, said["some"]) else "passages"


@cache
def _enumerating() -> re.Pattern[str]:
    """Return a pattern of a clause that begins with a request to list. Elsewhere 枚举 ("enumerate") may be a topic."""
    said = word_table("listing", "zh")
    return re.compile(rf"\s*(?:{'|'.join(said['polite'])})*\s*(?:{'|'.join(said['enumerate'])})")


def _has_any(clause: str, words: Iterable[str]) -> bool:
    return any(word in clause for word in words)


def split_questions(text: str) -> list[str]:
    """Return the separate questions of a turn; only the turn itself if it has none that can be asked alone."""
    pieces = [piece.strip(" ,;，；。") for piece in _split_at_joints(text) if piece.strip(" ,;，；。?？")]
    if not 1 < len(pieces) <= _MOST_PARTS or not all(map(_is_question, pieces)):
        return [text]
    # A question that depends on the one before ("how many is that?") is no separate question.
    return [text] if any(_BACK_REFERENCE.search(piece) for piece in pieces[1:]) else pieces


def _split_at_joints(text: str) -> Iterator[str]:
    """Yield the parts of a text between words or marks, such as "and how" or ";", that start another question."""
    start = 0
    for joint in _PARTS.finditer(text):
        if not _continues_question(text[start : joint.start()], joint[0], text[joint.end() :]):
            yield text[start : joint.start()]
            start = joint.end()
    yield text[start:]


def _continues_question(before: str, joint: str, after: str) -> bool:
    """Return whether the words after a joint, such as "and" or "also", continue the question before it.

    A verb without a subject of its own continues it: "which firm sells maps [and is accused of ...]", "who is [also]
    planning ...". A second relative clause continues it too: "the owner who left [and who has sold ...]", "[and where]
    it grew".
    """
    words = joint.strip(" ,;").casefold()
    if has_chinese(after) or before.endswith(("?", ";")) or not words:
        return False
    if words.endswith("also") and not _ASKS.match(after):
        return True
    if _INVERTED.match(after):
        has_own = _SUBJECT.match(after) or _DOES.match(after)
        return not has_own and _has_wh_subject(before, after.split()[0].casefold())
    if _RELATIVE_PLACE.match(after):
        return _ASKS.match(before.lstrip()) is not None
    if _RELATIVE_NOUN.match(after) is None:
        return False
    relatives = {word.casefold() for word in _RELATIVE.findall(before)}
    return bool(relatives & {"who", "whose"} if _IDENTIFIES.match(after) else relatives)


def _has_wh_subject(before: str, verb: str) -> bool:
    """Return whether the question word in `before` may be the subject of the next clause's verb.

    "who leads Atlas", "is" -> True; "what does it say", "can" -> False.
    """
    asked = _WH.search(before)
    first = (asked["verb"] or "").casefold() if asked else ""
    agrees = not ({first, verb} & _PLURAL and {first, verb} & _SINGULAR)
    return asked is not None and agrees and first not in ("do", "does", "did")


def guess_parts(text: str) -> list[str]:
    """Return the 2 to 5 things that a turn may ask for, split more freely than by `split_questions`; else [].

    They are too unreliable to be searched one by one, but good enough to check whether the hits cover each of them.
    """
    counted = _COUNTED_OUT.match(text)
    if counted is not None:
        pieces = _BETWEEN_LISTED.split(counted["list"])
    elif len(pieces := _COUNTER_ZH.split(text)) > 2:
        pieces = pieces[1:]
    else:
        sentences = _SENTENCE_END.split(text)
        pieces = [piece for sentence in sentences for piece in _PARTS.split(sentence) if _may_ask(sentence, piece)]
    pieces = [piece.strip(" ,;:.，；：。?？!！") for piece in pieces]
    # A part that depends on the one before is no separate question.
    alone = [piece for place, piece in enumerate(pieces) if not place or not _BACK_REFERENCE.search(piece)]
    # One part too many is enough to reject them all, so stop there.
    parts = list(islice((piece for piece in dict.fromkeys(alone) if _has_subject(piece)), _MOST_PARTS + 1))
    return parts if 1 < len(parts) <= _MOST_PARTS else []


def _may_ask(sentence: str, piece: str) -> bool:
    """Return whether a sentence is a question, or its part `piece` begins as one: a later "list" may be a noun."""
    if sentence.rstrip().endswith(("?", "？")) or _WANTS.match(piece):
        return True
    return (_ASKS.search(piece) if has_chinese(piece) else _ASKS.match(piece.lstrip())) is not None


def _has_subject(piece: str) -> bool:
    """Return whether a part of a turn can be searched: it has two content words, or a Chinese word of 2 characters."""
    words = content_words(piece)
    return len(words) > 1 or any(len(word) > 1 for word in words if has_chinese(word))


def _is_question(piece: str) -> bool:
    """Return whether a part of a turn is a question; "a family is asking about a journey" is a statement."""
    if has_chinese(piece):
        return len(piece) >= 5 and _ASKS.search(piece) is not None
    asks = _ASKING_WORD.search(piece) or any(_ASKS.match(clause.lstrip()) for clause in _CLAUSES.split(piece))
    return len(piece) >= 12 and bool(asks)
