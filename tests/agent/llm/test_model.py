"""The model client against real HTTP: forms of output, faults, deadlines, recordings."""

import asyncio
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from agent.errors import BadSetting
from agent.llm.call_log import CallLog, ModelCall
from agent.llm.chat_client import LiteLLMChatClient
from agent.llm.chat_model import ChatModel
from agent.llm.model import CallUsage, Model, ModelFailed, Reply
from agent.llm.model_factory import open_model
from agent.llm.recording import ReplayModel
from agent.llm.reply_format import ReplyFormat
from agent.llm.reply_json import BadReply, extract_json, parse, strict_schema, strip_reasoning
from agent.testing import Fault, ScriptedServer
from retrievers.core.errors import RetrievalError, Unavailable

KEY = "sk-very-secret-key-0123"
ASKED = [{"role": "user", "content": "What is the capital of France?"}]


class City(BaseModel):
    city: str
    inhabitants: int = 0


PARIS = '{"city": "Paris", "inhabitants": 2000000}'


@asynccontextmanager
async def model_at(server: ScriptedServer | str, name: str = "openai/small") -> AsyncIterator[Model]:
    address = server if isinstance(server, str) else server.base_url
    model = open_model(name, base_url=address, api_key=KEY)
    assert model is not None
    yield model
    await model.aclose()


async def ask(model: Model, schema: type[BaseModel] | None = City, timeout_s: float = 20.0) -> Reply:
    deadline = time.monotonic() + timeout_s
    return await model.complete(ASKED, stage="test", deadline=deadline, key={"question": "capital?"}, schema=schema)


async def failure(
    server: ScriptedServer, schema: type[BaseModel] | None = City, timeout_s: float = 20.0
) -> ModelFailed:
    async with model_at(server) as model:
        with pytest.raises(ModelFailed) as caught:
            await ask(model, schema, timeout_s)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    return caught.value


def refusing(*parts: str, status: int = 400, says: str = "{part} is not supported", reply: str = PARIS) -> Any:
    """Faults for a server that refuses requests having one of these parts, by its own judgement of each body."""
    server: ScriptedServer

    def faults() -> Any:
        while True:
            body = server.requests[-1].body
            part = next((part for part in parts if part in json.dumps(body)), None)
            error = {"error": {"message": says.format(part=part), "type": "invalid_request_error"}}
            yield Fault(status=status, body=json.dumps(error)) if part else None

    server = ScriptedServer(lambda body: reply, faults=faults())
    return server


# --- what a caller gets


async def test_a_reply_is_the_schema_with_what_it_took():
    with ScriptedServer([PARIS]) as server:
        async with model_at(server) as model:
            reply = await ask(model)
    assert reply.parsed == City(city="Paris", inhabitants=2_000_000)
    assert (reply.text, reply.model, reply.attempts) == (PARIS, "small", 1)
    assert reply.usage == CallUsage(6, 4, None)
    assert 0 < reply.elapsed_ms < 20_000
    sent = server.requests[0].body
    assert sent["messages"] == ASKED
    assert sent["temperature"] == 0
    schema = sent["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["required"] == ["city", "inhabitants"]
    assert schema["schema"]["additionalProperties"] is False
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_without_a_schema_the_text_comes_as_it_is():
    with ScriptedServer(["<think>France...</think>\nParis."]) as server:
        async with model_at(server) as model:
            reply = await ask(model, None)
    assert (reply.text, reply.parsed) == ("<think>France...</think>\nParis.", None)
    assert "response_format" not in server.requests[0].body


async def test_whoever_wrote_a_message_it_is_sent_without_what_nobody_sees():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"a\\u200b\u202eb <s>"}'}}
    plain = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"at" :"a"}'}}
    cut = {"id": "c3", "type": "function", "function": {"name": "look", "arguments": '{"at":"\u200b'}}
    said = [
        {"role": "system", "content": "Be\u200b brief."},
        {"role": "user", "content": "Hi \U000e0041<|im_start|>"},
        {"role": "assistant", "content": None, "tool_calls": [call, plain, cut]},
        {"role": "tool", "tool_call_id": "c1", "content": "[IN\u2060ST]" * 5000},
    ]
    with ScriptedServer(["fine"]) as server:
        async with model_at(server) as model:
            async for _ in model.stream(said, stage="s", deadline=time.monotonic() + 9, key={}):
                pass
    system, user, assistant, tool = server.requests[0].body["messages"]
    assert [system["content"], user["content"]] == ["Be brief.", "Hi < |im_start|>"]
    sent = [one["function"]["arguments"] for one in assistant["tool_calls"]]
    assert sent == ['{"at": "ab < s>"}', '{"at" :"a"}', '{"at":"']
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "[ INST]" * 5000}
    assert said[1]["content"] == "Hi \U000e0041<|im_start|>"


