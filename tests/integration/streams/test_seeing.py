"""What a running app lets its operator see: metrics, health, readiness, log."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from confluent_kafka import Producer

from app_endpoints import AppEndpoints
from events_strategies import event_fields
from leap_features.meta import FIRST_LIVE_EPOCH, meta_key
from leap_features.settings import Settings
from leap_streams.child_process import free_port
from leap_streams.kafka import client_config
from leap_streams.partitioners import java_partition
from leap_streams.run import EXIT_HALTED
from services import RealKafka, RedisServer
from stream_process import LeapProcess, checkpoints, wait_until

pytestmark = pytest.mark.stream

FAMILIES = 7
ONCE = 60
OK = 200
UNAVAILABLE = 503


def event(attempt: str, model: str, **changes: Any) -> bytes:
    completed = datetime.now(UTC) - timedelta(minutes=10)
    fields = event_fields(completed=completed, attempt_id=attempt, model_type=model, **changes)
    return json.dumps(fields).encode()


class Sender:
    """Sends to the partitions that Java's partitioner gives, or to the ones after them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer = Producer(client_config(settings))
        self.sent = 0

    def send(self, model: str, value: bytes, *, misrouted: bool = False) -> None:
        count = self._settings.partitions
        partition = (java_partition(model.encode(), count) + misrouted) % count
        self._producer.produce(self._settings.topic, key=model.encode(), value=value, partition=partition)
        self.sent += 1

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


@pytest.fixture
def endpoints() -> AppEndpoints:
    return AppEndpoints(free_port())


@pytest.fixture
def env(settings_env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path) -> dict[str, str]:
    """The environment of a deployment after `leap init`, whose worker listens."""
    initialise(settings_env, tmp_path)
    return settings_env | {"LEAP_HTTP_LISTEN": endpoints.listen}


def initialise(env: Mapping[str, str], tmp_path: Path) -> None:
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()


def wait_for_ready(endpoints: AppEndpoints, worker: LeapProcess, status: int = OK) -> dict[str, Any]:
    wait_until(lambda: endpoints.ready()[0] == status, timeout_s=60, what=f"status {status} of /ready", process=worker)
    return endpoints.ready()[1]


def send_some_of_everything(sender: Sender) -> dict[str, float]:
    """Send events of every outcome; how many of each."""
    for i in range(ONCE):
        model = f"model{i % FAMILIES}"
        raw = event(f"a{i}", model, job_name=f"{model}-train")
        sender.send(model, raw)
        if i % 10 == 0:
            sender.send(model, raw)
    sender.send("model0", event("cancelled", "model0", status="cancelled", throughput=...))
    for i in range(4):
        sender.send("model0", event(f"bad{i}", "model0", throughput=-1.0))
    sender.send("model0", b"not JSON")
    sender.send("model0", event("a0", "model0", job_name="model0-train", throughput=2.0))  # conflicts with the first
    for i in range(3):
        sender.send("model1", event(f"lost{i}", "model1", job_name="model1-train"), misrouted=True)
    sender.flush()
    return {"folded": ONCE + 3, "duplicate": ONCE / 10, "without_effect": 1, "rejected": 6}


def test_the_metrics_of_a_worker_are_what_was_sent(
    settings: Settings, env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path
) -> None:
    sender = Sender(settings)
    outcomes = send_some_of_everything(sender)
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
        wait_until(
            lambda: endpoints.sample("leap_freshness_seconds_count") == sender.sent,
            timeout_s=60,
            what="all events in the metrics",
            process=worker,
        )
        wait_until(
            lambda: all(endpoints.sample("leap_lag_records", partition=p) == 0 for p in range(settings.partitions)),
            timeout_s=60,
            what="no lag",
            process=worker,
        )
        assert {name: endpoints.sample("leap_events_total", outcome=name) for name in outcomes} == outcomes
        assert endpoints.sample("leap_new_families_total") == FAMILIES
        assert endpoints.sample("leap_misrouted_events_total") == 3
        rules = {
            dict(labels)["rule"]: count
            for (name, labels), count in endpoints.samples().items()
            if name == "leap_dead_letters_total"
        }
        assert rules == {"throughput": 4, "json": 1, "conflicting_attempt": 1}
        assert endpoints.sample("leap_batch_events_sum") == sender.sent
        assert endpoints.sample("leap_assigned_partitions") == settings.partitions
        assert endpoints.sample("leap_app_state", leap_app_state="running") == 1
        assert endpoints.sample("leap_row_conflicts_total") == 0
        assert endpoints.sample("leap_refused_batches_total") == 0
        assert endpoints.ready() == (OK, {"ready": True})
        assert endpoints.health() == (OK, {"live": True})
        assert worker.terminate() == 0


