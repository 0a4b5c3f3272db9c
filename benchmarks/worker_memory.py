"""Does the memory of a history worker stay flat while it writes 1,000,000 keys: 250,000 families at four levels each?

Every event is the first of its family, on a hardware type that no other family of its model type uses, so that it makes
a key at every level. The worker's resident memory is read after the first tenth of the events and at the end; the ratio
of the two says whether the worker keeps anything per key. Redis needs some 1.5 GB. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from app_endpoints import AppEndpoints  # noqa: E402
from bench_deployment import BenchDeployment, bench_deployment  # noqa: E402
from fleet_events import attempt  # noqa: E402
from leap_features.levels import LEVELS  # noqa: E402
from leap_streams.child_process import free_port  # noqa: E402
from leap_streams.producer import CompletionProducer  # noqa: E402
from stream_process import LeapProcess, checkpoints, wait_until  # noqa: E402

HARDWARE_TYPES = 12
SHOWN_EVERY_S = 10.0
PATIENCE_S = 120.0


def produce(deployment: BenchDeployment, families: int) -> None:
    """One event per family."""
    rng = random.Random(13)
    completed = datetime.now(UTC) - timedelta(hours=1)
    with CompletionProducer(deployment.settings, timeout_s=PATIENCE_S) as producer:
        for family in range(families):
            raw = attempt(
                rng,
                completed,
                attempt_id=f"only-{family}",
                job_name="only",
                job_family=f"family-{family}",
                model_type=f"model-{family // HARDWARE_TYPES}",
                hardware_type=f"hw{family % HARDWARE_TYPES}",
            )
            producer.send_encoded(raw)
        if producer.flush(PATIENCE_S):
            raise SystemExit("the broker did not take all events")


def run(deployment: BenchDeployment, families: int) -> dict[str, object]:
    """The benchmark, once broker and Redis are up."""
    print(f"producing {families:,} events", file=sys.stderr, flush=True)
    produce(deployment, families)
    endpoints = AppEndpoints(free_port())
    log = deployment.directory / "worker.log"
    early = 0.0
    with LeapProcess(["worker", "--http", endpoints.listen], deployment.env, log) as worker:
        wait_until(lambda: endpoints.ready()[0] == 200, timeout_s=PATIENCE_S, what="a ready worker", process=worker)
        shown = time.monotonic()
        while (done := sum(checkpoints(deployment.settings).values())) < families:
            if not worker.running:
                raise SystemExit(f"the worker ended:\n{log.read_text()[-3000:]}")
            if not early and done >= families / 10:
                early = resident_bytes(endpoints)
            if time.monotonic() - shown > SHOWN_EVERY_S:
                shown = time.monotonic()
                now = resident_bytes(endpoints) / 1e6
                print(f"  {done:,} of {families:,}, {now:.0f} MB", file=sys.stderr, flush=True)
            time.sleep(0.1)
        late = resident_bytes(endpoints)
        worker.terminate()
    return {
        "broker": deployment.broker,
        "keys": families * len(LEVELS),
        "resident_mb_after_a_tenth": round(early / 1e6, 1),
        "resident_mb_at_the_end": round(late / 1e6, 1),
        "end_to_tenth": round(late / early, 3),
    }


def resident_bytes(endpoints: AppEndpoints) -> float:
    """Resident memory of the worker's process."""
    found = endpoints.sample("process_resident_memory_bytes")
    if found is None:
        raise SystemExit("the worker does not tell its memory: this benchmark needs Linux")
    return found


def main() -> None:
    """Run it, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=250_000)
    arguments = parser.parse_args()
    with bench_deployment() as deployment:
        result = run(deployment, arguments.families)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
