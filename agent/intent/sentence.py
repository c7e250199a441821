"""A question with what was found in it: what stands at a place, and which parts of it name a topic."""

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from rapidfuzz import fuzz, process

from agent.intent import lexicon
from agent.intent.linking import Mention
from agent.intent.text import Token, has_chinese
from agent.intent.vocabulary import Vocabulary, concepts_of

_ABOUT = frozenset(
    """
    about on regarding concerning covering describing around touching discussing re 关于 有关 涉及 讨论 针对
    """.split()
)
ENDS = frozenset(",;:?!，；：？！。")
"""Marks that end a clause."""
# Words that begin another condition: "about packaging [since 2020]".
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
# A clause of Chinese, up to the next mark.
_CLAUSE_ZH = r"(?P<topic>[^，。；？！,;?!]*?)"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A question with what was found in it, for looking around a place.

    Attributes:
        nouns: words for the collection's documents ("pep", "peps").
        taken: characters [first, last) that dates and numbers were read from.
        dated: it states a range of days.
        about: characters [first, last) that name a topic, see `about_regions`.
        counted: documents are counted by what it names: a topic that is a value then constrains as well.
        frequencies: share of the passages that hold a word, by the folded word; not all words are known.
        denials: whether the name that begins at a place is denied; None where that cannot be told.
        calculates: it has a word without which nothing is calculated.
        negators: words of negation by the place behind each, see `agent.intent.negation`.
    """

    text: str
    tokens: Sequence[Token]
    mentions: Sequence[Mention]
    vocabulary: Vocabulary
    nouns: frozenset[str]
    taken: tuple[tuple[int, int], ...] = ()
    about: tuple[tuple[int, int], ...] = ()
    dated: bool = False
    counted: bool = False
    frequencies: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    denials: Mapping[int, bool | None] = field(default_factory=dict, repr=False, compare=False)
    calculates: bool = False
    negators: Mapping[int, Any] = field(default_factory=dict, repr=False, compare=False)
    # What every sign asks for again and again. It depends on the words and the values named alone: `replace` takes it
    # along, and must not be given others.
    _cues: dict[int, tuple[tuple[str, ...], int]] = field(default_factory=dict, repr=False, compare=False)
    _covering: dict[int, Mention] = field(default_factory=dict, repr=False, compare=False)
    _cued: list[tuple[int, tuple[str, ...]]] = field(default_factory=list, repr=False, compare=False)
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._cues:
            return  # of the same words
        for one in reversed(self.mentions):
            self._covering.update(dict.fromkeys(range(one.first, one.last), one))
        for index in range(len(self.tokens)):
            if fields := self.cue_fields(index):
                self._cued.append((index, fields))

    def without(self, mentions: Collection[Mention]) -> "Sentence":
        """The question as it reads where these names are unknown."""
        unknown = {one.first for one in mentions}
        others = [one for one in self.mentions if one.first not in unknown]
        return replace(self, mentions=others, _cues={}, _covering={}, _cued=[], _made={})

    def once(self, name: Hashable, make: Callable[[], Made]) -> Made:
        """What is made of the words and the values named, by its name; made when it is first asked for."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def token(self, index: int) -> Token | None:
        """The token at a place, None outside the question."""
        return self.tokens[index] if 0 <= index < len(self.tokens) else None

    def folded(self, index: int) -> str:
        """The token at a place as it is compared, "" outside the question."""
        return self.tokens[index].folded if 0 <= index < len(self.tokens) else ""

    def index_from(self, character: int) -> int:
        """The place of the first token that begins there or later; one past the last when there is none."""
        return bisect_left(self.tokens, character, key=_START)

    def mention_at(self, index: int) -> Mention | None:
        """The name of a value that covers a place."""
        return self._covering.get(index)

    @property
    def cued(self) -> Sequence[tuple[int, tuple[str, ...]]]:
        """The places whose words point at fields, with those fields."""
        return self._cued

    def cue_fields(self, index: int) -> tuple[str, ...]:
        """Fields that the words from this place on point at."""
        return self.cue(index)[0]

    def cue(self, index: int) -> tuple[tuple[str, ...], int]:
        """Fields that the words from this place on point at, and the place behind those words.

        "approved by" points at reviewers, "team" at the field of teams; the longest cue counts.
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
                    continue  # "co-authors" are coauthors
                break
            words.append(token.folded)
            fields = cues.get(("".join(words),), ()) if place > index else ()
            fields = fields or cues.get(tuple(words), ()) or (cues.get((token.stem,), ()) if len(words) == 1 else ())
            if fields:
                found = fields, place + 1
        return found

    def extent(self, mention: Mention, field: str) -> tuple[int, int]:
        """The characters that state a value of a field: the value, and the field's name beside it."""
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
        """Whether a word for documents stands here: a general one, the collection's, or a kind of document."""
        if not 0 <= index < len(self.tokens):
            return False
        token = self.tokens[index]
        if token.kind == "cjk":
            return self.text.startswith((*lexicon.CHINESE_DOCUMENT_NOUNS, *self.nouns), token.start, token.start + 6)
        if token.folded in lexicon.DOCUMENT_NOUNS or token.folded in self.nouns or _is_misspelt_noun(token.folded):
            return True
        return self.is_kind(index)

    def is_kind(self, index: int) -> bool:
        """Whether a kind of document is named here."""
        mention = self.mention_at(index)
        return mention is not None and any(
            "kind" in concepts_of(one.field) and self.vocabulary.roles.get(one.field) == "label"
            for one in mention.known
        )

    def in_about(self, start: int) -> bool:
        """Whether a place lies in what the documents are about.

        A value that begins with the word itself ("On Hold") is not what it is about.
        """
        return any(first < start < last for first, last in self.about)


@lru_cache(maxsize=4096)
def _is_misspelt_noun(word: str) -> bool:
    """ "porposal", "documants"."""
    if len(word) < _SHORTEST_MISSPELT or word in lexicon.STOP_WORDS:
        return False
    nouns = lexicon.DOCUMENT_NOUNS
    return process.extractOne(word, nouns, scorer=fuzz.ratio, score_cutoff=_MISSPELT_CUTOFF) is not None


def about_regions(text: str, tokens: Sequence[Token], heads: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The parts of a question that say what the documents are about: no constraint without a word for it.

    In "drafts about packaging since 2020" it is "about packaging".

    Args:
        heads: nouns for documents beside the general ones: a Chinese topic ends before its noun.
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
    """ "on 4 July" is a day, "on any draft" stands for "in": neither begins a topic."""
    if tokens[index].folded not in ("on", "around") or index + 1 == len(tokens):
        return False
    return tokens[index + 1].kind == "number" or tokens[index + 1].folded in ("any", "each", "every")


def _chinese_about(text: str, heads: Sequence[str]) -> Iterable[tuple[int, int]]:
    """关于[打包]的提案, 和[打包]有关的, [打包]方面的."""
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
