from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leap_features.columns import history_column
from leap_features.hardware import CATALOGUE
from leap_features.levels import BACKOFF, FAMILY
from leap_predictor.bundle import load, read_model
from leap_predictor.errors import ModelError
from leap_predictor.models.cascade import Cascade, HalfWidths
from leap_predictor.models.cascade_files import to_files
from leap_predictor.models.served_model import NORMAL
from leap_training import conformal
from leap_training.layered import fit
from leap_training.model import NothingToFit
from leap_training.models import RECIPES
from leap_training.nightly import model_step
from leap_training.publish import ServedDiffers, check_served
from leap_training.served_trees import FittedTrees, TreeModel, fit_trees, half_widths, tolerance
from leap_training.training_set import TrainingSet, read_training_set
from published_fit import publish_fit
from small_forests import QUICK, small_forests
from small_training_set import rows, write

NAMES: tuple[TreeModel, ...] = ("leap", "xgboost")


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(400))).rows


@pytest.fixture(scope="module")
def cascade(training: TrainingSet) -> FittedTrees:
    return small_forests("leap", training, intervals=True)


@pytest.fixture(scope="module", params=NAMES)
def fitted(request: pytest.FixtureRequest, training: TrainingSet, cascade: FittedTrees) -> FittedTrees:
    return cascade if request.param == "leap" else small_forests(request.param, training, intervals=True)


def publish(fitted: FittedTrees, training: TrainingSet, bundles: Path) -> str:
    return publish_fit(fitted, training, bundles)


def test_launcher_predicts_what_xgboost_predicts_to_the_bit(fitted: FittedTrees, training: TrainingSet) -> None:
    wanted = fitted.fitted.predict(training).log_throughput
    np.testing.assert_array_equal(fitted.predict(training.hidden()).log_throughput, wanted)


def test_published_bundle_predicts_what_was_fitted(fitted: FittedTrees, training: TrainingSet, tmp_path: Path) -> None:
    publish(fitted, training, tmp_path)
    bundle = load(tmp_path)
    assert bundle.manifest.model == fitted.name
    assert bundle.manifest.features == fitted.fitted.features.names
    assert bundle.manifest.settings == fitted.settings
    wanted, got = fitted.predict(training), model_step.predict(bundle, training)
    for name in ("log_throughput", "log_low", "log_high", "level"):
        np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name))


def test_same_rows_are_published_as_the_same_bundle(training: TrainingSet, tmp_path: Path) -> None:
    one, other = (publish(small_forests("leap", training), training, tmp_path / name) for name in ("one", "two"))
    assert one == other


def test_cascade_of_few_rows_is_one_regressor_without_a_classifier(training: TrainingSet, tmp_path: Path) -> None:
    few = training.where(np.arange(12))
    publish(small_forests("leap", few), few, tmp_path)
    bundle = load(tmp_path)
    assert isinstance(bundle.model, Cascade)
    assert (bundle.model.regressors.outputs, bundle.model.classifier) == (1, None)


def test_settings_are_those_of_the_judged_model(training: TrainingSet, fitted: FittedTrees) -> None:
    del training
    rounds = {"leap": fitted.settings.get("regressor_rounds"), "xgboost": fitted.settings.get("rounds")}
    assert rounds[fitted.name] == {"leap": 100.0, "xgboost": 300.0}[fitted.name]
    assert set(NAMES) < set(RECIPES)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_judge_fits_is_what_is_served(training: TrainingSet, name: TreeModel) -> None:
    few = training.where(np.arange(60))
    wanted = RECIPES[name].fit(few, CATALOGUE).predict(training).log_throughput
    got = fit_trees(name, few, CATALOGUE, intervals=False).predict(training).log_throughput
    np.testing.assert_array_equal(got, wanted)


