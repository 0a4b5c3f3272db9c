"""Intervals by rolling split-conformal prediction, per level of back-off.

A model that is fitted on everything before some instant predicts what was submitted after it, as it would have been
served. How many of its own spreads the measured throughput lay away, at each level of history, is what its intervals
must allow for: their half-width is the 80 % quantile of that, times the spread (Vovk, Gammerman and Shafer, Algorithmic
Learning in a Random World, ch. 4; per level: a Mondrian predictor). Several instants, one after another, so that the
quantile rests on more than one evening.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_features.levels import BACKOFF
from leap_predictor.models.basis import Floats
from leap_predictor.models.layered import Estimate
from leap_predictor.models.served_model import NORMAL
from leap_training.training_set import TrainingSet

COVERAGE: Final = 0.8

LEVELS: Final = len(BACKOFF) + 1
"""Levels that can answer, with that of no history at all."""

SPLITS: Final = (0.5, 0.75)
"""Shares of the rows, the earliest recorded, that the model is fitted on; the next quarter is predicted. A fit on much
less than will serve would be another model."""
MAX_ROWS: Final = 20_000
"""Of one split: more move a quantile by less than it matters."""
MIN_ROWS: Final = 50
"""Without so many in all, the widths stay those of the normal distribution."""

PRIOR_ROWS: Final = 100.0
"""A level's quantile counts as much as that of all levels but the first where it has so many rows, and theirs as much
as the normal distribution's."""


def widths(rows: TrainingSet, predict: Callable[[TrainingSet, TrainingSet], Estimate]) -> Floats:
    """Per level (−1, none, comes first) the half-width of the interval, in spreads.

    Args:
        rows: the rows of the fit.
        predict: fits on its first argument and predicts its second one.
    """
    away, level = scores(rows, predict)
    if len(away) < MIN_ROWS:
        return np.full(LEVELS, NORMAL)
    elsewhere = shrunk(away[level != 0], NORMAL)
    return np.array([shrunk(away[level == at - 1], elsewhere) for at in range(LEVELS)])


def scores(
    rows: TrainingSet, predict: Callable[[TrainingSet, TrainingSet], Estimate], splits: Sequence[float] = SPLITS
) -> tuple[Floats, NDArray[np.int8]]:
    """How far later runs lay from their predictions, in spreads, and the level that answered.

    Args:
        rows: the rows of the fit.
        predict: fits on its first argument and predicts its second one.
        splits: shares of the rows that are fitted on, in order; what follows, up to the next one, is predicted.
    """
    ends: list[int] = np.quantile(rows.recorded_at_us, [*splits, 1.0], method="lower").tolist() if len(rows) else []
    found = []
    for cut, end in pairwise(ends):
        earlier = rows.where(rows.recorded_at_us < cut)
        later = rows.where((rows.submitted_at_us >= cut) & (rows.recorded_at_us <= end))
        if not len(earlier) or not len(later):
            continue
        later = later.where(np.arange(0, len(later), max(1, -(-len(later) // MAX_ROWS))))
        estimates = predict(earlier, later)
        found.append((np.abs(later.log_throughput - estimates.log_throughput) / estimates.spread, estimates.level))
    if not found:
        return np.empty(0), np.empty(0, dtype=np.int8)
    return np.concatenate([away for away, _ in found]), np.concatenate([level for _, level in found])


def shrunk(away: Floats, towards: float) -> float:
    """The quantile of `away`, leaning the more on `towards` the fewer there are."""
    if not len(away):
        return towards
    share = len(away) / (len(away) + PRIOR_ROWS)
    return float(towards ** (1 - share) * quantile(away) ** share)


def quantile(away: Floats) -> float:
    """The ⌈(n + 1) · 80 %⌉-th smallest, which a next one is at most as often as that (never less than a tiny width)."""
    place = min(len(away), int(np.ceil((len(away) + 1) * COVERAGE)))
    return max(1e-6, float(np.partition(away, place - 1)[place - 1]))
