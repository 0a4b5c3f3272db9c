"""A mapping turns the rows of a table into completion events, and says of the others what is wrong with them."""

from __future__ import annotations

import csv
import tomllib
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from leap_features.events import CompletionEvent
from leap_training.mapping import MappingError, RowRejected, RunMapping

DOCS = Path(__file__).parents[3] / "docs" / "mappings"

EVENT: dict[str, Any] = {
    "attempt_id": "{id}",
    "job_name": "{team}-{model}",
    "model_type": "{model}",
    "hardware_type": "{gpu}",
    "status": {"column": "state", "values": {"ok": "succeeded", "aborted": "failed"}},
    "throughput": "{rate}",
    "trainer_count": "{gpus}",
    "started_at": "{start}",
    "completed_at": "{end}",
}
ROW: dict[str, Any] = {
    "id": "a1",
    "team": "ads",
    "model": "ranker",
    "gpu": "H100-SXM-80",
    "state": "ok",
    "rate": "12.5",
    "gpus": "8.0",
    "start": "2026-03-01T10:00:00Z",
    "end": "2026-03-01T12:00:00Z",
}


def event_of(row: dict[str, Any] | None = None, **changes: Any) -> CompletionEvent:
    """The event of `ROW`, changed by `row`, under a mapping that is changed by `changes`."""
    tables = {name: changes.pop(name) for name in ("times", "config", "architecture") if name in changes}
    entries = {name: entry for name, entry in {**EVENT, **changes}.items() if entry is not ...}
    return RunMapping({"event": entries, **tables}).event({**ROW, **(row or {})})


def rejected(row: dict[str, Any] | None = None, **changes: Any) -> RowRejected:
    with pytest.raises(RowRejected) as caught:
        event_of(row, **changes)
    return caught.value


def test_templates_join_columns_and_text() -> None:
    assert event_of().job_name == "ads-ranker"
    assert event_of().trainer_count == 8


def test_a_missing_submission_time_is_the_start() -> None:
    event = event_of()
    assert event.submitted_at == event.started_at == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_a_missing_start_time_is_the_submission() -> None:
    assert event_of(started_at=..., submitted_at="{start}").started_at == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_values_are_replaced_by_what_they_stand_for() -> None:
    assert event_of({"state": "aborted"}).status == "failed"
    error = rejected({"state": "paused"})
    assert (error.rule, error.value) == ("status", "paused")
    assert "event.status.values knows aborted, ok, not 'paused': add it to the mapping" in str(error)


def test_a_product_of_columns_is_divided_by_the_columns_in_over() -> None:
    batch = {"product": ["batch", "steps"], "over": ["gpus"]}
    assert event_of({"batch": "12", "steps": 3}, batch_size=batch).batch_size == 4.5
    assert event_of({"batch": "", "steps": 3}, batch_size=batch).batch_size == 0


def test_a_division_by_zero_rejects_the_row() -> None:
    # dmlc/xgboost#1869: readers ÷ trainers with 0 trainers
    error = rejected({"batch": "1", "nodes": "0"}, batch_size={"product": ["batch"], "over": ["nodes"]})
    assert (error.rule, error.value) == ("batch_size", "0")


def test_a_scale_brings_a_number_into_the_unit_of_the_event() -> None:
    assert event_of(throughput={"column": "rate", "scale": 1000}).throughput == 12_500
    assert event_of(device_hours={"constant": 90, "scale": 1 / 60}).device_hours == 1.5


def test_device_hours_may_be_derived_from_the_run() -> None:
    assert event_of(device_hours={"derive": "trainer_hours"}).device_hours == 16


def test_a_default_stands_in_for_an_empty_cell() -> None:
    entry = {"column": "rate", "default": 3.0}
    assert event_of({"rate": " "}, throughput=entry).throughput == 3.0
    assert event_of({"rate": None}, throughput={"column": "rate", "default": "{gpus}"}).throughput == 8.0
    assert event_of({"rate": float("nan")}, throughput=entry).throughput == 3.0


def test_a_placeholder_with_a_question_mark_may_be_empty() -> None:
    assert event_of({"team": ""}, job_name="{team?}-{model}").job_name == "-ranker"
    assert rejected({"team": ""}).rule == "job_name"


