"""Questions that metadata answers by calculation: counts, groups, extremes, sums, shares, lists."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.intent import lexicon
from agent.intent.filters import Json, both
from agent.intent.found import Found, Piece, date_field
from agent.intent.numerals import CHINESE_COUNT, COUNT, parse_count
from agent.intent.quantities import is_key
from agent.intent.text import has_chinese

LIST_LIMIT = 100


@dataclass(frozen=True, slots=True)
class Calculation:
    """An aggregate (the JSON of retrievers.core.aggregates) and the filter it works within.

    Attributes:
        pieces: what is left of the constraints as a filter: a share's condition is none.
        sure: the words ask for it; otherwise it only happens that nothing but metadata was asked for.
    """

    aggregate: Json
    pieces: tuple[Piece, ...]
    sure: bool = True


_COUNT = re.compile(
    r"\bhow\s+many\b|\b(?:total\s+)?number\s+of\b|\bcount\s+(?:of|the|all)\b|\bhow\s+often\b", re.IGNORECASE
)
_COUNT_ZH = re.compile(
    r"(?<!哪)(?:多少|几)\s*(?:个|篇|份|条|起|件|项|部|本|则|封|款|名|位)|数量|总数|计数|篇数|个数|件数|多少(?=PEP)",
    re.IGNORECASE,
)
_SHARE = re.compile(
    r"\b(?:share|percentage|percent|proportion|fraction)\b|百分之几|占比|比例|百分比|占.{0,6}(?:多少|几)", re.IGNORECASE
)
_AVERAGE = re.compile(r"\b(?:average|mean|avg)\b|平均", re.IGNORECASE)
_SUM = re.compile(r"\b(?:total|sum|combined|altogether)\b|总(?!结|部|体|监|经理)|合计|共计", re.IGNORECASE)
_MOST = re.compile(
    r"\b(?:most|top|busiest|biggest\s+number|more\s+\w+\s+than\s+any(?:one|body)?)\b|最多|最常", re.IGNORECASE
)
_LEAST = re.compile(r"\b(?:fewest|least)\b|最少", re.IGNORECASE)
_BY = re.compile(
    r"\b(?:per|for\s+each|for\s+every|in\s+each|each|grouped\s+by|group\s+by|by|across)\s+(?:the\s+)?(?:calendar\s+|publication\s+)?(?P<what>[\w-]+(?:\s[\w-]+)?)|"
    r"(?:各个?|每个?|每一|按照?|分)(?P<zh>[^，。？！,?!的]{1,6})",
    re.IGNORECASE,
)
_BREAKDOWN = re.compile(
    r"\b(?:break\w*|broken|split|distribution|breakdown|histogram|statistics)\b|分布|统计|分别|细分", re.IGNORECASE
)
_VERSUS = re.compile(
    r"\b(?:vs\.?|versus|compared?|more\b.*\bor\b|or\s+more|of\s+each|each)\b|相比|更多|更少|分别|各有|哪.{0,3}多|还是",
    re.IGNORECASE,
)
_MORE_THAN = re.compile(r"\bhow\s+many\s+more\b|\bdifference\b|多多少|多几|相差|差多少", re.IGNORECASE)
_NEWEST = re.compile(
    r"\b(?:newest|latest|most\s+recent(?:ly)?|youngest)\b|最新|最近(?:的)?一|最晚|最后(?:一)?", re.IGNORECASE
)
_OLDEST = re.compile(r"\b(?:oldest|earliest|first)\b|最早|最老|最旧|第一(?:个|篇|份)|首个", re.IGNORECASE)
_LARGEST = re.compile(
    r"\b(?:longest|largest|tallest|highest|biggest|greatest|maximum|max|most\s+expensive|costliest|most)\b|最长|最大|最高|最多|最贵",
    re.IGNORECASE,
)
_SMALLEST = re.compile(
    r"\b(?:shortest|smallest|lowest|minimum|min|cheapest|fewest|least)\b|最短|最小|最低|最少|最便宜", re.IGNORECASE
)
_WHEN = re.compile(r"^\s*(?:when|what\s+(?:date|day|year))\b|什么时候|何时|哪一?[天年月]", re.IGNORECASE)
_WHO = re.compile(r"\bwho(?:se)?\b|\bwhich\s+(?:author|person|people)|谁|哪位|哪个人", re.IGNORECASE)
_DECIMALS = re.compile(
    r"(?P<n>one|two|three|[0-4]|一|两|二|三)\s*(?:decimals?|decimal\s+places?|digits?|位小数)", re.IGNORECASE
)
_DISTINCT = re.compile(
    r"\bhow\s+many\s+(?:different|distinct|unique)\b|\bnumber\s+of\s+(?:different|distinct|unique)\b|"
    r"(?:多少|几)\s*(?:位|个|种|类)?\s*不同|(?:有|共)\s*(?:多少|几)\s*种",
    re.IGNORECASE,
)
_TOP_N = re.compile(
    rf"\b(?:top|the)\s+(?P<n>{COUNT})\b|\b(?P<n2>{COUNT})\s+(?:most|biggest|top|newest|latest|oldest|longest|highest)\b|(?:最\S{{1,4}}|前)的?(?P<zh>{CHINESE_COUNT})\s*(?:个|篇|位|名|种|份|条)",
    re.IGNORECASE,
)
_YEARLY = {
    "year": "year",
    "annual": "year",
    "years": "year",
    "month": "month",
    "quarter": "quarter",
    "年": "year",
    "年份": "year",
    "年度": "year",
    "月": "month",
    "月份": "month",
    "季度": "quarter",
}
_GENERIC = frozenset(
    """
    counts aimed behind occur values distinct different various respective exist compared compare
    both either record summary tell else nowadays calendar year years month months quarter quarters
    publication per each every by top most more than anyone anybody else how what which who when where
    total sum average mean share percentage percent decimal decimals place places count number oldest
    newest latest earliest first last recent recently longest largest highest biggest smallest lowest
    shortest going creation date ended end became become sitting break down broken give also one two
    three currently calculate compute altogether combined overall there far kb knowledge base collection
    corpus database archive stored held entire whole all
    """.split()
)
_GENERIC_ZH = """
    一共 总共 共有 共 有 多少 几 个 篇 份 条 起 件 项 最多 最少 最新 最早 最近 最长 最大 最高 哪 谁 写 是 的 了 和 与 各 每 按 分别 占 全部 所有 百分之 保留 位 小数
    年 月 日 什么 时候 里 中 得 用 一 两 二 三 被 参与 新建 创建 日期 发布 目前 还 为 状态 版本 目标 主题 相比 数 总 分钟 平均 知识库 库里 请 列出 给我 查 找 看 看看
    一下 呢 吗 啊 呀 吧 过 到 在 发生 可以 允许 能
    """.split()


def topic_of(found: Found) -> list[str]:
    """The words of a question that neither constrain, nor name fields or documents, nor ask."""
    return _Asked(found).topic()


def find_calculation(found: Found) -> Calculation | None:
    """The calculation that a question asks for, None for a question about what documents say."""
    ask = _Asked(found)
    for reader in (ask.share, ask.difference, ask.groups, ask.distinct, ask.average, ask.extreme, ask.count):
        made = reader()
        if made is not None:
            return _rounded(made, found.sentence.text)
    return None


def find_listing(found: Found) -> Calculation | None:
    """A list of documents, when a question states constraints and nothing else."""
    one_document = found.pieces and all(
        piece.field in _keys(found) and piece.filter["type"] == "eq" for piece in found.pieces
    )
    return None if not found.pieces or one_document or _Asked(found).topic() else listing(found)


def _keys(found: Found) -> set[str]:
    """Fields whose number is one document's own."""
    return {name for name in found.sentence.vocabulary.of_role("number") if is_key(found.sentence, name)}


