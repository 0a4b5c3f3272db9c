"""Where and when predictions are right: over windows, by slice, by model type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final

from leap_training.judge_page.counted import ModelTypeShares, Share, WindowShares
from leap_training.judge_page.reading import Judged
from leap_training.judge_page.verdict import History, OverWindows, Slices
from leap_training.judge_page.wording import (
    FIRST,
    HISTORY_WORDS,
    NONE,
    SLICES,
    between,
    dot,
    line,
    marks,
    model_types,
    per_cent,
    scale_mark,
    shown,
    slice_name,
    within,
)
from leap_training.page import (
    Axis,
    Column,
    Dot,
    DotRow,
    Element,
    Mark,
    Series,
    Stack,
    count,
    dots,
    figure,
    legend,
    legend_of_lines,
    legend_of_marks,
    percent,
    plane,
    stacks,
    table,
)

MODEL_TYPES_SHOWN: Final = 12
# Fewer rows of a model type than this are left out of the worst: a share of three rows says little.
WORST_OF: Final = 20
TABLE_ROWS: Final = 300
NAMES_SHOWN: Final = 4
# Windows from which on a range says something.
RANGE_OF: Final = 3
_NOTHING: Final[tuple[float | None, float | None, float | None]] = (None, None, None)

# Ends of the classes of model types by their share within ±20 %, and their paints, worst first.
_CLASSES: Final = (
    ("below 50\u00a0%", 50.0, "wasted"),
    ("50 to 80\u00a0%", 80.0, "hue-2"),
    ("80 to 95\u00a0%", 95.0, "placed"),
    ("95\u00a0% and above", 101.0, "lead"),
)


def over_windows(judged: Judged) -> list[Element]:
    """The shown models window by window, on all rows and on first runs."""
    if not judged.measured.windows:
        return []
    return [
        _windows(judged, "windows", "Accuracy over time, all rows", lambda window: window.everything),
        _windows(judged, "windows-first", "Accuracy over time, first runs", lambda window: window.first),
        *([ranges] if (ranges := _range_of_windows(judged)) is not None else []),
    ]


def by_slice(judged: Judged) -> Element | None:
    """The shown models on every slice."""
    verdict = judged.verdict
    history = verdict.history
    if history is None:
        return None
    names = shown(verdict)
    drawn = marks(names)
    floor = verdict.noise_floor or {}
    if floor:
        drawn.append(Mark("noise floor", "bound", "stroke"))
    own = verdict.models[verdict.default].under(history)
    rows = [
        DotRow(
            f"{slice_name(name)} · {count(own[name].rows)}",
            within(own[name]),
            (
                *(
                    dot(verdict.models[model].under(history).get(name), sure=model == verdict.default)
                    for model in names
                ),
                *([dot(floor.get(name), sure=False)] if floor else []),
            ),
        )
        for name in [*SLICES, *(name for name in own if name not in SLICES)]
        if name in own and own[name].rows
    ]
    return figure(
        "slices",
        "By slice",
        f"Share within ±20\u00a0% by kind of row, with {HISTORY_WORDS[history]}. After each slice: its rows; at the "
        "right: the default model.",
        legend_of_marks(drawn),
        dots(
            "chart-slices",
            "Share within ±20\u00a0% by slice",
            "Points, one row for each slice: the default model with its interval, and the models it is held against.",
            drawn,
            rows,
            scale_mark,
        ),
        level=3,
        numbers=_slices_table(names, own, judged, history),
    )


def classes(judged: Judged) -> Element | None:
    """How many model types, and how many of the rows, are predicted how well."""
    found, default = judged.measured.model_types, judged.verdict.default
    if not found:
        return None
    below = [each for each in found if each.within20[default] < 50]
    series = [Series(name, paint) for name, _, paint in _CLASSES]
    rows = sum(each.rows for each in found)

    def parts(weigh: Callable[[ModelTypeShares], int], total: int) -> tuple[float, ...]:
        held = [0.0] * len(_CLASSES)
        for each in found:
            place = next(place for place, (_, end, _) in enumerate(_CLASSES) if each.within20[default] < end)
            held[place] += weigh(each) / total
        return tuple(held)

    by_type, by_row = parts(lambda _: 1, len(found)), parts(lambda each: each.rows, rows)
    return figure(
        "model-types",
        "By model type",
        f"{count(len(below))} of {model_types(len(found))} lie below 50\u00a0% within ±20\u00a0%, with "
        f"{percent(sum(each.rows for each in below) / rows)} of the rows. How many model types, and how many of the "
        "rows, belong to model types with which share:",
        legend(series),
        stacks(
            "chart-model-types",
            "Model types by their share within ±20\u00a0%",
            "Two stacked bars: the model types, and the rows, by the share within ±20\u00a0% of the model type.",
            series,
            [
                Stack("model types", count(len(found)), by_type),
                Stack("rows", count(rows), by_row),
            ],
            lambda share: scale_mark(100 * share),
        ),
        level=3,
        numbers=_types_table(found, shown(judged.verdict)),
    )


def by_model_type(judged: Judged) -> list[Element]:
    """The model types that are run most, and those that are predicted worst."""
    found = judged.measured.model_types
    if not found:
        return []
    default = judged.verdict.default
    names = shown(judged.verdict)[:3]
    enough = [each for each in found if each.rows >= WORST_OF]
    worst = sorted(enough, key=lambda each: (each.within20[default], each.model_type))
    made = []
    for identity, heading, chosen, which in (
        ("most-run", "The model types run most", found, "run most"),
        ("worst", "The model types predicted worst", worst, f"predicted worst, of those with {WORST_OF} rows or more"),
    ):
        part = chosen[:MODEL_TYPES_SHOWN]
        if part:
            made.append(_model_types(identity, heading, part, len(found), which, names))
    return made


def _windows(judged: Judged, identity: str, heading: str, of: Callable[[WindowShares], Mapping[str, Share]]) -> Element:
    verdict, windows = judged.verdict, judged.measured.windows
    names = shown(verdict)
    shares = {model: [of(window).get(model) for window in windows] for model in names}
    held = [share for found in shares.values() for share in found if share is not None]
    if not held:
        return figure(identity, heading, "No window has such rows.")
    least = min(value for share in held for value in (share.within20, share.low) if value is not None)
    lines = [
        line(
            rank,
            model,
            [
                (window.window, *(_NOTHING if share is None else (share.within20, share.low, share.high)))
                for window, share in zip(windows, shares[model], strict=True)
            ],
        )
        for rank, model in enumerate(names)
    ]
    own = [share.within20 for share in shares[verdict.default] if share is not None]
    said = (
        f"{verdict.default}: median {per_cent(median(own))}, from {per_cent(min(own))} to {per_cent(max(own))}. "
        if own
        else ""
    )
    return figure(
        identity,
        heading,
        f"Share within ±20\u00a0% in each window. {said}The band is a 95\u00a0% bootstrap interval over job families.",
        legend_of_lines(lines),
        plane(
            f"chart-{identity}",
            heading,
            "Lines over the windows: share within ±20\u00a0% of the default model, with a band, and of those it is "
            "held against.",
            Axis.names([window.window for window in windows], NAMES_SHOWN, verdict.by),
            Axis.linear(_round_down(least), 100.0, scale_mark),
            list(reversed(lines)),  # the default lies on top
            height=240,
        ),
        level=3,
        numbers=table(
            "Share within ±20\u00a0% by window",
            [Column("Window", number=False), Column("Rows"), *(Column(name) for name in names), Column("Interval")],
            [_window_line(window.window, of(window), names) for window in windows[:TABLE_ROWS]],
        ),
    )


def _range_of_windows(judged: Judged) -> Element | None:
    found = {model: slices for model, slices in (judged.verdict.over_windows or {}).items() if "all" in slices}
    windows = max((slices["all"].windows for slices in found.values()), default=0)
    if windows < RANGE_OF:
        return None
    ranked = sorted(found.items(), key=lambda item: -item[1]["all"].median)
    drawn = [Mark("all rows", "lead", "disc"), Mark("first runs", "hue-5", "diamond")]
    heading = "Median and range over the windows"
    return figure(
        "ranges",
        heading,
        f"Share within ±20\u00a0% in the median of {count(windows, 'window')}, and from the lowest to the highest. "
        "At the right: all rows · first runs.",
        legend_of_marks(drawn),
        dots(
            "chart-ranges",
            heading,
            "Points with ranges, one row for each model: all rows and first runs.",
            drawn,
            [
                DotRow(
                    model,
                    " · ".join(_range_cells(slices.get(name))[0] for name in ("all", FIRST)),
                    tuple(_range(slices.get(name)) for name in ("all", FIRST)),
                )
                for model, slices in ranked
            ],
            scale_mark,
        ),
        level=3,
        numbers=table(
            "Median and range over the windows, share within ±20\u00a0%",
            [
                Column("Model", number=False),
                *(Column(f"{of}, {what}") for of in ("All rows", "First runs") for what in ("median", "range")),
            ],
            [[model, *_range_cells(slices["all"]), *_range_cells(slices.get(FIRST))] for model, slices in ranked],
        ),
    )


def _range_cells(found: OverWindows | None) -> tuple[str, str]:
    return (NONE, NONE) if found is None else (per_cent(found.median), between(found.low, found.high))


def _range(found: OverWindows | None) -> Dot | None:
    return None if found is None else Dot(found.median, found.low, found.high)


def _window_line(window: str, shares: Mapping[str, Share], names: Sequence[str]) -> list[str]:
    own = shares.get(names[0])
    return [
        window,
        NONE if own is None else count(own.rows),
        *(per_cent(share.within20 if (share := shares.get(name)) else None) for name in names),
        NONE if own is None else between(own.low, own.high),
    ]


def _round_down(least: float) -> float:
    """A round begin for a scale that ends at 100 %."""
    return next((begin for begin in (95.0, 90.0, 80.0, 60.0, 40.0, 20.0) if least >= begin), 0.0)


def _slices_table(names: Sequence[str], own: Slices, judged: Judged, history: History) -> Element:
    floor = judged.verdict.noise_floor or {}
    return table(
        "Share within ±20\u00a0% by slice",
        [
            Column("Slice", number=False),
            Column("Rows"),
            *(Column(name) for name in names),
            Column("95\u00a0% interval"),
            Column("By device-hours"),
            *([Column("Noise floor")] if floor else []),
        ],
        [
            [
                slice_name(name),
                count(found.rows),
                *(
                    per_cent(
                        other.within20 if (other := judged.verdict.models[model].under(history).get(name)) else None
                    )
                    for model in names
                ),
                between(found.within20_low, found.within20_high),
                per_cent(found.within20_device_hours),
                *([per_cent(low.within20 if (low := floor.get(name)) else None)] if floor else []),
            ]
            for name, found in own.items()
        ],
    )


def _model_types(
    identity: str, heading: str, part: Sequence[ModelTypeShares], total: int, which: str, names: Sequence[str]
) -> Element:
    drawn = marks(names)
    default = names[0]
    part_of = model_types(total) if len(part) == total else f"{len(part)} of {model_types(total)}"
    return figure(
        identity,
        heading,
        f"Share within ±20\u00a0% of the {part_of} {which}. At the right: the default model, rows.",
        legend_of_marks(drawn),
        dots(
            f"chart-{identity}",
            heading,
            "Points, one row for each model type: share within ±20\u00a0% of the default model and of those it is held "
            "against.",
            drawn,
            [
                DotRow(
                    each.model_type,
                    f"{per_cent(each.within20[default])} · {count(each.rows)}",
                    tuple(Dot(each.within20[name]) if name in each.within20 else None for name in names),
                )
                for each in part
            ],
            scale_mark,
        ),
        level=3,
        numbers=_types_table(part, names),
    )


def _types_table(found: Sequence[ModelTypeShares], names: Sequence[str]) -> Element:
    part = found[:TABLE_ROWS]
    return table(
        "Share within ±20\u00a0% by model type, the most run first"
        + (f"; the first {count(len(part))} of {count(len(found))}" if len(part) < len(found) else ""),
        [
            Column("Model type", number=False),
            Column("Rows"),
            *(Column(name) for name in names),
            Column("First runs"),
            Column(f"{names[0]} on first runs"),
        ],
        [
            [
                each.model_type,
                count(each.rows),
                *(per_cent(each.within20.get(name)) for name in names),
                count(each.first_rows),
                per_cent(each.first_within20),
            ]
            for each in part
        ],
    )
