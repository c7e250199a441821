"""What is denied filters by its opposite or not at all; it is never read as what is wanted."""

from datetime import UTC, datetime
from typing import Any

import pytest

from agent.intent.reading import BOOSTS_FROM
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues

Json = dict[str, Any]
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def strings(name: str, *values: str, documents: int = 60) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), dict.fromkeys(values, 12), len(values), documents)


FIELDS = {
    "style": strings("style", "Baroque", "Gothic", "Rococo", "Vernacular"),
    "city": strings("city", "Lisbon", "Rotterdam", "Gdansk", "杭州", "上海"),
    "author": strings("author", "Ann Lee", "Bo Chen", "李伟", "王芳"),
    "reviewer": strings("reviewer", "Ann Lee", "Bo Chen", "Cy Marlow", "王芳"),
    "stage": strings("stage", "rejected", "shipped", "draft", "done"),
    "metro_m": FieldValues(Field("metro_m", "number", "number"), {}, 30, 40, 100, 4000),
    "arch": strings("arch", "J. Milner", "T. Abara", documents=40),
}
CARDS = {"fulltext": Card("fulltext", "words"), "sql": Card("sql", "metadata", "metadata")}


def read(question: str) -> RulesReading:
    context = ReadingContext(
        FieldCatalogue(((1, 1),), 60, FIELDS), frozenset({"report", "reports"}), CARDS, _CALENDAR, NOW
    )
    return read_by_rules(question, (), context)


_CALENDAR = Calendar(NOW.date())


def leaves(filter: Json | None) -> set[tuple[bool, str]]:
    """The values of a filter with whether they are wanted."""
    if filter is None:
        return set()
    if "filters" in filter:
        return set().union(*map(leaves, filter["filters"]))
    values = filter["value"] if isinstance(filter["value"], list) else [filter["value"]]
    return {(filter["type"] in ("eq", "in", "contains"), value) for value in values}


def stated(question: str) -> set[tuple[bool, str]]:
    return set().union(*(leaves(one.filter) for one in read(question).conditions if one.confidence >= BOOSTS_FROM))


@pytest.mark.parametrize(
    "question",
    [
        "reports on floods unrelated to Lisbon",
        "reports on floods with the exception of Lisbon",
        "reports on floods in a city different from Lisbon",
        "reports on floods in another city than Lisbon",
        "city != Lisbon, reports on floods",
        "reports on floods with Lisbon taken out",
        "reports on floods, everything save Lisbon",
        "reports on floods where Lisbon doesn't appear",
        "洪水的报告，Lisbon的别给我",
        "洪水的报告，Lisbon的别给我看",
        "Lisbon is not what I want; reports on floods",
        "reports on floods never sent by Ann Lee",
    ],
)
def test_words_that_leave_out_are_read_as_leaving_out(question: str):
    assert stated(question) == {(False, "Ann Lee" if "Ann" in question else "Lisbon")}


@pytest.mark.parametrize(
    "question",
    [
        "reports on floods, far from Lisbon",
        "reports on floods not yet estimated and still in Lisbon",
        "reports on floods, hardly Lisbon",
        "reports on floods that have yet to be shipped",
        "reports on floods that failed to be Baroque",
        "reports on floods that ceased to be Gothic",
        "Lisbon? no thanks. Reports on floods",
        "reports on floods where Lisbon is missing",
        "reports that do not ever seem to concern much beside Lisbon",
        "neither Roman nor Spanish baroque with gilded stairs",
        "洪水的报告，不一定要Lisbon",
        "只要不是Lisbon，洪水的报告都行",
        "洪水的报告，与Lisbon不同的",
        "reports on floods not shipped by Ann Lee",
        "reports on floods, excl. Lisbon",
    ],
)
def test_where_it_is_not_certain_what_is_denied_nothing_is_read(question: str):
    assert not any(wanted for wanted, _ in stated(question))


@pytest.mark.parametrize(
    "question",
    [
        "logo not displayed in Lisbon",
        "reports whose trams are not displayed in Lisbon",
        "reports on lamps not accepted in Lisbon",
        "reports on meetings that were not held in Lisbon",
    ],
)
def test_a_deed_denied_of_a_topic_excludes_no_place(question: str):
    assert stated(question) == set()


@pytest.mark.parametrize(
    "question", ["reports in Lisbon that are lead-free", "which reports by Ann Lee are lead-free?"]
)
def test_free_behind_a_hyphen_denies_only_the_word_before_it(question: str):
    assert not any(not wanted for wanted, _ in stated(question))


@pytest.mark.parametrize(
    ("question", "denied"),
    [
        ("reports not held in Lisbon", "Lisbon"),
        ("Baroque balls not held in Lisbon", "Lisbon"),
        ("everything that is not under Cy Marlow", "Cy Marlow"),
        ("reports on houses without the keyword Gothic", "Gothic"),
    ],
)
def test_a_denial_reaches_over_participles_prepositions_and_words_for_fields(question: str, denied: str):
    assert (False, denied) in stated(question)


