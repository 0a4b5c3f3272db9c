"""How long after the broker has recorded an event can `rank` see it, at a steady 1,000 events a second?

Events come as a Poisson process, to one history worker. Some of them are the first of a family of their own: those are
looked for with the launcher's own reader, from when they are sent until their row is there. The row itself says when
the broker recorded the event. Beside it, the same by the worker's own metric `leap_freshness_seconds`, over all events.
Needs a real Kafka for a figure worth quoting (`make kafka-jars`, then LEAP_TEST_KAFKA_LIBS=.cache/kafka); without one
it runs on the embedded broker and says so. The last line is one JSON object; the exit status is 1 where the 99th
percentile is 500 ms or more.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from app_endpoints import AppEndpoints  # noqa: E402
from bench_deployment import BenchDeployment, bench_deployment  # noqa: E402
from fleet_events import attempt, events  # noqa: E402
from leap_features.events import decode  # noqa: E402
from leap_features.family import family_of_event  # noqa: E402
from leap_predictor.history.redis_reader import HistoryReader  # noqa: E402
from leap_predictor.manifest import history_views  # noqa: E402
from leap_streams.child_process import free_port  # noqa: E402
from leap_streams.history_writer import Subject  # noqa: E402
from leap_streams.producer import CompletionProducer  # noqa: E402
from stream_process import LeapProcess, wait_until  # noqa: E402

LIMIT_MS = 500.0
WARM_UP_S = 10.0
"""Not measured: connections are made, caches fill, Java compiles."""
SAMPLED = 25
"""Of so many events one is the first of its family, and looked for."""
POLL_S = 0.01
PATIENCE_S = 60.0
"""Above any freshness: an event that is not seen by then is lost."""
FAMILY_VIEWS = tuple(view for view in history_views() if view.view == "family_history")


class Arrivals(threading.Thread):
    """Sends `encoded` at `rate` a second, and notes the subjects of those that are to be looked for.

    `sent` holds them, in order of sending, with whether they are measured.
    """

    def __init__(self, producer: CompletionProducer, encoded: list[bytes], rate: float) -> None:
        super().__init__(name="arrivals", daemon=True)
        self.sent: list[tuple[Subject, bool]] = []
        self.seconds = 0.0
        """How long it took."""
        self._producer = producer
        self._encoded = encoded
        self._gaps = np.random.default_rng(3).exponential(1 / rate, len(encoded))

    def run(self) -> None:
        """Send."""
        began = due = time.monotonic()
        for i, (raw, gap) in enumerate(zip(self._encoded, self._gaps, strict=True)):
            due += gap
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
            self._producer.send_encoded(raw)
            if i % SAMPLED == 0:
                self.sent.append((subject_of(raw), time.monotonic() - began > WARM_UP_S))
        self.seconds = time.monotonic() - began


def subject_of(raw: bytes) -> Subject:
    """The keys of an event."""
    event = decode(raw)
    return Subject(family_of_event(event), event.model_type, event.hardware_type, event.trainer_count)


def traffic(count: int) -> Iterator[bytes]:
    """A fleet's events, every `SAMPLED`th replaced by the first of a family that nobody else has."""
    rng = random.Random(5)
    completed = datetime.now(UTC) - timedelta(hours=1)
    for i, raw in enumerate(events(count, seed=11)):
        if i % SAMPLED:
            yield raw
        else:
            model = decode(raw).model_type
            yield attempt(
                rng, completed, attempt_id=f"seen-{i}", job_name="seen", job_family=f"seen-{i}", model_type=model
            )


def freshness_ms(reader: HistoryReader, arrivals: Arrivals) -> list[float]:
    """Milliseconds from the broker's record time to the row's being there, per measured event."""
    found: list[float] = []
    awaited: dict[Subject, tuple[float, bool]] = {}
    noted = 0
    while arrivals.is_alive() or awaited or noted < len(arrivals.sent):
        for subject, measured in arrivals.sent[noted:]:
            awaited[subject] = time.monotonic() + PATIENCE_S, measured
            noted += 1
        subjects = list(awaited)
        rows = reader.read(FAMILY_VIEWS, subjects, within_s=PATIENCE_S).rows if subjects else []
        now_ms = time.time() * 1e3
        for subject, by_view in zip(subjects, rows, strict=True):
            until, measured = awaited[subject]
            row = by_view["family_history"]
            if row is not None and row.recorded_at_us is not None:
                del awaited[subject]
                if measured:
                    found.append(now_ms - row.recorded_at_us / 1e3)
            elif time.monotonic() > until:
                raise SystemExit(f"family {subject.job_family} is not seen after {PATIENCE_S:g} s")
        time.sleep(POLL_S)
    return found


def buckets(endpoints: AppEndpoints) -> dict[float, float]:
    """Upper bound in seconds → events so far that were not older."""
    return {
        float(dict(labels)["le"]): count
        for (name, labels), count in endpoints.samples().items()
        if name == "leap_freshness_seconds_bucket"
    }


def bound_of_99_percent(counts: dict[float, float]) -> float:
    """The smallest bound of the histogram, in seconds, that at least 99 % of the events keep to."""
    return min(bound for bound, count in counts.items() if count >= 0.99 * counts[float("inf")])


def run(deployment: BenchDeployment, rate: float, seconds: float) -> dict[str, object]:
    """The benchmark, once broker and Redis are up."""
    settings, env, directory, broker = deployment
    encoded = list(traffic(round(rate * (WARM_UP_S + seconds))))
    endpoints = AppEndpoints(free_port())
    reader = HistoryReader(settings.redis_url, settings.project)
    with (
        CompletionProducer(settings) as producer,
        LeapProcess(["worker", "--http", endpoints.listen], env, directory / "worker.log") as worker,
    ):
        wait_until(lambda: endpoints.ready()[0] == 200, timeout_s=60, what="a worker that is ready", process=worker)
        print(f"{len(encoded):,} events at {rate:g} a second", file=sys.stderr, flush=True)
        arrivals = Arrivals(producer, encoded, rate)
        arrivals.start()
        found = freshness_ms(reader, arrivals)
        stored = buckets(endpoints)
        worker.terminate()
    reader.close()
    return {
        "broker": broker,
        "events": len(encoded),
        "events_per_s": round(len(encoded) / arrivals.seconds),
        "samples": len(found),
        "visible_p50_ms": round(float(np.percentile(found, 50)), 1),
        "visible_p99_ms": round(float(np.percentile(found, 99)), 1),
        "visible_max_ms": round(max(found), 1),
        "stored_p99_at_most_ms": bound_of_99_percent(stored) * 1e3,
    }


def main() -> None:
    """Run it, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="after the warm-up")
    arguments = parser.parse_args()
    with bench_deployment() as deployment:
        result = run(deployment, arguments.rate, arguments.seconds)
    print(json.dumps(result))
    if float(str(result["visible_p99_ms"])) >= LIMIT_MS:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
