"""How noisy runs of one cell are, by what its runs show and by what cells are like: shrinkage of log variances.

Some jobs repeat themselves to a tenth of a percent, others vary by a tenth. A cell's sample variance of d degrees of
freedom has a logarithm whose variance is trigamma(d / 2); that of cells' true variances is learned in the fit. The two
weigh what the cell shows against what is usual (Smyth, Linear Models and Empirical Bayes Methods, 2004, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from leap_predictor.models.basis import Floats

LEAST_SPREAD: Final = 0.001
"""Of ln throughput: no cell is taken to repeat itself more exactly."""


@dataclass(frozen=True)
class RepeatNoise:
    """Variances of ln throughput over the cells of a fit."""

    unseen: float
    """Of a run in a cell that was not run twice."""
    usual: float
    """Of cells that were: exp of the mean of their logarithms."""
    diversity: float
    """Variance of these logarithms from cell to cell; 0: all cells are alike."""

    def of(self, runs: Floats, spread: Floats) -> Floats:
        """Variance of the next run of each cell.

        Args:
            runs: how many there were.
            spread: their (population) standard deviation; NaN: less than two.
        """
        freedom = np.maximum(runs - 1.0, 1.0)
        shown = log_variance(freedom, spread)
        share = self.diversity / (self.diversity + trigamma_of_half(freedom))
        pooled = np.exp((1.0 - share) * np.log(self.usual) + share * shown)
        return np.where(np.isnan(spread), self.unseen, pooled)


def log_variance(freedom: Floats, spread: Floats) -> Floats:
    """Unbiased estimate of the logarithm of a variance, of a population standard deviation of freedom + 1 runs."""
    sample = np.maximum(np.nan_to_num(spread), LEAST_SPREAD) ** 2 * (freedom + 1.0) / freedom
    return np.log(sample) - digamma_of_half(freedom) + np.log(freedom / 2.0)


def digamma_of_half(freedom: Floats) -> Floats:
    """digamma(freedom / 2), freedom ≥ 1, within 1e-4: the asymptotic series, moved up by four."""
    x = freedom / 2.0
    above = x + 4.0
    series = np.log(above) - 1 / (2 * above) - 1 / (12 * above**2) + 1 / (120 * above**4)
    result: Floats = series - 1 / x - 1 / (x + 1) - 1 / (x + 2) - 1 / (x + 3)
    return result


def trigamma_of_half(freedom: Floats) -> Floats:
    """trigamma(freedom / 2), freedom ≥ 1, within 1e-4."""
    x = freedom / 2.0
    above = x + 4.0
    series = 1 / above + 1 / (2 * above**2) + 1 / (6 * above**3) - 1 / (30 * above**5)
    result: Floats = series + 1 / x**2 + 1 / (x + 1) ** 2 + 1 / (x + 2) ** 2 + 1 / (x + 3) ** 2
    return result
