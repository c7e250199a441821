"""A model's answer that is given up closes its connection, however often and however early it is cancelled."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from agent.llm.chat_client import LiteLLMChatClient, OpenAIChatClient
from agent.llm.chat_model import ChatModel
from agent.llm.model import ModelFailed
from retrievers.core.errors import Unavailable
from retrievers.embed import remote
from retrievers.embed.remote import OpenAIEmbedder
from retrievers.http.json_client import JsonClient
from retrievers.http.sdk_retries import RetryPolicy

pytestmark = pytest.mark.filterwarnings("ignore")  # those of litellm
ASK = [{"role": "user", "content": "hi"}]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n\r\n"
EVENT = b'data: {"id": "x", "object": "chat.completion.chunk", "choices": [{"delta": {"content": "a"}}]}\n\n'
STARTS = {
    "nothing": b"",
    "a body": HEAD % b"application/json" + b"{",
    "an event": HEAD % b"text/event-stream" + EVENT,
}


class SlowServer:
    """A server that begins to answer and then waits for the client to close the connection."""

    def __init__(self, start: bytes) -> None:
        self.start, self.arrived, self.left = start, 0, 0
        self.changed = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        async with self.changed:
            self.arrived += 1
            self.changed.notify_all()
        writer.write(self.start)
        with suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()
        async with self.changed:
            self.left += 1
            self.changed.notify_all()

    async def wait_arrived(self, count: int) -> None:
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: self.arrived >= count)

    async def wait_all_left(self) -> None:
        async with asyncio.timeout(20), self.changed:
            assert await self.changed.wait_for(lambda: self.left == self.arrived)


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[tuple[SlowServer, str]]:
    slow = SlowServer(STARTS[request.param])
    async with await asyncio.start_server(slow.serve, "127.0.0.1", 0) as listening:
        yield slow, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def streamed(model: ChatModel, seconds: float) -> None:
    async for _ in model.stream(ASK, stage="answer", deadline=time.monotonic() + seconds, key={}):
        pass


async def complete(url: str, seconds: float) -> None:
    model = ChatModel("m", "m", OpenAIChatClient(f"{url}/v1", None))
    await model.complete(ASK, stage="rerank", deadline=time.monotonic() + seconds, key={})


async def stream(url: str, seconds: float) -> None:
    await streamed(ChatModel("m", "m", OpenAIChatClient(f"{url}/v1", None)), seconds)


async def stream_by_litellm(url: str, seconds: float) -> None:
    await streamed(ChatModel("m", "openai/m", LiteLLMChatClient("key", f"{url}/v1")), seconds)


async def embed(url: str, seconds: float) -> None:
    retry = RetryPolicy(budget_s=seconds, attempts=1)
    await OpenAIEmbedder("openai/e", base_url=f"{url}/v1", timeout_s=seconds, retry=retry).embed(["a"])


async def search(url: str, seconds: float) -> None:
    await JsonClient("web").request_json("GET", url, timeout_s=seconds)


@pytest.mark.parametrize("call", [complete, stream, stream_by_litellm, embed, search])
@pytest.mark.parametrize("server", STARTS, indirect=True)
async def test_a_call_that_is_cancelled_at_every_step_closes_its_connection(server: tuple[SlowServer, str], call: Any):
    slow, url = server
    await remote.run_in_litellm(lambda _: asyncio.sleep(0))
    task = asyncio.create_task(call(url, 60.0))
    await slow.wait_arrived(1)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    await slow.wait_all_left()
    assert task.cancelled() or task.exception() is not None


@pytest.mark.parametrize("call", [complete, stream, embed, search])
@pytest.mark.parametrize("server", STARTS, indirect=True)
async def test_calls_whose_timeouts_all_end_at_the_same_time_close_their_connections(
    server: tuple[SlowServer, str], call: Any
):
    slow, url = server

    async def called() -> None:
        try:
            async with asyncio.timeout(0.5), asyncio.timeout(0.5):
                await call(url, 0.5)
        except (ModelFailed, Unavailable, TimeoutError):
            pass

    await asyncio.gather(*(called() for _ in range(8)))
    assert slow.arrived >= 8
    await slow.wait_all_left()


@pytest.mark.parametrize("server", ["an event"], indirect=True)
async def test_a_stream_that_litellm_cannot_read_is_closed(server: tuple[SlowServer, str]):
    slow, url = server
    client = LiteLLMChatClient("key", url)
    with pytest.raises(ModelFailed):
        await streamed(ChatModel("m", "cohere_chat/command-r", client), 60.0)
    await slow.wait_all_left()
