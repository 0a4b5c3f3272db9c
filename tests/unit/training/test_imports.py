"""Past runs become archive: in an epoch of their own, once each, whatever is wrong with some of the rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from archived_events import HORIZON_US, event, write_events
from leap_features import archive, archive_reader
from leap_features.archive import ArchiveError
from leap_features.history_build import build
from leap_training.imports import Imported, import_runs
from leap_training.mapping import MappingError, RunMapping
from leap_training.past_runs import Rejects, past_runs
from leap_training.run_commands import import_command
from leap_training.tables import Table

MAPPING = """
[event]
attempt_id = "{id}"
job_name = "{job}"
model_type = "ranker"
hardware_type = "H100-SXM-80"
status = "{status}"
throughput = "{rate}"
trainer_count = 8
started_at = "{end}"
completed_at = "{end}"
"""
COLUMNS = ("id", "job", "status", "rate", "end")
Run = tuple[str, str, str, str, str]


def run(attempt_id: str, minute: int = 0, rate: object = 100.0, status: str = "succeeded") -> Run:
    return (attempt_id, "team-prod", status, str(rate), f"2026-03-01T12:{minute:02}:00Z")


def write_table(path: Path, runs: Sequence[Run]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(runs)
    return path


def imported(tmp_path: Path, runs: Sequence[Run], **options: Any) -> tuple[Imported, list[dict[str, Any]]]:
    """What comes of importing `runs` into the archive under `tmp_path`, and the lines of the rejects' file."""
    table_path = write_table(tmp_path / "runs.csv", runs)
    rejects_path = tmp_path / "rejects.jsonl"
    rejects_path.unlink(missing_ok=True)
    mapping = RunMapping(msgspec.toml.decode(MAPPING))
    with Table(table_path) as table, Rejects(rejects_path) as rejects:
        events = past_runs(table, mapping, rejects)
        made = import_runs(tmp_path / "archive", events, rejects, horizon_us=HORIZON_US, **options)
    lines = rejects_path.read_bytes().splitlines() if rejects_path.exists() else []
    return made, [msgspec.json.decode(line) for line in lines]


def archived(root: Path, *columns: str) -> list[tuple[Any, ...]]:
    with archive_reader.connect() as connection:
        query = archive_reader.relation(archive.segments(root), columns)
        return connection.execute(f"SELECT * FROM ({query}) ORDER BY ALL").fetchall()


def counts(tmp_path: Path) -> Mapping[str, int]:
    """Attempts that history counts."""
    made = build(tmp_path / "archive", tmp_path / "history", horizon_us=HORIZON_US)
    return {"folded": made.counts.folded, "conflicts": made.counts.conflicts}


def test_runs_are_recorded_when_they_completed_in_the_order_of_completion(tmp_path: Path) -> None:
    made, rejects = imported(tmp_path, [run("c", 2), run("b", 1), run("a", 2), run("d", 0)])
    assert (made, rejects) == (Imported(1, 4, 0, 0, 0), [])
    found = archived(tmp_path / "archive", "epoch", "partition", "offset", "attempt_id")
    assert found == [(1, 0, 0, "d"), (1, 0, 1, "b"), (1, 0, 2, "a"), (1, 0, 3, "c")]
    for recorded, completed, replay in archived(tmp_path / "archive", "recorded_at", "completed_at", "replay"):
        assert recorded == completed
        assert not replay
    archive.check_complete(tmp_path / "archive")


def test_importing_the_same_runs_twice_adds_nothing(tmp_path: Path) -> None:
    runs = [run("a"), run("b", 1, status="failed"), run("c", 2, status="cancelled")]
    imported(tmp_path, runs)
    made, rejects = imported(tmp_path, [*runs, run("d", 3)])
    assert (made, rejects) == (Imported(2, 1, 3, 0, 0), [])
    assert imported(tmp_path, runs)[0] == Imported(None, 0, 3, 0, 0)
    assert archive.next_import_epoch(tmp_path / "archive") == 3
    assert counts(tmp_path) == {"folded": 3, "conflicts": 0}


def test_a_row_that_repeats_another_is_counted_and_left_out(tmp_path: Path) -> None:
    made, rejects = imported(tmp_path, [run("a"), run("b"), run("a")])
    assert (made, rejects) == (Imported(1, 2, 0, 1, 0), [])


def test_an_attempt_of_other_content_is_set_aside(tmp_path: Path) -> None:
    imported(tmp_path, [run("a")])
    made, rejects = imported(tmp_path, [run("a", rate=5), run("b", rate=6), run("b", rate=7)])
    assert made == Imported(2, 1, 0, 0, 2)
    assert [(line["row"], line["rule"], line["value"]) for line in rejects] == [
        (1, "conflicting_attempt", "a"),
        (3, "conflicting_attempt", "b"),
    ]
    assert "in the archive with other content" in rejects[0]["message"]
    assert "in an earlier row with other content" in rejects[1]["message"]
    assert counts(tmp_path) == {"folded": 2, "conflicts": 0}


def test_success_and_failure_of_one_attempt_are_two_things(tmp_path: Path) -> None:
    made, _ = imported(tmp_path, [run("a"), run("a", status="failed")])
    assert made == Imported(1, 2, 0, 0, 0)


