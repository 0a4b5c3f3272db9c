"""The archive app under kill −9 in the middle of a segment, on real processes."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from leap_features import archive
from leap_features.events import InvalidEvent, decode
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from stream_process import LeapProcess, ends, read_topic, wait_until
from stream_traffic import traffic

pytestmark = pytest.mark.stream

KILLS = 3
PAUSE_S = 0.2


def temporary_files(settings: Settings) -> list[Path]:
    return list(Path(settings.archive).rglob(".*.tmp"))


def archived(settings: Settings) -> dict[int, int]:
    return archive.end_offsets(settings.archive, FIRST_LIVE_EPOCH)


def is_event(value: bytes | None) -> bool:
    try:
        decode(value or b"")
    except InvalidEvent:
        return False
    return True


def test_kill_9_in_mid_segment_leaves_an_archive_that_has_every_event_once(
    settings: Settings, settings_env: dict[str, str], redis_client: object, tmp_path: Path
) -> None:
    env = settings_env | {"LEAP_ARCHIVE_BATCH_MAX": "50", "LEAP_ARCHIVE_WITHIN_S": "0.1"}
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
    log = tmp_path / "archive.log"
    rng = random.Random(1)
    with traffic(settings, PAUSE_S):
        for _ in range(KILLS):
            with LeapProcess(["archive"], env, log) as archiver:
                before = sum(archived(settings).values())
                more = rng.randrange(1, 500)
                wait_until(
                    lambda: sum(archived(settings).values()) >= before + more,  # noqa: B023  # called within this turn
                    timeout_s=90,
                    what=f"{more} more offsets in the archive",
                    process=archiver,
                )
                # A segment that is being written shows as a temporary file, for some milliseconds.
                deadline = time.monotonic() + 5
                while not temporary_files(settings) and time.monotonic() < deadline:
                    time.sleep(0.001)
                archiver.kill()
    (Path(settings.archive) / ".archive.json.4711.0123abcd.tmp").touch()
    for leftover in temporary_files(settings):
        os.utime(leftover, (0, 0))  # days have passed
    deliveries = read_topic(settings, settings.topic)
    with LeapProcess(["archive"], env, log) as archiver:
        wait_until(
            lambda: archived(settings) == ends(deliveries), timeout_s=90, what="the end of the topic", process=archiver
        )
        assert archiver.terminate() == 0
    names = ("epoch", "partition", "offset", "attempt_id")
    with archive.connect() as connection:
        query = archive.relation(archive.check_complete(settings.archive), names)
        rows = connection.execute(f'SELECT epoch, partition, "offset", attempt_id FROM ({query}) ORDER BY ALL')
        found = rows.fetchall()
    assert found == [
        (FIRST_LIVE_EPOCH, delivery.partition, delivery.offset, json.loads(delivery.value or b"")["attempt_id"])
        for delivery in deliveries
        if is_event(delivery.value)
    ]
    assert temporary_files(settings) == []
