"""Small models to judge in tests: quick to fit, and it is plain what each one must answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from leap_features.backoff import backoff
from leap_features.columns import history_column, numbers
from leap_features.hardware import Catalogue
from leap_features.levels import FAMILY
from leap_training.feature_set import FeatureSet, feature_set
from leap_training.model import FittedModel, NotRun, Predictions, Recipe
from leap_training.training_set import TrainingSet

KEY: Final = ["model_type", "trainer_count", "batch_size", "hardware_type"]
ENOUGH_RUNS: Final = 5


class BackoffLast:
    """The last value of the back-off, with an interval of ±10 % and the level that answered."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        return self

    def predict(self, rows: TrainingSet) -> Predictions:
        found = backoff(rows.columns)
        return Predictions(found.last, found.last - 0.1, found.last + 0.1, found.level)


class FamilyMean:
    """The mean of the family's history."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        return self

    def predict(self, rows: TrainingSet) -> Predictions:
        return Predictions(numbers(rows.columns, history_column(FAMILY.view, "mean")))


@dataclass(frozen=True)
class Lookup:
    """The median of each key of which there are runs enough; no answer elsewhere."""

    table: pd.Series[float] | None = None

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        frame = self.frame(rows)
        runs = frame.assign(log=rows.log_throughput).groupby(KEY)["log"].agg(["size", "median"])
        return Lookup(runs[runs["size"] >= ENOUGH_RUNS]["median"].rename("log"))

    def predict(self, rows: TrainingSet) -> Predictions:
        assert self.table is not None
        return Predictions(self.frame(rows).join(self.table, on=KEY)["log"].to_numpy(np.float64))

    def frame(self, rows: TrainingSet) -> pd.DataFrame:
        return pd.DataFrame({name: rows.columns[name] for name in KEY})


@dataclass(frozen=True)
class Linear:
    """Least squares on a matrix of features, missing ones being 0: a model that can be asked by matrix."""

    groups: tuple[str, ...] = ("ratios", "hardware", "family_history", "levels")

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        features = feature_set(rows, self.groups)
        matrix = filled(features.matrix(rows))
        weights = np.linalg.lstsq(matrix, rows.log_throughput, rcond=None)[0]
        return FittedLinear(features, weights.astype(np.float64))


@dataclass(frozen=True, eq=False)
class FittedLinear:
    features: FeatureSet
    weights: NDArray[np.float64]

    def predict(self, rows: TrainingSet) -> Predictions:
        return Predictions(self.predict_matrix(self.features.matrix(rows)))

    def predict_matrix(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        result: NDArray[np.float64] = filled(matrix) @ self.weights
        return result


def filled(matrix: NDArray[Any]) -> NDArray[np.float64]:
    return np.concatenate([np.nan_to_num(matrix.astype(np.float64)), np.ones((len(matrix), 1))], axis=1)


class Absent:
    """A model that cannot be fitted here."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        raise NotRun("needs the package 'absent': pip install absent")


RECIPES: Final[Mapping[str, Recipe]] = {
    "absent": Absent(),
    "backoff_last": BackoffLast(),
    "leap": Linear(),
    "lookup": Lookup(),
    "family_mean": FamilyMean(),
}
ABLATIONS: Final[Mapping[str, Recipe]] = {"leap-history": Linear(("ratios", "hardware"))}
