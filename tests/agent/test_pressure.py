"""Whose line is short: tenants of which more is refused than let in."""

import asyncio
from itertools import pairwise

import pytest

from agent.serve.http.admission import Gate
from agent.serve.http.pressure import Pressure

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
def pressure(clock: Clock) -> Pressure:
    return Pressure(AT_WORK, WAITING, clock)


def press(pressure: Pressure, clock: Clock, *, seconds: float = 1.0, refused: int = 5) -> None:
    """Every tenth of a second one request of "a" is let in and so many are refused."""
    for _ in range(round(seconds * 10)):
        clock.now += 0.1
        pressure.entered("a")
        for _ in range(refused):
            pressure.refused("a")


def test_a_burst_presses_not_and_more_than_that_does_at_once(pressure: Pressure):
    for _ in range(AT_WORK + WAITING):
        pressure.entered("a")
    for _ in range(2 * (AT_WORK + WAITING)):
        pressure.refused("a")
    assert (bool(pressure), pressure.line("a")) == (False, WAITING)
    pressure.refused("a")
    assert (bool(pressure), pressure.line("a")) == (True, AT_WORK)
    assert pressure.line("b") == WAITING


def test_half_of_the_line_is_back_while_no_more_is_refused_than_let_in(pressure: Pressure, clock: Clock):
    press(pressure, clock)
    assert pressure.line("a") == AT_WORK
    press(pressure, clock, seconds=2.2, refused=1)
    assert pressure.line("a") == WAITING // 2
    press(pressure, clock, seconds=0.1)
    assert pressure.line("a") == AT_WORK


def test_it_is_over_soon_after_the_last_refusal(pressure: Pressure, clock: Clock):
    press(pressure, clock)
    clock.now += 0.4
    assert pressure.line("a") == AT_WORK
    clock.now += 0.2
    assert pressure.line("a") == WAITING
    assert not pressure


def test_a_longer_line_is_tried_ever_more_rarely_and_ends_it_where_it_holds_all(pressure: Pressure, clock: Clock):
    def next_trial() -> float:
        """When it is, while everything is refused but one request in six."""
        while True:
            clock.now += 0.1
            if pressure.line("a") == WAITING // 2:
                return clock.now
            pressure.entered("a")
            for _ in range(5):
                pressure.refused("a")

    press(pressure, clock, seconds=0.5)
    trials = [clock.now]
    for _ in range(5):
        trials.append(next_trial())
        pressure.refused("a")  # the first refusal ends it
        assert pressure.line("a") == AT_WORK
    assert [round(later - sooner) for sooner, later in pairwise(trials)] == [4, 8, 16, 16, 16]

    next_trial()
    for _ in range(6):
        clock.now += 0.1
        pressure.entered("a")
    assert pressure.line("a") == WAITING


async def test_who_presses_waits_in_a_short_line_and_the_others_as_before():
    gate = Gate(1, 8)

    async def ask(tenant: str) -> None:
        async with gate.admitted(tenant, 5):
            pass

    async with gate.admitted("a", 5):
        for _ in range(20):
            gate.refused("a")
        assert gate.may_refuse
        waiting = [asyncio.create_task(ask(tenant)) for tenant in "aabbbbb"]
        await asyncio.sleep(0)
        assert gate.waiting == 6
        assert (gate.has_room("a"), gate.has_room("b")) == (False, True)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [one is None for one in ended] == [True, False, True, True, True, True, True]
    assert (gate.at_work, gate.waiting) == (0, 0)


def test_where_nobody_may_wait_there_is_room_for_none_but_those_at_work():
    gate = Gate(0, 0)
    assert gate.is_full
    assert not gate.has_room("a")
