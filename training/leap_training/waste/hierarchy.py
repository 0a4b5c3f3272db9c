"""The logarithm of what jobs gave per dollar, taken apart into what the job is and what hardware does to it.

For one model type, the logarithm of the value of run i, of family f and condition c (configuration, batch, trainers,
readers) on hardware type h, at time t, is

    y = [origin + trainers + batch + config + readers]            what all families of the model type have in common
      + [family + family·condition + family·time]                 what the job is, the same on all hardware
      + [h + h·trainers + h·batch + h·config + h·readers]         what hardware does to the model type
      + [speed(h)·family + speed(h)·family·condition]             how much the family gains from faster hardware
      + [h·family + h·family·condition]                           what hardware does to the family otherwise
      + noise (Student's t of 4 degrees of freedom)

The speed of a hardware type is the logarithm of what a trainer of it achieves for the model type, about its mean: a
family that waits for its input gains less from speed than others, on all hardware at once.

Every bracketed term is a random effect: a normal deviation of mean 0, whose variance is learnt from all model types
together (then, weakly, from the model type itself). So families that ran often on a hardware type speak for themselves,
and the others are drawn towards their model type, as far as the data says that families resemble each other.

Given the variances, all effects of a model type are jointly normal. They are not fixed at their best values but drawn
from that distribution; what is computed on each draw has the uncertainty of all of them in it, with that of a maximum
over noisy values. Families are independent given what they share, so the equations are solved family by family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CONDITIONS: Final = ("trainers", "batch", "config", "readers")
BLOCK_DAYS: Final = (256, 64, 16, 4, 1)
"""A family's changes over time are sums of steps from block to block, of these lengths in days: slow ones are shared by
the finer blocks below them."""

LEVELS: Final = (
    "origin",
    *CONDITIONS,
    "hardware",
    *(f"hardware·{name}" for name in CONDITIONS),
    "family",
    "family·condition",
    *(f"family·{days} days" for days in BLOCK_DAYS),
    "speed·family",
    "speed·family·condition",
    "hardware·family",
    "hardware·family·condition",
)
"""Kinds of effects; each has a variance of its own."""

_ORIGIN: Final = 0
_CONDITION: Final = 1
_HARDWARE: Final = 1 + len(CONDITIONS)
_HARDWARE_CONDITION: Final = _HARDWARE + 1
_FAMILY: Final = _HARDWARE_CONDITION + len(CONDITIONS)
_CELL: Final = _FAMILY + 1
_TIME: Final = _CELL + 1
_FAMILY_SPEED: Final = _TIME + len(BLOCK_DAYS)
_CELL_SPEED: Final = _FAMILY_SPEED + 1
_FAMILY_HARDWARE: Final = _CELL_SPEED + 1
_CELL_HARDWARE: Final = _FAMILY_HARDWARE + 1

_FIRST_GUESS: Final[Floats] = np.array(
    [3.0, *([0.5] * 4), 0.5, *([0.1] * 4), 0.5, 0.2, *([0.05] * 5), 0.2, 0.05, 0.1, 0.05], dtype=np.float64
)
"""Standard deviations to begin with, of the logarithm, by level."""
_GUESS_WEIGHT: Final = 4.0
"""How many effects of its level a first guess counts for: it decides only where the data says nothing."""
_MODEL_WEIGHT: Final = 10.0
"""How many effects the variance over all model types counts for beside those of one model type."""
_CAUTION: Final = 0.2
"""Share of the effects of a level by which the old variance holds back the new one."""
_NOISE_GUESS: Final = 0.1
TAIL: Final = 4.0
"""Degrees of freedom of the noise: single runs far off the others count little."""
FAMILY_TAIL: Final = 6.0
"""Degrees of freedom of what hardware does to families: most are like their model type, some are not at all."""
_DRAWS_AT_ONCE: Final = 40
"""Draws that share the weights of runs and the scales of families, which are drawn too."""
_BATCH_NUMBERS: Final = 2_000_000
"""Numbers that the equations of one batch of families hold at most, about."""
_MOST_COLUMNS: Final = 300
"""Effects of one level of one family that are told apart, the ones with most runs first; bounds time and memory."""


class Variances(NamedTuple):
    """Variances of the effects, by level, and of the noise."""

    effects: Floats
    noise: float


class Runs(NamedTuple):
    """Runs of one model type, sorted by family, then by condition.

    Families, hardware and conditions are small whole numbers from 0 on, cells any.
    """

    y: Floats
    """Logarithm of the value."""
    family: Ints
    """From 0 on, without gaps, in ascending order."""
    cell: Ints
    """The condition as one number; runs of equal conditions have the same."""
    conditions: Ints
    """Shape (n, 4): number of the run's trainers, batch, config and readers among those of the model type."""
    hardware: Ints
    day: Floats
    """Days since any fixed instant."""
    log_price: Floats
    """By hardware type: logarithm of what an hour of one trainer costs."""


