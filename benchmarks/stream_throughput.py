"""How many completion events a second does one history worker take in, all six levels written?

Beside it, in the same run on the same topic: a Faust agent that only consumes, and one Feast `push` per event (one
level). Needs a real Kafka for a figure worth quoting (`make kafka-jars`, then LEAP_TEST_KAFKA_LIBS=.cache/kafka);
without one it runs on the embedded broker and says so. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from bench_deployment import BenchDeployment, bench_deployment  # noqa: E402
from fleet_events import events  # noqa: E402
from leap_features.settings import Settings  # noqa: E402
from leap_streams.producer import CompletionProducer  # noqa: E402
from stream_process import LeapProcess, checkpoints, wait_until  # noqa: E402

RATE = "events a second: "


def worker_rate(settings: Settings, env: dict[str, str], count: int, log: Path) -> float:
    """Events a second of `leap worker`, from its first checkpoint to its last."""
    with LeapProcess(["worker"], env, log) as worker:
        wait_until(lambda: sum(checkpoints(settings).values()) > 0, timeout_s=60, what="a first batch", process=worker)
        began, first = time.perf_counter(), sum(checkpoints(settings).values())
        last_shown = began
        while (done := sum(checkpoints(settings).values())) < count:
            time.sleep(0.02)
            if time.perf_counter() - last_shown > 5:
                last_shown = time.perf_counter()
                print(f"  {done:,} of {count:,}", file=sys.stderr, flush=True)
            if not worker.running:
                raise SystemExit(f"the worker ended:\n{log.read_text()[-3000:]}")
        rate = (count - first) / (time.perf_counter() - began)
        worker.terminate()
    return rate


def consume_only_rate(settings: Settings, env: dict[str, str], count: int) -> float:
    """Events a second of a Faust agent that takes the same batches and does nothing, in a process of its own."""
    command = [sys.executable, __file__, "--role", "consume", "--events", str(count)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith(RATE)]
    return float(line.removeprefix(RATE))


def consume(count: int) -> None:
    """The process of `consume_only_rate`."""
    import faust

    settings = Settings.from_env()
    app = faust.App(
        f"{settings.project}-consume-only",
        broker=f"kafka://{settings.kafka_brokers}",
        topic_allow_declare=False,
        topic_disable_leader=True,
        value_serializer="raw",
        key_serializer="raw",
        store="memory://",
        datadir=tempfile.mkdtemp(),
        web_enabled=False,
        autodiscover=False,
    )
    topic = app.topic(settings.topic, key_type=bytes, value_type=bytes)
    seen = [0, 0]
    began = [0.0]

    @app.agent(topic)
    async def take(stream: Any) -> None:
        async for batch in stream.noack_take(settings.batch_max, within=settings.batch_within_s):
            if not began[0]:
                began[0], seen[0] = time.perf_counter(), len(batch)
            for event in batch:
                event.ack()
            seen[1] += len(batch)
            if seen[1] >= count:
                rate = (seen[1] - seen[0]) / (time.perf_counter() - began[0])
                print(f"\n{RATE}{rate}", flush=True)
                os._exit(0)

    app.Worker(loglevel="error", quiet=True, redirect_stdouts=False).execute_from_commandline()


def feast_push_rate(settings: Settings, count: int, directory: Path) -> float:
    """Events a second by one Feast `push` each, to the family's view alone."""
    import pandas as pd

    from leap_features.events import decode, to_us
    from leap_features.family import family_of_event
    from leap_features.feature_store import apply_definitions, open_feature_store
    from leap_features.history import EMPTY, FEATURES, Position, features, fold, run_of

    store = open_feature_store(settings, directory / "registry.db")
    apply_definitions(store, settings)
    rows = {}
    frames = []
    for offset, raw in enumerate(events(count, seed=99)):
        event = decode(raw)
        run = run_of(event)
        assert run is not None
        family = family_of_event(event)
        position = Position(2_000_000, 0, offset)
        row = rows[family] = fold(rows.get(family, EMPTY), run, position, to_us(event.completed_at))
        columns = {"job_family": family, "event_timestamp": pd.Timestamp(event.completed_at), **features(row)}
        frames.append(pd.DataFrame([columns]))
    assert set(frames[0]) >= {name for name, _ in FEATURES}
    store.push("family_history_push", frames[0])
    began = time.perf_counter()
    for frame in frames[1:]:
        store.push("family_history_push", frame)
    return (count - 1) / (time.perf_counter() - began)


def main() -> None:
    """Run the three, and print their rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=60_000)
    parser.add_argument("--pushes", type=int, default=200)
    parser.add_argument("--role", choices=["main", "consume"], default="main")
    arguments = parser.parse_args()
    if arguments.role == "consume":
        consume(arguments.events)
        return
    with bench_deployment() as deployment:
        run(arguments, deployment)


def run(arguments: argparse.Namespace, deployment: BenchDeployment) -> None:
    """The benchmark, once broker and Redis are up."""
    settings, env, directory, broker = deployment
    count = arguments.events
    print(f"producing {count:,} events", file=sys.stderr, flush=True)
    with CompletionProducer(settings, timeout_s=60) as producer:
        for raw in events(count, seed=7):
            producer.send_encoded(raw)
        producer.flush(120)
    print("history worker", file=sys.stderr, flush=True)
    worker = worker_rate(settings, env, count, directory / "worker.log")
    print(f"  {worker:,.0f} events/s\nconsume only", file=sys.stderr, flush=True)
    consuming = consume_only_rate(settings, env, count)
    print(f"  {consuming:,.0f} events/s\none Feast push per event", file=sys.stderr, flush=True)
    pushing = feast_push_rate(settings, arguments.pushes, directory)
    result = {
        "broker": broker,
        "events": count,
        "events_per_s": round(worker),
        "consume_only_events_per_s": round(consuming),
        "feast_push_events_per_s": round(pushing, 1),
        "worker_to_consume_only": round(worker / consuming, 3),
        "worker_to_feast_push": round(worker / pushing, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
