"""Rules: what questions state, held against catalogues of very different collections."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.intent.conditions.filter_json import all_of
from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import RulesReading
from agent.intent.values.inferred_words import document_nouns_of
from retrievers.core.metadata import Field
from retrievers.core.types import FieldCatalogue, FieldValues

Make = Callable[[str], Any]

# Least shares over the question sets: what was reached when they were written, less a little.
LEAST = {
    "city": (0.78, 0.83, 0.94),
    "city_more": (0.70, 0.90, 0.88),
    "food": (0.82, 0.96, 0.90),
    "hospital": (0.87, 0.86, 0.95),
    "hospital_more": (0.77, 0.86, 0.92),
    "peps": (0.93, 0.90, 0.94),
    "peps_more": (0.86, 0.90, 0.90),
    "peps_blind": (0.92, 0.95, 0.92),
}


@pytest.mark.slow
@pytest.mark.parametrize("file", LEAST)
def test_questions_of_a_domain_are_read_as_people_mean_them(file: str, ground: Make, questions: Make, routed: Any):
    """Filters stated and not invented, and the route, where words alone tell it.

    What is of the world and not of the documents shows only in how often they speak of it: web questions are
    held against real documents elsewhere.
    """
    known = ground(file.partition("_")[0])
    stated, silent, routes = [], [], []
    for question in questions(file):
        if question["class"] == "web":
            continue
        reading = known.read(question["text"], question["history"])
        (stated if question["filter"] else silent).append(known.same(question["filter"], reading))
        routes.append(routed(question, reading))
    shares = tuple(round(sum(one) / len(one), 3) for one in (stated, silent, routes))
    assert all(share >= least for share, least in zip(shares, LEAST[file], strict=True)), shares


CITY = {
    # the field's own word, a noun that is described, a verb of being, a place
    "denied demolition permits in Old Town": "and(status=Denied, kind=Demolition Permit, district=Old Town)",
    "records of the Department of Transportation": "department=Department of Transportation",
    "which complaints are still on hold?": "and(kind=Complaint, status=On Hold)",
    # topics
    "records about demolition permits": None,
    "how do I get a building permit?": None,
    "Who was Anders Holm Bridge named after?": None,
    # aliases, typos, parts of names
    "Harborside site plans, Uni Heights": "and(district in Harbourside|University Heights, kind=Site Plan)",
    "唐人街的投诉": "and(district=Chinatown, kind=Complaint)",
    "what did inspector Okafor find about retaining walls?": "inspector=Tom Okafor",
    "permits inspected by priya raman": "inspector=Priya Raman",
    "permits not filed in 2025": "or(filed<2025-01-01, filed>=2026-01-01)",
    "permits that were not filed before 2020": "filed>=2020-01-01",
    "why was it not approved in 2015?": "and(decided>=2015-01-01, decided<2016-01-01)",
    "contracts that do not cost more than 100k": "and(kind=Contract, budget<=100000)",
    "complaints except those of Tom Okafor": "and(kind=Complaint, inspector!=Tom Okafor)",
    "complaints filed between March and August 2025": "and(kind=Complaint, filed>=2025-03-01, filed<2025-09-01)",
    "complaints from March to August 2025": "and(kind=Complaint, filed>=2025-03-01, filed<2025-09-01)",
    # a state that is asked for, and words that are often no documents
    "was it denied?": None,
    "was the demolition permit for the old mill denied?": None,
    "are there permits that were denied?": "status=Denied",
    "complaints not counting Tom Okafor": "and(kind=Complaint, inspector!=Tom Okafor)",
    "has that been approved in the meantime?": None,
    "how is the permit process organised?": None,
    "what are the lead paint rules for schools?": None,
    "how many complaints came before 2020 and were closed?": "and(kind=Complaint, decided<2020-01-01, status=Closed)",
    # negation, alternatives
    "site plans outside Lakeview": "and(kind=Site Plan, district!=Lakeview)",
    "complaints excluding closed or expired ones": "and(kind=Complaint, status not in Closed|Expired)",
    "Grace Kim or Chen Yu on elevators": "inspector in Grace Kim|Chen Yu",
    "site plans with both asbestos and lead paint": "and(kind=Site Plan, hazards=Asbestos, hazards=Lead Paint)",
    # numbers
    "buildings of exactly 5 floors": "floors=5",
    "contracts worth at least 500k for road resurfacing": "and(kind=Contract, budget>=500000)",
    "projects budgeted between 1 and 3 million dollars": "and(budget>=1000000, budget<=3000000)",
    "places taller than 10 floors": "floors>10",
    "预算不超过二十万的屋顶维修": "budget<=200000",
    "case 31877": "case_number=31877",
    # dates on the field that the verb points at
    "complaints filed last month": "and(kind=Complaint, filed>=2026-10-01, filed<2026-11-01)",
    "permits approved in March 2024": "and(status=Approved, decided>=2024-03-01, decided<2024-04-01)",
    # true or false
    "non-emergency repairs": "emergency=false",
    "emergency works on burst mains": "emergency=true",
}


MISREAD = frozenset(
    [
        "records about demolition permits",
    ]
)
"""What the learned weights still read wrong."""


@pytest.mark.parametrize(("text", "wanted"), CITY.items(), ids=CITY.keys())
def test_a_constraint_is_what_the_wording_states(
    text: str, wanted: str | None, ground: Make, request: pytest.FixtureRequest
):
    if text in MISREAD:
        request.applymarker(pytest.mark.xfail(strict=True))
    assert shown(stated(ground("city").read(text), wanted)) == wanted


def stated(reading: RulesReading, wanted: str | None) -> dict[str, Any] | None:
    """The filter that was read; where none is wanted, of its sure constraints alone: likely ones exclude nothing."""
    parts = [one.filter for one in reading.conditions if one.confidence >= FILTERS_FROM or wanted is not None]
    return all_of(parts) if parts else None


def shown(filter: dict[str, Any] | None) -> str | None:
    """A filter in a short form."""
    if filter is None:
        return None
    if "filters" in filter:
        return f"{filter['type']}({', '.join(str(shown(one)) for one in filter['filters'])})"
    sign = {"eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": " in ", "nin": " not in "}
    value = filter["value"]
    text = "|".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"{filter['key']}{sign[filter['type']]}{text}"


def test_a_name_that_several_people_have_is_rejected_with_who_they_are(ground: Make):
    reading = ground("city").read("what did Maria say about drainage?")
    assert reading.filter is None
    assert [(one.what, one.valid) for one in reading.rejected] == [("Maria", ("Maria Costa", "Maria Delgado"))]


CALCULATIONS = {
    "how many permits were denied?": {"op": "count"},
    "how many complaints per district": {"op": "count", "group_by": "district"},
    "average budget of contracts": {"op": "avg", "of": "budget"},
    "which inspector has the most records?": {"op": "count", "group_by": "inspector", "order": "desc", "limit": 1},
    "number of complaints filed per year": {"op": "count", "group_by": "year(filed)"},
    "what share of all permits got denied?": {"op": "share"},
    "how many more cases does Old Town have than Eastfield": {"op": "difference", "group_by": "district"},
    "latest demolition permit filed in Mill Creek": {"op": "list", "of": "filed", "order": "desc", "limit": 1},
    "total budget of all contracts": {"op": "sum", "of": "budget"},
    "how many inspectors have records in Chinatown": {"op": "count", "of": "inspector"},
    "did Tom Okafor or Li Wei handle more complaints": {"group_by": "inspector", "between": ["Tom Okafor", "Li Wei"]},
    "the five oldest complaints in Mill Creek": {"op": "list", "of": "filed", "order": "asc", "limit": 5},
    "how many permits were approved and how many were denied?": {
        "op": "count", "group_by": "status", "between": ["Approved", "Denied"],
    },
    "who inspected the last demolition permit in Old Town": {"op": "list", "show": ["inspector", "filed"]},
    "how many 2022 permits were denied?": {"op": "count"},
    "Demolition permits that were denied: what's the total?": {"op": "count"},
    "which status is most common?": {"op": "count", "group_by": "status", "limit": 1},
    "highest case number among complaints": {"op": "max", "of": "case_number"},
    "which district has the fewest complaints": {"op": "count", "group_by": "district", "order": "asc"},
    # other words for the same
    "denied permits in Old Town: count please": {"op": "count"},
    "tally of complaints filed in the first half of 2023": {"op": "count"},
    "permits and complaints in Chinatown, combined number": {"op": "count"},
    "which inspector's name is on the most denied permits?": {"op": "count", "order": "desc", "limit": 1},
    "yearly counts of demolition permits": {"op": "count", "group_by": "year(filed)"},
    "statuses with their counts, most frequent first": {"op": "count", "group_by": "status", "order": "desc"},
    "which year had the second most complaints": {"op": "count", "group_by": "year(filed)", "limit": 2},
    "which case has the highest case number?": {"op": "list", "of": "case_number", "order": "desc", "limit": 1},
    "distinct inspectors across the complaints": {"op": "count", "of": "inspector"},
    "count complaints by Tom Okafor and by Li Wei, separately": {"op": "count", "group_by": "inspector"},
    # how many values a list has, how many documents a group
    "how many permits have a hazard": {"where": {"type": "exists", "key": "hazards", "value": True}},
    "how many permits don't have an inspector": {"where": {"type": "exists", "key": "inspector", "value": False}},
    "how many permits have not more than two applicants": {
        "where": {"type": "lte", "key": "len(applicants)", "value": 2},
    },
    "which inspectors handled at least 1,000 permits": {"group_by": "inspector", "at_least": 1000},
    "complaints by district, most frequent first": {"group_by": "district", "order": "desc"},
    "how many permits list two or more hazards?": {"where": {"type": "gte", "key": "len(hazards)", "value": 2}},
    "permits with more than one hazard": {"op": "list", "where": {"type": "gt", "key": "len(hazards)", "value": 1}},
    "single-applicant site plans, how many?": {"where": {"type": "eq", "key": "len(applicants)", "value": 1}},
    "which inspectors handled at least 200 complaints?": {"group_by": "inspector", "order": "desc", "at_least": 200},
    "how many inspectors handled more than 50 complaints": {"op": "count", "of": "inspector", "at_least": 51},
    # of groups, middles, halves
    "how many permits are filed per year on average": {"op": "count", "group_by": "year(filed)", "over": "avg"},
    "median number of complaints per inspector": {"op": "count", "group_by": "inspector", "over": "median"},
    "the median budget of contracts": {"op": "median", "of": "budget"},
    "median number of applicants per permit": {"op": "median", "of": "len(applicants)"},
    "what's the difference between the number of denied and approved permits": {
        "op": "difference", "between": ["Denied", "Approved"],
    },
    "were more complaints filed in the first or the second half of 2023": {
        "group_by": "half(filed)", "between": [1, 2],
    },
    "how many complaints were filed in Q2 2023 versus Q4 2023": {"group_by": "quarter(filed)", "between": [2, 4]},
    "did we get more complaints in May or June 2022": {"group_by": "month(filed)", "between": [5, 6]},
    "what share of permits have more than two applicants": {
        "op": "share", "where": {"type": "gt", "key": "len(applicants)", "value": 2},
    },
    "which department has the highest approval rate": {"op": "share", "group_by": "department", "order": "desc"},
    "which inspector has the smallest share of denied permits": {
        "op": "share", "where": {"type": "eq", "key": "status", "value": "Denied"}, "order": "asc",
    },
    "how many permits were not filed in 2023": {"op": "count"},
    "difference in budget between Old Town and Chinatown": {"op": "sum", "of": "budget", "group_by": "district"},
    "highest average budget by district": {"op": "avg", "group_by": "district", "order": "desc", "limit": 1},
    "highest budget by district": {"op": "max", "of": "budget", "group_by": "district"},
    "approval rate in Old Town versus Lakeview": {
        "op": "share", "group_by": "district", "between": ["Old Town", "Lakeview"],
    },
    "rank the top five inspectors": {"op": "count", "group_by": "inspector", "order": "desc", "limit": 5},
    "which status is the rarest?": {"op": "count", "group_by": "status", "order": "asc", "limit": 1},
    "ratio of denied to approved permits": {"op": "count", "group_by": "status", "between": ["Denied", "Approved"]},
    "how many permits never had any inspector": {"where": {"type": "exists", "key": "inspector", "value": False}},
    "which inspectors handled no more than 10 permits": {"group_by": "inspector", "at_most": 10},
    "how many inspectors handled fewer than 20 complaints": {"op": "count", "of": "inspector", "at_most": 19},
    "inspectors with only one complaint": {"group_by": "inspector", "at_least": 1, "at_most": 1},
    "how many people have inspected five records or more?": {"op": "count", "of": "inspector", "at_least": 5},
    "which year had more than 400 complaints": {"group_by": "year(filed)", "at_least": 401},
    # whether there are so many is answered by their number
    "did Grace Kim inspect more than 30 permits?": {"op": "count"},
    "which inspector handled the third most complaints?": {"group_by": "inspector", "order": "desc", "limit": 3},
    "did Grace Kim have more permits than Anders Holm?": {"op": "count", "group_by": "inspector"},
    "who inspected the most recent approved permit?": {"op": "list", "order": "desc", "limit": 1},
    "the three inspectors with the most complaints": {"group_by": "inspector", "order": "desc", "limit": 3},
    # months are told with their years
    "complaints per month in 2025": {"op": "count", "group_by": "year_month(filed)"},
    # the document, not the number
    "which contract has the highest budget?": {"op": "list", "of": "budget", "order": "desc", "limit": 1},
    "what share of the denied permits are demolition permits?": {
        "op": "share", "where": {"type": "eq", "key": "kind", "value": "Demolition Permit"},
    },
    # done alone, and in one year alone
    "how many permits did Bayline Construction file on their own": {
        "where": {"type": "eq", "key": "len(applicants)", "value": 1},
    },
    "how many complaints were there in 2021 alone": {"op": "count"},
    "enumerate the denied permits": {"op": "list"},
    "name the permits that Grace Kim inspected": {"op": "list"},
    "what fraction of the denied permits lack an inspector": {
        "op": "share", "where": {"type": "exists", "key": "inspector", "value": False},
    },
    "list all districts": {"op": "count", "group_by": "district"},
    "what kinds of permits exist": {"op": "count", "group_by": "kind"},
    "how many permits are neither denied nor approved": {"op": "count"},
    "which district has the most permits with a budget over 5000": {"op": "count", "group_by": "district", "limit": 1},
    "latest three demolition permits": {"op": "list", "order": "desc", "limit": 3},
    "5 cheapest contracts": {"op": "list", "of": "budget", "order": "asc", "limit": 5},
    # one of two, or both of them
    "which had more complaints, Old Town or Eastfield?": {"between": ["Old Town", "Eastfield"], "limit": 1},
    "which had more complaints, Old Town or Eastfield, and by how many?": {"op": "count", "group_by": "district"},
    # a part with its whole
    "what percentage of the permits inspected by Grace Kim was denied?": {
        "op": "share", "where": {"type": "eq", "key": "status", "value": "Denied"},
    },
    "for every district, what percentage of complaints was denied?": {"op": "share", "group_by": "district"},
    "how many permits did Grace Kim inspect, and how many of them were denied?": {
        "op": "share", "where": {"type": "eq", "key": "status", "value": "Denied"},
    },
}  # fmt: skip


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(("text", "wanted"), CALCULATIONS.items(), ids=CALCULATIONS.keys())
def test_a_calculation_is_asked_of_the_metadata(text: str, wanted: dict[str, Any], ground: Make):
    reading = ground("city").read(text)
    assert (reading.kind, reading.sources[0].name) == ("aggregate", "sql")
    assert {key: reading.aggregate[key] for key in wanted} == wanted


PARTS = {
    # What would be left out of an average, so that another number were given.
    "city": {
        "how many permits are filed per quarter on average?": None,
        "how many permits were filed per quarter on average in 2023": {"group_by": "quarter(filed)", "over": "avg"},
        "average budget of the ten largest contracts": None,
        "median budget of the 5 most expensive contracts": None,
        "what is the mean number of permits per district and year": None,
        "how many complaints per year on average among inspectors with at least 10 complaints": None,
        "what is the average and the median budget of contracts?": None,
        "average number of permits with a budget over 100k per district": {"op": "count", "over": "avg"},
        "number of complaints by half of 2023": None,
        "which districts have an average budget above 1 million": None,
        "how many permits were filed per year on average since March 2020": None,
        "how many permits does each inspector handle per year on average": None,
        "average number of permits per applicant of Bayline Construction and Mill Creek Brewing": None,
        "average budget by department, largest first": {"op": "avg", "group_by": "department", "order": "desc"},
        # Two sides of something else than counts.
        "compare the median budgets of Old Town and Lakeview": {"op": "median", "of": "budget", "group_by": "district"},
        "what was the median budget in 2022 and 2023": {"op": "median", "group_by": "year(filed)"},
        "difference between the average budgets of Old Town and Lakeview": None,
        "how many permits filed in 2022 were decided in 2023?": {"op": "count", "group_by": None},
        "how many more complaints in the first half of 2024 than in the second half": {"op": "difference"},
        # Shares of what is bounded, and of what is not the largest share.
        "what share of the permits have a budget over 1 million": {
            "op": "share", "where": {"type": "gt", "key": "budget", "value": 1000000},
        },
        "what share of denied permits is in the district with the most complaints": None,
    },
    "food": {"average number of reviewers of the three latest recalls": None},
    "hospital": {
        "平均每个季度发布几份文件": None,
        "每个科室平均每年发布几份文件": None,
        "儿科和急诊科每年平均各发布几份文件": None,
        "张敏和李建华按作者平均写几份文件": None,
        "最近三年平均每年发布多少份操作流程": None,
        "2020 到 2022 年平均每年发布多少份操作流程": {"op": "count", "group_by": "year(published)", "over": "avg"},
        "页数最多的十份文件的平均页数": None,
        "每个作者平均有几份超过50页的文件": {"op": "count", "group_by": "authors", "over": "avg"},
        "平均每年有多少位作者发布文件": {"op": "count", "of": "authors", "group_by": "year(published)", "over": "avg"},
    },
}  # fmt: skip


@pytest.mark.parametrize(("domain", "text"), [(domain, text) for domain, texts in PARTS.items() for text in texts])
def test_no_number_is_given_for_another(domain: str, text: str, ground: Make):
    aggregate, wanted = ground(domain).read(text).aggregate, PARTS[domain][text]
    if wanted is None:
        assert aggregate is None or aggregate["op"] == "list"
    else:
        assert {key: aggregate.get(key) for key in wanted} == wanted


CALCULATIONS_ZH = {
    "心内科的操作流程有多少": ("and(department=心血管内科, doc_type=操作流程)", {"op": "count"}),
    "有几位作者写过护士培训材料": ("and(audience=护士, doc_type=培训材料)", {"op": "count", "of": "authors"}),
    "张敏和李建华谁写的文件更多": ("authors in 张敏|李建华", {"group_by": "authors", "between": ["张敏", "李建华"]}),
    "没有版本号的操作流程有几份": (
        "doc_type=操作流程",
        {"where": {"type": "exists", "key": "version", "value": False}},
    ),
    "张敏独立完成的文件有几份": ("authors=张敏", {"where": {"type": "eq", "key": "len(authors)", "value": 1}}),
    "文件超过 10 份的作者有哪些": (None, {"group_by": "authors", "at_least": 11}),
    "截至目前属于操作流程的文件数目": ("doc_type=操作流程", {"op": "count"}),
    "版本 1.1 及以上的文件有几份": ("version in 1.1|2.0|2.1|3.0", {"op": "count"}),
    "平均每份文件有几位作者": (None, {"op": "avg", "of": "len(authors)"}),
    "东院区和西院区哪个的文件多": ("campus in 东院区|西院区", {"op": "count", "group_by": "campus"}),
    "三位及以上作者合写的文件总数": (None, {"where": {"type": "gte", "key": "len(authors)", "value": 3}}),
    "写过至少 9 份文件的作者有谁": (None, {"group_by": "authors", "at_least": 9}),
    "只写过一份文件的作者有多少": (None, {"op": "count", "of": "authors", "at_least": 1, "at_most": 1}),
    "作者超过五人的文件有几份": (None, {"where": {"type": "gt", "key": "len(authors)", "value": 5}}),
    "哪几年的文件超过 40 份": (None, {"group_by": "year(published)", "at_least": 41}),
    "最近的五份操作流程": ("doc_type=操作流程", {"op": "list", "of": "published", "order": "desc", "limit": 5}),
    "张敏写过超过 3 份文件吗": ("authors=张敏", {"op": "count"}),
    "最近废止的文件是哪一份": ("status=已废止", {"op": "list", "of": "published", "limit": 1}),
    "不止一位作者的文件有多少份": (None, {"where": {"type": "gt", "key": "len(authors)", "value": 1}}),
    "作者人数最多的三份文件": (None, {"op": "list", "of": "len(authors)", "order": "desc", "limit": 3}),
    "作者最多的文件是哪份，有几位作者": (None, {"op": "list", "of": "len(authors)", "limit": 1}),
    "平均每年发布几份文件": (None, {"op": "count", "group_by": "year(published)", "over": "avg"}),
    "每位作者平均写几份文件": (None, {"op": "count", "group_by": "authors", "over": "avg"}),
    "作者人数的中位数是多少": (None, {"op": "median", "of": "len(authors)"}),
    "2023 年哪个季度的文件最多": (
        "and(published>=2023-01-01, published<2024-01-01)",
        {"group_by": "quarter(published)", "order": "desc", "limit": 1},
    ),
    "没有版本号的文件占比是多少": (
        None,
        {"op": "share", "where": {"type": "exists", "key": "version", "value": False}},
    ),
    "最不常见的文件类型是哪三种": (None, {"group_by": "doc_type", "order": "asc", "limit": 3}),
    "最不常见的文件类型是什么": (None, {"group_by": "doc_type", "order": "asc", "limit": 1}),
    "按科室统计文件数量，从多到少": (None, {"group_by": "department", "order": "desc"}),
    "心内科有多少份文件，其中有多少是操作流程": ("department=心血管内科", {"op": "share"}),
    "2019 到 2021 年这三年里哪一年的文件最少": (
        "and(published>=2019-01-01, published<2022-01-01)",
        {"group_by": "year(published)", "order": "asc"},
    ),
}


@pytest.mark.parametrize(("text", "wanted"), CALCULATIONS_ZH.items(), ids=CALCULATIONS_ZH.keys())
def test_a_calculation_in_chinese(text: str, wanted: tuple[str | None, dict[str, Any]], ground: Make):
    reading = ground("hospital").read(text)
    assert shown(reading.filter) == wanted[0]
    assert {key: reading.aggregate[key] for key in wanted[1]} == wanted[1]


@pytest.mark.parametrize(
    "text",
    [
        "how many permits cost at least 3 bananas",
        "how many permits did Grace Kim inspect, versus how many complaints in Old Town?",
        "许可里有检查员和没有检查员的各有几份",
        # denied, or with a choice between fields
        "which inspectors don't have at least 10 permits",
        "how many permits don't have at least two applicants",
        "how many permits are either denied or in Old Town",
        # conditions that no field knows
        "how many permits did Grace Kim reject",
        "how many permits were denied more than once",
        "how many permits have the same inspector",
        "how many permits have a budget below average",
        "how many permits have between two and four applicants",
        "how many permits have 5 floors or so",
        "how many complaints per district and kind",
        "at least 5 denied permits and at least 3 approved permits: which inspectors",
        "how does the number of complaints compare to the number of permits",
        "number of permits by district for each status",
        "how many years passed between the oldest and the newest permit",
        "difference between the highest and the lowest budget",
        # no count is asked for
        "what is my permit number",
        "why are permits denied",
        "how many inspectors must sign a permit",
    ],
)
def test_no_number_leaves_out_what_was_asked(text: str, ground: Make):
    aggregate = ground("city").read(text).aggregate
    assert aggregate is None or aggregate["op"] == "list"


def test_a_value_in_other_words_may_stand_right_behind_a_date(ground: Make):
    for text in ("2020 年以来打包主题的 PEP 有多少个", "2020 年之后打包主题的 PEP", "去年打包主题的 PEP 有几个"):
        assert "topics=Packaging" in (shown(ground("peps").read(text).filter) or "")


def test_how_something_came_to_a_status_constrains_nothing(ground: Make):
    for text in ("walrus 是怎么被接受进标准库的？", "walrus 是怎么被接受的？"):
        assert ground("peps").read(text).filter is None
    assert shown(ground("peps").read("已被接受的 walrus 提案").filter) == "status=Accepted"


SIDE_BY_SIDE = {
    "what changed in the release schedule?": None,
    "what is the process for lock files?": None,
    "how do I port code from Python 2.7 to 3?": None,
    "从 2.7 升级到 3.8 要注意什么？": None,
    "如何标记一个类不能被继承（final）？": None,
    "那个提案后来被接受了吗？": None,
    "which rejected ideas came from Guido van Rossum?": "and(status=Rejected, authors=Guido van Rossum)",
    "除了定稿（Final）的 PEP": "status!=Final",
    "for Python 2.7": "python_version=2.7",
    "有没有被拒绝的提案": "status=Rejected",
    "Barry Warsaw 和 Łukasz Langa 各赞助了几篇 PEP": "sponsor in Barry Warsaw|Łukasz Langa",
    "PEPs co-authored by Guido van Rossum together with Łukasz Langa - how many?": (
        "and(authors=Guido van Rossum, authors=Łukasz Langa)"
    ),
    "what do the rejected ideas sections say about syntax?": None,
    "how does the standards track process work?": None,
    "lock files, with Brett Cannon as either author or sponsor": "or(authors=Brett Cannon, sponsor=Brett Cannon)",
    "Who has sponsored more PEPs: Guido van Rossum or Brett Cannon?": "sponsor in Guido van Rossum|Brett Cannon",
    "who sponsored more PEPs, Guido van Rossum or Brett Cannon?": "sponsor in Guido van Rossum|Brett Cannon",
    "what has Donald Stufft sponsered about attestations?": "sponsor=Donald Stufft",
}


@pytest.mark.parametrize("text", SIDE_BY_SIDE)
def test_a_name_constrains_the_field_that_it_is_said_of_and_a_topic_none(
    text: str, ground: Make, request: pytest.FixtureRequest
):
    if text in MISREAD:
        request.applymarker(pytest.mark.xfail(strict=True))
    assert shown(stated(ground("peps").read(text), SIDE_BY_SIDE[text])) == SIDE_BY_SIDE[text]


def test_a_turn_that_leaned_on_another_is_what_it_made_of_it(ground: Make):
    history = [
        {"role": "user", "content": "Which release PEPs are there?"},
        {"role": "assistant", "content": "36 of them."},
        {"role": "user", "content": "only those by Barry Warsaw"},
        {"role": "assistant", "content": "Four: PEP 251, 320, 361 and 404."},
    ]
    reading = ground("peps").read("which is the oldest of them?", history)
    assert shown(reading.filter) == "and(topics=Release, authors=Barry Warsaw)"
    assert reading.aggregate["order"] == "asc"


def test_whoever_is_named_stands_beside_those_who_wrote_with_them(ground: Make):
    reading = ground("peps").read("Who has co-authored the most PEPs with Guido van Rossum?")
    assert (shown(reading.filter), reading.aggregate["limit"]) == ("authors=Guido van Rossum", 2)


def test_what_a_count_is_not_about_is_left_out(ground: Make):
    reading = ground("peps").read("Standards Track PEPs that aren't about packaging: how many?")
    assert shown(reading.filter) == "and(type=Standards Track, topics!=Packaging)"


CHINESE_NAMES = {
    "去年批准的拆除许可": "and(decided>=2025-01-01, decided<2026-01-01, status=Approved, kind=Demolition Permit)",
    "Grace Kim 写的电梯检查报告": "and(inspector=Grace Kim, kind=Inspection Report)",
}


@pytest.mark.parametrize(("text", "wanted"), CHINESE_NAMES.items(), ids=CHINESE_NAMES.keys())
def test_chinese_words_side_by_side_name_a_value_of_several_english_ones(text: str, wanted: str, ground: Make):
    assert shown(ground("city").read(text).filter) == wanted


def test_the_part_and_the_whole_of_a_share(ground: Make):
    for text in ("share of denied permits among those filed in 2023", "what share of permits filed in 2023 was denied"):
        reading = ground("city").read(text)
        assert shown(reading.filter) == "and(filed>=2023-01-01, filed<2024-01-01)"
        assert shown(reading.aggregate["where"]) == "status=Denied"


def test_nothing_is_counted_where_a_value_may_be_a_topic(ground: Make):
    reading = ground("peps").read("What do proposals say about packaging?")
    assert all(one.confidence < FILTERS_FROM for one in reading.conditions)
    reading = ground("peps").read("Who wrote the most proposals that talk about packaging?")
    assert (shown(stated(reading, None)), reading.aggregate) == (None, None)
    reading = ground("peps").read("Who wrote the most packaging proposals?")
    assert (shown(reading.filter), reading.aggregate["group_by"]) == ("topics=Packaging", "authors")


@pytest.mark.parametrize(
    "text",
    [
        "hello there",
        "thanks, that is all",
        "ok never mind",
        "what's 17 * 23?",
        "shorter please",
        "Who are you?",
        "你好",
        "谢谢，辛苦啦",
        "把你刚才那段话翻译成英文",
        "以后回答请简短一些",
        'fix the grammar: "he don\'t have approved my permit yet"',
        "translate into German: The delivery will arrive on Thursday between 8 and 10.",
        "帮我润色这句话：我们部门因为人手不够，所以报告要晚交两天，请谅解。",
        "250 minutes in hours and minutes pls",
        "write a haiku about rain",
        "which languages do you speak?",
    ],
)
def test_small_talk_asks_no_source(text: str, ground: Make):
    reading = ground("city").read(text)
    assert (reading.kind, reading.searches, [one.name for one in reading.sources]) == ("none", (), ["none"])


@pytest.mark.parametrize(
    "text",
    [
        'summarise the report "Retaining walls of the north quay in 2024"',
        "explain the zoning rules in simple words",
        "who are you supposed to notify after an accident?",
        "用英文说一下我们的退货政策",
        "how is the permit fee calculated: by floor or by area?",
        "how many approvals are in a release?",
        "sorry, the deploy failed with error 42",
        "ok thanks, and who owns the boilers?",
        "哈哈厉害,那这个提案后来通过了吗",
        "换成 2020 年的呢",
    ],
)
def test_work_on_documents_is_no_small_talk(text: str, ground: Make):
    assert ground("city").read(text).kind != "none"


@pytest.mark.parametrize(
    "text",
    ["what is the weather in Berlin today?", "latest stable version of numpy?", "今天人民币对欧元的汇率是多少？"],
)
def test_what_mentions_nothing_of_the_catalogue_may_be_of_others(text: str, ground: Make):
    overlap = ground("city").read(text).catalogue_overlap
    assert overlap is not None
    assert sum(overlap) < 0.1


@pytest.mark.parametrize(
    "text",
    [
        "what is our weather policy?",
        "how do we clean gutters",
        "permits in Old Town",
        "inspector on Sunday",
        "公司几点关门",
    ],
)
def test_what_is_of_the_asker_or_the_catalogue_is_never_of_others(text: str, ground: Make):
    overlap = ground("city").read(text).catalogue_overlap
    assert overlap is None or any(overlap)


@pytest.mark.parametrize(
    "text",
    ["format of reports in the last 12 months", "which rules are currently in force for street closures?"],
)
def test_words_of_small_talk_and_of_the_present_alone_decide_nothing(text: str, ground: Make):
    assert {one.name for one in ground("city").read(text).sources} >= {"fulltext", "vector"}


def test_separate_questions_are_searched_apart_and_a_filter_of_one_part_binds_none(ground: Make):
    reading = ground("city").read("How do I apply for a block party, and how many complaints came from Lakeview?")
    assert reading.filter is None
    assert reading.searches == ("How do I apply for a block party",)
    assert reading.aggregate["op"] == "count"
    assert shown(reading.aggregate["where"]) == "and(kind=Complaint, district=Lakeview)"
    assert reading.sources[0].name == "sql"


FOLLOW_UPS = {
    "only the approved ones": "and(kind=Site Plan, district=Old Town, status=Approved)",
    "what about Lakeview?": "and(kind=Site Plan, district=Lakeview)",
    "except those on hold": "and(kind=Site Plan, district=Old Town, status!=On Hold)",
    "那 2021 年的呢？": "and(kind=Site Plan, district=Old Town, filed>=2021-01-01, filed<2022-01-01)",
    "ok and the approved ones?": "and(kind=Site Plan, district=Old Town, status=Approved)",
    "drop the denied ones": "and(kind=Site Plan, district=Old Town, status!=Denied)",
    "which of them mention old boilers?": "and(kind=Site Plan, district=Old Town)",
    "how many per district?": "kind=Site Plan",
    "Lakeview?": "and(kind=Site Plan, district=Lakeview)",
    "and 2024?": "and(kind=Site Plan, district=Old Town, filed>=2024-01-01, filed<2025-01-01)",
    "instead show Lakeview": "and(kind=Site Plan, district=Lakeview)",
    "list them": "and(kind=Site Plan, district=Old Town)",
}


@pytest.mark.parametrize(("text", "wanted"), FOLLOW_UPS.items(), ids=FOLLOW_UPS.keys())
def test_a_follow_up_keeps_what_it_does_not_change(text: str, wanted: str, ground: Make):
    history = [
        {"role": "user", "content": "site plans in Old Town"},
        {"role": "assistant", "content": "There are 31, filed between 2011 and 2026."},
    ]
    reading = ground("city").read(text, history)
    assert shown(reading.filter) == wanted


def test_the_year_beside_is_counted_from_the_question_before(ground: Make):
    history = [
        {"role": "user", "content": "how many permits were denied in 2023?"},
        {"role": "assistant", "content": "14"},
    ]
    for text, year in (("and the year before?", 2022), ("那后一年呢？", 2024)):
        reading = ground("city").read(text, history)
        assert shown(reading.filter) == f"and(status=Denied, decided>={year}-01-01, decided<{year + 1}-01-01)"
        assert reading.aggregate["op"] == "count"


def test_the_year_before_a_leap_day_has_its_last_day_of_february(ground: Make):
    history = [{"role": "user", "content": "how many permits were denied on 29 February 2024?"}]
    reading = ground("city").read("and the year before?", history)
    assert shown(reading.filter) == "and(status=Denied, decided>=2023-02-28, decided<2023-03-01)"


def test_days_stay_in_the_field_that_was_asked_about(ground: Make):
    history = [
        {"role": "user", "content": "how many permits were denied in 2023?"},
        {"role": "assistant", "content": "14"},
    ]
    for text in ("and 2024?", "那2024年呢"):
        wanted = "and(status=Denied, decided>=2024-01-01, decided<2025-01-01)"
        assert shown(ground("city").read(text, history).filter) == wanted


def test_the_same_person_is_the_one_spoken_of(ground: Make):
    history = [
        {"role": "user", "content": "permits inspected by Grace Kim in Old Town"},
        {"role": "assistant", "content": "Three."},
    ]
    read = ground("city").read
    assert shown(read("what else did the same inspector look at?", history).filter) == "inspector=Grace Kim"
    assert shown(read("同一个检查员还有哪些？", history).filter) == "inspector=Grace Kim"
    assert (
        shown(read("what about Anders Holm instead?", history).filter)
        == "and(district=Old Town, inspector=Anders Holm)"
    )


def test_it_is_the_document_that_the_question_before_was_about(ground: Make):
    history = [
        {"role": "user", "content": "What is PEP 667 about?"},
        {"role": "assistant", "content": "Views of locals."},
    ]
    reading = ground("peps").read("它对 locals() 的行为具体改了什么？", history)
    assert shown(reading.filter) == "number=667"
    other = ground("peps").read("which older proposal did it grow out of?", history)
    assert other.filter is None


def test_a_pronoun_stands_for_the_person_of_the_answer(ground: Make):
    history = [
        {"role": "user", "content": "who inspects elevators?"},
        {"role": "assistant", "content": "Mostly Grace Kim."},
    ]
    reading = ground("city").read("what did she find at the ferry terminal?", history)
    assert shown(reading.filter) == "inspector=Grace Kim"


def test_a_question_that_stands_for_itself_takes_nothing_over(ground: Make):
    history = [{"role": "user", "content": "site plans in Old Town"}, {"role": "assistant", "content": "31."}]
    question = "Which inspection reports of University Heights mention corroded pipes under the old boiler rooms?"
    assert (
        shown(ground("city").read(question, history).filter)
        == "and(kind=Inspection Report, district=University Heights)"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "?",
        "\x00",
        "的" * 4000,
        "a " * 4000,
        "2026-" * 1500,
        "PEP " * 2000,
        "'\"“”" * 500,
        "﷽" * 1000,
        "1" * 8000,
        "每" * 4000,
        "between " * 900,
        "不是" * 3000,
        "((((" * 1500,
        "more than " * 800,
        "\u202e" * 3000,
        "ＦＵＬＬ　ＷＩＤＴＨ" * 200,
    ],
)
def test_no_text_breaks_the_rules_or_takes_long(text: str, ground: Make):
    started = time.process_time()
    ground("city").read(text[:8000])
    assert time.process_time() - started < 5


def test_which_documents_have_the_most_of_something_in_chinese(ground: Make):
    reading = ground("hospital").read("作者最多的文件是哪份")
    assert (reading.aggregate["op"], reading.aggregate["of"]) == ("list", "len(authors)")


def test_how_many_have_a_field_is_a_condition_of_the_count(ground: Make):
    reading = ground("peps").read("how many proposals have a sponsor?")
    assert reading.aggregate == {"op": "count", "where": {"type": "exists", "key": "sponsor", "value": True}}
    assert reading.filter is None


def test_a_label_with_one_value_is_named_unless_all_documents_carry_it(ground: Make):
    def read(documents: int) -> str | None:
        kinds = FieldValues(Field("kind", "string", "string"), {"policy": 2}, 1, 2)
        catalogue = FieldCatalogue(((1, 1),), documents, {"kind": kinds})
        known = replace(ground("city"), context=replace(ground("city").context, catalogue=catalogue))
        return shown(known.read("how many policies are there?").filter)

    assert (read(4), read(2)) == ("kind=policy", None)


SUPPORT = {
    # true or false, said of the documents
    "how many tickets were escalated?": ("escalated=true", {"op": "count"}),
    "how many tickets are not escalated?": ("escalated=false", {"op": "count"}),
    "how many escalated tickets are there?": ("escalated=true", {"op": "count"}),
    "tickets that weren't escalated": ("escalated=false", None),
    "was it escalated?": (None, None),
    # a topic that has the name of a field
    "how many tickets about hours?": (None, None),
    # a word that is a pronoun more often than a name
    "when does it expire?": (None, None),
    "can it be exported?": (None, None),
    "tickets of the it team": ("team=it", None),
    "IT tickets": ("team=it", None),
    # one that exists, and what is still so
    "is there an open bug in Beacon?": ("and(status=open, type=bug, product=Beacon)", None),
    "how do I report a bug?": (None, None),
    "tickets opened before July 2025 that are still open": ("and(opened<2025-07-01, status=open)", None),
    "tickets opened since June": ("opened>=2026-06-01", None),
    # of a product
    "tickets for the Desktop App": ("product=Desktop App", None),
    "feature requests for the desktop app": ("and(type=feature request, product=Desktop App)", None),
    # Chinese counts and denials
    "王伟负责的未关闭工单": ("and(assignee=王伟, status!=closed)", None),
    "有几个未关闭的工单": ("status!=closed", {"op": "count"}),
    "一共有多少工单？": (None, {"op": "count"}),
    "王伟有多少个bug": ("and(assignee=王伟, type=bug)", {"op": "count"}),
    "王伟的bug有多少个": ("and(assignee=王伟, type=bug)", {"op": "count"}),
    # lengths of time in another unit than the field's
    "how many tickets took longer than 2 days?": ("hours>48", {"op": "count"}),
    "tickets that took less than 90 minutes": ("hours<1.5", None),
    "tickets that lasted between one and two days": ("and(hours>=24, hours<=48)", None),
    "超过三天的工单有几个": ("hours>72", {"op": "count"}),
    "how many tickets took more than 10 hours?": ("hours>10", {"op": "count"}),
}


@pytest.mark.parametrize(("text", "wanted"), SUPPORT.items(), ids=SUPPORT.keys())
def test_tickets_are_read_as_people_mean_them(text: str, wanted: tuple[str | None, Any], ground: Make):
    labels = {
        "type": {"bug": 20, "feature request": 15, "question": 25},
        "product": {"Atlas": 11, "Beacon": 17, "Core API": 12, "Desktop App": 20},
        "status": {"open": 18, "closed": 20, "in progress": 12, "on hold": 10},
        "assignee": {"王伟": 20, "Bob Marsh": 20, "Dana Reyes": 20},
        "team": {"it": 20, "mobile": 40},
    }
    fields = {
        name: FieldValues(Field(name, "string", "string"), values, len(values), 60) for name, values in labels.items()
    }
    fields["escalated"] = FieldValues(Field("escalated", "boolean", "boolean"), {"true": 31, "false": 29}, 2, 60)
    fields["hours"] = FieldValues(Field("hours", "number", "number"), {}, 40, 60, 1, 200)
    fields["opened"] = FieldValues(Field("opened", "date", "date"), {}, 50, 60, "2024-01-02", "2026-11-10")
    known = ground("city")
    context = replace(
        known.context, catalogue=FieldCatalogue(((1, 1),), 60, fields), nouns=document_nouns_of(["support"])
    )
    reading = replace(known, context=context).read(text)
    filter, aggregate = wanted
    assert shown(reading.filter) == filter
    if aggregate is not None or reading.aggregate is None:
        assert reading.aggregate == aggregate
    else:
        assert reading.aggregate["op"] == "list"


@pytest.mark.parametrize(
    ("before", "text", "wanted"),
    [
        ("site plans in Old Town", "now Chinatown", "and(kind=Site Plan, district=Chinatown)"),
        ("site plans in Old Town", "same, but in Northgate", "and(kind=Site Plan, district=Northgate)"),
        ("denied site plans", "not the denied ones", "and(kind=Site Plan, status!=Denied)"),
        ("site plans with a budget over 5000", "and over 9000?", "and(kind=Site Plan, budget>9000)"),
        ("site plans with a budget over 5000", "make it 7000", "and(kind=Site Plan, budget>7000)"),
        ("site plans in Old Town", "hmm, under 20 then?", "and(kind=Site Plan, district=Old Town)"),
        ("Old Town 的 Site Plan", "换成 Chinatown 的", "and(district=Chinatown, kind=Site Plan)"),
        ("Old Town 的 Site Plan", "那被拒绝的呢", "and(district=Old Town, kind=Site Plan, status=Denied)"),
    ],
)
def test_a_follow_up_replaces_the_same_field_and_adds_others(before: str, text: str, wanted: str, ground: Make):
    history = [{"role": "user", "content": before}, {"role": "assistant", "content": "There are some."}]
    parts = shown(ground("city").read(text, history).filter).removeprefix("and(").removesuffix(")").split(", ")
    assert set(parts) == set(wanted.removeprefix("and(").removesuffix(")").split(", "))
