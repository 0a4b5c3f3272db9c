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
