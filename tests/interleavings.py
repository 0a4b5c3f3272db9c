"""A topic's log, workers, trouble and a real Redis, as a state machine for Hypothesis.

Each of the workers may be a zombie to the others. Between any two steps of a batch something else may happen: the
connection breaks, another worker's whole batch comes in between, the store is replaced by a copy of how it was before.
After each of them every row must be, by definition and without a fold, what the records that its version names come
to; and every record below a checkpoint must be in the rows, or the dead letters, that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from events_strategies import BASE
from leap_features import layout
from leap_features.events import to_us
from leap_features.family import DEFAULT_RULES
from leap_features.history import EMPTY, Position, Row, from_state, has
from leap_features.levels import LEVELS
from leap_features.meta import (
    FIRST_LIVE_EPOCH,
    Claim,
    Meta,
    attempt_key,
    decode_claim,
    decode_meta,
    meta_key,
)
from leap_features.settings import Settings
from leap_streams.faults import Refused, Unavailable
from leap_streams.history_writer import Delivery, HistoryWriter
from leap_streams.store import Session, Store, new_generation, session_of
from model_log import DAY_US, HORIZON_US, MINUTE_US, Content, Identity, Record, first_known, record_of, row_of, value_of
from oracle import Key, stamped, stored_rows

PARTITIONS: Final = 3
WORKERS: Final = 3
COPIES: Final = 3
MILLISECOND_US: Final = 1_000

ATTEMPTS: Final = "leap:*:attempt:*"
ROWS: Final = "[^l]*"
"""Redis patterns of keys, in a Redis that has nothing else than one project."""

Sizes = tuple[int, int, int]
"""Most records of each partition."""


class Send(NamedTuple):
    """The platform sends an event to a partition."""

    partition: int
    attempt: str
    status: str = "succeeded"
    variant: int = 0
    age_us: int = 0
    """From its completion to now."""
    replay: bool = False
    clock_us: int = 0
    """How far off the broker's clock is."""


class SendAgain(NamedTuple):
    """An earlier event comes again, perhaps to another partition."""

    which: int
    partition: int
    replay: bool = False
    clock_us: int = 0


class SendJunk(NamedTuple):
    """What is no event."""

    partition: int
    value: bytes | None


class Begin(NamedTuple):
    """A worker starts anew."""

    worker: int


class Take(NamedTuple):
    """A worker takes a batch, or does the one again that it could not store."""

    worker: int
    sizes: Sizes
    step: int = 0
    """Before which exchange with the store, or sending of dead letters, something else happens."""
    meanwhile: tuple[Any, ...] = ()
    """Actions that happen then; one of them may be a `Cut`."""


class Cut(NamedTuple):
    """The worker's exchange with the store breaks off: so many commands are carried out, and no reply arrives."""

    commands: int
    crash: bool
    """Whether the worker dies of it; else it does the batch again."""


class Copy(NamedTuple):
    """Somebody copies the store."""


class GoBack(NamedTuple):
    """An earlier copy takes the place of the store: every connection breaks."""

    which: int


class ForgetScripts(NamedTuple):
    """The store's cache of scripts is gone."""


class NewGeneration(NamedTuple):
    """The store takes a new generation token."""


class NewEpoch(NamedTuple):
    """The topic is deleted and created again, and gets a new epoch."""


class Archive(NamedTuple):
    """The archive comes further, by so many records."""

    partition: int
    records: int


Event = Send | SendAgain | SendJunk
Trouble = Begin | Copy | GoBack | ForgetScripts | NewGeneration | NewEpoch | Archive
Action = Event | Take | Trouble

