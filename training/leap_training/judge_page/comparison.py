"""All models on the same rows, under each kind of history, and how far the default is ahead of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from leap_training.judge_page.reading import Judged
from leap_training.judge_page.verdict import HISTORIES, Difference, Figures, History, JudgedModel, Verdict
from leap_training.judge_page.wording import (
    FIRST,
    NONE,
    SLICES,
    between,
    dot,
    per_cent,
    points,
    scale_mark,
    slice_name,
    whole_points,
    within,
)
from leap_training.page import (
    Child,
    Column,
    Dot,
    DotRow,
    Element,
    Mark,
    Reference,
    count,
    dots,
    element,
    figure,
    folded,
    legend_of_marks,
    short,
    table,
)

NOT_RUN: Final = "not run"

_MARKS: Final[Mapping[History, Mark]] = {
    "live": Mark("live", "lead", "disc"),
    "nightly": Mark("nightly", "other", "diamond"),
    "frozen": Mark("frozen", "other", "ring"),
}


def comparison(judged: Judged) -> list[Element]:
    """All models on all rows and on first runs, and the table of both."""
    verdict = judged.verdict
    return [
        _of_slice(verdict, "all", "All models, on all rows"),
        _of_slice(verdict, FIRST, "All models, on first runs in a cell"),
    ]


def comparison_table(judged: Judged) -> Element:
    """Every model under every history, and the models that were not run."""
    verdict = judged.verdict
    not_run = [(name, model.not_run) for name, model in verdict.models.items() if model.not_run is not None]
    return element(
        "section",
        element("h2", "All models in numbers"),
        element("p", "Share within ±20\u00a0%, all models on the same rows."),
        table(
            "Share within ±20\u00a0% by model, history and slice",
            [
                Column("Model", number=False),
                *(Column(f"{of}, {history}") for of in ("All", "First runs") for history in HISTORIES),
                Column("First runs on new hardware, live"),
                Column("New families, live"),
                Column("Median error, live"),
                Column("Fit, seconds"),
            ],
            [_line(name, model) for name, model in _ranked(verdict, "all")],
        ),
        _not_run(not_run),
        folded("All figures of all models", _everything(verdict)),
        class_="wide",
        id="models",
    )


def differences(judged: Judged) -> list[Element]:
    """How far the default is ahead of each model on the same rows."""
    found = judged.verdict.differences
    if not found:
        return []
    return [
        made
        for name, heading in (
            ("all", "How far the default is ahead, on all rows"),
            (FIRST, "How far the default is ahead, on first runs"),
        )
        if (made := _ahead(judged.verdict.default, found, name, heading)) is not None
    ]


def _of_slice(verdict: Verdict, name: str, heading: str) -> Element:
    histories = [history for history in HISTORIES if any(model.under(history) for model in verdict.models.values())]
    drawn = [_MARKS[history] for history in histories]
    floor = (verdict.noise_floor or {}).get(name)
    reference = [] if floor is None or floor.within20 is None else [Reference(floor.within20)]
    ranked = _ranked(verdict, name)
    said = f" The dashed line is the noise floor, {per_cent(floor.within20)}." if floor and reference else ""
    return figure(
        f"models-{name.replace('_', '-')}",
        heading,
        f"Share of {_rows(ranked, name)} predicted within ±20\u00a0%, with a 95\u00a0% bootstrap interval for the "
        f"history that is printed.{said}",
        legend_of_marks(drawn),
        dots(
            f"chart-models-{name.replace('_', '-')}",
            heading,
            "Points, one row for each model: share within ±20\u00a0% with live, nightly and frozen history.",
            drawn,
            [_dot_row(model, found, name, histories) for model, found in ranked],
            scale_mark,
            reference,
        )
        if ranked
        else None,
        level=3,
        numbers=_slice_table(ranked, name),
    )


def _rows(ranked: Sequence[tuple[str, JudgedModel]], name: str) -> str:
    rows = max((held.rows for _, model in ranked if (held := _printed(model, name)) is not None), default=0)
    return count(rows, "row") if name == "all" else f"{count(rows)} {slice_name(name)}"


def _dot_row(name: str, model: JudgedModel, of: str, histories: Sequence[History]) -> DotRow:
    if model.not_run is not None:
        return DotRow(name, NOT_RUN, (None,) * len(histories))
    freshest = _freshest(model)
    return DotRow(
        name,
        within(_printed(model, of)),
        tuple(dot(model.under(history).get(of), sure=history == freshest) for history in histories),
    )


def _freshest(model: JudgedModel) -> History | None:
    return next((history for history in HISTORIES if model.under(history)), None)


def _printed(model: JudgedModel, name: str) -> Figures | None:
    """Its figures under the freshest history that it was judged with."""
    freshest = _freshest(model)
    return None if freshest is None else model.under(freshest).get(name)


def _ranked(verdict: Verdict, name: str) -> list[tuple[str, JudgedModel]]:
    """The models, best first; those that were not run last."""

    def merit(model: JudgedModel) -> float:
        figures = _printed(model, name)
        return -1.0 if figures is None or figures.within20 is None else figures.within20

    return sorted(verdict.models.items(), key=lambda item: -merit(item[1]))


def _line(name: str, model: JudgedModel) -> list[str]:
    if model.not_run is not None:
        return [name, NOT_RUN, *[""] * 9]
    shares = [_share(model, history, of) for of in ("all", FIRST) for history in HISTORIES]
    live = model.under("live").get("all")
    return [
        name,
        *shares,
        _share(model, "live", "new_hardware_first"),
        _share(model, "live", "new_family"),
        per_cent(live.median_error if live else None),
        NONE if model.fit_seconds is None else short(model.fit_seconds),
    ]


def _share(model: JudgedModel, history: History, of: str) -> str:
    figures = model.under(history).get(of)
    return per_cent(figures.within20 if figures else None)


def _not_run(models: Sequence[tuple[str, str | None]]) -> Child:
    if not models:
        return None
    return element(
        "ul",
        *(element("li", element("bdi", name), f" – {NOT_RUN}: ", element("bdi", why or "")) for name, why in models),
        class_="not-run",
    )


def _slice_table(ranked: Sequence[tuple[str, JudgedModel]], name: str) -> Element:
    return _figures_table(
        f"Figures on {slice_name(name)}",
        ["Model", "History"],
        [
            ([model, history], found.under(history)[name])
            for model, found in ranked
            for history in HISTORIES
            if name in found.under(history)
        ],
    )


def _everything(verdict: Verdict) -> Element:
    known = [*SLICES, *sorted({name for each in verdict.models.values() for name in _slices(each)} - set(SLICES))]
    return _figures_table(
        "Figures by model, history and slice",
        ["Model", "History", "Slice"],
        [
            ([model, history, slice_name(name)], found.under(history)[name])
            for model, found in verdict.models.items()
            for history in HISTORIES
            for name in known
            if name in found.under(history)
        ],
    )


def _slices(model: JudgedModel) -> set[str]:
    return {name for history in HISTORIES for name in model.under(history)}


def _figures_table(caption: str, keys: Sequence[str], lines: Sequence[tuple[Sequence[str], Figures]]) -> Element:
    return table(caption, figure_columns(keys), [[*names, *figure_cells(found)] for names, found in lines])


def figure_columns(keys: Sequence[str]) -> list[Column]:
    """The columns of a table of figures, after those of its keys."""
    return [
        *(Column(key, number=False) for key in keys),
        Column("Rows"),
        Column("Within ±20\u00a0%"),
        Column("95\u00a0% interval"),
        Column("Within ±10\u00a0%"),
        Column("Median error"),
        Column("Within ±20\u00a0%, by device-hours"),
        Column("Unanswered"),
    ]


def figure_cells(found: Figures) -> list[str]:
    """The cells of `figure_columns`."""
    return [
        count(found.rows),
        per_cent(found.within20),
        between(found.within20_low, found.within20_high),
        per_cent(found.within10),
        per_cent(found.median_error),
        per_cent(found.within20_device_hours),
        count(found.unanswered),
    ]


def _ahead(default: str, found: dict[str, dict[str, Difference]], name: str, heading: str) -> Element | None:
    lines = sorted(
        ((model, slices[name]) for model, slices in found.items() if name in slices), key=lambda line: line[1].points
    )
    if not lines:
        return None
    identity = f"ahead-{name.replace('_', '-')}"
    return figure(
        identity,
        heading,
        f"Points of the share within ±20\u00a0% by which {default} is ahead of each model on the same rows, with a "
        "paired 95\u00a0% bootstrap interval. An interval that holds 0 settles nothing.",
        dots(
            f"chart-{identity}",
            heading,
            f"Points with intervals, one row for each model: by how many points {default} is ahead.",
            [Mark("ahead", "lead", "disc")],
            [DotRow(model, _ahead_text(each), (Dot(each.points, each.low, each.high),)) for model, each in lines],
            whole_points,
            [Reference(0.0)],
        ),
        level=3,
        numbers=table(
            f"Points by which {default} is ahead",
            [Column("Model", number=False), Column("Points"), Column("Low"), Column("High")],
            [[model, points(each.points), points(each.low), points(each.high)] for model, each in lines],
        ),
    )


def _ahead_text(each: Difference) -> str:
    sure = "" if each.low is None or each.high is None else f" ({points(each.low)} to {points(each.high)})"
    return f"{points(each.points)}{sure}"
