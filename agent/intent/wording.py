"""The wordings by which a question asks for a calculation."""

import re

from agent.intent import lexicon
from agent.intent.numerals import CHINESE_COUNT, COUNT, EXACT


def _pattern(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.IGNORECASE)


# What is calculated.
HOW_MANY = _pattern(
    r"\bhow\s+many\b",
    r"\bwhat(?:['’]s|\s+is)\s+the\s+total(?=\W*$)",
    r"\b(?:total\s+)?number\s+of\b",
    r"\bcount\s+(?:of|the|all)\b|^(?:please\s+)?count\b",
    r"\b(?:tally\s+of|combined\s+(?:number|count|total))\b",
    r"(?:\b(?:count|tally|total)|[-–—:,]\s*number)(?=\W*(?:(?:pls|plz|please|thx|thanks)\W*)?$)",
    r"\bhow\s+often\b",
)
HOW_MANY_ITSELF = _pattern(r"\bhow\s+many\b", r"\bnumber\s+of\b")
HOW_MANY_ZH = _pattern(
    r"(?<!哪)(?:多少|几)\s*(?:个|篇|份|条|起|件|项|部|本|则|封|款|名|位|次|家|宗|例)",
    r"数量|总数|数目|计数|篇数|个数|件数|数一[下数]|多少(?=\s*[A-Za-z])",
    r"(?:的\s*(?:一共|总共|共)?\s*有?|有|共)\s*多少(?=\s*[?？。]*$)",
    r"有多少(?=还|已|被|是|仍|处于|最终|最后)",
    rf"(?:有|共)\s*多少(?=\s*(?:{'|'.join(sorted(lexicon.CHINESE_DOCUMENT_NOUNS, key=len, reverse=True))}))",
)
COUNTED_ZH = _pattern(r"(?:多少|几)\s*(?:位|名|个|种|类)?\s*(?:不同的?)?\s*")
COUNTED_BEHIND_ZH = _pattern(r"(?:一共|总共|共)?有?\s*(?:多少|几)\s*(?:位|名|个|人|种)?(?:不同的?)?\W*$")
DISTINCT = _pattern(
    r"\b(?:how\s+many|number\s+of|count\s+of|^)\s*(?:different|distinct|unique)\b",
    r"(?:多少|几)\s*(?:位|个|种|类)?\s*不同",
    r"(?:有|共)\s*(?:多少|几)\s*种",
)
_RATE = r"\b\w{4,}(?:ion|al|ance|ure)\s+rate\b"
_RATE_ZH = "(?<!比)(?:拒绝|否决|驳回|撤回|撤销|通过|接受|采纳|批准|录用|完成|失败|成功|取消|关闭|解决)率"
RATE = _pattern(_RATE, _RATE_ZH)
SHARE = _pattern(
    r"\b(?:share|percentage|percent|proportion|fraction)\b",
    _RATE,
    _RATE_ZH,
    r"百分之几|占比|比例|百分比|占.{0,6}(?:多少|几)",
)
AMONG = _pattern(r"\b(?:among|amongst|out\s+of)\b")
SHARE_OF = _pattern(r"\b(?:share|percentage|percent|proportion|fraction)\s+of\b")
SAYING = _pattern(
    r"\b(?:is|are|was|were|got|get|have|has|had|did|do|does|date[sd]?|c[ao]me|ended|became|become|carry|carried|made)\b",
    r"是|占|被|为",
)
OF_THEM = _pattern(
    r"\bhow\s+many\s+of\s+(?:them|those|these|which)\b", r"其中(?:又|已经?)?(?:被\S{1,4}的)?有?(?:多少|几)"
)
OF_EACH = _pattern(r"\b(?:is|are|was|were|comes?|came)\s+(?:from|in|of|by)\s+(?:each|every)\b")
SHARE_OF_ALL_ZH = _pattern(r"占(?:全部|所有|总)")
AVERAGE = _pattern(r"\b(?:average|mean|avg)\b", r"平均")
A_GROUP = _pattern(r"\b(?:the\s+(?:average|median|mean|typical)|does\s+an?|do(?:es)?\s+each)\b", r"每[位个名]")
"""One of those that are averaged over: "does the average author have"."""
# A tie with "most" is of documents: "the share of the district with the most complaints".
END_OF_SHARES = _pattern(r"\b(?:highest|largest|biggest|greatest|lowest|smallest)\b", r"最[高大低小]|最多")
FOR_EACH = _pattern(r"\b(?:per|each|every)\b", r"每(?!天|日)")
MEDIAN = _pattern(r"\bmedian\b", r"中位数")
SUM = _pattern(r"\b(?:total|sum|combined|altogether)\b", r"总(?!结|部|体|监|经理)|合计|共计")
NUMBER_OF = _pattern(r"\b(?:number|count|list|how\s+many|most)\b", r"多少|最多|个数|人数|数量|几[位名个]")
LARGEST_NUMBER = _pattern(
    r"\b(?:largest|highest|greatest|maximum|smallest|lowest)\s+number\s+of\b",
    r"最多有?(?:多少|几)",
)
DECIMALS = _pattern(
    r"(?P<n>one|two|three|[0-4]|一|两|二|三)\s*(?:decimals?|decimal\s+places?|digits?|位小数)",
)

