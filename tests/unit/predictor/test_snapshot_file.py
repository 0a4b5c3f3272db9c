from __future__ import annotations

import hashlib
import itertools
import math
import os
import random
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history.snapshot_file import MAGIC, TRAILER, SnapshotFile, SnapshotRefused, encode_key
from leap_predictor.history.snapshot_writer import SnapshotRow, write_snapshot
from small_snapshot import AS_OF, VIEWS, meta, rows_of, values, wanted, write
from stored_history import Subject

LATER = math.inf


def subject(number: int = 0) -> Subject:
    return Subject(f"bert/train-{number}", "bert", "H100-SXM-80", 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.snapshot"


def test_rows_come_back_as_they_were_written_and_absent_ones_as_none(path: Path) -> None:
    odd = {
        "last": None,
        "mean": -0.0,
        "std": math.inf,
        "count": 0,
        "last_seen": -(2**63),
        "last_hardware_type": "H100 ×2 🚀",
        "last_trainer_count": 2**63 - 1,
    }
    rows = rows_of([subject(number) for number in range(100)]) | rows_of(
        [Subject("bért-日本/Ünï 🚀:x", "bért-日本", "", 2**62)], **odd
    )
    write(path, rows)
    asked = [subject(3), subject(1000), Subject("bért-日本/Ünï 🚀:x", "bért-日本", "", 2**62), subject(3)]
    reading = SnapshotFile(path).read(VIEWS, asked, until=LATER)
    assert reading.meta == meta()
    assert not reading.torn
    assert reading.rows == wanted(rows, asked)
    mean = reading.rows[2]["family_history"].features["mean"]  # type: ignore[union-attr]
    assert math.copysign(1, mean) == -1


def test_nan_keeps_its_place(path: Path) -> None:
    write(path, rows_of([subject()], last=math.nan))
    row = SnapshotFile(path).read(VIEWS, [subject()], until=LATER).rows[0]["model_history"]
    assert row is not None
    assert math.isnan(row.features["last"])  # type: ignore[arg-type]


def test_snapshot_of_no_rows_answers_that_there_are_none(path: Path) -> None:
    footer = write(path, {})
    assert sum(footer.rows.values()) == 0
    assert SnapshotFile(path).read(VIEWS, [subject()], until=LATER).rows == wanted({}, [subject()])


def test_of_rows_of_one_key_the_last_stays(path: Path) -> None:
    view = VIEWS[0]
    rows = [SnapshotRow(view, ("bert/train-0",), values(count=count), count) for count in (1, 2, 3)]
    footer = write_snapshot(path, rows, views=VIEWS, project="leap", meta=meta(), as_of=AS_OF)
    assert footer.rows[view.view] == 1
    row = SnapshotFile(path).read(VIEWS, [subject()], until=LATER).rows[0][view.view]
    assert row is not None
    assert (row.features["count"], row.recorded_at_us) == (3, 3)


def test_keys_of_equal_checksum_are_told_apart(path: Path) -> None:
    # By the birthday paradox about ten pairs of 300,000 keys have the same CRC-32, if the names have no order.
    seen: dict[int, str] = {}
    pairs = []
    draw = random.Random(1)
    for _ in range(300_000):
        name = f"bert/{draw.getrandbits(128):032x}"
        before = seen.setdefault(zlib.crc32(encode_key((0, name))), name)
        if before != name:
            pairs.append((before, name))
    assert len(pairs) >= 2
    (first, second), (there, absent) = pairs[:2]
    view = VIEWS[0]
    rows = {
        (view, (first,)): (1, values(count=1)),
        (view, (second,)): (2, values(count=2)),
        (view, (there,)): (3, values(count=3)),
    }
    write(path, rows)
    asked = [Subject(name, "bert", "H100", 8) for name in (first, second, there, absent)]
    found = SnapshotFile(path).read((view,), asked, until=LATER).rows
    assert [row[view.view] and row[view.view].features["count"] for row in found] == [1, 2, 3, None]  # type: ignore[union-attr]


def test_refused_file_is_closed_though_its_error_is_kept(path: Path) -> None:
    path.write_bytes(b"no snapshot" * 100)
    with pytest.raises(StoreError) as caught:
        SnapshotFile(path)
    assert str(path) in str(caught.value)
    assert str(path) not in {os.path.realpath(number) for number in Path("/proc/self/fd").iterdir()}


def places(size: int) -> Iterator[int]:
    """Every place near the beginning and the end of a file, and every third between."""
    return (at for at in range(size) if at < 100 or at >= size - 100 or at % 3 == 0)


def test_every_truncation_is_refused(path: Path) -> None:
    write(path, rows_of([subject(), subject(1)]))
    whole = path.read_bytes()
    for length in places(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match="damaged"):
            SnapshotFile(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(StoreError, match="damaged"):
        SnapshotFile(path)


def test_every_flipped_bit_is_refused(path: Path) -> None:
    write(path, rows_of([subject(), subject(1)]))
    whole = path.read_bytes()
    draw = random.Random(0)
    for at in places(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(StoreError, match="damaged"):
            SnapshotFile(path)


def test_bytes_that_change_after_the_check_are_refused_when_they_are_asked_for(path: Path) -> None:
    asked = [subject(), subject(1)]
    rows = rows_of(asked)
    write(path, rows)
    whole, found = path.read_bytes(), path.stat()
    for at in range(8, SnapshotFile(path).footer.size):
        opened = SnapshotFile(path)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes((whole[at] ^ 0x10,)))
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))  # as a disk would: nobody knows of a change
        try:
            reading = opened.read(VIEWS, asked, until=LATER)
        except StoreError:
            pass
        else:
            assert reading.rows == wanted(rows, asked)  # a bucket that is asked for by none of these
        path.write_bytes(whole)
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_file_that_was_cut_short_in_place_is_refused_and_ends_no_process(path: Path) -> None:
    write(path, rows_of([subject(number) for number in range(2000)]))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            opened = SnapshotFile(path)
            os.truncate(path, 100)
            opened.read(VIEWS, [subject(number) for number in range(2000)], until=LATER)
        except StoreError as error:
            code = 0 if "in place" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_file_that_was_replaced_by_a_rename_stays_readable(path: Path) -> None:
    before = rows_of([subject()], count=1)
    write(path, before)
    opened = SnapshotFile(path)
    write(path, rows_of([subject()], count=2), generation="g2")
    assert opened.read(VIEWS, [subject()], until=LATER).rows == wanted(before, [subject()])
    assert SnapshotFile(path).read(VIEWS, [subject()], until=LATER).meta == meta("g2")


