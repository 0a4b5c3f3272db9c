"""Families of jobs: which model they train and how, how good their code is, where they run, when they live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from leap_training.fleet.machines import PRECISIONS, Machines
from leap_training.fleet.roofline import Steps, possible_throughput
from leap_training.fleet.words import STYLES, owner, stem
from leap_training.fleet.workloads import MOST_SHARDS, OPTIMIZER_BYTES, Models, of_kind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

VARIANTS: Final = 4
"""Configurations between which the launches of a family vary."""
CHANGES: Final = 2
"""Changes of a family's code within a month, at most."""

FAMILIES_AT: Final = 0.35
FAMILIES_EXPONENT: Final = 0.75
"""A model type with n attempts has about 0.35 · n^0.75 families."""
BEFORE_DAYS: Final = 20.0
"""Families begin as early as that before the first day."""

CODE_SPREAD: Final = 0.26
"""σ of the logarithm of code efficiency, between families of a model type."""
OWN_HARDWARE_SPREAD: Final = 0.10
"""σ of what a family's code gains or loses on one hardware type against the others."""
MODEL_HARDWARE_SPREAD: Final = 0.10
"""The same of a model type."""
CHANGE_GAIN: Final = 0.02
CHANGE_SPREAD: Final = 0.13
"""Mean and σ of what a change of code gains or loses."""
DRIFT_SPREAD: Final = 0.002
"""σ of the slow drift of a family's code, a day."""
LAUNCH_SPREAD: Final = 1.4
"""σ of the logarithm of how often a family is launched, against the others of its model type."""
READER_SURPLUS: Final = (0.9, 0.6)
"""Mean and σ of the logarithm of what readers supply over what a job needs on middling hardware."""
MOST_COMMON: Final = 0
"""Index of the most common model type. Its code is kept well on several hardware types (see `balance`)."""
MOST_COMMON_HARDWARE: Final = 6
QUALIFIED: Final = (4, 9)
"""Fewest and most hardware types that a model type's owners qualify it on."""
FEWEST_MODEL_TYPES: Final = 4
"""Model types that are qualified on a hardware type, at least."""
VALUE_MATTERS: Final = 1.5
"""Exponent of throughput per cost in what they choose; the fleet's capacity has exponent 1."""


@dataclass(frozen=True)
class Families:
    """Columns of F families; matrices are F × VARIANTS, F × CHANGES or F × H.

    Attributes:
        model: index of the model type.
        begin, end: days between which it is launched. weight: launches against others of its model type.
        precision: index into `PRECISIONS`.
        trainers, batch, tokens, readers: by variant. variant: how often each is launched (rows sum to 1).
        reader_rate: samples/s that one reader supplies, or one trainer's host where there are no readers.
        code: logarithm of code efficiency. change_day, change: when it changes, and by how much. drift: a day.
        own: the logarithm by which its code does better on a hardware type.
        eligible: hardware on which it may run. habit: how gladly its owners run it there.
        stem, style, owner: of its jobs' names.
    """

    model: Integers
    begin: Floats
    end: Floats
    weight: Floats
    precision: Integers
    trainers: Integers
    batch: Integers
    tokens: Integers
    readers: Integers
    variant: Floats
    reader_rate: Floats
    code: Floats
    change_day: Floats
    change: Floats
    drift: Floats
    own: Floats
    eligible: Flags
    habit: Floats
    stem: tuple[str, ...]
    style: Integers
    owner: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.model)


