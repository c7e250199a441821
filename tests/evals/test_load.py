"""Load on a scripted server: what is counted, and from when it is timed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from evals.load import LoadTarget, closed_loop, described, open_loop
from retrievers.core.errors import BadRequest, Unavailable

QUESTIONS = [{"query": "one", "collection": None}, {"query": "two", "collection": None}]
Respond = Callable[[int], Awaitable[tuple[int, str]]]


@asynccontextmanager
async def server(respond: Respond) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Its address, and the requests it gets; it answers each by its number with a status and a header line."""
    requests: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                requests.append(head + await reader.readexactly(length))
                status, header = await respond(len(requests))
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n{header}\r\n{{}}".encode())
                if "close" in header:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", requests


async def test_every_answer_is_counted_as_what_it_is():
    async def respond(number: int) -> tuple[int, str]:
        await asyncio.sleep(0.01)
        return {1: 503, 2: 422}.get(number, 200), "Connection: close\r\n" if number == 3 else ""

    async with server(respond) as (url, requests):
        found = await closed_loop(LoadTarget(url, "sbx_key"), QUESTIONS, connections=1, seconds=0.2)
    assert (found["refused"], found["errors"]) == (1, {"422": 1})
    assert found["answered"] == len(requests) - 2 >= 2
    assert found["latency_ms"]["p50"] >= 10
    first, second = requests[:2]
    assert first.startswith(b"POST /v1/retrieve HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer sbx_key\r\n" in first
    assert (first.endswith(b'{"query": "one", "collection": null}'), b'"two"' in second) == (True, True)
    assert ("refused (503)", "1") in described(found)


async def test_in_an_open_loop_a_question_is_timed_from_when_it_was_due():
    busy = asyncio.Lock()

    async def respond(number: int) -> tuple[int, str]:
        async with busy:  # one after the other, each 50 ms: at 100 a second the tenth has waited for nine others
            await asyncio.sleep(0.05)
        return 200, ""

    async with server(respond) as (url, _):
        found = await open_loop(LoadTarget(url), QUESTIONS, rate=100, seconds=0.1)
    assert (found["answered"], found["errors"]) == (10, {})
    assert found["latency_ms"]["p99"] > 9 * 50 - 100
    assert found["latency_ms"]["p50"] < found["latency_ms"]["p99"]


async def test_a_connection_that_breaks_is_an_error_and_another_takes_its_place():
    async def respond(number: int) -> tuple[int, str]:
        if number == 1:
            raise asyncio.IncompleteReadError(b"", 1)
        await asyncio.sleep(0.01)
        return 200, ""

    async with server(respond) as (url, _):
        found = await closed_loop(LoadTarget(url), QUESTIONS, connections=1, seconds=0.1)
    assert found["errors"] == {"ConnectionResetError": 1}
    assert found["answered"] >= 1


async def test_nobody_at_the_address_is_said_with_the_command_to_run():
    with pytest.raises(Unavailable, match="signalbox serve"):
        await closed_loop(LoadTarget("http://127.0.0.1:9"), QUESTIONS, connections=1, seconds=1)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "https://127.0.0.1", "http://", "http://h:port", "http://[::1"])
def test_an_address_that_is_none_is_refused_with_an_example(url: str):
    with pytest.raises(BadRequest, match=r"such as http://127\.0\.0\.1:8000"):
        LoadTarget(url).address()
