"""The page of a judgement shows the judge's own figures, and leaves out what was not measured instead of guessing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from html_tree import Node, parsed
from judged_directory import DEFAULT, NOT_RUN, SPREADS, Fleet, fleet
from leap_training.judge_page.page import page
from leap_training.judge_page.reading import read
from leap_training.page import interval, legible, percent

FIGURES = [
    *("models-all", "models-first-in-cell", "ahead-all", "ahead-first-in-cell"),
    *("windows", "windows-first", "ranges", "slices", "model-types", "most-run", "worst"),
    *("scatter", "scatter-first"),
    *("calibration", "calibration-over-time", "levels", "against-table"),
    *("importance-groups", "importance", "ablations", "holdouts"),
    *("pairs", "regret"),
]
HOSTILE = [
    "<script>alert(1)</script>",
    "</title></style></svg><img src=x onerror=alert(1)>",
    "نموذج تجريبي",
    "a\u202egnp.exe",
    "m" * 400,
]


@pytest.fixture(scope="module")
def made() -> Fleet:
    return fleet(3000)


@pytest.fixture(scope="module")
def root(made: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return shown(made, tmp_path_factory.mktemp("judged"))


def shown(made: Fleet, directory: Path) -> Node:
    return parsed(page(read(made.write(directory))))


def figures_of(root: Node) -> list[str]:
    return [node.attributes["id"] for node in root.find("figure")]


def rows_of(root: Node, identity: str) -> list[list[str]]:
    """The label and the printed value of each row of a chart."""
    return [
        [row.find("text", "label")[0].text, row.find("text", "value")[0].text]
        for row in root.one(identity).find("g", "row")
    ]


def table_of(root: Node, identity: str) -> list[list[str]]:
    (found,) = root.one(identity).find("table")
    return found.rows()[1:]


def per_cent(value: float) -> str:
    return percent(value / 100)


def with_interval(figures: dict[str, Any]) -> str:
    return (
        f"{per_cent(figures['within20'])} ({interval(figures['within20_low'] / 100, figures['within20_high'] / 100)})"
    )


def test_all_figures_are_there_each_with_its_numbers(root: Node) -> None:
    assert figures_of(root) == FIGURES
    for name in FIGURES:
        figure = root.one(name)
        assert figure.find("svg", "chart")
        (table,) = figure.find("table")
        assert len(table.rows()) > 1
        assert [heading.tag for heading in figure.walk() if heading.tag in ("h1", "h2", "h3")] == ["h3"]


def test_every_picture_has_a_title_and_a_description(root: Node) -> None:
    pictures = root.find("svg", "chart")
    assert len(pictures) == len(FIGURES) + 2  # predicted against measured is two pictures each
    for picture in pictures:
        assert [node.tag for node in picture.children[:2] if isinstance(node, Node)] == ["title", "desc"]
        assert all(node.text for node in picture.children[:2] if isinstance(node, Node))


def test_the_headline_says_all_first_runs_the_backoff_the_noise_floor_and_what_is_easy(made: Fleet, root: Node) -> None:
    headline = root.one("headline")
    live = made.judged["models"][DEFAULT]["live"]
    backoff = made.judged["models"]["backoff_last"]["live"]
    floor = made.judged["noise_floor"]
    assert [node.text for node in headline.find("p", "amount")] == [
        per_cent(live["all"]["within20"]),
        per_cent(live["first_in_cell"]["within20"]),
    ]
    for of in ("all", "first_in_cell"):
        assert interval(live[of]["within20_low"] / 100, live[of]["within20_high"] / 100) in headline.text
        assert per_cent(backoff[of]["within20"]) in headline.text
        assert per_cent(floor[of]["within20"]) in headline.text
    repeated = 100 * (1 - made.rows["first_in_cell"].mean())
    assert f"{per_cent(repeated)} of the rows repeat a cell" in headline.text


@pytest.mark.parametrize("of", ["all", "first_in_cell"])
def test_models_are_ranked_with_their_intervals(made: Fleet, root: Node, of: str) -> None:
    models = made.judged["models"]
    ranked = sorted(SPREADS, key=lambda name: -models[name]["live"][of]["within20"])
    assert rows_of(root, f"models-{of.replace('_', '-')}") == [
        *([name, with_interval(models[name]["live"][of])] for name in ranked),
        ["tabpfn", "not run"],
    ]


def test_a_model_that_was_not_run_has_a_reason_and_no_number(root: Node) -> None:
    section = root.one("models")
    (line,) = [line for line in section.find("table")[0].rows() if line[0] == "tabpfn"]
    assert line == ["tabpfn", "not run", *[""] * 9]
    assert [item.text for item in section.find("li")] == [f"tabpfn – not run: {NOT_RUN}"]
    for name in FIGURES:
        for row in root.one(name).find("g", "row"):
            if row.find("text", "label")[0].text == "tabpfn":
                assert not row.find("svg", "dot")


def test_the_table_of_models_has_every_history(made: Fleet, root: Node) -> None:
    lines = {line[0]: line[1:] for line in root.one("models").find("table")[0].rows()[1:]}
    for name in SPREADS:
        model = made.judged["models"][name]
        assert lines[name][:6] == [
            per_cent(model[history][of]["within20"])
            for of in ("all", "first_in_cell")
            for history in ("live", "nightly", "frozen")
        ]


def test_slices_show_the_default_beside_the_references_and_the_floor(made: Fleet, root: Node) -> None:
    live = made.judged["models"][DEFAULT]["live"]
    rows = root.one("slices").find("g", "row")
    assert [row.find("text", "value")[0].text for row in rows] == [
        with_interval(live[name])
        for name in ("all", "first_in_cell", "new_hardware_first", "new_hardware", "new_family", "head", "tail")
    ]
    assert [title.text.split(", ")[1].split(":")[0] for title in rows[0].find("title")[1:]] == [
        *("noise floor", "lookup", "leap", "backoff_last", DEFAULT),
    ]


def test_a_slice_without_rows_has_no_row(tmp_path: Path) -> None:
    made = fleet(300)
    for history in ("live", "nightly", "frozen"):
        made.judged["models"][DEFAULT][history]["new_family"] = {"rows": 0, "unanswered": 0, "within20": None}
    assert len(shown(made, tmp_path).one("slices").find("g", "row")) == 6


def test_model_types_below_half_are_counted(tmp_path: Path) -> None:
    made = fleet(2000, model_types=[f"model-{number}" for number in range(6)])
    hard = made.rows["model_type"] == "model-2"
    made.predictions[0]["log_predicted"] = made.rows["log_measured"] + hard
    root = shown(made, tmp_path)
    rows = percent(hard.mean())
    assert (
        f"1 of 6 model types lie below 50\u00a0% within ±20\u00a0%, with {rows} of the rows"
        in root.one("model-types").text
    )
    assert rows_of(root, "worst")[0] == ["model-2", f"{per_cent(0)} · {hard.sum()}"]


def test_model_types_with_few_rows_are_not_called_the_worst(tmp_path: Path) -> None:
    made = fleet(500, model_types=["common", "rare"])
    made.rows["model_type"][:] = "common"
    made.rows["model_type"][:19] = "rare"
    root = shown(made, tmp_path)
    assert [label for label, _ in rows_of(root, "most-run")] == ["common", "rare"]
    assert [label for label, _ in rows_of(root, "worst")] == ["common"]


def test_calibration_tells_levels_with_few_rows_apart(made: Fleet, root: Node) -> None:
    entries = made.judged["intervals"][DEFAULT]
    for entry, row in zip(entries, root.one("calibration").find("g", "row"), strict=True):
        (dot,) = row.find("svg", "dot")
        series = dot.find("title")[0].text.split(", ")[-1].split(":")[0]
        assert series == (
            "all levels"
            if entry["level"] == "all"
            else "a level with 100 rows or more"
            if entry["rows"] >= 100
            else "with fewer"
        )
        assert row.find("text", "value")[0].text == (
            f"{per_cent(entry['covered'])} · ±{per_cent(entry['median_half_width'])} · {entry['rows']:,}"
        )


def test_what_the_lookup_table_covers_is_said(made: Fleet, root: Node) -> None:
    everything = made.judged["models"]["lookup"]["live"]["all"]
    covered = everything["rows"] - everything["unanswered"]
    assert f"on the {covered:,} rows" in root.one("against-table").text
    assert f"covers, {percent(covered / everything['rows'])} of all" in root.one("against-table").text


def test_importance_shows_groups_and_features_with_full_names_in_the_table(root: Node) -> None:
    assert [row[0] for row in rows_of(root, "importance-groups")] == ["other history", "configuration"]
    assert rows_of(root, "importance")[1] == ["trainer_count", "configuration · +12.2"]
    assert [line[0] for line in table_of(root, "importance")][-1] == "batch_per_gb"
    assert all(len(label) <= 34 for label, _ in rows_of(root, "importance"))


def test_regret_is_ranked_from_the_least_and_shows_where_jobs_ran(root: Node) -> None:
    assert rows_of(root, "regret") == [
        [DEFAULT, per_cent(1.25)],
        ["backoff_last", per_cent(4.5)],
        ["as the owners ran them", per_cent(14.5)],
    ]


OPTIONAL = {
    "noise_floor": (),
    "differences": ("ahead-all", "ahead-first-in-cell"),
    "over_windows": ("ranges",),
    "intervals": ("calibration",),
    "against_table": ("against-table",),
    "importance": ("importance-groups", "importance"),
    "ablations": ("ablations",),
    "holdouts": ("holdouts",),
    "pairs": ("pairs",),
    "regret": ("regret",),
}


@pytest.mark.parametrize("absent", [lambda held, part: held.pop(part), lambda held, part: held.update({part: None})])
@pytest.mark.parametrize("part", OPTIONAL)
def test_a_part_that_was_not_measured_has_no_figure(
    tmp_path: Path, part: str, absent: Callable[[dict[str, Any], str], object]
) -> None:
    made = fleet(500)
    absent(made.judged, part)
    root = shown(made, tmp_path)
    assert figures_of(root) == [name for name in FIGURES if name not in OPTIONAL[part]]
    if part != "over_windows":
        assert len(root.one("not-measured").find("li")) == 1


def test_with_nothing_but_the_default_the_page_says_what_is_not_measured(tmp_path: Path) -> None:
    made = fleet(400, models=[DEFAULT], windows=["all"])
    made.judged = {"default": DEFAULT, "models": {DEFAULT: {"live": made.judged["models"][DEFAULT]["live"]}}}
    root = shown(made, tmp_path)
    assert len(root.one("not-measured").find("li")) == 9
    assert "back-off" not in root.one("headline").text
    assert "noise floor" not in root.one("headline").text


def test_a_default_that_was_not_run_gives_no_figure_and_the_reason(tmp_path: Path) -> None:
    made = fleet(200)
    made.judged["models"][DEFAULT] = {"not_run": "no such package"}
    root = shown(made, tmp_path)
    assert root.one("headline").find("p", "amount")[0].text == "No figure"
    assert "layered, was not run: no such package" in root.one("headline").text
    assert not {"slices", "windows", "scatter"} & set(figures_of(root))


def test_a_directory_without_rows_makes_a_page(tmp_path: Path) -> None:
    root = shown(fleet(0), tmp_path)
    assert [node.text for node in root.one("headline").find("p", "amount")] == ["–", "–"]


@pytest.mark.parametrize("name", HOSTILE)
def test_foreign_names_stay_text(tmp_path: Path, name: str) -> None:
    made = fleet(300, model_types=[name, "tame"], windows=[name, f"{name}2", "w"])
    made.judged["models"][name] = {"not_run": name}
    made.judged["importance"].append({"feature": name, "group": name, "points": 1.0})
    made.judged["by"] = name
    made.judged["holdouts"][0] |= {"value": name}
    root = shown(made, tmp_path)
    assert not root.find("script")
    assert not root.find("img")
    assert legible(name) in root.one("most-run").find("table")[0].text
    assert legible(name) in root.one("models").text


def test_a_page_of_200_000_predictions_stays_under_2_mb(tmp_path: Path) -> None:
    models = [DEFAULT, "leap", "backoff_last", "lookup"]
    names = [f"model-{number:03}-{'x' * 40}" for number in range(660)]
    made = fleet(17_000, models=models, model_types=names, windows=[f"2026-{day:03}" for day in range(400)])
    assert sum(len(part["model"]) for part in made.predictions) >= 200_000
    assert len(page(read(made.write(tmp_path))).encode()) < 2_000_000
