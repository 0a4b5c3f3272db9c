"""A small made-up fleet for the demo: a month of attempts whose throughput follows a simple scaling law with noise.

It shows the mechanics. Nothing about accuracy can be learned from it, since the law is simple.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from leap_features.events import CompletionEvent
from leap_features.hardware import lookup

HARDWARE: Final = ("A100-SXM-80", "H100-SXM-80", "H200-SXM-141", "L40S", "MI300X")
CANDIDATES: Final = ("A100-SXM-80", "H100-SXM-80", "L40S", "MI300X")
MODELS: Final = {
    # samples a second of one trainer at 100 TFLOPS; how much of more TFLOPS and of more bandwidth it turns into speed
    "ranking": (9_000.0, 0.2, 0.7),
    "language": (35.0, 0.8, 0.2),
    "vision": (2_400.0, 0.6, 0.4),
    "speech": (310.0, 0.5, 0.5),
}
FAMILIES: Final = ("ads-ctr", "feed-main", "nightly-refresh", "research-sweep")
SHOWN_FAMILY: Final = ("language", "nightly-refresh")
"""The family whose history the demo shows."""


def attempts(count: int, end: datetime, seed: int) -> Iterator[CompletionEvent]:
    """`count` attempts of 30 days that end at `end`, in order of completion; some fail, some are preempted."""
    rng = random.Random(seed)
    begin = end - timedelta(days=30)
    for number in range(count):
        completed = begin + (number + 1) * (end - begin) / count
        model = rng.choice(tuple(MODELS))
        family = rng.choices(FAMILIES, (8, 4, 2, 1))[0]
        hardware = rng.choice(HARDWARE)
        trainers = rng.choice((8, 16, 32, 64))
        batch = rng.choice((32, 64, 128))
        hours = rng.uniform(0.5, 12)
        status = rng.choices(("succeeded", "failed", "preempted"), (90, 7, 3))[0]
        yield CompletionEvent(
            schema_version=1,
            attempt_id=f"demo-{number:06d}",
            job_name=f"{family}-{completed:%Y-%m-%d}-run{number}-seed{rng.randrange(100)}",
            model_type=model,
            hardware_type=hardware,
            submitted_at=completed - timedelta(hours=hours + 0.2),
            started_at=completed - timedelta(hours=hours),
            completed_at=completed,
            status=status,  # type: ignore[arg-type]  # one of the literals above
            throughput=throughput(model, family, hardware, trainers, batch, rng) if status == "succeeded" else None,
            trainer_count=trainers,
            reader_count=trainers // 4,
            batch_size=batch,
            device_hours=hours * trainers,
            eligible_hardware=HARDWARE,
            config={"precision": "bf16"},
        )


def throughput(model: str, family: str, hardware: str, trainers: int, batch: int, rng: random.Random) -> float:
    """Samples a second: a power law in peak rate, bandwidth and trainers, a factor per family, 4 % of noise."""
    base, compute, bandwidth = MODELS[model]
    specification = lookup(hardware)
    tflops = specification.dense_bf16_or_fp16_tflops if specification else None
    gigabytes = specification.memory_bandwidth_gbs if specification else None
    if tflops is None or gigabytes is None:
        raise ValueError(f"the catalogue lacks {hardware} or its peak rate or bandwidth; the demo fleet needs them")
    log_speed = compute * math.log(tflops / 100) + bandwidth * math.log(gigabytes / 1000)
    log_scale = 0.93 * math.log(trainers) + 0.1 * math.log(batch / 64)
    own = 0.7 + 0.15 * FAMILIES.index(family)
    return base * own * math.exp(log_speed + log_scale + rng.gauss(0, 0.04))
