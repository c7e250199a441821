"""Filters at knowledge bases elsewhere: no hit that does not satisfy one, and none lost by what is sent of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrievers.cloud import azure, bailian, bedrock, dify, openai_store, vertex
from retrievers.cloud.filters import provider_filter, satisfies_filter
from retrievers.cloud.provider import CloudProvider, CloudQuery
from retrievers.cloud.retriever import Cloud
from retrievers.core.errors import BadDocument
from retrievers.core.filters import Filter, matches_filter, parse_filter
from retrievers.core.metadata import Field, flatten_metadata, normalise_metadata
from retrievers.core.types import Collection, Query, Scope
from retrievers.http.json_client import JsonClient
from retrievers.http.provider_hits import ProviderHit

FIELDS = {
    "team": Field("team", "string", "string"),
    "year": Field("year", "number", "number"),
    "public": Field("public", "boolean", "boolean"),
    "draft": Field("draft", "boolean", "boolean"),
    "day": Field("day", "date", "date"),
    "tags": Field("tags", "list", "string"),
    "versions": Field("versions", "list", "number"),
    "written": Field("written", "list", "string", separator=","),
    "a.b": Field("a.b", "string", "string"),
    "title": Field("title", "string", "string"),
    "id": Field("id", "string", "string"),
    "language": Field("language", "string", "string"),
}


def sent(provider: Any, expression: object) -> Any:
    """What a provider's module makes of a filter expression."""
    return provider_filter(parse_filter(expression, FIELDS), FIELDS, provider.express, provider.combine)


def compare(type: str, key: str, value: object) -> dict[str, Any]:
    return {"type": type, "key": key, "value": value}


def group(type: str, *filters: object) -> dict[str, Any]:
    return {"type": type, "filters": list(filters)}


RED = compare("eq", "team", "red")
SINCE = compare("gte", "year", 2020)
TAGGED = compare("contains", "tags", "x")
BEGINS = compare("prefix", "team", "re")
AMONG = compare("in", "team", ["red", "blue"])
OPEN = compare("eq", "draft", False)
NOT_RED = compare("ne", "team", "red")
QUOTES = compare("eq", "team", """a'b"c\\""")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (RED, RED),
        (OPEN, OPEN),
        (AMONG, AMONG),
        (group("and", RED, SINCE), group("and", RED, SINCE)),
        (group("or", RED, group("and", SINCE, OPEN)), group("or", RED, group("and", SINCE, OPEN))),
        # What it does not have is left out of an `and`; an `or` cannot do without any of its parts.
        (group("and", RED, TAGGED), RED),
        (group("or", RED, TAGGED), None),
        (group("and", NOT_RED, TAGGED), None),
    ],
)
def test_openai_is_sent_the_same_grammar_without_what_it_lacks(expression: object, expected: object):
    assert sent(openai_store.OpenAIVectorStore, expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (RED, {"equals": {"key": "team", "value": "red"}}),
        (TAGGED, {"listContains": {"key": "tags", "value": "x"}}),
        (BEGINS, {"startsWith": {"key": "team", "value": "re"}}),
        (compare("contains", "team", "e"), {"stringContains": {"key": "team", "value": "e"}}),
        (
            group("and", SINCE, AMONG),
            {
                "andAll": [
                    {"greaterThanOrEquals": {"key": "year", "value": 2020}},
                    {"in": {"key": "team", "value": ["red", "blue"]}},
                ]
            },
        ),
        # Groups have at least two members there.
        (group("and", RED), {"equals": {"key": "team", "value": "red"}}),
        (group("and", RED, NOT_RED), {"equals": {"key": "team", "value": "red"}}),
        (
            compare("in", "tags", ["x", "y"]),
            {
                "orAll": [
                    {"listContains": {"key": "tags", "value": "x"}},
                    {"listContains": {"key": "tags", "value": "y"}},
                ]
            },
        ),
    ],
)
def test_bedrock_is_sent_its_own_operators(expression: object, expected: object):
    assert sent(bedrock.BedrockKnowledgeBase, expression) == expected


