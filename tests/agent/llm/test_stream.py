"""Streamed answers against real HTTP: pieces as they come, faults before and amid them, recordings."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from agent.llm.call_log import CallLog
from agent.llm.chat_client import LiteLLMChatClient
from agent.llm.chat_model import ChatModel
from agent.llm.model import CallUsage, Model, ModelFailed, Reply
from agent.llm.model_factory import open_model
from agent.llm.recording import ReplayModel
from agent.llm.reply_json import ReasoningFilter, strip_reasoning
from agent.testing import Fault, ScriptedServer
from retrievers.embed import remote

KEY = "sk-very-secret-key-0123"
ASKED = [{"role": "user", "content": "What is the capital of France?"}]
QUESTION = {"question": "capital?"}


@asynccontextmanager
async def model_at(server: ScriptedServer, name: str = "openai/small") -> AsyncIterator[Model]:
    model = open_model(name, base_url=server.base_url, api_key=KEY)
    assert model is not None
    yield model
    await model.aclose()


async def heard(model: Model, timeout_s: float = 20.0) -> tuple[list[str], Reply]:
    *pieces, reply = [
        piece async for piece in model.stream(ASKED, stage="s", deadline=time.monotonic() + timeout_s, key=QUESTION)
    ]
    assert isinstance(reply, Reply)
    assert all(isinstance(piece, str) for piece in pieces)
    return pieces, reply


async def failure(server: ScriptedServer, timeout_s: float = 20.0) -> tuple[list[str], ModelFailed]:
    """What came before the answer failed, and why it did."""
    pieces: list[str] = []

    async def listen(model: Model) -> None:
        async for piece in model.stream(ASKED, stage="s", deadline=time.monotonic() + timeout_s, key=QUESTION):
            assert isinstance(piece, str)
            pieces.append(piece)

    async with model_at(server) as model:
        with pytest.raises(ModelFailed) as caught:
            await listen(model)
    assert KEY not in str(caught.value)
    return pieces, caught.value


def events(*chunks: Any) -> Fault:
    """A server that streams these chunks, and says nothing about their end."""
    sent = "".join(f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks)
    return Fault(body=sent)


def says(text: str | None, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text} | more, "finish_reason": finish_reason}]}


async def test_an_answer_comes_in_pieces_with_its_usage_at_the_end():
    with ScriptedServer(["It is Paris."]) as server:
        async with model_at(server) as model:
            pieces, reply = await heard(model)
    assert pieces == ["It", " is", " Paris."]
    assert (reply.text, reply.model, reply.attempts) == ("It is Paris.", "small", 1)
    assert reply.usage == CallUsage(6, 3, None)
    assert server.requests[0].body["stream_options"] == {"include_usage": True}


async def test_the_first_piece_is_there_before_the_last_is_sent():
    with ScriptedServer(["one two three four five"], faults=[Fault(pause_s=0.1)]) as server:
        async with model_at(server) as model:
            times = [
                time.monotonic()
                async for _ in model.stream(ASKED, stage="s", deadline=time.monotonic() + 20, key=QUESTION)
            ]
    assert times[-1] - times[0] > 0.3


async def test_thoughts_are_held_back_and_kept_in_the_reply():
    said = "<think>France, so Paris.</think>\n\nParis it is."
    with ScriptedServer([said]) as server:
        async with model_at(server) as model:
            pieces, reply = await heard(model)
    assert "".join(pieces) == "Paris it is."
    assert reply.text == said


async def test_a_model_whose_thoughts_have_no_opening_tag_is_known_after_its_first_answer():
    said = "France, so Paris.</think>Paris it is."
    with ScriptedServer([said, said, "No thought."]) as server:
        async with model_at(server) as model:
            first, _ = await heard(model)
            second, _ = await heard(model)
            third, _ = await heard(model)
    assert "".join(first) == said
    assert "".join(second) == "Paris it is."
    assert "".join(third) == "No thought."


async def test_an_answer_that_mentions_the_closing_tag_holds_back_one_later_answer_at_most():
    with ScriptedServer(["Close it with </think> at the end.", *["It is Paris."] * 3]) as server:
        async with model_at(server) as model:
            held = [(await heard(model))[0] for _ in range(4)]
    assert held[1] == ["It is Paris."]
    assert held[2] == held[3] == ["It", " is", " Paris."]


@pytest.mark.parametrize(
    "said",
    [
        "plain",
        "<think>a</think>b",
        " <Think>a</Think> <reasoning>c</reasoning>\nb",
        "<thi",
        "<b>bold</b>",
        "a <think>",
        "<think>a</think>it ends with </think>",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_of_any_size_give_what_the_whole_would(said: str, size: int):
    spoken = ReasoningFilter()
    given = [spoken.feed(said[at : at + size]) for at in range(0, len(said), size)]
    assert "".join([*given, spoken.end()]).strip() == strip_reasoning(said)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_failure_before_the_first_piece_is_tried_again(status: int):
    with ScriptedServer(["Paris."], faults=[Fault(status=status)]) as server:
        async with model_at(server) as model:
            pieces, reply = await heard(model)
    assert pieces == ["Paris."]
    assert reply.attempts == 2


async def test_a_server_that_is_down_says_so_after_its_tries():
    with ScriptedServer(faults=[Fault(status=503)] * 9) as server:
        pieces, error = await failure(server)
    assert pieces == []
    assert error.reason == "after 3 tries: HTTP 503, the server failed"
    assert error.fault == "down"


async def test_an_answer_that_breaks_off_keeps_what_came_and_fails_without_another_try():
    with ScriptedServer(["one two three four"], faults=[Fault(truncated=True)]) as server:
        pieces, error = await failure(server)
    assert pieces[0] == "one"
    assert error.fault == "down"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("fault", "came", "reason"),
    [
        (events(says("Par")), ["Par"], "its answer broke off"),
        (events(says("Par", "length"), "[DONE]"), ["Par"], "its answer was cut at the token limit"),
        (events(says("Par"), says(None, "content_filter")), ["Par"], "its provider's filter stopped the answer"),
        (events(says(None, refusal="I will not.")), [], "it refused to answer"),
        (events(says(""), says(None, "stop"), "[DONE]"), [], "its answer is empty"),
        (events(says("<think>and so on", "stop"), "[DONE]"), [], "its answer is empty"),
        (events("[DONE]"), [], "its answer is empty"),
        (events(says("Par"), {"error": {"message": "overloaded"}}), ["Par"], "its answer contains an error"),
        (events(says("Par"), "{"), ["Par"], "its answer is not JSON"),
        (events(says("Par"), "[1]"), ["Par"], "its answer is not a JSON object"),
        (events(says("Par"), says("a" * 200_000)), ["Par"], "its answer is longer than 200,000 characters"),
    ],
)
async def test_an_answer_that_is_none_says_why(fault: Fault, came: list[str], reason: str):
    with ScriptedServer(["unused"], faults=[fault]) as server:
        pieces, error = await failure(server)
    assert pieces == came
    assert error.reason == reason


async def test_the_deadline_is_that_of_the_last_piece():
    first = f"data: {json.dumps(says('one'))}\n\n".encode()
    waiting = Fault(parts=[first], pause_s=600, headers={"Content-Type": "text/event-stream"})
    with ScriptedServer(lambda _: "unused", faults=repeat(waiting)) as server:
        # On a busy machine the first deadlines are over before the first piece.
        for timeout_s in (1, 8, 60):
            pieces, error = await failure(server, timeout_s=timeout_s)
            if pieces:
                break
    assert pieces == ["one"]
    assert (error.reason, error.fault) == (f"no answer within {timeout_s} s", "late")


async def test_no_time_at_all_asks_nobody():
    with ScriptedServer(["Paris."]) as server:
        pieces, error = await failure(server, timeout_s=-1)
    assert (pieces, error.fault, server.requests) == ([], "late", [])


async def test_a_server_that_does_not_stream_is_read_as_a_whole():
    def plain(body: dict[str, Any]) -> str:
        body.pop("stream")
        return "Paris."

    with ScriptedServer(plain) as server:
        async with model_at(server) as model:
            pieces, reply = await heard(model)
    assert pieces == ["Paris."]
    assert reply.usage.prompt_tokens == 6


@pytest.mark.parametrize("part", ["stream_options", "temperature"])
async def test_a_parameter_that_is_refused_is_left_out_from_then_on(part: str):
    refusal = json.dumps({"error": {"message": f"{part} is not supported"}})
    with ScriptedServer(["Paris.", "Rome."], faults=[Fault(status=400, body=refusal)]) as server:
        async with model_at(server) as model:
            await heard(model)
            await heard(model)
    assert [part in request.body for request in server.requests] == [True, False, False]


async def test_a_refusal_of_the_prompt_is_not_repeated():
    refusal = json.dumps({"error": {"message": "maximum context length is 8192 tokens"}})
    with ScriptedServer(faults=[Fault(status=400, body=refusal)]) as server:
        _, error = await failure(server)
    assert error.reason == "the prompt is too long for the model"
    assert len(server.requests) == 1


async def test_a_recorded_answer_is_streamed_as_it_was_said(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    with ScriptedServer(["<think>hm</think>The capital of France is the city of Paris."]) as server:
        async with model_at(server, f"record:{path}=openai/small") as model:
            said, reply = await heard(model)
    pieces, again = await heard(ReplayModel.read(path))
    assert "".join(pieces) == "".join(said) == "The capital of France is the city of Paris."
    assert len(pieces) > 1
    assert (again.text, again.usage, again.model) == (reply.text, reply.usage, "small")


async def test_an_answer_that_failed_is_not_recorded(tmp_path: Path):
    path = tmp_path / "calls.jsonl"
    with ScriptedServer(["one two"], faults=[Fault(truncated=True)]) as server:
        async with model_at(server, f"record:{path}=openai/small") as model:
            with pytest.raises(ModelFailed):
                await heard(model)
    assert path.read_text() == ""
    with pytest.raises(ModelFailed, match="has no reply for stage"):
        await heard(ReplayModel.read(path))


async def test_calls_are_noted_with_their_end_whatever_it_was():
    calls = CallLog()
    faults = [None, Fault(status=500), Fault(status=500), Fault(status=500), None]
    with ScriptedServer(["It is Paris.", "It is Rome."], faults=faults) as server:
        async with model_at(server) as model:
            watched = calls.logged_model(model)
            await heard(watched)
            with pytest.raises(ModelFailed):
                await heard(watched)
            async with aclosing(
                watched.stream(ASKED, stage="s", deadline=time.monotonic() + 9, key=QUESTION)
            ) as pieces:
                await anext(pieces)
    told = [(call.text, call.attempts, call.error) for call in calls.records]
    assert told == [
        ("It is Paris.", 1, None),
        (None, 3, "after 3 tries: HTTP 500, the server failed"),
        (None, 1, "the caller did not read it to the end"),
    ]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The streams that litellm made."""
    litellm, made = remote._import_litellm(), []
    asked = litellm.acompletion

    async def acompletion(**options: Any) -> Any:
        made.append(await asked(**options))
        return made[-1]

    monkeypatch.setattr(litellm, "acompletion", acompletion)
    return made


