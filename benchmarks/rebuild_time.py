"""How long does `leap rebuild` take to fill an empty online store: 250,000 families, four rows each?

An archive of that size is made by the archive's own writer, then `leap rebuild` runs as a process of its own on an
empty Redis. Beside it, in the same run and of a tenth of the families: the step of a rebuild that writes the rows, and
Feast's `materialize` of the very same rows. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from leap_features import archive, history_build  # noqa: E402
from leap_features.events import CompletionEvent, to_us  # noqa: E402
from leap_features.family import DEFAULT_RULES  # noqa: E402
from leap_features.feature_store import apply_definitions, open_feature_store  # noqa: E402
from leap_features.history import Position  # noqa: E402
from leap_features.levels import LEVELS  # noqa: E402
from leap_features.meta import FIRST_LIVE_EPOCH  # noqa: E402
from leap_features.settings import Settings  # noqa: E402
from leap_streams.row_restore import RowRestore  # noqa: E402
from leap_streams.store import Store  # noqa: E402
from services import RedisServer  # noqa: E402

TENTH = 10
PARTITIONS = 16
HARDWARE_TYPES = 12
EVENTS_AT_ONCE = 50_000
LEAP = "from leap_features.command import leap; leap()"


def event(family: int, run: int, at: datetime) -> CompletionEvent:
    """The `run`th attempt of a family; every family runs on one hardware type, and is alone there of its model type."""
    return CompletionEvent(
        schema_version=1,
        attempt_id=f"{family}-{run}",
        job_name=f"family-{family}-run{run}",
        job_family=f"family-{family}",
        model_type=f"model-{family // HARDWARE_TYPES}",
        hardware_type=f"hardware-{family % HARDWARE_TYPES}",
        submitted_at=at - timedelta(hours=2),
        started_at=at - timedelta(hours=1),
        completed_at=at,
        status="failed" if (family + run) % 20 == 0 else "succeeded",
        throughput=100.0 + (family * 7919 + run) % 10_007,
        trainer_count=2 ** (family % 8),
        batch_size=float(2 ** (family % 10)),
    )


def write_archive(root: str, families: int, runs: int) -> None:
    """`runs` attempts of each family, as the archive app would have written them."""
    archive.create(root)
    began = datetime.now(UTC) - timedelta(days=2)
    by_partition: list[list[dict[str, Any]]] = [[] for _ in range(PARTITIONS)]
    ends = [0] * PARTITIONS

    def flush(partition: int) -> None:
        records = by_partition[partition]
        if records:
            first = ends[partition] - len(records)
            archive.write_segment(root, FIRST_LIVE_EPOCH, partition, first, ends[partition] - 1, records)
            records.clear()

    for run in range(runs):
        for family in range(families):
            partition = (family // HARDWARE_TYPES) % PARTITIONS
            at = began + timedelta(hours=run, microseconds=family)
            position = Position(FIRST_LIVE_EPOCH, partition, ends[partition])
            records = by_partition[partition]
            records.append(archive.to_record(event(family, run, at), position, to_us(at) + 1_000_000, replay=False))
            ends[partition] += 1
            if len(records) == EVENTS_AT_ONCE:
                flush(partition)
    for partition in range(PARTITIONS):
        flush(partition)


def settings_env(directory: Path, redis_url: str) -> dict[str, str]:
    """The environment of a deployment without a broker."""
    return {
        "LEAP_KAFKA_BROKERS": "127.0.0.1:9",
        "LEAP_REDIS_URL": redis_url,
        "LEAP_PROJECT": "bench",
        "LEAP_ARCHIVE": str(directory / "archive"),
        "LEAP_HISTORY": str(directory / "history"),
        "LEAP_FEATURE_REPO": str(ROOT / "feature_repo"),
        "LEAP_ALLOW_CREATE_TIME": "true",
    }


def rebuild_seconds(directory: Path, redis_url: str) -> float:
    """Seconds of `leap rebuild`, from the start of the process to its end."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", LEAP, "rebuild"], env=outside | settings_env(directory, redis_url), check=True
    )
    return time.perf_counter() - began


def write_seconds(directory: Path, redis_url: str) -> float:
    """Seconds to write the rows as a rebuild does, from history rows that are made here first."""
    settings = Settings.from_env(settings_env(directory, redis_url))
    history_build.build(settings.archive, settings.history, horizon_us=settings.horizon_us)
    store = Store(settings)
    store.create_meta(DEFAULT_RULES.version, FIRST_LIVE_EPOCH, "")
    meta = store.read_meta()
    assert meta is not None
    began = time.perf_counter()
    RowRestore(store, meta.generation, lambda _line: None).write_rows(history_build.current(settings.history))
    seconds = time.perf_counter() - began
    store.close()
    return seconds


def materialize_seconds(directory: Path, redis_url: str) -> float:
    """Seconds of Feast's `materialize` of the history rows that are in `directory` already."""
    settings = Settings.from_env(settings_env(directory, redis_url))
    store = open_feature_store(settings, directory / "registry.db")
    apply_definitions(store, settings)
    began = time.perf_counter()
    with redirect_stdout(io.StringIO()):  # Feast prints headings in colour
        store.materialize(datetime(1970, 1, 1, tzinfo=UTC), datetime.now(UTC), [level.view for level in LEVELS])
    return time.perf_counter() - began


def main() -> None:
    """Make the archives, rebuild from them, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=250_000)
    parser.add_argument("--runs", type=int, default=2, help="attempts of each family")
    arguments = parser.parse_args()
    families, few = arguments.families, arguments.families // TENTH
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for part, count in (("all", families), ("tenth", few)):
            print(f"archive of {count:,} families", file=sys.stderr, flush=True)
            write_archive(str(directory / part / "archive"), count, arguments.runs)
        with RedisServer() as server:
            print(f"rebuild of {families:,} families", file=sys.stderr, flush=True)
            seconds = rebuild_seconds(directory / "all", server.url)
        with RedisServer() as server:
            print(f"writing the rows of {few:,} families", file=sys.stderr, flush=True)
            few_seconds = write_seconds(directory / "tenth", server.url)
        with RedisServer() as server:
            print(f"Feast's materialize of {few:,} families", file=sys.stderr, flush=True)
            feast_seconds = materialize_seconds(directory / "tenth", server.url)
    rows, few_rows = families * len(LEVELS), few * len(LEVELS)
    result = {
        "families": families,
        "events": families * arguments.runs,
        "rows": rows,
        "seconds": round(seconds, 1),
        "rows_per_s": round(rows / seconds),
        "tenth": {
            "written_rows_per_s": round(few_rows / few_seconds),
            "feast_materialize_rows_per_s": round(few_rows / feast_seconds),
            "written_to_feast_materialize": round(feast_seconds / few_seconds, 2),
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
