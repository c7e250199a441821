"""Every provider beside every answer that has no end, no measure or no shape: each costs its limit and no more."""

import asyncio
import gzip
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from importlib import import_module
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from agent.llm.chat_client import LiteLLMChatClient, OpenAIChatClient
from agent.llm.chat_model import ChatModel
from agent.llm.model import ModelFailed, Reply
from agent.llm.model_factory import open_model
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.http import HttpReranker
from agent.retrieval.rerank.litellm import LiteLLMReranker
from agent.testing import Fault, ScriptedServer
from retrievers import cloud, web
from retrievers.core.errors import Unavailable
from retrievers.core.json_limits import JsonLimits
from retrievers.core.types import Chunk, ChunkId, Query, Scope
from retrievers.embed import remote
from retrievers.embed.remote import LiteLLMEmbedder, OpenAIEmbedder
from retrievers.http import response_limits
from retrievers.http.json_client import JsonClient
from retrievers.http.sdk_retries import RetryPolicy
from retrievers.registry import Resources

pytestmark = pytest.mark.filterwarnings("ignore")  # those of litellm

KEY = "secret-key-0123"
BYTES, VALUES = 128 << 10, 10_000
MOST_ON_THE_WAY = 32 << 20
"""Buffers of the two sockets hold what nobody has read."""
QUERY = Query("where do penguins live", "en", Scope("t", ()))
ASKED = [{"role": "user", "content": "Where do penguins live?"}]
ID = ChunkId("t", "c", "d", 0)
POOL = [FusedHit(ID, 1.0, 1.0, {}, {}, Chunk(ID, "Penguins", "They live in the south."))]
POOL_TEXT = "Penguins\nThey live in the south."
ONCE = RetryPolicy(attempts=1)

Ask = Callable[[ScriptedServer, float], Awaitable[Any]]


def searched(package: Any, **options: Any) -> Ask:
    async def ask(server: ScriptedServer, timeout_s: float) -> Any:
        filled = {key: value.format(server.root_url) for key, value in options.items()}
        source = package.build(Resources(None, None, None, {**filled, "source_timeout_s": timeout_s}))
        try:
            return await source.search(QUERY)
        finally:
            await source.aclose()

    return ask


def of_the_web(name: str) -> Ask:
    return searched(web, web_provider=name, web_api_key=KEY, web_base_url="{}")


def of_the_cloud(name: str, key: str = KEY) -> Ask:
    return searched(cloud, cloud=name, cloud_api_key=key, cloud_base_url="{}")


def embedded(kind: type, name: str) -> Ask:
    async def ask(server: ScriptedServer, timeout_s: float) -> Any:
        embedder = kind(name, base_url=server.base_url, api_key=KEY, timeout_s=timeout_s, retry=ONCE)
        try:
            return await embedder.embed_query("penguins")
        finally:
            await embedder.aclose()

    return ask


def reranked(make: Callable[[ScriptedServer], Any]) -> Ask:
    async def ask(server: ScriptedServer, timeout_s: float) -> Any:
        reranker = make(server)
        try:
            return await reranker.rerank("where?", "en", POOL, deadline=time.monotonic() + timeout_s)
        finally:
            await reranker.aclose()

    return ask


def of_litellm(server: ScriptedServer) -> LiteLLMReranker:
    reranker = LiteLLMReranker("hosted_vllm/m", api_key=KEY)
    reranker._options["api_base"] = server.root_url
    return reranker


def answered(make: Callable[[ScriptedServer], ChatModel], *, streamed: bool) -> Ask:
    async def ask(server: ScriptedServer, timeout_s: float) -> Any:
        model = make(server)
        given: dict[str, Any] = {"stage": "answer", "deadline": time.monotonic() + timeout_s, "key": {}}
        try:
            if not streamed:
                return await model.complete(ASKED, **given)
            return [piece async for piece in model.stream(ASKED, **given)]
        finally:
            await model.aclose()

    return ask


def openai_chat(server: ScriptedServer) -> ChatModel:
    return ChatModel("x", "m", OpenAIChatClient(server.base_url, KEY))


