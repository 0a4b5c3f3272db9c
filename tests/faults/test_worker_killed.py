"""The worker under kill −9 on a real broker and a real Redis."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import redis

from completion_stream import produce
from leap_features.events import decode
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from oracle import expected_of, stored_rows
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

pytestmark = pytest.mark.stream

EVENTS = 6_000


def test_kill_9_in_mid_stream_loses_nothing_and_counts_nothing_twice(
    settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    # faust-streaming/faust#323, #47, #48
    log = tmp_path / "worker.log"
    env = settings_env | {"LEAP_BATCH_MAX": "200"}
    with LeapProcess(["init"], env, tmp_path / "init.log") as init:
        assert init.wait() == 0, init.log.read_text()
    produce(settings, EVENTS, seed=1)
    rng = random.Random(2)
    for kill in range(3):
        with LeapProcess(["worker"], env, log) as worker:
            target = (kill + 1) * EVENTS // 4
            wait_until(
                lambda: sum(checkpoints(settings).values()) >= target,  # noqa: B023  # called within this turn
                timeout_s=90,
                what=f"{target} records taken in",
                process=worker,
            )
            time.sleep(rng.random() * 0.1)
            worker.kill()
    deliveries = read_topic(settings, settings.topic)
    with LeapProcess(["worker"], env, log) as worker:
        wait_until(
            lambda: checkpoints(settings) == ends(deliveries), timeout_s=90, what="the end of the topic", process=worker
        )
        assert worker.terminate() == 0
    expected = expected_of(deliveries, FIRST_LIVE_EPOCH, settings.horizon_us)
    assert stored_rows(redis_client, settings.project) == expected.rows
    assert (
        sum(int(row["count"] or 0) for (view, _), row in expected.rows.items() if view == "family_history")
        > EVENTS * 0.8
    )
    assert decode(deliveries[0].value or b"").schema_version == 1
