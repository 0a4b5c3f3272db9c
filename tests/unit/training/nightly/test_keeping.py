from __future__ import annotations

import os
import time
from datetime import date, timedelta
from pathlib import Path

import msgspec
import pytest

from leap_predictor.bundle import CURRENT, current_id, load, set_current
from leap_predictor.errors import BundleError
from leap_training.nightly.keeping import remove_old_bundles, remove_old_runs, remove_unfinished_bundles
from leap_training.nightly.state import begin, begun_nights
from nightly_state import PLAN
from small_bundle import publish_small_bundle

DAY_S = 86_400


def test_the_latest_nights_keep_their_folders(tmp_path: Path) -> None:
    nights = [PLAN.night + timedelta(days=day) for day in range(5)]
    for night in nights:
        begin(tmp_path, msgspec.structs.replace(PLAN, night=night))
    remove_old_runs(tmp_path, 3)
    assert begun_nights(tmp_path) == nights[2:]
    assert not list((tmp_path / "runs").glob(".*"))


def test_folders_of_other_names_are_left_alone(tmp_path: Path) -> None:
    for name in ("2026-99-99", "abcd-ef-gh", "20260105"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    begin(tmp_path, PLAN)
    remove_old_runs(tmp_path, 1)
    assert begun_nights(tmp_path) == [PLAN.night]
    assert len(list((tmp_path / "runs").iterdir())) == 4


def test_fewer_nights_than_are_kept_stay(tmp_path: Path) -> None:
    begin(tmp_path, PLAN)
    remove_old_runs(tmp_path, 3)
    assert begun_nights(tmp_path) == [PLAN.night]


@pytest.fixture
def bundles(tmp_path: Path) -> list[str]:
    """Five bundles, earliest first; the latest is the current one."""
    ids = [publish_small_bundle(tmp_path, settings={"number": float(number)}) for number in range(5)]
    return sorted(ids)


def test_old_bundles_go_and_the_latest_stay(tmp_path: Path, bundles: list[str]) -> None:
    set_current(tmp_path, bundles[4])
    assert remove_old_bundles(tmp_path, 2) == bundles[:3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*bundles[3:], CURRENT]


def test_the_current_bundle_stays_however_old_it_is(tmp_path: Path, bundles: list[str]) -> None:
    set_current(tmp_path, bundles[0])
    assert remove_old_bundles(tmp_path, 1) == bundles[1:4]
    assert load(tmp_path).bundle_id == current_id(tmp_path) == bundles[0]


def test_without_a_current_bundle_nothing_is_removed(tmp_path: Path, bundles: list[str]) -> None:
    (tmp_path / CURRENT).unlink()
    with pytest.raises(BundleError):
        remove_old_bundles(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == bundles


def test_what_a_killed_publication_left_goes_after_a_day(tmp_path: Path, bundles: list[str]) -> None:
    for name in (".publishing-0123", ".removing-0123"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trees.npz").write_bytes(b"half")
    (tmp_path / ".current.4711.0123abcd.tmp").write_bytes(b"2026")
    now = time.time()
    remove_unfinished_bundles(tmp_path, now)
    assert len(list(tmp_path.glob(".*"))) == 3
    remove_unfinished_bundles(tmp_path, now + DAY_S + 60)
    assert list(tmp_path.glob(".*")) == []
    assert load(tmp_path).bundle_id == current_id(tmp_path)
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == len(bundles)


def test_a_strange_file_among_the_bundles_stays(tmp_path: Path, bundles: list[str]) -> None:
    for name in ("README", "notes", date(2020, 1, 1).isoformat()):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    set_current(tmp_path, bundles[4])
    remove_old_bundles(tmp_path, 1)
    remove_unfinished_bundles(tmp_path)
    assert {"README", "notes", "2020-01-01"} <= {path.name for path in tmp_path.iterdir()}
