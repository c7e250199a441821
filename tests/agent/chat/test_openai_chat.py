"""OpenAI's chat completions: the real client against a real server, a scripted model behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest

from agent.serve.http.app import create_app
from agent.testing import Fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD = "The rotor stops when the wind is faster than 25 m/s [1]."
ASKED: Any = [{"role": "user", "content": "When does the rotor stop?"}]
SHAPE = {"type": "object", "properties": {"town": {"type": "string"}}, "additionalProperties": False}
TOOLS: Any = [{"type": "function", "function": {"name": "weather", "strict": True, "parameters": SHAPE}}]
CALL: Any = {"id": "call_7", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Ribe"}'}}


def extra(answer: Any) -> dict[str, Any]:
    return answer.model_extra["signalbox"]


async def test_the_real_client_gets_an_answer_with_citations_and_usage(chatting):
    chatting.script.replies.append(GOOD)
    answer = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED)
    assert answer.choices[0].message.content == GOOD
    assert answer.choices[0].finish_reason == "stop"
    asked = sum(len(turn["content"].split()) for turn in chatting.script.bodies[0]["messages"])
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (asked, 12)
    assert answer.usage.total_tokens == asked + 12
    assert [one["document_id"] for one in extra(answer)["citations"]][:1] == ["rotor"]
    assert (extra(answer)["status"], extra(answer)["degraded"]) == ("found", [])
    trace = await chatting.service.explain(extra(answer)["trace_id"])
    assert trace["answer"]["text"] == GOOD


async def test_a_stream_is_role_then_text_then_reason_then_usage_with_citations_last(chatting):
    chatting.script.replies.append(GOOD)
    stream = await chatting.client.chat.completions.create(
        model="signalbox", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(one.choices[0].delta.content or "" for one in chunks[:-1]) == GOOD
    assert len(chunks) > 10
    assert [one.choices[0].finish_reason for one in chunks[:-1]][-2:] == [None, "stop"]
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 12)
    assert extra(chunks[-1])["citations"][0]["document_id"] == "rotor"
    assert all("signalbox" not in one.model_extra for one in chunks[:-1])


async def test_without_usage_the_last_chunk_has_the_reason_and_the_citations(chatting):
    chatting.script.replies.append(GOOD)
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}) as client:
        body = {"model": "signalbox", "messages": ASKED, "stream": True}
        answer = await client.post(f"{chatting.url}/v1/chat/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    *events, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    last = json.loads(events[-1].removeprefix("data: "))
    assert last["choices"][0]["finish_reason"] == "stop"
    assert set(last["signalbox"]) == {"trace_id", "citations", "status", "degraded"}
    assert "usage" not in last


async def test_the_callers_options_reach_the_model_and_unknown_ones_are_passed_over(chatting):
    chatting.script.replies.append('{"stops_at": 25}')
    form: Any = {"type": "json_object"}
    await chatting.client.chat.completions.create(
        model="signalbox", messages=ASKED, temperature=0.5, top_p=0.9, max_tokens=50, stop=["END"], seed=7,
        response_format=form, presence_penalty=0.1, extra_body={"vendor_key": {"deep": [1]}},
    )  # fmt: skip
    (body,) = chatting.script.bodies
    sent = ("temperature", "top_p", "max_tokens", "stop", "seed", "response_format", "presence_penalty", "vendor_key")
    assert [body.get(name) for name in sent] == [0.5, 0.9, 50, ["END"], 7, form, None, None]


async def test_a_call_of_a_tool_comes_back_and_what_it_gave_goes_to_the_model(chatting):
    chatting.script.replies.append({"content": None, "tool_calls": [CALL]})
    first = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, tools=TOOLS)
    assert (first.choices[0].finish_reason, first.choices[0].message.content) == ("tool_calls", None)
    (called,) = first.choices[0].message.tool_calls
    assert (called.id, called.function.name, called.function.arguments) == ("call_7", "weather", '{"town": "Ribe"}')
    assert chatting.script.bodies[0]["tools"] == TOOLS

    gave: Any = {"role": "tool", "tool_call_id": "call_7", "content": "28 m/s in Ribe"}
    turns = [*ASKED, first.choices[0].message.model_dump(exclude_none=True), gave]
    chatting.script.replies.append(GOOD)
    second = await chatting.client.chat.completions.create(model="signalbox", messages=turns, tools=TOOLS)
    assert second.choices[0].message.content == GOOD
    *_, question, asked, answered = chatting.script.bodies[1]["messages"]
    assert "When does the rotor stop?" in question["content"]
    assert asked == {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert answered == gave


async def test_a_streamed_call_of_a_tool_is_one_the_client_can_put_together(chatting):
    chatting.script.replies.append({"content": None, "tool_calls": [CALL]})
    async with chatting.client.chat.completions.stream(model="signalbox", messages=ASKED, tools=TOOLS) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"town": "Ribe"}'


async def test_tools_are_asked_also_where_the_documents_hold_nothing(chatting):
    chatting.script.replies.append({"content": None, "tool_calls": [CALL]})
    none = {"signalbox": {"filter": {"type": "eq", "key": "id", "value": "no-such"}}}
    answer = await chatting.client.chat.completions.create(
        model="signalbox", messages=ASKED, tools=TOOLS, extra_body=none
    )
    assert extra(answer)["status"] == "nothing_found"
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_an_answer_cut_at_the_callers_own_limit_says_length(chatting):
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": "The rotor"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
    ]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    chatting.script.faults.append(Fault(body=body))
    chatting.script.replies.append("")
    answer = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, max_completion_tokens=2)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("The rotor", "length")
    assert extra(answer)["degraded"] == []


async def test_content_may_be_a_list_of_texts_and_developer_turns_are_the_systems(chatting):
    chatting.script.replies.append(GOOD)
    turns: Any = [
        {"role": "developer", "content": "Answer like a pirate."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "When does"}, {"type": "text", "text": "the rotor stop?"}],
        },
    ]
    await chatting.client.chat.completions.create(model="signalbox", messages=turns)
    system, question = chatting.script.bodies[0]["messages"]
    assert system["content"].endswith("Answer like a pirate.")
    assert "When does the rotor stop?" in question["content"]


@pytest.mark.parametrize("given", [None, 5])
async def test_what_waits_costs_the_model_only_of_the_time_that_its_caller_gives(chatting, given: float | None):
    async def slowly(body: dict[str, Any]) -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.sleep(0.2)
        yield json.dumps(body).encode()

    chatting.script.replies.append(GOOD)
    body = {"model": "signalbox", "messages": ASKED, "signalbox": {"timeout_s": given}}
    headers = {"Authorization": "Bearer key-a", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(headers=headers) as client:
        answer = await client.post(f"{chatting.url}/v1/chat/completions", content=slowly(body))
    assert answer.status_code == 200
    left_s = (await chatting.ended()).call.request.timeout_s
    assert left_s is None if given is None else 0 < left_s < given


async def test_options_travel_in_the_signalbox_object(chatting):
    chatting.script.replies.append(GOOD)
    options = {"collection": "docs", "sources": ["fulltext"], "top_k": 1, "explain": True}
    answer = await chatting.client.chat.completions.create(
        model="signalbox", messages=ASKED, extra_body={"signalbox": options}
    )
    assert len(extra(answer)["citations"]) == 1
    assert {one["source"] for one in extra(answer)["explanation"]["plan"]} == {"fulltext"}


async def test_a_complete_list_says_how_many_documents_there_are(chatting):
    options = {"collection": "docs", "complete": True}
    answer = await chatting.client.chat.completions.create(
        model="signalbox-prompt", messages=ASKED, extra_body={"signalbox": options}
    )
    assert extra(answer)["total"] == 2
    plain = await chatting.client.chat.completions.create(model="signalbox-prompt", messages=ASKED)
    assert "total" not in extra(plain)


async def test_both_models_are_listed_and_the_prompt_comes_without_a_model(chatting):
    assert [one.id async for one in chatting.client.models.list()] == ["signalbox", "signalbox-prompt"]
    assert (await chatting.client.models.retrieve("signalbox-prompt")).owned_by == "signalbox"
    answer = await chatting.client.chat.completions.create(model="signalbox-prompt", messages=ASKED)
    assert answer.choices[0].message.content.startswith("User request: When does the rotor stop?")
    assert "25 m/s" in answer.choices[0].message.content
    assert answer.usage.total_tokens == 0
    assert extra(answer)["citations"][0]["document_id"] == "rotor"
    assert chatting.script.bodies == []
    stream = await chatting.client.chat.completions.create(model="signalbox-prompt", messages=ASKED, stream=True)
    said = "".join([one.choices[0].delta.content or "" async for one in stream])
    assert said == answer.choices[0].message.content


async def test_without_a_model_the_answer_is_a_503_that_says_what_to_set(chatting):
    service = replace(chatting.service, answerer=replace(chatting.service.answerer, model=None))
    transport = httpx2.ASGITransport(create_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        body = {"model": "signalbox", "messages": ASKED}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 503
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["code"] == "no_model"
    assert "set LLM" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "kind", "param", "said"),
    [
        ({"model": "gpt-4"}, openai.NotFoundError, "model", "signalbox-prompt"),
        ({"messages": []}, openai.BadRequestError, "messages", "at least 1"),
        ({"messages": [{"role": "system", "content": "x"}]}, openai.BadRequestError, "messages", "the role user"),
        ({"messages": [{"role": "user", "content": " "}]}, openai.BadRequestError, "messages.0.content", "empty"),
        ({"messages": [{"role": "user", "content": "x" * 8001}]}, openai.BadRequestError, "messages", "8,000"),
        ({"messages": [{"role": "robot", "content": "x"}]}, openai.BadRequestError, "messages.0.role", "'developer'"),
        ({"temperature": 3}, openai.BadRequestError, "temperature", "less than"),
        ({"n": 2}, openai.BadRequestError, "n", "1"),
        ({"extra_body": {"signalbox": {"colection": "x"}}}, openai.BadRequestError, "signalbox.colection", "no such"),
        ({"extra_body": {"signalbox": {"collection": "x"}}}, openai.NotFoundError, "signalbox.collection", '"x"'),
        (
            {"extra_body": {"signalbox": {"filter": {"type": "is", "key": "id"}}}},
            openai.BadRequestError, "signalbox.filter.type", "eq",
        ),
        (
            {"extra_body": {"signalbox": {"conversation": "a\nb"}}},
            openai.BadRequestError, "signalbox.conversation", "printable",
        ),
        (
            {"model": "signalbox-prompt", "extra_body": {"signalbox": {"judge": "llm"}}},
            openai.BadRequestError, "signalbox.judge", "calls no model",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bad_request_raises_the_clients_own_error_that_names_the_field(
    chatting, changes, kind, param, said, stream
):
    request: Any = {"model": "signalbox", "messages": ASKED, "stream": stream} | changes
    with pytest.raises(kind) as raised:
        await chatting.client.chat.completions.create(**request)
    assert raised.value.param == param
    assert said in raised.value.body["message"]
    assert raised.value.type == "invalid_request_error"
    assert chatting.script.bodies == []


async def test_pictures_are_refused_by_their_place(chatting):
    picture: Any = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}]}
    ]
    with pytest.raises(openai.BadRequestError) as raised:
        await chatting.client.chat.completions.create(model="signalbox", messages=picture)
    assert raised.value.param == "messages.0.content.0"


async def test_a_wrong_key_raises_the_clients_authentication_error(chatting):
    with pytest.raises(openai.AuthenticationError) as raised:
        await chatting.client.with_options(api_key="wrong").chat.completions.create(model="signalbox", messages=ASKED)
    assert (raised.value.code, raised.value.type) == ("invalid_api_key", "invalid_request_error")


async def test_an_unknown_model_is_a_404_in_openais_form(chatting):
    with pytest.raises(openai.NotFoundError) as raised:
        await chatting.client.models.retrieve("gpt-4")
    assert raised.value.code == "model_not_found"


async def test_a_model_that_is_down_leaves_the_passages_and_says_so(chatting):
    chatting.script.faults.extend([Fault(status=503)] * 3)
    answer = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED)
    assert "25 m/s" in answer.choices[0].message.content
    assert extra(answer)["degraded"] == ["model_unavailable"]


async def test_passages_stand_in_for_no_answer_that_is_read_by_machine(chatting):
    chatting.script.faults.extend([Fault(status=503)] * 3)
    with pytest.raises(openai.InternalServerError) as raised:
        await chatting.client.chat.completions.create(
            model="signalbox", messages=ASKED, response_format={"type": "json_object"}
        )
    assert raised.value.status_code == 503
    assert "sk-behind" not in str(raised.value)


async def test_a_model_that_dies_amid_its_answer_ends_the_stream_with_an_error(chatting):
    chatting.script.replies.append(GOOD)
    chatting.script.faults.append(Fault(truncated=True))
    stream = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, stream=True)
    said: list[str] = []

    async def read() -> None:
        async for chunk in stream:
            said.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError, match="did not finish") as raised:
        await read()
    assert GOOD.startswith("".join(said))
    assert len(said) > 2
    assert raised.value.code == "model_unavailable"


async def test_not_streamed_a_broken_answer_is_kept_as_far_as_it_came(chatting):
    chatting.script.replies.append(GOOD)
    chatting.script.faults.append(Fault(truncated=True))
    answer = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED)
    assert GOOD.startswith(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "length"
    assert extra(answer)["degraded"] == ["answer_cut"]


async def test_an_option_that_the_model_does_not_take_is_left_out_or_refused(chatting):
    refused = json.dumps({"error": {"message": "Unsupported parameter: 'seed'"}})
    chatting.script.faults.append(Fault(status=400, body=refused))
    chatting.script.replies.append(GOOD)
    answer = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, seed=3, top_p=0.5)
    assert answer.choices[0].message.content == GOOD
    assert [(body.get("seed"), body["top_p"]) for body in chatting.script.bodies] == [(3, 0.5), (None, 0.5)]

    chatting.script.faults.append(Fault(status=400, body='{"error": {"message": "tools is not supported"}}'))
    with pytest.raises(openai.BadRequestError, match="does not accept") as raised:
        await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, tools=TOOLS)
    assert raised.value.param == "tools"


async def test_the_newer_name_of_the_limit_is_used_where_the_model_wants_it(chatting):
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    chatting.script.faults.append(Fault(status=400, body=json.dumps({"error": {"message": said}})))
    chatting.script.replies.append(GOOD)
    await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, max_tokens=9)
    limits = [(body.get("max_tokens"), body.get("max_completion_tokens")) for body in chatting.script.bodies]
    assert limits == [(9, None), (None, 9)]


async def test_a_tool_call_with_half_a_character_is_still_an_answer(chatting):
    half = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"town": "\ud83d"}'}}
    said = {"choices": [{"index": 0, "delta": {"tool_calls": [half]}, "finish_reason": "tool_calls"}]}
    chatting.script.faults.append(Fault(body=f"data: {json.dumps(said)}\n\ndata: [DONE]\n\n"))
    chatting.script.replies.append("")
    body = {"model": "signalbox", "messages": ASKED, "tools": TOOLS}
    async with poster(chatting) as post:
        answer = await post(json.dumps(body).encode())
    assert answer.status_code == 200
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["arguments"] == '{"town": "\ufffd"}'


@asynccontextmanager
async def poster(chatting: Any) -> AsyncIterator[Callable[[bytes], Awaitable[httpx2.Response]]]:
    """Sends bodies as they are."""
    headers = {"Authorization": "Bearer key-a", "Content-Type": "application/json"}
    async with httpx2.AsyncClient(headers=headers) as client:
        yield lambda body: client.post(f"{chatting.url}/v1/chat/completions", content=body)


def with_message(**changes: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"} | changes]}


DEEP: Any = "x"
for _ in range(100):
    DEEP = [DEEP]
BAD = [
    *({"model": value} for value in (None, 1, [], {}, "", "x" * 10_000, "signalbox\0")),
    *({"messages": value} for value in (None, "x", {}, [None], ["x"], [[]], [{}], 7, ASKED * 201)),
    *(with_message(role=value) for value in (None, "", "USER", "function", 1, [], "\ud800")),
    *(with_message(content=value) for value in (None, 1, {}, [], [None], ["x"], [{}], [{"type": "text"}], True)),
    *(with_message(content=value) for value in ("", "\n", "\0", "\udfff", "x" * 100_001, [{"type": 1, "text": "x"}])),
    *(with_message(tool_calls=value) for value in ("x", [1], {}, [[]], [{"function": {}}] * 129)),
    *(with_message(**{name: 1}) for name in ("name", "tool_call_id")),
    *({"temperature": value} for value in (-1, 2.1, "1", True, [], float("nan"), float("inf"), 10**400)),
    *({"top_p": value} for value in (-0.1, 1.1, "x", {})),
    *({name: value} for name in ("max_tokens", "max_completion_tokens") for value in (0, -1, 1.5, "9", 10**7, [])),
    *({"seed": value} for value in (2**63, 0.5, "x")),
    *({"stop": value} for value in (1, ["x"] * 17, [1], {}, "x" * 1001)),
    *({"tools": value} for value in ("x", [1], [[]], {}, [{}] * 129)),
    *({"tool_choice": value} for value in (1, "maybe", [])),
    *({"response_format": value} for value in ("json", [], 1)),
    *({name: value} for name in ("parallel_tool_calls", "stream") for value in ("yes", 1, [])),
    *({"stream_options": value} for value in ("x", [], {"include_usage": "yes"})),
    *({"n": value} for value in (0, 2, "1")),
    *({"user": value} for value in ("", "x" * 257, 1, "a\nb")),
    *({"signalbox": value} for value in ("x", [], 1, {"nothing": 1}, {"query": "x"}, {"messages": []})),
    *({"signalbox": {"conversation": value}} for value in ("", "x" * 129, 1, "a\u202e", {})),
    *({"signalbox": {"top_k": value}} for value in (0, 101, "5", None)),
    *({"signalbox": {"per_document": value}} for value in (0, 101, "5", True)),
    *({"signalbox": {"complete": value}} for value in ("yes", 1)),
    {"signalbox": {"timeout_s": 0}}, {"signalbox": {"timeout_s": float("nan")}}, {"signalbox": {"now": "soon"}},
    {"signalbox": {"template": "../../etc/passwd"}}, {"signalbox": {"sources": ["nowhere"]}},
    {"signalbox": {"filter": {"type": "eq", "key": "no_such", "value": 1}}}, {"signalbox": {"reranker": "evil:x"}},
    {"tools": DEEP}, {"metadata": DEEP}, {"metadata": "\ud800"},
]  # fmt: skip


async def test_every_bad_body_is_the_callers_fault_in_openais_form(chatting):
    bodies = [json.dumps({"model": "signalbox", "messages": ASKED} | bad).encode() for bad in BAD]
    bodies += [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"model": 1, "model": 2}', b"[" * 100_000]
    async with poster(chatting) as post:
        for body in bodies:
            answer = await post(body)
            assert 400 <= answer.status_code < 500, body[:200]
            error = answer.json()["error"]
            assert set(error) == {"message", "type", "param", "code"}, body[:200]
            assert error["message"]
            assert error["type"] == "invalid_request_error"
    assert chatting.script.bodies == []


@pytest.mark.parametrize(
    ("turn", "where"),
    [
        ({"tool_calls": {"a": 1}}, "tool_calls"),
        ({"tool_calls": [5]}, "tool_calls.0"),
        ({"tool_calls": "abc"}, "tool_calls"),
        ({"tool_calls": ["f"]}, "tool_calls.0"),
        ({"tool_calls": [{"function": "f"}]}, "tool_calls.0.function"),
        ({"tool_calls": [{"func\u200btion": {"name": "f", "arguments": "{}"}}]}, "tool_calls.0"),
        ({"tool_calls": [{"type": "custom", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls.0"),
        ({"tool_calls": [{"type": "custom", "custom": {"name": "f"}}]}, "tool_calls.0.custom.input"),
        ({"tool_calls": [{"function": {"name": "f", "arg\u200buments": "{}"}}]}, "tool_calls.0.function.arguments"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {}}}]}, "tool_calls.0.function.arguments"),
        ({"tool_calls": [{"function": {"name": ["f"], "arguments": "{}"}}]}, "tool_calls.0.function.name"),
        ({"tool_calls": [{"id": 7, "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls.0.id"),
        ({"role": "robot"}, "role"),
        ({"tool_call_id": 7}, "tool_call_id"),
    ],
)
async def test_a_turn_after_the_question_of_another_shape_is_refused_by_its_place(chatting, turn, where):
    turn = {"role": "assistant", "content": None} | turn
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}) as client:
        for stream in (False, True):
            body = {"model": "signalbox", "messages": [*ASKED, turn], "stream": stream}
            answer = await client.post(f"{chatting.url}/v1/chat/completions", json=body)
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, f"messages.1.{where}")
        body = {"query": ASKED[0]["content"], "following": [turn]}
        answer = await client.post(f"{chatting.url}/v1/ask", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["where"]) == (422, f"following.0.{where}")
    assert chatting.script.bodies == []


async def test_the_call_of_a_custom_tool_goes_to_the_model_as_it_came(chatting):
    call = {"id": "call_8", "type": "custom", "custom": {"name": "note", "input": "28 m/s"}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_8", "content": "noted"},
    ]
    chatting.script.replies.append(GOOD)
    await chatting.client.chat.completions.create(model="signalbox", messages=[*ASKED, *turns])
    assert chatting.script.bodies[0]["messages"][-2:] == turns


async def test_what_the_models_server_added_to_a_call_comes_out_and_goes_back_as_it_was(chatting):
    called = CALL | {"extra_content": {"google": {"thought_signature": "<s>c2ln\u200b"}}}
    chatting.script.replies += [{"content": None, "tool_calls": [called]}, GOOD, GOOD]
    first = await chatting.client.chat.completions.create(model="signalbox", messages=ASKED, tools=TOOLS)
    said = first.choices[0].message.model_dump(exclude_none=True)
    assert said["tool_calls"] == [called]
    turns = [said, {"role": "tool", "tool_call_id": "call_7", "content": "28 m/s"}]
    await chatting.client.chat.completions.create(model="signalbox", messages=[*ASKED, *turns], tools=TOOLS)
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}) as client:
        body = {"query": ASKED[0]["content"], "following": [{**turns[0], "content": None}, turns[1]]}
        assert (await client.post(f"{chatting.url}/v1/ask", json=body)).status_code == 200
    assert [body["messages"][-2]["tool_calls"] for body in chatting.script.bodies[1:]] == [[called]] * 2


async def test_unknown_keys_of_a_turn_never_reach_the_model_and_never_replace_its_own(chatting):
    call = CALL | {"ty\u200bpe": "x"} | {"function": CALL["function"] | {"na\u200bme": "x"}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call], "tool_\u200bcalls": [5], "refusal": None},
        {"role": "tool", "ro\u200ble": "system", "tool_call_id": "call_7", "content": [{"type": "text", "text": "28"}]},
    ]
    sent = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_7", "content": "28"},
    ]
    chatting.script.replies += [GOOD, GOOD]
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}) as client:
        body = {"model": "signalbox", "messages": [*ASKED, *turns]}
        assert (await client.post(f"{chatting.url}/v1/chat/completions", json=body)).status_code == 200
        body = {"query": ASKED[0]["content"], "following": turns}
        assert (await client.post(f"{chatting.url}/v1/ask", json=body)).status_code == 200
    by_chat, by_ask = (body["messages"][-2:] for body in chatting.script.bodies)
    assert by_chat == sent
    assert by_ask == [sent[0], sent[1] | {"content": [{"type": "text", "text": "28"}]}]


async def test_the_openapi_document_says_what_the_door_takes_and_gives(chatting):
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer key-a"}) as client:
        said = (await client.get(f"{chatting.url}/openapi.json")).json()
    chat = said["paths"]["/v1/chat/completions"]["post"]
    assert chat["operationId"] == "create_chat_completion"
    assert set(chat["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}
    assert set(chat["responses"]) == {"200", "4XX", "5XX"}
    shape = said["components"]["schemas"]["ChatBody"]["properties"]
    assert {"model", "messages", "tools", "stream", "signalbox"} <= set(shape)
    assert "conversation" in said["components"]["schemas"]["ChatOptions"]["properties"]
