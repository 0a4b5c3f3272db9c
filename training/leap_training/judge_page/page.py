"""What the judge found as a page: how good, of what, when, how sure, why, and what was not measured."""

from __future__ import annotations

from leap_training.judge_page.accuracy import by_model_type, by_slice, classes, over_windows
from leap_training.judge_page.certainty import against_table, calibration, levels
from leap_training.judge_page.comparison import comparison, comparison_table, differences
from leap_training.judge_page.overview import head, headline, tiles
from leap_training.judge_page.reading import Judged
from leap_training.judge_page.reasons import ablations, holdouts, importance, pairs, regret
from leap_training.judge_page.scatter import predicted_against_measured
from leap_training.page import Element, document, element, reading


def page(judged: Judged) -> str:
    """`judged` as a self-contained HTML document. What was not measured has no figure, and is named at the end."""
    return document(
        f"Predictions judged in {judged.source}",
        *head(judged),
        headline(judged),
        tiles(judged),
        _part("Models", *comparison(judged), *differences(judged)),
        comparison_table(judged),
        _part(
            "Where and when", *over_windows(judged), _stacked(by_slice(judged), classes(judged)), *by_model_type(judged)
        ),
        _part("Predicted and measured", *predicted_against_measured(judged)),
        _part("How sure", *calibration(judged), levels(judged), against_table(judged)),
        _part("Why", *importance(judged), ablations(judged), holdouts(judged)),
        _part("What it is good for", pairs(judged), regret(judged)),
        element("div", _reading(), _not_measured(judged), class_="notes"),
    )


def _stacked(*figures: Element | None) -> Element | None:
    """Figures that share one place, one below the other."""
    drawn = [figure for figure in figures if figure is not None]
    return element("div", *drawn) if drawn else None


def _part(heading: str, *figures: Element | None) -> Element | None:
    drawn = [figure for figure in figures if figure is not None]
    if not drawn:
        return None
    return element(
        "section",
        element("h2", heading, class_="part"),
        element("div", *drawn, class_="figures"),
    )


def _reading() -> Element:
    words = (
        (
            "Within ±20\u00a0%",
            "The predicted throughput differs from the measured one by at most a fifth of the latter. A row without a "
            "prediction counts as wrong.",
        ),
        (
            "First run in a cell",
            "No run of the same job family on the same hardware type with as many trainers had completed when the "
            "attempt was submitted. All other rows repeat something known.",
        ),
        (
            "Live, nightly, frozen",
            "What history a prediction may use: all that had been recorded at submission, what was known at the "
            "midnight (UTC) before, or what was known when the model was fitted.",
        ),
        (
            "Windows",
            "A model is fitted on what was recorded before a window and scored on the attempts submitted in it. "
            "Nothing that came later takes part.",
        ),
        (
            "Intervals",
            "95\u00a0% bootstrap intervals over job families (or what the judge was told), not rows: runs of one "
            "family are alike, so that single rows would make a figure look surer than it is.",
        ),
        (
            "backoff_last, leap, lookup",
            "The last value of the most specific level of history that has one; the paper's cascade; a table by "
            "model type, trainers, batch size and hardware.",
        ),
        (
            "Noise floor",
            "What the true expectation of every attempt would reach. It is known only on synthetic fleets.",
        ),
    )
    return reading(words)


def _not_measured(judged: Judged) -> Element | None:
    verdict = judged.verdict
    intervals = verdict.intervals or {}
    missing = [
        (what, options)
        for held, what, options in (
            (verdict.noise_floor, "The noise floor of a synthetic fleet", "--truth"),
            (verdict.differences, "Differences between models with paired intervals", None),
            (intervals.get(verdict.default), "Whether intervals hold: the default model gave none", None),
            (verdict.against_table, "Accuracy on the rows that the lookup table covers", None),
            (verdict.importance, "What each feature is worth", "--importance"),
            (verdict.ablations, "What each part of the paper's model is worth", "--ablations"),
            (verdict.holdouts, "Hardware types and families left out of training", "--holdouts"),
            (verdict.pairs, "How often the better of two hardware types is put first", None),
            (verdict.regret, "What following the picks would lose, on a synthetic fleet", "--truth --costs"),
        )
        if not held
    ]
    if not missing:
        return None
    return element(
        "section",
        element("h2", "Not measured here"),
        element(
            "ul",
            *(
                element("li", what, *((": ", element("code", f"leap evaluate {options}")) if options else ()))
                for what, options in missing
            ),
        ),
        id="not-measured",
    )