def litellm_chat(server: ScriptedServer) -> ChatModel:
    return ChatModel("x", "hosted_vllm/m", LiteLLMChatClient(KEY, server.base_url))


def litellm_own_chat(server: ScriptedServer) -> ChatModel:
    """Of a provider with an API of its own, which litellm reads with other clients."""
    return ChatModel("x", "ollama_chat/m", LiteLLMChatClient(KEY, server.root_url))


PROVIDERS: dict[str, Ask] = {
    **{name: of_the_web(name) for name in ("tavily", "brave", "exa")},
    "searxng": searched(web, web_provider="searxng:{}"),
    "azure": of_the_cloud("azure:KB"),
    "bailian": of_the_cloud("bailian:pipeline/NAME"),
    "bailian index": of_the_cloud("bailian:WORKSPACE/INDEX", "ID:SECRET"),
    "bedrock": of_the_cloud("bedrock:eu-west-1/KB12345678", "ID:SECRET"),
    "dify": of_the_cloud("dify:KB"),
    "openai store": of_the_cloud("openai:vs_1"),
    "vertex": of_the_cloud("vertex:p/eu/s"),
    "embedder": embedded(OpenAIEmbedder, "openai/m"),
    "litellm embedder": embedded(LiteLLMEmbedder, "voyage/m"),
    "litellm openai embedder": embedded(LiteLLMEmbedder, "openai/m"),
    "reranker": reranked(lambda server: HttpReranker(f"{server.root_url}/v2/rerank", name="r")),
    "tei reranker": reranked(lambda server: HttpReranker(f"{server.root_url}/rerank", name="r")),
    "litellm reranker": reranked(of_litellm),
    "chat": answered(openai_chat, streamed=False),
    "chat stream": answered(openai_chat, streamed=True),
    "litellm chat": answered(litellm_chat, streamed=False),
    "litellm own chat": answered(litellm_own_chat, streamed=False),
}
MORE_AND_MORE_S = (0.2, 2.0, 20.0, 60.0)
"""Deadlines: on a busy machine the first one is over before an answer has begun."""
BOMB = gzip.compress(b'"' + bytes(16 << 20))


def packed(body: bytes, encoding: str = "gzip") -> Fault:
    return Fault(body=body, headers={"Content-Encoding": encoding})


INTERIM = Fault(head=repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100))
HOSTILE: dict[str, tuple[Fault, str]] = {
    "long": (Fault(body=b'"' + b"a" * (1 << 20) + b'"'), "its answer is longer than 128 KiB"),
    "values": (Fault(body=b"[" + b"0," * VALUES + b"0]"), "its answer holds more than 10,000 values"),
    "bomb": (packed(BOMB), "its answer is longer than 128 KiB"),
    "bomb in a bomb": (
        packed(gzip.compress(BOMB), "gzip, gzip"),
        "its answer has a compression that the request did not accept",
    ),
    "interim answers": (INTERIM, "the head of its answer is longer than 32 KiB"),
    "headers": (
        Fault(head=[b"HTTP/1.1 200 OK\r\n", *repeat(b"A: b\r\n" * 100, 1_000)]),
        "the head of its answer is longer than 32 KiB",
    ),
}


SMALL = response_limits.ResponseLimits(BYTES, VALUES)


@pytest.fixture(scope="module", autouse=True)
def litellm() -> Any:
    """Imported before the tests: it takes longer than their deadlines."""
    return remote._import_litellm()


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote._Library, "_limits", lambda self, texts: response_limits.use_limits(BYTES, VALUES))
    monkeypatch.setattr(response_limits, "_limits", ContextVar("limits", default=SMALL))
    monkeypatch.setattr("agent.retrieval.rerank.litellm._MOST_AROUND", BYTES - 2 * len(POOL_TEXT))
    monkeypatch.setattr("agent.retrieval.rerank.litellm._MOST_VALUES", VALUES)
    monkeypatch.setattr("agent.llm.chat_client._LARGEST_WHOLE", BYTES)
    monkeypatch.setattr("agent.llm.chat_client._MOST_VALUES", VALUES)
    monkeypatch.setattr("retrievers.http.json_client._FIRST_WAIT_S", 0.001)