async def test_the_texts_of_tools_and_of_the_form_are_cleaned_and_what_a_program_compares_is_not():
    hidden = "a\u200b\U000e0041<s>"
    schema = {
        "type": "object", "title": hidden, "description": hidden, "required": [hidden], "x-note": [hidden],
        "properties": {
            hidden: {"type": "string", "description": hidden, "enum": [hidden], "pattern": hidden, "default": hidden},
            "name": {"description": hidden, "anyOf": [{"const": hidden, "title": hidden}, {"$ref": hidden}]},
            "enum": {"items": {"description": hidden}, "examples": [hidden]},
        },
        "$defs": {"default": {"description": hidden}},
        "dependencies": {"default": {"description": hidden}, "title": [hidden]},
    }  # fmt: skip
    cleaned = json.loads(json.dumps(schema))
    cleaned |= {"title": "a< s>", "description": "a< s>", "x-note": ["a< s>"]}
    cleaned["properties"][hidden]["description"] = "a< s>"
    cleaned["properties"]["name"]["description"] = cleaned["properties"]["name"]["anyOf"][0]["title"] = "a< s>"
    cleaned["properties"]["enum"]["items"] = cleaned["$defs"]["default"] = {"description": "a< s>"}
    cleaned["dependencies"]["default"] = {"description": "a< s>"}
    options = {
        "tools": [
            {"type": "function", "function": {"name": hidden, "description": hidden * 5000, "parameters": schema}},
            {"type": "custom", "custom": {"name": "c", "description": hidden, "format": {"definition": "<s>"}}},
        ],
        "response_format": {"type": "json_schema", "json_schema": {"name": hidden, "schema": schema}},
        "stop": [hidden],
    }
    sent = json.loads(json.dumps(options))
    sent["tools"][0]["function"] |= {"description": "a< s>" * 5000, "parameters": cleaned}
    sent["tools"][1]["custom"]["description"] = "a< s>"
    sent["response_format"]["json_schema"]["schema"] = cleaned
    with ScriptedServer(["fine"]) as server:
        async with model_at(server) as model:
            async for _ in model.stream(ASKED, stage="s", deadline=time.monotonic() + 9, key={}, options=options):
                pass
    assert {name: server.requests[0].body[name] for name in options} == sent
    assert options["response_format"]["json_schema"]["schema"]["title"] == hidden


async def test_half_a_surrogate_pair_in_a_question_is_no_obstacle():
    with ScriptedServer(["fine"]) as server:
        async with model_at(server) as model:
            said = [{"role": "user", "content": "a\ud800b"}]
            await model.complete(said, stage="s", deadline=time.monotonic() + 9, key={"question": "a\ud800b"})
    assert server.requests[0].body["messages"][0]["content"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("openai/small", "small"), ("small", "small"), ("ollama/llama3:8b", "llama3:8b"), ("gpt-5-mini", "gpt-5-mini"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("anthropic/claude", "anthropic/claude"), ("aiohttp_openai/small", "small"),
    ],
)  # fmt: skip
async def test_any_model_at_an_address_is_asked_for_by_the_name_the_server_knows(name: str, sent: str):
    with ScriptedServer(["ok"]) as server:
        async with model_at(server, name) as model:
            await ask(model, None)
    assert server.requests[0].body["model"] == sent


