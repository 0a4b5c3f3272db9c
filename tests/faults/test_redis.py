"""What happens to the worker when Redis fails, on real processes: it waits or halts, and the rows are exact in the end.

`tests/integration/streams/test_store*.py` has each of these at the level of one connection, and more of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import redis

from leap_features import archive
from leap_features.meta import FIRST_LIVE_EPOCH, meta_key
from leap_features.settings import Settings
from services import RedisServer, SentinelDeployment
from stream_process import LeapProcess, wait_until
from stream_traffic import (
    check_equal_to_the_oracle,
    initialised,
    taken_in,
    traffic,
    wait_for_more,
    wait_for_the_end,
)

pytestmark = pytest.mark.real_kafka

PAUSE_S = 0.3
EXIT_HALTED = 70


@pytest.fixture
def deployed(settings: Settings, own_redis: RedisServer) -> Settings:
    """A deployment with a Redis of its own, that may be killed, and of which the worker expects an answer soon."""
    return msgspec.structs.replace(settings, redis_url=f"{own_redis.url}?socket_timeout=2")


@pytest.fixture
def env(deployed: Settings, settings_env: dict[str, str], tmp_path: Path) -> Mapping[str, str]:
    """Its environment, after `leap init`."""
    return initialised(settings_env, deployed.redis_url, tmp_path / "init.log")


@pytest.fixture
def client(own_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_redis.url) as made:
        yield made


@contextmanager
def until_it_says(worker: LeapProcess, pattern: str) -> Iterator[None]:
    """Ends once the worker has said `pattern` since the beginning."""
    since = worker.log.stat().st_size
    yield

    def said() -> bool:
        return re.search(pattern, worker.log.read_bytes()[since:].decode()) is not None

    wait_until(said, timeout_s=60, what=f"a line with {pattern}", process=worker)


def test_a_worker_waits_out_whatever_befalls_its_redis_and_the_rows_are_exact(
    deployed: Settings, env: Mapping[str, str], own_redis: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    # faust-streaming/faust#527, #315
    own_redis.kill()
    with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker, traffic(deployed, PAUSE_S):
        with until_it_says(worker, "waits to begin.*ConnectionError"):
            pass
        own_redis.start()
        wait_for_more(deployed, worker)

        with until_it_says(worker, "waits to write.*ConnectionError"):
            own_redis.kill()
        own_redis.start()
        wait_for_more(deployed, worker)

        with until_it_says(worker, "waits to write.*TimeoutError"):
            own_redis.pause()
        own_redis.go_on()
        wait_for_more(deployed, worker)

        with until_it_says(worker, "waits to write.*OutOfMemoryError"):
            client.config_set("maxmemory", 1)
        client.config_set("maxmemory", 0)
        wait_for_more(deployed, worker)

        with until_it_says(worker, "waits to write.*ReadOnlyError"):
            client.replicaof("127.0.0.1", "1")
        client.replicaof("NO", "ONE")
        wait_for_more(deployed, worker)

        with until_it_says(worker, "waits to write.*NOREPLICAS"):
            client.config_set("min-replicas-to-write", 1)
        client.config_set("min-replicas-to-write", 0)
        wait_for_more(deployed, worker)

        with until_it_says(worker, "waits to write.*NoScriptError"):
            client.script_flush()
        wait_for_more(deployed, worker)

        own_redis.copy_files(tmp_path / "older")
        wait_for_more(deployed, worker)
        before = taken_in(deployed)
        with until_it_says(worker, r"goes from offset \d+ to \d+"):
            own_redis.restart_with(tmp_path / "older")
            assert taken_in(deployed) < before
        wait_until(lambda: taken_in(deployed) > before, timeout_s=60, what="what was lost", process=worker)

        with until_it_says(worker, "waits to write"):
            own_redis.kill()
        assert worker.terminate() == 0, "a Redis that is down does not keep the worker from stopping"
    own_redis.start()
    with LeapProcess(["worker"], env, tmp_path / "next.log") as worker:
        wait_for_the_end(deployed, worker)
        assert worker.terminate() == 0
    check_equal_to_the_oracle(deployed)


def test_apps_whose_redis_comes_back_empty_halt_and_go_on_after_a_rebuild(
    deployed: Settings, env: Mapping[str, str], own_redis: RedisServer, tmp_path: Path
) -> None:
    with (
        LeapProcess(["worker"], env, tmp_path / "worker.log") as worker,
        LeapProcess(["archive"], env, tmp_path / "archive.log") as archiver,
        traffic(deployed, PAUSE_S),
    ):
        wait_for_more(deployed, worker)
        wait_until(
            lambda: bool(archive.end_offsets(deployed.archive, FIRST_LIVE_EPOCH)), timeout_s=60, what="a segment"
        )
        own_redis.restart_empty()
        for app in (worker, archiver):
            assert app.wait() == EXIT_HALTED
            assert "`leap rebuild` if it lost its data" in app.log.read_text().splitlines()[-1]
    with LeapProcess(["rebuild"], env, tmp_path / "rebuild.log") as rebuild:
        assert rebuild.wait() == 0, rebuild.log.read_text()
    with LeapProcess(["worker"], env, tmp_path / "next.log") as worker:
        wait_for_the_end(deployed, worker)
        assert worker.terminate() == 0
    check_equal_to_the_oracle(deployed)


def test_after_a_failover_to_a_replica_that_lagged_the_store_is_refilled(
    settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    with SentinelDeployment(tmp_path / "redis") as servers:
        deployed = msgspec.structs.replace(settings, redis_url=servers.url)
        env = initialised(settings_env, deployed.redis_url, tmp_path / "init.log")
        with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
            with traffic(deployed, PAUSE_S):
                wait_for_more(deployed, worker)
                servers.freeze_replica()
                wait_for_more(deployed, worker)
                before = taken_in(deployed)
                with until_it_says(worker, r"goes from offset \d+ to \d+"):
                    servers.fail_over()
                wait_until(lambda: taken_in(deployed) > before, timeout_s=60, what="what was lost", process=worker)
            wait_for_the_end(deployed, worker)
            assert worker.terminate() == 0
        check_equal_to_the_oracle(deployed)


def evict(client: redis.Redis) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")


def want_a_password(client: redis.Redis) -> None:
    client.execute_command("ACL", "SETUSER", "default", "resetpass", ">hunter2")


def be_of_another_schema(client: redis.Redis) -> None:
    client.hset(meta_key("other"), mapping={"schema": "0"})


def be_as_it_is(client: redis.Redis) -> None:
    del client


@pytest.mark.parametrize(
    ("options", "prepare", "credentials", "said"),
    [
        ({}, want_a_password, ":hunter3@", "mend user and password in LEAP_REDIS_URL"),
        ({}, evict, "", "maxmemory-policy is 'allkeys-lru'.*set it to noeviction"),
        ({"cluster-enabled": "yes"}, be_as_it_is, "", "Redis Cluster"),
        ({}, be_of_another_schema, "", "schema version '0'.*`leap rebuild`"),
    ],
)
def test_a_worker_refuses_a_redis_that_waiting_does_not_mend(
    settings: Settings,
    settings_env: dict[str, str],
    tmp_path: Path,
    options: dict[str, str],
    prepare: Callable[[redis.Redis], None],
    credentials: str,
    said: str,
) -> None:
    with RedisServer(tmp_path / "redis", options=options) as server:
        with redis.Redis.from_url(server.url) as client:
            prepare(client)
        env = settings_env | {
            "LEAP_REDIS_URL": server.url.replace("://", f"://{credentials}"),
            "LEAP_PROJECT": "other",
        }
        with LeapProcess(["worker"], env, tmp_path / "worker.log") as worker:
            assert worker.wait() == EXIT_HALTED, worker.log.read_text()
    log = worker.log.read_text()
    assert re.search(said, log.splitlines()[-1])
    assert "hunter" not in log
