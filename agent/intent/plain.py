"""Words that ask, count and speak of a collection: nothing that its documents would be about.

What is left of a question without them is its topic. Where it is certain that something is counted or compared
(`OF_NUMBERS`, `DEEDS`) more words say nothing than elsewhere: "started" says nothing in "when were most started",
but in a question about texts it may be what is looked for.
"""

WORDS = frozenset(
    """
    aimed all also altogether amount anybody anyone appear appears archive aren average base became become
    behind biggest both break breakdown broken busiest by calculate calendar carries carry carrying co
    collection combined common compare compared compute contain contains corpus count counted counting counts
    creation currently database date decimal decimals didn different distinct distribution doesn don down each
    earliest eight either else end ended entire ever every exact exactly exist far fewer fewest figures first
    five four fraction frequent frequently give going handle handled handles hasn haven held highest histogram inclusive
    hold holds how isn kb knowledge lack lacking lacks largest last latest least less longest lowest mean month
    months more most need needed neither newest nine nor now nowadays number numbers occur oldest one overall people per
    percent percentage place places pls plz produce produced prolific proportion publication quarter quarters
    quietest recent recently record respective right s saw see seen seven share shortest sitting six slowest
    smallest split stored sum summary t tell ten than there three thx top total twenty two values various wasn
    well weren what when where which who whole worked year years
    """.split()
)

OF_NUMBERS = frozenset(
    """
    across actually already answer apiece approximately bear bears chronological class classes commonest
    comparing curious difference dollar dollars enumerate enumerated eur euro euros figure half halves
    handed id ids imposed m meant median name named names new precise precisely question quick ran ranked
    ranking ranks rate really respectively roughly runner separately simpler simply single spread stuff
    tally thing things together totals usd versus vs wait whether wonder wondering yes author authors person
    persons developer developers dev devs contributor contributors colleague colleagues engineer engineers
    employee employees rank rarest ratio
    """.split()
)

DEEDS = frozenset(
    """
    start stand stood last lasted lasting take took taken taking
    add aim appear assign attach belong born bring brought call carri categor classifi coauthor complet
    cosponsor count date enter exist finish gave give given go gone happen held hold known land list log mark
    move name occur open own put rais reach receiv record regist remain saw see seen set show sit stay tag
    target turn went
    """.split()
)
"""Stems of what is done with documents and what becomes of them."""

# Chinese is taken out run by run, the longest first.

WORDS_ZH = tuple(
    """
    新增 增加 人 种 数量 量 不同 前 多大 比例 出来 列 按 分 一共 总共 共有 共 有 多少 几 个 篇 份 条 起 件 项 次
    最多 最少 最新 最早 最近 最长 最大 最高 哪 谁 写 是 的 了 和 与 各 每 分别 占 全部 所有 百分之 保留 位 小数
    年 月 日 什么 时候 里 中 得 用 一 两 二 三 被 参与 新建 创建 日期 发布 目前 还 为 状态 版本 目标 主题 相比
    数 总 分钟 平均 季度 最不常见 最常见 罕见 知识库 库里 请
    列出 给我 查 找 看 看看 一下 呢 吗 啊 呀 吧 过 到 在 发生 可以 允许 能 它
    他们 他 她 其 该 此 哪天 还有 更 请问 哪些 哪几 哪个 怎么 有没有 是否 帮我 我想 知道 查找 查询 列一下 都 新
    提 出 里面 其中 比 多 少 还是 由 关于 方面 就 也 再 只 那 这 些 我们 公司 大家 现在 已经 已 客户 看到 要 加
    第 仍 仍为 属于 数目 多产 最多产 以 到现在为止 到目前为止 截至目前 截止目前 迄今为止 至今 迄今
    为止 时间 还没 没有 没 哪家 出现 下 名下 手里 旗下 负责 这批 那批 统计 汇总
    """.split()
)

OF_NUMBERS_ZH = tuple(
    """
    涉及多少 涉及几 涉及哪 百分比 差多少 相差 中位数 不同的 位不同
    署名 历史上 历史 作为 最终 成为 精确 精确到 包含 算 发 余 其余 给 编号 相关 欧元 美元 加起来 合计 分属 去重
    重复 不要 当中 名 并 之间 合写 合著 合作 次数 担任 当过 现存 至今 仍是 处于 对应 出自 年份 附上 各自 篇数
    个数 数一下 数数 那会儿 且 类 标签 怎样 怎么样 如何 前者 后者 这类 那类 分布 情况 率 排 顺序 名单 一下子 算一下
    算算
    """.split()
)
