"""General words by which questions speak of documents, English and Chinese; nothing of any one collection.

Chinese words stand beside English ones so that a Chinese question reaches values written in English
where the collection gives no aliases of its own. What a collection declares always comes first.
"""

import re
from functools import cache
from importlib.resources import files

# English (alternatives by "|"): Chinese.
_BILINGUAL = """
draft: 草案 草稿 起草中 拟稿
final|finalized|finalised: 最终 已定稿 定稿 终稿 最终版
accepted: 已接受 被接受 接受 已采纳 被采纳 采纳
rejected|declined|denied|refused: 已拒绝 被拒绝 拒绝 被否决 已否决 否决 被否 驳回 被驳回 未通过 被拒
withdrawn: 已撤回 被撤回 撤回 撤销 已撤销 收回
deferred|postponed: 推迟 被推迟 已推迟 延期 延后 搁置 被搁置 暂缓
superseded|replaced: 被取代 已取代 取代 被替代 已替代 被替换
active: 生效中 生效 活跃 现行 有效 在用 活动
inactive: 停用 不活跃 失效
provisional: 暂定 临时
approved: 已批准 获批 批准 通过 已通过 审批通过 核准
implemented: 已实施 已实现 实施 落地 已落地 已上线
archived: 已归档 归档 存档
pending|waiting: 待处理 待定 待审 待审批 等待中 挂起
in review|under review|review: 评审中 审核中 审查中 评审
open: 打开 开放
closed: 已关闭 关闭 已结案
resolved|fixed: 已解决 已修复 解决
in progress|ongoing: 进行中 处理中 推进中
done|completed|complete|finished: 已完成 完成 完结
cancelled|canceled: 已取消 取消
published|released: 已发布 发布
deprecated: 已弃用 弃用
obsolete: 已过时 过时 作废 废弃
expired: 已过期 过期
planned: 计划中 规划中
blocked: 受阻 被阻塞
new: 新建
confirmed: 已确认 确认
failed: 失败
proposal: 提案 方案 技术方案 建议书 提议
policy: 制度 政策 规定 规章
guideline|guide: 指南 指引
incident: 事故 故障 事件
incident report: 事故报告 故障报告
runbook|playbook: 操作手册 运维手册 处置手册 手册
manual|handbook: 手册 说明书
release note: 发布说明 更新说明 发行说明
meeting note|meeting minutes: 会议纪要 会议记录 纪要
report: 报告
memo: 备忘录
contract|agreement: 合同 协议
invoice: 发票
specification|spec: 规范 规格 规格书
tutorial: 教程
article: 文章
paper: 论文
thesis: 学位论文
patent: 专利
news: 新闻
announcement|notice: 公告 通知
review: 评论 评测
ticket: 工单
bug: 缺陷 漏洞
feature: 功能 特性
task: 任务
question: 问题
faq: 常见问题
checklist: 清单
template: 模板
presentation|slides: 演示 幻灯片
case study|case: 案例
infrastructure|infra: 基础设施 基础架构 基础
platform: 平台
security: 安全 信息安全
payment|payments: 支付
finance|accounting: 财务 金融
legal: 法务 法律
compliance: 合规
human resources|hr|people: 人力资源 人事 人力
marketing: 市场 营销 市场营销
sales: 销售
product: 产品
design: 设计
data: 数据
mobile: 移动 移动端
frontend|front end: 前端
backend|back end: 后端
quality assurance|qa|testing: 测试 质量保证
operations|ops: 运维 运营
engineering: 工程
research|r&d: 研发 研究
procurement|purchasing: 采购
logistics: 物流
support|customer support|customer service|customer success: 客服 客户支持 客户服务 支持
it: 信息技术
administration|admin: 行政
management: 管理
architecture: 架构
network|networking: 网络
database: 数据库
storage: 存储
hardware: 硬件
software: 软件
machine learning: 机器学习
artificial intelligence|ai: 人工智能
cloud: 云 云计算
performance: 性能
cost: 成本
reliability: 可靠性
availability: 可用性
monitoring: 监控
deployment: 部署
documentation: 文档
training: 培训
safety: 安全生产
privacy: 隐私
travel: 差旅 出差
benefits: 福利
leave: 休假 假期
budget: 预算
critical: 紧急 严重 致命 危急
high: 高
medium|moderate: 中 中等
low: 低
urgent|emergency: 紧急 应急
major: 重大
minor: 轻微
normal: 普通 一般
internal: 内部
external: 外部
confidential|secret: 机密 保密
public: 公开
private: 私有 不公开
global|worldwide: 全球
emea|europe middle east and africa: 欧洲中东非洲 欧洲中东及非洲 欧非中东
apac|asia pacific: 亚太 亚太区 亚太地区
amer|americas: 美洲 美洲区
latam|latin america: 拉美 拉丁美洲
europe|eu: 欧洲 欧盟
asia: 亚洲
africa: 非洲
oceania: 大洋洲
north america: 北美
china|cn: 中国 国内
usa|us|united states|united states of america: 美国
uk|united kingdom: 英国
japan|jp: 日本
germany|de: 德国
france|fr: 法国
india: 印度
korea|south korea: 韩国
singapore: 新加坡
hong kong: 香港
taiwan: 台湾
beijing: 北京
shanghai: 上海
shenzhen: 深圳
guangzhou: 广州
hangzhou: 杭州
north: 北 北部 华北
south: 南 南部 华南
east: 东 东部 华东
west: 西 西部 西北
star|stars: 星 星级
page|pages: 页
floor|floors: 层
bed|beds: 床 居室
yes|true: 是
no|false: 否
chinese: 中文 汉语 华语
english: 英文 英语
spring: 春季
summer: 夏季
autumn|fall: 秋季
winter: 冬季
"""

