"""The online store from the archive: all of it, and `ready` only when it is all there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from archived_events import HORIZON_US, event, write_events
from events_strategies import BASE, raw_event
from leap_features import history_build, layout
from leap_features.archive import ArchiveHole
from leap_features.events import content_digest, decode, encode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.feature_store import apply_definitions, open_feature_store
from leap_features.first_events import FirstEvent
from leap_features.history import Position
from leap_features.levels import FAMILY, LEVELS
from leap_features.meta import (
    FIRST_LIVE_EPOCH,
    SCHEMA_VERSION,
    Meta,
    attempt_key,
    checkpoint_field,
    decode_attempt,
    decode_meta,
    meta_key,
)
from leap_features.settings import Settings
from leap_predictor import Job, Predictor, Reason
from leap_streams.audit import audit
from leap_streams.faults import Refused
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.rebuild import RebuildRefused, Rebuilt
from leap_streams.row_restore import RowRestore
from leap_streams.store import Store, session_of
from leap_streams.topic_bounds import Bounds
from oracle import expected_of, stored_rows
from small_bundle import publish_small_bundle

Rebuild = Callable[..., Rebuilt]
EPOCH = FIRST_LIVE_EPOCH
SOON = (BASE + timedelta(hours=1)).replace(tzinfo=UTC)


def stored_meta(client: redis.Redis, settings: Settings) -> Meta:
    meta = decode_meta(client.hgetall(meta_key(settings.project)))
    assert meta is not None
    return meta


def test_the_store_holds_what_the_worker_would_have_made_of_the_events(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    raw = [raw_event(attempt_id=f"a{i % 17}", status="failed" if i % 5 == 0 else "succeeded") for i in range(40)]
    write_events(deployment.archive, [decode(value) for value in raw], partition=3)
    made = rebuild_store()
    deliveries = [Delivery(3, at, to_us(BASE), value) for at, value in enumerate(raw)]
    assert stored_rows(redis_client, deployment.project) == expected_of(deliveries, EPOCH, HORIZON_US).rows
    assert made.rows == {level.view: 1 for level in LEVELS}
    meta = stored_meta(redis_client, deployment)
    assert (meta.state, meta.epoch, meta.family_rule) == ("ready", EPOCH, DEFAULT_RULES.version)
    assert meta.checkpoints == made.checkpoints == {3: 40}
    assert meta.generation == made.generation


def test_the_worker_goes_on_where_it_had_come_to_so_that_it_writes_the_dead_letters_from_there_on(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    for partition in range(4):
        write_events(deployment.archive, [event(f"{partition}-{at}") for at in range(10)], partition=partition)
    bounds = {partition: Bounds(2, 20) for partition in range(4)}
    acknowledged = {0: 7, 1: 15, 2: 1}
    made = rebuild_store(bounds, acknowledged_of=lambda _settings, _partitions: acknowledged)
    # The archive ends at 10, the topic begins at 2, and nobody has told how far partition 3 was taken in.
    assert made.checkpoints == {0: 7, 1: 10, 2: 2, 3: 2}
    assert stored_meta(redis_client, deployment).checkpoints == made.checkpoints


def test_how_far_the_worker_had_come_is_asked_of_the_store_where_it_still_says_so(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event(f"a-{at}") for at in range(10)])
    rebuild_store()
    redis_client.hset(meta_key(deployment.project), checkpoint_field(0), b"4")
    made = rebuild_store({0: Bounds(0, 20)}, acknowledged_of=lambda _settings, _partitions: {0: 3})
    assert made.checkpoints == {0: 4}


def test_an_import_reaches_the_store(deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis) -> None:
    write_events(deployment.archive, [event("old", -10_000)], epoch=1)
    write_events(deployment.archive, [event("live")], partition=2)
    rebuild_store()
    row = stored_rows(redis_client, deployment.project)[FAMILY.view, ("ranker/ranker-prod",)]
    assert (row["count"], row["version"]) == (2, "1:0:0,1000000:2:0")
    assert stored_meta(redis_client, deployment).checkpoints == {2: 1}


def test_rows_and_attempts_that_the_archive_does_not_give_are_removed(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a"), event("other", job_family="other")])
    rebuild_store()
    stray = layout.entity_key(deployment.project, FAMILY.join_keys, ("no/such",))
    foreign = layout.entity_key("other_" + deployment.project, FAMILY.join_keys, ("ranker/other",))
    other_view = layout.timestamp_field("a_view_of_ones_own")
    row = redis_client.hgetall(layout.entity_key(deployment.project, FAMILY.join_keys, ("ranker/other",)))
    for key in (stray, foreign):
        redis_client.hset(key, mapping=row)
    redis_client.hset(stray, other_view, b"kept")
    forgotten = attempt_key(deployment.project, True, "forgotten")
    redis_client.set(forgotten, b"1:0:0:d")
    rebuild_store()
    assert redis_client.hgetall(stray) == {other_view: b"kept"}
    assert redis_client.hgetall(foreign) == row
    assert not redis_client.exists(forgotten)
    result = audit(deployment, rules=DEFAULT_RULES)
    assert (result.equal, result.total) == (9, 9)


def test_corrected_history_of_the_same_times_lands(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    # feast-dev/feast#2795, feast-dev/feast#3275: corrected history rebuilt with the same timestamps
    path = write_events(deployment.archive, [event("a", throughput=1.0)])
    rebuild_store()
    path.unlink()
    write_events(deployment.archive, [event("a", throughput=2.0)])
    rebuild_store()
    row = stored_rows(redis_client, deployment.project)[FAMILY.view, ("ranker/ranker-prod",)]
    assert row["last"] == pytest.approx(0.6931471806)


def test_attempts_that_may_come_again_are_remembered_at_their_first_position(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    day = 24 * 60
    old, again, failed = event("old", -23 * day), event("again", -day), event("again", -day, status="failed")
    write_events(deployment.archive, [old, again, failed, again, event("last")])
    made = rebuild_store(now=lambda: SOON)
    assert made.attempts == 3
    value = redis_client.get(attempt_key(deployment.project, True, "again"))
    assert decode_attempt(value) == (Position(EPOCH, 0, 1), content_digest(again))
    value = redis_client.get(attempt_key(deployment.project, False, "again"))
    assert decode_attempt(value) == (Position(EPOCH, 0, 2), content_digest(failed))
    assert not redis_client.exists(attempt_key(deployment.project, True, "old"))
    left_ms = redis_client.pttl(attempt_key(deployment.project, True, "last"))
    assert 0 < left_ms <= deployment.attempt_memory_ms


def raw_rows(client: redis.Redis, settings: Settings) -> dict[bytes, dict[bytes, bytes]]:
    """Every history row as Redis has it."""
    prefixes = tuple(layout.key_prefix(level.join_keys) for level in LEVELS)
    keys = [key for key in client.scan_iter(b"*" + settings.project.encode()) if key.startswith(prefixes)]
    return {key: client.hgetall(key) for key in keys}


def take_in(settings: Settings, deliveries: Sequence[Delivery]) -> None:
    """What a worker does with `deliveries`."""
    store = Store(settings)
    meta = store.read_meta()
    assert meta is not None
    batch = HistoryWriter(settings, store, None).write(deliveries, session_of(meta), meta.epoch)
    store.move_checkpoints(session_of(meta), batch.checkpoints)
    store.close()


def test_rows_are_byte_for_byte_those_of_the_worker_and_of_feasts_materialize(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis, tmp_path: Path
) -> None:
    raw = [
        raw_event(
            attempt_id=f"ä{i}",
            status="failed" if i % 5 < 2 else "succeeded",
            job_family=f"läufe-{i % 7}",
            hardware_type=f"hw{i % 3}",
            trainer_count=2 ** (i % 4),
            batch_size=(i % 2) * i / 3,
            throughput=10.0 ** (i % 30 - 15),
        )
        for i in range(120)
    ]
    write_events(deployment.archive, [decode(value) for value in raw], partition=3)
    rebuild_store()
    rebuilt = raw_rows(redis_client, deployment)
    assert {layout.decode_entity_key(key, deployment.project)[0] for key in rebuilt} == {
        tuple(sorted(level.join_keys)) for level in LEVELS
    }

    redis_client.flushall()
    store = Store(deployment)
    store.create_meta(DEFAULT_RULES.version, EPOCH, "")
    store.close()
    take_in(deployment, [Delivery(3, at, to_us(BASE), value) for at, value in enumerate(raw)])
    assert raw_rows(redis_client, deployment) == rebuilt

    redis_client.flushall()
    feast = open_feature_store(deployment, tmp_path / "registry.db")
    apply_definitions(feast, deployment)
    feast.materialize(datetime(1970, 1, 1, tzinfo=UTC), SOON, [level.view for level in LEVELS])
    assert raw_rows(redis_client, deployment) == rebuilt


def test_a_rebuild_and_an_audit_need_no_feast() -> None:
    code = "import sys, leap_streams.store_commands; sys.exit('feast' in sys.modules)"
    path = os.pathsep.join(sys.path)
    assert (
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, check=False).returncode
        == 0
    )


def test_events_that_are_archived_during_a_rebuild_are_left_to_the_worker(
    deployment: Settings, rebuild_store: Rebuild
) -> None:
    a, b = event("a", 0), event("b", -3)
    write_events(deployment.archive, [a], partition=1)
    write_events(deployment.archive, [event("z", -5)])

    def archive_goes_on(line: str) -> None:
        if "rebuilding" in line:
            # Its `a` was recorded before the one that is counted already.
            write_events(deployment.archive, [b, a], first=1, lag_us=-1)

    assert rebuild_store(say=archive_goes_on).checkpoints == {0: 1, 1: 1}
    take_in(deployment, [Delivery(0, 1 + at, to_us(e.completed_at) - 1, encode(e)) for at, e in enumerate((b, a))])
    result = audit(deployment, rules=DEFAULT_RULES)
    assert (result.equal, result.total) == (6, 6), result.first


def test_what_feast_writes_during_a_rebuild_is_written_over(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a")])
    rebuild_store()
    row = layout.entity_key(deployment.project, FAMILY.join_keys, ("ranker/ranker-prod",))
    before = redis_client.hgetall(row)
    store = Store(deployment)
    meta = store.read_meta()
    assert meta is not None
    redis_client.hset(row, layout.field(FAMILY.view, "version"), layout.encode_value("9:9:9"))
    redis_client.hset(row, layout.field(FAMILY.view, "count"), layout.encode_value(7))
    RowRestore(store, meta.generation, lambda _line: None).write_rows(history_build.current(deployment.history))
    store.close()
    assert redis_client.hgetall(row) == before


def test_a_rebuild_writes_nothing_into_a_store_that_another_has_taken_over(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a")])
    rebuild_store()
    before = raw_rows(redis_client, deployment)
    store = Store(deployment)
    superseded = RowRestore(store, "an earlier generation", lambda _line: None)
    first = FirstEvent(True, "b", Position(EPOCH, 0, 9), "d")
    for step in (
        superseded.clear,
        lambda: superseded.write_rows(history_build.current(deployment.history)),
        lambda: superseded.write_attempts(1, iter([[first]]), 1000),
    ):
        with pytest.raises(Refused):
            step()
    store.close()
    assert raw_rows(redis_client, deployment) == before
    assert redis_client.exists(attempt_key(deployment.project, True, "a"))
    assert not redis_client.exists(attempt_key(deployment.project, True, "b"))


def test_the_launcher_gets_nothing_until_the_rebuild_is_done(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis, tmp_path: Path
) -> None:
    publish_small_bundle(tmp_path / "bundles", project=deployment.project)
    write_events(deployment.archive, [event("a")])
    predictor = Predictor.open(tmp_path / "bundles", deployment.redis_url, project=deployment.project, deadline_s=30.0)
    job = Job("ranker-prod-2026-03-01-run7", "ranker", trainer_count=8, batch_size=32)
    hardware = ["H100-SXM-80", "A100-SXM-80"]
    answers = []

    def ask(line: str) -> None:
        if line.startswith("online store: rebuilding") or "may be repeated" in line:
            answers.append((predictor.rank(job, hardware), predictor.explain(job, hardware).reason))

    redis_client.flushall()
    assert predictor.rank(job, hardware) == []
    rebuild_store(say=ask)
    assert answers == [([], Reason.HISTORY_REBUILDING)] * 2
    assert {choice.hardware_type for choice in predictor.rank(job, hardware)} == set(hardware)
    predictor.close()


def test_of_two_rebuilds_at_once_the_later_one_wins(deployment: Settings, rebuild_store: Rebuild) -> None:
    write_events(deployment.archive, [event("a")])
    b = event("b", 1)
    begun: list[str] = []

    def another_is_faster(line: str) -> None:
        if "rebuilding" in line and not begun:
            begun.append(line)
            rebuild_store()
            take_in(deployment, [Delivery(0, 1, to_us(b.completed_at), encode(b))])
            write_events(deployment.archive, [b], first=1)

    with pytest.raises(RebuildRefused, match="this one has stopped"):
        rebuild_store(say=another_is_faster)
    result = audit(deployment, rules=DEFAULT_RULES)
    assert (result.equal, result.total) == (6, 6), result.first


def test_rows_stamped_ahead_of_the_clock_are_written_too(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    ahead = event("a", 60 * 24 * 365 * 3)
    write_events(deployment.archive, [ahead])
    made = rebuild_store(now=lambda: datetime(2026, 3, 1, tzinfo=UTC))
    assert made.rows == {level.view: 1 for level in LEVELS}
    assert len(stored_rows(redis_client, deployment.project)) == len(LEVELS)


def test_an_archive_with_a_hole_is_refused_and_the_store_left_alone(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a")])
    rebuild_store()
    before = {key: redis_client.hgetall(key) for key in redis_client.keys("*") if redis_client.type(key) == b"hash"}
    write_events(deployment.archive, [event("b")], first=5)
    with pytest.raises(ArchiveHole, match="lacks offsets 1 to 4"):
        rebuild_store()
    after = {key: redis_client.hgetall(key) for key in redis_client.keys("*") if redis_client.type(key) == b"hash"}
    assert after == before


def test_an_archive_that_ends_before_the_topic_begins_is_refused(deployment: Settings, rebuild_store: Rebuild) -> None:
    write_events(deployment.archive, [event("a")])
    assert rebuild_store({0: Bounds(1, 7)}).checkpoints == {0: 1}
    with pytest.raises(ArchiveHole, match=r"lacks offsets 1 to 2 \(the topic has deleted them already"):
        rebuild_store({0: Bounds(3, 7)})
    with pytest.raises(ArchiveHole, match="partition 1 lacks offsets 0 to 3"):
        rebuild_store({0: Bounds(0, 7), 1: Bounds(4, 4)})


def test_a_topic_that_was_deleted_and_created_again_needs_a_new_epoch(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a"), event("b"), event("c")])
    with pytest.raises(RebuildRefused, match=r"up to offset 3, but in topic .* it ends at 2: .*--new-epoch"):
        rebuild_store({0: Bounds(0, 2)})
    with pytest.raises(RebuildRefused, match="it does not exist"):
        rebuild_store({1: Bounds(0, 2)})
    made = rebuild_store({0: Bounds(0, 2)}, new_epoch=True)
    assert (made.epoch, made.checkpoints) == (EPOCH + 1, {})
    assert stored_rows(redis_client, deployment.project)[FAMILY.view, ("ranker/ranker-prod",)]["count"] == 3
    # From now on the store follows the new epoch by itself.
    assert rebuild_store({0: Bounds(0, 2)}).epoch == EPOCH + 1


def test_a_rebuild_that_was_killed_leaves_a_store_that_nobody_takes_for_whole(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    class Killed(BaseException):
        pass

    write_events(deployment.archive, [event("a")])
    first = rebuild_store()

    def die(line: str) -> None:
        if "rebuilding" in line:
            raise Killed

    with pytest.raises(Killed):
        rebuild_store(say=die)
    meta = stored_meta(redis_client, deployment)
    assert meta.state == "rebuilding"
    assert meta.generation != first.generation
    assert meta.checkpoints == {}
    rebuild_store()
    assert stored_meta(redis_client, deployment).state == "ready"


def test_of_two_rebuilds_at_once_the_earlier_one_does_not_declare_the_store_ready(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a")])

    def another_begins(line: str) -> None:
        if "rebuilding" in line:
            redis_client.hset(meta_key(deployment.project), "generation", "of another")

    with pytest.raises(RebuildRefused, match=r"another rebuild, or .* has taken the store over meanwhile"):
        rebuild_store(say=another_begins)
    assert stored_meta(redis_client, deployment).state == "rebuilding"


@pytest.mark.parametrize("meta", [{b"schema": b"0"}, {b"schema": SCHEMA_VERSION.encode(), b"epoch": b"?"}, {}])
def test_a_meta_that_cannot_be_read_is_replaced(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis, meta: dict[bytes, bytes]
) -> None:
    write_events(deployment.archive, [event("a")], epoch=EPOCH + 5)
    if meta:
        redis_client.hset(meta_key(deployment.project), mapping=dict(meta))
    assert rebuild_store().epoch == EPOCH + 5
    assert stored_meta(redis_client, deployment).state == "ready"


def test_checkpoints_of_the_store_before_are_not_kept(
    deployment: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployment.archive, [event("a")])
    rebuild_store()
    redis_client.hset(meta_key(deployment.project), checkpoint_field(9), b"100")
    rebuild_store()
    assert stored_meta(redis_client, deployment).checkpoints == {0: 1}
