import json
from typing import Any

import pytest

from retrievers.core import filters
from retrievers.core.errors import BadFilter
from retrievers.core.filters import (
    GROUPS,
    OPERATORS,
    And,
    FieldCondition,
    Not,
    Or,
    filter_keys,
    filter_to_json,
    matches_filter,
    parse_filter,
)
from retrievers.core.metadata import Field

FIELDS = {
    "status": Field("status", "string", "string"),
    "year": Field("year", "number", "number"),
    "published": Field("published", "date", "date"),
    "open": Field("open", "boolean", "boolean"),
    "tags": Field("tags", "list", "string"),
    "moments": Field("moments", "list", "date"),
}
STATUS = {"type": "eq", "key": "status", "value": "Final"}


def problem(data: object) -> BadFilter:
    with pytest.raises(BadFilter) as caught:
        parse_filter(data, FIELDS)
    message = str(caught.value)
    assert message.isprintable(), "one line, and nothing that cannot be sent on"
    assert len(message) < 400
    return caught.value


def compare(op: str, key: str, value: object) -> dict[str, Any]:
    return {"type": op, "key": key, "value": value}


def holds(op: str, key: str, value: object, **values: Any) -> bool:
    return matches_filter(parse_filter(compare(op, key, value), FIELDS), values)


# What a filter means.


def test_eq_on_a_list_field_means_membership_of_the_whole_value():
    assert holds("eq", "tags", "db", tags=["ops", "db"])
    assert not holds("eq", "tags", "d", tags=["ops", "db"])


def test_contains_is_membership_in_a_list_and_a_substring_in_a_text():
    assert holds("contains", "tags", "db", tags=["db"])
    assert not holds("contains", "tags", "d", tags=["db"])
    assert holds("contains", "status", "ina", status="Final")
    assert not holds("contains", "status", "INA", status="Final")


def test_a_missing_value_satisfies_only_the_opposites_and_exists_false():
    satisfied = [op for op in ("eq", "ne", "gt", "gte", "lt", "lte") if holds(op, "year", 2020)]
    assert satisfied == ["ne"]
    assert not holds("in", "year", [2020])
    assert holds("nin", "year", [2020])
    assert holds("exists", "year", False)
    assert not holds("exists", "year", True)


def test_an_empty_in_matches_nothing_and_an_empty_nin_everything():
    assert not holds("in", "year", [], year=2020)
    assert holds("nin", "year", [], year=2020)


def test_an_ordering_holds_for_a_list_when_any_member_satisfies_it():
    assert holds("gt", "moments", "2024-06-01", moments=["2024-01-01", "2024-12-31"])
    assert not holds("gt", "moments", "2025-01-01", moments=["2024-01-01", "2024-12-31"])


def test_a_number_is_no_boolean_in_a_filter_and_in_a_document():
    assert not matches_filter(FieldCondition("eq", "flag", True), {"flag": 1})
    assert not matches_filter(FieldCondition("eq", "flag", 1), {"flag": True})
    assert not matches_filter(FieldCondition("in", "flag", (0, 1)), {"flag": False})
    assert '"year" needs a number' in str(problem(compare("eq", "year", True)))
    assert '"open" needs a boolean' in str(problem(compare("eq", "open", 1)))


def test_numbers_are_equal_as_numbers_not_as_written():
    assert holds("eq", "year", 2020.0, year=2020)
    assert holds("eq", "year", 10**23, year=1e23)
    assert not holds("eq", "year", 2**53, year=2**53 + 1)


def test_dates_are_compared_as_moments():
    assert holds("eq", "published", "2024-01-01T08:00:00+08:00", published="2024-01-01")
    assert holds("gt", "published", "2024-01-01", published="2024-01-01T00:00:01")
    assert holds("lt", "published", "2024-01-01T00:00:00.5", published="2024-01-01")
    assert holds("lt", "published", "2024-01-01T00:00:01.25", published="2024-01-01T00:00:01.200001")


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("2025-07-01", "2025-07-01"),
        ("2025-7-1", "2025-07-01"),
        (" 2025-07-01 ", "2025-07-01"),
        ("2025-07-01T00:00:00Z", "2025-07-01"),
        ("2025-07-01 08:30", "2025-07-01T08:30:00"),
        ("2025-07-01T00:30:00+08:00", "2025-06-30T16:30:00"),
        ("2025-07-01T00:00:00.500000", "2025-07-01T00:00:00.5"),
        ("2025-07-01T00:00:00.000001-00:30", "2025-07-01T00:30:00.000001"),
        ("0001-01-01", "0001-01-01"),
    ],
)
def test_dates_have_one_normal_form(given: str, normal: str):
    assert parse_filter(compare("eq", "published", given), FIELDS) == FieldCondition("eq", "published", normal)


# What is refused, and how it is said.


