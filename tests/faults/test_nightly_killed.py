"""The nightly run under kill −9, in each phase and at each file operation of its publication, on real processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import nightly_killer
from leap_predictor.bundle import CURRENT, current_id, load
from nightly_fleet import NIGHT, environment, write_archive

LEAP = "from leap_features.command import leap; leap()"
PHASES = ("dataset", "candidate", "judge", "gate", "fit", "publish")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fleet")
    write_archive(root)
    return root


def start(env: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-c", LEAP, "nightly", "--night", NIGHT.isoformat(), *arguments]
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen(program, env={**env, **paths}, stderr=subprocess.PIPE, text=True)


def finish(env: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Exit status and log of a night that is left alone."""
    with start(env, *arguments) as process:
        assert process.stderr is not None
        log = process.stderr.read()
    return process.returncode, log


def kill_in(phase: str, env: Mapping[str, str], after_s: float) -> int:
    """Start the night and kill it when it says that it has come to `phase`; its exit status."""
    with start(env) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if f" {phase}: " in line:
                time.sleep(after_s)
                process.kill()
                break
    return process.returncode


def bundles_there(env: Mapping[str, str]) -> list[str]:
    root = Path(env["LEAP_BUNDLES"])
    return sorted(path.name for path in root.glob("[!.]*") if path.name != CURRENT) if root.is_dir() else []


def test_a_night_killed_in_each_phase_and_started_again_publishes_one_whole_bundle(
    archive: Path, tmp_path: Path
) -> None:
    env = environment(archive, tmp_path)
    rng = random.Random(1)
    for phase in PHASES:
        status = kill_in(phase, env, rng.random() * 0.2)
        if phase != "publish":  # which is over in a moment
            assert status == -signal.SIGKILL
            assert bundles_there(env) == []
    status, log = finish(env)
    assert status == 0, log
    assert bundles_there(env) == [load(tmp_path / "bundles").bundle_id]
    assert (tmp_path / "nightly" / "nights" / f"{NIGHT}.parquet").is_file()
    assert finish(env) == (0, f"{NIGHT} is done; --again does it from its beginning\n")


@pytest.fixture(scope="module")
def unpublished(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a night that has all phases but `publish` behind it; nothing was ever published."""
    state = tmp_path_factory.mktemp("unpublished")
    status, log = finish(environment(archive, state))
    assert status == 0, log
    shutil.rmtree(state / "bundles")
    shutil.rmtree(state / "nightly" / "nights")
    directory = state / "nightly" / "runs" / NIGHT.isoformat()
    shutil.rmtree(directory / "publish")
    (directory / "publish.json").unlink()
    return state


def killed_at_each_operation(archive: Path, state: Path, scratch: Path) -> list[dict[str, Any]]:
    env = environment(archive, state) | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = [sys.executable, nightly_killer.__file__, str(state), str(scratch)]
    done = subprocess.run(program, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_first_night_killed_at_any_operation_of_its_publication_publishes_one_whole_bundle(
    archive: Path, unpublished: Path, tmp_path: Path
) -> None:
    wanted = current_id(unpublished / "nightly" / "runs" / NIGHT.isoformat() / "fit")
    *killed, unharmed = killed_at_each_operation(archive, unpublished, tmp_path)
    assert unharmed["status"] == 0, unharmed
    assert len(killed) > 10
    for kill in killed:
        after = kill["after_kill"]
        assert after["bundles"] == after["whole"], kill
        assert after["current"] == wanted or not after["done"], kill
    for run in (*killed, unharmed):
        assert run["again"] == 0, run
        assert run["in_the_end"] == {"bundles": [wanted], "whole": [wanted], "current": wanted, "done": True}, run
    # The kills fell before and after the bundle appeared, and before and after it became the current one.
    stages = {(len(kill["after_kill"]["bundles"]), kill["after_kill"]["current"] == wanted) for kill in killed}
    assert stages == {(0, False), (1, False), (1, True)}
