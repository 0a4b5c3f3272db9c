"""The worker's connection on real servers: which of them it takes, and what it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
import redis

from counting_proxy import CountingProxy
from leap_features.family import DEFAULT_RULES
from leap_features.meta import FIRST_LIVE_EPOCH, meta_key
from leap_features.settings import Settings
from leap_streams.faults import Halt, Unavailable
from leap_streams.store import Session, Store, session_of
from services import RedisServer, SentinelDeployment
from stream_process import wait_until

PROJECT = "p"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis whose settings each test leaves as they were. It fails to save, for want of a file that it may replace;
    it reads its files slowly and answers meanwhile."""
    options = {
        "dbfilename": "appendonlydir",
        "enable-debug-command": "yes",
        "loading-process-events-interval-bytes": "1024",
    }
    with RedisServer(tmp_path_factory.mktemp("redis"), append_only=True, options=options) as started:
        yield started


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as made:
        made.flushall()
        yield made


@pytest.fixture
def store(server: RedisServer, client: redis.Redis) -> Iterator[Store]:
    """A store that has been made."""
    with closing(store_at(server.url)) as made:
        assert made.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
        yield made


def store_at(url: str) -> Store:
    return Store(Settings(redis_url=url, project=PROJECT))


def session_now(store: Store) -> Session:
    meta = store.read_meta()
    assert meta is not None
    return session_of(meta)


@contextmanager
def configured(client: redis.Redis, name: str, value: str) -> Iterator[None]:
    """While the server has another setting."""
    before = client.config_get(name)[name]
    client.config_set(name, value)
    try:
        yield
    finally:
        client.config_set(name, before)


@contextmanager
def a_full_memory(client: redis.Redis) -> Iterator[None]:
    with configured(client, "maxmemory", "1"):
        yield


@contextmanager
def too_few_replicas(client: redis.Redis) -> Iterator[None]:
    with configured(client, "min-replicas-to-write", "1"):
        yield


@contextmanager
def a_demotion(client: redis.Redis) -> Iterator[None]:
    client.replicaof("127.0.0.1", "1")
    try:
        yield
    finally:
        client.replicaof("NO", "ONE")


@contextmanager
def a_replica_without_its_master(client: redis.Redis) -> Iterator[None]:
    with configured(client, "replica-serve-stale-data", "no"), a_demotion(client):
        yield


@contextmanager
def a_full_disk(client: redis.Redis) -> Iterator[None]:
    with configured(client, "save", "3600 1"):
        client.bgsave()
        wait_until(
            lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", timeout_s=60, what="a failed save"
        )
        yield


@contextmanager
def a_script_that_takes_long(client: redis.Redis) -> Iterator[None]:
    def run() -> None:
        with redis.Redis(connection_pool=client.connection_pool) as other, pytest.raises(redis.ResponseError):
            other.eval("while true do end", 0)

    with configured(client, "busy-reply-threshold", "1"):
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: says_busy(client), timeout_s=60, what="a busy server")
        try:
            yield
        finally:
            client.script_kill()
            thread.join()


def says_busy(client: redis.Redis) -> bool:
    try:
        client.ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


@contextmanager
def files_that_are_being_read(client: redis.Redis) -> Iterator[None]:
    # It listens after every thousand commands that it has read.
    with client.pipeline(transaction=False) as filler:
        for number in range(15_000):
            filler.set(f"filler{number}", "")
        filler.execute()
    with configured(client, "key-load-delay", "100"):
        thread = threading.Thread(target=client.execute_command, args=("DEBUG", "LOADAOF"))
        thread.start()
        wait_until(lambda: is_loading(client), timeout_s=60, what="a server that reads its files")
        yield
    thread.join()


def is_loading(client: redis.Redis) -> bool:
    return bool(client.info("persistence")["loading"])