def condition(name: str, operator: str, value: object) -> dict[str, Any]:
    return {"name": name, "comparison_operator": operator, "value": value}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (RED, {"logical_operator": "and", "conditions": [condition("team", "is", "red")]}),
        (
            group("and", SINCE, BEGINS),
            {
                "logical_operator": "and",
                "conditions": [condition("year", "≥", 2020), condition("team", "start with", "re")],
            },
        ),
        (
            group("or", SINCE, RED),
            {"logical_operator": "or", "conditions": [condition("year", "≥", 2020), condition("team", "is", "red")]},
        ),
        # One flat list: of an `or` inside an `and` either one can be said, and conditions narrow more.
        (
            group("and", group("or", SINCE, RED), AMONG),
            {"logical_operator": "and", "conditions": [condition("team", "in", ["red", "blue"])]},
        ),
        (
            group("and", group("or", SINCE, RED), group("or", RED, AMONG)),
            {"logical_operator": "or", "conditions": [condition("year", "≥", 2020), condition("team", "is", "red")]},
        ),
        (group("or", group("and", SINCE, RED), AMONG), None),
        (OPEN, None),
        (compare("in", "year", [1, 2]), None),
    ],
)
def test_dify_is_sent_one_flat_list(expression: object, expected: object):
    assert sent(dify.DifyKnowledgeBase, expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (RED, "team eq 'red'"),
        (QUOTES, "team eq 'a''b\"c\\'"),
        (group("and", SINCE, OPEN), "(year ge 2020 and draft eq false)"),
        (AMONG, "(team eq 'red' or team eq 'blue')"),
        (TAGGED, "tags/any(one: one eq 'x')"),
        (
            group("or", RED, group("and", SINCE, TAGGED)),
            "(team eq 'red' or (year ge 2020 and tags/any(one: one eq 'x')))",
        ),
        (BEGINS, None),
        (compare("eq", "a.b", "no identifier"), None),
    ],
)
def test_azure_is_sent_odata(expression: object, expected: object):
    assert sent(azure.AzureKnowledgeBase, expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (RED, 'team: ANY("red")'),
        (QUOTES, 'team: ANY("a\'b\\"c\\\\")'),
        (AMONG, 'team: ANY("red", "blue")'),
        (TAGGED, 'tags: ANY("x")'),
        (group("and", SINCE, compare("lt", "year", 2.5)), "(year >= 2020 AND year < 2.5)"),
        (compare("in", "year", [1, 2]), "(year = 1 OR year = 2)"),
        (compare("eq", "a.b", "x"), 'a.b: ANY("x")'),
        (OPEN, None),
        (BEGINS, None),
        (compare("contains", "versions", 3), None),
    ],
)
def test_vertex_is_sent_an_expression(expression: object, expected: object):
    assert sent(vertex.VertexDataStore, expression) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (group("and", RED, compare("eq", "year", 2020)), [{"team": "red"}, {"year": 2020}]),
        (group("and", RED, SINCE), [{"team": "red"}]),
        (group("or", RED, compare("eq", "year", 2020)), None),
        (OPEN, None),
    ],
)
def test_bailian_is_sent_equalities(expression: object, expected: object):
    assert sent(bailian.BailianIndex, expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        NOT_RED,
        {"type": "not", "filter": RED},
        compare("nin", "team", ["red"]),
        compare("exists", "team", True),
        compare("eq", "day", "2024-01-01"),
        compare("eq", "title", "x"),
        compare("eq", "id", "x"),
        compare("eq", "public", True),
        compare("eq", "written", "x"),
        compare("in", "team", []),
        compare("gt", "team", "m"),
    ],
)
@pytest.mark.parametrize(
    "provider",
    [
        azure.AzureKnowledgeBase,
        bailian.BailianIndex,
        bedrock.BedrockKnowledgeBase,
        dify.DifyKnowledgeBase,
        openai_store.OpenAIVectorStore,
        vertex.VertexDataStore,
    ],
)
def test_what_providers_do_not_mean_alike_is_never_sent(provider: Any, expression: object):
    assert sent(provider, expression) is None


