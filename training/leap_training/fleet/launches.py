"""Launches of one day: which family, in which configuration, on which hardware, how fast, and how they end."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from leap_training.fleet.families import Families, geometric_mean, steps
from leap_training.fleet.machines import Machines
from leap_training.fleet.roofline import USABLE_MEMORY, Steps, possible_throughput
from leap_training.fleet.workloads import Models, of_kind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STATUSES: Final = ("succeeded", "failed", "cancelled", "preempted")
FAILURES: Final = ("", "out_of_memory", "crash")

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
LONGEST_HOURS: Final = 96.0

NOISE: Final = 0.06
NOISE_FREEDOM: Final = 3.0
"""Run-to-run noise: the logarithm of throughput has a Student t distribution with 3 degrees of freedom, times 0.06."""
STRAGGLERS: Final = 0.05
STRAGGLING: Final = 0.30
"""One run in twenty has a slow host or a crowded network, and loses an exponential 30 % on average."""

CRASHED: Final = 0.04
PREEMPTED: Final = 0.05
CANCELLED: Final = 0.03


@dataclass(frozen=True)
class Launches:
    """Columns of n launches; matrices are n × H. Times are microseconds since 1970, UTC.

    Attributes:
        number: counts the launches of the fleet in order of submission.
        family, model: indices. hardware: index of the type it ran on.
        status, failure: indices into `STATUSES` and `FAILURES`.
        throughput: measured, samples/s over all trainers; NaN for a failed launch.
        precision: index. tokens: length of a sample, 0 where it has none.
        name_draw: random number for what is run-specific in its name.
        eligible: the launcher's candidates.
        expected: throughput without noise on every candidate; NaN on others, 0 where the memory does not suffice.
    """

    number: Integers
    family: Integers
    model: Integers
    hardware: Integers
    submitted_us: Integers
    started_us: Integers
    completed_us: Integers
    status: Integers
    failure: Integers
    throughput: Floats
    trainers: Integers
    readers: Integers
    batch: Integers
    precision: Integers
    tokens: Integers
    device_hours: Floats
    name_draw: Integers
    eligible: NDArray[np.bool_]
    expected: Floats

    def __len__(self) -> int:
        return len(self.number)

    def then(self, others: Self) -> Self:
        """These launches and then the others."""
        return replace(
            self,
            **{
                field.name: np.concatenate([getattr(self, field.name), getattr(others, field.name)])
                for field in fields(self)
            },
        )


def launches(
    families: Families,
    models: Models,
    machines: Machines,
    *,
    first: int,
    count: int,
    day: int,
    start_us: int,
    rng: np.random.Generator,
) -> Launches:
    """`count` launches that are submitted on `day`, which begins at `start_us`; the first has the number `first`."""
    at = np.sort(_hour_of_day(count, rng)) / 24
    family = _families(families, models, day, count, rng)
    passed = families.change_day[family] <= (day + at)[:, None]
    variant = _variant(families, family, passed.sum(axis=1), rng)
    trainers, batch = families.trainers[family, variant], families.batch[family, variant]
    tokens, readers = families.tokens[family, variant], families.readers[family, variant]
    code = families.code[family] + (families.change[family] * passed).sum(axis=1) + families.drift[family] * (day + at)
    model, precision = families.model[family], families.precision[family]
    work = steps(
        models,
        model,
        precision,
        trainers,
        batch,
        tokens,
        families.reader_rate[family] * np.where(readers > 0, readers, trainers),
        np.exp(code[:, None] + families.own[family]),
    )
    expected = possible_throughput(work, machines)
    eligible = _eligible(families.eligible[family], work, machines, day)
    hardware = _placed(eligible, expected, families.habit[family], machines, day, rng)
    rows = np.arange(count)
    on_it = expected[rows, hardware]
    throughput = on_it * np.exp(_noise(count, rng))
    planned = _planned_hours(models.kind[model], rng)
    # A launch is planned for middling hardware.
    middling = geometric_mean(expected, eligible & (expected > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        hours = np.minimum(planned * middling / throughput, LONGEST_HOURS)
    out_of_memory = on_it == 0
    status, failure, hours = _endings(out_of_memory, hours, rng)
    submitted_us = start_us + np.round(at * DAY_US).astype(np.int64)
    started_us = submitted_us + np.round(rng.exponential(0.2, count) * HOUR_US).astype(np.int64)
    duration_us = np.maximum(1, np.round(hours * HOUR_US).astype(np.int64))
    return Launches(
        number=first + rows,
        family=family,
        model=model,
        hardware=hardware,
        submitted_us=submitted_us,
        started_us=started_us,
        completed_us=started_us + duration_us,
        status=status,
        failure=failure,
        throughput=np.where(status == STATUSES.index("failed"), np.nan, _six_digits(throughput)),
        trainers=trainers,
        readers=readers,
        batch=batch,
        precision=precision,
        tokens=tokens,
        device_hours=_six_digits(duration_us / HOUR_US * trainers),
        name_draw=rng.integers(0, 2**62, count),
        eligible=eligible,
        expected=np.where(eligible, expected, np.nan),
    )


def _hour_of_day(count: int, rng: np.random.Generator) -> Floats:
    """Most launches are in working hours: three in five around 15:00, the others at any time."""
    busy = rng.random(count) < 0.6
    return np.where(busy, rng.normal(15, 3.5, count), rng.uniform(0, 24, count)) % 24


def _families(families: Families, models: Models, day: int, count: int, rng: np.random.Generator) -> Integers:
    """A family for each launch: model types by popularity, families of a type by their weight and presence."""
    present = np.clip(np.minimum(families.end, day + 1) - np.maximum(families.begin, day), 0, 1)
    weight = families.weight * present
    of_model = np.bincount(families.model, weight, len(models.popularity))
    share = weight / of_model[families.model] * models.popularity[families.model]
    ends = np.cumsum(share)
    drawn: Integers = np.searchsorted(ends, rng.random(count) * ends[-1], side="right")
    return drawn


def _variant(families: Families, family: Integers, changes: Integers, rng: np.random.Generator) -> Integers:
    """A configuration for each launch; with each change of code the family turns to the next one."""
    ends = np.cumsum(families.variant[family], axis=1)
    drawn = (rng.random((len(family), 1)) * ends[:, -1:] > ends).sum(axis=1)
    variant: Integers = (drawn + changes) % families.variant.shape[1]
    return variant


def _eligible(allowed: NDArray[np.bool_], work: Steps, machines: Machines, day: int) -> NDArray[np.bool_]:
    """What the launcher offers: what can be had that day and holds the model itself.

    Activations it cannot foresee. Where nothing can be had the job waits for what it may run on, and before that is
    in the fleet it runs on what would hold it, or on anything.
    """
    exists = np.array(machines.available_from) <= day
    holds = work.resident_bytes[:, None] <= USABLE_MEMORY * machines.memory
    able = exists & holds & (machines.peak[work.precision] > 0)
    offers = (allowed & able & machines.available[day], allowed & able, allowed & exists, able)
    result = np.broadcast_to(exists, allowed.shape)
    for offer in reversed(offers):
        result = np.where(offer.any(axis=1, keepdims=True), offer, result)
    return result


def _placed(
    eligible: NDArray[np.bool_],
    expected: Floats,
    habit: Floats,
    machines: Machines,
    day: int,
    rng: np.random.Generator,
) -> Integers:
    """Where each launch runs: by its owners' habit and by what the fleet has, and somewhat by value for money.

    Owners learn to leave alone what runs out of memory, slowly.
    """
    value = np.maximum(expected / machines.cost, 0.0)
    best = value.max(axis=1, keepdims=True)
    gladly = np.where(expected > 0, (value / np.maximum(best, 1e-300)) ** 2, 0.05)
    weight = eligible * habit * machines.capacity[day] * gladly
    ends = np.cumsum(weight, axis=1)
    drawn: Integers = (rng.random((len(weight), 1)) * ends[:, -1:] >= ends).sum(axis=1)
    return drawn


def _noise(count: int, rng: np.random.Generator) -> Floats:
    straggling = rng.random(count) < STRAGGLERS
    return NOISE * rng.standard_t(NOISE_FREEDOM, count) - straggling * rng.exponential(STRAGGLING, count)


def _planned_hours(kind: Integers, rng: np.random.Generator) -> Floats:
    return np.clip(of_kind(kind, "hours") * np.exp(rng.normal(0, 1.1, len(kind))), 0.05, 72.0)


def _endings(
    out_of_memory: NDArray[np.bool_], hours: Floats, rng: np.random.Generator
) -> tuple[Integers, Integers, Floats]:
    """Status, failure and actual length: memory runs out within minutes, everything else ends a run at any time."""
    draw, part = rng.random(len(hours)), rng.random(len(hours))
    ends = np.cumsum([CRASHED, CANCELLED, PREEMPTED])
    crashed = ~out_of_memory & (draw < ends[0])
    cancelled = ~out_of_memory & (draw >= ends[0]) & (draw < ends[1])
    preempted = ~out_of_memory & (draw >= ends[1]) & (draw < ends[2])
    status = np.select(
        [out_of_memory | crashed, cancelled, preempted],
        [STATUSES.index("failed"), STATUSES.index("cancelled"), STATUSES.index("preempted")],
        STATUSES.index("succeeded"),
    )
    failure = np.select(
        [out_of_memory, crashed], [FAILURES.index("out_of_memory"), FAILURES.index("crash")], FAILURES.index("")
    )
    early = crashed | cancelled | preempted
    with np.errstate(invalid="ignore"):
        length = np.where(out_of_memory, 0.02 + 0.1 * part, np.where(early, hours * part, hours))
    return status, failure, length


def _six_digits(values: Floats) -> Floats:
    """Values as a platform reports them, to six significant digits; the last bits of a logarithm differ by machine."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 10.0 ** (5 - np.floor(np.log10(np.abs(values))))
        return np.where(np.isfinite(scale) & (scale > 0), np.round(values * scale) / scale, values)
