"""A synthetic fleet through the broker: a worker takes it in, as it was or as if it ran now."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from leap_features.events import check_recorded, decode, to_us
from leap_features.family import DEFAULT_RULES
from leap_features.settings import Settings
from leap_streams.audit import audit
from leap_training.fleet.commands import fleet_group
from stream_process import LEAP, LeapProcess, checkpoints, ends, read_topic, wait_until

pytestmark = pytest.mark.stream

FEATURE_REPO = Path(__file__).parents[3] / "feature_repo"
ATTEMPTS = 400
FLEET = ["generate", "--days", "2", "--attempts-per-day", "200", "--hardware", "5", "--model-types", "8"]


@contextmanager
def apps(settings: Settings, env: Mapping[str, str], folder: Path) -> Iterator[LeapProcess]:
    """Worker and archive at work; the worker."""
    with LeapProcess(["init"], env, folder / "init.log") as init:
        assert init.wait() == 0
    with (
        LeapProcess(["worker"], env, folder / "worker.log") as worker,
        LeapProcess(["archive"], env, folder / "archive.log") as archiver,
    ):
        yield worker
        worker.terminate()
        archiver.terminate()


@pytest.fixture
def env(settings_env: Mapping[str, str]) -> dict[str, str]:
    return {**settings_env, "LEAP_ARCHIVE_WITHIN_S": "0.2", "LEAP_FEATURE_REPO": str(FEATURE_REPO)}


def send(env: Mapping[str, str], *options: str) -> str:
    result = CliRunner().invoke(fleet_group, [*FLEET, *options], env=env)
    assert result.exit_code == 0, result.output
    assert f"{ATTEMPTS} of {ATTEMPTS} events sent" in result.output
    return result.output


def test_a_fleet_of_the_past_is_taken_in_marked_as_replayed(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    with apps(settings, env, tmp_path) as worker:
        send(env, "--rate", "0", "--out", str(tmp_path / "fleet"), "--format", "jsonl")
        sent = read_topic(settings, settings.topic)
        wait_until(lambda: checkpoints(settings) == ends(sent), timeout_s=60, what="the worker", process=worker)
        wait_until(
            lambda: audit(settings, rules=DEFAULT_RULES).total > 0, timeout_s=60, what="the archive", process=worker
        )
    audited = audit(settings, rules=DEFAULT_RULES)
    assert audited.equal == audited.total > 100, audited.first
    assert all(record.replay for record in sent)
    lines = (tmp_path / "fleet" / "completions.jsonl").read_bytes().splitlines()
    assert sorted(record.value or b"" for record in sent) == sorted(lines)
    assert read_topic(settings, settings.dead_letter_topic) == []


def test_a_fleet_sent_live_completes_now_and_may_be_sent_again(
    settings: Settings, env: dict[str, str], tmp_path: Path
) -> None:
    began_us = time.time_ns() // 1000
    with apps(settings, env, tmp_path) as worker:
        send(env, "--rate", "0", "--live")
        output = send(env, "--rate", "2000", "--live")
        sent = read_topic(settings, settings.topic)
        wait_until(lambda: checkpoints(settings) == ends(sent), timeout_s=60, what="the worker", process=worker)
    assert "2,000 were asked for" in output
    assert len({decode(record.value or b"").attempt_id for record in sent}) == len(sent) == 2 * ATTEMPTS
    assert not any(record.replay for record in sent)
    for record in sent:
        event = decode(record.value or b"")
        assert began_us <= to_us(event.completed_at) <= time.time_ns() // 1000
        check_recorded(event, record.recorded_at_us, settings.horizon_us, replay=False)
    assert read_topic(settings, settings.dead_letter_topic) == []


def test_a_fleet_of_the_future_is_not_sent_where_it_would_be_dead_lettered(
    settings: Settings, env: dict[str, str]
) -> None:
    options = ["--start", "2100-01-01", "--rate", "0"]
    result = CliRunner().invoke(fleet_group, [*FLEET, *options], env=env | {"LEAP_ALLOW_CREATE_TIME": "false"})
    assert result.exit_code == 1
    assert "later than now, and would be dead-lettered: begin the fleet earlier by --start" in result.output
    assert read_topic(settings, settings.topic) == []


def test_a_stream_that_is_interrupted_says_how_much_was_sent(settings: Settings, env: dict[str, str]) -> None:
    # Ctrl-C is ignored by what is started in the background, and so by what that starts.
    heeding = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {LEAP}"
    command = [sys.executable, "-c", heeding, "fleet", *FLEET, "--rate", "4", "--live"]  # for 100 s
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: read_topic(settings, settings.topic) != [], timeout_s=60, what="the stream")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    sent = len(read_topic(settings, settings.topic))
    assert process.returncode == 130
    assert f"stopped: topic {settings.topic} has {sent} of {ATTEMPTS} events" in output
    assert 0 < sent < ATTEMPTS
