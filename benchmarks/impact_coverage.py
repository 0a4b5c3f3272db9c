"""How often does the interval of `leap impact` hold the saving that was planted?

The last line is JSON: for each kind of fleet and effect, the share of intervals that hold it, and their mean width.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import NamedTuple

import numpy as np

from leap_training.impact.saving import Measured, measured_saving

FOLLOWED, BY_ITSELF = 0.9, 0.5
"""Shares of ranked jobs and of the control group that run on the better type."""


class Kind(NamedTuple):
    """A kind of fleet."""

    models: int
    families: int
    jobs: int
    control: float
    by_family: bool


KINDS = (
    Kind(1, 12, 5, 0.5, False),
    Kind(5, 20, 8, 0.1, False),
    Kind(5, 60, 2, 0.1, False),
    Kind(3, 60, 3, 0.2, True),
    Kind(8, 10, 20, 0.5, False),
)


def measured(kind: Kind, advantage: float, rng: np.random.Generator) -> Measured:
    """What is found in one fleet, in which the other type costs exp(`advantage`) times as much for a sample."""
    model, family, ranked, log_cost, log_predicted = [], [], [], [], []
    for number in range(kind.models * kind.families):
        level, ratio = rng.normal(0, 2), rng.normal(advantage, 0.3)
        guess = level + ratio / 2 + rng.normal(0, 0.3)
        jobs = 1 + rng.poisson(kind.jobs)
        drawn = np.full(jobs, rng.random()) if kind.by_family else rng.random(jobs)
        here = drawn >= kind.control
        better = rng.random(jobs) < np.where(here, FOLLOWED, BY_ITSELF)
        model.append(np.full(jobs, number // kind.families))
        family.append(np.full(jobs, number))
        ranked.append(here)
        log_cost.append(level + np.where(better, 0, ratio) + rng.normal(0, 0.2, jobs))
        log_predicted.append(np.full(jobs, guess))
    columns = (np.concatenate(column) for column in (model, family, ranked, log_cost, log_predicted))
    return measured_saving(*columns, np.ones(kind.models), confidence=0.95, draws=400, seed=0)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=250)
    fleets = parser.parse_args().fleets
    found = []
    for kind in KINDS:
        for advantage in (0.0, 0.5):
            rng = np.random.default_rng(1)
            planted = -math.expm1(-(FOLLOWED - BY_ITSELF) * advantage)
            savings = [saving for _ in range(fleets) if (saving := measured(kind, advantage, rng).total) is not None]
            line = {
                **kind._asdict(),
                "planted": round(planted, 4),
                "fleets": len(savings),
                "coverage": round(float(np.mean([each.low <= planted <= each.high for each in savings])), 4),
                "width": round(float(np.mean([each.high - each.low for each in savings])), 4),
                "error": round(float(np.mean([each.value - planted for each in savings])), 4),
            }
            print(line, flush=True)
            found.append(line)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
