"""How long does a snapshot of 250,000 families take to write, how big is it, and how fast is it read?

A real Redis holds the history of so many families at every level. `leap snapshot` copies it in a process of its own;
then the history of 22 candidates at all levels is read again and again, one after the other in one loop:

lookup     `SnapshotFile.read`: keys, rows and what a launcher gets of them
hmget      the bare pipelined HMGET of the same keys and fields with redis-py, whose replies nobody decodes
reader     `HistoryReader.read` of the same rows from Redis

The last line is one JSON object. `reader_private_mib` is what the memory that is the process's own grew by while the
snapshot was opened and read.

    python benchmarks/snapshot.py --families 20000     # smaller
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np  # noqa: E402
import redis  # noqa: E402

from leap_predictor.history.client_replies import client_replies  # noqa: E402
from leap_predictor.history.redis_reader import HistoryReader  # noqa: E402
from leap_predictor.history.request import HistoryRequest  # noqa: E402
from leap_predictor.history.snapshot_file import SnapshotFile  # noqa: E402
from leap_predictor.manifest import history_views  # noqa: E402
from many_families import CANDIDATES, Family, filled  # noqa: E402
from services import RedisServer  # noqa: E402
from stored_history import Subject  # noqa: E402

PROJECT = "leap"
VIEWS = history_views()
PATIENT_S = 60.0
COMMAND = """
from leap_predictor.history.snapshot_command import snapshot_command
snapshot_command(standalone_mode=False)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=int, default=250_000)
    parser.add_argument("--types-each", type=int, default=2, help="hardware types that each family ran on")
    parser.add_argument("--repeats", type=int, default=2_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, RedisServer() as server:
        given = filled(server.url, PROJECT, arguments.families, arguments.types_each, 1_000)
        path = Path(directory) / "history.snapshot"
        result: dict[str, Any] = {"families": arguments.families, "candidates": len(CANDIDATES), "levels": len(VIEWS)}
        result |= written(server, path)
        result |= read(server, path, given, arguments.repeats)
    print(json.dumps(result))


def written(server: RedisServer, path: Path) -> dict[str, Any]:
    """Write the snapshot in a process of its own: its rows, size, time and greatest memory."""
    env = dict(os.environ) | {"LEAP_REDIS_URL": server.url, "PYTHONPATH": ":".join(part for part in sys.path if part)}
    began = time.perf_counter()
    command = [sys.executable, "-c", COMMAND, str(path), "--json"]
    said, peak_kib = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout.splitlines()
    made = json.loads(said)
    return {
        "rows": sum(made["rows"].values()),
        "file_mib": round(made["bytes"] / 2**20, 1),
        "write_s": round(time.perf_counter() - began, 2),
        "write_peak_mib": round(int(peak_kib) / 1024, 1),
    }


def read(server: RedisServer, path: Path, given: list[Family], repeats: int) -> dict[str, Any]:
    """Check and read the snapshot, beside Redis."""
    asked = [
        [Subject(family.name, family.model_type, name, family.trainer_count) for name in CANDIDATES] for family in given
    ]
    requests = [HistoryRequest(PROJECT, VIEWS, subjects) for subjects in asked]
    private = private_mib()
    began = time.perf_counter()
    opened = SnapshotFile(path)
    open_s = time.perf_counter() - began
    for subjects in asked:
        opened.read(VIEWS, subjects, until=time.monotonic() + PATIENT_S)
    grown = private_mib() - private
    reader = HistoryReader(server.url, PROJECT)
    with redis.Redis.from_url(server.url) as client:
        calls: dict[str, Callable[[int], Any]] = {
            "lookup": lambda at: opened.read(VIEWS, asked[at], until=time.monotonic() + PATIENT_S),
            "hmget": lambda at: client_replies(client, requests[at]),
            "reader": lambda at: reader.read(VIEWS, asked[at], within_s=PATIENT_S),
        }
        for at in range(len(asked)):
            if calls["lookup"](at).rows != calls["reader"](at).rows:
                raise SystemExit(f"the snapshot and Redis differ for {asked[at][0]}")
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for turn in range(repeats):
            for name, call in calls.items():
                start = time.perf_counter()
                call(turn % len(asked))
                taken[name].append(1e6 * (time.perf_counter() - start))
    reader.close()
    result: dict[str, Any] = {"open_s": round(open_s, 2), "reader_private_mib": round(grown, 1)}
    for name, values in taken.items():
        result[f"{name}_us_p50"] = round(float(np.median(values)), 1)
        result[f"{name}_us_p99"] = round(float(np.quantile(values, 0.99)), 1)
    return result


def private_mib() -> float:
    """Memory of this process that no file backs."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status does not say RssAnon")


if __name__ == "__main__":
    main()
