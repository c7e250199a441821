"""Chat completions over the network: the openai SDK for servers with OpenAI's API, litellm for other providers."""

import asyncio
import importlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from types import ModuleType
from typing import Any, Protocol

from agent.llm.model import ModelFailed
from retrievers.core.timeouts import keep_task
from retrievers.http.response_limits import collect_answers, parse_json, run_off_loop, use_limits
from retrievers.http.sdk_limits import open_openai

_LARGEST_WHOLE = 1 << 20
"""Maximum size in bytes of a non-streamed answer through litellm, which parses it more than once."""
_MOST_VALUES = 50_000
"""Maximum number of JSON values in such an answer: litellm creates an object for each, for some even two."""
_MOST_CHUNKS = 16
"""Maximum number of chunks kept of a stream; the first has the prompt's token count, the last the answer's."""
_CLOSED_WITHIN_S = 0.2
"""How many seconds to wait until litellm has closed a stream; if it is busy, it closes the stream later."""
DONE: dict[str, Any] = {"done": True}
"""The event that marks the end of a stream."""


class ChatClient(Protocol):
    """Sends single requests to a model server, without retries."""

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """Return the decoded answer to a chat completion.

        Raises:
            ModelFailed: the answer is not JSON or too large.
            openai.OpenAIError: raised by the SDK; errors of its HTTP client may also pass through.
        """
        ...

    def stream_events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """Yield the decoded chunks of a streamed chat completion; the last is `DONE` if the server marks the end.

        Raises: as `send`.
        """
        ...

    async def list_models(self, timeout_s: float) -> list[str] | None:
        """Return the ids of the available models; None if the server does not list them."""
        ...

    async def aclose(self) -> None: ...


class OpenAIChatClient:
    """The openai SDK, for OpenAI and any server with its API."""

    def __init__(self, base_url: str | None, api_key: str | None) -> None:
        self._client = open_openai(base_url, api_key)
        # The SDK imports this module on first use, which would block the event loop for 0.2 s.
        threading.Thread(target=importlib.import_module, args=("openai.resources.chat",), daemon=True).start()

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """Return the decoded answer; see `ChatClient.send`."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**body, timeout=timeout_s) as response:
            return await _decoded(await response.read())

    async def stream_events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """Yield the decoded chunks; see `ChatClient.stream_events`."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**body, timeout=timeout_s) as response:
            if "event-stream" not in response.headers.get("content-type", ""):
                yield await _chunk(await response.read())
                return
            async for line in _lines(response.iter_bytes()):
                if line.startswith(b"data:"):
                    yield await _chunk(line.removeprefix(b"data:").strip())

    async def list_models(self, timeout_s: float) -> list[str] | None:
        """Return the ids of the available models; see `ChatClient.models`."""
        client = self._client.with_options(timeout=timeout_s)
        async with client.models.with_streaming_response.list() as response:
            content = await response.read()
        try:
            listed = (await run_off_loop(parse_json, content))["data"]
            return [model["id"] for model in listed if isinstance(model["id"], str)]
        except (ValueError, TypeError, KeyError):
            return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class LiteLLMChatClient:
    """litellm, for providers with an API of their own.

    It takes seconds to import, so a thread starts the import at once.
    """

    def __init__(self, api_key: str | None, base_url: str | None = None) -> None:
        self._options: dict[str, Any] = {"num_retries": 0, "max_retries": 0}
        self._options |= {"api_key": api_key} if api_key else {}
        self._options |= {"api_base": base_url} if base_url else {}
        # Import this before the thread starts: otherwise the event loop would wait for the thread's import lock.
        importlib.import_module("openai")
        threading.Thread(target=lambda: _remote()._import_litellm(), daemon=True).start()

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """Return the decoded answer; see `ChatClient.send`."""

        async def asked(litellm: Any) -> dict[str, Any]:
            answer = await litellm.acompletion(**body, **self._options, timeout=timeout_s)
            data: dict[str, Any] = answer.model_dump()
            cost = (getattr(answer, "_hidden_params", None) or {}).get("response_cost")
            return data | {"usage": {**(data.get("usage") or {}), "cost": cost}}

        with use_limits(_LARGEST_WHOLE, _MOST_VALUES):
            return await _remote().run_in_litellm(asked)

    async def stream_events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """Yield the decoded chunks; see `ChatClient.stream_events`."""

        answers: list[Any] = []

        async def asked(litellm: Any) -> tuple[Any, _LastChunks]:
            with collect_answers(answers):
                stream = await litellm.acompletion(**body, **self._options, timeout=timeout_s)
            stream.chunks = kept = _LastChunks(stream.chunks)
            return stream, kept

        async def event(_: Any) -> dict[str, Any]:
            try:
                chunk = await anext(stream)
            except StopAsyncIteration:
                return DONE
            # Otherwise litellm would join the whole text so far again for each piece.
            stream.response_uptil_now = ""
            data: dict[str, Any] = chunk.model_dump()
            # If the server reports no usage, litellm counts the chunks it kept, which are not all.
            return data if kept.state_usage else data | {"usage": None}

        async def close(_: Any) -> None:
            # Closing the stream of litellm is not enough: it forgets its answer when a chunk cannot be read.
            for answer in answers:
                await answer.aclose()

        try:
            stream, kept = await _remote().run_in_litellm(asked)
            while (made := await _remote().run_in_litellm(event)) is not DONE:
                yield made
        finally:
            # Do not cancel the task at the timeout: if it is cancelled before litellm begins, the stream stays open.
            closing = asyncio.ensure_future(_remote().run_in_litellm(close))
            keep_task(closing)
            await asyncio.wait({closing}, timeout=_CLOSED_WITHIN_S)
        yield DONE

    async def list_models(self, timeout_s: float) -> list[str] | None:
        """Return None: litellm does not list models."""
        return None

    async def aclose(self) -> None:
        """Close litellm's connections, which all its users share."""
        await _remote().close_litellm()


