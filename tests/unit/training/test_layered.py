from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leap_features.hardware import CATALOGUE
from leap_features.row import feature_row
from leap_training.layered import FitSettings, NothingToFit, cell_weights, fit
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, write

QUICK = FitSettings(rounds=60)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(600))).rows


def test_fit_learns_how_throughput_scales(training: TrainingSet) -> None:
    fitted = fit(training, CATALOGUE, QUICK)
    error = np.abs(fitted.model.uncorrected(training.columns) - training.log_throughput)
    assert np.median(error) < 0.1


def test_same_rows_give_the_same_trees(training: TrainingSet) -> None:
    one, other = (fit(training, CATALOGUE, QUICK).model.trees.to_bytes() for _ in range(2))
    assert one == other


def test_history_takes_no_part_in_the_fit(training: TrainingSet) -> None:
    assert not any("history" in name for name in fit(training, CATALOGUE, QUICK).features)


def test_throughput_per_trainer_falls_with_scale(training: TrainingSet) -> None:
    fitted = fit(training, CATALOGUE, QUICK)
    one = training.where(np.zeros(2, dtype=np.int64)).columns
    scales = {**one, "trainer_count": np.array([1.0, 32.0])}
    per_trainer = fitted.model.trees.predict(feature_row(scales, fitted.features, fitted.categories))
    assert per_trainer[1] < per_trainer[0]


def test_hardware_that_no_run_was_on_is_judged_by_its_specifications(training: TrainingSet) -> None:
    fitted = fit(training.where(training.columns["hardware_type"] != "H100-SXM-80"), CATALOGUE, QUICK)
    fast = training.where(training.columns["hardware_type"] == "H100-SXM-80")
    slow = {**fast.columns}
    for spec, value in CATALOGUE["L4"].specs().items():
        slow[f"hardware_specs__{spec}"] = np.full(len(fast), np.nan if value is None else value)
    assert (fitted.model.uncorrected(fast.columns) > fitted.model.uncorrected(slow)).all()


def test_repeats_of_a_cell_weigh_as_much_as_one_run(training: TrainingSet) -> None:
    weights = cell_weights(training.columns)
    cells: dict[tuple[object, ...], float] = {}
    names = ("job_family", "hardware_type", "trainer_count", "batch_size")
    for at, weight in enumerate(weights):
        key = tuple(training.columns[name][at] for name in names)
        cells[key] = cells.get(key, 0.0) + float(weight)
    assert list(cells.values()) == pytest.approx([1.0] * len(cells))


def test_missing_batch_is_a_cell_of_its_own() -> None:
    columns = {
        "job_family": np.array(["a", "a", "a"], dtype=object),
        "hardware_type": np.array(["H", "H", "H"], dtype=object),
        "trainer_count": np.array([1, 1, 1]),
        "batch_size": np.array([np.nan, np.nan, 2.0]),
    }
    assert cell_weights(columns).tolist() == [0.5, 0.5, 1.0]


def test_chosen_configuration_keys_become_features(training: TrainingSet) -> None:
    fitted = fit(training, CATALOGUE, QUICK, config_keys=("precision", "layers"))
    assert fitted.features[-2:] == ("config__precision", "config__layers")
    assert fitted.categories["config__precision"] == ("bf16", "fp32")
    assert "config__layers" not in fitted.categories


@pytest.mark.parametrize(("key", "message"), [("absent", "is in no row"), ("mixed", "either texts or numbers")])
def test_configuration_key_that_cannot_be_a_feature_is_refused(tmp_path: Path, key: str, message: str) -> None:
    given = rows(4)
    for row, text in zip(given, ('{"mixed":1}', '{"mixed":"a"}', "{}", None), strict=True):
        row["config"] = text
    training = read_training_set(write(tmp_path / "set.parquet", given)).rows
    with pytest.raises(ValueError, match=message):
        fit(training, CATALOGUE, QUICK, config_keys=(key,))


def test_configuration_key_given_twice_is_one_feature(training: TrainingSet) -> None:
    assert fit(training, CATALOGUE, QUICK, config_keys=("layers", "layers")).features[-2:] != ("config__layers",) * 2


def test_nothing_to_fit_is_an_error(training: TrainingSet) -> None:
    with pytest.raises(NothingToFit, match="no row in this window"):
        fit(training.where(np.zeros(len(training), dtype=np.bool_)), CATALOGUE)
