"""The writer on a real Redis, without a broker: its batches against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from events_strategies import BASE, raw_event
from leap_features.events import content_digest, decode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.history import Position
from leap_features.meta import FIRST_LIVE_EPOCH, attempt_key
from leap_features.settings import Settings
from leap_streams.faults import Refused, Unavailable
from leap_streams.history_writer import Batch, Delivery, HistoryWriter
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


@pytest.fixture
def take(store: Store, writer: HistoryWriter) -> Callable[..., Batch]:
    """Take deliveries as the worker does: rows, then checkpoints."""

    def take(*deliveries: Delivery) -> Batch:
        session = session_now(store)
        batch = writer.write(deliveries, session, FIRST_LIVE_EPOCH)
        store.move_checkpoints(session, batch.checkpoints)
        return batch

    return take


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
    assert len(expected.rows) == 1 + 1 + 2 + 2


def test_a_batch_done_again_changes_nothing(
    take: Callable[..., Batch], store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str
) -> None:
    # faust-streaming/faust#323, #47: killed between the write to Redis and the commit
    deliveries = [delivery(0, attempt_id="a"), delivery(1, attempt_id="b", throughput=50.0)]
    writer.write(deliveries, session_now(store), FIRST_LIVE_EPOCH)
    before = stored_rows(redis_client, project)
    assert take(*deliveries).counts["rows_written"] == 0
    assert stored_rows(redis_client, project) == before


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


def test_what_a_refused_batch_claimed_does_not_precede_what_comes_before_it(
    take: Callable[..., Batch], store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str
) -> None:
    """A store that lost its last records under a running worker: claims of the batch under way are made in it."""
    ahead = Session(session_now(store).generation, {0: b"2"})
    with pytest.raises(Refused):
        writer.write([delivery(2, attempt_id="a", throughput=2.0)], ahead, FIRST_LIVE_EPOCH)
    deliveries = [
        delivery(0, attempt_id="a", throughput=1.0),
        delivery(1, attempt_id="a", throughput=1.0),
        delivery(2, attempt_id="a", throughput=2.0),
        delivery(3, attempt_id="a", throughput=2.0),
    ]
    rejected = take(*deliveries[:3]).rejected + take(*deliveries[3:]).rejected
    expected = expected_of(deliveries, FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(redis_client, project) == expected.rows
    assert {(r.position.partition, r.position.offset): r.rule for r in rejected} == expected.dead_letters
    assert [r.position.offset for r in rejected] == [2, 3]


def test_a_checkpoint_never_moves_back(take: Callable[..., Batch], store: Store) -> None:
    take(delivery(9, attempt_id="a"))
    take(delivery(3, attempt_id="b"))
    meta = store.read_meta()
    assert meta is not None
    assert meta.checkpoints == {0: 10}


def test_a_row_that_another_writer_changed_is_folded_again(
    store_settings: Settings, store: Store, writer: HistoryWriter, redis_client: redis.Redis, project: str
) -> None:
    """Another worker, with records of another partition, writes the same rows between reading and writing."""
    other = HistoryWriter(store_settings, Store(store_settings), nothing_archived)
    session = session_now(store)
    interfered = []

    class Interfering(Store):
        def call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
            replies = super().call(commands)
            if commands[-1][0] == b"HMGET" and len(interfered) < 3:
                interfered.append(
                    other.write(
                        [delivery(len(interfered), 1, attempt_id=f"o{len(interfered)}")], session, FIRST_LIVE_EPOCH
                    )
                )
            return replies

    batch = HistoryWriter(store_settings, Interfering(store_settings), nothing_archived).write(
        [delivery(0, 0, attempt_id="a")], session, FIRST_LIVE_EPOCH
    )
    assert batch.counts["conflicts"] > 0
    expected = expected_of(
        [
            delivery(0, 1, attempt_id="o0"),
            delivery(1, 1, attempt_id="o1"),
            delivery(2, 1, attempt_id="o2"),
            delivery(0, 0, attempt_id="a"),
        ],
        FIRST_LIVE_EPOCH,
        HORIZON_US,
    )
    assert stored_rows(redis_client, project) == expected.rows


records = st.lists(
    st.fixed_dictionaries(
        {
            "partition": st.integers(0, 2),
            "failed": st.booleans(),
            "attempt": st.sampled_from("abcdef"),
            # Mostly one content per attempt, so that duplicates outnumber conflicts; both occur.
            "minutes": st.sampled_from([0, 0, 0, 1]),
            "clock": st.integers(-3, 3),
        }
    ),
    min_size=1,
    max_size=25,
)
turns = st.lists(
    st.tuples(st.permutations([0, 1, 2]), st.tuples(*[st.integers(0, 4)] * 3), st.none() | st.integers(0, 3)),
    max_size=20,
)


@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records, turns)
def test_any_batching_with_crashes_between_the_steps_equals_the_oracle(
    store_settings: Settings, redis_client: redis.Redis, drawn: list[dict[str, Any]], script: list[Any]
) -> None:
    """Deliveries of three partitions in any batches; a crash may follow any exchange with Redis."""
    redis_client.flushall()
    setup = Store(store_settings)
    setup.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
    log: dict[int, list[Delivery]] = {0: [], 1: [], 2: []}
    for record in drawn:
        partition, attempt = record["partition"], record["attempt"]
        log[partition].append(
            delivery(
                len(log[partition]),
                partition,
                recorded=NOW + 120_000_000 + record["clock"] * 1_000_000,
                attempt_id=attempt,
                completed=BASE + timedelta(minutes=record["minutes"]),
                throughput=... if record["failed"] else 100.0 + ord(attempt),
                status="failed" if record["failed"] else "succeeded",
                trainer_count=8 if attempt < "d" else 16,
            )
        )
    turns_left = iter(script)
    order: list[Delivery] = []
    rejected: set[tuple[int, int]] = set()
    while True:
        meta = setup.read_meta()
        assert meta is not None
        waiting = {p: waiting for p, records in log.items() if (waiting := records[meta.checkpoints.get(p, 0) :])}
        if not waiting:
            break
        partitions, sizes, crash_after = next(turns_left, ([0, 1, 2], (9, 9, 9), None))
        batch = [d for p in partitions for d in waiting.get(p, [])[: sizes[p]]]
        store = Crashing(store_settings, crash_after)
        try:
            done = HistoryWriter(store_settings, store, nothing_archived).write(
                batch, session_of(meta), FIRST_LIVE_EPOCH
            )
            store.move_checkpoints(session_of(meta), done.checkpoints)
        except Unavailable:
            # Whoever comes next begins at the checkpoint; who claimed an attempt first stays first.
            order += [d for d in batch if d not in order] if crash_after else []
            continue
        rejected |= {(r.delivery.partition, r.delivery.offset) for r in done.rejected}
        order += [d for d in batch if d not in order]
    expected = expected_of(order, FIRST_LIVE_EPOCH, HORIZON_US)
    assert stored_rows(redis_client, store_settings.project) == expected.rows
    assert rejected == set(expected.dead_letters)


class Crashing(Store):
    """A store whose worker dies after a number of exchanges."""

    def __init__(self, settings: Settings, exchanges: int | None) -> None:
        super().__init__(settings)
        self._left = exchanges

    def call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        if self._left == 0:
            raise Unavailable("crashed")
        if self._left is not None:
            self._left -= 1
        return super().call(commands)
