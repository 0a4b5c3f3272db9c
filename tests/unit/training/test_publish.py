from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from leap_features.family import DEFAULT_RULES
from leap_features.hardware import CATALOGUE
from leap_predictor.bundle import load
from leap_training.layered import FitSettings, Fitted, fit
from leap_training.publish import TreesDiffer, check_trees, publish_model
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, submitted_at, write


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(200))).rows


@pytest.fixture(scope="module")
def fitted(training: TrainingSet) -> Fitted:
    return fit(training, CATALOGUE, FitSettings(rounds=20))


def publish(fitted: Fitted, training: TrainingSet, bundles: Path) -> str:
    return publish_model(
        fitted,
        training,
        bundles,
        catalogue=CATALOGUE,
        project="leap",
        family_rule=DEFAULT_RULES.version,
        family_rules="",
        before=None,
        set_aside=3,
        metrics={"held_out_all_model_within_20": 97.5},
        now=datetime(2026, 3, 1, tzinfo=UTC),
    )


def test_published_bundle_predicts_what_was_fitted(fitted: Fitted, training: TrainingSet, tmp_path: Path) -> None:
    publish(fitted, training, tmp_path)
    bundle = load(tmp_path)
    wanted = fitted.model.estimate(training.columns)
    got = bundle.model.estimate(training.columns)
    assert got.log_throughput.tolist() == wanted.log_throughput.tolist()
    assert bundle.manifest.training.rows == 200
    assert bundle.manifest.training.set_aside == 3
    assert bundle.manifest.training.first_recorded_at == submitted_at(0) + timedelta(minutes=30)
    assert bundle.manifest.settings == {"rounds": 20, "max_depth": 4, "learning_rate": 0.1}


def test_trees_equal_xgboost_on_training_rows_and_on_rows_with_gaps(fitted: Fitted, training: TrainingSet) -> None:
    assert check_trees(fitted, training) < 1e-6


def test_bundle_whose_trees_differ_from_xgboost_is_not_published(
    fitted: Fitted, training: TrainingSet, tmp_path: Path
) -> None:
    trees = fitted.model.trees
    value = trees.value.copy()
    leaf = int(np.flatnonzero(trees.children[::2] == np.arange(len(value)))[0])
    value[leaf] += 0.01
    other = dataclasses.replace(
        fitted, model=dataclasses.replace(fitted.model, trees=dataclasses.replace(trees, value=value))
    )
    with pytest.raises(TreesDiffer, match="must predict what XGBoost"):
        publish(other, training, tmp_path)
    assert list(tmp_path.iterdir()) == []
