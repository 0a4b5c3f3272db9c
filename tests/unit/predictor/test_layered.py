from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from layered_oracle import attempt, columns_of, random_model, run
from leap_features.levels import BACKOFF
from leap_predictor.models.layered import FAMILY_TERMS, PLAIN_FEATURES, Estimate, Layered
from leap_predictor.models.repeat_noise import RepeatNoise
from small_bundle import small_model

SLOW, FAST = "A100-SXM-80", "H100-SXM-80"
RANDOM = random_model()
CONFIG = {"config__precision": "bf16", "config__layers": 12}


def speed(estimate: Estimate, at: int = 0) -> float:
    return math.exp(estimate.log_throughput[at])


def noisy(noise: float, **weights: float) -> Layered:
    """The small model, with runs that vary by `noise` and a family that varies by `weights`."""
    return dataclasses.replace(
        small_model(),
        noise=RepeatNoise(noise, noise, 0.0),
        family_weights=np.array([weights.get(name, 0.0) for name in FAMILY_TERMS]),
    )


def test_without_history_the_model_alone_speaks() -> None:
    estimate = small_model().estimate(columns_of([attempt(SLOW, 4, {}), attempt(FAST, 4, {})]))
    assert np.exp(estimate.log_throughput).tolist() == pytest.approx([40.0, 80.0])
    assert estimate.level.tolist() == [-1, -1]
    assert estimate.correction.tolist() == [0.0, 0.0]
    assert np.isnan(estimate.last).all()


def test_known_cell_is_answered_with_its_own_last_value() -> None:
    history = {"family_scale_history": run(33.0, SLOW, 4), "family_history": run(33.0, SLOW, 4)}
    estimate = small_model().estimate(columns_of([attempt(SLOW, 4, history)]))
    assert speed(estimate) == pytest.approx(33.0, rel=1e-5)
    assert estimate.level.tolist() == [0]
    assert estimate.last.tolist() == [math.log(33.0)]


def test_cell_that_repeats_itself_is_answered_by_its_last_value_within_its_noise() -> None:
    # Of a model of any kind: twenty runs that differ by 0.2 %, the last one an hour ago.
    kept = run(800.0, SLOW, 16, days_ago=1 / 24) | {"count": 20, "mean": math.log(801.0), "std": 0.002}
    rows = [attempt(SLOW, 16, {"family_scale_history": kept}, model_type=name, **CONFIG) for name in ("bert", "new")]
    estimate = RANDOM.estimate(columns_of(rows))
    assert (np.abs(estimate.log_throughput - math.log(800.0)) < 0.02).all()
    assert (np.abs(estimate.uncorrected - math.log(800.0)) > 0.2).all()
    assert (estimate.spread < 0.2).all()


def test_surprise_of_the_latest_run_is_carried_over_to_other_hardware_and_scale() -> None:
    # The family ran at 20 samples/s on 4 slow trainers, half of the 40 that the model says; so half of the model's
    # 20 × 16 is expected on 16 fast ones.
    estimate = small_model().estimate(columns_of([attempt(FAST, 16, {"family_history": run(20.0, SLOW, 4)})]))
    assert speed(estimate) == pytest.approx(160.0, rel=1e-5)
    assert math.exp(estimate.correction[0]) == pytest.approx(0.5, rel=1e-5)
    assert BACKOFF[int(estimate.level[0])].view == "family_history"


def test_run_of_another_family_tells_less_than_one_of_the_family() -> None:
    family, other = (
        small_model().estimate(columns_of([attempt(FAST, 16, {view: run(20.0, SLOW, 4)})]))
        for view in ("family_history", "model_history")
    )
    # What the model type does at all, and what the family does, are as uncertain: the one run tells of both together.
    assert other.correction[0] == pytest.approx(family.correction[0] / 2, rel=1e-2)
    assert other.spread[0] > family.spread[0]


def test_old_run_tells_less_than_a_new_one() -> None:
    model = noisy(0.01, week=1.0)
    model = dataclasses.replace(model, covariance=np.zeros_like(model.covariance))
    corrections = [
        float(model.estimate(columns_of([attempt(FAST, 8, {"family_history": given})])).correction[0])
        for given in (run(20.0, SLOW, 4, days_ago=days) for days in (0.1, 3.0, 30.0, 300.0))
    ]
    assert corrections == sorted(corrections)
    assert corrections[0] < 0.9 * math.log(0.5)
    assert abs(corrections[-1]) < 1e-3


def test_noisier_runs_correct_less() -> None:
    corrections = [
        float(
            noisy(noise).estimate(columns_of([attempt(FAST, 8, {"family_history": run(44.0, SLOW, 4)})])).correction[0]
        )
        for noise in (1e-6, 0.1, 1.0, 10.0)
    ]
    assert corrections == sorted(corrections, reverse=True)
    assert corrections[0] == pytest.approx(math.log(44 / 40), rel=1e-3)
    assert corrections[-1] < 0.2 * corrections[0]


