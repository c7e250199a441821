import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers.core.collection_schema import read_schema
from retrievers.core.errors import BadDocument
from retrievers.core.metadata import (
    Field,
    fields_from_json,
    fields_to_json,
    flatten_metadata,
    infer_fields,
    normalise_metadata,
)

PROFILE = settings(derandomize=True, database=None, deadline=None, max_examples=100)


def inferred(*values: Any) -> Field:
    return infer_fields([flatten_metadata({"key": value}) for value in values])["key"]


def kind(*values: Any) -> tuple[str, str, str | None]:
    field = inferred(*values)
    return field.type, field.item, field.separator


def normal(field: Field, value: Any) -> Any:
    return normalise_metadata(flatten_metadata({field.name: value}), {field.name: field})[field.name]


@pytest.mark.parametrize("text", ["0" * 5000 + "1", "9" * 5000, "0" * 5000 + ".5", " " + "1" * 401])
def test_a_text_of_very_many_digits_is_no_number(text: str):
    with pytest.raises(BadDocument, match=r'metadata "pages" is a number in this collection; "[ 019]+…" is not one'):
        normal(Field("pages", "number", "number"), text)


def test_a_text_of_few_digits_is_a_number_with_zeros_and_blanks_around_it():
    assert normal(Field("pages", "number", "number"), " 0012 ") == 12


# Inference.


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["Final", "Draft"], ("string", "string", None)),
        ([1, 2.5], ("number", "number", None)),
        ([True, False], ("boolean", "boolean", None)),
        (["2024-01-01", "2024-1-2T10:00:00Z"], ("date", "date", None)),
        (["2024-01-01", "soon"], ("string", "string", None)),
        (["2024-01-01", "2024-99-99"], ("date", "date", None)),
        (["2024-01-01", 5], ("string", "string", None)),
        ([1, "one"], ("string", "string", None)),
        ([1, True], ("string", "string", None)),
        (["1", "2"], ("string", "string", None)),
        ([["a", "b"], ["c"]], ("list", "string", None)),
        ([[1, 2]], ("list", "number", None)),
        ([["2024-01-01"], "2024-01-02"], ("list", "date", None)),
        ([["a"], "b, c", "c, b", "b", "c"], ("list", "string", None)),
        ([["a", 1]], ("list", "string", None)),
    ],
)
def test_the_type_of_a_field_follows_from_its_values(values: list[Any], expected: tuple[str, str, str | None]):
    assert kind(*values) == expected


def test_versions_written_with_commas_are_a_list_because_each_also_stands_alone():
    assert kind("2.6", "3.0", "2.6, 3.0", "2.7, 3.0", "2.7") == ("list", "string", ",")


def test_names_written_with_commas_are_no_list():
    assert kind("Smith, John", "Smith, Jane", "Doe, John", "Guido van Rossum") == ("string", "string", None)


def test_sentences_with_commas_are_no_list():
    assert kind("Yes", "No", "Yes, but only on the second Tuesday of the month", "No, never") == (
        "string",
        "string",
        None,
    )


def test_one_value_with_a_comma_is_no_list():
    assert kind("a", "b", "a, b") == ("string", "string", None)


def test_semicolons_separate_when_commas_do_not():
    assert kind("Smith, J.", "Doe, J.", "Smith, J.; Doe, J.", "Doe, J.; Smith, J.") == ("list", "string", ";")


def test_a_field_that_is_always_empty_is_no_field():
    assert (
        infer_fields([flatten_metadata({"a": None, "b": "", "c": [], "d": " ", "e": {}, "f": [None, "", " "]})]) == {}
    )


# The normal form.


def test_nested_objects_become_dotted_keys_and_empty_values_go():
    metadata = {"a": {"b": {"c": 1}, "d": None}, "e": [1, None, ""], "f": "", "g": " x ", "h": False, "i": 0}
    assert flatten_metadata(metadata) == {"a.b.c": 1, "e": [1], "g": "x", "h": False, "i": 0}