# Groups, and what they are compared with.
BY = _pattern(
    r"\b(?:(?:in|for)\s+)?(?:each|every)(?:\s+one)?\s+of\s+the\s+(?:(?:last|past|previous)\s+)?(?:\w+\s+)?"
    r"(?P<these>years|months|quarters)\b",
    r"\b(?:per|for\s+each|for\s+every|in\s+each|each|grouped\s+by|group\s+by|by|across)\s+"
    r"(?:the\s+|their\s+|its\s+)?(?:current\s+)?(?:calendar\s+|publication\s+)?(?P<what>[\w-]+(?:\s[\w-]+)?)",
    r"(?:各个?|每个?|每一|按照?|分)(?P<zh>[^，。？！,?!的]{1,6})",
)
ORDERED = _pattern(
    r"\b(?:most|largest|highest|biggest)(?:\s+(?:frequent|common|numerous|used))?\s+(?:first|to\s+(?:least|fewest|lowest|smallest))\b|"
    r"\b(?:descending|(?P<rising>ascending))\b",
    r"[从由][多高大]到[少低小]|降序|(?P<rising_zh>[从由][少低小]到[多高大]|升序)",
)
TWO_GROUPS = _pattern(
    r"\b(?:per|by|for\s+each|for\s+every)\s+(?:the\s+)?\w+\s+"
    r"(?:and\s+(?:by\s+|per\s+)?|(?:per|by|for\s+each|for\s+every)\s+)\w+"
)
BREAKDOWN = _pattern(
    r"\b(?:break\w*|broken|counted|split|distribution|breakdown|histogram|statistics)\b",
    r"分布|统计|分别|细分",
)
COUNTED = _pattern(r"\bnumber\b|\bcount\b", r"多少|几")
VERSUS = _pattern(
    r"\b(?:vs\.?|versus|compar(?:e|ed|ing|ison)|ratio\s+of|(?:more|fewer)\b.*\b(?:or|than)\b|or\b.*\b(?:more|fewer)|of\s+each|each)\b",
    r"相比|比较|对比|更多|更少|分别|各有|[哪谁][^，。？]{0,12}多(?!少)|还是",
)
WHICH_OF_TWO = _pattern(r"\b(?:which|who)\b", r"哪|谁")
ONE_OF_TWO = _pattern(r"\b(?:more|fewer|most|fewest|bigger|larger|higher)\b", r"更?[多少](?!少)")
FEWER = _pattern(r"\bfew(?:er|est)\b|\bless\b", r"更少|最少|少(?=[?？。]|$)")
BOTH_SIDES = _pattern(
    r"\bby\s+how\s+(?:many|much)\b|\beach\b|\bcompar\w+|\bhow\s+many\b|\bdifference\b",
    r"分别|各|多几|多多少|差|几[个篇份]|多少",
)
MORE_THAN = _pattern(r"\bhow\s+many\s+more\b|\bdifference\b", r"多多少|多几|多出|相差|差多少")
MOST = _pattern(
    r"\b(?:(?<!at )most(?!\s+recent)|top|busiest|commonest|biggest\s+number|more\s+\w+\s+than\s+any(?:one|body)?|"
    r"(?:largest|highest|greatest|biggest)\s+(?:number|count)\s+of|runner-?\s?up)\b",
    rf"最多(?!\s*(?:\d|[一两二三四五六七八九十]+[位个名项种份篇]))|最常|产量最高|第[二三四五]多|前{CHINESE_COUNT}名|排名|排第[二三四五]|排?前{CHINESE_COUNT}的",
)
MOST_OF_ZH = _pattern(rf"最[多少]的\s*(?:{CHINESE_COUNT}\s*[个篇份条])?\s*")
LEAST = _pattern(r"\b(?:fewest|(?<!at )least|quietest|slowest|rarest)\b", r"最少|最不常|最罕见")
TOGETHER = _pattern(
    r"\b(?:combined|in\s+total|altogether|together(?!\s+with)|between\s+them|all\s+told)\b", r"合计|总共|加起来"
)
WHICH_PERIOD = _pattern(
    r"\b(?:which|what)\s+(?:calendar\s+)?(year|month|quarter)s?\b",
    r"\b(?:busiest|slowest|most\s+active|peak)\s+(?:single\s+)?(year|month|quarter)s?\b",
    r"\bthe\s+(?:single\s+)?(year|month|quarter)s?\s+(?:in\s+which|which|that|with|when)\b",
    r"哪(?:一|个|一个|几个?|些)?(年|月|季度)",
)
# At the beginning, where it is what is to be done.
NAMING = _pattern(r"^\W*(?:(?:please|(?:can|could|would)\s+you)\s+)*(?:name|enumerate)\b(?!\s+(?:of|is)\b)")
MERELY = _pattern(r"(?<=\d)\s+alone\b")  # "in 2021 alone"
PERIODICAL = _pattern(r"\b(year|annual|month|quarter)(?:ly)?\s+(?:counts?|numbers?|totals?|figures|breakdown)\b")
MONTH_OF_YEAR = _pattern(r"\bcalendar\s+months?\b|\bmonths?\s+of\s+the\s+year\b", r"不分年份|一年中")
WHICH_VALUES = _pattern(
    r"\b(?:which|what)\s+(?P<what>[\w-]+(?:\s[\w-]+)?)\s+(?:of\s+\w+\s+)?"
    r"(?:occur|exist|appear|are\s+(?:there|used|in\s+use|represented))\b",
    r"^\W*(?:please\s+)?(?:list|show|name|enumerate)\s+(?:me\s+)?(?:all\s+(?:of\s+)?(?:the\s+)?|every\s+|the\s+)"
    r"(?:different\s+|distinct\s+|possible\s+|existing\s+|available\s+)?(?P<listed>[\w-]+(?:\s[\w-]+)?)\W*$",
    r"有哪些(?P<zh>[^，。？！,?!的]{1,6})[?？]*$",
)
COMPARED = _pattern(r"\bwho\b.*\b(?:more|most|fewer)\b", r"[谁哪].*多|更多|更少")
EACH = _pattern(r"\beach\b|\brespectively\b|\bseparately\b", r"分别|各")
WHICH_NOUN = _pattern(r"\b(?:which|what)\s+(?P<noun>\w+)", r"\bthe\s+(?P<noun2>\w+)\s+(?:with|that\s+has|having)\b")
SPENDING = _pattern(r"\b(?:spen[dt]s?|paid|pays?|earn(?:s|ed)?)\b", r"花[了费的]|花[得钱]|支出")
PERIODS = {"year": "year", "annual": "year", "month": "year_month", "quarter": "quarter"}
PERIODS_ZH = {"年": "year", "月": "year_month", "季度": "quarter"}
"""What a date is grouped by, as a function of the aggregates."""

