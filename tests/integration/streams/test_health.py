from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Consumer

from leap_features.settings import Settings
from leap_streams.child_process import free_port
from leap_streams.health import problem_of
from services import RealKafka


@pytest.mark.real_kafka
def test_an_app_is_at_work_while_its_group_has_a_member(real_kafka: RealKafka, settings: Settings) -> None:
    assert problem_of(settings, "history") is not None
    consumer = Consumer({"bootstrap.servers": real_kafka.brokers, "group.id": f"{settings.project}-history"})
    consumer.subscribe([settings.topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    assert problem_of(settings, "history") is None
    assert problem_of(settings, "archive") is not None
    consumer.close()
    assert problem_of(settings, "history") == f"group '{settings.project}-history' has no member (state empty)"


def test_a_broker_that_is_down_is_named(settings_env: dict[str, str]) -> None:
    brokers = f"127.0.0.1:{free_port()}"
    done = subprocess.run(
        [sys.executable, "-m", "leap_streams.health", "archive"],
        env=settings_env | {"LEAP_KAFKA_BROKERS": brokers},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"the broker at {brokers} does not say" in done.stderr


def test_an_unknown_app_is_refused_with_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "leap_streams.health", "wroker"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "{history|archive}" in done.stderr
