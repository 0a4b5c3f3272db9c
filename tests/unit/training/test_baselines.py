from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_features.backoff import backoff
from leap_features.columns import history_column
from leap_features.hardware import CATALOGUE
from leap_features.levels import BACKOFF
from leap_training.baselines import BackoffLast, BackoffMean, FamilyMean, Lookup
from leap_training.feature_models import Sample
from leap_training.model import NothingToFit, NotRun, Recipe
from leap_training.models import ABLATIONS, DEFAULT, RECIPES
from leap_training.neighbours import Neighbours
from leap_training.tabpfn import MAX_ROWS_CPU, MAX_ROWS_GPU, chosen_weights, tabpfn_regressor, with_context
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, write

BOOSTED = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is an extra"),
    )
    for name in ("lightgbm", "catboost")
]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(400))).rows


def answers(recipe: Recipe, training: TrainingSet, asked: TrainingSet) -> NDArray[np.float64]:
    return recipe.fit(training, CATALOGUE).predict(asked.hidden()).log_throughput


def changed(training: TrainingSet, **columns: object) -> TrainingSet:
    full = {name: np.full(len(training), value) for name, value in columns.items()}
    return replace(training, columns={**training.columns, **full})


def test_backoff_last_answers_by_the_first_level_that_has_history(training: TrainingSet) -> None:
    predicted = BackoffLast().fit(training, CATALOGUE).predict(training.hidden())
    found = backoff(training.columns)
    np.testing.assert_array_equal(predicted.log_throughput, found.last)
    assert predicted.level is not None
    assert predicted.level.tolist() == found.level.tolist()


def test_backoff_mean_is_the_mean_of_the_level_that_answers(training: TrainingSet) -> None:
    predicted = BackoffMean().fit(training, CATALOGUE).predict(training.hidden())
    assert predicted.level is not None
    for row, level in enumerate(predicted.level.tolist()):
        mean = training.columns[history_column(BACKOFF[level].view, "mean")][row] if level >= 0 else np.nan
        np.testing.assert_array_equal(predicted.log_throughput[row], mean)


def test_family_without_history_has_no_mean(training: TrainingSet) -> None:
    predicted = answers(FamilyMean(), training, training)
    np.testing.assert_array_equal(predicted, training.columns["family_history__mean"])
    assert np.isnan(predicted).any()


def test_table_answers_the_median_under_a_key(training: TrainingSet) -> None:
    predicted = answers(Lookup(min_rows=3), training, training)
    keys = list(
        zip(
            *(
                training.columns[name].tolist()
                for name in ("model_type", "trainer_count", "batch_size", "hardware_type")
            ),
            strict=True,
        )
    )
    for row, key in enumerate(keys):
        under = [at for at, other in enumerate(keys) if other == key]
        wanted = np.median(training.log_throughput[under]) if len(under) >= 3 else np.nan
        np.testing.assert_array_equal(predicted[row], wanted)


def test_table_without_the_key_has_no_answer(training: TrainingSet) -> None:
    assert np.isnan(answers(Lookup(), training, changed(training, batch_size=7.0))).all()


def test_table_backs_off_to_a_coarser_key(training: TrainingSet) -> None:
    asked = changed(training, batch_size=7.0)
    assert not np.isnan(answers(Lookup(with_backoff=True, min_rows=1), training, asked)).any()


def test_table_backs_off_to_the_family_in_the_end(training: TrainingSet) -> None:
    asked = changed(training, model_type="new")
    predicted = answers(Lookup(with_backoff=True), training, asked)
    np.testing.assert_array_equal(predicted, training.columns["family_history__mean"])


def test_missing_batch_is_a_key_of_its_own(training: TrainingSet) -> None:
    without = changed(training, batch_size=np.nan)
    assert not np.isnan(answers(Lookup(min_rows=1), without, without)).any()
    assert np.isnan(answers(Lookup(min_rows=1), without, training)).all()


def test_known_configuration_is_its_own_neighbour(training: TrainingSet) -> None:
    one = training.where(np.array([0]))
    assert answers(Neighbours(), one, one) == pytest.approx(one.log_throughput)


def test_neighbour_is_scaled_by_the_trainers(training: TrainingSet) -> None:
    one = training.where(np.array([0]))
    twice = changed(one, trainer_count=2 * one.columns["trainer_count"][0])
    assert answers(Neighbours(), one, twice) == pytest.approx(one.log_throughput + np.log(2.0))


def test_neighbours_are_of_the_same_model_type(training: TrainingSet) -> None:
    bert = training.where(training.columns["model_type"] == "bert")
    predicted = answers(Neighbours(), bert, training)
    np.testing.assert_array_equal(np.isnan(predicted), training.columns["model_type"] != "bert")


def test_configuration_without_a_batch_has_neighbours(training: TrainingSet) -> None:
    assert not np.isnan(answers(Neighbours(), training, changed(training, batch_size=np.nan))).any()


@pytest.mark.parametrize("recipe", [Lookup(), Neighbours(), RECIPES["leap"]])
def test_no_rows_cannot_be_fitted(training: TrainingSet, recipe: Recipe) -> None:
    with pytest.raises(NothingToFit):
        recipe.fit(training.where(np.zeros(len(training), dtype=np.bool_)), CATALOGUE)


