"""A table whose columns are the event's own fields is read without a mapping, and gives back the very same events."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from events_strategies import BASE, BROKEN, event_fields
from leap_features import archive, archive_reader, archive_rows
from leap_features.events import CompletionEvent, decode, encode
from leap_training.event_columns import EventColumns
from leap_training.mapping import MappingError, RowRejected
from leap_training.past_runs import Rejects, past_runs
from leap_training.run_commands import import_command
from leap_training.tables import Table

LENIENT = {"throughput as text", "an empty stem", "candidates that are no list"}
"""What a cell may say otherwise than an event: numbers and names as text, and nothing at all."""

numbers = st.floats(0, 1e9)
names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=20).filter(str.strip)
completion_events = st.builds(
    CompletionEvent,
    schema_version=st.just(1),
    attempt_id=names,
    job_name=names,
    job_family=st.none() | names,
    model_type=names,
    hardware_type=names,
    submitted_at=st.just(BASE),
    started_at=st.just(BASE + timedelta(seconds=1)),
    completed_at=st.integers(1_000_000, 10**12).map(lambda us: BASE + timedelta(microseconds=us)),
    status=st.sampled_from(["succeeded", "failed", "cancelled", "preempted"]),
    throughput=st.floats(1e-3, 1e9),
    trainer_count=st.integers(1, 2**31 - 1),
    reader_count=st.integers(0, 2**31 - 1),
    batch_size=numbers,
    device_hours=numbers,
    eligible_hardware=st.lists(names, max_size=3).map(tuple),
    config=st.dictionaries(names, st.booleans() | st.integers(-(2**53), 2**53) | numbers | names, max_size=3),
    architecture=st.dictionaries(names, numbers, max_size=3),
    ranking=st.none() | st.just({"decision": "d1", "order": ["H100"]}),
)


def rejected(row: dict[str, Any]) -> RowRejected:
    with pytest.raises(RowRejected) as caught:
        EventColumns().event(row)
    return caught.value


def column_row(event: CompletionEvent) -> dict[str, Any]:
    """The row of a Parquet table for `event`, of the archive's types."""
    row = {name: getattr(event, name) for name in event.__struct_fields__}
    for name in ("config", "architecture", "ranking"):
        row[name] = None if row[name] is None else json.dumps(row[name])
    return row | {"eligible_hardware": list(event.eligible_hardware)}


@given(completion_events)
def test_an_event_comes_back_from_a_line_of_json_and_from_columns(event: CompletionEvent) -> None:
    line: dict[str, Any] = msgspec.json.decode(encode(event))
    assert EventColumns().event(line) == event
    assert EventColumns().event(column_row(event)) == event


@pytest.mark.parametrize("case", sorted(set(BROKEN) - LENIENT))
def test_a_row_breaks_the_rules_that_an_event_breaks(case: str) -> None:
    changes, rule, named = BROKEN[case]
    error = rejected(event_fields(**changes))
    assert error.rule == rule
    assert named in str(error) or "required" in str(error)


def test_cells_of_text_are_taken_for_what_their_field_holds(tmp_path: Path) -> None:
    fields = event_fields(throughput=12.5, batch_size=32.0, architecture={"layers": 12.0})
    path = tmp_path / "runs.csv"
    cells = fields | {
        "eligible_hardware": ",".join(fields["eligible_hardware"]),
        "config": json.dumps(fields["config"]),
        "architecture": json.dumps(fields["architecture"]),
        "job_family": "",
    }
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(cells))
        writer.writeheader()
        writer.writerow(cells)
    with Table(path) as table, Rejects(None) as rejects:
        found = [run.event for run in past_runs(table, EventColumns(), rejects)]
    assert (found, rejects.first) == ([decode(json.dumps(fields).encode())], [])


def test_whole_numbers_may_come_as_floats_and_missing_ones_as_not_a_number() -> None:
    row = event_fields(trainer_count=8.0, reader_count=float("nan"), status="failed", throughput=float("nan"))
    event = EventColumns().event(row)
    assert (event.trainer_count, event.reader_count, event.throughput) == (8, 0, None)


def test_times_of_any_offset_become_utc() -> None:
    elsewhere = datetime(2026, 3, 1, 9, tzinfo=timezone(timedelta(hours=5)))
    event = EventColumns().event(event_fields(submitted_at=elsewhere, started_at=elsewhere, completed_at=elsewhere))
    assert event.completed_at == datetime(2026, 3, 1, 4, tzinfo=UTC)
    assert rejected(event_fields(completed_at=datetime(2026, 3, 1, 9))).rule == "completed_at"  # noqa: DTZ001


@pytest.mark.parametrize("text", ["precision=bf16", "[1]", '{"a": '])
def test_config_that_is_no_object_names_the_field_and_the_mend(text: str) -> None:
    error = rejected(event_fields(config=text))
    assert (error.rule, error.value) == ("config", text)
    assert f"config: must be an object or the JSON text of one, got {text!r}" in str(error)


def test_a_table_that_is_not_of_events_says_what_it_lacks_and_has_besides() -> None:
    columns = [*event_fields(), "team"]
    columns.remove("status")
    with pytest.raises(MappingError, match=r"lacks 'status' and has 'team' besides: say by --mapping"):
        EventColumns().check_columns(columns)
    with pytest.raises(MappingError, match=r"this one has 'digest', 'epoch', .*'x' besides"):
        EventColumns().check_columns(list(archive_rows.COLUMNS))


def test_the_truth_of_a_fleet_is_not_taken_for_its_events() -> None:
    truth = ["attempt_id", "model_type", "kind", "family", "hardware_type", "failure", "H100-SXM-80"]
    with pytest.raises(MappingError, match=r"the truth of a generated fleet.*completions\.parquet"):
        EventColumns().check_columns(truth)


def test_lines_of_something_else_are_refused_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"run": 1, "rate": 2.5}\n{"run": 2, "rate": 2.5}\n')
    with Table(path) as table, Rejects(None) as rejects, pytest.raises(MappingError, match=r"lacks 'attempt_id', "):
        list(past_runs(table, EventColumns(), rejects))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_table_of_events_is_imported_without_a_mapping(tmp_path: Path, suffix: str) -> None:
    events = [decode(json.dumps(event_fields(attempt_id=f"a{number}")).encode()) for number in range(3)]
    path, root = tmp_path / f"completions{suffix}", tmp_path / "archive"
    if suffix == ".jsonl":
        path.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    else:
        fields = [field for field in archive_rows.arrow_schema() if field.name in CompletionEvent.__struct_fields__]
        schema = pa.schema([field for field in fields if field.name != "job_family"])
        rows = [{name: row[name] for name in schema.names} for row in map(column_row, events)]
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    result = CliRunner().invoke(import_command, [str(path), "--archive", str(root)])
    assert result.exit_code == 0, result.output
    assert "3 runs added" in result.output
    with archive_reader.connect() as connection:
        found = connection.execute(archive_reader.relation(archive.segments(root), ["attempt_id", "config"])).fetchall()
    assert sorted(found) == [
        (event.attempt_id, json.dumps(event.config, separators=(",", ":"), sort_keys=True)) for event in events
    ]


def test_a_table_without_one_event_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text(json.dumps(event_fields(trainer_count=0)) + "\n")
    arguments = [str(path), "--archive", str(tmp_path / "archive"), "--rejects", str(tmp_path / "rejects.jsonl")]
    result = CliRunner().invoke(import_command, arguments)
    assert result.exit_code == 1
    assert "trainer_count" in result.output
    assert "no row is an event: say by --mapping which column is what" in result.output
