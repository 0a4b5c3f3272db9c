from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from layered_oracle import DAY_US, NOW_US, SPECIFICATIONS, Attempt, columns_of, estimate, random_model
from leap_features.columns import specification_columns
from leap_features.hardware import SPECS
from leap_features.levels import BACKOFF, LEVELS
from leap_features.row import feature_row

MODEL = random_model()

hardware = st.sampled_from(["A100-SXM-80", "a100", "H100-SXM-80", "H100-SXM-96", "L4", "V100-SXM-32", "Warp9"])
batch = st.sampled_from([0.0, 0.5, 32.0, 64.0, 1024.0])
config = {
    "config__precision": st.sampled_from(["bf16", "fp32", "fp8", None]),
    "config__layers": st.sampled_from([None, 12, 24.0, 1e39, math.nan]),
}

_RUNS = st.fixed_dictionaries(
    {
        "last": st.floats(0.0, 12.0),
        "last_seen": st.integers(NOW_US - 400 * DAY_US, NOW_US),
        "last_hardware_type": hardware,
        "last_trainer_count": st.integers(1, 4096),
        "last_batch_size": batch,
    }
)
_KEPT = st.fixed_dictionaries(
    {
        "count": st.integers(1, 60),
        "mean": st.floats(0.0, 12.0),
        "std": st.one_of(st.none(), st.floats(0.0, 1.0)),
        "mean_log_trainers": st.floats(0.0, 8.0),
        "mean_log_batch": st.one_of(st.none(), st.floats(-1.0, 8.0)),
    }
)


