"""The hardware catalogue as rows of the Feast view `hardware_specs`: one row per name and alias, known since ever."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from leap_features import parquet_files
from leap_features.hardware import CATALOGUE, SPECS, Catalogue

VIEW: Final = "hardware_specs"

KNOWN_SINCE: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Event timestamp of every row: before any attempt."""


def table(catalogue: Catalogue = CATALOGUE) -> pa.Table:
    """Columns: hardware_type, the specifications (null: not published), event_timestamp."""
    names = {alias: row for row in catalogue.values() for alias in row.aliases}
    names |= {row.name: row for row in catalogue.values()}
    return pa.table(
        {"hardware_type": pa.array(list(names), pa.string())}
        | {spec: pa.array([row.specs()[spec] for row in names.values()], pa.float64()) for spec in SPECS}
        | {"event_timestamp": pa.array([KNOWN_SINCE] * len(names), pa.timestamp("us", "UTC"))}
    )


def write(history: Path | str, catalogue: Catalogue = CATALOGUE) -> Path:
    """Write the rows below the history directory, where the view reads them; the same rows are not written again."""
    path = Path(history) / VIEW / "catalogue.parquet"
    rows = table(catalogue)
    if not (path.exists() and parquet_files.read(path).equals(rows)):
        parquet_files.write(rows, path)
    return path
