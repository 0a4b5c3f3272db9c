from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from leap_features.durable import NotReplaceable, durable_directory, publish, remove_leftovers, replaceable

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


def special_file(directory: Path, kind: str) -> Path:
    path = directory / kind
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as bound:
            bound.bind(str(path))
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 7))
        except PermissionError:
            pytest.skip("this user may make no device")
    return path


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "device"])
def test_only_a_regular_file_is_ever_replaced(tmp_path: Path, kind: str, through_link: bool) -> None:
    path = special = special_file(tmp_path, kind)
    before = special.stat()
    if through_link:
        path = tmp_path / "link"
        path.symlink_to(special)
    there = set(tmp_path.iterdir())
    with pytest.raises(NotReplaceable, match=f"{path} is a {kind}, which no file may replace: name a file"):
        publish(path.parent, path.name, b"content", replace=True)
    assert special.stat() == before
    assert set(tmp_path.iterdir()) == there


def test_links_stay_and_what_they_lead_to_is_replaced_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "latest").symlink_to("store/history.snapshot")
    for content in (b"one", b"two"):
        assert publish(tmp_path, "latest", content, replace=True) == tmp_path / "store" / "history.snapshot"
        assert (tmp_path / "store" / "history.snapshot").read_bytes() == content
    assert (tmp_path / "latest").is_symlink()
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["history.snapshot"]


@pytest.mark.parametrize("name", ["absent/page.html", "file/page.html", "link"])
def test_directory_that_is_not_there_is_named_with_the_mend(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("absent/page.html")
    with pytest.raises(NotReplaceable, match=r"/(absent|file) is no directory: make it first, or write .* elsewhere"):
        replaceable(tmp_path / name)
