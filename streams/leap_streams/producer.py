"""The client with which a training platform reports ended attempts: validates, keys, sends, never in the way."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, Message, Producer

from leap_features.events import MAX_EVENT_BYTES, CompletionEvent, InvalidEvent, decode, encode
from leap_features.settings import Settings
from leap_streams.kafka import REPLAY_HEADER, client_config

log = logging.getLogger("leap.producer")

DEFAULT_TIMEOUT_S: Final = 1.0
DELIVERY_TIMEOUT_S: Final = 120.0


class QueueFull(RuntimeError):
    """The local queue has been full for the whole timeout: the broker is down or too slow. The event was not taken."""


class CompletionProducer:
    """Sends completion events to the topic, in the background.

    Events are keyed by model type and partitioned by murmur2, as Java clients do, so that all history of a model type
    is kept by one partition. The producer is idempotent: a retried send does not repeat an event, nor reorder events.

    Thread-safe. Use it as a context manager, or call `close`.

    Args:
        settings: where the broker is.
        on_failure: called with the event and the reason for each event that could not be delivered within
            `delivery_timeout_s`, from a background thread; by default such events are only counted in `failed`.
        timeout_s: longest time for which `send` may block its caller when the local queue is full.
        queue_max: events that may wait for the broker.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        on_failure: Callable[[CompletionEvent, str], None] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        queue_max: int = 100_000,
    ) -> None:
        self.sent = 0
        """Events that the broker has acknowledged."""
        self.failed = 0
        """Events that it has not, within the delivery timeout."""
        self._topic = settings.topic
        self._on_failure = on_failure
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._producer = Producer(
            client_config(settings)
            | {
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "compression.type": "gzip",
                "linger.ms": 20,
                "message.timeout.ms": round(delivery_timeout_s * 1000),
                "queue.buffering.max.messages": queue_max,
            }
        )
        self._poller = threading.Thread(target=self._poll, name="leap-completions", daemon=True)
        self._poller.start()

    def send(self, event: CompletionEvent, *, replay: bool = False, timestamp_us: int | None = None) -> None:
        """Hand `event` over; delivery goes on in the background.

        Args:
            event: what to send.
            replay: mark it as sent again by an operator, so that it may be late.
            timestamp_us: time of the record, microseconds since 1970 (UTC); now by default. A topic with LogAppendTime,
            as
                history needs it, replaces it by the broker's own.

        Raises:
            InvalidEvent: the event breaks a rule; nothing is sent.
            QueueFull: the local queue stayed full for the timeout.
            ValueError: the producer is closed.
        """
        try:
            raw = encode(event)
        except (TypeError, ValueError) as error:
            raise InvalidEvent("json", f"attempt {event.attempt_id} cannot be written as JSON: {error}") from None
        self.send_encoded(raw, replay=replay, timestamp_us=timestamp_us)

    def send_encoded(self, raw: bytes, *, replay: bool = False, timestamp_us: int | None = None) -> None:
        """Like `send`, for an event that is JSON already; it is validated all the same."""
        if self._closed.is_set():
            raise ValueError("the producer is closed: make a new one")
        if len(raw) > MAX_EVENT_BYTES:
            raise InvalidEvent("size", f"an event has at most {MAX_EVENT_BYTES} bytes, got {len(raw)}: shorten config")
        event = decode(raw)
        deadline = time.monotonic() + self._timeout_s
        record: dict[str, Any] = {
            "key": event.model_type.encode(),
            "value": raw,
            "headers": [(REPLAY_HEADER, b"1")] if replay else [],
            "on_delivery": self._delivered,
        }
        if timestamp_us is not None:
            record["timestamp"] = timestamp_us // 1000
        while True:
            try:
                self._producer.produce(self._topic, **record)
                return
            except BufferError:
                if time.monotonic() >= deadline:
                    raise QueueFull(
                        f"{len(self._producer)} events wait for the broker and none left within {self._timeout_s:g} s; "
                        f"attempt {event.attempt_id} was not taken: keep it and send it later"
                    ) from None
                time.sleep(0.005)

    def flush(self, timeout_s: float) -> int:
        """Wait until the broker has everything, at most `timeout_s`; how many events still wait."""
        return self._producer.flush(timeout_s)

    def close(self, timeout_s: float = 10.0) -> int:
        """Flush for at most `timeout_s` and let go of the broker; how many events were given up, none being the aim."""
        if self._closed.is_set():
            return 0
        left = self._producer.flush(timeout_s)
        self._closed.set()
        self._poller.join(timeout=1.0)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.sent += 1
            return
        self.failed += 1
        if self._on_failure is None:
            return
        try:
            self._on_failure(decode(message.value() or b""), error.str())
        except Exception:  # else the background thread would end, and with it every delivery
            log.exception("on_failure raised; the event counts as failed and is not handed over again")
