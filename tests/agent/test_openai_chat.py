"""OpenAI's chat completions: the real client against a real server, a scripted model behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from openai import AsyncOpenAI

from agent.app import Service, open_service
from agent.serve.http.app import create_app
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.ingest.documents import Document

ROTOR = "The rotor stops when the wind is faster than 25 m/s. Its bearing is oiled every three months."
STORM = "Storm Xaver reached Denmark in December 2013."
GOOD = "The rotor stops when the wind is faster than 25 m/s [1]."
ASKED = [{"role": "user", "content": "When does the rotor stop?"}]
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "call_7", "type": "function", "function": {"name": "weather", "arguments": '{"town": "Ribe"}'}}


def documents() -> list[Document]:
    return [Document(where=id, id=id, title=id.title(), text=text) for id, text in (("rotor", ROTOR), ("storm", STORM))]


@dataclass
class Door:
    """A server on a free port, and its clients."""

    service: Service
    url: str
    client: AsyncOpenAI


class _Server(uvicorn.Server):
    def install_signal_handlers(self) -> None:
        """Those of the tests stay."""


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[Door]:
    config = uvicorn.Config(create_app(service), host="127.0.0.1", port=0, log_level="warning", lifespan="off")
    server = _Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    try:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
            yield Door(service, url, client)
    finally:
        server.should_exit = True
        await task


@pytest.fixture
def door(owner_url: str, service_url: str) -> Callable[..., Any]:
    """Opens a door over the two documents; the model answers as scripted."""

    @asynccontextmanager
    async def open_door(model: ScriptedServer | None = None, **changes: Any) -> AsyncIterator[Door]:
        settings = {"database_url": owner_url, "service_url": service_url, "pool_size": 4, "intent": "rules"} | changes
        if model is not None:
            settings |= {"llm": "openai/small", "llm_base_url": model.base_url, "llm_api_key": "any", "loop_calls": 0}
        async with open_service(Settings(**settings)) as service:
            await service.ingest(documents(), "docs")
            async with served(service) as door:
                yield door

    return open_door


async def test_the_real_client_gets_an_answer_with_citations_and_usage(door):
    with ScriptedServer([GOOD]) as model:
        async with door(model) as at:
            answer = await at.client.chat.completions.create(model="signalbox", messages=ASKED)
    assert answer.choices[0].message.content == GOOD
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    extra = answer.model_extra["signalbox"]
    assert [one["document_id"] for one in extra["citations"]][:1] == ["rotor"]
    assert (extra["status"], extra["degraded"]) == ("found", [])
    assert len(extra["trace_id"]) == 32


async def test_a_stream_is_role_then_text_then_reason_then_usage_with_citations_last(door):
    with ScriptedServer([GOOD]) as model:
        async with door(model) as at:
            stream = await at.client.chat.completions.create(
                model="signalbox", messages=ASKED, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(one.choices[0].delta.content or "" for one in chunks[:-1]) == GOOD
    assert len(chunks) > 10
    assert [one.choices[0].finish_reason for one in chunks[:-1]][-2:] == [None, "stop"]
    assert chunks[-1].usage.completion_tokens == 12
    assert chunks[-1].model_extra["signalbox"]["citations"][0]["document_id"] == "rotor"
    assert all("signalbox" not in one.model_extra for one in chunks[:-1])
