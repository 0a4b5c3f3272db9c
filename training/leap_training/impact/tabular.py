"""A report of impact as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa

from leap_features import parquet_files
from leap_training.impact.report import ImpactLine, ImpactReport

FILE: Final = "impact.parquet"

_INTERVALS: Final = ("saving", "predicted_left", "predicted_kept")
_GROUPS: Final = ("ranked", "control")
_IN_GROUP: Final = (
    ("attempts", pa.int64()),
    ("device_hours", pa.float64()),
    ("top_attempts", pa.int64()),
    ("top_device_hours", pa.float64()),
)

SCHEMA: Final = pa.schema(
    [
        pa.field("level", pa.string(), nullable=False),
        pa.field("model_type", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("attempts", pa.int64(), nullable=False),
        pa.field("device_hours", pa.float64(), nullable=False),
        *(pa.field(f"{group}_{name}", kind, nullable=False) for group in _GROUPS for name, kind in _IN_GROUP),
        pa.field("ranked_cost_usd", pa.float64(), nullable=False),
        pa.field("compared_cost_usd", pa.float64(), nullable=False),
        *(pa.field(f"{name}{end}", pa.float64()) for name in _INTERVALS for end in ("", "_low", "_high")),
        pa.field("note", pa.string(), nullable=False),
    ]
)
"""One row per line of the report. `level` is `total`, `model` or `day`; intervals are null where there is no figure."""


def write_parquet(report: ImpactReport, directory: Path) -> Path:
    """Write all lines of `report` to `impact.parquet` in `directory`, replacing what is there; the file's path.

    The schema's metadata has source, begin, end (RFC 3339), confidence, window_hours and the notes (one a line).
    """
    levels = {"total": [report.total], "model": report.by_model, "day": report.by_day}
    rows = [_row(level, line) for level, lines in levels.items() for line in lines]
    metadata = {
        "source": report.source,
        "begin": report.begin.isoformat(),
        "end": report.end.isoformat(),
        "confidence": str(report.confidence),
        "window_hours": str(report.window_hours),
        "notes": "\n".join(report.notes),
    }
    path = directory / FILE
    parquet_files.write(pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata)), path)
    return path


def _row(level: str, line: ImpactLine) -> dict[str, object]:
    row: dict[str, object] = {
        "level": level,
        "model_type": line.model_type,
        "day": line.day,
        "attempts": line.attempts,
        "device_hours": line.device_hours,
        "ranked_cost_usd": line.ranked_cost_usd,
        "compared_cost_usd": line.compared_cost_usd,
        "note": line.note,
    }
    for name, group in zip(_GROUPS, (line.ranked, line.control), strict=True):
        row |= {f"{name}_{key}": getattr(group, key) for key, _ in _IN_GROUP}
    for name, share in zip(_INTERVALS, (line.saving, line.predicted_left, line.predicted_kept), strict=True):
        if share is not None:
            row |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
    return row
