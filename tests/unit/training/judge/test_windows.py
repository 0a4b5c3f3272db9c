from __future__ import annotations

import math

import pytest

from leap_training.judge.windows import Window, WindowError, by_day, by_key, since, without_key
from leap_training.training_set import TrainingSet
from training_rows import DAY_US, HOUR_US, START_US, RunRow, training_set


def daily(days: int) -> TrainingSet:
    """Three runs of three hours each day; the last is under way at midnight."""
    return training_set(
        [
            RunRow(f"{day}-{hour}", submitted=24 * day + hour, completed=24 * day + hour + 3)
            for day in range(days)
            for hour in (1, 12, 22)
        ]
    )


def ids(rows: TrainingSet, window: Window) -> tuple[list[str], list[str]]:
    names = rows.columns["attempt_id"]
    return names[window.train].tolist(), names[window.scored].tolist()


def test_a_day_is_scored_after_training_on_what_was_recorded_before_its_midnight() -> None:
    rows = daily(3)
    (window,) = by_day(rows, windows=1)
    assert (window.name, window.cut_us) == ("2026-01-03", START_US + 2 * DAY_US)
    # 1-22 was under way at the cut: it is in neither.
    assert ids(rows, window) == (["0-1", "0-12", "0-22", "1-1", "1-12"], ["2-1", "2-12", "2-22"])


def test_days_before_the_training_window_are_not_trained_on() -> None:
    rows = daily(5)
    (window,) = by_day(rows, windows=1, train_days=1)
    # 2-22 was recorded at 01:00 of the day that is trained on.
    assert ids(rows, window)[0] == ["2-22", "3-1", "3-12"]


def test_the_last_days_are_scored_and_only_those_with_something_to_train_on() -> None:
    assert [window.name for window in by_day(daily(4), windows=2)] == ["2026-01-03", "2026-01-04"]
    assert [window.name for window in by_day(daily(4))] == ["2026-01-02", "2026-01-03", "2026-01-04"]
    with pytest.raises(WindowError, match="no day has attempts recorded before it"):
        by_day(daily(1))


def rounds() -> TrainingSet:
    """Rounds that overlap: the first run of `b` is submitted while the last of `a` is under way."""
    hours = {"z": [(0, 1), (2, 3)], "a": [(10, 11), (12, 20)], "b": [(15, 16), (30, 31)], "c": [(40, 41)]}
    runs = [
        RunRow(f"{name}{at}", submitted=at, completed=end, config=f'{{"round":"{name}"}}')
        for name, times in hours.items()
        for at, end in times
    ]
    return training_set([*runs, RunRow("none", submitted=29, completed=32)])


def test_windows_by_a_key_come_in_the_order_of_their_first_submission() -> None:
    rows = rounds()
    first, second = by_key(rows, "round")
    assert (first.name, second.name) == ("b", "c")
    assert first.cut_us == START_US + 15 * HOUR_US
    assert ids(rows, first) == (["z0", "z2", "a10"], ["b15", "b30"])
    # What has no round is trained on once it was recorded, and not scored.
    assert ids(rows, second) == (["z0", "z2", "a10", "a12", "b15", "none", "b30"], ["c40"])


def test_the_key_that_windows_go_by_is_not_shown_to_models() -> None:
    rows = training_set(
        [RunRow("a", config='{"round":"z","precision":"bf16"}'), RunRow("b", config='{"round":"z"}'), RunRow("c")]
    )
    shown = without_key(rows, "round")
    assert shown.configs() == [{"precision": "bf16"}, {}, {}]
    assert (shown.log_throughput == rows.log_throughput).all()


def test_windows_by_a_key_can_be_chosen() -> None:
    rows = rounds()
    assert [window.name for window in by_key(rows, "round", min_earlier=1)] == ["a", "b", "c"]
    assert [window.name for window in by_key(rows, "round", first="a")] == ["a", "b", "c"]
    assert [window.name for window in by_key(rows, "round", windows=1)] == ["c"]
    assert [window.name for window in by_key(rows, "round", first="z")] == ["a", "b", "c"]  # nothing before z
    assert ids(rows, by_key(rows, "round", windows=1, train_days=0.5)[0])[0] == ["none", "b30"]


def test_wrong_keys_and_windows_are_named() -> None:
    rows = rounds()
    with pytest.raises(WindowError, match=r"no job has 'team' in its configuration; there are round: judge by one"):
        by_key(rows, "team")
    with pytest.raises(WindowError, match=r"no window is called 'd'; there are z, a, b, c"):
        by_key(rows, "round", first="d")
    with pytest.raises(WindowError, match=r"there are 4 windows .* of which none is left"):
        by_key(rows, "round", min_earlier=4)


def test_one_window_since_an_instant() -> None:
    rows = daily(3)
    (window,) = since(rows, START_US + 2 * DAY_US)
    assert len(window.train) == 5
    assert len(window.scored) == 3
    with pytest.raises(WindowError, match="no attempt was recorded before 2026-01-01T00:00:00"):
        since(rows, START_US)
    with pytest.raises(WindowError, match="no attempt submitted at or after 2026-01-11"):
        since(rows, START_US + 10 * DAY_US)


@pytest.mark.parametrize("days", [math.inf, math.nan, 1e300, 0.0, -1.0])
def test_a_training_window_that_no_calendar_holds_is_refused(days: float) -> None:
    with pytest.raises(WindowError, match="must be above 0 and at most 100,000 days, got"):
        by_day(daily(2), train_days=days)
    with pytest.raises(WindowError, match="must be above 0"):
        by_key(rounds(), "round", train_days=days)
    with pytest.raises(WindowError, match="must be above 0"):
        since(daily(2), START_US + DAY_US, train_days=days)


def test_windows_that_all_begin_before_anything_is_recorded_are_told_from_too_few_windows() -> None:
    runs = [
        RunRow(f"{name}{at}", submitted=at / 10, completed=5 + at, config=f'{{"team":"{name}"}}')
        for name in ("a", "b", "c", "d")
        for at in range(3)
    ]
    with pytest.raises(WindowError, match="no attempt to train on was recorded before any of the windows c, d began"):
        by_key(training_set(runs), "team")
    with pytest.raises(WindowError, match="none is left to score after 9 to train on"):
        by_key(training_set(runs), "team", min_earlier=9)


def test_of_many_windows_a_message_names_the_first() -> None:
    runs = [RunRow(f"{at}", submitted=at, completed=at + 0.5, config=f'{{"job":"{at:03}"}}') for at in range(300)]
    with pytest.raises(WindowError, match=r"no window is called 'x'; there are 000, .*, 009 and 290 more$"):
        by_key(training_set(runs), "job", first="x")


def test_jobs_without_any_key_are_judged_by_day() -> None:
    with pytest.raises(WindowError, match="no job has any key: judge by day, or map the column into"):
        by_key(daily(2), "round")
