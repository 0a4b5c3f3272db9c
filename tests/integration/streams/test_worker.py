"""The worker and the archive app as real processes on a broker and a Redis."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from confluent_kafka import Producer

from archived_events import event, write_events
from events_strategies import BROKEN, event_fields
from leap_features import archive
from leap_features.meta import FIRST_LIVE_EPOCH, meta_key
from leap_features.settings import Settings
from leap_streams.dead_letter import HEADER_PREFIX
from leap_streams.kafka import REPLAY_HEADER, client_config
from leap_streams.run import EXIT_HALTED
from oracle import expected_of, stored_rows
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

pytestmark = pytest.mark.stream


def recent(**changes: Any) -> dict[str, Any]:
    return event_fields(completed=datetime.now(UTC) - timedelta(minutes=10), **changes)


def send(settings: Settings, *records: dict[str, Any]) -> None:
    """Send records as any client might: `value`, and optionally `key`, `headers`, `partition`."""
    producer = Producer(client_config(settings))
    for record in records:
        producer.produce(settings.topic, **record)
    assert producer.flush(30) == 0


@pytest.fixture
def initialised(settings_env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of a deployment after `leap init`."""
    with LeapProcess(["init"], settings_env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
    return settings_env


def run_worker_to_the_end(settings: Settings, env: dict[str, str], log: Path) -> None:
    end = ends(read_topic(settings, settings.topic))
    with LeapProcess(["worker"], env, log) as worker:
        wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=worker)
        assert worker.terminate() == 0