Trouble = Callable[[redis.Redis], AbstractContextManager[None]]


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (a_full_memory, "OutOfMemoryError: command not allowed when used memory > 'maxmemory'"),
        (too_few_replicas, "NOREPLICAS Not enough good replicas to write"),
        (a_demotion, "ReadOnlyError: You can't write against a read only replica"),
        (a_replica_without_its_master, "MasterDownError"),
        (a_full_disk, "MISCONF"),
        (a_script_that_takes_long, "BUSY"),
        (files_that_are_being_read, "BusyLoadingError"),
    ],
)
def test_a_server_that_takes_no_writes_now_is_waited_for(
    store: Store, client: redis.Redis, trouble: Trouble, said: str
) -> None:
    session = session_now(store)
    with trouble(client):
        with pytest.raises(Unavailable, match=said):
            store.move_checkpoints(session, {0: 7})
        with pytest.raises(Unavailable):
            store.move_checkpoints(session, {0: 7})
    assert store.move_checkpoints(session, {0: 7}).checkpoints == {0: b"7"}
    meta = store.read_meta()
    assert meta is not None
    assert meta.checkpoints == {0: 7}


def test_scripts_that_the_server_forgot_are_loaded_again(store: Store, client: redis.Redis) -> None:
    session = session_now(store)
    client.script_flush()
    with pytest.raises(Unavailable, match="NoScriptError"):
        store.move_checkpoints(session, {0: 7})
    assert store.move_checkpoints(session, {0: 7}).checkpoints == {0: b"7"}


def test_a_server_with_too_many_clients_is_waited_for(store: Store, client: redis.Redis) -> None:
    store.close()
    with configured(client, "maxclients", "1"), pytest.raises(Unavailable, match="max number of clients reached"):
        store.read_meta()
    assert store.read_meta() is not None


def test_a_server_that_is_down_is_waited_for(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "redis", append_only=True, fsync="always") as server,
        closing(store_at(server.url)) as store,
    ):
        assert store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
        server.kill()
        for _ in range(2):
            with pytest.raises(Unavailable, match="ConnectionError"):
                store.read_meta()
        server.start()
        assert store.read_meta() is not None


def test_a_server_that_accepts_and_never_answers_is_waited_for(server: RedisServer, store: Store) -> None:
    with (
        CountingProxy("127.0.0.1", int(server.port or 0)) as proxy,
        closing(store_at(f"{proxy.url}?socket_timeout=1")) as behind,
    ):
        assert behind.read_meta() is not None
        proxy.silent = True
        for _ in range(2):
            with pytest.raises(Unavailable, match="TimeoutError"):
                behind.read_meta()
        proxy.silent = False
        assert behind.read_meta() is not None


def test_a_connection_that_breaks_in_mid_batch_is_not_replaced_unnoticed(store: Store, client: redis.Redis) -> None:
    session = session_now(store)
    client.execute_command("CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(Unavailable, match="ConnectionError"):
        store.move_checkpoints(session, {0: 7})


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_evict_history_is_refused_also_once_it_is_set_so_while_the_worker_runs(
    store: Store, client: redis.Redis, policy: str
) -> None:
    assert store.read_meta() is not None
    with configured(client, "maxmemory-policy", policy):
        client.execute_command("CLIENT", "KILL", "TYPE", "normal")
        with pytest.raises(Unavailable):
            store.read_meta()
        with pytest.raises(Halt, match=f"maxmemory-policy is '{policy}'.*CONFIG SET maxmemory-policy noeviction"):
            store.read_meta()
    assert store.read_meta() is not None


def test_a_redis_cluster_is_refused(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "redis", options={"cluster-enabled": "yes"}) as cluster,
        pytest.raises(Halt, match=r"Redis Cluster.*use a single master, or Sentinel"),
    ):
        store_at(cluster.url).read_meta()


def test_a_replica_is_waited_for_until_it_is_promoted(store: Store, server: RedisServer, client: redis.Redis) -> None:
    with a_demotion(client), pytest.raises(Unavailable, match=r"a replica of 127\.0\.0\.1:1, which takes no writes"):
        store_at(server.url).read_meta()
    assert store_at(server.url).read_meta() is not None


