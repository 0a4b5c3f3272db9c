"""A broker that is killed in mid-stream, and a damaged store that is mended under traffic, on real processes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import redis

from completion_stream import produce
from leap_features import archive, layout
from leap_features.family import DEFAULT_RULES
from leap_features.levels import LEVELS
from leap_features.meta import FIRST_LIVE_EPOCH, attempt_prefix
from leap_features.settings import Settings
from leap_streams.audit import audit
from oracle import expected_of, stored_rows
from services import RealKafka
from stream_process import LeapProcess, ends, read_topic, wait_until
from stream_traffic import (
    AT_ONCE,
    check_equal_to_the_oracle,
    initialised,
    taken_in,
    traffic,
    wait_for_more,
    wait_for_the_end,
)

pytestmark = pytest.mark.real_kafka


def wait_for_the_archive(settings: Settings, archiver: LeapProcess) -> None:
    end = ends(read_topic(settings, settings.topic))

    def archived() -> bool:
        return archive.end_offsets(settings.archive, FIRST_LIVE_EPOCH) == end

    wait_until(archived, timeout_s=60, what="the end of the topic in the archive", process=archiver)


def test_a_broker_that_is_killed_in_mid_stream_loses_and_doubles_nothing(
    own_kafka: RealKafka, settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    topics = {"topic": "completions", "dead_letter_topic": "dead"}
    settings = msgspec.structs.replace(settings, kafka_brokers=own_kafka.brokers, **topics)
    brokers = {"LEAP_KAFKA_BROKERS": own_kafka.brokers}
    names = {f"LEAP_{name.upper()}": topic for name, topic in topics.items()}
    env = initialised(settings_env | brokers | names, settings.redis_url, tmp_path / "init.log")
    for seed in range(5):
        produce(settings, AT_ONCE, seed)
    with (
        LeapProcess(["worker"], env | {"LEAP_BATCH_MAX": "20"}, tmp_path / "worker.log") as worker,
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
    ):
        wait_until(lambda: taken_in(settings) > 0, timeout_s=60, what="a first batch", process=worker)
        own_kafka.kill()
        own_kafka.start()
        assert worker.running, worker.log.read_text()[-4000:]
        assert archiver.running, archiver.log.read_text()[-4000:]
        produce(settings, AT_ONCE, seed=5)
        wait_for_the_end(settings, worker)
        wait_for_the_archive(settings, archiver)
        assert worker.terminate() == 0
        assert archiver.terminate() == 0
    check_equal_to_the_oracle(settings)
    assert audit(settings, rules=DEFAULT_RULES).sound


def damage(client: redis.Redis, settings: Settings, seed: int) -> None:
    """Lose rows and attempts, and give rows the contents of others."""
    rng = random.Random(seed)
    for level in LEVELS:
        prefix = layout.key_prefix(level.join_keys)
        rows = sorted(k for k in client.scan_iter(b"*" + settings.project.encode()) if k.startswith(prefix))
        lost, wrong, other = rng.sample(rows, 3)
        client.delete(lost)
        client.hset(wrong, mapping=client.hgetall(other))
        client.hset(
            layout.entity_key(settings.project, level.join_keys, _stray(level.join_keys)), mapping=client.hgetall(other)
        )
    attempts = sorted(client.scan_iter(attempt_prefix(settings.project) + b"*"))
    client.delete(*rng.sample(attempts, len(attempts) // 3))


def _stray(join_keys: tuple[str, ...]) -> list[str | int]:
    return [7 if name == "trainer_count" else "nobody's" for name in join_keys]


def test_a_damaged_store_is_mended_while_events_stream_in(
    settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    env = initialised(settings_env, settings.redis_url, tmp_path / "init.log")
    with (
        LeapProcess(["worker"], env, tmp_path / "worker.log") as worker,
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
    ):
        with traffic(settings, pause_s=1):
            wait_for_more(settings, worker)
            damage(redis_client, settings, seed=1)
            assert "mended: " in repair(env, tmp_path)
            wait_for_more(settings, worker)
        wait_for_the_end(settings, worker)
        wait_for_the_archive(settings, archiver)
        damage(redis_client, settings, seed=2)
        assert not audit(settings, rules=DEFAULT_RULES).sound
        # What the traffic kept from being mended, or damaged in its turn, is mended now.
        assert "mended: " in repair(env, tmp_path)
        assert audit(settings, rules=DEFAULT_RULES).sound
        assert worker.terminate() == 0
        assert archiver.terminate() == 0
    records = read_topic(settings, settings.topic)
    assert (
        stored_rows(redis_client, settings.project) == expected_of(records, FIRST_LIVE_EPOCH, settings.horizon_us).rows
    )


def repair(env: Mapping[str, str], tmp_path: Path) -> str:
    with LeapProcess(["audit", "--repair"], env, tmp_path / "repair.log") as command:
        assert command.wait() in (0, 1), command.log.read_text()
        return command.log.read_text()
