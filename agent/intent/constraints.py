"""Which of the values that a question names are meant as constraints, and which are its topic.

A topic is not a place: "PEPs about packaging" constrains nothing, "packaging PEPs" does. What decides is
the role of the field and the words around: the field's own name, a noun for documents that the value
describes, a verb of being, a negation.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rapidfuzz import fuzz, process

from agent.intent import lexicon
from agent.intent.mentions import Mention
from agent.intent.text import Token, has_chinese
from agent.intent.vocabulary import CONFIDENCE, Known, Vocabulary, concepts_of

_ABOUT = frozenset(
    """
    about on regarding concerning covering describing around touching discussing re 关于 有关 涉及 讨论 针对
    """.split()
)
_BEING = frozenset(
    """
    is are was were be been being got get gets getting become became becomes still already now marked
    remain remains remained stays stayed considered ended has have had currently recently finally not
    """.split()
)
_NEGATIONS = frozenset(
    """
    not no non excluding exclude except excepting without minus isn't aren't wasn't weren't never
    neither nor unlike
    """.split()
)
_OWNERS = frozenset(["by", "from", "of", "由", "来自"])
_ENDS = frozenset(",;:?!，；：？！。")
_RESUMES = frozenset(
    """
    by from in since before after between excluding except without that which who whose were was during
    within published written filed created tagged but only 由 除
    """.split()
)
_CHINESE_BEING = (
    "已经",
    "已",
    "被",
    "还在",
    "仍在",
    "还是",
    "仍是",
    "是",
    "为",
    "处于",
    "仍",
    "还",
    "目前",
    "正在",
    "目前还是",
    "目前是",
    "属于",
    "标为",
    "标记为",
)
_CHINESE_AFTER = ("状态", "阶段", "中的", "的", "类", "团队", "部门", "部", "组", "小组", "区", "地区", "级")
_CHINESE_NEGATIONS = (
    "除了",
    "除",
    "不是",
    "并非",
    "非",
    "排除",
    "去掉",
    "不包括",
    "不含",
    "不要",
    "没有",
    "未",
    "不属于",
    "剔除",
    "不",
)
_LONGEST_CUE = 4
_DETERMINERS = frozenset(
    """
    a an any the which what all every each many no these those some list show our his her their recent
    new old other
    """.split()
)
_KIND_STEMS = frozenset(
    """
    incid polici runbook playbook manual memo invoic contract certif licenc permit applic notic minut
    complaint audit inspect
    """.split()
)
_CHINESE_NEGATION_ENDS = ("以外", "之外", "外")


@dataclass(frozen=True, slots=True)
class Constraint:
    """One condition on a field, and the characters of the question that state it.

    Attributes:
        firm: stated outright; a soft one narrows and is the first to go.
        together: the values were asked for at once ("both A and B").
    """

    field: str
    values: tuple[str, ...]
    start: int
    end: int
    negated: bool = False
    together: bool = False
    confidence: float = 1.0
    firm: bool = True
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A question with what was found in it, for looking around a place.

    Attributes:
        nouns: words for the collection's documents.
        taken: places that dates and numbers were read from, as characters.
    """

    text: str
    tokens: Sequence[Token]
    mentions: Sequence[Mention]
    vocabulary: Vocabulary
    nouns: frozenset[str]
    taken: tuple[tuple[int, int], ...] = ()
    about: tuple[tuple[int, int], ...] = field(default=())

    def folded(self, index: int) -> str:
        return self.tokens[index].folded if 0 <= index < len(self.tokens) else ""

    def mention_at(self, index: int) -> Mention | None:
        return next((one for one in self.mentions if one.first <= index < one.last), None)

    def cue_fields(self, index: int) -> tuple[str, ...]:
        """Fields that the words from this place on point at."""
        return self.cue(index)[0]

    def cue(self, index: int) -> tuple[tuple[str, ...], int]:
        """Fields that the words from this place on point at, and the place behind those words."""
        words: list[str] = []
        found: tuple[tuple[str, ...], int] = ((), index)
        for place in range(max(index, 0), min(index + _LONGEST_CUE, len(self.tokens))) if index >= 0 else ():
            token = self.tokens[place]
            if token.kind == "mark":
                break
            words.append(token.folded)
            cues = self.vocabulary.cues
            fields = cues.get(tuple(words), ()) or (cues.get((token.stem,), ()) if len(words) == 1 else ())
            if fields:
                found = fields, place + 1
        return found

    def is_noun(self, index: int) -> bool:
        """Whether a word for documents stands here."""
        if not 0 <= index < len(self.tokens):
            return False
        token = self.tokens[index]
        if token.kind == "cjk":
            rest = self.text[token.start : token.start + 6]
            return any(rest.startswith(noun) for noun in (*lexicon.CHINESE_DOCUMENT_NOUNS, *self.nouns))
        if token.folded in lexicon.DOCUMENT_NOUNS or token.folded in self.nouns or _is_misspelt_noun(token.folded):
            return True
        mention = self.mention_at(index)
        return mention is not None and any(
            "kind" in concepts_of(one.field) and self._is_kind(one) for one in mention.known
        )

    def _is_kind(self, known: Known) -> bool:
        return self.vocabulary.roles.get(known.field) == "label"

    def in_about(self, start: int) -> bool:
        # A value that begins with the word itself ("On Hold") is not what it is about.
        return any(first < start < last for first, last in self.about)


