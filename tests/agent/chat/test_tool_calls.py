"""Calls of tools that nobody offered, or that are not of the form offered: none is passed on, streamed or not."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from agent.answering import tool_call_check
from agent.answering.tool_call_check import permitted_calls
from agent.llm.call_options import LONGEST_ARGUMENTS, MOST_CALLS, ToolCallAssembler
from agent.testing import Fault
from agent.types import MOST_TOOL_CHARACTERS, MOST_TOOLS, ModelOptions
from retrievers.core.errors import BadRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "The rotor stops when the wind is faster than 25 m/s [1]."
ASKED: Any = [{"role": "user", "content": "When does the rotor stop?"}]
TOWN = {
    "type": "object",
    "properties": {"town": {"type": "string", "minLength": 2}, "days": {"type": "integer"}},
    "required": ["town"],
    "additionalProperties": False,
}
RIBE = '{"town": "Ribe"}'


def tool(name: str = "weather", schema: Any = TOWN, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": schema, **more}}


def call(arguments: Any = RIBE, name: Any = "weather", id: Any = "call_7", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def with_schema(schema: Any, arguments: str = RIBE) -> dict[str, Any]:
    return {"tools": [tool(schema=schema)], "calls": [call(arguments)]}


def doubled(keyword: str) -> dict[str, Any]:
    """A schema whose parts are evaluated 2^40 times."""
    parts = {f"p{n}": {keyword: [{"$ref": f"#/$defs/p{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**parts, "p40": {"not": {}} if keyword == "anyOf" else {}}, "$ref": "#/$defs/p0"}


def custom(name: str = "weather", **more: Any) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": name, **more}}


def regex(definition: str) -> dict[str, Any]:
    return {"format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": definition}}}


def custom_call(input: str = "in Ribe?", name: str = "weather", id: str = "call_7") -> dict[str, Any]:
    return {"id": id, "type": "custom", "custom": {"name": name, "input": input}}


WEATHER: dict[str, Any] = {"tools": [tool()]}
NEWEST = "https://json-schema.org/draft/2020-12/schema"
SLOW_PATTERN = r"^(\w|\w\w|\w+)*(?=!)$"
LONG = json.dumps({"town": "a" * 5000})

UNOFFERED = {
    "no tools offered": {"calls": [call(name="fetch", arguments='{"url": "http://evil.example/"}')]},
    "an empty list of tools": {"tools": [], "calls": [call()]},
    "another tool offered": {**WEATHER, "calls": [call(name="fetch")]},
    "a tool called in full capitals": {**WEATHER, "calls": [call(name="WEATHER")]},
    "a name with a blank": {**WEATHER, "calls": [call(name="weather ")]},
    "a name with a path": {**WEATHER, "calls": [call(name="functions.weather")]},
    "a name with a letter that looks alike": {**WEATHER, "calls": [call(name="wеather")]},
    "a name with a joiner in it": {**WEATHER, "calls": [call(name="wea\u200bther")]},
    "a name with half a character": {**WEATHER, "calls": [call(name="weather\ud800")]},
    "an empty name": {**WEATHER, "calls": [call(name="")]},
    "no name": {**WEATHER, "calls": [{"id": "c", "type": "function", "function": {"arguments": RIBE}}]},
    "a number for a name": {**WEATHER, "calls": [call(name=7)]},
    "a list for a name": {**WEATHER, "calls": [call(name=["weather"])]},
    "a name that a tool of another type has": {"tools": [custom()], "calls": [call()]},
    "a custom tool where a function was offered": {**WEATHER, "calls": [custom_call()]},
    "another custom tool": {"tools": [custom("storms")], "calls": [custom_call()]},
    "a custom tool, where a function was chosen": {
        "tools": [custom(), tool()],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "calls": [custom_call()],
    },
    "a custom tool's input in two types": {
        "tools": [custom()],
        "calls": [custom_call(), {"index": 0, "function": {"arguments": "{}"}}],
    },
    "an input that a custom tool's grammar forbids": {"tools": [custom(**regex("[a-z]+"))], "calls": [custom_call()]},
    "a grammar that cannot be evaluated": {
        "tools": [custom(format={"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}})],
        "calls": [custom_call()],
    },
    "one id after the other in one call": {
        **WEATHER,
        "calls": [call('{"town"', id="a"), {**call(': "R"}'), "index": 0}],
    },
    "a tool that the service has itself": {**WEATHER, "calls": [call(name="search_knowledge", arguments="{}")]},
    "a choice of none": {**WEATHER, "tool_choice": "none", "calls": [call()]},
    "a choice of another function": {
        "tools": [tool(), tool("storms")],
        "tool_choice": {"type": "function", "function": {"name": "storms"}},
        "calls": [call()],
    },
    "a choice among others": {
        "tools": [tool(), tool("storms")],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [tool("storms")]}},
        "calls": [call()],
    },
    "a choice that cannot be read": {**WEATHER, "tool_choice": {"type": "weather"}, "calls": [call()]},
    "a type that is not a function's": {**WEATHER, "calls": [call() | {"type": "custom"}]},
    "a call of a built-in tool": {**WEATHER, "calls": [{"id": "c", "type": "web_search", "query": "x"}]},
    "a call that is a text": {**WEATHER, "calls": ["weather"]},
    "a call that is nothing": {**WEATHER, "calls": [None]},
    "calls that are an object": {**WEATHER, "calls": {"0": call()}},
    "calls that are a text": {**WEATHER, "calls": RIBE},
    "a function that is a text": {**WEATHER, "calls": [{"id": "c", "type": "function", "function": "weather"}]},
    "the older form": {"legacy": {"name": "fetch", "arguments": "{}"}},
    "the older form of an offered tool": {**WEATHER, "legacy": {"name": "weather", "arguments": RIBE}},
    "the older form, offered in the older form": {
        "functions": [{"name": "weather", "parameters": TOWN}],
        "legacy": {"name": "weather", "arguments": RIBE},
    },
    "arguments that are an object": {**WEATHER, "calls": [call({"town": "Ribe"})]},
    "arguments that are a list": {**WEATHER, "calls": [call('["Ribe"]')]},
    "arguments that are a text": {**WEATHER, "calls": [call('"Ribe"')]},
    "arguments that are null": {**WEATHER, "calls": [call("null")]},
    "no arguments where one is needed": {**WEATHER, "calls": [call("")]},
    "arguments that are cut": {**WEATHER, "calls": [call('{"town": "Ri')]},
    "arguments with more behind them": {**WEATHER, "calls": [call(RIBE + RIBE)]},
    "arguments in a fence": {**WEATHER, "calls": [call(f"```json\n{RIBE}\n```")]},
    "arguments with a key twice": {**WEATHER, "calls": [call('{"town": "Ribe", "town": "Oslo"}')]},
    "arguments with NaN": {**with_schema({"type": "object"}, '{"town": NaN}')},
    "arguments with half of a surrogate pair": {**with_schema({"type": "object"}, r'{"town": "\ud800"}')},
    "arguments without end": {**WEATHER, "calls": [call('{"town":' * 20_000)]},
    "an argument left out": {**WEATHER, "calls": [call('{"days": 3}')]},
    "an argument too many": {**WEATHER, "calls": [call('{"town": "Ribe", "to": "evil"}')]},
    "an argument of another type": {**WEATHER, "calls": [call('{"town": 7}')]},
    "a true for a number": {**WEATHER, "calls": [call('{"town": "Ribe", "days": true}')]},
    "an argument too short": {**WEATHER, "calls": [call('{"town": "R"}')]},
    "arguments for a tool without": {**with_schema({"type": "object", "additionalProperties": False})},
    "a value that is not in the list": with_schema({"properties": {"town": {"enum": ["Oslo"]}}}),
    "a value that fits no pattern": with_schema({"properties": {"town": {"pattern": "^[a-z]+$"}}}),
    "a key that only a pattern forbids": with_schema({"patternProperties": {"^to": False}}),
    "a key that no pattern allows": with_schema({"patternProperties": {"^x": {}}, "additionalProperties": False}),
    "items twice": with_schema({"properties": {"a": {"uniqueItems": True}}}, '{"a": [{"x": 1}, {"x": 1}]}'),
    "equal items that are written differently": with_schema(
        {"properties": {"a": {"items": {"uniqueItems": True}}}}, '{"a": [[1, 2], [{"x": [1]}, {"x": [1.0]}]]}'
    ),
    "an excluded limit, in the form of draft 4": with_schema(
        {"properties": {"n": {"minimum": 5, "exclusiveMinimum": True}}}, '{"n": 5}'
    ),
    "another excluded limit, of a named draft 4": with_schema(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "maximum": 5,
            "additionalProperties": {"maximum": 5, "exclusiveMaximum": True},
        },
        '{"n": 5.0}',
    ),
    "a dependency of an older draft, none named": with_schema({"dependencies": {"town": ["day"]}}),
    "a schema that depends on an argument, no draft named": with_schema(
        {"dependencies": {"town": {"minProperties": 2}}}
    ),
    "a recursive reference elsewhere": with_schema({"$recursiveRef": "http://127.0.0.1:9/schema.json"}),
    "a recursive reference elsewhere, of a named draft": with_schema(
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "http://127.0.0.1:9/schema.json"}
    ),
    "a recursive reference that is none": with_schema({"$recursiveRef": "#/$defs/t", "$defs": {"t": False}}),
    "a dynamic reference elsewhere": with_schema({"$dynamicRef": "http://127.0.0.1:9/schema.json#t"}),
    "a dynamic reference elsewhere, in an older draft": with_schema(
        {"$schema": "http://json-schema.org/draft-07/schema#", "$dynamicRef": "http://127.0.0.1:9/schema.json#t"}
    ),
    "no multiple": with_schema({"properties": {"n": {"multipleOf": 0.01}}}, '{"n": 19.995}'),
    "an argument that no part evaluates": with_schema(
        {
            "allOf": [{"$ref": "#/$defs/t"}],
            "$defs": {"t": {"properties": {"town": {}}}},
            "unevaluatedProperties": False,
        },
        '{"town": "Ribe", "to": "evil"}',
    ),
    "an argument that only a failing alternative evaluates": with_schema(
        {"anyOf": [{"properties": {"town": {"const": "Oslo"}}}, {}], "unevaluatedProperties": False}
    ),
    "a slow pattern beside unevaluated properties": with_schema(
        {"patternProperties": {SLOW_PATTERN: {}}, "unevaluatedProperties": False}, json.dumps({"a" * 5000: 1})
    ),
    "parts that double without a keyword": with_schema(
        {
            "$defs": {
                f"p{n}": {"if": True, "$ref": (ref := f"#/$defs/p{n + 1}"), "then": {"$ref": ref}} for n in range(40)
            }
            | {"p40": {}},
            "unevaluatedProperties": False,
            "$ref": "#/$defs/p0",
        }
    ),
    "a meta-schema, asked what was evaluated": with_schema({"unevaluatedProperties": False, "$ref": NEWEST}),
    "a strict function with an argument left out": {"tools": [tool(strict=True)], "calls": [call()]},
    "a strict function with an argument too many": {
        "tools": [tool(schema={"properties": {"town": {}}}, strict=True)],
        "calls": [call('{"town": "Ribe", "to": "evil"}')],
    },
    "a strict function with an argument left out further in": {
        "tools": [tool(schema={"properties": {"at": {"properties": {"town": {}, "day": {}}}}}, strict=True)],
        "calls": [call('{"at": {"town": "Ribe"}}')],
    },
    "a function offered twice, of which only one fits": {
        "tools": [tool(schema=False), tool()],
        "calls": [call()],
    },
    "an item of another type than its place": with_schema(
        {"properties": {"n": {"items": [{"type": "string"}]}}}, '{"n": [1]}'
    ),
    "more items than places": with_schema(
        {"properties": {"n": {"items": [{}], "additionalItems": False}}}, '{"n": [1, 2]}'
    ),
    "a property that draft 3 requires": with_schema(
        {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"day": {"required": True}}}
    ),
    "another draft": with_schema(
        {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"town": ["x"]}}
    ),
    "a pattern that is slow": with_schema({"properties": {"town": {"pattern": SLOW_PATTERN}}}, LONG),
    "a pattern that is slow, in a part with a draft of its own": with_schema(
        {"properties": {"town": {"$schema": NEWEST, "pattern": SLOW_PATTERN}}}, LONG
    ),
    "a slow pattern for keys": with_schema(
        {"patternProperties": {SLOW_PATTERN: {}}, "additionalProperties": False}, json.dumps({"a" * 5000: 1})
    ),
    "a pattern that explodes": with_schema({"properties": {"town": {"pattern": "(((a{1000}){1000}){1000}){1000}"}}}),
    "a schema that refers to itself": with_schema({"$ref": "#"}),
    "parts that refer to each other": with_schema(
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    ),
    "parts that double": with_schema(doubled("allOf")),
    "alternatives that double": with_schema(doubled("anyOf")),
    "a doubled schema that asks what was evaluated": with_schema({"unevaluatedProperties": True, **doubled("allOf")}),
    "a meta-schema that comes back": with_schema(
        {"$dynamicAnchor": "meta", "properties": {"town": {"$ref": NEWEST}}, "pattern": SLOW_PATTERN}
    ),
    "a schema elsewhere": with_schema({"$ref": "http://127.0.0.1:9/schema.json"}),
    "a schema in a file": with_schema({"$ref": "file:///etc/passwd"}),
    "a schema that is a text": with_schema("object"),
    "arguments of a function that has no parameters": with_schema(None),
    "a schema that allows nothing": with_schema(False),
    "a type that does not exist": with_schema({"type": "any"}),
    "a keyword of the wrong type": with_schema({"properties": ["town"]}),
}
DEEP: Any = []
for _ in range(100_000):
    DEEP = [DEEP]
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@dataclass
class Passed:
    """What the caller was given."""

    status: int
    body: str
    text: str
    finish_reason: str
    calls: list[dict[str, Any]]
    degraded: list[str]


def scripted(chatting: Any, calls: Any, *, text: str = TEXT, legacy: Any = None, cut: int | None = None) -> None:
    """The model's next answer as a stream, the calls' arguments in pieces of `cut` characters."""
    deltas: list[dict[str, Any]] = [{"content": text}]
    deltas += [{"tool_calls": calls}] if calls is not None and cut is None else []
    for place, one in enumerate(calls if cut else ()):
        kind, key = ("custom", "input") if one["type"] == "custom" else ("function", "arguments")
        deltas.append({"tool_calls": [{**one, "index": place, kind: {**one[kind], key: ""}}]})
        deltas += [
            {"tool_calls": [{"index": place, kind: {key: one[kind][key][at : at + cut]}}]}
            for at in range(0, len(one[kind][key]), cut or 1)
        ]
    deltas += [{"function_call": legacy}] if legacy else []
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    chatting.script.replies.append("")
    chatting.script.faults.append(Fault(body=body))


async def ask(chatting: Any, stream: bool, **options: Any) -> Passed:
    body = {"model": "signalbox", "messages": ASKED, "stream": stream, **options}
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}, timeout=240) as client:
        answer = await client.post(f"{chatting.url}/v1/chat/completions", json=body)
    if answer.status_code != 200:
        return Passed(answer.status_code, answer.text, "", "", [], [])
    if not stream:
        (choice,) = answer.json()["choices"]
        message, degraded = choice["message"], answer.json()["signalbox"]["degraded"]
        calls = message.get("tool_calls", [])
        return Passed(200, answer.text, message["content"], choice["finish_reason"], calls, degraded)
    chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    text = "".join(delta.get("content") or "" for delta in deltas)
    calls = [one for delta in deltas for one in delta.get("tool_calls", ())]
    reason = chunks[-1]["choices"][0]["finish_reason"]
    return Passed(200, answer.text, text, reason, calls, chunks[-1]["signalbox"]["degraded"])


@BOTH
@pytest.mark.parametrize("form", UNOFFERED.values(), ids=UNOFFERED)
async def test_a_call_that_was_not_offered_so_is_dropped_and_the_text_stands(chatting, form, stream):
    scripted(chatting, form.get("calls"), legacy=form.get("legacy"))
    options = {name: value for name, value in form.items() if name not in ("calls", "legacy")}
    passed = await ask(chatting, stream, **options)
    assert (passed.status, passed.text, passed.finish_reason) == (200, TEXT, "stop")
    assert passed.degraded == ["tool_call_dropped"]
    assert "tool_calls" not in passed.body
    assert "function_call" not in passed.body


@BOTH
@pytest.mark.parametrize(
    ("tools", "calls"),
    [
        ([tool()], [call()]),
        ([tool()], [call('{ "town" : "R\\u00ed\\u00f0e", "days": 3 }')]),
        ([tool(), tool("storms", None)], [call(), call("{}", "storms", "call_8"), call(RIBE, "weather", "call_9")]),
        ([tool(schema={"type": "object", "properties": {}})], [call("")]),
        ([{"type": "function", "function": {"name": "weather"}}], [call("{}")]),
        ([tool(schema={"$defs": {"t": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                       "properties": {"town": {"$ref": "#/$defs/t"}}})], [call()]),
        ([tool(schema={"properties": {"day": {"pattern": r"^\d{4}-\d{2}-\d{2}$"}}})], [call('{"day": "2026-11-22"}')]),
        ([tool(schema={"$schema": "http://json-schema.org/draft-07/schema#", **TOWN})], [call()]),
        ([tool(schema={"properties": {"n": {"items": {"multipleOf": 0.01}}}})], [call('{"n": [19.99, 0.07, 3]}')]),
        ([tool(schema={"properties": {"n": {"uniqueItems": True}}})], [call('{"n": [1, true, "1", 1.5, 0, false]}')]),
        ([tool(schema={"properties": {"n": {"minimum": 5, "exclusiveMinimum": False}}})], [call('{"n": 5}')]),
        ([tool(schema={"properties": {"n": {"minimum": 0, "exclusiveMinimum": True}}})], [call('{"n": 0.5}')]),
        ([tool(schema={"dependencies": {"town": ["day"], "to": False}})], [call('{"town": "Ribe", "day": 3}')]),
        ([tool(schema={"allOf": [{"$ref": "#/$defs/t"}], "$defs": {"t": {"properties": {"town": {}}}},
                       "properties": {"day": {}}, "unevaluatedProperties": False})], [call('{"town": "R", "day": 3}')]),
        ([tool(schema={"properties": {"n": {"items": [{"type": "string"}, {}], "additionalItems": False}}})],
         [call('{"n": ["a", 1]}')]),
        ([tool(schema={"properties": {"at": {"type": "object", "required": True}}})], [call('{"at": {}}')]),
        ([tool(strict=True)], [call('{"town": "Ribe", "days": 3}')]),
        ([tool(), tool(schema={"required": ["town"]})], [call()]),
        ([custom(), tool()], [custom_call(), call(id="call_8")]),
        ([custom(**regex(r"in|in \w+\?"))], [custom_call()]),
    ],
    ids=["one", "spelling", "parallel", "empty", "no schema", "references", "pattern", "draft 7", "multiples", "unique",
         "draft 4 includes", "draft 4 excludes", "dependencies", "unevaluated", "items by place",
         "required true", "strict", "offered twice", "custom",
         "grammar"],
)  # fmt: skip
async def test_a_call_as_it_was_offered_passes_unchanged_though_it_comes_in_pieces(chatting, tools, calls, stream):
    scripted(chatting, calls, text="Let me look.", cut=3)
    passed = await ask(chatting, stream, tools=tools)
    assert (passed.status, passed.text, passed.finish_reason) == (200, "Let me look.", "tool_calls")
    assert [{name: one[name] for name in one if name != "index"} for one in passed.calls] == calls
    assert passed.degraded == []


@BOTH
async def test_of_several_calls_only_those_that_were_offered_pass(chatting, stream):
    scripted(chatting, [call(id="a"), call(id="b", name="fetch"), call('{"town": 1}', id="c"), call(id="a")], cut=4)
    passed = await ask(chatting, stream, **WEATHER)
    assert ([one["id"] for one in passed.calls], passed.finish_reason) == (["a"], "tool_calls")
    assert passed.degraded == ["tool_call_dropped"]


@BOTH
async def test_where_one_call_at_a_time_was_wanted_only_the_first_passes(chatting, stream):
    scripted(chatting, [call(id="a"), call(id="b")], cut=9)
    passed = await ask(chatting, stream, **WEATHER, parallel_tool_calls=False)
    assert [one["id"] for one in passed.calls] == ["a"]
    assert passed.degraded == ["tool_call_dropped"]


def passing(*events: Any, tools: Any = ()) -> list[tuple[str, str]]:
    """The ids and arguments of the calls that pass, from the pieces of a stream's events."""
    calls = ToolCallAssembler()
    for pieces in events:
        calls.add(pieces)
    offered = [tool(), tool("now", {}), tool("nowhere", {}), *tools]
    passed = permitted_calls(calls.assembled_calls(), ModelOptions(tools=offered))
    return [(one["id"], one["function"]["arguments"]) for one in passed]