@pytest.mark.parametrize(
    ("written", "times", "expected"),
    [
        ("2026-03-01T13:00:00+01:00", {}, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01T17:30:00", {"zone": "Asia/Kolkata"}, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("01.03.2026 12:00", {"format": "%d.%m.%Y %H:%M", "zone": "UTC"}, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("2026-03-01 13:00 +0100", {"format": "%Y-%m-%d %H:%M %z"}, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("1772366400", {"format": "unix"}, datetime(2026, 3, 1, 12, tzinfo=UTC)),
        (1772366400.25, {"format": "unix"}, datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)),
        (1772366400250, {"format": "unix_ms"}, datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)),
        (1772366400000001, {"format": "unix_us"}, datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)),
        (datetime(2026, 3, 1, 12), {"zone": "UTC"}, datetime(2026, 3, 1, 12, tzinfo=UTC)),  # noqa: DTZ001 - as Parquet has them
        (
            datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=-2))),
            {},
            datetime(2026, 3, 1, 14, tzinfo=UTC),
        ),
    ],
)
def test_times_are_read_in_their_format_and_zone(written: object, times: dict[str, str], expected: datetime) -> None:
    entry = {"column": "end", **times}
    assert event_of({"end": written}, completed_at=entry).completed_at == expected


def test_a_time_without_an_offset_needs_a_zone() -> None:
    # feast-dev/feast#5227: naive and aware times mixed
    error = rejected({"end": "2026-03-01T12:00:00"})
    assert error.rule == "completed_at"
    assert "say by zone which zone it is in" in str(error)


def test_a_time_that_clocks_skipped_is_rejected() -> None:
    error = rejected({"start": "2026-03-29T02:30:00", "end": "2026-03-29T05:00:00"}, times={"zone": "Europe/Berlin"})
    assert "clocks were put forward" in str(error)


def test_a_count_of_seconds_beyond_all_times_is_rejected() -> None:
    assert rejected({"end": "1e305"}, completed_at={"column": "end", "format": "unix"}).rule == "completed_at"


def test_a_run_without_times_gets_those_of_the_mapping() -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    event = event_of(started_at=at, completed_at=at + timedelta(hours=1))
    assert (event.submitted_at, event.completed_at) == (at, at + timedelta(hours=1))


def test_config_entries_are_text_unless_a_type_is_given() -> None:
    row = {"nodes": "2.0", "fused": "True", "note": "007", "none": ""}
    config = {
        "nodes": {"column": "nodes", "type": "number"},
        "fused": {"column": "fused", "type": "boolean"},
        "note": "{note}",
        "none": "{none}",
        "source": "import",
    }
    event = event_of(row, config=config, architecture={"layers": "{gpus}"})
    assert event.config == {"nodes": 2.0, "fused": True, "note": "007", "source": "import"}
    assert event.architecture == {"layers": 8.0}


def test_a_list_of_candidates_is_split() -> None:
    event = event_of({"c": "A100; H100;"}, eligible_hardware={"column": "c", "split": ";"})
    assert event.eligible_hardware == ("A100", "H100")


def test_a_list_of_candidates_may_be_a_list_in_the_table() -> None:
    assert event_of({"c": ["A100", "H100"]}, eligible_hardware="{c}").eligible_hardware == ("A100", "H100")


@pytest.mark.parametrize("bad", [["ads"], {"name": "ads"}, b"\xff"])
def test_a_cell_that_holds_no_single_value_rejects_the_row(bad: object) -> None:
    assert rejected({"team": bad}).rule == "job_name"


def test_cells_of_a_warehouse_are_read_as_what_they_mean() -> None:
    row = {"gpus": Decimal(8), "rate": Decimal("12.5"), "model": b"ranker", "state": True}
    event = event_of(row, status={"column": "state", "values": {"true": "succeeded", "false": "failed"}})
    assert (event.trainer_count, event.throughput, event.model_type) == (8, 12.5, "ranker")
    assert event.status == "succeeded"


def test_a_row_with_neither_start_nor_submission_says_so() -> None:
    error = rejected({"start": ""})
    assert error.rule == "submitted_at"
    assert "submitted_at or started_at is required" in str(error)


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "fast"])
def test_a_succeeded_run_without_a_throughput_above_0_is_rejected(rate: str) -> None:
    # calo-forest#1: one row with throughput 0 in a month of data
    assert rejected({"rate": rate}).rule == "throughput"


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"gpus": "0"}, "trainer_count"),
        ({"gpus": "1.5"}, "trainer_count"),
        ({"gpus": "1e300"}, "trainer_count"),
        ({"gpus": 10**400}, "trainer_count"),
        ({"rate": 10**400}, "throughput"),
        ({"model": "a/b"}, "model_type"),
        ({"id": ""}, "attempt_id"),
        ({"id": "x" * 129}, "attempt_id"),
        ({"start": "2026-03-01T13:00:00Z"}, "time_order"),
        ({"end": "yesterday"}, "completed_at"),
        ({"end": ""}, "completed_at"),
        ({"end": "9999-12-31T23:59:59-05:00"}, "completed_at"),
    ],
)
def test_a_row_that_breaks_a_rule_names_it(row: dict[str, Any], rule: str) -> None:
    assert rejected(row).rule == rule


