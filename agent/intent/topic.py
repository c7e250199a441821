"""What is left of a question when constraints, fields and the words of asking are taken away: its topic."""

import re
from collections.abc import Iterable, Iterator

from agent.intent import lexicon, wording
from agent.intent.found import Found
from agent.intent.sentence import Sentence
from agent.intent.text import has_chinese

# Words of calculations and of talking about a collection; nothing that documents would be about.
_PLAIN = frozenset(
    """
    people worked co carry carries carrying
    counts counted counting busiest saw see seen aimed behind occur values distinct different various
    respective exist compared compare
    both either record summary tell else nowadays calendar year years month months quarter quarters
    publication per each every by top most more than anyone anybody else how what which who when where
    total sum average mean share percentage percent decimal decimals place places count number oldest
    newest latest earliest first last recent recently longest largest highest biggest smallest lowest
    shortest going creation date ended end became become sitting break down broken give also one two
    three currently calculate compute altogether combined overall there far kb knowledge base collection
    corpus database archive stored held entire whole all four five six seven eight nine ten twenty
    fewest least fewer less prolific handle handled handles produce produced plz pls thx both numbers
    figures lack lacks lacking amount need needed exact exactly
    right now split breakdown distribution histogram ever common frequent frequently fraction proportion
    appear appears hold holds contain contains haven hasn isn aren
    wasn weren don doesn didn t s quietest slowest well
    """.split()
)
# And where something is counted or compared, nothing that would be a condition.
_PLAIN_OF_NUMBERS = frozenset(
    """
    already bear bears meant spread core each own precise precisely chronological
    class classes figure figures totals euro euros dollar dollars usd eur id ids handed imposed paid against
    leaving leave order below above carries outcome between second third over ranking ranked ranks all-time time times ran across m curious enumerate enumerated
    wonder wondering quick question wait simply simpler actually really
    roughly approximately about
    separately respectively together even alone once twice times rate number numbers commonest runner
    largest name names named tally sum whether answer yes same compare comparing single busiest apiece
    so-called old older young younger new newer against versus vs term terms thing things stuff
    """.split()
)
_PLAIN_ZH = tuple(
    """
    新增 增加 人 种 数量 量 不同 前 多大 比例 出来 列 按 分
    一共 总共 共有 共 有 多少 几 个 篇 份 条 起 件 项 次 最多 最少 最新 最早 最近 最长 最大 最高 哪 谁 写 是 的 了
    和 与 各 每 按 分别 占 全部 所有 百分之 保留 位 小数 年 月 日 什么 时候 里 中 得 用 一 两 二 三 被 参与 新建
    创建 日期 发布 目前 还 为 状态 版本 目标 主题 相比 数 总 分钟 平均 知识库 库里 请 列出 给我 查 找 看 看看
    一下 呢 吗 啊 呀 吧 过 到 在 发生 可以 允许 能 它 他们 他 她 其 该 此 哪天 还有 更 请问 哪些 哪几 哪个 怎么
    有没有 是否 帮我 我想 知道 查找 查询 列一下 都 新 提 出 里面 其中 比 多 少 还是 由 关于 方面 就 也 再 只 那
    这 些 我们 公司 大家 现在 已经 已 客户 看到 要 加
    第 仍 仍为 时间 还没 没有 没 哪家 出现 下 名下 手里 旗下 负责 这批 那批 统计 汇总
    """.split()
)
_PLAIN_OF_NUMBERS_ZH = tuple(
    """
    署名 历史上 历史 以 作为 最终 成为 成 精确 精确到 包含 算 由 参与的
    发 明 含 五 六 七 八 九 余 其余 给 编号 相关 元 欧元 美元 万 金额 加起来 加 合计 一次 一起 文件 都 分属 去重 重复 不要
    当中 差 至少 超过 多于 以上 不少于 及以上 名 并 之间 百 合写 合著 合作
    次数 担任 当过 现存 至今 仍是 仍为 仍 处于 对应 涉及 位 不同 者 出自 年份 附上 各自 篇数 个数 数一下 数数 那会儿
    且 类 标签 怎样 怎么样 如何 比 前者 后者 编号 里面 自 这类 那类 分布 情况 排 给 顺序 名单 一下子 算一下 算算
    """.split()
)
# Whatever is done the most is asked of who does it: "who has piled up the most".
_DEED = re.compile(
    r"\b\w+(?:\s+(?:up|out|in|on|off|of)){0,2}(?=\s+the\s+(?:most|fewest|least|highest\s+number)\b)|\bmost\s+often\b",
    re.IGNORECASE,
)
_OPENED = re.compile(r"[\u4e00-\u9fff]{2,6}\s*[（(]\s*$")
_NO_CHINESE = re.compile(r"[^\u4e00-\u9fff]+")
_LETTERS = re.compile(r"[^\W\d_]+")


