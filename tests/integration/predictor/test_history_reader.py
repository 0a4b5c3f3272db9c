from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from counting_proxy import CountingProxy
from leap_features.history import features
from leap_features.levels import LEVELS
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history.circuit_breaker import FAILURES
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.manifest import SERVED_FEATURES, history_views
from services import RedisServer
from stored_history import Subject, store_meta, store_runs
from stream_process import wait_until
from tls_front import TlsFront

VIEWS = history_views()
PATIENT_S = 30.0
"""Within which anything answers on a busy machine."""


def subject(hardware: str = "H100-SXM-80", trainers: int = 8) -> Subject:
    return Subject("bert/train", "bert", hardware, trainers)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[CountingProxy]:
    client = redis.Redis.from_url(redis_server.url)
    pool = client.connection_pool.connection_kwargs
    with CountingProxy(pool["host"], pool["port"]) as made:
        yield made
    client.close()


@pytest.fixture
def reader(proxy: CountingProxy, project: str) -> Iterator[HistoryReader]:
    made = HistoryReader(proxy.url, project)
    yield made
    made.close()


def read(reader: HistoryReader, *subjects: Subject, within_s: float = PATIENT_S) -> Any:
    return reader.read(VIEWS, subjects or (subject(),), within_s=within_s)


def test_reads_what_the_layout_wrote(reader: HistoryReader, redis_client: redis.Redis, project: str) -> None:
    store_meta(redis_client, project)
    wanted = store_runs(redis_client, project, subject(), [100.0, None, 250.0, None, None])
    reading = read(reader, subject(), subject("A100-SXM-80"))
    assert reading.meta is not None
    assert reading.meta.state == "ready"
    for level in LEVELS:
        stored = reading.rows[0][level.view]
        assert stored is not None
        row = wanted[level.view]
        assert stored.features == {name: features(row)[name] for name, _ in SERVED_FEATURES}
        assert stored.recorded_at_us == row.recorded_at_us
    other = reading.rows[1]
    assert other["family_history"] == reading.rows[0]["family_history"]
    assert other["family_hardware_history"] is None


def test_twenty_two_candidates_take_one_round_trip(
    reader: HistoryReader, proxy: CountingProxy, redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project)
    read(reader)  # connects
    whole = 2 + 2 + 4 * 22  # meta twice, family and model type, four levels with the hardware in their key
    before = proxy.commands
    proxy.silent_until_commands = before + whole
    reading = read(reader, *(subject(f"H{at}") for at in range(22)))
    assert len(reading.rows) == 22
    assert proxy.commands == before + whole
    assert proxy.connections == 1


def test_commands_that_reach_the_server_only_read(
    reader: HistoryReader, redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project)
    redis_client.config_resetstat()
    read(reader, *(subject(f"H{at}") for at in range(22)))
    calls = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in redis_client.info("commandstats").items()}
    assert calls["hmget"] == 2 + 2 + 4 * 22
    assert {name.partition("|")[0] for name in calls} <= {"hmget", "client", "hello", "config", "info"}


def test_absent_meta_is_seen(reader: HistoryReader, redis_client: redis.Redis) -> None:
    assert read(reader).meta is None


def test_late_reply_is_never_given_to_the_next_caller(
    reader: HistoryReader, proxy: CountingProxy, redis_client: redis.Redis, project: str
) -> None:
    # redis/redis-py#2624: a read is cancelled while its reply is on the way.
    store_meta(redis_client, project)
    store_runs(redis_client, project, subject("slow"), [1.0])
    store_runs(redis_client, project, subject("other"), [2.0])
    read(reader)
    proxy.silent = True
    with pytest.raises(StoreTimeout):
        read(reader, subject("slow"), within_s=0.05)
    proxy.silent = False
    row = read(reader, subject("other")).rows[0]["family_hardware_history"]
    assert row is not None
    assert row.features["last_hardware_type"] == "other"
    assert proxy.connections == 2


def test_silent_server_is_given_up_within_the_callers_time_and_then_left_alone(
    reader: HistoryReader, proxy: CountingProxy, redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project)
    proxy.silent = True
    for _ in range(FAILURES):
        with pytest.raises(StoreTimeout, match=r"no answer within \d+ ms"):
            read(reader, within_s=0.02)
    with pytest.raises(StoreError, match="not asked for another") as caught:
        read(reader, within_s=PATIENT_S)
    assert not isinstance(caught.value, StoreTimeout)


