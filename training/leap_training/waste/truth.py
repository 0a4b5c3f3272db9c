"""Holds a measurement of waste against the truth of a synthetic fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from leap_features.hardware import Catalogue
from leap_training.waste.jobs import Jobs
from leap_training.waste.measure import Measurement, prices
from leap_training.waste.report import Share

LEAST_JOBS: Final = 200
"""Jobs that a model type needs, on two hardware types or more, for its interval to be judged."""


class TruthError(ValueError):
    """A file that is no truth of these jobs; the message says what to do."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate of one model type's waste and the truth, over the same jobs."""

    model_type: str
    jobs: int
    compared_jobs: int
    waste: Share
    truth: float
    """With the best of all eligible hardware types."""
    truth_seen: float
    """With the best of those on which similar jobs were measured."""

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.waste.low <= self.truth <= self.waste.high


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a measurement did, over the model types with enough jobs."""

    model_types: int
    """Model types judged."""
    without_figure: int
    """Model types with enough jobs, of which there is no estimate; they count as not held."""
    coverage: float
    """Share of the model types whose interval holds the truth."""
    coverage_seen: float
    """The same with the truth over the hardware types on which similar jobs were measured."""
    median_half_width: float
    bias: float
    """Mean of estimate − truth."""
    total_truth: float
    """Of all compared jobs."""
    judged: list[Judged]


def judge(measurement: Measurement, jobs: Jobs, expected: NDArray[np.float64], catalogue: Catalogue) -> Verdict:
    """Hold `measurement` of `jobs` against their expected throughput on each hardware type.

    Args:
        expected: samples/s, shape (jobs, hardware types of `jobs`); NaN where not eligible, 0 where memory fails.

    Raises:
        TruthError: no model type has enough jobs.
    """
    value = expected / prices(jobs, catalogue)
    rows = np.arange(len(jobs))
    with np.errstate(invalid="ignore"):
        used = value[rows, jobs.hardware]
        best = np.fmax.reduce(value, axis=1)
        seen = np.fmax.reduce(np.where(measurement.candidates, value, np.nan), axis=1)
        lost, lost_seen = (measurement.cost * (1 - used / most) for most in (best, seen))
    by_name = {line.model_type: line for line in measurement.report.by_model}
    judged, without = [], 0
    for number, name in enumerate(jobs.models):
        of_model = jobs.model == number
        line = by_name.get(name)
        if line is None or line.jobs < LEAST_JOBS or len(np.unique(jobs.hardware[of_model])) < 2:
            continue
        if line.waste is None:
            without += 1
            continue
        mine = of_model & measurement.compared
        whole = measurement.cost[mine].sum()
        judged.append(
            Judged(
                model_type=name,
                jobs=line.jobs,
                compared_jobs=line.compared_jobs,
                waste=line.waste,
                truth=float(lost[mine].sum() / whole),
                truth_seen=float(lost_seen[mine].sum() / whole),
            )
        )
    if not judged:
        raise TruthError(f"no model type has {LEAST_JOBS} jobs on two hardware types: judge a larger fleet")
    compared = measurement.compared
    return Verdict(
        model_types=len(judged) + without,
        without_figure=without,
        coverage=sum(line.held for line in judged) / (len(judged) + without),
        coverage_seen=sum(j.waste.low <= j.truth_seen <= j.waste.high for j in judged) / (len(judged) + without),
        median_half_width=float(np.median([(line.waste.high - line.waste.low) / 2 for line in judged])),
        bias=float(np.mean([line.waste.value - line.truth for line in judged])),
        total_truth=float(lost[compared].sum() / measurement.cost[compared].sum()),
        judged=judged,
    )


def read_expected(path: Path, jobs: Jobs) -> NDArray[np.float64]:
    """The expected throughput (samples/s) in a fleet's `truth.parquet`, shape (jobs, hardware types of `jobs`).

    Needs the jobs' attempt ids. Raises TruthError where the file is no truth, or not that of these jobs.
    """
    import pyarrow as pa  # noqa: PLC0415  # the rest of this module needs no pyarrow
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        names = pq.read_schema(path).names
        needed = ("attempt_id", *(jobs.hardware_types[number] for number in np.unique(jobs.hardware)))
        if missing := [name for name in needed if name not in names]:
            raise TruthError(f"{path} has no column {missing[0]!r}: give the truth.parquet of the fleet")
        table = pq.read_table(path, columns=["attempt_id", *(n for n in jobs.hardware_types if n in names)])
    except pa.ArrowException as error:
        raise TruthError(f"{path} is no Parquet file: {error}") from None
    place = pc.index_in(pa.array(jobs.attempt_ids, pa.string()), value_set=table["attempt_id"].combine_chunks())
    if place.null_count:
        first = next(number for number, at in enumerate(place.to_pylist()) if at is None)
        raise TruthError(
            f"{path} has {place.null_count:,} of {len(jobs):,} attempts not, such as {jobs.attempt_ids[first]!r}: "
            "give the truth.parquet that was generated with these runs"
        )
    expected = np.full((len(jobs), len(jobs.hardware_types)), np.nan)
    for number, name in enumerate(jobs.hardware_types):
        if name in table.column_names:
            column = table[name].combine_chunks().cast(pa.float64())
            expected[:, number] = np.asarray(column.to_numpy(zero_copy_only=False))[place.to_numpy()]
    return expected


def lines(verdict: Verdict, *, every: bool = False) -> Sequence[str]:
    """The verdict as a table for the terminal: the model types that are furthest off first."""
    shown = sorted(verdict.judged, key=lambda line: -abs(line.waste.value - line.truth))
    if not every:
        shown = shown[:10]
    width = max(len(line.model_type) for line in shown)
    rows = [f"{'model type':<{width}} {'jobs':>8} {'estimate':>9} {'interval':>15} {'truth':>7} {'seen':>7}  held"]
    for line in shown:
        interval = f"{line.waste.low:.1%}–{line.waste.high:.1%}"
        rows.append(
            f"{line.model_type:<{width}} {line.jobs:>8,} {line.waste.value:>9.1%} {interval:>15} {line.truth:>7.1%} "
            f"{line.truth_seen:>7.1%}  {'yes' if line.held else 'NO'}"
        )
    without = f", {verdict.without_figure} of them without a figure" if verdict.without_figure else ""
    return [
        f"truth: of {verdict.model_types} model types with {LEAST_JOBS} jobs or more on two hardware types{without}, "
        f"the interval holds it for {round(verdict.coverage * verdict.model_types)}, that is {verdict.coverage:.1%}",
        f"(over the hardware that similar jobs were measured on: {verdict.coverage_seen:.1%}); median half-width "
        f"{100 * verdict.median_half_width:.1f} points, mean error {100 * verdict.bias:+.1f} points; total "
        f"{verdict.total_truth:.1%}",
        "" if every else "furthest off:",
        *rows,
    ]
