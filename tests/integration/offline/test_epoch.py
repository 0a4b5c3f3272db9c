"""A new epoch without a rebuild: nothing that can be restored is left out, and nothing is counted twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from archived_events import HORIZON_US, event, write_events
from leap_features import archive, archive_epochs
from leap_features.archive_epochs import ArchiveError, Life
from leap_features.events import CompletionEvent, encode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.layout import Value
from leap_features.levels import FAMILY
from leap_features.meta import FIRST_LIVE_EPOCH, Meta, decode_meta, meta_key
from leap_features.settings import Settings
from leap_streams.audit import audit
from leap_streams.epoch import EpochRefused, NewEpoch, TopicNow, new_epoch
from leap_streams.faults import Halt, Refused
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.rebuild import RebuildRefused, Rebuilt
from leap_streams.store import Session, Store, session_of
from leap_streams.topic_bounds import Bounds
from oracle import expected_of, stored_rows

EPOCH = FIRST_LIVE_EPOCH
OLD, NEW = "old-uuid", "new-uuid"
Rebuild = Callable[..., Rebuilt]


@pytest.fixture
def deployed(deployment: Settings) -> Settings:
    """A deployment after `leap init`, whose topic has the UUID `OLD`."""
    archive.create(deployment.archive)
    archive_epochs.note(deployment.archive, EPOCH, Life(OLD))
    store = Store(deployment)
    store.create_meta(DEFAULT_RULES.version, EPOCH, OLD)
    store.close()
    return deployment


def events(*names: str) -> list[CompletionEvent]:
    """One attempt of that name each, every one of a family of its own and all of one model."""
    return [event(name, minute, job_family=name) for minute, name in enumerate(names)]


def delivered(sent: Sequence[CompletionEvent], first: int = 0, partition: int = 0) -> list[Delivery]:
    return [Delivery(partition, first + at, to_us(e.completed_at), encode(e)) for at, e in enumerate(sent)]


def session(settings: Settings) -> tuple[Session, int]:
    store = Store(settings)
    meta = store.read_meta()
    store.close()
    assert meta is not None
    return session_of(meta), meta.epoch


def take_in(settings: Settings, deliveries: Sequence[Delivery], store: Store | None = None) -> None:
    """What a worker does with `deliveries`."""
    store = store or Store(settings)
    began, epoch = session(settings)
    batch = HistoryWriter(settings, store, None).write(deliveries, began, epoch)
    store.move_checkpoints(began, batch.checkpoints)
    store.close()


def begin_new_epoch(
    settings: Settings,
    uuid: str = NEW,
    bounds: Mapping[int, Bounds] | None = None,
    forgotten: Mapping[int, Bounds] | None = None,
    **options: Any,
) -> NewEpoch:
    topic = TopicNow(uuid, {0: Bounds(0, 0)} if bounds is None else bounds, forgotten or {})
    return new_epoch(settings, look=lambda _settings: topic, **options)


def stored_meta(client: redis.Redis, settings: Settings) -> Meta:
    meta = decode_meta(client.hgetall(meta_key(settings.project)))
    assert meta is not None
    return meta


def without_versions(rows: Mapping[Any, Mapping[str, Value]]) -> dict[Any, dict[str, Value]]:
    return {key: {name: value for name, value in row.items() if name != "version"} for key, row in rows.items()}


def test_a_recreated_topic_gets_an_epoch_and_the_history_stays(deployed: Settings, redis_client: redis.Redis) -> None:
    old = events("a", "b", "c")
    take_in(deployed, delivered(old))
    write_events(deployed.archive, old)
    rows, attempts = stored_rows(redis_client, deployed.project), sorted(redis_client.keys("*attempt*"))
    before = stored_meta(redis_client, deployed)

    made = begin_new_epoch(deployed, bounds={0: Bounds(0, 2)})

    assert (made.before, made.epoch, bool(made.lost)) == (EPOCH, EPOCH + 1, False)
    meta = stored_meta(redis_client, deployed)
    assert (meta.epoch, meta.topic_uuid, meta.checkpoints, meta.state) == (EPOCH + 1, NEW, {}, "ready")
    assert meta.generation != before.generation
    assert stored_rows(redis_client, deployed.project) == rows
    assert sorted(redis_client.keys("*attempt*")) == attempts
    assert archive_epochs.noted(deployed.archive, EPOCH + 1) == Life(NEW)
    # An event that was sent to the old topic, sent again to the new one, counts once.
    new = [old[1], *events("d")]
    take_in(deployed, delivered(new))
    write_events(deployed.archive, new, epoch=EPOCH + 1)
    result = audit(deployed, rules=DEFAULT_RULES)
    assert (result.equal, result.total) == (15, 15), result.first
    row = stored_rows(redis_client, deployed.project)[FAMILY.view, ("ranker/b",)]
    assert (row["count"], row["version"]) == (1, f"{EPOCH}:0:1,{EPOCH + 1}:0:0")


class DyingStore(Store):
    """Its process is killed when `rows` rows have been written."""

    def __init__(self, settings: Settings, rows: int) -> None:
        super().__init__(settings)
        self._rows = rows

    def call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        if not any(b"HMGET" in command for command in commands) and self._rows < len(commands):
            super().call(commands[: self._rows])
            raise KeyboardInterrupt
        return super().call(commands)


@pytest.mark.parametrize("rows", range(10))
def test_what_a_batch_under_way_had_claimed_but_not_written_is_counted_once_by_the_new_life(
    deployed: Settings, redis_client: redis.Redis, rows: int
) -> None:
    sent = events("a", "b", "c")
    with pytest.raises(KeyboardInterrupt):
        take_in(deployed, delivered(sent), DyingStore(deployed, rows))
    assert len(redis_client.keys("*attempt*")) == 3
    assert len(stored_rows(redis_client, deployed.project)) == rows
    begin_new_epoch(deployed)
    again = delivered([*sent, *sent])
    # The new life is disturbed too: its batch is done twice.
    with pytest.raises(KeyboardInterrupt):
        take_in(deployed, again, DyingStore(deployed, 5))
    take_in(deployed, again)
    expected = expected_of(again, EPOCH + 1, HORIZON_US).rows
    assert without_versions(stored_rows(redis_client, deployed.project)) == without_versions(expected)


def test_a_life_that_ends_in_mid_batch_after_another_that_did_counts_nothing_twice(
    deployed: Settings, redis_client: redis.Redis
) -> None:
    sent = delivered(events("a", "b", "c"))
    for rows, uuid in ((3, NEW), (6, "another")):
        with pytest.raises(KeyboardInterrupt):
            take_in(deployed, sent, DyingStore(deployed, rows))
        begin_new_epoch(deployed, uuid)
    take_in(deployed, sent)
    expected = expected_of(sent, EPOCH + 2, HORIZON_US).rows
    assert without_versions(stored_rows(redis_client, deployed.project)) == without_versions(expected)


def test_a_batch_under_way_is_refused(deployed: Settings) -> None:
    began, epoch = session(deployed)
    begin_new_epoch(deployed)
    store = Store(deployed)
    with pytest.raises(Refused):
        HistoryWriter(deployed, store, None).write(delivered(events("a")), began, epoch)
    store.close()


def test_events_that_a_rebuild_restores_are_not_left_out(deployed: Settings, redis_client: redis.Redis) -> None:
    old = events("a", "b", "c")
    take_in(deployed, delivered(old[:1]))
    write_events(deployed.archive, old)
    before = stored_meta(redis_client, deployed)
    with pytest.raises(EpochRefused, match=r"2 records \(partition 0: offsets 1 to 2\) .*`leap rebuild` takes them in"):
        begin_new_epoch(deployed, accept_loss=True)
    assert stored_meta(redis_client, deployed) == before


def test_events_that_can_no_longer_be_archived_are_counted_and_accepted_only_when_told_to(
    deployed: Settings, redis_client: redis.Redis
) -> None:
    old = events("a", "b", "c")
    take_in(deployed, delivered(old))
    write_events(deployed.archive, old[:1])
    with pytest.raises(
        EpochRefused, match=r"never archived.*: 2 records \(partition 0: offsets 1 to 2\)\. .*--accept-loss"
    ):
        begin_new_epoch(deployed)
    assert stored_meta(redis_client, deployed).epoch == EPOCH
    made = begin_new_epoch(deployed, accept_loss=True)
    assert made.lost.only_online == {0: range(1, 3)}
    assert stored_meta(redis_client, deployed).epoch == EPOCH + 1


def test_a_log_that_is_still_there_is_read_again_and_counts_nothing_twice(
    deployed: Settings, redis_client: redis.Redis
) -> None:
    sent = delivered(events("a", "b", "c", "d", "e", "f"))
    take_in(deployed, sent)
    write_events(deployed.archive, events("a", "b"))
    # The archive app was down until retention had passed where it stood.
    with pytest.raises(EpochRefused, match=r"never archived.*: 1 record \(partition 0: offset 2\)\."):
        begin_new_epoch(deployed, OLD, {0: Bounds(3, 6)})
    begin_new_epoch(deployed, OLD, {0: Bounds(3, 6)}, accept_loss=True)
    assert archive_epochs.noted(deployed.archive, EPOCH + 1) == Life(OLD, {0: 3})
    take_in(deployed, sent[3:])
    expected = expected_of(sent, EPOCH, HORIZON_US).rows
    found = stored_rows(redis_client, deployed.project)
    assert without_versions(found) == without_versions(expected)
    assert found[FAMILY.view, ("ranker/d",)]["version"] == f"{EPOCH}:0:3,{EPOCH + 1}:0:3"


def test_a_log_that_holds_events_older_than_the_memory_of_attempts_is_not_read_again(deployed: Settings) -> None:
    take_in(deployed, delivered(events("a", "b", "c")))
    write_events(deployed.archive, events("a"))
    with pytest.raises(EpochRefused, match=r"1 record \(partition 0: offset 2\) recorded more than .* days ago"):
        begin_new_epoch(deployed, OLD, {0: Bounds(2, 3)}, {0: Bounds(2, 3)}, accept_loss=True)
    # In another life of the topic no record is that old.
    begin_new_epoch(deployed, NEW, {0: Bounds(2, 3)}, {0: Bounds(2, 3)}, accept_loss=True)


def test_what_both_can_go_on_with_needs_no_new_epoch(deployed: Settings) -> None:
    take_in(deployed, delivered(events("a", "b")))
    with pytest.raises(EpochRefused, match="nothing to do"):
        begin_new_epoch(deployed, OLD, {0: Bounds(0, 2), 1: Bounds(5, 9)}, accept_loss=True)


@pytest.mark.parametrize("bounds", [{0: Bounds(0, 1)}, {1: Bounds(0, 9)}])
def test_without_uuids_a_log_that_ends_below_the_checkpoint_is_another_life(
    deployed: Settings, redis_client: redis.Redis, bounds: Mapping[int, Bounds]
) -> None:
    take_in(deployed, delivered(events("a", "b")))
    write_events(deployed.archive, events("a", "b"))
    assert begin_new_epoch(deployed, "", bounds).epoch == EPOCH + 1
    assert stored_meta(redis_client, deployed).topic_uuid == ""


def test_a_log_that_was_cut_short_is_read_again(deployed: Settings) -> None:
    # The same topic, but a broker that was behind became the leader.
    take_in(deployed, delivered(events("a", "b", "c")))
    write_events(deployed.archive, events("a", "b", "c"))
    assert begin_new_epoch(deployed, OLD, {0: Bounds(0, 2)}).epoch == EPOCH + 1


def test_a_store_that_went_back_before_the_archives_latest_epoch_is_for_a_rebuild(deployed: Settings) -> None:
    write_events(deployed.archive, events("a"), epoch=EPOCH + 1)
    with pytest.raises(EpochRefused, match=f"has events of epoch {EPOCH + 1}, of which the online store"):
        begin_new_epoch(deployed)


def test_an_epoch_that_was_noted_and_never_begun_is_left_out(deployed: Settings) -> None:
    archive_epochs.note(deployed.archive, EPOCH + 1, Life("a life that nobody took in"))
    assert begin_new_epoch(deployed).epoch == EPOCH + 2


def test_a_store_that_is_being_rebuilt_is_left_alone(deployed: Settings, redis_client: redis.Redis) -> None:
    redis_client.hset(meta_key(deployed.project), "state", "rebuilding")
    with pytest.raises(EpochRefused, match="run `leap rebuild` to its end"):
        begin_new_epoch(deployed)


def test_a_store_that_another_takes_over_meanwhile_is_left_alone(deployed: Settings, redis_client: redis.Redis) -> None:
    def look(_settings: Settings) -> TopicNow:
        redis_client.hset(meta_key(deployed.project), "generation", "of a rebuild")
        return TopicNow(NEW, {}, {})

    with pytest.raises(EpochRefused, match="changed meanwhile"):
        new_epoch(deployed, look=look)
    assert stored_meta(redis_client, deployed).generation == "of a rebuild"


def test_a_store_without_meta_is_named(deployment: Settings) -> None:
    with pytest.raises(Halt, match="has no meta"):
        begin_new_epoch(deployment)


def test_a_rebuild_of_a_lost_store_knows_the_life_that_the_archive_is_of(
    deployed: Settings, rebuild_store: Rebuild, redis_client: redis.Redis
) -> None:
    write_events(deployed.archive, events("a", "b"))
    redis_client.flushall()
    # The new life is as long as the old one: offsets alone would not tell.
    with pytest.raises(RebuildRefused, match=f"has UUID {NEW}, epoch {EPOCH} is of the topic with UUID {OLD}"):
        rebuild_store({0: Bounds(0, 2)}, uuid_of=lambda _settings: NEW)
    made = rebuild_store({0: Bounds(0, 2)}, uuid_of=lambda _settings: NEW, new_epoch=True)
    assert (made.epoch, made.checkpoints) == (EPOCH + 1, {})
    assert archive_epochs.noted(deployed.archive, EPOCH + 1) == Life(NEW)
    # A store that was restored from a copy of before goes on in the new life.
    redis_client.hset(meta_key(deployed.project), mapping={"epoch": EPOCH, "topic_uuid": OLD})
    made = rebuild_store({0: Bounds(0, 2)}, uuid_of=lambda _settings: NEW)
    assert (made.epoch, made.checkpoints) == (EPOCH + 1, {})
    # A store that is lost before the archive has anything of the new life begins that life anew.
    redis_client.flushall()
    made = rebuild_store({0: Bounds(0, 2)}, uuid_of=lambda _settings: NEW)
    assert (made.epoch, made.checkpoints) == (EPOCH + 1, {})


def test_a_rebuild_after_a_new_epoch_of_the_same_log_misses_nothing_before_its_beginning(
    deployed: Settings, rebuild_store: Rebuild
) -> None:
    take_in(deployed, delivered(events("a", "b")))
    begin_new_epoch(deployed, OLD, {0: Bounds(5, 9)}, accept_loss=True)
    assert rebuild_store({0: Bounds(5, 9)}, uuid_of=lambda _settings: OLD).epoch == EPOCH + 1
    with pytest.raises(ArchiveError, match=f"epoch {EPOCH + 1}, partition 0 lacks offsets 5 to 6"):
        rebuild_store({0: Bounds(7, 9)}, uuid_of=lambda _settings: OLD)


def test_a_rebuild_writes_nothing_into_the_archive(deployment: Settings, rebuild_store: Rebuild) -> None:
    write_events(deployment.archive, events("a"))
    before = sorted(Path(deployment.archive).rglob("*"))
    rebuild_store({0: Bounds(0, 2)}, uuid_of=lambda _settings: NEW)
    assert sorted(Path(deployment.archive).rglob("*")) == before


def test_a_rebuild_begins_no_epoch_where_the_broker_does_not_answer(deployed: Settings, rebuild_store: Rebuild) -> None:
    with pytest.raises(RebuildRefused, match="the broker does not say where that is"):
        rebuild_store(None, new_epoch=True)


def test_an_epoch_is_one_life(deployed: Settings) -> None:
    with pytest.raises(ArchiveError, match=f"has epoch {EPOCH} of the topic with UUID {OLD}, not {NEW}"):
        archive_epochs.note(deployed.archive, EPOCH, Life(NEW))