# The ends of an order.
_SPAN = (
    rf"(?:{COUNT}\s+)?(?:years?|months?|weeks?|quarters?|days?|decades?|time|spring|summer|autumn|fall|winter|"
    r"jan\w*|feb\w*|mar(?:ch)?|apr\w*|may|june?|july?|aug\w*|sep\w*|oct\w*|nov\w*|dec\w*|\w+day)\b"
)
NEWEST = _pattern(
    rf"\b(?:newest|latest|most\s+recent(?:ly)?|youngest|(?:(?:the|very|^)\s*last)(?!\s+{_SPAN}))\b",
    rf"最新|最近(?:的)?(?:一|{CHINESE_COUNT}\s*[个篇份项条])|最近(?=[^，。？?]{{1,12}}是哪一?[个篇份项条])|最晚|最后(?:一)?",
)
OLDEST = _pattern(r"\b(?:oldest|earliest|first)\b", r"最早|最老|最旧|第一(?:个|篇|份)|首个")
LARGEST = _pattern(
    r"\b(?:longest|largest|tallest|highest|biggest|greatest|maximum|max|most\s+expensive|costliest|"
    r"(?<!at )most(?!\s+recent))\b",
    r"最长|最大|最高|最多|最贵",
)
SMALLEST = _pattern(
    r"\b(?:shortest|smallest|lowest|minimum|min|cheapest|fewest|(?<!at )least)\b",
    r"最短|最小|最低|最少|最便宜",
)
LONGEST = _pattern(r"\blongest\b", r"最久|最长时间")
OF_TIME = _pattern(r"date|since|sitting|been|waiting", r"日期|久")
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
ORDINALS = {"second": 2, "third": 3, "fourth": 4, "fifth": 5, "二": 2, "三": 3, "四": 4, "五": 5}
SEVERAL = _pattern(r"哪几|哪些", r"\bwhich\s+\w+s\b(?!\s+(?:is|has|was))")

# How many documents a group must have: "authors with at least 30 reports", 写过 9 篇以上的人.
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
"""Of what there is so much, and no more: "only one report", 只写过一个."""

