"""The repair mends what the archive has in full, and nothing that a worker has changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta

import pytest
import redis
from click.testing import CliRunner

from archived_events import event, write_events
from events_strategies import BASE
from leap_features import history_build, layout
from leap_features.events import content_digest, encode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.history import CorruptState, Position
from leap_features.levels import FAMILY, LEVELS, MODEL_SCALE
from leap_features.meta import FIRST_LIVE_EPOCH, attempt_key, attempt_value, checkpoint_field, meta_key
from leap_features.settings import Settings
from leap_streams import row_compare
from leap_streams.audit import Audit, audit, report
from leap_streams.cli import audit_command
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.rebuild import Rebuilt
from leap_streams.repair import Mended, Repair
from leap_streams.store import Store, session_of
from oracle import stored_rows

EPOCH = FIRST_LIVE_EPOCH
SOON = BASE.astimezone(UTC) + timedelta(hours=1)
Rebuild = Callable[..., Rebuilt]


@pytest.fixture
def rebuilt(deployment: Settings, rebuild_store: Rebuild) -> Settings:
    """A store that equals an archive with three families on partition 0 up to offset 4: ten rows, five attempts."""
    families = ["x", "x", "y", "z", "z"]
    write_events(deployment.archive, [event(f"a{at}", at, job_family=name) for at, name in enumerate(families)])
    rebuild_store(now=lambda: SOON)
    return deployment


def audited(settings: Settings) -> Audit:
    return audit(settings, rules=DEFAULT_RULES, now=lambda: SOON)


def repaired(settings: Settings, pause: Callable[[float], None] = lambda _s: None) -> Mended:
    result = audit(settings, rules=DEFAULT_RULES, repair=True, now=lambda: SOON, pause=pause)
    assert result.mended is not None
    return result.mended


def check_equal(settings: Settings, total: int = 12) -> None:
    result = audited(settings)
    assert (result.equal, result.total, result.attempts) == (total, total, {}), (result.first, result.first_attempts)
    assert result.sound


def row_key(settings: Settings, family: str) -> bytes:
    return layout.entity_key(settings.project, FAMILY.join_keys, (f"ranker/{family}",))


def take_in(settings: Settings, *deliveries: Delivery) -> None:
    """What a worker does with `deliveries`."""
    store = Store(settings)
    meta = store.read_meta()
    assert meta is not None
    try:
        batch = HistoryWriter(settings, store, None).write(deliveries, session_of(meta), meta.epoch)
        store.move_checkpoints(session_of(meta), batch.checkpoints)
    finally:
        store.close()


def delivery(attempt_id: str, minute: int, offset: int, family: str = "x") -> Delivery:
    sent = event(attempt_id, minute, job_family=family)
    return Delivery(0, offset, to_us(sent.completed_at), encode(sent))


def test_rows_that_differ_are_made_from_the_archive(rebuilt: Settings, redis_client: redis.Redis) -> None:
    before = stored_rows(redis_client, rebuilt.project)
    redis_client.hset(row_key(rebuilt, "x"), layout.field(FAMILY.view, "count"), layout.encode_value(7))
    redis_client.hset(row_key(rebuilt, "y"), layout.timestamp_field(FAMILY.view), b"\xff")
    redis_client.hset(row_key(rebuilt, "z"), layout.field(FAMILY.view, "version"), layout.encode_value("a:b"))
    assert repaired(rebuilt) == Mended({FAMILY.view: 3}, {}, 0, 0)
    assert stored_rows(redis_client, rebuilt.project) == before
    check_equal(rebuilt)


def test_a_mended_row_has_the_bytes_that_it_had(rebuilt: Settings, redis_client: redis.Redis) -> None:
    key = row_key(rebuilt, "x")
    before = redis_client.hgetall(key)
    redis_client.delete(key)
    assert repaired(rebuilt) == Mended({FAMILY.view: 1}, {}, 0, 0)
    assert redis_client.hgetall(key) == before


def test_rows_that_no_event_gives_are_removed_and_other_views_of_their_key_kept(
    rebuilt: Settings, redis_client: redis.Redis
) -> None:
    row = redis_client.hgetall(row_key(rebuilt, "x"))
    redis_client.hset(row_key(rebuilt, "stray"), mapping=row)
    redis_client.hset(row_key(rebuilt, "shared"), mapping=row | {b"_ts:a_view_of_ones_own": b"kept"})
    # Of the shared key's view it is all that there is.
    redis_client.hset(row_key(rebuilt, "broken"), layout.field(FAMILY.view, "version"), b"\xff")
    assert repaired(rebuilt) == Mended({}, {FAMILY.view: 3}, 0, 0)
    assert not redis_client.exists(row_key(rebuilt, "stray"))
    assert not redis_client.exists(row_key(rebuilt, "broken"))
    assert redis_client.hgetall(row_key(rebuilt, "shared")) == {b"_ts:a_view_of_ones_own": b"kept"}
    check_equal(rebuilt)


def test_an_import_reaches_the_store(rebuilt: Settings) -> None:
    write_events(rebuilt.archive, [event("old", -10_000, job_family="x")], epoch=1)
    assert sum(repaired(rebuilt).written.values()) == len(LEVELS)
    check_equal(rebuilt)


def test_attempts_are_remembered_again_and_none_counts_twice(rebuilt: Settings, redis_client: redis.Redis) -> None:
    lost, wrong = attempt_key(rebuilt.project, True, "a0"), attempt_key(rebuilt.project, True, "a1")
    misplaced, unknown = attempt_key(rebuilt.project, True, "a2"), attempt_key(rebuilt.project, False, "a2")
    before = {key: redis_client.get(key) for key in (lost, wrong, misplaced)}
    redis_client.delete(lost)
    redis_client.set(wrong, attempt_value(Position(EPOCH, 0, 1), "another digest"))
    redis_client.set(misplaced, attempt_value(Position(EPOCH, 0, 3), content_digest(event("a2", 2, job_family="y"))))
    redis_client.set(unknown, attempt_value(Position(EPOCH, 0, 2), "d"))
    result = audited(rebuilt)
    assert result.attempts == {"forgotten": 1, "wrong": 2, "unknown": 1}
    assert not result.sound
    assert "1 attempts are not remembered online: reported again they would count twice" in list(report(result))
    assert repaired(rebuilt) == Mended({}, {}, 4, 0)
    assert {key: redis_client.get(key) for key in before} == before
    assert 0 < redis_client.pttl(lost) <= rebuilt.attempt_memory_ms
    assert not redis_client.exists(unknown)
    check_equal(rebuilt)
    take_in(rebuilt, delivery("a0", 0, 5))
    assert stored_rows(redis_client, rebuilt.project)[FAMILY.view, ("ranker/x",)]["count"] == 2


def test_attempts_are_forgotten_in_due_time(rebuilt: Settings, redis_client: redis.Redis) -> None:
    redis_client.delete(attempt_key(rebuilt.project, True, "a0"))
    later = SOON + timedelta(milliseconds=rebuilt.attempt_memory_ms)
    assert audit(rebuilt, rules=DEFAULT_RULES, now=lambda: later).attempts == {}


def test_what_the_archive_or_the_worker_has_not_come_to_is_left(rebuilt: Settings, redis_client: redis.Redis) -> None:
    take_in(rebuilt, delivery("new", 10, 5))
    redis_client.hset(meta_key(rebuilt.project), checkpoint_field(0), b"5")
    write_events(rebuilt.archive, [event("next", 11, job_family="y")], partition=1)
    before = stored_rows(redis_client, rebuilt.project)
    result = audit(rebuilt, rules=DEFAULT_RULES, repair=True, now=lambda: SOON)
    assert (result.ahead, result.behind, result.equal) == (6, 3, 3)
    assert result.mended == Mended({}, {}, 0, 0)
    assert result.attempts == {}
    assert stored_rows(redis_client, rebuilt.project) == before


def test_a_row_that_halts_the_worker_is_mended_though_the_worker_is_behind(
    rebuilt: Settings, redis_client: redis.Redis
) -> None:
    redis_client.hset(row_key(rebuilt, "x"), layout.field(FAMILY.view, "version"), layout.encode_value("a:b"))
    with pytest.raises(CorruptState, match="leap audit --repair"):
        take_in(rebuilt, delivery("new", 10, 5))
    write_events(rebuilt.archive, [event("new", 10, job_family="x")], first=5)
    assert repaired(rebuilt) == Mended({FAMILY.view: 1}, {}, 0, 0)
    take_in(rebuilt, delivery("new", 10, 5))
    check_equal(rebuilt)


def test_events_of_an_earlier_epoch_that_were_never_archived_are_kept(
    rebuilt: Settings, redis_client: redis.Redis
) -> None:
    take_in(rebuilt, delivery("unarchived", 10, 5))
    redis_client.hset(meta_key(rebuilt.project), mapping={"epoch": EPOCH + 1})
    redis_client.hdel(meta_key(rebuilt.project), checkpoint_field(0))
    before = stored_rows(redis_client, rebuilt.project)
    result = audit(rebuilt, rules=DEFAULT_RULES, repair=True, now=lambda: SOON)
    assert (result.never_archived, result.equal, result.mended) == (6, 6, Mended({}, {}, 0, 0))
    assert stored_rows(redis_client, rebuilt.project) == before


def test_the_repair_waits_for_the_archive(rebuilt: Settings, redis_client: redis.Redis) -> None:
    take_in(rebuilt, delivery("new", 10, 5))
    redis_client.delete(row_key(rebuilt, "x"))

    def catch_up(_seconds: float) -> None:
        write_events(rebuilt.archive, [event("new", 10, job_family="x")], first=5)

    assert repaired(rebuilt, catch_up) == Mended({FAMILY.view: 1}, {}, 0, 0)
    check_equal(rebuilt)


def test_nothing_is_mended_from_an_archive_that_does_not_catch_up(rebuilt: Settings, redis_client: redis.Redis) -> None:
    take_in(rebuilt, delivery("new", 10, 5))
    redis_client.delete(row_key(rebuilt, "x"))
    waited = []
    with pytest.raises(Unavailable, match=r"lacks 1 record \(partition 0: offset 5\) .* run `leap archive`"):
        repaired(rebuilt, waited.append)
    assert sum(waited) == rebuilt.archive_within_s + 30
    assert not redis_client.exists(row_key(rebuilt, "x"))


def test_a_row_that_a_worker_changed_after_it_was_compared_is_left(
    rebuilt: Settings, redis_client: redis.Redis
) -> None:
    state = layout.field(FAMILY.view, "state")
    redis_client.hset(row_key(rebuilt, "x"), state, redis_client.hget(row_key(rebuilt, "y"), state))
    store = Store(rebuilt)
    meta = store.read_meta()
    assert meta is not None
    build, ends = history_build.current(rebuilt.history), {f"{EPOCH}:0": 5}
    pairs = [
        pair
        for batch in row_compare.compare(store, build, meta, ends, lambda _line: None)
        for pair in batch
        if pair.verdict != "equal"
    ]
    take_in(rebuilt, delivery("new", 10, 5))
    changed = redis_client.hgetall(row_key(rebuilt, "x"))
    mending = Repair(store, meta.generation, rebuilt.attempt_memory_ms)
    mending.rows(pairs)
    assert mending.result() == Mended({}, {}, 0, 1)
    assert redis_client.hgetall(row_key(rebuilt, "x")) == changed
    store.close()
    # Once the archive has the event too, the row is complete there.
    write_events(rebuilt.archive, [event("new", 10, job_family="x")], first=5)
    assert repaired(rebuilt) == Mended({FAMILY.view: 1}, {}, 0, 0)
    check_equal(rebuilt)


def test_a_store_that_is_taken_over_during_the_repair_is_left_alone(
    rebuilt: Settings, redis_client: redis.Redis
) -> None:
    redis_client.delete(row_key(rebuilt, "x"))

    def take_over(line: str) -> None:
        if MODEL_SCALE.view in line:
            redis_client.hset(meta_key(rebuilt.project), "generation", "of a rebuild")

    with pytest.raises(Unavailable, match="was rebuilt, or got a new epoch, during the audit"):
        audit(rebuilt, rules=DEFAULT_RULES, repair=True, say=take_over)
    assert not redis_client.exists(row_key(rebuilt, "x"))


def test_a_repair_names_its_generation_in_every_write(rebuilt: Settings) -> None:
    store = Store(rebuilt)
    mending = Repair(store, "another", rebuilt.attempt_memory_ms)
    row = row_compare.Pair(FAMILY, ("ranker/x",), row_key(rebuilt, "x"), (), None, "only_online", {})
    with pytest.raises(Refused):
        mending.rows([row])
    store.close()


def test_a_store_that_is_being_rebuilt_is_not_mended(rebuilt: Settings, redis_client: redis.Redis) -> None:
    redis_client.hset(meta_key(rebuilt.project), "state", "rebuilding")
    with pytest.raises(Halt, match="run `leap rebuild` to its end"):
        repaired(rebuilt)


def test_the_command_says_what_it_mended_and_succeeds_when_all_is(rebuilt: Settings, redis_client: redis.Redis) -> None:
    env = {
        "LEAP_ARCHIVE": rebuilt.archive,
        "LEAP_HISTORY": rebuilt.history,
        "LEAP_REDIS_URL": rebuilt.redis_url,
        "LEAP_PROJECT": rebuilt.project,
    }
    redis_client.delete(row_key(rebuilt, "x"), row_key(rebuilt, "y"))
    result = CliRunner().invoke(audit_command, ["--repair"], env=env)
    assert result.exit_code == 0, result.output
    assert "mended: written 2 of family_history" in result.stdout
    assert CliRunner().invoke(audit_command, [], env=env).exit_code == 0
