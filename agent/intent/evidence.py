"""Signs that a named label or tag is meant as a constraint and is not merely spoken about.

Each sign is a small predicate with an example; `is_constraint` says which of them count for which field.
`mention` is the name at its place, `known` the value it stands for.
"""

import re
from collections.abc import Callable
from itertools import pairwise

from agent.intent import lexicon
from agent.intent.mentions import Mention
from agent.intent.negation import is_negated
from agent.intent.sentence import Sentence
from agent.intent.text import has_chinese, stem
from agent.intent.vocabulary import Known, concepts_of

_BEING = frozenset(
    """
    is are was were be been being got get gets getting become became becomes still already now marked
    remain remains remained stays stayed considered ended has have had currently recently finally not
    """.split()
)
_STILL = frozenset("is are be still yet remain remains stay stays not currently".split())
_BEFORE_STATE = _BEING | {"that", "which", "who", "a", "an", "the", "up", "as", "yet", "only", "in", "ever", "never"}
_MANNER_ZH = ("怎么", "怎样", "如何")
_BEING_ZH = tuple(
    """
    已经 已 被 还在 仍在 还是 仍是 是 为 处于 仍 还 目前 正在 目前还是 目前是 属于 标为 标记为
    """.split()
)
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
_ACTING_ZH = ("发布", "发生", "提交", "提出", "制定", "负责", "公布", "出了", "写")
_GENERIC_AFTER_ZH = ("应该", "怎么", "如何", "要怎", "是什么", "有什么用", "还能", "能不能", "可以")
_STATUS_NOUNS_ZH = ("状态", "阶段", "团队", "部门", "小组")
_QUOTES = " “\"‘'「"
_OPENING_ZH = ("的", "，", "、", "些", "份", "个", "有", "次", "起", "篇", "条", "项")
_CLOSING_QUOTES = " ”\"’'」"
# Between a value and the field's word after it: "the 'security' team".
_BEFORE_CUE = frozenset(["-", "'", '"', "”", "’", "」", "的", "and", "or"])
# Between the field's word and a value after it: "status is Accepted".
_AFTER_CUE = frozenset("""is = : ： a the of as in both either with 是 为 还 " “ ‘ '""".split())
_JOINS_VALUES = frozenset("""- or and / vs 和 或 的 ’ ' ” " """.split())
_ONE_DOCUMENT_ZH = re.compile(rf"一[个份项篇](?:{'|'.join(lexicon.CHINESE_DOCUMENT_NOUNS)})")
_ADJECTIVES = frozenset(["new", "old", "open", "big", "small", "key"])
_ALTERNATIVES = frozenset("vs . versus or and / 和 与 还是".split())
_FOLLOWS_STATUS = frozenset("in by on since before after during last this within , ? .".split())
_PREVENTING = frozenset(["stop", "prevent", "keep", "block", "ban"])
_ACTING = frozenset(["publish", "propos", "write", "wrote", "releas", "issu", "file", "submit", "creat", "plan", "own"])
_ANY_DOCUMENT = frozenset("anything everything something any ones those try attempt many".split())
_SAID_IN_TEXT = frozenset("mention us discuss describ contain cover touch name say 提到 提及 使用 用 讲".split())
_ANSWERING = frozenset("answer answers reply replies respond explain me".split())
_ASKS_FOR_SOME = frozenset("which list show find give get count any all every".split())
_ASKS_HOW = ("how", "do", "does", "can", "should")
_ASKS_WHAT_IF = frozenset([("what", "happens"), ("what", "if")])

