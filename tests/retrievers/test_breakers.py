import os
import resource
import threading

from retrievers.core.circuit_breakers import FAILURE_THRESHOLD, OPEN_S, TRIAL_S, CircuitBreaker, CircuitBreakers


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker(now=clock)
    for _ in range(FAILURE_THRESHOLD):
        assert breaker.admit()
        breaker.record_failure()
    return breaker


def test_five_failures_in_a_row_open_it_and_then_nothing_is_admitted():
    breaker = opened(Clock())
    assert FAILURE_THRESHOLD == 5
    assert (breaker.state, breaker.is_rejecting(), breaker.admit()) == ("open", True, False)


def test_an_answer_in_between_starts_the_count_anew():
    breaker = CircuitBreaker(now=Clock())
    for _ in range(3):
        for _ in range(FAILURE_THRESHOLD - 1):
            breaker.record_failure()
        breaker.record_success()
    assert (breaker.state, breaker.admit()) == ("closed", True)


def test_after_its_rest_one_request_is_tried_and_the_others_wait_for_it():
    clock = Clock()
    breaker = opened(clock)
    clock.time += OPEN_S - 0.1
    assert not breaker.admit()
    clock.time += 0.1
    assert (breaker.state, breaker.is_rejecting()) == ("half-open", False)
    assert [breaker.admit() for _ in range(3)] == [True, False, False]
    breaker.record_success()
    assert (breaker.state, [breaker.admit() for _ in range(3)]) == ("closed", [True, True, True])


def test_a_failed_trial_opens_it_for_another_rest():
    clock = Clock()
    breaker = opened(clock)
    clock.time += OPEN_S
    assert breaker.admit()
    clock.time += 1
    breaker.record_failure()
    clock.time += OPEN_S - 0.1
    assert not breaker.admit()
    clock.time += 0.1
    assert breaker.admit()


def test_it_is_closed_within_thirty_seconds_of_recovery_however_the_moments_fall():
    clock = Clock()
    breaker = opened(clock)
    recovered = clock.time + 123.4
    while breaker.state != "closed":
        clock.time += 0.5
        assert clock.time < recovered + 30
        if breaker.admit():
            breaker.record_success() if clock.time >= recovered else breaker.record_failure()


def test_a_trial_whose_caller_left_is_followed_by_another_and_so_is_one_that_is_lost():
    clock = Clock()
    breaker = opened(clock)
    clock.time += OPEN_S
    assert breaker.admit()
    breaker.record_unknown()
    assert breaker.admit()
    assert not breaker.admit()
    clock.time += TRIAL_S
    assert breaker.admit()


def test_a_failure_of_a_request_from_before_it_opened_does_not_lengthen_the_rest():
    clock = Clock()
    breaker = opened(clock)
    clock.time += OPEN_S - 1
    breaker.record_failure()
    clock.time += 1
    assert breaker.admit()


def test_threads_that_fail_at_once_are_all_counted_and_one_of_many_is_the_trial():
    clock = Clock()
    breaker = CircuitBreaker(now=clock)
    threads = [threading.Thread(target=breaker.record_failure) for _ in range(FAILURE_THRESHOLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert breaker.state == "open"
    clock.time += OPEN_S
    admitted: list[bool] = []
    threads = [threading.Thread(target=lambda: admitted.append(breaker.admit())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted.count(True) == 1


def test_each_source_has_its_own():
    breakers = CircuitBreakers(now=Clock())
    for _ in range(FAILURE_THRESHOLD):
        breakers.of("web").record_failure()
    assert [name for name in ("vector", "web") if breakers.of(name).is_rejecting()] == ["web"]


def test_failures_while_this_process_lacks_file_descriptors_do_not_count_against_the_source():
    breaker = CircuitBreaker(failures=3)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 2, hard))
    try:
        for _ in range(10):
            assert breaker.admit()
            breaker.record_failure()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert breaker.state == "closed"
    for _ in range(3):
        breaker.record_failure()
    assert breaker.state == "open"
