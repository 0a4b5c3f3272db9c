"""The judge's directory: the document, the scored rows, and every prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from leap_features import parquet_files
from leap_features.durable import publish, replaceable, usable_directory
from leap_features.levels import BACKOFF
from leap_training.judge.judge import Outcome
from leap_training.judge.pooled import Pooled

JUDGED: Final = "judged.json"
ROWS: Final = "rows.parquet"
PREDICTIONS: Final = "predictions.parquet"


def begin(directory: Path) -> None:
    """Make `directory` if need be, and find out whether the files can be written there.

    Raises:
        OSError: they cannot.
    """
    usable_directory(directory)
    for name in (JUDGED, ROWS, PREDICTIONS):
        replaceable(directory / name)


def write(outcome: Outcome, directory: Path) -> None:
    """Write `judged.json`, `rows.parquet` and `predictions.parquet` into `directory`, which is made if need be.

    The document comes last: where it is, the rest is whole.
    """
    begin(directory)
    (directory / JUDGED).unlink(missing_ok=True)
    parquet_files.write(_rows(outcome), directory / ROWS)
    parquet_files.write(_predictions(outcome.pooled), directory / PREDICTIONS)
    publish(directory, JUDGED, msgspec.json.format(msgspec.json.encode(outcome.judged), indent=1), replace=True)


def _rows(outcome: Outcome) -> pa.Table:
    """One row per scored row, in the order of the windows."""
    pooled, columns = outcome.pooled, outcome.pooled.scored.columns
    texts = ("attempt_id", "job_family", "model_type", "hardware_type")
    expected = outcome.log_expected
    log_expected = np.full(len(pooled.scored), np.nan) if expected is None else expected
    return pa.table(
        {
            "window": _windows(pooled),
            **{name: pa.array(columns[name], pa.string()) for name in texts},
            "trainer_count": pa.array(columns["trainer_count"]),
            "batch_size": pa.array(columns["batch_size"]),
            "submitted_at": pa.array(pooled.scored.submitted_at_us, pa.timestamp("us", tz="UTC")),
            "device_hours": pa.array(pooled.device_hours, from_pandas=True),
            "log_measured": pa.array(pooled.scored.log_throughput),
            "log_expected": pa.array(log_expected, from_pandas=True),
            "first_in_cell": pa.array(pooled.flags.first_in_cell),
            "new_hardware": pa.array(pooled.flags.new_hardware),
            "new_family": pa.array(pooled.flags.new_family),
            "head": pa.array(pooled.flags.head),
        }
    )


def _predictions(pooled: Pooled) -> pa.Table:
    """One row per scored row, model and history."""
    size = len(pooled.scored)
    views = pa.array([level.view for level in BACKOFF], pa.string())
    attempts = pa.array(pooled.scored.columns["attempt_id"], pa.string())
    nothing = np.full(size, np.nan)
    parts = []
    for (model, mode), given in pooled.answers.items():
        level = np.full(size, -1) if given.level is None else given.level
        parts.append(
            pa.table(
                {
                    "window": _windows(pooled),
                    "attempt_id": attempts,
                    "model": _same(model, size),
                    "history": _same(mode, size),
                    "log_predicted": pa.array(given.log_throughput, from_pandas=True),
                    "log_low": pa.array(nothing if given.log_low is None else given.log_low, from_pandas=True),
                    "log_high": pa.array(nothing if given.log_high is None else given.log_high, from_pandas=True),
                    "level": pa.DictionaryArray.from_arrays(pa.array(level, pa.int8(), mask=level < 0), views),
                }
            )
        )
    return pa.concat_tables(parts) if parts else pa.table({})


def _windows(pooled: Pooled) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(pooled.window, pa.int32()), pa.array(pooled.windows, pa.string()))


def _same(text: str, size: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int8)), pa.array([text], pa.string()))
