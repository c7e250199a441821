"""Patterns of words that ask for a calculation."""

import re
from collections.abc import Sequence

from agent.intent.language import lexicon
from agent.intent.language.numerals import CHINESE_COUNT, COUNT, EXACT
from agent.intent.language.text import Token


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


# Operations.
YES_OR_NO = _pattern(r"^\W*(?:did|do|does|has|have|had|is|are|was|were)\b", r"[吗么]\W*$|是否|是不是|有没有")
HOW_MANY = _pattern(
    r"\bhow\s+many\b",
    r"\bwhat(?:['’]s|\s+is)\s+the\s+total(?=\W*$)",
    r"\b(?:total\s+)?number\s+of\b",
    r"\bcount\s+(?:of|the|all)\b|^(?:please\s+)?count\b",
    r"\b(?:tally\s+of|combined\s+(?:number|count|total))\b",
    r"(?:\b(?:count|tally|total)|[-–—:,]\s*number)(?=\W*(?:(?:pls|plz|please|thx|thanks)\W*)?$)",
    r"\bhow\s+often\b",
)
HOW_MANY_ZH = _pattern(
    r"(?<!哪)(?:多少|几)\s*(?:个|篇|份|条|起|件|项|部|本|则|封|款|名|位|次|家|宗|例)",
    r"数量|总数|数目|计数|篇数|个数|件数|数一[下数]|多少(?=\s*[A-Za-z])",
    r"(?:的\s*(?:一共|总共|共)?\s*有?|有|共)\s*多少(?=\s*[?？。]*$)",
    r"有多少(?=还|已|被|是|仍|处于|最终|最后)",
    rf"(?:有|共)\s*多少(?=\s*(?:{'|'.join(sorted(lexicon.CHINESE_DOCUMENT_NOUNS, key=len, reverse=True))}))",
)
DISTINCT = _pattern(
    r"\b(?:how\s+many|number\s+of|count\s+of|^)\s*(?:different|distinct|unique)\b",
    r"(?:多少|几)\s*(?:位|个|种|类)?\s*不同",
    r"(?:有|共)\s*(?:多少|几)\s*种",
)
_RATE = r"\b\w{4,}(?:ion|al|ance|ure)\s+rate\b"
_RATE_ZH = "(?<!比)(?:拒绝|否决|驳回|撤回|撤销|通过|接受|采纳|批准|录用|完成|失败|成功|取消|关闭|解决)率"
SHARE = _pattern(
    r"\b(?:share|percentage|percent|proportion|fraction)\b",
    _RATE,
    _RATE_ZH,
    r"百分之几|占比|比例|百分比|占.{0,6}(?:多少|几)",
)
AVERAGE = _pattern(r"\b(?:average|mean|avg)\b", r"平均")
MEDIAN = _pattern(r"\bmedian\b", r"中位数")
SUM = _pattern(r"\b(?:total|sum|combined|altogether)\b", r"总(?!结|部|体|监|经理)|合计|共计")

