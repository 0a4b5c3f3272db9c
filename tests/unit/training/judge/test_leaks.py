"""Planted leaks are found, and named with column, row and mend; honest data passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from leap_features.hardware import CATALOGUE
from leap_features.history import MICROSECONDS_PER_DAY
from leap_training.judge.as_known import RECOMPUTED, RecordedRuns
from leap_training.judge.judge import judge
from leap_training.judge.leaks import Leak, check_hidden, check_history, check_labels
from leap_training.judge.windows import Window, by_day
from leap_training.training_set import TrainingSet
from small_recipes import BackoffLast
from training_rows import DAY_US, HOUR_US, START_US, RunRow, training_set

CUT = START_US + 5 * DAY_US


def fleet() -> TrainingSet:
    """Ten days of runs of three families, of 1 to 5 hours, recorded up to 2 hours after they completed."""
    random = np.random.default_rng(5)
    return training_set(
        [
            RunRow(
                f"attempt-{number}",
                job_family=["bert/a", "bert/b", "dlrm/a"][random.integers(3)],
                hardware_type=["A30", "L4"][random.integers(2)],
                trainer_count=int(2 ** random.integers(3)),
                throughput=float(random.lognormal(5, 1)),
                submitted=1.5 * number,
                completed=1.5 * number + (ran := random.uniform(1, 5)),
                recorded=1.5 * number + ran + random.uniform(0, 2),
            )
            for number in range(160)
        ]
    )


ROWS = fleet()
RUNS = RecordedRuns(ROWS)


def planted(at_us: np.ndarray, features: tuple[str, ...], rows: Callable[[int], Any] = slice) -> TrainingSet:
    """The fleet with some history features as known at another instant, in the rows that `rows` chooses."""
    known = RUNS.as_known(ROWS, at_us)
    columns = dict(ROWS.columns)
    for name, values in known.columns.items():
        if name.rpartition("__")[2] in features and "history" in name:
            columns[name] = columns[name].copy()
            columns[name][rows(len(ROWS))] = values[rows(len(ROWS))]
    return replace(ROWS, columns=columns)


def check(rows: TrainingSet) -> None:
    check_history(rows, RUNS)


def test_an_honest_data_set_passes() -> None:
    check(ROWS)


def test_an_honest_data_set_passes_that_begins_after_its_history_did() -> None:
    later = ROWS.where(ROWS.submitted_at_us > START_US + 4 * DAY_US)
    check_history(later, RecordedRuns(later))


FUTURES = {
    "itself": ROWS.recorded_at_us,
    "an hour ahead": ROWS.submitted_at_us + HOUR_US,
    "the end of the day": (ROWS.submitted_at_us // MICROSECONDS_PER_DAY + 1) * MICROSECONDS_PER_DAY,
    "everything": np.full(len(ROWS), START_US + 365 * DAY_US),
}


@pytest.mark.parametrize("future", FUTURES)
@pytest.mark.parametrize("features", [RECOMPUTED, ("mean", "std"), ("last",), ("count",), ("count", "mean", "std")])
def test_history_with_the_future_is_found_whatever_column_has_it(future: str, features: tuple[str, ...]) -> None:
    with pytest.raises(Leak, match=r"column '\w+_history__\w+' knows the future: in row \d+ \(attempt attempt-\d+\)"):
        check(planted(FUTURES[future], features))


@pytest.mark.parametrize("row", [40, 80, 159])
def test_history_with_the_future_is_found_in_a_single_row(row: int) -> None:
    with pytest.raises(Leak, match=rf"in row {row} \(attempt attempt-{row}\).* \(1 such rows\): join history as of"):
        check(planted(FUTURES["itself"], RECOMPUTED, lambda _size: np.array([row])))


def test_a_run_that_completed_before_but_was_recorded_after_the_submission_is_the_future_too() -> None:
    rows = training_set(
        [
            RunRow("early", completed=1, throughput=10.0),
            RunRow("late", completed=2, recorded=9, throughput=20.0),
            RunRow("asked", submitted=5, completed=6),
        ]
    )
    runs = RecordedRuns(rows)
    check_history(rows, runs)
    by_completion = RecordedRuns(replace(rows, recorded_at_us=rows.columns["completed_at_us"]))
    with pytest.raises(Leak, match=r"'family_history__last'.* in row 2 .*recorded at 2026-01-01T09:00:00"):
        check_history(by_completion.as_known(rows, rows.submitted_at_us), runs)


def test_labels_of_after_the_cut_are_found_among_training_rows() -> None:
    train, scored = ROWS.where(ROWS.recorded_at_us < CUT), ROWS.where(ROWS.submitted_at_us >= CUT)
    check_labels(train, scored, CUT)
    under_way = (ROWS.submitted_at_us < CUT) & (ROWS.recorded_at_us >= CUT)
    assert under_way.any()
    for leaky in (ROWS.where((ROWS.recorded_at_us < CUT) | under_way), ROWS):
        with pytest.raises(
            Leak, match=r"column 'recorded_at': row \d+ \(attempt .*: train on what was recorded before"
        ):
            check_labels(leaky, scored, CUT)


def test_a_record_time_that_is_made_up_does_not_hide_a_later_label() -> None:
    train = ROWS.where(ROWS.submitted_at_us < CUT)
    disguised = replace(train, recorded_at_us=train.submitted_at_us)
    with pytest.raises(Leak, match=r"column 'completed_at': row \d+"):
        check_labels(disguised, ROWS.where(ROWS.submitted_at_us >= CUT), CUT)


def test_an_attempt_that_is_trained_on_is_not_scored() -> None:
    train, scored = ROWS.where(ROWS.recorded_at_us < CUT), ROWS.where(ROWS.submitted_at_us >= CUT)
    with pytest.raises(Leak, match="column 'submitted_at'"):
        check_labels(train, ROWS, CUT)
    columns = {**scored.columns, "attempt_id": scored.columns["attempt_id"].copy()}
    columns["attempt_id"][3] = train.columns["attempt_id"][0]
    with pytest.raises(Leak, match=r"column 'attempt_id': row 3 \(attempt attempt-0\) is both trained on and scored"):
        check_labels(train, replace(scored, columns=columns), CUT)


def test_a_label_that_is_shown_to_a_model_is_found() -> None:
    check_hidden(ROWS.hidden())
    with pytest.raises(Leak, match="column 'log_throughput'"):
        check_hidden(ROWS)


def test_the_judge_refuses_what_leaks() -> None:
    recipes = {"backoff_last": BackoffLast()}
    windows = by_day(ROWS, windows=2)
    judge(ROWS, windows, recipes, CATALOGUE, default="backoff_last", by="day")
    with pytest.raises(Leak, match="knows the future"):
        judge(planted(FUTURES["itself"], RECOMPUTED), windows, recipes, CATALOGUE, default="backoff_last", by="day")
    inside = [Window("inside", CUT, np.arange(len(ROWS)), np.flatnonzero(ROWS.submitted_at_us >= CUT))]
    with pytest.raises(Leak, match="column 'recorded_at'"):
        judge(ROWS, inside, recipes, CATALOGUE, default="backoff_last", by="day")


@pytest.mark.parametrize("feature", [name for name in RECOMPUTED if name != "count"])
def test_what_a_first_run_cannot_know_is_found_where_its_count_says_nothing_of_it(feature: str) -> None:
    cold = ~(ROWS.columns["family_scale_history__count"] > 0)
    known = RUNS.as_known(ROWS, FUTURES["everything"])
    column = f"family_scale_history__{feature}"
    leaky = np.where(cold, known.columns[column], ROWS.columns[column])
    with pytest.raises(Leak, match=rf"column 'family_scale_history__{feature}' knows the future"):
        check(replace(ROWS, columns={**ROWS.columns, column: leaky}))


def test_a_row_that_lacks_history_is_no_leak_of_the_rows_before_it() -> None:
    """Rows whose history was lost are worse off than the judge assumes; nobody knows the future."""
    late = ROWS.submitted_at_us > START_US + 6 * DAY_US
    columns = dict(ROWS.columns)
    for name, values in columns.items():
        if "_history__" in name:
            columns[name] = np.where(late, None if values.dtype == object else np.nan, values)
    check(replace(ROWS, columns=columns))
