"""Baselines of other gradient-boosting libraries: LightGBM and CatBoost, a single regressor of the median each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from leap_training.boosting import threads
from leap_training.feature_models import Estimator, Sample
from leap_training.model import NotRun

if TYPE_CHECKING:
    import catboost
    import lightgbm
    import pandas as pd

LIGHTGBM: Final[dict[str, Any]] = {
    "objective": "quantile",
    "alpha": 0.5,
    "num_leaves": 255,
    "learning_rate": 0.1,
    "verbosity": -1,
    "deterministic": True,
    "force_row_wise": True,
    "seed": 0,
}
LIGHTGBM_ROUNDS: Final = 300

CATBOOST: Final[dict[str, Any]] = {
    "loss_function": "MAE",
    "iterations": 500,
    "depth": 8,
    "learning_rate": 0.1,
    "random_seed": 0,
    "verbose": False,
    "allow_writing_files": False,
}

INSTALL: Final = "install it with: pip install 'leap-throughput[baselines]'"


@dataclass(frozen=True, eq=False)
class LightGbmMedian:
    """A fitted LightGBM regressor."""

    booster: lightgbm.Booster

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """As `Estimator`."""
        return np.asarray(self.booster.predict(matrix), dtype=np.float64)


def lightgbm_regressor(sample: Sample) -> LightGbmMedian:
    """LightGBM on the pinball loss at the median.

    Raises:
        NotRun: LightGBM is not installed.
    """
    try:
        import lightgbm  # noqa: PLC0415  # optional
    except ImportError as error:
        raise NotRun(f"LightGBM cannot be imported ({error}): {INSTALL}") from error
    # A matrix has columns, no names: LightGBM calls them by their places.
    data = lightgbm.Dataset(sample.matrix, sample.target, categorical_feature=sample.categorical())
    parameters = {**LIGHTGBM, "num_threads": threads(len(sample.target))}
    return LightGbmMedian(lightgbm.train(parameters, data, LIGHTGBM_ROUNDS))


@dataclass(frozen=True, eq=False)
class Constant:
    """Where there is nothing to tell rows apart by, or nothing to tell apart: the median of all."""

    value: float

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """As `Estimator`."""
        return np.full(len(matrix), self.value)


@dataclass(frozen=True, eq=False)
class CatBoostMedian:
    """A fitted CatBoost regressor."""

    regressor: catboost.CatBoostRegressor
    categorical: tuple[int, ...]

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """As `Estimator`."""
        return np.asarray(self.regressor.predict(_frame(matrix, self.categorical)), dtype=np.float64)


def catboost_regressor(sample: Sample) -> Estimator:
    """CatBoost on the absolute error of the logarithm, which has the same minimum as the pinball loss at the median.

    Raises:
        NotRun: CatBoost is not installed.
    """
    try:
        import catboost  # noqa: PLC0415  # optional
    except ImportError as error:
        raise NotRun(f"CatBoost cannot be imported ({error}): {INSTALL}") from error
    same = (sample.matrix == sample.matrix[0]) | (np.isnan(sample.matrix) & np.isnan(sample.matrix[0]))
    if np.ptp(sample.target) == 0.0 or same.all():  # CatBoost refuses these
        return Constant(float(np.median(sample.target)))
    categorical = tuple(sample.categorical())
    regressor = catboost.CatBoostRegressor(
        **CATBOOST, thread_count=threads(len(sample.target)), cat_features=list(categorical)
    )
    regressor.fit(_frame(sample.matrix, categorical), sample.target)
    return CatBoostMedian(regressor, categorical)


def _frame(matrix: NDArray[np.float32], categorical: tuple[int, ...]) -> pd.DataFrame:
    """`matrix` with its categories as integers, −1 where missing, since CatBoost takes no NaN for a category."""
    import pandas as pd  # noqa: PLC0415

    frame = pd.DataFrame(matrix)
    for column in categorical:
        frame[column] = np.nan_to_num(matrix[:, column], nan=-1.0).astype(np.int64)
    return frame
