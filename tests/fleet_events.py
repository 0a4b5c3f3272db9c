"""Completion events of a made-up fleet, encoded, for benchmarks."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any


def events(count: int, seed: int) -> list[bytes]:
    """Attempts of a long-tailed fleet: 300 model types, 3,000 families, 12 hardware types."""
    rng = random.Random(seed)
    families = [f"model{int(rng.paretovariate(0.8)) % 300}/job{i}" for i in range(3000)]
    weights = [1 / (i + 1) for i in range(len(families))]
    now = datetime.now(UTC) - timedelta(hours=2)
    found = []
    for i, family in enumerate(rng.choices(families, weights, k=count)):
        model, job = family.split("/")
        found.append(
            attempt(
                rng,
                now + timedelta(milliseconds=i),
                attempt_id=f"{seed}-{i}",
                job_name=f"{job}-train-run{i}",
                model_type=model,
            )
        )
    return found


def attempt(rng: random.Random, completed: datetime, **fields: Any) -> bytes:
    """One attempt as JSON, of the size that real ones have; `fields` must name it, its job and its model type."""
    event: dict[str, Any] = {
        "schema_version": 1,
        "hardware_type": f"hw{rng.randrange(12)}",
        "submitted_at": (completed - timedelta(hours=2)).isoformat(),
        "started_at": (completed - timedelta(hours=1)).isoformat(),
        "completed_at": completed.isoformat(),
        "status": "failed" if rng.random() < 0.05 else "succeeded",
        "throughput": rng.lognormvariate(6, 2),
        "trainer_count": 2 ** rng.randrange(8),
        "reader_count": rng.randrange(32),
        "batch_size": 2 ** rng.randrange(4, 12),
        "device_hours": rng.random() * 100,
        "eligible_hardware": [f"hw{n}" for n in range(12)],
        "config": {"precision": "bf16", "sequence_length": 2048, "optimizer": "adamw"},
    }
    return json.dumps(event | fields).encode()
