from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

import small_training_set
from leap_training.judge.slices import SLICES
from leap_training.nightly import record
from leap_training.nightly.gate import Refusal
from leap_training.nightly.phases import Outcome
from leap_training.nightly.state import StateError
from nightly_state import NOW, PLAN, ROWS, plant_dataset, run


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    root = tmp_path_factory.mktemp("night")
    return run(root, plant_dataset(root, small_training_set.rows(ROWS)))


def of_night(outcome: Outcome, night: date, **changes: object) -> Outcome:
    return msgspec.structs.replace(outcome, plan=msgspec.structs.replace(outcome.plan, night=night), **changes)


def refused(outcome: Outcome) -> Outcome:
    judgement = msgspec.structs.replace(outcome.judgement, figures=(), rows=0)
    return msgspec.structs.replace(
        outcome, judgement=judgement, bundle_id=None, refusals=(Refusal("few_judged_rows", "0 attempts to judge by"),)
    )


def test_a_night_is_a_file_with_a_row_for_each_model_and_slice(published: Outcome, tmp_path: Path) -> None:
    record.write(tmp_path, published, NOW)
    table = pq.read_table(tmp_path / "nights" / "2026-01-26.parquet")
    assert table.schema.remove_metadata() == record.SCHEMA
    rows = table.to_pylist()
    assert [(row["model"], row["slice"]) for row in rows] == [
        (model, of) for model in ("candidate", "backoff_last") for of in SLICES
    ]
    assert {row["bundle_id"] for row in rows} == {published.bundle_id}
    for candidate, row in zip(rows[: len(SLICES)], rows[len(SLICES) :], strict=True):
        assert candidate["points"] is None
        if row["rows"]:
            assert row["points"] == pytest.approx(candidate["within20"] - row["within20"])


def test_every_column_is_in_the_description() -> None:
    described = record.__doc__ or ""
    for name in record.SCHEMA.names:
        assert name.removesuffix("_seconds") in described or name.endswith("_seconds"), name


def test_what_was_written_is_found(published: Outcome, tmp_path: Path) -> None:
    assert record.find(tmp_path, PLAN.night) is None
    written = record.write(tmp_path, published, NOW)
    assert record.find(tmp_path, PLAN.night) == written
    assert (written.published, written.bundle_id, written.written_at) == (True, published.bundle_id, NOW)
    assert set(written.seconds) == set(published.seconds)
    record.forget(tmp_path, PLAN.night)
    assert record.find(tmp_path, PLAN.night) is None


def test_a_night_without_figures_has_a_row_with_its_reasons(published: Outcome, tmp_path: Path) -> None:
    written = record.write(tmp_path, refused(published), NOW)
    assert (written.published, written.bundle_id) == (False, None)
    assert (written.reasons, written.why) == (("few_judged_rows",), ("0 attempts to judge by",))
    (row,) = pq.read_table(tmp_path / "nights" / "2026-01-26.parquet").to_pylist()
    assert (row["model"], row["slice"], row["rows"], row["within20"]) == ("candidate", "all", 0, None)


def test_the_rows_of_the_night_before_are_those_of_the_same_windows(published: Outcome, tmp_path: Path) -> None:
    wide = msgspec.structs.replace(published, plan=msgspec.structs.replace(published.plan, train_days=60))
    for night, rows, outcome in ((20, 100, published), (22, 200, published), (23, 900, wide), (28, 300, published)):
        dataset = msgspec.structs.replace(published.dataset, rows=rows)
        record.write(tmp_path, of_night(outcome, date(2026, 1, night), dataset=dataset), NOW)
    assert record.rows_before(tmp_path, date(2026, 1, 26), PLAN.train_days, PLAN.judge_days) == 200
    assert record.rows_before(tmp_path, date(2026, 1, 20), PLAN.train_days, PLAN.judge_days) is None


def test_the_list_shows_each_night_and_what_it_came_to(published: Outcome, tmp_path: Path) -> None:
    record.write(tmp_path, refused(of_night(published, PLAN.night + timedelta(days=1))), NOW)
    record.write(tmp_path, published, NOW)
    first, second = record.lines(record.all_nights(tmp_path))[2:]
    assert first.startswith("2026-01-26")
    assert first.endswith(str(published.bundle_id))
    assert second.startswith("2026-01-27")
    assert second.endswith("not published: few_judged_rows")


def test_a_file_that_is_being_written_is_no_night(published: Outcome, tmp_path: Path) -> None:
    record.write(tmp_path, published, NOW)
    (tmp_path / "nights" / ".2026-01-27.parquet.0123abcd").write_bytes(b"PAR1")
    assert [night.night for night in record.all_nights(tmp_path)] == [PLAN.night]
    record.write(tmp_path, published, NOW)
    assert [path.name for path in (tmp_path / "nights").iterdir()] == ["2026-01-26.parquet"]


def test_a_damaged_file_is_named_and_stops_no_other_night(published: Outcome, tmp_path: Path) -> None:
    first, second, third = (PLAN.night + timedelta(days=day) for day in range(3))
    for night in (first, second):
        record.write(tmp_path, of_night(published, night), NOW)
    damaged = tmp_path / "nights" / f"{second}.parquet"
    whole = damaged.read_bytes()
    for content in (whole[:500], b"", whole[:-8] + b"\0" * 8):
        damaged.write_bytes(content)
        for ask in (lambda: record.find(tmp_path, second), lambda: record.all_nights(tmp_path)):
            with pytest.raises(StateError, match=rf"{second}\.parquet holds no figures .* --night {second} --again"):
                ask()
        assert record.rows_before(tmp_path, third, PLAN.train_days, PLAN.judge_days) == ROWS
    pq.write_table(pq.ParquetFile(tmp_path / "nights" / f"{first}.parquet").read().slice(0, 0), damaged)
    with pytest.raises(StateError, match="holds no figures of a night"):
        record.find(tmp_path, second)


def test_files_of_other_names_are_no_nights(published: Outcome, tmp_path: Path) -> None:
    written = record.write(tmp_path, published, NOW)
    for name in ("2026-99-99.parquet", "20260105.parquet", "notes.parquet"):
        (tmp_path / "nights" / name).touch()
    assert record.all_nights(tmp_path) == [written]
    assert record.rows_before(tmp_path, PLAN.night + timedelta(days=1), PLAN.train_days, PLAN.judge_days) == ROWS
