"""The history directory: a build replaces what is served at once, or not at all."""

from __future__ import annotations

import fcntl
from collections.abc import Mapping
from pathlib import Path

import pytest

from archived_events import HORIZON_US, event, latest, rows_of, write_events
from events_strategies import BASE
from leap_features import history_build, history_rows
from leap_features.archive import ArchiveError, ArchiveHole
from leap_features.family import Rules, family_of
from leap_features.history_build import HistoryError
from leap_features.levels import LEVELS


def build(tmp_path: Path, **changes: object) -> history_build.Build:
    arguments: Mapping[str, object] = {"horizon_us": HORIZON_US, **changes}
    return history_build.build(tmp_path / "archive", tmp_path / "history", **arguments)  # type: ignore[arg-type]


def test_a_build_is_served_under_the_name_of_each_view(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a"), event("b", 1, status="failed")])
    made = build(tmp_path)
    assert made.counts.rows == {level.view: 2 for level in LEVELS}
    assert made.ends == {"1000000:0": 2}
    (row,) = latest(tmp_path / "history", "family_history")
    assert (row["count"], row["failures_since_success"], row["version"]) == (1, 1, "1000000:0:1")
    assert history_build.served(tmp_path / "history") == made


def test_the_next_build_takes_the_place_of_the_last_one_and_keeps_it_for_its_readers(tmp_path: Path) -> None:
    for at in range(3):
        write_events(tmp_path / "archive", [event(f"a{at}", at)], first=at)
        reader = (tmp_path / "history" / "family_history").resolve()
        build(tmp_path)
        assert len(rows_of(tmp_path / "history")["family_history"]) == at + 1
        if at:
            assert list(reader.iterdir())
    assert len([entry for entry in (tmp_path / "history" / "builds").iterdir() if entry.is_dir()]) == 2


def test_a_build_that_fails_leaves_what_was_served(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a")])
    made = build(tmp_path)
    path = write_events(tmp_path / "archive", [event("b")], first=1)
    path.write_bytes(b"no Parquet")
    with pytest.raises(Exception, match=r"(?i)parquet"):
        build(tmp_path)
    assert history_build.served(tmp_path / "history") == made
    path.unlink()
    assert build(tmp_path) == made


def test_an_archive_with_a_hole_is_not_built_from(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a")])
    write_events(tmp_path / "archive", [event("b")], first=5)
    with pytest.raises(ArchiveHole):
        build(tmp_path)
    assert not (tmp_path / "history").exists()


def test_without_an_archive_the_mend_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="check LEAP_ARCHIVE"):
        build(tmp_path)


def test_an_empty_archive_gives_views_without_rows(tmp_path: Path) -> None:
    archive_root = tmp_path / "archive"
    write_events(archive_root, [event("a", status="cancelled")])
    counts = build(tmp_path).counts
    assert (counts.archived, counts.folded, counts.without_effect) == (1, 0, 1)
    assert rows_of(tmp_path / "history") == {level.view: [] for level in LEVELS}


def test_two_builds_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a")])
    build(tmp_path)
    with (tmp_path / "history" / "builds" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(HistoryError, match="another build is at work"):
            build(tmp_path)


def test_a_directory_that_a_build_did_not_make_is_left_alone(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a")])
    own = tmp_path / "history" / "family_history"
    own.mkdir(parents=True)
    (own / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(HistoryError, match="was not made by `leap history build`"):
        build(tmp_path)
    assert (own / "mine.parquet").read_bytes() == b"mine"


def test_a_build_is_current_until_the_archive_the_horizon_or_the_rules_change(tmp_path: Path) -> None:
    def current(horizon_us: int = HORIZON_US, rules: Rules | None = None) -> bool:
        return history_build.is_current(
            tmp_path / "archive", tmp_path / "history", horizon_us=horizon_us, rules=rules or Rules()
        )

    write_events(tmp_path / "archive", [event("a")])
    assert not current()
    build(tmp_path)
    assert current()
    assert not current(horizon_us=1)
    assert not current(rules=Rules("1+other"))
    write_events(tmp_path / "archive", [event("b")], first=1)
    assert not current()


def test_families_that_other_rules_named_are_named_anew(tmp_path: Path) -> None:
    rules = Rules("1+12345678", strip=["prod"])
    given = event("b", 1, job_family="given")
    write_events(tmp_path / "archive", [event("a"), given])
    build(tmp_path, rules=rules)
    renamed = family_of("ranker", "ranker-prod-2026-03-01", rules)
    assert renamed != family_of("ranker", "ranker-prod-2026-03-01")
    assert {row["job_family"] for row in latest(tmp_path / "history", "family_history")} == {renamed, "ranker/given"}


def test_the_sixteen_greatest_failures_count(tmp_path: Path) -> None:
    failures = [event(f"f{i:02}", i, status="failed") for i in range(20)]
    write_events(tmp_path / "archive", [*failures, event("s", 10)])
    build(tmp_path)
    rows = rows_of(tmp_path / "history")["family_history"]
    assert [row["failures_since_success"] for row in rows][-3:] == [16, 16, 9]
    assert rows[-1]["event_timestamp"] > BASE


def test_late_events_appear_late(tmp_path: Path) -> None:
    # feast-dev/feast#6615: completed at T−1 but recorded at T+1, asked as of T.
    write_events(tmp_path / "archive", [event("a", 0)], lag_us=0)
    write_events(tmp_path / "archive", [event("b", 1)], first=1, lag_us=10 * 60_000_000)
    build(tmp_path)
    first, second = rows_of(tmp_path / "history")["family_history"]
    assert ((first["event_timestamp"] - BASE).total_seconds(), first["count"]) == (0, 1)
    assert ((second["event_timestamp"] - BASE).total_seconds(), second["count"]) == (11 * 60, 2)


def test_events_of_one_instant_become_one_row(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a"), event("b"), event("c")])
    build(tmp_path)
    (row,) = rows_of(tmp_path / "history")["family_history"]
    assert row["count"] == 3


def test_progress_is_told_level_by_level(tmp_path: Path) -> None:
    write_events(tmp_path / "archive", [event("a")])
    told: list[str] = []
    build(tmp_path, say=told.append)
    assert [line.partition(":")[0] for line in told[1:]] == [level.view for level in LEVELS]
    assert history_rows.PART.startswith("part-")
