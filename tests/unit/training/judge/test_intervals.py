from __future__ import annotations

import numpy as np
import pytest

from leap_features.levels import BACKOFF
from leap_training.judge.intervals import Coverage, coverage


def test_coverage_and_width_overall_and_by_the_level_that_answered() -> None:
    measured = np.array([0.0, 0.05, 0.2, 0.0, 9.0])
    low, high = np.full(5, -0.1), np.full(5, 0.1)
    low[3] = high[3] = np.nan
    level = np.array([0, 0, 2, 2, -1], dtype=np.int8)
    width = pytest.approx(100 * np.expm1(0.1))
    assert coverage(measured, low, high, level) == [
        Coverage("all", 4, 50.0, width),
        Coverage(BACKOFF[0].view, 2, 100.0, width),
        Coverage(BACKOFF[2].view, 1, 0.0, width),
        Coverage("none", 1, 0.0, width),
    ]


def test_a_model_without_levels_has_coverage_overall() -> None:
    assert [each.level for each in coverage(np.zeros(2), np.zeros(2), np.ones(2), None)] == ["all"]


@pytest.mark.filterwarnings("error")
def test_an_interval_over_all_orders_of_magnitude_has_a_finite_width() -> None:
    (found,) = coverage(np.zeros(1), np.full(1, -2000.0), np.full(1, 2000.0), None)
    assert (found.covered, np.isfinite(found.median_half_width)) == (100.0, True)
