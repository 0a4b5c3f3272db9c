"""A night whose data set is a small made-up one, planted as if the first phase had written it: no archive, no Feast."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import small_training_set
from leap_features.family import DEFAULT_RULES
from leap_features.settings import Settings
from leap_training.dataset import Written
from leap_training.nightly.phases import ATTEMPTS, Night, Outcome
from leap_training.nightly.state import Plan, begin, run_phase

PLAN = Plan(date(2026, 1, 26), train_days=30, judge_days=7, family_rule=DEFAULT_RULES.version)
"""Runs are an hour apart from 2026-01-01 on, so 432 are there to fit on and 168 to judge by."""
ROWS = 25 * 24
JUDGED_FROM_ROW = 18 * 24

NOW = datetime(2026, 1, 26, 2, tzinfo=UTC)


def settings_in(root: Path) -> Settings:
    return Settings(
        archive=str(root / "archive"),
        history=str(root / "history"),
        bundles=str(root / "bundles"),
        nightly=str(root / "nightly"),
        redis_url="redis://localhost:1/0",  # nothing listens there: a night needs no online store
    )


def plant_dataset(root: Path, rows: list[dict[str, Any]], plan: Plan = PLAN) -> Path:
    """The folder of a night that has its data set and nothing else."""
    directory = begin(root / "nightly", plan)

    def write(folder: Path) -> Written:
        small_training_set.write(folder / ATTEMPTS, rows)
        return Written(len(rows), len(rows), 0, 0, 0, 0, 0)

    run_phase(directory, "dataset", Written, write, monotonic=lambda: 0.0)
    return directory


def run(
    root: Path,
    directory: Path,
    plan: Plan = PLAN,
    *,
    rows_before: int | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Do what is left of the night."""
    return Night(directory, plan, settings_in(root), DEFAULT_RULES, rows_before, say, lambda: NOW).run()
