"""`leap evaluate`, with models that are quick to fit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from archived_events import event
from leap_features.command import leap
from leap_features.events import encode
from small_training_set import rows, submitted_at, write

QUICK = ("--models", "backoff_last,lookup")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = rows(400)
    for number, row in enumerate(given):
        row["config"] = f'{{"round":"r{number // 100}"}}'
    return write(tmp_path_factory.mktemp("set") / "set.parquet", given)


def evaluate(*arguments: object) -> Result:
    return CliRunner().invoke(leap, ["evaluate", *map(str, arguments)])


def judged(*arguments: object) -> dict[str, Any]:
    result = evaluate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_one_window_from_a_time_on_as_table_and_json(dataset: Path) -> None:
    start = submitted_at(300).isoformat()
    found = judged(dataset, "--from", start, *QUICK)
    (window,) = found["windows"]
    assert (window["train_rows"], window["scored_rows"]) == (300, 100)
    assert found["models"]["backoff_last"]["live"]["all"]["rows"] == 100
    result = evaluate(dataset, "--from", start, *QUICK)
    assert result.exit_code == 0, result.output
    assert "first in cell" in result.stdout
    assert "backoff_last fitted on 300" in result.stderr


def test_by_a_key_of_the_configuration_the_first_two_windows_are_trained_on(dataset: Path) -> None:
    found = judged("--data", dataset, "--by", "round", *QUICK)
    assert (found["by"], [window["name"] for window in found["windows"]]) == ("round", ["r2", "r3"])
    assert set(found["models"]["lookup"]) == {"live", "nightly", "frozen", "fit_seconds"}
    more = judged("--data", dataset, "--by", "round", "--min-train", 1, "--history", "live", *QUICK)
    assert [window["name"] for window in more["windows"]] == ["r1", "r2", "r3"]
    assert set(more["models"]["lookup"]) == {"live", "fit_seconds"}


def test_days_are_the_default_and_the_directory_is_written(dataset: Path, tmp_path: Path) -> None:
    found = judged(dataset, "--windows", 2, "--train-days", 5, "--out", tmp_path / "judged", *QUICK)
    assert [window["name"] for window in found["windows"]] == ["2026-01-16", "2026-01-17"]
    assert {window["train_rows"] for window in found["windows"]} == {120}
    assert json.loads((tmp_path / "judged" / "judged.json").read_text()) == found
    assert pq.read_metadata(tmp_path / "judged" / "rows.parquet").num_rows == 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one data set"),
        (("{dataset}", "--data", "{dataset}"), "name one data set"),
        (("{dataset}", "--from", "2026-01-05T00:00:00Z", "--by", "day"), "give one of the two"),
        (("{dataset}", "--from", "2026-01-05T00:00:00Z", "--windows", "2"), "it has no --windows"),
        (("{dataset}", "--from-window", "r2"), "give the key with --by"),
        (("{dataset}", *QUICK, "--train-days", "inf"), "at most 100,000 days, got inf"),
        (("{dataset}", "--models", ""), "name at least one model"),
        (("{dataset}", "--models", "oracle"), "there is no model 'oracle'; there are "),
        (("{dataset}", "--models", ","), "name at least one model"),
        (("{dataset}", "--history", "live,weekly"), "there is no history 'weekly'"),
        (("{dataset}", "--history", "frozen"), "--history must have live in it"),
        (("{dataset}", "--models", "lookup", "--ablations"), "have it among --models"),
        (("{dataset}", *QUICK, "--by", "team"), "no job has 'team' in its configuration; there are round"),
        (("{dataset}", *QUICK, "--from", "2099-01-01T00:00:00Z"), "no attempt submitted at or after 2099-01-01"),
        (("{dataset}", *QUICK, "--from", "2020-01-01T00:00:00Z"), "no attempt was recorded before 2020-01-01"),
        (("{dataset}", *QUICK, "--from", "2026-01-01T00:00:00"), "must have an offset"),
        (("absent.parquet", *QUICK), "absent.parquet"),
    ],
)
def test_wrong_usage_is_explained(dataset: Path, arguments: tuple[str, ...], message: str) -> None:
    result = evaluate(*(each.format(dataset=dataset) for each in arguments))
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
    assert not isinstance(result.exception, ValueError | OSError)


def test_a_leak_ends_the_command(dataset: Path, tmp_path: Path) -> None:
    given = rows(200)
    for row in given:
        row["family_history__last"], row["family_history__count"] = row["log_throughput"], 1
    result = evaluate(write(tmp_path / "leaky.parquet", given), *QUICK)
    assert result.exit_code == 1
    assert "knows the future" in result.output


def test_a_table_where_there_is_no_feature_repository_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_bytes(b"\n".join(encode(event(f"a{minute}", minute)) for minute in range(3)))
    monkeypatch.setenv("LEAP_FEATURE_REPO", str(tmp_path / "elsewhere"))
    result = evaluate("--data", runs, *QUICK)
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 1
    assert "set LEAP_FEATURE_REPO to the folder that holds feature_store.yaml" in result.stderr


def test_a_directory_that_cannot_be_written_is_found_before_anything_is_fitted(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = evaluate(dataset, *QUICK, "--out", tmp_path / "file" / "judged")
    assert result.exit_code == 1
    assert f"{tmp_path / 'file' / 'judged'} is no directory that takes files (Not a directory)" in result.output
    assert "fitted" not in result.output


def test_a_pipe_in_place_of_a_file_is_found_before_anything_is_fitted(dataset: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.parquet")
    result = evaluate(dataset, *QUICK, "--out", tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path / 'rows.parquet'} is a pipe, which no file may replace" in result.output
    assert [path.is_fifo() for path in tmp_path.iterdir()] == [True]


@pytest.mark.parametrize(("runs", "said"), [(0, "it has no rows"), (3, "3 rows were set aside")])
def test_a_table_without_a_run_is_explained_before_anything_is_built(tmp_path: Path, runs: int, said: str) -> None:
    table = tmp_path / "runs.jsonl"
    rows = [json.loads(encode(event(f"a{minute}", minute))) | {"throughput": -1.0} for minute in range(runs)]
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = evaluate("--data", table, *QUICK)
    assert result.exit_code == 1
    assert f"runs.jsonl holds no run to judge by, {said}: say by --mapping" in result.output
    assert "history" not in result.output
