"""The pace of a streamed fleet, and what becomes of events that are sent live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from archived_events import event
from leap_features.events import checked, to_us
from leap_training.fleet.stream import LEAST_SLEEP_S, Pace, moved
from manual_clock import ManualClock

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def paced(rate: float, stalls: list[float]) -> list[float]:
    """Seconds after the first at which events are sent, of which each takes so long to be sent."""
    clock = ManualClock()
    begin = clock.now

    def sleep(seconds: float) -> None:
        clock.now += seconds

    pace = Pace(rate, clock, sleep)
    sent = []
    for stall in stalls:
        pace.wait()
        sent.append(clock.now - begin)
        clock.now += stall
    return sent


@given(st.floats(0.5, 1e5), st.lists(st.just(0.0) | st.floats(0, 3), min_size=1, max_size=50))
def test_no_event_is_sent_before_it_is_due_nor_later_than_the_stalls_force(rate: float, stalls: list[float]) -> None:
    free = 0.0  # when the sender is free for the next one
    for number, at in enumerate(paced(rate, stalls)):
        due = number / rate
        assert due - LEAST_SLEEP_S - 1e-6 <= at <= max(due, free) + 1e-6
        free = at + stalls[number]


def test_a_stall_is_caught_up_with() -> None:
    sent = paced(10, [0.0] * 5 + [2.0] + [0.0] * 30)
    assert sent[5] == 0.5
    assert sent[6:21] == [2.5] * 15
    assert [round(at, 6) for at in sent[26:]] == [round(number / 10, 6) for number in range(26, 36)]


def test_rate_0_never_waits() -> None:
    assert paced(0, [0.0] * 10) == [0.0] * 10


def test_a_live_event_completes_now_and_took_as_long_as_it_did() -> None:
    original = event("a1")
    live = checked(moved(original, to_us(NOW), to_us(NOW - timedelta(minutes=1))))
    assert live.completed_at == NOW
    assert live.completed_at - live.started_at == original.completed_at - original.started_at
    assert live.started_at - live.submitted_at == original.started_at - original.submitted_at


def test_a_fleet_that_is_sent_live_again_has_attempts_of_its_own() -> None:
    first, second = (moved(event("a1"), to_us(NOW), to_us(NOW) + begun) for begun in (0, 1_000_000))
    assert len({"a1", first.attempt_id, second.attempt_id}) == 3
    assert first.job_name == event("a1").job_name
