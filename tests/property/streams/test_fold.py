"""The fold under any schedule of deliveries: batches, redelivery, partitions in any order, duplicates among them."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events_strategies import positions_of
from leap_features.events import FIXED_POINT, fixed_log
from leap_features.history import EMPTY, MAX_FAILURES, Position, Row, Run, features, fold, from_state, touch
from leap_features.meta import Claim
from leap_streams.history_writer import Delivery
from model_log import Identity, Record, row_of

EPOCHS = (1, 1_000_000, 1_000_001)
PARTITIONS = 3


class Schedule(NamedTuple):
    """Records of one key, and in which order a row comes to see them."""

    records: list[Record]
    turns: list[tuple[int, int, int]]
    """Lane, by how many records it goes back first, how many it then delivers."""


attempts = st.builds(
    Run,
    # More failures than a row keeps, and successes before, between and after them.
    succeeded=st.sampled_from([True, False, False, False]),
    completed_at_us=st.integers(0, 5),
    attempt_id=st.sampled_from("abcdefghij"),
    x=st.integers(-(2**42), 2**42),
    log_trainers=st.integers(0, 2**37),
    log_batch=st.none() | st.integers(-(2**42), 2**42),
    hardware_type=st.just("H100"),
    trainer_count=st.just(8),
    batch_size=st.just(32.0),
)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """An attempt may come several times, with the same content, in several partitions and epochs."""
    first: dict[Identity, Run] = {}
    runs = [first.setdefault((run.succeeded, run.attempt_id), run) for run in draw(st.lists(attempts, max_size=60))]
    lanes = list(itertools.product(EPOCHS, range(PARTITIONS)))
    chosen = draw(st.lists(st.integers(0, len(lanes) - 1), min_size=len(runs), max_size=len(runs)))
    stamps = draw(st.lists(st.integers(0, 50), min_size=len(runs), max_size=len(runs)))
    records = [
        Record(
            Position(*lanes[at.partition], at.offset),
            Delivery(at.partition, at.offset, stamp, b""),
            "",
            None,
            run,
            "",
            (),
        )
        for at, run, stamp in zip(positions_of(chosen), runs, stamps, strict=True)
    ]
    turns = st.tuples(st.integers(0, len(lanes) - 1), st.integers(0, 3), st.integers(1, 5))
    return Schedule(records, draw(st.lists(turns, max_size=40)))


def delivered(schedule: Schedule) -> list[list[Record]]:
    """Batches of records as `schedule` delivers them; in the end each lane has been delivered to its end."""
    lanes: dict[tuple[int, ...], list[Record]] = {lane: [] for lane in itertools.product(EPOCHS, range(PARTITIONS))}
    for record in schedule.records:
        lanes[record.position[:2]].append(record)
    logs = list(lanes.values())
    cursors = [0] * len(logs)
    batches = []
    for lane, back, count in [*schedule.turns, *((lane, 3, len(log) + 3) for lane, log in enumerate(logs))]:
        begin = max(0, cursors[lane] - back)
        batches.append(logs[lane][begin : begin + count])
        cursors[lane] = max(cursors[lane], begin + len(batches[-1]))
    return batches


@given(schedules())
def test_any_schedule_gives_the_row_that_its_records_define(schedule: Schedule) -> None:
    claims: dict[Identity, Claim] = {}
    row = EMPTY
    for batch in delivered(schedule):
        for record in batch:
            assert record.run is not None
            claim = claims.setdefault(record.identity, Claim(record.position, ""))
            if claim.position == record.position:
                row = fold(row, record.run, record.position, record.delivery.recorded_at_us)
            else:
                row = touch(row, record.position, record.delivery.recorded_at_us)
        row = stored(row)
    assert row == row_of(schedule.records, claims)


@given(schedules(), st.data())
def test_which_of_an_attempts_events_counts_makes_no_difference(schedule: Schedule, data: st.DataObject) -> None:
    of_attempt: dict[Identity, list[Record]] = {}
    for record in schedule.records:
        of_attempt.setdefault(record.identity, []).append(record)
    counting = {data.draw(st.sampled_from(records)).position for records in of_attempt.values()}
    row = EMPTY
    for record in schedule.records:
        assert record.run is not None
        if record.position in counting:
            row = fold(row, record.run, record.position, record.delivery.recorded_at_us)
        else:
            row = touch(row, record.position, record.delivery.recorded_at_us)
    firsts = {identity: Claim(records[0].position, "") for identity, records in of_attempt.items()}
    assert row == row_of(schedule.records, firsts)


def stored(row: Row) -> Row:
    """`row` as the next batch reads it."""
    if row is EMPTY:
        return row
    kept = features(row)
    return from_state(str(kept["state"]), str(kept["version"]), row.recorded_at_us)


@given(st.lists(st.integers(0, 100), min_size=MAX_FAILURES + 1, max_size=40, unique=True), st.data())
def test_a_success_at_any_time_leaves_the_failures_after_it(times: list[int], data: st.DataObject) -> None:
    """Though a row has forgotten all but the greatest 16 by the time that it hears of the success."""
    success_at = data.draw(st.integers(0, 100))
    row = EMPTY
    for offset, at in enumerate(times):
        row = fold(row, run_at(at, f"f{at}", succeeded=False), Position(1, 0, offset), 0)
    assert features(row)["failures_since_success"] == MAX_FAILURES
    row = fold(row, run_at(success_at, "s", succeeded=True), Position(1, 0, len(times)), 0)
    after = sum((at, f"f{at}") > (success_at, "s") for at in times)
    assert features(row)["failures_since_success"] == min(after, MAX_FAILURES)


def run_at(completed_at_us: int, attempt_id: str, *, succeeded: bool, x: int = 1) -> Run:
    return Run(succeeded, completed_at_us, attempt_id, x if succeeded else 0, 0, None, "H100", 8, 0.0)


@given(st.sampled_from([5e-324, 1e-300, 1e300, 1.7976931348623157e308]), st.integers(1, 2**32))
def test_sums_of_extreme_throughput_stay_exact(throughput: float, count: int) -> None:
    x = fixed_log(throughput)
    row = Row(n=count, sum_x=count * x, sum_xx=count * x * x, version=(Position(1, 0, count),))
    assert row.sum_xx < 2**127  # what a window sum in DuckDB holds
    row = fold(stored(row), run_at(1, "a", succeeded=True, x=x), Position(1, 0, count + 1), 0)
    assert (row.sum_x, row.sum_xx) == ((count + 1) * x, (count + 1) * x * x)
    found = features(stored(row))
    assert found["std"] == 0.0
    assert found["mean"] == pytest.approx(x / FIXED_POINT, rel=1e-15)
