"""History as known at any instant equals the fold of what was recorded by then, run by run."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leap_features.columns import history_column
from leap_features.levels import LEVELS
from leap_training.judge.as_known import RECOMPUTED, RecordedRuns, as_known
from leap_training.judge.leaks import check_history
from training_rows import HOUR_US, START_US, RunRow, known, training_set

runs = st.lists(
    st.builds(
        RunRow,
        attempt_id=st.uuids().map(str),
        job_family=st.sampled_from(["bert/a", "bert/b", "dlrm/a"]),
        hardware_type=st.sampled_from(["A30", "L4"]),
        trainer_count=st.sampled_from([1, 8]),
        batch_size=st.sampled_from([0.0, 0.5, 32.0]),
        throughput=st.floats(1e-6, 1e12),
        submitted=st.integers(0, 30),
        completed=st.integers(31, 40),
        recorded=st.none() | st.integers(31, 60),
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda each: each.attempt_id,
)


def spread(given_runs: list[RunRow]) -> list[RunRow]:
    """`given_runs` moved apart, so that some were recorded before others were submitted."""
    moved = []
    for number, each in enumerate(given_runs):
        hours = 20.0 * (number % 4)
        recorded = None if each.recorded is None else max(each.recorded, each.completed) + hours
        moved.append(
            each._replace(submitted=each.submitted + hours, completed=each.completed + hours, recorded=recorded)
        )
    return moved


@given(runs, st.lists(st.integers(-10, 150), min_size=25, max_size=25))
def test_history_at_any_instant_is_the_fold_of_what_was_recorded_by_then(
    given_runs: list[RunRow], hours: list[int]
) -> None:
    moved = spread(given_runs)
    rows = training_set(moved)
    at_us = np.array([START_US + hour * HOUR_US for hour in hours[: len(rows)]])
    found = as_known(rows, rows, at_us)
    by_id = {each.attempt_id: each for each in moved}
    for place, attempt_id in enumerate(rows.columns["attempt_id"].tolist()):
        for level in LEVELS:
            expected = known(moved, level, by_id[attempt_id], int(at_us[place]))
            for name in RECOMPUTED:
                value = found.columns[history_column(level.view, name)][place]
                wanted = expected[name]
                same = value == wanted or (wanted is None and (value is None or math.isnan(value)))
                assert same, (attempt_id, level.view, name, value, wanted)


@given(runs)
def test_history_at_the_submissions_is_what_was_joined_and_no_leak(given_runs: list[RunRow]) -> None:
    rows = training_set(spread(given_runs))
    known_runs = RecordedRuns(rows)
    again = known_runs.as_known(rows, rows.submitted_at_us)
    for level in LEVELS:
        for name in RECOMPUTED:
            column = history_column(level.view, name)
            np.testing.assert_array_equal(again.columns[column], rows.columns[column], err_msg=column)
    check_history(rows, known_runs)


@given(runs, st.data())
def test_history_may_know_runs_that_the_data_set_has_not(given_runs: list[RunRow], data: st.DataObject) -> None:
    rows = training_set(spread(given_runs))
    kept = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)).filter(any))
    some = rows.where(np.array(kept))
    check_history(some, RecordedRuns(some))


def test_a_key_that_no_run_has_is_unknown() -> None:
    rows = training_set([RunRow("a"), RunRow("b", submitted=2, completed=3)])
    other = training_set([RunRow("c", job_family="dlrm/a", submitted=5, completed=6)])
    found = as_known(other, rows, other.submitted_at_us)
    assert all(np.isnan(found.columns[history_column(level.view, "count")][0]) for level in LEVELS)


def test_only_columns_that_the_rows_have_are_recomputed() -> None:
    rows = training_set([RunRow("a"), RunRow("b", submitted=2, completed=3)])
    found = as_known(rows, rows, rows.submitted_at_us)
    assert found.columns.keys() == rows.columns.keys()
    assert (
        found.columns["family_history__failures_since_success"]
        is rows.columns["family_history__failures_since_success"]
    )
