"""`leap fleet`: what it writes, what it refuses, and what it says to do next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from leap_training.fleet.calibrate import calibrate
from leap_training.fleet.commands import fleet_group

LEAP = "from leap_features.command import leap; leap()"
SMALL = ["--days", "2", "--attempts-per-day", "300", "--hardware", "6", "--model-types", "8", "--start", "2026-05-01"]


def leap_fleet(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(fleet_group, list(arguments), env=env)


def test_a_fleet_is_written_and_the_next_commands_are_named(tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    result = leap_fleet("generate", *SMALL, "--new-hardware-day", "1", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "600 attempts of 8 model types on 6 hardware types" in result.output
    assert f"next: `leap fleet calibrate {out}`" in result.output
    assert {path.name for path in out.iterdir()} == {"completions.parquet", "truth.parquet", "fleet.json"}


def test_a_second_fleet_is_refused_unless_forced(tmp_path: Path) -> None:
    assert leap_fleet("generate", *SMALL, "--out", str(tmp_path)).exit_code == 0
    again = leap_fleet("generate", *SMALL, "--out", str(tmp_path), "--format", "jsonl")
    assert again.exit_code == 1
    assert "or replace the fleet by --force" in again.output
    forced = leap_fleet("generate", *SMALL, "--out", str(tmp_path), "--format", "jsonl", "--force")
    assert forced.exit_code == 0, forced.output
    assert (tmp_path / "completions.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say where the events go"),
        (["--live", "--out", "fleet"], "--live is about sending: give --rate too"),
        (["--rate", "-1"], "-1"),
        (["--format", "csv", "--out", "fleet"], "csv"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], message: str) -> None:
    result = leap_fleet("generate", *SMALL, *arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_impossible_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    result = leap_fleet("generate", *SMALL, "--days", "0", "--out", str(tmp_path / "fleet"))
    assert result.exit_code == 1
    assert "days must be 1 or more, got 0" in result.output
    assert not (tmp_path / "fleet").exists()


def test_without_a_topic_nothing_is_sent_and_the_mend_is_named() -> None:
    result = leap_fleet("generate", *SMALL, "--rate", "0", LEAP_KAFKA_BROKERS="localhost:1")
    assert result.exit_code == 1
    assert "at localhost:1: `leap init` makes it" in result.output


def test_a_directory_without_a_fleet_is_not_calibrated(tmp_path: Path) -> None:
    result = leap_fleet("calibrate", str(tmp_path))
    assert result.exit_code == 1
    assert "make one by `leap fleet generate`" in result.output


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    for name, hash_seed in (("a", "1"), ("b", "2")):
        subprocess.run(
            [sys.executable, "-c", LEAP, "fleet", "generate", *SMALL, "--format", "jsonl", "--out", name],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "TZ": "Asia/Kolkata" if name == "a" else "UTC"},
            cwd=tmp_path,
            check=True,
        )
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_the_exit_status_says_whether_a_fleet_is_like_the_papers(tmp_path: Path) -> None:
    assert leap_fleet("generate", *SMALL, "--out", str(tmp_path)).exit_code == 0
    figures = calibrate(tmp_path)
    shown, encoded = leap_fleet("calibrate", str(tmp_path)), leap_fleet("calibrate", str(tmp_path), "--json")
    assert shown.exit_code == encoded.exit_code == (0 if figures.passed else 1)
    assert "".join(f"{line}\n" for line in figures.lines()) in shown.output
    assert msgspec.json.decode(encoded.stdout)["figures"][0]["name"] == figures.figures[0].name
