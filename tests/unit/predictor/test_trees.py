from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from leap_predictor.errors import TreesError
from leap_predictor.trees import MAX_DEPTH, Trees
from small_trees import forest, stump


def chain(depth: int) -> dict[str, Any]:
    """A tree that goes down on the right only."""
    nodes = 2 * depth + 1
    children: list[int] = []
    for node in range(nodes):
        inner = node % 2 == 0 and node < nodes - 1
        children += [node + 1, node + 2] if inner else [node, node]
    return {"feature": [0] * nodes, "threshold": [0.0] * nodes, "value": [0.0] * nodes, "children": children}


def row(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array([values], dtype=np.float32)


def test_value_at_the_threshold_goes_right() -> None:
    trees = stump(2.0, below=-1.0, above=1.0)
    assert trees.predict(np.array([[1.999], [2.0], [2.001]], dtype=np.float32)).tolist() == [-1.0, 1.0, 1.0]


@pytest.mark.parametrize("default_right", [False, True])
def test_missing_value_goes_the_default_way(default_right: bool) -> None:
    trees = forest(
        feature=[0, 0, 0],
        threshold=[2.0, np.inf, np.inf],
        children=[1, 2, 1, 1, 2, 2],
        value=[0.0, -1.0, 1.0],
        default_right=[default_right, False, False],
    )
    assert trees.predict(row(np.nan))[0] == (1.0 if default_right else -1.0)


def test_only_listed_categories_go_right_and_unseen_ones_go_left() -> None:
    trees = forest(
        feature=[0, 0, 0],
        threshold=[np.inf] * 3,
        children=[1, 2, 1, 1, 2, 2],
        value=[0.0, -1.0, 1.0],
        category_count=[3, 0, 0],
        category_right=[False, True, True],
    )
    codes = np.array([[0], [1], [2], [3], [10_000], [-1], [np.inf]], dtype=np.float32)
    assert trees.predict(codes).tolist() == [-1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0]


def test_trees_of_unequal_depth_are_summed_with_the_base() -> None:
    trees = forest(
        roots=[0, 1],
        feature=[0, 0, 0, 0],
        threshold=[np.inf, 0.0, np.inf, np.inf],
        children=[0, 0, 2, 3, 2, 2, 3, 3],
        value=[10.0, 0.0, 1.0, 2.0],
        base=0.5,
    )
    assert trees.depth == 1
    assert trees.predict(np.array([[-1.0], [1.0]], dtype=np.float32)).tolist() == [11.5, 12.5]


def test_single_leaf_predicts_its_value() -> None:
    assert forest(value=[3.0]).predict(row(1.0)).tolist() == [3.0]


def test_many_rows_are_predicted_as_one_by_one() -> None:
    trees = stump(0.0, below=-1.0, above=1.0)
    rows = np.linspace(-1, 1, 5000, dtype=np.float32)[:, None]
    assert trees.predict(rows).tolist() == [float(trees.predict(one[None])[0]) for one in rows]


def test_no_rows_give_no_predictions() -> None:
    assert stump(0.0, -1.0, 1.0).predict(np.empty((0, 1), dtype=np.float32)).shape == (0,)


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have shape \(n, 1\), got \(1, 2\)"):
        stump(0.0, -1.0, 1.0).predict(row(1.0, 2.0))


def test_saved_trees_are_read_back_unchanged() -> None:
    trees = stump(0.25, -1.0, 1.0)
    again = Trees.from_bytes(trees.to_bytes())
    rows = np.array([[0.0], [1.0], [np.nan]], dtype=np.float32)
    assert again.predict(rows).tolist() == trees.predict(rows).tolist()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"feature": [1]}, "'feature' must lie in"),
        ({"feature": [-1]}, "'feature' must lie in"),
        ({"roots": [1]}, "roots and children must be nodes"),
        ({"roots": []}, "at least one tree"),
        ({"children": [0, 5]}, "roots and children must be nodes"),
        ({"children": [-1, 0]}, "roots and children must be nodes"),
        ({"children": [0]}, "two entries per node"),
        ({"value": [0.0, 1.0]}, "one entry per node"),
        ({"value": [np.nan]}, "must be finite"),
        ({"value": [np.inf]}, "must be finite"),
        ({"base": np.nan}, "must be finite"),
        ({"threshold": [np.nan]}, "no NaN"),
        ({"category_count": [1]}, "must lie within 'category_right'"),
        ({"category_start": [-1]}, "must lie within 'category_right'"),
        ({"roots": [0, 0]}, "root of one tree or the child of one"),
        # A cycle: the second node's child is the first.
        (
            {"feature": [0] * 3, "threshold": [0.0] * 3, "value": [0.0] * 3, "children": [1, 2, 0, 2, 2, 2]},
            "after their parent",
        ),
        # One node with two parents.
        (
            {
                "feature": [0] * 4,
                "threshold": [0.0] * 4,
                "value": [0.0] * 4,
                "children": [1, 2, 2, 3, 2, 2, 3, 3],
            },
            "root of one tree or the child of one",
        ),
        # Nobody's child.
        ({"feature": [0, 0], "threshold": [0.0] * 2, "value": [0.0] * 2, "children": [0, 0, 1, 1]}, "root of one tree"),
        (chain(MAX_DEPTH + 1), "deeper than"),
    ],
)
def test_arrays_that_could_mislead_a_walk_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(TreesError, match=rule):
        forest(**changes)


def test_deepest_allowed_tree_is_accepted() -> None:
    assert forest(**chain(MAX_DEPTH)).depth == MAX_DEPTH


def archive(**changes: Any) -> bytes:
    with np.load(io.BytesIO(stump(0.0, -1.0, 1.0).to_bytes())) as saved:
        arrays = {name: saved[name] for name in saved.files}
    arrays.update(changes)
    buffer = io.BytesIO()
    np.savez(buffer, **{name: array for name, array in arrays.items() if array is not None})
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "no readable .npz"),
        (b"PK\x03\x04 nothing", "no readable .npz"),
        (archive(threshold=np.zeros(3, dtype=np.float64)), "'threshold' must be 1-dimensional float32"),
        (archive(children=np.zeros((3, 2), dtype=np.int32)), "'children' must be 1-dimensional int32"),
        (archive(extra=np.zeros(1)), "exactly the arrays"),
        (archive(value=None), "exactly the arrays"),
        (archive(value=np.array([{"a": 1}] * 3, dtype=object)), "no readable .npz"),
    ],
)
def test_other_files_are_refused_and_nothing_is_unpickled(raw: bytes, rule: str) -> None:
    with pytest.raises(TreesError, match=rule):
        Trees.from_bytes(raw)
