from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from leap_features.columns import MissingColumn, config_columns, numbers, specification_columns
from leap_features.history import MICROSECONDS_PER_DAY
from leap_features.levels import LEVELS
from leap_features.row import (
    BLOCK_ROWS,
    CATEGORICAL,
    GROUPS,
    architecture_keys,
    check_features,
    config_keys,
    feature_row,
)
from leap_features.row_features import COMPUTED


def objects(*values: Any) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def columns(**changes: Any) -> dict[str, np.ndarray[Any, Any]]:
    plain: dict[str, Any] = {
        "model_type": objects("bert"),
        "hardware_type": objects("H100-SXM-80"),
        "trainer_count": np.array([8]),
        "reader_count": np.array([4]),
        "batch_size": np.array([32.0]),
        "submitted_at_us": np.array([10 * MICROSECONDS_PER_DAY]),
    }
    return plain | changes


def one(name: str, **changes: Any) -> float:
    return float(feature_row(columns(**changes), (name,), {})[0, 0])


def test_features_stand_in_the_order_of_their_names() -> None:
    # dmlc/xgboost#8357: columns in another order must never be swapped silently.
    names = ("log_batch", "model_type", "log_trainers")
    rows = feature_row(columns(), names, {"model_type": ("dlrm", "bert")})
    turned = feature_row(columns(), names[::-1], {"model_type": ("dlrm", "bert")})
    assert rows[0].tolist() == pytest.approx([np.log(32.0), 1.0, np.log(8.0)])
    assert turned[0].tolist() == rows[0, ::-1].tolist()


def test_order_of_the_columns_makes_no_difference() -> None:
    given = columns()
    turned = dict(reversed(given.items()))
    names = ("log_trainers", "log_batch", "readers_per_trainer")
    assert feature_row(given, names, {}).tolist() == feature_row(turned, names, {}).tolist()


def test_logarithms_and_ratio_of_the_job() -> None:
    assert one("log_trainers") == pytest.approx(np.log(8))
    assert one("log_batch") == pytest.approx(np.log(32))
    assert one("log_total_batch") == pytest.approx(np.log(256))
    assert one("readers_per_trainer") == 0.5


@pytest.mark.parametrize("trainers", [0, None, np.nan])
def test_ratio_without_trainers_is_missing_not_infinite(trainers: Any) -> None:
    # dmlc/xgboost#1869: a division by zero must not reach a model as inf or 1e39.
    assert np.isnan(one("readers_per_trainer", trainer_count=objects(trainers)))


@pytest.mark.parametrize(
    "value", [1e39, -1e39, pytest.param(10**400, id="beyond a float"), np.inf, -np.inf, np.nan, None]
)
def test_numbers_beyond_float32_are_missing(value: Any) -> None:
    # dmlc/xgboost#1869
    assert np.isnan(one("config__learning_rate", config__learning_rate=objects(value)))


@pytest.mark.parametrize("batch", [0, -1, None])
def test_batch_that_has_no_logarithm_is_missing(batch: Any) -> None:
    assert np.isnan(one("log_batch", batch_size=objects(batch)))
    assert np.isnan(one("log_total_batch", batch_size=objects(batch)))


def test_none_among_integers_is_missing() -> None:
    # dmlc/xgboost#8213, dmlc/xgboost#6851: nullable integers and None.
    rows = feature_row(
        columns(
            model_type=objects("bert", "bert"),
            reader_count=objects(None, 4),
            trainer_count=objects(8, 8),
        ),
        ("readers_per_trainer",),
        {},
    )
    assert np.isnan(rows[0, 0])
    assert rows[1, 0] == 0.5


def test_unseen_category_and_none_are_missing_while_the_others_keep_their_codes() -> None:
    # dmlc/xgboost#11826
    given = columns(model_type=objects("bert", "new", None, "dlrm"))
    codes = feature_row(given, ("model_type",), {"model_type": ("bert", "dlrm")})[:, 0]
    assert codes[[0, 3]].tolist() == [0.0, 1.0]
    assert np.isnan(codes[[1, 2]]).all()


def test_text_where_a_number_belongs_is_refused_even_if_it_looks_like_one() -> None:
    with pytest.raises(ValueError, match="'batch_size' must hold numbers, got the text '32'"):
        one("log_batch", batch_size=objects("32"))


def test_configuration_text_becomes_a_category_and_flags_become_numbers() -> None:
    given = columns(**config_columns([{"precision": "bf16", "compile": True}], ("precision", "compile", "absent")))
    names = ("config__precision", "config__compile", "config__absent")
    rows = feature_row(given, names, {"config__precision": ("bf16", "fp32")})
    assert rows[0, :2].tolist() == [0.0, 1.0]
    assert np.isnan(rows[0, 2])