class _LastChunks(list[Any]):
    """A list in which litellm keeps the chunks of a stream, but only those with usage and the last two, which it needs.

    An ordinary list would keep all chunks. To join and count thousands of them at the end of the stream would block the
    event loop, and so would Python's garbage collector whenever it scans them.
    """

    @property
    def state_usage(self) -> bool:
        """True if a chunk in the list states the usage."""
        return any(getattr(chunk, "usage", None) for chunk in self)

    def append(self, chunk: Any) -> None:
        """Add a chunk. Before, drop the chunk before the last, if it states no usage or the list has `_MOST_CHUNKS`.

        The limit is needed because some servers report the usage so far in every chunk.
        """
        if len(self) > 1 and (len(self) >= _MOST_CHUNKS or not getattr(self[-2], "usage", None)):
            del self[-2]
        super().append(chunk)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines of a body. Text after the last line break is not a line."""
    rest: list[bytes] = []
    async for part in parts:
        first, *more = part.split(b"\n")
        rest.append(first)
        for line in more:
            yield b"".join(rest)
            rest = [line]
            # Let other tasks run: a part may hold thousands of lines, which would block the event loop.
            await asyncio.sleep(0)


async def _decoded(content: bytes) -> Any:
    try:
        return await run_off_loop(parse_json, content)
    except ValueError:
        raise ModelFailed("its answer is not JSON") from None


async def _chunk(data: bytes) -> dict[str, Any]:
    """Return the decoded event of a stream; `DONE` for its end mark."""
    chunk = DONE if data == b"[DONE]" else await _decoded(data)
    if not isinstance(chunk, dict):
        raise ModelFailed("its answer is not a JSON object")
    return chunk


def _remote() -> ModuleType:
    from retrievers.embed import remote

    return remote