@pytest.mark.filterwarnings("ignore")  # those of litellm
@pytest.mark.parametrize("stated", [True, False])
async def test_litellm_streams_a_long_answer_and_keeps_little_of_it(kept: list[Any], stated: bool):
    words = [f"word{number} " for number in range(400)]
    usage: list[Any] = [{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 400}}] if stated else []
    sent = events(*map(says, words), says("", "stop"), *usage, "[DONE]")
    fault = replace(sent, headers={"Content-Type": "text/event-stream"})
    with ScriptedServer(["unused"], faults=[fault]) as server:
        pieces, reply = await heard(ChatModel("x", "hosted_vllm/x", LiteLLMChatClient(KEY, server.base_url)))
    assert "".join(pieces) == reply.text == "".join(words)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == ((5, 400) if stated else (0, 0))
    assert len(kept[0].chunks) <= 16


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_busy", [False, True])
async def test_litellm_closes_the_connection_of_a_stream_that_is_left_early(is_busy: bool):
    """If litellm is busy, nobody waits for it, and it closes the connection later."""
    free = threading.Event()

    async def keep_busy(_: object) -> None:
        free.wait(60)

    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        writer.write(head + b"".join(b"data: %s\n\n" % json.dumps(says(word)).encode() for word in ("Par", "is")))
        while await reader.read(1_000):  # the request, then the client's end
            pass
        writer.close()
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        client = LiteLLMChatClient(KEY, f"http://127.0.0.1:{port}/v1")
        stream = client.stream_events({"model": "openai/x", "messages": ASKED, "stream": True}, 60.0)
        await anext(stream)
        if is_busy:
            busy = asyncio.create_task(remote.run_in_litellm(keep_busy))
            await asyncio.sleep(0)
        await stream.aclose()
        assert not is_busy or not ended.is_set()
        free.set()
        assert await asyncio.wait_for(ended.wait(), 30)
        if is_busy:
            await busy
        await client.aclose()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
