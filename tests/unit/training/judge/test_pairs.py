from __future__ import annotations

import numpy as np
import pytest

from leap_features.hardware import CATALOGUE
from leap_training.judge.as_known import RecordedRuns
from leap_training.judge.candidates import on_hardware
from leap_training.judge.pairs import PairFigures, pair_figures, pairs_of
from training_rows import RunRow, training_set


def test_a_pair_is_a_family_on_two_types_at_equal_trainers_and_batch() -> None:
    rows = training_set(
        [
            RunRow("a", "bert/a", "A30", throughput=100, submitted=3, completed=4),
            RunRow("b", "bert/a", "L4", throughput=50, submitted=1, completed=2),
            RunRow("c", "bert/a", "L4", throughput=400, trainer_count=64, submitted=2, completed=3),
            RunRow("d", "bert/b", "A30", throughput=100, submitted=1, completed=2),
            RunRow("e", "bert/c", "A30", throughput=100, submitted=1, completed=2),
            RunRow("f", "bert/c", "L4", throughput=102, submitted=2, completed=3),
        ]
    )
    pairs = pairs_of(rows)
    # c has other trainers, bert/b one type only, and the two types of bert/c are alike.
    assert (pairs.better.tolist(), pairs.other.tolist()) == (["A30"], ["L4"])
    assert rows.columns["attempt_id"][pairs.row].tolist() == ["b"]


def test_better_is_the_higher_median_and_three_types_are_three_pairs() -> None:
    throughputs = {"A30": [10, 100, 110], "L4": [50, 60, 900], "T4": [20]}
    rows = training_set(
        [
            RunRow(f"{name}{n}", hardware_type=name, throughput=each, submitted=n, completed=n + 1)
            for name, given in throughputs.items()
            for n, each in enumerate(given)
        ]
    )
    pairs = pairs_of(rows)
    found = set(zip(pairs.better.tolist(), pairs.other.tolist(), strict=True))
    assert found == {("A30", "L4"), ("A30", "T4"), ("L4", "T4")}


def test_equal_answers_are_right_half_the_time_and_missing_ones_never() -> None:
    better, other = np.array([2.0, 1.0, 1.0, np.nan]), np.array([1.0, 2.0, 1.0, 0.0])
    assert pair_figures(better, other) == PairFigures(4, pytest.approx(37.5))
    assert pair_figures(np.array([]), np.array([])) == PairFigures(0, None)


def test_a_candidate_has_the_history_and_specifications_of_its_hardware_as_of_the_submission() -> None:
    runs = [
        RunRow("on-l4", hardware_type="L4", throughput=50, submitted=0, completed=1),
        RunRow("on-a30", hardware_type="A30", throughput=100, submitted=5, completed=6),
        RunRow("later", hardware_type="L4", throughput=70, submitted=5, completed=7),
    ]
    rows = training_set(runs)
    asked = rows.where(rows.columns["attempt_id"] == "on-a30")
    shown = on_hardware(asked, np.array(["L4"], dtype=object), RecordedRuns(rows), CATALOGUE)
    of_l4 = training_set([runs[0], runs[1]._replace(hardware_type="L4")]).columns
    for name, values in shown.columns.items():
        if "_history__" in name and not name.endswith("failures_since_success"):
            np.testing.assert_array_equal(values, of_l4[name][1:], err_msg=name)
    assert np.isnan(shown.columns["family_scale_history__failures_since_success"]).all()
    memory = CATALOGUE["L4"].memory_gib
    assert shown.columns["hardware_specs__memory_gib"].tolist() == [memory]
    assert np.isnan(shown.log_throughput).all()
