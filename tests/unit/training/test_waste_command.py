"""`leap waste` on a small synthetic fleet: from a table, from an archive, into files, and against the truth."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from leap_features.command import leap
from leap_training.fleet.files import write_fleet
from leap_training.fleet.settings import FleetSettings
from leap_training.fleet.simulate import Fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a fleet of 4,000 attempts."""
    directory = tmp_path_factory.mktemp("fleet")
    write_fleet(
        Fleet(FleetSettings(days=4, attempts_per_day=1_000, hardware=8, model_types=8)),
        directory,
        "parquet",
        force=True,
    )
    return directory


def waste(*arguments: object) -> Result:
    return CliRunner().invoke(leap, ["waste", *map(str, arguments)])


def output(*arguments: object) -> list[str]:
    result = waste(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_table_is_readable_and_ends_with_the_waste_in_one_sentence(fleet: Path) -> None:
    lines = output(fleet / "completions.parquet", "--all")
    assert max(map(len, lines)) <= 120
    assert "would have been saved on the eligible hardware of most value" in lines[-1]
    models = set(pq.read_table(fleet / "truth.parquet")["model_type"].to_pylist())
    assert all(any(line.startswith(model) for line in lines) for model in models)


def test_an_archive_gives_the_figures_of_the_table_it_was_imported_from(fleet: Path, tmp_path: Path) -> None:
    table = fleet / "completions.parquet"
    done = CliRunner().invoke(leap, ["import", str(table), "--archive", str(tmp_path / "archive")])
    assert done.exit_code == 0, done.output
    of_table = json.loads(waste(table, "--json").stdout)["report"]
    of_archive = json.loads(waste(tmp_path / "archive", "--json").stdout)["report"]
    assert of_table.pop("source") != of_archive.pop("source")
    assert of_table == of_archive


def test_parquet_has_a_row_for_each_line(fleet: Path, tmp_path: Path) -> None:
    table = fleet / "completions.parquet"
    report = json.loads(waste(table, "--json", "--parquet", tmp_path / "waste.parquet").stdout)["report"]
    rows = pq.read_table(tmp_path / "waste.parquet").to_pylist()
    for level, lines in (
        ("total", [report["total"]]),
        ("model", report["by_model"]),
        ("hardware", report["by_hardware"]),
        ("model_hardware", report["by_model_hardware"]),
    ):
        found = [row for row in rows if row["level"] == level]
        assert [(row["model_type"], row["hardware_type"], row["jobs"]) for row in found] == [
            (line["model_type"], line["hardware_type"], line["jobs"]) for line in lines
        ]
        for row, line in zip(found, lines, strict=True):
            assert (row["waste"] is None) == (line["waste"] is None)
            if line["waste"]:
                assert (row["waste"], row["waste_low"], row["waste_high"]) == tuple(line["waste"].values())
    assert json.loads(json.dumps(report["notes"])) == [
        note.decode() for note in pq.read_schema(tmp_path / "waste.parquet").metadata[b"notes"].splitlines()
    ]


def test_the_page_is_written(fleet: Path, tmp_path: Path) -> None:
    output(fleet / "completions.parquet", "--html", tmp_path / "waste.html")
    assert "<html" in (tmp_path / "waste.html").read_text(encoding="utf-8")


def test_the_estimate_is_held_against_the_truth(fleet: Path) -> None:
    verdict = json.loads(waste(fleet / "completions.parquet", "--truth", fleet / "truth.parquet", "--json").stdout)[
        "verdict"
    ]
    assert verdict["model_types"] >= 4
    assert len(verdict["judged"]) + verdict["without_figure"] == verdict["model_types"]
    held = [line["waste"]["low"] <= line["truth"] <= line["waste"]["high"] for line in verdict["judged"]]
    assert verdict["coverage"] == pytest.approx(sum(held) / verdict["model_types"])
    # Over more hardware types the best is no worse.
    assert all(line["truth"] >= line["truth_seen"] - 1e-9 for line in verdict["judged"])
    lines = output(fleet / "completions.parquet", "--truth", fleet / "truth.parquet")
    assert any(line.startswith(f"truth: of {verdict['model_types']} model types") for line in lines)


def test_a_truth_of_other_runs_is_refused(fleet: Path, tmp_path: Path) -> None:
    whole = pq.read_table(fleet / "truth.parquet")
    pq.write_table(whole.slice(0, 10), tmp_path / "truth.parquet")
    result = waste(fleet / "completions.parquet", "--truth", tmp_path / "truth.parquet")
    assert result.exit_code == 1
    assert "give the truth.parquet that was generated with these runs" in result.output
    result = waste(fleet / "completions.parquet", "--truth", fleet / "completions.parquet")
    assert result.exit_code == 1
    assert "give the truth.parquet of the fleet" in result.output


def test_prices_of_ones_own_replace_those_of_the_catalogue(fleet: Path, tmp_path: Path) -> None:
    table = fleet / "completions.parquet"
    names = json.loads((fleet / "fleet.json").read_text())["hardware"]
    costs = tmp_path / "costs.csv"
    costs.write_text("name,hourly_cost_usd\n" + "".join(f"{entry['name']},1\n" for entry in names))
    report = json.loads(waste(table, "--costs", costs, "--json").stdout)["report"]
    rows = pq.read_table(table, columns=["status", "device_hours"]).to_pylist()
    hours = sum(row["device_hours"] for row in rows if row["status"] == "succeeded")
    assert report["total"]["cost_usd"] == pytest.approx(hours)


def test_rows_that_are_no_events_are_counted_and_the_rest_measured(fleet: Path, tmp_path: Path) -> None:
    rows = pq.read_table(fleet / "completions.parquet").to_pylist()[:500]
    lines = [json.dumps(row, default=lambda time: time.isoformat()) for row in rows]
    broken = tmp_path / "runs.jsonl"
    broken.write_text("\n".join([*lines, '{"attempt_id": "x"}', lines[0]]))
    result = waste(broken)
    assert result.exit_code == 0, result.output
    assert "1 rows are no events and are left out" in result.stderr
    assert "1 broken" in result.stdout
    assert "1 repeated" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mapping", "{mapping}"], "--mapping is for tables"),
        (["--html", "nowhere/waste.html"], "nowhere is no directory"),
        (["--parquet", "nowhere/waste.parquet"], "nowhere is no directory"),
        (["--parquet", "{pipe}"], "is a pipe, which no file may replace: name a file"),
        ([], "no archive"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, arguments: list[str], message: str) -> None:
    mapping = tmp_path / "mapping.toml"
    mapping.write_text("")
    directory = tmp_path / "empty"
    directory.mkdir()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = waste(directory, *(argument.format(mapping=mapping, pipe=pipe) for argument in arguments))
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output
    assert pipe.is_fifo()


def test_the_directory_of_a_fleet_is_told_from_an_archive(fleet: Path) -> None:
    result = waste(fleet)
    assert result.exit_code == 1
    assert "is a synthetic fleet: name its file of events" in result.output