async def test_no_key_and_no_address_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with ScriptedServer(["ok"]) as server:
        model = open_model("openai/small", base_url=server.base_url)
        assert model is not None
        await ask(model, None)
        await model.aclose()
    assert KEY not in server.requests[0].headers["authorization"]


# --- words around the JSON


@pytest.mark.parametrize(
    "text",
    [
        PARIS,
        f"\ufeff  {PARIS}\n",
        f"```json\n{PARIS}\n```",
        f"```\n{PARIS}\n```",
        f"```json\n{PARIS}",
        f"Sure! Here it is:\n\n{PARIS}\n\nAnything else?",
        f"Here:\n```json\n{PARIS}\n```\nThe {{}} braces are JSON.",
        f"<think>The user wants {{a city}}: {{'x'}}...</think>{PARIS}",
        f"<THINKING>\nhm\n</THINKING>\n<think>well</think>\n```json\n{PARIS}\n```",
        f"I think it is Paris.</think>\n{PARIS}",
        f"Using {{braces}} and {{}} first, then {PARIS} }}",
        json.dumps(PARIS),
        PARIS.replace("}", ', "unknown": {"deep": [1, 2]}}'),
    ],
)
async def test_thoughts_fences_and_chatter_are_taken_off(text: str):
    with ScriptedServer([text]) as server:
        async with model_at(server) as model:
            reply = await ask(model)
    assert reply.parsed == City(city="Paris", inhabitants=2_000_000)
    assert reply.text == text
    assert len(server.requests) == 1


def test_tags_inside_an_answer_are_part_of_it():
    said = json.dumps({"city": "what does <think> do, and </think>?"})
    assert parse(said, City).city == "what does <think> do, and </think>?"
    assert strip_reasoning("Use <think> tags") == "Use <think> tags"
    assert strip_reasoning("<think>never ends") == ""
    assert strip_reasoning("<think>Paris</think>The tag </think> ends a thought") == "The tag </think> ends a thought"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("<think>Paris, I guess", "it is empty"),
        ("I'm sorry, but I can't help with that.", "no JSON object"),
        ("<html><body>502 Bad Gateway</body></html>", "no JSON object"),
        (PARIS[:-3], "broken or cut short"),
        ('{"city": {"name": "Paris"}, "inhab', "broken or cut short"),
        ('{"city": "Paris", "inhabitants": NaN}', "NaN"),
        ('{"city": "Paris", "inhabitants": -Infinity}', "NaN"),
        ('{"city": "Paris", "inhabitants": 1e999}', "NaN"),
        ('{"city": "Paris", "inhabitants": ' + "9" * 5000 + "}", "too many digits"),
        ('{"city": 7, "inhabitants": "many"}', "city: "),
        ('{"inhabitants": 3}', "city: Field required"),
        ("[1, 2]", "the reply: "),
        ('"Paris"', "the reply: "),
        ('{"city": ' * 100_000, ""),
        ("[" * 100_000, ""),
        ("{" * 100_000, ""),
    ],
)
def test_what_is_no_reply_is_refused_with_a_reason_that_repeats_nothing(text: str, reason: str):
    with pytest.raises(BadReply) as caught:
        parse(text, City)
    assert reason in caught.value.reason
    assert "Paris" not in caught.value.reason
    assert len(caught.value.reason) < 500


def test_an_object_inside_a_broken_one_is_not_taken_for_the_whole():
    with pytest.raises(BadReply):
        extract_json('{"searches": ["x"], "filter": {"type": "eq", "key": "a", "value": 1}, "sea')


def test_fields_named_like_keywords_of_a_schema_survive_the_strict_form():
    class Odd(BaseModel):
        title: str
        pattern: int = 3
        inner: list[City] = []

    schema = strict_schema(Odd)
    assert list(schema["properties"]) == schema["required"] == ["title", "pattern", "inner"]
    assert schema["$defs"]["City"]["additionalProperties"] is False
    assert '"default"' not in json.dumps(schema)


# --- repair


