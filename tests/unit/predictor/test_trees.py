from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leap_predictor.errors import TreesError
from leap_predictor.models.trees import KINDS, MAX_DEPTH, Trees
from small_trees import forest, stump


def chain(depth: int) -> dict[str, Any]:
    """A tree that goes down on the right only."""
    nodes = 2 * depth + 1
    left = [node + 1 if node % 2 == 0 and node < nodes - 1 else node for node in range(nodes)]
    return {"feature": [0] * nodes, "left": left}


def row(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array([values], dtype=np.float32)


def test_value_at_the_threshold_goes_right() -> None:
    trees = stump(2.0, below=-1.0, above=1.0)
    assert trees.predict(np.array([[1.999], [2.0], [2.001]], dtype=np.float32)).tolist() == [-1.0, 1.0, 1.0]


@pytest.mark.parametrize("default_right", [False, True])
def test_missing_value_goes_the_default_way(default_right: bool) -> None:
    trees = forest(
        feature=[0, 0, 0],
        threshold=[2.0, 0.0, 0.0],
        left=[1, 1, 2],
        value=[0.0, -1.0, 1.0],
        default_right=[default_right, False, False],
    )
    assert trees.predict(row(np.nan))[0] == (1.0 if default_right else -1.0)


@pytest.mark.parametrize("default_right", [False, True])
def test_missing_category_goes_the_default_way(default_right: bool) -> None:
    trees = forest(
        feature=[0, 0, 0],
        left=[1, 1, 2],
        value=[0.0, -1.0, 1.0],
        category_count=[1, 0, 0],
        category_right=[not default_right],
        default_right=[default_right, False, False],
    )
    assert trees.predict(row(np.nan))[0] == (1.0 if default_right else -1.0)


def test_infinite_values_are_beyond_every_threshold_and_no_missing_ones() -> None:
    trees = forest(
        feature=[0, 0, 0],
        threshold=[3e38, 0.0, 0.0],
        left=[1, 1, 2],
        value=[0.0, -1.0, 1.0],
        default_right=[True, False, False],
    )
    assert trees.predict(np.array([[np.inf], [-np.inf], [np.nan]], dtype=np.float32)).tolist() == [1.0, -1.0, 1.0]


def test_only_listed_categories_go_right_and_unseen_ones_go_left() -> None:
    trees = forest(
        feature=[0, 0, 0],
        left=[1, 1, 2],
        value=[0.0, -1.0, 1.0],
        category_count=[3, 0, 0],
        category_right=[False, True, True],
    )
    codes = np.array([[0], [1], [2], [3], [10_000], [-1], [np.inf]], dtype=np.float32)
    assert trees.predict(codes).tolist() == [-1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0]


def test_trees_of_unequal_depth_are_summed_with_the_base() -> None:
    trees = forest(roots=[[0], [1]], feature=[0] * 4, left=[0, 2, 2, 3], value=[10.0, 0.0, 1.0, 2.0], base=[0.5])
    assert trees.depth == 1
    assert trees.predict(np.array([[-1.0], [1.0]], dtype=np.float32)).tolist() == [11.5, 12.5]


def test_single_leaf_predicts_its_value() -> None:
    assert forest(value=[3.0]).predict(row(1.0)).tolist() == [3.0]


def test_many_rows_are_predicted_as_one_by_one() -> None:
    trees = stump(0.0, below=-1.0, above=1.0)
    rows = np.linspace(-1, 1, 5000, dtype=np.float32)[:, None]
    assert trees.predict(rows).tolist() == [float(trees.predict(one[None])[0]) for one in rows]


def test_rows_beyond_one_pass_ask_for_their_own_outputs() -> None:
    rows = np.linspace(-1, 1, 400_000, dtype=np.float32)[:, None]
    output = np.arange(len(rows)) % 2
    wanted = np.where(output == 0, 3.5, np.where(rows[:, 0] < 0, 29.5, 39.5))
    assert (two_outputs().predict(rows, output) == wanted).all()
    assert (two_outputs().margins(rows)[np.arange(len(rows)), output] == wanted).all()


def test_no_rows_give_no_predictions() -> None:
    assert stump(0.0, -1.0, 1.0).predict(np.empty((0, 1), dtype=np.float32)).shape == (0,)
    assert two_outputs().margins(np.empty((0, 1), dtype=np.float32)).shape == (0, 2)


def two_outputs() -> Trees:
    """Two outputs of two trees each: leaves, but one split of the second output."""
    return forest(
        roots=[[0, 1], [2, 3]],
        feature=[0] * 6,
        left=[0, 1, 2, 4, 4, 5],
        value=[1.0, 10.0, 2.0, 0.0, 20.0, 30.0],
        base=[0.5, -0.5],
    )


def test_every_output_sums_its_own_trees() -> None:
    rows = np.array([[-1.0], [1.0]], dtype=np.float32)
    assert two_outputs().outputs == 2
    assert two_outputs().margins(rows).tolist() == [[3.5, 29.5], [3.5, 39.5]]


def test_each_row_may_ask_for_another_output() -> None:
    rows = np.array([[-1.0], [1.0], [1.0]], dtype=np.float32)
    assert two_outputs().predict(rows, np.array([1, 0, 1])).tolist() == [29.5, 3.5, 39.5]
    assert two_outputs().predict(rows, 1).tolist() == [29.5, 39.5, 39.5]


def test_leaves_are_added_one_after_another_in_32_bits() -> None:
    # Added in another order, or in 64 bits and rounded at the end, these would give 1.
    small = [float(np.float32(2.0**-25))] * 512
    trees = forest(roots=[[at] for at in range(513)], feature=[0] * 513, left=list(range(513)), value=[1.0, *small])
    assert trees.predict(row(0.0)).tolist() == [1.0]
    turned = forest(roots=[[at] for at in range(513)], feature=[0] * 513, left=list(range(513)), value=[*small, 1.0])
    assert turned.predict(row(0.0)).tolist() == [1.0 + 2.0**-16]


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have shape \(n, 1\), got \(1, 2\)"):
        stump(0.0, -1.0, 1.0).predict(row(1.0, 2.0))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"feature": [1]}, "'feature' must lie in"),
        ({"feature": [-1]}, "'feature' must lie in"),
        ({"roots": [[1]]}, "roots and children must be nodes"),
        ({"roots": np.zeros((0, 1))}, "at least one tree"),
        ({"roots": [0]}, "'roots' must be 2-dimensional int32, got 1-dimensional"),
        ({"left": [5]}, "roots and children must be nodes"),
        ({"left": [-1]}, "roots and children must be nodes"),
        ({"left": [0, 1]}, "'left' must have one entry per node"),
        ({"value": [0.0, 1.0]}, "'value' must have one entry per node"),
        ({"value": [np.nan]}, "'value' must be finite"),
        ({"value": [np.inf]}, "'value' must be finite"),
        ({"base": [np.nan]}, "'base' must be finite"),
        ({"base": [0.0, 0.0]}, r"one entry per output \(1\), got 2"),
        ({"threshold": [np.nan]}, "'threshold' must be finite"),
        ({"threshold": [np.inf]}, "'threshold' must be finite"),
        ({"category_start": [-1]}, "must lie within 'category_right'"),
        ({"category_count": [1]}, "a leaf must have no categories"),
        ({"default_right": [True]}, "a leaf must have no categories and no way to the right"),
        ({"feature": [0] * 3, "left": [1, 1, 2], "category_count": [1, 0, 0]}, "must lie within 'category_right'"),
        (
            {
                "roots": [[0], [1]],
                "feature": [0] * 6,
                "left": [2, 4, 2, 3, 4, 5],
                "category_count": [2, 2, 0, 0, 0, 0],
                "category_right": [True, False],
            },
            "must be its own, there are only 2",
        ),
        ({"roots": [[0, 0]], "base": [0.0, 0.0]}, "root of one tree or the child of one"),
        # A cycle: the second node's child is the first.
        ({"feature": [0] * 3, "left": [1, 0, 2]}, "after their parent"),
        # A right child that is no node.
        ({"feature": [0] * 2, "left": [1, 1]}, "roots and children must be nodes"),
        # One node with two parents.
        ({"feature": [0] * 4, "left": [1, 2, 2, 3]}, "root of one tree or the child of one"),
        # Nobody's child.
        ({"feature": [0, 0], "left": [0, 1]}, "root of one tree"),
        (chain(MAX_DEPTH + 1), "deeper than"),
    ],
)
def test_arrays_that_could_mislead_a_walk_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(TreesError, match=rule):
        forest(**changes)


def test_deepest_allowed_tree_is_accepted() -> None:
    assert forest(**chain(MAX_DEPTH)).depth == MAX_DEPTH


def test_arrays_have_the_types_that_files_hold() -> None:
    arrays = two_outputs().arrays()
    assert {name: (array.dtype.str, array.ndim) for name, array in arrays.items()} == KINDS
    again = Trees(**arrays, feature_count=1)
    assert again.predict(row(1.0), 1).tolist() == [39.5]