LANGUAGES = {
    "en": ("english", "英文", "英语"),
    "zh": ("chinese", "mandarin", "simplified chinese", "中文", "汉语", "华语"),
    "de": ("german", "德文", "德语"),
    "fr": ("french", "法文", "法语"),
    "es": ("spanish", "西班牙文", "西班牙语"),
    "it": ("italian", "意大利文", "意大利语"),
    "pt": ("portuguese", "葡萄牙文", "葡萄牙语"),
    "nl": ("dutch", "荷兰文", "荷兰语"),
    "ja": ("japanese", "日文", "日语"),
    "ko": ("korean", "韩文", "韩语"),
    "ru": ("russian", "俄文", "俄语"),
    "sv": ("swedish", "瑞典语"),
    "da": ("danish", "丹麦语"),
    "fi": ("finnish", "芬兰语"),
    "no": ("norwegian", "挪威语"),
    "hu": ("hungarian", "匈牙利语"),
    "ro": ("romanian", "罗马尼亚语"),
    "tr": ("turkish", "土耳其语"),
    "ar": ("arabic", "阿拉伯语"),
}


def _concept(names: str, cues: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(names.split(", ")), tuple(cues.split(", "))


# What fields are about, by words of their names; each concept with the words of a question that point at it.
CONCEPTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "person": _concept(
        "author, authors, owner, owners, writer, editor, editors, creator, contributor, contributors, "
        "reporter, assignee, manager, speaker, instructor, inspector, applicant, applicants, officer, "
        "judge, doctor, teacher, lead, investigator, contact, requester, submitter, customer, client, "
        "supplier, vendor, company, publisher, director, artist, maintainer, maintainers, by, 作者, "
        "负责人",
        "by, written by, wrote, authored, led, led by, headed by, author, 作者, 写, 撰写, 编写, 负责",
    ),
    "sponsor": _concept(
        "sponsor, sponsors",
        "sponsor, sponsored, sponsoring, sponsors, 赞助, 担保, 赞助人",
    ),
    "reviewer": _concept(
        "reviewer, approver",
        "reviewer, reviewed, approved by, 审核人, 审批人, 审阅, 审核",
    ),
    "created": _concept(
        "created, creation, date, filed, opened, submitted, written, added, start, 创建",
        "created, creation, filed, opened, proposed, submitted, written, new, 创建, 新建, 提出, 提交, 提, 交上来",
    ),
    "published": _concept(
        "published, released, release, issued, posted, 发布",
        "published, publication, released, issued, posted, came out, come out, 发布, 发表, 出版",
    ),
    "updated": _concept(
        "updated, modified, changed, revised",
        "updated, modified, changed, revised, edited, 更新, 修改, 修订",
    ),
    "decided": _concept(
        "decided, decision, resolved, closed, approved, completed",
        "decided, decision, approved, denied, granted, rejected, resolved, closed, 批准, 决定, 否决, 结案, 审批",
    ),
    "expires": _concept(
        "expires, expiry, expiration, due, deadline, end, until",
        "expires, expire, expiring, expired, due, deadline, run out, runs out, ran out, running out, lapse, lapses, "
        "lapsed, lapsing, ends, ended, ending, 到期, 截止, 过期, 复审, 失效, 期满, 届满, 终止",
    ),
    "effective": _concept(
        "effective, valid",
        "effective, valid, in force, into force, take effect, takes effect, took effect, taking effect, into effect, "
        "in effect, 生效, 施行, 起效",
    ),
    "version": _concept(
        "version, release",
        "version, versions, target, targets, targeting, targeted, 版本, 版本号, 目标版本, 面向",
    ),
    "topic": _concept(
        "topic, topics, tag, tags, subject, subjects, keyword, keywords, label, labels, category, categories, area",
        "topic, topics, tag, tags, tagged, label, labelled, labeled, category, 主题, 标签, 分类, 类别",
    ),
    "status": _concept(
        "status, state, stage, phase",
        "status, state, stage, phase, 状态, 阶段",
    ),
    "kind": _concept(
        "type, kind, category, class, doctype, genre, format",
        "type, kind, 类型, 种类, 类别, 类",
    ),
    "group": _concept(
        "team, department, group, unit, division, organization, organisation, org, office, agency, faculty, institute",
        "team, teams, department, departments, dept, group, unit, division, 团队, 部门, 部, 组, 小组, 处, 科室, 科",
    ),
    "place": _concept(
        "region, country, location, site, city, market, district, campus, branch, zone, neighborhood, "
        "neighbourhood, province, venue, building",
        "region, regions, country, location, site, office, district, districts, campus, branch, 地区, "
        "区域, 国家, 区, 城市, 院区, 校区",
    ),
    "severity": _concept(
        "severity, priority, level, impact, risk",
        "severity, priority, level, risk, 级别, 等级, 优先级, 严重程度, 级",
    ),
    "audience": _concept(
        "audience, audiences, readers, role, roles, users",
        "audience, for, aimed at, intended for, 适用于, 适用, 面向, 给, 供, 针对",
    ),
    "language": _concept(
        "language, lang",
        "language, 语言",
    ),
    "money": _concept(
        "budget, cost, price, amount, usd, eur, cny, revenue, salary, fee, value",
        "budget, budgeted, value, valued, cost, costs, price, worth, expensive, costliest, cheapest, dollars, dollar, "
        "usd, euros, eur, 预算, 价值, 费用, 价格, 金额, 美元, 元, 美金, 万元, 造价",
    ),
    "duration": _concept(
        "minutes, hours, days, duration, downtime, down",
        "minutes, minute, hours, hour, downtime, down, outage, lasted, lasting, duration, 停机, 分钟, 小时, 时长",
    ),
    "number": _concept(
        "number, no, num, nr, id",
        "number, numbered, numbers, 编号, 号, 序号",
    ),
    "pages": _concept(
        "pages, length, size, words",
        "pages, page, length, 页, 页数, 长度, 大小, 字数",
    ),
    "floors": _concept(
        "floors, storeys, stories, levels, height",
        "floors, floor, storeys, storey, stories, story, taller, tallest, 层, 楼层, 层高",
    ),
    "rating": _concept(
        "rating, score, stars, grade",
        "rating, rated, score, stars, 评分, 得分, 分",
    ),
}