def test_single_straggler_displaces_the_mean_of_many_runs_less_than_its_weight() -> None:
    # Nine runs at 100 samples/s, and a tenth at half of that, or slightly below.
    def answered(latest: float) -> float:
        count = 10
        kept = run(latest, SLOW, 8) | {"count": count, "mean": (9 * math.log(100.0) + math.log(latest)) / count}
        kept["std"] = 0.3 * abs(math.log(latest / 100.0))
        model = noisy(0.0004, constant=1.0)
        estimate = model.estimate(columns_of([attempt(SLOW, 8, {"family_scale_history": kept})]))
        return float(estimate.log_throughput[0]) - math.log(100.0)

    slight, straggler = answered(99.0), answered(50.0)
    assert slight / math.log(0.99) > 4 * straggler / math.log(0.5)
    assert abs(straggler) < 0.02


def test_interval_has_the_width_of_its_level_in_spreads() -> None:
    widths = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
    rows = [attempt(SLOW, 4, {}), *(attempt(SLOW, 4, {level.view: run(33.0, SLOW, 4)}) for level in BACKOFF)]
    estimate = small_model(widths=widths).estimate(columns_of(rows))
    assert estimate.level.tolist() == [-1, 0, 1, 2, 3, 4, 5]
    half = np.array(widths) * estimate.spread
    np.testing.assert_allclose(estimate.log_throughput - estimate.log_low, half, rtol=1e-6)
    np.testing.assert_allclose(estimate.log_high - estimate.log_throughput, half, rtol=1e-6)


def test_rows_are_estimated_alike_alone_and_among_thousands() -> None:
    kinds = [
        attempt(SLOW, 2, {}, **CONFIG),
        attempt(FAST, 3, {"family_history": run(5.0, SLOW, 1)}, **CONFIG),
        attempt("L4", 64, {"model_scale_history": run(500.0, "L4", 64, days_ago=9.0)}, **CONFIG),
    ]
    together = RANDOM.estimate(columns_of(kinds * 900))  # several blocks
    for at, one in enumerate(kinds):
        alone = RANDOM.estimate(columns_of([one]))
        np.testing.assert_allclose(together.log_throughput[at::3], alone.log_throughput[0], rtol=1e-10)
        np.testing.assert_allclose(together.log_low[at::3], alone.log_low[0], rtol=1e-10)


def test_model_type_never_seen_is_estimated_as_such() -> None:
    rows = [attempt(FAST, 8, {}, model_type=name, **CONFIG) for name in ("bert", "dlrm", "new", "other")]
    estimate = RANDOM.estimate(columns_of(rows))
    assert len({round(value, 9) for value in estimate.log_throughput.tolist()}) == 3
    assert estimate.log_throughput[2] == pytest.approx(estimate.log_throughput[3])


def test_settings_of_the_job_count_and_unseen_ones_are_the_mean() -> None:
    def asked(precision: str | None) -> float:
        one = attempt(FAST, 8, {}, config__precision=precision, config__layers=12)
        return float(RANDOM.estimate(columns_of([one])).log_throughput[0])

    assert asked("bf16") != asked("fp32")
    assert asked("fp8") == asked(None) not in (asked("bf16"), asked("fp32"))


def test_features_are_the_plain_ones_and_the_settings() -> None:
    assert RANDOM.features == (*PLAIN_FEATURES, "config__precision", "config__layers")
    assert RANDOM.categories == {"model_type": ("bert", "dlrm"), "config__precision": ("bf16", "fp32")}


def test_no_rows_give_no_estimates() -> None:
    columns = {name: values[:0] for name, values in columns_of([attempt(SLOW, 4, {})]).items()}
    assert small_model().estimate(columns).log_throughput.shape == (0,)


def test_hardware_of_the_latest_run_that_nobody_knows_is_of_the_mean_specifications() -> None:
    known = attempt(FAST, 8, {"family_history": run(30.0, SLOW, 4)}, **CONFIG)
    gone = attempt(FAST, 8, {"family_history": run(30.0, "gone", 4)}, **CONFIG)
    asked_of_gone = attempt("gone", 4, {}, **CONFIG)
    estimate = RANDOM.estimate(columns_of([known, gone, asked_of_gone]))
    assert np.isfinite(estimate.log_throughput).all()
    assert estimate.log_throughput[0] != estimate.log_throughput[1]
    # The surprise of the run is against what is expected of unknown hardware.
    surprise = math.log(30.0) - estimate.uncorrected[2]
    assert 0 < estimate.correction[1] / surprise < 1.5