def changed(fitted: FittedTrees, forest: str, **changes: Any) -> dict[str, bytes]:
    """The files of `fitted` with other arrays in a forest."""
    trees = dataclasses.replace(getattr(fitted.model, forest), **changes)
    return to_files(dataclasses.replace(fitted.model, **{forest: trees}))


def test_files_serve_what_was_fitted_on_training_rows(fitted: FittedTrees, training: TrainingSet) -> None:
    check_served(fitted, fitted.files(), CATALOGUE, training)


def test_rounding_of_another_order_of_summation_is_let_pass(fitted: FittedTrees, training: TrainingSet) -> None:
    base = fitted.model.regressors.base
    check_served(
        fitted, changed(fitted, "regressors", base=np.nextafter(base, np.float32(np.inf))), CATALOGUE, training
    )


def test_leaf_that_differs_is_refused(fitted: FittedTrees, training: TrainingSet) -> None:
    files = changed(fitted, "regressors", value=fitted.model.regressors.value * np.float32(1.001))
    with pytest.raises(ServedDiffers, match=r"got log_throughput of regressor \d+ .* instead of .* on sample row \d+"):
        check_served(fitted, files, CATALOGUE, training)


def test_missing_values_that_go_another_way_are_refused_though_no_training_row_has_them(
    fitted: FittedTrees, training: TrainingSet
) -> None:
    # Categories are never missing in these rows: only the sample with hidden ones shows it.
    trees = fitted.model.regressors
    categorical = trees.category_count > 0
    files = changed(fitted, "regressors", default_right=trees.default_right ^ categorical)
    with pytest.raises(ServedDiffers, match=r"log_throughput .* on sample row \d+ with its categories hidden"):
        check_served(fitted, files, CATALOGUE, training)


def test_another_choice_of_regressor_is_refused(cascade: FittedTrees, training: TrainingSet) -> None:
    trees = cascade.model.classifier
    assert trees is not None
    files = changed(cascade, "classifier", roots=trees.roots[:, ::-1].copy(), base=trees.base[::-1].copy())
    with pytest.raises(ServedDiffers, match=r"got margin of regressor \d+ .* on sample row \d+"):
        check_served(cascade, files, CATALOGUE, training)


def test_swapped_features_are_refused(fitted: FittedTrees, training: TrainingSet) -> None:
    # dmlc/xgboost#8357: never a silent swap.
    names = fitted.model.features
    turned = dataclasses.replace(fitted.model, features=(*names[:1], *names[:0:-1]))
    with pytest.raises(ServedDiffers, match=r"got another value of \w+ on sample row \d+"):
        check_served(fitted, to_files(turned), CATALOGUE, training)


def test_value_of_a_feature_that_the_fit_does_not_see_is_refused(fitted: FittedTrees, training: TrainingSet) -> None:
    # One more text is known to the launcher: what was missing to XGBoost is a category there.
    features = fitted.fitted.features
    fewer = dataclasses.replace(features, categories={**features.categories, "config__precision": ("bf16",)})
    narrow = dataclasses.replace(fitted, fitted=dataclasses.replace(fitted.fitted, features=fewer))
    with pytest.raises(ServedDiffers, match=r"got another value of config__precision on sample row \d+"):
        check_served(narrow, fitted.files(), CATALOGUE, training)


def test_cascade_that_lost_a_regressor_is_refused(cascade: FittedTrees, training: TrainingSet) -> None:
    single = small_forests("xgboost", training)
    with pytest.raises(ServedDiffers, match="got 1 regressors instead of 4"):
        check_served(cascade, single.files(), CATALOGUE, training)