def test_dripping_server_is_given_up_though_every_single_read_succeeds(
    reader: HistoryReader, proxy: CountingProxy, redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project)
    read(reader)
    proxy.drip_s = 0.01
    with pytest.raises(StoreTimeout):
        read(reader, within_s=0.1)
    proxy.drip_s = 0.0
    assert read(reader).meta is not None


def test_stopped_server_is_an_error_and_its_return_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, project: str
) -> None:
    now = [0.0]
    with RedisServer() as server:
        reader = HistoryReader(server.url, project, clock=lambda: now[0])
        with redis.Redis.from_url(server.url) as client:
            store_meta(client, project)
        assert read(reader).meta is not None
        server.kill()
        for _ in range(FAILURES):
            with pytest.raises(StoreError, match="cannot be read"):
                read(reader)
        with pytest.raises(StoreError, match="not asked for another"):
            read(reader)
        server.start()
        now[0] += 60
        with redis.Redis.from_url(server.url) as client:
            store_meta(client, project)
        assert read(reader).meta is not None
        reader.close()


def test_connection_that_the_server_closed_meanwhile_is_replaced_unnoticed(
    reader: HistoryReader, redis_client: redis.Redis, project: str, proxy: CountingProxy
) -> None:
    store_meta(redis_client, project)
    read(reader)
    redis_client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    while proxy.ended < 1:
        time.sleep(0.001)
    assert read(reader).meta is not None
    assert proxy.connections == 2


def test_wrong_type_of_a_key_is_an_error_and_the_connection_is_not_used_again(
    reader: HistoryReader, redis_client: redis.Redis, project: str
) -> None:
    redis_client.set(f"leap:{project}:meta", "text")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        read(reader)
    redis_client.delete(f"leap:{project}:meta")
    store_meta(redis_client, project)
    assert read(reader).meta is not None


def test_many_threads_each_get_their_own_rows(
    reader: HistoryReader, redis_client: redis.Redis, project: str, proxy: CountingProxy
) -> None:
    store_meta(redis_client, project)
    for at in range(8):
        store_runs(redis_client, project, subject(f"H{at}"), [float(at + 1)])
    wrong: list[Any] = []

    def ask(at: int) -> None:
        for _ in range(50):
            row = read(reader, subject(f"H{at}")).rows[0]["family_hardware_history"]
            if row is None or row.features["last_hardware_type"] != f"H{at}":
                wrong.append(row)

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert proxy.connections < 50, "connections are used again, though not all are kept while none uses them"


def test_child_after_a_fork_reads_on_a_connection_of_its_own(
    reader: HistoryReader, redis_client: redis.Redis, project: str, proxy: CountingProxy
) -> None:
    # dmlc/xgboost#8040, dmlc/xgboost#7044: preload, fork, predict in the child.
    store_meta(redis_client, project)
    store_runs(redis_client, project, subject(), [5.0])
    assert read(reader).meta is not None
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if read(reader).rows[0]["family_history"].features["count"] == 1 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert read(reader).meta is not None
    assert proxy.connections == 2


def test_closed_reader_raises_and_its_connection_is_gone(
    reader: HistoryReader, redis_client: redis.Redis, proxy: CountingProxy
) -> None:
    read(reader)
    reader.close()
    reader.close()
    wait_until(lambda: proxy.ended == 1, timeout_s=PATIENT_S, what="the end of its connection")
    with pytest.raises(StoreError, match="closed"):
        read(reader)
    assert proxy.connections == 1


def test_closing_wakes_who_waits_for_an_answer(
    reader: HistoryReader, redis_client: redis.Redis, proxy: CountingProxy
) -> None:
    read(reader)
    proxy.silent = True
    asked = proxy.commands
    errors: list[StoreError] = []

    def ask() -> None:
        with pytest.raises(StoreError) as caught:
            read(reader, within_s=600.0)
        errors.append(caught.value)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: proxy.commands > asked, timeout_s=PATIENT_S, what="the question")
    reader.close()
    thread.join()
    assert not isinstance(errors[0], StoreTimeout)


