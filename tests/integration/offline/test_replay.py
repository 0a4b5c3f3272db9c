"""Past runs through the broker: what the worker makes of them is what an import makes of them."""

from __future__ import annotations

import csv
import random
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import redis
from click.testing import CliRunner

from archived_events import event
from events_strategies import BASE
from leap_features import archive
from leap_features.family import DEFAULT_RULES
from leap_features.history import FEATURES, from_state
from leap_features.layout import Value
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_streams.audit import audit
from leap_streams.producer import CompletionProducer
from leap_streams.rebuild import rebuild
from leap_training.past_runs import PastRun
from leap_training.replay import in_order, replay
from leap_training.run_commands import import_command, replay_command
from oracle import Key, stored_rows
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

pytestmark = pytest.mark.stream

FEATURE_REPO = Path(__file__).parents[3] / "feature_repo"
RUNS = 300
MAPPING = """
[event]
attempt_id = "{id}"
job_name = "{team}-{model}"
model_type = "{model}"
hardware_type = "{gpu}"
status = "{status}"
throughput = "{rate}"
trainer_count = "{gpus}"
batch_size = { product = ["batch"], over = ["gpus"] }
started_at = "{start}"
completed_at = "{end}"
"""


@pytest.fixture
def table(tmp_path: Path) -> list[str]:
    """Arguments that name a table of past runs, years before the horizon, in no order, and its mapping."""
    draw = random.Random(7)
    path, mapping = tmp_path / "runs.csv", tmp_path / "mapping.toml"
    mapping.write_text(MAPPING)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "team", "model", "gpu", "gpus", "batch", "status", "rate", "start", "end"])
        for number in range(RUNS):
            start = BASE - timedelta(days=draw.randrange(400, 1200), seconds=draw.randrange(86_400))
            status = draw.choice(["succeeded"] * 9 + ["failed", "cancelled"])
            row = [f"run-{number}", draw.choice("pq"), draw.choice("abcd"), draw.choice(["H100", "A100"])]
            row += [draw.choice([8, 64]), draw.choice([8, 12, 0]), status, draw.lognormvariate(3, 2)]
            writer.writerow([*row, start.isoformat(), (start + timedelta(hours=1)).isoformat()])
    return [str(path), "--mapping", str(mapping)]


def statistics(client: redis.Redis, project: str) -> dict[Key, dict[str, Value]]:
    """All features but versions, of every row."""
    rows = stored_rows(client, project)
    for row in rows.values():
        state, version, stamp = str(row["state"]), str(row["version"]), row.pop("event_timestamp")
        assert isinstance(stamp, int)
        from_state(state, version, stamp)
        del row["version"]
    return rows


def taken_in(settings: Settings, count: int, worker: LeapProcess, archiver: LeapProcess) -> None:
    """Wait until worker and archive have the topic's `count` events."""
    records = read_topic(settings, settings.topic)
    assert len(records) == count
    end = ends(records)
    wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the worker", process=worker)
    wait_until(
        lambda: archive.end_offsets(Path(settings.archive), FIRST_LIVE_EPOCH) == end,
        timeout_s=60,
        what="the archive",
        process=archiver,
    )


def replay_all(table: list[str], env: Mapping[str, str]) -> None:
    """Send every run of `table`."""
    result = CliRunner().invoke(replay_command, table, env=env)
    assert result.exit_code == 0, result.output
    assert f"{RUNS} of {RUNS} runs sent" in result.output


def test_replayed_runs_give_the_statistics_of_imported_ones_and_the_audit_finds_all_rows_equal(
    settings: Settings, settings_env: Mapping[str, str], redis_client: redis.Redis, tmp_path: Path, table: list[str]
) -> None:
    env = {**settings_env, "LEAP_ARCHIVE_WITHIN_S": "0.2", "LEAP_FEATURE_REPO": str(FEATURE_REPO)}

    def replay() -> None:
        replay_all(table, env)

    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0
    with (
        LeapProcess(["worker"], env, tmp_path / "worker.log") as worker,
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
    ):
        replay()
        taken_in(settings, RUNS, worker, archiver)
        first = audit(settings, rules=DEFAULT_RULES)
        replayed = statistics(redis_client, settings.project)
        # Nothing is counted twice.
        replay()
        taken_in(settings, 2 * RUNS, worker, archiver)
        second = audit(settings, rules=DEFAULT_RULES)
        worker.terminate()
        archiver.terminate()
    assert (first.equal, first.total) == (len(replayed), len(replayed))
    assert (second.equal, second.total) == (first.total, first.total), second.first
    assert statistics(redis_client, settings.project) == replayed
    assert [d.offset for d in read_topic(settings, settings.dead_letter_topic)] == []

    imported = msgspec.structs.replace(
        settings,
        project=f"{settings.project}_imported",
        archive=str(tmp_path / "imported"),
        history=str(tmp_path / "imported-history"),
    )
    result = CliRunner().invoke(import_command, [*table, "--archive", imported.archive], env=env)
    assert result.exit_code == 0, result.output
    rebuild(imported, rules=DEFAULT_RULES, bounds_of=lambda _settings: None)
    assert statistics(redis_client, imported.project) == replayed
    assert {name for row in replayed.values() for name in row} == {name for name, _ in FEATURES} - {"version"}


def test_replayed_runs_that_were_imported_before_are_not_counted_again(
    settings: Settings, settings_env: Mapping[str, str], redis_client: redis.Redis, tmp_path: Path, table: list[str]
) -> None:
    env = {**settings_env, "LEAP_ARCHIVE_WITHIN_S": "0.2"}
    result = CliRunner().invoke(import_command, [*table, "--archive", settings.archive], env=env)
    assert result.exit_code == 0, result.output
    rebuild(settings, rules=DEFAULT_RULES)
    imported = statistics(redis_client, settings.project)
    with (
        LeapProcess(["worker"], env, tmp_path / "worker.log") as worker,
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
    ):
        replay_all(table, env)
        taken_in(settings, RUNS, worker, archiver)
        audited = audit(settings, rules=DEFAULT_RULES)
        worker.terminate()
        archiver.terminate()
    assert (audited.equal, audited.total) == (len(imported), len(imported)), audited.first
    assert statistics(redis_client, settings.project) == imported


def test_runs_that_the_broker_does_not_take_are_counted(settings: Settings) -> None:
    unreachable = msgspec.structs.replace(settings, kafka_brokers="localhost:1")
    runs = in_order(PastRun(number, event(f"a{number}")) for number in range(20))
    with CompletionProducer(unreachable, timeout_s=0.01, delivery_timeout_s=60, queue_max=10) as producer:
        made = replay(producer, runs, at_completion=False, queue_wait_s=0.1, flush_s=0.1)
        assert (made.runs, made.acknowledged, made.failed + made.waiting) == (20, 0, 20)
        producer.close(0.1)


def test_without_a_topic_nothing_is_read_and_the_mend_is_named(table: list[str], settings_env: dict[str, str]) -> None:
    result = CliRunner().invoke(replay_command, table, env={**settings_env, "LEAP_KAFKA_BROKERS": "localhost:1"})
    assert result.exit_code == 1
    assert "at localhost:1: `leap init` makes it" in result.output