async def test_one_repair_is_tried_with_the_error_and_the_shape():
    with ScriptedServer(['{"city": 7}', PARIS]) as server:
        async with model_at(server) as model:
            reply = await ask(model)
    assert reply.parsed.city == "Paris"
    assert reply.attempts == 2
    assert reply.usage.completion_tokens == 2 + 4
    asked, said, repair = server.requests[1].body["messages"]
    assert (asked, said) == (ASKED[0], {"role": "assistant", "content": '{"city": 7}'})
    assert "city: Input should be a valid string" in repair["content"]
    assert '"inhabitants"' in repair["content"]


async def test_a_second_bad_reply_ends_it():
    with ScriptedServer(["no idea", "still none", PARIS]) as server:
        error = await failure(server)
    assert error.reason == "neither its reply nor the repaired reply can be used: it contains no JSON object"
    assert len(server.requests) == 2


async def test_no_repair_is_begun_that_the_deadline_would_cut(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(monotonic=time.monotonic)
    monkeypatch.setattr("agent.llm.chat_model.time", clock)
    monkeypatch.setattr("agent.llm.retries.time", clock)

    def reply(body: dict[str, Any]) -> str:
        clock.monotonic = lambda: time.monotonic() + 45
        return "no idea"

    with ScriptedServer(reply) as server:
        error = await failure(server, timeout_s=60)
    assert error.reason == "its reply cannot be used: it contains no JSON object"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ({"finish_reason": "length", "message": {"content": PARIS[:9]}}, "cut at the token limit"),
        ({"finish_reason": "content_filter", "message": {"content": ""}}, "filter stopped"),
        ({"finish_reason": "stop", "message": {"content": None, "refusal": f"I will not, {KEY}"}}, "refused to answer"),
    ],
)
async def test_what_a_repair_cannot_mend_is_not_repaired(choice: dict[str, Any], reason: str):
    with ScriptedServer([PARIS], faults=[Fault(body=json.dumps({"choices": [choice]}))]) as server:
        error = await failure(server)
    assert reason in error.reason
    assert len(server.requests) == 1


# --- the ladder


async def test_a_refused_form_is_left_for_the_next_and_remembered():
    with refusing("json_schema") as server:
        async with model_at(server) as model:
            first, second = await ask(model), await ask(model)
    assert first.parsed == second.parsed == City(city="Paris", inhabitants=2_000_000)
    assert (first.attempts, second.attempts) == (2, 1)
    formats = [(request.body.get("response_format") or {}).get("type") for request in server.requests]
    assert formats == ["json_schema", "json_object", "json_object"]
    assert '"inhabitants"' in server.requests[1].body["messages"][-1]["content"]
    assert ASKED == [{"role": "user", "content": "What is the capital of France?"}]


@pytest.mark.parametrize("status", [400, 404, 422, 501])
async def test_down_to_a_tool_call(status: int):
    with refusing("response_format", status=status) as server:
        server._reply = lambda body: {
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "reply", "arguments": PARIS}}],
        }
        async with model_at(server) as model:
            reply = await ask(model)
    assert reply.parsed.city == "Paris"
    assert reply.attempts == 3
    assert server.requests[-1].body["tool_choice"]["function"]["name"] == "reply"


async def test_down_to_plain_text():
    with refusing("response_format", "tools", reply=f"Here you are: {PARIS}") as server:
        async with model_at(server) as model:
            replies = [await ask(model), await ask(model)]
    assert [reply.attempts for reply in replies] == [4, 1]
    assert "tools" not in server.requests[-1].body


async def test_a_refusal_without_a_reason_costs_three_requests_and_teaches_nothing():
    with ScriptedServer(faults=itertools.repeat(Fault(status=400))) as server:
        async with model_at(server) as model:
            for _ in range(2):
                with pytest.raises(ModelFailed, match="HTTP 400, the server rejects the request"):
                    await ask(model)
            assert isinstance(model, ChatModel)
            assert model._rung is ReplyFormat.SCHEMA
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("status", "says", "reason"),
    [
        (404, "The model `small` does not exist", "the server has no model small"),
        (400, "This model's maximum context length is 8192 tokens", "the prompt is too long for the model"),
    ],
)
async def test_what_no_other_form_would_change_is_not_tried_in_another(status: int, says: str, reason: str):
    with refusing("response_format", status=status, says=says) as server:
        error = await failure(server)
    assert error.reason == reason
    assert len(server.requests) == 1


