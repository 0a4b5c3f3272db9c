"""`leap`: the paper's cascade. A classifier chooses one of 13 regressors by the features alone, and that one answers.

Step by step, as "LEAP" (arXiv 2611.04057) has it:

1. **Target and loss**: log throughput; every regressor minimises the pinball loss at the median (see `boosting`).
2. **Bins**: the rows are cut into 13 bins of equal frequency by log throughput (`equal_frequency_bins`). Equal values
   stay together, so there may be fewer.
3. **Regressors**: one per bin, gradient-boosted trees, deep ones.
4. **Reassignment**: every row moves to the regressor that predicts it best, whichever that is, and the regressors are
   fitted again (`reassigned`). At most 3 times; it ends when under 2 % of the rows moved.
5. **Merging**: a bin that became small is merged into the smaller of its neighbours (`without_small`).
6. **Classifier**: learns, from features alone, which regressor each row ended with.
7. **Serving**: the classifier's most probable regressor answers. A wrong choice means an ill-fitting one.

The bins are fitted side by side, each on one thread, so that a fit's sums, and with them the trees of its regressors,
do not depend on how many cores a machine has.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_training.boosting import TreeSettings, answers, fit_classes, fit_median, threads
from leap_training.feature_models import Sample

if TYPE_CHECKING:
    import xgboost

Labels = NDArray[np.int64]
"""Per row the bin, which is the regressor, that it belongs to; bins are numbered from the slowest on without gaps."""


class CascadeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper gives of the cascade, and what it leaves open: rounds, depth, and how small a bin may be.

    What it leaves open was chosen on MLPerf runs and on the synthetic fleet together, for both to be well answered.
    """

    bins: int = 13
    alternations: int = 3
    moved_share: float = 0.02
    """Reassignment ends when a smaller share of the rows moved."""
    min_rows: int = 30
    """Of a bin; fewer are too few to grow trees on."""
    regressor: TreeSettings = TreeSettings(rounds=100)
    # A leaf of the classifier that a few rows decide is a wrong choice for the rows to come. A round grows a tree for
    # every bin, so it is the classifier that a fit's time goes into: few rounds of long steps.
    classifier: TreeSettings = TreeSettings(rounds=50, max_depth=8, learning_rate=0.3, min_child_weight=5.0)


CASCADE: Final = CascadeSettings()


@dataclass(frozen=True, eq=False)
class Cascade:
    """The regressors and what chooses among them."""

    regressors: tuple[xgboost.Booster, ...]
    """Of the bins, from the slowest on."""
    classifier: xgboost.Booster | None
    """None where there is one regressor only."""
    moved: tuple[float, ...]
    """Share of rows that moved, at each reassignment."""

    def chosen(self, matrix: NDArray[np.float32]) -> Labels:
        """Which regressor answers every row."""
        if self.classifier is None:
            return np.zeros(len(matrix), dtype=np.int64)
        chosen: Labels = answers(self.classifier, matrix).argmax(axis=1)
        return chosen

    def predict(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        """Natural logarithm of throughput of every row."""
        chosen = self.chosen(matrix)
        result = np.empty(len(matrix))
        for regressor in np.unique(chosen):
            rows = chosen == regressor
            result[rows] = answers(self.regressors[regressor], matrix[rows])
        return result


def fit_cascade(sample: Sample, settings: CascadeSettings = CASCADE) -> Cascade:
    """Fit the cascade on `sample`."""
    labels = without_small(equal_frequency_bins(sample.target, settings.bins), settings.min_rows)
    regressors = _fit_bins(sample, labels, settings.regressor)
    moved: list[float] = []
    while len(regressors) > 1 and len(moved) < settings.alternations:
        better = reassigned(labels, _errors(sample, regressors))
        moved.append(float((better != labels).mean()))
        if moved[-1] < settings.moved_share:
            break
        labels = without_small(better, settings.min_rows)
        regressors = _fit_bins(sample, labels, settings.regressor)
    classifier = None
    if len(regressors) > 1:
        nthread = threads(len(labels))
        classifier = fit_classes(sample.matrix, labels, sample.types, settings.classifier, nthread)
    return Cascade(tuple(regressors), classifier, tuple(moved))


def equal_frequency_bins(target: NDArray[np.float64], bins: int) -> Labels:
    """Cut `target` at its quantiles into `bins` bins, fewer where many values are equal."""
    cuts = np.unique(np.quantile(target, np.arange(1, bins) / bins))
    return _without_gaps(np.searchsorted(cuts, target, side="left"))


def without_small(labels: Labels, min_rows: int) -> Labels:
    """Merge bins of fewer than `min_rows` rows, the smallest first, each into the smaller of its neighbours.

    The last bin stays, however small it is.
    """
    labels = _without_gaps(labels)
    sizes = np.bincount(labels).tolist()
    while len(sizes) > 1 and min(sizes) < min_rows:
        smallest = sizes.index(min(sizes))
        neighbours = [bin_ for bin_ in (smallest - 1, smallest + 1) if 0 <= bin_ < len(sizes)]
        lower = min(smallest, min(neighbours, key=lambda bin_: sizes[bin_]))
        sizes[lower : lower + 2] = [sizes[lower] + sizes[lower + 1]]
        labels = np.where(labels > lower, labels - 1, labels)
    return labels


def reassigned(labels: Labels, errors: NDArray[np.float64]) -> Labels:
    """The regressor with the least error, row by row; a row's own where no other is better.

    Args:
        labels: the regressor that each row was fitted to.
        errors: absolute errors, shape (regressors, rows).
    """
    own = errors[labels, np.arange(len(labels))]
    best = errors.argmin(axis=0)
    return np.where(errors.min(axis=0) < own, best, labels)


def _without_gaps(labels: NDArray[np.int64]) -> Labels:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _fit_bins(sample: Sample, labels: Labels, settings: TreeSettings) -> list[xgboost.Booster]:
    def fit(label: int) -> xgboost.Booster:
        rows = labels == label
        return fit_median(sample.matrix[rows], sample.target[rows], sample.types, settings, nthread=1)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(fit, range(int(labels.max()) + 1)))


def _errors(sample: Sample, regressors: list[xgboost.Booster]) -> NDArray[np.float64]:
    def error(regressor: xgboost.Booster) -> NDArray[np.float64]:
        return np.abs(answers(regressor, sample.matrix) - sample.target)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return np.stack(list(pool.map(error, regressors)))
