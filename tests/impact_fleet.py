"""A made-up fleet for `leap impact`: two hardware types, ranked jobs that move to the better one, a control group."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from leap_features.events import from_us, to_us
from leap_features.hardware import CATALOGUE
from leap_predictor.decisions.decision import Decision
from leap_predictor.explanation import Choice
from leap_training.impact.attempts import Attempt
from leap_training.impact.decided import Decided, read_decisions
from made_decisions import NOON, decision, write_decisions

COST = 2.0
"""Of a trainer-hour, on both types."""
FOLLOWED, BY_ITSELF = 0.9, 0.5
"""Shares of ranked jobs and of the control group that run on A."""
TRAINERS = 8


@dataclass(frozen=True)
class ImpactFleet:
    """Attempts, decisions about them, and what rankings saved of the cost per sample on average over such fleets."""

    attempts: list[Attempt]
    decisions: list[Decision]
    saving: float

    def decided(self) -> list[Decided]:
        """The decisions as they are read from a log."""
        return decided(self.decisions)


def impact_fleet(
    seed: int,
    *,
    advantage: float,
    models: int = 3,
    families: int = 20,
    jobs: int = 6,
    control: float = 0.3,
    days: int = 3,
) -> ImpactFleet:
    """A fleet in which a sample costs exp(`advantage`) times as much on B as on A, give or take for each family.

    Args:
        advantage: 0: rankings change where jobs run, and save nothing.
        control: share of jobs that are kept as control group.
    """
    rng = random.Random(seed)
    attempts, decisions = [], []
    for model in range(models):
        for family in range(families):
            log_cost, log_ratio = rng.gauss(model, 2), rng.gauss(advantage, 0.2)
            guess = rng.gauss(0, 0.3)
            for job in range(jobs):
                name = f"m{model}-f{family}-j{job}"
                kept = rng.random() < control
                on_a = rng.random() < (BY_ITSELF if kept else FOLLOWED)
                submitted = NOON + timedelta(hours=rng.uniform(0, 24 * days))
                cost_per_sample = math.exp(log_cost + (0 if on_a else log_ratio) + rng.gauss(0, 0.2))
                attempts.append(
                    Attempt(
                        attempt_id=name,
                        job_name=name,
                        model_type=f"model-{model}",
                        family=f"model-{model}/m{model}f{family}",
                        hardware_type="A" if on_a else "B",
                        eligible=("A", "B"),
                        trainers=TRAINERS,
                        device_hours=rng.uniform(1, 20),
                        throughput=TRAINERS * COST / 3600 / cost_per_sample,
                        submitted_us=to_us(submitted),
                    )
                )
                decisions.append(
                    decision(
                        name,
                        decided_at=submitted - timedelta(seconds=1),
                        job_name=name,
                        model_type=f"model-{model}",
                        trainer_count=TRAINERS,
                        choices=(
                            predicted("A", math.exp(log_cost + guess)),
                            predicted("B", math.exp(log_cost + guess + abs(advantage) + 0.1)),
                        ),
                        control=kept,
                        reason="control_group" if kept else None,
                    )
                )
    attempts.sort(key=lambda each: (each.submitted_us, each.attempt_id))
    return ImpactFleet(attempts, decisions, -math.expm1(-(FOLLOWED - BY_ITSELF) * advantage))


def predicted(hardware_type: str, cost_per_sample: float) -> Choice:
    """The choice of which a sample is predicted to cost so much."""
    score = 1 / (3600 * cost_per_sample)
    throughput = score * TRAINERS * COST * 3600
    return Choice(hardware_type, throughput, throughput / 2, throughput * 2, score, None, COST)


def decided(decisions: Sequence[Decision]) -> list[Decided]:
    """`decisions` as they are read from a log."""
    with TemporaryDirectory() as directory:
        return list(read_decisions([write_decisions(Path(directory) / "log.jsonl", decisions)], CATALOGUE).decisions)


def event_of(attempt: Attempt, **changes: Any) -> dict[str, Any]:
    """The completion event of an attempt, as a JSON document."""
    submitted = from_us(attempt.submitted_us)
    fields: dict[str, Any] = {
        "schema_version": 1,
        "attempt_id": attempt.attempt_id,
        "job_name": attempt.job_name,
        "job_family": attempt.family,
        "model_type": attempt.model_type,
        "hardware_type": attempt.hardware_type,
        "submitted_at": submitted.isoformat(),
        "started_at": (submitted + timedelta(hours=1)).isoformat(),
        "completed_at": (submitted + timedelta(hours=2)).isoformat(),
        "status": "failed" if attempt.throughput is None else "succeeded",
        "throughput": attempt.throughput,
        "trainer_count": attempt.trainers,
        "device_hours": attempt.device_hours,
        "eligible_hardware": list(attempt.eligible),
    }
    return fields | changes


def write_events(path: Path, events: Sequence[dict[str, Any]]) -> Path:
    """A table of completion events at `path`, JSON Lines."""
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path
