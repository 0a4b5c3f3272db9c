"""Faust as the intake needs it: its consumer begins where a sink is, and outlasts a broker or store that is away.

Each override stands for something that Faust decides otherwise and offers no setting for; its comment says what.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, cast

import faust
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.tables.recovery import Recovery
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service, WaitResults

from leap_features.settings import Settings
from leap_streams.eager import Finished, begin
from leap_streams.faults import Unavailable
from leap_streams.log_format import logging_config

log = logging.getLogger("leap.intake")

SESSION_TIMEOUT_S: Final = 10.0
"""A worker that died keeps its partitions this long. Faust's default, 60 s, lets the group stand still for a minute."""
HEARTBEAT_S: Final = 3.0
METADATA_AGE_MS: Final = 30_000
"""How long new partitions of a grown topic may wait to be noticed. The client's default is five minutes."""
COMMIT_TIMEOUT_S: Final = 5.0
PULSE_EVERY_S: Final = 1.0
DOUBT_WAIT_S: Final = 0.1
"""Pause before an offset that the broker lacked is fetched again."""


class Seeker(Protocol):
    """Who says where the consumer begins."""

    doubted: bool
    """Whether the broker lacked an offset that was fetched from, and nobody has looked into it yet."""

    async def seek_to_sink(self, consumer: SinkConsumer) -> Mapping[TP, int]:
        """Seek every assigned partition to where the sink is, and return the offsets."""

    linger_s: float
    """How long a batch that is not full waits for more where the consumer keeps up."""

    def behind(self) -> bool:
        """Whether so much is to come that a batch may wait for it, as long as it may."""

    def pulse(self) -> None:
        """Take note that the event loop turns; called every `PULSE_EVERY_S`, whatever else waits."""