async def test_a_model_that_knows_no_temperature_is_asked_without():
    with refusing("temperature", says="'temperature' does not support 0 with this model") as server:
        async with model_at(server) as model:
            replies = [await ask(model), await ask(model)]
    assert [reply.attempts for reply in replies] == [2, 1]
    assert server.requests[1].body["response_format"]["type"] == "json_schema"


async def test_a_server_that_fails_over_a_schema_refuses_it():
    with refusing("json_schema", status=500, says="guided decoding: cannot compile json_schema") as server:
        async with model_at(server) as model:
            assert (await ask(model)).attempts == 2


async def test_a_server_that_ignores_the_schema_is_shown_it_from_the_third_call_on():
    def reply(body: dict[str, Any]) -> str:
        return PARIS if "JSON schema" in body["messages"][-1]["content"] else "Paris, of course."

    with ScriptedServer(reply) as server:
        async with model_at(server) as model:
            replies = [await ask(model) for _ in range(3)]
    assert [reply.attempts for reply in replies] == [2, 2, 1]


# --- what goes wrong


@pytest.mark.parametrize(
    "fault", [*(Fault(status=status) for status in (429, 500, 502, 503, 504)), Fault(reset=True), Fault(truncated=True)]
)
async def test_a_failure_that_may_pass_is_tried_three_times(fault: Fault):
    with ScriptedServer(lambda body: PARIS, faults=[fault, fault]) as server:
        async with model_at(server) as model:
            reply = await ask(model)
    assert reply.parsed.city == "Paris"
    assert reply.attempts == len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(status=503), "after 3 tries: HTTP 503, the server failed"),
        (Fault(status=429), "after 3 tries: HTTP 429, too many requests, or the quota is used up"),
        (Fault(reset=True), "after 3 tries: the connection failed"),
        (Fault(truncated=True), "after 3 tries: the connection failed"),
    ],
)
async def test_there_is_no_second_retry_loop_below(fault: Fault, reason: str):
    with ScriptedServer(faults=itertools.repeat(fault)) as server:
        error = await failure(server)
    assert error.reason == reason
    assert len(server.requests) == 3


async def test_repair_and_first_answer_share_the_retries():
    faults = [Fault(status=503), None, Fault(status=503), Fault(status=503), Fault(status=503)]
    with ScriptedServer(["no idea", PARIS], faults=faults) as server:
        error = await failure(server)
    assert error.reason == "after 2 tries: HTTP 503, the server failed"
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "the API key is rejected"), (403, "the API key has no access to the model")]
)
async def test_a_refused_key_is_not_repeated_nor_shown(status: int, reason: str):
    body = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with ScriptedServer(faults=itertools.repeat(Fault(status=status, body=body))) as server:
        error = await failure(server)
    assert error.reason == f"HTTP {status}, {reason}"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "not JSON"),
        ("<html>502 Bad Gateway</html>", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[" * 20_000, "more than 50 levels"),
        ("[" * 100_000, "brackets that are not closed"),
        ("[]", "not a JSON object"),
        ("{}", "no message"),
        ('{"choices": []}', "no message"),
        ('{"choices": [{"message": "hi"}]}', "no message"),
        (json.dumps({"error": {"message": KEY}}), "contains an error"),
        ("x" * (5 << 20), "longer than 4 MiB"),
        (json.dumps({"choices": [{"message": {"content": ""}}]}), "nor the repaired reply can be used: it is empty"),
        (json.dumps({"choices": [{"message": {"content": 7, "tool_calls": [1, {"function": 2}]}}]}), "it is empty"),
    ],
)
async def test_an_answer_of_the_wrong_shape_ends_it(body: str | bytes, reason: str):
    with ScriptedServer(lambda _: PARIS, faults=itertools.repeat(Fault(body=body))) as server:
        error = await failure(server)
    assert reason in error.reason
    assert len(server.requests) <= 2


