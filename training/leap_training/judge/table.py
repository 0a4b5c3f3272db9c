"""The document as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import UnsetType

from leap_training.judge.document import Judged
from leap_training.judge.figures import Figures
from leap_training.judge.modes import MODES

SHOWN: Final = {
    "all": "all",
    "first_in_cell": "first in cell",
    "new_hardware_first": "new hw, first",
    "new_family": "new family",
}
"""Slices of the table and how they are called there."""

NAME: Final = 18
CELL: Final = 22


def lines(judged: Judged) -> Iterator[str]:
    """A table per history, then what else was found."""
    first, last = judged.windows[0], judged.windows[-1]
    scored = sum(window.scored_rows for window in judged.windows)
    span = first.name if first is last else f"{first.name} to {last.name}"
    yield f"{len(judged.windows)} windows by {judged.by} ({span}), {scored:,} attempts scored"
    yield "within ±20 % / within ±10 % / median error, in %; an attempt without an answer counts as wrong"
    for mode in MODES:
        of_mode = {name: getattr(entry, mode) for name, entry in judged.models.items()}
        of_mode = {name: found for name, found in of_mode.items() if not isinstance(found, UnsetType)}
        if not of_mode:
            continue
        yield ""
        counts = next(iter(of_mode.values()))
        heads = [f"{title} ({counts[name].rows:,})" for name, title in SHOWN.items()]
        yield f"{f'history {mode}':<{NAME}}" + "".join(f"{head:>{CELL}}" for head in heads)
        for name, found in of_mode.items():
            mark = "*" if name == judged.default else ""
            yield f"{name + mark:<{NAME}}" + "".join(f"{_cell(found[slice_]):>{CELL}}" for slice_ in SHOWN)
        if mode == "live" and judged.noise_floor is not None:
            floor = "".join(f"{_cell(judged.noise_floor[name]):>{CELL}}" for name in SHOWN)
            yield f"{'(noise floor)':<{NAME}}{floor}"
    yield f"* the default model; {'; '.join(_not_run(judged)) or 'every model was run'}"
    yield from _weights(judged)
    yield from _windows(judged)
    yield from _orders(judged)
    yield from _intervals(judged)
    yield from _studies(judged)


def _not_run(judged: Judged) -> Iterator[str]:
    for name, entry in judged.models.items():
        if not isinstance(entry.not_run, UnsetType):
            yield f"{name} not run: {entry.not_run}"


def _weights(judged: Judged) -> Iterator[str]:
    yield ""
    yield "within ±20 %, live: by attempt (95 % interval), by device-hours, head and tail model types; default minus it"
    for name, entry in judged.models.items():
        if isinstance(entry.live, UnsetType):
            continue
        found, head, tail = (entry.live[slice_] for slice_ in ("all", "head", "tail"))
        shares = (found.within20_device_hours, head.within20, tail.within20)
        difference = judged.differences.get(name, {}).get("all")
        against = "" if difference is None else f"{difference.points:>+8.1f}{_span(difference.low, difference.high)}"
        yield (
            f"{name:<{NAME}}{_number(found.within20):>8}{_span(found.within20_low, found.within20_high)}"
            f"{''.join(f'{_number(share):>8}' for share in shares)}{against}"
        )


def _windows(judged: Judged) -> Iterator[str]:
    if len(judged.windows) < 2:
        return
    yield ""
    yield "within ±20 % over the windows, live: median (lowest to highest)"
    for name, slices in judged.over_windows.items():
        found = slices["all"]
        yield f"{name:<{NAME}}{found.median:>8.1f}{_span(found.low, found.high)}"


def _orders(judged: Judged) -> Iterator[str]:
    if judged.against_table:
        rows = next(iter(judged.against_table.values())).rows
        yield ""
        yield f"on the {rows:,} attempts that the lookup table covers, live"
        for name, found in judged.against_table.items():
            yield f"{name:<{NAME}}{_cell(found):>{CELL}}"
    if judged.pairs:
        pairs = next(iter(judged.pairs.values())).pairs
        yield ""
        yield f"of {pairs:,} pairs of hardware types, the better one is put first, in %"
        for name, order in judged.pairs.items():
            yield f"{name:<{NAME}}{_number(order.right):>8}"
    if judged.regret:
        jobs = next(iter(judged.regret.values())).jobs
        yield ""
        yield f"value for money lost by the top pick, {jobs:,} jobs, in %: mean, by cost; as good as the best"
        for name, regret in judged.regret.items():
            shown = (regret.lost, regret.lost_by_cost, regret.best)
            yield f"{name:<{NAME}}" + "".join(f"{_number(value):>8}" for value in shown)


def _intervals(judged: Judged) -> Iterator[str]:
    for name, levels in judged.intervals.items():
        yield ""
        yield f"80 % intervals of {name}, live: rows, covered, median half-width, in %"
        for each in levels:
            yield f"  {each.level:<26}{each.rows:>10,}{each.covered:>8.1f}{each.median_half_width:>8.1f}"


def _studies(judged: Judged) -> Iterator[str]:
    if judged.ablations:
        yield ""
        yield "ablations: points within ±20 % against the whole model, all attempts (95 % interval)"
        for name, ablation in judged.ablations.items():
            found = ablation.points["all"]
            yield f"{name:<{NAME}}{found.points:>+8.1f}{_span(found.low, found.high)}"
    if judged.importance:
        yield ""
        yield "permutation importance: points within ±20 %"
        for each in [each for each in judged.importance if each.feature is None] + [
            each for each in judged.importance if each.feature is not None
        ][:15]:
            yield f"  {each.feature or f'all of {each.group}':<44}{each.points:>8.1f}"
    if judged.holdouts:
        yield ""
        yield "held out of training: within ±20 % on its own attempts; full, without, without as many random ones"
        for one in judged.holdouts:
            title = f"{one.model}, {one.value} ({one.removed_rows:,} rows), {one.history}"
            yield f"  {title:<70}{one.full:>8.1f}{one.without:>8.1f}{one.random:>8.1f}"


def _cell(found: Figures) -> str:
    if not found.rows:
        return "–"
    return f"{_number(found.within20)} /{_number(found.within10)} /{_number(found.median_error)}"


def _span(low: float | None, high: float | None) -> str:
    return f" ({_number(low)} to {_number(high)})"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1f}" if abs(value) < 1e6 else f"{value:.0e}"
