from __future__ import annotations

import numpy as np
import pytest

import small_training_set
from leap_training.model import Predictions
from leap_training.nightly.comparison import coverage_of_all, difference, slice_figures
from leap_training.training_set import TrainingSet, read_training_set


def families(*sizes: int) -> np.ndarray:
    return np.array([f"family-{at}" for at, size in enumerate(sizes) for _ in range(size)], dtype=object)


def test_models_that_are_right_about_the_same_attempts_differ_by_nothing_for_sure() -> None:
    right = np.array([True, False, True, True])
    found = difference(right, right, families(2, 2))
    assert (found.rows, found.points, found.low, found.high) == (4, 0.0, 0.0, 0.0)
    assert not found.surely_below


def test_a_difference_in_many_families_is_sure_and_one_in_a_single_family_is_not() -> None:
    theirs = np.ones(400, dtype=np.bool_)
    spread, alone = theirs.copy(), theirs.copy()
    spread[::10] = False  # one attempt of each of 40 families
    alone[:40] = False  # as many, all of four families
    groups = families(*[10] * 40)
    assert difference(spread, theirs, groups).points == difference(alone, theirs, groups).points == -10.0
    assert difference(spread, theirs, groups).high == pytest.approx(-10.0)
    assert difference(alone, theirs, groups).high > -5.0
    few = theirs.copy()
    few[:10] = False  # one family
    assert not difference(few, theirs, groups).surely_below


def test_the_interval_is_that_of_drawing_whole_families_again() -> None:
    random = np.random.default_rng(3)
    sizes = random.integers(1, 30, size=60)
    groups = families(*sizes)
    ours, theirs = random.random(len(groups)) < 0.7, random.random(len(groups)) < 0.6
    drawn = []
    for _ in range(2_000):  # one by one, as one would write it down
        chosen = np.concatenate([np.flatnonzero(groups == f"family-{at}") for at in random.integers(0, 60, size=60)])
        drawn.append(100 * (ours[chosen].mean() - theirs[chosen].mean()))
    found = difference(ours, theirs, groups)
    assert found.points == pytest.approx(100 * (ours.mean() - theirs.mean()))
    assert [found.low, found.high] == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=1.5)


def test_the_same_night_has_the_same_figures() -> None:
    random = np.random.default_rng(4)
    ours, theirs = random.random((2, 300)) < 0.5
    assert difference(ours, theirs, families(*[3] * 100)) == difference(ours, theirs, families(*[3] * 100))


def test_where_all_attempts_are_of_one_family_they_are_drawn_one_by_one() -> None:
    ours, theirs = np.array([True] * 5 + [False] * 5), np.array([True] * 10)
    found = difference(ours, theirs, families(10))
    assert (found.points, found.surely_below) == (-50.0, True)
    assert found.low < -50.0 < found.high


def test_coverage_counts_the_rows_that_have_an_interval() -> None:
    low, high = np.array([-1.0, -1.0, np.nan, 0.5]), np.array([1.0, 1.0, np.nan, 1.5])
    found = coverage_of_all(Predictions(np.zeros(4), low, high), np.zeros(4))
    assert found is not None
    assert (found.rows, found.covered) == (3, pytest.approx(200 / 3))
    assert coverage_of_all(Predictions(np.zeros(4)), np.zeros(4)) is None
    assert coverage_of_all(Predictions(np.zeros(4), low[2:3], high[2:3]), np.zeros(1)) is None


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    path = tmp_path_factory.mktemp("set") / "set.parquet"
    return read_training_set(small_training_set.write(path, small_training_set.rows(40))).rows


def test_no_answer_counts_as_wrong(rows: TrainingSet) -> None:
    measured = rows.log_throughput
    half = np.where(np.arange(40) < 10, np.nan, measured)
    slices = {"all": np.ones(40, dtype=np.bool_), "early": np.arange(40) < 20}
    of_all, early = slice_figures("published", half, rows, slices, measured)
    assert (of_all.figures.unanswered, of_all.figures.within20) == (10, 75.0)
    assert (early.figures.rows, early.figures.within20) == (20, 50.0)
    assert of_all.below_candidate is not None
    assert early.below_candidate is not None
    assert (of_all.below_candidate.points, early.below_candidate.points) == (25.0, 50.0)


def test_a_slice_without_attempts_has_no_figures(rows: TrainingSet) -> None:
    none = {"none": np.zeros(40, dtype=np.bool_)}
    (found,) = slice_figures("published", rows.log_throughput, rows, none, rows.log_throughput)
    assert (found.figures.rows, found.figures.within20, found.below_candidate) == (0, None, None)


def test_the_candidate_is_not_compared_with_itself(rows: TrainingSet) -> None:
    everything = {"all": np.ones(40, dtype=np.bool_)}
    (found,) = slice_figures("candidate", rows.log_throughput, rows, everything)
    assert (found.figures.within20, found.below_candidate) == (100.0, None)
