from __future__ import annotations

import threading
from typing import Any

import pytest

from leap_predictor.counters import BUCKETS_MS, Counters
from leap_predictor.explanation import Reason


def read(counters: Counters) -> Any:
    return counters.read()


def test_every_call_is_in_one_bucket_whose_bound_is_inclusive() -> None:
    counters = Counters()
    for took_ms in (0.0, 0.5, 0.50001, 50.0, 1000.0, 1000.1):
        counters.count(None, took_ms, from_snapshot=False)
    at_most = read(counters)["latency_ms"]["at_most"]
    assert at_most["0.5"] == 2
    assert at_most["1"] == at_most["20"] == 3
    assert at_most["50"] == 4
    assert at_most["1000"] == 5
    assert at_most["inf"] == 6
    assert list(at_most) == [*(f"{bound:g}" for bound in BUCKETS_MS), "inf"]


def test_empty_answers_are_counted_by_reason() -> None:
    counters = Counters()
    for reason in (Reason.STORE_SLOW, None, Reason.STORE_SLOW, Reason.CLOSED):
        counters.count(reason, 1.0, from_snapshot=reason is None)
    assert read(counters)["empty"] == {"closed": 1, "store_slow": 2}
    assert (read(counters)["asked"], read(counters)["ranked"], read(counters)["from_snapshot"]) == (4, 1, 1)


def test_no_call_of_many_threads_is_lost() -> None:
    counters = Counters()

    def work() -> None:
        for _ in range(2000):
            counters.count(None, 3.0, from_snapshot=False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(counters)["asked"] == read(counters)["latency_ms"]["at_most"]["5"] == 16_000
    assert read(counters)["latency_ms"]["sum"] == pytest.approx(48_000.0)
