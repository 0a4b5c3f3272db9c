"""What the judge found, as the document that `leap evaluate --json` prints and the report reads. Shares in percent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from leap_features.events import from_us
from leap_training.judge.bootstrap import Resamples, interval
from leap_training.judge.figures import Figures, figures, relative_error
from leap_training.judge.holdouts import Holdout
from leap_training.judge.importance import Importance
from leap_training.judge.intervals import Coverage, coverage
from leap_training.judge.modes import Mode
from leap_training.judge.pairs import PairFigures
from leap_training.judge.pooled import Pooled
from leap_training.judge.regret import RegretFigures
from leap_training.judge.window_judge import WindowResult

TABLE: Final = "lookup"
"""The model that others are held against on the rows that it covers."""

BySlice = dict[str, Figures]


class WindowEntry(msgspec.Struct, frozen=True):
    """One window."""

    name: str
    cut: str
    """RFC 3339, UTC."""
    train_rows: int
    scored_rows: int


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model: its figures by history and slice, or why there are none."""

    live: BySlice | UnsetType = UNSET
    nightly: BySlice | UnsetType = UNSET
    frozen: BySlice | UnsetType = UNSET
    fit_seconds: float | UnsetType = UNSET
    """Median over the windows."""
    not_run: str | UnsetType = UNSET


class Difference(msgspec.Struct, frozen=True):
    """A difference of two shares within ±20 % on the same rows, in points, and its 95 % interval (paired bootstrap)."""

    points: float
    low: float | None
    high: float | None


class OverWindows(msgspec.Struct, frozen=True):
    """A share within ±20 % over the windows that have rows of the slice."""

    windows: int
    median: float
    low: float
    high: float


class Ablation(msgspec.Struct, frozen=True):
    """A model without one of its parts."""

    of: str
    windows: list[str]
    figures: BySlice
    points: dict[str, Difference]
    """Itself minus the whole model, by slice."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `leap evaluate` found."""

    default: str
    by: str
    windows: list[WindowEntry]
    models: dict[str, ModelEntry]
    noise_floor: BySlice | None
    """Of the truth's expected throughput as a predictor."""
    differences: dict[str, dict[str, Difference]]
    """By model and slice: the default model minus it, live."""
    nights: dict[str, list[dict[str, str | Figures]]]
    """By model: per window, live, its name under "window" and the figures by slice."""
    over_windows: dict[str, dict[str, OverWindows]]
    against_table: BySlice
    """Every model on the rows that the lookup table covers, live."""
    intervals: dict[str, list[Coverage]]
    pairs: dict[str, PairFigures]
    regret: dict[str, RegretFigures]
    ablations: dict[str, Ablation] = {}
    importance: list[Importance] = []
    holdouts: list[Holdout] = []


def window_entries(results: Sequence[WindowResult]) -> list[WindowEntry]:
    """The windows as the document has them."""
    return [
        WindowEntry(
            result.window.name, from_us(result.window.cut_us).isoformat(), len(result.window.train), len(result.scored)
        )
        for result in results
    ]


def model_entries(
    names: Iterable[str], pooled: Pooled, results: Sequence[WindowResult], clusters: NDArray[np.object_]
) -> dict[str, ModelEntry]:
    """Figures of the models `names`, in that order, by history and slice."""
    by_key = _by_slice(pooled, clusters)
    entries = {}
    for name in names:
        reason = next((result.not_run[name] for result in results if name in result.not_run), None)
        if reason is not None:
            entries[name] = ModelEntry(not_run=reason)
            continue
        modes = {mode: slices for (model, mode), slices in by_key.items() if model == name}
        seconds = float(np.median([result.fit_seconds[name] for result in results]))
        entries[name] = ModelEntry(
            live=modes.get("live", UNSET),
            nightly=modes.get("nightly", UNSET),
            frozen=modes.get("frozen", UNSET),
            fit_seconds=round(seconds, 3),
        )
    return entries


def figures_by_slice(error: NDArray[np.float64], pooled: Pooled) -> BySlice:
    """Figures of the relative errors of all pooled rows, by slice, without intervals."""
    return {name: figures(error[chosen], pooled.device_hours[chosen]) for name, chosen in pooled.flags.slices().items()}


def _by_slice(pooled: Pooled, clusters: NDArray[np.object_]) -> dict[tuple[str, Mode], BySlice]:
    keys = list(pooled.error)
    result: dict[tuple[str, Mode], BySlice] = {key: {} for key in keys}
    for name, chosen in pooled.flags.slices().items():
        errors = [pooled.error[key][chosen] for key in keys]
        bounds = _bounds(errors, clusters[chosen])
        for key, error, bound in zip(keys, errors, bounds, strict=True):
            result[key][name] = figures(error, pooled.device_hours[chosen], bound)
    return result