async def test_lines_of_json_may_be_as_many_as_events():
    lines = [{"message": {"role": "assistant", "content": f"word{number} "}, "done": False} for number in range(20_000)]
    lines.append({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
                  "prompt_eval_count": 5, "eval_count": 20_000})  # fmt: skip
    body = "".join(json.dumps(line | {"model": "m", "created_at": "2026-11-23T00:00:00Z"}) + "\n" for line in lines)
    fault = Fault(body=body, headers={"Content-Type": "application/x-ndjson"})
    with ScriptedServer(other=lambda _: {}, faults=[fault]) as server:
        _, reply = await heard(ChatModel("x", "ollama_chat/m", LiteLLMChatClient(KEY, server.root_url)), timeout_s=120)
    assert reply.text.endswith("word19999 ")
    assert reply.usage.completion_tokens == 20_000


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "1e999", "9" * 400, "-1", "true", '"x"', "[1]"])
async def test_a_figure_that_cannot_be_counts_as_unsaid(figure: str):
    usage = f'{{"choices": [], "usage": {{"prompt_tokens": {figure}, "completion_tokens": 3, "cost": {figure}}}}}'
    with ScriptedServer(["unused"], faults=[events(says("Par", "stop"), usage, "[DONE]")]) as server:
        async with model_at(server) as model:
            _, reply = await heard(model)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (0, 3)
    assert reply.usage.cost is None