# Groups and comparisons.
ORDERED = _pattern(
    r"\b(?:most|largest|highest|biggest)(?:\s+(?:frequent|common|numerous|used))?\s+(?:first|to\s+(?:least|fewest|lowest|smallest))\b|"
    r"\b(?:descending|(?P<rising>ascending))\b",
    r"[从由][多高大]到[少低小]|降序|(?P<rising_zh>[从由][少低小]到[多高大]|升序)",
)
BREAKDOWN = _pattern(
    r"\b(?:break\w*|broken|counted|split|distribution|breakdown|histogram|statistics)\b",
    r"分布|统计|分别|细分",
)
VERSUS = _pattern(
    r"\b(?:vs\.?|versus|compar(?:e|ed|ing|ison)|ratio\s+of|(?:more|fewer)\b.*\b(?:or|than)\b|or\b.*\b(?:more|fewer)|of\s+each|each)\b",
    r"相比|比较|对比|更多|更少|分别|各有|[哪谁][^，。？]{0,12}多(?!少)|还是",
)
MORE_THAN = _pattern(r"\bhow\s+many\s+more\b|\bdifference\b", r"多多少|多几|多出|相差|差多少")
MOST = _pattern(
    r"\b(?:(?<!at )most(?!\s+recent)|top|busiest|commonest|biggest\s+number|more\s+\w+\s+than\s+any(?:one|body)?|"
    r"(?:largest|highest|greatest|biggest)\s+(?:number|count)\s+of|runner-?\s?up)\b",
    rf"最多(?!\s*(?:\d|[一两二三四五六七八九十]+[位个名项种份篇]))|最常|产量最高|第[二三四五]多|前{CHINESE_COUNT}名|排名|排第[二三四五]|排?前{CHINESE_COUNT}的",
)
LEAST = _pattern(r"\b(?:fewest|(?<!at )least|quietest|slowest|rarest)\b", r"最少|最不常|最罕见")
# "Name ..." is a request only at the beginning.
NAMING = _pattern(r"^\W*(?:(?:please|(?:can|could|would)\s+you)\s+)*(?:name|enumerate)\b(?!\s+(?:of|is)\b)")
MERELY = _pattern(r"(?<=\d)\s+alone\b")  # "in 2021 alone"
PERIODICAL = _pattern(r"\b(year|annual|month|quarter)(?:ly)?\s+(?:counts?|numbers?|totals?|figures|breakdown)\b")
COMPARED = _pattern(r"\bwho\b.*\b(?:more|most|fewer)\b", r"[谁哪].*多|更多|更少")
EACH = _pattern(r"\beach\b|\brespectively\b|\bseparately\b", r"分别|各")

# Superlatives and ends of an order.
_SPAN = (
    rf"(?:{COUNT}\s+)?(?:years?|months?|weeks?|quarters?|days?|decades?|time|spring|summer|autumn|fall|winter|"
    r"jan\w*|feb\w*|mar(?:ch)?|apr\w*|may|june?|july?|aug\w*|sep\w*|oct\w*|nov\w*|dec\w*|\w+day)\b"
)
NEWEST = _pattern(
    rf"\b(?:newest|latest|most\s+recent(?:ly)?|youngest|(?:(?:the|very|^)\s*last)(?!\s+{_SPAN}))\b",
    rf"最新|最近(?:的)?(?:一|{CHINESE_COUNT}\s*[个篇份项条])|最近(?=[^，。？?]{{1,12}}是哪一?[个篇份项条])|最晚|最后(?:一)?",
)
OLDEST = _pattern(r"\b(?:oldest|earliest|first)\b", r"最早|最老|最旧|第一(?:个|篇|份)|首个")
TOP_N = _pattern(
    rf"\b(?:top|the)\s+(?P<n>{COUNT})\b",
    rf"\blast\s+(?P<n3>{COUNT})\b",
    rf"\b(?P<n2>{COUNT})\s+(?:most|biggest|largest|smallest|top|newest|latest|oldest|longest|shortest|highest|lowest|cheapest|"
    r"earliest|most\s+recent)\b",
    rf"\b(?:latest|newest|oldest|earliest|biggest|largest|smallest|highest|lowest|cheapest|longest|shortest|first)\s+"
    rf"(?P<n4>(?!one\b){EXACT})\b",
    rf"(?:最\S{{1,4}}|前)的?(?P<zh>{CHINESE_COUNT})\s*(?:个|篇|位|名|种|份|条|的)",
    rf"最[^，。？?]*是哪(?P<zh2>{CHINESE_COUNT})\s*(?:个|篇|位|名|种|份|条)",
)
NTH = _pattern(
    r"\b(?P<runner>runner-?\s?up)\b",
    r"\b(?P<nth>second|third|fourth|fifth)\s+(?:most|largest|highest|biggest)\b",
    r"第(?P<nth_zh>[二三四五])(?:多|名)|排第(?P<nth_zh2>[二三四五])",
)