async def test_a_content_in_parts_and_usage_of_any_kind_are_taken():
    message = {"content": [{"type": "text", "text": PARIS[:9]}, {"type": "text", "text": PARIS[9:]}, 3]}
    body = {"choices": [{"message": message}], "usage": {"prompt_tokens": "many", "completion_tokens": 5, "cost": 0.25}}
    with ScriptedServer([PARIS], faults=[Fault(body=json.dumps(body))]) as server:
        async with model_at(server) as model:
            reply = await ask(model)
    assert reply.parsed.city == "Paris"
    assert reply.usage == CallUsage(0, 5, 0.25)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=429), "down"),
        (Fault(status=503), "down"),
        (Fault(reset=True), "down"),
        (Fault(truncated=True), "down"),
        (Fault(delay_s=30), "late"),
        (Fault(status=401), "answer"),
        (Fault(status=413), "answer"),
        (Fault(body="<html>"), "answer"),
        (Fault(body='{"choices": []}'), "answer"),
    ],
)
async def test_a_failure_says_whether_the_server_the_deadline_or_the_answer_is_at_fault(fault: Fault, kind: str):
    with ScriptedServer([PARIS], faults=itertools.repeat(fault)) as server:
        async with model_at(server) as model:
            deadline = time.monotonic() + (0.3 if kind == "late" else 9)
            with pytest.raises(ModelFailed) as caught:
                await model.complete(ASKED, stage="test", deadline=deadline, key={}, schema=City)
    assert caught.value.fault == kind


async def test_a_silent_server_is_left_at_the_deadline():
    with ScriptedServer([PARIS], faults=itertools.repeat(Fault(delay_s=30))) as server:
        error = await failure(server, timeout_s=1)
    assert error.reason == "no answer within 1 s"
    assert len(server.requests) == 1