def test_an_empty_cell_of_the_family_leaves_it_to_the_job_name() -> None:
    assert event_of({"fam": " "}, job_family="{fam}").job_family is None
    assert event_of({"fam": "own"}, job_family="{fam}").job_family == "own"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "missing required field `event`"),
        ({"event": EVENT, "extra": {}}, "a mapping has the tables"),
        ({"event": {**EVENT, "speed": "{x}"}}, r"\[event\] has no field speed"),
        ({"event": {"attempt_id": "{id}"}}, "must say where job_name, model_type"),
        ({"event": {**EVENT, "started_at": ...}}, "must say where started_at or submitted_at"),
        ({"event": {**EVENT, "batch_size": {"column": "a", "constant": 1}}}, "exactly one of"),
        ({"event": {**EVENT, "batch_size": {}}}, "exactly one of"),
        ({"event": {**EVENT, "batch_size": {"column": "a", "over": ["b"]}}}, "over divides a product"),
        ({"event": {**EVENT, "job_name": {"column": "a", "scale": 2}}}, "scale multiplies numbers"),
        ({"event": {**EVENT, "job_name": {"derive": "trainer_hours"}}}, "stands at device_hours only"),
        ({"event": {**EVENT, "job_name": {"colum": "a"}}}, "event.job_name: Object contains unknown field `colum`"),
        ({"event": EVENT, "times": {"zone": "Mars/Base"}}, "zone must be an IANA name"),
        ({"event": EVENT, "times": {"format": "isoo"}}, "format must be iso, .*got 'isoo'"),
        ({"event": EVENT, "times": {"format": "%Q"}}, "format must be iso, .*'Q' is a bad directive"),
        ({"event": {**EVENT, "job_name": "{team"}}, r"event.job_name: '\{' in '\{team' is not part of a \{column\}"),
        ({"event": {**EVENT, "job_name": "{team}-}"}}, "'}' in '{team}-}' is not part"),
        ({"event": {**EVENT, "job_name": ["team"]}}, r"must be a single value, got \['team'\]"),
        ({"event": {**EVENT, "trainer_count": "eight"}}, "event.trainer_count: must be a number, got 'eight'"),
        ({"event": {**EVENT, "trainer_count": {"column": "n", "default": 0.5}}}, "must be a whole number, got 0.5"),
        ({"event": {**EVENT, "trainer_count": {"column": "n", "values": {"a": "b"}}}}, "must be a number, got 'b'"),
        ({"event": {**EVENT, "trainer_count": {"column": "n", "values": {}}}}, "values must say what"),
        ({"event": {**EVENT, "throughput": {"column": "a", "scale": 0}}}, "scale must be finite and not 0, got 0"),
        ({"event": {**EVENT, "throughput": {"column": "a", "scale": float("nan")}}}, "scale must be finite"),
        ({"event": {**EVENT, "throughput": {"column": "a", "type": "number"}}}, r"type stands in \[config\] only"),
        ({"event": {**EVENT, "throughput": {"column": "a", "zone": "UTC"}}}, "zone is where a time was written"),
        ({"event": {**EVENT, "throughput": {"column": "a", "format": "unix"}}}, "format is how a time is written"),
        (
            {"event": {**EVENT, "job_name": {"column": "a", "split": ";"}}},
            "split parts the entries of eligible_hardware",
        ),
        ({"event": {**EVENT, "batch_size": {"product": []}}}, "product must name at least one column"),
        ({"event": {**EVENT, "device_hours": {"derive": "trainer_hours", "default": 1}}}, "remove default"),
        ({"event": EVENT, "config": {"a": {"column": "b", "type": "date"}}}, "type must be text, number or boolean"),
    ],
)
def test_a_mapping_that_breaks_a_rule_names_entry_and_mend(document: dict[str, Any], message: str) -> None:
    if "event" in document:
        document = {**document, "event": {k: v for k, v in document["event"].items() if v is not ...}}
    with pytest.raises(MappingError, match=message):
        RunMapping(document)


