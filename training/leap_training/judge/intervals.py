"""Calibration: how many scored runs lie within their 80 % interval, and how wide it is, by the level that answered."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.levels import BACKOFF

WIDEST: Final = 50.0
"""Half-widths of a logarithm from here on are as wide as anything, and e to their power is still a number."""


class Coverage(msgspec.Struct, frozen=True):
    """The intervals of one level of history ("all": of every row, "none": of rows that no level knows)."""

    level: str
    rows: int
    """With an interval."""
    covered: float
    """Percent of them whose measured throughput lies within."""
    median_half_width: float
    """In percent of the throughput: e^(half the interval of the logarithm) − 1."""


def coverage(
    measured: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    level: NDArray[np.int8] | None,
) -> list[Coverage]:
    """Coverage of all rows, then by level in the order of the back-off. All arrays but `level` are logarithms."""
    given = ~(np.isnan(low) | np.isnan(high))
    of_level = {"all": given}
    if level is not None:
        of_level |= {each.view: given & (level == place) for place, each in enumerate(BACKOFF)}
        of_level["none"] = given & (level < 0)
    result = []
    for name, chosen in of_level.items():
        if chosen.any():
            inside = (measured >= low) & (measured <= high)
            half = np.expm1(np.minimum((high[chosen] - low[chosen]) / 2, WIDEST))
            covered = 100.0 * float(inside[chosen].mean())
            result.append(Coverage(name, int(chosen.sum()), covered, 100.0 * float(np.median(half))))
    return result
