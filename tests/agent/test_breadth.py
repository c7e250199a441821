"""What an answer is to be made of: passages, documents, or all documents."""

import pytest

from agent.intent.topic.question_parts import read_wants

NOUNS = frozenset({"pep", "peps", "upload", "uploads", "上传"})


@pytest.mark.parametrize(
    "text",
    [
        "list all rejected proposals by Guido",
        "List what Roe inspected in Millbank, please.",
        "Could you list Ann's approved claims?",
        "show me all the brutalism we have registered since 2015",
        "every upload of last week",
        "Please give me the full list of packaging PEPs",
        "everything the edge team has in review right now",
        "Could I have a list of the African projects looked after by Dr. Yusuf?",
        "enumerate the accepted or final PEPs",
        "in 2021, all proposals on typing",
        "列出状态为搁置的工程提案",
        "请帮我列出归档的报告",
        "去年所有关于缓存的提案",
        "全部被拒绝的上传",
        "没有关闭日期的单子列一下",
    ],
)
def test_all_documents_are_asked_for(text: str):
    assert read_wants(text, NOUNS) == "all"


@pytest.mark.parametrize(
    "text",
    [
        "which proposals change the parser?",
        "Which of our accepted packaging proposals are about wheels?",
        "what PEPs are about enums",
        "PEPs targeting Python 3.12 that change the C API",
        "any rejected idea by Raymond Hettinger for a do-while kind of loop",
        "anything opened last month?",
        "are there uploads without a licence?",
        "list three draft proposals",
        "list 3 draft proposals on library budget",
        "show me reports on caching",
        "还在草案阶段、要加新语法的提案有哪些",
        "2016 年提出的、跟随机数安全有关的 PEP",
        "上一个十年关于枚举类型的 PEP",
        "有没有讲缓存的报告",
    ],
)
def test_documents_are_asked_for(text: str):
    assert read_wants(text, NOUNS) == "documents"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what do proposals say about the parser?",
        "why were all proposals by Guido rejected?",
        "do all proposals need a sponsor?",
        "how do I list all files in a folder?",
        "tell me all about wheels",
        "tell me everything about how penguins march in p100",
        "give me all the details of how penguins march",
        "is anything documented for this case at all?",
        "that is all for today",
        "list comprehension speed",
        "mailing list etiquette",
        "vacation rules",
        "who wrote PEP 703?",
        "which PEP has the longest author list?",
        "是否所有提案都需要负责人",
        "为什么全部提案都被拒绝",
        "所有提案怎么提交",
        "关于年假的规定",
        "数据库主从切换之后写入全部失败",
    ],
)
def test_passages_are_asked_for(text: str):
    assert read_wants(text, NOUNS) == "passages"
