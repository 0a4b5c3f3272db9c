"""Decisions for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from leap_predictor.decisions.decision import Decision, encode
from leap_predictor.explanation import Choice

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def choice(hardware_type: str, score: float = 1.0, cost: float = 2.0) -> Choice:
    """A choice of this score; its other numbers fit."""
    throughput = score * cost
    return Choice(hardware_type, throughput, throughput / 2, throughput * 2, score, "family_history", cost)


def decision(decision_id: str = "d1", **fields: Any) -> Decision:
    """A decision that answered A before B, with `fields` in place of its own."""
    own: dict[str, Any] = {
        "decision_id": decision_id,
        "decided_at": NOON,
        "job_name": "train-bert-7",
        "model_type": "bert",
        "trainer_count": 8,
        "candidates": ("A", "B"),
        "choices": (choice("A", 2.0), choice("B", 1.0)),
        "bundle_id": "bundle",
        "history": "live",
        "took_ms": 1.5,
    }
    return Decision(**own | fields)


def write_decisions(path: Path, decisions: Sequence[Decision]) -> Path:
    """A log of `decisions` at `path`."""
    path.write_bytes(b"".join(encode(each) + b"\n" for each in decisions))
    return path