@pytest.mark.parametrize(
    ("credentials", "rules", "said"),
    [
        ("worker:wrong", "on >hunter2 ~* +@all", "AuthenticationError.*mend user and password in LEAP_REDIS_URL"),
        ("worker:hunter2", "off >hunter2 ~* +@all", "AuthenticationError.*mend user and password in LEAP_REDIS_URL"),
        ("nobody:hunter2", "on >hunter2 ~* +@all", "AuthenticationError.*mend user and password in LEAP_REDIS_URL"),
        ("worker:hunter2", "on >hunter2 ~* +@all -info", "NoPermissionError.*'info'.*docs/operations.md"),
        ("worker:hunter2", "on >hunter2 ~* +@all -script", "NoPermissionError.*'script|load'.*docs/operations.md"),
        ("worker:hunter2", "on >hunter2 ~other:* +@all", "NoPermissionError.*key.*docs/operations.md"),
        ("worker:hunter2", "on >hunter2 ~* +@all -hset", "can't run this command|no permissions to run the 'hset'"),
    ],
)
def test_a_wrong_password_or_a_right_that_the_user_lacks_is_named_and_not_waited_for(
    store: Store, server: RedisServer, client: redis.Redis, credentials: str, rules: str, said: str
) -> None:
    session = session_now(store)
    client.execute_command("ACL", "SETUSER", "worker", "reset", *rules.split())
    with (
        closing(store_at(server.url.replace("://", f"://{credentials}@"))) as as_user,
        pytest.raises(Halt, match=said) as caught,
    ):
        as_user.move_checkpoints(session, {0: 7})
    assert credentials.split(":")[1] not in str(caught.value)
    client.acl_deluser("worker")


def test_a_password_that_the_server_asks_for_and_the_address_lacks_is_named(store: Store, client: redis.Redis) -> None:
    store.close()
    client.execute_command("ACL", "SETUSER", "default", "resetpass", ">hunter2")
    try:
        with pytest.raises(Halt, match="AuthenticationError: Authentication required"):
            store.read_meta()
    finally:
        client.execute_command("ACL", "SETUSER", "default", "resetpass", "nopass")


def test_a_value_of_another_type_is_not_waited_for(store: Store, client: redis.Redis) -> None:
    client.delete(meta_key(PROJECT))
    client.set(meta_key(PROJECT), "text")
    with pytest.raises(Halt, match="WRONGTYPE"):
        store.read_meta()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelDeployment]:
    with SentinelDeployment(tmp_path_factory.mktemp("sentinel")) as started:
        yield started


def test_after_a_failover_the_store_is_the_new_master(deployment: SentinelDeployment) -> None:
    with closing(store_at(deployment.url)) as store:
        assert store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
        session = session_now(store)
        with redis.Redis.from_url(deployment.master.url) as master:
            assert master.wait(1, 0) == 1
        deployment.kill_master()
        with pytest.raises(Unavailable):
            store.move_checkpoints(session, {0: 7})
        deployment.wait_until_failed_over()
        store.move_checkpoints(session, {0: 7})
    with redis.Redis.from_url(deployment.master.url) as master:
        assert master.hget(meta_key(PROJECT), "checkpoint:0") == b"7"
    deployment.rejoin()


def test_a_master_that_was_demoted_is_left_for_the_one_that_sentinels_name(deployment: SentinelDeployment) -> None:
    with closing(store_at(deployment.url)) as store:
        store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
        session = session_now(store)
        deployment.swap_roles()
        with pytest.raises(Unavailable, match="ReadOnlyError"):
            store.move_checkpoints(session, {3: 7})
        store.move_checkpoints(session, {3: 7})
    with redis.Redis.from_url(deployment.master.url) as master:
        assert master.hget(meta_key(PROJECT), "checkpoint:3") == b"7"


def test_sentinels_that_do_not_answer_are_waited_for(deployment: SentinelDeployment) -> None:
    deployment.pause_sentinel(0)
    with pytest.raises(Unavailable, match="MasterUnknown: no sentinel says where the master is"):
        store_at(deployment.url).read_meta()
    deployment.go_on_sentinel(0)


def test_the_address_of_a_sentinel_in_place_of_a_servers_is_refused(deployment: SentinelDeployment) -> None:
    host, _, _ = deployment.url.removeprefix("redis+sentinel://").partition("/")
    with pytest.raises(Halt, match=r"it is a Sentinel.*LEAP_REDIS_URL=redis\+sentinel://"):
        store_at(f"redis://{host}/0").read_meta()


def test_a_sentinel_that_refuses_the_password_is_named_and_not_waited_for(deployment: SentinelDeployment) -> None:
    with pytest.raises(Halt, match="mend sentinel_username and sentinel_password") as caught:
        store_at(f"{deployment.url}?sentinel_username=worker&sentinel_password=hunter2").read_meta()
    assert "hunter2" not in str(caught.value)
