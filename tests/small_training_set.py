"""A small training set of a made-up fleet with a known scaling law, as the Parquet file that `leap dataset` writes.

Throughput = family's speed × dense peak TFLOPS × trainers^0.9, so a model of scale and hardware can be right about
cells that were never run. History is folded run by run and joined as of each submission.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from leap_features.events import fixed_log, to_us
from leap_features.hardware import CATALOGUE, SPECS
from leap_features.history import EMPTY, FEATURES, Position, Row, Run, features, fold
from leap_features.levels import LEVELS
from stored_history import Subject

START = datetime(2026, 1, 1, tzinfo=UTC)
HARDWARE = ("A100-SXM-80", "H100-SXM-80", "L4", "A30")
MODELS = ("bert", "dlrm", "resnet")


def submitted_at(run: int) -> datetime:
    """When the run of this number was submitted; it completed half an hour later."""
    return START + timedelta(hours=run)


def rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """`count` succeeded runs, an hour apart."""
    random = np.random.default_rng(seed)
    kept: dict[tuple[str, tuple[str | int, ...]], Row] = {}
    result = []
    for number in range(count):
        model = str(random.choice(MODELS))
        family = int(random.integers(0, 3))
        subject = Subject(
            f"{model}/family-{family}", model, str(random.choice(HARDWARE)), int(2 ** random.integers(0, 6))
        )
        peak = CATALOGUE[subject.hardware_type].dense_bf16_or_fp16_tflops or 1.0
        throughput = (1 + 0.1 * family) * (1 + MODELS.index(model)) * peak * subject.trainer_count**0.9
        submitted = submitted_at(number)
        completed = submitted + timedelta(minutes=30)
        row: dict[str, Any] = {
            "attempt_id": f"attempt-{number}",
            "job_family": subject.job_family,
            "model_type": model,
            "hardware_type": subject.hardware_type,
            "trainer_count": subject.trainer_count,
            "reader_count": 2,
            "batch_size": 32.0,
            "submitted_at": submitted,
            "completed_at": completed,
            "recorded_at": completed,
            "throughput": throughput,
            "log_throughput": math.log(throughput),
            "config": '{"precision":"bf16","layers":12}' if number % 2 else '{"precision":"fp32","layers":24}',
            "architecture": f'{{"layers":{12 * (1 + MODELS.index(model))}}}',
            "device_hours": 0.5 * subject.trainer_count,
        }
        for spec in SPECS:
            row[f"hardware_specs__{spec}"] = CATALOGUE[subject.hardware_type].specs()[spec]
        run = Run(
            succeeded=True,
            completed_at_us=to_us(completed),
            attempt_id=row["attempt_id"],
            x=fixed_log(throughput),
            log_trainers=fixed_log(subject.trainer_count),
            log_batch=fixed_log(32.0),
            hardware_type=subject.hardware_type,
            trainer_count=subject.trainer_count,
            batch_size=32.0,
        )
        for level in LEVELS:
            key = (level.view, level.key(subject))
            before = kept.get(key)
            values = features(before) if before is not None else {}
            row |= {f"{level.view}__{name}": values.get(name) for name, _ in FEATURES}
            kept[key] = fold(before or EMPTY, run, Position(1, 0, number), to_us(completed))
        result.append(row)
    return result


def write(path: Path, given: list[dict[str, Any]]) -> Path:
    """Write `given` with the types of a training set."""
    kinds = {float: pa.float64(), int: pa.int64(), str: pa.string()}
    history = {f"{level.view}__{name}": kinds[kind] for level in LEVELS for name, kind in FEATURES}
    text = pa.string()
    time = pa.timestamp("us", tz="UTC")
    types = {
        "attempt_id": text,
        "job_family": text,
        "model_type": text,
        "hardware_type": text,
        "trainer_count": pa.int64(),
        "reader_count": pa.int64(),
        "batch_size": pa.float64(),
        "submitted_at": time,
        "completed_at": time,
        "recorded_at": time,
        "throughput": pa.float64(),
        "log_throughput": pa.float64(),
        "config": text,
        "architecture": text,
        "device_hours": pa.float64(),
        **{f"hardware_specs__{spec}": pa.float64() for spec in SPECS},
        **history,
    }
    pq.write_table(pa.Table.from_pylist(given, schema=pa.schema(list(types.items()))), path)
    return path