def test_reader_that_nobody_holds_any_more_ends_its_connection(proxy: CountingProxy, project: str) -> None:
    reader = HistoryReader(proxy.url, project)
    read(reader)
    assert proxy.ended == 0
    del reader
    gc.collect()
    wait_until(lambda: proxy.ended == 1, timeout_s=PATIENT_S, what="the end of its connection")


def test_reader_keeps_no_thread_once_it_is_connected(reader: HistoryReader, redis_client: redis.Redis) -> None:
    before = set(threading.enumerate())
    read(reader)
    wait_until(
        lambda: not any(thread.name == "leap-connect" for thread in set(threading.enumerate()) - before),
        timeout_s=PATIENT_S,
        what="the end of the thread that connects",
    )


def test_connection_that_takes_longer_than_the_caller_waits_serves_the_next_one(
    reader: HistoryReader, redis_client: redis.Redis, proxy: CountingProxy, project: str
) -> None:
    store_meta(redis_client, project)
    proxy.silent = True
    with pytest.raises(StoreTimeout):
        read(reader, within_s=0.05)
    proxy.silent = False
    assert read(reader).meta is not None
    assert proxy.connections == 1


def test_answers_of_either_protocol_are_understood(
    redis_server: RedisServer, redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project)
    store_runs(redis_client, project, subject(), [5.0])
    readings = []
    for protocol in (2, 3):
        reader = HistoryReader(f"{redis_server.url}?protocol={protocol}", project)
        readings.append(read(reader, subject(), subject("other")))
        reader.close()
    assert readings[0] == readings[1]
    assert readings[0].rows[0]["family_history"] is not None


@pytest.fixture
def tls(redis_client: redis.Redis, tmp_path: Path) -> Iterator[TlsFront]:
    with TlsFront(tmp_path, redis_client.connection_pool.connection_kwargs["port"]) as front:
        yield front


def test_many_reads_over_tls_take_one_connection(tls: TlsFront, redis_client: redis.Redis, project: str) -> None:
    # After the handshake a server sends session tickets unasked, which are no answer and no fault.
    store_meta(redis_client, project)
    store_runs(redis_client, project, subject(), [5.0])
    reader = HistoryReader(tls.url, project)
    for _ in range(20):
        assert read(reader, *(subject(f"H{at}") for at in range(22)), subject()).rows[-1]["family_history"] is not None
    reader.close()
    assert tls.connections == 1


def test_silence_over_tls_is_given_up_and_the_next_read_has_a_connection_of_its_own(
    tls: TlsFront, redis_client: redis.Redis, project: str
) -> None:
    store_meta(redis_client, project)
    reader = HistoryReader(tls.url, project)
    assert read(reader).meta is not None
    tls.silent.set()
    with pytest.raises(StoreTimeout):
        read(reader, within_s=0.05)
    tls.silent.clear()
    assert read(reader).meta is not None
    reader.close()
    assert tls.connections == 2


def test_closing_wakes_who_waits_for_an_answer_over_tls(tls: TlsFront, redis_client: redis.Redis, project: str) -> None:
    reader = HistoryReader(tls.url, project)
    read(reader)
    tls.silent.set()
    errors: list[StoreError] = []

    def ask() -> None:
        with pytest.raises(StoreError) as caught:
            read(reader, within_s=600.0)
        errors.append(caught.value)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)  # it closes either before the question or during it
    reader.close()
    thread.join()
    assert len(errors) == 1


def test_who_does_not_wait_long_is_told_why_connecting_failed(redis_server: RedisServer, project: str) -> None:
    reader = HistoryReader(f"rediss://127.0.0.1:{redis_server.port}/0", project)
    said, end = "", time.monotonic() + PATIENT_S
    while "is TLS spoken there" not in said and time.monotonic() < end:
        with pytest.raises(StoreError) as raised:
            read(reader, within_s=0.05)
        said = str(raised.value)
        time.sleep(0.05)
    reader.close()
    assert "is TLS spoken there" in said


@pytest.mark.parametrize("url", ["", "http://localhost", "localhost:6379"])
def test_anything_but_a_redis_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with one of redis://"):
        HistoryReader(url, "leap")


def test_refused_connection_is_an_error() -> None:
    reader = HistoryReader("redis://127.0.0.1:1/0", "leap")
    with pytest.raises(StoreError, match="cannot be read"):
        read(reader)
    reader.close()
