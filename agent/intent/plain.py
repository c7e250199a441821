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
    five four fraction frequent frequently give going handle handled handles hasn haven held highest histogram
    hold holds how isn kb knowledge lack lacking lacks largest last latest least less longest lowest mean month
    months more most need needed newest nine now nowadays number numbers occur oldest one overall people per
    percent percentage place places pls plz produce produced prolific proportion publication quarter quarters
    quietest recent recently record respective right s saw see seen seven share shortest sitting six slowest
    smallest split stored sum summary t tell ten than there three thx top total twenty two values various wasn
    well weren what when where which who whole worked year years
    """.split()
)

OF_NUMBERS = frozenset(
    """
    about above across actually against all-time alone already answer apiece approximately bear bears below
    between chronological class classes commonest comparing core curious dollar dollars enumerate enumerated eur
    euro euros even figure handed id ids imposed leave leaving m meant name named names new newer old older once
    order outcome over own paid precise precisely question quick ran ranked ranking ranks rate really
    respectively roughly runner same second separately simpler simply single so-called spread stuff tally term
    terms thing things third time times together totals twice usd versus vs wait whether wonder wondering yes
    young younger
    """.split()
)

DEEDS = frozenset(
    """
    add aim appear assign attach bear began begin begun belong bore born bring brought call carri categor class
    classifi co-author coauthor complet cosponsor count date end enter exist fall fell finish gave give given go
    gone happen held hold involv known label land list log mark move name occur open own put rais reach receiv
    record regist remain saw see seen set share show sign sit stand start stay stem stood tag take taken target
    took turn went wind wound
    """.split()
)
"""Stems of what is done with documents and what becomes of them."""

# Chinese is taken out run by run, the longest first.

WORDS_ZH = tuple(
    """
    新增 增加 人 种 数量 量 不同 前 多大 比例 出来 列 按 分 一共 总共 共有 共 有 多少 几 个 篇 份 条 起 件 项 次
    最多 最少 最新 最早 最近 最长 最大 最高 哪 谁 写 是 的 了 和 与 各 每 分别 占 全部 所有 百分之 保留 位 小数
    年 月 日 什么 时候 里 中 得 用 一 两 二 三 被 参与 新建 创建 日期 发布 目前 还 为 状态 版本 目标 主题 相比
    数 总 分钟 平均 知识库 库里 请 列出 给我 查 找 看 看看 一下 呢 吗 啊 呀 吧 过 到 在 发生 可以 允许 能 它
    他们 他 她 其 该 此 哪天 还有 更 请问 哪些 哪几 哪个 怎么 有没有 是否 帮我 我想 知道 查找 查询 列一下 都 新
    提 出 里面 其中 比 多 少 还是 由 关于 方面 就 也 再 只 那 这 些 我们 公司 大家 现在 已经 已 客户 看到 要 加
    第 仍 仍为 时间 还没 没有 没 哪家 出现 下 名下 手里 旗下 负责 这批 那批 统计 汇总
    """.split()
)

OF_NUMBERS_ZH = tuple(
    """
    署名 历史上 历史 以 作为 最终 成为 成 精确 精确到 包含 算 参与的 发 明 含 五 六 七 八 九 余 其余 给 编号
    相关 元 欧元 美元 万 金额 加起来 合计 一次 一起 文件 分属 去重 重复 不要 当中 差 至少 超过 多于 以上 不少于
    及以上 名 并 之间 百 合写 合著 合作 次数 担任 当过 现存 至今 仍是 处于 对应 涉及 者 出自 年份 附上 各自 篇数
    个数 数一下 数数 那会儿 且 类 标签 怎样 怎么样 如何 前者 后者 自 这类 那类 分布 情况 排 顺序 名单 一下子
    算一下 算算
    """.split()
)