def piece(arguments: Any = None, **more: Any) -> dict[str, Any]:
    named = {"name": more.pop("name")} if "name" in more else {}
    return {**more, "function": {**named, "arguments": arguments}}


START, END = RIBE[:8], RIBE[8:]
NAMED = {"name": "weather"}
JOINED = {
    "an id that changes": ([piece(START, index=0, id="a", **NAMED)], [piece(END, index=0, id="b")]),
    "an id that changes with the name": (
        [piece(START, index=0, id="a", **NAMED)], [piece(END, index=0, id="b", **NAMED)],
    ),
    "an id that changes back": (
        [piece(START, index=0, id="a", **NAMED)], [piece("", index=0, id="b")], [piece(END, index=0, id="a")],
    ),
    "a name over two ids": (
        [piece("", index=0, id="a", name="now")], [piece("{}", index=0, id="b", name="here")],
    ),
    "an index in text": ([piece(RIBE, index="0", id="a", **NAMED)],),
    "an index in text, in pieces": ([piece(START, index="0", id="a", **NAMED)], [piece(END, index="0")]),
    "an index that is true": ([piece(RIBE, index=True, id="a", **NAMED)],),
    "an index with a fraction": ([piece(RIBE, index=0.0, id="a", **NAMED)],),
    "an index that is a list": ([piece(RIBE, index=[], id="a", **NAMED)],),
    "a type that is a list": ([piece(RIBE, index=0, type=[], id="a", **NAMED)],),
    "a type that changes": ([piece(START, index=0, id="a", **NAMED)], [piece(END, index=0, type="custom")]),
    "a whole call behind a cut one": (
        [piece(START, index=0, id="a", **NAMED)], [piece(RIBE, index=0, id="b", **NAMED)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("events", JOINED.values(), ids=JOINED)
async def test_pieces_that_are_not_of_one_call_are_not_joined_to_one(events):
    assert passing(*events) == []


async def test_an_index_that_is_no_integer_takes_no_other_call_with_it():
    assert passing([piece(RIBE, index=0, id="a", **NAMED)], [piece(RIBE, index="0", id="b", **NAMED)]) == [("a", RIBE)]


@pytest.mark.parametrize("index", [{}, {"index": None}, {"index": 0}], ids=["none", "null", "the same"])
async def test_whole_calls_one_after_the_other_both_pass_though_nothing_numbers_them(index):
    events = [[piece(RIBE, id=id, **NAMED, **index)] for id in "ab"]
    assert passing(*events) == [("a", RIBE), ("b", RIBE)]
    assert passing([piece(START, id="a", **NAMED, **index)], [piece(END, **index)], events[1]) == [
        ("a", RIBE),
        ("b", RIBE),
    ]
    assert passing(*[[piece(RIBE, **NAMED, **index)] for _ in "ab"]) == [("call_0", RIBE), ("call_1", RIBE)]


async def test_calls_in_one_event_without_an_index_both_pass():
    assert passing([piece(RIBE, index=None, id=id, **NAMED) for id in "ab"]) == [("a", RIBE), ("b", RIBE)]


@pytest.mark.parametrize("id", [{"id": "a"}, {}], ids=["with the id", "without an id"])
async def test_a_name_that_every_piece_repeats_is_one_name(id):
    events = [[piece(part, index=0, **NAMED, **id)] for part in ("", START, END, "")]
    assert passing(*events) == [(id.get("id", "call_0"), RIBE)]


async def test_a_name_in_pieces_is_joined():
    assert passing([piece("", index=0, id="a", name="wea")], [piece(RIBE, index=0, name="ther")]) == [("a", RIBE)]


SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}


@pytest.mark.parametrize(
    "events",
    [
        [
            [piece(RIBE, index=0, id="a", extra_content={"google": {}}, **NAMED)],
            [{"index": 0, "extra_content": SIGNED}],
        ],
        [[piece(RIBE, id="a", extra_content=SIGNED, **NAMED)], [{"extra_content": "none"}]],
        [[piece(RIBE, index=0, id="b", **NAMED), piece(RIBE, index=1, id="a", **NAMED)], [{"extra_content": SIGNED}]],
    ],
    ids=["the last one", "in one piece", "behind the last call"],
)
async def test_what_a_server_adds_to_a_call_is_passed_on_with_it(events):
    calls = ToolCallAssembler()
    for pieces in events:
        calls.add(pieces)
    passed = permitted_calls(calls.assembled_calls(), ModelOptions(tools=[tool()]))
    assert passed[-1] == call(id="a", extra_content=SIGNED)


@pytest.mark.parametrize("extra", [{"a": "\ud800"}, {"a": "x" * LONGEST_ARGUMENTS}, {"a": DEEP}, [], "x"])
async def test_an_addition_that_cannot_be_passed_on_is_left_out(extra):
    calls = ToolCallAssembler()
    calls.add([piece(RIBE, index=0, id="call_7", extra_content=extra, **NAMED)])
    assert permitted_calls(calls.assembled_calls(), ModelOptions(tools=[tool()])) == (call(),)


async def test_pieces_without_an_index_belong_to_the_call_with_their_id():
    begun = [piece(START, id=id, **NAMED) for id in "ab"]
    assert passing(begun, [piece(END, id="b")], [piece(END, id="a")]) == [("a", RIBE), ("b", RIBE)]
    assert passing([piece(RIBE, id="a", **NAMED), piece(RIBE, id="a", **NAMED)]) == [("a", RIBE)]


async def test_whole_custom_calls_one_after_the_other_both_pass():
    calls = ToolCallAssembler()
    for id in "ab":
        calls.add([custom_call(id=id)])
        calls.add([{"index": 0}])
    passed = permitted_calls(calls.assembled_calls(), ModelOptions(tools=[custom()]))
    assert passed == (custom_call(id="a"), custom_call(id="b"))


async def test_many_pieces_that_repeat_the_name_take_no_time_that_grows_with_the_square():
    calls = ToolCallAssembler()
    began = time.thread_time()
    calls.add([piece('{"town": "', index=0, **NAMED)])
    for _ in range(100_000):
        calls.add([piece("}", index=0, **NAMED)])
    assert time.thread_time() - began < 5


async def test_very_many_evaluated_properties_are_looked_up_within_the_processor_time():
    names = {f"p{n}": {} for n in range(8_000)}
    parts = {"$defs": {"t": {"properties": names}}, "allOf": [{"$ref": "#/$defs/t"}] * 2_000}
    tools = [tool(schema={**parts, "unevaluatedProperties": False})]
    arguments = json.dumps({f"q{n}": 1 for n in range(15_000)})
    began = time.thread_time()
    assert permitted_calls([call(arguments)], ModelOptions(tools=tools)) == ()
    assert time.thread_time() - began < 5


async def test_names_that_very_many_parts_evaluate_are_looked_up_within_the_processor_time(
    monkeypatch: pytest.MonkeyPatch,
):
    """The list has a name for each part, so a look-up may take long: there is none after the time is over."""
    late = iter([False] * 3 + [True] * 20_000)
    looked_up = 0

    def evaluated(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
        nonlocal looked_up
        for _ in instance:
            looked_up += 1
        yield from ()

    evaluator = tool_call_check._CallValidator({})
    monkeypatch.setattr(evaluator, "_check_time", lambda: late_now(late))
    check = evaluator._unevaluated_properties(evaluated)
    with pytest.raises(tool_call_check._Unevaluable):
        list(check(None, False, {f"q{n}": 1 for n in range(15_000)}, {}))
    assert looked_up == 3


def late_now(late: Iterator[bool]) -> None:
    if next(late):
        raise tool_call_check._Unevaluable


@BOTH
@pytest.mark.parametrize("text", [TEXT, ""], ids=["text", "no text"])
async def test_a_call_with_too_long_arguments_is_dropped_and_is_no_answer_that_broke_off(chatting, text, stream):
    town = "R" * (LONGEST_ARGUMENTS // 2)
    scripted(chatting, [call(id="a"), call(json.dumps({"town": town + town}), id="b")], text=text, cut=20_000)
    passed = await ask(chatting, stream, **WEATHER)
    assert (passed.status, passed.text or "", passed.finish_reason) == (200, text, "tool_calls")
    assert [one["id"] for one in passed.calls] == ["a"]
    assert passed.degraded == ["tool_call_dropped"]


@BOTH
async def test_calls_beyond_the_most_are_dropped_and_the_first_ones_pass(chatting, stream):
    scripted(chatting, [{**call(id=f"c{n}"), "index": n} for n in range(MOST_CALLS + 2)])
    passed = await ask(chatting, stream, **WEATHER)
    assert [one["id"] for one in passed.calls] == [f"c{n}" for n in range(MOST_CALLS)]
    assert (passed.text, passed.degraded) == (TEXT, ["tool_call_dropped"])


@BOTH
async def test_where_the_model_says_nothing_but_a_dropped_call_the_passages_stand_in(chatting, stream):
    scripted(chatting, [call(name="fetch")], text="")
    passed = await ask(chatting, stream, **WEATHER)
    assert "faster than 25 m/s" in passed.text
    assert (passed.finish_reason, passed.calls) == ("stop", [])
    assert passed.degraded == ["tool_call_dropped"]


async def test_no_passage_stands_in_where_the_answer_must_be_of_a_form(chatting):
    scripted(chatting, [call(name="fetch")], text="")
    passed = await ask(chatting, False, response_format={"type": "json_object"})
    assert passed.status == 503
    assert "fetch" not in passed.body


async def test_asking_and_chatting_in_python_drop_such_calls_too(chatting):
    for ask_it in (chatting.service.ask, chatting.service.chat):
        scripted(chatting, [call(name="fetch")])
        answer = await ask_it("When does the rotor stop?", model_options=WEATHER)
        assert (answer.finish_reason, answer.tool_calls) == ("stop", ())
        assert answer.degraded == ("tool_call_dropped",)


async def test_calls_against_hostile_schemas_share_one_budget_of_processor_time():
    tools = [tool(f"t{n}", doubled("allOf")) for n in range(50)]
    calls = tuple(call(name=f"t{n}", id=f"c{n}") for n in range(50))
    began = time.thread_time()
    assert permitted_calls(calls, ModelOptions(tools=tools)) == ()
    # Each would take for ever; fifty together take the budget of 0.5 s, on any machine.
    assert time.thread_time() - began < 5


class Counted(dict[str, Any]):
    """A schema that counts how often it is read."""

    reads = 0

    def items(self) -> Any:
        self.reads += 1
        return super().items()


def counted() -> Counted:
    """A schema of almost all the characters that a request's tools may have."""
    return Counted({**TOWN, "description": "x" * (MOST_TOOL_CHARACTERS - 10_000)})


async def test_a_schema_is_read_once_for_all_calls_of_its_tool():
    options = ModelOptions(tools=[tool(schema=(schema := counted()))])
    schema.reads = 0
    calls = tuple(call(id=f"c{n}") for n in range(128))
    assert permitted_calls(calls, options) == calls
    assert schema.reads == 1


async def test_once_the_processor_time_is_used_up_no_other_schema_is_read():
    options = ModelOptions(tools=[tool("slow", doubled("allOf")), tool(schema=(schema := counted()))])
    schema.reads = 0
    assert permitted_calls([call(name="slow"), *(call(id=f"c{n}") for n in range(127))], options) == ()
    assert schema.reads == 0


LARGE = MOST_TOOL_CHARACTERS // 2
LIMITED = f"{MOST_TOOL_CHARACTERS:,}"


@pytest.mark.parametrize(
    ("tools", "limit"),
    [
        ([tool(schema={"enum": ["x" * MOST_TOOL_CHARACTERS]})], LIMITED),
        ([tool(f"t{n}", {"enum": ["x" * LARGE]}) for n in range(2)], LIMITED),
        ([{"type": "function", "function": {"name": "weather", "description": "风" * MOST_TOOL_CHARACTERS}}], LIMITED),
        ([{"type": "custom", "x" * MOST_TOOL_CHARACTERS: 1}], LIMITED),
        ([tool(schema={"enum": list(range(LARGE))})], "10,000"),
        ([tool(f"t{n}") for n in range(MOST_TOOLS + 1)], str(MOST_TOOLS)),
    ],
    ids=["one", "together", "description", "key", "values", "many"],
)
async def test_more_tools_than_a_request_may_offer_are_refused_with_the_limit_named(chatting, tools, limit):
    passed = await ask(chatting, False, tools=tools)
    assert passed.status == 400
    assert limit in json.loads(passed.body)["error"]["message"]
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}, timeout=240) as client:
        body = {"query": "When does the rotor stop?", "model_options": {"tools": tools}}
        answer = await client.post(f"{chatting.url}/v1/ask", json=body)
    assert answer.status_code == 422
    assert limit in answer.json()["errors"][0]["detail"]


async def test_as_many_tools_as_a_request_may_offer_are_taken(chatting):
    tools = [tool(f"t{n}", {"description": "风" * (LARGE // MOST_TOOLS)}) for n in range(MOST_TOOLS)]
    scripted(chatting, [call(name="t127")])
    passed = await ask(chatting, False, tools=tools)
    assert (passed.status, [one["function"]["name"] for one in passed.calls]) == (200, ["t127"])


@pytest.mark.parametrize("value", [{1}, object(), DEEP], ids=["a set", "an object", "deep"])
async def test_tools_that_are_no_json_are_refused_in_python_too(chatting, value):
    with pytest.raises(BadRequest, match="tools"):
        await chatting.service.ask("When does the rotor stop?", model_options={"tools": [tool(schema=value)]})
