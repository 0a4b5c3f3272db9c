"""Training sets in memory, made of a few runs; the pure fold makes their history, so they are the tests' oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from leap_features.columns import history_column
from leap_features.events import fixed_log
from leap_features.history import EMPTY, Position, Row, Run, features, fold
from leap_features.levels import LEVELS, Level
from leap_training.training_set import HISTORY_FEATURES, TrainingSet

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
START_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z."""


class RunRow(NamedTuple):
    """One succeeded attempt; times are hours from `START_US`."""

    attempt_id: str
    job_family: str = "bert/pretrain"
    hardware_type: str = "A30"
    trainer_count: int = 8
    batch_size: float = 32.0
    throughput: float = 100.0
    submitted: float = 0.0
    completed: float = 1.0
    recorded: float | None = None
    """None: when it completed."""
    config: str = "{}"
    device_hours: float = 1.0

    @property
    def model_type(self) -> str:
        return self.job_family.partition("/")[0]

    @property
    def submitted_us(self) -> int:
        return START_US + round(self.submitted * HOUR_US)

    @property
    def completed_us(self) -> int:
        return START_US + round(self.completed * HOUR_US)

    @property
    def recorded_us(self) -> int:
        return self.completed_us if self.recorded is None else START_US + round(self.recorded * HOUR_US)

    @property
    def run(self) -> Run:
        """What the fold sees of it."""
        return Run(
            True,
            self.completed_us,
            self.attempt_id,
            fixed_log(self.throughput),
            fixed_log(self.trainer_count),
            fixed_log(self.batch_size) if self.batch_size else None,
            self.hardware_type,
            self.trainer_count,
            self.batch_size,
        )


def known(runs: Sequence[RunRow], level: Level, asked: RunRow, at_us: int) -> dict[str, Any]:
    """Brute force: what the fold makes of every run of the key of `asked` that was recorded by `at_us`."""
    row: Row = EMPTY
    for number, one in enumerate(sorted(runs, key=lambda each: each.recorded_us)):
        if one.recorded_us <= at_us and level.key(one) == level.key(asked):
            row = fold(row, one.run, Position(1, 0, number), one.recorded_us)
    found: dict[str, Any] = dict.fromkeys(HISTORY_FEATURES) if row is EMPTY else features(row)
    return found


def training_set(runs: Sequence[RunRow]) -> TrainingSet:
    """`runs` in the order of submission, each with what was recorded of the others by its submission."""
    runs = sorted(runs, key=lambda each: (each.submitted_us, each.attempt_id))
    columns: dict[str, Any] = {
        name: np.array([getattr(each, name) for each in runs], dtype=object)
        for name in ("attempt_id", "job_family", "model_type", "hardware_type")
    }
    columns |= {
        "trainer_count": np.array([each.trainer_count for each in runs]),
        "reader_count": np.zeros(len(runs), dtype=np.int64),
        "batch_size": np.array([each.batch_size for each in runs]),
        "submitted_at_us": np.array([each.submitted_us for each in runs]),
        "completed_at_us": np.array([each.completed_us for each in runs]),
        "device_hours": np.array([each.device_hours for each in runs]),
    }
    for level in LEVELS:
        found = [known(runs, level, each, each.submitted_us) for each in runs]
        for name in HISTORY_FEATURES:
            kind: Any = object if name == "last_hardware_type" else np.float64
            columns[history_column(level.view, name)] = np.array([each[name] for each in found], dtype=kind)
    return TrainingSet(
        columns,
        np.array([math.log(each.throughput) for each in runs]),
        np.array([each.recorded_us for each in runs]),
        np.array([each.config for each in runs], dtype=object),
        np.full(len(runs), None, dtype=object),
    )
