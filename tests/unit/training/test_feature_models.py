from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leap_features.hardware import CATALOGUE
from leap_training.boosting import MedianTrees, TreeSettings, single_regressor
from leap_training.feature_models import (
    MAX_HIDDEN,
    MIN_HIDDEN,
    FeatureModel,
    FeatureRecipe,
    Sample,
    hide_categories,
    share_with_new_values,
)
from leap_training.model import NothingToFit
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, write


def quick(given: Sample) -> MedianTrees:
    return single_regressor(given, TreeSettings(rounds=30, max_depth=4))


RECIPE = FeatureRecipe(quick)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(600))).rows


@pytest.fixture(scope="module")
def fitted(training: TrainingSet) -> FeatureModel:
    return RECIPE.fit(training, CATALOGUE)


def categories(values: list[float]) -> Sample:
    matrix = np.array(values, dtype=np.float32)[:, np.newaxis]
    return Sample(matrix, ["c"], np.zeros(len(values)), np.arange(len(values)))


def test_labels_have_no_say_in_a_prediction(training: TrainingSet, fitted: FeatureModel) -> None:
    hidden, shown = (fitted.predict(given).log_throughput for given in (training.hidden(), training))
    assert hidden.tolist() == shown.tolist()


# https://github.com/dmlc/xgboost/issues/8357
def test_columns_in_another_order_give_the_same_answers(training: TrainingSet, fitted: FeatureModel) -> None:
    turned = replace(training, columns=dict(reversed(list(training.columns.items()))))
    assert fitted.predict(turned).log_throughput.tolist() == fitted.predict(training).log_throughput.tolist()
    assert RECIPE.fit(turned, CATALOGUE).predict(training).log_throughput.tolist() == (
        fitted.predict(training).log_throughput.tolist()
    )


# https://github.com/dmlc/xgboost/issues/8357
def test_matrix_of_other_features_is_refused(training: TrainingSet, fitted: FeatureModel) -> None:
    matrix = fitted.features.matrix(training)
    with pytest.raises(ValueError, match="must have the"):
        fitted.predict_matrix(matrix[:, 1:])


def test_no_rows_are_predicted_as_none(training: TrainingSet, fitted: FeatureModel) -> None:
    none = training.where(np.zeros(len(training), dtype=np.bool_))
    assert len(fitted.predict(none).log_throughput) == 0


def test_no_rows_cannot_be_fitted(training: TrainingSet) -> None:
    with pytest.raises(NothingToFit, match="widen it"):
        RECIPE.fit(training.where(np.zeros(len(training), dtype=np.bool_)), CATALOGUE)


def test_model_type_that_training_lacks_is_answered(training: TrainingSet, fitted: FeatureModel) -> None:
    new = replace(training, columns={**training.columns, "model_type": np.full(len(training), "new", dtype=object)})
    assert np.isfinite(fitted.predict(new).log_throughput).all()


def test_group_that_is_left_out_is_in_no_feature(training: TrainingSet) -> None:
    names = FeatureRecipe(quick, ("configuration",)).fit(training, CATALOGUE).features.names
    assert not any("history" in name for name in names)


def test_values_that_came_back_are_not_new() -> None:
    assert share_with_new_values(categories([0, 1, 2, 3] * 10)) == 0.0


def test_values_that_only_the_latest_rows_have_are_new() -> None:
    assert share_with_new_values(categories([0.0] * 30 + [0.0, 1.0] * 5)) == 0.5


def test_missing_value_is_not_new() -> None:
    assert share_with_new_values(categories([0.0] * 30 + [np.nan] * 10)) == 0.0


@pytest.mark.parametrize(("latest", "share"), [(0.0, MIN_HIDDEN), (1.0, MAX_HIDDEN)])
def test_more_categories_are_hidden_where_new_ones_keep_coming(latest: float, share: float) -> None:
    given = categories([0.0] * 3000 + [latest] * 1000)
    assert hide_categories(given) == share
    assert np.isnan(given.matrix).mean() == pytest.approx(share, abs=0.02)


def test_numbers_are_never_hidden() -> None:
    given = Sample(np.ones((1000, 2), dtype=np.float32), ["c", "q"], np.zeros(1000), np.arange(1000))
    hide_categories(given)
    assert np.isnan(given.matrix).any(axis=0).tolist() == [True, False]


def test_latest_rows_are_those_submitted_last() -> None:
    given = Sample(np.zeros((4, 1), dtype=np.float32), ["q"], np.array([1.0, 2.0, 3.0, 4.0]), np.array([9, 1, 8, 2]))
    assert given.latest(2).target.tolist() == [1.0, 3.0]


def test_one_row_is_enough(training: TrainingSet, tmp_path: Path) -> None:
    one = read_training_set(write(tmp_path / "one.parquet", rows(1))).rows
    answers = RECIPE.fit(one, CATALOGUE).predict(training).log_throughput
    assert answers == pytest.approx(float(one.log_throughput[0]))
