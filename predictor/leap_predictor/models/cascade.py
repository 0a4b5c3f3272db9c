"""The paper's cascade as a launcher runs it: a classifier chooses a regressor for each candidate, which answers.

Candidates are asked about together: the classifier walks all of them at once, and then each walks the trees of its own
regressor in one further pass. A single regressor is a cascade of one, without a classifier.

History is among the features, so nothing is corrected afterwards, and only levels that features are made of count.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from leap_features.backoff import backoff
from leap_features.columns import Columns, Specifications, history_column
from leap_features.levels import BACKOFF
from leap_features.row import Categories, feature_row
from leap_features.row_features import BACKOFF_PREFIX
from leap_predictor.models.layered import Estimate
from leap_predictor.models.served_model import NORMAL
from leap_predictor.models.trees import Trees


@dataclass(frozen=True)
class HalfWidths:
    """Of the 80 % interval, in natural logarithms, by what the job's history is."""

    with_history: float
    """Some level that the features are made of has a run."""
    without_history: float


@dataclass(frozen=True, eq=False)
class Cascade:
    """A fit as a launcher runs it."""

    features: tuple[str, ...]
    """By the names of `leap_features.row`, in the order that the trees number them in."""
    categories: Categories
    """Values of those features that are categories."""
    specifications: Specifications
    """Finds those of a hardware type."""
    regressors: Trees
    """One output per regressor: natural logarithm of throughput."""
    classifier: Trees | None
    """One output per regressor: the greatest one's answers. None: there is one regressor only."""
    half_widths: HalfWidths

    @property
    def model_types(self) -> tuple[str, ...]:
        """Model types that were in the training data; none where the model type is no feature."""
        return tuple(self.categories.get("model_type", ()))

    @cached_property
    def _levels(self) -> tuple[int, ...]:
        """Places in `BACKOFF` of the levels that features are made of."""
        if any(name.startswith(BACKOFF_PREFIX) for name in self.features):
            return tuple(range(len(BACKOFF)))
        prefixes = [history_column(level.view, "") for level in BACKOFF]
        return tuple(at for at, prefix in enumerate(prefixes) if any(name.startswith(prefix) for name in self.features))

    def matrix(self, columns: Columns) -> NDArray[np.float32]:
        """The features of every row, shape (rows, features), NaN where missing.

        Raises:
            MissingColumn: a column that is needed is not there.
        """
        return feature_row(columns, self.features, self.categories, self.specifications)

    def chosen(self, matrix: NDArray[np.float32]) -> NDArray[np.intp]:
        """Which regressor answers each row of `matrix`: the first of those that the classifier finds likeliest."""
        if self.classifier is None:
            return np.zeros(len(matrix), dtype=np.intp)
        likeliest: NDArray[np.intp] = self.classifier.margins(matrix).argmax(axis=1)
        return likeliest

    def estimate(self, columns: Columns) -> Estimate:
        """The estimate of every row.

        Raises:
            MissingColumn: a column that is needed is not there.
        """
        matrix = self.matrix(columns)
        log_throughput = self.regressors.predict(matrix, self.chosen(matrix))
        found = backoff(columns, [BACKOFF[at] for at in self._levels])
        half = np.where(found.level >= 0, self.half_widths.with_history, self.half_widths.without_history)
        return Estimate(
            log_throughput,
            log_throughput,
            np.zeros_like(log_throughput),
            half / NORMAL,
            log_throughput - half,
            log_throughput + half,
            np.array([*self._levels, -1], dtype=np.int8)[found.level],
            found.last,
        )
