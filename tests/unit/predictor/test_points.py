from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from layered_oracle import DAY_US, NOW_US, SPECIFICATIONS, attempt, columns_of, run
from leap_features.columns import MissingColumn
from leap_features.levels import BACKOFF
from leap_predictor.models.basis import HardwareTable
from leap_predictor.models.points import LEVEL_COUNT, OWN, POINTS, Points, points_of

TABLE = HardwareTable.of(SPECIFICATIONS)
A100, H100, L4 = (TABLE.names.index(name) for name in ("A100-SXM-80", "H100-SXM-80", "L4"))
LAST = POINTS - 1


def points(*attempts: dict[str, Any]) -> Points:
    return points_of(columns_of(attempts), TABLE, lambda _: None)


def place(view: str) -> int:
    return 1 + [level.view for level in BACKOFF].index(view)


def test_candidate_is_the_first_point_and_no_known_run() -> None:
    found = points(attempt("H100-SXM-80", 8, {}))
    assert (found.hardware[0, 0], found.log_trainers[0, 0]) == (H100, math.log(8))
    assert (found.log_batch[0, 0], found.days[0, 0]) == (math.log(32), NOW_US / DAY_US)
    assert not found.known.any()
    assert found.level.tolist() == [-1]
    assert np.isnan(found.last[0])


def test_level_remembers_its_latest_run_with_its_conditions() -> None:
    found = points(attempt("H100-SXM-80", 8, {"model_history": run(50.0, "L4", 2, batch=64.0, days_ago=3.0)}))
    at = place("model_history")
    assert np.flatnonzero(found.known[0]).tolist() == [at]
    assert (found.hardware[0, at], found.log_trainers[0, at]) == (L4, math.log(2))
    assert found.log_batch[0, at] == math.log(64)
    assert found.days[0, at] == pytest.approx(NOW_US / DAY_US - 3)
    assert found.value[0, at] == math.log(50)
    assert found.runs[0, at] == 1.0
    assert (found.level.tolist(), found.last.tolist()) == ([at - 1], [math.log(50)])


def test_first_level_of_the_back_off_that_has_history_is_named() -> None:
    history = {
        "model_history": run(1.0, "L4", 1),
        "family_history": run(2.0, "L4", 2),
        "family_hardware_history": run(3.0, "H100-SXM-80", 4),
    }
    found = points(attempt("H100-SXM-80", 8, history))
    assert BACKOFF[int(found.level[0])].view == "family_hardware_history"
    assert found.last[0] == math.log(3)


def test_run_that_several_levels_remember_counts_once_at_the_most_specific_one() -> None:
    same, other = run(5.0, "H100-SXM-80", 8), run(5.0, "H100-SXM-80", 8, days_ago=2.0)
    found = points(
        attempt("H100-SXM-80", 8, {level.view: same for level in BACKOFF}),
        attempt("H100-SXM-80", 8, {"family_scale_history": same, "family_history": other, "model_history": other}),
    )
    assert np.flatnonzero(found.known[0]).tolist() == [place("family_scale_history")]
    assert np.flatnonzero(found.known[1]).tolist() == [place("family_scale_history"), place("family_history")]


@pytest.mark.parametrize("missing", ["last", "last_trainer_count"])
def test_run_without_throughput_or_trainers_is_not_known(missing: str) -> None:
    found = points(attempt("H100-SXM-80", 8, {"family_history": run(5.0, "L4", 2) | {missing: None}}))
    assert not found.known.any()
    assert found.level.tolist() == [-1]


def test_what_a_run_does_not_tell_is_taken_to_be_as_asked() -> None:
    vague = run(5.0, "L4", 2) | {"last_batch_size": 0.0, "last_seen": None}
    found = points(attempt("H100-SXM-80", 8, {"family_history": vague}))
    at = place("family_history")
    assert found.known[0, at]
    assert found.log_batch[0, at] == math.log(32)
    assert found.days[0, at] == NOW_US / DAY_US


