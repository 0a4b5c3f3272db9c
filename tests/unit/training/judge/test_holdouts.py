from __future__ import annotations

import numpy as np
import pytest

from leap_features.hardware import CATALOGUE, Catalogue
from leap_training.judge.holdouts import hold_outs, most_scored
from leap_training.judge.windows import by_day
from leap_training.model import FittedModel
from leap_training.training_set import TrainingSet
from small_recipes import Absent, BackoffLast, FamilyMean
from training_rows import RunRow, training_set


def fleet() -> TrainingSet:
    """Four days of two families, one on L4 and one on A30, whose throughput never changes."""
    runs = []
    for number in range(96):
        family, hardware_type, throughput = [("bert/a", "L4", 10.0), ("bert/b", "A30", 1000.0)][number % 3 == 0]
        runs.append(
            RunRow(
                f"{number:02}", family, hardware_type, throughput=throughput, submitted=number, completed=number + 0.5
            )
        )
    return training_set(runs)


ROWS = fleet()
(WINDOW,) = by_day(ROWS, windows=1)


class Watched:
    """The back-off's last value, that keeps what it was fitted on and asked about."""

    def __init__(self) -> None:
        self.fitted_on: list[TrainingSet] = []

    def fit(self, rows: TrainingSet, catalogue: Catalogue) -> FittedModel:
        self.fitted_on.append(rows)
        return BackoffLast()


def test_what_is_held_out_was_never_there_neither_in_training_nor_in_history() -> None:
    watched = Watched()
    found = hold_outs(ROWS, WINDOW, {"watched": watched}, CATALOGUE, values=1)
    by_kind = {(each.kind, each.history): each for each in found}
    assert {each.value for each in found} == {"L4", "bert/a"}
    held = by_kind["hardware_type", "frozen"]
    assert (held.removed_rows, held.scored_rows) == (48, 16)
    # Of hardware never seen only another type's run is known; as many random rows less leave the cell as it is.
    assert (held.full, held.without, held.random) == (100.0, 0.0, 100.0)
    assert (held.points, held.points_random) == (-100.0, 0.0)
    # Live, its own first run of the day tells the others.
    assert by_kind["hardware_type", "live"].without == pytest.approx(100 * 15 / 16)
    _whole, without, random, *_ = watched.fitted_on
    assert "L4" not in without.columns["hardware_type"]
    assert len(without) == len(random) == len(WINDOW.train) - 48
    assert "L4" in random.columns["hardware_type"]
    assert not (without.columns["model_history__last_hardware_type"] == "L4").any()
    assert (ROWS.columns["model_history__last_hardware_type"] == "L4").any()


def test_the_most_scored_values_that_training_knows_are_held_out() -> None:
    assert most_scored(ROWS, WINDOW, "hardware_type") == ["L4", "A30"]
    only = training_set([RunRow(f"{n}", submitted=12 * n, completed=12 * n + 1) for n in range(6)])
    (window,) = by_day(only, windows=1)
    assert most_scored(only, window, "hardware_type") == []  # without it nothing is left


def test_a_model_that_cannot_be_fitted_is_left_out() -> None:
    said: list[str] = []
    recipes = {"absent": Absent(), "family_mean": FamilyMean()}
    found = hold_outs(ROWS, WINDOW, recipes, CATALOGUE, values=1, say=said.append)
    assert {each.model for each in found} == {"family_mean"}
    assert any("absent is not run" in line for line in said)


def test_rows_are_drawn_by_the_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        watched = Watched()
        hold_outs(ROWS, WINDOW, {"watched": watched}, CATALOGUE, values=1, seed=seed)
        drawn.append(watched.fitted_on[2].columns["attempt_id"].tolist())
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert np.isin(drawn[2], ROWS.columns["attempt_id"]).all()