def test_an_event_is_stored_soon_though_a_batch_may_wait_long_for_a_backlog(
    settings: Settings, env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path
) -> None:
    patient = env | {"LEAP_BATCH_WITHIN_S": "3600"}
    with LeapProcess(["worker"], patient, tmp_path / "worker.log") as worker:
        wait_for_ready(endpoints, worker)
        sender = Sender(settings)
        sender.send("ranker", event("a", "ranker"))
        sender.flush()
        wait_until(lambda: checkpoints(settings) != {}, timeout_s=60, what="a first batch", process=worker)


def test_the_metrics_of_the_archive_are_what_was_sent(
    settings: Settings, env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path
) -> None:
    sender = Sender(settings)
    outcomes = send_some_of_everything(sender)
    quick = env | {"LEAP_ARCHIVE_WITHIN_S": "0.2"}
    with LeapProcess(["archive"], quick, tmp_path / "archive.log") as archiver:
        wait_until(
            lambda: endpoints.sample("leap_freshness_seconds_count") == sender.sent,
            timeout_s=60,
            what="all events in the metrics",
            process=archiver,
        )
        # A conflict is a valid event: only who holds the history can tell.
        invalid = outcomes["rejected"] - 1
        assert endpoints.sample("leap_events_total", outcome="invalid") == invalid
        assert endpoints.sample("leap_events_total", outcome="archived") == sender.sent - invalid
        assert endpoints.ready() == (OK, {"ready": True})
        assert archiver.terminate() == 0


def test_a_worker_is_not_ready_while_the_store_is_rebuilt(
    settings: Settings, env: dict[str, str], endpoints: AppEndpoints, redis_client: redis.Redis, tmp_path: Path
) -> None:
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
        wait_for_ready(endpoints, worker)
        redis_client.hset(meta_key(settings.project), "state", "rebuilding")
        why = wait_for_ready(endpoints, worker, UNAVAILABLE)
        assert why == {"ready": False, "why": "waits: the online store is being rebuilt"}
        assert endpoints.health()[0] == OK
        redis_client.hset(meta_key(settings.project), "state", "ready")
        wait_for_ready(endpoints, worker)


def test_a_worker_is_not_ready_without_redis_at_its_start_or_later(
    settings: Settings, env: dict[str, str], endpoints: AppEndpoints, own_redis: RedisServer, tmp_path: Path
) -> None:
    deployed = msgspec.structs.replace(settings, redis_url=own_redis.url)
    env = env | {"LEAP_REDIS_URL": own_redis.url}
    initialise(env, tmp_path)
    own_redis.kill()
    log = tmp_path / "worker.log"
    with LeapProcess(["worker"], env, log) as worker:
        wait_until(lambda: "waits to begin" in log.read_text(), timeout_s=60, what="a wait", process=worker)
        status, body = endpoints.ready()
        assert status == UNAVAILABLE
        assert "Redis" in body["why"]
        assert endpoints.health()[0] == OK
        own_redis.start()
        wait_for_ready(endpoints, worker)

        own_redis.kill()
        assert "Redis" in wait_for_ready(endpoints, worker, UNAVAILABLE)["why"]
        own_redis.start()
        wait_for_ready(endpoints, worker)
        sender = Sender(deployed)
        sender.send("ranker", event("a", "ranker"))
        sender.flush()
        wait_until(lambda: checkpoints(deployed) != {}, timeout_s=60, what="a first batch", process=worker)
    assert "can begin now" in log.read_text()
    assert "can resync now" in log.read_text()


def test_a_worker_that_waits_for_kafka_lives_and_is_not_ready(
    env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path
) -> None:
    brokers = f"127.0.0.1:{free_port()}"
    with LeapProcess(["worker"], env | {"LEAP_KAFKA_BROKERS": brokers}, tmp_path / "worker.log") as worker:
        wait_until(
            lambda: f"Kafka at {brokers}" in endpoints.ready()[1].get("why", ""),
            timeout_s=60,
            what="a wait for Kafka",
            process=worker,
        )
        assert endpoints.ready()[0] == UNAVAILABLE
        assert endpoints.health()[0] == OK


