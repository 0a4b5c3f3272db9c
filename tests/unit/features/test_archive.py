"""The archive's format: segments appear whole, are never overwritten, and each position is read once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from archived_events import DAY_US, HORIZON_US, event, write_events
from events_strategies import BASE
from leap_features import archive, archive_reader
from leap_features.archive import ArchiveError, ArchiveHole
from leap_features.archive_rows import COLUMNS, arrow_schema
from leap_features.events import content_digest, fixed_log, to_us
from leap_features.history import Position
from leap_features.meta import FIRST_LIVE_EPOCH

EPOCH = FIRST_LIVE_EPOCH


def read(root: Path, *columns: str) -> list[tuple[object, ...]]:
    with archive_reader.connect() as connection:
        query = archive_reader.relation(archive.segments(root), columns)
        return sorted(connection.execute(query).fetchall())


def test_a_segment_lies_under_the_day_of_its_first_event_and_is_named_by_its_offsets(tmp_path: Path) -> None:
    path = write_events(tmp_path, [event("a"), event("b", 24 * 60)], partition=3, first=7)
    assert path.relative_to(tmp_path) == Path(
        "epoch=1000000/date=2026-03-01/p00003-00000000000000000007-00000000000000000008.parquet"
    )
    assert json.loads((tmp_path / "archive.json").read_text()) == {"format": 1}


def test_a_row_keeps_everything_that_history_and_training_need(tmp_path: Path) -> None:
    given = event("a", config={"precision": "bf16"}, architecture={"layers": 12.0}, ranking={"decision": "d"})
    (row,) = pq.read_table(write_events(tmp_path, [given], lag_us=5, replay=True)).to_pylist()
    assert list(row) == list(COLUMNS)
    assert row["recorded_at"] == BASE.replace(microsecond=5)
    assert (row["epoch"], row["partition"], row["offset"], row["replay"]) == (EPOCH, 0, 0, True)
    assert row["x"] == fixed_log(1000.0)
    assert row["log_batch"] == fixed_log(32)
    assert row["digest"] == content_digest(given)
    assert (row["job_family"], row["family_given"]) == ("ranker/ranker-prod", False)
    assert not row["unknown_hardware"]
    assert json.loads(row["config"]) == {"precision": "bf16"}
    assert json.loads(row["ranking"]) == {"decision": "d"}


@pytest.mark.parametrize("status", ["failed", "cancelled", "preempted"])
def test_an_attempt_that_did_not_succeed_has_no_logarithm_of_throughput(tmp_path: Path, status: str) -> None:
    path = write_events(tmp_path, [event("a", status=status, batch_size=0, hardware_type="home-made")])
    (row,) = pq.read_table(path).to_pylist()
    assert (row["x"], row["log_batch"]) == (None, None)
    assert row["log_trainers"] == fixed_log(8)
    assert row["unknown_hardware"]


@pytest.mark.parametrize(("stem", "given"), [(None, False), ("own", True), ("ranker/own", True), ("ranker/", False)])
def test_a_family_counts_as_given_where_the_rules_have_no_say(tmp_path: Path, stem: str | None, given: bool) -> None:
    (row,) = pq.read_table(write_events(tmp_path, [event("a", job_family=stem)])).to_pylist()
    assert row["family_given"] is given
    assert row["job_family"] == ("ranker/own" if given else "ranker/ranker-prod")


def test_a_segment_is_never_overwritten(tmp_path: Path) -> None:
    path = write_events(tmp_path, [event("a")])
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        write_events(tmp_path, [event("b")])
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_segment_may_cover_offsets_without_events(tmp_path: Path) -> None:
    archive.create(tmp_path)
    path = archive.write_segment(tmp_path, EPOCH, 0, 0, 9, [], recorded_at_us=to_us(BASE) + DAY_US)
    assert path.parent.name == "date=2026-03-02"
    assert pq.read_schema(path).equals(arrow_schema())
    assert archive.end_offsets(tmp_path, EPOCH) == {0: 10}
    assert read(tmp_path, "offset") == []


def test_records_outside_the_range_of_their_segment_are_refused(tmp_path: Path) -> None:
    archive.create(tmp_path)
    record = archive.to_record(event("a"), Position(EPOCH, 0, 5), to_us(BASE), False)
    with pytest.raises(ValueError, match="offsets 5 to 5 do not lie in segment 0 to 4"):
        archive.write_segment(tmp_path, EPOCH, 0, 0, 4, [record])


def test_overlapping_segments_are_read_once_per_position(tmp_path: Path) -> None:
    events = [event(f"a{i}", i) for i in range(10)]
    for first, last in ((0, 3), (2, 5), (0, 5), (4, 4), (6, 9)):
        write_events(tmp_path, events[first : last + 1], first=first)
    write_events(tmp_path, events[:2], partition=1)
    archive.check_complete(tmp_path)
    expected = [(0, i, f"a{i}") for i in range(10)] + [(1, i, f"a{i}") for i in range(2)]
    assert read(tmp_path, "partition", "offset", "attempt_id") == expected


def test_files_that_are_still_being_written_are_no_segments(tmp_path: Path) -> None:
    path = write_events(tmp_path, [event("a")])
    for name in (f".{path.name}.1.ab.tmp", f"{path.name}.part", "notes.txt"):
        (path.parent / name).write_bytes(b"half")
    (tmp_path / ".import-x").mkdir()
    (tmp_path / "epoch=1000000" / "lost+found").mkdir()
    assert [segment.path for segment in archive.segments(tmp_path)] == [path]
    assert read(tmp_path, "attempt_id") == [("a",)]


def test_a_gap_between_segments_is_a_hole(tmp_path: Path) -> None:
    write_events(tmp_path, [event("a")], first=4)
    archive.check_complete(tmp_path)  # a live epoch begins wherever the topic began
    write_events(tmp_path, [event("b")], first=9)
    with pytest.raises(ArchiveHole, match="partition 0 lacks offsets 5 to 8") as caught:
        archive.check_complete(tmp_path)
    hole = caught.value
    assert (hole.epoch, hole.partition, hole.first, hole.last) == (EPOCH, 0, 5, 8)
    assert archive.end_offsets(tmp_path, EPOCH) == {0: 5}


def test_an_import_that_does_not_begin_at_offset_0_is_a_hole(tmp_path: Path) -> None:
    write_events(tmp_path, [event("a")], epoch=1, first=4)
    with pytest.raises(ArchiveHole, match="epoch 1, partition 0 lacks offsets 0 to 3"):
        archive.check_complete(tmp_path)


@pytest.mark.parametrize(
    ("first", "complete"), [({(EPOCH, 0): 1}, True), ({(EPOCH, 0): 2}, False), ({(EPOCH, 1): 1}, False)]
)
def test_what_the_topic_has_deleted_the_archive_must_have(
    tmp_path: Path, first: dict[tuple[int, int], int], complete: bool
) -> None:
    write_events(tmp_path, [event("a")])
    if complete:
        archive.check_complete(tmp_path, first)
    else:
        with pytest.raises(ArchiveHole, match="the topic has deleted them already"):
            archive.check_complete(tmp_path, first)


def test_an_archive_that_begins_after_what_the_topic_still_has_has_lost_its_beginning(tmp_path: Path) -> None:
    write_events(tmp_path, [event("a")], first=4)
    archive.check_complete(tmp_path, {(EPOCH, 0): 4})
    with pytest.raises(ArchiveHole, match="partition 0 lacks offsets 3 to 3"):
        archive.check_complete(tmp_path, {(EPOCH, 0): 3})


def test_every_import_gets_an_epoch_of_its_own(tmp_path: Path) -> None:
    write_events(tmp_path, [event("a")])
    assert archive.next_import_epoch(tmp_path) == 1
    assert [archive.reserve_import_epoch(tmp_path) for _ in range(3)] == [1, 2, 3]
    assert archive.next_import_epoch(tmp_path) == 4


def test_the_path_of_an_archive_may_hold_any_character(tmp_path: Path) -> None:
    root = tmp_path / "it's [a] *strange* ?path"
    write_events(root, [event("a"), event("b")])
    write_events(root, [event("b"), event("c")], first=1)
    assert read(root, "attempt_id") == [("a",), ("b",), ("c",)]


def test_a_directory_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"is no archive: it has no archive\.json"):
        archive.segments(tmp_path)
    (tmp_path / "archive.json").write_text('{"format": 2}')
    with pytest.raises(ArchiveError, match="archive of format 2, this release reads format 1"):
        archive.create(tmp_path)
    (tmp_path / "archive.json").write_text("oops")
    with pytest.raises(ArchiveError, match=r"must be like"):
        archive.segments(tmp_path)


def test_an_attempt_is_found_at_its_first_position(tmp_path: Path) -> None:
    first, again, failed = event("a'1"), event("a'1", throughput=7.0), event("a'1", status="failed")
    write_events(tmp_path, [event("b"), first, failed, again])
    write_events(tmp_path, [again], epoch=EPOCH + 1)
    wanted = [(True, "a'1"), (False, "a'1"), (False, "b"), (True, "never")]
    assert archive.find_attempts(tmp_path, wanted, HORIZON_US) == {
        (True, "a'1"): (Position(EPOCH, 0, 1), content_digest(first)),
        (False, "a'1"): (Position(EPOCH, 0, 2), content_digest(failed)),
    }


def test_an_attempt_that_was_turned_away_as_too_late_is_not_found(tmp_path: Path) -> None:
    late = event("a")
    write_events(tmp_path, [late], lag_us=HORIZON_US + 1)
    assert archive.find_attempts(tmp_path, [(True, "a")], HORIZON_US) == {}
    write_events(tmp_path, [late], first=1, lag_us=HORIZON_US + 2, replay=True)
    assert archive.find_attempts(tmp_path, [(True, "a")], HORIZON_US) == {
        (True, "a"): (Position(EPOCH, 0, 1), content_digest(late))
    }


def test_of_two_partitions_the_one_that_recorded_an_attempt_earlier_has_it_first(tmp_path: Path) -> None:
    write_events(tmp_path, [event("a")], partition=0, lag_us=20)
    write_events(tmp_path, [event("a")], partition=1, lag_us=10)
    ((position, _),) = archive.find_attempts(tmp_path, [(True, "a")], HORIZON_US).values()
    assert position == Position(EPOCH, 1, 0)


def test_times_are_read_as_utc(tmp_path: Path) -> None:
    write_events(tmp_path, [event("a")])
    ((at,),) = read(tmp_path, "recorded_at")
    assert isinstance(at, datetime)
    assert at.astimezone(UTC) == BASE
