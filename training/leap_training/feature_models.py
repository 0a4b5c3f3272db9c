"""Models of the feature matrix: what `leap` and the other models that learn from it share, whatever they learn with.

A recipe makes a sample of the training rows (features by name, types, target), and hands it to a learner. The fitted
model keeps the names beside the estimator, so that rows are always asked about in the order that was learned.

A model that never met a missing category answers one by a branch that no row has shaped, and what is new (a host
processor, a framework's release, a model type) is exactly that to it. So categories are hidden in a share of the
training rows: as large as the share of their latest quarter that has a value which the rows before do not have, a fifth
at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_training.feature_set import FeatureSet, feature_set
from leap_training.model import NothingToFit, Predictions
from leap_training.training_set import TrainingSet

PAPER_GROUPS: Final = ("configuration", "ratios", "hardware", "family_history", "architecture")
"""Groups of features that the paper has: of all history levels, the family's alone."""

LATER_SHARE: Final = 0.25
"""The latest rows, in which values are looked for that the earlier ones do not have."""

MIN_HIDDEN: Final = 0.02
"""New values come one day, also where none came lately."""

MAX_HIDDEN: Final = 0.2
"""What is known is worth more than what is not: most rows keep their categories."""


@dataclass(frozen=True, eq=False)
class Sample:
    """What a learner learns from."""

    matrix: NDArray[np.float32]
    """Features, shape (rows, features); NaN where missing, a category as its code."""
    types: list[str]
    """Per feature "c" for a category, "q" for a number."""
    target: NDArray[np.float64]
    """Natural logarithm of throughput."""
    submitted_at_us: NDArray[np.int64]

    def categorical(self) -> list[int]:
        """Columns of the matrix that are categories."""
        return [column for column, kind in enumerate(self.types) if kind == "c"]

    def latest(self, count: int) -> Sample:
        """The `count` rows that were submitted last; all of them if there are no more."""
        if len(self.target) <= count:
            return self
        chosen = np.sort(np.argsort(self.submitted_at_us, kind="stable")[-count:])
        return Sample(self.matrix[chosen], self.types, self.target[chosen], self.submitted_at_us[chosen])


class Estimator(Protocol):
    """What a learner returns."""

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Natural logarithm of throughput of every row; there is at least one."""


Learner = Callable[[Sample], Estimator]
"""Learns from a sample. Raises NotRun where a package or weights are not there."""


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """A fitted model of the feature matrix."""

    features: FeatureSet
    estimator: Estimator

    def predict(self, rows: TrainingSet) -> Predictions:
        """Predict every row."""
        return Predictions(self.predict_matrix(self.features.matrix(rows)))

    def predict_matrix(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Natural logarithm of throughput of every row of `matrix`, whose columns are `features.names`.

        Raises:
            ValueError: there are more or fewer columns.
        """
        if matrix.shape[1] != len(self.features.names):
            raise ValueError(
                f"the matrix must have the {len(self.features.names)} features of the fit, in their order, "
                f"got {matrix.shape[1]} columns: make it with `features.matrix`"
            )
        if not len(matrix):
            return np.empty(0)
        return self.estimator.predict(matrix)


@dataclass(frozen=True)
class FeatureRecipe:
    """How a model of the feature matrix is fitted."""

    learn: Learner
    groups: tuple[str, ...] = PAPER_GROUPS
    """Of features, keys of `leap_features.row.GROUPS`."""

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FeatureModel:
        """Fit on `rows`; the same rows in the same order give the same model.

        Raises:
            NotRun: the learner's package or weights are not there.
            NothingToFit: there are no rows.
        """
        if not len(rows):
            raise NothingToFit(
                "the training set has no row in this window: widen it, or see what `leap dataset` left out"
            )
        features = feature_set(rows, self.groups, catalogue=catalogue)
        sample = Sample(features.matrix(rows), features.types(), rows.log_throughput, rows.submitted_at_us)
        hide_categories(sample)
        return FeatureModel(features, self.learn(sample))


def hide_categories(sample: Sample) -> float:
    """Make all categories of some rows of `sample` missing, in place; return the share of rows."""
    rows = len(sample.target)
    share = min(max(share_with_new_values(sample), MIN_HIDDEN), MAX_HIDDEN)
    hidden = np.random.default_rng(0).random(rows) < share
    for column in sample.categorical():
        sample.matrix[hidden, column] = np.nan
    return share


def share_with_new_values(sample: Sample) -> float:
    """Share of the latest quarter of the rows with some category's value that no earlier row has."""
    order = np.argsort(sample.submitted_at_us, kind="stable")
    cut = len(order) - int(LATER_SHARE * len(order))
    earlier, later = order[:cut], order[cut:]
    if not len(later):
        return 0.0
    new = np.zeros(len(later), dtype=np.bool_)
    for column in sample.categorical():
        values = sample.matrix[later, column]
        new |= ~np.isin(values, np.unique(sample.matrix[earlier, column])) & ~np.isnan(values)
    return float(new.mean())