_OF_ONE = re.compile(
    r"\b(?:is|was|are|were|has|have|had|did|does|do)(?:n['’]?t)?\s+(?:it|that|this|they|these|those)\b"
    r"(?:\s+(?!that\b|which\b|who\b)\w+){0,3}\s*$",
    re.IGNORECASE,
)
_OF_ONE_ZH = re.compile(
    r"(?:它|[这那][个份篇]|该)(?:文档|提案|方案|文件|报告)?[^，。？；]{0,5}$|[前后]者[^，。？；]{0,5}$"
)
_OF_DOCUMENTS_ZH = re.compile(r"的(?!\W*$|吗|么|呢)")
_LEADS_TO_VERSION = re.compile(r"(?:\b(?:from|to)|从|到)\s*(?:[a-z]+\s+)?$", re.IGNORECASE)
_MOVES = re.compile(
    r"\b(?:port|migrat\w+|upgrad\w+|mov(?:e|es|ing)|switch\w*|convert\w*)\b|移植|迁移|升级", re.IGNORECASE
)
_OF_THE_ONE = re.compile(
    r"^\W*(?:is|was|has|did|does)(?:n['’]?t)?\s+the\s+(?:(?!(?:an?|any|some|every|each|no)\b)[\w'-]+\s+){1,6}$",
    re.IGNORECASE,
)

Sign = Callable[[Sentence, Mention, Known], bool]


def is_constraint(sentence: Sentence, mention: Mention, known: Known, *, is_tag: bool) -> bool:
    """Whether a label or a tag is meant as a constraint here.

    Tags need the plainest signs: they are named as topics more often than not.
    """
    if (
        _is_pronoun(sentence, mention)
        or _is_generic(sentence, mention)
        or _is_verb_of_date(sentence, mention, known)
        or _is_asked_of_one(sentence, mention, known)
    ):
        return False
    if _is_cued(sentence, mention, known) or _is_in_brackets(sentence, mention, known):
        return True
    if sentence.in_about(mention.start):
        return False
    if (
        _stands_alone(sentence, mention, known)
        or _is_document_kind(sentence, mention, known)
        or _describes_documents(sentence, mention, known, is_tag=is_tag)
    ):
        return True
    if is_tag:
        return _is_content(sentence, mention, known)
    if known.how in ("exact", "alias") and _is_cjk(sentence, mention.last - 1) and _ends_phrase(sentence, mention):
        return True
    if _is_cjk(sentence, mention.first) and (
        is_negated(sentence, mention) or _is_chinese_name(sentence, mention, known)
    ):
        return True
    if _is_chinese_status_noun(sentence, mention, known):
        return True
    is_chinese = _is_cjk(sentence, mention.last - 1) or _is_cjk(sentence, mention.first)
    if is_chinese or _is_cjk(sentence, mention.first - 1) or _is_cjk(sentence, mention.last):
        if _is_chinese_predicate(sentence, mention):
            return True
        if is_chinese:
            return False
    return any(sign(sentence, mention, known) for sign in _SIGNS)


