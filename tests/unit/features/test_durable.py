from __future__ import annotations

import os
from pathlib import Path

from leap_features.durable import durable_directory, publish, remove_leftovers

NOW = 1_800_000_000.0
DAY_S = 86_400


def file_of_age(path: Path, days: float) -> Path:
    path.touch()
    os.utime(path, (NOW, NOW - days * DAY_S))
    return path


def test_leftovers_of_killed_writers_go_after_a_day_and_nothing_else_does(tmp_path: Path) -> None:
    directory = durable_directory(tmp_path, "epoch=1000000", "date=2026-03-01")
    segment = file_of_age(publish(directory, "p00000-1-2.parquet", b"content", replace=False), days=30)
    old = file_of_age(directory / ".p00000-3-4.parquet.4711.0123abcd.tmp", days=1.1)
    at_the_root = file_of_age(tmp_path / ".archive.json.4711.0123abcd.tmp", days=30)
    at_work = file_of_age(directory / ".p00000-3-4.parquet.4712.0123abcd.tmp", days=0.9)
    someone_elses = file_of_age(directory / ".notes.tmp", days=30)
    assert set(remove_leftovers(tmp_path, NOW)) == {old, at_the_root}
    assert set(directory.iterdir()) == {segment, at_work, someone_elses}
    assert not at_the_root.exists()