def test_a_column_that_the_table_lacks_is_named() -> None:
    with pytest.raises(MappingError, match="the table has no column 'rate', 'state'; it has 'id'"):
        RunMapping({"event": EVENT}).check_columns(["id", "team", "model", "gpu", "gpus", "start", "end"])


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text("event = {")
    with pytest.raises(MappingError, match=r"m\.toml: "):
        RunMapping.load(path)
    with pytest.raises(MappingError, match="No such file"):
        RunMapping.load(tmp_path / "none.toml")


# A few rows of each public data set that the examples in the documentation are for.
MLPERF = """\
round,org,system,benchmark,run,hw,n_accel,number_of_nodes,accelerators_per_node,host_processor_model_name,framework,\
division,global_batch_size,throughput,unit,status,start_time,end_time,path
v1.0,Supermicro,as-2124gq-nart+,unet3d,result_40,A100-SXM-80,4.0,1.0,4,AMD EPYC 7543,MXNet NVIDIA Release 21.05,\
closed,56.0,127.68081096096134,images/s,success,2021-04-30T13:15:31,2021-04-30T13:56:50,\
Supermicro/results/as-2124gq-nart+/unet3d/result_40.txt
v1.0,NVIDIA,dgxa100_ngc21.05_mxnet,resnet,result_1,A100-SXM-40,8.0,1.0,8,AMD EPYC 7742,,\
closed,3264.0,26643.181947509984,images/s,aborted,2021-05-15T22:43:26,2021-05-15T23:14:22,\
NVIDIA/results/dgxa100_ngc21.05_mxnet/resnet/result_1.txt
"""
GAVEL = """\
hw,model,batch,scale,iters_per_s,n_pairs
k80_unconsolidated,LM,5.0,2,32.5,19
k80,A3C,,1,3.5,26
"""
FOUNDRY = """\
Model,SeqLen (T),# GPUs,GPU,MFU,HFU,Model TFLOP,MicroBatchSize,GradAccum,GlobalBatchSize,Throughput (S/s),\
Throughput (T/s),Throughput (T/s/GPU),GlobalBatchSize (T),Precision,MP Mode,Sharding Strategy,Activation Checkpointing,\
Activation CPUOffload,NumParams,tps
70b,2048,512,h100_80gb,41.25,55.0,408,8,1,4096,251,515636,1007,8388608,amp_bf16,DEFAULT,FULL_SHARD,True,False,\
64862437376,515636
"""


def examples(name: str, text: str) -> list[CompletionEvent]:
    mapping = RunMapping.load(DOCS / f"{name}.toml")
    rows = list(csv.DictReader(text.splitlines()))
    mapping.check_columns(list(rows[0]))
    return [mapping.event(row) for row in rows]


def test_the_example_for_mlperf_fits_its_data() -> None:
    succeeded, aborted = examples("mlperf", MLPERF)
    assert succeeded.attempt_id == "v1.0/Supermicro/results/as-2124gq-nart+/unet3d/result_40.txt"
    assert (succeeded.model_type, succeeded.job_family) == ("unet3d", "Supermicro-unet3d")
    assert (succeeded.trainer_count, succeeded.batch_size) == (4, 14.0)
    assert succeeded.completed_at == datetime(2021, 4, 30, 13, 56, 50, tzinfo=UTC)
    assert succeeded.config["accelerators_per_node"] == 4
    assert aborted.status == "failed"
    assert "framework" not in aborted.config


def test_the_example_for_gavel_fits_its_data() -> None:
    scaled, without_batch = examples("gavel", GAVEL)
    assert (scaled.attempt_id, scaled.throughput) == ("gavel/LM/k80_unconsolidated/5.0/2", 162.5)
    assert (scaled.hardware_type, without_batch.hardware_type) == ("K80-spread", "K80")
    assert (without_batch.attempt_id, without_batch.batch_size) == ("gavel/A3C/k80//1", 0)
    assert without_batch.throughput == 3.5


def test_the_example_for_llm_foundry_fits_its_data() -> None:
    (run,) = examples("llm_foundry", FOUNDRY)
    assert (run.hardware_type, run.trainer_count, run.batch_size) == ("H100-SXM-80", 512, 8.0)
    assert run.throughput == 515636 / 2048
    assert run.config["activation_checkpointing"] is True
    assert run.architecture == {"parameters": 64862437376.0}


def test_the_mapping_in_the_documentation_is_one() -> None:
    page = (DOCS.parent / "imports.md").read_text(encoding="utf-8")
    document = page.partition("```toml\n")[2].partition("```")[0]
    assert {"cluster", "run_id", "kilosamples_per_s", "nodes"} <= RunMapping(tomllib.loads(document)).columns