partitions = st.integers(0, PARTITIONS - 1)
workers = st.integers(0, WORKERS - 1)
clocks = st.sampled_from([0, 0, 0, MILLISECOND_US, -MILLISECOND_US, -3 * MINUTE_US])
replays = st.sampled_from([False, False, False, True])
sends = st.builds(
    Send,
    partitions,
    st.sampled_from("abcdef"),
    st.sampled_from(["succeeded"] * 4 + ["failed"] * 3 + ["cancelled", "preempted"]),
    st.sampled_from([0, 0, 0, 0, 1, 2]),
    st.sampled_from([0] * 15 + [MINUTE_US, HORIZON_US, HORIZON_US + MILLISECOND_US, -5 * MINUTE_US, -6 * MINUTE_US]),
    replays,
    clocks,
)
repeats = st.builds(SendAgain, st.integers(0, 30), partitions, replays, clocks)
junk = st.builds(SendJunk, partitions, st.sampled_from([None, b"", b"{", b"\xff\xfe", b"[]", b'{"attempt_id": "a"}']))
sizes = st.sampled_from([(2, 0, 0), (0, 2, 0), (0, 0, 2), (9, 0, 0), (0, 9, 0), (0, 0, 9), (1, 1, 1), (9, 9, 9)])
troubles = st.sampled_from(
    [
        Copy(),
        *[GoBack(which) for which in range(COPIES)],
        ForgetScripts(),
        NewGeneration(),
        NewEpoch(),
        *[Archive(partition, records) for partition in range(PARTITIONS) for records in (1, 9)],
        *[Begin(worker) for worker in range(WORKERS)],
    ]
)
cuts = st.builds(Cut, st.integers(0, 12), st.booleans())
steps = st.integers(0, 3)
plain_takes = st.builds(Take, workers, sizes, st.just(0), st.just(()))
takes: st.SearchStrategy[Take] = st.deferred(
    lambda: st.one_of(
        plain_takes,
        plain_takes,
        st.builds(Take, workers, sizes, steps, st.tuples(cuts)),
        st.builds(Take, workers, sizes, steps, st.tuples(actions)),
        st.builds(Take, workers, sizes, steps, st.tuples(actions, actions, takes)),
    )
)
actions: st.SearchStrategy[Action] = st.one_of(*[sends] * 4, *[repeats] * 4, junk, *[takes] * 2, *[troubles] * 3)


class Life(NamedTuple):
    """One life of the topic."""

    epoch: int
    logs: list[list[Record]]
    """One per partition."""
    archived: list[int]
    """Partition → offset to which the archive has come."""
    ends: dict[int, int]
    """Partition → offset up to which the store had come when the life ended."""


class Crashed(Exception):
    """The worker is no more."""


