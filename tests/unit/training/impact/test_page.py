"""The page and the table hold whatever names come, and say what they show."""

from __future__ import annotations

from datetime import UTC, date, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from html_tree import Node, parsed
from leap_training.impact import table
from leap_training.impact.page import DAYS_SHOWN, MODELS_SHOWN, page
from leap_training.impact.report import Group, ImpactLine, ImpactReport, Interval, Unranked
from leap_training.page import legible

LINE = ImpactLine(
    attempts=10,
    device_hours=100.0,
    ranked=Group(6, 60.0, 3, 45.0),
    control=Group(2, 20.0, 1, 5.0),
    ranked_cost_usd=120.0,
    saving=Interval(0.2, -0.1, 0.4),
    compared_cost_usd=120.0,
    predicted_left=None,
    predicted_kept=None,
    note="",
)


def report(**changes: object) -> ImpactReport:
    given = ImpactReport(
        source="archive",
        begin=datetime(2026, 3, 1, tzinfo=UTC),
        end=datetime(2026, 3, 31, tzinfo=UTC),
        confidence=0.95,
        window_hours=1.0,
        decisions=8,
        total=LINE,
        by_model=[msgspec.structs.replace(LINE, model_type="bert")],
        by_day=[msgspec.structs.replace(LINE, day=date(2026, 3, 1))],
        unranked=[Unranked("store_slow", 2, 20.0)],
        notes=["a note"],
    )
    return msgspec.structs.replace(given, **changes)


def widths(root: Node, identity: str) -> list[float]:
    (bar,) = root.one(identity).find("svg", "bar")
    return [float(rect.attributes["width"].removesuffix("%")) for rect in bar.find("rect")]


def test_the_saving_its_money_and_a_zero_within_are_said() -> None:
    text = parsed(page(report())).one("headline").text
    assert "20.0\u00a0%" in text
    # What is left to pay is 120 $ at a saving of 20 %: 150 $ less 30 $.
    assert "about $30.0 beside the $120" in text
    assert "It covers zero: nothing is shown yet." in text
    sure = msgspec.structs.replace(LINE, saving=Interval(0.2, 0.1, 0.3))
    assert "covers zero" not in parsed(page(report(total=sure))).one("headline").text


def test_bars_are_the_shares_of_device_hours() -> None:
    root = parsed(page(report()))
    for identity in ("days", "models"):
        assert widths(root, identity) == pytest.approx([45, 15, 20, 20], abs=0.01)


def test_long_fleets_are_cut_and_the_cut_is_said() -> None:
    models = [msgspec.structs.replace(LINE, model_type=f"model-{number}") for number in range(MODELS_SHOWN + 5)]
    days = [msgspec.structs.replace(LINE, day=date.fromordinal(739_000 + number)) for number in range(DAYS_SHOWN + 5)]
    root = parsed(page(report(by_model=models, by_day=days)))
    assert len(root.one("models").find("svg", "bar")) == MODELS_SHOWN
    assert f"{MODELS_SHOWN} of {MODELS_SHOWN + 5} model types" in root.one("models").text
    assert f"{DAYS_SHOWN} of {DAYS_SHOWN + 5} days" in root.one("days").text
    lines = list(table.lines(report(by_model=models)))
    assert "and 10 more model types: see --all" in lines
    assert sum(line.startswith("model-") for line in table.lines(report(by_model=models), every=True)) == len(models)


@settings(max_examples=50)
@given(st.text(max_size=60), st.text(min_size=1, max_size=200), st.text(max_size=200))
def test_any_name_stays_in_its_place(source: str, model_type: str, reason: str) -> None:
    given = report(
        source=source,
        by_model=[msgspec.structs.replace(LINE, model_type=model_type)],
        unranked=[Unranked(reason, 1, 1.0)],
        notes=[reason],
    )
    root = parsed(page(given))
    (row,) = root.one("models").find("table")[0].rows()[1:]
    assert row[0] == legible(model_type)
    assert [cells[0] for cells in root.one("unranked").find("table")[0].rows()[1:]] == [legible(reason)]
    lines = list(table.lines(given))
    assert all(line.isprintable() for line in lines)
