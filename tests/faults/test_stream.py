"""What happens to a stream in production, on real processes: the rows are those of an undisturbed one, to the bit."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import redis

from completion_stream import produce
from leap_features import archive
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_streams.dead_letter import HEADER_PREFIX
from oracle import expected_of, stored_rows
from services import RealKafka, RedisServer
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

# The embedded broker has room for one member in a group.
pytestmark = pytest.mark.real_kafka

AT_ONCE = 300
Start = Callable[..., LeapProcess]


@pytest.fixture
def deployed(settings: Settings, own_redis: RedisServer) -> Settings:
    """A deployment with a Redis of its own, that may be killed."""
    return msgspec.structs.replace(settings, redis_url=own_redis.url)


@pytest.fixture
def env(deployed: Settings, settings_env: dict[str, str], tmp_path: Path) -> Mapping[str, str]:
    """Its environment, after `leap init`; batches are small, so that there are many to disturb."""
    env = settings_env | {
        "LEAP_REDIS_URL": deployed.redis_url,
        "LEAP_BATCH_MAX": "100",
        "LEAP_ARCHIVE_BATCH_MAX": "500",
        "LEAP_ARCHIVE_WITHIN_S": "0.3",
        "LEAP_FEATURE_REPO": str(Path(__file__).parents[2] / "feature_repo"),
    }
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
    return env


@contextmanager
def traffic(settings: Settings) -> Iterator[None]:
    """Events come in all the while."""
    over = threading.Event()

    def send() -> None:
        seed = 0
        while not over.is_set():
            produce(settings, AT_ONCE, seed)
            seed += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def taken_in(settings: Settings) -> int:
    return sum(checkpoints(settings).values())


def wait_for_more(settings: Settings, worker: LeapProcess, count: int = AT_ONCE) -> None:
    target = taken_in(settings) + count
    wait_until(lambda: taken_in(settings) >= target, timeout_s=60, what=f"{count} more records", process=worker)


def wait_for_the_end(settings: Settings, worker: LeapProcess) -> None:
    end = ends(read_topic(settings, settings.topic))
    wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=worker)


def check_equal_to_the_oracle(settings: Settings) -> None:
    """Every row, and every dead letter, is the one that the topic's records come to; a letter may be there twice."""
    expected = expected_of(read_topic(settings, settings.topic), FIRST_LIVE_EPOCH, settings.horizon_us)
    with redis.Redis.from_url(settings.redis_url) as client:
        assert stored_rows(client, settings.project) == expected.rows
    letters = {}
    for letter in read_topic(settings, settings.dead_letter_topic):
        header = {name.removeprefix(HEADER_PREFIX): value or b"" for name, value in letter.headers}
        letters[int(header["partition"]), int(header["offset"])] = header["rule"].decode()
    assert letters == expected.dead_letters
    assert letters


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


def test_a_redis_that_goes_back_in_time_under_a_running_worker_is_refilled(
    deployed: Settings, env: Mapping[str, str], own_redis: RedisServer, tmp_path: Path
) -> None:
    data, older = tmp_path / "redis", tmp_path / "older"
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
        with traffic(deployed):
            wait_for_more(deployed, worker)
            shutil.copytree(data, older)
            wait_for_more(deployed, worker)
            before = taken_in(deployed)
            own_redis.kill()
            shutil.rmtree(data)
            older.rename(data)
            own_redis.start()
            assert taken_in(deployed) < before
            wait_until(lambda: taken_in(deployed) > before, timeout_s=60, what="what was lost", process=worker)
        wait_for_the_end(deployed, worker)
        assert worker.terminate() == 0
    check_equal_to_the_oracle(deployed)


def test_nothing_is_lost_while_redis_is_down_in_mid_stream(
    deployed: Settings, env: Mapping[str, str], own_redis: RedisServer, tmp_path: Path
) -> None:
    # faust-streaming/faust#527, #315
    log = tmp_path / "worker.log"
    with LeapProcess(["worker"], env, log) as worker:
        with traffic(deployed):
            for _ in range(2):
                wait_for_more(deployed, worker)
                own_redis.kill()
                wait_until(lambda: "waits to write" in log.read_text(), timeout_s=60, what="a wait", process=worker)
                own_redis.start()
        wait_for_the_end(deployed, worker)
        own_redis.kill()
        assert worker.terminate() == 0, "a Redis that is down does not keep the worker from stopping"
    own_redis.start()
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
