"""The archive of a small synthetic fleet, for tests that run whole nights."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path
from typing import Final

from leap_features.settings import Settings
from leap_training.event_columns import EventColumns
from leap_training.fleet.files import EVENTS, write_fleet
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.simulate import Fleet
from leap_training.imports import import_runs
from leap_training.past_runs import Rejects, past_runs
from leap_training.tables import Table

FEATURE_REPO: Final = Path(__file__).parents[1] / "feature_repo"

NIGHT: Final = date(2026, 1, 9)
"""The fleet's days are 2026-01-01 to 2026-01-09."""


def write_archive(root: Path) -> None:
    """Write the fleet's completions to the archive in `root`."""
    write_fleet(Fleet(FleetSettings(days=9, attempts_per_day=80)), root / "fleet", "parquet")
    with Table(root / "fleet" / EVENTS["parquet"]) as table, Rejects(None) as rejects:
        import_runs(
            root / "archive", past_runs(table, EventColumns(), rejects), rejects, horizon_us=Settings().horizon_us
        )


def environment(archive: Path, state: Path) -> dict[str, str]:
    """Variables of a deployment with the archive and history rows in `archive`, everything else in `state`."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    return plain | {
        "LEAP_ARCHIVE": str(archive / "archive"),
        "LEAP_HISTORY": str(archive / "history"),
        "LEAP_FEATURE_REPO": str(FEATURE_REPO),
        "LEAP_BUNDLES": str(state / "bundles"),
        "LEAP_NIGHTLY": str(state / "nightly"),
        "LEAP_REDIS_URL": "redis://localhost:1/0",  # nothing listens there: a night needs no online store
    }
