from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition

from leap_streams.child_process import free_port
from leap_streams.embedded import EmbeddedBroker, EmbeddedRedis, EmbeddedServiceError, find_redis_server


def wait_until(condition: Callable[[], bool], patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended keeps its number until somebody has waited for it, which here may be nobody.
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def test_a_record_comes_back_with_its_key_and_the_producers_time() -> None:
    with EmbeddedBroker(["events"], partitions=3) as broker:
        producer = Producer({"bootstrap.servers": broker.brokers})
        producer.produce("events", key=b"gpt", value=b"{}", partition=2, timestamp=1_600_000_000_123)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.brokers, "group.id": "g"})
        consumer.assign([TopicPartition("events", 2, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert (message.key(), message.value(), message.timestamp()[1]) == (b"gpt", b"{}", 1_600_000_000_123)
        consumer.close()


def test_a_topic_has_the_partitions_asked_for() -> None:
    with EmbeddedBroker(["events"], partitions=64) as broker:
        broker.create_topic("others", 5)
        topics = Producer({"bootstrap.servers": broker.brokers}).list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"events": 64, "others": 5}


def test_a_topic_made_twice_is_refused_by_its_name() -> None:
    with EmbeddedBroker(["events"]) as broker, pytest.raises(EmbeddedServiceError, match="'events'"):
        broker.create_topic("events")


def test_a_stopped_broker_has_no_address() -> None:
    broker = EmbeddedBroker()
    with broker:
        assert broker.brokers.startswith("127.0.0.1:")
    with pytest.raises(EmbeddedServiceError, match="not running"):
        _ = broker.brokers


def test_two_brokers_in_one_process_do_not_share_topics() -> None:
    with EmbeddedBroker(["one"]) as first, EmbeddedBroker(["two"]) as second:
        for broker, name in ((first, "one"), (second, "two")):
            assert list(Producer({"bootstrap.servers": broker.brokers}).list_topics(timeout=30).topics) == [name]


def test_no_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="partitions must be >= 1, got 0"):
        EmbeddedBroker(partitions=0)


def test_redis_answers_and_never_evicts() -> None:
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.info("server")["process_id"] == server.child.pid


def test_a_stopped_redis_leaves_no_process_and_no_files() -> None:
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as client:
        pid = server.child.pid
        directory = Path(client.config_get("dir")["dir"])
    assert not alive(pid)
    assert not directory.exists()


def test_a_killed_redis_with_an_append_only_file_comes_back_at_its_address_with_its_data(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path, append_only=True, fsync="always") as server:
        url = server.url
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
        server.kill()
        server.start()
        assert server.url == url
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"


def test_a_port_that_another_redis_owns_is_refused(tmp_path: Path) -> None:
    with EmbeddedRedis() as owner:
        with pytest.raises(EmbeddedServiceError, match=f"did not come up on port {owner.port}"):
            EmbeddedRedis(tmp_path, port=owner.port).start()
        with redis.Redis.from_url(owner.url) as client:
            assert client.ping(), "the owner must not be touched"


def test_a_redis_whose_old_port_was_taken_meanwhile_starts_on_another(tmp_path: Path) -> None:
    server = EmbeddedRedis(tmp_path)
    with server:
        port = server.port
    with EmbeddedRedis(port=port), server:
        assert server.port != port


def test_a_server_that_does_not_run_is_refused_with_its_name(tmp_path: Path) -> None:
    broken = tmp_path / "redis-server"
    broken.write_text("#!/bin/sh\necho out of order\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(EmbeddedServiceError, match="out of order"):
        EmbeddedRedis(tmp_path, executable=broken).start()


def test_a_redis_stops_when_its_parent_is_killed_outright(tmp_path: Path) -> None:
    program = """
import sys, time
from leap_streams.embedded import EmbeddedRedis
server = EmbeddedRedis()
server.start()
print(server.child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    wait_until(lambda: not alive(pid))


def test_a_redis_server_is_found_on_this_machine() -> None:
    assert os.access(find_redis_server(), os.X_OK)


def test_up_replaces_no_pipe_by_its_settings_and_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "leap.env"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "leap_features.command", "up", "--env-file", str(pipe)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"Error: {pipe} is a pipe, which no file may replace" in done.stderr
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_writes_its_settings_runs_until_a_signal_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    env_file = tmp_path / "leap.env"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    environment |= {"LEAP_TOPIC": "tried.out", "LEAP_PARTITIONS": "3"}
    command = [sys.executable, "-m", "leap_features.command", "up", "--env-file", str(env_file)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as up:
        wait_until(lambda: env_file.exists() or up.poll() is not None)
        assert up.poll() is None
        settings = dict(line.removeprefix("export ").split("=", 1) for line in env_file.read_text().splitlines())
        topics = Producer({"bootstrap.servers": settings["LEAP_KAFKA_BROKERS"]}).list_topics(timeout=30).topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {
            "tried.out": 3,
            "leap.completions.dead-letter": 3,
        }
        with redis.Redis.from_url(settings["LEAP_REDIS_URL"]) as client:
            pid = int(client.info("server")["process_id"])
        up.send_signal(number)
        output, _ = up.communicate(timeout=60)
    assert up.returncode == 0
    assert "For trying out only" in output
    for name, value in settings.items():
        assert f"export {name}={value}" in output
    assert not env_file.exists()
    assert not alive(pid)


def test_up_says_when_its_redis_cannot_start() -> None:
    port = free_port()
    with EmbeddedRedis(port=port):
        command = [sys.executable, "-m", "leap_features.command", "up", "--redis-port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"did not come up on port {port}" in done.stderr