def test_each_rule_broken_once_is_a_dead_letter_and_the_stream_goes_on(
    settings: Settings, initialised: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    values: list[bytes | None] = [json.dumps(recent(**changes)).encode() for changes, _, _ in BROKEN.values()]
    rules = [rule for _, rule, _ in BROKEN.values()]
    values += [b"", b"not JSON", b"{" + b" " * 70_000, None]
    rules += ["json", "json", "size", "empty"]
    values += [json.dumps(event_fields()).encode()]
    rules += ["too_late"]
    future = datetime.now(UTC) + timedelta(hours=3)
    values += [json.dumps(event_fields(attempt_id="future", completed=future)).encode()]
    rules += ["from_the_future"]
    values += [json.dumps(recent(attempt_id="twice", throughput=rate)).encode() for rate in (1.0, 2.0)]
    rules += ["", "conflicting_attempt"]
    values += [json.dumps(recent(attempt_id="good")).encode()]
    rules += [""]
    headers = [("trace", b"abc"), ("trace", None)]
    send(settings, *({"value": v, "key": b"ranker", "partition": 1, "headers": headers} for v in values))

    run_worker_to_the_end(settings, initialised, tmp_path / "worker.log")

    letters = read_topic(settings, settings.dead_letter_topic)
    found = {}
    for letter in letters:
        own = {n.removeprefix(HEADER_PREFIX): v for n, v in letter.headers if n.startswith(HEADER_PREFIX)}
        assert own.keys() == {"topic", "epoch", "partition", "offset", "rule", "message", "recorded-at", "at"}
        assert own["topic"] == settings.topic.encode()
        assert own["epoch"] == str(FIRST_LIVE_EPOCH).encode()
        assert own["partition"] == b"1"
        offset = int(own["offset"] or b"")
        assert letter.value == values[offset]
        assert letter.key == b"ranker"
        assert letter.headers[:2] == tuple(headers)
        found[offset] = (own["rule"] or b"").decode()
    assert found == {offset: rule for offset, rule in enumerate(rules) if rule}
    assert len(letters) == len(found)
    expected = expected_of(read_topic(settings, settings.topic), FIRST_LIVE_EPOCH, settings.horizon_us)
    assert stored_rows(redis_client, settings.project) == expected.rows
    assert expected.rows["family_history", ("ranker/ranker-prod",)]["count"] == 2


def test_a_restart_with_no_new_event_changes_nothing(
    settings: Settings, initialised: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    # faust-streaming/faust#48
    send(settings, *({"value": json.dumps(recent(attempt_id=f"a{i}")).encode(), "key": b"ranker"} for i in range(50)))
    run_worker_to_the_end(settings, initialised, tmp_path / "worker.log")
    before = stored_rows(redis_client, settings.project)
    log = tmp_path / "again.log"
    with LeapProcess(["worker"], initialised, log) as worker:
        wait_until(lambda: "begins at" in log.read_text(), timeout_s=60, what="a start", process=worker)
        send(settings, {"value": json.dumps(recent(attempt_id="other", model_type="other")).encode(), "key": b"other"})
        end = ends(read_topic(settings, settings.topic))
        wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=worker)
        worker.terminate()
    after = stored_rows(redis_client, settings.project)
    assert {key: row for key, row in after.items() if "other" not in str(key)} == before
    assert before["family_history", ("ranker/ranker-prod",)]["count"] == 50


def test_the_archive_holds_every_valid_event_with_its_position(
    settings: Settings, initialised: dict[str, str], tmp_path: Path
) -> None:
    env = initialised | {"LEAP_ARCHIVE_WITHIN_S": "0.2"}
    first = [json.dumps(recent(attempt_id=f"a{i}")).encode() for i in range(30)]
    send(settings, *({"value": v, "key": b"ranker", "headers": [(REPLAY_HEADER, b"1")]} for v in [*first, b"broken"]))
    root = Path(settings.archive)

    def archived_to(end: dict[int, int]) -> bool:
        return archive.end_offsets(root, FIRST_LIVE_EPOCH) == end

    log = tmp_path / "archive.log"
    with LeapProcess(["archive"], env, log) as archiver:
        end = ends(read_topic(settings, settings.topic))
        wait_until(lambda: archived_to(end), timeout_s=60, what="the archive", process=archiver)
        archiver.kill()
    send(settings, *({"value": v, "key": b"other"} for v in first))
    with LeapProcess(["archive"], env, log) as archiver:
        end = ends(read_topic(settings, settings.topic))
        wait_until(lambda: archived_to(end), timeout_s=60, what="the archive", process=archiver)
        assert archiver.terminate() == 0
    archive.check_complete(root)
    with archive.connect() as connection:
        query = archive.relation(
            archive.segments(root), ("epoch", "partition", "offset", "recorded_at", "attempt_id", "replay")
        )
        rows = connection.execute(
            f'SELECT epoch, partition, "offset", epoch_us(recorded_at), attempt_id, replay FROM ({query})'
        ).fetchall()
    expected = {
        (FIRST_LIVE_EPOCH, d.partition, d.offset, d.recorded_at_us, json.loads(d.value)["attempt_id"], d.replay)
        for d in read_topic(settings, settings.topic)
        if d.value != b"broken" and d.value is not None
    }
    assert set(rows) == expected
    assert len(rows) == 60


def test_without_meta_the_worker_halts_and_names_the_mend(
    settings: Settings, settings_env: dict[str, str], tmp_path: Path
) -> None:
    with LeapProcess(["worker"], settings_env, tmp_path / "worker.log") as worker:
        assert worker.wait(60) == EXIT_HALTED
        assert "run `leap init`" in worker.log.read_text()


def test_a_meta_of_another_schema_halts_the_worker(
    settings: Settings, initialised: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    redis_client.hset(meta_key(settings.project), "schema", "99")
    with LeapProcess(["worker"], initialised, tmp_path / "worker.log") as worker:
        assert worker.wait(60) == EXIT_HALTED
        assert "schema version '99'" in worker.log.read_text()


def test_init_leaves_what_is_there_as_it_is(
    settings: Settings, initialised: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    before = redis_client.hgetall(meta_key(settings.project))
    with LeapProcess(["init"], initialised, tmp_path / "again.log") as init:
        assert init.wait() == 0
        assert "there already" in init.log.read_text()
    assert redis_client.hgetall(meta_key(settings.project)) == before
    assert before[b"state"] == b"ready"


def test_init_does_not_begin_anew_what_the_archive_has(
    settings: Settings, initialised: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    write_events(settings.archive, [event("a")])
    redis_client.flushall()
    with LeapProcess(["init"], initialised, tmp_path / "again.log") as init:
        assert init.wait() == 1
        assert "`leap rebuild` fills the store" in init.log.read_text()
    assert redis_client.hgetall(meta_key(settings.project)) == {}


def test_a_store_emptied_while_the_worker_runs_halts_it(
    settings: Settings, initialised: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    with LeapProcess(["worker"], initialised, tmp_path / "worker.log") as worker:
        send(settings, {"value": json.dumps(recent()).encode(), "key": b"ranker"})
        wait_until(lambda: checkpoints(settings) != {}, timeout_s=60, what="a first batch", process=worker)
        redis_client.flushall()
        send(settings, {"value": json.dumps(recent(attempt_id="b")).encode(), "key": b"ranker"})
        assert worker.wait(60) == EXIT_HALTED
        assert "`leap rebuild` if it lost its data" in worker.log.read_text()
    assert stored_rows(redis_client, settings.project) == {}
