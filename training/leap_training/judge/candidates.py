"""Rows on hardware that was not used: what a launcher would have asked about at the same submission."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leap_features.columns import history_column, specification_columns
from leap_features.hardware import SPECS, Catalogue
from leap_features.levels import LEVELS
from leap_predictor.bundle import specifications_of
from leap_training.judge.as_known import RecordedRuns
from leap_training.judge.modes import as_asked
from leap_training.training_set import TrainingSet


def on_hardware(
    rows: TrainingSet, hardware_types: NDArray[Any], runs: RecordedRuns, catalogue: Catalogue
) -> TrainingSet:
    """`rows`, each on another hardware type, with its specifications and its history as of the row's submission.

    Failures are not known from the runs of a training set: a level whose key names the hardware has none here. The
    configuration stays, so a key of it that describes a machine still describes the one that was used.
    """
    moved = hardware_types != rows.columns["hardware_type"]
    columns = dict(rows.columns)
    columns["hardware_type"] = hardware_types
    columns |= specification_columns(hardware_types, specifications_of(catalogue), SPECS)
    for level in LEVELS:
        name = history_column(level.view, "failures_since_success")
        if "hardware_type" in level.join_keys and name in columns:
            columns[name] = np.where(moved, np.nan, columns[name].astype(np.float64))
    return as_asked(runs.as_known(replace(rows, columns=columns), rows.submitted_at_us))
