"""One service with two documents, its HTTP server, and the scripted model behind it, shared by a module's tests."""

import asyncio
import socket
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
import pytest_asyncio
import uvicorn
from openai import AsyncOpenAI
from psycopg.conninfo import make_conninfo

from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import Fault, ScriptedReply, ScriptedServer
from retrievers.ingest.documents import Document
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE

ROTOR = "The rotor stops when the wind is faster than 25 m/s. Its bearing is oiled every three months."
STORM = "Storm Xaver reached Denmark in December 2013."
TENANTS = {"key-a": "default", "key-b": "other"}


@dataclass
class Script:
    """The next replies and faults of the scripted model; emptied before every test."""

    replies: deque[ScriptedReply | Callable[[dict[str, Any]], ScriptedReply]] = field(default_factory=deque)
    faults: deque[Fault | None] = field(default_factory=deque)
    server: ScriptedServer = field(init=False)

    def __post_init__(self) -> None:
        self.server = ScriptedServer(self._reply, faults=iter(self._fault, ...))

    def _reply(self, body: dict[str, Any]) -> ScriptedReply:
        reply = self.replies.popleft()
        return reply(body) if callable(reply) else reply

    def _fault(self) -> Fault | None:
        return self.faults.popleft() if self.faults else None

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Bodies of the requests to the model since the test began."""
        return [request.body for request in self.server.requests]

    def clear(self) -> None:
        self.replies.clear()
        self.faults.clear()
        self.server.requests.clear()


@dataclass
class Watcher:
    """An advisor that records every `RequestOutcome` it receives."""

    ends: list[RequestOutcome] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    order: int = 350

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        call.context["watcher.seen"] = call.request.question
        return call

    async def after(self, end: RequestOutcome) -> RequestOutcome:
        self.ends.append(end)
        self.ended.set()
        return end


@dataclass
class Chatting:
    """The service, its HTTP server with the keys of `TENANTS`, and the scripted model."""

    service: Service
    url: str
    script: Script
    watcher: Watcher
    client: AsyncOpenAI

    async def ended(self) -> RequestOutcome:
        """Wait for the end of the test's only chat and return it."""
        async with asyncio.timeout(60):
            await self.watcher.ended.wait()
        (end,) = self.watcher.ends
        return end


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chatting_all(module_url: str) -> AsyncIterator[Chatting]:
    async def authenticate(authorization: str | None) -> Caller:
        key = (authorization or "").removeprefix("Bearer ")
        if key not in TENANTS:
            raise Unauthenticated("the key is unknown")
        return Caller(TENANTS[key], key)

    script, watcher = Script(), Watcher()
    with script.server:
        settings = Settings(
            database_url=module_url,
            service_url=make_conninfo(module_url, user=SERVICE_ROLE),
            llm="openai/small",
            llm_base_url=script.server.base_url,
            llm_api_key="sk-behind",
            intent="rules",
            loop_calls=0,
            # Enough for a busy machine: late results would be left out and reported in the answer.
            timeout_s=120,
            answer_timeout_s=300,
            source_timeout_s=60,
            guard=("launch code", "re:pass(word|phrase)", "密码"),
        )
        async with open_service(settings, advisors=[watcher]) as service:
            await service.ingest(
                [
                    Document(where=id, id=id, title=id.title(), text=text)
                    for id, text in (("rotor", ROTOR), ("storm", STORM))
                ],
                "docs",
            )
            listener = socket.create_server(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            server = uvicorn.Server(uvicorn.Config(create_app(service, authenticate=authenticate), log_level="warning"))
            serving = asyncio.create_task(server._serve([listener]))
            async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key-a", max_retries=0) as client:
                yield Chatting(service, url, script, watcher, client)
            server.should_exit = True
            await serving
            listener.close()


@pytest.fixture
def chatting(chatting_all: Chatting) -> Chatting:
    """The module's service, with scripts and records emptied."""
    chatting_all.script.clear()
    chatting_all.watcher.ends.clear()
    chatting_all.watcher.ended.clear()
    return chatting_all


@pytest.fixture
def conversation() -> str:
    """The id of a new conversation."""
    return uuid.uuid4().hex


@pytest.fixture
def stored(module_url: str) -> Callable[[str], list[tuple[Any, ...]]]:
    """Reads the stored turns of a conversation: number, role and text."""

    def read(conversation: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(module_url) as connection:
            statement = """
                SELECT number, role, content FROM signalbox.message
                WHERE split_part(conversation, E'\\n', 1) = %s ORDER BY number
            """
            return connection.execute(statement, (conversation,)).fetchall()

    return read
