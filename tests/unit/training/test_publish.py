from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest

from leap_features.hardware import CATALOGUE
from leap_predictor.bundle import load
from leap_predictor.models.layered_files import to_files
from leap_training.layered import Fitted, fit, with_settings
from leap_training.publish import ServedDiffers, check_served
from leap_training.training_set import TrainingSet, read_training_set
from published_fit import publish_fit
from small_training_set import rows, submitted_at, write


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(200))).rows


@pytest.fixture(scope="module")
def fitted(training: TrainingSet) -> Fitted:
    return fit(training, CATALOGUE)


def publish(fitted: Fitted, training: TrainingSet, bundles: Path) -> str:
    return publish_fit(fitted, training, bundles, set_aside=3, metrics={"held_out_all_model_within_20": 97.5})


def test_published_bundle_predicts_what_was_fitted(fitted: Fitted, training: TrainingSet, tmp_path: Path) -> None:
    publish(fitted, training, tmp_path)
    bundle = load(tmp_path)
    columns = with_settings(training, bundle.model.encoder)
    wanted, got = fitted.model.estimate(columns), bundle.model.estimate(columns)
    for name in ("log_throughput", "log_low", "log_high"):
        assert getattr(got, name).tolist() == getattr(wanted, name).tolist()
    assert bundle.manifest.training.rows == 200
    assert bundle.manifest.training.set_aside == 3
    assert bundle.manifest.training.first_recorded_at == submitted_at(0) + timedelta(minutes=30)
    assert bundle.manifest.settings == fitted.settings
    assert bundle.manifest.features == fitted.model.features
    assert bundle.manifest.categories["model_type"] == ("bert", "dlrm", "resnet")


def test_same_rows_are_published_as_the_same_bundle(fitted: Fitted, training: TrainingSet, tmp_path: Path) -> None:
    assert publish(fitted, training, tmp_path / "one") == publish(fit(training, CATALOGUE), training, tmp_path / "two")


def test_files_serve_what_was_fitted_on_training_rows(fitted: Fitted, training: TrainingSet) -> None:
    check_served(fitted, to_files(fitted.model), CATALOGUE, training)


@pytest.mark.parametrize("array", ["mean", "told"])
def test_bundle_that_serves_otherwise_than_was_fitted_is_not_published(
    fitted: Fitted, training: TrainingSet, tmp_path: Path, array: str
) -> None:
    # A bundle holds 32-bit floats: what is between two of them is not what would be served.
    between = {
        name: dataclasses.replace(of_type, **{array: getattr(of_type, array) * (1.0 + 1e-9)})
        for name, of_type in fitted.model.model_types.items()
    }
    other = dataclasses.replace(fitted, model=dataclasses.replace(fitted.model, model_types=between))
    with pytest.raises(ServedDiffers, match=r"must predict what the fit predicts, got log_\w+ .* on sample row \d+"):
        publish(other, training, tmp_path)
    assert list(tmp_path.iterdir()) == []
