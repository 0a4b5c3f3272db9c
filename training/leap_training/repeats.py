"""What is usual of the noise of repeated runs: mean and variance of the log variances of cells."""

from __future__ import annotations

import numpy as np
import pandas as pd

from leap_features.columns import history_column, numbers
from leap_features.levels import FAMILY_SCALE
from leap_predictor.models.repeat_noise import RepeatNoise, log_variance, trigamma_of_half
from leap_training.training_set import TrainingSet


def repeat_noise(rows: TrainingSet, unseen: float) -> RepeatNoise:
    """By what the latest row of every cell (family, hardware, trainers) knows of the runs before it.

    Args:
        rows: the attempts.
        unseen: variance of a run in a cell that was not run twice.
    """
    cells = pd.DataFrame({name: rows.columns[name] for name in FAMILY_SCALE.join_keys})
    latest = ~cells.iloc[np.argsort(rows.submitted_at_us, kind="stable")].duplicated(keep="last").sort_index()
    of_latest = rows.where(latest.to_numpy())
    runs = numbers(of_latest.columns, history_column(FAMILY_SCALE.view, "count"))
    spread = numbers(of_latest.columns, history_column(FAMILY_SCALE.view, "std"))
    several = (runs > 1.5) & ~np.isnan(spread)
    if several.sum() < 2:
        return RepeatNoise(unseen, unseen, 0.0)
    freedom = runs[several] - 1.0
    shown, uncertain = log_variance(freedom, spread[several]), trigamma_of_half(freedom)
    # Moments, with cells weighed by what they tell; twice, since the weights need the diversity.
    diversity = float(np.var(shown))
    for _ in range(10):
        weights = 1.0 / (diversity + uncertain)
        mean = float(np.average(shown, weights=weights))
        diversity = max(0.0, float(np.average((shown - mean) ** 2 - uncertain, weights=weights)))
    return RepeatNoise(unseen, float(np.exp(mean)), diversity)