def families(models: Models, machines: Machines, attempts: int, days: int, rng: np.random.Generator) -> Families:
    """The families of a fleet of `attempts` attempts in `days` days."""
    counts = np.maximum(1, np.round(FAMILIES_AT * (models.popularity * attempts) ** FAMILIES_EXPONENT)).astype(int)
    model = np.repeat(np.arange(len(counts)), counts)
    count = len(model)
    number = np.arange(count) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, end = _lives(count, days, rng)
    # The first family of a model type is always there, so that the type is.
    begin[number == 0], end[number == 0] = -BEFORE_DAYS, days + 1.0
    precision = _precisions(models.kind[model], machines, rng)
    trainers, batch, tokens = _variants(models, model, rng)
    per_reader = of_kind(models.kind[model], "readers") * np.exp(rng.normal(0, 0.3, count))
    readers = np.where(
        per_reader[:, None] > 0, np.maximum(1, np.round(trainers / np.maximum(per_reader[:, None], 1e-9))), 0
    ).astype(np.int64)
    variant = rng.dirichlet(np.full(VARIANTS, 0.7), count)
    tuning = rng.normal(0, MODEL_HARDWARE_SPREAD, (len(counts), len(machines)))
    first = steps(
        models,
        model,
        precision,
        trainers[:, 0],
        batch[:, 0],
        tokens[:, 0],
        np.full(count, np.inf),
        np.exp(tuning[model]),
    )
    nominal = possible_throughput(first, machines)
    eligible = _qualified(model, machines, nominal, rng)
    reference = geometric_mean(nominal, eligible & (nominal > 0))
    # Readers are bought for what the job needs; some have too few, and those wait for data on fast hardware.
    per_source = reference / np.where(readers[:, 0] > 0, readers[:, 0], trainers[:, 0])
    return Families(
        model=model,
        begin=begin,
        end=end,
        weight=np.exp(rng.normal(0, LAUNCH_SPREAD, count)),
        precision=precision,
        trainers=trainers,
        batch=batch,
        tokens=tokens,
        readers=readers,
        variant=variant,
        # The most common model type never waits for its readers.
        reader_rate=per_source * np.exp(rng.normal(*READER_SURPLUS, count) + 1.5 * (model == MOST_COMMON)),
        code=rng.normal(0, CODE_SPREAD, count),
        change_day=rng.uniform(0, 1.6 * days, (count, CHANGES)),
        change=rng.normal(CHANGE_GAIN, CHANGE_SPREAD, (count, CHANGES)),
        drift=rng.normal(0, DRIFT_SPREAD, count),
        own=tuning[model] + rng.normal(0, OWN_HARDWARE_SPREAD, (count, len(machines))),
        eligible=eligible,
        habit=rng.gamma(0.8, 1.0, (count, len(machines))) + 1e-3,
        stem=tuple(stem(int(i), int(d)) for i, d in zip(number, rng.integers(0, 400, count), strict=True)),
        style=rng.integers(0, len(STYLES), count),
        owner=tuple(owner(int(d)) for d in rng.integers(0, 3600, count)),
    )


def steps(
    models: Models,
    model: Integers,
    precision: Integers,
    trainers: Integers,
    batch: Integers,
    tokens: Integers,
    supply: Floats,
    efficiency: Floats,
) -> Steps:
    """The steps of launches: columns of n values, `efficiency` n × H."""
    kind = models.kind[model]
    length = np.maximum(tokens, 1).astype(np.float64)
    parameters = models.parameters[model]
    n = trainers.astype(np.float64)
    resident = OPTIMIZER_BYTES * parameters * of_kind(kind, "total_over_active")
    shards = np.minimum(n, MOST_SHARDS)
    return Steps(
        kind=kind,
        precision=precision,
        trainers=n,
        batch=batch.astype(np.float64),
        # Attention costs as much again as the rest at sixteen thousand tokens.
        flops=of_kind(kind, "flops_per_parameter") * parameters * length * (1 + length / 16_384),
        sample_bytes=of_kind(kind, "sample_bytes") * length,
        exchanged_bytes=of_kind(kind, "exchanged_bytes") * length,
        activation_bytes=of_kind(kind, "activation_bytes") * length,
        step_bytes=2 * OPTIMIZER_BYTES * parameters / shards,
        step_exchanged_bytes=2 * 2 * parameters,
        resident_bytes=resident / shards + models.embedding_bytes[model] / n,
        fixed_s=of_kind(kind, "fixed_s"),
        supply=supply,
        efficiency=efficiency,
    )


