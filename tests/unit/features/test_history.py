from __future__ import annotations

import math
import statistics

import pytest

from events_strategies import raw_event
from leap_features.events import FIXED_POINT, decode, fixed_log
from leap_features.history import (
    EMPTY,
    FEATURES,
    MAX_FAILURES,
    CorruptState,
    Position,
    Row,
    Run,
    days_since,
    features,
    fold,
    from_state,
    run_of,
    touch,
)


def success(throughput: float, at: int, attempt: str = "a") -> Run:
    return Run(True, at, attempt, fixed_log(throughput), fixed_log(8), fixed_log(32), "H100", 8, 32.0)


def failure(at: int, attempt: str = "f") -> Run:
    return Run(False, at, attempt, 0, fixed_log(8), fixed_log(32), "H100", 8, 32.0)


def folded(*runs: Run) -> Row:
    row = EMPTY
    for offset, run in enumerate(runs):
        row = fold(row, run, Position(1, 0, offset), 1000 + offset)
    return row


def test_a_cold_start_has_zero_runs_and_no_made_up_values() -> None:
    cold = features(EMPTY)
    assert cold["count"] == 0
    assert cold["failures_since_success"] == 0
    real = {"count", "failures_since_success", "state", "version"}
    assert all(cold[name] is None for name, _ in FEATURES if name not in real)


def test_a_late_event_does_not_displace_last() -> None:
    row = folded(success(100, at=20, attempt="new"), success(900, at=10, attempt="late"))
    assert features(row)["last"] == fixed_log(100) / FIXED_POINT
    assert features(row)["last_seen"] == 20
    assert features(row)["count"] == 2


def test_two_completions_within_one_second_count_twice() -> None:
    # feast-dev/feast#5807: two completions of one family at .500 s and .700 s of one second
    row = folded(success(100, at=1_500_000, attempt="a"), success(200, at=1_700_000, attempt="b"))
    assert features(row)["count"] == 2
    assert features(row)["last"] == fixed_log(200) / FIXED_POINT


def test_equal_completion_times_are_decided_by_the_attempt_in_any_order() -> None:
    a, b = success(100, at=5, attempt="a"), success(200, at=5, attempt="b")
    assert features(folded(a, b))["last"] == features(folded(b, a))["last"] == fixed_log(200) / FIXED_POINT


def test_a_redelivered_event_changes_nothing() -> None:
    # faust-streaming/faust#48 and #323: restart with no new event, redelivery after a crash
    once = fold(EMPTY, success(100, at=1), Position(1, 0, 7), 1000)
    assert fold(once, success(100, at=1), Position(1, 0, 7), 1000) is once
    assert fold(once, success(300, at=2), Position(1, 0, 6), 1000) is once
    assert fold(once, success(300, at=2), Position(1, 1, 6), 1000).n == 2
    assert fold(once, success(300, at=2), Position(2, 0, 6), 1000).n == 2


def test_a_duplicate_counts_nothing_and_advances_version_and_stamp() -> None:
    once = fold(EMPTY, success(100, at=1), Position(1, 0, 7), 1000)
    twice = touch(once, Position(1, 0, 8), 2000)
    assert (twice.n, twice.sum_x) == (once.n, once.sum_x)
    assert twice.version == (Position(1, 0, 8),)
    assert twice.recorded_at_us == 2000


def test_the_stamp_never_goes_back_when_the_broker_clock_does() -> None:
    row = fold(
        fold(EMPTY, success(1, at=1, attempt="a"), Position(1, 0, 0), 5000), success(2, at=2), Position(1, 0, 1), 10
    )
    assert row.recorded_at_us == 5000


def test_eight_values_near_99_9999999_have_a_variance_that_is_not_negative_and_close_to_two_pass() -> None:
    # online-ml/river#732: catastrophic cancellation
    values = [99.99999990, 99.99999991, 99.99999989, 99.99999992, 99.99999988, 99.9999999, 99.9999999, 99.99999991]
    row = folded(*(success(math.exp(value), at=i, attempt=str(i)) for i, value in enumerate(values)))
    std = features(row)["std"]
    assert isinstance(std, float)
    assert std >= 0
    exact = [fixed_log(math.exp(value)) / FIXED_POINT for value in values]
    assert std == pytest.approx(statistics.pstdev(exact), rel=1e-6)


def test_equal_values_have_exactly_no_spread() -> None:
    row = folded(*(success(0.1, at=i, attempt=str(i)) for i in range(1000)))
    assert features(row)["std"] == 0.0
    assert features(row)["mean"] == fixed_log(0.1) / FIXED_POINT


def test_failures_count_since_the_last_success_whatever_the_order() -> None:
    runs = [failure(10, "f1"), success(100, at=20), failure(30, "f2"), failure(40, "f3")]
    assert features(folded(*runs))["failures_since_success"] == 2
    assert features(folded(*reversed(runs)))["failures_since_success"] == 2


def test_failures_saturate() -> None:
    row = folded(*(failure(i, f"f{i}") for i in range(100)))
    assert features(row)["failures_since_success"] == MAX_FAILURES
    assert features(row)["count"] == 0
    after = fold(row, success(1, at=99, attempt="e"), Position(1, 0, 100), 0)
    assert features(after)["failures_since_success"] == 1


def test_a_batch_size_of_zero_takes_no_part_in_its_mean() -> None:
    none = msg_run(batch_size=0)
    assert none.log_batch is None
    row = folded(msg_run(attempt_id="a", batch_size=32), msg_run(attempt_id="b", batch_size=0))
    assert features(row)["mean_log_batch"] == fixed_log(32) / FIXED_POINT
    assert features(row)["count"] == 2


def msg_run(**changes: object) -> Run:
    run = run_of(decode(raw_event(**changes)))
    assert run is not None
    return run


@pytest.mark.parametrize("status", ["cancelled", "preempted"])
def test_cancelled_and_preempted_attempts_change_nothing(status: str) -> None:
    assert run_of(decode(raw_event(status=status, throughput=...))) is None


def test_a_row_carries_the_conditions_of_its_latest_run() -> None:
    last = features(
        folded(msg_run(attempt_id="a"), msg_run(attempt_id="b", hardware_type="A100", trainer_count=64, batch_size=7.5))
    )
    assert (last["last_hardware_type"], last["last_trainer_count"], last["last_batch_size"]) == ("A100", 64, 7.5)


def test_a_stored_state_that_no_fold_wrote_names_the_mend() -> None:
    for state, version in (("{}", ""), ("[1]", ""), ('[0,0,"x",0,0,0,null,[]]', ""), (features(EMPTY)["state"], "1:2")):
        with pytest.raises(CorruptState, match="leap audit --repair"):
            from_state(str(state), version, 0)


def test_days_since_the_last_run_are_reckoned_when_asked() -> None:
    assert days_since(0.0, 86_400_000_000.0) == 1.0
    assert math.isnan(days_since(math.nan, 86_400_000_000.0))