async def test_a_dripping_answer_is_left_at_the_deadline():
    """Each byte comes soon enough for a timeout per read."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
        try:
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with model_at(f"http://127.0.0.1:{port}/v1") as model:
        with pytest.raises(ModelFailed, match=r"no answer within 0\.4 s"):
            await ask(model, timeout_s=0.4)
    server.close()
    await asyncio.sleep(0.1)


async def test_a_wait_the_deadline_does_not_allow_is_not_begun():
    fault = Fault(status=429, headers={"Retry-After": "20"})
    with ScriptedServer([PARIS], faults=itertools.repeat(fault)) as server:
        error = await failure(server, timeout_s=5)
    assert (len(server.requests), error.retry_after_s) == (1, 20)


async def test_a_wait_that_is_asked_for_is_kept():
    with ScriptedServer([PARIS], faults=[Fault(status=429, headers={"Retry-After": "1"})]) as server:
        async with model_at(server) as model:
            started = time.monotonic()
            await ask(model)
    assert time.monotonic() - started >= 1.0


async def test_without_time_nothing_is_sent():
    with ScriptedServer([PARIS]) as server:
        error = await failure(server, timeout_s=-1)
    assert error.reason == "no time was left for the call"
    assert server.requests == []


async def test_a_server_that_is_not_there_is_unavailable_like_any_source():
    with ScriptedServer() as server:
        gone = server.base_url
    async with model_at(gone) as model:
        with pytest.raises(Unavailable) as caught:
            await ask(model, None)
    assert caught.value.source == "model"
    assert str(caught.value) == "the model is unavailable: after 3 tries: the connection failed"


async def test_a_cancelled_call_stops_at_once():
    with ScriptedServer([PARIS], faults=itertools.repeat(Fault(delay_s=600))) as server:
        async with model_at(server) as model:
            calls = CallLog()
            task = asyncio.create_task(ask(calls.logged_model(model), timeout_s=600))
            await asyncio.to_thread(server.request_arrived.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    (call,) = calls.records
    assert call.attempts == 1
    assert call.error is not None
    assert re.fullmatch(r"no answer within [\d.e-]+ s", call.error)
    assert len(server.requests) == 1


# --- recordings and traces


async def test_what_was_recorded_is_replayed_whatever_the_prompt_says_now(tmp_path: Path):
    file = tmp_path / "calls.jsonl"
    odd = json.dumps({"choices": [{"message": {"content": "<think>\u2028\ud800</think>Bonjour"}}]})
    with ScriptedServer([PARIS, "replaced"], faults=[None, Fault(body=odd)]) as server:
        async with model_at(server, f"record:{file}=openai/small") as model:
            first = await ask(model)
            deadline = time.monotonic() + 9
            key = {"question": "你好?", "history": [{"role": "user", "content": "a"}]}
            said = await model.complete(ASKED, stage="other", deadline=deadline, key=key)
    assert len(file.read_text(encoding="utf-8").split("\n")) == 3

    replay = open_model(f"replay:{file}")
    assert replay is not None
    again = await replay.complete([], stage="test", deadline=0, key={"question": "capital?"}, schema=City)
    assert (again.parsed, again.text, again.usage) == (first.parsed, first.text, first.usage)
    key = {"history": [{"content": "a", "role": "user"}], "question": "你好?"}
    assert (await replay.complete([], stage="other", deadline=0, key=key)).text == said.text.replace("\ud800", "?")
    assert await replay.probe(0) == f"the recording {file}, 2 replies"
    for stage, key in (("other", {"question": "capital?"}), ("test", {"question": "capital?", "date": "2026-01-01"})):
        with pytest.raises(ModelFailed) as caught:
            await replay.complete([], stage=stage, deadline=0, key=key)
        expected = f'the recording {file} has no reply for stage "{stage}", question "capital?" and the rest of the key'
        assert caught.value.reason == expected


async def test_failures_are_not_recorded_and_a_later_line_counts(tmp_path: Path):
    file = tmp_path / "calls.jsonl"
    lines = [
        {"stage": "test", "key": {"question": "capital?"}, "reply": {"city": "Lyon"}, "note": "old"},
        {"stage": "test", "key": {"question": "capital?"}, "reply": {"city": "Paris"}, "model": "m", "usage": None},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    with ScriptedServer(faults=[Fault(status=401)]) as server:
        async with model_at(server, f"record:{file}=openai/small") as model:
            with pytest.raises(ModelFailed):
                await ask(model)
    replay = ReplayModel.read(file)
    assert (await ask(replay)).parsed == City(city="Paris")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: Expecting property name"),
        ("[]", 'line 2: it is not an object with a "stage"'),
        ('{"stage": "a"}', 'line 2: its "key" is not an object'),
        ('{"stage": "a", "key": {}}', 'line 2: it has neither a "reply" nor a "text"'),
        ("[" * 100_000, "line 2: "),
    ],
)
def test_a_recording_that_cannot_be_read_names_the_line(tmp_path: Path, line: str, reason: str):
    file = tmp_path / "calls.jsonl"
    file.write_text(f'{{"stage": "a", "key": {{}}, "text": "x"}}\n{line}\n')
    with pytest.raises(BadSetting) as caught:
        open_model(f"replay:{file}")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("replay:/nowhere/at/all", {}, "cannot be read"),
        ("record:/nowhere/at/all=openai/x", {}, "cannot be written"),
        ("record:file", {}, "record:FILE=MODEL"),
        ("record:a=replay:b", {}, "record:FILE=MODEL"),
        ("openai/x", {"base_url": "localhost:8000"}, "LLM_BASE_URL must begin with http"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_without_the_key(name: str, options: dict[str, str], reason: str):
    with pytest.raises(RetrievalError) as caught:
        open_model(name, **options)
    assert reason in str(caught.value)
    assert "0123" not in str(caught.value)


def test_no_model_is_set():
    assert open_model(None) is open_model("") is None


async def test_the_calls_of_a_request_can_be_stored_and_answer_again():
    with ScriptedServer([PARIS, "no idea", "none"]) as server:
        async with model_at(server) as model:
            calls = CallLog()
            watched = calls.logged_model(model)
            assert watched.name == "openai/small"
            await ask(watched)
            deadline = time.monotonic() + 9
            with pytest.raises(ModelFailed):
                await watched.complete(ASKED, stage="b", deadline=deadline, key={"n": 1}, schema=City)
    stored = json.loads(json.dumps(calls.to_json()))
    assert [(one["stage"], one["text"], one["attempts"]) for one in stored] == [("test", PARIS, 1), ("b", None, 2)]
    assert stored[0]["usage"] == {"prompt_tokens": 6, "completion_tokens": 4, "cost": None}
    assert KEY not in json.dumps(stored)
    replay = ReplayModel([ModelCall.from_json(one) for one in stored])
    assert (await ask(replay)).parsed.city == "Paris"
    with pytest.raises(ModelFailed, match="nor the repaired reply can be used: it contains no JSON object"):
        await replay.complete([], stage="b", deadline=0, key={"n": 1}, schema=City)


# --- the doctor's question


async def test_a_probe_says_whether_the_server_lists_the_model():
    with ScriptedServer(["ok"], models=["small"]) as server:
        async with model_at(server) as model, model_at(server, "openai/alias") as alias:
            assert await model.probe(time.monotonic() + 9) == "openai/small: the server answers and lists this model"
            assert "openai/alias answers, although the server does not list it" in await alias.probe(
                time.monotonic() + 9
            )


async def test_a_probe_of_a_model_that_the_server_does_not_have_fails():
    # Without the model the server lists its models and refuses the prompt.
    with ScriptedServer(models=["small"], faults=[None, Fault(status=404)]) as server:
        async with model_at(server, "openai/other") as other:
            with pytest.raises(ModelFailed, match="HTTP 404"):
                await other.probe(time.monotonic() + 9)


async def test_a_server_without_a_list_is_probed_with_a_short_prompt():
    with ScriptedServer(["ok"], faults=[Fault(status=404)]) as server:
        async with model_at(server) as model:
            assert "openai/small answers, after " in await model.probe(time.monotonic() + 9)


@pytest.mark.parametrize(
    ("fault", "within_s", "reason"), [(Fault(status=401), 9, "HTTP 401"), (Fault(delay_s=30), 0.5, "no answer within")]
)
async def test_a_probe_that_fails_says_why(fault: Fault, within_s: float, reason: str):
    with ScriptedServer(faults=itertools.repeat(fault)) as server:
        async with model_at(server) as model:
            with pytest.raises(ModelFailed, match=reason):
                await model.probe(time.monotonic() + within_s)


# --- litellm and the cost of importing


# Looked up, not imported: imported by the test it would fetch its price list.
@pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="litellm is not installed")
@pytest.mark.filterwarnings("ignore")
async def test_litellm_is_reached_once_per_try_and_in_the_same_forms():
    with ScriptedServer([PARIS]) as server:
        model = ChatModel("x", "hosted_vllm/small", LiteLLMChatClient(KEY, server.base_url))
        reply = await ask(model, timeout_s=60)
        assert reply.parsed.city == "Paris"
        assert reply.attempts == 1
        assert server.requests[0].body["response_format"]["type"] == "json_schema"
    refusal = Fault(status=429, body=json.dumps({"error": {"message": KEY}}))
    for name in ("hosted_vllm/small", "openai/small"):
        with ScriptedServer(faults=itertools.repeat(refusal)) as server:
            model = ChatModel("x", name, LiteLLMChatClient(KEY, server.base_url))
            with pytest.raises(ModelFailed, match="after 3 tries: HTTP 429") as caught:
                await ask(model)
        assert len(server.requests) == 3
        assert KEY not in "".join(traceback.format_exception(caught.value))
    await model.aclose()


def test_importing_the_client_imports_no_sdk():
    code = "import sys, agent.llm.model_factory, agent.intent.transform, agent.settings, agent.intent.model.reply;"
    code += "print({'openai', 'litellm', 'tenacity', 'httpx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