def test_a_live_attempt_is_not_imported_again(tmp_path: Path) -> None:
    live = event("a", job_name="team-prod")
    write_events(tmp_path / "archive", [live])
    made, (line,) = imported(tmp_path, [run("a"), run("b")])
    assert made == Imported(1, 1, 0, 0, 1)
    assert line["value"] == "a"


def test_one_row_with_throughput_0_is_set_aside_and_the_import_goes_on(tmp_path: Path) -> None:
    # calo-forest#1: one row with throughput 0 in a month of data
    runs = [run(f"a{i}", i) for i in range(30)]
    runs[17] = run("a17", 17, rate=0)
    made, (line,) = imported(tmp_path, runs)
    assert made.added == 29
    assert (line["row"], line["rule"], line["value"]) == (18, "throughput", 0.0)
    assert "throughput must be > 0 for a succeeded attempt, got 0.0" in line["message"]
    assert "give it the status failed" in line["mend"]
    assert line["columns"]["id"] == "a17"


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    made, _ = imported(tmp_path, [run("a"), run("b")], dry_run=True)
    assert made == Imported(None, 2, 0, 0, 0)
    assert not (tmp_path / "archive").exists()


def test_an_archive_of_another_format_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "archive.json").write_text('{"format": 2}')
    with pytest.raises(ArchiveError, match="format 2"):
        imported(tmp_path, [run("a")])


def test_a_failed_import_leaves_nothing_behind(tmp_path: Path) -> None:
    table_path = tmp_path / "runs.csv"
    table_path.write_text("id,job\na,b\n")
    with Table(table_path) as table, Rejects(None) as rejects:
        events = past_runs(table, RunMapping(msgspec.toml.decode(MAPPING)), rejects)
        with pytest.raises(MappingError, match="no column 'end'"):
            import_runs(tmp_path / "archive", events, rejects, horizon_us=HORIZON_US)
    assert [entry.name for entry in (tmp_path / "archive").iterdir()] == ["archive.json"]


def test_many_runs_become_segments_without_a_hole(tmp_path: Path) -> None:
    runs = [run(f"a{i:05}", i % 60) for i in range(45_000)]
    made, _ = imported(tmp_path, runs)
    archive.check_complete(tmp_path / "archive")
    assert made.added == 45_000
    assert archive.end_offsets(tmp_path / "archive", 1) == {0: 45_000}
    found = archived(tmp_path / "archive", "offset", "completed_at", "attempt_id")
    assert [offset for offset, *_ in found] == list(range(45_000))
    assert [row[1:] for row in found] == sorted(row[1:] for row in found)


class TestCommand:
    """`leap import`."""

    def test_it_says_what_was_added_and_what_was_set_aside(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "m.toml").write_text(MAPPING)
        table = write_table(tmp_path / "runs.csv", [run("a"), run("b", rate="x"), run("c")])
        arguments = [str(table), "--mapping", "m.toml", "--archive", "archive"]
        dry = CliRunner().invoke(import_command, [*arguments, "--dry-run"])
        assert (dry.exit_code, (tmp_path / "archive").exists()) == (0, False)
        assert "2 runs would be added to archive; nothing was written" in dry.output
        assert list(tmp_path.glob("*.rejects.jsonl")) == []
        first = CliRunner().invoke(import_command, arguments)
        assert first.exit_code == 0, first.output
        assert "1 rows set aside (throughput 1), see runs.csv.rejects.jsonl" in first.output
        assert "row 2: throughput: must be a number, got 'x'" in first.output
        assert "2 runs added to archive as epoch 1" in first.output
        again = CliRunner().invoke(import_command, arguments)
        assert "2 runs are in the archive already: left out" in again.output

    def test_a_mapping_that_fits_no_row_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "m.toml").write_text(MAPPING.replace("trainer_count = 8", "trainer_count = 0"))
        table = write_table(tmp_path / "runs.csv", [run("a")])
        result = CliRunner().invoke(import_command, [str(table), "--mapping", "m.toml", "--archive", "archive"])
        assert result.exit_code == 1
        assert "no row is an event: check the mapping" in result.output


def test_a_column_that_no_line_of_json_has_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    row = dict(zip(COLUMNS, run("a"), strict=True))
    path.write_bytes(msgspec.json.encode(row) + b"\n" + msgspec.json.encode(row | {"id": "b", "batch": 8}) + b"\n")
    entries = msgspec.toml.decode(MAPPING)["event"]
    for column, good in (("batch", True), ("btach", False)):
        mapping = RunMapping({"event": entries | {"batch_size": f"{{{column}}}"}})
        with Table(path) as table, Rejects(None) as rejects:
            if good:
                assert [one.event.batch_size for one in past_runs(table, mapping, rejects)] == [0.0, 8.0]
            else:
                events = past_runs(table, mapping, rejects)
                with pytest.raises(MappingError, match=r"the table has no column 'btach'; it has .*'batch'"):
                    import_runs(tmp_path / "archive", events, rejects, horizon_us=HORIZON_US)
    assert archive.segments(tmp_path / "archive") == []