DOCUMENT_NOUNS = frozenset(
    """
    document documents doc docs documentation paper papers article articles report reports note notes
    page pages proposal proposals draft drafts idea ideas suggestion suggestions record records entry
    entries file files item items post posts plan plans guide guides spec specs specification
    specifications ticket tickets issue issues publication publications memo memos piece pieces one ones
    schedule schedules review reviews rfc rfcs tutorial tutorials rule rules project projects
    application applications permit permits job jobs filing filings submission submissions claim claims
    order orders certificate certificates licence licences license licenses
    """.split()
)  # fmt: skip
CHINESE_DOCUMENT_NOUNS = """
    文档 文件 资料 提案 方案 技术方案 报告 文章 论文 记录 材料 内容 草案 草稿 计划 说明 手册 指南 制度 规定 纪要
    事故 故障 工单 案例 条目 公告 通知 新闻 帖子 笔记 建议 议题 专利 合同 更新 项目 申请 许可 SOP
    """.split()  # fmt: skip

COMPANIES = frozenset(
    """
    llc inc ltd gmbh corp co company authority district church restaurant construction university school college
    institute department group bank agency association society foundation council committee brewing brewery
    hotel hospital clinic homes systems services technologies industries partners trust team board office union
    club center centre
    """.split()
)
TITLES = frozenset("mr mrs ms miss dr prof professor sir madam inspector agent mag ing dipl rev".split())
AUXILIARIES = frozenset(
    """
    is are was were be been has have had did does do can could will would shall should may might must
    isn aren wasn weren hasn haven hadn didn doesn don couldn won wouldn isnt arent wasnt werent didnt doesnt dont
    """.split()
)
STOP_WORDS = frozenset(
    """
    a an the this that these those there here is are was were be been being am do does did done doing
    have has had having will would shall should can could may might must of in on at by for to from with
    without into onto about over under between among through during and or but nor so if then than as it
    its they them their we us our you your i me my mine he him his she her hers who whom whose what
    which when where why how any anything all every each some something someone anybody anyone somebody
    everybody nobody no not only just still yet ever never also too very much many more most less least
    lot lots list show me give find get tell let know see look search please thanks want need like
    looking there's what's that's who's does did exist exists existing regarding concerning related
    relating touch touches deal deals dealing cover covers covering mention mentions mentioned concern
    concerns written wrote writes write published publish publishes publishing created create authored
    proposed propose proposes filed submitted issued released came come comes coming out up made make
    makes new get gets got we've i've they've let's us now ago far total number count list listed lists
    overview summary single
    """.split()
)  # fmt: skip


@cache
def bilingual() -> dict[str, tuple[str, ...]]:
    """Other names by English phrase, in lower case: Chinese ones, and English ones of the same meaning."""
    return _named_alike(_BILINGUAL)


@cache
def places() -> dict[str, tuple[str, ...]]:
    """Other names of places and what is of them by English name, in lower case: Italian, of Italy."""
    return _named_alike((files("agent.intent.words") / "places.txt").read_text(encoding="utf-8"))


def _named_alike(lines: str) -> dict[str, tuple[str, ...]]:
    words: dict[str, tuple[str, ...]] = {}
    for line in lines.strip().splitlines():
        english, _, chinese = line.partition(":")
        phrases = [phrase.strip() for phrase in english.split("|")]
        for phrase in phrases:
            others = [other for other in phrases if other != phrase]
            words[phrase] = (*words.get(phrase, ()), *others, *chinese.split())
    return words


@cache
def name_words(name: str) -> tuple[str, ...]:
    """The words of a field's name: budget_usd and budgetUsd are budget and usd."""
    return tuple(word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[\u4e00-\u9fff]+", name))