def _is_verb_of_date(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "[opened] since June" says when, although documents can be open: a field of dates has the word's name."""
    if "status" not in concepts_of(known.field) or mention.last - mention.first > 1:
        return False
    token = sentence.tokens[mention.first]
    if token.folded == known.value.casefold() and sentence.folded(mention.first - 1) in _STILL:
        return False  # "that are still open"
    dates = {stem(word) for name in sentence.vocabulary.of_role("date") for word in lexicon.name_words(name)}
    if token.stem not in dates or (token.folded == known.value.casefold() and not sentence.dated):
        return False
    return sentence.dated or bool(_PERIODS & {one.folded for one in sentence.tokens})


def is_counted(sentence: Sentence, mention: Mention, known: Known, *, is_tag: bool) -> bool:
    """Whether documents are counted by a value that is no constraint elsewhere: "drafts by topic", "about typing".

    What the documents are about is a tag, not who made them; what they mention or use only their text says.
    """
    generic = _is_generic(sentence, mention) and "kind" not in concepts_of(known.field)
    if generic or sentence.tokens[max(mention.first - 1, 0)].stem in _SAID_IN_TEXT:
        return False
    if is_tag and sentence.folded(mention.first - 1) in ("which", "what") and not sentence.is_noun(mention.last):
        return False  # "3.9 or 3.10, which [release] had more"
    if sentence.in_about(mention.start):
        # "on the most rejected proposals" describes them, "about security" does where security is a tag.
        if known.how == "translated":
            return is_tag
        return known.how in ("exact", "alias") and (
            is_tag or _describes_documents(sentence, mention, known, is_tag=is_tag)
        )
    if "kind" in concepts_of(known.field):
        return True
    if known.how == "translated":
        if sentence.text[mention.start : mention.end] == "最终":
            return sentence.text[mention.end :].startswith(("的", "状态", "版", "稿"))  # else it is "in the end"
        return not is_tag or sentence.text[mention.end :].startswith(("类", "主题", "标签", "方面"))
    return known.how in ("exact", "alias") or (known.how == "stem" and not is_tag)


def is_language(sentence: Sentence, mention: Mention) -> bool:
    """Whether a language is what documents are written in: "in German", 德文文档."""
    if len(sentence.vocabulary.catalogue.fields["language"].values) < 2:
        return False
    following, before = sentence.folded(mention.last), sentence.folded(mention.first - 1)
    chinese = sentence.text[mention.end : mention.end + 2]
    if chinese in ("回答", "回复", "解释", "告诉", "总结", "说明") or sentence.folded(mention.first - 2) in _ANSWERING:
        return False  # how to answer, not what documents are written in
    return (
        following in ("language", "-") or before in ("in", "用") or sentence.is_noun(mention.last)
        or chinese[:1] in ("写", "的", "版") or chinese in ("文档", "资料", "文件")
    )  # fmt: skip


def is_version(sentence: Sentence, mention: Mention) -> bool:
    """Whether a number with points is a version that documents are of: "section 3.2" is none.

    Nor is one that somebody comes from or goes to: "port code from 2.7 to 3".
    """
    if sentence.folded(mention.first - 1).startswith(("section", "chapter", "figure", "rfc")):
        return False
    leads = _LEADS_TO_VERSION.search(sentence.text[: mention.start])
    if leads is None:
        return True
    around = sentence.text[: leads.start()], sentence.text[mention.end : mention.end + 4]
    return not any(_MOVES.search(text) for text in around)


def _is_cjk(sentence: Sentence, index: int) -> bool:
    token = sentence.token(index)
    return token is not None and token.kind == "cjk"


# Spoken of in general: no constraint.


def _is_pronoun(sentence: Sentence, mention: Mention) -> bool:
    """ "when does [it] expire?" where a team is called "it": no name unless it is written as one."""
    if mention.last - mention.first > 1:
        return False
    token = sentence.tokens[mention.first]
    if token.folded not in lexicon.STOP_WORDS or token.text.isupper():
        return False
    return not any(_is_cued(sentence, mention, known) for known in mention.known)


def _is_generic(sentence: Sentence, mention: Mention) -> bool:
    """ "who decides whether a proposal is accepted", "how do I get a permit", 从草案到被接受."""
    before, after = sentence.text[: mention.start].rstrip(" 被已"), sentence.text[mention.end :].lstrip()
    is_step = before.endswith(("从", "到")) and (after.startswith("到") or "从" in before[-8:])
    if is_step or _ONE_DOCUMENT_ZH.search(before[-16:]):
        return True
    if (sentence.folded(0), sentence.folded(1)) in _ASKS_WHAT_IF:
        return True
    # "is there an open bug?" asks for one that exists.
    asks = sentence.folded(0) in (*_ASKS_HOW, "must", "is") and sentence.folded(1) != "there"
    if asks and sentence.folded(mention.first - 1) in ("a", "an", "my"):
        return True
    words = [token.folded for token in sentence.tokens[max(0, mention.first - 5) : mention.first]]
    for place, (article, noun) in enumerate(pairwise(words)):
        is_any_document = article in ("a", "an") and (noun in lexicon.DOCUMENT_NOUNS or noun in sentence.nouns)
        if is_any_document and not _BEING.isdisjoint(words[place + 2 :]):
            return True
    return False


def _is_asked_of_one(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "was it accepted?", "wasn't the goto proposal rejected?", 它被拒绝了吗: the state is what is asked for."""
    if "status" not in concepts_of(known.field) or sentence.is_noun(mention.last):
        return False
    before = sentence.text[: mention.start]
    if _OF_THE_ONE.search(before):
        nouns = [sentence.folded(place) for place in range(mention.first) if sentence.is_noun(place)]
        if nouns and not nouns[-1].endswith("s"):
            return True
    if _OF_DOCUMENTS_ZH.match(sentence.text[mention.end :]):
        return False  # 该科室[已废止]的文件有没有
    asks_zh = sentence.text.rstrip(" ?？").endswith(("吗", "没有", "了没"))
    return _OF_ONE.search(before) is not None or (asks_zh and _OF_ONE_ZH.search(before) is not None)


# Signs that count for every field.


def _is_cued(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """The field's own word stands beside the value: "status Accepted", "the security team"."""
    return _is_cued_after(sentence, mention, known.field) or _is_cued_before(sentence, mention, known.field)


def _is_cued_after(sentence: Sentence, mention: Mention, field: str) -> bool:
    place = mention.last
    while sentence.folded(place) in _BEFORE_CUE or (sentence.mention_at(place) and place < mention.last + 4):
        place += 1
    fields, behind = sentence.cue(place)
    return field in fields and sentence.folded(behind) != "of"


def _is_cued_before(sentence: Sentence, mention: Mention, field: str) -> bool:
    last = mention.first - 1
    while mention.first - 1 - last < 3 and sentence.folded(last) in _AFTER_CUE:
        last -= 1
    for first in range(last, max(last - 4, -1), -1):
        if field in sentence.cue_fields(first) and _is_one_cue(sentence, first, last):
            return True
    return False


def _is_one_cue(sentence: Sentence, first: int, last: int) -> bool:
    """Whether one cue covers the places from first to last."""
    words = tuple(token.folded for token in sentence.tokens[first : last + 1])
    return first == last or words in sentence.vocabulary.cues


def _is_in_brackets(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """The value as it is stored, in brackets: 定稿（Final）."""
    opened, closed = sentence.folded(mention.first - 1), sentence.folded(mention.last)
    return opened in ("(", "（") and closed in (")", "）") and sentence.text[mention.start : mention.end] == known.value


def _stands_alone(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """Whether a value says by itself what it is: a named department, place or kind of document.

    Everyday words ("mobile", "process") do not; nor does a kind in general ("do I need a permit").
    """
    concepts = concepts_of(known.field)
    whole = known.how in ("exact", "alias") or (known.how == "stem" and mention.last - mention.first > 1)
    if not whole or concepts.isdisjoint(("group", "place", "kind", "audience")):
        return False
    text = sentence.text[mention.start : mention.end]
    before = sentence.folded(mention.first - 1)
    if has_chinese(text):
        if sentence.text[mention.end :].lstrip(" 了").startswith(_GENERIC_AFTER_ZH):
            return False
        return len(text) >= 3 or not concepts.isdisjoint(("group", "place"))
    if "kind" in concepts:
        # "is there an audit report on ...?" asks for one that exists.
        exists = sentence.folded(mention.first - 2) in ("there", "have", "find", "got")
        generic = (before in ("a", "an", "my", "your") and not exists) or sentence.folded(0) in _ASKS_HOW
        return mention.last - mention.first > 1 and not generic
    if "audience" in concepts:
        return before in ("for", "by", "to")
    tokens = sentence.tokens[mention.first : mention.last]
    several = sum(token.kind == "word" for token in tokens) > 1
    if tokens[0].is_capital and (
        mention.first > 0 or _is_cjk(sentence, mention.last) or several or (tokens[0].text.isupper() and len(text) > 1)
    ):
        return True
    # Where nothing is written with capitals they say nothing; then a word before it must.
    typed_small = not any(token.is_capital for token in sentence.tokens)
    return several and typed_small and before in ("by", "from", "of", "the", "in", "at", "near", "with")


def _is_document_kind(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """A kind of document named as such: "incidents", 事故."""
    if "kind" not in concepts_of(known.field):
        return False
    last = sentence.tokens[mention.last - 1]
    if last.kind == "cjk":
        if known.how == "translated" and _ends_phrase(sentence, mention):
            return True
        return sentence.text[mention.start : mention.end].endswith(tuple(lexicon.CHINESE_DOCUMENT_NOUNS))
    beside_chinese = _is_cjk(sentence, mention.first - 1) or _is_cjk(sentence, mention.last)
    if beside_chinese and known.how != "part" and _ends_phrase(sentence, mention):
        return True  # 王伟有多少个bug
    if last.folded in lexicon.DOCUMENT_NOUNS or last.stem in _KIND_STEMS:
        return True
    if (sentence.folded(0), sentence.folded(1)) == ("is", "there") and known.how in ("exact", "alias"):
        return True  # "is there an open bug?"
    is_plural = known.how == "stem" and last.folded.endswith("s")
    return is_plural and _begins_phrase(sentence, mention)


_PERIODS = frozenset("year month quarter week day date monthly yearly annually per each when since".split())


def _begins_phrase(sentence: Sentence, mention: Mention) -> bool:
    """At the head of the question, behind an article, a date or another value."""
    before = mention.first - 1
    start = sentence.tokens[before].start if before >= 0 else 0
    dated = any(first <= start < last for first, last in sentence.taken)  # "this year's drafts"
    return (
        mention.first == 0
        or sentence.folded(before) in _DETERMINERS
        or sentence.mention_at(before) is not None
        or dated
    )


def _ends_phrase(sentence: Sentence, mention: Mention) -> bool:
    """唐人街的[投诉]: what is spoken of, and nothing that describes something else."""
    before, after = sentence.text[: mention.start].rstrip(), sentence.text[mention.end :].lstrip()
    follows_another = sentence.mention_at(mention.first - 1) is not None
    opened = not before or follows_another or before.endswith(_OPENING_ZH)
    return opened and (
        not after
        or after.startswith(("有", "里", "中", "是", "数", "总", "：", ":", "，", "。", "？", "?", "、", "和", "都"))
    )


def _describes_documents(sentence: Sentence, mention: Mention, known: Known, *, is_tag: bool) -> bool:
    """Whether the value describes a word for documents that follows: "rejected or withdrawn proposals"."""
    place = mention.last
    for _ in range(8):
        token = sentence.token(place)
        if token is None:
            break
        if sentence.is_noun(place) or (not is_tag and sentence.is_kind(place)):
            other = sentence.mention_at(place)
            is_name = is_tag or (other is not None and bool(other.of(known.field)))  # "the standards track process"
            loose = token.folded in lexicon.LOOSE_NOUNS or (is_name and _is_one_kind(sentence, place))
            return not loose or _asks_for_documents(sentence, mention, place)
        other = sentence.mention_at(place)
        if other is not None and other is not mention:
            place = other.last
        elif (
            token.folded in _JOINS_VALUES
            or (token.folded in ("、", ",") and sentence.mention_at(place + 1))
            or (not is_tag and token.folded in _ADJECTIVES)
        ):
            place += 1
        else:
            break
    if sentence.folded(mention.last) == "的" and not is_tag:
        if sentence.folded(mention.last + 1) == "、":
            return True  # 现行有效的、急诊科的规范: one of several things said of the documents
        return sentence.has_document_noun(sentence.text[mention.end : mention.end + 40])
    return False


def _is_one_kind(sentence: Sentence, place: int) -> bool:
    """A kind of document in the singular, which is often no document: "the release process"."""
    word = sentence.folded(place)
    return sentence.is_kind(place) and (not word.endswith("s") or word.endswith("ss"))


def _asks_for_documents(sentence: Sentence, mention: Mention, place: int) -> bool:
    """Whether a word such as "rules" stands for documents here: "which typing rules", "security plans by Ann"."""
    token = sentence.tokens[place]
    own = token.folded in sentence.nouns or (sentence.is_kind(place) and not _is_one_kind(sentence, place))
    others = any(one is not mention and not one.first <= place < one.last for one in sentence.mentions)
    listed = (
        mention.first == 0
        or sentence.folded(0) in _ASKS_FOR_SOME
        or (sentence.folded(0), sentence.folded(1)) == ("how", "many")
    )
    return own or others or bool(sentence.taken) or listed


def _is_content(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """A tag as what documents hold: "site plans with asbestos"."""
    if known.how not in ("exact", "alias"):
        return False
    if sentence.folded(mention.first - 1) not in ("with", "both", "involving", "containing", "and"):
        return False
    return any(sentence.is_noun(place) for place in range(max(0, mention.first - 5), mention.first))


def _is_chinese_predicate(sentence: Sentence, mention: Mention) -> bool:
    """已被[否决]的, [草案]状态."""
    before = sentence.text[: mention.start].rstrip(_QUOTES)
    after = sentence.text[mention.end :].lstrip(_CLOSING_QUOTES)
    value = sentence.text[mention.start : mention.end]
    if before.rstrip("被已经").endswith(_MANNER_ZH):
        names = after.startswith("的") and after[1:].strip(" ？?。！!")
        return bool(names)  # 是怎么被接受的 asks how it went
    return before.endswith(_BEING_ZH) or value.startswith(("已", "被")) or after.startswith(_STATUS_NOUNS_ZH)


def _is_chinese_name(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """上海外滩酒店去年发布的制度: the whole name of something, at the head of the question or of a clause."""
    if known.how not in ("exact", "alias") or "status" in concepts_of(known.field):
        return False
    before, after = sentence.text[: mention.start].rstrip(), sentence.text[mention.end :].lstrip()
    dated = any(first == mention.end for first, _ in sentence.taken)
    if before.endswith(("在", "于", "来自")):
        return True
    if mention.end - mention.start < 3:
        return False
    return (not before or before.endswith(("，", "。", "："))) and (dated or after.startswith(_ACTING_ZH))


def _is_chinese_status_noun(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """有哪些 Typing [草案]: the noun of a status, for the documents that have it."""
    text = sentence.text[mention.start : mention.end]
    is_noun = "status" in concepts_of(known.field) and text.endswith(tuple(lexicon.CHINESE_DOCUMENT_NOUNS))
    return is_noun and _ends_phrase(sentence, mention)


# Signs that count for labels alone.


def _is_excluded(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "not accepted"."""
    return is_negated(sentence, mention)


def _is_acting_group(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """A group as the one who acts: "by infrastructure", "did infrastructure publish"."""
    if "group" not in concepts_of(known.field):
        return False
    before, following = sentence.folded(mention.first - 1), sentence.token(mention.last)
    if before == "from":
        # "keep mobile from ..." names nobody.
        stems = {token.stem for token in sentence.tokens[max(0, mention.first - 5) : mention.first]}
        if not _PREVENTING.isdisjoint(stems):
            return False
    if before in ("by", "from", "did", "has", "have", "does"):
        return True
    if before in ("of", "in", "at") and sentence.is_noun(mention.first - 2):
        return True
    if sentence.text.startswith(("'s", "’s"), mention.end):
        return True
    return following is not None and following.stem in _ACTING


def _is_location(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "in emea"."""
    before = sentence.folded(mention.first - 1)
    return "place" in concepts_of(known.field) and before in ("in", "the", "from", "across", "for")


def _is_named_beside_documents(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "incidents in Zurich", "what reports did Zurich file": a name, and before it the documents that are its."""
    token = sentence.tokens[mention.first]
    if known.how not in ("exact", "alias") or "status" in concepts_of(known.field):
        return False
    if not token.is_capital and mention.last - mention.first < 2:
        return False
    before = mention.first - 1 - (sentence.folded(mention.first - 1) == "the")
    if sentence.folded(before) not in ("in", "at", "from", "of", "for", "did", "does", "has"):
        return False
    return any(sentence.is_noun(place) for place in range(mention.first - 1))


def _has_digits(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "sev1": no everyday word."""
    return known.how == "exact" and any(c.isdigit() for c in known.value)


def _is_status_noun(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "a rejection", "any drafts": the noun of a status, for the documents that have it."""
    if "status" not in concepts_of(known.field):
        return False
    last = sentence.tokens[mention.last - 1].folded
    is_noun = known.how == "stem" and last.endswith(("s", "ion", "al")) and not last.endswith("ss")
    if is_noun and _begins_phrase(sentence, mention):
        return True
    # At the head of a question, as in "Accepted but not yet Final: ...".
    following = sentence.folded(mention.last)
    return mention.first == 0 and known.how == "exact" and following in ("and", "or", "but", ",", ":", "，", "、", "：")


def _follows_its_noun(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "permits approved in March": a status said of the noun before it."""
    ends = mention.last >= len(sentence.tokens) or sentence.folded(mention.last) in _FOLLOWS_STATUS
    return "status" in concepts_of(known.field) and sentence.is_noun(mention.first - 1) and ends


def _is_predicate(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """ "were rejected", "still drafts", "ended up Final", "that got deferred"."""
    if sentence.folded(mention.first - 1) == "in" and "status" in concepts_of(known.field) and known.how == "exact":
        return sentence.tokens[mention.first].is_capital and _speaks_of_documents(sentence, mention)
    if sentence.folded(mention.first - 1) == "the":
        return False  # "what is the process" speaks of one, and says of nothing that it is so
    for place in range(mention.first - 1, max(mention.first - 4, -1), -1):
        word = sentence.folded(place)
        if word in _BEING:
            return _speaks_of_documents(sentence, mention)
        if word not in ("a", "an", "the", "up", "as", "yet", "only", "in") and not sentence.mention_at(place):
            return False
    return False


def _speaks_of_documents(sentence: Sentence, mention: Mention) -> bool:
    """Whether what is said to be so can be documents: a noun for them or another constraint stands in the question."""
    if any(sentence.is_noun(index) for index in range(mention.first)):
        return True
    if _has_another_subject(sentence, mention):
        return False
    if any(sentence.is_noun(index) for index in range(mention.last, len(sentence.tokens))):
        return True
    others = any(one is not mention for one in sentence.mentions)
    return bool(sentence.taken) or others or any(token.folded in _ANY_DOCUMENT for token in sentence.tokens)


def _has_another_subject(sentence: Sentence, mention: Mention) -> bool:
    """ "my calls are [rejected]", "the exception that was already [active]": what is so is named, and no document."""
    place = mention.first - 1
    while place >= 0 and sentence.folded(place) in _BEFORE_STATE:
        place -= 1
    subject = sentence.token(place)
    return (
        subject is not None
        and subject.kind == "word"
        and subject.folded not in lexicon.STOP_WORDS
        and subject.folded not in _ANY_DOCUMENT
        and not _is_maker(sentence, place)
        and not any(first <= subject.start < last for first, last in sentence.taken)
    )


def _is_maker(sentence: Sentence, place: int) -> bool:
    """Whether a person, or a kind of document, is named there: "proposals by Ann were rejected"."""
    mention = sentence.mention_at(place)
    roles = sentence.vocabulary.roles
    return sentence.is_kind(place) or (
        mention is not None and any(roles.get(one.field) in ("person", "version") for one in mention.known)
    )


def _is_alternative(sentence: Sentence, mention: Mention, known: Known) -> bool:
    """Two values of one field side by side: "rejected vs withdrawn"."""
    for other in sentence.mentions:
        if other is mention or not other.of(known.field):
            continue
        between = sentence.tokens[min(mention.last, other.last) : max(mention.first, other.first)]
        words = {token.folded for token in between}
        joins = _ALTERNATIVES | ({"to"} if "ratio" in sentence.text.casefold() else frozenset())
        if 0 < len(between) <= 2 and words <= joins:
            return True
    return False


_SIGNS: tuple[Sign, ...] = (
    _is_excluded,
    _is_acting_group,
    _is_location,
    _is_named_beside_documents,
    _has_digits,
    _is_status_noun,
    _follows_its_noun,
    _is_predicate,
    _is_alternative,
)