@st.composite
def histories(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """What some of the levels keep. A few runs are shared, so that levels often remember the same one."""
    runs = draw(st.lists(_RUNS, min_size=1, max_size=4))
    views = draw(st.lists(st.sampled_from([level.view for level in LEVELS]), unique=True))
    return {view: draw(st.sampled_from(runs)) | draw(_KEPT) for view in views}


attempts = st.fixed_dictionaries(
    {
        "model_type": st.sampled_from(["bert", "dlrm", "never-seen"]),
        "hardware_type": hardware,
        "trainer_count": st.integers(1, 4096),
        "batch_size": st.one_of(st.none(), batch),
        "submitted_at_us": st.just(NOW_US),
        **config,
        "history": histories(),
    }
)


@settings(max_examples=150)
@given(st.lists(attempts, min_size=1, max_size=6))
def test_estimate_is_kriging_written_out_row_by_row(given_attempts: list[Attempt]) -> None:
    got = MODEL.estimate(columns_of(given_attempts))
    for at, one in enumerate(given_attempts):
        wanted = estimate(MODEL, one)
        np.testing.assert_allclose(got.log_throughput[at], wanted.log_throughput, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got.uncorrected[at], wanted.uncorrected, rtol=1e-9)
        np.testing.assert_allclose(got.spread[at], wanted.spread, rtol=1e-5, atol=1e-7)
        assert got.level[at] == wanted.level


@settings(max_examples=100)
@given(st.lists(attempts, min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_row_is_estimated_alike_alone_and_among_others_in_any_order(given_attempts: list[Attempt], random: Any) -> None:
    together = MODEL.estimate(columns_of(given_attempts))
    order = list(range(len(given_attempts)))
    random.shuffle(order)
    turned = MODEL.estimate(columns_of([given_attempts[at] for at in order]))
    for place, at in enumerate(order):
        alone = MODEL.estimate(columns_of([given_attempts[at]]))
        for name in ("log_throughput", "log_low", "log_high", "uncorrected"):
            wanted = getattr(together, name)[at]
            np.testing.assert_allclose(getattr(turned, name)[place], wanted, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(getattr(alone, name)[0], wanted, rtol=1e-9, atol=1e-9)
        assert alone.level[0] == turned.level[place] == together.level[at]


@settings(max_examples=100)
@given(attempts, st.data())
def test_level_that_repeats_a_known_run_changes_nothing(one: dict[str, Any], data: st.DataObject) -> None:
    # The family's levels on this hardware also say how noisy a cell is and what its mean was, so they come first.
    known = [place for place, level in enumerate(BACKOFF) if level.view in one["history"]]
    behind = [level.view for level in BACKOFF[max([1, *known]) + 1 :]]
    assume(known and behind)
    repeated = one["history"][BACKOFF[data.draw(st.sampled_from(known))].view]
    more = {**one, "history": {**one["history"], data.draw(st.sampled_from(behind)): repeated}}
    before, after = MODEL.estimate(columns_of([one])), MODEL.estimate(columns_of([more]))
    np.testing.assert_allclose(after.log_throughput, before.log_throughput, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(after.spread, before.spread, rtol=1e-9, atol=1e-9)
    assert after.level.tolist() == before.level.tolist()


number = st.one_of(st.none(), st.sampled_from([0, 1, 8, 1e39, 2**31, math.inf, math.nan, -1]), st.floats(-10, 1e6))
anything = st.fixed_dictionaries(
    {
        "model_type": st.sampled_from(["bert", "dlrm", "new"]),
        "hardware_type": st.one_of(st.none(), hardware),
        "trainer_count": number,
        "batch_size": number,
        "submitted_at_us": st.integers(0, 2**52),
        "config__precision": st.one_of(st.none(), st.text(max_size=4)),
        "config__layers": number,
        "history": st.dictionaries(
            st.sampled_from([level.view for level in LEVELS]),
            st.fixed_dictionaries(
                {
                    "last": st.one_of(st.none(), st.floats(-300, 300)),
                    "count": st.one_of(st.none(), st.integers(0, 2**40)),
                    "mean": st.one_of(st.none(), st.floats(-300, 300)),
                    "std": st.one_of(st.none(), st.floats(0, 300)),
                    "last_seen": st.one_of(st.none(), st.integers(0, 2**52)),
                    "last_hardware_type": st.one_of(st.none(), hardware),
                    "last_trainer_count": st.one_of(st.none(), st.integers(0, 2**31)),
                    "last_batch_size": number,
                    "mean_log_trainers": st.one_of(st.none(), st.floats(-10, 30)),
                    "mean_log_batch": st.one_of(st.none(), st.floats(-50, 100)),
                }
            ),
        ),
    }
)


@settings(max_examples=300)
@given(st.lists(anything, min_size=1, max_size=6))
def test_estimate_lies_within_its_finite_interval_whatever_is_submitted(given_attempts: list[Attempt]) -> None:
    got = MODEL.estimate(columns_of(given_attempts))
    for at, one in enumerate(given_attempts):
        trainers = one["trainer_count"]
        values = [got.log_low[at], got.log_throughput[at], got.log_high[at]]
        if trainers is None or not math.isfinite(trainers) or trainers <= 0:
            assert np.isnan(values).all()
            continue
        assert np.isfinite(values).all()
        assert values == sorted(values)
        assert got.spread[at] > 0
        assert got.log_throughput[at] == got.uncorrected[at] + got.correction[at] or math.isclose(
            got.log_throughput[at], got.uncorrected[at] + got.correction[at], rel_tol=1e-12, abs_tol=1e-9
        )


@settings(max_examples=200)
@given(st.lists(anything, min_size=1, max_size=8))
def test_no_infinity_reaches_the_model_whatever_is_submitted(given_attempts: list[Attempt]) -> None:
    columns = columns_of(given_attempts)
    columns |= specification_columns(columns["hardware_type"], SPECIFICATIONS.get, SPECS)
    history = [f"{level.view}__age_days" for level in LEVELS]
    names = (*MODEL.features, "log_total_batch", *history, "backoff__last", "backoff__level")
    assert not np.isinf(feature_row(columns, names, MODEL.categories)).any()
