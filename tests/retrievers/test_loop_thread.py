"""Coroutines in the event loop of another thread: results, errors, context and cancellation pass between them."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from retrievers.http.loop_thread import LoopThread

SAID: ContextVar[str] = ContextVar("said", default="nothing")


async def test_a_coroutine_runs_in_the_thread_with_the_context_of_its_caller():
    loops = LoopThread("other")

    async def told() -> tuple[str, str, int]:
        return SAID.get(), threading.current_thread().name, id(asyncio.get_running_loop())

    SAID.set("hello")
    said, thread, loop = await loops.run(told)
    assert (said, thread) == ("hello", "other")
    assert loop != id(asyncio.get_running_loop())
    assert (await loops.run(told))[2] == loop


async def test_an_error_is_raised_unchanged():
    error = ValueError("no")

    async def fail() -> None:
        raise error

    with pytest.raises(ValueError, match="no") as caught:
        await LoopThread("other").run(fail)
    assert caught.value is error


async def test_cancelling_the_call_cancels_the_coroutine():
    begun, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(LoopThread("other").run(wait))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 30)