def test_time_that_is_over_is_a_timeout(path: Path) -> None:
    write(path, rows_of([subject()]))
    with pytest.raises(StoreTimeout):
        SnapshotFile(path).read(VIEWS, [subject()], until=time.monotonic() - 1)


def test_view_that_the_snapshot_lacks_is_named(path: Path) -> None:
    write(path, {})
    other = msgspec.structs.replace(VIEWS[0], features=VIEWS[0].features[:-1])
    with pytest.raises(StoreError, match="no view 'family_history' with the bundle's join keys and features"):
        SnapshotFile(path).read((other,), [subject()], until=LATER)


def with_footer(path: Path, **changes: object) -> None:
    """Change the footer of the snapshot and make its digest right again."""
    whole = path.read_bytes()
    length, _, _ = TRAILER.unpack(whole[-TRAILER.size :])
    before, raw = whole[: -TRAILER.size - length], whole[-TRAILER.size - length : -TRAILER.size]
    raw = msgspec.json.encode(msgspec.json.decode(raw) | changes)
    path.write_bytes(before + raw + TRAILER.pack(len(raw), hashlib.sha256(raw).digest(), MAGIC))


def test_another_format_is_refused_whatever_else_it_says(path: Path) -> None:
    write(path, {})
    with_footer(path, format=2, library_version="9.9", something="new")
    with pytest.raises(SnapshotRefused, match=r"has format 2 \(written by leap-throughput 9.9\).*reads format 1"):
        SnapshotFile(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"something": "new"},
        {"bucket_bits": 5},
        {"bucket_bits": 28},
        {"size": 0},
        {"as_of": "2026-03-01T04:00:00"},
        {"sha256": ""},
        {"views": [{"view": "family_history"}]},
    ],
)
def test_footer_that_breaks_a_rule_is_refused(path: Path, changes: dict[str, object]) -> None:
    write(path, {})
    with_footer(path, **changes)
    with pytest.raises(SnapshotRefused, match="damaged"):
        SnapshotFile(path)


def test_absent_file_is_named_with_the_mend(path: Path) -> None:
    with pytest.raises(StoreError, match=f"{path.name} cannot be read.*leap snapshot"):
        SnapshotFile(path)


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        SnapshotFile(tmp_path)


def test_writer_that_fails_leaves_what_was_there(path: Path) -> None:
    before = rows_of([subject()])
    write(path, before)

    def broken() -> itertools.chain[SnapshotRow]:
        def fail() -> SnapshotRow:
            raise StoreError("the store went away")

        good = SnapshotRow(VIEWS[0], ("bert/other",), values(), 1)
        return itertools.chain([good], (fail() for _ in range(1)))

    with pytest.raises(StoreError, match="went away"):
        write_snapshot(path, broken(), views=VIEWS, project="leap", meta=meta(), as_of=AS_OF)
    assert SnapshotFile(path).read(VIEWS, [subject()], until=LATER).rows == wanted(before, [subject()])
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_files_of_writers_that_were_killed_are_removed_a_day_later(path: Path) -> None:
    old, young = path.with_name(f".{path.name}.1.0123abcd.tmp"), path.with_name(f".{path.name}.2.0123abcd.tmp")
    for left in (old, young):
        left.write_bytes(b"half a snapshot")
    os.utime(old, (0, 0))
    write(path, {})
    assert sorted(path.parent.iterdir()) == sorted([young, path])
