"""Several questions in one turn: "who leads Atlas, and when does it end?"."""

import re
from itertools import islice

from agent.intent.text import has_chinese
from agent.intent.topic import plain_words

_PARTS = re.compile(
    r"(?<!\s)(?:\s*[,;，；])?\s*\b(?:and\s+separately|and\s+also|also|"
    r"(?<!\bhow\s)(?<!\bwho\s)(?<!\bwhy\s)(?<!\bwhat\s)(?<!\bwhen\s)(?<!\bwhere\s)"
    # "and are still active" says more of the same.
    r"and\s+(?=(?:how|what|who|where|when|why|which|is|are|do|does|did|can)\b)"
    r"(?!(?:is|are)\s+(?!(?:there|it|they|the|any)\b)(?-i:(?:[a-z]+\s+){0,2}[a-z]+)\s*[?？.]*$)|"
    r"plus|on\s+top\s+of\s+that|besides|as\s+well\s+as\s+(?=how|what))\W*|"
    r"(?<!\s)\s*[，,；;。？?]\s*(?:另外|还有|此外|同时|以及|顺便|再问|再说)[，,]?\s*|(?<=[?？])\s*(?=\S)|(?<!\s)\s*[;；]\s*",
    re.IGNORECASE,
)
_LEANS = re.compile(
    r"\b(?:it|them|they|its|their|those|these|this|he|she|his|her)\b(?!\s+\w+\s+(?:is|are)\b)|"
    # "a library that turns a script into a daemon" points back at nothing
    r"\bthat\b(?=\s*(?:[?,.;]|$|(?:one|same|is|was|mean|count|number|change)\b))|\bhow\s+many\s+(?:are|were)\s+(?:there|those)\b|"
    r"^\s*how\s+many(?:\s+\w+)?\s*[?？]*$|"
    r"它|他|她|分别|各|^(?:写|有|用|花|一共)?了?(?:多少|几)|什么时候能|呢[?？]*$",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:who|what|where|when|why|how|which|is|are|do|does|did|can|could|should|tell|explain|list|show|became)\b|"
    r"怎么|什么|多少|几|谁|哪|如何|是否|吗|为何|为什么|呢|应该|还是|能不能|可不可以",
    re.IGNORECASE,
)
# "two things: this and that", 一是……，二是……: what follows is counted out.
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
_MOST_PARTS = 5


def parts_of(text: str) -> list[str]:
    """The separate questions of one turn; one when it asks one thing."""
    pieces = [piece.strip(" ,;，；。") for piece in _PARTS.split(text) if piece and piece.strip(" ,;，；。?？")]
    if not 1 < len(pieces) <= _MOST_PARTS or not all(map(_is_question, pieces)):
        return [text]
    # What leans on the question before it ("how many is that?") is the same question.
    return [text] if any(_LEANS.search(piece) for piece in pieces[1:]) else pieces


def parts_perhaps(text: str) -> list[str]:
    """What may be the separate things one turn asks for, read more generously than by `parts_of`; [] for only one.

    Too generous to be searched for alone, but good enough to look whether each of them was found.
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
    # What leans on the question before it asks more of the same.
    alone = [piece for place, piece in enumerate(pieces) if not place or not _LEANS.search(piece)]
    # One part too many says as much as a thousand.
    parts = list(islice((piece for piece in dict.fromkeys(alone) if _has_subject(piece)), _MOST_PARTS + 1))
    return parts if 1 < len(parts) <= _MOST_PARTS else []


def _may_ask(sentence: str, piece: str) -> bool:
    """Whether a sentence ends as a question, or one of its pieces begins as one: "list" also stands in statements."""
    if sentence.rstrip().endswith(("?", "？")) or _WANTS.match(piece):
        return True
    return (_ASKS.search(piece) if has_chinese(piece) else _ASKS.match(piece.lstrip())) is not None


def _has_subject(piece: str) -> bool:
    """Whether it can be searched for: two words that carry meaning, or one of Chinese."""
    words = plain_words(piece)
    return len(words) > 1 or any(len(word) > 1 for word in words if has_chinese(word))


def _is_question(piece: str) -> bool:
    return _ASKS.search(piece) is not None and len(piece) >= (5 if has_chinese(piece) else 12)
