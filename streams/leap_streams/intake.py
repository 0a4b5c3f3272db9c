"""A Faust app that takes one topic into a sink, in order, without a gap, and acknowledges what the sink has stored.

The sink says where it is (`begin`); the consumer starts there, not at the group's committed offsets, which serve
monitoring only. A batch that the sink cannot store now is done again until it can; a batch that it refuses is dropped,
and the consumer goes back to where the sink is. Sinks are plain synchronous code and run in one thread of their own, so
that the event loop, and with it the group membership, lives on while they work or wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from aiokafka.errors import IllegalStateError
from faust.types import TP

from leap_features.settings import Settings
from leap_streams.cursor import Cursor, Verdict
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.faust_app import SinkApp, SinkConsumer, build_app
from leap_streams.history_writer import Delivery
from leap_streams.kafka import REPLAY_HEADER
from leap_streams.log_probe import LogProbe

log = logging.getLogger("leap.intake")

LOG_APPEND_TIME: Final = 1
"""Kafka's timestamp type of a record that the broker stamped."""

FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 5.0
RESYNC_EVERY_S: Final = 5.0
"""How often an idle intake compares itself with its sink, and fetches again what never came."""
REPORT_EVERY_S: Final = 30.0

T = TypeVar("T")


class Sink(Protocol):
    """Where batches go. Its methods run in one thread, one at a time."""

    def begin(self) -> Mapping[int, int]:
        """Partition → next offset to take in, for those where the sink has something; read afresh.

        Raises:
            Unavailable: ask again later.
            Halt: the sink cannot be written to.
        """

    def take(self, deliveries: Sequence[Delivery]) -> Mapping[str, int]:
        """Store `deliveries`, ascending within a partition; counts for the log.

        Raises:
            Unavailable: nothing is lost if the same batch is taken again.
            Refused: begin again where `begin` says.
            Halt: the sink cannot be written to.
        """

    def close(self) -> None:
        """Let go of connections."""


