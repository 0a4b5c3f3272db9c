"""Measures waste: what share of their cost jobs would have saved on the hardware that gives jobs like them most value.

`docs/waste.md` explains the method. Pure: jobs in, figures out; the same jobs give the same figures, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leap_features.events import from_us
from leap_features.hardware import Catalogue
from leap_training.waste.hierarchy import Design, Fit, Runs, Variances, design, learn
from leap_training.waste.jobs import Jobs
from leap_training.waste.likeness import Conditions, ConfigKeys, Failing, Measured, conditions, config_keys
from leap_training.waste.report import BestValue, Share, WasteLine, WasteReport

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MIN_OVERLAP: Final = 5
"""Jobs that a figure needs which had a choice between hardware types on which similar jobs were measured."""
_LEARN_RUNS: Final = 100_000
"""Runs from which the variances are learnt; more would not change them."""
_LEARN_RUNS_OF_MODEL: Final = 8_000
_MOST_VALUES: Final = 24
"""Values of a condition that a model type tells apart beyond its families; bounds time and memory."""
_ROUNDS: Final = 2
"""Rounds of weighing the runs of a model type anew, once the variances are known."""
_WIDENED: Final = 1.3
"""Factor by which intervals are wider than the draws say. Effects are not quite normal, and jobs are not placed quite
at random among hardware: on synthetic fleets, where the truth is known, intervals as drawn hold it too seldom."""
_AT_ONCE: Final = 4_000_000
"""Numbers held at once while draws are evaluated."""
_US_PER_DAY: Final = 86_400_000_000


class NothingToMeasure(ValueError):
    """No job can be measured; the message says why and what to do."""


_FEW_ON_SEVERAL: Final = 0.25
"""Share of jobs of families on two hardware types or more, below which a note says what the figure rests on."""
_MOST_HOURS: Final = 100_000.0
"""Hours, some eleven years, beyond which no run is believed to have lasted."""


class Options(NamedTuple):
    """How waste is measured."""

    confidence: float = 0.90
    margin: float = 0.05
    draws: int = 200
    seed: int = 0
    config_keys: tuple[str, ...] | None = None
    """Configuration keys in which jobs must agree to be alike; None: those that do not go along with hardware."""


@dataclass(frozen=True)
class Measurement:
    """A report and, for judging it, what it compared. Arrays have an entry per job, in the order of the jobs."""

    report: WasteReport
    compared: Bools
    candidates: Bools
    """Shape (jobs, hardware types): what each job was compared over, its own hardware included."""
    cost: Floats
    """What each job cost; NaN without a price."""


class _Found(NamedTuple):
    """What the draws say about one model type; hardware types are those of all jobs."""

    lost: Floats
    """Cost that the best hardware would have saved, by hardware type used and draw."""
    sure: Floats
    """Cost that the hardware which is best by the mean over all draws would have saved, likewise; may be below 0."""
    misplaced: Floats
    """Cost of the jobs below the best by more than the margin, likewise."""
    best: Floats
    """Jobs with overlap for which each hardware type was best, by draw."""
    judged: Ints
    """Jobs with overlap that each hardware type was a candidate for."""
    compared: Bools
    """For each run of the model type: whether it had such a choice, or none at all."""
    overlap: Bools
    """For each run of the model type: whether it had such a choice."""
    candidates: Bools
    """For each run of the model type, by hardware type."""


def measure(
    jobs: Jobs,
    catalogue: Catalogue,
    source: str,
    options: Options = Options(),  # noqa: B008  # immutable
    progress: Callable[[int], None] = lambda _jobs: None,
) -> Measurement:
    """The waste in `jobs`, at the prices of `catalogue`.

    Args:
        source: where the jobs came from, for the report.
        progress: is told how many more jobs are done.

    Raises:
        NothingToMeasure: no job succeeded, or none has a price.
    """
    price = prices(jobs, catalogue)
    priced_types = ~np.isnan(price)
    priced = priced_types[jobs.hardware]
    if not len(jobs):
        counts = ", ".join(f"{count:,} {reason}" for reason, count in jobs.left_out.items()) or "no attempts"
        raise NothingToMeasure(f"{source}: only attempts that succeeded can be measured, got {counts}")
    if not priced.any():
        raise NothingToMeasure(
            f"{source}: no hardware type of these jobs has a price in the catalogue, got "
            f"{', '.join(jobs.hardware_types[:5])}: give prices with --costs"
        )
    keys = config_keys(jobs) if options.config_keys is None else ConfigKeys(options.config_keys, ())
    cost, cost_notes = _costs(jobs, price)
    order = np.flatnonzero(priced)
    at = conditions(jobs, keys.alike)
    log_price = np.log(np.where(priced_types, price, 1.0))
    y = np.log(jobs.throughput) - np.log(jobs.trainers) - log_price[jobs.hardware]
    cell = _cells(at)
    order = order[
        np.lexsort(
            [
                column[order]
                for column in (cost, y, jobs.completed_us, jobs.eligible, jobs.hardware, cell, jobs.family, jobs.model)
            ]
        )
    ]
    at = Conditions(*(column[order] for column in at))
    types = len(jobs.hardware_types)
    data = _Sorted(
        jobs.model[order],
        jobs.family[order],
        cell[order],
        np.stack([_ranks(column) for column in at], axis=1),
        jobs.hardware[order],
        y[order],
        (jobs.completed_us[order] - jobs.completed_us.min()) / _US_PER_DAY,
        log_price,
        cost[order],
        jobs.eligible[order],
        Measured(jobs.family[order], jobs.model[order], jobs.hardware[order], at, types),
        _eligible_matrix(jobs, types),
        np.array([bool(members) for members in jobs.eligible_sets], bool),
        (_first_us(jobs) - jobs.completed_us.min()) / _US_PER_DAY,
        Failing(jobs, keys.alike).on(order),
    )
    edges = np.searchsorted(data.model, np.arange(len(jobs.models) + 1))
    slices = {m: slice(int(a), int(b)) for m, (a, b) in enumerate(pairwise(edges)) if b > a}
    variances = learn(_to_learn_from(data, slices, options.seed), np.random.default_rng([options.seed, 0]))
    compared, candidates = np.zeros(len(jobs), bool), np.zeros((len(jobs), types), bool)
    lines = _Lines(jobs, options)
    for number, rows in slices.items():
        found = _measure_model(data, rows, variances, options, np.random.default_rng([options.seed, 1, number]))
        lines.add(number, data.hardware[rows], data.cost[rows], found)
        compared[order[rows]], candidates[order[rows]] = found.compared, found.candidates
        progress(rows.stop - rows.start)
    report = WasteReport(
        source=source,
        begin=from_us(int(jobs.completed_us[order].min())),
        end=from_us(int(jobs.completed_us[order].max())),
        confidence=options.confidence,
        margin=options.margin,
        total=lines.total(),
        by_model=lines.by_model,
        by_hardware=lines.by_hardware(),
        by_model_hardware=lines.by_model_hardware,
        best=lines.best,
        notes=[*_notes(jobs, priced, keys, compared), *cost_notes],
        weights=bool((jobs.device_hours[priced] <= 0).all()),
    )
    return Measurement(report, compared, candidates, np.where(priced, cost, np.nan))


class _Sorted(NamedTuple):
    """Columns of the priced jobs, sorted by model type and family."""

    model: Ints
    family: Ints
    cell: Ints
    conditions: Ints
    hardware: Ints
    y: Floats
    day: Floats
    log_price: Floats
    """By hardware type."""
    cost: Floats
    eligible: Ints
    measured: Measured
    eligible_types: Bools
    """By eligible set: whether each hardware type is in it; an empty set has all."""
    eligible_known: Bools
    """By eligible set: whether it says anything."""
    first_day: Floats
    """By hardware type: when its first job completed."""
    fails: Bools
    """Shape (jobs, hardware types): where jobs like it only fail."""

    def runs(self, rows: slice | Ints) -> tuple[Runs, Ints]:
        """The runs of one model type for `hierarchy`, and the hardware types that they ran on, in order."""
        types, hardware = np.unique(self.hardware[rows], return_inverse=True)
        own = np.stack([_commonest(column) for column in self.conditions[rows].T], axis=1)
        family, cell = _ranks(self.family[rows]), self.cell[rows]
        return Runs(self.y[rows], family, cell, own, hardware, self.day[rows], self.log_price[types]), types


def _to_learn_from(data: _Sorted, slices: Mapping[int, slice], seed: int) -> list[Design]:
    """Runs of model types picked at random, whole families of them, until there are enough."""
    random = np.random.default_rng([seed, 2])
    chosen: list[Design] = []
    total = 0
    for number in random.permutation(np.array(sorted(slices))):
        rows = np.arange(slices[int(number)].start, slices[int(number)].stop)
        families = data.family[rows]
        if len(rows) > _LEARN_RUNS_OF_MODEL:
            names = random.permutation(np.unique(families))
            sizes = np.cumsum([(families == name).sum() for name in names])
            rows = rows[np.isin(families, names[: max(1, int(np.searchsorted(sizes, _LEARN_RUNS_OF_MODEL)))])]
        if len(np.unique(data.hardware[rows])) > 1:
            runs, types = data.runs(rows)
            chosen.append(design(runs, len(types)))
            total += len(rows)
        if total >= _LEARN_RUNS:
            break
    return chosen


def _measure_model(
    data: _Sorted, rows: slice, pooled: Variances, options: Options, random: np.random.Generator
) -> _Found:
    count, types = rows.stop - rows.start, data.eligible_types.shape[1]
    hardware = data.hardware[rows]
    measured = data.measured.on(np.arange(rows.start, rows.stop), data.eligible_known[data.eligible[rows]])
    may = measured & data.eligible_types[data.eligible[rows]] & ~data.fails[rows]
    may &= data.eligible_known[data.eligible[rows]][:, None] | (data.first_day <= data.day[rows, None])
    may[np.arange(count), hardware] = True
    overlap = may.sum(axis=1) > 1
    # A job for which only its own hardware was eligible had nothing to waste.
    nothing_else = data.eligible_known & (data.eligible_types.sum(axis=1) == 1)
    found = _Found(
        np.zeros((types, options.draws)),
        np.zeros((types, options.draws)),
        np.zeros((types, options.draws)),
        np.zeros((types, options.draws)),
        may[overlap].sum(axis=0),
        overlap | nothing_else[data.eligible[rows]],
        overlap,
        may,
    )
    if not overlap.any():
        return found
    runs, own_types = data.runs(rows)
    fit = Fit(design(runs, len(own_types)), pooled, random)
    for _ in range(_ROUNDS):
        fit.improve(pooled)
    # Jobs are sorted by family and condition, as the cells are.
    cell = np.searchsorted(fit.design.cells, np.arange(count), side="right") - 1
    at_once = max(1, _AT_ONCE // (options.draws * len(own_types)))
    for part, relative in fit.relative(options.draws, at_once):
        mine = np.flatnonzero(overlap & (cell >= part.start) & (cell < part.stop))
        if len(mine):
            at, cost = cell[mine] - part.start, data.cost[rows][mine]
            _evaluate(relative, at, hardware[mine], may[mine], cost, own_types, options.margin, found)
    return found


def _evaluate(
    relative: NDArray[np.float32],
    cells: Ints,
    hardware: Ints,
    may: Bools,
    cost: Floats,
    types: Ints,
    margin: float,
    into: _Found,
) -> None:
    """Add up what some jobs lost on each draw.

    Args:
        relative: logarithm of the value, up to what is the same on all hardware; shape (cells, own types, draws).
        cells, hardware, may, cost: of each job; `may` says by hardware type what it is compared over.
        types: hardware types that the axis of `relative` stands for.
        into: is added to.
    """
    draws = relative.shape[2]
    # Jobs alike in everything that matters are one.
    sets = np.unique(np.packbits(may[:, types], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    keys = (cells * (int(sets.max()) + 1) + sets) * may.shape[1] + hardware
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    total = np.bincount(number, cost)
    count = np.bincount(number)
    local = np.searchsorted(types, hardware[first])
    step = max(1, _AT_ONCE // (draws * len(types)))
    for begin in range(0, len(first), step):
        part = slice(begin, begin + step)
        at = first[part]
        value = np.where(may[at][:, types][:, :, None], relative[cells[at]], -np.inf)
        best = value.argmax(axis=1)
        gap = np.take_along_axis(value, best[:, None, :], axis=1)[:, 0] - value[np.arange(len(at)), local[part]]
        used = hardware[at][:, None] * draws + np.arange(draws)
        _add(into.lost, used, total[part, None] * -np.expm1(-gap))
        chosen = value.mean(axis=2).argmax(axis=1)[:, None, None]
        gain = np.take_along_axis(value, chosen, axis=1)[:, 0] - value[np.arange(len(at)), local[part]]
        _add(into.sure, used, total[part, None] * -np.expm1(-gain))
        _add(into.misplaced, used, total[part, None] * (gap > -math.log1p(-margin)))
        _add(into.best, types[best] * draws + np.arange(draws), np.broadcast_to(count[part, None], best.shape))


def _add(into: Floats, places: Ints, numbers: NDArray[np.floating] | Ints) -> None:
    """Add numbers at flat places, which may repeat."""
    into += np.bincount(places.ravel(), numbers.ravel(), into.size).reshape(into.shape)


class _Drawn(NamedTuple):
    """Sums of costs on each draw (the last axis), as in `_Found`."""

    lost: Floats
    sure: Floats
    misplaced: Floats

    def of(self, hardware: int) -> _Drawn:
        """Those of one hardware type."""
        return _Drawn(*(each[hardware] for each in self))


class _Lines:
    """Collects the lines of a report, model type by model type.

    In lines over several model types their errors are taken to go together: draws are added in order of size, the least
    to the least. What is wrong with one may well be wrong with all, so their errors need not cancel.
    """

    def __init__(self, jobs: Jobs, options: Options) -> None:
        self._jobs, self._options = jobs, options
        size = len(jobs.hardware_types)
        self._sums: list[Floats] = [np.zeros(size)] * 5
        """Jobs, their cost, compared jobs and their cost, jobs with overlap, by hardware type."""
        self._drawn = _Drawn(*(np.zeros((size, options.draws)) for _ in range(3)))
        self._total_drawn = _Drawn(*(np.zeros(options.draws) for _ in range(3)))
        self.by_model: list[WasteLine] = []
        self.by_model_hardware: list[WasteLine] = []
        self.best: list[BestValue] = []

    def add(self, model: int, hardware: Ints, cost: Floats, found: _Found) -> None:
        size = len(self._jobs.hardware_types)
        sums: list[Floats] = [
            np.bincount(hardware, minlength=size).astype(np.float64),
            np.bincount(hardware, cost, size).astype(np.float64),
            np.bincount(hardware[found.compared], minlength=size).astype(np.float64),
            np.bincount(hardware[found.compared], cost[found.compared], size).astype(np.float64),
            np.bincount(hardware[found.overlap], minlength=size).astype(np.float64),
        ]
        self._sums = [total + own for total, own in zip(self._sums, sums, strict=True)]
        drawn = _Drawn(found.lost, found.sure, found.misplaced)
        of_model = _Drawn(*(each.sum(axis=0) for each in drawn))
        for whole, own in ((self._drawn, drawn), (self._total_drawn, of_model)):
            for total, part in zip(whole, own, strict=True):
                np.add(total, np.sort(part, axis=-1), out=total)
        name = self._jobs.models[model]
        ran = np.unique(hardware)
        every = slice(None)
        self.by_model.append(self._line(name, None, sums, of_model, every, len(ran)))
        self.by_model_hardware += [
            self._line(name, int(h), sums, drawn.of(int(h)), slice(int(h), int(h) + 1), len(ran)) for h in ran
        ]
        jobs = int(sums[4].sum())
        if jobs >= MIN_OVERLAP:
            self.best += [
                BestValue(
                    model_type=name,
                    hardware_type=self._jobs.hardware_types[h],
                    jobs=int(found.judged[h]),
                    share=self._share(found.best[h], jobs),
                )
                for h in np.flatnonzero(found.judged)
            ]

    def total(self) -> WasteLine:
        types = int((self._sums[0] > 0).sum())
        return self._line(None, None, self._sums, self._total_drawn, slice(None), types)

    def by_hardware(self) -> list[WasteLine]:
        types = int((self._sums[0] > 0).sum())
        return [
            self._line(None, int(h), self._sums, self._drawn.of(int(h)), slice(int(h), int(h) + 1), types)
            for h in np.flatnonzero(self._sums[0])
        ]

    def _line(
        self,
        model: str | None,
        hardware: int | None,
        sums: Sequence[Floats],
        drawn: _Drawn,
        chosen: slice,
        types: int,
    ) -> WasteLine:
        jobs, cost, compared, compared_cost, overlap = (column[chosen].sum() for column in sums)
        enough = overlap >= MIN_OVERLAP and compared_cost > 0
        if enough:
            note = ""
        elif types < 2:
            note = "not enough overlap: all jobs ran on one hardware type"
        else:
            note = (
                f"not enough overlap: {int(overlap):,} of {int(jobs):,} jobs have like ones on other eligible "
                f"hardware, a figure needs {MIN_OVERLAP}"
            )
        return WasteLine(
            model_type=model,
            hardware_type=None if hardware is None else self._jobs.hardware_types[hardware],
            jobs=int(jobs),
            cost_usd=float(cost),
            compared_jobs=int(compared),
            compared_cost_usd=float(compared_cost),
            waste=self._share(drawn.lost, compared_cost, drawn.sure) if enough else None,
            misplaced=self._share(drawn.misplaced, compared_cost) if enough else None,
            note=note,
        )

    def _share(self, drawn: Floats, whole: float, sure: Floats | None = None) -> Share:
        shares = np.clip(drawn / whole, 0.0, 1.0)
        mean = float(shares.mean())
        tail = (1 - self._options.confidence) / 2
        # A mean may lie beyond a quantile, where few draws are far from all others.
        low, high = np.minimum(np.quantile(shares, tail), mean), np.maximum(np.quantile(shares, 1 - tail), mean)
        least = mean - _WIDENED * float(mean - low)
        if sure is not None:
            # The best of several equal types always seems to gain something. What one choice, the same on all draws,
            # would have gained is no more than the waste, and not surely above 0 where no type is surely better.
            gain = sure / whole
            least = min(least, gain.mean() - _WIDENED * float(gain.mean() - np.quantile(gain, tail)))
        return Share(mean, max(0.0, float(least)), min(1.0, mean + _WIDENED * float(high - mean)))


def _first_us(jobs: Jobs) -> Floats:
    """When the first job on each hardware type completed, microseconds since 1970; infinite where none did."""
    first = np.full(len(jobs.hardware_types), np.inf)
    np.minimum.at(first, jobs.hardware, jobs.completed_us)
    return first


def prices(jobs: Jobs, catalogue: Catalogue) -> Floats:
    """US dollars for an hour of one trainer, by hardware type; NaN where the catalogue has none."""
    found = [catalogue.lookup(name) for name in jobs.hardware_types]
    return np.array([np.nan if row is None or row.hourly_cost_usd is None else row.hourly_cost_usd for row in found])


def _costs(jobs: Jobs, price: Floats) -> tuple[Floats, list[str]]:
    """What each job cost, and what was assumed for it."""
    unknown = jobs.device_hours <= 0
    absurd = jobs.device_hours > _MOST_HOURS * jobs.trainers
    hours = np.where(unknown | absurd, jobs.trainers, jobs.device_hours)
    notes = []
    if absurd.any():
        notes.append(
            f"{int(absurd.sum()):,} jobs say more device hours than {_MOST_HOURS:,.0f} for each trainer, which no run "
            "lasts: each counts as one hour of its trainers"
        )
    if unknown.all():
        notes.append(
            "the runs say no device hours: each job counts as one hour of its trainers, so amounts are weights, "
            "not bills"
        )
    elif unknown.any():
        notes.append(f"{int(unknown.sum()):,} jobs say no device hours: each counts as one hour of its trainers")
    return hours * price[jobs.hardware], notes


def _notes(jobs: Jobs, priced: Bools, keys: ConfigKeys, compared: Bools) -> list[str]:
    notes = []
    sizes = np.array([len(types) for types in jobs.eligible_sets])
    of_job = sizes[jobs.eligible]
    unknown = int((of_job[priced] == 0).sum())
    if unknown:
        notes.append(
            f"{unknown:,} of {int(priced.sum()):,} jobs do not say which hardware was eligible: every type on which "
            "similar jobs ran, and that was in use by then, is taken to have been; that may overstate the waste"
        )
    if not priced.all():
        names = sorted({jobs.hardware_types[h] for h in np.unique(jobs.hardware[~priced])})
        notes.append(
            f"{int((~priced).sum()):,} jobs left out, since their hardware has no price: {_listed(names)} "
            "(give one with --costs)"
        )
    alone = int((priced & compared & (of_job == 1)).sum())
    rest = int((priced & ~compared).sum())
    if alone:
        notes.append(
            f"{alone:,} of {int(priced.sum()):,} jobs had one eligible hardware type, and so nothing to waste: they "
            "count among the compared"
        )
    if rest:
        notes.append(
            f"{rest:,} of {int(priced.sum()):,} jobs are not compared: no similar job was measured on another eligible "
            "hardware type"
        )
    both = _on_several(jobs)[priced].mean()
    if both < _FEW_ON_SEVERAL:
        notes.append(
            f"only {both:.0%} of the jobs are of families that ran on two hardware types or more: the figure rests on "
            "comparing different families, which may differ in more than their hardware"
        )
    if keys.alike:
        notes.append(f"similar jobs agree in the configuration: {_listed(keys.alike)}")
    if keys.tied:
        notes.append(f"configuration that goes along with the hardware was not asked to agree: {_listed(keys.tied)}")
    if jobs.left_out:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(jobs.left_out.items()))
        notes.append(f"only attempts that succeeded count; left out: {counts}")
    return notes


def _on_several(jobs: Jobs) -> Bools:
    """Whether the family of each job ran on two hardware types or more."""
    pairs = np.unique(np.stack((jobs.family, jobs.hardware)), axis=1)
    several: Bools = (np.bincount(pairs[0]) > 1)[jobs.family]
    return several


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _cells(at: Conditions) -> Ints:
    """The conditions as one number; equal conditions have the same."""
    cell = np.zeros(len(at.trainers), np.int64)
    for column in at:
        ranks = _ranks(column)
        cell = _ranks(cell * (int(ranks.max(initial=0)) + 1) + ranks)
    return cell


def _ranks(numbers: Ints) -> Ints:
    """Each number's place among the different ones, in order, from 0."""
    return np.unique(numbers, return_inverse=True)[1].astype(np.int64, copy=False)


def _commonest(numbers: Ints) -> Ints:
    """Like `_ranks`, but of many different numbers all except the commonest share the last place."""
    ranks = _ranks(numbers)
    count = np.bincount(ranks)
    if len(count) <= _MOST_VALUES:
        return ranks
    kept = np.sort(np.lexsort((np.arange(len(count)), -count))[: _MOST_VALUES - 1])
    place = np.full(len(count), _MOST_VALUES - 1, np.int64)
    place[kept] = np.arange(len(kept))
    return place[ranks]


def _eligible_matrix(jobs: Jobs, types: int) -> Bools:
    matrix = np.zeros((len(jobs.eligible_sets), types), bool)
    for number, members in enumerate(jobs.eligible_sets):
        matrix[number, sorted(members)] = True
        if not members:
            matrix[number] = True
    return matrix
