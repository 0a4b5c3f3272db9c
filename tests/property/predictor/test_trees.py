from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_predictor.errors import TreesError
from leap_predictor.trees import Trees
from leap_training.conversion import trees_of
from small_trees import forest


def walk(trees: Trees, row: list[float]) -> float:
    """The obvious way: one row, one tree, one node at a time."""
    total = trees.base
    for root in trees.roots.tolist():
        node = root
        while trees.children[2 * node] != node:
            value = row[int(trees.feature[node])]
            count = int(trees.category_count[node])
            if np.isnan(value):
                right = bool(trees.default_right[node])
            elif count:
                known = 0 <= value < count
                right = known and bool(trees.category_right[int(trees.category_start[node]) + int(value)])
            else:
                right = np.float32(value) >= trees.threshold[node]
            node = int(trees.children[2 * node + int(right)])
        total += float(trees.value[node])
    return total


def rows_of(random: np.random.Generator, kinds: list[str], count: int, categories: int, missing: float) -> Any:
    rows = random.normal(size=(count, len(kinds))).astype(np.float32)
    for at, kind in enumerate(kinds):
        if kind == "c":
            rows[:, at] = random.integers(0, categories, count)
    rows[random.random(rows.shape) < missing] = np.nan
    return rows


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    kinds=st.lists(st.sampled_from(["c", "q"]), min_size=1, max_size=6),
    categories=st.integers(1, 90),
    depth=st.integers(1, 10),
    rounds=st.integers(1, 40),
    one_hot=st.sampled_from([1, 4, 100]),
    gamma=st.sampled_from([0.0, 0.5]),
    missing=st.sampled_from([0.0, 0.2]),
)
def test_trees_predict_what_xgboost_predicts_with_gaps_and_categories_seen_and_unseen(
    seed: int, kinds: list[str], categories: int, depth: int, rounds: int, one_hot: int, gamma: float, missing: float
) -> None:
    random = np.random.default_rng(seed)
    rows = rows_of(random, kinds, 200, categories, missing)
    target = np.nan_to_num(rows) @ random.normal(size=len(kinds))
    parameters = {
        "objective": "reg:quantileerror",
        "quantile_alpha": 0.5,
        "max_depth": depth,
        "max_cat_to_onehot": one_hot,
        "gamma": gamma,
        "nthread": 1,
    }
    booster = xgboost.train(parameters, xgboost.QuantileDMatrix(rows, target, feature_types=kinds), rounds)
    trees = Trees.from_bytes(trees_of(booster).to_bytes())

    later = rows_of(random, kinds, 200, 3 * categories, 0.3)
    wanted = booster.predict(xgboost.DMatrix(later, feature_types=kinds))
    got = trees.predict(later)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))
    np.testing.assert_allclose(got[:20], [walk(trees, row.tolist()) for row in later[:20]], rtol=1e-12)


_WHOLE = forest(
    roots=[0, 3],
    feature=[0, 0, 0, 1, 0, 0],
    threshold=[0.5, np.inf, np.inf, np.inf, np.inf, np.inf],
    children=[1, 2, 1, 1, 2, 2, 4, 5, 4, 4, 5, 5],
    value=[0.0, -1.0, 1.0, 0.0, 0.25, -0.25],
    category_count=[0, 0, 0, 2, 0, 0],
    category_right=[False, True],
    feature_count=2,
)
_BYTES = _WHOLE.to_bytes()
_ROWS = np.array([[0.0, 0.0], [1.0, 1.0], [np.nan, np.nan]], dtype=np.float32)


@settings(max_examples=400, deadline=None)
@given(bit=st.integers(0, len(_BYTES) * 8 - 1))
def test_file_with_a_flipped_bit_is_refused_or_still_the_same_trees(bit: int) -> None:
    damaged = bytearray(_BYTES)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        trees = Trees.from_bytes(bytes(damaged))
    except TreesError:
        return
    assert trees.predict(_ROWS).tolist() == _WHOLE.predict(_ROWS).tolist()


@settings(max_examples=100, deadline=None)
@given(length=st.integers(0, len(_BYTES) - 1))
def test_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(TreesError):
        Trees.from_bytes(_BYTES[:length])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_arrays_are_refused_or_walked_to_finite_sums(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    index = st.integers(-1, nodes)
    arrays = {
        "roots": data.draw(st.lists(index, min_size=1, max_size=3)),
        "feature": data.draw(st.lists(st.integers(-1, 2), min_size=nodes, max_size=nodes)),
        "threshold": data.draw(st.lists(st.floats(width=32), min_size=nodes, max_size=nodes)),
        "children": data.draw(st.lists(index, min_size=2 * nodes, max_size=2 * nodes)),
        "value": data.draw(st.lists(st.floats(-5, 5, width=32), min_size=nodes, max_size=nodes)),
        "category_start": data.draw(st.lists(st.integers(-1, 3), min_size=nodes, max_size=nodes)),
        "category_count": data.draw(st.lists(st.integers(-1, 3), min_size=nodes, max_size=nodes)),
        "category_right": data.draw(st.lists(st.booleans(), max_size=4)),
        "default_right": data.draw(st.lists(st.booleans(), min_size=nodes, max_size=nodes)),
        "feature_count": 2,
    }
    try:
        trees = forest(**arrays)
    except TreesError:
        return
    rows = data.draw(st.lists(st.tuples(st.floats(width=32), st.floats(width=32)), min_size=1, max_size=4))
    predicted = trees.predict(np.array(rows, dtype=np.float32))
    assert predicted.tolist() == pytest.approx([walk(trees, list(row)) for row in rows])
