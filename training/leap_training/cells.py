"""Cells: what was run, one entry per family, hardware, trainers, batch size and settings, with the mean of its runs.

Most attempts repeat a cell. A cell's mean and number of runs say all that a normal model can learn of them, so a fit's
cost follows the number of different things that were run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.columns import logarithm, numbers
from leap_features.history import MICROSECONDS_PER_DAY
from leap_predictor.models.basis import Floats, Ints
from leap_training.training_set import TrainingSet


@dataclass(frozen=True, eq=False)
class Cells:
    """One entry per cell, ordered by model type, family and time."""

    model_types: tuple[str, ...]
    families: tuple[str, ...]
    """Names, by code."""
    model_type: Ints
    """Code of the cell's model type."""
    family: Ints
    hardware: Ints
    """Code in the hardware table."""
    log_trainers: Floats
    log_batch: Floats
    """NaN: unknown."""
    days: Floats
    """Mean of when its runs ended, since 1970."""
    value: Floats
    """Mean ln throughput."""
    runs: Floats
    settings: Floats
    """Shape (cells, settings)."""

    def __len__(self) -> int:
        return len(self.value)

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Cells:
        """The cells that a mask or an array of indices chooses, in that order."""
        return Cells(
            self.model_types,
            self.families,
            self.model_type[chosen],
            self.family[chosen],
            self.hardware[chosen],
            self.log_trainers[chosen],
            self.log_batch[chosen],
            self.days[chosen],
            self.value[chosen],
            self.runs[chosen],
            self.settings[chosen],
        )


def cells_of(rows: TrainingSet, hardware: Ints, settings: Floats) -> Cells:
    """The cells of `rows`.

    Args:
        rows: the attempts.
        hardware: code of each row's hardware.
        settings: of each row, shape (rows, settings).
    """
    model_type, model_types = pd.factorize(rows.columns["model_type"], sort=True)
    family, families = pd.factorize(rows.columns["job_family"], sort=True)
    table = pd.DataFrame(
        {
            "model_type": model_type,
            "family": family,
            "hardware": hardware,
            "log_trainers": logarithm(numbers(rows.columns, "trainer_count")),
            "log_batch": logarithm(numbers(rows.columns, "batch_size")),
            "settings": _same(settings),
            "days": numbers(rows.columns, "completed_at_us") / MICROSECONDS_PER_DAY,
            "value": rows.log_throughput,
            "row": np.arange(len(rows)),
        }
    )
    keys = ["model_type", "family", "hardware", "log_trainers", "log_batch", "settings"]
    found = (
        table.groupby(keys, sort=False, dropna=False)
        .agg(days=("days", "mean"), value=("value", "mean"), runs=("value", "size"), row=("row", "first"))
        .reset_index()
        .sort_values(["model_type", "family", "days", "row"], kind="stable")
    )
    return Cells(
        tuple(map(str, model_types)),
        tuple(map(str, families)),
        found["model_type"].to_numpy(np.int64),
        found["family"].to_numpy(np.int64),
        found["hardware"].to_numpy(np.int64),
        found["log_trainers"].to_numpy(np.float64),
        found["log_batch"].to_numpy(np.float64),
        found["days"].to_numpy(np.float64),
        found["value"].to_numpy(np.float64),
        found["runs"].to_numpy(np.float64),
        settings[found["row"].to_numpy()],
    )


def _same(settings: Floats) -> Ints:
    """A number for every row that is equal where all settings are."""
    if not settings.shape[1]:
        return np.zeros(len(settings), dtype=np.int64)
    codes: Ints = np.unique(np.round(settings, 9), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
