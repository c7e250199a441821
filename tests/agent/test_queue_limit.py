"""Whose line is short: tenants of which more is refused than let in."""

import asyncio
from itertools import pairwise

import pytest

from agent.serve.http.middleware.admission import Gate, Gates
from agent.serve.http.middleware.queue_limit import TenantQueueLimit
from agent.serve.http.problems import Problem

AT_WORK, WAITING = 2, 14


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue_limit(clock: Clock) -> TenantQueueLimit:
    return TenantQueueLimit(AT_WORK, WAITING, clock)


def ask(queue_limit: TenantQueueLimit, clock: Clock, seconds: float, *, let_in: int = 1, refused: int = 5) -> None:
    """Every tenth of a second so many requests of "a" are refused, and so many let in."""
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        for _ in range(refused):
            queue_limit.record_rejection("a")
        for _ in range(let_in):
            queue_limit.record_admission("a")


def test_a_burst_does_not_press_and_what_is_more_does(queue_limit: TenantQueueLimit):
    for _ in range(AT_WORK):
        queue_limit.record_admission("a")
    for _ in range(2 * AT_WORK + WAITING):
        queue_limit.record_rejection("a")
    assert (queue_limit.is_active, queue_limit.max_waiting("a")) == (False, WAITING)
    queue_limit.record_rejection("a")
    assert (queue_limit.is_active, queue_limit.max_waiting("a")) == (True, AT_WORK)
    assert queue_limit.max_waiting("b") == WAITING


@pytest.mark.parametrize(("at_work", "waiting", "short"), [(2, 14, 2), (8, 4, 4), (1, 1, 1), (2, 0, 0)])
def test_a_short_line_is_never_longer_than_the_long_one(at_work: int, waiting: int, short: int):
    queue_limit = TenantQueueLimit(at_work, waiting)
    assert queue_limit.max_waiting("a") == waiting
    for _ in range(at_work + waiting + 1):
        queue_limit.record_rejection("a")
    assert queue_limit.max_waiting("a") == short


def test_it_is_over_when_nothing_was_refused_for_a_while(queue_limit: TenantQueueLimit, clock: Clock):
    ask(queue_limit, clock, 0.9)
    clock.now += 0.4
    assert queue_limit.max_waiting("a") == AT_WORK
    clock.now += 0.2
    assert queue_limit.max_waiting("a") == WAITING
    # One refusal later on, as of one that is displaced, does not bring it back.
    queue_limit.record_rejection("a")
    assert queue_limit.max_waiting("a") == WAITING


def test_who_pressed_is_forgotten(queue_limit: TenantQueueLimit, clock: Clock):
    ask(queue_limit, clock, 0.9)
    clock.now += 1
    assert queue_limit.is_active
    queue_limit.record_admission("b")
    assert not queue_limit.is_active


@pytest.mark.parametrize("refused", [1, 2])
def test_the_line_is_long_while_no_more_is_refused_than_let_in(
    queue_limit: TenantQueueLimit, clock: Clock, refused: int
):
    ask(queue_limit, clock, 0.9)
    assert queue_limit.max_waiting("a") == AT_WORK
    ask(queue_limit, clock, 2.2, let_in=2, refused=refused)
    assert queue_limit.max_waiting("a") == WAITING
    ask(queue_limit, clock, 0.2)
    assert queue_limit.max_waiting("a") == AT_WORK


def test_the_long_line_is_tried_ever_more_rarely(queue_limit: TenantQueueLimit, clock: Clock):
    ask(queue_limit, clock, 0.9)
    trials = [clock.now]
    for _ in range(1300):
        clock.now += 0.1
        if queue_limit.max_waiting("a") == WAITING:
            trials.append(clock.now)
        for _ in range(5):
            queue_limit.record_rejection("a")
        queue_limit.record_admission("a")
    assert [round(later - sooner) for sooner, later in pairwise(trials)] == [4, 8, 16, 32, 32, 32]


async def test_who_presses_waits_in_a_short_line_and_the_others_as_before(queue_limit: TenantQueueLimit):
    gate = Gate(1, 8, TenantQueueLimit(1, 8, Clock()))

    async def work(tenant: str) -> None:
        async with gate.admit(tenant, 5):
            pass

    async with gate.admit("a", 5):
        for _ in range(20):
            gate.record_rejection("a")
        assert gate.may_reject
        asked = [asyncio.create_task(work(tenant)) for tenant in "aabbbbb"]
        await asyncio.sleep(0)
        assert gate.waiting == 6
        assert (gate.has_room("a"), gate.has_room("b")) == (False, True)
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert [one is None for one in ended] == [True, False, True, True, True, True, True]
    assert (gate.at_work, gate.waiting) == (0, 0)


class Counting(TenantQueueLimit):
    """Pressure that keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(1, 2)
        self.told: list[str] = []

    def record_admission(self, tenant: str) -> None:
        self.told.append(f"{tenant} let in")

    def record_rejection(self, tenant: str) -> None:
        self.told.append(f"{tenant} refused")


async def test_let_in_is_who_gets_a_turn_and_refused_who_is_told_so():
    queue_limit = Counting()
    gate = Gate(1, 2, queue_limit)

    async def work(tenant: str, max_wait_s: float = 5) -> None:
        async with gate.admit(tenant, max_wait_s):
            pass

    def come(*tenants: str) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(work(tenant)) for tenant in tenants]

    async with gate.admit("a", 5):
        waiting = come("a", "a")
        await asyncio.sleep(0)
        with pytest.raises(Problem):
            await work("a")  # there is no room
        displacing = come("b")
        await asyncio.sleep(0)
        assert queue_limit.told == ["a let in", "a refused", "a refused"]
        waiting[0].cancel()  # who leaves was neither
        await asyncio.sleep(0)
        with pytest.raises(Problem):
            await work("c", 0.01)  # its turn does not come in time
    await asyncio.gather(*waiting, *displacing, return_exceptions=True)
    assert queue_limit.told == ["a let in", "a refused", "a refused", "c refused", "b let in"]


async def test_callers_that_come_again_at_once_are_all_let_in_again_after_a_trial():
    clock = Clock()
    gate, refused = Gate(AT_WORK, WAITING, TenantQueueLimit(AT_WORK, WAITING, clock)), 0
    ends = asyncio.Event()

    async def caller() -> None:
        nonlocal refused
        while not ends.is_set():
            try:
                async with gate.admit("a", 5):
                    await asyncio.sleep(0.001)
            except Problem:
                refused += 1
                await asyncio.sleep(0.001)

    for _ in range(AT_WORK + WAITING + 1):
        gate.record_rejection("a")
    callers = [asyncio.create_task(caller()) for _ in range(AT_WORK + WAITING)]
    for _ in range(60):  # seconds, with so many turns of each
        for _ in range(10):
            clock.now += 0.1
            await asyncio.sleep(0.001)
        if clock.now > 106:
            break
    before = refused
    assert before > 0
    for _ in range(20):
        clock.now += 0.1
        await asyncio.sleep(0.001)
    ends.set()
    await asyncio.gather(*callers)
    assert refused == before
    assert not gate.may_reject


def test_only_what_is_over_soon_is_shortened():
    gates = Gates(has_model=True)
    for gate in (gates.answers, gates.writes, Gates(has_model=True, searches_wait=True).searches):
        for _ in range(500):
            gate.record_rejection("a")
        assert not gate.may_reject
    for _ in range(500):
        gates.searches.record_rejection("a")
    assert gates.may_reject