def test_earlier_runs_of_the_cell_are_one_point_their_mean() -> None:
    # Three runs of 2, 3 and (the latest) 7, of batch sizes 16, 32 and 64.
    kept = run(math.exp(7), "H100-SXM-80", 8, batch=64.0) | {
        "count": 3,
        "mean": 4.0,
        "mean_log_trainers": math.log(8),
        "mean_log_batch": math.log(32),
        "std": 0.5,
    }
    found = points(attempt("H100-SXM-80", 8, {"family_scale_history": kept}))
    assert found.known[0, LAST]
    assert found.value[0, LAST] == pytest.approx(2.5)
    assert found.runs[0, LAST] == 2.0
    assert found.hardware[0, LAST] == H100
    assert found.log_trainers[0, LAST] == pytest.approx(math.log(8))
    assert found.log_batch[0, LAST] == pytest.approx((math.log(16) + math.log(32)) / 2)
    assert (found.repeats[0], found.repeat_spread[0]) == (3.0, 0.5)


def test_earlier_runs_on_this_hardware_stand_in_where_the_cell_was_never_run() -> None:
    kept = run(math.exp(7), "H100-SXM-80", 4) | {
        "count": 2,
        "mean": 5.0,
        "mean_log_trainers": (math.log(4) + math.log(16)) / 2,
        "mean_log_batch": math.log(32),
    }
    found = points(attempt("H100-SXM-80", 8, {"family_hardware_history": kept}))
    assert found.known[0, LAST]
    assert found.value[0, LAST] == pytest.approx(3.0)
    assert found.log_trainers[0, LAST] == pytest.approx(math.log(16))
    assert found.repeats[0] == 0.0
    assert np.isnan(found.repeat_spread[0])


def test_cell_that_was_run_once_keeps_its_run_from_being_counted_again_in_a_mean() -> None:
    # That run is among those of the family on this hardware, whose mean would hold it a second time.
    several = run(5.0, "H100-SXM-80", 4) | {"count": 5, "mean": 2.0}
    history = {"family_scale_history": run(6.0, "H100-SXM-80", 8), "family_hardware_history": several}
    assert not points(attempt("H100-SXM-80", 8, history)).known[0, LAST]


def test_runs_of_the_whole_family_make_no_mean() -> None:
    # They were on other hardware too.
    several = run(5.0, "H100-SXM-80", 4) | {"count": 5, "mean": 2.0}
    assert not points(attempt("H100-SXM-80", 8, {"family_history": several})).known[0, LAST]


def test_mean_without_batch_size_is_taken_to_be_as_asked() -> None:
    kept = run(5.0, "H100-SXM-80", 8) | {"count": 2, "mean_log_batch": None, "last_batch_size": 0.0}
    found = points(attempt("H100-SXM-80", 8, {"family_scale_history": kept}))
    assert found.known[0, LAST]
    assert found.log_batch[0, LAST] == math.log(32)


def test_candidate_without_trainers_leaves_its_runs_whole() -> None:
    found = points(attempt("H100-SXM-80", 0, {"family_history": run(5.0, "L4", 2)}))
    assert np.isnan(found.log_trainers[0, 0])
    assert found.log_trainers[0, place("family_history")] == math.log(2)


def test_hardware_of_a_run_that_nobody_knows_is_unknown() -> None:
    found = points(attempt("H100-SXM-80", 8, {"family_history": run(5.0, "Warp9", 2)}))
    assert found.hardware[0, place("family_history")] == len(TABLE.names) - 1


def test_only_levels_of_the_family_are_its_own() -> None:
    own = [BACKOFF[at - 1].view for at in range(1, LEVEL_COUNT + 1) if OWN[at]]
    assert own == ["family_scale_history", "family_hardware_history", "family_history"]
    assert OWN[0]
    assert OWN[LAST]


def test_missing_column_is_named() -> None:
    columns = columns_of([attempt("H100-SXM-80", 8, {})])
    del columns["family_history__last"]
    with pytest.raises(MissingColumn, match="'family_history__last' is missing"):
        points_of(columns, TABLE, lambda _: None)
