"""History live, refreshed nightly, or frozen at the training cut: the same rows with what each would have known."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from leap_features.history import MICROSECONDS_PER_DAY
from leap_training.judge.as_known import RecordedRuns
from leap_training.training_set import TrainingSet

Mode = Literal["live", "nightly", "frozen"]
MODES: Final[tuple[Mode, ...]] = ("live", "nightly", "frozen")


def known_before(mode: Mode, rows: TrainingSet, cut_us: int) -> NDArray[np.int64]:
    """Per row, the instant (microseconds since 1970 UTC) before which a run must have been recorded to be in history.

    Args:
        mode: "live": the row's own submission; "nightly": the last midnight (UTC) before it; "frozen": the cut.
        rows: submitted at or after the cut.
        cut_us: of the training window.
    """
    if mode == "frozen":
        return np.full(len(rows), cut_us)
    if mode == "nightly":
        return rows.submitted_at_us // MICROSECONDS_PER_DAY * MICROSECONDS_PER_DAY
    return rows.submitted_at_us


def with_history(mode: Mode, rows: TrainingSet, runs: RecordedRuns, cut_us: int) -> TrainingSet:
    """`rows` with the history of `mode`. Live history stays as it was joined, failures included."""
    return rows if mode == "live" else runs.as_known(rows, known_before(mode, rows, cut_us) - 1)


def as_asked(rows: TrainingSet) -> TrainingSet:
    """`rows` as a model may see them that is judged: without the label and all else that only the outcome tells."""
    columns = dict(rows.columns)
    columns["device_hours"] = np.full(len(rows), np.nan)
    columns["completed_at_us"] = rows.submitted_at_us
    return replace(rows.hidden(), columns=columns, recorded_at_us=rows.submitted_at_us)