@lru_cache(maxsize=4096)
def _is_misspelt_noun(word: str) -> bool:
    if len(word) < 6 or word in lexicon.STOP_WORDS:
        return False
    return process.extractOne(word, lexicon.DOCUMENT_NOUNS, scorer=fuzz.ratio, score_cutoff=90) is not None


def about_regions(text: str, tokens: Sequence[Token], heads: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """The parts of a question that say what the documents are about: no constraint without a word for it.

    Args:
        heads: nouns for documents beside the general ones: a Chinese topic ends before its noun.
    """
    regions = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind == "word" and token.folded in _ABOUT and not _is_date_on(tokens, index):
            end = index + 1
            while (
                end < len(tokens)
                and tokens[end].text not in _ENDS
                and (tokens[end].folded not in _RESUMES or end == index + 1)
            ):
                end += 1
            regions.append((token.start, tokens[end - 1].end))
            index = end
        else:
            index += 1
    regions += _chinese_about(text, heads)
    return tuple(regions)


def _is_date_on(tokens: Sequence[Token], index: int) -> bool:
    return tokens[index].folded in ("on", "around") and index + 1 < len(tokens) and tokens[index + 1].kind == "number"


def _chinese_about(text: str, heads: Sequence[str]) -> Iterable[tuple[int, int]]:
    if not has_chinese(text):
        return
    nouns = "|".join(map(re.escape, sorted((*lexicon.CHINESE_DOCUMENT_NOUNS, *heads), key=len, reverse=True)))
    for pattern in (
        r"(?:关于|有关|涉及|讨论|针对|围绕|介绍|讲述|讲|谈到|谈|提到)(?P<topic>[^，。；？！,;?!]*?)"
        rf"(?=的?\s*(?:{nouns})|[，。；？！,;?!]|$)",
        r"(?:跟|与|和|同)(?P<topic>[^，。；？！,;?!]*?)(?:有关|相关)",
        r"(?P<topic>[^，。；？！,;?!的、]{1,12})(?:方面|相关)的",
    ):
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield match.start("topic") - 1, match.end("topic")


def read_constraints(sentence: Sentence) -> tuple[list[Constraint], list[Mention]]:
    """The constraints that named values make, and the mentions that are topics or unclear."""
    found: list[Constraint] = []
    left: list[Mention] = []
    for mention in sentence.mentions:
        if any(first < mention.end and mention.start < last for first, last in sentence.taken):
            continue
        made = _constraint(sentence, mention)
        if made is None:
            left.append(mention)
        else:
            found.append(made)
    for mention in list(left):
        made = _alternative(sentence, mention, found)
        if made is not None:
            left.remove(mention)
            found.append(made)
    return _joined(sentence, sorted(found, key=lambda one: one.start)), left


_CONNECTING = frozenset(
    """
    or and / , 、 the a an both either how many vs . versus 和 与 或 还 是 及
    """.split()
)


def _alternative(sentence: Sentence, mention: Mention, found: Sequence[Constraint]) -> Constraint | None:
    """A value beside another of the same field that is a constraint: "tagged spot or autoscaling"."""
    for other in found:
        for known in mention.of(other.field):
            low, high = (other.end, mention.start) if other.start < mention.start else (mention.end, other.start)
            between = [token for token in sentence.tokens if token.start >= low and token.end <= high]
            if between and len(between) <= 4 and all(token.folded in _CONNECTING for token in between):
                return replace(
                    other, values=(known.value,), start=mention.start, end=mention.end, confidence=CONFIDENCE[known.how]
                )
    return None


def _constraint(sentence: Sentence, mention: Mention) -> Constraint | None:
    roles = sentence.vocabulary.roles
    people = tuple(one for one in mention.known if roles.get(one.field) == "person")
    exact = any(one.how in ("exact", "alias") and one not in people for one in mention.known)
    if people and not (exact and all(one.how == "part" for one in people)):
        return _person(sentence, mention, people)
    best: Constraint | None = None
    words = tuple(token.folded for token in sentence.tokens[mention.first : mention.last])
    for known in mention.known:
        role = roles.get(known.field)
        if known.how == "translated" and words in sentence.vocabulary.cues:
            continue  # 类型 is the word for a field before it is a value
        meant = (
            _version(sentence, mention) if role == "version"
            else _language(sentence, mention) if role == "language"
            else _label(sentence, mention, known, tag=role == "tag")
        )  # fmt: skip
        if meant and (best is None or CONFIDENCE[known.how] > best.confidence):
            best = Constraint(
                known.field, (known.value,), *_extent(sentence, mention, known),
                negated=_is_negated(sentence, mention), confidence=CONFIDENCE[known.how],
            )  # fmt: skip
    return best


def _extent(sentence: Sentence, mention: Mention, known: Known) -> tuple[int, int]:
    """The characters that state it: the value, and the field's name beside it."""
    start, end = mention.start, mention.end
    fields, behind = sentence.cue(mention.last)
    if known.field in fields:
        end = sentence.tokens[behind - 1].end
    for first in range(mention.first - 1, max(mention.first - _LONGEST_CUE, 0) - 1, -1):
        fields, behind = sentence.cue(first)
        if known.field in fields and behind == mention.first:
            start = sentence.tokens[first].start
    return start, end


def _person(sentence: Sentence, mention: Mention, people: tuple[Known, ...]) -> Constraint | None:
    before = sentence.folded(mention.first - 1)
    if _acts_otherwise(sentence, mention) or _is_longer_name(sentence, mention):
        return None
    if before in ("about", "on", "regarding", "concerning", "关于") or sentence.text[: mention.start].rstrip().endswith(
        ("关于", "有关")
    ):
        return None
    values = {known.value for known in people}
    if len(values) > 1:
        return None
    fields = _person_fields(sentence, mention, tuple(dict.fromkeys(known.field for known in people)))
    best = max(people, key=lambda known: CONFIDENCE[known.how])
    return Constraint(
        fields[0], (best.value,), *_extent(sentence, mention, replace(best, field=fields[0])),
        negated=_is_negated(sentence, mention), confidence=CONFIDENCE[best.how], also=fields[1:],
    )  # fmt: skip


_AUTHORING = frozenset(
    """
    write wrote author propos suggest publish submit creat say said do contribut sponsor draft releas
    post argu think plan present file make made come introduc recommend report cover describ discuss
    """.split()
)


def _is_longer_name(sentence: Sentence, mention: Mention) -> bool:
    """ "Anders Holm Bridge" is no person."""
    following = sentence.tokens[mention.last] if mention.last < len(sentence.tokens) else None
    if (
        following is None
        or following.kind != "word"
        or not following.is_capital
        or sentence.mention_at(mention.last) is not None
    ):
        return False
    joined = following.start == mention.end + 1
    return (
        joined
        and not following.text.isupper()
        and not sentence.is_noun(mention.last)
        and not sentence.cue_fields(mention.last)
    )


def _acts_otherwise(sentence: Sentence, mention: Mention) -> bool:
    """ "why did Guido step down" is about a person, not about what that person wrote."""
    first = sentence.folded(0)
    following = sentence.tokens[mention.last] if mention.last < len(sentence.tokens) else None
    if sentence.text.lstrip().startswith(("为什么", "为何")):
        return not any(word in sentence.text for word in ("写", "提", "发布", "撰", "主张", "建议"))
    subject = sentence.folded(mention.first - 1) in ("did", "does", "do", "has", "is", "was", "will", "would")
    return (
        first in ("why", "when", "how", "where")
        and subject
        and following is not None
        and following.kind == "word"
        and following.stem not in _AUTHORING
    )


def _person_fields(sentence: Sentence, mention: Mention, fields: tuple[str, ...]) -> tuple[str, ...]:
    """The field of several that hold people: the one whose word stands near, else the main one."""
    ordered = sentence.vocabulary.of_role("person")
    near: list[str] = []
    for place in (*range(mention.first - 3, mention.first), *range(mention.last, mention.last + 4)):
        if 0 <= place < len(sentence.tokens) and sentence.mention_at(place) is None:
            token = sentence.tokens[place]
            if token.text in _ENDS and place < mention.first:
                near.clear()
            elif token.text in _ENDS:
                break
            else:
                cued = [name for name in sentence.cue_fields(place) if name in ordered]
                # "by" stands for all of them, and so tells none apart.
                near += cued if len(cued) == 1 else []
    meant = tuple(dict.fromkeys(near))
    if len(meant) > 1:
        either = any(sentence.folded(place) in ("or", "或", "或者") for place in range(mention.last, mention.last + 4))
        return meant[:2] if either else (next(name for name in reversed(ordered) if name in meant),)
    return meant or (next((name for name in ordered if name in fields), fields[0]),)


def _version(sentence: Sentence, mention: Mention) -> bool:
    return not sentence.folded(mention.first - 1).startswith(("section", "chapter", "figure", "rfc"))


def _language(sentence: Sentence, mention: Mention) -> bool:
    values = sentence.vocabulary.catalogue.fields["language"].values
    if len(values) < 2:
        return False
    following, before = sentence.folded(mention.last), sentence.folded(mention.first - 1)
    chinese = sentence.text[mention.end : mention.end + 2]
    return (
        following in ("language", "-") or before in ("in", "用") or sentence.is_noun(mention.last)
        or chinese[:1] in ("写", "的", "版") or chinese in ("文档", "资料", "文件")
    )  # fmt: skip


def _label(sentence: Sentence, mention: Mention, known: Known, *, tag: bool) -> bool:
    if _is_generic(sentence, mention):
        return False
    if _is_cued(sentence, mention, known.field) or _in_brackets(sentence, mention, known):
        return True
    if sentence.in_about(mention.start):
        return False
    concepts = concepts_of(known.field)
    whole = known.how in ("exact", "alias") or (known.how == "stem" and mention.last - mention.first > 1)
    if (
        whole
        and concepts & {"group", "place", "kind", "audience"}
        and _stands_alone(sentence, mention, known, concepts)
    ):
        return True
    chinese = sentence.tokens[mention.last - 1].kind == "cjk" or sentence.tokens[mention.first].kind == "cjk"
    if "kind" in concepts and _is_document_noun(sentence, mention, known):
        return True
    if _describes(sentence, mention, tag=tag):
        return True
    if tag:
        return (
            known.how in ("exact", "alias")
            and sentence.folded(mention.first - 1) in ("with", "both", "involving", "containing", "and")
            and _follows_noun(sentence, mention)
        )
    if chinese or _has_chinese_around(sentence, mention):
        if _chinese_predicate(sentence, mention):
            return True
        if chinese:
            return False
    if _is_negated(sentence, mention) and not chinese:
        return True
    if "group" in concepts and _is_agent(sentence, mention):
        return True
    if "place" in concepts and sentence.folded(mention.first - 1) in ("in", "the", "from", "across", "for"):
        return True
    if any(token.kind == "number" for token in sentence.tokens[mention.first : mention.last]) and known.how == "exact":
        return True
    if any(c.isdigit() for c in known.value) and known.how == "exact":
        return True
    if "status" in concepts and (_is_status_noun(sentence, mention, known) or _follows_its_noun(sentence, mention)):
        return True
    return _is_predicate(sentence, mention, known) or _is_alternative(sentence, mention, known)


_GENERIC_AFTER = ("应该", "怎么", "如何", "要怎", "是什么", "有什么用", "还能", "能不能", "可以")
_OWN_PEOPLE = frozenset(["how", "what", "where", "do", "does", "can", "should", "need", "to", "i"])


def _stands_alone(sentence: Sentence, mention: Mention, known: Known, concepts: set[str]) -> bool:
    """Whether a value says by itself what it is: a named department, place or kind of document.

    Everyday words ("mobile", "process") do not; nor does a kind in general ("do I need a permit").
    """
    text = sentence.text[mention.start : mention.end]
    after, before = sentence.text[mention.end :].lstrip(), sentence.folded(mention.first - 1)
    if has_chinese(text):
        if after.startswith(_GENERIC_AFTER):
            return False
        return len(text) >= 3 or "group" in concepts or "place" in concepts
    if "kind" in concepts:
        generic = before in ("a", "an", "my", "your") or sentence.folded(0) in ("how", "do", "does", "can", "should")
        return mention.last - mention.first > 1 and not generic
    tokens = sentence.tokens[mention.first : mention.last]
    several = sum(token.kind == "word" for token in tokens) > 1
    capital = tokens[0].is_capital and (mention.first > 0 or several or (tokens[0].text.isupper() and len(text) > 1))
    if "audience" in concepts:
        return before in ("for", "by", "to")
    # Where nothing is written with capitals they say nothing; then a word before it must.
    typed_small = not any(token.is_capital for token in sentence.tokens)
    return capital or (several and typed_small and before in ("by", "from", "of", "the", "in", "at", "near", "with"))


def _follows_noun(sentence: Sentence, mention: Mention) -> bool:
    """ "site plans with asbestos": the noun for documents stands just before "with"."""
    return any(sentence.is_noun(place) for place in range(max(0, mention.first - 5), mention.first))


def _in_brackets(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """The value as it is stored, in brackets: 定稿（Final）."""
    return (
        sentence.folded(mention.first - 1) in ("(", "（")
        and sentence.folded(mention.last) in (")", "）")
        and known.how == "exact"
    )


def _is_generic(sentence: Sentence, mention: Mention) -> bool:
    """Whether the value is spoken of in general: "who decides whether a proposal is accepted", 从草案到被接受."""
    before, after = sentence.text[: mention.start].rstrip(" 被已"), sentence.text[mention.end :].lstrip()
    if (before.endswith(("从", "到")) and (after.startswith("到") or "从" in before[-8:])) or "一个提案" in before[
        -16:
    ]:
        return True
    if sentence.folded(0) in ("how", "do", "does", "can", "should", "must", "is") and sentence.folded(
        mention.first - 1
    ) in ("a", "an", "my"):
        return True
    words = [token.folded for token in sentence.tokens[max(0, mention.first - 5) : mention.first]]
    for place, word in enumerate(words[:-1]):
        singular = words[place + 1]
        if (
            word in ("a", "an")
            and (singular in lexicon.DOCUMENT_NOUNS or singular in sentence.nouns)
            and any(w in _BEING for w in words[place + 2 :])
        ):
            return True
    return False


def _follows_its_noun(sentence: Sentence, mention: Mention) -> bool:
    """ "permits approved in March": a status said of the noun before it."""
    following = sentence.folded(mention.last)
    ends = mention.last >= len(sentence.tokens) or following in (
        "in",
        "by",
        "on",
        "since",
        "before",
        "after",
        "during",
        "last",
        "this",
        "within",
        ",",
        "?",
        ".",
    )
    return sentence.is_noun(mention.first - 1) and ends


def _is_status_noun(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "a rejection", "any drafts": the noun of a status, for the documents that have it."""
    last = sentence.tokens[mention.last - 1]
    before, following = sentence.folded(mention.first - 1), sentence.folded(mention.last)
    noun = known.how == "stem" and (last.folded.endswith(("s", "ion", "al")) and not last.folded.endswith("ss"))
    if noun and (before in _DETERMINERS or sentence.mention_at(mention.first - 1) is not None or mention.first == 0):
        return True
    # At the head of a question, as in "Accepted but not yet Final: ...".
    return mention.first == 0 and known.how == "exact" and following in ("and", "or", "but", ",", ":", "，", "、", "：")


def _is_cued(sentence: Sentence, mention: Mention, name: str) -> bool:
    """The field's own word stands beside the value ("status Accepted", "the security team")."""
    place = mention.last
    while sentence.folded(place) in ("-", "'", '"', "”", "’", "」", "的", "and", "or") or (
        sentence.mention_at(place) and place < mention.last + 4
    ):
        place += 1
    fields, behind = sentence.cue(place)
    if name in fields and sentence.folded(behind) != "of":
        return True
    place = mention.first - 1
    skipped = 0
    while skipped < 3 and sentence.folded(place) in (
        "is",
        "=",
        ":",
        "：",
        "a",
        "the",
        "of",
        "as",
        "in",
        "both",
        "either",
        "with",
        "是",
        "为",
        "还",
        '"',
        "“",
        "‘",
        "'",
    ):
        place, skipped = place - 1, skipped + 1
    for first in range(place, place - 4, -1):
        if first >= 0 and name in sentence.cue_fields(first) and _reaches(sentence, first, place):
            return True
    return False


def _reaches(sentence: Sentence, first: int, last: int) -> bool:
    """Whether one cue covers the places from first to last."""
    words = tuple(token.folded for token in sentence.tokens[first : last + 1])
    return words in sentence.vocabulary.cues or first == last


def _ends_phrase(sentence: Sentence, mention: Mention) -> bool:
    """唐人街的[投诉]: what is spoken of, and nothing that describes something else."""
    before, after = sentence.text[: mention.start].rstrip(), sentence.text[mention.end :].lstrip()
    opened = not before or before.endswith(("的", "，", "、", "些", "份", "个", "有"))
    return opened and (not after or after.startswith(("有", "里", "中", "，", "。", "？", "?", "、", "和", "都")))


def _is_document_noun(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """A kind of document named as such: "incidents", 事故."""
    last = sentence.tokens[mention.last - 1]
    if last.kind == "cjk" and known.how == "translated" and _ends_phrase(sentence, mention):
        return True
    if last.kind == "cjk":
        return sentence.text[mention.start : mention.end] in lexicon.CHINESE_DOCUMENT_NOUNS or any(
            sentence.text[mention.start : mention.end].endswith(noun) for noun in lexicon.CHINESE_DOCUMENT_NOUNS
        )
    if last.folded in lexicon.DOCUMENT_NOUNS or last.stem in _KIND_STEMS:
        return True
    plural = known.how == "stem" and last.folded.endswith("s")
    before = sentence.folded(mention.first - 1)
    return plural and (
        mention.first == 0 or before in _DETERMINERS or sentence.mention_at(mention.first - 1) is not None
    )


def _describes(sentence: Sentence, mention: Mention, *, tag: bool) -> bool:
    """Whether the value describes a word for documents that follows: "rejected or withdrawn proposals"."""
    place, steps = mention.last, 0
    while place < len(sentence.tokens) and steps < 8:
        if sentence.is_noun(place):
            return True
        other = sentence.mention_at(place)
        token = sentence.tokens[place]
        if other is not None and other is not mention:
            place = other.last
        elif (
            token.folded in ("-", "or", "and", "/", "vs", "和", "或", "的", "’", "'", "”", '"')
            or (token.folded in ("、", ",") and sentence.mention_at(place + 1))
            or (not tag and token.folded in ("python", "new", "old", "open", "big", "small", "key"))
        ):
            place += 1
        else:
            break
        steps += 1
    if sentence.folded(mention.last) in ("的",) and not tag:
        clause = sentence.text[mention.end : mention.end + 40]
        return any(noun in clause for noun in lexicon.CHINESE_DOCUMENT_NOUNS) or any(
            noun in clause.casefold() for noun in sentence.nouns
        )
    return False


def _has_chinese_around(sentence: Sentence, mention: Mention) -> bool:
    return any(
        sentence.tokens[place].kind == "cjk"
        for place in (mention.first - 1, mention.last)
        if 0 <= place < len(sentence.tokens)
    )


def _chinese_predicate(sentence: Sentence, mention: Mention) -> bool:
    before, after = sentence.text[: mention.start].rstrip(" “\"‘'「"), sentence.text[mention.end :].lstrip(" ”\"’'」")
    value = sentence.text[mention.start : mention.end]
    marked = before.endswith(_CHINESE_BEING) or value.startswith(("已", "被"))
    return (
        (marked and not after.startswith(("和", "或")))
        or (marked and bool(after))
        or after.startswith(("状态", "阶段", "团队", "部门", "小组"))
    )


def _is_agent(sentence: Sentence, mention: Mention) -> bool:
    """A group as the one who acts: "by infrastructure", "did infrastructure publish"."""
    before, following = (
        sentence.folded(mention.first - 1),
        sentence.tokens[mention.last] if mention.last < len(sentence.tokens) else None,
    )
    if before == "from" and {token.stem for token in sentence.tokens[max(0, mention.first - 5) : mention.first]} & {
        "stop",
        "prevent",
        "keep",
        "block",
        "ban",
    }:
        return False
    if before in ("by", "from", "did", "has", "have", "does") or sentence.text[
        mention.end : mention.end + 2
    ].startswith(("'s", "’s")):
        return True
    verbs = {"publish", "propos", "write", "wrote", "releas", "issu", "file", "submit", "creat", "plan", "own"}
    return following is not None and following.stem in verbs


def _is_predicate(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "were rejected", "still drafts", "ended up Final", "that got deferred"."""
    if sentence.folded(mention.first - 1) == "in" and "status" in concepts_of(known.field) and known.how == "exact":
        return sentence.tokens[mention.first].is_capital and _speaks_of_documents(sentence, mention)
    place, steps = mention.first - 1, 0
    while place >= 0 and steps < 3:
        word = sentence.folded(place)
        if word in _BEING:
            return _speaks_of_documents(sentence, mention)
        if word in ("a", "an", "the", "up", "as", "been", "yet", "only", "in") or sentence.mention_at(place):
            place, steps = place - 1, steps + 1
        else:
            return False
    return False


def _speaks_of_documents(sentence: Sentence, mention: Mention) -> bool:
    """Whether what is said to be so can be documents: a noun for them or another constraint stands in the question."""
    if any(
        sentence.is_noun(index) for index in range(len(sentence.tokens)) if not mention.first <= index < mention.last
    ):
        return True
    words = {token.folded for token in sentence.tokens}
    others = [one for one in sentence.mentions if one is not mention]
    return bool(
        sentence.taken
        or others
        or words & {"anything", "everything", "something", "any", "ones", "those", "try", "attempt", "many"}
    )


def _is_alternative(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """Two values of one field side by side at the head of a question: "rejected vs withdrawn"."""
    for other in sentence.mentions:
        if other is mention or not other.of(known.field):
            continue
        between = sentence.tokens[min(mention.last, other.last) : max(mention.first, other.first)]
        if len(between) <= 2 and all(
            token.folded in ("vs", ".", "versus", "or", "and", "/", "和", "与", "还是", "or") for token in between
        ):
            return True
    return False


def _is_negated(sentence: Sentence, mention: Mention) -> bool:
    """Whether the value is what is not wanted; a negation reaches over the values it is followed by."""
    place, steps = mention.first - 1, 0
    while place >= 0 and steps < 9:
        word = sentence.folded(place)
        following = sentence.folded(place + 1)
        if word in _NEGATIONS or (word in ("other", "rather") and following == "than"):
            return not (word == "not" and following in ("only", "just"))
        if word == "outside" and steps < 3 and "place" in {c for one in mention.known for c in concepts_of(one.field)}:
            return True
        if word in ("did", "do", "does") and following in ("not", "t"):
            return True
        over = sentence.mention_at(place) is not None or word in (
            "or", "and", ",", "anything", "those", "ones", "that", "are", "were", "is", "was", "been", "the", "any", "all", "by", "from",
            "come", "written", "in", "have", "been", "/", "a", "an", "to", "belong", "t", "'", "’", "-", "get", "gets", "got",
            "become", "end", "ended", "up", "yet", "already", "still", "ever", "be", "marked",
        )  # fmt: skip
        if not over and not (word.endswith("ed") and following in ("by", "in", "as", "to", "with")):
            break
        place, steps = place - 1, steps + 1
    before = _before_list(sentence, mention).rstrip("“\"‘'「 的了已经被由")
    after = sentence.text[mention.end : mention.end + 8]
    if any(end in after for end in _CHINESE_NEGATION_ENDS) and "除" in before[-12:]:
        return True
    return before.endswith(_CHINESE_NEGATIONS) and not before.endswith(("是不", "有没有"))


def _before_list(sentence: Sentence, mention: Mention) -> str:
    """The text before a value, or before the list of values that it continues: 除了已被取代和[已撤回]."""
    before = sentence.text[: mention.start]
    for other in reversed(sentence.mentions):
        if other.end <= len(before) and re.fullmatch(
            r"[^，。；,;]{0,2}(?:和|与|或|、|及|以及|或者)[已经被由 ]*", before[other.end :]
        ):
            before = sentence.text[: other.start]
    return before


def _joined(sentence: Sentence, found: list[Constraint]) -> list[Constraint]:
    """Values of one field put together: alternatives, or all at once for a list field asked for "both"."""
    joined: list[Constraint] = []
    for one in found:
        place = next(
            (
                n
                for n, other in enumerate(joined)
                if (other.field, other.negated, other.also) == (one.field, one.negated, one.also)
            ),
            None,
        )
        if place is None:
            joined.append(one)
            continue
        other = joined[place]
        values = tuple(dict.fromkeys((*other.values, *one.values)))
        between = sentence.text[other.end : one.start].casefold()
        listed = sentence.vocabulary.catalogue.fields[one.field].field.type == "list"
        head = sentence.text[max(0, other.start - 20) : other.start].casefold()
        both = (
            listed
            and len(between) < 24
            and "or" not in between.split()
            and "或" not in between
            and (
                "both" in head
                or "同时" in head
                or "一起" in between
                or (sentence.vocabulary.roles[one.field] == "person" and between.strip() in ("and", "和", "与", "&"))
            )
        )
        joined[place] = replace(
            other, values=values, start=min(other.start, one.start), end=max(other.end, one.end) if len(between) < 24 else other.end,
            together=both or other.together, confidence=min(other.confidence, one.confidence),
        )  # fmt: skip
    positive = {one.field for one in joined if not one.negated and not one.together}
    lists = {name for name, values in sentence.vocabulary.catalogue.fields.items() if values.field.type == "list"}
    # "Accepted, not Final yet": of a single value the positive one says it all.
    return [one for one in joined if not one.negated or one.field not in positive or one.field in lists]
