"""Small histories, run by run, and their measurement."""

from __future__ import annotations

from collections.abc import Sequence

from leap_features.hardware import Catalogue, Hardware
from leap_training.waste.jobs import Jobs, JobsBuilder
from leap_training.waste.measure import Options, measure
from leap_training.waste.report import WasteReport
from waste_history import START_US

PRICES = Catalogue([Hardware("cheap", hourly_cost_usd=1.0), Hardware("fast", hourly_cost_usd=2.0), Hardware("free")])


def build(runs: Sequence[dict[str, object]], failed: Sequence[dict[str, object]] = ()) -> Jobs:
    """Jobs of one family on 8 trainers, unless a run says otherwise."""
    builder = JobsBuilder(PRICES)
    for number, run in enumerate(runs):
        given = {
            "model_type": "m",
            "family": "m/f",
            "hardware_type": "cheap",
            "config": "{}",
            "eligible": ("cheap", "fast"),
            "trainers": 8,
            "readers": 0,
            "batch": 32.0,
            "throughput": 100.0,
            "device_hours": 8.0,
            "completed_us": START_US + number * 1_000_000,
        }
        builder.add(**(given | run))  # type: ignore[arg-type]
    for run in failed:
        given = {"model_type": "m", "hardware_type": "cheap", "config": "{}", "trainers": 8, "batch": 32.0}
        builder.add_failed(**(given | run))  # type: ignore[arg-type]
        builder.leave_out("failed")
    return builder.jobs()


def on(hardware_type: str, throughput: float, count: int = 10, **rest: object) -> list[dict[str, object]]:
    return [{"hardware_type": hardware_type, "throughput": throughput, **rest} for _ in range(count)]


def report_of(jobs: Jobs, options: Options = Options()) -> WasteReport:  # noqa: B008  # immutable
    return measure(jobs, PRICES, "runs", options).report
