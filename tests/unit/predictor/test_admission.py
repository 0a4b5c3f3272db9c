"""A few are in at a time, in the order in which they came, and no place is ever lost."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from leap_predictor.admission import Admission, NotAdmitted
from stream_process import wait_until

PATIENT_S = 60.0


def patient() -> float:
    return time.monotonic() + PATIENT_S


def test_no_more_than_these_are_in_at_a_time() -> None:
    admission, inside, end = Admission(3), [], threading.Event()

    def stay(number: int) -> None:
        with admission.admitted(patient()):
            inside.append(number)
            end.wait(PATIENT_S)

    threads = [threading.Thread(target=stay, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(admission._waiting) == 9, timeout_s=PATIENT_S, what="nine wait")
    wait_until(lambda: len(inside) >= 3, timeout_s=PATIENT_S, what="three are in")
    assert len(inside) == 3
    end.set()
    for thread in threads:
        thread.join()
    assert sorted(inside) == list(range(12))


def test_who_waits_longer_than_wanted_is_told_and_the_next_is_let_in() -> None:
    admission = Admission(1)
    with admission.admitted(patient()), pytest.raises(NotAdmitted), admission.admitted(time.monotonic() + 0.01):
        pytest.fail("there was no place")
    with admission.admitted(patient()):
        pass


def test_they_are_let_in_in_the_order_in_which_they_came() -> None:
    admission, order, threads = Admission(1), [], []

    def work(number: int) -> None:
        with admission.admitted(patient()):
            order.append(number)

    with admission.admitted(patient()):
        for number in range(8):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            wait_until(lambda: len(admission._waiting) == len(threads), timeout_s=PATIENT_S, what="it waits")
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def test_child_has_all_places_though_other_threads_of_its_parent_held_them() -> None:
    admission, end = Admission(1), threading.Event()

    def hold(entered: threading.Event) -> None:
        with admission.admitted(patient()):
            entered.set()
            end.wait(PATIENT_S)

    entered = threading.Event()
    thread = threading.Thread(target=hold, args=(entered,))
    thread.start()
    entered.wait(PATIENT_S)
    if (child := os.fork()) == 0:
        try:
            with admission.admitted(time.monotonic() + 10):
                os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    end.set()
    thread.join()
    assert status == 0


class Interruption(BaseException):
    pass


def test_no_place_is_lost_to_exceptions_of_a_signal_handler() -> None:
    """Wherever they strike, in the midst of entering or leaving."""
    admission = Admission(2)
    pauses = itertools.cycle([1e-5, 2e-5, 3e-5, 5e-5, 8e-5, 1.3e-4])
    struck = 0

    def strike(_signal: int, _frame: object) -> None:
        raise Interruption

    def asking() -> Iterator[None]:
        while True:
            with admission.admitted(patient()):
                yield

    before = signal.signal(signal.SIGALRM, strike)
    others_end = threading.Event()

    def others() -> None:
        while not others_end.is_set():
            with admission.admitted(patient()):
                pass

    other = threading.Thread(target=others)
    other.start()
    try:
        while struck < 500:
            try:
                signal.setitimer(signal.ITIMER_REAL, next(pauses))
                for _ in asking():
                    pass
            except Interruption:
                struck += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        others_end.set()
        other.join()
    gc.collect()
    with ExitStack() as both:
        for _ in range(2):
            both.enter_context(admission.admitted(patient()))
        assert len(admission._inside) == 2
