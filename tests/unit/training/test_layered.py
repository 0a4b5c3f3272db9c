from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from leap_features.hardware import CATALOGUE
from leap_features.levels import LEVELS
from leap_predictor.bundle import specifications_of
from leap_predictor.candidate_columns import candidate_columns
from leap_predictor.history.request import StoredRow
from leap_predictor.job import Job
from leap_predictor.manifest import SERVED_FEATURES, history_views
from leap_predictor.models.layered import Estimate
from leap_predictor.models.layered_files import from_files, to_files
from leap_training.layered import ConfigKeyError, Fitted, LayeredRecipe, fit, with_settings
from leap_training.model import NothingToFit
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, write


def read(path: Path, given: list[dict[str, Any]]) -> TrainingSet:
    return read_training_set(write(path, given)).rows


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read(tmp_path_factory.mktemp("set") / "set.parquet", rows(600))


@pytest.fixture(scope="module")
def fitted(training: TrainingSet) -> Fitted:
    return fit(training, CATALOGUE)


def same(one: Estimate, other: Estimate) -> None:
    for name in ("log_throughput", "log_low", "log_high", "uncorrected"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)
    assert one.level.tolist() == other.level.tolist()


def test_fit_learns_how_throughput_scales(fitted: Fitted, training: TrainingSet) -> None:
    error = np.abs(fitted.estimate(training).uncorrected - training.log_throughput)
    assert np.median(error) < 0.1


def test_new_cells_are_answered_by_what_the_family_did_elsewhere(training: TrainingSet) -> None:
    earlier, later = training.where(np.arange(300)), training.where(np.arange(300, 600))
    estimate = fit(earlier, CATALOGUE, intervals=False).estimate(later.hidden())
    new = estimate.level != 0
    assert new.sum() > 30
    assert np.median(np.abs(estimate.log_throughput - later.log_throughput)[new]) < 0.05


def test_same_rows_give_the_same_bytes(training: TrainingSet, fitted: Fitted) -> None:
    assert to_files(fit(training, CATALOGUE).model) == to_files(fitted.model)


def test_order_of_the_rows_makes_no_difference(training: TrainingSet, fitted: Fitted) -> None:
    turned = training.where(np.random.default_rng(0).permutation(len(training)))
    got = fit(turned, CATALOGUE, intervals=False).estimate(training)
    np.testing.assert_allclose(got.log_throughput, fitted.estimate(training).log_throughput, atol=1e-3)


def test_what_last_night_knows_does_not_depend_on_history(training: TrainingSet) -> None:
    without = TrainingSet(
        {
            name: np.full(len(training), None if "hardware_type" in name else np.nan, dtype=values.dtype)
            if "_history__" in name
            else values
            for name, values in training.columns.items()
        },
        training.log_throughput,
        training.recorded_at_us,
        training.config,
        training.architecture,
    )
    one, other = (fit(each, CATALOGUE, intervals=False).model for each in (training, without))
    for name, of_type in one.model_types.items():
        np.testing.assert_array_equal(of_type.mean, other.model_types[name].mean)
        np.testing.assert_array_equal(of_type.told, other.model_types[name].told)


def test_labels_are_not_needed_for_an_estimate(training: TrainingSet, fitted: Fitted) -> None:
    same(fitted.estimate(training.hidden()), fitted.estimate(training))


def test_throughput_per_trainer_falls_with_scale(training: TrainingSet, fitted: Fitted) -> None:
    one = with_settings(training.where(np.zeros(2, dtype=np.int64)), fitted.model.encoder)
    scales = {**one, "trainer_count": np.array([1.0, 32.0])}
    few, many = fitted.model.estimate(scales).uncorrected - np.log([1.0, 32.0])
    assert many == pytest.approx(few - 0.1 * np.log(32), abs=0.1)


def test_hardware_that_no_run_was_on_is_judged_by_its_specifications(training: TrainingSet) -> None:
    fitted = fit(training.where(training.columns["hardware_type"] != "H100-SXM-80"), CATALOGUE, intervals=False)
    fast = training.where(training.columns["hardware_type"] == "H100-SXM-80")
    columns = with_settings(fast, fitted.model.encoder)
    slow = {**columns, "hardware_type": np.full(len(fast), "L40S", dtype=object)}
    assert (fitted.model.estimate(columns).uncorrected > fitted.model.estimate(slow).uncorrected).all()


def test_model_type_never_seen_is_guessed_with_a_wider_interval(training: TrainingSet, fitted: Fitted) -> None:
    columns = with_settings(training.where(np.arange(20)), fitted.model.encoder)
    unseen = fitted.model.estimate({**columns, "model_type": np.full(20, "never-seen", dtype=object)})
    assert np.isfinite(unseen.log_throughput).all()
    cold = unseen.level < 0
    assert (unseen.spread > fitted.model.estimate(columns).spread)[cold].all()


def test_intervals_cover_what_comes_later(training: TrainingSet) -> None:
    earlier, later = training.where(np.arange(400)), training.where(np.arange(400, 600))
    predictions = LayeredRecipe().fit(earlier).predict(later.hidden())
    assert predictions.log_low is not None
    assert predictions.log_high is not None
    within = (predictions.log_low <= later.log_throughput) & (later.log_throughput <= predictions.log_high)
    assert 0.7 < within.mean() <= 1.0  # a fleet without noise: levels of few rows keep more


def stored(row: dict[str, Any]) -> dict[str, StoredRow | None]:
    """The history of a training set's row, as a launcher reads it."""
    return {
        level.view: StoredRow({name: row[f"{level.view}__{name}"] for name, _ in SERVED_FEATURES}, None)
        if row[f"{level.view}__count"]
        else None
        for level in LEVELS
    }


