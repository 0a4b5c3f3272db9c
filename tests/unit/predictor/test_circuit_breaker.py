from __future__ import annotations

import pytest

from leap_predictor.history.circuit_breaker import FAILURES, FIRST_PAUSE_S, LONGEST_PAUSE_S, CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def opened() -> tuple[CircuitBreaker, Clock]:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    for _ in range(FAILURES):
        assert breaker.allow() is None
        breaker.failed("refused")
    return breaker, clock


def test_single_failures_between_successes_never_open_it() -> None:
    breaker = CircuitBreaker(Clock())
    for _ in range(10):
        assert breaker.allow() is None
        breaker.failed("lost")
        assert breaker.allow() is None
        breaker.succeeded()


def test_failures_in_a_row_open_it_and_the_refusal_names_the_last_one() -> None:
    breaker, _ = opened()
    refusal = breaker.allow()
    assert refusal is not None
    assert "refused" in refusal


def test_one_call_tries_after_the_pause_while_the_others_are_refused() -> None:
    breaker, clock = opened()
    clock.now += FIRST_PAUSE_S
    assert breaker.allow() is None
    assert breaker.allow() is not None
    breaker.succeeded()
    assert breaker.allow() is None


def test_failed_trials_double_the_pause_up_to_a_limit() -> None:
    breaker, clock = opened()
    pause = FIRST_PAUSE_S
    for _ in range(8):
        clock.now += pause - 0.001
        assert breaker.allow() is not None
        clock.now += 0.001
        assert breaker.allow() is None
        breaker.failed("still")
        pause = min(2 * pause, LONGEST_PAUSE_S)
    assert pause == LONGEST_PAUSE_S


def test_stragglers_of_before_the_opening_do_not_prolong_the_pause() -> None:
    breaker, clock = opened()
    for _ in range(20):
        breaker.failed("late")
    clock.now += FIRST_PAUSE_S
    assert breaker.allow() is None


def test_success_forgets_earlier_pauses() -> None:
    breaker, clock = opened()
    clock.now += FIRST_PAUSE_S
    assert breaker.allow() is None
    breaker.failed("again")
    clock.now += 2 * FIRST_PAUSE_S
    assert breaker.allow() is None
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed("anew")
    clock.now += FIRST_PAUSE_S
    assert breaker.allow() is None


def test_trial_of_which_nothing_is_heard_is_given_up() -> None:
    """Its caller may have been interrupted before it could say how it went."""
    breaker, clock = opened()
    clock.now += FIRST_PAUSE_S
    assert breaker.allow() is None
    clock.now += LONGEST_PAUSE_S - 0.001
    assert breaker.allow() is not None
    clock.now += 0.001
    assert breaker.allow() is None
    breaker.failed("still")
    assert breaker.state.retry_in_s == 2 * FIRST_PAUSE_S


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), RecursionError()])
def test_what_tells_nothing_of_the_store_is_not_held_against_it(error: BaseException) -> None:
    breaker, clock = opened()
    state = breaker.state

    def read() -> None:
        raise error

    clock.now += FIRST_PAUSE_S
    for _ in range(3):
        with pytest.raises(type(error)):
            breaker.guard(read)
    assert breaker.state.failures == state.failures
    assert breaker.allow() is None
