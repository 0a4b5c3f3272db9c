"""Lines sent to a Kafka topic by confluent-kafka, which is imported only here and only when it is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_QUIET: Final = {"log_level": 0}
"""librdkafka writes to standard error otherwise; failures are told by `lost`."""


def check_client(settings: Mapping[str, Any], topic: str) -> None:
    """Check what `TopicLines` is made with, without connecting.

    Raises:
        ModuleNotFoundError: confluent-kafka is not installed.
        ValueError: the topic has no name, or librdkafka refuses a setting.
    """
    if not topic:
        raise ValueError("topic must be a name, got an empty one")
    try:
        from confluent_kafka import KafkaException, Producer  # noqa: PLC0415  # launchers without a topic go without
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"a decision log in a topic needs the package {error.name!r}: pip install 'leap-throughput[streams]'",
            name=error.name,
        ) from None
    try:
        Producer(dict(settings) | _QUIET)
    except KafkaException as error:
        raise ValueError(f"settings of the decision log's topic {topic}: {error.args[0].str()}") from None


class TopicLines:
    """Sends to one topic. Used by one thread.

    Args:
        settings: of librdkafka.
        topic: its name.
        wrote: is told how many lines the broker has taken.
        lost: is told how many it has not, and why.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        wrote: Callable[[int], None],
        lost: Callable[[int, object], None],
    ) -> None:
        from confluent_kafka import Producer  # noqa: PLC0415  # see the module

        self._topic = topic
        self._wrote = wrote
        self._lost = lost
        self._producer = Producer(dict(settings) | _QUIET)

    @property
    def waiting(self) -> bool:
        """Whether some lines are under way."""
        return len(self._producer) > 0

    def write(self, lines: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Hand lines over; `look` and `close` take in what became of them."""
        for place, (line, key) in enumerate(zip(lines, keys, strict=True)):
            try:
                self._producer.produce(self._topic, value=line, key=key, on_delivery=self._delivered)
            except BufferError:
                self._lost(len(lines) - place, f"too many wait for the broker of topic {self._topic}")
                return

    def look(self) -> None:
        """Take in what became of lines, without waiting."""
        self._producer.poll(0)

    def close(self, within_s: float) -> None:
        """Wait for the broker, for at most `within_s` seconds; give up what it has not taken by then."""
        if self._producer.flush(within_s):
            self._producer.purge()
            self._producer.flush(0.1)

    def after_fork_in_child(self) -> None:
        """Keep the parent's client as it is for ever: ending it here would wait for threads that are not here."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._producer))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        del message
        if error is None:
            self._wrote(1)
        else:
            self._lost(1, f"topic {self._topic}: {error.str()}")