class TroubledStore(Store):
    """A store that something happens to."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.before_exchange: Callable[[], Cut | None] = lambda: None
        """What happens before an exchange; it may say that the exchange breaks off."""

    def call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        cut = self.before_exchange()
        if cut is None:
            return super().call(commands)
        if cut.commands:
            super().call(commands[: cut.commands])
        self.close()
        raise Crashed if cut.crash else Unavailable("the reply is lost")


class Worker:
    """A worker, or the zombie that is left of one."""

    def __init__(self, store: TroubledStore, writer: HistoryWriter) -> None:
        self.store = store
        self.writer = writer
        self.busy = False
        self.life = Life(0, [], [], {})
        """What it has fetched, or may still fetch, is of this life of the topic."""
        self.session: Session | None = None
        """None: it must begin anew."""
        self.cursors: dict[int, int] = {}
        self.undone: list[Delivery] = []
        """A batch that could not be stored and is to be done again."""


class Backup(NamedTuple):
    """The store as it was."""

    values: dict[bytes, tuple[bytes, int]]
    """Key → what DUMP gives, and milliseconds to live (-1: for ever)."""
    claims: dict[Identity, Claim]
    """Of attempts that the store had forgotten, too."""
    meta: Meta
    at_us: int


class Interleavings(RuleBasedStateMachine):
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.client: Any = redis.Redis.from_url(settings.redis_url)  # its types know no bytes
        self.client.flushall()
        self.lives = [_life(FIRST_LIVE_EPOCH)]
        self.now_us = to_us(BASE)
        self.days = 0
        self.forgotten: dict[Identity, Claim] = {}
        """Claims that the store held once, those that have expired included."""
        self.dead: dict[Position, str] = {}
        """Dead letters that were sent, by what they are of, with their rule."""
        self.excused: set[Position] = set()
        """Conflicts without a dead letter: they counted until the archive decided otherwise."""
        self.acknowledged: dict[int, int] = {}
        """Partition → how far the broker believes the workers to be."""
        self.went_back = False
        self.backups: list[Backup] = []
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.workers[0].store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")

    def _worker(self) -> Worker:
        store = TroubledStore(self.settings)
        return Worker(store, HistoryWriter(self.settings, store, self.find_attempts))

    @property
    def life(self) -> Life:
        """The topic's present life."""
        return self.lives[-1]

    # What may happen.

    @rule(actions=st.lists(actions, min_size=1, max_size=12))
    def happen(self, actions: list[Action]) -> None:
        for action in actions:
            self.do(action)

    @rule(days=st.sampled_from([1, 7, 14]))
    def time_passes(self, days: int) -> None:
        """As long as the topic still has all that was not taken in. The archive has everything by then."""
        if not self._still_has(self.meta().checkpoints, self.now_us + days * DAY_US):
            return
        for partition, log in enumerate(self.life.logs):
            self.archive_to(partition, len(log))
        self.now_us += days * DAY_US
        self.days += days
        self.forgotten = self.claims()
        for key in self.client.keys(ATTEMPTS):
            left_ms = self.client.pttl(key) - days * DAY_US // 1000
            if left_ms > 0:
                self.client.pexpire(key, left_ms)
            else:
                self.client.delete(key)

    def archive_to(self, partition: int, end: int) -> None:
        """The archive has everything up to `end`."""
        self.life.archived[partition] = max(self.life.archived[partition], end)

    def do(self, action: Action) -> None:
        """Let it happen."""
        match action:
            case Send():
                # The attempts of one day are other ones than those of another.
                attempt = f"{action.attempt}{self.days or ''}"
                content = Content(attempt, action.status, self.now_us - action.age_us, action.variant)
                self._append(action.partition, value_of(content), action.replay, action.clock_us)
            case SendAgain():
                sent = [record for record in self.records() if record.run]
                if sent:
                    value = sent[action.which % len(sent)].delivery.value
                    self._append(action.partition, value, action.replay, action.clock_us)
            case SendJunk():
                self._append(action.partition, action.value, replay=False, clock_us=0)
            case Begin():
                self._begin(self.workers[action.worker])
            case Take():
                self._take(self.workers[action.worker], action)
            case Copy():
                self.backups = [*self.backups, self._backup()][-COPIES:]
            case GoBack():
                self._go_back(action.which)
                self.check()
            case ForgetScripts():
                self.client.script_flush()
            case NewGeneration():
                self.client.hset(meta_key(self.settings.project), "generation", new_generation())
            case NewEpoch():
                self._new_epoch()
                self.check()
            case Archive():
                partition, log = action.partition, self.life.logs[action.partition]
                self.archive_to(partition, min(self.life.archived[partition] + action.records, len(log)))

    def _append(self, partition: int, value: bytes | None, replay: bool, clock_us: int) -> None:
        log = self.life.logs[partition]
        delivery = Delivery(partition, len(log), self.now_us + clock_us, value, replay)
        log.append(record_of(self.life.epoch, delivery))

    def _begin(self, worker: Worker) -> None:
        if worker.busy:
            return
        worker.undone = []
        worker.session = None
        try:
            meta = worker.store.read_meta()
        except Unavailable:  # the connection broke while it was idle
            meta = worker.store.read_meta()
        assert meta is not None
        if meta.state == "rebuilding":
            return
        worker.life, worker.session = self.life, session_of(meta)
        worker.cursors = {partition: meta.checkpoints.get(partition, 0) for partition in range(PARTITIONS)}

    def _take(self, worker: Worker, take: Take) -> None:
        if not worker.busy and worker.session is None:
            self._begin(worker)
        if worker.busy or worker.session is None:
            return
        deliveries = worker.undone or _next(worker, take.sizes) or _next(worker, (9, 9, 9))
        if not deliveries:
            return
        worker.undone = deliveries
        try:
            with self._meanwhile(worker, take):
                batch = worker.writer.write(deliveries, worker.session, worker.life.epoch)
                if batch.rejected and worker.store.before_exchange() is not None:
                    raise Crashed
                self.dead |= {letter.position: letter.rule for letter in batch.rejected}
                worker.session = worker.store.move_checkpoints(worker.session, batch.checkpoints)
        except Unavailable:
            pass
        except (Refused, Crashed):
            worker.session, worker.undone = None, []
        else:
            worker.cursors |= batch.checkpoints
            worker.undone = []
            if worker.life is self.life:
                self.acknowledged |= batch.checkpoints
        self.check()

    @contextmanager
    def _meanwhile(self, worker: Worker, take: Take) -> Iterator[None]:
        """The worker is at work, and something else happens."""
        steps = 0

        def before_exchange() -> Cut | None:
            nonlocal steps
            steps += 1
            if steps == take.step + 1:
                for action in take.meanwhile:
                    if isinstance(action, Cut):
                        return action
                    self.do(action)
            return None

        worker.busy, worker.store.before_exchange = True, before_exchange
        try:
            yield
        finally:
            worker.busy, worker.store.before_exchange = False, lambda: None

    def _backup(self) -> Backup:
        keys = self.client.keys()
        pipeline = self.client.pipeline(transaction=False)
        for key in keys:
            pipeline.dump(key)
            pipeline.pttl(key)
        replies = pipeline.execute()
        values = dict(zip(keys, zip(replies[::2], replies[1::2], strict=True), strict=True))
        return Backup(values, self.claims(), self.meta(), self.now_us)

    def _go_back(self, which: int) -> None:
        """To a copy from which on the topic still has everything."""
        usable = [b for b in self.backups if self._still_has(b.meta.checkpoints, self.now_us)]
        if not usable:
            return
        backup = usable[which % len(usable)]
        passed_ms = (self.now_us - backup.at_us) // 1000
        pipeline = self.client.pipeline(transaction=True)
        pipeline.flushall()
        for key, (value, left_ms) in backup.values.items():
            if left_ms < 0:
                pipeline.restore(key, 0, value)
            elif left_ms > passed_ms:
                pipeline.restore(key, left_ms - passed_ms, value)
        pipeline.execute()
        self.client.client_kill_filter(_type="normal", skipme=True)
        self.forgotten = backup.claims
        self.went_back = True

    def _new_epoch(self) -> None:
        """Where the archive has nothing that the store lacks, once it has all that the store has."""
        checkpoints = self.meta().checkpoints
        if any(offset > checkpoints.get(partition, 0) for partition, offset in enumerate(self.life.archived)):
            return
        for partition, end in checkpoints.items():
            self.archive_to(partition, end)
        if self.take_new_epoch():
            self.life.ends.update(checkpoints)
            self.lives.append(_life(self.meta().epoch))
            self.acknowledged = {}
            self.backups = []  # who goes back to another life of the topic halts

    def take_new_epoch(self) -> bool:
        """Whether the store has taken a new epoch, as `leap epoch new` does it."""
        meta = self.meta()
        after = msgspec.structs.replace(meta, epoch=meta.epoch + 1, generation=new_generation(), checkpoints={})
        store = Store(self.settings)
        store.replace_meta(after, meta)
        store.close()
        return True

    def find_attempts(self, wanted: Sequence[Identity]) -> Mapping[Identity, tuple[Position, str]]:
        """What the archive says."""
        archived = [
            record
            for life in self.lives
            for log, end in zip(life.logs, life.archived, strict=True)
            for record in log[:end]
        ]
        firsts = first_known(archived)
        return {identity: firsts[identity] for identity in wanted if identity in firsts}

    # What must hold.

    def records(self) -> list[Record]:
        """All that was ever sent."""
        return [record for life in self.lives for log in life.logs for record in log]

    def meta(self) -> Meta:
        """What the store says about itself."""
        meta = decode_meta(self.client.hgetall(meta_key(self.settings.project)))
        assert meta is not None
        return meta

    def claims(self) -> dict[Identity, Claim]:
        """Of all attempts that the store knows, or has forgotten."""
        identities = sorted({record.identity for record in self.records() if record.run})
        keys = [attempt_key(self.settings.project, *identity) for identity in identities]
        values = self.client.mget(keys) if keys else []
        return self.forgotten | {
            identity: decode_claim(value)
            for identity, value in zip(identities, values, strict=True)
            if value is not None
        }

    def rows(self) -> dict[Key, Row]:
        """Every row of the store, by its state, version and timestamp."""
        levels = {tuple(sorted(level.join_keys)): level for level in LEVELS}
        keys: list[Key] = []
        pipeline = self.client.pipeline(transaction=False)
        for raw in self.client.keys(ROWS):
            names, values = layout.decode_entity_key(raw, self.settings.project)
            level, by_name = levels[names], dict(zip(names, values, strict=True))
            keys.append((level.view, tuple(by_name[name] for name in level.join_keys)))
            fields = [layout.field(level.view, "state"), layout.field(level.view, "version")]
            pipeline.hmget(raw, *fields, layout.timestamp_field(level.view))
        return {
            key: from_state(
                str(layout.decode_value(state)), str(layout.decode_value(version)), layout.decode_timestamp(stamp)
            )
            for key, (state, version, stamp) in zip(keys, pipeline.execute(), strict=True)
        }

    def check(self) -> None:
        """Rows, claims, checkpoints and dead letters are of one piece."""
        claims, rows, meta = self.claims(), self.rows(), self.meta()
        if meta.state == "rebuilding":
            return
        effective: dict[Key, list[Record]] = {}
        for record in self.records():
            if record.run and record.identity in claims and record.digest == claims[record.identity].digest:
                for key in record.keys:
                    effective.setdefault(key, []).append(record)
        for key, row in rows.items():
            taken = [record for record in effective.get(key, []) if has(row, record.position)]
            assert row == row_of(taken, claims), key
        for record in self.taken_in(meta):
            self._check_taken_in(record, claims, rows)

    def taken_in(self, meta: Meta) -> Iterator[Record]:
        """The records below the checkpoints, those of earlier lives included."""
        for life in self.lives:
            for partition, end in (meta.checkpoints if life is self.life else life.ends).items():
                yield from life.logs[partition][:end]

    def _check_taken_in(self, record: Record, claims: Mapping[Identity, Claim], rows: Mapping[Key, Row]) -> None:
        if record.rule:
            assert self.dead[record.position] == record.rule
        elif record.run is None:
            assert record.position not in self.dead
        elif record.digest != claims[record.identity].digest:
            assert record.position in self.excused or self.dead[record.position] == "conflicting_attempt"
        else:
            assert all(has(rows.get(key, EMPTY), record.position) for key in record.keys), record

    def _still_has(self, checkpoints: Mapping[int, int], now_us: int) -> bool:
        """Whether the topic at `now_us` still has every record from `checkpoints` on."""
        oldest_us = now_us - round(self.settings.topic_retention_days * DAY_US)
        return all(
            record.delivery.recorded_at_us >= oldest_us
            for partition, log in enumerate(self.life.logs)
            for record in log[checkpoints.get(partition, 0) :]
        )

    def teardown(self) -> None:
        """In the end everything is taken in."""
        try:
            self.take_in_all()
            self.check()
            self._check_end()
        finally:
            for worker in self.workers:
                worker.store.close()
            self.client.close()

    def take_in_all(self) -> None:
        """Come to the end of the log."""
        worker = self.workers[0]
        self._begin(worker)
        while worker.session is None or _next(worker, (9, 9, 9)):
            self._take(worker, Take(0, (9, 9, 9)))
            self._begin(worker)
        ends = {partition: len(log) for partition, log in enumerate(self.life.logs) if log}
        assert self.meta().checkpoints == ends

    def _check_end(self) -> None:
        assert stored_rows(self.client, self.settings.project) == {k: stamped(row) for k, row in self.rows().items()}
        claims = self.claims()
        lanes: dict[tuple[Identity, int, int], list[Record]] = {}
        for record in self.records():
            if record.run:
                lanes.setdefault((record.identity, *record.position[:2]), []).append(record)
        for identity, claim in claims.items():
            # What an earlier life of the topic left half done is taken over by an event of the same content only.
            lane = lanes[identity, *claim.position[:2]]
            first = next(record for record in lane if not claim.earlier or record.digest == claim.digest)
            assert (first.position, first.digest) == claim[:2]
        for record in self.records():
            if record.run and record.position in self.dead and record.digest == claims[record.identity].digest:
                assert self.went_back
                self.check_contested(record)

    def check_contested(self, record: Record) -> None:
        """Partitions, or lives of the topic, tell the attempt of `record` differently.

        Then the one that is taken in first counts, which may be another one when the store has gone back.
        """
        firsts: dict[tuple[int, ...], str] = {}
        for other in self.records():
            if other.run and other.identity == record.identity:
                firsts.setdefault(other.position[:2], other.digest)
        assert len(set(firsts.values())) > 1, record


def _life(epoch: int) -> Life:
    return Life(epoch, [[] for _ in range(PARTITIONS)], [0] * PARTITIONS, {})


def _next(worker: Worker, sizes: Sizes) -> list[Delivery]:
    """The batch that comes next, of so many records of each partition."""
    return [
        record.delivery
        for partition, log in enumerate(worker.life.logs)
        for record in log[worker.cursors[partition] :][: sizes[partition]]
    ]