def listing(found: Found) -> Calculation:
    """The documents that satisfy the constraints, the newest first."""
    order = _dates(found)
    aggregate: Json = {"op": "list", "of": order, "order": "desc" if order else None, "limit": LIST_LIMIT}
    return Calculation(aggregate, found.pieces, sure=False)


def values_of(fields: Sequence[str], pieces: tuple[Piece, ...]) -> Calculation:
    """Fields of the documents that were named."""
    return Calculation({"op": "list", "limit": 10, "show": list(fields)[:4]}, pieces)


def plain_words(text: str) -> list[str]:
    """The words of a text that carry meaning, by general lists alone."""
    words = re.findall(r"[^\W\d_]+", text.casefold())
    kept = [
        word
        for word in words
        if not has_chinese(word) and word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS
    ]
    chinese = re.sub(r"[^\u4e00-\u9fff]+", "，", text)
    for word in sorted((*lexicon.CHINESE_DOCUMENT_NOUNS, *_GENERIC_ZH, *_CHINESE_PLAIN), key=len, reverse=True):
        chinese = chinese.replace(word, "，")
    return kept + [run for run in chinese.split("，") if run]


def find_lookup(found: Found) -> Calculation | None:
    """Fields of one document that is named by its number: "who sponsored PEP 703"."""
    named = [one for one in found.numbers if one.values and is_key(found.sentence, one.field)]
    if not named or _Asked(found).topic():
        return None
    asked = asked_fields(found, {one.field for one in named})
    if not asked:
        return None
    return values_of(asked, tuple(piece for piece in found.pieces if piece.field in {one.field for one in named}))