class SinkConsumer(driver.Consumer):
    """Begins where the sink is; Faust's own seek would begin at the committed offsets."""

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _SinkConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def wait_first(self, *coros: Any, timeout: Any = None) -> WaitResults:
        """Wait as Faust does, but without four tasks for a delivery that need not wait."""
        # Called for every record, to hand it over unless the flow is suspended meanwhile; also to wait for events.
        first, *others = coros
        if not all(map(asyncio.iscoroutine, coros)):
            return await super().wait_first(*coros, timeout=timeout)
        begun = begin(first)
        if not isinstance(begun, Finished):
            return await super().wait_first(begun, *others, timeout=timeout)
        for other in others:
            other.close()
        return WaitResults([first], [begun.result], self.should_stop)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek to where the sink is."""
        app = cast(SinkApp, self.app)
        return await app.seeker.seek_to_sink(self)

    def known_end(self, tp: TP) -> int | None:
        """Offset after the last record of `tp`, as of the latest fetch; None where there was none."""
        # aiokafka lives in a thread of its own, and may lose the partition at any moment.
        with suppress(AssertionError, AttributeError):
            return cast(int | None, self.highwater(tp))
        return None

    async def log_bounds(self, tps: Sequence[TP]) -> tuple[Mapping[TP, int], Mapping[TP, int]]:
        """First offset and end offset of each partition.

        Raises:
            Unavailable: the broker does not answer.
        """
        thread = cast(_SinkConsumerThread, self._thread)
        try:
            return await thread.log_bounds(tps)
        except KafkaError as error:
            if not isinstance(error, KafkaConnectionError | KafkaTimeoutError) and not error.retriable:
                raise
            raise Unavailable(f"the broker does not tell which offsets it has: {error}") from error


class _SinkConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust reads uncommitted records of transactional producers, and offers no setting against it.
        consumer._isolation_level = "read_committed"
        return consumer

    async def _fetch_records(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super()._fetch_records(*arguments, **options)
        except (NoOffsetForPartitionError, OffsetOutOfRangeError) as error:
            # From before the seek, when aiokafka looked for the group's committed offsets; they are none of ours.
            # Should the sought offset itself be gone, this goes on until the intake has looked into it.
            log.debug("%s; it is fetched from where it was sought", error)
            cast(SinkApp, self.app).seeker.doubted = True
            await asyncio.sleep(DOUBT_WAIT_S)
            return {}

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        # With the broker down a commit waits for it, also the one at the stop. It serves monitoring only.
        try:
            return bool(await asyncio.wait_for(super()._commit(offsets), COMMIT_TIMEOUT_S))
        except TimeoutError:
            log.warning("the broker has not acknowledged a commit within %g s", COMMIT_TIMEOUT_S)
            return False

    async def commit(self, offsets: Mapping[TP, int]) -> bool:
        # At a halt this thread may end before it comes to the last commit. Nobody would answer then, and the app would
        # wait for ever.
        answer = asyncio.ensure_future(super().commit(offsets))
        ended = asyncio.ensure_future(self._shutdown.wait())
        await asyncio.wait((answer, ended), return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if answer.done():
            return bool(answer.result())
        answer.cancel()
        return False

    async def stop(self) -> None:
        # At a halt this thread may have ended by itself, and its loop with it, before it could be told to stop.
        try:
            await super().stop()
        except RuntimeError:
            if not self.thread_loop.is_closed():
                raise

    async def on_thread_stop(self) -> None:
        # With the broker down, aiokafka's stop ends in the cancellation of its own fetch. Passed on, it would keep
        # Faust waiting for a minute for a thread that has ended.
        with suppress(asyncio.CancelledError):
            await super().on_thread_stop()

    async def log_bounds(self, tps: Sequence[TP]) -> tuple[Mapping[TP, int], Mapping[TP, int]]:
        """First offset and end offset of each partition."""
        consumer = self._ensure_consumer()
        return (
            await self.call_thread(consumer.beginning_offsets, list(tps)),
            await self.call_thread(consumer.end_offsets, list(tps)),
        )


class _SinkStream(faust.Stream[Any]):
    async def wait_for_stopped(self, *coros: Any, timeout: Any = None) -> bool:
        # Here Faust waits for a batch to be full, each time as long as it may. That makes large batches out of a
        # backlog; where there is none it only makes every event late.
        (full,) = coros
        seeker = cast(SinkApp, self.app).seeker
        stopped = await super().wait_for_stopped(full, timeout=seeker.linger_s)
        if self.should_stop or full.is_set() or timeout <= seeker.linger_s or not seeker.behind():
            return stopped
        return await super().wait_for_stopped(full, timeout=timeout - seeker.linger_s)


class _Transport(driver.Transport):
    Consumer = SinkConsumer


class _Recovery(Recovery):
    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        # Faust stops to wait for the seek after its request timeout, and then for good: nothing resumes the flow. The
        # sink may be down for longer.
        await super()._wait(coro)


class _TableManager(TableManager):
    @property
    def recovery(self) -> Recovery:
        if self._recovery is None:
            self._recovery = _Recovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery


class _BootStrategy(BootStrategy):
    # `faust worker` opens a web server on all interfaces unless told otherwise; these apps have nothing to serve.
    enable_web = False


class SinkApp(faust.App):
    """A Faust app whose consumer begins where its seeker says."""

    BootStrategy = _BootStrategy

    seeker: Seeker

    @Service.task
    async def _pulse(self) -> None:
        # Not a timer of Faust's: those begin only once the consumer has been sent to the sink, which may take long.
        while not self.should_stop:
            self.seeker.pulse()
            await self.sleep(PULSE_EVERY_S)


def build_app(name: str, settings: Settings, seeker: Seeker) -> SinkApp:
    """The Faust app `name`, and so the consumer group, whose consumer begins where `seeker` says."""
    app = SinkApp(
        name,
        broker=[f"kafka://{server.strip()}" for server in settings.kafka_brokers.split(",")],
        broker_credentials=_credentials(settings),
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        consumer_metadata_max_age_ms=METADATA_AGE_MS,
        consumer_auto_offset_reset="none",  # every partition is sought; a lost range must not pass silently
        stream_wait_empty=False,  # a revocation must not wait for a store that is down
        topic_allow_declare=False,
        topic_disable_leader=True,
        key_serializer="raw",
        value_serializer="raw",
        store="memory://",
        datadir=tempfile.gettempdir(),
        web_enabled=False,
        autodiscover=False,
        Stream=_SinkStream,
        TableManager=_TableManager,
        # For the command `faust`; `leap worker` and `leap archive` set their logs up by themselves.
        logging_config=logging_config(settings.log_format, "info"),
    )
    app.seeker = seeker
    app.transport = _Transport(app.conf.broker, app)
    return app


def _credentials(settings: Settings) -> Any:
    protocol = settings.kafka_security_protocol
    if protocol == "PLAINTEXT":
        return None
    context = None
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=settings.kafka_ca_file or None)
    if not protocol.startswith("SASL"):
        return faust.SSLCredentials(context)
    return faust.SASLCredentials(
        username=settings.kafka_username,
        password=settings.kafka_password,
        mechanism=settings.kafka_sasl_mechanism,
        ssl_context=context,
    )
