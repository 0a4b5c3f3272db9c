from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leap_features.events import to_us
from leap_training.training_set import TrainingSetError, read_training_set
from small_training_set import rows, submitted_at, write


def test_columns_come_back_with_times_in_microseconds_and_gaps_as_missing(tmp_path: Path) -> None:
    read = read_training_set(write(tmp_path / "set.parquet", rows(20)))
    training = read.rows
    assert len(training) == 20
    assert read.set_aside == 0
    assert training.submitted_at_us.tolist() == [to_us(submitted_at(number)) for number in range(20)]
    assert training.columns["model_type"].tolist() == [row["model_type"] for row in rows(20)]
    last = training.columns["family_history__last"]
    assert np.isnan(last[0])  # nothing before the first run
    assert training.columns["family_history__last_hardware_type"][0] is None


@pytest.mark.parametrize("throughput", [0.0, -1.0, float("nan"), float("inf"), None])
def test_row_without_a_usable_throughput_is_set_aside_and_counted(tmp_path: Path, throughput: Any) -> None:
    # calo-forest#1: one row with throughput 0 in a month of data.
    given = rows(20)
    given[7]["throughput"] = throughput
    read = read_training_set(write(tmp_path / "set.parquet", given))
    assert read.set_aside == 1
    assert len(read.rows) == 19
    assert np.isfinite(read.rows.log_throughput).all()


@pytest.mark.parametrize(
    ("column", "value"), [("trainer_count", None), ("trainer_count", 0), ("hardware_type", None), ("model_type", None)]
)
def test_row_that_nothing_can_be_predicted_for_is_set_aside_and_counted(
    tmp_path: Path, column: str, value: Any
) -> None:
    given = rows(20)
    given[7][column] = value
    read = read_training_set(write(tmp_path / "set.parquet", given))
    assert read.set_aside == 1
    assert len(read.rows) == 19


def test_names_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "set.parquet", rows(5)))
    at = table.schema.get_field_index("model_type")
    pq.write_table(table.set_column(at, "model_type", pa.array([1] * 5)), tmp_path / "numbers.parquet")
    with pytest.raises(TrainingSetError, match="'model_type' must be text, got int64"):
        read_training_set(tmp_path / "numbers.parquet")


def test_nullable_integers_are_missing_values(tmp_path: Path) -> None:
    # dmlc/xgboost#8213, dmlc/xgboost#6851
    given = rows(5)
    given[2]["reader_count"] = None
    readers = read_training_set(write(tmp_path / "set.parquet", given)).rows.columns["reader_count"]
    assert np.isnan(readers[2])
    assert readers[[0, 1, 3, 4]].tolist() == [2.0] * 4


def test_times_of_another_zone_are_the_same_instants(tmp_path: Path) -> None:
    path = write(tmp_path / "set.parquet", rows(5))
    table = pq.read_table(path)
    at = table.schema.get_field_index("recorded_at")
    kolkata = table.set_column(
        at, "recorded_at", table.column("recorded_at").cast(pa.timestamp("ns", tz="Asia/Kolkata"))
    )
    pq.write_table(kolkata, tmp_path / "kolkata.parquet")
    here, there = (read_training_set(each).rows.recorded_at_us for each in (path, tmp_path / "kolkata.parquet"))
    assert here.tolist() == there.tolist()


def test_naive_times_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist(rows(5))
    at = table.schema.get_field_index("submitted_at")
    naive = table.set_column(at, "submitted_at", pa.array([0] * 5, pa.timestamp("us")))
    pq.write_table(naive, tmp_path / "naive.parquet")
    with pytest.raises(TrainingSetError, match="'submitted_at' must be a timestamp with time zone"):
        read_training_set(tmp_path / "naive.parquet")


def test_missing_columns_are_named(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "set.parquet", rows(5)))
    pq.write_table(table.drop_columns(["throughput", "family_history__last"]), tmp_path / "less.parquet")
    with pytest.raises(TrainingSetError, match=r"lacks the columns throughput, family_history__last: .*leap dataset"):
        read_training_set(tmp_path / "less.parquet")


def test_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.parquet").write_text("nothing")
    for path in (tmp_path / "set.parquet", tmp_path / "absent.parquet"):
        with pytest.raises(TrainingSetError, match=str(path)):
            read_training_set(path)


def test_dictionary_encoded_text_is_read_as_text(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "set.parquet", rows(5)))
    at = table.schema.get_field_index("model_type")
    encoded = table.set_column(at, "model_type", table.column("model_type").dictionary_encode())
    pq.write_table(encoded, tmp_path / "encoded.parquet")
    training = read_training_set(tmp_path / "encoded.parquet").rows
    assert training.columns["model_type"].tolist() == [row["model_type"] for row in rows(5)]