def test_bundle_that_serves_otherwise_is_not_published(
    cascade: FittedTrees, training: TrainingSet, tmp_path: Path
) -> None:
    model = dataclasses.replace(
        cascade.model,
        regressors=dataclasses.replace(cascade.model.regressors, base=cascade.model.regressors.base + np.float32(0.01)),
    )
    with pytest.raises(ServedDiffers):
        publish(dataclasses.replace(cascade, model=model), training, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_files_of_another_kind_are_refused(cascade: FittedTrees, training: TrainingSet) -> None:
    layered = fit(training, CATALOGUE, intervals=False)
    with pytest.raises(ModelError, match="a cascade has the files"):
        check_served(cascade, layered.files(), CATALOGUE, training)
    with pytest.raises(TypeError, match="must be read as a cascade, got Layered"):
        cascade.difference(read_model("layered", layered.files(), CATALOGUE), training)


def test_tolerance_grows_with_the_trees_and_the_sum() -> None:
    assert tolerance(np.array([0.0, -8.0]), 100).tolist() == [100 * 2.0**-24, 800 * 2.0**-24]


def test_rows_of_another_family_have_wider_intervals_than_known_ones() -> None:
    away = np.concatenate([np.linspace(0.0, 0.1, 400), np.linspace(0.0, 1.0, 400)])
    level = np.repeat(np.array([3, -1], dtype=np.int8), 400)
    found = half_widths(away, level, HalfWidths(9.0, 9.0))
    assert found.with_history < conformal.quantile(away) < found.without_history
    assert found.with_history == pytest.approx(0.08, rel=0.6)
    assert found.without_history == pytest.approx(0.8, rel=0.2)


def test_few_rows_of_a_kind_lean_on_all_of_them() -> None:
    away, level = np.full(60, 0.2), np.full(60, 0, dtype=np.int8)
    found = half_widths(away, level, HalfWidths(9.0, 9.0))
    assert found.with_history == pytest.approx(0.2)
    assert found.without_history == pytest.approx(0.2)


def test_without_later_rows_the_interval_is_as_wide_as_throughput_spreads(training: TrainingSet) -> None:
    plain = HalfWidths(9.0, 9.0)
    assert (
        half_widths(np.zeros(conformal.MIN_ROWS - 1), np.zeros(conformal.MIN_ROWS - 1, dtype=np.int8), plain) == plain
    )
    few = training.where(np.arange(20))
    wanted = NORMAL * float(few.log_throughput.std())
    model = small_forests("xgboost", few, intervals=True).model
    assert model.half_widths == HalfWidths(wanted, wanted)


def test_interval_is_measured_on_the_last_quarter_after_a_fit_on_the_rest(
    cascade: FittedTrees, training: TrainingSet
) -> None:
    cut = int(np.quantile(training.recorded_at_us, 0.75, method="lower"))
    later = training.where(training.submitted_at_us >= cut)
    model = QUICK["leap"].fit(training.where(training.recorded_at_us < cut), CATALOGUE)
    away = np.abs(model.predict(later).log_throughput - later.log_throughput)
    known = ~np.isnan(later.columns[history_column(FAMILY.view, "last")].astype(np.float64))
    level = np.where(known, BACKOFF.index(FAMILY), -1).astype(np.int8)
    wanted = half_widths(away, level, HalfWidths(9.0, 9.0))
    assert cascade.model.half_widths.with_history == pytest.approx(wanted.with_history)
    assert cascade.model.half_widths.without_history == pytest.approx(wanted.without_history)


def test_nothing_to_fit_says_so(training: TrainingSet) -> None:
    with pytest.raises(NothingToFit, match="no row in this window"):
        small_forests("leap", training.where(np.arange(0)), intervals=True)


def test_model_that_needs_its_own_library_is_no_cascade(training: TrainingSet) -> None:
    with pytest.raises(TypeError, match="a launcher runs XGBoost's trees"):
        fit_trees("leap", training, CATALOGUE, recipe=dataclasses.replace(QUICK["leap"], learn=lambda _: _Constant()))


class _Constant:
    def predict(self, matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.zeros(len(matrix))


def test_summary_counts_regressors(fitted: FittedTrees) -> None:
    assert isinstance(fitted.model, Cascade)
    assert fitted.summary.startswith("1 regressor, " if fitted.name == "xgboost" else "4 regressors, ")
