"""A report of impact as text for the terminal, at most 120 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from leap_features.terminal import printable
from leap_training.impact.report import Group, ImpactLine, ImpactReport, Interval, share_of
from leap_training.page import short_money

WIDTH: Final = 120
MODELS_SHOWN: Final = 15
REASONS_SHOWN: Final = 8
_NAME: Final = 32


def lines(report: ImpactReport, *, every: bool = False) -> Iterator[str]:
    """The report: shares, the reasons for no ranking, lines of model types and days, the saving in one sentence.

    Args:
        every: all model types, in place of those with most device-hours.
    """
    total = report.total
    yield f"rankings of {printable(report.source)}, submitted {report.begin:%Y-%m-%d} to {report.end:%Y-%m-%d} UTC"
    yield (
        f"{total.attempts:,} attempts with a choice of hardware, {total.device_hours:,.0f} device-hours; "
        f"{report.decisions:,} decisions"
    )
    for note in report.notes:
        yield from textwrap.wrap(printable(note), WIDTH, initial_indent="- ", subsequent_indent="  ")
    yield ""
    yield f"{'':<44} {'attempts':>18} {'device-hours':>18}"
    yield from _group("got a ranking", "… and ran on the first choice", total.ranked, total)
    if total.control.attempts:
        yield from _group("control group", "… and ran on what would have been it", total.control, total)
    for entry in report.unranked[:REASONS_SHOWN]:
        yield _share_row(f"none: {entry.reason}", entry.attempts, entry.device_hours, total)
    if rest := report.unranked[REASONS_SHOWN:]:
        yield _share_row(
            f"none: {len(rest)} other reasons",
            sum(entry.attempts for entry in rest),
            sum(entry.device_hours for entry in rest),
            total,
        )
    yield ""
    yield _header("model type", report)
    shown = report.by_model if every else report.by_model[:MODELS_SHOWN]
    for line in shown:
        yield _row(line.model_type or "", line, total)
    if len(report.by_model) > len(shown):
        yield f"and {len(report.by_model) - len(shown):,} more model types: see --all"
    yield ""
    yield _header("day", report)
    for line in report.by_day:
        yield _row(f"{line.day:%Y-%m-%d}", line, total)
    yield ""
    yield from (part for said in sentences(report) for part in textwrap.wrap(said, WIDTH))


def sentences(report: ImpactReport) -> Sequence[str]:
    """What was saved: measured where there is a control group, else what is predicted, and said to be so."""
    total = report.total
    if total.saving is not None and total.saved_usd is not None:
        value, low, high = total.saved_usd
        return [
            f"Saving, measured against the control group: {percent(total.saving)} of the cost per sample, "
            f"about {short_money(value)} ({short_money(low)} to {short_money(high)}); {_sure(report)} intervals."
        ]
    said = [f"No saving could be measured: {total.note}."]
    if total.predicted_kept is not None and total.predicted_left is not None:
        said.append(
            f"Predicted, not measured: attempts on their first choice saved {percent(total.predicted_kept)} of the "
            f"cost of ranked attempts against their second; the first choice for all would have saved "
            f"{percent(total.predicted_left)} more."
        )
    return said


def percent(share: Interval) -> str:
    """A share with its interval."""
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"


def _group(name: str, first: str, group: Group, total: ImpactLine) -> Iterator[str]:
    yield _share_row(name, group.attempts, group.device_hours, total)
    if group.attempts:
        of_group = (
            share_of(group.top_attempts, group.attempts),
            share_of(group.top_device_hours, group.device_hours),
        )
        yield f"{first:<44} {of_group[0]:>18.1%} {of_group[1]:>18.1%}"


def _share_row(name: str, attempts: int, hours: float, total: ImpactLine) -> str:
    shares = share_of(attempts, total.attempts), share_of(hours, total.device_hours)
    return f"{printable(name):<44} {shares[0]:>18.1%} {shares[1]:>18.1%}"


def _header(first: str, report: ImpactReport) -> str:
    saving = f"saving ({_sure(report)} interval)"
    return f"{first:<{_NAME}} {'attempts':>9} {'hours':>6} {'ranked':>7} {'on first':>9} {'control':>8}  {saving}"


def _row(name: str, line: ImpactLine, total: ImpactLine) -> str:
    text = printable(name)
    text = text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    hours = share_of(line.device_hours, total.device_hours)
    saving = line.note if line.saving is None else percent(line.saving)
    shares = f"{line.ranked_share:>7.0%} {_first(line.ranked):>9} {_first(line.control):>8}"
    return f"{text:<{_NAME}} {line.attempts:>9,} {hours:>6.0%} {shares}  {saving}"[:WIDTH].rstrip()


def _first(group: Group) -> str:
    """The share of device-hours on the first choice."""
    return f"{share_of(group.top_device_hours, group.device_hours):.0%}" if group.attempts else "–"


def _sure(report: ImpactReport) -> str:
    return f"{report.confidence:.0%}"
