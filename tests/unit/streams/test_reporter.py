from __future__ import annotations

import logging
from typing import Any

import pytest

from leap_streams.app_state import NO_PARTITION
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.history_writer import Delivery
from leap_streams.metrics import Metrics
from leap_streams.reporter import UNASSIGNED_FOR_S, Reporter
from manual_clock import ManualClock

APP = "leap-history"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(APP, ("folded",))


@pytest.fixture
def reporter(metrics: Metrics, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> Reporter:
    caplog.set_level(logging.INFO, logger="leap")
    return Reporter(APP, metrics, "", clock)


def fields(line: logging.LogRecord, *names: str) -> dict[str, Any]:
    return {name: vars(line)[name] for name in names}


def test_a_wait_is_told_when_it_begins_and_when_it_ends(
    reporter: Reporter, metrics: Metrics, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        reporter.waits(reporter.state.sink, "write", Unavailable("Redis at r: refused"), 0.1)
        clock.now += 1
    reporter.goes_on(reporter.state.sink, "write")
    reporter.goes_on(reporter.state.sink, "write")
    began, ended = caplog.records
    assert began.getMessage() == "leap-history waits to write (next try in 0.1 s): Redis at r: refused"
    assert fields(began, "app", "waiting", "next_try_s") == {"app": APP, "waiting": "write", "next_try_s": 0.1}
    assert ended.getMessage() == "leap-history can write now, after 3.0 s and 3 tries"
    assert metrics.registry.get_sample_value("leap_retries_total", {"app": APP, "waits_to": "write"}) == 3


def test_a_refusal_tells_from_which_offsets_it_begins_again(
    reporter: Reporter, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    batch = [Delivery(partition, offset, 0, b"") for partition, offset in [(0, 5), (1, 9), (0, 6)]]
    reporter.refused(batch, Refused("another generation"))
    (line,) = caplog.records
    assert "another generation; drops 3 records from {0: 5, 1: 9} on" in line.getMessage()
    assert vars(line)["offsets"] == {0: 5, 1: 9}
    assert metrics.registry.get_sample_value("leap_refused_batches_total", {"app": APP}) == 1


def test_a_rewind_tells_partition_and_offsets(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    reporter.goes(3, 200, 150)
    (line,) = caplog.records
    assert line.getMessage() == "leap-history: partition 3 goes from offset 200 to 150"
    assert fields(line, "partition", "offset", "to") == {"partition": 3, "offset": 200, "to": 150}


def test_an_app_without_a_partition_says_so_once_after_a_while(
    reporter: Reporter, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    reporter.state.begun = True
    reporter.stands(0, {})
    clock.now += UNASSIGNED_FOR_S
    reporter.stands(0, {})
    assert caplog.records == []
    for _ in range(3):
        clock.now += 1
        reporter.stands(0, {})
    assert [line.getMessage() for line in caplog.records] == [f"{APP}: {NO_PARTITION}"]
    reporter.stands(1, {})
    reporter.stands(0, {})
    clock.now += UNASSIGNED_FOR_S + 1
    reporter.stands(0, {})
    assert len(caplog.records) == 2


def test_counts_are_reported_once(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    reporter.stored([Delivery(0, 1, 0, b"")], {"folded": 1, "conflicts": 0}, 0.1)
    reporter.stored([Delivery(0, 2, 0, b"")], {"folded": 1}, 0.1)
    reporter.report()
    reporter.report()
    assert [line.getMessage() for line in caplog.records] == [f"{APP}: folded 2"]


def test_why_it_halts_is_the_last_line_and_has_no_traceback(
    reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    reporter.stored([Delivery(0, 1, 0, b"")], {"folded": 1}, 0.1)
    reporter.halts(Halt("run `leap init`"))
    reporter.close()
    assert caplog.records[-1].getMessage() == f"{APP} halts: run `leap init`"
    assert caplog.records[-1].exc_info is None
    assert reporter.state.why_dead() == "halted: run `leap init`"


def test_an_unexpected_error_is_told_with_its_traceback(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    error = ZeroDivisionError("division by zero")
    reporter.halts(error)
    exc_info = caplog.records[-1].exc_info
    assert exc_info is not None
    assert exc_info[1] is error


def test_an_app_is_ready_as_soon_as_it_begins(reporter: Reporter) -> None:
    reporter.begins({0: 5, 3: 0})
    assert reporter.state.why_not_ready() is None