class Intake:
    """Takes `settings.topic` into a sink.

    Args:
        name: the Faust app's, and so the consumer group's.
        make_sink: called in the intake's thread when the app starts.
        batch_max, batch_within_s: most records of a batch, and the longest wait to fill one.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        make_sink: Callable[[], Sink],
        *,
        batch_max: int,
        batch_within_s: float,
    ) -> None:
        self.name = name
        self.failure: BaseException | None = None
        """Why the app halted, if it did."""
        self.doubted = False
        """Whether the broker lacked an offset that was fetched from, and the intake has not looked into it yet."""
        self.settings = settings
        self._make_sink = make_sink
        self._sink: Sink | None = None
        self._batch_max = batch_max
        self._batch_within_s = batch_within_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._busy = asyncio.Lock()
        self._cursors: dict[int, Cursor] = {}
        self._log_starts: dict[int, int] = {}
        """Where each partition was begun: where it stays, as long as the sink has nothing of it."""
        self._standing: dict[int, tuple[int, float]] = {}
        """Where each partition stands, and since when by the loop's clock."""
        self._probe = LogProbe(settings)
        self._counts: Counter[str] = Counter()
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

        @app.timer(RESYNC_EVERY_S)  # type: ignore[untyped-decorator]
        async def resync() -> None:
            if not self._busy.locked():
                try:
                    async with self._busy:
                        await self._resync(wait=False)
                        await self._unstick()
                except Unavailable as error:
                    log.warning("%s: %s", self.name, error)
                except Exception as error:
                    await self._halt(error)

        @app.timer(REPORT_EVERY_S)  # type: ignore[untyped-decorator]
        async def report() -> None:
            self._report()

        return app

    async def seek_to_sink(self, consumer: SinkConsumer) -> Mapping[TP, int]:
        """Seek every assigned partition to where the sink is, and return the offsets."""
        try:
            async with self._busy:
                begins = await self._begin(wait=True)
                tps = [tp for tp in consumer.assignment() if tp.topic == self.settings.topic]
                start = await self._start_offsets(consumer, tps, begins, wait=True)
                self._cursors = {tp.partition: Cursor(offset) for tp, offset in start.items()}
                self._log_starts = {tp.partition: offset for tp, offset in start.items()}
                await self._seek({tp.partition: offset for tp, offset in start.items()})
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await self._halt(error)
            raise
        log.info("%s: begins at %s", self.name, {tp.partition: offset for tp, offset in sorted(start.items())})
        return start

    async def _start_offsets(
        self, consumer: SinkConsumer, tps: Sequence[TP], begins: Mapping[int, int], *, wait: bool
    ) -> dict[TP, int]:
        if not tps:
            return {}
        first, end = await self._until_available(lambda: consumer.log_bounds(tps), "waits to begin", wait=wait)
        start = {}
        for tp in tps:
            offset = begins.get(tp.partition)
            if offset is None:
                offset = first[tp]
            elif offset < first[tp]:
                raise Halt(
                    f"topic {tp.topic}, partition {tp.partition}: {first[tp] - offset} records from offset {offset} on "
                    "have been deleted by retention before they were taken in; `leap rebuild` restores history from "
                    "the archive"
                )
            elif offset > end[tp]:
                raise Halt(
                    f"topic {tp.topic}, partition {tp.partition} ends at offset {end[tp]}, below the checkpoint "
                    f"{offset}: the topic was deleted and created again; give it a new epoch by "
                    "`leap rebuild --new-epoch`"
                )
            start[tp] = offset
        return start

    async def _begin(self, *, wait: bool) -> Mapping[int, int]:
        return await self._until_available(self._in_thread(lambda: self._opened().begin()), "waits to begin", wait=wait)

    def _opened(self) -> Sink:
        if self._sink is None:
            self._sink = self._make_sink()
        return self._sink

    async def _take(self, events: Sequence[Any]) -> None:
        async with self._busy:
            accepted = await self._in_order(events)
            if not accepted:
                return
            deliveries = [self._delivery(event.message) for event in accepted]
            try:
                counts = await self._until_available(
                    self._in_thread(lambda: self._opened().take(deliveries)), "waits to write"
                )
            except Refused as error:
                log.warning("%s: %s; begins again where the store is", self.name, error)
                await self._resync(wait=True)
                return
            self._counts.update(counts)
        for event in accepted:
            event.ack()

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
                following = await self._until_available(self._in_thread(probe), "waits to probe the log")
                if cursor.learn(following):
                    await self._seek({message.partition: cursor.next})
                verdict = cursor.take(message.offset)
            if verdict is Verdict.TAKE:
                accepted.append(event)
        return accepted

    async def _resync(self, *, wait: bool) -> None:
        """Go back, or forward, to where the sink is."""
        begins = await self._begin(wait=wait)
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
                log.warning("%s: partition %d goes from offset %d to %d", self.name, tp.partition, cursor.next, offset)
                cursor.rewind(offset)
                moved[tp.partition] = offset
                self._log_starts[tp.partition] = offset
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
            behind = cursor.next < (consumer.highwater(tp) or 0)
            at, since = self._standing.get(partition, (None, now))
            if at != cursor.next:
                self._standing[partition] = cursor.next, now
            # Records may rightly wait until a batch is filled.
            elif (behind or doubted) and now - since > self._batch_within_s + RESYNC_EVERY_S:
                standing[partition] = cursor.next
                self._standing[partition] = cursor.next, now
        if standing:
            log.info("%s: fetches again from %s", self.name, standing)
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

    async def _until_available(self, work: Callable[[], Awaitable[T]], waiting: str, *, wait: bool = True) -> T:
        """Do `work`, again and again while it is `Unavailable`."""
        delay = FIRST_WAIT_S
        while True:
            try:
                return await work()
            except Unavailable as error:
                if not wait or self.app.should_stop:
                    raise
                log.warning("%s %s (next try in %.1f s): %s", self.name, waiting, delay, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, LONGEST_WAIT_S)

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
        if isinstance(error, Halt):
            log.critical("%s halts: %s", self.name, error)
        else:
            log.critical("%s halts, nothing of the batch is acknowledged", self.name, exc_info=error)
        await self.app.crash(error)

    def _report(self) -> None:
        if self._counts:
            log.info("%s: %s", self.name, ", ".join(f"{name} {n}" for name, n in sorted(self._counts.items()) if n))
            self._counts.clear()

    def close(self) -> None:
        """Report, and let go of the sink. After the app has stopped."""
        self._report()
        if self._sink is not None:
            self._thread.submit(self._sink.close).result()
        self._probe.close()
        self._thread.shutdown()
