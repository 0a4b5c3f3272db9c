from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from leap_features.events import to_us
from leap_features.hardware import CATALOGUE
from leap_training.evaluate import Accuracy, accuracy, evaluate, table
from leap_training.layered import FitSettings, NothingToFit
from leap_training.training_set import TrainingSet, read_training_set
from small_training_set import rows, submitted_at, write

QUICK = FitSettings(rounds=60)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> TrainingSet:
    return read_training_set(write(tmp_path_factory.mktemp("set") / "set.parquet", rows(400))).rows


def test_accuracy_counts_shares_and_the_median_error() -> None:
    measured = np.log([100.0] * 5)
    predicted = np.log([100.0, 109.0, 119.0, 81.0, 150.0])
    assert accuracy(predicted, measured) == Accuracy(
        5, 0, pytest.approx(40.0), pytest.approx(80.0), pytest.approx(19.0)
    )


def test_rows_without_a_prediction_count_as_wrong() -> None:
    result = accuracy(np.array([np.nan, 0.0, 0.0]), np.zeros(3))
    assert (result.rows, result.unanswered, result.median_error) == (3, 1, 0.0)
    assert result.within_20 == pytest.approx(200 / 3)
    assert accuracy(np.array([np.nan]), np.zeros(1)).median_error is None


def test_no_rows_have_no_shares() -> None:
    assert accuracy(np.array([]), np.array([])) == Accuracy(0, 0, None, None, None)


def test_split_by_time_leaves_out_what_was_under_way_at_the_cut(training: TrainingSet) -> None:
    # Run 300 is submitted 15 minutes before the cut and recorded 15 minutes after it.
    cut = to_us(submitted_at(300)) + 15 * 60 * 1_000_000
    result = evaluate(training, cut, CATALOGUE, QUICK)
    assert result.train_rows == 300
    assert result.scored.model.rows == 99


def test_fit_never_sees_what_was_recorded_at_or_after_the_cut(training: TrainingSet) -> None:
    cut = to_us(submitted_at(300))
    spoiled = TrainingSet(
        training.columns,
        np.where(training.recorded_at_us < cut, training.log_throughput, training.log_throughput + 5.0),
        training.recorded_at_us,
        training.config,
    )
    honest, blind = (evaluate(each, cut, CATALOGUE, QUICK) for each in (training, spoiled))
    assert honest.train_rows == blind.train_rows
    # Predictions are the same, so those of the spoiled labels are all wrong by e⁵.
    assert honest.scored.model.within_20 == pytest.approx(100.0, abs=15)
    assert blind.scored.model.within_20 == 0.0


def test_first_runs_are_those_without_a_completed_run_of_their_cell(training: TrainingSet) -> None:
    cut = to_us(submitted_at(200))
    seen: set[tuple[object, ...]] = set()
    first = 0
    for at in range(len(training)):
        names = ("job_family", "hardware_type", "trainer_count")
        cell = tuple(training.columns[name][at] for name in names)
        first += at >= 200 and cell not in seen
        seen.add(cell)
    result = evaluate(training, cut, CATALOGUE, QUICK)
    assert result.first_runs.model.rows == result.first_runs.backoff_last.rows == first


def test_model_carries_history_over_to_new_cells_where_the_last_value_alone_cannot(training: TrainingSet) -> None:
    result = evaluate(training, to_us(submitted_at(200)), CATALOGUE, QUICK)
    model, last = result.first_runs.model.within_20, result.first_runs.backoff_last.within_20
    assert model is not None
    assert last is not None
    assert model > last + 30


def test_hardware_in_another_spelling_is_the_same_hardware(tmp_path: Path, training: TrainingSet) -> None:
    given = rows(400)
    for row in given:  # what the join gives for a name that the catalogue has in another spelling: no specifications
        row["hardware_type"] = row["hardware_type"].lower().replace("-", "_")
        row |= {name: None for name in row if name.startswith("hardware_specs__")}
        for name, value in row.items():
            if name.endswith("last_hardware_type") and value is not None:
                row[name] = value.lower().replace("-", "_")
    spelt = read_training_set(write(tmp_path / "set.parquet", given)).rows
    cut = to_us(submitted_at(200))
    assert evaluate(spelt, cut, CATALOGUE, QUICK) == evaluate(training, cut, CATALOGUE, QUICK)


def test_nothing_recorded_before_the_cut_is_an_error(training: TrainingSet) -> None:
    with pytest.raises(NothingToFit):
        evaluate(training, to_us(submitted_at(0)), CATALOGUE)


def test_nothing_to_score_gives_no_figures(training: TrainingSet) -> None:
    result = evaluate(training, to_us(submitted_at(1000)), CATALOGUE, QUICK)
    assert result.scored.model == Accuracy(0, 0, None, None, None)
    assert "–" in "\n".join(table(result))


def test_table_has_a_line_for_each_method_and_slice(training: TrainingSet) -> None:
    lines = list(table(evaluate(training, to_us(submitted_at(300)), CATALOGUE, QUICK)))
    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1


def test_history_columns_may_be_null_or_zero_for_a_cold_start(tmp_path: Path) -> None:
    given = rows(100)
    for row in given:
        if row["family_scale_history__count"] is None:
            row["family_scale_history__count"] = 0
    zero = read_training_set(write(tmp_path / "zero.parquet", given)).rows
    null = read_training_set(write(tmp_path / "null.parquet", rows(100))).rows
    cut = to_us(submitted_at(60))
    assert evaluate(zero, cut, CATALOGUE, QUICK) == evaluate(null, cut, CATALOGUE, QUICK)