@pytest.mark.parametrize(
    "value",
    [
        "2025", "2025-13-01", "2025-02-30", "99999-01-01", "0000-01-01", "0001-01-01T00:00:00+01:00", "yesterday", "",
        "2025-01-01T25:00", "2025-01-01T00:00:00+99:00", "٢٠٢٥-٠١-٠١", "2025-01-01T" + "9" * 5000, "x" * 5000 + "\n",
    ],
)  # fmt: skip
def test_what_is_no_date_is_refused_and_named_in_short(value: str):
    error = problem(compare("eq", "published", value))
    assert error.where == "filter.value"
    assert "is not an ISO 8601 date" in str(error)
    assert '"published" is a date field' in str(error)
    assert len(str(error)) < 160


def test_an_unknown_key_lists_the_keys():
    error = problem(compare("eq", "staus", "Final"))
    assert error.where == "filter.key"
    assert set(error.valid) == set(FIELDS)
    expected = 'valid keys: "moments", "open", "published", "status", "tags", "year"'
    assert str(error) == f'filter.key is "staus"; {expected}'


@pytest.mark.parametrize("kind", ["equals", "", None, 3, ["eq"], {"a": 1}, "AND"])
def test_an_unknown_type_lists_the_types(kind: object):
    error = problem({"type": kind, "key": "status", "value": "x"})
    assert error.where == "filter.type"
    assert error.valid == (*GROUPS, *OPERATORS)
    assert "valid types: and, or, not, eq, ne" in str(error)


@pytest.mark.parametrize(
    ("op", "key"), [("gt", "open"), ("prefix", "year"), ("prefix", "published"), ("contains", "year")]
)
def test_an_operator_that_does_not_fit_the_field_lists_those_that_do(op: str, key: str):
    error = problem(compare(op, key, "x"))
    assert error.where == "filter.type"
    assert f'"{op}" does not work on "{key}"' in str(error)
    assert "eq" in error.valid
    assert op not in error.valid
    assert "valid types: " in str(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", 1), ("status", None), ("status", ["a"]), ("status", {"a": 1}), ("year", "2020"), ("year", []),
        ("open", "true"), ("published", 20250101), ("tags", ["db"]),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_the_type_that_is_needed(key: str, value: object):
    error = problem(compare("eq", key, value))
    assert error.where == "filter.value"
    assert f'"{key}" needs a {FIELDS[key].item}' in str(error)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), 10**309, -(10**400), 10**5000],
    ids=["nan", "inf", "-inf", "10^309", "-10^400", "10^5000"],
)
def test_numbers_that_are_not_finite_are_refused(value: float):
    assert str(problem(compare("gt", "year", value))) == "filter.value is not a finite number"


def test_a_huge_number_for_a_text_field_is_refused_without_being_written_out():
    assert str(problem(compare("eq", "status", 10**5000))) == 'filter.value is a huge number; "status" needs a string'


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x\udfff", "\0"])
@pytest.mark.parametrize("op", ["eq", "in", "prefix", "contains"])
def test_text_that_postgres_cannot_hold_is_refused(op: str, value: str):
    error = problem(compare(op, "status", [value] if op == "in" else value))
    assert str(error) == "filter.value holds a NUL character or half a surrogate pair"


