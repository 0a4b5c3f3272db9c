from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_features.row import GROUPS
from leap_training.feature_set import FeatureSet
from leap_training.judge.importance import MatrixModel, group_of, importance
from leap_training.training_set import TrainingSet, read_training_set
from small_recipes import BackoffLast
from small_training_set import rows, write


class Scale:
    """Answers ln trainers, and has two more features that it does not look at."""

    features = FeatureSet(("log_trainers", "log_batch", "family_history__count"), {})

    def predict_matrix(self, matrix: NDArray[np.float32]) -> NDArray[np.float64]:
        return matrix[:, 0].astype(np.float64)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(200))).rows


def test_what_a_model_looks_at_is_worth_points_and_the_rest_none(training: TrainingSet) -> None:
    measured = np.log(training.columns["trainer_count"].astype(np.float64))
    found = {(each.feature, each.group): each.points for each in importance(Scale(), training.hidden(), measured)}
    assert found["log_trainers", group_of("log_trainers")] > 50
    assert found["log_batch", group_of("log_batch")] == 0
    assert found[None, "family_history"] == 0
    assert sum(feature is None for feature, _ in found) == len({group for _, group in found})


def test_a_seed_gives_the_same_points_again(training: TrainingSet) -> None:
    measured = np.log(training.columns["trainer_count"].astype(np.float64))
    one, two = (importance(Scale(), training.hidden(), measured, seed=4) for _ in range(2))
    assert one == two
    assert one != importance(Scale(), training.hidden(), measured, seed=5)


def test_groups_come_first_and_the_greatest_of_each_first(training: TrainingSet) -> None:
    found = importance(Scale(), training.hidden(), np.zeros(len(training)))
    groups = [each.feature is None for each in found]
    assert groups == sorted(groups, reverse=True)


def test_every_feature_belongs_to_a_group() -> None:
    for group, names in GROUPS.items():
        assert {group_of(name) for name in names} == {group}
    assert group_of("config__precision") == "configuration"
    assert group_of("architecture__layers") == "architecture"


def test_a_model_without_a_matrix_is_told_apart() -> None:
    assert isinstance(Scale(), MatrixModel)
    assert not isinstance(BackoffLast(), MatrixModel)