@pytest.mark.parametrize(
    ("question", "denied"),
    [
        ("reports that Ann Lee and Bo Chen did not review", {"Ann Lee", "Bo Chen"}),
        ("李伟和王芳都没批准的报告", {"李伟", "王芳"}),
        ("reports with Cy Marlow not as the reviewer", {"Cy Marlow"}),
        ("reports, Cy Marlow neither the reviewer nor the author", {"Cy Marlow"}),
        ("reports on floods, Cy Marlow isn't the reviewer", {"Cy Marlow"}),
    ],
)
def test_what_several_have_not_done_is_denied_of_each(question: str, denied: set[str]):
    assert stated(question) == {(False, name) for name in denied}


def test_of_a_deed_that_no_verb_names_nothing_is_read():
    assert stated("李伟和王芳都没露面的报告") == set()


def test_a_comma_within_a_name_ends_no_clause():
    fields = {"chair": strings("chair", "Quist, H.", "Adler, M.")}
    context = ReadingContext(FieldCatalogue(((1, 1),), 60, fields), frozenset({"minutes"}), CARDS, _CALENDAR, NOW)
    reading = read_by_rules("long delays, but keep Quist, H. out of it", (), context)
    assert leaves(reading.filter) == {(False, "Quist, H.")}


def test_what_describes_the_documents_of_a_question_is_not_what_they_have_not_done():
    assert (True, "Baroque") in stated("Which Baroque reports have not been shipped yet?")


def test_a_value_that_is_denied_in_one_place_is_not_wanted_in_another():
    assert not any(wanted for wanted, _ in stated("baroque stairs, but not Baroque and not Gothic"))


def test_a_word_that_leaves_out_and_is_a_value_leaves_out_the_name_behind_it():
    assert stated("适合新手，剔除Lisbon") == {(False, "Lisbon")}


def test_what_comes_behind_the_denied_describes_the_documents():
    assert stated("不是Lisbon的Baroque报告") == {(False, "Lisbon"), (True, "Baroque")}
    assert stated("除了Ann Lee，Bo Chen的报告") != {(False, "Ann Lee"), (False, "Bo Chen")}


@pytest.mark.parametrize(
    ("question", "field"),
    [("reports without a known architect", "arch"), ("reports with no metro distance given", "metro_m")],
)
def test_a_field_may_be_missing_by_the_longer_word_for_it(question: str, field: str):
    assert read(question).filter == {"type": "exists", "key": field, "value": False}


@pytest.mark.parametrize("question", ["by neither Zoltan nor Quentin", "不归档案处的报告"])
def test_a_denial_of_a_name_that_nobody_knows_is_told(question: str):
    assert read(question).rejected


def test_what_is_denied_in_brackets_stays_there():
    assert stated("reports (not Gothic) from Lisbon") == {(False, "Gothic"), (True, "Lisbon")}
    assert stated("reports except Gothic (late) or Baroque (early)") == {(False, "Gothic")}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("Cy Marlow as reviewer, no drafts", (True, "Cy Marlow")),
        ("Ann Lee reports not in Lisbon", (False, "Lisbon")),
        ("Bo Chen reports, not Lisbon", (False, "Lisbon")),
        ("reports not written or reviewed by Cy Marlow", (False, "Cy Marlow")),
        ("exclude any and all Lisbon reports", (False, "Lisbon")),
    ],
)
def test_a_denial_further_on_leaves_the_name_before_it_as_it_is(question: str, wanted: tuple[bool, str]):
    read = stated(question)
    assert wanted in read
    assert (not wanted[0], wanted[1]) not in read


@pytest.mark.parametrize("question", ["Ann Lee reports not in Lisbon", "Ann Lee is author and not reviewer"])
def test_the_person_named_first_is_not_denied_by_what_follows(question: str):
    assert (False, "Ann Lee") not in stated(question)


@pytest.mark.parametrize(
    "question",
    [
        "the owner said not to have been paid in full according to reports from Lisbon",
        "why some builders may not profit, as reported in Lisbon",
        "the builder who is not only raising money in Lisbon but is also planning a tower",
    ],
)
def test_a_denial_ends_where_the_question_says_who_reports_it(question: str):
    assert (False, "Lisbon") not in stated(question)
    assert (True, "Lisbon") in stated(question)


@pytest.mark.parametrize(
    "question",
    [
        "wifi not connecting in Lisbon",
        "reports on trams with no heating in Lisbon",
        "reports on tickets not answered by phone in Lisbon",
        "reports on firms not only shipping to Lisbon",
        "reasons why we are not sailing to Lisbon",
    ],
)
def test_what_is_denied_of_a_topic_is_not_denied_of_the_documents(question: str):
    assert all(wanted for wanted, _ in stated(question))


