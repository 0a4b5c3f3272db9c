"""Made-up history whose waste is known: the value of every job on every eligible hardware type, without noise."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue, Hardware
from leap_training.waste.jobs import Jobs, JobsBuilder

POOL = 12
START_US = 1_767_225_600_000_000
DAY_US = 86_400_000_000
CATALOGUE = Catalogue(
    [
        Hardware(f"type-{number:02}", hourly_cost_usd=float(price))
        for number, price in enumerate(np.geomspace(0.5, 8, POOL))
    ]
)


@dataclass(frozen=True)
class History:
    """Jobs, and the true value of each on each hardware type (NaN where it was not eligible)."""

    jobs: Jobs
    value: NDArray[np.float64]

    def waste(self, jobs: NDArray[np.bool_], cost: NDArray[np.float64], over: NDArray[np.bool_] | None = None) -> float:
        """The share of `cost` that the chosen jobs wasted, over the hardware types `over` of each job."""
        value = self.value[jobs]
        used = value[np.arange(len(value)), self.jobs.hardware[jobs]]
        allowed = value if over is None else np.where(over[jobs], value, np.nan)
        lost = cost[jobs] * (1 - used / np.nanmax(allowed, axis=1))
        return float(lost.sum() / cost[jobs].sum())


def history(
    seed: int,
    models: int = 12,
    jobs_per_model: tuple[int, int] = (200, 1500),
    *,
    family_deviation: float = 0.12,
    condition_deviation: float = 0.05,
    noise: float = 0.06,
    placed: float = 0.0,
) -> History:
    """Jobs whose logarithm of value is a sum of normal effects, with heavy-tailed noise and stragglers.

    Args:
        family_deviation: how far what hardware does to a family is off what it does to its model type.
        placed: 0 places jobs at random; above, more of them where their model type has more value.
    """
    random = np.random.default_rng(seed)
    names = [hardware.name for hardware in CATALOGUE.values()]
    prices = np.array([hardware.hourly_cost_usd for hardware in CATALOGUE.values()], float)
    builder = JobsBuilder(CATALOGUE)
    values = []
    for model in range(models):
        types = np.sort(random.choice(POOL, random.integers(3, 9), replace=False))
        hardware = random.normal(0, 0.35, POOL)
        by_trainers = random.normal(0, 0.1, (4, POOL))
        by_precision = random.normal(0, 0.15, (2, POOL))
        families = int(random.integers(4, 25))
        popularity = random.dirichlet(np.full(families, 0.7))
        origin = random.normal(0, 0.4, families)
        deviation = random.normal(0, family_deviation, (families, POOL))
        cells = random.normal(0, condition_deviation, (families, 4, 2, POOL))
        main = random.normal(0, 0.3, (families, 4, 2))
        steps = np.cumsum(random.normal(0, 0.04, (families, 31)) * (random.random((families, 31)) < 0.15), axis=1)
        for _ in range(int(random.integers(*jobs_per_model))):
            family = int(random.choice(families, p=popularity))
            trainers, precision, day = int(random.integers(4)), int(random.integers(2)), int(random.integers(31))
            eligible = np.sort(random.choice(types, random.integers(2, len(types) + 1), replace=False))
            relative = (
                hardware
                + by_trainers[trainers]
                + by_precision[precision]
                + deviation[family]
                + cells[family, trainers, precision]
            )
            value = np.exp(5 + origin[family] + main[family, trainers, precision] + steps[family, day] + relative)
            weight = np.exp(placed * hardware[eligible])
            chosen = int(random.choice(eligible, p=weight / weight.sum()))
            factor = np.exp(noise * random.standard_t(3)) * (random.uniform(0.3, 0.7) if random.random() < 0.03 else 1)
            count = 8 * 2**trainers
            hours = float(random.lognormal(1, 0.7))
            builder.add(
                model_type=f"model-{model:02}",
                family=f"model-{model:02}/family-{family:02}",
                hardware_type=names[chosen],
                config=json.dumps({"precision": ("bf16", "fp32")[precision]}),
                eligible=[names[h] for h in eligible],
                trainers=count,
                readers=0,
                batch=64.0,
                throughput=float(value[chosen] * factor * count * prices[chosen]),
                device_hours=hours * count,
                completed_us=START_US + day * DAY_US + int(random.integers(DAY_US)),
            )
            values.append(np.full(POOL, np.nan))
            values[-1][eligible] = value[eligible]
    jobs = builder.jobs()
    columns = [names.index(name) for name in jobs.hardware_types]
    return History(jobs, np.stack(values)[:, columns])
