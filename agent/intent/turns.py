"""What kind of turn it is: small talk, something outside the documents, several questions at once."""

import re
from itertools import islice

from agent.intent.found import Found
from agent.intent.text import has_chinese
from agent.intent.topic import plain_words

# Said in one word or a few, one after the other.
_SHORT = (
    r"ok(?:ay)?|alright|fine|great|cool|nice|perfect|awesome|excellent|good|wonderful|brilliant|super|lovely|"
    r"yes|yep|yeah|no|nope|sure|right|got\s+it|understood|i\s+see|makes\s+sense|never\s*mind|forget\s+it|"
    r"thanks?(?:\s+you)?|thank\s+you|thx|ty|cheers|ta|much\s+appreciated|that\s+help(?:s|ed)|"
    r"(?:good)?bye|see\s+you|later|tomorrow|soon|around|lol|well\s+done|please|then|very|so|much|a\s+lot|again|"
    r"a\s+million|for\s+(?:now|today|your\s+help|the\s+help)|"
    r"good\s+(?:one|job|work)|nice\s+one|all\s+(?:good|set|done|clear)|no\s+(?:problem|worries|more\s+questions)|"
    r"i['’]?m\s+(?:done|good|fine)|haha(?:ha)*|mate|buddy|guys|"
    r"oops|oh|my\s+(?:mistake|bad)|apologies|excuse\s+me|wrong\s+(?:window|chat|person)|test(?:ing)?|"
    r"there|all|everyone|team|bot|how\s+are\s+you|how['’]?s\s+it\s+going|what['’]?s\s+up|"
    r"are\s+you\s+(?:there|ok|awake)|anybody\s+(?:there|home)|have\s+a\s+(?:nice|good|great)\s+\w+|"
    r"hi|hello|hey|hiya|greetings|howdy|yo|good\s+(?:morning|afternoon|evening|day|night)"
)
_NONE = re.compile(rf"^\W*(?:{_SHORT})(?:\W+(?:{_SHORT}))*\W*$", re.IGNORECASE)
# Said at the beginning of a remark that asks nothing.
_REMARK = re.compile(
    r"^\W*(?:(?:ok|okay|great|oh|thanks|no|well|haha)\W+){0,2}(?:sorry\b|"
    r"that(?:['’]?s|\s+is|\s+was)?\s+"
    r"(?:all|it|exactly|what|enough|helpful|great|perfect|everything|very|really|not)\b|"
    r"(?:that|this|it)\s+(?:was|is|did)n['’]?t\s+|you\s+(?:keep|always|never|just|helped)\b|"
    r"you(?:['’]?re|\s+are)\s+(?:great|awesome|the\s+best|welcome|not|wrong|slow|useless|repeating)\b|"
    r"forget\s+about\s+it)[^?？]*$",
    re.IGNORECASE,
)
_ABOUT_US = re.compile(
    r"^\W*(?:(?:hi|hello|hey|ok|so|and)\W+){0,2}(?:(?:who|what)\s+are\s+you\b(?!\s+(?:supposed|allowed|\w+ing)).{0,30}|"
    r"what\s+can\s+you\s+(?:do|help)\b.*|how\s+(?:do|can)\s+(?:you|i)\s+(?:work|use\s+you)\b.{0,30}|"
    r"what\s+(?:model|llm|version)\s+are\s+you\b.*|"
    r"are\s+you\s+(?:an?\s+(?:real\s+)?(?:bot|robot|human|machine|person|ai)|there|real|human|alive)\b.{0,30}|"
    r"what(?:['’]?s|\s+is)\s+your\s+name\b.{0,20}|can\s+you\s+help\s+me)\W*$",
    re.IGNORECASE,
)
_NONE_ZH = re.compile(
    r"^\W*(?:(?:你好|您好|嗨|哈喽|喂|早上好|早安|上午好|中午好|下午好|晚上好|晚安|大家好|在吗|在不在|有人吗|谢谢|多谢|感谢|辛苦|"
    r"好的|好吧|好|行|嗯|哦|明白|懂|知道|了解|收到|没问题|没事|算|不用|不需要|再见|拜拜|回见|回头见|明天见|下次见|哈+|厉害|太好|太棒|"
    r"棒|不错|很好|可以|先这样|就这样|到此为止|那就这样|问完|帮大忙|麻烦|打扰|"
    r"你|您|们|了|啦|呀|啊|哦|吧|的|吗|呢|先|都|真|很|太|非常|十分|这|那|就|帮|我|大|忙|"
    r"回答|解答|帮助|有用|一下|谢|不好意思|抱歉|对不起|下次再聊|下次|再聊|聊|测试|试试|打错|发错|搞错|"
    r"也|没|没有|答|慢|笨|答得|错|嘛|哎|唉|额)\W*)+$|"
    r"^\W*(?:你|您)(?:是谁|叫什么|能做什么|会做什么|会什么|能干什么|能帮我做?(?:些|点)?什么|"
    r"是(?:机器人|人|真人|AI)(?:吗|还是.{1,4})|可以做什么|都能).*$"
)
# Wishes about how to answer, and work on what was already said.
_MANNER = re.compile(
    r"^\W*(?:(?:please|now|and|ok(?:ay)?|can|could|would|will|you|just|next\s+time|from\s+now\s+on)\W+){0,4}"
    r"(?:answer|reply|respond|write|explain|speak|talk|keep|make|be)\b.{0,40}"
    r"\b(?:short(?:er)?|brief(?:er|ly)?|concise(?:ly)?|longer|"
    r"in\s+(?:english|chinese|german|french|spanish|bullet\s+points|plain|simple)|"
    r"polite(?:ly)?|formal(?:ly)?|simpler|more\s+detail(?:ed)?|from\s+now\s+on|bullet\s*points|next\s+time)\b|"
    r"\bfrom\s+now\s+on\b|^\W*(?:a\s+bit\s+|much\s+)?(?:shorter|longer|simpler|briefer|more\s+detail)\b.{0,20}$|"
    # Only what was said before can be meant: "format" and "last" also stand in questions.
    r"^\W*(?:(?:please|now|and|ok(?:ay)?|can|could|would|you|just)\W+){0,4}"
    r"(?:translate|summari[sz]e|rephrase|repeat|shorten|rewrite|reword|reformat|paraphrase|format|say)\b"
    r"\s+(?:\w+\s+){0,3}(?:that|this|it|your|above|(?:previous|last)\s+(?:answer|reply|message|response|one|paragraph)|"
    r"what\s+you|the\s+answer|again)\b|"
    r"\b(?:put|turn)\b.{0,20}\b(?:that|this|it|your\s+(?:last\s+)?answer)\b.{0,20}\b(?:into|in|as)\b|"
    r"(?:以后|今后|接下来|下次|之后).{0,10}(?:回答|回复|说(?!明))|"
    r"(?:回答|回复|说|写)得?.{0,8}(?:简短|正式|口语|简洁|简单|短|详细|通俗)(?:一?些|一?点)|"
    r"用(?:英文|中文|英语|汉语|一句话|表格).{0,6}(?:回答|回复|说|总结)(?:一下|一遍|吧)?\W*$|"
    r"(?:把|将)?(?:你|您)?(?:刚才|上面|刚刚|之前|前面|上一?(?:条|段|个)).{0,14}"
    r"(?:翻译|总结|概括|改写|缩短|重复|润色|再说|换|翻成|译成|写成|整理)|"
    r"(?:翻译|总结|概括|改写|缩短|重复|润色).{0,8}(?:刚才|上面|上一|这段|那段|你的)|"
    r"(?:太长|太短|太啰嗦|太复杂).{0,8}|^\W*(?:请|麻烦)?(?:简短|简洁|简单|详细|短|长)一?[些点]\W*$|"
    r"再说一遍|换(?:一)?种说法|说人话",
    re.IGNORECASE,
)
# A text that the turn brings along, after a colon or in quotes.
_GIVEN = re.compile(r"(?:[:：→]|->)\s*\S.{3,}|[\"“‘「][^\"”’」]{6,}[\"”’」]|(?<!\w)'[^']{20,}'", re.DOTALL)
# Asking for work on it says nothing else: every word before it is one of these, and one of them says what to do.
_DOING = frozenset(
    """
    fix correct proofread spell translate rewrite rephrase reword paraphrase polish shorten summarise summarize improve
    simplify make turn convert put write say
    """.split()
)
_WITH_TEXT = _DOING | frozenset(
    """
    the this that these following a an it my me for please pls can could would you just now and in into to at of as up
    sentence sentences paragraph text email e mail message line words word list grammar spelling check typos language
    english german french spanish italian chinese japanese dutch portuguese korean russian
    more less rude polite politer politely formal formally informal friendly friendlier angry shorter longer simple
    simpler sound tone better clearer professional short one two three bullet point points active passive voice title
    case level
    """.split()
)
_WORK_ZH = re.compile(
    r"^\W*(?:(?:请|麻烦|帮我|帮忙|你|能不能|可以|给我)\W*)*"
    r"(?:[把将]\W*)?(?:(?:这|那|下面|以下)(?:个|句|段|封|篇|几句)?(?:话|文字|文本|内容|邮件|句子|的话)?\W*)?"
    r"(?:(?:润色|翻译|译|缩写|扩写|校对|改写|改得|改成|翻成|译成|换个?说法)(?:一下|这句话?|这段话?)?"
    r"(?:[成为到得]?[^：，。？]{0,8})?|找(?:一下)?错别字)\W*$"
)
_UNITS = (
    r"(?:km|kilomet(?:er|re)s?|miles?|kgs?|kilos?|lbs?|pounds?|grams?|oz|ounces?|cm|mm|met(?:er|re)s?|inch(?:es)?|"
    r"feet|foot|ft|gb|mb|kb|tb|hours?|minutes?|seconds?|days?|weeks?|lit(?:er|re)s?|gallons?|celsius|fahrenheit)"
)
_CONVERSION = re.compile(
    rf"^\W*(?:how\s+(?:many|much)\s+{_UNITS}\s+(?:is|are|in)\s+(?:an?\s+)?[\d.,/]*\s*(?:US\s+)?{_UNITS}|"
    rf"(?:what(?:['’]?s|\s+is)\s+)?[\d.,/]+\s*(?:US\s+)?{_UNITS}\s+(?:in|to|into|as)\s+{_UNITS}(?:\s+and\s+{_UNITS})?)"
    r"(?:\W+(?:pls|please|plz))?\W*$",
    re.IGNORECASE,
)
_PLAY = re.compile(
    r"^\W*(?:(?:please|can\s+you|could\s+you|now)\W+)*(?:tell|write|compose|give)\s+(?:(?:me|us)\s+)?(?:an?|another|one)\s+"
    r"(?:\w+\s+)?(?:joke|haiku|limerick|poem|riddle)s?(?:\s+(?:about|for|on)\b.{0,60})?\W*$|"
    r"^\W*(?:给我|帮我|请)?(?:再)?[讲说来]一?个冷?笑话(?:吧|呗|听听)?\W*$|^\W*(?:给我|帮我|请)?[写作]一?首[^，。？在哪]{0,12}诗\W*$",
    re.IGNORECASE,
)
_LANGUAGE = (
    r"(?:english|german|french|spanish|italian|chinese|japanese|dutch|portuguese|polish|russian|korean|arabic|hindi)"
)
_OF_YOU = re.compile(
    rf"^\W*(?:(?:so|and|hey|hi)\W+)*(?:(?:do|can)\s+you\s+(?:speak|understand|write\s+in)\s+{_LANGUAGE}.{{0,24}}|"
    r"(?:do|can)\s+you\s+(?:ever\s+)?(?:make\s+mistakes|have\s+feelings|get\s+tired|sleep|dream|see\s+my\s+screen|hear\s+me)"
    r".{0,30}|who\s+(?:built|made|developed|created|trained)\s+you|how\s+old\s+are\s+you|"
    r"which\s+(?:model|llm)\s+are\s+you(?:\s+(?:using|running\s+on))?|which\s+languages\s+do\s+you\s+(?:speak|know|understand)|"
    r"what\s+(?:sort|kind)s?\s+of\s+(?:questions|things)\s+(?:can|should|could|may)\s+i\s+ask(?:\s+you)?)\W*$|"
    r"^\W*(?:你[会能](?:不能)?说(?:什么|哪些|几种)?(?:语言|中文|英文|英语|粤语|日语|法语|德语)|你叫(?:什么|啥)(?:名字)?|"
    r"你用的?是?什么模型|你会不会(?:出错|累|烦)|谁(?:开发|做|造|训练)的你|谁(?:开发|创造|训练)了你)(?:呀|啊|吗)?\W*$",
    re.IGNORECASE,
)
_OF_MANNER = frozenset(
    "explain write simple simpler words word short shorter plain terms english again more less".split()
)
_EXPLAINS = re.compile(r"^\W*(?:(?:please|now|can|could|you)\W+)*(?:explain|write)\b", re.IGNORECASE)
_ASKS_HOW = re.compile(r"\b(?:how|why)\s+(?:do|does|to|can|should)\b|怎么|如何", re.IGNORECASE)
_KEYBOARD_RUN = re.compile(r"^\W*(?:asdf|qwer|zxcv|hjkl|dfgh)\w{0,12}\W*$", re.IGNORECASE)
_ARITHMETIC = re.compile(
    r"^\W*(?:what(?:['’]?s|\s+is)|calculate|compute|how\s+much\s+is|solve|work\s+out|"
    r"请?计算|算一下|算算|帮我算(?:一?下)?)?[\d\s().,]+"
    r"(?:(?:[-+*/x×÷^%]|\*\*|plus|minus|times|multiplied\s+by|divided\s+by|over|mod|percent\s+of|%\s*of|"
    r"加上?|减去?|乘以?|除以)[\d\s().,]+)+(?:等于(?:多少|几)?|是多少|=)?\W*$|"
    r"\b(?:square|cube)\s+root\s+of\s+\d|\bconvert\s+\d+[\d.,]*\s*\w+\s+(?:to|into)\b|"
    r"^\W*[\d.,零一二两三四五六七八九十百千万半]+\s*[\u4e00-\u9fffA-Za-z]{1,4}"
    r"(?:等于|是|合|换算成|换成|折合)(?:多少|几)\s*[\u4e00-\u9fffA-Za-z]{1,4}\W*$|"
    r"\bhow\s+many\s+\w+\s+(?:are\s+)?in\s+an?\s+\w+\W*$",
    re.IGNORECASE,
)
_OUTSIDE = re.compile(
    r"\b(?:weather|temperature\s+(?:in|today|outside)|(?:exchange|interest)\s+rate|stock\s+price|share\s+price|bitcoin|"
    r"euros?\s+to|dollars?\s+to|traffic\s+(?:jam|on)|box\s+office|"
    r"(?:who|which\s+team)\s+won|final\s+score|news|headlines|election\s+results?|flights?\s+(?:to|from)|"
    r"train\s+(?:times|strike)|github\s+stars|downloads|"
    r"release\s+date\s+of|near\s+me|will\s+it\s+(?:rain|snow)|rain\s+in|snow\s+in)\b|"
    r"汇率|股价|股票|天气|气温|台风|下雨|下雪|新闻|头条|比分|航班|限行|油价|金价|房价|票房|热搜|下载量|疫情",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\b(?:right\s+now|at\s+the\s+moment|today|tonight|tomorrow|"
    r"this\s+(?:week|morning|afternoon|evening|weekend|month)|these\s+days|as\s+of\s+(?:now|today)|currently|"
    r"last\s+(?:week|night)|yesterday|"
    r"just\s+(?:been\s+)?(?:released|announced)|breaking|upcoming)\b|"
    r"现在|此刻|目前|今天|今日|今晚|明天|后天|本周|这周|这个?月|昨天|上周|最近一次|刚刚|眼下|当前|即将",
    re.IGNORECASE,
)
_NEWEST_THING = re.compile(
    r"\b(?:newest|latest|current|next|most\s+recent|upcoming)\b.{0,30}"
    r"\b(?:release|version|price|ceo|president|conference|edition|episode|model|update|stable|lts|champion|minister|"
    r"cost|fee|rate|euro\w*|pycon)\b|"
    r"\b(?:when|where)\b.{0,20}\b(?:is|are|will|does)\b.{0,12}\bnext\b|"
    r"最新(?:的)?(?:版|稳定版|版本|发布|价格|消息|进展|报价|数据|情况|动态)|"
    r"(?:在哪里?|何时|什么时候)(?:办|举办|举行|召开)|"
    r"下一(?:届|次|版)|最近一次(?:发布|更新)|现任|多少钱一?(?:个|台|张|年|月)?",
    re.IGNORECASE,
)
_PRICE = re.compile(r"\bhow\s+much\s+(?:does|do|is|are)\b|\bprice\s+of\b|\bcosts?\b|多少钱|售价|价格", re.IGNORECASE)
_PUBLISHED = re.compile(
    r"\b(?:announce[ds]?|publish(?:ed)?|release[ds]?|launch(?:ed)?|ship(?:ped)?|outage|down|advisory|"
    r"security\s+fix|changelog)\b|发布|宣布|推出|故障|宕机",
    re.IGNORECASE,
)
_OF_SOMETHING = re.compile(r"\b(?:latest|newest|current|next)\b.{0,30}\b(?:of|for)\s+\w+", re.IGNORECASE)
# A name of something in the world: a capital inside a sentence, or Latin among Chinese.
_PROPER = re.compile(r"(?<=[a-z0-9,;:] )(?!I\b)[A-Z][A-Za-z]+")
_LATIN_WORD = re.compile(r"(?<![A-Za-z])[A-Za-z][\w.-]")
_LATIN_HEAD = re.compile(r"^[A-Za-z][\w.-]*(?=\s*[\u4e00-\u9fff])")

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
_LONGEST_SMALL_TALK = 200
_LONGEST_WISH = 120
_MOST_PARTS = 5


def is_small_talk(text: str) -> bool:
    """Whether nothing is to be looked up: greetings, thanks, arithmetic, wishes about the answer's form."""
    plain = text.strip()
    if not plain or len(plain) > _LONGEST_SMALL_TALK:
        return False
    if re.fullmatch(r"\W*\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4}\W*", plain):
        return False  # a date
    if not re.search(r"\w", plain) or _KEYBOARD_RUN.search(plain):
        return True
    if any(
        one.search(plain) for one in (_NONE, _NONE_ZH, _REMARK, _ABOUT_US, _ARITHMETIC, _CONVERSION, _PLAY, _OF_YOU)
    ):
        return True
    is_wish = len(plain) < _LONGEST_WISH and _MANNER.search(plain) is not None
    # "explain the retention rules in simple words" asks for the rules as well.
    has_subject = _EXPLAINS.match(plain) and any(word not in _OF_MANNER for word in plain_words(plain))
    return is_wish and not has_subject and not _ASKS_HOW.search(plain)


def is_text_work(text: str) -> bool:
    """Whether a turn brings the text that something is to be done with: "fix the grammar: ...", 帮我润色这句话：....

    Who names anything else beside it asks about that: 'summarise the report "Water quality in 2024"'.
    """
    given = _GIVEN.search(text)
    if given is None:
        return False
    asked = f"{text[: given.start()]} {text[given.end() :]}"
    if has_chinese(asked):
        return _WORK_ZH.match(asked.strip()) is not None
    words = {word.casefold() for word in re.findall(r"[^\W_]+", asked)}
    return not words.isdisjoint(_DOING) and words <= _WITH_TEXT


def is_outside(found: Found) -> bool:
    """Whether the answer must be fresh or lies outside any collection of documents.

    "what is the weather in Berlin", "latest stable version of numpy"; not what names documents or values.
    """
    sentence = found.sentence
    text = sentence.text
    nouns = any(sentence.is_noun(index) for index in range(len(sentence.tokens)))
    is_own = nouns or bool(found.constraints or found.numbers)
    if _OUTSIDE.search(text) and not is_own:
        return True
    names = (match[0] for match in _PROPER.finditer(text))
    is_foreign = any(name.casefold() not in sentence.nouns for name in names) or _has_latin_before_chinese(text)
    is_fresh = _NOW.search(text) is not None
    if not is_own and _NEWEST_THING.search(text) and (is_foreign or is_fresh or _OF_SOMETHING.search(text)):
        return True
    if is_fresh and (_PRICE.search(text) or _OUTSIDE.search(text)) and not found.constraints:
        return True
    return not is_own and is_fresh and is_foreign and _PUBLISHED.search(text) is not None


def _has_latin_before_chinese(text: str) -> bool:
    """ "numpy 最新版", 现在 iPhone 多少钱."""
    last = next((place for place in range(len(text) - 1, -1, -1) if "\u4e00" <= text[place] <= "\u9fff"), 0)
    return _LATIN_WORD.search(text, 0, last) is not None or _LATIN_HEAD.search(text) is not None


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