@pytest.mark.parametrize("name", BOOSTED)
def test_other_boosting_libraries_learn(training: TrainingSet, name: str) -> None:
    error = np.abs(answers(RECIPES[name], training, training) - training.log_throughput)
    assert np.median(error) < 0.1


@pytest.mark.parametrize("name", BOOSTED)
def test_other_boosting_libraries_give_the_same_model_for_the_same_rows(training: TrainingSet, name: str) -> None:
    few = training.where(np.arange(60))
    one, other = (answers(RECIPES[name], few, training) for _ in range(2))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("name", BOOSTED)
@pytest.mark.parametrize("count", [1, 5])
def test_other_boosting_libraries_answer_after_few_rows(training: TrainingSet, name: str, count: int) -> None:
    assert np.isfinite(answers(RECIPES[name], training.where(np.arange(count)), training)).all()


@pytest.mark.parametrize("name", BOOSTED)
def test_other_boosting_libraries_take_a_constant_target(training: TrainingSet, name: str) -> None:
    same = replace(training, log_throughput=np.full(len(training), 3.0))
    assert answers(RECIPES[name], same, training) == pytest.approx(3.0)


def test_tabpfn_is_not_run_without_weights() -> None:
    with pytest.raises(NotRun, match="not downloaded unasked"):
        chosen_weights({})


def test_tabpfn_is_not_run_where_the_weights_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="which is no file"):
        chosen_weights({"LEAP_TABPFN_WEIGHTS": str(tmp_path / "absent.ckpt")})


@pytest.mark.skipif(importlib.util.find_spec("tabpfn") is not None, reason="the package is there")
def test_tabpfn_is_not_run_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAP_TABPFN_DOWNLOAD", "1")
    with pytest.raises(NotRun, match="leap-throughput\\[tabpfn\\]"):
        tabpfn_regressor(Sample(np.zeros((1, 1), dtype=np.float32), ["q"], np.zeros(1), np.zeros(1, dtype=np.int64)))


def test_tabpfn_takes_weights_that_are_there_before_a_download(tmp_path: Path) -> None:
    weights = tmp_path / "regressor.ckpt"
    weights.touch()
    environment = {"LEAP_TABPFN_WEIGHTS": str(weights), "LEAP_TABPFN_DOWNLOAD": "1"}
    assert chosen_weights(environment) == str(weights)
    assert chosen_weights({"LEAP_TABPFN_DOWNLOAD": "1"}) == "auto"


class ContextKept:
    """A regressor with TabPFN's calls, which keeps what it was given and answers by its context's median."""

    def __init__(self, **settings: Any) -> None:
        self.settings: Mapping[str, Any] = settings

    def fit(self, matrix: NDArray[np.float32], target: NDArray[np.float64]) -> None:
        if self.settings["model_path"] == "broken":
            raise RuntimeError("not a checkpoint")
        self.rows = len(matrix)
        self.target = target

    def predict(self, matrix: NDArray[np.float32], *, output_type: str) -> NDArray[np.float32]:
        assert output_type == "median"
        return np.full(len(matrix), np.median(self.target), dtype=np.float32)


def context(count: int) -> Sample:
    matrix = np.zeros((count, 2), dtype=np.float32)
    return Sample(matrix, ["q", "c"], np.arange(count, dtype=np.float64), np.arange(count))


@pytest.mark.parametrize(("gpu", "most"), [(False, MAX_ROWS_CPU), (True, MAX_ROWS_GPU)])
def test_tabpfn_takes_the_latest_rows_that_its_context_holds(gpu: bool, most: int) -> None:
    fitted = with_context(context(12_000), ContextKept, "auto", gpu=gpu)
    assert fitted.regressor.rows == most
    assert fitted.regressor.target.min() == 12_000 - most
    assert fitted.regressor.settings["categorical_features_indices"] == [1]


def test_tabpfn_answers_every_row_in_blocks() -> None:
    fitted = with_context(context(11), ContextKept, "auto", gpu=False)
    assert fitted.predict(np.zeros((4_500, 2), dtype=np.float32)).tolist() == [5.0] * 4_500


def test_tabpfn_is_not_run_with_weights_that_cannot_be_read() -> None:
    with pytest.raises(NotRun, match="not a checkpoint"):
        with_context(context(11), ContextKept, "broken", gpu=False)


def test_default_is_a_model_of_the_registry() -> None:
    assert DEFAULT in RECIPES


@pytest.mark.parametrize("name", ["leap", *ABLATIONS])
def test_leap_and_what_it_is_judged_without_fit_few_rows(training: TrainingSet, name: str) -> None:
    recipe = {**RECIPES, **ABLATIONS}[name]
    assert np.isfinite(answers(recipe, training.where(np.arange(50)), training)).all()


def test_only_one_addition_knows_more_than_the_familys_history(training: TrainingSet) -> None:
    few = training.where(np.arange(20))
    for name, recipe in {"leap": RECIPES["leap"], **ABLATIONS}.items():
        names = getattr(recipe.fit(few, CATALOGUE), "features").names  # noqa: B009  # of feature models alone
        beyond = [each for each in names if "history__" in each and not each.startswith("family_history__")]
        assert bool(beyond) == (name == "leap+levels")