def _lives(count: int, days: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """First and last day of each family: two in five stay for months, the others for days."""
    length = np.where(rng.random(count) < 0.4, rng.exponential(90, count) + 10, rng.exponential(4, count) + 0.3)
    begin = rng.uniform(-np.minimum(length, BEFORE_DAYS), days)
    return begin, begin + length


def _precisions(kind: Integers, machines: Machines, rng: np.random.Generator) -> Integers:
    fp32, fp8 = of_kind(kind, "fp32"), of_kind(kind, "fp8")
    draw = rng.random(len(kind))
    name = np.where(draw < fp32, "fp32", np.where(draw < fp32 + fp8, "fp8", "bf16"))
    name = np.where((name == "bf16") & (rng.random(len(kind)) < 0.2), "fp16", name)
    # A fleet without any type that has FP8 or BF16 trains in FP32.
    has = {precision: bool((machines.peak[i] > 0).any()) for i, precision in enumerate(PRECISIONS)}
    return np.array([PRECISIONS.index(p if has[p] else "fp32") for p in name], dtype=np.int64)


def _variants(models: Models, model: Integers, rng: np.random.Generator) -> tuple[Integers, Integers, Integers]:
    """Trainers, batch and tokens by variant: mostly the model type's usual ones, at times a person's own."""
    shape = (len(model), VARIANTS)

    def usual(options: tuple[tuple[int, ...], ...]) -> Integers:
        most = max(map(len, options))
        table = np.array([[row[min(i, len(row) - 1)] for i in range(most)] for row in options])
        length = np.array([len(row) for row in options])[model][:, None]
        # The first of the usual values is the default; the second is half as common, and so on.
        draw = np.minimum(np.floor(rng.exponential(1.3, shape)).astype(np.int64), length - 1)
        chosen: Integers = table[model[:, None], draw]
        return chosen

    trainers, batch, tokens = usual(models.trainers), usual(models.batches), usual(models.tokens)
    own = rng.random(shape) < 0.15
    trainers = np.where(own, np.maximum(1, trainers * rng.choice([3, 5, 6], shape) // 4), trainers)
    own = rng.random(shape) < 0.3
    batch = np.where(own, np.maximum(1, batch * rng.choice([3, 5, 6, 7], shape) // 4), batch)
    return trainers, batch, tokens


def _qualified(model: Integers, machines: Machines, nominal: Floats, rng: np.random.Generator) -> Flags:
    """Hardware on which each family may run, F × H.

    `nominal` is its throughput in its first configuration, F × H, 0 where it cannot run.
    """
    able = nominal > 0
    value = nominal / machines.cost
    relative = value / np.maximum(value.max(axis=1, keepdims=True), 1e-300)
    count, types = int(model.max()) + 1, nominal.shape[1]
    # A model type's owners qualify it on some of the hardware that the fleet has, preferably where it gives most for
    # its cost; and nothing that the fleet has stays without work.
    of_model = np.maximum.reduceat(relative, np.searchsorted(model, np.arange(count)))
    with np.errstate(divide="ignore"):
        wish = np.log(machines.capacity.mean(axis=0)) + VALUE_MATTERS * np.log(of_model)
    wish += rng.gumbel(size=(count, types))
    rank = np.argsort(np.argsort(-wish, axis=1, kind="stable"), axis=1, kind="stable")
    qualified = rank < rng.integers(QUALIFIED[0], QUALIFIED[1], count, endpoint=True)[:, None]
    qualified |= np.argsort(np.argsort(-wish, axis=0, kind="stable"), axis=0, kind="stable") < FEWEST_MODEL_TYPES
    qualified[MOST_COMMON] = _most_valuable(value[model == MOST_COMMON])
    # A family's owners leave some of that out, and some families are tied to one type.
    chosen = able & qualified[model] & (rng.random(able.shape) < 0.88)
    tied = rng.random(len(model)) < 0.10
    draw = np.where(chosen, rng.random(able.shape), -1.0)
    chosen = np.where(tied[:, None], chosen & (draw == draw.max(axis=1, keepdims=True)), chosen)
    # What is left with nothing runs wherever it can, or on the largest memory if it can nowhere.
    anywhere = np.where(able.any(axis=1, keepdims=True), able, machines.memory == machines.memory.max())
    return np.where(chosen.any(axis=1, keepdims=True), chosen, anywhere)


def geometric_mean(throughput: Floats, chosen: Flags) -> Floats:
    """Of each row, over the chosen types (n × H); 1 where none is chosen."""
    logs = np.log(np.where(chosen, throughput, 1.0)).sum(axis=1)
    mean: Floats = np.exp(logs / np.maximum(chosen.sum(axis=1), 1))
    return mean


def _most_valuable(value: Floats) -> Flags:
    """The hardware that most families of the most common model type find among their best (value is F × H)."""
    best: Flags = np.zeros(value.shape[1], dtype=bool)
    best[np.argsort(-np.median(value, axis=0), kind="stable")[:MOST_COMMON_HARDWARE]] = True
    return best
