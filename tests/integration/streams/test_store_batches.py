"""Batches of the worker while Redis fails: done again as a whole, they count everything once."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import redis

from counting_proxy import CountingProxy
from events_strategies import BASE, raw_event
from leap_features.conditional_write import CLAIM_ATTEMPTS, MOVE_CHECKPOINTS, WRITE_ROW, sha1
from leap_features.events import to_us
from leap_features.family import DEFAULT_RULES
from leap_features.meta import FIRST_LIVE_EPOCH, decode_meta, meta_key
from leap_features.settings import Settings
from leap_streams.faults import Refused, Unavailable
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.store import Session, Store, session_of
from oracle import expected_of, stored_rows
from services import RedisServer
from stream_process import wait_until

PROJECT = "p"
HORIZON_US = 7 * 86_400_000_000
STEPS = {"claims": CLAIM_ATTEMPTS, "rows": WRITE_ROW, "checkpoints": MOVE_CHECKPOINTS}


class Writer:
    """The worker's sink without a broker: one session, in which a batch is written and its checkpoints move."""

    def __init__(self, url: str) -> None:
        settings = Settings(redis_url=url, project=PROJECT)
        self._store = Store(settings)
        self._writer = HistoryWriter(settings, self._store, None)
        self._session = Session(b"", {})

    def begin(self) -> int:
        """Where partition 0 goes on; the first time, the store is made."""
        self._store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
        meta = self._store.read_meta()
        assert meta is not None
        self._session = session_of(meta)
        return meta.checkpoints.get(0, 0)

    def take(self, deliveries: Sequence[Delivery]) -> None:
        batch = self._writer.write(deliveries, self._session, FIRST_LIVE_EPOCH)
        self._session = self._store.move_checkpoints(self._session, batch.checkpoints)

    def close(self) -> None:
        self._store.close()


def deliveries(first: int, end: int, models: int = 3) -> list[Delivery]:
    """Attempts of some models, as partition 0 has them; every seventh is an earlier one again."""
    return [
        Delivery(
            0,
            offset,
            to_us(BASE) + 60_000_000,
            raw_event(attempt_id=f"a{attempt}", model_type=f"m{attempt % models}"),
        )
        for offset in range(first, end)
        for attempt in [offset - models if offset % 7 == 6 and offset >= models else offset]
    ]


def assert_equal_to_the_oracle(client: redis.Redis, end: int, models: int = 3) -> None:
    expected = expected_of(deliveries(0, end, models), FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(client, PROJECT) == expected.rows
    meta = decode_meta(client.hgetall(meta_key(PROJECT)))
    assert meta is not None
    assert meta.checkpoints == {0: end}


@pytest.fixture
def client(own_redis: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_redis.url) as made:
        yield made


@pytest.fixture
def proxy(own_redis: RedisServer) -> Iterator[CountingProxy]:
    with CountingProxy("127.0.0.1", int(own_redis.port or 0)) as made:
        yield made


@pytest.fixture
def writer(proxy: CountingProxy) -> Iterator[Writer]:
    """Behind the proxy, and sooner out of patience than the worker is."""
    with closing(Writer(f"{proxy.url}?socket_timeout=1")) as made:
        made.begin()
        yield made


@pytest.mark.parametrize("step", STEPS)
def test_a_write_whose_reply_is_lost_and_that_is_done_again_counts_once(
    writer: Writer, proxy: CountingProxy, client: redis.Redis, step: str
) -> None:
    # redis/redis-py#261
    writer.take(deliveries(0, 10))
    proxy.silent_after = sha1(STEPS[step])
    with pytest.raises(Unavailable, match="TimeoutError"):
        writer.take(deliveries(10, 20))
    proxy.silent_after, proxy.silent = b"", False
    try:
        writer.take(deliveries(10, 20))
    except Refused:  # the checkpoints had moved, and only the answer was lost
        assert writer.begin() == 20
    assert_equal_to_the_oracle(client, 20)


@pytest.mark.parametrize("step", STEPS)
def test_a_write_that_arrives_after_it_was_done_again_counts_once(
    writer: Writer, proxy: CountingProxy, client: redis.Redis, step: str
) -> None:
    # redis/redis-py#261
    writer.take(deliveries(0, 10))
    proxy.late = sha1(STEPS[step])
    with pytest.raises(Unavailable, match="TimeoutError"):
        writer.take(deliveries(10, 20))
    proxy.late = b""
    writer.take(deliveries(10, 20))
    assert_equal_to_the_oracle(client, 20)
    before = script_calls(client)
    proxy.let_late_ones_go()
    wait_until(lambda: script_calls(client) == before + proxy.held_back, timeout_s=60, what="the late requests")
    assert proxy.held_back > 0
    assert_equal_to_the_oracle(client, 20)


def script_calls(client: redis.Redis) -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_a_server_that_lost_rows_in_mid_batch_refuses_it_and_is_refilled(
    writer: Writer, proxy: CountingProxy, own_redis: RedisServer, client: redis.Redis, tmp_path: Path
) -> None:
    writer.take(deliveries(0, 10))
    own_redis.copy_files(tmp_path / "older")
    writer.take(deliveries(10, 20))
    failures: list[Exception] = []

    def take() -> None:
        try:
            writer.take(deliveries(20, 30))
        except Unavailable as error:
            failures.append(error)

    # The batch has claimed its attempts and read its rows when the server goes back in time. What it read arrives,
    # and then it writes.
    proxy.silent_after = sha1(CLAIM_ATTEMPTS)
    batch = threading.Thread(target=take)
    batch.start()
    wait_until(lambda: client.exists(f"leap:{PROJECT}:attempt:s:a29") == 1, timeout_s=60, what="claims")
    own_redis.restart_with(tmp_path / "older")
    proxy.silent_after, proxy.silent = b"", False
    batch.join()
    assert len(failures) == 1
    assert_equal_to_the_oracle(client, 10)
    with pytest.raises(Refused):
        writer.take(deliveries(20, 30))
    assert_equal_to_the_oracle(client, 10)
    assert writer.begin() == 10
    writer.take(deliveries(10, 30))
    assert_equal_to_the_oracle(client, 30)


def test_a_batch_that_a_full_memory_stops_halfway_is_done_again_and_counts_once(
    writer: Writer, client: redis.Redis
) -> None:
    models = end = 1_000
    client.config_set("maxmemory", client.info("memory")["used_memory"] + 1_500_000)
    with pytest.raises(Unavailable, match="OutOfMemory"):
        writer.take(deliveries(0, end, models))
    written = stored_rows(client, PROJECT)
    assert 0 < len(written) < len(expected_of(deliveries(0, end, models), FIRST_LIVE_EPOCH, HORIZON_US).rows)
    client.config_set("maxmemory", 0)
    writer.take(deliveries(0, end, models))
    assert_equal_to_the_oracle(client, end, models)


def test_a_batch_whose_scripts_are_forgotten_between_two_steps_is_done_again_and_counts_once(
    writer: Writer, proxy: CountingProxy, client: redis.Redis
) -> None:
    failures: list[Exception] = []

    def take() -> None:
        try:
            writer.take(deliveries(0, 10))
        except Unavailable as error:
            failures.append(error)

    proxy.late = sha1(WRITE_ROW)
    batch = threading.Thread(target=take)
    batch.start()
    wait_until(lambda: proxy.held_back > 0, timeout_s=60, what="rows")
    client.script_flush()
    proxy.let_late_ones_go()
    batch.join()
    assert "NoScript" in str(failures)
    writer.take(deliveries(0, 10))
    assert_equal_to_the_oracle(client, 10)
