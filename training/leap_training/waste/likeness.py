"""Which jobs are alike, by trainers, batch, configuration and readers, and on what jobs like them were measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_training.waste.jobs import Jobs

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MIN_RUNS: Final = 3
"""Runs of other families of the model type that show what hardware gives jobs like this; of the family, one does."""
TIED: Final = 0.5
"""A configuration key is tied to the hardware if more than this share of the jobs has a value that its model type has
on one hardware type only. Jobs on different hardware are never alike in it, so it cannot be asked for."""
_MOST_SHAPES: Final = 4_000
"""Shapes of jobs of a model type that are told apart where jobs fail."""
_NONE: Final = -(1 << 20)
"""Bin of a batch size or reader count of 0: like nothing but itself."""


class ConfigKeys(NamedTuple):
    """Keys of the configuration."""

    alike: tuple[str, ...]
    """Jobs must agree in them to be alike."""
    tied: tuple[str, ...]
    """Left out, since they go along with the hardware."""


class Conditions(NamedTuple):
    """What jobs are compared by. Bins are powers of two: the nearest whole number to the binary logarithm."""

    trainers: Ints
    batch: Ints
    config: Ints
    """Number of the values of the chosen configuration keys."""
    readers: Ints
    """Bin of the readers per trainer."""


def conditions(jobs: Jobs, keys: Sequence[str]) -> Conditions:
    """The conditions of each job, its configuration by `keys` alone."""
    return Conditions(
        _bin(jobs.trainers),
        _bin(jobs.batch),
        configurations(jobs, keys)[jobs.config],
        _bin(jobs.readers / np.maximum(jobs.trainers, 1)),
    )


def configurations(jobs: Jobs, keys: Sequence[str]) -> Ints:
    """A number for each of `jobs.configs`; those that agree in all `keys` have the same."""
    seen: dict[tuple[object, ...], int] = {}
    return np.array([seen.setdefault(_values(config, keys), len(seen)) for config in jobs.configs], np.int64)


def config_keys(jobs: Jobs) -> ConfigKeys:
    """The configuration keys that tell jobs apart without telling hardware apart, alone and together."""
    names = sorted({key for config in jobs.configs for key in config})
    single = {name: _tied(jobs, (name,)) for name in names}
    alike: list[str] = []
    for name in sorted(names, key=lambda name: (single[name], name)):
        if _tied(jobs, (*alike, name)) <= TIED:
            alike.append(name)
    return ConfigKeys(tuple(sorted(alike)), tuple(name for name in names if name not in alike))


def _tied(jobs: Jobs, keys: Sequence[str]) -> float:
    """Share of the jobs whose values of `keys` occur on one hardware type only, though their model type ran on more."""
    config = configurations(jobs, keys)[jobs.config]
    group = jobs.model * (int(config.max(initial=0)) + 1) + config
    several = _types_by(jobs.model, jobs.hardware) > 1
    if not several.any():
        return 0.0
    return float((_types_by(group, jobs.hardware)[several] == 1).mean())


def _types_by(group: Ints, hardware: Ints) -> Ints:
    """For each job, on how many hardware types the jobs of its group ran."""
    _, number = np.unique(group, return_inverse=True)
    size = int(hardware.max(initial=0)) + 1
    pairs = np.unique(number * size + hardware)
    return np.bincount(pairs // size, minlength=int(number.max(initial=-1)) + 1)[number]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _float(value: object) -> float:
    """A number as a float; a whole number beyond all floats is infinite."""
    try:
        return float(value)  # type: ignore[arg-type]  # a number of a configuration
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def _values(config: Mapping[str, object], keys: Sequence[str]) -> tuple[object, ...]:
    # 1, 1.0 and True are equal in Python, but not the same configuration.
    return tuple((type(value).__name__, value) for value in map(config.get, keys))


def _bin(numbers: NDArray[np.float64]) -> Ints:
    positive = numbers > 0
    bins = np.full(len(numbers), _NONE, np.int64)
    bins[positive] = np.rint(np.log2(numbers[positive])).astype(np.int64)
    return bins


class Measured:
    """On which hardware types runs like a job were measured.

    A run is like a job if it has the same model type and configuration, and trainers and batch in the same bin or in
    the next (so about within a factor of two). Runs of other families count where there are `MIN_RUNS` of them. Where a
    job says what was eligible, they may have another configuration: that the job can run there is known then, and what
    configuration does to hardware is estimated.
    """

    def __init__(self, family: Ints, model: Ints, hardware: Ints, at: Conditions, hardware_count: int) -> None:
        """Columns of all runs; hardware types are numbered below `hardware_count`."""
        config = int(at.config.max(initial=0)) + 1
        self._of_family = _Near(family * config + at.config, at, hardware, hardware_count)
        self._of_model = _Near(model * config + at.config, at, hardware, hardware_count)
        self._of_any_config = _Near(model, at, hardware, hardware_count)

    def on(self, runs: Ints, eligible_known: Bools) -> Bools:
        """For each of the chosen runs, by hardware type: whether it was measured. Shape (runs, hardware types)."""
        found = (self._of_family.counts(runs) >= 1) | (self._of_model.counts(runs) >= MIN_RUNS)
        return found | (eligible_known[:, None] & (self._of_any_config.counts(runs) >= MIN_RUNS))


class _Near:
    """Counts of runs in a cell and its neighbours, by hardware type."""

    def __init__(self, group: Ints, at: Conditions, hardware: Ints, hardware_count: int) -> None:
        self._trainers, self._batch = at.trainers, at.batch
        _, self._group = np.unique(group, return_inverse=True)
        # Room for a neighbour on each side.
        self._low_trainers, self._low_batch = int(at.trainers.min(initial=0)) - 1, int(at.batch.min(initial=0)) - 1
        self._width = int(at.batch.max(initial=0)) - self._low_batch + 2
        self._height = int(at.trainers.max(initial=0)) - self._low_trainers + 2
        own = self._key(np.arange(len(group)), 0, 0)
        self._cells, number = np.unique(own, return_inverse=True)
        size = len(self._cells)
        self._counts = np.bincount(number * hardware_count + hardware, minlength=size * hardware_count)
        self._counts = self._counts.reshape(size, hardware_count)

    def _key(self, runs: Ints, trainers: int, batch: int) -> Ints:
        row = self._trainers[runs] + trainers - self._low_trainers
        column = self._batch[runs] + batch - self._low_batch
        return (self._group[runs] * self._height + row) * self._width + column

    def counts(self, runs: Ints) -> Ints:
        total = np.zeros((len(runs), self._counts.shape[1]), np.int64)
        if not len(self._cells):
            return total
        for trainers in (-1, 0, 1):
            for batch in (-1, 0, 1):
                key = self._key(runs, trainers, batch)
                place = np.minimum(np.searchsorted(self._cells, key), len(self._cells) - 1)
                total += np.where((self._cells[place] == key)[:, None], self._counts[place], 0)
        return total


class Failing:
    """On which hardware types jobs like a given one only fail, as for want of memory.

    A job needs no more memory than another of its model type and configuration that has no smaller batch and no more
    trainers; nor smaller numbers in its configuration, such as the length of a sequence. Where such a job succeeded on
    a type, the job fits. Where it is not known to fit, and a job that needs no more than it failed on the type, and is
    not known to fit either, it is taken to fail.

    Where a model type has such failures on a hardware type, in any configuration, a job of it is also taken to fail
    there if none succeeded that needs no less, their configurations aside but for numbers: what nobody tried, since it
    is known to fail, leaves no failures.
    """

    def __init__(self, jobs: Jobs, keys: Sequence[str]) -> None:
        """`keys`: configuration keys in which jobs agree to be alike."""
        failed = jobs.failures
        sized = [key for key in keys if all(_is_number(config.get(key, 0)) for config in jobs.configs)]
        config = configurations(jobs, [key for key in keys if key not in sized])
        numbers = [np.array([_float(config.get(key, 0)) for config in jobs.configs]) for key in sized]
        columns = (
            np.concatenate((jobs.model, failed.model)),
            np.concatenate((config[jobs.config], config[failed.config])),
            -np.concatenate((jobs.trainers, failed.trainers)),
            np.concatenate((jobs.batch, failed.batch)),
            *(np.concatenate((each[jobs.config], each[failed.config])) for each in numbers),
        )
        shapes, number = np.unique(np.stack(columns, axis=1).astype(np.float64), axis=0, return_inverse=True)
        number = number.reshape(-1)
        self._shape = number[: len(jobs)]
        types = len(jobs.hardware_types)
        size = len(shapes) * types
        at = number * types + np.concatenate((jobs.hardware, failed.hardware))
        succeeded = np.bincount(at[: len(jobs)], minlength=size).reshape(-1, types) > 0
        attempted = np.bincount(at[len(jobs) :], minlength=size).reshape(-1, types) > 0
        self._fails = np.zeros_like(succeeded)
        edges = np.flatnonzero(np.diff(shapes[:, 0], prepend=-1, append=np.inf))
        for begin, end in pairwise(edges):
            part = slice(int(begin), int(end))
            if attempted[part].any():
                self._fails[part] = _fails(shapes[part, 1:], succeeded[part], attempted[part])

    def on(self, jobs: Ints) -> Bools:
        """For each of the chosen jobs, by hardware type: whether it is taken to fail there."""
        return self._fails[self._shape[jobs]]


def _fails(shapes: NDArray[np.float64], succeeded: Bools, failed: Bools) -> Bools:
    """The rule of `Failing` for one model type; of very many shapes, those within a twelfth of each other are one.

    Args and result are those of `_fails_exactly`.
    """
    if len(shapes) <= _MOST_SHAPES:
        return _fails_exactly(shapes, succeeded, failed)
    coarse = shapes.copy()
    coarse[:, 1:] = np.round(8 * np.sign(shapes[:, 1:]) * np.log2(1 + np.abs(shapes[:, 1:])))
    merged, number = np.unique(coarse, axis=0, return_inverse=True)
    number = number.reshape(-1)
    either = np.zeros((2, len(merged), succeeded.shape[1]), bool)
    for place, of_shape in enumerate((succeeded, failed)):
        np.logical_or.at(either[place], number, of_shape)
    return _fails_exactly(merged, *either)[number]


def _fails_exactly(shapes: NDArray[np.float64], succeeded: Bools, failed: Bools) -> Bools:
    """The rule of `Failing`, shape by shape; time and memory grow with the square of their number.

    Args:
        shapes: of each shape of job its configuration, and numbers with each of which the need of memory grows.
        succeeded, failed: by shape and hardware type, whether any such job did.
    """
    config, *needs = shapes.T
    # [i, j]: j needs no less memory than i, their configurations aside.
    no_less = np.logical_and.reduce([need[None, :] >= need[:, None] for need in needs])
    alike = no_less & (config[None, :] == config[:, None])
    suspect = failed & ~_any(alike, succeeded)
    fails = ~_any(alike, succeeded) & _any(alike.T, suspect)
    unproven: Bools = ~_any(no_less, succeeded) & suspect.any(axis=0)
    return fails | unproven


def _any(related: Bools, true: Bools) -> Bools:
    """Whether `true` holds for any related one, by column."""
    return (related.astype(np.float32) @ true.astype(np.float32)) > 0
