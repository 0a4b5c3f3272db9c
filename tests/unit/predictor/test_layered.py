from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from leap_features.columns import specification_columns
from leap_features.levels import BACKOFF, LEVELS
from leap_predictor.layered import Layered
from small_bundle import PEAK, forest, stump

SPECS = {"slow": {"dense_bf16_or_fp16_tflops": 100.0}, "fast": {"dense_bf16_or_fp16_tflops": 900.0}}

Column = np.ndarray[Any, Any]


def objects(values: list[Any]) -> Column:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def model() -> Layered:
    """ln 10 per trainer on slow hardware, ln 20 on fast."""
    return Layered(stump(500.0, math.log(10), math.log(20)), (PEAK,), {}, SPECS.get)


def columns(hardware: list[str], trainers: list[int], history: list[dict[str, dict[str, Any]]]) -> dict[str, Column]:
    count = len(hardware)
    plain: dict[str, Column] = {
        "model_type": objects(["bert"] * count),
        "hardware_type": objects(list(hardware)),
        "trainer_count": np.array(trainers, dtype=float),
        "reader_count": np.full(count, np.nan),
        "batch_size": np.full(count, 32.0),
        "submitted_at_us": np.zeros(count, dtype=np.int64),
    }
    plain |= specification_columns(plain["hardware_type"], SPECS.get, ("dense_bf16_or_fp16_tflops",))
    for level in LEVELS:
        for name in ("last", "count", "last_seen", "last_hardware_type", "last_trainer_count", "last_batch_size"):
            plain[f"{level.view}__{name}"] = objects([row.get(level.view, {}).get(name) for row in history])
    return plain


def run(throughput: float, hardware: str, trainers: int) -> dict[str, Any]:
    return {
        "last": math.log(throughput),
        "count": 1,
        "last_seen": 0,
        "last_hardware_type": hardware,
        "last_trainer_count": trainers,
        "last_batch_size": 32.0,
    }


def test_without_history_the_model_alone_speaks() -> None:
    estimate = model().estimate(columns(["slow", "fast"], [4, 4], [{}, {}]))
    assert np.exp(estimate.log_throughput).tolist() == pytest.approx([40.0, 80.0])
    assert estimate.level.tolist() == [-1, -1]
    assert estimate.correction.tolist() == [0.0, 0.0]


def test_known_cell_is_answered_with_its_own_last_value() -> None:
    history = [{"family_scale_history": run(33.0, "slow", 4), "family_history": run(1.0, "fast", 64)}]
    estimate = model().estimate(columns(["slow"], [4], history))
    assert math.exp(estimate.log_throughput[0]) == pytest.approx(33.0)
    assert estimate.level.tolist() == [0]


def test_surprise_of_the_latest_run_is_carried_over_to_other_hardware_and_scale() -> None:
    # The family ran at 20 samples/s on 4 slow trainers, half of the 40 that the model says; so half of the model's
    # 20 × 16 is expected on 16 fast ones.
    estimate = model().estimate(columns(["fast"], [16], [{"family_history": run(20.0, "slow", 4)}]))
    assert math.exp(estimate.log_throughput[0]) == pytest.approx(160.0)
    assert math.exp(estimate.correction[0]) == pytest.approx(0.5)
    assert BACKOFF[int(estimate.level[0])].view == "family_history"


def test_estimates_equal_the_formula_row_by_row() -> None:
    random = np.random.default_rng(7)
    names = list(SPECS)
    f = {"slow": math.log(10), "fast": math.log(20)}
    hardware = random.choice(names, 200).tolist()
    trainers = random.integers(1, 100, 200).tolist()
    history: list[dict[str, dict[str, Any]]] = []
    for _ in range(200):
        known = [level.view for level in LEVELS if random.random() < 0.4]
        history.append(
            {
                view: run(float(random.lognormal()), str(random.choice(names)), int(random.integers(1, 100)))
                for view in known
            }
        )
    estimate = model().estimate(columns(hardware, trainers, history))
    for at, rows in enumerate(history):
        wanted = f[hardware[at]] + math.log(trainers[at])
        for level in BACKOFF:
            if level.view in rows:
                row = rows[level.view]
                then = f[row["last_hardware_type"]] + math.log(row["last_trainer_count"])
                wanted += row["last"] - then
                break
        assert estimate.log_throughput[at] == pytest.approx(wanted, abs=1e-6)


def test_rows_are_estimated_alike_alone_and_together() -> None:
    given = columns(["slow", "fast"], [2, 3], [{}, {"family_history": run(5.0, "slow", 1)}])
    together = model().estimate(given).log_throughput
    for at in range(2):
        alone = model().estimate({name: values[at : at + 1] for name, values in given.items()})
        assert alone.log_throughput[0] == together[at]


def test_hardware_of_the_latest_run_that_nobody_knows_counts_as_missing() -> None:
    trees = forest(
        feature=[0, 0, 0],
        threshold=[500.0, np.inf, np.inf],
        children=[1, 2, 1, 1, 2, 2],
        value=[0.0, 1.0, 2.0],
        default_right=[True, False, False],
    )
    given = columns(["slow"], [1], [{"family_history": run(math.e**5, "gone", 1)}])
    estimate = Layered(trees, (PEAK,), {}, SPECS.get).estimate(given)
    assert estimate.log_throughput[0] == pytest.approx(1.0 + (5.0 - 2.0))
