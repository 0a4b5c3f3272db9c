"""A judge's directory as `leap evaluate --out` writes it, of a made-up fleet: figures and rows that go together.

Models err by different amounts where history is thin. All figures of `judged.json` are counted from the very rows that
the Parquet files hold, so that a page can be held against either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from leap_features.levels import BACKOFF

Array = NDArray[Any]

DEFAULT = "layered"
# By model: spread of the error of ln throughput in a known cell, in a first run, and whether it has intervals.
SPREADS: Mapping[str, tuple[float, float]] = {
    "layered": (0.03, 0.12),
    "leap": (0.11, 0.30),
    "xgboost": (0.13, 0.34),
    "lightgbm": (0.13, 0.33),
    "catboost": (0.14, 0.32),
    "neighbours": (0.10, 0.40),
    "backoff_last": (0.03, 0.45),
    "backoff_mean": (0.06, 0.42),
    "lookup": (0.05, math.nan),
    "lookup_backoff": (0.05, 0.5),
    "family_mean": (0.40, 0.55),
}
HISTORIES = {"live": 1.0, "nightly": 1.35, "frozen": 2.2}
NOT_RUN = "the weights of TabPFN are not there: pip install 'leap-throughput[tabpfn]', and see its licence"
SLICES = ("all", "first_in_cell", "new_hardware_first", "new_hardware", "new_family", "head", "tail")
HARDWARE = ("A100-SXM-80", "H100-SXM-80", "L4", "T4", "TPU-v5p", "MI300X")


@dataclass
class Fleet:
    """What is written: change it before `write` to make another directory."""

    rows: dict[str, Array]
    predictions: list[dict[str, Array]]
    judged: dict[str, Any]
    windows: list[str] = field(default_factory=list)

    def write(self, directory: Path) -> Path:
        """Write the three files."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "judged.json").write_text(json.dumps(self.judged), encoding="utf-8")
        pq.write_table(pa.table(self.rows), directory / "rows.parquet")
        pq.write_table(
            pa.concat_tables([pa.table(part) for part in self.predictions], promote_options="permissive"),
            directory / "predictions.parquet",
        )
        return directory


def fleet(
    rows: int = 1200,
    *,
    windows: Sequence[str] = tuple(f"2026-03-{day:02}" for day in range(1, 13)),
    models: Sequence[str] = tuple(SPREADS),
    model_types: Sequence[str] = tuple(f"model-{number:02}" for number in range(40)),
    truth: bool = True,
    seed: int = 0,
) -> Fleet:
    """A fleet of `rows` scored attempts; with the `truth` known there are a noise floor and regret."""
    random = np.random.default_rng(seed)
    drawn = np.minimum((random.pareto(0.7, rows) * 2).astype(int), len(model_types) - 1)
    model_type = np.array(model_types, dtype=object)[drawn]
    expected = random.uniform(math.log(3), math.log(3e6), len(model_types))[drawn] + random.normal(0, 1.0, rows)
    first = random.random(rows) < 0.07
    new_hardware = random.random(rows) < 0.03
    columns: dict[str, Array] = {
        "window": np.sort(np.array(windows, dtype=object)[random.integers(0, len(windows), rows)]),
        "attempt_id": np.array([f"attempt-{number:07}" for number in range(rows)], dtype=object),
        "job_family": np.array([f"{name}/{random.integers(0, 4)}" for name in model_type], dtype=object),
        "model_type": model_type,
        "hardware_type": np.array(HARDWARE, dtype=object)[random.integers(0, len(HARDWARE), rows)],
        "trainer_count": 2 ** random.integers(0, 8, rows),
        "batch_size": 2 ** random.integers(3, 10, rows),
        "submitted_at": 1_770_000_000_000_000 + np.arange(rows, dtype=np.int64) * 60_000_000,
        "device_hours": random.lognormal(2, 1.5, rows),
        "log_measured": expected + random.normal(0, 0.02, rows),
        "log_expected": expected if truth else np.full(rows, np.nan),
        "first_in_cell": first,
        "new_hardware": new_hardware,
        "new_family": first & (random.random(rows) < 0.3),
        "head": drawn < len(model_types) // 3,
    }
    level = np.where(first, random.integers(1, len(BACKOFF), rows), 0)
    hard = 1 + 2.5 * (drawn == 3)  # one model type is difficult for every model
    predictions, logs = [], {}
    for model in models:
        known, new = SPREADS[model]
        error = random.normal(0, 1, rows)
        for history, factor in HISTORIES.items():
            sigma = np.where(first, new, known) * factor * hard
            log_predicted = columns["log_measured"] + sigma * error
            logs[model, history] = log_predicted
            half = np.where(first, 1.28 * new, 1.28 * known) * factor if model == DEFAULT else np.full(rows, np.nan)
            predictions.append(
                {
                    "window": columns["window"],
                    "attempt_id": columns["attempt_id"],
                    "model": np.full(rows, model, dtype=object),
                    "history": np.full(rows, history, dtype=object),
                    "log_predicted": _null(log_predicted),
                    "log_low": _null(log_predicted - half),
                    "log_high": _null(log_predicted + half),
                    "level": np.array(
                        [BACKOFF[place].view if model == DEFAULT else None for place in level], dtype=object
                    ),
                }
            )
    return Fleet(columns, predictions, _judged(columns, logs, level, list(windows), truth=truth))


