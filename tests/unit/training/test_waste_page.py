"""The page of a measurement of waste shows the measurement's own numbers, and says where there are none."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from html_tree import Node, parsed
from leap_training.page import interval, legible, money, percent, short_money
from leap_training.waste.page import page
from leap_training.waste.report import Share, WasteLine, WasteReport
from waste_reports import empty_report, fleet_report

FIGURES = ["cost-by-hardware", "best-value", "where", "matrix"]
MANY_MODELS = [f"model-{rank:03}" for rank in range(120)]
MANY_TYPES = [f"type-{rank:02}" for rank in range(30)]


@pytest.fixture(scope="module")
def report() -> WasteReport:
    return fleet_report()


@pytest.fixture(scope="module")
def root(report: WasteReport) -> Node:
    return parsed(page(report))


def wasted(line: WasteLine) -> float:
    return line.waste.value * line.compared_cost_usd if line.waste else 0.0


def table_of(root: Node, identity: str) -> list[list[str]]:
    (found,) = root.one(identity).find("table")
    return found.rows()[1:]


def widths(row: Node) -> list[float]:
    return [float(rect.attributes["width"].removesuffix("%")) for rect in row.find("rect")]


def cells(name: str | None, line: WasteLine) -> list[str]:
    """A line as tables print it."""
    shares = [part for share in (line.waste, line.misplaced) for part in share_cells(share)]
    return [
        name or "",
        f"{line.jobs:,}",
        money(line.cost_usd),
        f"{line.compared_jobs:,}",
        money(line.compared_cost_usd),
        money(wasted(line)) if line.waste else "–",
        *shares,
        line.note,
    ]


def share_cells(share: Share | None) -> list[str]:
    return ["–", "–"] if share is None else [percent(share.value), interval(share.low, share.high)]


def test_figures_stand_in_order_each_named_and_described(root: Node) -> None:
    assert [figure.attributes["id"] for figure in root.find("figure")] == FIGURES
    charts = root.find("svg", "chart")
    assert len(charts) == 3
    for chart in charts:
        assert all(root.one(name).text for name in chart.attributes["aria-labelledby"].split())


def test_the_headline_is_the_waste_of_all(root: Node, report: WasteReport) -> None:
    total, said = report.total, root.one("headline").text
    assert total.waste is not None
    assert said.startswith(percent(total.waste.value))
    assert f"{short_money(wasted(total))} of {short_money(total.compared_cost_usd)}" in said
    low, high = (share * total.compared_cost_usd for share in (total.waste.low, total.waste.high))
    assert f"90\u00a0% interval: {interval(total.waste.low, total.waste.high)}" in said
    assert f"{short_money(low)} to {short_money(high)}" in said


def test_what_was_compared_and_what_was_not_is_counted(root: Node, report: WasteReport) -> None:
    total = report.total
    tiles = [tile.text for tile in root.find("dl", "tiles")[0].find("div")]
    part = total.compared_cost_usd / total.cost_usd
    assert f"{short_money(total.compared_cost_usd)} ({percent(part, 0)}){total.compared_jobs:,} jobs" in tiles[1]
    assert f"({percent(1 - part, 0)}){total.jobs - total.compared_jobs:,} jobs: not enough overlap" in tiles[2]
    assert total.misplaced is not None
    assert percent(total.misplaced.value) in tiles[3]
    assert "more than 5\u00a0% below the best value" in tiles[3]


def test_every_table_holds_the_reports_numbers(root: Node, report: WasteReport) -> None:
    def by_cost(lines: list[WasteLine]) -> list[WasteLine]:
        return sorted(lines, key=lambda line: -line.cost_usd)

    assert table_of(root, "all-models") == [cells(line.model_type, line) for line in by_cost(report.by_model)]
    hardware = [cells(line.hardware_type, line) for line in by_cost(report.by_hardware)]
    assert table_of(root, "cost-by-hardware") == hardware
    where = sorted((line for line in report.by_model if line.waste), key=lambda line: -wasted(line))[:20]
    assert table_of(root, "where") == [cells(line.model_type, line) for line in where]


def test_costs_are_drawn_as_wasted_not_wasted_and_not_compared(root: Node, report: WasteReport) -> None:
    lines = sorted(report.by_hardware, key=lambda line: -line.cost_usd)
    most = lines[0].cost_usd
    for line, row in zip(lines, root.one("cost-by-hardware").find("g", "row"), strict=True):
        parts = [wasted(line), line.compared_cost_usd - wasted(line), line.cost_usd - line.compared_cost_usd]
        assert widths(row) == pytest.approx([100 * part / most for part in parts if part], abs=0.01)
        assert f"{short_money(line.cost_usd)} · {short_money(wasted(line))} wasted" in row.find("text", "value")[0].text


def test_best_value_shares_are_drawn_for_the_costliest_model_types(root: Node, report: WasteReport) -> None:
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for each in report.best:
        shares[each.model_type].append(each.share.value)
    costs = {line.model_type: line.cost_usd for line in report.by_model}
    shown = sorted(shares, key=lambda model: -costs[model])[:15]
    rows = root.one("best-value").find("g", "row")
    assert [row.find("text", "label")[0].text for row in rows] == shown
    for model, row in zip(shown, rows, strict=True):
        assert sum(widths(row)) == pytest.approx(100 * sum(shares[model]), abs=0.1)
        if len(shares[model]) == len(widths(row)):  # no types put together
            assert sorted(widths(row)) == pytest.approx(sorted(100 * share for share in shares[model]), abs=0.1)


def test_the_share_of_every_hardware_type_is_in_the_table_beneath(root: Node, report: WasteReport) -> None:
    best = {(each.model_type, each.hardware_type): each for each in report.best}
    rows = table_of(root, "best-value")
    assert len(rows) > 15
    for model, hardware, jobs, *share in rows:
        each = best[model, hardware]
        assert [jobs, *share] == [f"{each.jobs:,}", *share_cells(each.share)]


def test_waste_is_drawn_with_its_interval(root: Node, report: WasteReport) -> None:
    lines = sorted((line for line in report.by_model if line.waste), key=lambda line: -wasted(line))[:20]
    most = max(line.waste.high * line.compared_cost_usd for line in lines if line.waste)
    for line, row in zip(lines, root.one("where").find("g", "row"), strict=True):
        assert line.waste is not None
        assert widths(row) == pytest.approx([100 * wasted(line) / most], abs=0.01)
        whisker = row.find("line", "whisker")[0].attributes
        ends = [float(whisker[name].removesuffix("%")) for name in ("x1", "x2")]
        sizes = [share * line.compared_cost_usd for share in (line.waste.low, line.waste.high)]
        assert ends == pytest.approx([100 * size / most for size in sizes], abs=0.01)
        assert row.find("text", "value")[0].text == f"{short_money(wasted(line))} · {percent(line.waste.value)}"


def test_the_matrix_holds_every_pair_of_model_and_hardware(root: Node, report: WasteReport) -> None:
    lines = {(line.model_type, line.hardware_type): line for line in report.by_model_hardware}
    (head, *rows) = root.one("matrix").find("table")[0].rows()
    assert len(rows) == 20
    printed = {(row[0], hardware): text for row in rows for hardware, text in zip(head[1:], row[1:], strict=True)}
    for place, text in printed.items():
        line = lines.get(place)
        assert text == ("" if line is None else "–" if line.waste is None else short_money(wasted(line)))
    shown = {row[0] for row in rows}
    assert {place for place, text in printed.items() if text} == {place for place in lines if place[0] in shown}


def test_where_there_is_no_overlap_the_page_says_so(root: Node, report: WasteReport) -> None:
    without = [line for line in report.by_model if line.waste is None]
    assert without
    rows = {row[0]: row for row in table_of(root, "all-models")}
    for line in without:
        assert rows[line.model_type or ""][5:] == ["–"] * 5 + [line.note]
    assert f"{len(without)} without a figure" in root.one("all-models").text


def test_notes_are_on_the_page(root: Node, report: WasteReport) -> None:
    assert [item.text for item in root.one("notes").find("li")] == report.notes


def test_a_large_fleet_is_drawn_in_part_and_told_in_full() -> None:
    report = fleet_report(MANY_MODELS, MANY_TYPES)
    root = parsed(page(report))
    rows = [len(root.one(figure).find("g", "row")) for figure in FIGURES[:3]]
    assert rows == [24, 15, 20]
    compared, wasteful = (
        len({each.model_type for each in report.best}),
        sum(bool(each.waste) for each in report.by_model),
    )
    assert compared > 20
    assert f"the 15 of {compared} model types with the highest cost" in root.one("best-value").text
    assert f"the 20 of {wasteful} model types that waste most" in root.one("where").text
    assert {row[0] for row in table_of(root, "all-models")} == set(MANY_MODELS)
    legend = [item.text for item in root.one("best-value").find("li")]
    assert [item.split()[0] for item in legend] == ["A", "B", "C", "D", "E", "F", "G", "+"]
    assert legend[-1].endswith(" other types")


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (empty_report(), "No job here succeeded"),
        (empty_report(jobs=20, cost_usd=500.0, hardware=["T4"]), "Every job ran on T4"),
        (empty_report(jobs=20, hardware=["T4", "L4"]), "The jobs here cost nothing"),
        (empty_report(jobs=20, cost_usd=500.0, hardware=["T4", "L4"]), "No job could be compared"),
    ],
    ids=["no-jobs", "one-hardware-type", "no-cost", "no-overlap"],
)
def test_where_nothing_could_be_compared_the_page_says_why(report: WasteReport, why: str) -> None:
    root = parsed(page(report))
    headline = root.one("headline").text
    assert headline.startswith(f"No figure{why}")
    assert report.total.note in headline
    assert [figure.attributes["id"] for figure in root.find("figure")] == FIGURES[:3]
    assert "Nothing could be compared" in root.one("where").text
    assert len(root.one("cost-by-hardware").find("g", "row")) == len(report.by_hardware)
    assert "nan" not in root.find("main")[0].text.split()


def test_no_waste_is_a_figure_too(report: WasteReport) -> None:
    none = Share(value=0.0, low=0.0, high=0.0)

    def without(lines: list[WasteLine]) -> list[WasteLine]:
        return [msgspec.structs.replace(line, waste=line.waste and none) for line in lines]

    nothing = msgspec.structs.replace(
        report,
        total=without([report.total])[0],
        by_model=without(report.by_model),
        by_hardware=without(report.by_hardware),
        by_model_hardware=without(report.by_model_hardware),
    )
    root = parsed(page(nothing))
    assert root.one("headline").text.startswith("0.0\u00a0%of the compared cost")
    assert {row.find("text", "value")[0].text for row in root.one("where").find("g", "row")} == {"$0 · 0.0\u00a0%"}
    assert {cell.attributes.get("class", "heat-0") for cell in root.one("matrix").find("td")} == {"heat-0"}


@settings(max_examples=40)
@given(
    st.lists(st.text(st.characters(), min_size=1, max_size=128), min_size=1, max_size=8, unique=True),
    st.lists(st.text(st.characters(), min_size=1, max_size=128), min_size=1, max_size=8, unique=True),
    st.text(st.characters(), max_size=60),
)
def test_foreign_names_never_become_markup(models: list[str], hardware: list[str], source: str) -> None:
    plain = fleet_report([f"m{place}" for place in range(len(models))], [f"h{place}" for place in range(len(hardware))])
    report = msgspec.structs.replace(fleet_report(models, hardware), source=source, notes=[source])
    html = page(report)
    html.encode()
    root = parsed(html)
    # Not one for one: the fake's figures depend on the order of the names, and with them which cells are shown.
    assert {node.tag for node in root.walk()} <= {node.tag for node in parsed(page(plain)).walk()} | {"section", "li"}
    assert {row[0] for row in table_of(root, "all-models")} == {legible(model) for model in models}
    assert root.find("title")[0].text == legible(f"Waste in {source}")


@pytest.mark.parametrize("name", ["<script>alert('x')</script>", '"><svg onload="alert(1)">', "&lt;b&gt;"])
def test_a_name_of_markup_is_shown_as_it_is_written(name: str) -> None:
    html = page(fleet_report([name, "other"], [name, "T4", "L4"]))
    assert name not in html
    root = parsed(html)
    assert not root.find("script")
    assert not [node for node in root.walk() if any(attribute.startswith("on") for attribute in node.attributes)]
    assert name in {row[0] for row in table_of(root, "all-models")}


def test_one_report_gives_one_page(report: WasteReport) -> None:
    assert page(report) == page(fleet_report())
