from __future__ import annotations

from leap_streams.waiting import FIRST_SILENCE_S, LONGEST_SILENCE_S, Waiting
from manual_clock import ManualClock


def said_at(waiting: Waiting, clock: ManualClock, seconds: int) -> list[int]:
    """The seconds at which a wait, tried each second, is due to be said."""
    said = []
    for second in range(seconds):
        if waiting.failed("write", f"no answer {second}"):
            said.append(second)
        clock.now += 1
    return said


def test_a_wait_is_said_at_once_and_then_after_twice_as_long_each_time() -> None:
    clock = ManualClock()
    assert said_at(Waiting(clock), clock, 100) == [0, 5, 15, 35, 75]
    assert FIRST_SILENCE_S == 5


def test_a_wait_for_ever_is_said_now_and_then() -> None:
    clock = ManualClock()
    said = said_at(Waiting(clock), clock, 10_000)
    assert said[-1] - said[-2] == LONGEST_SILENCE_S
    assert len(said) < 50


def test_the_end_of_a_wait_tells_how_long_and_how_often_it_was_tried() -> None:
    clock = ManualClock()
    waiting = Waiting(clock)
    said_at(waiting, clock, 12)
    waited = waiting.succeeded()
    assert waited is not None
    assert (waited.seconds, waited.tries) == (12, 12)


def test_success_without_a_wait_is_none() -> None:
    assert Waiting().succeeded() is None


def test_why_is_that_of_the_latest_try_until_one_succeeds() -> None:
    clock = ManualClock()
    waiting = Waiting(clock)
    said_at(waiting, clock, 3)
    assert waiting.why == "no answer 2"
    waiting.succeeded()
    assert waiting.why is None


def test_the_next_wait_is_said_at_once_again() -> None:
    clock = ManualClock()
    waiting = Waiting(clock)
    said_at(waiting, clock, 50)
    waiting.succeeded()
    assert said_at(waiting, clock, 10) == [0, 5]


def test_waiting_for_something_else_is_said_at_once() -> None:
    waiting = Waiting(ManualClock())
    assert waiting.failed("begin", "refused")
    assert waiting.failed("write", "refused")
    assert not waiting.failed("write", "refused")
