"""A report of impact as a page: what was ranked, what was followed, what it saved, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from leap_training.impact.report import Group, ImpactLine, ImpactReport, Interval, share_of
from leap_training.page import (
    Bar,
    Column,
    Element,
    Series,
    Stack,
    bars,
    count,
    day,
    document,
    element,
    figure,
    folded,
    interval,
    legend,
    notes,
    percent,
    reading,
    short_money,
    stacks,
    table,
    tiles,
)

MODELS_SHOWN: Final = 20
DAYS_SHOWN: Final = 60

_PARTS: Final = (
    Series("ranked, and on the first choice", "lead"),
    Series("ranked, and elsewhere", "placed"),
    Series("control group", "other"),
    Series("no ranking", "apart"),
)


def page(report: ImpactReport) -> str:
    """`report` as a self-contained HTML document."""
    return document(
        f"Impact of rankings on {report.source}",
        element("h1", "What rankings changed"),
        element(
            "p",
            element("bdi", report.source),
            f" · attempts submitted from {day(report.begin)} to {day(report.end)} (UTC)",
            class_="soft",
        ),
        _headline(report),
        _tiles(report),
        element(
            "div",
            _shares("days", "1. Device-hours by day", "day", report.by_day[-DAYS_SHOWN:], report.by_day, _day_of),
            _shares(
                "models", "2. Device-hours by model type", "model type", _most(report.by_model), report.by_model, _model
            ),
            _savings(report),
            element("div", _reading(report), notes(report.notes)),
            class_="figures",
        ),
        _unranked(report),
    )


def _headline(report: ImpactReport) -> Element:
    total = report.total
    if total.saving is None or total.saved_usd is None:
        return element(
            "section",
            element("p", "No measured saving", class_="amount"),
            element("p", f"{total.note[:1].upper()}{total.note[1:]}. ", *_predicted(total)),
            class_="headline judged",
            id="headline",
        )
    value, low, high = total.saved_usd
    return element(
        "section",
        element("p", percent(total.saving.value), class_="amount"),
        element(
            "p",
            "of the cost per sample was saved by ranked attempts, measured against the control group: ",
            element("strong", f"about {short_money(value)}"),
            f" beside the {short_money(total.compared_cost_usd)} that they cost.",
        ),
        element(
            "p",
            f"{percent(report.confidence, 0)} interval: {_range(total.saving)}, "
            f"which is {short_money(low)} to {short_money(high)}."
            + (" It covers zero: nothing is shown yet." if total.saving.low <= 0 <= total.saving.high else ""),
        ),
        class_="headline judged",
        id="headline",
    )


def _predicted(total: ImpactLine) -> list[Element | str]:
    kept, left = total.predicted_kept, total.predicted_left
    if kept is None or left is None:
        return []
    return [
        element("strong", "Predicted, not measured: "),
        f"attempts on their first choice saved {percent(kept.value)} ({_range(kept)}) of the cost of ranked attempts "
        f"against their second; the first choice for all would have saved {percent(left.value)} ({_range(left)}) more.",
    ]


def _tiles(report: ImpactReport) -> Element:
    total = report.total
    figures = [
        (
            "Ranked",
            percent(total.ranked_share),
            f"of {total.device_hours:,.0f} device-hours with a choice ({count(total.attempts, 'attempt')})",
        ),
        ("On the first choice", *_first(total.ranked, "ranked")),
        ("Control group", *_first(total.control, "control")),
        ("Decisions", count(report.decisions), "read from the logs"),
    ]
    return tiles(figures)


def _first(group: Group, name: str) -> tuple[str, str]:
    if not group.attempts:
        return "–", f"there are no {name} attempts"
    return (
        percent(share_of(group.top_device_hours, group.device_hours)),
        f"of {name} device-hours, {percent(share_of(group.top_attempts, group.attempts))} of "
        f"{count(group.attempts, f'{name} attempt')}, ran on the first choice",
    )


def _shares(
    name: str,
    heading: str,
    what: str,
    shown: Sequence[ImpactLine],
    lines: Sequence[ImpactLine],
    label: Callable[[ImpactLine], str],
) -> Element:
    if not shown:
        return figure(name, heading, "No attempt had a choice, so there is nothing to show.")
    some = f"; {len(shown)} of {count(len(lines), what)}" if len(shown) < len(lines) else ""
    return figure(
        name,
        heading,
        f"Shares of the device-hours of attempts that had a choice{some}.",
        legend(_PARTS),
        stacks(
            f"chart-{name}",
            heading,
            f"Stacked bars, one for each {what}: shares of device-hours by what the launcher was answered.",
            _PARTS,
            [Stack(label(line), f"{percent(line.ranked_share, 0)} ranked", _parts(line)) for line in shown],
            lambda share: percent(share, 0),
        ),
        numbers=_lines(f"Shares by {what}", what.capitalize(), label, shown),
    )


def _parts(line: ImpactLine) -> tuple[float, ...]:
    top, ranked, control = line.ranked.top_device_hours, line.ranked.device_hours, line.control.device_hours
    parts = (top, max(0.0, ranked - top), control, max(0.0, line.device_hours - ranked - control))
    return tuple(share_of(part, line.device_hours) for part in parts)


def _savings(report: ImpactReport) -> Element:
    heading = "3. Saving by model type"
    shown = [line for line in report.by_model if line.saving is not None][:MODELS_SHOWN]
    if not shown:
        return figure("savings", heading, f"No model type could be compared: {report.total.note}.")
    return figure(
        "savings",
        heading,
        "Share of the cost per sample that ranked attempts saved against the control group, for the "
        f"{count(len(shown), 'model type')} with most device-hours of those that can be compared. Whiskers are "
        f"{percent(report.confidence, 0)} intervals; of many model types some show a saving, or a loss, by chance.",
        bars(
            "chart-savings",
            heading,
            "Bars with intervals, one for each model type: share of the cost per sample that was saved.",
            [
                Bar(_model(line), percent(saving.value), saving.value, saving.low, saving.high)
                for line in shown
                if (saving := line.saving)
            ],
            lambda share: percent(share, 0),
            "placed",
        ),
        numbers=_lines("Model types that can be compared", "Model type", _model, shown),
    )


def _unranked(report: ImpactReport) -> Element | None:
    if not report.unranked:
        return None
    total = report.total
    return element(
        "section",
        element("h2", "Why attempts got no ranking"),
        folded(
            "Show the table",
            table(
                "Attempts with a choice and without a ranking",
                [Column("Reason", number=False), Column("Attempts"), Column("Device-hours"), Column("Share of hours")],
                [
                    (
                        entry.reason,
                        count(entry.attempts),
                        f"{entry.device_hours:,.0f}",
                        percent(share_of(entry.device_hours, total.device_hours)),
                    )
                    for entry in report.unranked
                ],
            ),
        ),
        class_="wide",
        id="unranked",
    )


def _reading(report: ImpactReport) -> Element:
    words = (
        ("With a choice", "More than one hardware type was eligible at submission; where nothing says so, it counts."),
        (
            "Ranked",
            "The decision that belongs to the attempt (by its id, else the job's latest within "
            f"{report.window_hours:g} h before submission) answered a ranking.",
        ),
        (
            "Control group",
            "Jobs that the policy kept without a ranking, by chance alone, though there would have been one.",
        ),
        (
            "Saving",
            "1 − cost per sample of ranked attempts ÷ of the control group, whether or not the first choice was "
            "taken: the mean difference of logarithms, within each model type.",
        ),
        (
            "Interval",
            f"What chance leaves open at {percent(report.confidence, 0)}, by resampling job families.",
        ),
        (
            "Predicted, not measured",
            "What the model itself expected. It was wrong where the model was, and picks look best where it errs up.",
        ),
        (
            "What it is not",
            "Groups share the fleet: where ranked jobs fill the best hardware, the control group gets less of it, and "
            "the saving looks greater than it is for the fleet. Only attempts that succeeded have a cost per sample.",
        ),
    )
    return reading(words)


def _lines(caption: str, first: str, label: Callable[[ImpactLine], str], lines: Iterable[ImpactLine]) -> Element:
    columns = [
        Column(first, number=False),
        *(
            Column(title)
            for title in (
                "Attempts",
                "Device-hours",
                "Ranked hours",
                "On first choice",
                "Control hours",
                "Control on it",
                "Saving",
                "Interval",
            )
        ),
        Column("Note", number=False),
    ]
    return table(
        caption,
        columns,
        [
            [
                label(line),
                count(line.attempts),
                f"{line.device_hours:,.0f}",
                percent(line.ranked_share),
                percent(share_of(line.ranked.top_device_hours, line.ranked.device_hours)),
                percent(share_of(line.control.device_hours, line.device_hours)),
                percent(share_of(line.control.top_device_hours, line.control.device_hours)),
                "–" if line.saving is None else percent(line.saving.value),
                "–" if line.saving is None else _range(line.saving),
                line.note,
            ]
            for line in lines
        ],
    )


def _most(lines: Sequence[ImpactLine]) -> Sequence[ImpactLine]:
    return lines[:MODELS_SHOWN]


def _model(line: ImpactLine) -> str:
    return line.model_type or "all model types"


def _day_of(line: ImpactLine) -> str:
    return f"{line.day:%Y-%m-%d}"


def _range(share: Interval) -> str:
    return interval(share.low, share.high)
