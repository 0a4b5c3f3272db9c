from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_features.backoff import NEEDED
from leap_features.columns import specification_columns
from leap_features.levels import BACKOFF, LEVELS
from leap_features.row import feature_row
from leap_predictor.layered import Layered
from small_bundle import forest

SPECS: dict[str, dict[str, float]] = {"A": {"memory_gib": 40.0}, "B": {"memory_gib": 80.0}, "C": {}}
FEATURES = ("model_type", "log_trainers", "log_batch", "readers_per_trainer", "hardware_specs__memory_gib")
CATEGORIES = {"model_type": ("bert", "dlrm")}

number = st.one_of(st.none(), st.sampled_from([0, 1, 8, 1e39, float("inf"), float("nan")]), st.floats(-10, 1e6))
name = st.sampled_from(["A", "B", "C", "unknown"])
row_of_level = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "last": st.one_of(st.none(), st.floats(-20, 20)),
            "count": st.integers(0, 100),
            "last_seen": st.integers(0, 2**50),
            "last_hardware_type": name,
            "last_trainer_count": st.integers(1, 10_000),
            "last_batch_size": st.sampled_from([0.0, 0.5, 64.0]),
        }
    ),
)
attempt = st.fixed_dictionaries(
    {
        "model_type": st.sampled_from(["bert", "dlrm", "new"]),
        "hardware_type": name,
        "trainer_count": number,
        "reader_count": number,
        "batch_size": number,
        "history": st.fixed_dictionaries({level.view: row_of_level for level in LEVELS}),
    }
)


def columns_of(attempts: list[dict[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    def column(values: list[Any]) -> np.ndarray[Any, Any]:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    names = ("model_type", "hardware_type", "trainer_count", "reader_count", "batch_size")
    columns = {each: column([one[each] for one in attempts]) for each in names}
    columns["submitted_at_us"] = np.full(len(attempts), 2**50)
    columns |= specification_columns(columns["hardware_type"], SPECS.get, ("memory_gib",))
    for level in LEVELS:
        for each in NEEDED:
            rows = [one["history"][level.view] for one in attempts]
            columns[f"{level.view}__{each}"] = column([None if row is None else row[each] for row in rows])
    return columns


MODEL = Layered(
    forest(
        feature=[1, 4, 0, 0, 0, 0, 0],
        threshold=[1.5, 60.0, np.inf, np.inf, np.inf, np.inf, np.inf],
        children=[1, 2, 3, 4, 5, 6, 3, 3, 4, 4, 5, 5, 6, 6],
        value=[0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0],
        category_count=[0, 0, 2, 0, 0, 0, 0],
        category_right=[False, True],
        feature_count=len(FEATURES),
    ),
    FEATURES,
    CATEGORIES,
    SPECS.get,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(attempt, min_size=1, max_size=8))
def test_no_infinity_reaches_the_model_whatever_is_submitted(attempts: list[dict[str, Any]]) -> None:
    columns = columns_of(attempts)
    history = (f"{level.view}__age_days" for level in LEVELS)
    names = (*FEATURES, "log_total_batch", *history, "backoff__last", "backoff__level")
    rows = feature_row(columns, names, CATEGORIES)
    assert not np.isinf(rows).any()


@settings(max_examples=200, deadline=None)
@given(st.lists(attempt, min_size=1, max_size=8))
def test_estimate_is_the_models_plus_the_surprise_of_the_first_level_that_has_one(
    attempts: list[dict[str, Any]],
) -> None:
    estimate = MODEL.estimate(columns_of(attempts))
    for at, one in enumerate(attempts):
        alone = MODEL.uncorrected(columns_of([one]))[0]
        level = next((level for level in BACKOFF if (one["history"][level.view] or {}).get("last") is not None), None)
        if level is None:
            np.testing.assert_equal(estimate.log_throughput[at], alone)
            continue
        run = one["history"][level.view]
        batches_known = run["last_batch_size"] > 0 and (one["batch_size"] or 0) > 0 and one["batch_size"] < 1e300
        trainers = one["trainer_count"]
        readers = one["reader_count"]
        then = one | {
            "hardware_type": run["last_hardware_type"],
            "trainer_count": run["last_trainer_count"],
            "batch_size": run["last_batch_size"] if batches_known else one["batch_size"],
            "reader_count": readers * run["last_trainer_count"] / trainers if readers and trainers else None,
        }
        wanted = alone + run["last"] - MODEL.uncorrected(columns_of([then]))[0]
        np.testing.assert_allclose(estimate.log_throughput[at], wanted, rtol=1e-12, atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(attempt, min_size=2, max_size=8))
def test_row_is_estimated_alike_alone_and_among_others(attempts: list[dict[str, Any]]) -> None:
    together = MODEL.estimate(columns_of(attempts))
    for at, one in enumerate(attempts):
        alone = MODEL.estimate(columns_of([one]))
        np.testing.assert_equal(alone.log_throughput[0], together.log_throughput[at])
        assert alone.level[0] == together.level[at]