@pytest.mark.parametrize(
    "data",
    [
        {"type": "eq", "key": "k" * 5000 + "\n", "value": 1},
        {"type": "t\n" * 5000, "key": "status", "value": 1},
        {**STATUS, "extra\n" * 1000: 1},
        {**STATUS, **{f"{n}" * 100: 1 for n in range(100)}},
        compare("eq", "year", "v\r\n" * 3000),
        compare("eq", "year", "\ud800" * 100),
        {"type": "and", "filters": "f" * 1000},
        {"type": "not", "filter": "f" * 1000},
        "f" * 1000,
        compare("exists", "year", "e" * 100),
        compare("in", "year", "e" * 100),
    ],
)
def test_a_message_is_one_line_and_echoes_at_most_forty_characters(data: object):
    message = str(problem(data))
    for run in ("k", "t ", "extra ", "v  ", "f", "e", "1", "9"):
        assert run * (41 // len(run) + 1) not in message


@pytest.mark.parametrize("data", [None, 1, "eq", [], [STATUS], True])
def test_a_filter_must_be_an_object(data: object):
    assert str(problem(data)).startswith("filter must be an object, not ")


@pytest.mark.parametrize("inner", [None, [], {}, "x", 3])
def test_a_group_needs_a_list_of_filters(inner: object):
    assert problem({"type": "and", "filters": inner}).where == "filter.filters"


def test_a_fault_deep_inside_is_found_by_its_path():
    error = problem({"type": "and", "filters": [STATUS, {"type": "not", "filter": {**STATUS, "key": "x"}}]})
    assert error.where == "filter.filters.1.filter.key"


@pytest.mark.parametrize(
    "data",
    [
        {**STATUS, "filters": []},
        {"type": "and", "filters": [STATUS], "key": "status"},
        {"type": "not", "filter": STATUS, "filters": [STATUS]},
        {**STATUS, 3: 4},
    ],
)
def test_keys_of_another_kind_of_filter_are_refused(data: dict[Any, Any]):
    assert "unknown key" in str(problem(data))


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_exists_takes_true_or_false(value: object):
    assert "must be true or false for exists" in str(problem(compare("exists", "year", value)))


def test_exists_without_a_value_means_true():
    assert parse_filter({"type": "exists", "key": "year"}, FIELDS) == FieldCondition("exists", "year", True)


# Limits.


def nested(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = STATUS
    for _ in range(levels - 1):
        node = {"type": "not", "filter": node}
    return node


def test_eight_levels_are_read_and_nine_are_refused():
    parse_filter(nested(8), FIELDS)
    assert "nested deeper than 8 levels" in str(problem(nested(9)))


def test_ten_thousand_levels_are_refused_like_nine():
    assert "nested deeper than 8 levels" in str(problem(nested(10_000)))


def test_128_nodes_are_read_and_129_are_refused():
    parse_filter({"type": "or", "filters": [STATUS] * 127}, FIELDS)
    assert "more than 128 conditions" in str(problem({"type": "or", "filters": [STATUS] * 128}))


def test_a_million_filters_are_refused_after_the_128th():
    assert "more than 128 conditions" in str(problem({"type": "or", "filters": [STATUS] * 1_000_000}))


def test_1000_values_are_read_and_1001_are_refused():
    parse_filter(compare("in", "year", list(range(1000))), FIELDS)
    assert "has 1,001 values; the limit is 1,000" in str(problem(compare("nin", "year", list(range(1001)))))


def test_200_000_characters_of_all_values_are_read_and_one_more_is_refused():
    values = ["x" * 1000] * 100
    both = [compare("in", "status", values), compare("nin", "tags", values)]
    parse_filter({"type": "and", "filters": both}, FIELDS)
    one_more = {"type": "and", "filters": [*both, compare("eq", "year", 7)]}
    assert "more than 200,000 characters together" in str(problem(one_more))


def test_8000_characters_are_read_and_8001_are_refused():
    parse_filter(compare("eq", "status", "x" * 8000), FIELDS)
    assert "more than 8,000 characters" in str(problem(compare("eq", "status", "x" * 8001)))


def test_4000_characters_are_sought_inside_texts_and_4001_are_refused():
    parse_filter(compare("contains", "status", "x" * 4000), FIELDS)
    assert "more than 4,000 characters" in str(problem(compare("contains", "status", "x" * 4001)))


# As JSON and by name.


def test_a_filter_survives_json():
    data = {"type": "or", "filters": [{"type": "not", "filter": compare("in", "tags", ["a", "b"])}, STATUS]}
    wanted = parse_filter(data, FIELDS)
    assert wanted == Or((Not(FieldCondition("in", "tags", ("a", "b"))), FieldCondition("eq", "status", "Final")))
    assert json.loads(json.dumps(filter_to_json(wanted))) == data


def test_keys_of_a_filter_are_all_fields_it_names():
    wanted = And(
        (FieldCondition("eq", "a", 1), Not(Or((FieldCondition("eq", "b", 1), FieldCondition("exists", "c", True)))))
    )
    assert filter_keys(wanted) == {"a", "b", "c"}


def test_the_values_of_the_largest_filter_are_not_read_one_by_one(monkeypatch: pytest.MonkeyPatch):
    read: list[object] = []
    one_by_one = filters._read_value

    def recorded(field: Field, value: object, where: str) -> object:
        read.append(value)
        return one_by_one(field, value, where)

    monkeypatch.setattr(filters, "_read_value", recorded)
    fields = {"s": Field("s", "string", "string"), "n": Field("n", "number", "number")}
    texts, numbers = [chr(0x4E00 + n) for n in range(1000)], [n % 10 for n in range(1000)]
    parts = [{"type": "in", "key": key, "value": some} for key, some in (("s", texts), ("n", numbers))]

    largest = parse_filter({"type": "and", "filters": parts * 60}, fields)

    assert (read, filter_to_json(largest)) == ([], {"type": "and", "filters": parts * 60})


@pytest.mark.parametrize(
    ("key", "values", "fault"),
    [
        ("s", ["a", 7], "filter.value is 7"),
        ("s", ["a", "b\0"], "filter.value holds a NUL character"),
        ("s", ["a", "x" * 8001], "filter.value has more than 8,000 characters"),
        ("n", [1, float("inf")], "filter.value is not a finite number"),
        ("n", [1, 10**400], "filter.value is not a finite number"),
        ("n", [1, True], "filter.value is True"),
    ],
)
def test_one_bad_value_among_good_ones_is_named(key: str, values: list[object], fault: str):
    fields = {"s": Field("s", "string", "string"), "n": Field("n", "number", "number")}
    with pytest.raises(BadFilter, match=fault):
        parse_filter({"type": "in", "key": key, "value": values}, fields)


def test_the_texts_to_find_are_counted_together():
    """PostgreSQL compiles each into a pattern, in more memory and time than other conditions take."""
    fields = {"s": Field("s", "string", "string")}
    parts = [{"type": "contains", "key": "s", "value": "x" * 1000} for _ in range(5)]
    assert parse_filter({"type": "and", "filters": parts[:4]}, fields)
    with pytest.raises(BadFilter, match=r"more than 4,000 characters together") as caught:
        parse_filter({"type": "and", "filters": parts}, fields)
    assert caught.value.where == "filter.filters.4.value"