HISTORY = (
    *("last", "mean", "std", "count", "last_seen", "failures_since_success"),
    *("last_hardware_type", "last_trainer_count", "last_batch_size", "mean_log_trainers", "mean_log_batch"),
)


def history(view: str, **features: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {f"{view}__{name}": objects(features.get(name)) for name in HISTORY}


VIEWS = tuple(level.view for level in LEVELS)


def all_history(**by_view: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    result: dict[str, np.ndarray[Any, Any]] = {}
    for view in VIEWS:
        result |= history(view, **by_view.get(view, {}))
    return result


def test_cold_start_is_missing_with_a_count_of_zero_and_never_a_made_up_value() -> None:
    given = all_history()
    assert one("family_history__count", **given) == 0.0
    missing = ("last", "mean", "std", "age_days", "log_scale_ratio", "failures_since_success")
    assert all(np.isnan(one(f"family_history__{name}", **given)) for name in missing)
    assert all(np.isnan(one(f"backoff__{name}", **given)) for name in ("last", "count", "age_days", "level"))


def test_history_features_of_a_level() -> None:
    row = {
        "last": 3.0,
        "mean": 2.5,
        "std": 0.5,
        "count": 4,
        "last_seen": 7 * MICROSECONDS_PER_DAY,
        "failures_since_success": 2,
        "last_trainer_count": 4,
    }
    given = all_history(family_history=row)
    wanted = {"last": 3.0, "mean": 2.5, "std": 0.5, "count": 4, "age_days": 3.0, "failures_since_success": 2}
    assert {name: one(f"family_history__{name}", **given) for name in wanted} == wanted
    assert one("family_history__log_scale_ratio", **given) == pytest.approx(np.log(2))


def test_backoff_features_come_from_the_first_level_with_history() -> None:
    given = all_history(
        family_history={"last": 1.0, "count": 9, "last_seen": 0},
        family_hardware_history={"last": 2.0, "count": 3, "last_seen": 8 * MICROSECONDS_PER_DAY},
        family_scale_history={"count": 0, "failures_since_success": 3},
    )
    assert one("backoff__last", **given) == 2.0
    assert one("backoff__count", **given) == 3.0
    assert one("backoff__level", **given) == 1.0
    assert one("backoff__age_days", **given) == 2.0


def test_missing_column_is_named() -> None:
    with pytest.raises(MissingColumn, match="column 'family_history__last' is missing"):
        one("family_history__last")


@pytest.mark.parametrize(
    ("name", "categories", "rule"),
    [
        ("log_trainer", {}, "'log_trainer' is no feature"),
        ("hardware_type", {}, "values must be listed"),
        ("log_trainers", {"log_trainers": ("a",)}, "cannot be a category"),
    ],
)
def test_unknown_features_are_refused(name: str, categories: dict[str, tuple[str, ...]], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        check_features((name,), categories)


def test_given_columns_are_never_changed() -> None:
    values = np.array([np.inf])
    numbers({"x": values}, "x")
    assert np.isinf(values[0])


def test_specifications_of_unknown_hardware_are_missing() -> None:
    known = {"H100": {"memory_gib": 80.0}}
    made = specification_columns(objects("H100", "X1", None), known.get, ("memory_gib", "fp32_tflops"))
    assert made["hardware_specs__memory_gib"][0] == 80.0
    assert np.isnan(made["hardware_specs__memory_gib"][1:]).all()
    assert np.isnan(made["hardware_specs__fp32_tflops"]).all()


def test_millions_of_rows_take_the_same_path_as_one() -> None:
    # The vectorised row equals the rows one by one; size is left to benchmarks.
    random = np.random.default_rng(0)
    count = 300
    given = columns(
        model_type=objects(*random.choice(["bert", "dlrm", "new"], count)),
        trainer_count=random.integers(0, 4, count),
        reader_count=random.integers(0, 4, count),
        batch_size=random.choice([0.0, 0.5, 64.0], count),
        submitted_at_us=np.zeros(count, dtype=np.int64),
    )
    given["hardware_type"] = objects(*["H100-SXM-80"] * count)
    names = ("model_type", "log_trainers", "log_batch", "readers_per_trainer")
    categories = {"model_type": ("bert", "dlrm")}
    whole = feature_row(given, names, categories)
    for at in range(count):
        alone = feature_row({name: values[at : at + 1] for name, values in given.items()}, names, categories)
        np.testing.assert_array_equal(whole[at], alone[0])


SPECIFICATIONS = {
    "A": {
        **{"dense_bf16_or_fp16_tflops": 100.0, "fp32_tflops": 10.0, "memory_bandwidth_gbs": 1000.0, "memory_gib": 16.0},
        "interconnect_gbs": 50.0,
    },
    "B": {"dense_bf16_or_fp16_tflops": 400.0, "memory_bandwidth_gbs": 2000.0},
    "old": {"fp32_tflops": 4.0},
}
MODEL = {"parameters": 4e9, "active_parameters": 1e9, "flops_per_sample": 1e12, "sequence_length": 128.0}


def complete(**changes: Any) -> dict[str, np.ndarray[Any, Any]]:
    """A row with every column that a feature may need."""
    plain = columns(hardware_type=objects("A"), **all_history())
    plain |= specification_columns(objects("A"), SPECIFICATIONS.get, tuple(SPECIFICATIONS["A"]))
    plain |= {f"architecture__{name}": np.array([value]) for name, value in MODEL.items()}
    return plain | changes


def complete_one(name: str, **changes: Any) -> float:
    return float(feature_row(complete(**changes), (name,), {}, SPECIFICATIONS.get)[0, 0])


def test_every_feature_of_every_group_can_be_computed_and_belongs_to_one_group() -> None:
    names = [name for group in GROUPS.values() for name in group]
    assert len(set(names)) == len(names)
    check_features([name for name in names if name not in CATEGORICAL], {})
    row = feature_row(complete(), names, {"model_type": ("bert",)}, SPECIFICATIONS.get)
    assert row.shape == (1, len(names))


def test_family_history_is_what_the_paper_has_and_no_other_group_has_it() -> None:
    family = GROUPS["family_history"]
    assert family == tuple(f"family_history__{name}" for name in ("last", "mean", "std", "count", "age_days"))
    assert not set(family) & set(GROUPS["levels"])


def test_levels_leave_out_what_their_key_makes_the_same_in_every_row() -> None:
    levels = GROUPS["levels"]
    assert "family_history__same_hardware" in levels
    assert "family_history__log_scale_ratio" in levels
    assert "model_hardware_history__log_scale_ratio" in levels
    assert "model_hardware_history__same_hardware" not in levels
    assert "family_scale_history__log_scale_ratio" not in levels


def test_ratios_of_job_and_hardware() -> None:
    wanted = {
        "log_readers": 4,
        "log_batch_per_reader": 8 * 32 / 4,
        "log_batch_per_memory": 32 / 16,
        "log_total_memory": 8 * 16,
        "log_total_peak": 8 * 100,
        "log_total_bandwidth": 8 * 1000,
        "log_peak_per_bandwidth": 100 / 1000,
        "log_peak_per_interconnect": 100 / 50,
        "log_bandwidth_per_interconnect": 1000 / 50,
        "log_memory_gib": 16,
        "log_fp32_tflops": 10,
        "log_peak_tflops": 100,
    }
    for name, value in wanted.items():
        assert complete_one(name) == pytest.approx(np.log(value), rel=1e-5), name


def test_peak_is_that_of_fp32_where_no_other_is_published() -> None:
    old = specification_columns(objects("old"), SPECIFICATIONS.get, tuple(SPECIFICATIONS["A"]))
    assert complete_one("log_peak_tflops", **old) == pytest.approx(np.log(4))
    assert np.isnan(complete_one("log_dense_bf16_or_fp16_tflops", **old))
    assert np.isnan(complete_one("log_peak_per_bandwidth", **old))


def test_ratios_of_model_and_hardware_are_those_of_a_roofline() -> None:
    compute, weights, exchange = 1e12 * 32 / 100e12, 2 * 1e9 / 1000e9, 2 * 4e9 / 50e9
    wanted = {
        "log_parameters_per_memory": 2 * 4e9 / (16 * 2**30),
        "log_parameters_per_total_memory": 2 * 4e9 / (8 * 16 * 2**30),
        "log_peak_throughput": 8 * 100e12 / 1e12,
        "log_compute_s": compute,
        "log_weights_s": weights,
        "log_exchange_s": exchange,
        "log_compute_per_weights": compute / weights,
        "log_compute_per_exchange": compute / exchange,
    }
    assert set(wanted) == set(GROUPS["architecture"])
    for name, value in wanted.items():
        assert complete_one(name) == pytest.approx(np.log(value), rel=1e-5, abs=1e-5), name


def test_operations_are_guessed_from_parameters_where_they_are_not_given() -> None:
    unknown = {"architecture__flops_per_sample": np.array([np.nan])}
    per_token = 8 * 100e12 / (2 * 1e9)
    assert complete_one("log_peak_throughput", **unknown) == pytest.approx(np.log(per_token / 128), rel=1e-5)
    unknown |= {"architecture__sequence_length": np.array([np.nan])}
    assert complete_one("log_peak_throughput", **unknown) == pytest.approx(np.log(per_token), rel=1e-5)
    unknown |= {"architecture__active_parameters": np.array([np.nan])}
    assert complete_one("log_peak_throughput", **unknown) == pytest.approx(np.log(per_token / 4), rel=1e-5)


def test_history_carries_the_conditions_that_it_was_measured_under() -> None:
    row = {
        **{"last": 3.0, "count": 1, "last_seen": 0, "last_trainer_count": 2, "last_batch_size": 8.0},
        **{"mean_log_trainers": np.log(4), "mean_log_batch": np.log(16), "last_hardware_type": "B"},
    }
    wanted = {
        "log_scale_ratio": np.log(4),
        "scaled_last": 3.0 + np.log(4),
        "log_batch_ratio": np.log(4),
        "log_mean_scale_ratio": np.log(2),
        "log_mean_batch_ratio": np.log(2),
        "same_hardware": 0.0,
        "log_peak_ratio": np.log(1 / 4),
        "log_bandwidth_ratio": np.log(1 / 2),
    }
    given = all_history(model_history=row)
    for name, value in wanted.items():
        assert complete_one(f"model_history__{name}", **given) == pytest.approx(value, abs=1e-6), name
        if "mean" not in name:
            assert complete_one(f"backoff__{name}", **given) == pytest.approx(value, abs=1e-6), name
    assert complete_one("backoff__level", **given) == 5.0
    same = all_history(model_history=row | {"last_hardware_type": "A"})
    assert complete_one("model_history__same_hardware", **same) == 1.0
    assert complete_one("model_history__log_peak_ratio", **same) == 0.0


def test_latest_run_on_hardware_that_nobody_knows_has_no_ratio_to_it() -> None:
    given = all_history(family_history={"last": 3.0, "count": 1, "last_hardware_type": "unheard of"})
    assert complete_one("family_history__same_hardware", **given) == 0.0
    assert np.isnan(complete_one("family_history__log_peak_ratio", **given))


def test_comparison_with_the_latest_hardware_asks_for_its_specifications() -> None:
    with pytest.raises(ValueError, match="need its specifications"):
        feature_row(complete(), ("family_history__log_peak_ratio",), {})


def test_without_any_history_conditions_are_missing() -> None:
    for name in COMPUTED:
        if "__" in name and not name.endswith("__count"):
            assert np.isnan(complete_one(name)), name
    assert np.isnan(complete_one("backoff__count"))


@pytest.mark.parametrize("nothing", [0, None, np.nan, -1, np.inf, 1e-320])
def test_no_zero_and_no_gap_anywhere_makes_an_infinity(nothing: Any) -> None:
    # dmlc/xgboost#1869, dmlc/xgboost#8213: of every number in turn, and of all.
    given = complete(**all_history(**{view: dict.fromkeys(HISTORY, 1) | {"last_hardware_type": "B"} for view in VIEWS}))
    numeric = [name for name in given if name not in CATEGORICAL and not name.endswith("last_hardware_type")]
    for spoiled in [[name] for name in numeric] + [numeric]:
        changed = given | {name: objects(nothing) for name in spoiled}
        row = feature_row(changed, tuple(COMPUTED), {}, SPECIFICATIONS.get)
        assert not np.isinf(row).any(), spoiled


def test_columns_that_features_need_of_configuration_and_architecture_are_told() -> None:
    names = ("config__layers", "log_trainers", "architecture__heads", "log_compute_s", "config__precision")
    assert config_keys(names) == ["layers", "precision"]
    assert architecture_keys(names) == ["heads", *MODEL]
    assert architecture_keys(("log_trainers",)) == []


def test_blocks_of_rows_join_without_a_seam() -> None:
    count = BLOCK_ROWS + 3
    trainers = np.arange(1, count + 1)
    given = {name: np.repeat(values, count) for name, values in complete().items()} | {"trainer_count": trainers}
    given["model_type"] = objects(*("bert" if at % 2 else "dlrm" for at in range(count)))
    rows = feature_row(given, ("model_type", "log_trainers"), {"model_type": ("bert", "dlrm")})
    np.testing.assert_array_equal(rows[:, 1], np.log(trainers).astype(np.float32))
    np.testing.assert_array_equal(rows[:, 0], 1 - np.arange(count) % 2)
