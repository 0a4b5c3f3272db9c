"""Bootstrap intervals of shares: whole clusters of rows are drawn again, since runs of one family are alike."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

DRAWS: Final = 1000
SEED: Final = 7
LEVEL: Final = 95
"""Percent of the draws that an interval holds."""

_AT_ONCE: Final = 4_000_000
"""Numbers drawn at once: 32 MB."""


class Resamples:
    """Draws of the clusters of some rows. Everything asked of one object is paired: it is on the same draws."""

    def __init__(self, clusters: NDArray[Any], *, draws: int = DRAWS, seed: int = SEED) -> None:
        """Draw among the different values of `clusters`, which has one per row."""
        self._cluster, different = pd.factorize(clusters)
        self._count = len(different)
        self._draws = draws
        self._seed = seed

    def shares(self, hits: NDArray[Any]) -> NDArray[np.float64]:
        """The share of hits in each draw.

        Args:
            hits: truth values, shape (rows, columns).

        Returns:
            Shares from 0 to 1, shape (draws, columns).
        """
        sizes = np.bincount(self._cluster, minlength=self._count)
        sums = np.stack(
            [np.bincount(self._cluster, column, self._count) for column in hits.T.astype(np.float64)], axis=1
        )
        random = np.random.default_rng(self._seed)
        chunk = max(1, _AT_ONCE // self._count)
        result = []
        for begin in range(0, self._draws, chunk):
            draws = min(chunk, self._draws - begin)
            drawn = random.integers(0, self._count, (draws, self._count))
            drawn += np.arange(draws)[:, None] * self._count
            times = np.bincount(drawn.ravel(), minlength=draws * self._count).reshape(draws, self._count)
            result.append((times @ sums) / (times @ sizes)[:, None])
        return np.concatenate(result)

    @property
    def enough(self) -> bool:
        """Whether there are clusters to draw among: of a single one every draw is the same."""
        return self._count > 1


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """The middle 95 % of the draws of one quantity."""
    edge = (100 - LEVEL) / 2
    low, high = np.percentile(values, [edge, 100 - edge])
    return float(low), float(high)
