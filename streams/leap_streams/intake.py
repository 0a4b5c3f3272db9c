"""A Faust app that takes one topic into a sink, in order, without a gap, and acknowledges what the sink has stored.

The sink says where it is (`begin`); the consumer starts there, not at the group's committed offsets, which serve
monitoring only. A batch that the sink cannot store now is done again until it can; a batch that it refuses is dropped,
and the consumer goes back to where the sink is. Sinks are plain synchronous code and run in one thread of their own, so
that the event loop, and with it the group membership, lives on while they work or wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from aiokafka.errors import IllegalStateError
from faust.types import TP

from leap_features.settings import Settings
from leap_streams.cursor import Cursor, Verdict
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.faust_app import SinkApp, SinkConsumer, build_app
from leap_streams.followed_topic import RECREATED
from leap_streams.history_writer import Delivery
from leap_streams.kafka import REPLAY_HEADER
from leap_streams.log_probe import LogProbe, RecordsDeleted
from leap_streams.metrics import Metrics
from leap_streams.reporter import Reporter

log = logging.getLogger("leap.intake")

LOG_APPEND_TIME: Final = 1
"""Kafka's timestamp type of a record that the broker stamped."""

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
RESYNC_EVERY_S: Final = 5.0
"""How often an idle intake compares itself with its sink, and fetches again what never came."""
LONGEST_PATIENCE_S: Final = 300.0
REPORT_EVERY_S: Final = 30.0
CLOSE_WITHIN_S: Final = 5.0

T = TypeVar("T")


class Sink(Protocol):
    """Where batches go. Its methods run in one thread, one at a time; all but `check`."""

    def begin(self) -> Mapping[int, int]:
        """Partition → next offset to take in, for those where the sink has something; read afresh.

        Raises:
            Unavailable: ask again later.
            Halt: the sink cannot be written to.
        """

    def where(self) -> Mapping[int, int]:
        """As `begin`, but without asking the broker; after `begin`, again and again.

        Raises:
            Unavailable: ask again later.
            Halt: the sink cannot be written to.
        """

    def check(self) -> None:
        """Check, after `begin`, that the topic is still the one that the sink follows. Runs in a thread of its own.

        Raises:
            Unavailable: ask again later.
            Halt: it is another one.
        """

    def take(self, deliveries: Sequence[Delivery], log_starts: Mapping[int, int]) -> Mapping[str, int]:
        """Store `deliveries`, ascending within a partition; counts by outcome, and of what else the sink does.

        Args:
            log_starts: where partitions were begun of which the sink had nothing. Between there and the first delivery
                the log has no record: offsets are also of transactions' ends, and of what they gave up.

        Raises:
            Unavailable: nothing is lost if the same batch is taken again.
            Refused: begin again where `begin` says.
            Halt: the sink cannot be written to.
        """

    def passed(self, gone: Mapping[int, range]) -> str:
        """What it means that the topic has deleted the offsets `gone` (by partition) untaken, and what to do."""

    def close(self) -> None:
        """Let go of connections."""


class _Standing(NamedTuple):
    """Where a partition stands, since when by the loop's clock, and how long it may before it is fetched again."""

    at: int
    since: float
    patience_s: float


