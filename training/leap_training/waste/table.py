"""A measurement of waste as text for the terminal, at most 120 columns wide."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from leap_features.terminal import printable
from leap_training.page import short_money
from leap_training.waste.report import BestValue, Share, WasteLine, WasteReport, by_waste

WIDTH: Final = 120
MODELS_SHOWN: Final = 15
_NAME: Final = 32


def lines(report: WasteReport, *, every: bool = False) -> Iterator[str]:
    """The report: what was measured, the assumptions, the lines of hardware and model types, the total at the end.

    Args:
        every: all model types, in place of those with most waste.
    """
    total = report.total
    yield f"waste in {printable(report.source)}, completed {report.begin:%Y-%m-%d} to {report.end:%Y-%m-%d} UTC"
    yield (
        f"{total.jobs:,} jobs that cost {short_money(total.cost_usd)}; {total.compared_jobs:,} jobs, "
        f"{_of(total.compared_cost_usd, total.cost_usd)} of the cost, can be compared"
    )
    for note in report.notes:
        yield from textwrap.wrap(printable(note), WIDTH, initial_indent="- ", subsequent_indent="  ")
    yield ""
    yield _header("hardware type", report.confidence, "most value for")
    best_for = _best_for(report)
    for line in by_waste(report.by_hardware):
        share = best_for.get(line.hardware_type or "", 0.0)
        yield _row(line.hardware_type, line, f"{share:.0%} of jobs" if line.waste else "")
    yield ""
    yield _header("model type", report.confidence, "most value from")
    best = _best_by_model(report.best)
    ordered = by_waste(report.by_model)
    shown = ordered if every else ordered[:MODELS_SHOWN]
    for line in shown:
        found = best.get(line.model_type or "")
        text = f"{found.hardware_type} ({found.share.value:.0%} of jobs)" if found and line.waste else ""
        yield _row(line.model_type, line, printable(text))
    rest = ordered[len(shown) :]
    if rest:
        without = sum(line.waste is None for line in rest)
        yield f"and {len(rest):,} more model types, {without:,} of them without a figure: see --all"
    yield ""
    yield _row("all", total, "")
    yield sentence(report)


def sentence(report: WasteReport) -> str:
    """The total in one sentence."""
    total = report.total
    if total.waste is None:
        return f"No figure for the waste: {total.note}."
    if report.weights:
        return (
            f"{percent(total.waste)} of the compared cost would have been saved on the eligible hardware of most value."
        )
    return (
        f"{percent(total.waste)} of {short_money(total.compared_cost_usd)}, about {short_money(total.wasted_usd)}, "
        "would have been saved on the eligible hardware of most value."
    )


def percent(share: Share) -> str:
    """A share with its interval."""
    return f"{share.value:.1%} ({share.low:.1%}–{share.high:.1%})"


def _header(first: str, confidence: float, last: str) -> str:
    waste = f"waste ({confidence:.0%} interval)"
    return f"{first:<{_NAME}} {'jobs':>9} {'cost':>7} {'compared':>8} {waste:>22} {'wasted':>7}  {last}"


def _row(name: str | None, line: WasteLine, last: str) -> str:
    text = printable(name or "")
    text = text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    compared = _of(line.compared_cost_usd, line.cost_usd)
    row = f"{text:<{_NAME}} {line.jobs:>9,} {short_money(line.cost_usd):>7} {compared:>8} "
    if line.waste is None:
        return row + f"{'too few with a choice' if line.compared_jobs else 'not enough overlap':>22}"
    return (row + f"{percent(line.waste):>22} {short_money(line.wasted_usd):>7}  {last}")[:WIDTH].rstrip()


def _of(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _best_by_model(best: Sequence[BestValue]) -> dict[str, BestValue]:
    found: dict[str, BestValue] = {}
    for entry in best:
        if entry.model_type not in found or entry.share.value > found[entry.model_type].share.value:
            found[entry.model_type] = entry
    return found


def _best_for(report: WasteReport) -> dict[str, float]:
    """For what share of the compared jobs of all model types with a figure each hardware type gave most value."""
    jobs = {line.model_type: line.compared_jobs for line in report.by_model if line.waste}
    whole = sum(jobs.values())
    share: dict[str, float] = defaultdict(float)
    for entry in report.best:
        share[entry.hardware_type] += entry.share.value * jobs.get(entry.model_type, 0) / max(whole, 1)
    return dict(share)
