"""A question as tokens, with the names of values, the words for fields and the topics that stand at them."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from rapidfuzz import fuzz, process

from agent.intent.language import lexicon
from agent.intent.language.text import Token, has_chinese
from agent.intent.values.field_words import concepts_of
from agent.intent.values.value_linking import Mention
from agent.intent.values.vocabulary import Vocabulary

_ABOUT = frozenset(
    """
    about on regarding concerning covering describing around touching discussing re 关于 有关 涉及 讨论 针对
    """.split()
)
ENDS = frozenset(",;:?!，；：？！。")
"""Marks that end a clause."""
QUOTES = frozenset("\"'“”‘’「」『』《》`")
# Words that start another condition: "about packaging [since 2020]".
_RESUMES = frozenset(
    """
    by from in since before after between excluding except without that which who whose were was during
    within published written filed created tagged but only 由 除
    """.split()
)
_LONGEST_CUE = 4
_START = attrgetter("start")
Made = TypeVar("Made")
_SHORTEST_MISSPELT = 6
_MISSPELT_CUTOFF = 90
# The topic of a Chinese clause, which ends before the next mark.
_CLAUSE_ZH = r"(?P<topic>[^，。；？！,;?!]*?)"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A question as tokens, with what each token means: the input of all readers of conditions.

    A mention is a name of values in the question. A cue is a word or phrase that points at fields: "approved by".

    Attributes:
        nouns: nouns that stand for a document of the collection ("pep", "peps").
        used_spans: characters [first, last) of dates and numbers, which no other condition may use.
        has_dates: True if the question states a range of days.
        topic_spans: characters [first, last) that name a topic, see `topic_regions`.
        counts_documents: True if a value named as a topic is a constraint too, because documents with it are counted.
        searches_text: True if it is known that the question asks for no calculation, whatever its words.
        frequencies: share of the passages that contain a word, by the folded word; not all words are known.
        negations: by the first token of each mention, whether the mention is negated; None if that is unclear.
        has_calculation_word: True if the question has a word that can start a calculation.
        negators: words of negation, by the index of the token after each, see `agent.intent.analysis.negation_words`.
        pinyin_fields: fields by Chinese phrases whose Pinyin names them, see `find_pinyin_phrases`.
    """

    text: str
    tokens: Sequence[Token]
    mentions: Sequence[Mention]
    vocabulary: Vocabulary
    nouns: frozenset[str]
    used_spans: tuple[tuple[int, int], ...] = ()
    topic_spans: tuple[tuple[int, int], ...] = ()
    has_dates: bool = False
    counts_documents: bool = False
    searches_text: bool = False
    frequencies: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    negations: Mapping[int, bool | None] = field(default_factory=dict, repr=False, compare=False)
    has_calculation_word: bool = False
    negators: Mapping[int, Any] = field(default_factory=dict, repr=False, compare=False)
    pinyin_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)
    # Caches. `_cues` and `_of_words` depend on the words only, the others on the mentions too. `replace` keeps a cache
    # that it is not given, so a change of words or mentions must pass new ones.
    _cues: dict[int, tuple[tuple[str, ...], int]] = field(default_factory=dict, repr=False, compare=False)
    _of_words: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    _covering: dict[int, Mention] = field(default_factory=dict, repr=False, compare=False)
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self._covering:
            for one in reversed(self.mentions):
                self._covering.update(dict.fromkeys(range(one.first, one.last), one))

    def without(self, mentions: Collection[Mention]) -> "Sentence":
        """Return the question as if these names were unknown: without their mentions."""
        unknown = {one.first for one in mentions}
        others = [one for one in self.mentions if one.first not in unknown]
        return replace(self, mentions=others, _covering={}, _made={})

    def cached(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """Return the value cached under a name; `make` makes it on first use, from the words and mentions."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def cached_for_words(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """Return a value like `cached`, for a value made from the words only: it stays valid if the mentions change."""
        if name not in self._of_words:
            self._of_words[name] = make()
        made: Made = self._of_words[name]
        return made

    def places(self, name: str, holds: Callable[["Sentence", int], bool]) -> list[int]:
        """Return the indices of the tokens for which `holds` returns True, cached under a name."""
        return self.cached(("places", name), lambda: [at for at in range(len(self.tokens)) if holds(self, at)])

    def token(self, index: int) -> Token | None:
        """Return the token at an index, None outside the question."""
        return self.tokens[index] if 0 <= index < len(self.tokens) else None

    def folded(self, index: int) -> str:
        """Return the folded token at an index, "" outside the question."""
        return self.tokens[index].folded if 0 <= index < len(self.tokens) else ""

    def index_from(self, character: int) -> int:
        """Return the index of the first token that starts at or after a character; `len(tokens)` if there is none."""
        return bisect_left(self.tokens, character, key=_START)

    def mention_at(self, index: int) -> Mention | None:
        """Return the mention that covers a token."""
        return self._covering.get(index)

    @property
    def cued_tokens(self) -> Sequence[tuple[int, tuple[str, ...]]]:
        """(index, fields) for each token at which a cue starts, in order."""
        return self.cached_for_words(
            "cued", lambda: [(at, fields) for at in range(len(self.tokens)) if (fields := self.cue_fields(at))]
        )

    def cue_fields(self, index: int) -> tuple[str, ...]:
        """Return the fields of the longest cue that starts at this token; () if none starts here."""
        return self.cue(index)[0]

    def cue(self, index: int) -> tuple[tuple[str, ...], int]:
        """Return the fields of the longest cue that starts at this token, and the index of the token after the cue.

        "approved by" points at `reviewer`, "team" at `team`. Without a cue the result is ((), index).
        """
        known = self._cues.get(index)
        if known is None:
            known = self._cues[index] = self._cue(index)
        return known

    def _cue(self, index: int) -> tuple[tuple[str, ...], int]:
        words: list[str] = []
        found: tuple[tuple[str, ...], int] = ((), index)
        if index < 0:
            return found
        cues = self.vocabulary.cues
        for place in range(index, min(index + _LONGEST_CUE, len(self.tokens))):
            token = self.tokens[place]
            if token.kind == "mark":
                if token.text == "-" and place == index + 1 and cues:
                    continue  # "co-authors" is read as coauthors
                break
            words.append(token.folded)
            fields = cues.get(("".join(words),), ()) if place > index else ()
            fields = fields or cues.get(tuple(words), ()) or (cues.get((token.stem,), ()) if len(words) == 1 else ())
            if fields:
                found = fields, place + 1
        return found

    def extent(self, mention: Mention, field: str) -> tuple[int, int]:
        """Return the characters [start, end) of a value of a field and of the field's cues directly beside it."""
        start, end = mention.start, mention.end
        fields, behind = self.cue(mention.last)
        if field in fields:
            end = self.tokens[behind - 1].end
        for first in range(mention.first - 1, max(mention.first - _LONGEST_CUE, 0) - 1, -1):
            fields, behind = self.cue(first)
            if field in fields and behind == mention.first:
                start = self.tokens[first].start
        return start, end

    def is_noun(self, index: int) -> bool:
        """Return whether a noun for documents is at a token: "report", one of `nouns`, or a kind of document."""
        if not 0 <= index < len(self.tokens):
            return False
        token = self.tokens[index]
        if token.kind == "cjk":
            return self.text.startswith((*lexicon.CHINESE_DOCUMENT_NOUNS, *self.nouns), token.start, token.start + 6)
        if token.folded in lexicon.DOCUMENT_NOUNS or token.folded in self.nouns or _is_misspelt_noun(token.folded):
            return True
        return self.is_kind(index)

    def is_kind(self, index: int) -> bool:
        """Return whether a token names a kind of document: a value of a field such as `type`."""
        mention = self.mention_at(index)
        return mention is not None and any(
            "kind" in concepts_of(one.field) and self.vocabulary.roles.get(one.field) == "label"
            for one in mention.matches
        )

    def is_in_topic(self, start: int) -> bool:
        """Return whether the character at the position `start` of the text lies inside a topic: "about packaging".

        A topic begins with its preposition. Its first character does not count, because a value that begins there ("On
        Hold") is no topic.
        """
        return any(first < start < last for first, last in self.topic_spans)


@lru_cache(maxsize=4096)
def _is_misspelt_noun(word: str) -> bool:
    """Return whether a word is a misspelt noun for documents: "porposal", "documants"."""
    if len(word) < _SHORTEST_MISSPELT or word in lexicon.STOP_WORDS:
        return False
    nouns = lexicon.DOCUMENT_NOUNS
    return process.extractOne(word, nouns, scorer=fuzz.ratio, score_cutoff=_MISSPELT_CUTOFF) is not None


def topic_regions(text: str, tokens: Sequence[Token], heads: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """Return the topics of a question, as character ranges: "about packaging" in "drafts about packaging since 2020".

    A value inside a topic is not a constraint unless other words make it one.

    Args:
        heads: nouns for documents besides the general ones; a Chinese topic ends before such a noun.
    """
    regions = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != "word" or token.folded not in _ABOUT or _is_date_on(tokens, index):
            index += 1
            continue
        end = index + 1
        while end < len(tokens) and not _ends_topic(tokens[end], is_first=end == index + 1):
            end += 1
        regions.append((token.start, tokens[end - 1].end))
        index = end
    return (*regions, *_chinese_about(text, heads))


def _ends_topic(token: Token, *, is_first: bool) -> bool:
    return token.text in ENDS or (token.folded in _RESUMES and not is_first)


def _is_date_on(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a token is "on" or "around" and introduces no topic but a day or documents: "on 4 July"."""
    if tokens[index].folded not in ("on", "around") or index + 1 == len(tokens):
        return False
    return tokens[index + 1].kind == "number" or tokens[index + 1].folded in ("any", "each", "every")


def _chinese_about(text: str, heads: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Yield (start, end) of Chinese topics, such as [打包] ("packaging"); start is the character before the topic.

    Examples: 关于[打包]的提案 ("proposals about packaging"), 和[打包]有关的 and [打包]方面的 ("related to packaging").
    """
    if not has_chinese(text):
        return
    nouns = "|".join(map(re.escape, sorted((*lexicon.CHINESE_DOCUMENT_NOUNS, *heads), key=len, reverse=True)))
    for pattern in (
        rf"(?:关于|有关|涉及|讨论|针对|围绕|介绍|讲述|讲|谈到|谈|提到){_CLAUSE_ZH}"
        rf"(?=的?\s*(?:{nouns})|[，。；？！,;?!]|$)",
        rf"(?:跟|与|和|同){_CLAUSE_ZH}(?:有关|相关)",
        r"(?P<topic>[^，。；？！,;?!的、]{1,12})(?:方面|相关)的",
    ):
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield match.start("topic") - 1, match.end("topic")
