from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from leap_predictor.models.repeat_noise import (
    LEAST_SPREAD,
    RepeatNoise,
    digamma_of_half,
    log_variance,
    trigamma_of_half,
)

FREEDOM = np.concatenate([np.arange(1.0, 200.0), np.geomspace(200, 1e7, 40)])


def test_series_are_the_digamma_and_trigamma_functions() -> None:
    np.testing.assert_allclose(digamma_of_half(FREEDOM), special.digamma(FREEDOM / 2), atol=1e-4)
    np.testing.assert_allclose(trigamma_of_half(FREEDOM), special.polygamma(1, FREEDOM / 2), atol=1e-4)


@pytest.mark.parametrize("freedom", [1, 2, 5, 30])
def test_log_variance_is_unbiased_and_spreads_by_trigamma(freedom: int) -> None:
    runs = np.random.default_rng(freedom).normal(scale=5.0, size=(40_000, freedom + 1))
    shown = log_variance(np.full(len(runs), float(freedom)), runs.std(axis=1))
    assert shown.mean() == pytest.approx(np.log(5.0**2), abs=0.05)
    assert shown.var() == pytest.approx(float(special.polygamma(1, freedom / 2)), rel=0.1)


def test_cell_that_was_not_run_twice_has_the_noise_of_any_run() -> None:
    noise = RepeatNoise(unseen=0.5, usual=0.01, diversity=1.0)
    assert noise.of(np.array([0.0, 1.0]), np.array([np.nan, np.nan])).tolist() == [0.5, 0.5]


def test_cells_that_are_all_alike_have_the_usual_noise_whatever_they_show() -> None:
    noise = RepeatNoise(unseen=0.5, usual=0.01, diversity=0.0)
    assert noise.of(np.array([2.0, 50.0]), np.array([0.3, 0.001])).tolist() == pytest.approx([0.01, 0.01])


def test_cell_of_many_runs_has_the_variance_that_it_shows() -> None:
    noise = RepeatNoise(unseen=0.5, usual=0.01, diversity=1.0)
    assert noise.of(np.array([1e6]), np.array([0.2]))[0] == pytest.approx(0.04, rel=1e-4)


def test_noise_lies_between_what_is_usual_and_what_the_cell_shows_and_nearer_with_each_run() -> None:
    noise = RepeatNoise(unseen=0.5, usual=0.01, diversity=1.0)
    runs = np.array([2.0, 5.0, 20.0, 100.0])
    away = noise.of(runs, np.sqrt(0.0004 * (runs - 1) / runs))
    assert (np.diff(away) < 0).all()
    assert away[0] < 0.01
    assert away[-1] > 0.0004


def test_no_cell_repeats_itself_exactly() -> None:
    noise = RepeatNoise(unseen=0.5, usual=0.01, diversity=1.0)
    exact, least = (float(noise.of(np.array([1e6]), np.array([spread]))[0]) for spread in (0.0, LEAST_SPREAD))
    assert exact == least == pytest.approx(LEAST_SPREAD**2, rel=1e-4)
