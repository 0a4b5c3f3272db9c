"""`leap nightly`: what cannot be done is said, with the way on."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from leap_training.nightly.commands import nightly_command


@pytest.mark.parametrize(
    "options",
    [
        ("--night", "2026-01-31", "--judge-days", "100000000"),
        ("--night", "2026-01-31", "--train-days", "800000"),
        ("--night", "0001-01-05"),
    ],
)
def test_days_before_the_calendar_begins_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = CliRunner().invoke(nightly_command, options, env={"LEAP_NIGHTLY": str(tmp_path / "nightly")})
    assert result.exit_code == 2
    assert "begin before the calendar does: give fewer" in result.stderr
    assert not (tmp_path / "nightly").exists()


def test_a_full_disk_is_named_with_the_way_on(tmp_path: Path) -> None:
    state = tmp_path / "nightly"
    state.mkdir()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limit[1]))  # as a full disk: writing ends in the middle
    try:
        result = CliRunner().invoke(nightly_command, ["--night", "2026-01-31"], env={"LEAP_NIGHTLY": str(state)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert result.exit_code == 1
    assert f"File too large: make room where {state}, LEAP_HISTORY and LEAP_BUNDLES lie" in result.stderr