@pytest.mark.parametrize(
    ("expression", "metadata", "expected"),
    [
        (RED, {"team": "red"}, True),
        (RED, {"team": "blue"}, False),
        (RED, {}, False),
        (NOT_RED, {}, True),
        (NOT_RED, {"team": None}, True),
        # Not a text: whether it is another than red cannot be known.
        (NOT_RED, {"team": ["red", "blue"]}, False),
        (NOT_RED, {"team": float("nan")}, False),
        (SINCE, {"year": "2021"}, True),
        (SINCE, {"year": "soon"}, False),
        (compare("lt", "day", "2024-01-01"), {"day": "2023-12-31T23:59:00+00:00"}, True),
        (compare("lt", "day", "2024-01-01"), {"day": 1703980740}, False),
        (compare("eq", "a.b", "x"), {"a": {"b": "x"}}, True),
        (compare("eq", "a.b", "x"), {"a.b": "x"}, True),
        (compare("eq", "title", "The title"), {}, True),
        (compare("eq", "id", "its id"), {}, True),
        (compare("exists", "team", False), {"team": ""}, True),
        # Every document has a language, though its provider may not tell.
        (compare("ne", "language", "zh"), {}, False),
        (compare("ne", "language", "zh"), {"language": "en"}, True),
        (OPEN, {"draft": "false"}, True),
        (OPEN, {"draft": 0}, False),
    ],
)
def test_an_answer_is_held_against_the_metadata_that_came_with_it(
    expression: object, metadata: Mapping[str, Any], expected: bool
):
    found = ProviderHit("text", "The title", id="its id", metadata=metadata)
    assert satisfies_filter(found, parse_filter(expression, FIELDS), FIELDS) is expected


# Every document and every filter.

TEXTS = st.sampled_from(["red", "re", "blue", "x", "", "a'b"])
NUMBERS = st.sampled_from([0, 1, 2020, 2.5, -3])
SCALARS = {"string": TEXTS, "number": NUMBERS, "boolean": st.booleans(), "date": st.dates().map(str)}
KEYS = [key for key in FIELDS if key not in ("title", "id", "public", "language")]


def stored(key: str) -> st.SearchStrategy[Any]:
    known = FIELDS[key]
    if known.separator:
        return st.sampled_from(["x", "x, red", "blue,x"])
    return st.lists(SCALARS[known.item], max_size=3) if known.type == "list" else SCALARS[known.item]


PROPER = st.fixed_dictionaries({}, optional={key: stored(key) for key in KEYS})
HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["b", "team"]), inner, max_size=2),
    max_leaves=5,
)
# Not one value under two names.
ANY = st.dictionaries(st.sampled_from([*KEYS, "a"]), HOSTILE, max_size=4).filter(
    lambda one: not {"a", "a.b"} <= one.keys()
)


@st.composite
def comparisons(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from(KEYS))
    known = FIELDS[key]
    value = SCALARS[known.item]
    operators = ["eq", "ne", "in", "nin", "exists"]
    operators += ["gt", "gte", "lt", "lte"] if known.item != "boolean" else []
    operators += ["prefix"] if known.item == "string" else []
    operators += ["contains"] if known.item == "string" or known.type == "list" else []
    operator = draw(st.sampled_from(operators))
    if operator == "exists":
        return compare(operator, key, draw(st.booleans()))
    return compare(operator, key, draw(st.lists(value, max_size=3) if operator in ("in", "nin") else value))


EXPRESSIONS = st.recursive(
    comparisons(),
    lambda inner: (
        st.builds(
            lambda kind, parts: group(kind, *parts),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda one: {"type": "not", "filter": one}, inner)
    ),
    max_leaves=6,
).map(lambda expression: parse_filter(expression, FIELDS))


@dataclass
class Careless(CloudProvider):
    """A provider that ignores filters."""

    answers: list[ProviderHit]
    max_hits: int = 100
    asked: list[CloudQuery] = field(default_factory=list)

    async def find(self, search: CloudQuery) -> list[ProviderHit]:
        self.asked.append(search)
        return self.answers


SCOPE = Scope("t", (Collection(1, "t", "docs", fields=FIELDS),))


