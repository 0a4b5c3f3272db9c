"""History's logarithms as a person reads them: samples per second."""

from __future__ import annotations

import math


def from_log(log: float) -> float:
    """The value whose natural logarithm is `log`."""
    return math.exp(min(log, 700.0))  # a float holds no more


def shown(rate: float) -> str:
    """`rate` in four digits, and without an exponent where it can be helped."""
    return f"{rate:,.0f}" if 1e3 <= rate < 1e15 else f"{rate:.4g}"
