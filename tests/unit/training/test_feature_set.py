from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leap_features.columns import numbers
from leap_features.hardware import CATALOGUE
from leap_features.row import CATEGORICAL, GROUPS
from leap_training.feature_set import MAX_TEXTS, FeatureSet, feature_set
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, write

COUNT = 200


def training_set(path: Path, **changes: Any) -> TrainingSet:
    """`changes`: for a column, its value by number of row."""
    given = rows(COUNT)
    for name, value in changes.items():
        for number, row in enumerate(given):
            row[name] = value(number)
    return read_training_set(write(path / "set.parquet", given)).rows


def configured(path: Path, config: Any) -> TrainingSet:
    return training_set(path, config=config)


def test_features_are_those_of_the_groups_in_order(tmp_path: Path) -> None:
    training = training_set(tmp_path)
    found = feature_set(training, ["family_history", "configuration"])
    assert found.names == (*GROUPS["configuration"], "config__layers", "config__precision", *GROUPS["family_history"])
    assert found.categories == {"model_type": ("bert", "dlrm", "resnet"), "config__precision": ("bf16", "fp32")}
    assert found.types() == ["c" if name in ("model_type", "config__precision") else "q" for name in found.names]


def test_matrix_has_a_column_for_each_feature(tmp_path: Path) -> None:
    training = training_set(tmp_path)
    found = feature_set(training, GROUPS)
    matrix = found.matrix(training)
    assert matrix.shape == (COUNT, len(found.names))
    assert matrix.dtype == np.float32
    layers = matrix[:, found.names.index("config__layers")]
    assert layers.tolist() == [12.0 if number % 2 else 24.0 for number in range(COUNT)]
    models = matrix[:, found.names.index("model_type")]
    kinds = training.columns["model_type"].tolist()
    assert models.tolist() == [("bert", "dlrm", "resnet").index(kind) for kind in kinds]
    numbers_of_layers = matrix[:, found.names.index("architecture__layers")]
    assert numbers_of_layers.tolist() == [{"bert": 12, "dlrm": 24, "resnet": 36}[kind] for kind in kinds]


def test_values_that_the_training_rows_lack_are_missing_later(tmp_path: Path) -> None:
    # dmlc/xgboost#11826, and nothing of later rows is learned.
    training = training_set(tmp_path)
    first = training.where(training.columns["model_type"] != "resnet")
    found = feature_set(first, ["configuration"])
    assert found.categories["model_type"] == ("bert", "dlrm")
    codes = found.matrix(training)[:, 0]
    np.testing.assert_array_equal(np.isnan(codes), training.columns["model_type"] == "resnet")


def test_keys_of_mixed_kinds_are_left_out(tmp_path: Path) -> None:
    training = configured(tmp_path, lambda number: f'{{"mixed": {number}}}' if number % 2 else '{"mixed": "many"}')
    assert "config__mixed" not in feature_set(training, ["configuration"]).names


def test_key_with_one_value_or_in_hardly_any_row_or_of_endless_texts_is_left_out(tmp_path: Path) -> None:
    def config(number: int) -> str:
        rare = ', "rare": 1' if number == 0 else ""
        return f'{{"same": 1, "name": "run-{number}", "size": {number}{rare}}}'

    training = configured(tmp_path, config)
    many = training.where(np.tile(np.arange(COUNT), 2))
    assert [name for name in feature_set(many, ["configuration"]).names if name.startswith("config__")] == [
        "config__name",
        "config__size",
    ]
    assert COUNT < MAX_TEXTS
    longer = training_set(tmp_path)
    names = np.array([f'{{"name": "run-{number}"}}' for number in range(MAX_TEXTS + 1)], dtype=object)
    longer = longer.where(np.arange(MAX_TEXTS + 1) % COUNT)
    longer = TrainingSet(longer.columns, longer.log_throughput, longer.recorded_at_us, names, longer.architecture)
    assert "config__name" not in feature_set(longer, ["configuration"]).names


def test_only_the_keys_that_are_asked_for_are_taken(tmp_path: Path) -> None:
    training = training_set(tmp_path)
    assert "config__precision" not in feature_set(training, ["configuration"], config_keys=["layers"]).names
    assert "config__layers" in feature_set(training, ["configuration"], config_keys=["layers"]).names
    assert feature_set(training, ["configuration"], config_keys=[]).names == GROUPS["configuration"]


def test_text_where_the_training_rows_have_numbers_is_missing_later(tmp_path: Path) -> None:
    training = configured(tmp_path, lambda number: f'{{"layers": {number}}}' if number < 150 else '{"layers": "many"}')
    found = feature_set(training.where(np.arange(150)), ["configuration"])
    layers = found.matrix(training)[:, found.names.index("config__layers")]
    assert layers[:150].tolist() == list(range(150))
    assert np.isnan(layers[150:]).all()


def test_flags_and_nulls_are_numbers_and_gaps(tmp_path: Path) -> None:
    # dmlc/xgboost#8213
    flags = ("true", "false", "null")
    training = configured(tmp_path, lambda number: f'{{"compile": {flags[number % 3]}}}')
    found = feature_set(training, ["configuration"])
    compiled = found.matrix(training)[:3, found.names.index("config__compile")]
    np.testing.assert_array_equal(compiled, [1.0, 0.0, np.nan])


def test_ratios_of_the_model_are_features_where_a_model_definition_is_given(tmp_path: Path) -> None:
    training = training_set(tmp_path)
    assert feature_set(training, ["architecture"]).names == ("architecture__layers",)
    sized = training_set(tmp_path, architecture=lambda number: f'{{"parameters": {1e8 * (1 + number % 3)}}}')
    found = feature_set(sized, ["architecture"])
    assert found.names == (*GROUPS["architecture"], "architecture__parameters")
    matrix = found.matrix(sized)
    assert np.isfinite(matrix[:, found.names.index("log_parameters_per_memory")]).all()


def test_rows_without_configuration_or_architecture_have_gaps(tmp_path: Path) -> None:
    training = training_set(tmp_path)
    found = feature_set(training, ["configuration", "architecture"])
    bare = training_set(tmp_path, config=lambda _: None, architecture=lambda _: None)
    matrix = found.matrix(bare)
    for name in ("config__layers", "config__precision", "architecture__layers"):
        assert np.isnan(matrix[:, found.names.index(name)]).all()


def test_another_spelling_of_a_hardware_type_has_its_specifications(tmp_path: Path) -> None:
    # The data set is joined by the exact name, a launcher asks the catalogue.
    training = training_set(tmp_path, hardware_type=lambda _: "nvidia l4", hardware_specs__memory_gib=lambda _: None)
    columns = feature_set(training, ["hardware"]).columns(training)
    assert set(numbers(columns, "hardware_specs__memory_gib")) == {CATALOGUE["L4"].memory_gib}


def test_unknown_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"groups of features are configuration, .*, got everything"):
        feature_set(training_set(tmp_path), ["everything"])


def test_hardware_type_is_a_category_like_any(tmp_path: Path) -> None:
    training = training_set(tmp_path)
    assert "hardware_type" in CATEGORICAL
    found = FeatureSet(("hardware_type",), {"hardware_type": ("A30",)})
    np.testing.assert_array_equal(np.isnan(found.matrix(training)[:, 0]), training.columns["hardware_type"] != "A30")
