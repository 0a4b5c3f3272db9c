"""Traffic for a stream of a test's own, waiting for what was taken in of it, and its comparison with the oracle."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from completion_stream import produce
from leap_features import redis_address
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from leap_streams.dead_letter import HEADER_PREFIX
from oracle import expected_of, stored_rows
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

AT_ONCE: Final = 300
"""Attempts that are sent in one go."""


def initialised(settings_env: Mapping[str, str], redis_url: str, log: Path) -> dict[str, str]:
    """The environment of a deployment at `redis_url`, after `leap init`; many small batches, all to be disturbed."""
    env = {
        **settings_env,
        "LEAP_REDIS_URL": redis_url,
        "LEAP_BATCH_MAX": "100",
        "LEAP_ARCHIVE_BATCH_MAX": "500",
        "LEAP_ARCHIVE_WITHIN_S": "0.3",
        "LEAP_FEATURE_REPO": str(Path(__file__).parents[1] / "feature_repo"),
    }
    with LeapProcess(["init"], env, log) as init:
        assert init.wait() == 0, log.read_text()
    return env


@contextmanager
def traffic(settings: Settings, pause_s: float = 0.0) -> Iterator[None]:
    """Events come in all the while, `AT_ONCE` every `pause_s` seconds."""
    over = threading.Event()

    def send() -> None:
        seed = 0
        while not over.wait(pause_s):
            produce(settings, AT_ONCE, seed)
            seed += 1

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def taken_in(settings: Settings) -> int:
    return sum(checkpoints(settings).values())


def wait_for_more(settings: Settings, worker: LeapProcess, count: int = AT_ONCE) -> None:
    target = taken_in(settings) + count
    wait_until(lambda: taken_in(settings) >= target, timeout_s=60, what=f"{count} more records", process=worker)


def wait_for_the_end(settings: Settings, worker: LeapProcess) -> None:
    end = ends(read_topic(settings, settings.topic))
    wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=worker)


def check_equal_to_the_oracle(settings: Settings) -> None:
    """Every row, and every dead letter, is the one that the topic's records come to; a letter may be there twice."""
    expected = expected_of(read_topic(settings, settings.topic), FIRST_LIVE_EPOCH, settings.horizon_us)
    with redis_address.client(settings.redis_url) as client:
        assert stored_rows(client, settings.project) == expected.rows
    letters = {}
    for letter in read_topic(settings, settings.dead_letter_topic):
        header = {name.removeprefix(HEADER_PREFIX): value or b"" for name, value in letter.headers}
        letters[int(header["partition"]), int(header["offset"])] = header["rule"].decode()
    assert letters == expected.dead_letters
    assert letters