def topic_of(found: Found) -> list[str]:
    """The words that neither constrain, nor name fields or documents, nor ask: what documents would say.

    Of "how many accepted PEPs about packaging are there" that is "packaging".
    """
    sentence = found.sentence
    taken = [(one.start, one.end) for one in (*found.pieces, *found.lengths)] + [
        (one.start, one.end) for one in found.dates
    ]
    taken += [match.span() for match in _DEED.finditer(sentence.text)]
    taken += [match.span() for match in wording.WHO.finditer(sentence.text)]
    taken += [match.span() for match in wording.ORDERED.finditer(sentence.text)]
    taken += [match.span() for match in wording.PERIODICAL.finditer(sentence.text)]
    taken += list(_explained(sentence))
    counts = wording.is_calculating(sentence.text) or _asks_for_an_end(sentence)
    words = []
    for index, token in enumerate(sentence.tokens):
        if token.kind != "word" or any(first <= token.start < last for first, last in taken):
            continue
        is_plain = token.folded in lexicon.STOP_WORDS or token.folded in _PLAIN
        # "3.9 or 3.10, which [release] had more", "how many did Grace Kim [inspect]"
        asks = index > 0 and (sentence.folded(index - 1) in ("which", "what") or _is_deed_of(sentence, index))
        is_plain = (
            is_plain
            or (counts and asks)
            or (counts and (token.folded in _PLAIN_OF_NUMBERS or token.stem in lexicon.DEEDS))
        )
        # "about typing" names a topic, although types are a field.
        is_subject = sentence.in_about(token.start) and any(one.first <= index < one.last for one in found.left)
        if (is_subject and not (counts and asks)) or (
            not is_plain and not sentence.is_noun(index) and not sentence.cue_fields(index)
        ):
            words.append(token.folded)
    text = list(sentence.text)
    for first, last in taken:
        text[first:last] = "，" * (last - first)
    cues = ["".join(cue) for cue in sentence.vocabulary.cues if cue and has_chinese(cue[0])]
    return words + _chinese_words("".join(text), (*cues, *_PLAIN_OF_NUMBERS_ZH) if counts else cues)


def _asks_for_an_end(sentence: Sentence) -> bool:
    """ "what is the newest report that is already final", 最近一个被拒绝的提案是哪个."""
    ends = (wording.NEWEST, wording.OLDEST, wording.LARGEST, wording.SMALLEST)
    return wording.WHICH_DOCUMENT.search(sentence.text) is not None and any(one.search(sentence.text) for one in ends)


def _is_deed_of(sentence: Sentence, index: int) -> bool:
    """Whether a verb says what somebody did: the documents that somebody has to do with are those of the person."""
    maker = sentence.mention_at(index - 1)
    if maker is None or sentence.mention_at(index) is not None:
        return False
    is_person = any(sentence.vocabulary.roles.get(one.field) == "person" for one in maker.known)
    return is_person and sentence.folded(maker.first - 1) in ("did", "does", "do", "has", "have")


def _explained(sentence: Sentence) -> Iterator[tuple[int, int]]:
    """类型标注（Typing）: a Chinese word for the value that stands in brackets behind it."""
    for mention in sentence.mentions:
        opened = _OPENED.search(sentence.text[: mention.start])
        if opened is not None and sentence.text[mention.end :].lstrip().startswith((")", "）")):
            yield opened.start(), mention.end


def plain_words(text: str) -> list[str]:
    """The words of a text that carry meaning, by general lists alone."""
    words = (word for word in _LETTERS.findall(text.casefold()) if not has_chinese(word))
    kept = [word for word in words if word not in lexicon.STOP_WORDS and word not in lexicon.DOCUMENT_NOUNS]
    return kept + _chinese_words(text)


def _chinese_words(text: str, plain: Iterable[str] = ()) -> list[str]:
    """What is left of a text's Chinese without words for documents, plain words and those given."""
    rest = _NO_CHINESE.sub("，", text)
    for word in sorted((*lexicon.CHINESE_DOCUMENT_NOUNS, *_PLAIN_ZH, *plain), key=len, reverse=True):
        rest = rest.replace(word, "，")
    return [run for run in rest.split("，") if run]
