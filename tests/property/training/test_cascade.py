from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from leap_training.cascade import equal_frequency_bins, reassigned, without_small

targets = arrays(np.float64, st.integers(1, 200), elements=st.floats(-20, 20).map(lambda value: round(value, 1)))
labellings = arrays(np.int64, st.integers(1, 200), elements=st.integers(0, 12))


@given(targets, st.integers(2, 20))
def test_bins_are_numbered_without_gaps_and_rise_with_the_target(target: np.ndarray, bins: int) -> None:
    labels = equal_frequency_bins(target, bins)
    assert set(labels.tolist()) == set(range(int(labels.max()) + 1))
    assert labels.max() < bins
    assert (np.diff(labels[np.argsort(target, kind="stable")]) >= 0).all()


@given(targets, st.integers(2, 20))
def test_equal_targets_share_a_bin(target: np.ndarray, bins: int) -> None:
    labels = equal_frequency_bins(target, bins)
    assert all(len(set(labels[target == value].tolist())) == 1 for value in np.unique(target))


@given(labellings, st.integers(1, 60))
def test_no_bin_is_small_after_merging_unless_it_is_the_only_one(labels: np.ndarray, min_rows: int) -> None:
    sizes = np.bincount(without_small(labels, min_rows))
    assert len(sizes) == 1 or sizes.min() >= min_rows


@given(labellings, st.integers(1, 60))
def test_merging_parts_no_bin_and_keeps_their_order(labels: np.ndarray, min_rows: int) -> None:
    merged = without_small(labels, min_rows)
    order = np.argsort(labels, kind="stable")
    assert (np.diff(merged[order]) >= 0).all()
    assert all(len(set(merged[labels == label].tolist())) == 1 for label in np.unique(labels))


@given(st.integers(1, 5).flatmap(lambda bins: st.tuples(st.just(bins), st.integers(1, 50))), st.integers(0, 2**32 - 1))
def test_no_row_is_worse_off_after_it_moved(shape: tuple[int, int], seed: int) -> None:
    random = np.random.default_rng(seed)
    errors, labels = random.integers(0, 4, shape).astype(np.float64), random.integers(0, shape[0], shape[1])
    moved, rows = reassigned(labels, errors), np.arange(shape[1])
    assert (errors[moved, rows] == errors.min(axis=0)).all()
    stayed = moved == labels
    assert (errors[moved, rows][~stayed] < errors[labels, rows][~stayed]).all()
