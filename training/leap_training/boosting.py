"""XGBoost fits that `leap` and the single regressor share: the median of a logarithm, and a choice among classes.

The pinball loss at the median is half the absolute error of the logarithm; exponentiated, its minimum is the
conditional median of throughput. (XGBoost: `reg:quantileerror` with `quantile_alpha` 0.5.)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_training.feature_models import Sample

if TYPE_CHECKING:
    import xgboost

ROWS_PER_THREAD: Final = 100_000
"""A thread must have so many rows of its own to be worth it: at every level of every tree threads wait for one another,
on a busy machine longer than they work."""

DEEP: Final = 10
"""The paper's "deeper trees", whose depth it does not give."""

SHALLOW: Final = 6
"""XGBoost's own default."""


class TreeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a fit, by XGBoost's names. Nothing is sampled, so a fit has no randomness."""

    rounds: int
    max_depth: int = DEEP
    learning_rate: float = 0.1
    min_child_weight: float = 1.0


def threads(rows: int) -> int:
    """How many threads a fit on so many rows is worth."""
    return max(1, min(rows // ROWS_PER_THREAD, os.cpu_count() or 1))


def fit_median(
    matrix: NDArray[np.float32],
    target: NDArray[np.float64],
    types: list[str],
    settings: TreeSettings,
    nthread: int,
) -> xgboost.Booster:
    """A regressor of the median of `target`."""
    return _fit(matrix, target, types, settings, nthread, {"objective": "reg:quantileerror", "quantile_alpha": 0.5})


def fit_classes(
    matrix: NDArray[np.float32],
    labels: NDArray[np.int64],
    types: list[str],
    settings: TreeSettings,
    nthread: int,
) -> xgboost.Booster:
    """A classifier that predicts the probability of every class from 0 to max(labels); there must be two at least."""
    objective = {"objective": "multi:softprob", "num_class": int(labels.max()) + 1}
    return _fit(matrix, labels, types, settings, nthread, objective)


def _fit(
    matrix: NDArray[np.float32],
    labels: NDArray[Any],
    types: list[str],
    settings: TreeSettings,
    nthread: int,
    objective: dict[str, Any],
) -> xgboost.Booster:
    import xgboost  # noqa: PLC0415  # a registry of models must not cost what its models cost

    data = xgboost.QuantileDMatrix(matrix, labels, feature_types=types, enable_categorical=True, nthread=nthread)
    parameters = {
        **objective,
        "tree_method": "hist",
        "nthread": nthread,
        "max_depth": settings.max_depth,
        "learning_rate": settings.learning_rate,
        "min_child_weight": settings.min_child_weight,
    }
    return xgboost.train(parameters, data, settings.rounds)


@dataclass(frozen=True, eq=False)
class MedianTrees:
    """A single regressor of the median."""

    booster: xgboost.Booster

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """As `Estimator`."""
        return answers(self.booster, matrix)


def answers(booster: xgboost.Booster, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
    """What `booster` predicts for every row of `matrix`: shape (rows,), or (rows, classes) of a classifier."""
    return np.asarray(booster.inplace_predict(matrix), dtype=np.float64)


SINGLE: Final = TreeSettings(rounds=300)


def single_regressor(sample: Sample, settings: TreeSettings = SINGLE) -> MedianTrees:
    """One regressor for all rows."""
    nthread = threads(len(sample.target))
    return MedianTrees(fit_median(sample.matrix, sample.target, sample.types, settings, nthread))