def _judged(
    columns: Mapping[str, Array],
    logs: Mapping[tuple[str, str], Array],
    level: Array,
    windows: list[str],
    *,
    truth: bool,
) -> dict[str, Any]:
    measured = columns["log_measured"]
    chosen = {
        "all": np.ones(len(measured), dtype=bool),
        "new_hardware_first": columns["first_in_cell"] & columns["new_hardware"],
        "tail": ~columns["head"],
        **{name: columns[name] for name in ("first_in_cell", "new_hardware", "new_family", "head")},
    }

    def sliced(predicted: Array) -> dict[str, Any]:
        return {name: figures(predicted, columns, chosen[name]) for name in SLICES}

    models: dict[str, Any] = {"tabpfn": {"not_run": NOT_RUN}}
    for (model, history), predicted in logs.items():
        models.setdefault(model, {"fit_seconds": 1.5})[history] = sliced(predicted)
    default = logs[DEFAULT, "live"]
    half = np.abs(1.28 * np.where(columns["first_in_cell"], SPREADS[DEFAULT][1], SPREADS[DEFAULT][0]))
    inside = np.abs(default - measured) <= half
    covers_table = ~np.isnan(logs["lookup", "live"]) if ("lookup", "live") in logs else np.ones(len(measured), bool)
    return {
        "default": DEFAULT,
        "by": "day",
        "windows": [
            {
                "name": name,
                "cut": f"{name}T00:00:00Z",
                "train_rows": 30 * len(measured) // len(windows),
                "scored_rows": int((columns["window"] == name).sum()),
            }
            for name in windows
        ],
        "models": models,
        "noise_floor": sliced(columns["log_expected"]) if truth else None,
        "intervals": {
            DEFAULT: [
                {
                    "level": name,
                    "rows": int(held.sum()),
                    "covered": _percent(inside[held]),
                    "median_half_width": 100 * float(np.median(np.expm1(half[held]))),
                }
                for name, held in [("all", level >= 0), *((each.view, level == at) for at, each in enumerate(BACKOFF))]
                if held.any()
            ]
        },
        "over_windows": {
            model: {
                name: {"windows": len(found), "median": float(np.median(found)), "low": min(found), "high": max(found)}
                for name in ("all", "first_in_cell")
                for inside_of in [[chosen[name] & (columns["window"] == window) for window in windows]]
                for found in [[_within(predicted, columns, rows) for rows in inside_of if rows.any()]]
                if found
            }
            for (model, history), predicted in logs.items()
            if history == "live"
        },
        "against_table": {
            model: figures(predicted, columns, covers_table)
            for (model, history), predicted in logs.items()
            if history == "live"
        },
        "differences": {
            model: {
                name: {"points": points, "low": points - 1.5, "high": points + 1.5}
                for name in ("all", "first_in_cell")
                for points in [_within(default, columns, chosen[name]) - _within(predicted, columns, chosen[name])]
            }
            for (model, history), predicted in logs.items()
            if history == "live" and model != DEFAULT
        },
        "importance": [
            {"feature": name, "group": group, "points": points}
            for name, group, points in (
                (None, "levels", 40.0),
                (None, "configuration", 15.5),
                ("history__family_scale_history__last", "levels", 31.5),
                ("trainer_count", "configuration", 12.25),
                ("architecture__parameters", "architecture", 4.5),
                ("hardware_type", "hardware", 1.5),
                ("batch_per_gb", "ratios", -0.25),
            )
        ],
        "ablations": {
            name: {
                "of": "leap",
                "windows": windows[-1:],
                "figures": sliced(logs["leap", "live"] + error),
                "points": {
                    of: {"points": lost, "low": lost - 0.75, "high": lost + 0.5}
                    for of in ("all", "first_in_cell")
                    for lost in [
                        _within(logs["leap", "live"] + error, columns, chosen[of])
                        - _within(logs["leap", "live"], columns, chosen[of])
                    ]
                },
            }
            for name, error in (("leap-architecture", 0.03), ("leap-history", 0.1), ("leap-cascade", 0.05))
            if ("leap", "live") in logs
        },
        "holdouts": [
            {
                "window": windows[-1],
                "model": model,
                "kind": kind,
                "value": value,
                "history": history,
                "removed_rows": 300,
                "scored_rows": 100,
                "full": 97.0,
                "without": 61.5,
                "random": 96.25,
                "points": -35.5,
                "points_random": -0.75,
            }
            for model in (DEFAULT, "leap")
            for kind, value in (("hardware_type", "H100-SXM-80"), ("job_family", "model-02/1"))
            for history in ("live", "frozen")
        ],
        "pairs": {
            DEFAULT: {"pairs": 120, "right": 91.5},
            "backoff_last": {"pairs": 120, "right": 78.0},
            **({"truth": {"pairs": 120, "right": 97.5}} if truth else {}),
        },
        "regret": {
            DEFAULT: {"jobs": 500, "lost": 1.25, "lost_by_cost": 1.0, "best": 88.0},
            "backoff_last": {"jobs": 500, "lost": 4.5, "lost_by_cost": 5.0, "best": 61.0},
            "as run": {"jobs": 500, "lost": 14.5, "lost_by_cost": 15.0, "best": 31.0},
        }
        if truth
        else {},
    }


