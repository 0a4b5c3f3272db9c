from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pytest

from leap_training.nightly.state import (
    Plan,
    StateError,
    begin,
    begun_nights,
    finished,
    put_aside,
    remove_aside,
    run_phase,
)

PLAN = Plan(date(2026, 3, 1), train_days=30, judge_days=1, family_rule="v1")


class Count(msgspec.Struct, frozen=True):
    number: int


def test_windows_are_whole_days_in_utc() -> None:
    assert PLAN.cut == datetime(2026, 3, 1, tzinfo=UTC)
    assert PLAN.judged_from == datetime(2026, 2, 28, tzinfo=UTC)
    assert PLAN.candidate_from == datetime(2026, 1, 29, tzinfo=UTC)
    assert PLAN.final_from == datetime(2026, 1, 30, tzinfo=UTC)


def test_a_phase_that_finished_is_found_with_its_result_and_time(tmp_path: Path) -> None:
    directory = begin(tmp_path / "state", PLAN)
    assert finished(directory, "count", Count) is None
    times = iter([10.0, 12.5])
    run_phase(directory, "count", Count, lambda _folder: Count(7), monotonic=lambda: next(times))
    found = finished(directory, "count", Count)
    assert found is not None
    assert (found.seconds, found.result) == (2.5, Count(7))


def test_a_phase_that_failed_is_done_again_from_an_empty_folder(tmp_path: Path) -> None:
    directory = begin(tmp_path, PLAN)

    def fail(folder: Path) -> Count:
        (folder / "half").write_text("written")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_phase(directory, "count", Count, fail, monotonic=lambda: 0.0)
    assert finished(directory, "count", Count) is None

    def count(folder: Path) -> Count:
        return Count(len(list(folder.iterdir())))

    assert run_phase(directory, "count", Count, count, monotonic=lambda: 0.0).result == Count(0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"train_days": 7}, "train_days 30, now it is 7"),
        ({"judge_days": 2}, "judge_days 1, now it is 2"),
        ({"family_rule": "v2"}, "family_rule v1, now it is v2"),
    ],
)
def test_a_night_does_not_go_on_with_another_plan(tmp_path: Path, changes: dict[str, int], said: str) -> None:
    assert begin(tmp_path, PLAN) == begin(tmp_path, PLAN)
    with pytest.raises(StateError, match=f"{said}.*--again"):
        begin(tmp_path, msgspec.structs.replace(PLAN, **changes))


def test_a_damaged_result_names_its_file_and_the_mend(tmp_path: Path) -> None:
    directory = begin(tmp_path, PLAN)
    (directory / "count.json").write_text("{")
    with pytest.raises(StateError, match=r"count\.json cannot be read .*--again"):
        finished(directory, "count", Count)


def test_a_night_that_is_put_aside_begins_anew(tmp_path: Path) -> None:
    directory = begin(tmp_path, PLAN)
    run_phase(directory, "count", Count, lambda _folder: Count(7), monotonic=lambda: 0.0)
    put_aside(tmp_path, PLAN.night)
    assert begun_nights(tmp_path) == []
    other = msgspec.structs.replace(PLAN, train_days=7)
    assert finished(begin(tmp_path, other), "count", Count) is None


def test_a_night_left_half_removed_is_no_night_and_goes_at_the_next_start(tmp_path: Path) -> None:
    directory = begin(tmp_path, PLAN)
    directory.rename(directory.with_name(".aside-2026-03-01"))  # killed right after its rename
    assert begun_nights(tmp_path) == []
    remove_aside(tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []


def test_nights_are_listed_by_date(tmp_path: Path) -> None:
    for night in (date(2026, 3, 2), date(2026, 2, 27), date(2026, 3, 1)):
        begin(tmp_path, msgspec.structs.replace(PLAN, night=night))
    assert begun_nights(tmp_path) == [date(2026, 2, 27), date(2026, 3, 1), date(2026, 3, 2)]
