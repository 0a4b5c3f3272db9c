"""`leap up`: an embedded broker and Redis that run until a signal, for trying everything out."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from leap_features.durable import publish
from leap_features.settings import Settings
from leap_streams.embedded import EmbeddedBroker, EmbeddedRedis, EmbeddedServiceError

NOTICE = """\
# For trying out only: nothing is kept after the stop, record times are the producer's own
# (so lateness cannot be judged), and one worker and one archive run at a time.
# In another terminal:"""


def run_until_stopped(
    settings: Settings, *, env_file: Path | None, redis_port: int | None, show: Callable[[str], None]
) -> None:
    """Run both until SIGINT, SIGTERM or SIGHUP, then stop both; `show` prints a line.

    Args:
        settings: names of the topics and their number of partitions.
        env_file: a shell file that gets the settings once both are up, and is removed when they stop. It appears whole
            or not at all, so a script may wait for it.
        redis_port: TCP port for Redis; None takes a free one. (The broker's is always a free one.)
        show: prints one line to the user.

    Raises:
        EmbeddedServiceError: one of them could not be started, or Redis ended by itself.
        OSError: the shell file cannot be written.
    """
    topics = (settings.topic, settings.dead_letter_topic)
    with (
        stop_signals() as stopped,
        EmbeddedBroker(topics, partitions=settings.partitions) as broker,
        EmbeddedRedis(port=redis_port) as redis_server,
    ):
        exports = export_lines(
            {
                "LEAP_KAFKA_BROKERS": broker.brokers,
                "LEAP_REDIS_URL": redis_server.url,
                "LEAP_ALLOW_CREATE_TIME": "true",
                "LEAP_ARCHIVE_WITHIN_S": "1",
                "LEAP_PARTITIONS": str(settings.partitions),
                "LEAP_TOPIC": settings.topic,
                "LEAP_DEAD_LETTER_TOPIC": settings.dead_letter_topic,
            }
        )
        show(NOTICE)
        show(exports)
        with written_while_running(env_file, exports):
            show("# Running; Ctrl-C stops both.")
            while not stopped.wait(timeout=0.5):
                if not redis_server.child.running():
                    raise EmbeddedServiceError(f"the Redis server at {redis_server.url} ended by itself")
    show("# Stopped both.")


def export_lines(variables: Mapping[str, str]) -> str:
    """Return the variables as lines that a POSIX shell can source."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


@contextmanager
def written_while_running(path: Path | None, text: str) -> Iterator[None]:
    """Hold `text` in the file `path` for as long as the block runs; None: do nothing."""
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    written = publish(path.parent, path.name, f"{text}\n".encode(), replace=True)
    try:
        yield
    finally:
        written.unlink(missing_ok=True)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Give an event that a stop signal sets, instead of ending the process; for the main thread only."""
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
