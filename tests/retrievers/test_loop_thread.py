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


async def test_a_call_that_was_cancelled_while_the_thread_was_busy_does_not_begin():
    loops, busy, free, begun = LoopThread("other"), threading.Event(), threading.Event(), threading.Event()

    async def block() -> None:
        busy.set()
        free.wait(30)

    async def begin() -> None:
        begun.set()

    blocking = asyncio.create_task(loops.run(block))
    assert await asyncio.to_thread(busy.wait, 30)
    task = asyncio.create_task(loops.run(begin))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    await blocking

    async def idle() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    await loops.run(idle)
    assert not begun.is_set()


async def test_a_call_that_wants_to_end_the_process_fails_and_the_thread_goes_on():
    loops = LoopThread("other")

    async def leave() -> None:
        raise SystemExit

    async def name() -> str:
        return threading.current_thread().name

    with pytest.raises(RuntimeError, match="SystemExit in the thread other"):
        await loops.run(leave)
    assert await loops.run(name) == "other"