# Number of documents in a group: "authors with at least 30 reports", 写过 9 篇以上的人 ("people who wrote 9 or more").
AT_LEAST = _pattern(
    rf"\b(?:at\s+least|no[t]?\s+(?:fewer|less)\s+than|(?P<more>(?<!no )(?<!not )more\s+than|over))\s+(?P<n>{EXACT})\b",
    rf"(?:至少|不少于|(?P<more_zh>(?<!不)超过|多于|不止))有?\s*(?P<n_zh>\d+|{CHINESE_COUNT})",
    rf"\b(?P<n2>{EXACT})\s*(?:(?:\w+\s+)?or\s+more\b|\+(?=\s))",
    rf"(?P<n3>(?<![\d.])\d+|{CHINESE_COUNT})\s*[个篇份项次]?(?:及?以上)",
)

AT_MOST = _pattern(
    rf"\b(?:at\s+most|no[t]?\s+more\s+than|(?P<fewer>(?<!no )(?<!not )(?:fewer|less)\s+than|under))\s+(?P<n>{EXACT})\b",
    rf"(?:最多只?有?|至多|不超过|(?P<fewer_zh>(?<!不)少于|不到|不足))\s*(?P<n_zh>\d+|{CHINESE_COUNT})",
)
EXACTLY = _pattern(
    rf"\b(?:exactly|only|just|precisely)\s+(?:a\s+single|(?P<n>{EXACT}))\b|\ba\s+single\b",
    rf"(?:(?:只|仅仅?|恰好|刚好|正好)[\u4e00-\u9fff]{{0,3}}?(?:过|了|有)?|过)\s*(?P<n_zh>(?<!\d)\d{{1,3}}|{CHINESE_COUNT})(?=\s*[个篇份项])",
)
"""An exact number: "only one report", 只写过一个 ("wrote only one")."""

# Wordings that rule out a calculation, and words that a calculation must not ignore.
NO_CALCULATION = _pattern(
    r"^\W*(?:why|how(?!\s+(?:many|often|much|few)\b|\s+do(?:es)?\s+the\s+numbers?\s+of\b))\b|\bhow\s+many\s+\w+\s+(?:can|could|must|should|may|might|need)\b",
    r"\b(?:above|below|than)[\s-]+(?:the\s+)?(?:average|mean)\b|\babove-average\b|\bbelow-average\b|,\s*why\b",
    r"\b(?:by|per|each|every)\s+half\b",
    r"为什么|为何|[高低]于平均",
)
CHOOSING = _pattern(r"\bor\b(?!\s+(?:more|less|fewer|later|earlier|so|not))", r"或者?|要么")
LEAVING_OUT = _pattern(r"\b(?:leaving|apart)\s+(?:out|aside|from)\b")

COUNTING = _pattern(HOW_MANY.pattern, HOW_MANY_ZH.pattern)
_CALCULATING = (
    HOW_MANY, HOW_MANY_ZH, DISTINCT, PERIODICAL, AT_LEAST, SHARE, VERSUS, MORE_THAN, MOST, LEAST, AVERAGE, MEDIAN, SUM,
    BREAKDOWN, NEWEST, OLDEST,
)  # fmt: skip


def is_calculating(text: str) -> bool:
    """Return whether a text has a word that can start a calculation."""
    return any(pattern.search(text) for pattern in _CALCULATING)


def is_written_as_name(text: str, tokens: Sequence[Token]) -> bool:
    """Return whether the tokens of a word such as "it" or "us" are written as a name: "IT", "the US", "the us"."""
    said = tokens[0].text
    shouted = len(said) > 1 and said.isupper() and not text.isupper()
    return len(tokens) == 1 and (shouted or (said == "us" and text[: tokens[0].start].casefold().endswith("the ")))
