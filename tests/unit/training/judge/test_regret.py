from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leap_training.judge.regret import (
    JOBS_PER_WINDOW,
    RegretFigures,
    candidates_of,
    lost_share,
    picks,
    regret_figures,
)
from leap_training.judge.truth import Truth, TruthError, read_truth

NAN = np.nan
TRUTH = Truth(
    ("A30", "L4", "T4"),
    np.array(
        [
            [100, 60, NAN],  # per dollar 50, 60: L4 is best
            [100, 0, 30],  # 50, 0, 30
            [NAN, 80, NAN],  # no choice
            [100, 40, 40],  # 50, 40, 40
        ],
        dtype=np.float32,
    ),
)
COSTS = {"A30": 2.0, "L4": 1.0, "T4": 1.0}
USED = np.array(["A30", "A30", "L4", "L4"], dtype=object)
HOURS = np.array([1.0, 2.0, 3.0, 10.0])


def test_jobs_with_a_choice_are_asked_about_on_every_eligible_type() -> None:
    jobs = candidates_of(TRUTH, np.arange(4), USED, HOURS, COSTS, seed=1)
    assert jobs.row.tolist() == [0, 1, 3]
    assert jobs.cost.tolist() == [2.0, 4.0, 10.0]
    row, hardware_types = jobs.asked()
    assert list(zip(row.tolist(), hardware_types.tolist(), strict=True)) == [
        (0, "A30"), (0, "L4"), (1, "A30"), (1, "L4"), (1, "T4"), (3, "A30"), (3, "L4"), (3, "T4"),
    ]  # fmt: skip


def test_regret_is_the_share_of_the_best_value_that_the_top_pick_forgoes() -> None:
    jobs = candidates_of(TRUTH, np.arange(4), USED, HOURS, COSTS, seed=1)
    # Job 0: the better one is picked; job 1: one that runs out of memory; job 3: nothing is said, so it stays on L4.
    said = np.log([100.0, 60.0, 1.0, 90.0, 2.0, NAN, NAN, NAN])
    pick = picks(jobs, said)
    assert [jobs.hardware_types[place] for place in pick] == ["L4", "L4", "L4"]
    lost = lost_share(jobs, pick)
    assert lost.tolist() == pytest.approx([0.0, 1.0, 0.2])
    found = regret_figures(lost, jobs.cost)
    assert found == RegretFigures(3, pytest.approx(40.0), pytest.approx(100 * (4 + 2) / 16), pytest.approx(100 / 3))
    assert regret_figures(np.array([]), np.array([])) == RegretFigures(0, None, None, None)


def test_the_truths_own_picks_lose_nothing() -> None:
    jobs = candidates_of(TRUTH, np.arange(4), USED, HOURS, COSTS, seed=1)
    row, hardware_types = jobs.asked()
    expected = TRUTH.log_expected(row, hardware_types)
    assert lost_share(jobs, picks(jobs, expected)).tolist() == [0.0, 0.0, 0.0]


def test_of_many_jobs_some_are_drawn_the_same_ones_each_time() -> None:
    count = 4 * JOBS_PER_WINDOW
    truth = Truth(("A30", "L4"), np.ones((count, 2), dtype=np.float32))
    used = np.full(count, "L4", dtype=object)
    one, two = (candidates_of(truth, np.arange(count), used, np.ones(count), COSTS, seed=4) for _ in range(2))
    assert len(one) == JOBS_PER_WINDOW
    assert one.row.tolist() == two.row.tolist()


def test_a_type_without_a_cost_is_no_candidate() -> None:
    jobs = candidates_of(TRUTH, np.arange(4), USED, HOURS, {"A30": 2.0, "L4": 1.0}, seed=1)
    assert set(jobs.asked()[1]) == {"A30", "L4"}


def write_truth(path: Path) -> Path:
    table = {"attempt_id": ["b", "a"], "kind": ["dense", "dense"], "A30": [1.0, 2.0], "L4": [None, 0.0]}
    pq.write_table(pa.table(table), path)
    return path


def test_the_truth_is_read_in_the_order_of_the_attempts(tmp_path: Path) -> None:
    truth = read_truth(write_truth(tmp_path / "truth.parquet"), np.array(["a", "none", "b"], dtype=object))
    assert truth.hardware_types == ("A30", "L4")
    np.testing.assert_array_equal(truth.expected, [[2, 0], [NAN, NAN], [1, NAN]])
    types = np.array(["A30", "A30", "unheard"], dtype=object)
    np.testing.assert_array_equal(truth.log_expected(np.arange(3), types), [np.log(2), NAN, NAN])


def test_files_that_are_no_truth_are_named(tmp_path: Path) -> None:
    path = write_truth(tmp_path / "truth.parquet")
    with pytest.raises(TruthError, match="has none of the attempts"):
        read_truth(path, np.array(["x"], dtype=object))
    pq.write_table(pa.table({"attempt_id": ["a"]}), path)
    with pytest.raises(TruthError, match=r"give the truth\.parquet of the fleet"):
        read_truth(path, np.array(["a"], dtype=object))
    path.write_text("no Parquet")
    with pytest.raises(TruthError, match="cannot be read as Parquet"):
        read_truth(path, np.array(["a"], dtype=object))


def test_a_type_without_a_cost_changes_no_pick_of_the_others() -> None:
    jobs = candidates_of(TRUTH, np.arange(4), USED, HOURS, {"A30": 2.0, "L4": 1.0}, seed=1)
    row, hardware_types = jobs.asked()
    pick = picks(jobs, TRUTH.log_expected(row, hardware_types))
    # Per dollar: 50 and 60, 50 and 40. Where the two jobs ran is A30 and L4.
    assert [jobs.hardware_types[place] for place in pick] == ["L4", "A30"]
