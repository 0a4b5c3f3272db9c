"""What does the decision log cost a call: `record`, beside a bare `queue.put` and beside encoding in the call?

The last line is JSON: microseconds per call (median of the rounds), and what became of the decisions.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from leap_predictor.decisions.decision import Decision, encode
from leap_predictor.decisions.log import JsonLinesLog
from leap_predictor.explanation import Choice

CANDIDATES = 22


def decision() -> Decision:
    """One with 22 choices."""
    names = tuple(f"HARDWARE-TYPE-{number}" for number in range(CANDIDATES))
    return Decision(
        decision_id=uuid.uuid4().hex,
        decided_at=datetime.now(UTC),
        job_name="ranker-prod-2026-03-01",
        model_type="ranker",
        trainer_count=16,
        candidates=names,
        choices=tuple(Choice(name, 1234.5, 1000.5, 1500.5, 17.25, "family_history", 2.5) for name in names),
        bundle_id="20260301T000000Z",
        history="live",
        took_ms=3.25,
    )


def microseconds(call: Callable[[Decision], object], given: list[Decision], pause_s: float) -> float:
    """Median time of one call, in microseconds."""
    times = []
    for each in given:
        begin = time.perf_counter_ns()
        call(each)
        times.append(time.perf_counter_ns() - begin)
        if pause_s:
            time.sleep(pause_s)
    return statistics.median(times) / 1000


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.001, help="Seconds between calls, as between launches.")
    options = parser.parse_args()
    given = [decision() for _ in range(options.calls)]
    found: dict[str, list[float]] = {"record_us": [], "queue_put_us": [], "encode_us": []}
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(options.rounds):
            plain: queue.Queue[Decision] = queue.Queue()
            log = JsonLinesLog(Path(directory) / f"{number}.jsonl")
            found["queue_put_us"].append(microseconds(plain.put, given, options.pause))
            found["record_us"].append(microseconds(log.record, given, options.pause))
            found["encode_us"].append(microseconds(encode, given, options.pause))
            log.close(60)
            counts = {name: counts.get(name, 0) + count for name, count in log.counts.items()}
    medians = {name: round(statistics.median(values), 2) for name, values in found.items()}
    print(json.dumps({**medians, "line_bytes": len(encode(given[0])), **counts, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