def figures(predicted: Array, columns: Mapping[str, Array], chosen: Array) -> dict[str, Any]:
    """The judge's FIGURES of some rows; NaN: no answer."""
    error = np.abs(np.expm1(predicted[chosen] - columns["log_measured"][chosen]))
    error[np.isnan(error)] = np.inf
    if not len(error):
        return {"rows": 0, "unanswered": 0, "within10": None, "within20": None, "median_error": None}
    hours = columns["device_hours"][chosen]
    within = _percent(error <= 0.2)
    spread = 196 * math.sqrt(within / 100 * (1 - within / 100) / len(error))
    median = float(np.median(error))
    return {
        "rows": len(error),
        "unanswered": int(np.isinf(error).sum()),
        "within10": _percent(error <= 0.1),
        "within20": within,
        "median_error": 100 * median if math.isfinite(median) else None,
        "within20_device_hours": 100 * float(hours[error <= 0.2].sum() / hours.sum()),
        "within20_low": max(0.0, within - spread),
        "within20_high": min(100.0, within + spread),
    }


def _within(predicted: Array, columns: Mapping[str, Array], chosen: Array) -> float:
    return float(figures(predicted, columns, chosen)["within20"] or 0.0)


def _percent(hits: Array) -> float:
    return 100 * float(hits.mean()) if len(hits) else 0.0


def _null(values: Array) -> pa.Array:
    return pa.array(values, from_pandas=True)
