from __future__ import annotations

import gc
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leap_predictor.errors import StoreError
from leap_predictor.history.request import Reading
from leap_predictor.history.snapshot_reader import SnapshotReader
from small_snapshot import AS_OF, VIEWS, meta, rows_of, wanted, write
from stored_history import Subject

PATIENT_S = 30.0
NEVER_S = 3600.0
"""For a reader that looks at its file only when it is told to."""

SUBJECTS = [Subject("bert/train", "bert", f"H{number}", 8) for number in range(22)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.snapshot"


@pytest.fixture
def reader(path: Path) -> Iterator[SnapshotReader]:
    made = SnapshotReader(path, "leap", reload_every_s=NEVER_S)
    yield made
    made.close()


def read(reader: SnapshotReader) -> Reading:
    return reader.read(VIEWS, SUBJECTS, within_s=PATIENT_S)


def checked_in_the_background(reader: SnapshotReader) -> None:
    """Let the thread have its first look, after which it has none for an hour."""
    reader.warm_up()
    until = time.monotonic() + PATIENT_S
    while reader.as_of is None and time.monotonic() < until:
        time.sleep(0.001)


def counts(reading: Reading) -> set[object]:
    return {None if row is None else row.features["count"] for rows in reading.rows for row in rows.values()}


def running() -> int:
    return sum(thread.name == "leap-reload" for thread in threading.enumerate())


def test_file_is_served_once_it_has_been_checked_in_the_background(path: Path, reader: SnapshotReader) -> None:
    rows = rows_of(SUBJECTS)
    write(path, rows)
    checked_in_the_background(reader)
    assert reader.as_of == AS_OF
    assert reader.error is None
    reading = read(reader)
    assert reading.meta == meta()
    assert reading.rows == wanted(rows, SUBJECTS)


def test_nobody_waits_for_a_file_that_takes_long_to_open(path: Path, reader: SnapshotReader) -> None:
    os.mkfifo(path)  # to open it is to wait for a writer
    reader.warm_up()
    with pytest.raises(StoreError, match="still being checked"):
        read(reader)
    os.close(os.open(path, os.O_WRONLY))


def test_absent_file_is_an_error_until_it_is_there(path: Path, reader: SnapshotReader) -> None:
    reader.refresh()
    assert reader.as_of is None
    assert reader.error is not None
    with pytest.raises(StoreError, match=r"cannot be read.*leap snapshot"):
        read(reader)
    write(path, rows_of(SUBJECTS))
    reader.refresh()
    assert counts(read(reader)) == {1}


def test_newer_file_is_picked_up_in_the_background(path: Path) -> None:
    write(path, rows_of(SUBJECTS, count=1))
    reader = SnapshotReader(path, "leap", reload_every_s=0.01)
    reader.refresh()
    assert counts(read(reader)) == {1}
    write(path, rows_of(SUBJECTS, count=2))
    until = time.monotonic() + PATIENT_S
    while counts(read(reader)) == {1} and time.monotonic() < until:
        time.sleep(0.001)
    assert counts(read(reader)) == {2}
    reader.close()


def test_damaged_file_does_not_displace_the_one_that_serves(path: Path, reader: SnapshotReader) -> None:
    write(path, rows_of(SUBJECTS, count=1))
    reader.refresh()
    damaged = path.with_name("damaged")
    damaged.write_bytes(path.read_bytes()[:-1])
    damaged.rename(path)
    for _ in range(2):
        reader.refresh()
        assert reader.error is not None
        assert "damaged" in reader.error
        assert counts(read(reader)) == {1}
    write(path, rows_of(SUBJECTS, count=2))
    reader.refresh()
    assert reader.error is None
    assert counts(read(reader)) == {2}


def test_refused_file_is_not_read_again_until_it_changes(path: Path, reader: SnapshotReader) -> None:
    write(path, rows_of(SUBJECTS))
    whole, found = path.read_bytes(), path.stat()
    path.write_bytes(whole[:-1] + b"?")
    os.utime(path, ns=(0, found.st_mtime_ns))
    reader.refresh()
    assert reader.error is not None
    path.write_bytes(whole)  # so that reading it would go well
    os.utime(path, ns=(0, found.st_mtime_ns))
    reader.refresh()
    assert reader.error is not None
    os.utime(path, ns=(0, found.st_mtime_ns + 1))
    reader.refresh()
    assert reader.error is None
    assert counts(read(reader)) == {1}


def test_file_that_could_not_be_opened_for_want_of_descriptors_is_served_later(
    path: Path, reader: SnapshotReader
) -> None:
    write(path, rows_of(SUBJECTS))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
            reader.refresh()
            refused = reader.error
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            reader.refresh()
            code = 0 if refused is not None and counts(read(reader)) == {1} else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_file_that_was_removed_is_served_on(path: Path, reader: SnapshotReader) -> None:
    write(path, rows_of(SUBJECTS))
    reader.refresh()
    path.unlink()
    reader.refresh()
    assert reader.error is not None
    assert counts(read(reader)) == {1}


def test_file_that_was_written_over_in_place_is_refused_until_it_is_checked_again(
    path: Path, reader: SnapshotReader
) -> None:
    write(path, rows_of(SUBJECTS, count=1))
    checked_in_the_background(reader)
    other = path.with_name("other")
    write(other, rows_of(SUBJECTS[:3], count=2))
    path.write_bytes(other.read_bytes())
    with pytest.raises(StoreError, match="changed in place"):
        read(reader)
    reader.refresh()
    assert counts(read(reader)) == {2, None}


def test_snapshot_of_another_project_is_refused(path: Path, reader: SnapshotReader) -> None:
    write(path, rows_of(SUBJECTS), project="other")
    reader.refresh()
    with pytest.raises(StoreError, match=r"of project 'other'.*leap snapshot --project leap"):
        read(reader)


def test_threads_never_see_two_snapshots_in_one_reading_while_files_are_replaced(path: Path) -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # threads take turns often, and the writer gets its own
    write(path, rows_of(SUBJECTS, count=0), generation="0")
    reader = SnapshotReader(path, "leap", reload_every_s=0.001)
    reader.refresh()
    wrong: list[object] = []
    seen: set[str] = set()
    over = threading.Event()

    def ask() -> None:
        try:
            while not over.is_set():
                reading = read(reader)
                assert reading.meta is not None
                seen.add(reading.meta.generation)
                if counts(reading) != {int(reading.meta.generation)}:
                    wrong.append(reading)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    while "0" not in seen and not wrong:
        time.sleep(0.001)
    for number in range(1, 8):
        write(path, rows_of(SUBJECTS, count=number), generation=str(number))
    until = time.monotonic() + PATIENT_S
    while "7" not in seen and not wrong and time.monotonic() < until:
        time.sleep(0.001)
    over.set()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    reader.close()
    assert wrong == []
    assert {"0", "7"} <= seen


def test_child_after_a_fork_reads_on_and_notices_a_newer_file(path: Path) -> None:
    write(path, rows_of(SUBJECTS, count=1))
    reader = SnapshotReader(path, "leap", reload_every_s=0.01)
    reader.refresh()
    assert counts(read(reader)) == {1}
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert counts(read(reader)) == {1}
            write(path, rows_of(SUBJECTS, count=2))
            until = time.monotonic() + PATIENT_S
            while counts(read(reader)) == {1} and time.monotonic() < until:
                time.sleep(0.001)
            code = 0 if counts(read(reader)) == {2} else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    reader.refresh()
    assert counts(read(reader)) == {2}
    reader.close()


def test_closed_reader_raises_and_its_thread_is_gone(path: Path) -> None:
    before = running()
    reader = SnapshotReader(path, "leap")
    reader.warm_up()
    assert running() == before + 1
    reader.close()
    reader.close()
    assert running() == before
    with pytest.raises(StoreError, match="closed"):
        read(reader)
    reader.warm_up()
    assert running() == before


def test_reader_that_nobody_holds_any_more_ends_its_thread_and_lets_go_of_the_file(path: Path) -> None:
    def opened() -> int:
        return sum(os.path.realpath(number) == str(path) for number in Path("/proc/self/fd").iterdir())

    write(path, rows_of(SUBJECTS))
    before = running()
    reader = SnapshotReader(path, "leap", reload_every_s=0.01)
    reader.refresh()
    read(reader)
    assert running() == before + 1
    assert opened() > 0
    del reader
    gc.collect()
    until = time.monotonic() + PATIENT_S
    while (running() > before or opened()) and time.monotonic() < until:
        time.sleep(0.001)
    assert running() == before
    assert opened() == 0
