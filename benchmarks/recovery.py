"""How long after kill −9 of the only worker, and its restart, is the lag zero again?

The worker is killed in mid-stream and started again at once. Time passes until the dead one's partitions are given to
the new one, and then until the lag is worked off. The lag's own time is measured in the same run: the same events, in
another topic, by a worker that nobody kills. The difference must stay within 20 s. Needs a real Kafka for a figure
worth quoting (`make kafka-jars`, then LEAP_TEST_KAFKA_LIBS=.cache/kafka); without one it runs on the embedded broker
and says so. The last line is one JSON object; the exit status is 1 where the difference is larger.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from stream_throughput import events  # noqa: E402

from leap_features.settings import Settings  # noqa: E402
from leap_streams.producer import CompletionProducer  # noqa: E402
from services import LIBS_VARIABLE, EmbeddedKafka, Kafka, RealKafka, RedisServer  # noqa: E402
from stream_process import LeapProcess, checkpoints, ends, read_topic, wait_until  # noqa: E402

PARTITIONS = 8
LIMIT_S = 20.0
PATIENCE_S = 600.0


def environment(project: str, broker: Kafka, redis_url: str, directory: Path) -> dict[str, str]:
    """Of a deployment with topics of its own, after `leap init`."""
    topic, dead_letter_topic = f"{project}.completions", f"{project}.dead-letter"
    for name in (topic, dead_letter_topic):
        broker.create_topic(name, partitions=PARTITIONS)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
    env = clean | {
        "LEAP_KAFKA_BROKERS": broker.brokers,
        "LEAP_REDIS_URL": redis_url,
        "LEAP_PROJECT": project,
        "LEAP_TOPIC": topic,
        "LEAP_DEAD_LETTER_TOPIC": dead_letter_topic,
        "LEAP_PARTITIONS": str(PARTITIONS),
        "LEAP_ARCHIVE": str(directory / project),
        "LEAP_ALLOW_CREATE_TIME": str(not broker.append_time).lower(),
    }
    with LeapProcess(["init"], env, directory / f"{project}-init.log") as init:
        if init.wait(PATIENCE_S) != 0:
            raise SystemExit(init.log.read_text())
    return env


def produce(settings: Settings, encoded: Sequence[bytes]) -> None:
    """Send events, and return once the broker has them."""
    with CompletionProducer(settings, timeout_s=60) as producer:
        for raw in encoded:
            producer.send_encoded(raw)
        if producer.flush(PATIENCE_S):
            raise SystemExit("the broker did not take all events")


def taken_in(settings: Settings) -> int:
    """Records up to the checkpoints."""
    return sum(checkpoints(settings).values())


def own_rate(settings: Settings, env: dict[str, str], directory: Path) -> float:
    """Events a second of an undisturbed worker, from its first batch to the end of the topic."""
    end = ends(read_topic(settings, settings.topic))
    with LeapProcess(["worker"], env, directory / "own-worker.log") as worker:
        wait_until(lambda: taken_in(settings) > 0, timeout_s=PATIENCE_S, what="a first batch", process=worker)
        began, first = time.perf_counter(), taken_in(settings)
        wait_until(lambda: checkpoints(settings) == end, timeout_s=PATIENCE_S, what="the end", process=worker)
        seconds = time.perf_counter() - began
        worker.terminate()
    return (sum(end.values()) - first) / seconds


def recovery(settings: Settings, env: dict[str, str], encoded: Sequence[bytes], directory: Path) -> tuple[float, int]:
    """Seconds from the restart of a worker that was killed in mid-stream to lag zero, and the lag at the kill."""
    log = directory / "worker.log"
    with LeapProcess(["worker"], env, log) as worker:
        produce(settings, encoded[:1])
        wait_until(lambda: taken_in(settings) > 0, timeout_s=PATIENCE_S, what="a first batch", process=worker)
        produce(settings, encoded[1:])
        worker.kill()
    began = time.perf_counter()
    with LeapProcess(["worker"], env, log) as worker:
        lag = len(encoded) - taken_in(settings)
        end = ends(read_topic(settings, settings.topic))
        wait_until(lambda: checkpoints(settings) == end, timeout_s=PATIENCE_S, what="lag zero", process=worker)
        seconds = time.perf_counter() - began
        worker.terminate()
    return seconds, lag


def main() -> None:
    """Measure both, and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=30_000, help="events that stream in; some before the kill")
    arguments = parser.parse_args()
    libs = os.environ.get(LIBS_VARIABLE)
    encoded = events(arguments.events, seed=8)
    with tempfile.TemporaryDirectory() as name, RedisServer() as redis_server:
        directory = Path(name)
        broker: Kafka
        with RealKafka(Path(libs), directory / "kafka") if libs else EmbeddedKafka() as broker:
            env = environment("recovery", broker, redis_server.url, directory)
            seconds, lag = recovery(Settings.from_env(env), env, encoded, directory)
            env = environment("own", broker, redis_server.url, directory)
            settings = Settings.from_env(env)
            produce(settings, encoded)
            own_s = lag / own_rate(settings, env, directory)
    result = {
        "broker": "Apache Kafka" if libs else "embedded",
        "lag_at_the_kill": lag,
        "restart_to_lag_zero_s": round(seconds, 1),
        "lags_own_s": round(own_s, 1),
        "beyond_s": round(seconds - own_s, 1),
        "limit_s": LIMIT_S,
    }
    print(json.dumps(result))
    sys.exit(seconds - own_s > LIMIT_S)


if __name__ == "__main__":
    main()
