from __future__ import annotations

import math

import numpy as np
import pytest

from leap_predictor.models.repeat_noise import RepeatNoise
from leap_training.repeats import repeat_noise
from training_rows import RunRow, training_set


def repeated(spreads: list[float], times: int, seed: int = 0) -> list[RunRow]:
    """One cell per spread (of ln throughput), each run so many times, one run after the other."""
    random = np.random.default_rng(seed)
    return [
        RunRow(
            f"{cell}-{number}",
            f"bert/family-{cell}",
            throughput=math.exp(5.0 + random.normal(scale=spread)),
            submitted=2.0 * number,
            completed=2.0 * number + 1.0,
        )
        for cell, spread in enumerate(spreads)
        for number in range(times)
    ]


def test_usual_noise_is_that_of_cells_that_were_run_again_and_again() -> None:
    found = repeat_noise(training_set(repeated([0.05] * 30, 12)), unseen=0.5)
    assert found.unseen == 0.5
    assert found.usual == pytest.approx(0.0025, rel=0.2)
    assert found.diversity < 0.1


def test_cells_of_different_noise_are_found_to_be_diverse() -> None:
    spreads = np.exp(np.random.default_rng(1).normal(np.log(0.05), 0.75, 40)).tolist()
    found = repeat_noise(training_set(repeated(spreads, 12)), unseen=0.5)
    assert found.diversity == pytest.approx((2 * 0.75) ** 2, rel=0.5)  # of variances: twice the logarithm
    assert found.usual == pytest.approx(0.0025, rel=0.5)


def test_latest_row_of_a_cell_speaks_for_it_wherever_it_stands() -> None:
    rows = training_set(repeated([0.02, 0.05, 0.1], 6))
    turned = rows.where(np.random.default_rng(0).permutation(len(rows)))
    latest = rows.where(np.array([row.endswith("-5") for row in rows.columns["attempt_id"]]))
    assert repeat_noise(rows, 0.5) == repeat_noise(latest, 0.5)
    one, other = repeat_noise(rows, 0.5), repeat_noise(turned, 0.5)
    assert (one.usual, one.diversity) == pytest.approx((other.usual, other.diversity))


@pytest.mark.parametrize("spreads", [[], [0.1]])
def test_without_two_cells_that_were_repeated_any_run_says_what_is_usual(spreads: list[float]) -> None:
    rows = training_set([RunRow("a"), RunRow("b", "bert/other", submitted=1), *repeated(spreads, 6)])
    assert repeat_noise(rows, 0.5) == RepeatNoise(0.5, 0.5, 0.0)
