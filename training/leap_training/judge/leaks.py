"""Leak checks: a judge that lets the future in overstates every model, and nothing in its figures shows it.

Found are labels that nobody could have had at the cut, and history that knows what was recorded after the submission.
The paper's early evaluation inside the training window overstated accuracy by more than 20 points.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.columns import history_column, numbers
from leap_features.events import CLOCK_ALLOWANCE_US, from_us
from leap_features.history import MICROSECONDS_PER_DAY
from leap_features.levels import LEVELS, Level
from leap_training.judge.as_known import RECOMPUTED, RecordedRuns
from leap_training.training_set import TrainingSet

NEARLY: Final = 1e-6
"""Of a logarithm: what a file that passed through other tools may have lost."""


class Leak(ValueError):
    """A data set in which training rows or history know the future; names column, row and mend."""


def check_labels(train: TrainingSet, scored: TrainingSet, cut_us: int) -> None:
    """Check that every label of `train` could be known before the cut, and that none is of a scored attempt.

    Raises:
        Leak: it is not so.
    """
    for column, times in (
        ("recorded_at", train.recorded_at_us),
        ("completed_at", train.columns["completed_at_us"] - CLOCK_ALLOWANCE_US),
    ):
        late = np.flatnonzero(times >= cut_us)
        if len(late):
            raise Leak(
                f"column {column!r}: {_row(train, late[0])} is a training row, and its label was there only at "
                f"{_time(times[late[0]])}, after the cut at {_time(cut_us)} ({len(late):,} such rows): train on what "
                "was recorded before the cut"
            )
    early = np.flatnonzero(scored.submitted_at_us < cut_us)
    if len(early):
        raise Leak(
            f"column 'submitted_at': {_row(scored, early[0])} is scored, and was submitted before the cut at "
            f"{_time(cut_us)}: score what was submitted from the cut on"
        )
    both = np.flatnonzero(pd.Series(scored.columns["attempt_id"]).isin(train.columns["attempt_id"]))
    if len(both):
        raise Leak(
            f"column 'attempt_id': {_row(scored, both[0])} is both trained on and scored: give each attempt an id and "
            "one row"
        )


def check_hidden(rows: TrainingSet) -> None:
    """Check that `rows`, which a model is about to see, hold no label.

    Raises:
        Leak: one does.
    """
    shown = np.flatnonzero(~np.isnan(rows.log_throughput))
    if len(shown):
        raise Leak(f"column 'log_throughput': {_row(rows, shown[0])} shows its label to the model: hide it first")


def check_history(rows: TrainingSet, runs: RecordedRuns) -> None:
    """Check that the history columns of `rows` know nothing that was recorded after the submission.

    History may know runs that are not in the data set (before its begin); what the data set does hold, it may know only
    once it was recorded. So four things are held against the runs themselves, for every level:

    1. the latest run did not complete after the submission; where no run is counted, nothing is said of any;
    2. the run that `last` and `last_seen` name was recorded by then;
    3. where `count` is the number of runs recorded by then, the other features are those of these runs;
    4. runs beyond these, which must then be from outside the data set, are still known at every later submission.

    Args:
        rows: with history as of their submission.
        runs: all runs of the data set.

    Raises:
        Leak: one of them does not hold.
    """
    for level in LEVELS:
        known = runs.level(level, rows, rows.submitted_at_us)
        given = {name: _given(rows, level, name) for name in RECOMPUTED}
        _check_last_seen(rows, level, given)
        _check_latest_run(rows, level, given, known, runs)
        _check_same_count(rows, level, given, known)
        _check_beyond(rows, level, given, known, runs)


def _check_last_seen(rows: TrainingSet, level: Level, given: dict[str, Any]) -> None:
    """The latest run had completed, and is there where runs are counted; where none are, nothing is said of any."""
    ahead = np.flatnonzero(given["last_seen"] > rows.submitted_at_us + CLOCK_ALLOWANCE_US)
    if len(ahead):
        row = ahead[0]
        _refuse(rows, level, "last_seen", ahead, f"names a run that completed at {_time(given['last_seen'][row])}")
    counted = given["count"] > 0
    headless = np.flatnonzero(counted & (np.isnan(given["last"]) | np.isnan(given["last_seen"])))
    if len(headless):
        row = headless[0]
        _refuse(rows, level, "count", headless, f"counts {given['count'][row]:.0f} runs where there is no latest run")
    # First runs are what a model is judged by, and nothing below looks at a row that counts no runs.
    for name in RECOMPUTED:
        told = np.flatnonzero(~counted & ~_missing(given[name]))
        if name != "count" and len(told):
            _refuse(rows, level, name, told, f"is {_shown(given[name][told[0]])} where no run is counted")


def _check_latest_run(
    rows: TrainingSet, level: Level, given: dict[str, Any], known: dict[str, Any], runs: RecordedRuns
) -> None:
    """The run that completed at `last_seen` with the throughput `last`, where the data set holds it, was recorded."""
    seen = given["last_seen"]
    # Honest history names what was known; only the rest is looked up.
    other = np.flatnonzero(~np.isnan(seen) & ~((seen == known["last_seen"]) & _near(given["last"], known["last"])))
    if not len(other):
        return
    recorded = runs.first_recorded(level, rows.where(other), seen[other].astype(np.int64), given["last"][other], NEARLY)
    ahead = other[recorded > rows.submitted_at_us[other]]
    if len(ahead):
        at = _time(recorded[np.flatnonzero(recorded > rows.submitted_at_us[other])[0]])
        _refuse(rows, level, "last", ahead, f"is of a run that was recorded at {at}")


def _check_same_count(rows: TrainingSet, level: Level, given: dict[str, Any], known: dict[str, Any]) -> None:
    same = (given["count"] > 0) & (given["count"] == known["count"])
    for name in RECOMPUTED:
        wrong = np.flatnonzero(same & ~_near(given[name], known[name]))
        if len(wrong):
            row = wrong[0]
            _refuse(
                rows,
                level,
                name,
                wrong,
                f"is {_shown(given[name][row])}, and the {known['count'][row]:.0f} runs recorded by then make it "
                f"{_shown(known[name][row])}",
            )


def _check_beyond(
    rows: TrainingSet, level: Level, given: dict[str, Any], known: dict[str, Any], runs: RecordedRuns
) -> None:
    """Runs that history knows beyond those of the data set do not become fewer later."""
    count = np.nan_to_num(given["count"])
    beyond = count - np.nan_to_num(known["count"])
    # A run may become known later than its own record time says, where clocks step back: a day is let pass.
    a_day_ago = runs.level(level, rows, rows.submitted_at_us - MICROSECONDS_PER_DAY)["count"]
    most = count - np.nan_to_num(a_day_ago)
    key = runs.key(level, rows)
    # The least of all later rows of the key, row by row: a running minimum from the end.
    order = np.lexsort((rows.submitted_at_us, key))[::-1]
    later = pd.Series(most[order]).groupby(key[order], sort=False).cummin().to_numpy()
    # A row that knows no more than was recorded knows no future; that later rows lack runs is no leak of its.
    ahead = order[(beyond[order] > np.maximum(later, 0.0)) & (key[order] >= 0)]
    if len(ahead):
        row = int(ahead.min())
        _refuse(
            rows,
            level,
            "count",
            np.sort(ahead),
            f"is {count[row]:.0f}, when {np.nan_to_num(known['count'])[row]:.0f} runs were recorded, and a later row "
            "of the same key knows fewer of the others",
        )


def _given(rows: TrainingSet, level: Level, name: str) -> NDArray[Any]:
    column = history_column(level.view, name)
    return rows.columns[column] if name == "last_hardware_type" else numbers(rows.columns, column)


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = pd.isna(values)
    return missing


def _near(given: NDArray[Any], known: NDArray[Any]) -> NDArray[np.bool_]:
    if given.dtype == object:
        same: NDArray[np.bool_] = given == known
        return same
    close: NDArray[np.bool_] = np.isclose(given, known, rtol=0, atol=NEARLY, equal_nan=True)
    return close


def _refuse(rows: TrainingSet, level: Level, feature: str, found: NDArray[Any], what: str) -> None:
    row = int(found[0])
    raise Leak(
        f"column {history_column(level.view, feature)!r} knows the future: in {_row(rows, row)}, submitted at "
        f"{_time(rows.submitted_at_us[row])}, it {what} ({len(found):,} such rows): join history as of each "
        "submission, as `leap dataset` does"
    )


def _shown(value: object) -> str:
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


def _row(rows: TrainingSet, row: int) -> str:
    return f"row {row} (attempt {rows.columns['attempt_id'][row]})"


def _time(at_us: float) -> str:
    return from_us(int(at_us)).isoformat(timespec="seconds")