def test_list_members_are_trimmed_like_single_values():
    assert flatten_metadata({"tags": [" a ", "b\n", "  "]}) == {"tags": ["a", "b"]}


def test_dates_of_yaml_and_toml_become_iso_strings():
    given = {"day": date(2024, 1, 2), "at": datetime(2024, 1, 2, 3, 4, tzinfo=UTC), "days": [date(2024, 1, 2)]}
    assert flatten_metadata(given) == {"day": "2024-01-02", "at": "2024-01-02T03:04:00+00:00", "days": ["2024-01-02"]}


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        (Field("k", "list", "string", ","), "2.6, 3.0,,", ["2.6", "3.0"]),
        (Field("k", "list", "string", ","), ["2.6, 3.0"], ["2.6, 3.0"]),
        (Field("k", "list", "string"), "2.6, 3.0", ["2.6, 3.0"]),
        (Field("k", "list", "number", ","), "1, 2.5", [1, 2.5]),
        (Field("k", "string", "string"), ["only"], "only"),
        (Field("k", "string", "string"), 3.0, "3.0"),
        (Field("k", "string", "string"), True, "true"),
        (Field("k", "number", "number"), "42", 42),
        (Field("k", "number", "number"), "-4.5e3", -4500.0),
        (Field("k", "number", "number"), "1e3", 1000.0),
        (Field("k", "number", "number"), ".5", 0.5),
        (Field("k", "number", "number"), "5.", 5.0),
        (Field("k", "boolean", "boolean"), "TRUE", True),
        (Field("k", "date", "date"), "2024-01-01T00:00:00+08:00", "2023-12-31T16:00:00"),
        (Field("k", "list", "date"), "2024-1-1", ["2024-01-01"]),
    ],
)
def test_a_value_is_brought_to_its_fields_type(field: Field, given: Any, expected: Any):
    found = normal(field, given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        (Field("k", "number", "number"), "many"),
        (Field("k", "number", "number"), "1_000"),
        (Field("k", "number", "number"), "١٢"),
        (Field("k", "number", "number"), "9" * 400),
        (Field("k", "number", "number"), "9" * 5000),
        (Field("k", "number", "number"), "1e999"),
        (Field("k", "number", "number"), "nan"),
        (Field("k", "number", "number"), "inf"),
        (Field("k", "number", "number"), "0x10"),
        (Field("k", "number", "number"), "."),
        (Field("k", "number", "number"), "1e"),
        (Field("k", "number", "number"), True),
        (Field("k", "boolean", "boolean"), 1),
        (Field("k", "boolean", "boolean"), "yes"),
        (Field("k", "date", "date"), "99999-01-01"),
        (Field("k", "date", "date"), "soon"),
        (Field("k", "date", "date"), 20240101),
        (Field("k", "string", "string"), ["a", "b"]),
    ],
)
def test_a_value_that_does_not_fit_is_the_documents_fault(field: Field, given: Any):
    with pytest.raises(BadDocument) as caught:
        normal(field, given)
    assert 'metadata "k"' in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({f"k{n}": n for n in range(10_000)}, "metadata has 10,000 keys; the limit is 256"),
        ({"a": {f"k{n}": n for n in range(10_000)}}, "metadata has more than 256 keys"),
        ({"k" * 129: 1}, "a metadata key has 129 characters; the limit is 128"),
        ({"k" * 100: {"l" * 28: 1}}, "a metadata key has 129 characters; the limit is 128"),
        ({"a": {"b": {"c": {"d": {"e": {"f": {}}}}}}}, 'nested deeper than 5 levels at "a.b.c.d.e.f"'),
        ({"a": float("inf")}, 'metadata "a" holds a number that is not finite or too large'),
        ({"a": [1, float("nan")]}, 'metadata "a" holds a number that is not finite or too large'),
        ({"a": 10**400}, 'metadata "a" holds a number that is not finite or too large'),
        ({"a": [{"b": 1}]}, "an object inside a list; use text, numbers, true/false or lists of them"),
        ({"a": [["b"]]}, 'metadata "a" holds a list; use text, numbers, true/false or lists of them'),
        ({"a": b"x"}, 'metadata "a" holds a bytes; use text'),
        ({"": 1}, 'a metadata key is empty: ""; give it a name'),
        ({" \t": ["x"]}, "a metadata key is empty"),
        ({"a": {"": 1}}, 'a metadata key is empty: "a."; give it a name'),
        ({"": {"b": 1}}, 'a metadata key is empty: ".b"; give it a name'),
    ],
)
def test_what_cannot_be_filtered_is_refused_with_the_reason(metadata: dict[str, Any], reason: str):
    with pytest.raises(BadDocument) as caught:
        flatten_metadata(metadata)
    assert reason in str(caught.value)