class Intake:
    """Takes `settings.topic` into a sink.

    Args:
        name: the Faust app's, and so the consumer group's.
        make_sink: called in the intake's thread when the app starts.
        metrics: what is counted and measured.
        batch_max, batch_within_s: most records of a batch, and the longest wait to fill one.
        linger_s: that wait while the app keeps up with the topic.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        make_sink: Callable[[], Sink],
        metrics: Metrics,
        *,
        batch_max: int,
        batch_within_s: float,
        linger_s: float,
    ) -> None:
        self.name = name
        self.linger_s = linger_s
        self.failure: BaseException | None = None
        """Why the app halted, if it did."""
        self.doubted = False
        """Whether the broker lacked an offset that was fetched from, and the intake has not looked into it yet."""
        self.settings = settings
        self.reporter = Reporter(name, metrics, settings.http_listen)
        self._state = self.reporter.state
        self._make_sink = make_sink
        self._sink: Sink | None = None
        self._consumer: SinkConsumer | None = None
        self._batch_max = batch_max
        self._batch_within_s = batch_within_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._watch = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"{name}-watch")
        self._busy = asyncio.Lock()
        self._cursors: dict[int, Cursor] = {}
        self._log_starts: dict[int, int] = {}
        """Where each partition was begun that the sink has nothing of: where it stays, as long as that is so."""
        self._standing: dict[int, _Standing] = {}
        self._in_step = True
        """Whether the cursors are where the sink said that it is. If not, since the broker did not answer in between, a
        batch from there would skip what lies before it."""
        self._follows = False
        """Whether the sink has begun. It follows the topic from then on, also while no partition is assigned: one that
        has been deleted has none."""
        self._probe = LogProbe(settings)
        self.app = self._build_app()

    def _build_app(self) -> SinkApp:
        settings = self.settings
        app = build_app(self.name, settings, self)
        topic = app.topic(settings.topic, key_type=bytes, value_type=bytes)

        @app.agent(topic, name=self.name)
        async def intake(stream: Any) -> None:
            async for events in stream.noack_take(self._batch_max, within=self._batch_within_s):
                try:
                    await self._take(events)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    await self._halt(error)

        @app.on_partitions_assigned.connect  # type: ignore[arg-type]  # no handler fits its type
        async def without_partition(_app: Any, *assigned: Any, **_: Any) -> None:
            if not any(assigned):  # there is nothing to seek, and Faust does not ask for it
                self._consumer, self._cursors, self._state.begun = cast(SinkConsumer, app.consumer), {}, True

        @app.timer(RESYNC_EVERY_S)  # type: ignore[untyped-decorator]
        async def resync() -> None:
            if self._follows and not self._busy.locked():
                try:
                    async with self._busy:
                        await self._resync(lambda: self._opened().where(), wait=False)
                        await self._unstick()
                except Unavailable:
                    pass  # said, and tried again the next time
                except Exception as error:
                    await self._halt(error)

        @app.timer(RESYNC_EVERY_S)  # type: ignore[untyped-decorator]
        async def watch() -> None:
            # Beside the batches: the broker may take its time.
            if self._follows:
                try:
                    await asyncio.get_running_loop().run_in_executor(self._watch, self._opened().check)
                    self.reporter.goes_on(self._state.topic, "follow the topic")
                except Unavailable as error:
                    self.reporter.waits(self._state.topic, "follow the topic", error, RESYNC_EVERY_S)
                except Exception as error:
                    await self._halt(error)

        @app.timer(REPORT_EVERY_S)  # type: ignore[untyped-decorator]
        async def report() -> None:
            self.reporter.report()

        return app

    async def seek_to_sink(self, consumer: SinkConsumer) -> Mapping[TP, int]:
        """Seek every assigned partition to where the sink is, and return the offsets."""
        self._consumer = consumer
        self._state.begun = False
        try:
            async with self._busy:
                begins = await self._asked(lambda: self._opened().begin(), wait=True)
                self._follows, self._in_step = True, False
                tps = [tp for tp in consumer.assignment() if tp.topic == self.settings.topic]
                start = await self._start_offsets(consumer, tps, begins, wait=True)
                self._cursors = {tp.partition: Cursor(offset) for tp, offset in start.items()}
                self._log_starts = {tp.partition: offset for tp, offset in start.items() if tp.partition not in begins}
                self._in_step = True
                await self._seek({tp.partition: offset for tp, offset in start.items()})
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._halt(error)
            raise
        self.reporter.begins({tp.partition: offset for tp, offset in sorted(start.items())})
        return start

    async def _start_offsets(
        self, consumer: SinkConsumer, tps: Sequence[TP], begins: Mapping[int, int], *, wait: bool
    ) -> dict[TP, int]:
        if not tps:
            return {}
        first, end = await self._until_available(lambda: consumer.log_bounds(tps), "begin", wait=wait)
        start = {tp: begins.get(tp.partition, first[tp]) for tp in tps}
        for tp, offset in start.items():
            if offset > end[tp]:
                raise Halt(
                    f"topic {tp.topic}, partition {tp.partition} ends at offset {end[tp]}, below the checkpoint "
                    f"{offset}: {RECREATED}"
                )
        gone = {tp.partition: range(offset, first[tp]) for tp, offset in start.items() if offset < first[tp]}
        if gone:
            raise Halt(await self._in_thread(lambda: self._opened().passed(gone))())
        return start

    async def _asked(self, where: Callable[[], Mapping[int, int]], *, wait: bool) -> Mapping[int, int]:
        return await self._until_available(self._in_thread(where), "begin" if wait else "resync", wait=wait)

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._make_sink()
        return self._sink

    async def _take(self, events: Sequence[Any]) -> None:
        async with self._busy:
            if not self._in_step:
                await self._resync(lambda: self._opened().begin(), wait=True)
            accepted = await self._in_order(events)
            if not accepted:
                return
            deliveries = [self._delivery(event.message) for event in accepted]
            try:
                await self._until_available(self._in_thread(lambda: self._store(deliveries)), "write")
            except Refused as error:
                self.reporter.refused(deliveries, error)
                await self._resync(lambda: self._opened().begin(), wait=True)
                return
        for event in accepted:
            event.ack()

    def _store(self, deliveries: Sequence[Delivery]) -> None:
        """Take a batch into the sink and count it; in the intake's thread."""
        began = time.perf_counter()
        counts = self._opened().take(deliveries, self._log_starts)
        self.reporter.stored(deliveries, counts, time.perf_counter() - began)

    async def _in_order(self, events: Sequence[Any]) -> list[Any]:
        """Those of `events` that come next; where one is missing, the consumer is sent back to it."""
        accepted = []
        for event in events:
            message = event.message
            cursor = self._cursors.get(message.partition)
            if cursor is None:
                continue
            verdict = cursor.take(message.offset)
            if verdict is Verdict.GAP:
                probe = partial(self._probe.offsets, message.partition, cursor.next)
                try:
                    following = await self._until_available(self._in_thread(probe), "probe the log")
                except RecordsDeleted:
                    tp, at = TP(message.topic, message.partition), {message.partition: cursor.next}
                    await self._start_offsets(cast(SinkConsumer, self.app.consumer), [tp], at, wait=True)
                    raise
                if cursor.learn(following):
                    await self._seek({message.partition: cursor.next})
                verdict = cursor.take(message.offset)
            if verdict is Verdict.TAKE:
                accepted.append(event)
        return accepted

    async def _resync(self, where: Callable[[], Mapping[int, int]], *, wait: bool) -> None:
        """Go back, or forward, to `where` the sink is."""
        begins = await self._asked(where, wait=wait)
        self._in_step = False
        consumer = cast(SinkConsumer, self.app.consumer)
        elsewhere = [
            TP(self.settings.topic, partition)
            for partition, cursor in self._cursors.items()
            if begins.get(partition, self._log_starts.get(partition)) != cursor.next
        ]
        moved = {}
        for tp, offset in (await self._start_offsets(consumer, elsewhere, begins, wait=wait)).items():
            cursor = self._cursors[tp.partition]
            if offset != cursor.next:
                self.reporter.goes(tp.partition, cursor.next, offset)
                cursor.rewind(offset)
                moved[tp.partition] = offset
            if tp.partition not in begins:
                self._log_starts[tp.partition] = offset
        self._in_step = True
        await self._seek(moved)

    async def _unstick(self) -> None:
        """Send the consumer back to partitions that have records and yet stand still, for longer than a batch may wait.

        Raises:
            Halt: the records that they stand at have been deleted.
            Unavailable: the broker does not answer.
        """
        consumer = cast(SinkConsumer, self.app.consumer)
        assigned = consumer.assignment()
        doubted, self.doubted = self.doubted, False
        now = asyncio.get_running_loop().time()
        standing = {}
        for partition, cursor in self._cursors.items():
            tp = TP(self.settings.topic, partition)
            if tp not in assigned:
                continue
            behind = cursor.next < (consumer.known_end(tp) or 0)
            stood = self._standing.get(partition)
            if stood is None or stood.at != cursor.next:
                # Records may rightly wait until a batch is filled.
                self._standing[partition] = _Standing(cursor.next, now, self._batch_within_s + RESYNC_EVERY_S)
            elif (behind or doubted) and now - stood.since > stood.patience_s:
                standing[partition] = cursor.next
                # A log may end in a transaction's marker, which is no record: then one stands there rightly.
                patience_s = min(2 * stood.patience_s, LONGEST_PATIENCE_S)
                self._standing[partition] = _Standing(cursor.next, now, patience_s)
        if standing:
            self.reporter.fetches_again(standing)
            tps = [TP(self.settings.topic, partition) for partition in standing]
            await self._start_offsets(consumer, tps, standing, wait=False)
            await self._seek(standing)

    async def _seek(self, to: Mapping[int, int]) -> None:
        consumer = cast(SinkConsumer, self.app.consumer)
        assigned = {tp.partition: tp for tp in consumer.assignment() if tp.topic == self.settings.topic}
        seeks = {assigned[partition]: offset for partition, offset in to.items() if partition in assigned}
        if seeks:
            try:
                await consumer.seek_wait(seeks)
            except IllegalStateError as error:  # a rebalance took a partition away meanwhile; it ends with a seek anew
                log.info("%s: %s", self.name, error)

    def _in_thread(self, work: Callable[[], T]) -> Callable[[], Awaitable[T]]:
        """`work`, to be run in the intake's thread."""
        return lambda: asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _until_available(self, work: Callable[[], Awaitable[T]], waits_to: str, *, wait: bool = True) -> T:
        """Do `work`, again and again while it is `Unavailable`, unless the app stops."""
        delay = FIRST_WAIT_S
        while True:
            try:
                result = await work()
            except Unavailable as error:
                self.reporter.waits(self._state.sink, waits_to, error, delay if wait else RESYNC_EVERY_S)
                if not wait:
                    raise
                if self.app.should_stop:
                    raise asyncio.CancelledError from error
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_WAIT_S)
            else:
                self.reporter.goes_on(self._state.sink, waits_to)
                return result

    def behind(self) -> bool:
        """Whether the broker is known to have more than this batch and the next."""
        return sum(self._lag().values()) > 2 * self._batch_max

    def pulse(self) -> None:
        """Note that the loop turns, and how far behind the app is."""
        self.reporter.serve()
        assigned = self._consumer.assignment() if self._consumer is not None else ()
        self.reporter.stands(sum(tp.topic == self.settings.topic for tp in assigned), self._lag())

    def _lag(self) -> dict[int, int]:
        """Records that are not stored yet, per partition of which the end is known."""
        if self._consumer is None:
            return {}
        ends = {p: self._consumer.known_end(TP(self.settings.topic, p)) for p in self._cursors}
        return {p: max(0, end - self._cursors[p].next) for p, end in ends.items() if end is not None}

    def _delivery(self, message: Any) -> Delivery:
        if message.timestamp_type != LOG_APPEND_TIME and not self.settings.allow_create_time:
            raise Halt(
                f"topic {message.topic} carries the producers' time, and history needs the broker's: set "
                "message.timestamp.type=LogAppendTime (or LEAP_ALLOW_CREATE_TIME=true for trying out)"
            )
        headers = message.headers or ()
        pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        replay = any(name == REPLAY_HEADER and value == b"1" for name, value in pairs)
        # Faust gives seconds as a float; the broker's clock has milliseconds.
        recorded_at_us = round(message.timestamp * 1000) * 1000
        return Delivery(message.partition, message.offset, recorded_at_us, message.value, replay, message.key, pairs)

    async def _halt(self, error: BaseException) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self.reporter.halts(error)
        await self.app.crash(error)

    def close(self) -> bool:
        """Report, and let go of all connections; after the app has stopped. Whether that was done in time.

        A thread may be in the middle of an exchange that nobody answers. Nothing of it is acknowledged, so the process
        may end all the same.
        """
        closings = [self._thread.submit(self._close_sink), self._watch.submit(lambda: None)]
        self._thread.shutdown(wait=False)
        self._watch.shutdown(wait=False)
        self.reporter.close()
        return not wait(closings, CLOSE_WITHIN_S).not_done

    def _close_sink(self) -> None:
        if self._sink is not None:
            self._sink.close()
        self._probe.close()
