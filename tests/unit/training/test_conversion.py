from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from leap_training.conversion import side_by_side, trees_of


def boosted(rounds: int = 5, labels: Any = None, **parameters: Any) -> xgboost.Booster:
    random = np.random.default_rng(0)
    rows = random.normal(size=(100, 2)).astype(np.float32)
    target = rows.sum(axis=1) if labels is None else labels
    given = {"objective": "reg:quantileerror", "nthread": 1} | parameters
    if given["objective"] == "reg:quantileerror":
        given.setdefault("quantile_alpha", 0.5)
    return xgboost.train(given, xgboost.QuantileDMatrix(rows, target), rounds)


@pytest.mark.parametrize("objective", ["reg:quantileerror", "reg:absoluteerror", "reg:squarederror"])
def test_objectives_that_leave_the_margin_alone_are_converted(objective: str) -> None:
    booster = boosted(objective=objective)
    rows = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    np.testing.assert_array_equal(trees_of(booster).predict(rows), booster.predict(xgboost.DMatrix(rows)))


def test_fit_without_rounds_predicts_the_base_everywhere() -> None:
    # One constant row gives trees of a single leaf.
    booster = boosted(rounds=1, labels=np.full(100, 3.0))
    rows = np.zeros((1, 2), dtype=np.float32)
    assert trees_of(booster).predict(rows)[0] == booster.predict(xgboost.DMatrix(rows))[0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"booster": "dart"}, "must be 'gbtree', got 'dart'"),
        ({"quantile_alpha": [0.1, 0.9]}, "must have one output"),
    ],
)
def test_boosters_of_another_kind_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trees_of(boosted(**parameters))


def test_forest_of_a_class_and_round_is_refused() -> None:
    several = boosted(objective="multi:softprob", num_class=2, num_parallel_tree=2, labels=np.arange(100) % 2)
    with pytest.raises(ValueError, match="one tree per round and class; leave out 'num_parallel_tree'"):
        trees_of(several)


def test_transformed_margin_is_refused() -> None:
    labels = np.random.default_rng(0).integers(0, 2, 100)
    with pytest.raises(ValueError, match="must leave the margin as it is, got 'binary:logistic'"):
        trees_of(boosted(objective="binary:logistic", labels=labels))


@pytest.mark.parametrize("objective", ["multi:softprob", "multi:softmax"])
def test_classifier_has_one_output_per_class(objective: str) -> None:
    booster = boosted(objective=objective, num_class=3, labels=np.arange(100) % 3)
    rows = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    trees = trees_of(booster)
    assert trees.roots.shape == (5, 3)
    np.testing.assert_array_equal(trees.margins(rows), booster.predict(xgboost.DMatrix(rows), output_margin=True))


def test_class_that_no_row_has_is_an_output_too() -> None:
    booster = boosted(objective="multi:softprob", num_class=4, labels=np.arange(100) % 2)
    rows = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    margins = trees_of(booster).margins(rows)
    np.testing.assert_array_equal(margins, booster.predict(xgboost.DMatrix(rows), output_margin=True))


def test_pruned_nodes_are_left_out() -> None:
    booster = boosted(gamma=5.0, max_depth=8)
    listed = sum(line.count(":") for dump in booster.get_dump() for line in dump.splitlines() if ":" in line[:8])
    assert trees_of(booster).feature.size == listed


def test_nodes_stand_level_by_level_over_all_trees() -> None:
    trees = trees_of(boosted())
    assert trees.roots[:, 0].tolist() == [0, 1, 2, 3, 4]
    children = trees.left[trees.left > np.arange(trees.left.size)]
    assert (np.diff(children) == 2).all()


def test_one_forest_side_by_side_is_itself() -> None:
    trees = trees_of(boosted())
    again = side_by_side([trees])
    for name, array in trees.arrays().items():
        np.testing.assert_array_equal(getattr(again, name), array)


def test_regressors_that_cannot_be_asked_in_one_pass_are_refused() -> None:
    with pytest.raises(ValueError, match="as many trees an output"):
        side_by_side([trees_of(boosted()), trees_of(boosted(rounds=6))])
