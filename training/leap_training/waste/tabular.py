"""A measurement of waste as a Parquet file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from leap_features import parquet_files
from leap_training.waste.report import Share, WasteLine, WasteReport

_SHARES = ("waste", "misplaced", "best_value")

SCHEMA = pa.schema(
    [
        pa.field("level", pa.string(), nullable=False),
        pa.field("model_type", pa.string()),
        pa.field("hardware_type", pa.string()),
        pa.field("jobs", pa.int64(), nullable=False),
        pa.field("cost_usd", pa.float64(), nullable=False),
        pa.field("compared_jobs", pa.int64(), nullable=False),
        pa.field("compared_cost_usd", pa.float64(), nullable=False),
        *(pa.field(f"{name}{end}", pa.float64()) for name in _SHARES for end in ("", "_low", "_high")),
        pa.field("note", pa.string(), nullable=False),
    ]
)
"""One row per line of the report. `level` is `total`, `model`, `hardware` or `model_hardware`; `best_value`, on rows of
`model_hardware` alone, is for what share of the model type's jobs with a choice the hardware type gave most value.
Shares are 0 to 1, null without a figure."""


def write_parquet(report: WasteReport, path: Path) -> None:
    """Write all lines of `report` to `path`, replacing what is there.

    The schema's metadata has source, begin, end (RFC 3339), confidence, margin and the notes (one a line).
    """
    best = {(entry.model_type, entry.hardware_type): entry.share for entry in report.best}
    levels = {
        "total": [report.total],
        "model": report.by_model,
        "hardware": report.by_hardware,
        "model_hardware": report.by_model_hardware,
    }
    rows = [
        _row(level, line, best.get((line.model_type or "", line.hardware_type or "")))
        for level, entries in levels.items()
        for line in entries
    ]
    metadata = {
        "source": report.source,
        "begin": report.begin.isoformat(),
        "end": report.end.isoformat(),
        "confidence": str(report.confidence),
        "margin": str(report.margin),
        "notes": "\n".join(report.notes),
    }
    parquet_files.write(pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(metadata)), path)


def _row(level: str, line: WasteLine, best: Share | None) -> dict[str, object]:
    row: dict[str, object] = {
        "level": level,
        "model_type": line.model_type,
        "hardware_type": line.hardware_type,
        "jobs": line.jobs,
        "cost_usd": line.cost_usd,
        "compared_jobs": line.compared_jobs,
        "compared_cost_usd": line.compared_cost_usd,
        "note": line.note,
    }
    for name, share in zip(_SHARES, (line.waste, line.misplaced, best), strict=True):
        if share is not None:
            row |= {name: share.value, f"{name}_low": share.low, f"{name}_high": share.high}
    return row