def answering(faults: Iterable[Fault]) -> ScriptedServer:
    return ScriptedServer(lambda _: "In the south.", other=lambda _: {}, faults=faults)


async def reason(name: str, server: ScriptedServer, timeout_s: float = 30.0) -> str:
    with pytest.raises(Unavailable) as caught:
        await PROVIDERS[name](server, timeout_s)
    return caught.value.reason


@pytest.mark.parametrize("answer", HOSTILE)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_answer_beyond_a_limit_is_none_and_the_reason_names_the_limit(name: str, answer: str):
    fault, expected = HOSTILE[answer]
    with answering(repeat(fault)) as server:
        assert expected in await reason(name, server)
    assert len(server.requests) == 1


async def test_what_litellm_would_read_with_aiohttp_is_limited_too(monkeypatch: pytest.MonkeyPatch):
    with answering([packed(BOMB)]) as server:
        monkeypatch.setattr("retrievers.http.sdk_limits.OPENAI_URL", server.base_url)
        model = open_model("aiohttp_openai/m")
        assert model is not None
        with pytest.raises(ModelFailed, match="its answer is longer than 128 KiB"):
            await model.complete(ASKED, stage="answer", deadline=time.monotonic() + 30, key={})
        await model.aclose()


UNBOUNDED: dict[str, tuple[Fault, str]] = {
    "endless": (Fault(parts=repeat(b"a" * 4_000)), "its answer is longer than 128 KiB"),
    "bomb": (packed(BOMB), "its answer is longer than 128 KiB"),
    "drip": (Fault(parts=repeat(b" "), pause_s=0.02), "no answer within"),
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScriptedServer], None]:
    pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION_NAME"):
        monkeypatch.setenv(name, "eu-west-1")
    return lambda server: monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME", server.root_url)


def sagemaker(timeout_s: float) -> LiteLLMEmbedder:
    return LiteLLMEmbedder("sagemaker/m", timeout_s=timeout_s, retry=ONCE)


@pytest.mark.parametrize("answer", UNBOUNDED)
async def test_what_litellm_reads_by_boto3_is_limited_too(answer: str, aws: Callable[[ScriptedServer], None]):
    fault, expected = UNBOUNDED[answer]
    with answering(repeat(fault)) as server:
        aws(server)
        for timeout_s in (2.0, 20.0, 60.0) if answer == "drip" else (60.0,):
            with pytest.raises(Unavailable, match=expected):
                await sagemaker(timeout_s).embed_query("penguins")
            if server.requests:
                break
        assert answer == "bomb" or server.client_disconnected.wait(60)


