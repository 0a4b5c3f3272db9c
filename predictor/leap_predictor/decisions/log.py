"""Logs of decisions: what was answered, kept for `leap impact`, and never at the cost of the answer.

`record` puts a decision into a bounded queue and returns; a thread writes it. Where the queue is full the decision is
dropped and counted, whatever the disk or the broker does meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from leap_predictor.decisions.decision import Decision, InvalidDecision, encode
from leap_predictor.decisions.rotating_lines import RotatingLines
from leap_predictor.decisions.topic_lines import TopicLines, check_client
from leap_predictor.forking import remake_in_children

QUEUE_MAX: Final = 10_000
"""Decisions that may wait to be written; a few kilobytes each."""
BATCH_MAX: Final = 500
GATHER_S: Final = 0.05
"""How long the first decision of a batch waits for others: waking for each one would take time from callers."""
EXIT_WITHIN_S: Final = 1.0
"""How long the end of the interpreter may wait for what is recorded."""
MAX_BYTES: Final = 64 * 1024 * 1024
KEEP: Final = 16

_log = logging.getLogger(__name__)


class DecisionLog(Protocol):
    """Where decisions go. Safe across threads and after a fork."""

    @property
    def counts(self) -> dict[str, int]:
        """Decisions of this process: `written`, `dropped` (the queue was full, or the log closed), `failed`."""

    def record(self, decision: Decision) -> None:
        """Keep `decision`. Never raises, and never waits for disk or network."""

    def close(self, within_s: float = 1.0) -> None:
        """Write what is recorded, for at most `within_s` seconds. What is recorded later is dropped."""


class Sink(Protocol):
    """What a log's thread writes to; used by that thread alone, but for `after_fork_in_child`."""

    @property
    def waiting(self) -> bool:
        """Whether `look` must be called again soon."""

    def write(self, lines: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Write lines, each with the key that a topic keeps it under. Raises what goes wrong."""

    def look(self) -> None:
        """Take in what has become of lines that were written."""

    def close(self, within_s: float) -> None:
        """Finish, for about `within_s` seconds at most."""

    def after_fork_in_child(self) -> None:
        """Let go of what the parent goes on to use."""


class Tally:
    """What has become of decisions. Only the log's thread counts here."""

    def __init__(self) -> None:
        self.written = 0
        self.failed = 0
        self._failing = False

    def wrote(self, count: int) -> None:
        """Count decisions that arrived."""
        self.written += count
        if self._failing and count:
            self._failing = False
            _log.warning("decisions are written again; %d could not be", self.failed)

    def lost(self, count: int, why: object) -> None:
        """Count decisions that did not; the first of a row is reported."""
        self.failed += count
        if not self._failing:
            self._failing = True
            _log.warning("decisions cannot be written, and are left out until they can: %s", why)


class QueuedLog:
    """A decision log with a queue and a thread per process.

    What is recorded is also written when the interpreter ends, within a second. A process that ends by `os._exit`, as
    those of multiprocessing do, calls `close` first.

    Args:
        sink: makes what the thread writes to; called in that thread.
        queue_max: decisions that may wait.
    """

    def __init__(self, sink: Callable[[Tally], Sink], *, queue_max: int = QUEUE_MAX) -> None:
        if queue_max < 1:
            raise ValueError(f"queue_max must be at least 1, got {queue_max!r}")
        self._make_sink = sink
        self._queue_max = queue_max
        self._start_over()
        self._writer.ensure_running()
        remake_in_children(self)
        _LOGS.add(self)

    def _start_over(self) -> None:
        self._writer = _Writer(self._make_sink)
        self._finalizer = weakref.finalize(self, self._writer.stop, EXIT_WITHIN_S)
        # A signal's handler may record too, in the midst of this thread's own record.
        self._dropping = threading.RLock()
        self._dropped = 0

    @property
    def counts(self) -> dict[str, int]:
        """Decisions of this process: `written`, `dropped` (the queue was full, or the log closed), `failed`."""
        tally = self._writer.tally
        return {"written": tally.written, "dropped": self._dropped, "failed": tally.failed}

    def record(self, decision: Decision) -> None:
        """Keep `decision`. Never raises, and never waits for disk or network."""
        writer = self._writer
        if writer.stopped or writer.queue.qsize() >= self._queue_max:
            with self._dropping:
                self._dropped += 1
            return
        writer.queue.put(decision)
        writer.ensure_running()

    def close(self, within_s: float = 1.0) -> None:
        """Write what is recorded, for at most `within_s` seconds. What is recorded later is dropped."""
        self._writer.stop(within_s)
        self._writer.join(within_s)

    def after_fork_in_child(self) -> None:
        """Leave what the parent recorded to the parent, and begin anew; a closed log stays closed."""
        self._finalizer.detach()
        before = self._writer
        self._start_over()
        if before.stopped:
            self._writer.stop(0.0)
        if before.sink is not None:
            before.sink.after_fork_in_child()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class JsonLinesLog(QueuedLog):
    """Decisions as JSON Lines in a file that is rotated by size (see `rotating_lines`).

    Several processes may write to one path, also children of one that opened it.

    Args:
        path: of the file; its directory is made where it is missing.
        max_bytes: a file that would grow beyond this is rotated.
        keep: how many rotated files stay: together with `max_bytes` the room that the log takes on disk.
        queue_max: decisions that may wait for the disk.

    Raises:
        ValueError: a limit is out of range.
    """

    def __init__(
        self, path: str | Path, *, max_bytes: int = MAX_BYTES, keep: int = KEEP, queue_max: int = QUEUE_MAX
    ) -> None:
        # Absolute: a launcher may change its directory.
        where = Path(path).absolute()
        RotatingLines(where, max_bytes=max_bytes, keep=keep)  # refuses limits now; it opens nothing yet
        super().__init__(
            lambda tally: _FileSink(RotatingLines(where, max_bytes=max_bytes, keep=keep), tally), queue_max=queue_max
        )


class TopicLog(QueuedLog):
    """Decisions as records of a Kafka topic, keyed by model type and partitioned as completion events are.

    Needs the extra `streams`. The topic is made by whoever runs the brokers.

        from leap_features.settings import Settings
        from leap_streams.kafka import client_config

        log = TopicLog(client_config(Settings.from_env()), "leap.decisions")

    Args:
        config: settings of librdkafka: `bootstrap.servers`, and those of TLS and SASL.
        topic: its name.
        delivery_timeout_s: what a broker has not taken by then counts as failed.
        queue_max: decisions that may wait for the thread, and as many again for the broker.

    Raises:
        ModuleNotFoundError: confluent-kafka is not installed.
        ValueError: a setting that librdkafka refuses.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        *,
        delivery_timeout_s: float = 30.0,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        settings = dict(config) | {
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "gzip",
            "linger.ms": 50,
            "message.timeout.ms": round(delivery_timeout_s * 1000),
            "queue.buffering.max.messages": queue_max,
        }
        check_client(settings, topic)
        super().__init__(lambda tally: TopicLines(settings, topic, tally.wrote, tally.lost), queue_max=queue_max)


class _FileSink:
    """Appends to a file."""

    waiting = False

    def __init__(self, file: RotatingLines, tally: Tally) -> None:
        self._file = file
        self._tally = tally

    def write(self, lines: Sequence[bytes], keys: Sequence[bytes]) -> None:
        del keys
        written = self._file.append(lines)
        self._tally.wrote(written)
        if written < len(lines):
            self._tally.lost(len(lines) - written, "the file took only some of them: is the disk full?")

    def look(self) -> None:
        pass

    def close(self, within_s: float) -> None:
        del within_s
        self._file.close()

    def after_fork_in_child(self) -> None:
        # The parent's descriptor would keep its lock on the file alive here, were the parent killed.
        self._file.close()


class _Writer:
    """The queue and the thread of one process."""

    def __init__(self, make_sink: Callable[[Tally], Sink]) -> None:
        # Unlike Queue's, its put takes no lock in Python: it cannot wait, nor be caught by a fork or a signal.
        self.queue: queue.SimpleQueue[Decision | None] = queue.SimpleQueue()
        self.tally = Tally()
        self.sink: Sink | None = None
        self._make_sink = make_sink
        self._until: float | None = None
        self._starting = threading.RLock()  # a signal handler may rank in the midst of it
        self._thread: threading.Thread | None = None

    @property
    def stopped(self) -> bool:
        return self._until is not None

    def stop(self, within_s: float) -> None:
        """Let the thread end once it has written what is queued."""
        if self._until is None:
            self._until = time.monotonic() + within_s
            self.queue.put(None)

    def join(self, within_s: float) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(within_s)

    def ensure_running(self) -> None:
        """Start the thread if this process has none."""
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="leap-decisions", daemon=True)
                # Where there can be no more threads the next record tries again, and the queue is bounded.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        with self._starting:  # who started it is done, or was interrupted in the midst of it and starts another
            if self._thread is not threading.current_thread():
                return
        while True:
            batch, ended = self._next_batch()
            try:
                self._write(batch)
            except Exception as error:  # the thread must go on, whatever disk or broker do
                self.tally.lost(len(batch), f"{type(error).__name__}: {error}")
            if ended:
                break
        if self.sink is not None:
            until = self._until or 0.0
            try:
                self.sink.close(max(0.0, until - time.monotonic()))
            except Exception:  # nobody could do anything about it
                _log.exception("the decision log was not closed well")

    def _next_batch(self) -> tuple[list[Decision], bool]:
        """What is queued, once there is something; and whether it is the last."""
        first = self._wait()
        if first is not None and not self.stopped:
            time.sleep(GATHER_S)
        batch = [] if first is None else [first]
        while len(batch) < BATCH_MAX:
            try:
                decision = self.queue.get_nowait()
            except queue.Empty:
                return batch, self.stopped
            if decision is not None:
                batch.append(decision)
        return batch, False

    def _wait(self) -> Decision | None:
        """The next decision; None: there was none, or the log was closed."""
        try:
            under_way = self.sink is not None and self.sink.waiting
            return self.queue.get(timeout=GATHER_S if under_way or self.stopped else None)
        except queue.Empty:
            return None

    def _write(self, batch: Sequence[Decision]) -> None:
        if self.sink is None:
            if not batch:
                return
            self.sink = self._make_sink(self.tally)
        lines, keys = [], []
        for decision in batch:
            try:
                lines.append(encode(decision))
            except InvalidDecision as error:
                self.tally.lost(1, error)
            else:
                keys.append(decision.model_type.encode(errors="replace"))
        if lines:
            self.sink.write(lines, keys)
        self.sink.look()


_LOGS: Final[weakref.WeakSet[QueuedLog]] = weakref.WeakSet()


def _at_exit() -> None:
    until = time.monotonic() + EXIT_WITHIN_S
    for log in list(_LOGS):
        log.close(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)
