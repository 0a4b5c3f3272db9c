"""Attempts of a made-up fleet, and the history rows that the pure fold makes of them, as Parquet: the tests' oracle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from leap_features import hardware_specs, parquet_files
from leap_features.events import fixed_log
from leap_features.history import EMPTY, FEATURES, Position, Row, Run, features, fold
from leap_features.levels import JOIN_KEY_TYPES, LEVELS, Level

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
EPOCH = datetime.fromtimestamp(0, UTC)
LIVE_EPOCH = 1_000_000

ARROW_TYPES = {float: pa.float64(), int: pa.int64(), str: pa.string()}


class Attempt(NamedTuple):
    """One ended attempt. It can be known from `recorded_at` on."""

    attempt_id: str
    job_family: str
    hardware_type: str
    trainer_count: int
    completed_at: datetime
    recorded_at: datetime
    position: Position
    throughput: float | None = 100.0
    """None: it failed."""
    batch_size: float = 32.0

    @property
    def model_type(self) -> str:
        return self.job_family.partition("/")[0]

    @property
    def run(self) -> Run:
        """What the fold sees of it."""
        return Run(
            succeeded=self.throughput is not None,
            completed_at_us=to_us(self.completed_at),
            attempt_id=self.attempt_id,
            x=0 if self.throughput is None else fixed_log(self.throughput),
            log_trainers=fixed_log(self.trainer_count),
            log_batch=fixed_log(self.batch_size) if self.batch_size else None,
            hardware_type=self.hardware_type,
            trainer_count=self.trainer_count,
            batch_size=self.batch_size,
        )


class Stamped(NamedTuple):
    """A history row with its key and the time from which it could be known."""

    key: tuple[str | int, ...]
    at: datetime
    row: Row


def to_us(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def attempt(
    number: int,
    *,
    job_family: str = "bert/pretrain",
    hardware_type: str = "A100",
    trainer_count: int = 8,
    completed_s: float = 0.0,
    recorded_s: float | None = None,
    partition: int = 0,
    throughput: float | None = 100.0,
    batch_size: float = 32.0,
) -> Attempt:
    """An attempt at offset `number`, times in seconds after START; recorded on completion unless told otherwise."""
    return Attempt(
        f"attempt-{number}",
        job_family,
        hardware_type,
        trainer_count,
        START + timedelta(seconds=completed_s),
        START + timedelta(seconds=completed_s if recorded_s is None else recorded_s),
        Position(LIVE_EPOCH, partition, number),
        throughput,
        batch_size,
    )


def made_up_fleet(count: int, seed: int = 0) -> list[Attempt]:
    """`count` attempts of a few families, types and sizes; some fail, some are recorded late, some together."""
    random = np.random.default_rng(seed)
    clock, attempts = 0.0, []
    for number in range(count):
        clock += float(random.choice([0.0, 0.25, 30.0, 3600.0]))
        attempts.append(
            attempt(
                number,
                job_family=str(random.choice(["bert/pretrain", "bert/tune", "resnet/train"])),
                hardware_type=str(random.choice(["A100", "H100"])),
                trainer_count=int(random.choice([1, 8, 64])),
                completed_s=clock - float(random.choice([0.0, 7200.0])),
                recorded_s=clock,
                partition=int(random.integers(2)),
                throughput=None if random.random() < 0.2 else float(random.uniform(10, 1000)),
                batch_size=float(random.choice([0.0, 0.5, 32.0])),
            )
        )
    return attempts


def history_rows(level: Level, attempts: Iterable[Attempt]) -> list[Stamped]:
    """Every row of `level` that `attempts`, given in order of recording, bring about; one per key and stamp."""
    latest: dict[tuple[str | int, ...], Row] = {}
    made: dict[tuple[tuple[str | int, ...], int], Row] = {}
    for one in attempts:
        key = level.key(one)
        row = fold(latest.get(key, EMPTY), one.run, one.position, to_us(one.recorded_at))
        latest[key] = row
        made[key, row.recorded_at_us] = row
    return [Stamped(key, EPOCH + timedelta(microseconds=at), row) for (key, at), row in made.items()]


def table_of(level: Level, rows: Sequence[Stamped]) -> pa.Table:
    """Columns: join keys, event_timestamp, all features."""
    values = [features(stamped.row) for stamped in rows]
    keys = {
        name: pa.array([stamped.key[place] for stamped in rows], ARROW_TYPES[JOIN_KEY_TYPES[name]])
        for place, name in enumerate(level.join_keys)
    }
    stamps = {"event_timestamp": pa.array([stamped.at for stamped in rows], pa.timestamp("us", "UTC"))}
    columns = {name: pa.array([value[name] for value in values], ARROW_TYPES[kind]) for name, kind in FEATURES}
    return pa.table(keys | stamps | columns)


def write_history(root: Path, attempts: Sequence[Attempt]) -> None:
    """The Parquet data sets of all levels, and the hardware catalogue, below `root`."""
    for level in LEVELS:
        parquet_files.write(table_of(level, history_rows(level, attempts)), root / level.view / "part-0.parquet")
    hardware_specs.write(root)