# Fields that are asked for without their name.
WHEN = _pattern(r"^\s*(?:when|what\s+(?:date|day|year))\b", r"什么时候|何时|哪一?[天年月]")
WHICH_DOCUMENT = _pattern(r"^\W*(?:which|what)\b", r"哪一?[个篇份项条]|哪几[个篇份]")
WHICH_ONE = _pattern(r"\bwhich\b", r"哪一?[个篇份项条]")
WHO = _pattern(
    r"\bwho(?:se)?\b|\b(?:which|what)\s+(?:\w+\s+)?"
    r"(?:authors?|persons?|people|devs?|developers?|contributors?|colleagues?|engineers?|employees?)\b",
    r"\b(?:persons?|people|devs?|developers?|contributors?|colleagues?)\s+(?:with|who)\b",
    r"谁|哪位|哪个人",
)
PEOPLE_ALONE = _pattern(r"\s*(?:different\s+|distinct\s+)?(?:people|persons)\b", r"\s*(?:不同的?)?人")
PEOPLE = _pattern(r"\bpeople\b|\bpersons\b", r"人")

# A field that is or is not there: "have [a sponsor]", 没有[赞助人].
HAVING = _pattern(
    r"\b(?:have|has|with|had|got|list|name)\s+(?:a|an|any|at\s+least\s+one)$", r"(?:具有|写明|(?<!没)有)$"
)
LACKING = _pattern(
    r"\b(?:without|lack|lacks|lacking|no|never\s+ha(?:ve|s|d)|not\s+ha(?:ve|s|d))"
    r"(?:\s+(?:a|an|any))?$",
    r"n['’]t\s+(?:have|list|name|state)(?:\s+(?:a|an|any))?$",
    r"(?:没有|缺少|无|不带|没带|(?:没有?|未)(?:写明?|注明|标明?|填写?))任何?$|(?:不带|没有)任何$",
)

# What must not be left out, and what is no question about how many there are, whatever else it says.
YES_OR_NO = _pattern(r"^\W*(?:did|do|does|has|have|had|is|are|was|were)\b", r"[吗么]\W*$|是否|是不是|有没有")
NO_CALCULATION = _pattern(
    r"^\W*(?:why|how(?!\s+(?:many|often|much|few)\b|\s+do(?:es)?\s+the\s+numbers?\s+of\b))\b|\bhow\s+many\s+\w+\s+(?:can|could|must|should|may|might|need)\b",
    r"\b(?:above|below|than)[\s-]+(?:the\s+)?(?:average|mean)\b|\babove-average\b|\bbelow-average\b|,\s*why\b",
    r"\b(?:by|per|each|every)\s+half\b",
    r"为什么|为何|[高低]于平均",
)
NUMBER_WORD = _pattern(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|dozen)\b",
    r"(?<![第前后])[两二三四五六七八九十]{1,3}(?=人(?!工))|(?<![第前后])[两二三四五六七八九十]{1,3}(?=[位个名种项]\s*(?:以上|以下|不同|及以上)?(?:的)?\s*[\u4e00-\u9fff])",
)
DENYING = _pattern(
    r"\b(?:not|never|without|neither|nor|cannot|except|excluding)\b(?!\s+(?:only|just))|n['’]t\b|\bno\b(?!\s+(?:matter|longer|more|fewer|less))",
    r"(?<!有)没(?!有?问题)|未(?!来)|(?<!是)不(?!同|常|少于|超过|管|论|多于|低于|止|分|足|到|及|要重复)|除了|以外|之外",
)
CHOOSING = _pattern(r"\bor\b(?!\s+(?:more|less|fewer|later|earlier|so|not))", r"或者?|要么")
LEAVING_OUT = _pattern(r"\b(?:leaving|apart)\s+(?:out|aside|from)\b")
TWO_SIDES = _pattern(r"(?:有|写明|带)[^，。？,?]{1,12}[和与、](?:没有?|未|不带)|[多少]\s*还是")
"""Two counts of which one would be left out: 有赞助人和没有赞助人的各有几篇."""

COUNTING = _pattern(HOW_MANY.pattern, HOW_MANY_ZH.pattern)
_CALCULATING = (
    HOW_MANY, HOW_MANY_ZH, DISTINCT, PERIODICAL, AT_LEAST, SHARE, VERSUS, MORE_THAN, MOST, LEAST, AVERAGE, MEDIAN, SUM,
    BREAKDOWN, NEWEST, OLDEST,
)  # fmt: skip


def is_calculating(text: str) -> bool:
    """Whether a text holds any of the words without which nothing is calculated."""
    return any(pattern.search(text) for pattern in _CALCULATING)