def test_a_denial_does_not_pass_a_value_spelt_like_a_particle():
    assert (False, "Lisbon") not in stated("reports on floods, anything but done for Lisbon")
    assert stated("reports on floods with a stage other than done") == {(False, "done")}


def test_not_only_says_that_there_is_more():
    assert not stated("not only the Lisbon reports")


@pytest.mark.parametrize(
    "question",
    ["Lisbon reports that have no arch recorded and were Gothic", "Gothic reports without an arch in Lisbon"],
)
def test_a_missing_field_uses_its_denial_up(question: str):
    assert {(True, "Lisbon"), (True, "Gothic")} <= stated(question)
    assert {"type": "exists", "key": "arch", "value": False} in [one.filter for one in read(question).conditions]


def test_without_a_named_person_is_a_denial_of_the_person():
    assert (False, "J. Milner") in stated("reports without J. Milner as arch")


@pytest.mark.parametrize("question", ["reports that do not sit with Lisbon", "reports which didn't fall to Lisbon"])
def test_an_unknown_verb_is_denied_with_what_it_leads_to(question: str):
    assert stated(question) == {(False, "Lisbon")}


def test_what_is_not_said_of_a_place_excludes_it_not():
    assert not stated("reports that do not quote delays in Lisbon")


def test_either_begins_a_list_of_its_own():
    assert stated("Gothic reports, either Ann Lee or Bo Chen as author") == {
        (True, "Gothic"), (True, "Ann Lee"), (True, "Bo Chen"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("no Baroque and no Gothic reports", {(False, "Baroque"), (False, "Gothic")}),
        ("no Baroque and nothing Gothic", {(False, "Baroque"), (False, "Gothic")}),
        ("no drafts or Lisbon please", {(False, "draft"), (False, "Lisbon")}),
        ("reports by others than Ann Lee and Bo Chen", {(False, "Ann Lee"), (False, "Bo Chen")}),
        ("other styles than Gothic", {(False, "Gothic")}),
        ("none of the Gothic ones", {(False, "Gothic")}),
        ("the Gothic ones can stay out", {(False, "Gothic")}),
        ("reports that are not Baroque - Lisbon", {(False, "Baroque"), (True, "Lisbon")}),
        ("要不含Gothic的", {(False, "Gothic")}),
    ],
)
def test_each_of_several_denials_reaches_its_own_values(question: str, expected: set[tuple[bool, str]]):
    assert stated(question) == expected


def test_what_a_person_does_without_something_is_still_theirs():
    assert (True, "Cy Marlow") in stated("everything Cy Marlow reviewed without a plan")


def test_a_comparison_with_another_thing_denies_nothing():
    assert (False, "Lisbon") not in stated("other reports that are longer than those of Lisbon")


WARD = FieldCatalogue(
    ((1, 1),),
    60,
    {
        "severity": strings("severity", "none", "moderate", "severe"),
        "ward": strings("ward", "ICU", "Surgery", "Maternity"),
        "status": strings("status", "closed", "open", "not signed", "signed"),
        "signer": strings("signer", "Jordan Bell", "Olga Stone", "Ravi Menon"),
        "owner": strings("owner", "Jordan Bell", "Grace Hill"),
        "tags": strings("tags", "night", "handover", documents=40),
        "audit": strings("audit", "Y", "N"),
        "secured": strings("secured", "ja", "nein"),
        "closedOn": FieldValues(Field("closedOn", "date", "date"), {}, 40, 50, "2025-01-02", "2026-11-01"),
        "reportedOn": FieldValues(Field("reportedOn", "date", "date"), {}, 40, 60, "2025-01-02", "2026-11-01"),
        "科室": strings("科室", "内科", "外科", "儿科"),
        "审批人": strings("审批人", "赵敏", "王强", documents=40),
    },
)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("none of the severe ones", {"severity": ("ne", "severe")}),
        ("none from the ICU", {"ward": ("ne", "ICU")}),
        ("cases not closed that were reported in May", {"status": ("ne", "closed"), "reportedOn": ("and", None)}),
        ("cases without tags reported in May", {"tags": ("exists", False), "reportedOn": ("and", None)}),
        ("cases not signed by Olga Stone", {"signer": ("ne", "Olga Stone")}),
        ("secured nein", {"secured": ("eq", "nein")}),
        ("除儿科外的病人", {"科室": ("ne", "儿科")}),
        ("赵敏没审批的", {"审批人": ("ne", "赵敏")}),
        ("the audit was not met", {}),
        ("Hi Ravi Menon, where is the form?", {}),
    ],
)
def test_a_word_that_denies_one_thing_denies_and_names_no_other(question: str, expected: dict[str, tuple[str, Any]]):
    context = ReadingContext(WARD, frozenset({"case", "cases"}), CARDS, _CALENDAR, NOW)
    sure = [one.filter for one in read_by_rules(question, (), context).conditions if one.confidence >= 0.9]
    found = {(one.get("key") or one["filters"][0]["key"]): (one["type"], one.get("value")) for one in sure}
    assert found == expected
