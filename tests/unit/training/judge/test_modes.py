from __future__ import annotations

import numpy as np

from leap_training.judge.as_known import RecordedRuns
from leap_training.judge.modes import MODES, Mode, as_asked, with_history
from training_rows import DAY_US, START_US, RunRow, training_set

# One run a quarter of a day, each of three hours.
ROWS = training_set([RunRow(f"{n:02}", submitted=6 * n, completed=6 * n + 3, throughput=100.0 + n) for n in range(16)])
CUT = START_US + DAY_US


def counts(mode: Mode) -> list[float]:
    scored = ROWS.where(ROWS.submitted_at_us >= CUT)
    found = with_history(mode, scored, RecordedRuns(ROWS), CUT)
    return np.nan_to_num(found.columns["family_history__count"]).tolist()


def test_live_history_grows_run_by_run_nightly_by_day_and_frozen_never() -> None:
    assert counts("live") == [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    assert counts("nightly") == [4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12]
    assert counts("frozen") == [4] * 12


def test_what_was_recorded_at_the_very_midnight_belongs_to_the_next_day() -> None:
    rows = training_set([RunRow("a", completed=24), RunRow("b", submitted=24, completed=25)])
    scored = rows.where(np.array([1]))
    runs = RecordedRuns(rows)
    known = {mode: with_history(mode, scored, runs, CUT).columns["family_history__count"][0] for mode in MODES}
    assert known["live"] == 1
    assert np.isnan(known["nightly"])
    assert np.isnan(known["frozen"])


def test_a_model_sees_nothing_that_only_the_outcome_tells() -> None:
    shown = as_asked(ROWS)
    assert np.isnan(shown.log_throughput).all()
    assert np.isnan(shown.columns["device_hours"]).all()
    assert (shown.columns["completed_at_us"] == shown.submitted_at_us).all()
    assert (shown.recorded_at_us == shown.submitted_at_us).all()
    assert not np.isnan(ROWS.log_throughput).any()
