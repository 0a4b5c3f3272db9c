"""The training set: every succeeded attempt, with what was known when it was submitted and nothing more."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from archived_events import DAY_US, HORIZON_US, MINUTE_US, event, write_events
from events_strategies import BASE
from leap_features import archive, history_build
from leap_features.events import CompletionEvent, check_recorded, from_us, to_us
from leap_features.family import DEFAULT_RULES, family_of_event
from leap_features.history import EMPTY, FEATURES, Position, Row, features, fold, run_of
from leap_features.levels import LEVELS, Level
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_training.dataset import DatasetError, Written, write_dataset
from leap_training.run_commands import dataset_command
from recorded_events import Recorded, Subject

FEATURE_REPO = Path(__file__).parents[3] / "feature_repo"
KEPT = [name for name, _ in FEATURES if name not in ("state", "version")]


@pytest.fixture
def deployment(tmp_path: Path) -> Settings:
    return Settings(
        archive=str(tmp_path / "archive"),
        history=str(tmp_path / "history"),
        feature_repo=str(FEATURE_REPO),
        redis_url="redis://localhost:1/0",  # nothing listens there: a training set needs no online store
    )


def written(settings: Settings, out: Path, **options: Any) -> tuple[Written, list[dict[str, Any]]]:
    made = write_dataset(settings, out, rules=DEFAULT_RULES, **options)
    return made, pq.read_table(out).to_pylist()


def fleet(seed: int) -> list[Recorded]:
    """Attempts of a small fleet in the order of recording, with duplicates, late events and odd clocks."""
    draw = random.Random(seed)
    sent: list[tuple[int, bool, CompletionEvent]] = []
    for number in range(400):
        completed_us = to_us(BASE) + draw.randrange(20 * DAY_US)
        duration_us = draw.choice([0, MINUTE_US, 90 * MINUTE_US, draw.randrange(DAY_US)])
        lag_us = draw.choice([-4 * MINUTE_US, 0, 0, draw.randrange(2 * DAY_US), 8 * DAY_US])
        status = draw.choice(["succeeded"] * 6 + ["failed", "failed", "cancelled"])
        attempt = event(
            f"attempt-{number}",
            (completed_us - to_us(BASE)) / MINUTE_US,
            model_type=draw.choice(["a", "b"]),
            job_family=draw.choice(["heavy", "heavy", "heavy", "light", f"once-{number}"]),
            hardware_type=draw.choice(["H100-SXM-80", "home-made"]),
            trainer_count=draw.choice([8, 64]),
            batch_size=draw.choice([0, 0.5, 32]),
            submitted_at=from_us(completed_us - duration_us).isoformat(),
            started_at=from_us(completed_us - duration_us // 2).isoformat(),
            status=status,
            throughput=draw.lognormvariate(5, 2) if status == "succeeded" else None,
        )
        sent.append((to_us(attempt.completed_at) + lag_us, draw.random() < 0.1, attempt))
        if draw.random() < 0.1:
            sent.append((to_us(attempt.completed_at) + lag_us + DAY_US, True, attempt))
    sent.sort(key=lambda record: record[0])
    ends = {"a": 0, "b": 0}
    recorded = []
    for recorded_at_us, replay, attempt in sent:
        partition, offset = int(attempt.model_type == "b"), ends[attempt.model_type]
        ends[attempt.model_type] += 1
        recorded.append(Recorded(Position(FIRST_LIVE_EPOCH, partition, offset), recorded_at_us, replay, attempt))
    return recorded


def counted(recorded: list[Recorded]) -> Iterator[Recorded]:
    """Those that count in history: the first of each attempt, unless it came too late."""
    seen: set[tuple[str, str]] = set()
    for one in recorded:
        identity = (one.event.attempt_id, one.event.status)
        late = one.recorded_at_us - to_us(one.event.completed_at) > HORIZON_US
        if one.event.status in ("succeeded", "failed") and (one.replay or not late) and identity not in seen:
            check_recorded(one.event, one.recorded_at_us, HORIZON_US, one.replay)
            seen.add(identity)
            yield one


def subject(event: CompletionEvent) -> Subject:
    return Subject(family_of_event(event), event.model_type, event.hardware_type, event.trainer_count)


def known_history(history: list[Recorded], level: Level, asked: CompletionEvent) -> Row:
    """Brute force: all that was recorded under the key of `asked` by the time of its submission."""
    row = EMPTY
    for one in history:
        known = one.recorded_at_us <= to_us(asked.submitted_at)
        if known and level.key(subject(one.event)) == level.key(subject(asked)):
            run = run_of(one.event)
            assert run is not None
            assert one.event.attempt_id != asked.attempt_id, "an attempt sees itself"
            row = fold(row, run, one.position, one.recorded_at_us)
    return row


def write_fleet(root: str, recorded: list[Recorded]) -> None:
    archive.create(root)
    for partition in (0, 1):
        records = [
            archive.to_record(one.event, one.position, one.recorded_at_us, one.replay)
            for one in recorded
            if one.position.partition == partition
        ]
        archive.write_segment(root, FIRST_LIVE_EPOCH, partition, 0, len(records) - 1, records)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_attempt_has_the_history_that_was_recorded_by_its_submission(
    deployment: Settings, tmp_path: Path, seed: int
) -> None:
    recorded = fleet(seed)
    write_fleet(deployment.archive, recorded)
    made, rows = written(deployment, tmp_path / "training.parquet")

    history = list(counted(recorded))
    succeeded = [one for one in history if one.event.status == "succeeded"]
    asked = [one for one in succeeded if one.recorded_at_us > to_us(one.event.submitted_at)]
    cold = 0
    assert len({row["attempt_id"] for row in rows}) == len(rows)
    by_id = {row["attempt_id"]: row for row in rows}
    assert set(by_id) == {one.event.attempt_id for one in asked}
    for one in asked:
        row, attempt = by_id[one.event.attempt_id], one.event
        of_levels = {level: known_history(history, level, attempt) for level in LEVELS}
        cold += all(known.latest is None for known in of_levels.values())
        for level, known in of_levels.items():
            expected = dict.fromkeys(KEPT) if known is EMPTY else {name: features(known)[name] for name in KEPT}
            assert {name: row[f"{level.view}__{name}"] for name in KEPT} == expected, (attempt.attempt_id, level)
        assert row["throughput"] == attempt.throughput
        assert row["submitted_at"] == attempt.submitted_at
        assert row["recorded_at"] == from_us(one.recorded_at_us)
        assert (row["hardware_specs__memory_gib"] is None) == (attempt.hardware_type == "home-made")

    all_succeeded = sum(one.event.status == "succeeded" for one in recorded)
    assert made.rows == len(asked)
    assert made.sees_itself == len(succeeded) - len(asked) > 0
    assert made.duplicates > 0
    assert made.turned_away > 0
    assert made.cold_starts == cold > 0
    assert (made.succeeded, made.outside) == (all_succeeded, 0)
    assert made.succeeded == made.rows + made.sees_itself + made.duplicates + made.turned_away


def test_two_attempts_submitted_at_the_same_instant_stay_two_rows(deployment: Settings, tmp_path: Path) -> None:
    # feast-dev/feast#6787: two attempts of one family submitted at the same instant with different labels
    write_events(deployment.archive, [event("a", throughput=1.0), event("b", throughput=2.0), event("c", 60 * 24)])
    _, rows = written(deployment, tmp_path / "training.parquet")
    assert [(row["attempt_id"], row["throughput"]) for row in rows] == [("a", 1.0), ("b", 2.0), ("c", 1000.0)]
    assert rows[2]["family_history__count"] == 2


def test_what_was_completed_before_but_recorded_after_the_submission_is_not_seen(
    deployment: Settings, tmp_path: Path
) -> None:
    # feast-dev/feast#6615: an event completed at T−1 but recorded at T+1, asked as of T
    write_events(deployment.archive, [event("before", 0), event("late", 1)], lag_us=0)
    asked_at = BASE + timedelta(minutes=5)
    times = {"submitted_at": asked_at.isoformat(), "started_at": asked_at.isoformat()}
    write_events(deployment.archive, [event("late-2", 4)], first=2, lag_us=2 * MINUTE_US)
    write_events(deployment.archive, [event("asked", 10, **times)], first=3)
    _, rows = written(deployment, tmp_path / "training.parquet")
    (row,) = (row for row in rows if row["attempt_id"] == "asked")
    assert row["family_history__count"] == 2
    assert row["family_history__last_seen"] == to_us(BASE) + MINUTE_US


def test_a_family_without_an_earlier_run_is_kept(deployment: Settings, tmp_path: Path) -> None:
    # Feast's own file joins drop such rows.
    write_events(deployment.archive, [event("a"), event("b", 1, model_type="new", job_family="new")])
    made, rows = written(deployment, tmp_path / "training.parquet")
    assert (made.rows, made.cold_starts) == (2, 2)
    assert all(row["family_history__last"] is None for row in rows)


def test_only_attempts_submitted_in_the_time_asked_for_are_taken(deployment: Settings, tmp_path: Path) -> None:
    write_events(deployment.archive, [event(f"a{day}", day * 24 * 60) for day in range(5)])
    first = BASE - timedelta(hours=2) + timedelta(days=1)
    made, rows = written(deployment, tmp_path / "training.parquet", start=first, end=first + timedelta(days=2))
    assert [row["attempt_id"] for row in rows] == ["a1", "a2"]
    assert (made.outside, rows[0]["family_history__count"]) == (3, 1)


def test_the_columns_are_those_that_training_reads(deployment: Settings, tmp_path: Path) -> None:
    write_events(deployment.archive, [event("a", config={"precision": "bf16"})])
    written(deployment, tmp_path / "training.parquet")
    schema = pq.read_schema(tmp_path / "training.parquet")
    for name in ("submitted_at", "completed_at", "recorded_at"):
        assert schema.field(name).type == pa.timestamp("us", "UTC")
    assert {f"{level.view}__{name}" for level in LEVELS for name in KEPT} <= set(schema.names)
    assert pq.read_table(tmp_path / "training.parquet")["config"].to_pylist() == ['{"precision":"bf16"}']
    assert "event_timestamp" not in schema.names


def test_history_rows_are_built_only_where_the_archive_has_grown(deployment: Settings, tmp_path: Path) -> None:
    write_events(deployment.archive, [event("a")])
    written(deployment, tmp_path / "training.parquet")
    before = history_build.served(deployment.history)
    served = (Path(deployment.history) / "current").resolve()
    written(deployment, tmp_path / "training.parquet")
    assert (Path(deployment.history) / "current").resolve() == served
    write_events(deployment.archive, [event("b", 1)], first=1)
    written(deployment, tmp_path / "training.parquet")
    assert history_build.served(deployment.history) != before


def test_without_an_attempt_left_the_reasons_are_given(deployment: Settings, tmp_path: Path) -> None:
    write_events(deployment.archive, [event("a")])
    with pytest.raises(DatasetError, match="no attempt is left of 1 succeeded ones: 1 were submitted outside"):
        written(deployment, tmp_path / "training.parquet", start=datetime(2030, 1, 1, tzinfo=UTC))
    assert not (tmp_path / "training.parquet").exists()


def test_the_command_says_what_it_left_out(deployment: Settings, tmp_path: Path) -> None:
    write_events(deployment.archive, [event("a"), event("a"), event("b", 60)])
    env = {
        "LEAP_ARCHIVE": deployment.archive,
        "LEAP_HISTORY": deployment.history,
        "LEAP_FEATURE_REPO": deployment.feature_repo,
        "LEAP_REDIS_URL": deployment.redis_url,
    }
    out = tmp_path / "training.parquet"
    result = CliRunner().invoke(dataset_command, ["--out", str(out)], env=env)
    assert result.exit_code == 0, result.output
    assert f"2 attempts in {out}, 2 of them without history at any level" in result.output
    assert "left out: 1 that are duplicates of an attempt" in result.output
    result = CliRunner().invoke(dataset_command, ["--out", str(out), "--from", "2026-01-01"], env=env)
    assert result.exit_code == 2
    assert "must have an offset" in result.output


def test_a_directory_that_is_not_there_is_named_before_any_work(tmp_path: Path) -> None:
    result = CliRunner().invoke(dataset_command, ["--out", str(tmp_path / "mistyped" / "training.parquet")])
    assert result.exit_code == 1
    assert f"{tmp_path / 'mistyped'} is no directory" in result.output
    assert not (tmp_path / "mistyped").exists()


def test_a_pipe_is_refused_before_any_work_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = CliRunner().invoke(dataset_command, ["--out", str(pipe)])
    assert result.exit_code == 1
    assert f"{pipe} is a pipe, which no file may replace" in result.output
    assert pipe.is_fifo()
