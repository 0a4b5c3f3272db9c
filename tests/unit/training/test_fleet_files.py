"""A generated fleet on disk: the same seed gives the same bytes, events are valid, and the truth lies beside them."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from leap_features.durable import NotReplaceable
from leap_features.events import CompletionEvent, decode, encode
from leap_features.family import family_of
from leap_training.event_columns import EventColumns
from leap_training.fleet.events import truth_table
from leap_training.fleet.files import (
    EVENTS,
    FleetExists,
    Format,
    HardwareEntry,
    NoFleet,
    read_description,
    write_fleet,
)
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.simulate import Fleet
from leap_training.past_runs import Rejects, past_runs
from leap_training.tables import Table

SMALL = FleetSettings(days=3, attempts_per_day=700, hardware=9, seed=3, new_hardware_days=(2,))


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def written(directory: Path, kind: Format = "parquet", settings: FleetSettings = SMALL) -> dict[str, bytes]:
    """Name → content of the files of a fleet that is written now."""
    write_fleet(Fleet(settings), directory, kind)
    return files(directory)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a fleet, its events as Parquet."""
    directory = tmp_path_factory.mktemp("fleet") / "parquet"
    written(directory)
    return directory


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the same fleet, its events as JSON Lines."""
    directory = tmp_path_factory.mktemp("fleet") / "lines"
    written(directory, "jsonl")
    return directory


@pytest.fixture(scope="module")
def events(lines: Path) -> list[CompletionEvent]:
    return [decode(line) for line in (lines / EVENTS["jsonl"]).read_bytes().splitlines()]


@pytest.fixture(scope="module")
def truth(parquet: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(parquet / "truth.parquet").to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_one_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path, kind: Format) -> None:
    first, second = written(tmp_path / "a", kind), written(tmp_path / "b", kind)
    assert first == second
    assert set(first) == {EVENTS[kind], "truth.parquet", "fleet.json"}
    other = written(tmp_path / "c", kind, msgspec.structs.replace(SMALL, seed=4))
    assert all(other[name] != content for name, content in first.items())


def test_lines_are_the_encoding_of_their_events(lines: Path, events: list[CompletionEvent]) -> None:
    assert (lines / EVENTS["jsonl"]).read_bytes() == b"".join(encode(event) + b"\n" for event in events)


def test_both_formats_say_the_same(parquet: Path, lines: Path, events: list[CompletionEvent]) -> None:
    with Table(parquet / EVENTS["parquet"]) as table, Rejects(None) as rejects:
        assert [run.event for run in past_runs(table, EventColumns(), rejects)] == events
    assert rejects.first == []
    assert (parquet / "truth.parquet").read_bytes() == (lines / "truth.parquet").read_bytes()


def test_attempts_are_told_apart_and_come_in_order_of_completion(events: list[CompletionEvent]) -> None:
    assert len({event.attempt_id for event in events}) == len(events) == SMALL.attempts
    assert [event.completed_at for event in events] == sorted(event.completed_at for event in events)


def test_the_truth_has_a_row_for_each_event(events: list[CompletionEvent], truth: list[dict[str, Any]]) -> None:
    for event, row in zip(events, truth, strict=True):
        said = (row["attempt_id"], row["model_type"], row["hardware_type"])
        assert said == (event.attempt_id, event.model_type, event.hardware_type)


def test_the_truth_expects_something_of_the_candidates_alone(
    events: list[CompletionEvent], truth: list[dict[str, Any]]
) -> None:
    hardware = Fleet(SMALL).hardware
    for event, row in zip(events, truth, strict=True):
        assert {name for name in hardware if row[name] is not None} == set(event.eligible_hardware)
        assert event.hardware_type in event.eligible_hardware


def test_events_do_not_say_why_an_attempt_failed(events: list[CompletionEvent], truth: list[dict[str, Any]]) -> None:
    assert "crash" in {row["failure"] for row in truth}
    for event, row in zip(events, truth, strict=True):
        assert (event.status == "failed") == (row["failure"] != "")
        assert (row[event.hardware_type] == 0) == (row["failure"] == "out_of_memory")
        assert event.config.keys() <= {"precision", "sequence_length"}


def test_a_candidate_without_enough_memory_is_expected_to_give_nothing_and_no_candidate_has_no_figure() -> None:
    fleet = Fleet(SMALL)
    batch = next(fleet.batches())
    expected = np.full_like(batch.expected, np.nan)
    expected[:, 0], expected[:, 1] = 0.0, 2.5
    table = truth_table(fleet, dataclasses.replace(batch, expected=expected))
    for name, value in zip(fleet.hardware, (0.0, 2.5, None), strict=False):
        assert set(table[name].to_pylist()) == {value}


def test_families_derived_from_names_are_the_true_ones(
    events: list[CompletionEvent], truth: list[dict[str, Any]]
) -> None:
    true_of, derived_of = defaultdict(set), defaultdict(set)
    for event, row in zip(events, truth, strict=True):
        derived = family_of(event.model_type, event.job_name)
        true_of[derived].add(row["family"])
        derived_of[row["family"]].add(derived)
    assert len(true_of) > 100
    assert {len(families) for families in (*true_of.values(), *derived_of.values())} == {1}


def test_the_description_says_what_the_fleet_was_made_from(parquet: Path) -> None:
    description = read_description(parquet)
    assert description.settings == SMALL
    assert (description.attempts, description.format) == (SMALL.attempts, "parquet")
    assert description.models == SMALL.model_type_count
    assert [entry.available_from_day for entry in description.hardware].count(2) == 1
    fleet = Fleet(SMALL)
    assert description.hardware[0] == HardwareEntry(
        fleet.hardware[0], float(fleet.hourly_cost_usd[0]), fleet.available_from_day[0]
    )


def test_a_fleet_is_not_overwritten_unless_it_is_meant(tmp_path: Path) -> None:
    before = written(tmp_path, "jsonl")
    other = Fleet(msgspec.structs.replace(SMALL, seed=4))
    with pytest.raises(FleetExists, match=r"has fleet\.json already: give another --out, .* --force"):
        write_fleet(other, tmp_path, "parquet")
    assert files(tmp_path) == before
    write_fleet(other, tmp_path, "parquet", force=True)
    assert set(files(tmp_path)) == {"completions.parquet", "truth.parquet", "fleet.json"}
    assert read_description(tmp_path).settings.seed == 4


def test_what_is_no_file_is_not_replaced_though_it_is_meant(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "truth.parquet")
    with pytest.raises(NotReplaceable, match=r"truth\.parquet is a pipe, which no file may replace"):
        write_fleet(Fleet(SMALL), tmp_path, "jsonl", force=True)
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


def test_a_fleet_that_was_broken_off_leaves_what_was_there(tmp_path: Path) -> None:
    before = written(tmp_path, "jsonl")

    def broken_off(_attempts: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_fleet(Fleet(SMALL), tmp_path, "jsonl", force=True, progress=broken_off)
    assert files(tmp_path) == before


def test_progress_counts_every_attempt(tmp_path: Path) -> None:
    counted: list[int] = []
    write_fleet(Fleet(SMALL), tmp_path, "jsonl", progress=counted.append)
    assert sum(counted) == SMALL.attempts
    assert len(counted) > SMALL.days


def test_a_directory_without_a_whole_fleet_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(NoFleet, match=r"has no fleet\.json, so no whole fleet: make one by `leap fleet generate`"):
        read_description(tmp_path)
    (tmp_path / "fleet.json").write_text('{"settings": {"days": "many"}}')
    with pytest.raises(NoFleet, match="describes no fleet"):
        read_description(tmp_path)


def test_times_are_those_of_the_days_asked_for(events: list[CompletionEvent]) -> None:
    submitted = [event.submitted_at for event in events]
    assert min(submitted) >= SMALL.start == datetime(2026, 1, 1, tzinfo=UTC)
    assert max(submitted) < datetime(2026, 1, 4, tzinfo=UTC)


def test_what_a_killed_generation_left_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, fresh = tmp_path / ".truth.parquet.4711.0a1b2c3d.tmp", tmp_path / ".truth.parquet.4712.0a1b2c3d.tmp"
    for left in (old, fresh):
        left.touch()
    os.utime(old, (0, 0))

    written(tmp_path)

    assert not old.exists()
    assert fresh.exists()
