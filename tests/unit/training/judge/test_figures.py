from __future__ import annotations

import numpy as np
import pytest

from leap_training.judge.figures import Figures, figures, relative_error

NO_HOURS = np.full(5, np.nan)


def test_shares_and_the_median_error_are_in_percent() -> None:
    measured = np.log([100.0] * 5)
    error = relative_error(np.log([100.0, 109.0, 119.0, 81.0, 150.0]), measured)
    found = figures(error, NO_HOURS)
    assert (found.rows, found.unanswered) == (5, 0)
    assert (found.within10, found.within20) == (pytest.approx(40.0), pytest.approx(80.0))
    assert found.median_error == pytest.approx(19.0)
    assert found.within20_device_hours is None


def test_a_row_without_an_answer_is_wrong() -> None:
    error = relative_error(np.array([np.nan, 0.0, 0.0]), np.zeros(3))
    found = figures(error, np.ones(3))
    assert (found.unanswered, found.within20, found.median_error) == (1, pytest.approx(200 / 3), 0.0)
    assert figures(relative_error(np.array([np.nan]), np.zeros(1)), np.ones(1)).median_error is None


def test_device_hours_weigh_the_rows_that_have_some() -> None:
    error = np.array([0.0, 0.5, 0.0, 0.5])
    assert figures(error, np.array([1.0, 3.0, np.nan, np.nan])).within20_device_hours == pytest.approx(25.0)


def test_no_rows_have_no_figures() -> None:
    assert figures(np.array([]), np.array([])) == Figures(0, 0, None, None, None, None)


def test_an_absurd_prediction_is_only_wrong() -> None:
    with np.errstate(all="raise"):
        assert figures(relative_error(np.array([1e6, -1e6]), np.zeros(2)), np.ones(2)).within20 == 0.0