@pytest.mark.parametrize("config", ["[1]", "{", '{"layers":[12]}', '{"layers":' + "[" * 100_000])
def test_configuration_that_is_no_json_object_is_refused(tmp_path: Path, config: str) -> None:
    given = rows(5)
    given[1]["config"] = config
    training = read_training_set(write(tmp_path / "set.parquet", given)).rows
    with pytest.raises(TrainingSetError, match="'config' must hold JSON objects"):
        training.configs()


def test_rows_are_chosen_in_all_columns_alike(tmp_path: Path) -> None:
    training = read_training_set(write(tmp_path / "set.parquet", rows(10))).rows
    some = training.where(training.recorded_at_us > to_us(datetime(2026, 1, 1, 5, tzinfo=UTC)))
    assert {len(values) for values in some.columns.values()} == {len(some)}
    assert len(some) == 5


def test_attempt_and_its_device_hours_come_along_and_none_are_unknown(tmp_path: Path) -> None:
    given = rows(5)
    given[1]["device_hours"] = None
    given[2]["device_hours"] = 0.0  # what an event says that does not know them
    training = read_training_set(write(tmp_path / "set.parquet", given)).rows
    assert training.columns["attempt_id"].tolist() == [f"attempt-{number}" for number in range(5)]
    hours = training.columns["device_hours"]
    assert np.isnan(hours[[1, 2]]).all()
    assert hours[[0, 3, 4]].tolist() == [0.5 * given[at]["trainer_count"] for at in (0, 3, 4)]
    completed = [to_us(row["completed_at"]) for row in given]
    assert training.columns["completed_at_us"].tolist() == completed


def test_label_is_the_very_value_that_history_counts(tmp_path: Path) -> None:
    given = rows(5)
    given[0]["log_throughput"] = 3.0 + 2.0**-32
    assert read_training_set(write(tmp_path / "set.parquet", given)).rows.log_throughput[0] == 3.0 + 2.0**-32


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_row_without_the_logarithm_is_set_aside_and_counted(tmp_path: Path, value: Any) -> None:
    given = rows(5)
    given[1]["log_throughput"] = value
    assert read_training_set(write(tmp_path / "set.parquet", given)).set_aside == 1


def test_hidden_rows_are_the_same_without_their_labels(tmp_path: Path) -> None:
    training = read_training_set(write(tmp_path / "set.parquet", rows(5))).rows
    hidden = training.hidden()
    assert np.isnan(hidden.log_throughput).all()
    assert hidden.columns is training.columns
    assert np.isfinite(training.log_throughput).all()


def test_numbers_of_the_model_definition_become_columns(tmp_path: Path) -> None:
    given = rows(4)
    for row, text in zip(given, ('{"layers":12,"heads":8}', '{"layers":24}', None, ""), strict=True):
        row["architecture"] = text
    training = read_training_set(write(tmp_path / "set.parquet", given)).rows
    assert training.architectures() == [{"layers": 12.0, "heads": 8.0}, {"layers": 24.0}, {}, {}]
    columns = training.where(np.array([1, 0, 2])).with_architecture(["layers", "heads", "absent"])
    np.testing.assert_array_equal(columns["architecture__layers"], [24.0, 12.0, np.nan])
    np.testing.assert_array_equal(columns["architecture__heads"], [np.nan, 8.0, np.nan])
    assert np.isnan(columns["architecture__absent"]).all()
    assert training.with_architecture([]) is training.columns


@pytest.mark.parametrize("text", ["[1]", "{", '{"layers":"12"}', '{"layers":true}'])
def test_architecture_that_is_no_json_object_of_numbers_is_refused(tmp_path: Path, text: str) -> None:
    given = rows(5)
    given[1]["architecture"] = text
    training = read_training_set(write(tmp_path / "set.parquet", given)).rows
    with pytest.raises(TrainingSetError, match="'architecture' must hold JSON objects of numbers"):
        training.architectures()


def test_configurations_are_those_of_their_rows(tmp_path: Path) -> None:
    training = read_training_set(write(tmp_path / "set.parquet", rows(5))).rows
    odd, even = {"precision": "bf16", "layers": 12}, {"precision": "fp32", "layers": 24}
    assert training.configs() == [even, odd, even, odd, even]
    places, different = training.distinct_configs()
    assert [different[place] for place in places] == training.configs()


@pytest.mark.parametrize("column", ["attempt_id", "job_family", "hardware_type", "model_type"])
def test_rows_without_a_name_are_set_aside(tmp_path: Path, column: str) -> None:
    given = rows(20)
    given[7][column] = None
    read = read_training_set(write(tmp_path / "set.parquet", given))
    assert (len(read.rows), read.set_aside) == (19, 1)
