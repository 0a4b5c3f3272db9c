"""The layered model: a scaling model f of configuration and hardware, corrected live by the latest comparable run.

The estimate of log throughput for a candidate x is f(x) + (last − f(x_last)), where `last` is the latest run of the
most specific history level that has one and x_last is x under that run's conditions. Without any history it is f(x). f
predicts the logarithm of throughput per trainer by trees; ln trainers is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from leap_features.backoff import at_latest_conditions, backoff
from leap_features.columns import SPECS_PREFIX, Columns, Specifications, logarithm, numbers
from leap_features.row import Categories, feature_row
from leap_predictor.trees import Trees


@dataclass(frozen=True, eq=False)
class Estimate:
    """Per row, in natural logarithms of samples per second over all trainers."""

    log_throughput: NDArray[np.float64]
    uncorrected: NDArray[np.float64]
    """f(x): what the model says without history."""
    correction: NDArray[np.float64]
    """last − f(x_last); 0 without history."""
    level: NDArray[np.int8]
    """Index of the level in `BACKOFF` that the correction came from; −1: none."""
    last: NDArray[np.float64]
    """The latest run of that level; NaN: none."""


@dataclass(frozen=True, eq=False)
class Layered:
    """f and what it needs to be corrected: the same object serves the launcher and the evaluation."""

    trees: Trees
    features: tuple[str, ...]
    """Names of f's features, in the order of its columns."""
    categories: Categories
    specifications: Specifications
    """Of every known hardware type."""

    @cached_property
    def _specification_names(self) -> tuple[str, ...]:
        return tuple(name.removeprefix(SPECS_PREFIX) for name in self.features if name.startswith(SPECS_PREFIX))

    def uncorrected(self, columns: Columns) -> NDArray[np.float64]:
        """f(x) of every row: log throughput over all trainers, without history.

        Raises:
            MissingColumn: a column that a feature needs is not there.
        """
        return self._predict(columns)[0]

    def estimate(self, columns: Columns) -> Estimate:
        """The live estimate of every row.

        Raises:
            MissingColumn: a column that a feature or the back-off needs is not there.
        """
        found = backoff(columns)
        latest = at_latest_conditions(columns, found, self.specifications, self._specification_names)
        uncorrected, then = self._predict(columns, latest)
        correction = np.where(found.level >= 0, found.last - then, 0.0)
        return Estimate(uncorrected + correction, uncorrected, correction, found.level, found.last)

    def _predict(self, *several: Columns) -> list[NDArray[np.float64]]:
        """f of each set of columns (all of the same length), by one walk: for few rows a walk costs most by itself."""
        rows = [feature_row(columns, self.features, self.categories) for columns in several]
        predicted = np.split(self.trees.predict(np.concatenate(rows)), len(several))
        return [
            of_set + logarithm(numbers(columns, "trainer_count"))
            for of_set, columns in zip(predicted, several, strict=True)
        ]