class _Kind(NamedTuple):
    """The effects of one level that belong to families, sorted by family."""

    level: int
    family: Ints
    """Of each effect."""
    key: Ints
    """What the effect belongs to within its family."""
    of_run: Ints
    """The effect of each run; -1 for none."""
    by_speed: bool = False
    """Whether the effect counts times the speed of the run's hardware."""


class _Batch(NamedTuple):
    """Families whose equations are solved at once, padded to equal size."""

    families: Ints
    own: int
    """Effects of each, padding included."""
    shared: Ints
    """Shape (families, …): the shared effects that its runs have; padded with the number of shared effects."""
    runs: Ints
    inside: NDArray[np.bool_]
    """Shape (runs, terms): whether the run has an effect there."""
    gram: Ints
    """Where the products of each pair of a run's own effects go, flat; a run without one of them has none."""
    cross: Ints
    """The same for its own and its shared effects."""
    moment: Ints
    """The same for its own effects alone."""
    effects: Ints
    """Shape (families, own): number of each effect among those of all families; padded with their number."""


@dataclass(frozen=True)
class Design:
    """Which effects the runs of one model type have."""

    runs: Runs
    hardware_count: int
    condition_counts: tuple[int, ...]
    columns: Ints
    """Shape (n, terms): the shared effects of each run."""
    level: Ints
    """Level of each shared effect."""
    hardware_at: int
    hardware_condition_at: tuple[int | None, ...]
    """Where the effects hardware × condition begin (hardware-major); None where all runs have one condition."""
    own_columns: Ints
    """Shape (n, terms): the effects of each run among those of all families; their number for none."""
    own_level: Ints
    own_family: Ints
    by_speed: NDArray[np.bool_]
    """Which terms count times the speed of the run's hardware."""
    family_speed: Ints
    """Number of each family's effect."""
    cell_speed: tuple[Ints, Ints]
    """Position in `cells` and number of each such effect."""
    cells: Ints
    """Of each family and condition of it that occurs, the first run; sorted by family."""
    family_hardware: tuple[Ints, Ints, Ints]
    """Family, hardware type and number of each such effect."""
    cell_hardware: tuple[Ints, Ints, Ints]
    """Position in `cells`, hardware type and number of each such effect."""
    batches: tuple[_Batch, ...]


