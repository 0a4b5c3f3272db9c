from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from leap_features.levels import BACKOFF
from leap_predictor.models.layered import Estimate
from leap_predictor.models.served_model import NORMAL
from leap_training.conformal import LEVELS, MAX_ROWS, MIN_ROWS, SPLITS, widths
from leap_training.training_set import TrainingSet

Predict = Callable[[TrainingSet, TrainingSet], Estimate]


def training_set(errors: NDArray[np.float64], levels: NDArray[np.int64]) -> TrainingSet:
    """Runs one after another, whose prediction is 0 and which lie `errors` away; a column holds the level."""
    count = len(errors)
    submitted = 10 * np.arange(count, dtype=np.int64)
    columns = {"submitted_at_us": submitted, "level": levels}
    nothing = np.full(count, None, dtype=object)
    return TrainingSet(columns, errors, submitted + 5, nothing, nothing)


def estimate(rows: TrainingSet, spread: float) -> Estimate:
    zeros = np.zeros(len(rows))
    level = rows.columns["level"].astype(np.int8)
    return Estimate(zeros, zeros, zeros, zeros + spread, zeros, zeros, level, zeros)


def always_0(spread: float = 1.0) -> Predict:
    return lambda _, later: estimate(later, spread)


def exchangeable(count: int, seed: int = 0, scale: Any = 1.0, levels: Any = None) -> TrainingSet:
    random = np.random.default_rng(seed)
    levels = random.integers(-1, len(BACKOFF), count) if levels is None else levels
    return training_set(random.standard_t(3, size=count) * scale, levels)


def test_widths_cover_80_percent_of_exchangeable_runs_on_every_level() -> None:
    random = np.random.default_rng(0)
    levels = random.integers(-1, len(BACKOFF), 40_000)
    scale = 0.5 + levels + 1.0  # every level errs by another scale
    found = widths(exchangeable(40_000, 1, scale, levels), always_0())
    later = exchangeable(40_000, 2, scale, levels)
    for level in range(-1, len(BACKOFF)):
        of_level = np.abs(later.log_throughput[levels == level])
        assert (of_level <= found[level + 1]).mean() == pytest.approx(0.8, abs=0.025)


def test_widths_are_in_units_of_the_models_own_spread() -> None:
    rows = exchangeable(40_000)
    one, tenth = widths(rows, always_0(1.0)), widths(rows, always_0(0.1))
    np.testing.assert_allclose(tenth, 10 * one, rtol=0.02)


def test_level_without_rows_gets_the_width_of_all_levels_but_the_first() -> None:
    random = np.random.default_rng(0)
    levels = random.choice([0, 2, 3], 20_000)
    found = widths(exchangeable(20_000, 1, np.where(levels == 0, 1.0, 5.0), levels), always_0())
    absent = [level for level in range(-1, len(BACKOFF)) if level not in (0, 2, 3)]
    assert len({float(found[level + 1]) for level in absent}) == 1
    assert found[absent[0] + 1] == pytest.approx(found[3], rel=0.1)
    assert found[absent[0] + 1] > 3 * found[1]


def test_first_level_without_rows_gets_the_pooled_width_too() -> None:
    levels = np.full(5_000, 3)
    found = widths(exchangeable(5_000, 1, 4.0, levels), always_0())
    assert found[1] == found[0]
    assert found[0] > 2.0


def test_few_rows_of_a_level_lie_between_its_own_width_and_the_pooled_one() -> None:
    levels = np.where(np.arange(10_000) % 500 == 7, 5, 3)  # a few of the scored rows
    found = widths(exchangeable(10_000, 1, np.where(levels == 5, 50.0, 1.0), levels), always_0())
    assert found[4] < found[6] < 30


def test_too_few_rows_leave_the_widths_of_the_normal_distribution() -> None:
    assert widths(exchangeable(MIN_ROWS), always_0()).tolist() == [NORMAL] * LEVELS
    assert widths(exchangeable(0), always_0()).tolist() == [NORMAL] * LEVELS


def test_scored_runs_were_submitted_when_all_that_was_fitted_had_been_recorded() -> None:
    asked: list[tuple[TrainingSet, TrainingSet]] = []

    def predict(earlier: TrainingSet, later: TrainingSet) -> Estimate:
        asked.append((earlier, later))
        return estimate(later, 1.0)

    rows = exchangeable(1_000)
    widths(rows, predict)
    assert len(asked) == len(SPLITS)
    scored = [at for _, later in asked for at in later.submitted_at_us.tolist()]
    assert len(set(scored)) == len(scored)
    for earlier, later in asked:
        assert earlier.recorded_at_us.max() <= later.submitted_at_us.min()
        assert len(earlier) >= 0.99 * SPLITS[0] * len(rows)
    assert max(scored) == rows.submitted_at_us.max()


def test_at_most_so_many_rows_of_a_split_are_predicted() -> None:
    sizes: list[int] = []

    def predict(_: TrainingSet, later: TrainingSet) -> Estimate:
        sizes.append(len(later))
        return estimate(later, 1.0)

    widths(exchangeable(15 * MAX_ROWS // 2), predict)
    assert all(MAX_ROWS / 2 <= size <= MAX_ROWS for size in sizes)


def test_model_that_is_always_right_keeps_a_width_above_0() -> None:
    assert (widths(exchangeable(5_000, scale=0.0), always_0()) > 0).all()
