"""How often the model types of a fleet are launched: a Zipf–Mandelbrot law that meets the paper's two figures.

The share of the r-th most common of M model types is proportional to (r + q)^−s. The paper has 660 model types; its
most common one has 5,527 of about 175,000 launches a week, and the 560 least common have 22 % of all attempts. The two
numbers give s and q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_training.fleet.settings import FULL_MODEL_TYPES

TOP_SHARE: Final = 5527 / 175_000
TAIL_SHARE: Final = 0.22
TAIL_OF: Final = 560 / 660
"""The part of the model types that `TAIL_SHARE` belongs to."""


def popularity(count: int) -> NDArray[np.float64]:
    """Shares of `count` model types, the most common first; they sum to 1.

    With fewer model types than the paper's, the most common one has more of the launches in the same proportion.
    """
    top = min(0.3, TOP_SHARE * FULL_MODEL_TYPES / count)
    head = max(1, count - round(TAIL_OF * count))

    def shares(q: float) -> NDArray[np.float64]:
        def of(s: float) -> NDArray[np.float64]:
            weights: NDArray[np.float64] = (np.arange(1, count + 1) + q) ** -s * (1.0 + q) ** s
            law: NDArray[np.float64] = weights / weights.sum()
            return law

        return of(_root(lambda s: TAIL_SHARE - float(of(s)[head:].sum()), 0.0, 60.0))

    # The larger q, the flatter the head.
    return shares(_root(lambda q: top - float(shares(q)[0]), 0.0, 5000.0))


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function is nearest to 0, by bisection."""
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
