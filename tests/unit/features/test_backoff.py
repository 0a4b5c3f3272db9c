from __future__ import annotations

from typing import Any

import numpy as np

from leap_features.backoff import at_latest_conditions, backoff
from leap_features.levels import BACKOFF, LEVELS

Column = np.ndarray[Any, Any]


def objects(values: list[Any]) -> Column:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def columns(rows: list[dict[str, dict[str, Any]]], **changes: Any) -> dict[str, Column]:
    """One row per dictionary of view → features."""
    count = len(rows)
    plain: dict[str, Column] = {
        "model_type": objects(["bert"] * count),
        "hardware_type": objects(["H100-SXM-80"] * count),
        "trainer_count": np.full(count, 16.0),
        "reader_count": np.full(count, 32.0),
        "batch_size": np.full(count, 64.0),
        "submitted_at_us": np.zeros(count, dtype=np.int64),
        "hardware_specs__memory_gib": np.full(count, 80.0),
    }
    names = ("last", "count", "last_seen", "last_hardware_type", "last_trainer_count", "last_batch_size")
    for level in LEVELS:
        for name in names:
            values = [row.get(level.view, {}).get(name) for row in rows]
            plain[f"{level.view}__{name}"] = objects(values)
    return plain | changes


def run(last: float = 5.0, hardware: str = "A100-SXM-80", trainers: int = 8, batch: float = 32.0) -> dict[str, Any]:
    return {
        "last": last,
        "count": 1,
        "last_seen": 0,
        "last_hardware_type": hardware,
        "last_trainer_count": trainers,
        "last_batch_size": batch,
    }


def specifications(hardware_type: str) -> dict[str, float] | None:
    return {"A100-SXM-80": {"memory_gib": 40.0}}.get(hardware_type)


def test_first_level_with_history_wins_in_the_order_of_back_off() -> None:
    rows: list[dict[str, dict[str, Any]]] = [{}]
    for depth in range(len(BACKOFF)):
        rows.append({level.view: run(last=float(at)) for at, level in enumerate(BACKOFF) if at >= depth})
    found = backoff(columns(rows))
    assert found.level.tolist() == [-1, 0, 1, 2, 3, 4, 5]
    assert np.isnan(found.last[0])
    assert found.last[1:].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert [level.view for level in BACKOFF] == [
        "family_scale_history",
        "family_hardware_history",
        "model_scale_history",
        "family_history",
        "model_hardware_history",
        "model_history",
    ]


def test_level_of_failures_alone_has_no_history() -> None:
    failed = {"count": 0, "failures_since_success": 3}
    found = backoff(columns([{"family_scale_history": failed, "family_history": run(last=2.0)}]))
    assert found.level.tolist() == [3]
    assert found.last.tolist() == [2.0]


def test_latest_conditions_replace_hardware_specifications_trainers_and_batch() -> None:
    given = columns([{"family_history": run()}])
    latest = at_latest_conditions(given, backoff(given), specifications, ("memory_gib",))
    assert latest["hardware_type"].tolist() == ["A100-SXM-80"]
    assert latest["hardware_specs__memory_gib"].tolist() == [40.0]
    assert latest["trainer_count"].tolist() == [8.0]
    assert latest["batch_size"].tolist() == [32.0]


def test_readers_per_trainer_are_held_equal() -> None:
    given = columns([{"family_history": run(trainers=8)}])
    latest = at_latest_conditions(given, backoff(given), specifications, ())
    assert latest["reader_count"].tolist() == [16.0]


def test_row_without_history_stays_as_it_is() -> None:
    given = columns([{}])
    latest = at_latest_conditions(given, backoff(given), specifications, ("memory_gib",))
    for name in ("hardware_type", "trainer_count", "reader_count", "batch_size", "hardware_specs__memory_gib"):
        assert latest[name].tolist() == given[name].tolist(), name


def test_batch_that_was_unknown_then_is_taken_to_be_todays() -> None:
    given = columns([{"family_history": run(batch=0.0)}])
    latest = at_latest_conditions(given, backoff(given), specifications, ())
    assert latest["batch_size"].tolist() == [64.0]


def test_batch_that_is_unknown_today_stays_unknown() -> None:
    given = columns([{"family_history": run(batch=32.0)}], batch_size=np.array([np.nan]))
    latest = at_latest_conditions(given, backoff(given), specifications, ())
    assert np.isnan(latest["batch_size"]).all()


def test_asked_columns_are_never_changed() -> None:
    given = columns([{"family_history": run()}])
    at_latest_conditions(given, backoff(given), specifications, ("memory_gib",))
    assert given["trainer_count"].tolist() == [16.0]
    assert given["hardware_specs__memory_gib"].tolist() == [80.0]
