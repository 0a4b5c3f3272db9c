"""Producers compress as they like: the worker reads every codec that Kafka has."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from confluent_kafka import Producer

from events_strategies import event_fields
from leap_features.settings import Settings
from leap_streams.init import initialise
from leap_streams.kafka import client_config
from oracle import stored_rows
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until

pytestmark = pytest.mark.stream

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def test_events_in_every_codec_are_counted(
    settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    initialise(settings, 1, lambda _line: None)
    completed = datetime.now(UTC) - timedelta(minutes=10)
    for codec in CODECS:
        producer = Producer(client_config(settings) | {"compression.type": codec})
        for number in range(20):  # a batch that is not smaller compressed is sent as it is
            fields = event_fields(completed=completed, attempt_id=f"{codec}-{number}")
            producer.produce(settings.topic, value=json.dumps(fields).encode(), key=b"ranker")
        assert producer.flush(30) == 0
    end = ends(read_topic(settings, settings.topic))
    with LeapProcess(["worker"], settings_env, tmp_path / "worker.log") as worker:
        wait_until(lambda: checkpoints(settings) == end, timeout_s=60, what="the end of the topic", process=worker)
        assert worker.terminate() == 0
    assert stored_rows(redis_client, settings.project)["family_history", ("ranker/ranker-prod",)]["count"] == 100