def test_ten_thousand_levels_are_refused_like_six():
    metadata: dict[str, Any] = {"k": 1}
    for _ in range(10_000):
        metadata = {"k": metadata}
    with pytest.raises(BadDocument, match="nested deeper than 5 levels"):
        flatten_metadata(metadata)


def test_256_keys_are_kept():
    assert len(flatten_metadata({f"k{n}": n for n in range(256)})) == 256


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
keys = st.text(max_size=5).filter(str.strip)
metadata_values = st.dictionaries(keys, scalars | st.lists(scalars, max_size=4), max_size=6)


@PROFILE
@given(st.lists(metadata_values, max_size=5))
def test_inferred_fields_fit_the_documents_they_come_from(documents: list[dict[str, Any]]):
    flat = [flatten_metadata(document) for document in documents]
    fields = infer_fields(flat)
    for metadata in flat:
        values = normalise_metadata(metadata, fields)
        assert values.keys() == metadata.keys()
        json.dumps(values, allow_nan=False)


# Schema files and the catalogue.


def test_a_schema_declares_types_members_separators_and_descriptions():
    schema = {
        "fields": {
            "published": "date",
            "python_version": {"type": "list", "separator": ",", "description": "where it applies"},
            "scores": {"type": "list", "item": "number"},
        }
    }
    assert read_schema(schema) == {
        "published": Field("published", "date", "date", declared=True),
        "python_version": Field("python_version", "list", "string", ",", True, "where it applies"),
        "scores": Field("scores", "list", "number", declared=True),
    }


def test_null_for_a_description_a_unit_or_a_separator_is_none():
    empty = {"type": "number", "description": None, "unit": None, "separator": None}
    schema = read_schema({"fields": {"size": empty}, "description": None})

    assert (schema, schema.description) == ({"size": Field("size", "number", "number", declared=True)}, None)


