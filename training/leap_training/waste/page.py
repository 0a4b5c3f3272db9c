"""The measurement of waste as a page: how much, of what, where, how sure, and what could not be compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import Final

from leap_training.page import (
    Bar,
    Column,
    Element,
    HeatCell,
    Series,
    Stack,
    bars,
    count,
    day,
    document,
    element,
    figure,
    folded,
    heat_table,
    interval,
    legend,
    money,
    notes,
    percent,
    reading,
    round_money,
    short_money,
    stacks,
    table,
    tiles,
)
from leap_training.waste.report import BestValue, Share, WasteLine, WasteReport, by_waste

HARDWARE_SHOWN: Final = 24
MODELS_IN_SHARES: Final = 15
MODELS_IN_WASTE: Final = 20
# As many hues as people with any kind of colour blindness can tell apart; the style sheet has them.
HUES: Final = 7

NO_OVERLAP: Final = "not enough overlap"


def page(report: WasteReport) -> str:
    """`report` as a self-contained HTML document."""
    return document(
        f"Waste in {report.source}",
        *_head(report),
        _headline(report),
        _tiles(report),
        element(
            "div",
            _cost_by_hardware(report),
            _best_value(report),
            _where(report),
            element("div", _reading(report), notes(report.notes)),
            class_="figures",
        ),
        _matrix(report),
        _all_models(report),
    )


def _head(report: WasteReport) -> list[Element]:
    return [
        element("h1", "Cost spent on hardware that was not the best value"),
        element(
            "p",
            element("bdi", report.source),
            f" · jobs that completed from {day(report.begin)} to {day(report.end)} (UTC)",
            class_="soft",
        ),
    ]


def _headline(report: WasteReport) -> Element:
    total = report.total
    if total.waste is None:
        return element(
            "section",
            element("p", "No figure", class_="amount"),
            element("p", _why_none(report)),
            class_="headline",
            id="headline",
        )
    low, high = (max(0.0, share) * total.compared_cost_usd for share in (total.waste.low, total.waste.high))
    return element(
        "section",
        element("p", percent(total.waste.value), class_="amount"),
        element(
            "p",
            "of the compared cost would have been saved if every compared job had run on the eligible hardware type "
            "that gives most throughput per cost for it",
            *(
                (". The runs say no device hours: amounts below are weights, not what anybody paid",)
                if report.weights
                else (
                    ": ",
                    element("strong", f"{short_money(total.wasted_usd)} of {short_money(total.compared_cost_usd)}"),
                )
            ),
            ".",
        ),
        element(
            "p",
            f"{_sure(report)} interval: {interval(total.waste.low, total.waste.high)}"
            + ("." if report.weights else f", which is {short_money(low)} to {short_money(high)}."),
        ),
        class_="headline",
        id="headline",
    )


def _why_none(report: WasteReport) -> str:
    total = report.total
    used = [line.hardware_type for line in report.by_hardware if line.jobs]
    if not total.jobs:
        why = "No job here succeeded with a throughput and a price, so there is nothing to compare."
    elif len(used) == 1:
        why = f"Every job ran on {used[0]}: without a second hardware type there is nothing to compare it with."
    elif not total.cost_usd:
        why = "The jobs here cost nothing, so no share of their cost can be given. Check the prices and device hours."
    else:
        why = "No job could be compared with similar ones on another eligible hardware type."
    return f"{why} ({total.note})" if total.note else why


def _tiles(report: WasteReport) -> Element:
    total = report.total
    left_cost, left_jobs = total.cost_usd - total.compared_cost_usd, total.jobs - total.compared_jobs
    with_figure = sum(line.waste is not None for line in report.by_model)
    figures = [
        (
            "Cost of all jobs",
            short_money(total.cost_usd),
            f"{count(total.jobs, 'succeeded job')} whose hardware has a price",
        ),
        (
            "Compared",
            _of(total.compared_cost_usd, total.cost_usd),
            f"{count(total.compared_jobs, 'job')}: similar ones ran on another eligible type, or none was eligible",
        ),
        (
            "Not compared",
            _of(left_cost, total.cost_usd),
            f"{count(left_jobs, 'job')}: {NO_OVERLAP}; nothing is said of them",
        ),
        (
            "On misplaced jobs",
            "no figure" if total.misplaced is None else percent(total.misplaced.value),
            f"of compared cost went to hardware more than {percent(report.margin, 0)} below the best value"
            + ("" if total.misplaced is None else f" ({_range(total.misplaced)})"),
        ),
        (
            "Model types",
            f"{count(with_figure)} of {count(len(report.by_model))}",
            f"have a figure; the jobs ran on {count(len(report.by_hardware), 'hardware type')}",
        ),
    ]
    return tiles(figures)


def _cost_by_hardware(report: WasteReport) -> Element:
    lines = _by_cost(report.by_hardware)
    shown = lines[:HARDWARE_SHOWN]
    heading = "1. Cost by hardware"
    if not shown:
        return _nothing("cost-by-hardware", heading)
    series = (
        Series("wasted: the best eligible type would have saved it", "wasted"),
        Series("compared, and not wasted", "placed"),
        Series(f"not compared: {NO_OVERLAP}", "apart"),
    )
    return figure(
        "cost-by-hardware",
        heading,
        f"US dollars spent on each hardware type{_selection(shown, lines, 'hardware types', 'with the highest cost')}.",
        legend(series),
        stacks(
            "chart-cost",
            heading,
            "Stacked bars, one for each hardware type: cost wasted, compared and not wasted, not compared.",
            series,
            [Stack(_hardware(line), _cost_text(line), _cost_parts(line)) for line in shown],
            round_money,
        ),
        numbers=_lines("Cost and waste by hardware type", "Hardware type", _hardware, lines, report),
    )


def _cost_parts(line: WasteLine) -> tuple[float, float, float]:
    wasted, compared = line.wasted_usd, line.compared_cost_usd if line.waste else 0.0
    return wasted, max(0.0, compared - wasted), max(0.0, line.cost_usd - compared)


def _cost_text(line: WasteLine) -> str:
    none = "too few with a choice" if line.compared_jobs else "not compared"
    what = none if line.waste is None else f"{short_money(line.wasted_usd)} wasted"
    return f"{short_money(line.cost_usd)} · {what}"


def _best_value(report: WasteReport) -> Element:
    best: defaultdict[str, list[BestValue]] = defaultdict(list)
    for each in report.best:
        best[each.model_type].append(each)
    lines = [line for line in _by_cost(report.by_model) if line.model_type in best]
    shown = lines[:MODELS_IN_SHARES]
    heading = "2. Which hardware gives most value, by model type"
    if not shown:
        return _nothing("best-value", heading)
    series, place = _hardware_series(shown, best)

    def stack(line: WasteLine) -> Stack:
        parts = [0.0] * len(series)
        for each in best[_model(line)]:
            parts[place[each.hardware_type]] += max(0.0, each.share.value)
        return Stack(_model(line), count(line.compared_jobs, "job"), tuple(parts))

    return figure(
        "best-value",
        heading,
        "For what share of a model type's jobs with a choice each hardware type gave most throughput per cost"
        f"{_selection(shown, lines, 'model types', 'with the highest cost')}. Where one type has nearly all of a bar, "
        "a fixed choice would do; where several share it, the best choice differs from job to job.",
        legend(series),
        stacks(
            "chart-best",
            heading,
            "Stacked bars, one for each model type: the share of jobs for which each hardware type was best.",
            series,
            [stack(line) for line in shown],
            lambda share: percent(share, 0),
        ),
        numbers=table(
            "Share of jobs with a choice for which a hardware type gave most value",
            [
                Column("Model type", number=False),
                Column("Hardware type", number=False),
                Column("Jobs judged"),
                Column("Best for"),
                Column(f"{_sure(report)} interval"),
            ],
            [
                (each.model_type, each.hardware_type, count(each.jobs), *_share(each.share))
                for line in shown
                for each in sorted(best[_model(line)], key=lambda each: -each.share.value)
            ],
        ),
    )


def _hardware_series(
    lines: Iterable[WasteLine], best: Mapping[str, Sequence[BestValue]]
) -> tuple[list[Series], dict[str, int]]:
    """The hardware types that are best for most cost, as series, and which of the series each hardware type is in."""
    weights: defaultdict[str, float] = defaultdict(float)
    for line in lines:
        for each in best[_model(line)]:
            weights[each.hardware_type] += each.share.value * line.compared_cost_usd
    ranked = sorted(weights, key=lambda hardware: (-weights[hardware], hardware))
    named = [
        Series(hardware, f"hue-{number}", letter)
        for number, (hardware, letter) in enumerate(zip(ranked[:HUES], ascii_uppercase, strict=False), start=1)
    ]
    others = len(ranked) - len(named)
    if others:
        named.append(Series(count(others, "other type"), "other", "+"))
    return named, {hardware: min(rank, HUES) for rank, hardware in enumerate(ranked)}


def _where(report: WasteReport) -> Element:
    lines = _most_wasteful(report)
    shown = lines[:MODELS_IN_WASTE]
    heading = "3. Where the waste is"
    if not shown:
        return _nothing("where", heading)
    return figure(
        "where",
        heading,
        "US dollars that the best eligible type would have saved, and that as a share of the model type's compared cost"
        f"{_selection(shown, lines, 'model types', 'that waste most')}. Whiskers are {_sure(report)} intervals.",
        bars(
            "chart-waste",
            heading,
            "Bars with intervals, one for each model type: US dollars wasted.",
            [_waste_bar(line, line.waste) for line in shown if line.waste],
            round_money,
        ),
        numbers=_lines("Model types that waste most", "Model type", _model, shown, report),
    )


def _waste_bar(line: WasteLine, waste: Share) -> Bar:
    low, high = (max(0.0, share) * line.compared_cost_usd for share in (waste.low, waste.high))
    return Bar(_model(line), f"{short_money(line.wasted_usd)} · {percent(waste.value)}", line.wasted_usd, low, high)


def _matrix(report: WasteReport) -> Element | None:
    models = [_model(line) for line in _most_wasteful(report)[:MODELS_IN_WASTE]]
    by_place = {(_model(line), _hardware(line)): line for line in report.by_model_hardware}
    cost: defaultdict[str, float] = defaultdict(float)
    for (model, hardware), line in by_place.items():
        if model in models:
            cost[hardware] += line.cost_usd
    if not cost:
        return None
    columns = sorted(cost, key=lambda hardware: (-cost[hardware], hardware))[:HARDWARE_SHOWN]
    most = max((line.wasted_usd for (model, _), line in by_place.items() if model in models), default=0.0)

    def cell(model: str, hardware: str) -> HeatCell | None:
        line = by_place.get((model, hardware))
        if line is None or not line.jobs:
            return None
        what = f"{model} on {hardware}, {count(line.jobs, 'job')} for {money(line.cost_usd)}: "
        if line.waste is None:
            return HeatCell("–", title=what + (line.note or NO_OVERLAP))
        return HeatCell(
            short_money(line.wasted_usd),
            math.sqrt(line.wasted_usd / most) if most else 0.0,  # else one great waste leaves all others pale
            f"{what}{percent(line.waste.value)} ({_range(line.waste)}) of {money(line.compared_cost_usd)} compared is "
            "wasted",
        )

    return element(
        "div",
        figure(
            "matrix",
            "4. Waste by model type and hardware",
            "US dollars wasted on each hardware type by the model types of figure 3: the stronger the colour, the "
            f"more. – means {NO_OVERLAP}, an empty cell no jobs.",
            heat_table(
                "matrix-table",
                "US dollars wasted by model type (rows) on each hardware type (columns)",
                "Model type",
                models,
                columns,
                [[cell(model, hardware) for hardware in columns] for model in models],
            ),
        ),
        class_="wide",
    )


def _all_models(report: WasteReport) -> Element:
    lines = _by_cost(report.by_model)
    without = sum(line.waste is None for line in lines)
    return element(
        "section",
        element("h2", "All model types"),
        element(
            "p",
            f"{count(len(lines), 'model type')}, those with the highest cost first; {count(without)} without a figure, "
            "for the reason in the last column.",
        )
        if lines
        else element("p", "There are none."),
        folded("Show the table", _lines("Cost and waste by model type", "Model type", _model, lines, report))
        if lines
        else None,
        class_="wide",
        id="all-models",
    )


def _reading(report: WasteReport) -> Element:
    words: list[tuple[str, str]] = [
        ("Value", "Throughput per cost: samples a second ÷ (trainers × cost of one trainer-hour)."),
        (
            "Compared",
            "A job is compared where similar jobs (of the same family, else of the same model type, at like scale) "
            "were measured on another hardware type that was eligible for it. A job for which one type alone was "
            "eligible counts too: it had nothing to waste. A type that similar jobs never ran on is not judged, "
            "however good it may be.",
        ),
        (
            "Wasted",
            "The part of a compared job's cost that it would not have cost on the eligible type with the best value: "
            "cost × (1 − value of the type used ÷ best value).",
        ),
        ("Misplaced", f"The value of the type used was more than {percent(report.margin, 0)} below the best value."),
        (
            "Interval",
            f"What chance in the measured runs leaves open, at {_sure(report)}: on synthetic fleets, where the truth "
            "is known, about as many of such intervals held it. What the assumptions below leave out is not in it.",
        ),
        (
            "What it is not",
            "The best type may have had no free machines when a job was launched, and prices are those given with the "
            "runs or the catalogue's: better choices alone need not save all of it. Whether the cost that was not "
            "compared was well spent is unknown.",
        ),
    ]
    return reading(words)


def _lines(
    caption: str, first: str, name: Callable[[WasteLine], str], lines: Iterable[WasteLine], report: WasteReport
) -> Element:
    sure = f"{_sure(report)} interval"
    columns = [
        Column(first, number=False),
        *(
            Column(title)
            for title in (
                "Jobs",
                "Cost",
                "Compared jobs",
                "Compared cost",
                "Wasted",
                "Wasted share",
                sure,
                "Misplaced",
                sure,
            )
        ),
        Column("Note", number=False),
    ]
    return table(
        caption,
        columns,
        [
            [
                name(line),
                count(line.jobs),
                money(line.cost_usd),
                count(line.compared_jobs),
                money(line.compared_cost_usd),
                "–" if line.waste is None else money(line.wasted_usd),
                *_share(line.waste),
                *_share(line.misplaced),
                line.note or (NO_OVERLAP if line.waste is None else ""),
            ]
            for line in lines
        ],
    )


def _share(share: Share | None) -> tuple[str, str]:
    return ("–", "–") if share is None else (percent(share.value), _range(share))


def _range(share: Share) -> str:
    return interval(share.low, share.high)


def _most_wasteful(report: WasteReport) -> list[WasteLine]:
    return [line for line in by_waste(report.by_model) if line.waste is not None]


def _by_cost(lines: Iterable[WasteLine]) -> list[WasteLine]:
    return sorted(lines, key=lambda line: line.cost_usd, reverse=True)


def _nothing(name: str, heading: str) -> Element:
    return figure(name, heading, "Nothing could be compared, so there is nothing to show.")


def _selection(shown: Sequence[WasteLine], lines: Sequence[WasteLine], what: str, which: str) -> str:
    return f"; the {len(shown)} of {count(len(lines))} {what} {which}" if len(shown) < len(lines) else ""


def _model(line: WasteLine) -> str:
    return "all model types" if line.model_type is None else line.model_type


def _hardware(line: WasteLine) -> str:
    return "all hardware types" if line.hardware_type is None else line.hardware_type


def _of(part: float, whole: float) -> str:
    return f"{short_money(part)} ({percent(part / whole, 0)})" if whole else short_money(part)


def _sure(report: WasteReport) -> str:
    return percent(report.confidence, 0)