@pytest.mark.parametrize("keys", [(), ("precision", "layers")])
def test_launcher_and_training_give_the_very_same_estimate(tmp_path: Path, keys: tuple[str, ...]) -> None:
    given = rows(200)
    for number, row in enumerate(given):
        row["batch_size"] = 0.0 if number % 5 == 0 else 32.0
        if number % 3 == 0:
            row["hardware_type"] = row["hardware_type"].lower()
        if number % 7 == 0:
            row["hardware_type"] = "Warp9"
        if number % 11 == 0:
            row["config"], row["architecture"] = '{"precision":"never-seen"}', None
    training = read(tmp_path / "set.parquet", given)
    fitted = fit(training, CATALOGUE, config_keys=keys)
    trained = fitted.estimate(training)
    for at in range(0, 200, 3):
        row = given[at]
        job = Job(
            "job",
            row["model_type"],
            row["trainer_count"],
            row["batch_size"] or None,
            row["reader_count"],
            config=msgspec.json.decode(row["config"]),
            architecture=msgspec.json.decode(row["architecture"] or "{}"),
        )
        columns = candidate_columns(
            job,
            ["L4", row["hardware_type"], "T4"],
            [stored(given[-1]), stored(row), dict.fromkeys(stored(row))],
            views=history_views(),
            features=fitted.model.features,
            specifications=specifications_of(CATALOGUE),
            now_us=int(training.submitted_at_us[at]),
        )
        launched = fitted.model.estimate(columns)
        assert launched.level[1] == trained.level[at]
        for name in ("log_throughput", "log_low", "log_high", "uncorrected"):
            np.testing.assert_allclose(getattr(launched, name)[1], getattr(trained, name)[at], rtol=1e-9, atol=1e-9)


def test_chosen_configuration_keys_become_features(training: TrainingSet) -> None:
    model = fit(training, CATALOGUE, config_keys=("precision", "layers"), intervals=False).model
    assert [name for name in model.features if name.startswith("config__")] == ["config__precision", "config__layers"]
    assert model.categories["config__precision"] == ("bf16", "fp32")
    assert "config__layers" not in model.categories


def test_configuration_that_decides_is_learned(tmp_path: Path) -> None:
    given = rows(300)
    for row in given:
        if "fp32" in row["config"]:
            row["throughput"] /= 2
            row["log_throughput"] -= np.log(2)
    training = read(tmp_path / "set.parquet", given)
    model = fit(training, CATALOGUE, config_keys=("precision",), intervals=False).model
    columns = with_settings(training, model.encoder)
    fast, slow = (
        model.estimate({**columns, "config__precision": np.full(300, text, dtype=object)}).uncorrected
        for text in ("bf16", "fp32")
    )
    assert np.median(fast - slow) == pytest.approx(np.log(2), abs=0.15)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("absent", "has the configuration key 'absent', they have constant, mixed, name, rare"),
        ("mixed", "key 'mixed' must hold numbers alone or texts alone, it holds 1 numbers and 'a'"),
        ("constant", "key 'constant' must have more than one value, it has 1 alone"),
        ("name", "key 'name' must hold at most 256 different texts, it holds 300"),
        ("rare", "key 'rare' must be in 1% of the attempts, it is in 2 of 300"),
    ],
)
def test_configuration_key_that_cannot_be_a_feature_is_refused(tmp_path: Path, key: str, why: str) -> None:
    given = rows(300)
    for number, row in enumerate(given):
        config = {"mixed": 1 if number % 2 else "a", "constant": 1, "name": f"run-{number}"}
        row["config"] = msgspec.json.encode(config | ({"rare": number} if number < 2 else {})).decode()
    training = read(tmp_path / "set.parquet", given)
    with pytest.raises(ConfigKeyError, match=re.escape(why)):
        fit(training, CATALOGUE, config_keys=(key,))


def test_configuration_key_given_twice_is_one_feature(training: TrainingSet) -> None:
    model = fit(training, CATALOGUE, config_keys=("layers", "layers"), intervals=False).model
    assert model.features.count("config__layers") == 1


def test_architecture_that_differs_takes_part(fitted: Fitted) -> None:
    assert "architecture__layers" in fitted.model.features


def test_variances_are_told_by_name(fitted: Fitted) -> None:
    assert fitted.settings["by_type_one"] == fitted.variances.by_type["one"]
    assert fitted.settings["noise"] == fitted.variances.noise
    assert fitted.settings["cells"] == fitted.cells > 100


def test_hardware_that_is_called_as_unknown_hardware_can_be_fitted_and_read_back(tmp_path: Path) -> None:
    given = rows(60)
    for row in given[::3]:
        row["hardware_type"] = "?"
    training = read(tmp_path / "set.parquet", given)
    fitted = fit(training, CATALOGUE, intervals=False)
    again = from_files(to_files(fitted.model), CATALOGUE.canonical)
    same(again.estimate(with_settings(training, again.encoder)), fitted.estimate(training))


def test_few_rows_can_be_fitted(training: TrainingSet) -> None:
    for count in (1, 2, 5):
        few = training.where(np.arange(count))
        assert np.isfinite(fit(few, CATALOGUE).estimate(few).log_high).all()


def test_nothing_to_fit_is_an_error(training: TrainingSet) -> None:
    with pytest.raises(NothingToFit, match="no row in this window"):
        fit(training.where(np.zeros(len(training), dtype=np.bool_)), CATALOGUE)
