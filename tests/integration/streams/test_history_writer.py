"""The writer on a real Redis, without a broker: its batches against the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
import redis

from events_strategies import BASE, raw_event
from interleavings import Crashed, Cut, TroubledStore
from leap_features import layout
from leap_features.events import content_digest, decode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.history import CorruptState, Position, Row, encode_state
from leap_features.levels import FAMILY, LEVELS
from leap_features.meta import FIRST_LIVE_EPOCH, attempt_key
from leap_features.settings import Settings
from leap_streams.faults import Refused
from leap_streams.history_writer import CLAIMS_AT_ONCE, Batch, Delivery, HistoryWriter
from leap_streams.store import Session, Store, session_of
from oracle import expected_of, stored_rows
from services import RedisServer

NOW = to_us(BASE) + 60_000_000
HORIZON_US = 7 * 86_400_000_000


def nothing_archived(_: Sequence[tuple[bool, str]]) -> dict[tuple[bool, str], tuple[Position, str]]:
    return {}


@pytest.fixture
def store_settings(redis_server: RedisServer, redis_client: redis.Redis, project: str) -> Settings:
    return Settings(redis_url=redis_server.url, project=project)


@pytest.fixture
def store(store_settings: Settings) -> Store:
    store = Store(store_settings)
    assert store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
    return store


@pytest.fixture
def writer(store_settings: Settings, store: Store) -> HistoryWriter:
    return HistoryWriter(store_settings, store, nothing_archived)


def session_now(store: Store) -> Session:
    meta = store.read_meta()
    assert meta is not None
    return session_of(meta)


def taken(writer: HistoryWriter, store: Store, session: Session, *deliveries: Delivery) -> Batch:
    """Take deliveries as the worker does: rows, then checkpoints."""
    batch = writer.write(deliveries, session, FIRST_LIVE_EPOCH)
    store.move_checkpoints(session, batch.checkpoints)
    return batch


@pytest.fixture
def take(store: Store, writer: HistoryWriter) -> Callable[..., Batch]:
    """Begin where the store is, and take deliveries."""
    return lambda *deliveries: taken(writer, store, session_now(store), *deliveries)


def before(exchange: int, happens: Callable[[], Cut | None]) -> Callable[[], Cut | None]:
    """What happens before the exchange of that number, and only then."""
    exchanges = itertools.count()
    return lambda: happens() if next(exchanges) == exchange else None


def delivery(offset: int, partition: int = 0, replay: bool = False, recorded: int = NOW, **changes: object) -> Delivery:
    return Delivery(partition, offset, recorded, raw_event(**changes), replay)


def test_a_batch_gives_the_rows_of_the_oracle_at_every_level(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    deliveries = [
        delivery(0, attempt_id="a", throughput=100.0),
        delivery(1, attempt_id="b", throughput=200.0, trainer_count=16),
        delivery(0, 1, attempt_id="c", status="failed", throughput=...),
        delivery(2, attempt_id="a", throughput=100.0),
        delivery(3, attempt_id="d", status="preempted", throughput=...),
    ]
    batch = take(*deliveries)
    expected = expected_of(deliveries, FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(redis_client, project) == expected.rows
    assert batch.counts["folded"] == 3
    assert batch.counts["duplicate"] == 1
    assert batch.counts["without_effect"] == 1
    assert len(expected.rows) == 1 + 1 + 2 + 2 + 1 + 1


def test_a_batch_done_again_changes_nothing(
    take: Callable[..., Batch], store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str
) -> None:
    # faust-streaming/faust#323, #47: killed between the write to Redis and the commit
    deliveries = [delivery(0, attempt_id="a"), delivery(1, attempt_id="b", throughput=50.0)]
    writer.write(deliveries, session_now(store), FIRST_LIVE_EPOCH)
    before = stored_rows(redis_client, project)
    assert take(*deliveries).counts["rows_written"] == 0
    assert stored_rows(redis_client, project) == before


@pytest.mark.parametrize(("exchange", "commands"), [(0, 0), (0, 1), (1, 0), (1, 2), (1, 99), (2, 0), (2, 1)])
def test_a_worker_killed_at_any_step_is_followed_by_one_that_counts_once(
    take: Callable[..., Batch],
    store_settings: Settings,
    store: Store,
    redis_client: redis.Redis,
    project: str,
    exchange: int,
    commands: int,
) -> None:
    # faust-streaming/faust#323, #47. Exchanges: claims and reading, rows, checkpoints; so many commands are done.
    deliveries = [
        delivery(0, attempt_id="a"),
        delivery(1, attempt_id="b", trainer_count=16),
        delivery(2, attempt_id="a"),
    ]
    dying = TroubledStore(store_settings)
    dying.before_exchange = before(exchange, lambda: Cut(commands, crash=True))
    session = session_now(store)
    with pytest.raises(Crashed):
        taken(HistoryWriter(store_settings, dying, nothing_archived), dying, session, *deliveries)
    take(*deliveries)
    expected = expected_of(deliveries, FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(redis_client, project) == expected.rows
    assert session_now(store).checkpoints == {0: b"3"}


def test_a_slow_partition_is_not_passed_by_the_checkpoint_of_another(
    take: Callable[..., Batch], store_settings: Settings, store: Store, redis_client: redis.Redis, project: str
) -> None:
    # faust-streaming/faust#606: several partitions in flight, one of them slow
    deliveries = [delivery(0, 0, attempt_id="a"), delivery(0, 1, attempt_id="b"), delivery(1, 1, attempt_id="a")]
    slow = TroubledStore(store_settings)

    def the_other_goes_on_and_the_slow_one_dies() -> Cut:
        take(*deliveries[1:])
        return Cut(0, crash=True)

    slow.before_exchange = before(1, the_other_goes_on_and_the_slow_one_dies)
    with pytest.raises(Crashed):
        HistoryWriter(store_settings, slow, nothing_archived).write(
            deliveries[:1], session_now(store), FIRST_LIVE_EPOCH
        )
    assert session_now(store).checkpoints == {1: b"2"}
    take(deliveries[0])
    assert stored_rows(redis_client, project) == expected_of(deliveries, FIRST_LIVE_EPOCH, HORIZON_US).rows


def test_an_attempt_reported_with_other_content_is_a_conflict(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    take(delivery(0, attempt_id="a", throughput=100.0))
    before = stored_rows(redis_client, project)
    batch = take(delivery(1, attempt_id="a", throughput=101.0))
    assert [(r.rule, r.position.offset) for r in batch.rejected] == [("conflicting_attempt", 1)]
    assert "offset 0" in batch.rejected[0].message
    assert stored_rows(redis_client, project) == before


def test_a_failed_then_succeeded_attempt_counts_as_both(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    take(delivery(0, attempt_id="a", status="failed", throughput=...))
    later = BASE + timedelta(seconds=5)
    take(delivery(1, attempt_id="a", completed=later))
    row = stored_rows(redis_client, project)["family_history", ("ranker/ranker-prod",)]
    assert (row["count"], row["failures_since_success"]) == (1, 0)


def test_an_attempt_is_forgotten_after_horizon_and_retention(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    take(delivery(0, attempt_id="a"))
    day = 86_400
    assert 21 * day < redis_client.ttl(attempt_key(project, True, "a")) <= 22 * day


def test_a_late_event_is_rejected_and_its_replay_counts(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    late = NOW + 30 * 86_400_000_000
    batch = take(delivery(0, attempt_id="a", recorded=late))
    assert [r.rule for r in batch.rejected] == ["too_late"]
    assert take(delivery(1, attempt_id="a", recorded=late, replay=True)).counts["folded"] == 1
    assert stored_rows(redis_client, project)["family_history", ("ranker/ranker-prod",)]["count"] == 1


def test_a_replay_asks_the_archive_whether_the_attempt_was_counted(
    store_settings: Settings, store: Store, redis_client: redis.Redis, project: str
) -> None:
    raw = raw_event(attempt_id="a")
    before = {(True, "a"): (Position(1, 0, 0), content_digest(decode(raw)))}
    asked = []

    def archived(attempts: Sequence[tuple[bool, str]]) -> dict[tuple[bool, str], tuple[Position, str]]:
        asked.append(list(attempts))
        return before

    writer = HistoryWriter(store_settings, store, archived)
    late = NOW + 30 * 86_400_000_000
    batch = writer.write([Delivery(0, 0, late, raw, True)], session_now(store), FIRST_LIVE_EPOCH)
    assert batch.counts["duplicate"] == 1
    assert asked == [[(True, "a")]]
    # However recent: where the producers set the record times, a replay of old runs looks recent.
    batch = writer.write([Delivery(0, 1, NOW, raw, True)], session_now(store), FIRST_LIVE_EPOCH)
    assert batch.counts["duplicate"] == 1
    # An event that is not replayed costs no look into the archive.
    writer.write([Delivery(0, 2, NOW, raw_event(attempt_id="b"))], session_now(store), FIRST_LIVE_EPOCH)
    assert asked == [[(True, "a")]] * 2


def test_without_an_archive_a_late_replay_is_rejected(store_settings: Settings, store: Store) -> None:
    writer = HistoryWriter(store_settings, store, None)
    late = NOW + 30 * 86_400_000_000
    batch = writer.write([delivery(0, recorded=late, replay=True)], session_now(store), FIRST_LIVE_EPOCH)
    assert [r.rule for r in batch.rejected] == ["replay_without_archive"]
    assert "LEAP_ARCHIVE" in batch.rejected[0].message


def test_another_generation_refuses_every_write(
    store_settings: Settings, store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str
) -> None:
    session = session_now(store)
    redis_client.hset(f"leap:{project}:meta", "generation", "another")
    with pytest.raises(Refused):
        writer.write([delivery(0)], session, FIRST_LIVE_EPOCH)
    with pytest.raises(Refused):
        store.move_checkpoints(session, {0: 1})
    assert stored_rows(redis_client, project) == {}


def test_a_store_that_went_back_in_time_refuses_the_batch(
    take: Callable[..., Batch], store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str
) -> None:
    take(delivery(0, attempt_id="a"))
    ahead = session_now(store)
    redis_client.hdel(f"leap:{project}:meta", "checkpoint:0")
    with pytest.raises(Refused):
        writer.write([delivery(1, attempt_id="b")], ahead, FIRST_LIVE_EPOCH)


@pytest.mark.parametrize("changed", [{"generation": "another"}, {"checkpoint:0": "1"}])
def test_a_store_that_is_another_one_after_the_claims_refuses_the_rows(
    store_settings: Settings, store: Store, redis_client: redis.Redis, project: str, changed: dict[str, str]
) -> None:
    def change() -> None:
        redis_client.hset(f"leap:{project}:meta", mapping=dict(changed))

    slow = TroubledStore(store_settings)
    slow.before_exchange = before(1, change)
    with pytest.raises(Refused):
        HistoryWriter(store_settings, slow, nothing_archived).write([delivery(0)], session_now(store), FIRST_LIVE_EPOCH)
    assert stored_rows(redis_client, project) == {}


@pytest.mark.parametrize("changed", [{"generation": "another"}, {"checkpoint:0": "1"}])
def test_a_refused_batch_claims_no_attempt(
    store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str, changed: dict[str, str]
) -> None:
    """What a zombie claimed would be in the way of an event that comes before it, or of a later life of the topic."""
    session = session_now(store)
    redis_client.hset(f"leap:{project}:meta", mapping=dict(changed))
    with pytest.raises(Refused):
        writer.write([delivery(2, attempt_id="a")], session, FIRST_LIVE_EPOCH)
    assert not redis_client.exists(attempt_key(project, True, "a"))


def test_of_two_partitions_that_tell_an_attempt_differently_the_first_taken_in_counts_also_after_going_back(
    take: Callable[..., Batch], store_settings: Settings, redis_client: redis.Redis, project: str
) -> None:
    """It may then be the other one, of which there is a dead letter already. To replay that does no harm."""
    one, other = delivery(0, 0, attempt_id="a", throughput=1.0), delivery(0, 1, attempt_id="a", throughput=2.0)
    take(one)
    (letter,) = take(other).rejected
    redis_client.flushall()
    assert Store(store_settings).create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
    take(other)
    assert [rejected.delivery for rejected in take(one).rejected] == [one]
    counted = expected_of([other, one], FIRST_LIVE_EPOCH, HORIZON_US).rows
    assert stored_rows(redis_client, project) == counted
    replayed = letter.delivery._replace(offset=1, replay=True)
    assert take(replayed).counts["duplicate"] == 1
    assert stored_rows(redis_client, project) == expected_of([other, replayed], FIRST_LIVE_EPOCH, HORIZON_US).rows


def test_a_batch_of_more_partitions_than_lua_unpacks_moves_all_its_checkpoints(
    take: Callable[..., Batch], store: Store
) -> None:
    partitions = 4_500
    take(*(Delivery(partition, 0, NOW, None) for partition in range(partitions)))
    meta = store.read_meta()
    assert meta is not None
    assert meta.checkpoints == dict.fromkeys(range(partitions), 1)


def test_a_batch_of_one_key_alone_is_claimed_page_by_page(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    deliveries = [delivery(offset, attempt_id=f"a{offset % 1_100}") for offset in range(3 * CLAIMS_AT_ONCE)]
    assert take(*deliveries).counts["folded"] == 1_100
    expected = expected_of(deliveries, FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(redis_client, project) == expected.rows


def test_a_row_that_lost_its_state_is_not_taken_for_a_cold_start(
    take: Callable[..., Batch], redis_client: redis.Redis, project: str
) -> None:
    take(delivery(0, attempt_id="a"))
    key = layout.entity_key(project, FAMILY.join_keys, ("ranker/ranker-prod",))
    redis_client.hdel(key, layout.field(FAMILY.view, "state"))
    with pytest.raises(CorruptState, match="run `leap"):
        take(delivery(1, attempt_id="b"))


def test_a_row_that_was_mended_under_a_worker_is_folded_again_from_what_it_is_now(
    take: Callable[..., Batch], store_settings: Settings, store: Store, redis_client: redis.Redis, project: str
) -> None:
    """Mending leaves the version as it is: the version alone would not tell."""
    take(delivery(0, attempt_id="a"))
    key = layout.entity_key(project, FAMILY.join_keys, ("ranker/ranker-prod",))
    sound = redis_client.hgetall(key)
    redis_client.hset(key, layout.field(FAMILY.view, "state"), layout.encode_value(encode_state(Row(n=7))))
    slow = TroubledStore(store_settings)

    def mend() -> None:
        redis_client.hset(key, mapping=sound)

    slow.before_exchange = before(1, mend)
    batch = HistoryWriter(store_settings, slow, nothing_archived).write(
        [delivery(1, attempt_id="b")], session_now(store), FIRST_LIVE_EPOCH
    )
    assert batch.counts["conflicts"] == 1
    both = [delivery(0, attempt_id="a"), delivery(1, attempt_id="b")]
    assert stored_rows(redis_client, project) == expected_of(both, FIRST_LIVE_EPOCH, HORIZON_US).rows


def test_a_checkpoint_never_moves_back(take: Callable[..., Batch], store: Store) -> None:
    take(delivery(9, attempt_id="a"))
    take(delivery(3, attempt_id="b"))
    meta = store.read_meta()
    assert meta is not None
    assert meta.checkpoints == {0: 10}


def test_a_row_that_another_writer_changed_is_folded_again(
    store_settings: Settings, store: Store, redis_client: redis.Redis, project: str
) -> None:
    """Another worker, with records of another partition, writes the same rows between reading and writing."""
    other = HistoryWriter(store_settings, Store(store_settings), nothing_archived)
    session = session_now(store)
    others = [delivery(offset, 1, attempt_id=f"o{offset}") for offset in range(3)]
    # Exchanges: claims and reading; then, again and again, writing and reading.
    coming = dict(zip((1, 3, 5), others, strict=True))
    exchanges = itertools.count()

    def interfere() -> None:
        if (exchange := next(exchanges)) in coming:
            other.write([coming[exchange]], session, FIRST_LIVE_EPOCH)

    troubled = TroubledStore(store_settings)
    troubled.before_exchange = interfere
    own = delivery(0, 0, attempt_id="a")
    batch = HistoryWriter(store_settings, troubled, nothing_archived).write([own], session, FIRST_LIVE_EPOCH)
    assert batch.counts["conflicts"] == 3 * len(LEVELS)
    expected = expected_of([*others, own], FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(redis_client, project) == expected.rows