def _bounds(
    errors: Sequence[NDArray[np.float64]], clusters: NDArray[np.object_]
) -> list[tuple[float, float] | tuple[None, None]]:
    resamples = Resamples(clusters) if len(clusters) else None
    if resamples is None or not resamples.enough or not errors:
        return [(None, None)] * len(errors)
    shares = 100.0 * resamples.shares(np.stack(errors, axis=1) <= 0.2)
    return [interval(shares[:, at]) for at in range(len(errors))]


def noise_floor(pooled: Pooled, log_expected: NDArray[np.float64], clusters: NDArray[np.object_]) -> dict[str, Figures]:
    """Figures of the truth's expected throughput as a predictor, by slice."""
    error = relative_error(log_expected, pooled.scored.log_throughput)
    result = {}
    for name, chosen in pooled.flags.slices().items():
        (bound,) = _bounds([error[chosen]], clusters[chosen])
        result[name] = figures(error[chosen], pooled.device_hours[chosen], bound)
    return result


def differences(
    error: Mapping[str, NDArray[np.float64]],
    of: str,
    slices: Mapping[str, NDArray[np.bool_]],
    clusters: NDArray[np.object_],
) -> dict[str, dict[str, Difference]]:
    """The share within ±20 % of the model `of` minus that of each other one, by model and slice.

    Args:
        error: relative errors by model.
        of: a model of `error`.
        slices: rows by slice; a slice without rows is left out.
        clusters: per row what is drawn again as a whole.
    """
    others = [name for name in error if name != of]
    result: dict[str, dict[str, Difference]] = {name: {} for name in others}
    for name, chosen in slices.items():
        if not chosen.any() or not others:
            continue
        near = np.stack([error[model][chosen] <= 0.2 for model in (of, *others)], axis=1)
        points = 100.0 * (near[:, :1].mean(axis=0) - near[:, 1:].mean(axis=0))
        resamples = Resamples(clusters[chosen])
        drawn = 100.0 * resamples.shares(near) if resamples.enough else None
        for at, model in enumerate(others):
            bound = (None, None) if drawn is None else interval(drawn[:, 0] - drawn[:, at + 1])
            result[model][name] = Difference(float(points[at]), *bound)
    return result


def by_window(pooled: Pooled) -> dict[str, list[dict[str, str | Figures]]]:
    """Figures of every model with live history, window by window; slices without rows are left out."""
    result: dict[str, list[dict[str, str | Figures]]] = {}
    slices = pooled.flags.slices()
    for (model, mode), error in pooled.error.items():
        if mode != "live":
            continue
        lines = result.setdefault(model, [])
        for place, window in enumerate(pooled.windows):
            inside = pooled.window == place
            line: dict[str, str | Figures] = {"window": window}
            for name, chosen in slices.items():
                if (rows := chosen & inside).any():
                    line[name] = figures(error[rows], pooled.device_hours[rows])
            lines.append(line)
    return result


def over_windows(nights: Mapping[str, Sequence[Mapping[str, str | Figures]]]) -> dict[str, dict[str, OverWindows]]:
    """Median and range over the windows of the share within ±20 %, by model and slice."""
    result: dict[str, dict[str, OverWindows]] = {}
    for model, lines in nights.items():
        shares: dict[str, list[float]] = {}
        for line in lines:
            for name, found in line.items():
                if isinstance(found, Figures) and found.within20 is not None:
                    shares.setdefault(name, []).append(found.within20)
        result[model] = {
            name: OverWindows(len(values), float(np.median(values)), min(values), max(values))
            for name, values in shares.items()
        }
    return result


def against_table(pooled: Pooled) -> dict[str, Figures]:
    """Every model with live history on the rows that the lookup table answers; empty without the table."""
    table = pooled.answers.get((TABLE, "live"))
    if table is None:
        return {}
    covered = ~np.isnan(table.log_throughput)
    return {
        model: figures(error[covered], pooled.device_hours[covered])
        for (model, mode), error in pooled.error.items()
        if mode == "live"
    }


def calibration(pooled: Pooled) -> dict[str, list[Coverage]]:
    """Coverage of the intervals of every model that has some, with live history."""
    return {
        model: coverage(pooled.scored.log_throughput, given.log_low, given.log_high, given.level)
        for (model, mode), given in pooled.answers.items()
        if mode == "live" and given.log_low is not None and given.log_high is not None
    }
