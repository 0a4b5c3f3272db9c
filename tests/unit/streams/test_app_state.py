from __future__ import annotations

import pytest

from leap_streams.app_state import NO_PARTITION, STUCK_AFTER_S, AppState
from manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def state(clock: ManualClock) -> AppState:
    """An app at work."""
    made = AppState(clock)
    made.begun, made.assigned = True, 3
    made.tick()
    return made


def test_an_app_at_work_lives_and_is_ready(state: AppState) -> None:
    assert state.name() == "running"
    assert state.why_dead() is None
    assert state.why_not_ready() is None


def test_an_app_that_has_not_joined_its_group_lives_and_is_not_ready() -> None:
    state = AppState()
    assert state.name() == "starting"
    assert state.why_dead() is None
    assert str(state.why_not_ready()).startswith("starting")


def test_an_app_without_a_partition_says_what_may_be_the_cause(state: AppState) -> None:
    state.assigned = 0
    assert state.name() == "unassigned"
    assert state.why_dead() is None
    assert state.why_not_ready() == NO_PARTITION


@pytest.mark.parametrize("what", ["sink", "topic"])
def test_an_app_that_waits_lives_and_says_what_for(state: AppState, what: str) -> None:
    getattr(state, what).failed("write", "Redis at redis://r: refused")
    assert state.name() == "waiting"
    assert state.why_dead() is None
    assert state.why_not_ready() == "waits: Redis at redis://r: refused"
    getattr(state, what).succeeded()
    assert state.why_not_ready() is None


def test_an_app_whose_loop_stands_still_is_dead_until_it_turns_again(state: AppState, clock: ManualClock) -> None:
    clock.now += STUCK_AFTER_S
    assert state.why_dead() is None
    clock.now += 5
    assert state.why_dead() == "the event loop has stood still for 20 s"
    assert state.why_not_ready() == state.why_dead()
    state.tick()
    assert state.why_dead() is None


def test_an_app_that_halted_is_dead_and_says_why(state: AppState) -> None:
    state.halted = "run `leap init`"
    assert state.name() == "halted"
    assert state.why_dead() == "halted: run `leap init`"
    assert state.why_not_ready() == "halted: run `leap init`"
