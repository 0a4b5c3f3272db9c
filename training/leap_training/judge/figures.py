"""The figures of some predictions on some rows: how many are near, and how near the middle one is."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class Figures(msgspec.Struct, frozen=True):
    """Shares are in percent of all rows; a row without an answer is not near. None: no rows to say it of."""

    rows: int
    unanswered: int
    within10: float | None
    """Share within ±10 % of the measured throughput."""
    within20: float | None
    median_error: float | None
    """Median of |predicted ÷ measured − 1| in percent; None too where half of the rows are unanswered."""
    within20_device_hours: float | None
    """The share within ±20 % where a row weighs its device-hours; rows whose device-hours are unknown have no part."""
    within20_low: float | None = None
    """Of the bootstrap interval at 95 % of `within20`."""
    within20_high: float | None = None


def relative_error(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> NDArray[np.float64]:
    """|predicted ÷ measured − 1| of natural logarithms; infinite where there is no prediction (NaN)."""
    # A logarithm is clipped before it becomes a ratio: e^±50 is as wrong as anything.
    error = np.abs(np.expm1(np.clip(predicted - measured, -50.0, 50.0)))
    error[np.isnan(error)] = np.inf
    return error


def figures(
    error: NDArray[np.float64],
    device_hours: NDArray[np.float64],
    interval: tuple[float | None, float | None] = (None, None),
) -> Figures:
    """Figures of the relative errors of some rows.

    Args:
        error: as `relative_error` gives them.
        device_hours: of the same rows; NaN where unknown.
        interval: of `within20`, in percent.
    """
    if not len(error):
        return Figures(0, 0, None, None, None, None)
    near = error <= 0.2
    median = float(np.median(error))
    weight = np.nan_to_num(device_hours, nan=0.0)
    return Figures(
        len(error),
        int(np.isinf(error).sum()),
        100.0 * float((error <= 0.1).mean()),
        100.0 * float(near.mean()),
        100.0 * median if np.isfinite(median) else None,
        100.0 * float(weight @ near / weight.sum()) if weight.sum() > 0 else None,
        *interval,
    )