def design(runs: Runs, hardware_count: int) -> Design:
    """Lay out the effects of the runs of a model type (at least one)."""
    count = len(runs.y)
    condition_counts = tuple(int(column.max()) + 1 for column in runs.conditions.T)
    columns = [np.zeros(count, np.int64)]
    level = [_ORIGIN]
    for at, size in enumerate(condition_counts):
        if size > 1:
            columns.append(len(level) + runs.conditions[:, at])
            level += [_CONDITION + at] * size
    hardware_at = len(level)
    columns.append(hardware_at + runs.hardware)
    level += [_HARDWARE] * hardware_count
    begins: list[int | None] = []
    for at, size in enumerate(condition_counts):
        begins.append(len(level) if size > 1 else None)
        if size > 1:
            columns.append(len(level) + runs.hardware * size + runs.conditions[:, at])
            level += [_HARDWARE_CONDITION + at] * (hardware_count * size)
    shared_columns = np.stack(columns, axis=1)

    cell_keys, cell = np.unique(_pair(runs.family, runs.cell), return_inverse=True)
    kinds = _own_effects(runs, cell, hardware_count)
    offsets = np.cumsum([0, *(len(kind.family) for kind in kinds)])
    own_count = int(offsets[-1])
    own_columns = np.stack(
        [np.where(kind.of_run < 0, own_count, kind.of_run + at) for kind, at in zip(kinds, offsets, strict=False)],
        axis=1,
    )
    *_, by_speed, by_cell_speed, on_family, on_cell = kinds
    return Design(
        runs,
        hardware_count,
        condition_counts,
        shared_columns,
        np.array(level, np.int64),
        hardware_at,
        tuple(begins),
        own_columns,
        np.repeat([kind.level for kind in kinds], [len(kind.family) for kind in kinds]),
        np.concatenate([kind.family for kind in kinds]),
        np.array([kind.by_speed for kind in kinds]),
        int(offsets[-5]) + np.arange(len(by_speed.key)),
        (by_cell_speed.key, int(offsets[-4]) + np.arange(len(by_cell_speed.key))),
        np.unique(cell, return_index=True)[1] if len(cell_keys) else np.zeros(0, np.int64),
        (on_family.family, on_family.key, int(offsets[-3]) + np.arange(len(on_family.key))),
        (*np.divmod(on_cell.key, hardware_count), int(offsets[-2]) + np.arange(len(on_cell.key))),
        tuple(_batches(runs.family, kinds, offsets, shared_columns, len(level))),
    )


def _own_effects(runs: Runs, cell: Ints, hardware_count: int) -> list[_Kind]:
    """The effects of families; the last four kinds are those of speed and hardware.

    `cell` numbers the pairs of family and condition.
    """
    family = runs.family
    families = int(family[-1]) + 1
    kinds = [_Kind(_FAMILY, np.arange(families), np.zeros(families, np.int64), family)]
    of_cell = _kind(_CELL, family, cell)
    several = np.bincount(of_cell.family, minlength=families) > 1
    kinds.append(_chosen(of_cell, several[of_cell.family]))
    before = np.ones(families, np.int64)
    for at, length in enumerate(BLOCK_DAYS):
        block = np.floor_divide(runs.day, length).astype(np.int64)
        of_block = _kind(_TIME + at, family, block - block.min())
        blocks = np.bincount(of_block.family, minlength=families)
        finer = blocks > before
        kinds.append(_chosen(of_block, finer[of_block.family]))
        before = np.where(finer, blocks, before)
    kinds.append(kinds[0]._replace(level=_FAMILY_SPEED, by_speed=True))
    kinds.append(kinds[1]._replace(level=_CELL_SPEED, by_speed=True))
    kinds.append(_kind(_FAMILY_HARDWARE, family, runs.hardware))
    kinds.append(_kind(_CELL_HARDWARE, family, cell * hardware_count + runs.hardware))
    return kinds


