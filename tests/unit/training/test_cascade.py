from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_training.boosting import TreeSettings
from leap_training.cascade import (
    Cascade,
    CascadeSettings,
    equal_frequency_bins,
    fit_cascade,
    reassigned,
    without_small,
)
from leap_training.feature_models import Sample

QUICK = CascadeSettings(
    min_rows=10,
    regressor=TreeSettings(rounds=60, max_depth=4),
    classifier=TreeSettings(rounds=60, max_depth=4),
)


def sample(target: NDArray[np.float64], *features: NDArray[np.float64]) -> Sample:
    matrix = np.stack(features, axis=1).astype(np.float32)
    return Sample(matrix, ["q"] * len(features), target, np.arange(len(target)))


@pytest.fixture(scope="module")
def speeds() -> Sample:
    """Throughput over seven orders of magnitude that two features explain."""
    random = np.random.default_rng(3)
    size, scale = random.uniform(0, 12, 1300), random.uniform(0, 4, 1300)
    return sample(size + 0.9 * scale + random.normal(0, 0.01, 1300), size, scale)


def test_bins_hold_equally_many_rows() -> None:
    labels = equal_frequency_bins(np.random.default_rng(0).permutation(1300).astype(np.float64), 13)
    assert np.bincount(labels).tolist() == [100] * 13


def test_bins_rise_with_throughput() -> None:
    target = np.random.default_rng(0).normal(size=500)
    labels = equal_frequency_bins(target, 13)
    assert (np.diff(labels[np.argsort(target)]) >= 0).all()


def test_equal_values_are_in_one_bin() -> None:
    assert equal_frequency_bins(np.zeros(100), 13).tolist() == [0] * 100


def test_small_bin_joins_the_smaller_of_its_neighbours() -> None:
    labels = np.repeat([0, 1, 2, 3], [40, 3, 50, 60])
    assert without_small(labels, 10).tolist() == np.repeat([0, 1, 2], [43, 50, 60]).tolist()


def test_small_last_bin_joins_the_one_before_it() -> None:
    assert without_small(np.repeat([0, 1], [40, 3]), 10).tolist() == [0] * 43


def test_last_bin_stays_however_small_it_is() -> None:
    assert without_small(np.array([0, 1, 2]), 10).tolist() == [0, 0, 0]


def test_row_moves_to_the_regressor_that_predicts_it_best() -> None:
    errors = np.array([[0.5, 0.1], [0.2, 0.3], [0.1, 0.4]])
    assert reassigned(np.array([0, 1]), errors).tolist() == [2, 0]


def test_row_stays_where_no_other_regressor_is_better() -> None:
    assert reassigned(np.array([1, 1]), np.array([[0.2, 0.0], [0.2, 0.0]])).tolist() == [1, 1]


def test_cascade_learns_over_orders_of_magnitude(speeds: Sample) -> None:
    cascade = fit_cascade(speeds, QUICK)
    error = np.abs(cascade.predict(speeds.matrix) - speeds.target)
    assert len(cascade.regressors) == 13
    assert (error < np.log(1.2)).mean() > 0.8


def test_reassignment_ends_when_few_rows_move(speeds: Sample) -> None:
    moved = fit_cascade(speeds, QUICK).moved
    assert len(moved) <= QUICK.alternations
    assert all(share >= QUICK.moved_share for share in moved[:-1])


def test_reassignment_is_bounded_where_rows_never_settle(speeds: Sample) -> None:
    never = CascadeSettings(min_rows=10, moved_share=0.0, regressor=QUICK.regressor, classifier=QUICK.classifier)
    assert len(fit_cascade(speeds, never).moved) == 3


def test_the_chosen_regressor_answers(speeds: Sample) -> None:
    cascade = fit_cascade(speeds, QUICK)
    chosen, answers = cascade.chosen(speeds.matrix), cascade.predict(speeds.matrix)
    for label, regressor in enumerate(cascade.regressors):
        alone = Cascade((regressor,), None, ()).predict(speeds.matrix)
        assert answers[chosen == label].tolist() == alone[chosen == label].tolist()


def test_same_rows_give_the_same_cascade(speeds: Sample) -> None:
    one, other = (fit_cascade(speeds, QUICK) for _ in range(2))
    assert [b.save_raw() for b in one.regressors] == [b.save_raw() for b in other.regressors]
    assert one.classifier is not None
    assert other.classifier is not None
    assert one.classifier.save_raw() == other.classifier.save_raw()


@pytest.mark.parametrize("rows", [1, 5, 12, 40])
def test_few_rows_give_few_regressors_and_an_answer(rows: int) -> None:
    few = sample(np.linspace(1.0, 9.0, rows), np.linspace(1.0, 9.0, rows))
    cascade = fit_cascade(few, QUICK)
    assert len(cascade.regressors) <= max(1, rows // QUICK.min_rows)
    assert np.isfinite(cascade.predict(few.matrix)).all()


def test_constant_target_is_answered_by_itself() -> None:
    same = sample(np.full(200, 3.5), np.arange(200.0))
    cascade = fit_cascade(same, QUICK)
    assert cascade.classifier is None
    assert cascade.predict(same.matrix) == pytest.approx(3.5)


def test_missing_features_are_answered(speeds: Sample) -> None:
    cascade = fit_cascade(speeds, QUICK)
    assert np.isfinite(cascade.predict(np.full((3, 2), np.nan, dtype=np.float32))).all()
