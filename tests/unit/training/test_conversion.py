from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from leap_training.conversion import trees_of


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
    np.testing.assert_allclose(trees_of(booster).predict(rows), booster.predict(xgboost.DMatrix(rows)), atol=1e-5)


def test_fit_without_rounds_predicts_the_base_everywhere() -> None:
    # One constant row gives trees of a single leaf.
    booster = boosted(rounds=1, labels=np.full(100, 3.0))
    rows = np.zeros((1, 2), dtype=np.float32)
    assert trees_of(booster).predict(rows)[0] == pytest.approx(float(booster.predict(xgboost.DMatrix(rows))[0]))


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


def test_transformed_margin_is_refused() -> None:
    labels = np.random.default_rng(0).integers(0, 2, 100)
    with pytest.raises(ValueError, match="must leave the margin as it is, got 'binary:logistic'"):
        trees_of(boosted(objective="binary:logistic", labels=labels))