def _kind(level: int, family: Ints, key: Ints) -> _Kind:
    width = int(key.max()) + 1
    found, of_run, count = np.unique(family * width + key, return_inverse=True, return_counts=True)
    kind = _Kind(level, found // width, found % width, of_run)
    if np.bincount(kind.family).max() <= _MOST_COLUMNS:
        return kind
    order = np.lexsort((-count, kind.family))
    begins = np.searchsorted(kind.family[order], kind.family[order])
    common = np.zeros(len(found), bool)
    common[order] = np.arange(len(found)) - begins < _MOST_COLUMNS
    return _chosen(kind, common)


def _chosen(kind: _Kind, keep: NDArray[np.bool_]) -> _Kind:
    """The effects to keep; runs with another one have none."""
    number = np.where(keep, np.cumsum(keep) - 1, -1)
    return kind._replace(family=kind.family[keep], key=kind.key[keep], of_run=number[kind.of_run])


def _batches(
    family: Ints, kinds: Sequence[_Kind], offsets: Ints, shared_columns: Ints, shared_count: int
) -> Iterator[_Batch]:
    families = int(family[-1]) + 1
    sizes = np.stack([np.bincount(kind.family, minlength=families) for kind in kinds])
    begins = np.cumsum(sizes, axis=0) - sizes
    firsts = np.cumsum(sizes, axis=1) - sizes
    # Number of each effect within its family.
    local = [np.arange(len(k.family)) - firsts[at, k.family] + begins[at, k.family] for at, k in enumerate(kinds)]
    own_of_run = np.stack(
        [np.where(k.of_run < 0, -1, np.append(place, 0)[k.of_run]) for k, place in zip(kinds, local, strict=True)],
        axis=1,
    )
    pairs, of_pair = np.unique((family[:, None] * shared_count + shared_columns).ravel(), return_inverse=True)
    pair_family = pairs // shared_count
    shared_sizes = np.bincount(pair_family, minlength=families)
    shared_firsts = np.cumsum(shared_sizes) - shared_sizes
    shared_of_run = (of_pair - shared_firsts[pair_family[of_pair]]).reshape(shared_columns.shape)
    edges = np.searchsorted(family, np.arange(families + 1))
    padded = _padded(sizes.sum(axis=0))
    order = np.lexsort((shared_sizes, padded))
    begin = 0
    while begin < families:
        own = int(padded[order[begin]])
        most = max(1, _BATCH_NUMBERS // (own * (own + 300)))
        chosen = order[begin : begin + most]
        chosen = chosen[padded[chosen] == own]
        begin += len(chosen)
        width = int(shared_sizes[chosen].max())
        place = np.full(families, -1, np.int64)
        place[chosen] = np.arange(len(chosen))
        rows = np.concatenate([np.arange(edges[f], edges[f + 1]) for f in chosen])
        at = place[family[rows]][:, None]
        mine, theirs = own_of_run[rows], shared_of_run[rows]
        inside = mine >= 0
        both = inside[:, :, None] & inside[:, None, :]
        gram = ((at * own + mine)[:, :, None] * own + mine[:, None, :])[both]
        cross = ((at * own + mine)[:, :, None] * width + theirs[:, None, :])[inside].ravel()
        shared = np.full((len(chosen), width), shared_count, np.int64)
        mask = place[pair_family] >= 0
        where = np.arange(len(pairs)) - shared_firsts[pair_family]
        shared[place[pair_family[mask]], where[mask]] = pairs[mask] % shared_count
        effects = np.full((len(chosen), own), int(offsets[-1]), np.int64)
        for kind, number, first in zip(kinds, local, offsets, strict=False):
            mask = place[kind.family] >= 0
            effects[place[kind.family[mask]], number[mask]] = first + np.flatnonzero(mask)
        yield _Batch(
            chosen,
            own,
            shared,
            rows,
            inside,
            gram,
            cross,
            (at * own + mine)[inside],
            effects,
        )


def _padded(sizes: Ints) -> Ints:
    """Sizes rounded up to the next of a few, no more than about a fifth above."""
    step = 2 ** np.maximum(2, np.floor(np.log2(sizes)).astype(np.int64) - 2)
    padded: Ints = -(-sizes // step) * step
    return padded


def _pair(one: Ints, other: Ints) -> Ints:
    return one * (int(other.max()) + 1) + other


class Draws(NamedTuple):
    """Effects of one model type: in column 0 their mean, then draws of them."""

    shared: Floats
    own: Floats
    """Of all families, and a row of zeros at the end."""


class Fit:
    """The effects of one model type, drawn given the variances and the weights of the runs.

    Attributes:
        weights: how much each run counts (1: as under normal noise of the same spread).
        scales: by family, by what the variances of what hardware does to it are divided.
        variances: of this model type.
    """

    def __init__(self, design: Design, variances: Variances, random: np.random.Generator) -> None:
        self.design = design
        self.variances = variances
        self.weights: Floats = np.ones(len(design.runs.y))
        self.scales: Floats = np.ones(int(design.runs.family[-1]) + 1)
        self._of_hardware = design.own_level >= _FAMILY_SPEED
        self._random = random
        self._y = design.runs.y - float(np.median(design.runs.y))
        self._speed = self._centred(design.runs.log_price)

    def draw(self, draws: int) -> Draws:
        """Solve for the effects: the families' are eliminated first, batch by batch, then put back."""
        layout, random = self.design, self._random
        precision = self.weights / self.variances.noise
        weighted = precision * self._y
        prior = 1.0 / self.variances.effects
        size, terms = len(layout.level), layout.columns.shape[1]
        pairs = (layout.columns[:, :, None] * size + layout.columns[:, None, :]).ravel()
        left = _summed(pairs, np.repeat(precision, terms * terms), size * size).reshape(size, size)
        left[np.diag_indices(size)] += prior[layout.level]
        left = np.pad(left, (0, 1))  # a place for what pads the batches
        right = _summed(layout.columns.ravel(), np.repeat(weighted, terms), size + 1)
        prior_own = np.append(prior[layout.own_level] * self._own_scales(), 1.0)
        solved = []
        loading = self._loading()
        for batch in layout.batches:
            rows, inside = batch.runs, batch.inside
            load = loading[rows]
            here = precision[rows, None] * load
            count, own, width = len(batch.families), batch.own, batch.shared.shape[1]
            products = (here[:, :, None] * load[:, None, :])[inside[:, :, None] & inside[:, None, :]]
            inner = np.bincount(batch.gram, products, count * own * own).reshape(count, own, own)
            diagonal = np.arange(own)
            inner[:, diagonal, diagonal] += prior_own[batch.effects]
            known = np.empty((count, own, width + 1 + draws))
            products = np.repeat(here[inside], terms)
            known[:, :, :width] = np.bincount(batch.cross, products, count * own * width).reshape(count, own, width)
            products = (load * weighted[rows, None])[inside]
            known[:, :, width] = np.bincount(batch.moment, products, count * own).reshape(count, own)
            known[:, :, width + 1 :] = np.linalg.cholesky(inner) @ random.standard_normal((count, own, draws))
            answer = np.linalg.solve(inner, known)
            carried = known[:, :, :width].transpose(0, 2, 1) @ answer[:, :, : width + 1]
            places = batch.shared[:, :, None] * (size + 1) + batch.shared[:, None, :]
            left -= np.bincount(places.ravel(), carried[:, :, :width].ravel(), left.size).reshape(left.shape)
            right -= np.bincount(batch.shared.ravel(), carried[:, :, width].ravel(), size + 1)
            solved.append(answer)
        left, right = left[:size, :size], right[:size]
        spread = np.linalg.cholesky(left) @ random.standard_normal((size, draws))
        shared = np.linalg.solve(left, np.concatenate((right[:, None], spread), axis=1)).astype(np.float64, copy=False)
        shared[:, 1:] += shared[:, :1]
        padded = np.concatenate((shared, np.zeros((1, 1 + draws))))
        found = np.zeros((len(layout.own_level) + 1, 1 + draws))
        for batch, answer in zip(layout.batches, solved, strict=True):
            width = batch.shared.shape[1]
            mean = answer[:, :, width : width + 1] - answer[:, :, :width] @ padded[batch.shared]
            mean[:, :, 1:] += answer[:, :, width + 1 :]
            found[batch.effects] = mean
        found[-1] = 0.0
        return Draws(shared, found)

    def improve(self, pooled: Variances, draws: int = 4) -> Moments:
        """Weigh the runs anew, by how far off they are, and adapt the variances to this model type.

        Returns what its effects say about the variances.
        """
        layout = self.design
        found = self.draw(draws)
        residuals, deviations = self._squares(found)
        squares = residuals.mean(axis=1)
        self.weights = (TAIL + 1) / (TAIL + squares / self.variances.noise)
        self.scales = (FAMILY_TAIL + self._effects_of_hardware()) / (FAMILY_TAIL + deviations.mean(axis=1))
        level = np.concatenate((layout.level, layout.own_level))
        both = np.concatenate((found.shared, found.own[:-1]))
        scale = np.concatenate((np.ones(len(layout.level)), self._own_scales()))
        spread = scale * np.square(both[:, 1:] - both[:, :1]).mean(axis=1) / self.variances.effects[level]
        size = len(LEVELS)
        count = np.bincount(level, minlength=size).astype(np.float64)
        moments = Moments(
            _summed(level, scale * both[:, 0] ** 2, size),
            count,
            count - _summed(level, spread, size),
            float((self.weights * squares).sum()),
            len(squares),
        )
        self.variances = _updated(pooled, moments, self.variances, _MODEL_WEIGHT)
        hardware = found.shared[layout.hardware_at : layout.hardware_at + layout.hardware_count, 0]
        self._speed = self._centred(hardware + layout.runs.log_price)
        return moments

    def _redraw_tails(self, found: Draws) -> None:
        """Draw the weights of runs and the scales of families given the last of the draws (Gibbs)."""
        residuals, deviations = self._squares(Draws(found.shared[:, -2:], found.own[:, -2:]))
        rate = (TAIL + residuals[:, 0] / self.variances.noise) / 2
        self.weights = self._random.standard_gamma((TAIL + 1) / 2, len(rate)) / rate
        shape = (FAMILY_TAIL + self._effects_of_hardware()) / 2
        self.scales = self._random.standard_gamma(shape) / ((FAMILY_TAIL + deviations[:, 0]) / 2)

    def _squares(self, found: Draws) -> tuple[Floats, Floats]:
        """By draw: the squared residual of each run, and how far off what hardware does to each family is.

        The latter is a sum of squares, each divided by its variance.
        """
        layout = self.design
        fitted = _sum_of(found.shared, layout.columns) + _sum_of(found.own, layout.own_columns, self._loading())
        chosen = self._of_hardware
        family = layout.own_family[chosen]
        squares = np.square(found.own[:-1, 1:][chosen]) / self.variances.effects[layout.own_level[chosen], None]
        draws = squares.shape[1]
        places = (family[:, None] * draws + np.arange(draws)).ravel()
        deviations = _summed(places, squares.ravel(), len(self.scales) * draws).reshape(-1, draws)
        return np.square(self._y[:, None] - fitted[:, 1:]), deviations

    def _effects_of_hardware(self) -> Ints:
        """How many effects of hardware each family has."""
        return np.bincount(self.design.own_family[self._of_hardware], minlength=len(self.scales))

    def _own_scales(self) -> Floats:
        return np.where(self._of_hardware, self.scales[self.design.own_family], 1.0)

    def _centred(self, speed: Floats) -> Floats:
        """Speed by hardware type, about its mean over the runs."""
        centred: Floats = speed - speed[self.design.runs.hardware].mean()
        return centred

    def _loading(self) -> Floats:
        """What each effect of each run counts times, shape (runs, terms)."""
        layout = self.design
        return np.where(layout.by_speed, self._speed[layout.runs.hardware][:, None], 1.0)

    def relative(self, draws: int, cells_at_once: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Draws of what hardware does under each condition of each family.

        Slices of `design.cells`, and the logarithm of the value up to what is the same on all hardware, shape (cells,
        hardware types, draws).

        Effects that no run has, such as those of a hardware type that the family never ran on, are drawn from what is
        known of their level.
        """
        layout, random, kinds = self.design, self._random, self.design.hardware_count
        parts, scales = [], []
        for begin in range(0, draws, _DRAWS_AT_ONCE):
            parts.append(self.draw(min(_DRAWS_AT_ONCE, draws - begin)))
            scales.append(np.repeat(self.scales[:, None], parts[-1].shared.shape[1] - 1, axis=1))
            self._redraw_tails(parts[-1])
        found = Draws(
            np.concatenate([part.shared[:, 1:] for part in parts], axis=1),
            np.concatenate([part.own[:, 1:] for part in parts], axis=1),
        )
        spread = (1 / np.sqrt(np.concatenate(scales, axis=1))).astype(np.float32)
        deviation = np.sqrt(self.variances.effects).astype(np.float32)
        hardware = found.shared[layout.hardware_at : layout.hardware_at + kinds].astype(np.float32)
        speed = self._speed.astype(np.float32)
        by_condition: list[tuple[int, NDArray[np.float32]]] = []
        for at, (first, size) in enumerate(zip(layout.hardware_condition_at, layout.condition_counts, strict=True)):
            if first is not None:
                effects = found.shared[first : first + kinds * size].astype(np.float32)
                by_condition.append((at, effects.reshape(kinds, size, draws).transpose(1, 0, 2)))
        family = layout.runs.family[layout.cells]
        condition = layout.runs.conditions[layout.cells]
        begin = 0
        while begin < len(family):
            # Whole families, whose cells have its effects in common.
            end = int(np.searchsorted(family, family[min(begin + cells_at_once, len(family)) - 1], side="right"))
            low, high = int(family[begin]), int(family[end - 1]) + 1
            mine = random.standard_normal((high - low, kinds, draws), np.float32)
            mine *= deviation[_FAMILY_HARDWARE] * spread[low:high, None]
            of_family, of_type, number = layout.family_hardware
            part = (of_family >= low) & (of_family < high)
            mine[of_family[part] - low, of_type[part]] = found.own[number[part]]
            mine += speed[:, None] * found.own[layout.family_speed[low:high], None].astype(np.float32)
            relative = random.standard_normal((end - begin, kinds, draws), np.float32)
            relative *= deviation[_CELL_HARDWARE] * spread[family[begin:end], None]
            of_cell, of_type, number = layout.cell_hardware
            part = (of_cell >= begin) & (of_cell < end)
            relative[of_cell[part] - begin, of_type[part]] = found.own[number[part]]
            relative += mine[family[begin:end] - low] + hardware
            of_cell, number = layout.cell_speed
            part = (of_cell >= begin) & (of_cell < end)
            relative[of_cell[part] - begin] += speed[:, None] * found.own[number[part], None].astype(np.float32)
            for at, table in by_condition:
                relative += table[condition[begin:end, at]]
            yield slice(begin, end), relative
            begin = end


class Moments(NamedTuple):
    """What effects say about the variances: sums over them, which may be added over model types."""

    squares: Floats
    """By level: sum of the squared means."""
    effects: Floats
    """By level: how many there are."""
    determined: Floats
    """By level: how many of them the data determines (MacKay's γ), as estimated from few draws."""
    noise_squares: float
    runs: int


def learn(designs: Sequence[Design], random: np.random.Generator, rounds: int = 12) -> Variances:
    """The variances that explain the runs of some model types best (empirical Bayes)."""
    pooled = Variances(_FIRST_GUESS**2, _NOISE_GUESS**2)
    fits = [Fit(layout, pooled, random) for layout in designs]
    for _ in range(rounds):
        found = []
        for fit in fits:
            fit.variances = pooled
            found.append(fit.improve(pooled))
        total = Moments(
            np.sum([m.squares for m in found], axis=0),
            np.sum([m.effects for m in found], axis=0),
            np.sum([m.determined for m in found], axis=0),
            sum(m.noise_squares for m in found),
            sum(m.runs for m in found),
        )
        pooled = _updated(Variances(_FIRST_GUESS**2, _NOISE_GUESS**2), total, pooled, _GUESS_WEIGHT)
    return pooled


def _updated(prior: Variances, found: Moments, current: Variances, weight: float) -> Variances:
    """The variances after `found`, where `prior` counts as `weight` effects. The origin's is not learnt.

    Between the steps of expectation-maximisation, which are slow where the data determines little, and MacKay's, which
    follow the noise of few draws there; both come to rest at the same variances.
    """
    held = _CAUTION * found.effects
    determined = np.clip(found.determined, 0.0, found.effects)
    effects = (found.squares + held * current.effects + weight * prior.effects) / (determined + held + weight)
    # No step is longer than a factor of 10, and no level vanishes: a variance of 0 could never grow again.
    effects = np.clip(effects, np.maximum(current.effects / 10, 1e-6), current.effects * 10)
    effects[_ORIGIN] = prior.effects[_ORIGIN]
    noise = (found.noise_squares + weight * prior.noise) / (found.runs + weight)
    return Variances(effects, max(noise, 1e-6))


def _summed(places: Ints, numbers: Floats, size: int) -> Floats:
    """Sums of the numbers at each of `size` places."""
    return np.bincount(places, numbers, size).astype(np.float64, copy=False)


def _sum_of(effects: Floats, columns: Ints, loading: Floats | None = None) -> Floats:
    """Sum of each run's effects, each times its loading, shape (runs, 1 + draws)."""
    total: Floats = np.zeros((len(columns), effects.shape[1]))
    for at, column in enumerate(columns.T):
        total += effects[column] if loading is None else effects[column] * loading[:, at, None]
    return total
