"""What happens to a stream in production, on real processes: the rows are those of an undisturbed one, to the bit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from completion_stream import produce
from leap_features import archive
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from services import RealKafka, RedisServer
from stream_process import LeapProcess, ends, read_topic, wait_until
from stream_traffic import (
    AT_ONCE,
    check_equal_to_the_oracle,
    initialised,
    traffic,
    wait_for_more,
    wait_for_the_end,
)

# The embedded broker has room for one member in a group.
pytestmark = pytest.mark.real_kafka


@pytest.fixture
def deployed(settings: Settings, own_redis: RedisServer) -> Settings:
    """A deployment with a Redis of its own, that may be killed."""
    return msgspec.structs.replace(settings, redis_url=own_redis.url)


@pytest.fixture
def env(deployed: Settings, settings_env: dict[str, str], tmp_path: Path) -> Mapping[str, str]:
    """Its environment, after `leap init`."""
    return initialised(settings_env, deployed.redis_url, tmp_path / "init.log")


def test_a_second_worker_that_joins_in_mid_stream_and_a_first_that_leaves_change_no_count(
    deployed: Settings, env: Mapping[str, str], tmp_path: Path
) -> None:
    # faust-streaming/faust#502, #216, #221
    with (
        LeapProcess(["worker"], env, tmp_path / "first.log") as first,
        LeapProcess(["worker"], env, tmp_path / "second.log") as second,
    ):
        with traffic(deployed):
            wait_for_more(deployed, first)
            wait_until(
                lambda: second.log.read_text().count("begins at") > 0, timeout_s=60, what="a rebalance", process=second
            )
            wait_for_more(deployed, second)
            assert first.running, first.log.read_text()[-4000:]
            assert first.terminate() == 0
            wait_for_more(deployed, second)
        wait_for_the_end(deployed, second)
        assert second.terminate() == 0
    check_equal_to_the_oracle(deployed)


def test_a_rebuild_while_events_stream_in_leaves_every_row_equal_to_the_archive(
    deployed: Settings, env: Mapping[str, str], tmp_path: Path
) -> None:
    with (
        LeapProcess(["worker"], env, tmp_path / "worker.log") as worker,
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
    ):
        with traffic(deployed):
            wait_for_more(deployed, worker)
            with LeapProcess(["rebuild"], env, tmp_path / "rebuild.log") as rebuild:
                assert rebuild.wait() == 0, rebuild.log.read_text()
            wait_for_more(deployed, worker)
        wait_for_the_end(deployed, worker)
        end = ends(read_topic(deployed, deployed.topic))
        wait_until(
            lambda: archive.end_offsets(deployed.archive, FIRST_LIVE_EPOCH) == end,
            timeout_s=60,
            what="the archive",
            process=archiver,
        )
        with LeapProcess(["audit"], env, tmp_path / "audit.log") as audit:
            assert audit.wait() == 0, audit.log.read_text()
    check_equal_to_the_oracle(deployed)


def test_a_worker_waits_for_a_broker_that_is_down_and_stops_when_told_to(
    own_kafka: RealKafka, deployed: Settings, env: Mapping[str, str], tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(deployed, kafka_brokers=own_kafka.brokers, project=f"{deployed.project}b")
    env = {**env, "LEAP_KAFKA_BROKERS": own_kafka.brokers, "LEAP_PROJECT": settings.project}
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
    produce(settings, AT_ONCE, seed=0)
    own_kafka.stop()
    log = tmp_path / "worker.log"
    with LeapProcess(["worker"], env, log) as worker:
        wait_until(lambda: "waits for Kafka" in log.read_text(), timeout_s=60, what="a wait", process=worker)
        own_kafka.start()
        wait_for_the_end(settings, worker)
        own_kafka.stop()
        began = time.monotonic()
        assert worker.terminate() == 0
        assert time.monotonic() - began < 15