@given(wanted=EXPRESSIONS, documents=st.lists(PROPER | ANY, max_size=8))
async def test_no_hit_ever_fails_the_filter_even_when_the_provider_ignores_it(
    wanted: Filter, documents: list[dict[str, Any]]
):
    answers = [ProviderHit(f"text {n}", id=str(n), metadata=one) for n, one in enumerate(documents)]
    hits = await Cloud(Careless(answers), JsonClient("cloud")).search(Query("q", "en", SCOPE, wanted))
    for hit in hits:
        assert matches_filter(wanted, ingested(documents[int(hit.id.document_id)]))


@given(wanted=EXPRESSIONS, document=PROPER)
async def test_what_satisfies_the_filter_is_a_hit_and_what_does_not_is_none(wanted: Filter, document: dict[str, Any]):
    answers = [ProviderHit("text", id="0", metadata=document)]
    hits = await Cloud(Careless(answers), JsonClient("cloud")).search(Query("q", "en", SCOPE, wanted))
    assert bool(hits) == matches_filter(wanted, ingested(document))


def ingested(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A document's values as ingesting it would take them, one by one, as far as they can be taken."""
    values: dict[str, Any] = {}
    for key, value in metadata.items():
        try:
            flat = {name: one for name, one in flatten_metadata({key: value}).items() if name in FIELDS}
            values |= normalise_metadata(flat, FIELDS)
        except BadDocument:
            continue
    return values


def openai_passes(wanted: Any, document: Mapping[str, Any]) -> bool:
    if wanted["type"] in ("and", "or"):
        return {"and": all, "or": any}[wanted["type"]](openai_passes(one, document) for one in wanted["filters"])
    return compared(wanted["type"], document.get(wanted["key"]), wanted["value"])


def bedrock_passes(wanted: Any, document: Mapping[str, Any]) -> bool:
    ((name, inner),) = wanted.items()
    if name in ("andAll", "orAll"):
        assert len(inner) >= 2
        return {"andAll": all, "orAll": any}[name](bedrock_passes(one, document) for one in inner)
    operators = {"equals": "eq", "greaterThan": "gt", "greaterThanOrEquals": "gte", "lessThan": "lt"}
    operators |= {"lessThanOrEquals": "lte", "startsWith": "prefix", "stringContains": "contains"}
    operators |= {"listContains": "contains", "in": "in"}
    return compared(operators[name], document.get(inner["key"]), inner["value"])


def dify_passes(wanted: Any, document: Mapping[str, Any]) -> bool:
    operators = {"is": "eq", "=": "eq", ">": "gt", "≥": "gte", "<": "lt", "≤": "lte", "start with": "prefix"}
    results = [
        compared(
            operators.get(one["comparison_operator"], one["comparison_operator"]),
            document.get(one["name"]),
            one["value"],
        )
        for one in wanted["conditions"]
    ]
    return any(results) if wanted.get("logical_operator") == "or" else all(results)


def bailian_passes(wanted: Any, document: Mapping[str, Any]) -> bool:
    return all(document.get(key) == value for one in wanted for key, value in one.items())


def compared(operator: str, held: Any, value: Any) -> bool:
    """A comparison that holds for no document without the field, and for one value of one type alone."""
    if held is None:
        return False
    match operator:
        case "eq":
            return bool(held == value)
        case "in":
            return held in value
        case "contains":
            return value in held
        case "prefix":
            return bool(held.startswith(value))
        case "gt":
            return bool(held > value)
        case "gte":
            return bool(held >= value)
        case "lt":
            return bool(held < value)
        case "lte":
            return bool(held <= value)
    raise AssertionError(operator)


@pytest.mark.parametrize(
    ("provider", "passes"),
    [
        (openai_store.OpenAIVectorStore, openai_passes),
        (bedrock.BedrockKnowledgeBase, bedrock_passes),
        (dify.DifyKnowledgeBase, dify_passes),
        (bailian.BailianIndex, bailian_passes),
    ],
)
@given(wanted=EXPRESSIONS, document=PROPER)
def test_what_is_sent_is_never_narrower_than_the_filter(
    provider: Any, passes: Any, wanted: Filter, document: dict[str, Any]
):
    narrowed = provider_filter(wanted, FIELDS, provider.express, provider.combine)
    if narrowed is not None and matches_filter(wanted, ingested(document)):
        assert passes(json.loads(json.dumps(narrowed)), document)