def asked_fields(found: Found, besides: set[str]) -> tuple[str, ...]:
    """The fields whose value a question asks for."""
    sentence = found.sentence
    fields: list[str] = []
    for index in range(len(sentence.tokens)):
        fields += [name for name in sentence.cue_fields(index)[:1] if name not in besides]
    people = sentence.vocabulary.of_role("person")
    if not fields and _WHO.search(sentence.text) and people:
        fields.append(people[0])
    dates = sentence.vocabulary.of_role("date")
    if _WHEN.search(sentence.text) and dates:
        fields = [name for name in fields if name in dates] or [dates[0]]
    return tuple(dict.fromkeys(name for name in fields if name in sentence.vocabulary.catalogue.fields))


def _dates(found: Found) -> str | None:
    fields = found.sentence.vocabulary.of_role("date")
    if found.dates:
        return date_field(found.sentence, found.dates[0])
    near = [
        name
        for index in range(len(found.sentence.tokens))
        for name in found.sentence.cue_fields(index)
        if name in fields
    ]
    return near[0] if near else (fields[0] if fields else None)


def _rounded(made: Calculation, text: str) -> Calculation:
    digits = _DECIMALS.search(text)
    if digits is None or made.aggregate["op"] not in ("avg", "sum", "share"):
        return made
    return replace(made, aggregate={**made.aggregate, "decimals": parse_count(digits["n"])})


