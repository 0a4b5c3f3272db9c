"""Real MLPerf runs through the whole loop, where their file is given: LEAP_TEST_MLPERF=mlperf_runs.csv."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from leap_features import archive
from leap_features.meta import FIRST_LIVE_EPOCH
from leap_features.settings import Settings
from oracle import Key, stored_rows
from stream_process import LeapProcess, checkpoints, wait_until

RUNS = os.environ.get("LEAP_TEST_MLPERF", "")
ROOT = Path(__file__).parents[3]
MAPPING = str(ROOT / "docs" / "mappings" / "mlperf.toml")
COUNT = 9_794

pytestmark = [
    pytest.mark.stream,
    pytest.mark.skipif(not RUNS, reason="opt-in: LEAP_TEST_MLPERF names no file of MLPerf runs"),
]


def leap(env: dict[str, str], directory: Path, *arguments: str) -> str:
    """Run a command; its standard output."""
    program = [str(Path(sys.executable).with_name("leap")), *arguments]
    done = subprocess.run(program, env=env, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def statistics(rows: dict[Key, dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Rows without stamps and position vectors: those say how history came, not what it is."""
    return {key: {n: v for n, v in row.items() if n not in ("version", "event_timestamp")} for key, row in rows.items()}


def test_replayed_runs_equal_imported_ones_and_every_row_equals_the_archive(
    settings: Settings, settings_env: dict[str, str], redis_client: redis.Redis, tmp_path: Path
) -> None:
    env = settings_env | {"LEAP_FEATURE_REPO": str(ROOT / "feature_repo"), "LEAP_ARCHIVE_WITHIN_S": "0.5"}
    imported_env = env | {"LEAP_ARCHIVE": str(tmp_path / "imported"), "LEAP_HISTORY": str(tmp_path / "imported-rows")}
    leap(imported_env, tmp_path, "import", str(Path(RUNS).resolve()), "--mapping", MAPPING)
    leap(imported_env, tmp_path, "rebuild")
    verdict = json.loads(leap(imported_env, tmp_path, "audit", "--json"))
    assert verdict["equal"] == verdict["total"] > 0
    imported = statistics(stored_rows(redis_client, settings.project))

    redis_client.flushall()
    leap(env, tmp_path, "init")
    log, archive_log = tmp_path / "worker.log", tmp_path / "archive.log"
    with LeapProcess(["worker"], env, log) as worker, LeapProcess(["archive"], env, archive_log) as archiver:
        leap(env, tmp_path, "replay", str(Path(RUNS).resolve()), "--mapping", MAPPING)
        wait_until(lambda: sum(checkpoints(settings).values()) == COUNT, timeout_s=120, what="history", process=worker)
        wait_until(
            lambda: sum(archive.end_offsets(settings.archive, FIRST_LIVE_EPOCH).values()) == COUNT,
            timeout_s=60,
            what="the archive",
            process=archiver,
        )
        worker.terminate()
        archiver.terminate()
    verdict = json.loads(leap(env, tmp_path, "audit", "--json"))
    assert verdict["equal"] == verdict["total"] == len(imported)
    assert statistics(stored_rows(redis_client, settings.project)) == imported