async def test_vectors_that_litellm_reads_by_boto3_arrive(aws: Callable[[ScriptedServer], None]):
    vectors = json.dumps({"embedding": [[3.0, 4.0]]})
    with answering([Fault(body=gzip.compress(vectors.encode()), headers={"Content-Encoding": "gzip"})]) as server:
        aws(server)
        vector = await sagemaker(60.0).embed_query("penguins")
    assert vector.tolist() == pytest.approx([0.6, 0.8])
    assert "Signature=" in server.requests[0].headers["authorization"]


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[ScriptedServer], None]:
    """Credentials for which a server gives the token."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setenv("VERTEXAI_PROJECT", "p")
    monkeypatch.setenv("VERTEXAI_LOCATION", "eu")

    def write(server: ScriptedServer) -> None:
        account = {"type": "service_account", "private_key": pem, "client_email": "a@e.example", "project_id": "p"}
        (tmp_path / "account.json").write_text(json.dumps({**account, "token_uri": f"{server.root_url}/token"}))

    return write


@pytest.mark.parametrize("answer", UNBOUNDED)
async def test_the_token_that_litellm_looks_up_by_requests_is_limited_too(
    answer: str, google: Callable[[ScriptedServer], None]
):
    fault, expected = UNBOUNDED[answer]
    with answering(repeat(fault)) as server:
        google(server)
        for timeout_s in (2.0, 20.0, 60.0) if answer == "drip" else (60.0,):
            embedder = LiteLLMEmbedder("vertex_ai/text-embedding-005", timeout_s=timeout_s, retry=ONCE)
            with pytest.raises(Unavailable, match=expected):
                await embedder.embed_query("penguins")
            if server.requests:
                break
        assert answer == "bomb" or server.client_disconnected.wait(60)


async def test_the_token_that_litellm_looks_up_by_requests_is_sent(google: Callable[[ScriptedServer], None]):
    token = json.dumps({"access_token": "the-token", "expires_in": 3600})
    vectors = json.dumps({"predictions": [{"embeddings": {"values": [3.0, 4.0], "statistics": {"token_count": 1}}}]})
    with answering([Fault(body=token), Fault(body=vectors)]) as server:
        google(server)
        embedder = LiteLLMEmbedder("vertex_ai/text-embedding-005", base_url=server.root_url, retry=ONCE)
        vector = await embedder.embed_query("penguins")
    assert vector.tolist() == pytest.approx([0.6, 0.8])
    assert server.requests[1].headers["authorization"] == "Bearer the-token"


async def test_litellm_is_closed_while_a_call_opens_a_connection(litellm: Any, monkeypatch: pytest.MonkeyPatch):
    open_clients: dict[str, Any] = {}

    class Opening:
        async def aclose(self) -> None:
            open_clients["another"] = self

    open_clients["one"] = Opening()
    monkeypatch.setattr(litellm.in_memory_llm_clients_cache, "cache_dict", open_clients)
    await remote.close_litellm()
    assert list(open_clients) == ["one", "another"]


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_answer_without_an_end_is_read_up_to_the_limit_and_its_connection_closed(name: str):
    with answering([Fault(parts=repeat(b"a" * 4_000))]) as server:
        assert "its answer is longer than 128 KiB" in await reason(name, server)
        assert server.client_disconnected.wait(60)
    assert server.bytes_sent < MOST_ON_THE_WAY


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_answer_that_drips_ends_at_the_deadline(name: str):
    with answering(repeat(Fault(parts=repeat(b" "), pause_s=0.02))) as server:
        for timeout_s in MORE_AND_MORE_S:
            assert "no answer within" in await reason(name, server, timeout_s)
            if server.bytes_sent:
                break
        assert server.client_disconnected.wait(60)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_an_error_without_an_end_says_its_status(name: str):
    with answering(repeat(Fault(status=403, parts=repeat(b"model " * 1_000)))) as server:
        assert "403" in await reason(name, server)
        assert server.client_disconnected.wait(60)
    assert server.bytes_sent < MOST_ON_THE_WAY


@pytest.mark.parametrize("body", [b"[" * 5_000, b"[" * 51 + b"]" * 51], ids=["open", "closed"])
async def test_an_answer_has_at_most_fifty_levels(body: bytes):
    client = JsonClient("web")
    with answering([Fault(body=body), Fault(body=b"[" * 50 + b"]" * 50)]) as server:
        with pytest.raises(Unavailable, match="its answer has more than 50 levels"):
            await client.request_json("GET", server.root_url)
        deep = await client.request_json("GET", server.root_url)
    await client.aclose()
    assert json.dumps(deep) == "[" * 50 + "]" * 50


PARSED_HERE = [name for name in PROVIDERS if "litellm" not in name and name not in ("embedder", "chat stream")]


@pytest.mark.parametrize("name", PARSED_HERE)
async def test_an_answer_of_too_many_values_is_not_parsed(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(response_limits, "MOST_VALUES", JsonLimits(values=100, containers=50))
    with answering(repeat(Fault(body=b"[" + b"0," * 200 + b"0]"))) as server:
        assert "its answer cannot be parsed: it has 202 values; at most 100" in await reason(name, server)


FOUND: dict[str, tuple[Any, str]] = {
    "tavily": (
        {"results": [{"url": "http://e.example/", "content": "In the south."}]},
        "retrievers.web.retriever._page_of",
    ),
    "dify": ({"records": [{"content": "In the south.", "title": "t"}]}, "retrievers.cloud.retriever.clean_text"),
    "azure": (
        {"references": [{"id": "0", "sourceData": {"content": "In the south."}}], "response": []},
        "retrievers.cloud.azure.record_text",
    ),
}


@pytest.mark.parametrize("name", FOUND)
async def test_results_are_read_in_a_thread(name: str, monkeypatch: pytest.MonkeyPatch):
    """Reading the largest ones takes longer than the event loop may wait."""
    answer, place = FOUND[name]
    package, _, function = place.rpartition(".")
    read, threads = getattr(import_module(package), function), list[object]()

    def seen(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return read(*given)

    with answering([Fault(body=json.dumps(answer))]) as server:
        monkeypatch.setattr(place, seen)
        (hit,) = await PROVIDERS[name](server, 30.0)
    assert hit.chunk.text == "In the south."
    assert threads.pop() is not threading.main_thread()


@pytest.mark.parametrize("name", [name for name in PROVIDERS if "litellm" in name])
async def test_litellm_reads_answers_in_a_thread(name: str, litellm: Any, monkeypatch: pytest.MonkeyPatch):
    """Reading the largest ones takes longer than the event loop may wait."""
    threads = set[str]()
    for function in ("acompletion", "aembedding", "arerank"):
        asked = getattr(litellm, function)

        async def seen(*given: Any, asked: Any = asked, **options: Any) -> Any:
            threads.add(threading.current_thread().name)
            return await asked(*given, **options)

        monkeypatch.setattr(litellm, function, seen)
    with answering(repeat(Fault(body=b"[]"))) as server, suppress(Unavailable):
        await PROVIDERS[name](server, 30.0)
    assert threads == {"litellm"}


# Streams of a model.


def event(**delta: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def calling(arguments: str) -> bytes:
    return event(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}])


STREAMS: dict[str, tuple[bytes, bytes]] = {
    "text": (b"", event(content="word ")),
    "letters": (b"", event(content="[")),
    "thoughts": (event(content="<think>"), event(content="a")),
    "thoughts that end": (b"", event(content="<think></think>")),
    "arguments of a call": (b"", calling("a")),
    "nothing": (b"", b"data: {}\n"),
    "empty lines": (b"", b"\n" * 1_000),
    "comments": (b"", b": wait\n\n"),
    "one line": (b'data: {"choices": [{"delta": {"content": "', b"a" * 8_000),
}


async def heard(server: ScriptedServer) -> tuple[str, str]:
    """What a stream said before it failed, and why it did."""
    model, said = openai_chat(server), []

    async def listen() -> None:
        async for piece in model.stream(ASKED, stage="answer", deadline=time.monotonic() + 30, key={}):
            assert not isinstance(piece, Reply)
            said.append(piece)

    with pytest.raises(ModelFailed) as caught:
        await listen()
    await model.aclose()
    return "".join(said), caught.value.reason


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_without_an_end_is_cut_at_the_limit_and_its_connection_closed(name: str):
    first, more = STREAMS[name]
    parts = chain([first] if first else [], repeat(more * max(1, 8_000 // len(more))))
    fault = Fault(parts=parts, headers={"Content-Type": "text/event-stream"})
    with answering([fault]) as server:
        said, why = await heard(server)
        assert server.client_disconnected.wait(60)
    assert why == "its answer is longer than 128 KiB"
    assert said.startswith("word word") if name == "text" else set(said) <= {"["}
    assert server.bytes_sent < MOST_ON_THE_WAY


async def test_a_stream_of_too_many_calls_is_left_and_its_connection_closed():
    calls = event(tool_calls=[{"index": number, "function": {"name": "f"}} for number in range(200)])
    fault = Fault(parts=repeat(calls), headers={"Content-Type": "text/event-stream"})
    with answering([fault]) as server:
        model = openai_chat(server)
        (reply,) = [p async for p in model.stream(ASKED, stage="answer", deadline=time.monotonic() + 30, key={})]
        await model.aclose()
        assert server.client_disconnected.wait(60)
    assert isinstance(reply, Reply)
    assert [one["type"] for one in reply.tool_calls] == ["function"] * 128 + ["unreadable"]
    assert server.bytes_sent < MOST_ON_THE_WAY


async def test_an_event_of_too_many_values_ends_a_stream_and_many_events_of_few_do_not():
    hostile = b"data: {" + b'"a":[' + b"[]," * VALUES + b"0]}\n\n"
    done = event(content="done") + b"data: [DONE]\n\n"
    streams = [[hostile, done], [*repeat(event(content="a"), 2 * VALUES // 10), done]]
    faults = [Fault(parts=parts, headers={"Content-Type": "text/event-stream"}) for parts in streams]
    with answering(faults) as server, response_limits.use_limits(4 << 20, VALUES):
        assert await heard(server) == ("", "its answer holds more than 10,000 values")
        model = openai_chat(server)
        pieces = [p async for p in model.stream(ASKED, stage="answer", deadline=time.monotonic() + 30, key={})]
        await model.aclose()
    assert pieces[-1].text.endswith("aadone")


SLOW = {
    "long": (Fault(parts=repeat(b"a" * 4_000)), (60.0,), "longer than 128 KiB"),
    "drip": (Fault(parts=repeat(b" "), pause_s=0.02), MORE_AND_MORE_S, "no answer within"),
    "drip of a header": (Fault(head=repeat(b"X"), pause_s=0.02), MORE_AND_MORE_S, "no answer within"),
    "long head": (INTERIM, (60.0,), "the head of its answer is longer than 32 KiB"),
}


@pytest.mark.parametrize("answer", SLOW)
async def test_what_litellm_looks_up_in_threads_ends_at_the_limit_or_the_deadline(answer: str, litellm: Any):
    """Nobody can cancel a thread."""
    fault, deadlines, reason = SLOW[answer]
    with answering(repeat(fault)) as server:
        for timeout_s in deadlines:
            with response_limits.deadline_within(timeout_s), pytest.raises(Exception, match=reason):
                await asyncio.to_thread(litellm.module_level_client.get, server.root_url)
            if server.bytes_sent:
                break
        assert server.client_disconnected.wait(60)


async def test_litellm_looks_nothing_up_where_the_event_loop_would_wait(litellm: Any):
    with answering([]) as server:
        with pytest.raises(Exception, match="a blocking request is not possible inside an event loop"):
            litellm.module_level_client.get(server.root_url)
        assert server.requests == []


async def test_what_litellm_looks_up_is_answered(litellm: Any):
    with ScriptedServer(other=lambda request: {"asked": [request.method, request.body]}) as server:
        got = await asyncio.to_thread(litellm.module_level_client.post, f"{server.root_url}/x", json={"a": 1})
    assert got.json() == {"asked": ["POST", {"a": 1}]}


@pytest.fixture
async def turns() -> AsyncIterator[Callable[[], int]]:
    """How often the event loop has come round so far, with work of others waiting."""
    count = 0

    async def others() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    yield lambda: count
    task.cancel()


async def test_interim_answers_that_are_there_at_once_leave_turns_to_others(turns: Callable[[], int]):
    client = JsonClient("web")
    with answering([INTERIM]) as server, pytest.raises(Unavailable, match="the head of its answer is longer"):
        await client.request_json("GET", server.root_url)
    await client.aclose()
    assert turns() >= (32 << 10) / (8 << 10)


async def test_parts_that_are_there_at_once_leave_turns_to_others(turns: Callable[[], int]):
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(10_000):
            yield b"a"

    before = turns()
    meter = response_limits.BodyReader(SMALL, packed=False)
    assert sum([len(piece) async for piece in meter.read(parts())]) == 10_000
    assert turns() - before >= 1_000
