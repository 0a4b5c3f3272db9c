from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leap_predictor.bundle import current_id, load
from leap_training.cli import train_command
from small_training_set import rows, submitted_at, write


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = rows(400)
    given[5]["throughput"] = 0.0
    return write(tmp_path_factory.mktemp("set") / "set.parquet", given)


def train(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(train_command, [str(argument) for argument in arguments], env=environment)


def test_training_publishes_a_bundle_and_says_what_it_did(dataset: Path, tmp_path: Path) -> None:
    result = train(dataset, "--bundles", tmp_path)
    assert result.exit_code == 0, result.output
    assert "fitted 399 attempts" in result.output
    assert "set aside 1 rows" in result.output
    assert "back-off's last value" in result.output
    assert f"published {current_id(tmp_path)}" in result.output
    metrics = load(tmp_path).manifest.metrics
    assert metrics["held_out_all_model_rows"] == 80
    assert metrics["held_out_first_in_cell_model_within20"] > metrics["held_out_first_in_cell_backoff_last_within20"]


def test_training_before_an_instant_uses_nothing_recorded_later(dataset: Path, tmp_path: Path) -> None:
    cut = submitted_at(300)
    result = train(dataset, "--bundles", tmp_path, "--before", cut.isoformat(), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 299
    window = load(tmp_path).manifest.training
    assert window.before == cut
    assert window.last_recorded_at is not None
    assert window.last_recorded_at < cut


@pytest.mark.parametrize(("name", "summary"), [("leap", r"\d+ regressors, [\d,]+ nodes"), ("xgboost", "1 regressor, ")])
def test_trees_are_published_and_judged_like_the_layered_model(
    dataset: Path, tmp_path: Path, name: str, summary: str
) -> None:
    result = train(dataset, "--bundles", tmp_path, "--model", name)
    assert result.exit_code == 0, result.output
    assert re.search(summary, result.output)
    bundle = load(tmp_path)
    assert bundle.manifest.model == name
    assert bundle.manifest.metrics["held_out_all_model_rows"] == 80
    assert "config__precision" in bundle.manifest.features
    assert {"family_history__last", "log_peak_tflops"} <= set(bundle.model.features)


def test_model_behind_the_backoff_is_warned_of_with_both_figures(dataset: Path, tmp_path: Path) -> None:
    # Of few trainers' cells nearly all have run before: the last value is exact, which trees of few rows are not.
    repeats = write(tmp_path / "set.parquet", [row for row in rows(1_600) if row["trainer_count"] == 1])
    result = train(repeats, "--bundles", tmp_path / "bundles", "--model", "xgboost", "--json")
    assert result.exit_code == 0, result.output
    metrics = json.loads(result.stdout)["metrics"]
    model, last = (metrics[f"held_out_all_{name}_within20"] for name in ("model", "backoff_last"))
    assert model < last
    said = f"warning: all attempts: the model has {model:.1f} % within ±20 %, back-off's last value {last:.1f} %"
    assert said in result.stderr
    assert "`leap nightly` publishes only what holds up" in result.stderr
    assert "warning: all attempts" not in train(dataset, "--bundles", tmp_path / "bundles").stderr


def test_directory_of_bundles_that_is_a_file_is_refused_before_the_fit(dataset: Path, tmp_path: Path) -> None:
    path = tmp_path / "bundles"
    path.touch()
    result = train(dataset, "--bundles", path)
    assert result.exit_code == 1
    assert f"{path} is no directory that takes files (Not a directory): mend that, or name another" in result.output
    assert "fitting" not in result.output


def test_few_rows_are_fitted_without_figures(tmp_path: Path) -> None:
    result = train(write(tmp_path / "set.parquet", rows(10)), "--bundles", tmp_path / "bundles")
    assert result.exit_code == 0, result.output
    assert load(tmp_path / "bundles").manifest.metrics == {}


def test_settings_give_directory_project_and_family_rules(dataset: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text("[[strip]]\nname = \"cell\"\npattern = 'cell[0-9]+'\n")
    result = train(dataset, LEAP_BUNDLES=str(tmp_path / "bundles"), LEAP_PROJECT="other", LEAP_FAMILY_RULES=str(rules))
    assert result.exit_code == 0, result.output
    bundle = load(tmp_path / "bundles")
    assert bundle.manifest.project == "other"
    assert bundle.family_of("bert", "train-cell7", None) == "bert/train"


def test_chosen_configuration_keys_are_features(dataset: Path, tmp_path: Path) -> None:
    result = train(dataset, "--bundles", tmp_path, "--config-key", "precision")
    assert result.exit_code == 0, result.output
    assert "config__precision" in load(tmp_path).manifest.features


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--before", "2026-01-01T00:00:00"), "must have an offset"),
        (("--before", "yesterday"), "must be a time such as"),
        (("--before", "0001-01-01T00:00:00+05:00"), "in the years 1 to 9999"),
        (("--before", "2020-01-01T00:00:00Z"), "no row in this window"),
        (("--model", "lookup"), "'lookup' is not one of 'layered', 'leap', 'xgboost'"),
        (
            ("--model", "leap", "--config-key", "precision"),
            "--config-key is for the model layered, leap takes every key",
        ),
        (("--config-key", "absent"), "no attempt of the training window has the configuration key 'absent'"),
    ],
)
def test_wrong_usage_is_one_line_and_publishes_nothing(
    dataset: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = train(dataset, "--bundles", tmp_path, *arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert list(tmp_path.iterdir()) == []


def test_missing_dataset_is_named(tmp_path: Path) -> None:
    result = train(tmp_path / "absent.parquet", "--bundles", tmp_path)
    assert result.exit_code == 1
    assert "absent.parquet cannot be read" in result.output
