from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from leap_predictor.history.openings import Openings

PATIENT_S = 60.0


class Opening:
    """A thread that opens a store until it is let go."""

    def __init__(self, openings: Openings) -> None:
        self._openings = openings
        self.begun = threading.Event()
        self.end = threading.Event()
        self._thread = threading.Thread(target=self._open)
        self._thread.start()

    def _open(self) -> None:
        with self._openings.one():
            self.begun.set()
            self.end.wait(PATIENT_S)

    def close(self) -> None:
        self.end.set()
        self._thread.join()


@pytest.fixture
def openings() -> Openings:
    return Openings(longest_wait_s=PATIENT_S)


@pytest.fixture
def opening(openings: Openings) -> Iterator[Opening]:
    made = Opening(openings)
    assert made.begun.wait(PATIENT_S)
    yield made
    made.close()


def test_fork_waits_for_the_end_of_an_opening_and_lets_no_other_begin(openings: Openings, opening: Opening) -> None:
    forking, fork = threading.Event(), threading.Event()

    def prefork() -> None:
        openings.before_fork()
        forking.set()
        fork.wait(PATIENT_S)
        openings.lock.release()

    thread = threading.Thread(target=prefork)
    thread.start()
    assert not forking.wait(0.1)
    opening.close()
    assert forking.wait(PATIENT_S)
    other = Opening(openings)
    assert not other.begun.wait(0.1)
    fork.set()
    assert other.begun.wait(PATIENT_S)
    other.close()
    thread.join()


def test_opening_that_takes_too_long_is_not_waited_for() -> None:
    openings = Openings(longest_wait_s=0.0)
    opening = Opening(openings)
    assert opening.begun.wait(PATIENT_S)
    openings.before_fork()
    openings.lock.release()
    opening.close()


def test_thread_that_forks_while_it_opens_a_store_does_not_wait_for_itself(openings: Openings) -> None:
    with openings.one():
        openings.before_fork()
        openings.lock.release()


def test_child_waits_for_no_thread_of_its_parent(openings: Openings, opening: Opening) -> None:
    openings.after_fork_in_child()
    openings.before_fork()
    openings.lock.release()