def test_a_redis_that_hangs_does_not_keep_a_worker_from_stopping(
    settings: Settings, env: dict[str, str], endpoints: AppEndpoints, own_redis: RedisServer, tmp_path: Path
) -> None:
    deployed = msgspec.structs.replace(settings, redis_url=own_redis.url)
    env = env | {"LEAP_REDIS_URL": own_redis.url}
    initialise(env, tmp_path)
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
        wait_for_ready(endpoints, worker)
        os.kill(own_redis.child.pid, signal.SIGSTOP)
        try:
            sender = Sender(deployed)
            sender.send("ranker", event("a", "ranker"))
            sender.flush()
            assert worker.terminate() == 0
        finally:
            os.kill(own_redis.child.pid, signal.SIGCONT)
    assert checkpoints(deployed) == {}


def test_the_log_as_json_names_each_dead_letter_and_says_last_why_it_halts(
    settings: Settings, env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    sender = Sender(settings)
    sender.send("ranker", b"not JSON")
    sender.flush()
    log = tmp_path / "worker.log"
    with LeapProcess(["worker"], env | {"LEAP_LOG_FORMAT": "json"}, log) as worker:
        wait_until(lambda: checkpoints(settings) != {}, timeout_s=60, what="a first batch", process=worker)
        redis_client.delete(meta_key(settings.project))
        assert worker.wait() == EXIT_HALTED
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (letter,) = [line for line in lines if line.get("rule")]
    place = {name: letter[name] for name in ("rule", "epoch", "partition", "offset", "app")}
    assert place == {
        "rule": "json",
        "epoch": FIRST_LIVE_EPOCH,
        "partition": java_partition(b"ranker", settings.partitions),
        "offset": 0,
        "app": f"{settings.project}-history",
    }
    assert lines[-1]["level"] == "critical"
    assert "the online store has no meta" in lines[-1]["message"]
    assert not [line for line in lines if "traceback" in line]


def test_a_start_and_a_stop_take_a_few_lines(env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with LeapProcess(["worker"], env, log) as worker:
        wait_for_ready(endpoints, worker)
        assert worker.terminate() == 0
    lines = log.read_text().splitlines()
    assert len(lines) < 10, "\n".join(lines)
    assert lines[-1].endswith("has stopped")


def test_an_address_that_is_taken_ends_the_worker_with_a_message(
    env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path
) -> None:
    with (
        LeapProcess(["worker", "--http", f"127.0.0.1:{free_port()}"], env, tmp_path / "first.log") as elsewhere,
        LeapProcess(["archive"], env, tmp_path / "second.log") as first,
    ):
        wait_until(lambda: endpoints.health()[0] == OK, timeout_s=60, what="an answer", process=first)
        with LeapProcess(["worker"], env, tmp_path / "third.log") as second:
            assert second.wait() == 1
            assert f"LEAP_HTTP_LISTEN={endpoints.listen}: Address already in use" in second.log.read_text()
        assert elsewhere.running


@pytest.mark.real_kafka
@pytest.mark.parametrize("partitions", [1])
def test_a_worker_too_many_says_that_it_has_no_partition(
    real_kafka: RealKafka, env: dict[str, str], endpoints: AppEndpoints, tmp_path: Path
) -> None:
    other = AppEndpoints(free_port())
    with LeapProcess(["worker"], env, tmp_path / "first.log") as first:
        wait_for_ready(endpoints, first)
        with LeapProcess(["worker", "--http", other.listen], env, tmp_path / "second.log") as second:
            both = (endpoints, other)
            wait_until(
                lambda: (
                    sorted(each.sample("leap_app_state", leap_app_state="unassigned") or 0 for each in both) == [0, 1]
                ),
                timeout_s=60,
                what="a worker without a partition",
                process=second,
            )
            without = next(each for each in both if each.sample("leap_assigned_partitions") == 0)
            assert "no partition assigned" in wait_for_ready(without, second, UNAVAILABLE)["why"]
            assert without.health()[0] == OK
