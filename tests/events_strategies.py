"""Hypothesis strategies and small makers of completion events, shared by the tests of every room."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from leap_features.history import Position, Run

BASE = datetime(2026, 3, 1, tzinfo=UTC)


def event_fields(**changes: Any) -> dict[str, Any]:
    """The JSON document of a valid, succeeded event, with `changes`; a change to ... removes the field."""
    completed = changes.pop("completed", BASE)
    fields: dict[str, Any] = {
        "schema_version": 1,
        "attempt_id": "attempt-1",
        "job_name": "ranker-prod-2026-03-01",
        "model_type": "ranker",
        "hardware_type": "H100-SXM-80",
        "submitted_at": (completed - timedelta(hours=2)).isoformat(),
        "started_at": (completed - timedelta(hours=1)).isoformat(),
        "completed_at": completed.isoformat(),
        "status": "succeeded",
        "throughput": 1000.0,
        "trainer_count": 8,
        "reader_count": 4,
        "batch_size": 32,
        "device_hours": 8.0,
        "eligible_hardware": ["H100-SXM-80", "A100-SXM-80"],
        "config": {"precision": "bf16", "layers": 12},
    }
    fields.update(changes)
    return {name: value for name, value in fields.items() if value is not ...}


def raw_event(**changes: Any) -> bytes:
    """`event_fields` as the bytes of a record."""
    return json.dumps(event_fields(**changes)).encode()


def nested(levels: int) -> dict[str, Any]:
    """An object of so many levels."""
    return {"inner": nested(levels - 1)} if levels > 1 else {}


BROKEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "another schema version": ({"schema_version": 2}, "schema_version", "got 2"),
    "no attempt": ({"attempt_id": ...}, "attempt_id", "required"),
    "an empty attempt": ({"attempt_id": ""}, "attempt_id", "length >= 1"),
    "a long attempt": ({"attempt_id": "a" * 129}, "attempt_id", "length <= 128"),
    "an empty job name": ({"job_name": ""}, "job_name", "length >= 1"),
    "a long job name": ({"job_name": "n" * 513}, "job_name", "length <= 512"),
    "an empty stem": ({"job_family": ""}, "job_family", "length >= 1"),
    "a blank stem": ({"job_family": " \t"}, "job_family", "not blank"),
    "a slash in the model type": ({"model_type": "vision/resnet"}, "model_type", 'without /, got "vision/resnet"'),
    "no hardware": ({"hardware_type": ...}, "hardware_type", "required"),
    "a naive time": ({"submitted_at": "2026-03-01T00:00:00"}, "submitted_at", "timezone"),
    "no time": ({"completed_at": "yesterday"}, "completed_at", "yesterday"),
    "a start before submission": ({"started_at": "2020-01-01T00:00:00Z"}, "time_order", "2020-01-01"),
    "an end before the start": ({"completed_at": "2020-01-01T00:00:00Z"}, "time_order", "2020-01-01"),
    "an unknown status": ({"status": "done"}, "status", 'one of succeeded, failed, cancelled, preempted), got "done"'),
    # dmlc/xgboost#9715: throughput arrives as a string
    "throughput as text": ({"throughput": "1234"}, "throughput", '"1234"'),
    "throughput 0": ({"throughput": 0}, "throughput", "0"),
    "negative throughput": ({"throughput": -1.0}, "throughput", "-1.0"),
    "no throughput though succeeded": ({"throughput": ...}, "throughput", "None"),
    "no trainer": ({"trainer_count": 0}, "trainer_count", ">= 1"),
    "half a trainer": ({"trainer_count": 1.5}, "trainer_count", "1.5"),
    "negative readers": ({"reader_count": -1}, "reader_count", ">= 0"),
    "a negative batch": ({"batch_size": -1}, "batch_size", ">= 0"),
    "negative device hours": ({"device_hours": -0.5}, "device_hours", ">= 0"),
    "candidates that are no list": ({"eligible_hardware": "H100"}, "eligible_hardware", "array"),
    "a nested config": ({"config": {"a": [1]}}, "config", "array"),
    "text in the architecture": ({"architecture": {"layers": "12"}}, "architecture", "float"),
    "a ranking that is no object": ({"ranking": 5}, "ranking", "object"),
    "a ranking that is too deep": ({"ranking": nested(33)}, "ranking", "32 levels"),
    "a field of another schema": ({"batchsize": 32}, "unknown_field", "batchsize"),
}
"""What breaks a rule → changes to a valid event, the rule, and what the message must name."""

runs = st.builds(
    Run,
    succeeded=st.booleans(),
    completed_at_us=st.integers(0, 40),
    attempt_id=st.sampled_from(["a", "b", "c", "d"]),
    x=st.integers(-(2**36), 2**36),
    log_trainers=st.integers(0, 2**36),
    log_batch=st.none() | st.integers(-(2**36), 2**36),
    hardware_type=st.sampled_from(["H100", "A100"]),
    trainer_count=st.integers(1, 1024),
    batch_size=st.floats(0, 1e6),
)


def positions_of(partitions: list[int], epoch: int = 1_000_000) -> list[Position]:
    """A position for each delivery, given the partition that it comes from: offsets ascend within a partition."""
    following: dict[int, int] = {}
    found = []
    for partition in partitions:
        offset = following.get(partition, 0)
        following[partition] = offset + 1
        found.append(Position(epoch, partition, offset))
    return found