def test_a_schema_says_what_a_document_is_called_and_in_which_unit_numbers_are():
    schema = read_schema(
        {"fields": {"size": {"type": "number", "unit": " kb "}}, "records": ["upload", "上传", "upload"]}
    )

    assert (schema["size"].unit, schema.records) == ("kb", ("upload", "上传"))
    assert fields_from_json(json.loads(json.dumps(fields_to_json(schema)))) == schema
    assert (read_schema({"records": []}), read_schema({"fields": {}}).records) == ({}, None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "a schema is an object"),
        ({}, "a schema is an object"),
        ({"fields": []}, "a schema is an object"),
        ({"records": "upload"}, "records must be a list of words"),
        ({"records": ["upload", 3]}, "records must be a list of words"),
        ({"records": ["x" * 61]}, "records are at most 40 words of 60 characters"),
        ({"fields": {"a": {"type": "string", "unit": "kb"}}}, 'schema field "a": unit is for number fields'),
        ({"fields": {"a": {"type": "number", "unit": 3}}}, 'schema field "a": unit must be text'),
        ({"fields": {"a": 3}}, 'schema field "a" is neither a type name nor an object'),
        (
            {"fields": {"a": "text"}},
            'schema field "a": type must be one of "boolean", "date", "list", "number", "string"',
        ),
        ({"fields": {"a": {}}}, 'schema field "a": type must be one of'),
        ({"fields": {"a": {"type": ["list"]}}}, 'schema field "a": type must be one of'),
        (
            {"fields": {"a": {"type": "list", "item": "list"}}},
            'schema field "a": item must be one of "boolean", "date"',
        ),
        ({"fields": {"a": {"type": "date", "format": "%Y"}}}, 'schema field "a" has unknown keys: "format"'),
        ({"fields": {"a": {"type": "list", "separator": ""}}}, 'schema field "a": separator must be text'),
        ({"fields": {"a": {"type": "list", "separator": 3}}}, 'schema field "a": separator must be text'),
        ({"fields": {"a": {"type": "string", "separator": ","}}}, 'is for type "list" only'),
        ({"fields": {"a": {"type": "string", "description": 3}}}, 'schema field "a": description must be text'),
        (
            {"fields": {"a": {"type": "string", "description": "b\0"}}},
            'schema field "a": description contains an invalid character',
        ),
        (
            {"fields": {f"f{n}": {"type": "string", "aliases": {"a": ["b"] * 1000}} for n in range(21)}},
            "the fields have more than 20,000 aliases together",
        ),
        (
            {"fields": {"a": {"type": "string", "aliases": {str(n): [] for n in range(1001)}}}},
            'schema field "a": aliases: there are more than 1,000',
        ),
    ],
)
def test_a_schema_of_another_form_is_refused_with_the_reason(data: object, reason: str):
    with pytest.raises(BadDocument) as caught:
        read_schema(data)
    assert reason in str(caught.value)


class Long(str):
    """A text whose length alone is cheap to ask for."""

    def _costly(self, *given: object) -> Any:
        raise AssertionError("read in spite of its length")

    split = isprintable = casefold = __iter__ = _costly


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (lambda long: {"description": long}, "a description is text of at most 1,000 printable characters"),
        (lambda long: {"records": [long]}, "records are at most 40 words of 60 characters"),
        (lambda long: {"fields": {long: "string"}}, "a schema field has a name of over 128 characters"),
        (lambda long: {"fields": {"a": long}}, 'schema field "a": type must be one of'),
        (lambda long: {"fields": {"a": {"type": "string", long: 1}}}, 'schema field "a" has unknown keys: "xxxx'),
        (
            lambda long: {"fields": {"a": {"type": "string", "description": long}}},
            'schema field "a": description is longer than 1,000 characters',
        ),
        (
            lambda long: {"fields": {"a": {"type": "list", "separator": long}}},
            'schema field "a": separator is longer than 20 characters',
        ),
        (
            lambda long: {"fields": {"a": {"type": "number", "unit": long}}},
            'schema field "a": unit must be text of at most 20 characters',
        ),
        (
            lambda long: {"fields": {"a": {"type": "string", "aliases": {"b": [long]}}}},
            "is longer than 100 characters",
        ),
        (
            lambda long: {"fields": {"a": {"type": "string", "aliases": {long: ["b"]}}}},
            "is longer than 1,000 characters",
        ),
    ],
)
def test_a_long_text_in_a_schema_is_refused_by_its_length_alone(data: Callable[[str], object], reason: str):
    with pytest.raises(BadDocument) as caught:
        read_schema(data(Long("x" * 1_000_000)))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200


def test_fields_survive_the_catalogue_as_json():
    fields = {**infer_fields([{"a": 1, "b": ["x"], "c": "2024-01-01"}]), **read_schema({"fields": {"d": "string"}})}
    assert fields_from_json(json.loads(json.dumps(fields_to_json(fields)))) == fields


def test_an_empty_key_that_holds_nothing_is_left_out_like_any_other():
    assert flatten_metadata({"": None, " ": "", "a": {"": []}, "b": 1}) == {"b": 1}


def test_a_schema_field_needs_a_name():
    with pytest.raises(BadDocument, match="a schema field has an empty name"):
        read_schema({"fields": {" ": "date"}})
