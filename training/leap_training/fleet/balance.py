"""The most common model type is tuned until no hardware type is best for all of it.

In the paper four hardware types are each best in 16 to 31 % of the launches of one model type. That is not left to
chance: so many launches pay for engineers, who work on the hardware where the code does worst for its price. Here they
raise and lower the code's efficiency by hardware type until the shares of launches in which each is best are those
of `TARGETS`. This is calibration, not physics; no other model type is touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_training.fleet.columns import taken
from leap_training.fleet.families import MOST_COMMON, Families
from leap_training.fleet.launches import launches
from leap_training.fleet.machines import Machines
from leap_training.fleet.workloads import Models

TARGETS: Final = (0.265, 0.245, 0.225, 0.20)
"""Shares of launches in which the four best hardware types are best; the others share what is left."""
ROUNDS: Final = 40
SAMPLE: Final = 400
SAMPLED_DAYS: Final = 16
STEP: Final = 0.06
"""Change of the logarithm of efficiency for a share that is off by a factor of e."""


def balanced(
    families: Families, models: Models, machines: Machines, days: int, rng: Callable[[], np.random.Generator]
) -> Families:
    """`families`, with those of the most common model type tuned.

    `rng` begins the same stream each time, so that every round looks at the same launches.
    """
    only = np.zeros(len(models.popularity))
    only[MOST_COMMON] = 1.0
    alone = replace(models, popularity=only)
    # Families are sorted by model type.
    first, end = np.searchsorted(families.model, (MOST_COMMON, MOST_COMMON + 1))
    tuned = taken(families, slice(int(first), int(end)))
    sampled = sorted({round(part * (days - 1)) for part in np.linspace(0, 1, SAMPLED_DAYS)})
    share = _best_shares(tuned, alone, machines, sampled, rng())
    order = np.argsort(-share, kind="stable")
    wanted = np.zeros(len(machines))
    wanted[order[: len(TARGETS)]] = TARGETS[: len(machines)]
    rest = order[len(TARGETS) :]
    rest = rest[share[rest] > 0]
    if len(rest):
        wanted[rest] = (1 - sum(TARGETS)) / len(rest)
    for _ in range(ROUNDS):
        tuned = replace(tuned, own=tuned.own + STEP * np.log((wanted + 0.01) / (share + 0.01)))
        share = _best_shares(tuned, alone, machines, sampled, rng())
    own = families.own.copy()
    own[first:end] = tuned.own
    return replace(families, own=own)


def _best_shares(
    families: Families, models: Models, machines: Machines, days: list[int], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Share of sampled launches in which each hardware type gives most throughput for its cost."""
    count = np.zeros(len(machines))
    for day in days:
        made = launches(families, models, machines, first=0, count=SAMPLE, day=day, start_us=0, rng=rng)
        value = np.nan_to_num(made.expected / machines.cost, nan=-1.0)
        count += np.bincount(value.argmax(axis=1), minlength=len(machines))
    shares: NDArray[np.float64] = count / count.sum()
    return shares
