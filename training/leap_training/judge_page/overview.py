"""The top of the page: what was judged, how good the default model is, and what is easy about the data."""

from __future__ import annotations

from leap_training import page
from leap_training.judge_page.reading import Judged
from leap_training.judge_page.verdict import Figures, History, Slices
from leap_training.judge_page.wording import (
    ALL_LEVELS,
    FIRST,
    HISTORY_WORDS,
    NONE,
    between,
    model_types,
    per_cent,
    points,
)
from leap_training.page import Element, count, element

BACKOFF = "backoff_last"


def head(judged: Judged) -> list[Element]:
    """The heading, and what was judged."""
    verdict = judged.verdict
    windows = [window.name for window in verdict.windows]
    reach = f", {windows[0]} to {windows[-1]}" if len(windows) > 1 else f", {windows[0]}" if windows else ""
    said = f" · {count(judged.measured.rows, 'scored attempt')} in {count(len(windows), 'window')} by {verdict.by}"
    return [
        element("h1", "How well throughput is predicted"),
        element("p", element("bdi", judged.source), said, element("bdi", reach), class_="soft"),
    ]


def headline(judged: Judged) -> Element:
    """The default's share within ±20 % of all rows and of first runs, beside the back-off and the noise floor."""
    verdict = judged.verdict
    history = verdict.history
    if history is None:
        return _no_figure(judged)
    own = verdict.models[verdict.default].under(history)
    everything, first = own.get("all"), own.get(FIRST)
    return element(
        "section",
        element(
            "div",
            _amount(everything, "of all attempts", "attempts"),
            _amount(first, "of first runs in a cell", "first runs"),
            class_="amounts",
        ),
        element(
            "p",
            "were predicted within ±20\u00a0% of their measured throughput by the default model, ",
            element("strong", element("bdi", verdict.default)),
            f", with {HISTORY_WORDS[history]}. A cell is a job family on a hardware type with a number of trainers; "
            "its first run is one before which none there had completed.",
        ),
        _beside(judged, history),
        element("p", *_easy(judged)),
        class_="headline judged",
        id="headline",
    )


def tiles(judged: Judged) -> Element | None:
    """Single figures that place the headline."""
    verdict, measured = judged.verdict, judged.measured
    history = verdict.history
    if history is None:
        return None
    made: list[tuple[str, str, str]] = []
    if measured.rows:
        repeated = 100 * (1 - measured.first_rows / measured.rows)
        made.append(
            ("Repeat a known cell", per_cent(repeated), f"of the rows; {count(measured.first_rows)} are first runs")
        )
    ahead = (verdict.differences or {}).get(BACKOFF, {}).get(FIRST)
    if ahead is not None:
        made.append(
            (
                "Ahead of the last value",
                f"{points(ahead.points)} points",
                "on first runs"
                + ("" if ahead.low is None else f", 95\u00a0% interval {points(ahead.low)} to {points(ahead.high)}"),
            )
        )
    own = verdict.models[verdict.default].under(history).get("all")
    if own is not None and own.median_error is not None:
        made.append(
            ("Median error", per_cent(own.median_error), f"of all rows; {per_cent(own.within10)} within ±10\u00a0%")
        )
    for each in (verdict.intervals or {}).get(verdict.default, []):
        if each.level == ALL_LEVELS:
            made.append(
                ("80\u00a0% intervals hold", per_cent(each.covered), f"of {count(each.rows, 'measured value')}")
            )
    if measured.model_types:
        below = sum(each.within20[verdict.default] < 50 for each in measured.model_types)
        made.append(
            (
                "Below 50\u00a0%",
                f"{count(below)} of {count(len(measured.model_types))}",
                f"model types; {model_types(len(measured.model_types) - below)} at or above",
            )
        )
    not_run = sum(model.not_run is not None for model in verdict.models.values())
    made.append(
        (
            "Models judged",
            count(len(verdict.models) - not_run),
            f"on the same rows; {count(not_run)} not run" if not_run else "on the same rows",
        )
    )
    return page.tiles(made, many=True)


def _amount(figures: Figures | None, of: str, what: str) -> Element:
    if figures is None or figures.within20 is None:
        return element("div", element("p", NONE, class_="amount"), element("p", f"{of}: there are none", class_="soft"))
    sure = between(figures.within20_low, figures.within20_high)
    return element(
        "div",
        element("p", per_cent(figures.within20), class_="amount"),
        element("p", element("strong", of), class_="of"),
        element(
            "p",
            f"{count(figures.rows)} {what}" + ("" if sure == NONE else f" · 95\u00a0% interval {sure}"),
            class_="soft",
        ),
    )


def _beside(judged: Judged, history: History) -> Element | None:
    verdict = judged.verdict
    said = []
    backoff = verdict.models.get(BACKOFF)
    if backoff is not None and verdict.default != BACKOFF and (shares := backoff.under(history)):
        said.append(f"The last value of the back-off, with no model at all, reaches {_both(shares)}.")
    if verdict.noise_floor:
        said.append(
            f"The noise floor is {_both(verdict.noise_floor)}: who knew the true expectation of every attempt would "
            "reach that."
        )
    return element("p", " ".join(said)) if said else None


def _both(shares: Slices) -> str:
    everything, first = shares.get("all"), shares.get(FIRST)
    return (
        f"{per_cent(everything.within20 if everything else None)} of all and "
        f"{per_cent(first.within20 if first else None)} of first runs"
    )


def _easy(judged: Judged) -> list[Element | str]:
    measured = judged.measured
    if not measured.rows:
        return ["There are no rows."]
    repeated = 100 * (1 - measured.first_rows / measured.rows)
    reached = _on_repeats(judged, BACKOFF)
    alone = "" if reached is None else f"; the last value alone is right for {per_cent(reached)} of those"
    return [
        element("strong", "What is easy about these data: "),
        f"{per_cent(repeated)} of the rows repeat a cell that had been run before{alone}. The figure of all rows "
        "flatters every model that has history; the first runs tell models apart.",
    ]


def _on_repeats(judged: Judged, model: str) -> float | None:
    """The share of a model on the rows that repeat a known cell; None where it was not judged or there are none."""
    rows = hits = 0.0
    for window in judged.measured.windows:
        for shares, sign in ((window.everything, 1), (window.first, -1)):
            if model in shares:
                rows += sign * shares[model].rows
                hits += sign * shares[model].rows * shares[model].within20
    return hits / rows if rows else None


def _no_figure(judged: Judged) -> Element:
    verdict = judged.verdict
    why = verdict.models[verdict.default].not_run or "it was judged under no history"
    return element(
        "section",
        element("p", "No figure", class_="amount"),
        element(
            "p", "The default model, ", element("bdi", verdict.default), f", was not run: {why}.", class_="not-run"
        ),
        class_="headline judged",
        id="headline",
    )