class _Asked:
    """One question, looked at for each kind of calculation."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.sentence = found.sentence
        self.text = found.sentence.text
        self.vocabulary = found.sentence.vocabulary

    # What the question is about, beside metadata.

    def topic(self) -> list[str]:
        """The words that neither constrain, nor name fields or documents, nor ask: what documents would say."""
        taken = [(piece.start, piece.end) for piece in self.found.pieces] + [
            (one.start, one.end) for one in self.found.dates
        ]
        words = []
        for index, token in enumerate(self.sentence.tokens):
            if token.kind == "mark" or any(first <= token.start < last for first, last in taken):
                continue
            if token.kind == "cjk":
                continue
            plain = token.folded in lexicon.STOP_WORDS or token.folded in _GENERIC or token.kind == "number"
            if not plain and not self.sentence.is_noun(index) and not self.sentence.cue_fields(index):
                words.append(token.folded)
        return words + self._chinese_topic(taken)

    def _chinese_topic(self, taken: Sequence[tuple[int, int]]) -> list[str]:
        text = list(self.text)
        for first, last in taken:
            text[first:last] = "，" * (last - first)
        rest = re.sub(r"[^\u4e00-\u9fff]+", "，", "".join(text))
        chinese_cues = ["".join(cue) for cue in self.vocabulary.cues if cue and has_chinese(cue[0])]
        plain = (*lexicon.CHINESE_DOCUMENT_NOUNS, *_GENERIC_ZH, *chinese_cues, *_CHINESE_PLAIN)
        for word in sorted(plain, key=len, reverse=True):
            rest = rest.replace(word, "，")
        return [run for run in rest.split("，") if run]

    # Fields that the words point at.

    def _fields_near(self, start: int, end: int, *roles: str) -> tuple[str, ...]:
        names: list[str] = []
        for index, token in enumerate(self.sentence.tokens):
            if start <= token.start < end and self.sentence.mention_at(index) is None:
                names += [name for name in self.sentence.cue_fields(index) if self.vocabulary.roles.get(name) in roles]
        return tuple(dict.fromkeys(names))

    def _number(self) -> str | None:
        """The number that is summed or compared: a field, or the length of a list."""
        fields = self._fields_near(0, len(self.text), "number")
        fields = tuple(name for name in fields if not is_key(self.sentence, name))
        if fields:
            return fields[0]
        lists = self._fields_near(0, len(self.text), "person", "tag")
        counted = re.search(
            r"\b(?:number|count|list|how\s+many|longest|most)\b|多少|最多|个数|人数|数量", self.text, re.IGNORECASE
        )
        many = [name for name in lists if self.vocabulary.catalogue.fields[name].field.type == "list"]
        return f"len({many[0]})" if many and counted else None

    def _group(self) -> str | None:
        """What is grouped by, where the question says so."""
        for match in _BY.finditer(self.text):
            words = (match["what"] or match["zh"] or "").casefold().strip()
            first = words.split()[0].rstrip("s") if words.isascii() and words else words
            for known, function in _YEARLY.items():
                if (first == known if known.isascii() else words.startswith(known)) and _dates(self.found):
                    return f"{function}({_dates(self.found)})"
            fields = self._fields_near(
                match.start("what") if match["what"] else match.start("zh"),
                match.end(),
                "label",
                "tag",
                "person",
                "version",
                "boolean",
                "language",
            )
            if fields and not self._names_value(match):
                return fields[0]
        return None

    def _names_value(self, match: re.Match[str]) -> bool:
        """ "by Guido" states who, not how to group."""
        first = match.start("what") if match["what"] else match.start("zh")
        return any(mention.start == first for mention in self.sentence.mentions)

    def _several(self) -> tuple[str, tuple[object, ...]] | None:
        """A field that the question names two or more values of, to be told apart."""
        for one in self.found.constraints:
            if len(one.values) > 1 and not one.together and not one.negated:
                return one.field, one.values
        years = [one.period for one in self.found.dates if one.period.is_bounded]
        name = _dates(self.found)
        if (
            len(years) > 1
            and name
            and all(p.low and p.high and p.high.year == p.low.year + 1 and p.low.month == 1 for p in years)
        ):
            return f"year({name})", tuple(period.low.year for period in years if period.low)
        return None

    def _counts_documents(self) -> bool:
        """Whether it is documents that are counted, rather than days or people."""
        match = _COUNT.search(self.text)
        if match:
            index = next(
                (n for n, token in enumerate(self.sentence.tokens) if token.start >= match.end()),
                len(self.sentence.tokens),
            )
            for _ in range(6):
                word = self.sentence.folded(index)
                if self.sentence.is_noun(index) or word in (
                    "of",
                    "ended",
                    "are",
                    "were",
                    "is",
                    "was",
                    "did",
                    "have",
                    "has",
                    "got",
                    "carry",
                ):
                    return True
                mention = self.sentence.mention_at(index)
                if mention is not None:
                    index = mention.last
                elif word in (
                    "more",
                    "different",
                    "new",
                    "other",
                    "total",
                    "the",
                    "all",
                    "published",
                    "created",
                    "python",
                    "-",
                    "open",
                ):
                    index += 1
                else:
                    return False
            return False
        chinese = _COUNT_ZH.search(self.text)
        if chinese is None:
            return False
        nouns = any(noun in self.text for noun in lexicon.CHINESE_DOCUMENT_NOUNS) or any(
            noun in self.text.casefold() for noun in self.sentence.nouns
        )
        return nouns or bool(re.search("篇|份|件|起", chinese[0]))

    # The kinds of calculation.

    def share(self) -> Calculation | None:
        if not _SHARE.search(self.text):
            return None
        pieces = self.found.pieces
        existing = _existence(self)
        if existing is not None:
            return Calculation({"op": "share", "where": existing, "decimals": 1}, pieces)
        if not pieces:
            return None
        # "of the A, how many percent are B": the last one is the part, the others the whole.
        part, whole = pieces[-1], pieces[:-1]
        if has_chinese(self.text) and re.search("占(?:全部|所有|总)", self.text):
            return Calculation({"op": "share", "where": both([piece.filter for piece in pieces]), "decimals": 1}, ())
        return Calculation({"op": "share", "where": part.filter, "decimals": 1}, whole)

    def difference(self) -> Calculation | None:
        several = self._several()
        if several is None or len(several[1]) != 2 or not _MORE_THAN.search(self.text):
            return None
        return Calculation({"op": "difference", "group_by": several[0], "between": list(several[1])}, self.found.pieces)

    def groups(self) -> Calculation | None:
        group, number = self._group(), self._number()
        several = self._several()
        top = self._top_group()
        if top is not None:
            return top
        counts = self._counts_documents()
        if group is not None:
            op, of = "count", None
            if number is not None and _AVERAGE.search(self.text):
                op, of = "avg", number
            elif number is not None and not number.startswith("len") and _SUM.search(self.text):
                op, of = "sum", number
            asked = (
                counts
                or of is not None
                or _BREAKDOWN.search(self.text)
                or re.search(r"\bnumber\b|\bcount\b|多少|几", self.text, re.IGNORECASE)
            )
            if asked or not self.topic():
                return Calculation({"op": op, "of": of, "group_by": group}, self.found.pieces)
        if several is not None and (counts or _VERSUS.search(self.text)) and not self.topic():
            return Calculation({"op": "count", "group_by": several[0], "between": list(several[1])}, self.found.pieces)
        return None

    def _top_group(self) -> Calculation | None:
        """ "who wrote most", "the two most used tags", "in which year were the most"."""
        most, least = _MOST.search(self.text), _LEAST.search(self.text)
        if not most and not least:
            return None
        group = None
        year = re.search(
            r"\b(?:which|what)\s+(?:calendar\s+)?(year|month|quarter)\b|哪(?:一|个)?(年|月|季度)",
            self.text,
            re.IGNORECASE,
        )
        name = _dates(self.found)
        if year and name:
            group = f"{_YEARLY[(year[1] or year[2]).casefold()]}({name})"
        else:
            fields = [
                one
                for one in self._fields_near(0, len(self.text), "label", "tag", "person", "version")
                if one not in {c.field for c in self.found.constraints}
            ]
            if _WHO.search(self.text):
                people = [one for one in fields if self.vocabulary.roles[one] == "person"] or list(
                    self.vocabulary.of_role("person")
                )
                group = people[0] if people else None
            elif fields:
                group = fields[0]
        longest = re.search(r"\b(?:which|what)\s+(?P<noun>\w+)", self.text, re.IGNORECASE)
        if (
            longest
            and not year
            and group
            and longest["noun"].casefold() in (lexicon.DOCUMENT_NOUNS | self.sentence.nouns)
        ):
            return None  # "which document has the most authors" is about documents
        if group is None or (self.topic() and not _WHO.search(self.text)):
            return None
        count = _TOP_N.search(self.text)
        limit = parse_count(count["n"] or count["n2"] or count["zh"]) if count else 1
        number = self._number()
        of = (
            number
            if number is not None and not number.startswith("len") and group and not number.startswith(group)
            else None
        )
        aggregate: Json = {
            "op": "sum" if of else "count", "of": of, "group_by": group,
            "order": "desc" if most else "asc", "limit": limit or 1,
        }  # fmt: skip
        return Calculation(aggregate, self.found.pieces)

    def average(self) -> Calculation | None:
        number = self._number()
        if number is None:
            return None
        if _AVERAGE.search(self.text):
            return Calculation({"op": "avg", "of": number, "decimals": 2}, self.found.pieces)
        if _SUM.search(self.text) and not number.startswith("len") and not self._counts_documents():
            return Calculation({"op": "sum", "of": number}, self.found.pieces)
        return None

    def extreme(self) -> Calculation | None:
        """The documents at one end of an order."""
        newest, oldest = _NEWEST.search(self.text), _OLDEST.search(self.text)
        largest, smallest = _LARGEST.search(self.text), _SMALLEST.search(self.text)
        number = self._number() if largest or smallest else None
        largest_number = re.search(
            r"\b(?:largest|highest|greatest|maximum|smallest|lowest)\s+number\s+of\b|最多有?(?:多少|几)",
            self.text,
            re.IGNORECASE,
        )
        if largest_number and number is not None:
            return Calculation({"op": "max" if largest else "min", "of": number}, self.found.pieces)
        of = number or (_dates(self.found) if newest or oldest or (largest and _long_time(self.text)) else None)
        if of is None or self.topic():
            return None
        descending = bool(largest) if number else bool(newest)
        if _WHEN.search(self.text) and number is None:
            return Calculation({"op": "max" if descending else "min", "of": of}, self.found.pieces)
        count = _TOP_N.search(self.text)
        limit = (parse_count(count["n"] or count["n2"] or count["zh"]) if count else 1) or 1
        plural = re.search(r"哪几|哪些|\bwhich\s+\w+s\b(?!\s+(?:is|has|was))", self.text, re.IGNORECASE)
        aggregate: Json = {
            "op": "list", "of": of, "order": "desc" if descending else "asc", "limit": limit, "show": [of],
            "ties": bool(plural) and limit == 1,
        }  # fmt: skip
        return Calculation(aggregate, self.found.pieces)

    def distinct(self) -> Calculation | None:
        """ "how many different authors": values are counted, not documents."""
        match = _DISTINCT.search(self.text)
        if match is None:
            return None
        fields = self._fields_near(0, len(self.text), "label", "tag", "person", "version", "language")
        fields = tuple(name for name in fields if name not in {one.field for one in self.found.constraints})
        people = self.vocabulary.of_role("person")
        if not fields and re.search(r"\bpeople\b|\bpersons\b|人", self.text, re.IGNORECASE) and people:
            fields = people[:1]
        return Calculation({"op": "count", "of": fields[0]}, self.found.pieces) if fields else None

    def count(self) -> Calculation | None:
        if not self._counts_documents():
            return None
        return Calculation({"op": "count"}, self.found.pieces)


_CHINESE_PLAIN = (
    "它",
    "他们",
    "他",
    "她",
    "其",
    "该",
    "此",
    "哪天",
    "还有",
    "更",
    "份",
    "占",
    "请问",
    "看看",
    "哪些",
    "哪几",
    "哪个",
    "什么",
    "怎么",
    "有没有",
    "是否",
    "请问",
    "帮我",
    "我想",
    "知道",
    "查找",
    "查询",
    "列一下",
    "都",
    "新",
    "提",
    "出",
    "里面",
    "其中",
    "比",
    "多",
    "少",
    "还是",
    "由",
    "关于",
    "方面",
    "就",
    "也",
    "再",
    "只",
    "那",
    "这",
    "些",
    "我们",
    "公司",
    "大家",
    "目前",
    "现在",
    "已经",
    "已",
    "客户",
    "看到",
    "要",
    "加",
)


def _long_time(text: str) -> bool:
    """ "has been in Draft the longest" orders by age."""
    return (
        re.search(r"\blongest\b|最久|最长时间", text, re.IGNORECASE) is not None
        and re.search(r"date|since|sitting|been|waiting|日期|久", text, re.IGNORECASE) is not None
    )


def _existence(ask: _Asked) -> Json | None:
    """ "have a sponsor", 有 sponsor 的."""
    for index, token in enumerate(ask.sentence.tokens):
        names = [
            name for name in ask.sentence.cue_fields(index) if ask.vocabulary.roles.get(name) not in ("date", None)
        ]
        if not names:
            continue
        before = ask.text[: token.start].rstrip().casefold()
        if re.search(
            r"\b(?:have|has|with|had|got|list|name)\s+(?:a|an|any|at\s+least\s+one)$", before
        ) or before.endswith(("有", "具有", "写明")):
            return {"type": "exists", "key": names[0], "value": True}
        if re.search(r"\b(?:without|lack|lacks|lacking|no)(?:\s+(?:a|an|any))?$", before) or before.endswith(
            ("没有", "缺少", "无")
        ):
            return {"type": "exists", "key": names[0], "value": False}
    return None
