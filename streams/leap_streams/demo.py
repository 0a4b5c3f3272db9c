"""`make demo`: the product's main job on an embedded broker and Redis, in a minute, leaving nothing behind.

A month of a made-up fleet streams in within seconds: each record carries its completion time as its record time, which
the embedded broker accepts and a real one would not.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import redis

from leap_features import archive, layout
from leap_features.events import CompletionEvent, encode, from_us, to_us
from leap_features.family import family_of
from leap_features.layout import Value
from leap_features.levels import FAMILY_HARDWARE, Level
from leap_features.meta import FIRST_LIVE_EPOCH, decode_meta, meta_key
from leap_features.settings import Settings
from leap_streams.demo_fleet import CANDIDATES, SHOWN_FAMILY, attempts
from leap_streams.embedded import EmbeddedBroker, EmbeddedRedis
from leap_streams.producer import CompletionProducer

ATTEMPTS: Final = 4_000
LAST_DAY: Final = ATTEMPTS // 30
SEED: Final = 7
PARTITIONS: Final = 8
PATIENCE_S: Final = 60.0


class DemoFailed(RuntimeError):
    """A step did not do what it should; the message has its output."""


class Deployment:
    """The demo's processes and folders: embedded services, and `leap` commands run as a user would run them."""

    def __init__(self, folder: Path, brokers: str, redis_url: str, feature_repo: Path) -> None:
        self.folder = folder
        shutil.copytree(
            feature_repo, folder / "feature_repo", ignore=shutil.ignore_patterns("data", "leap_features", "__pycache__")
        )
        variables = {
            "LEAP_KAFKA_BROKERS": brokers,
            "LEAP_REDIS_URL": redis_url,
            "LEAP_PROJECT": "leap",
            "LEAP_PARTITIONS": str(PARTITIONS),
            "LEAP_ARCHIVE": str(folder / "archive"),
            "LEAP_ARCHIVE_WITHIN_S": "1",
            "LEAP_HISTORY": str(folder / "history"),
            "LEAP_FEATURE_REPO": str(folder / "feature_repo"),
            "LEAP_BUNDLES": str(folder / "bundles"),
            "LEAP_ALLOW_CREATE_TIME": "true",
        }
        outside = {name: value for name, value in os.environ.items() if not name.startswith("LEAP_")}
        self._env = outside | variables
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.settings = Settings.from_env(variables)

    def leap(self, *arguments: str, show: bool = True) -> str:
        """Run `leap ARGUMENTS…` and return what it prints."""
        _say_command(arguments)
        done = subprocess.run(
            _command(arguments), env=self._env, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise DemoFailed(f"leap {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        if show:
            click.echo(_indented(done.stdout))
        return done.stdout

    def start(self, stack: ExitStack, *arguments: str) -> None:
        """Run `leap ARGUMENTS…` in the background until the demo ends."""
        _say_command((*arguments, "&"))
        log = (self.folder / f"{arguments[0]}.log").open("wb")
        stack.enter_context(log)
        process = subprocess.Popen(
            _command(arguments), env=self._env, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
        )
        self._running[arguments[0]] = process
        stack.callback(_stop, process)

    def taken_in(self) -> int:
        """Records that history has taken in, by the online store's own account."""
        with redis.Redis.from_url(self.settings.redis_url) as client:
            meta = decode_meta(client.hgetall(meta_key(self.settings.project)))
        return sum(meta.checkpoints.values()) if meta else 0

    def archived(self) -> int:
        """Records that the archive covers."""
        return sum(archive.end_offsets(self.settings.archive, FIRST_LIVE_EPOCH).values())

    def wait_for(self, records: int, sent: int) -> None:
        """Show a bar until history has taken in `records`, and wait until the archive has as many."""
        before, deadline = self.taken_in(), time.monotonic() + PATIENCE_S
        with click.progressbar(length=records - before, label=f"  {sent:,} attempts stream in") as bar:
            shown = before
            while shown < records:
                now = self.taken_in()
                bar.update(now - shown)
                shown = now
                self._in_time(deadline, "worker")
        while self.archived() < records:
            self._in_time(deadline, "archive")

    def _in_time(self, deadline: float, process: str) -> None:
        time.sleep(0.1)
        ended = self._running[process].poll() is not None
        if ended or time.monotonic() > deadline:
            log = (self.folder / f"{process}.log").read_text(errors="replace")
            what = "has ended" if ended else f"is not done within {PATIENCE_S:g} s"
            raise DemoFailed(f"leap {process} {what}:\n{log[-2000:]}")

    def row(self, level: Level, key: Sequence[str | int]) -> dict[str, Value]:
        """The features of one key, as the online store has them."""
        names = ("last", "mean", "std", "count", "last_seen", "failures_since_success")
        with redis.Redis.from_url(self.settings.redis_url) as client:
            stored = client.hmget(
                layout.entity_key(self.settings.project, level.join_keys, key),
                [layout.field(level.view, name) for name in names],
            )
        return dict(zip(names, map(layout.decode_value, stored), strict=True))


def run(feature_repo: Path) -> None:
    """The demo, step by step.

    Raises:
        DemoFailed: a step went wrong.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leap-demo-")))
        settings = Settings()
        broker = stack.enter_context(
            EmbeddedBroker((settings.topic, settings.dead_letter_topic), partitions=PARTITIONS)
        )
        server = stack.enter_context(EmbeddedRedis(folder / "redis"))
        demo = Deployment(folder, broker.brokers, server.url, feature_repo)
        fleet = list(attempts(ATTEMPTS, datetime.now(UTC), SEED))

        _step("A broker and a Redis run, for trying out. Archive and online store are made, two processes started.")
        demo.leap("init")
        demo.start(stack, "worker")
        demo.start(stack, "archive")

        _step("29 days of completed training jobs stream in, every fiftieth reported twice; then the last day.")
        sent = _send(demo, fleet[:-LAST_DAY], 0)
        before = _history(demo, "after 29 days")
        _send(demo, fleet[-LAST_DAY:], sent)
        after = _history(demo, "now          ")
        if after["count"] == before["count"]:
            raise DemoFailed("the last day brought the shown family nothing")

        _step("The archive gives the same history for any past instant: a training set, and from it a model.")
        demo.leap("history", "build", show=False)
        demo.leap("dataset", "--out", "training.parquet")
        demo.leap("train", "training.parquet")

        _step("A job is about to start. Which of four hardware types gives most throughput per cost?")
        job = {
            "job_name": f"{SHOWN_FAMILY[1]}-{datetime.now(UTC):%Y-%m-%d}-run99999",
            "model_type": SHOWN_FAMILY[0],
            "trainer_count": 16,
            "reader_count": 4,
            "batch_size": 64,
            "config": {"precision": "bf16"},
        }
        (folder / "job.json").write_text(json.dumps(job))
        demo.leap("rank", "--job", "job.json", "--candidates", ",".join(CANDIDATES))
        click.echo("  Why, for one of them:")
        demo.leap("rank", "--job", "job.json", "--candidates", CANDIDATES[0], "--explain")

        _step("History online (kept by the stream) against history offline (made from the archive), field by field.")
        verdict = json.loads(demo.leap("audit", "--json", show=False))

    click.echo(
        "\nNothing is left running, nothing is kept. Next: README.md, `leap up` to try commands of your own, "
        "docs/imports.md\nto begin with the runs that you already have."
    )
    click.echo(f"Took {time.monotonic() - began:.0f} s.")
    click.echo(f"{verdict['equal']:,} of {verdict['total']:,} history rows are equal online and offline.")
    if verdict["equal"] != verdict["total"] or not verdict["total"]:
        raise SystemExit(1)


def _send(demo: Deployment, fleet: Sequence[CompletionEvent], before: int) -> int:
    """Stream `fleet` in, every fiftieth attempt twice; how many records the topic has then."""
    records = before
    with CompletionProducer(demo.settings) as producer:
        for number, event in enumerate(fleet):
            for _ in range(2 if number % 50 == 0 else 1):
                producer.send_encoded(encode(event), timestamp_us=to_us(event.completed_at))
                records += 1
    demo.wait_for(records, len(fleet))
    return records


def _history(demo: Deployment, label: str) -> dict[str, Value]:
    family = family_of(SHOWN_FAMILY[0], SHOWN_FAMILY[1])
    row = demo.row(FAMILY_HARDWARE, (family, "H100-SXM-80"))
    last, mean, std, seen = row["last"], row["mean"], row["std"], row["last_seen"]
    if not (isinstance(last, float) and isinstance(mean, float) and isinstance(std, float) and isinstance(seen, int)):
        raise DemoFailed(f"the online store has no history of {family}: {row}")
    click.echo(
        f"  {family} on H100-SXM-80, {label}: {row['count']} runs, last {math.exp(last):,.0f} samples/s on "
        f"{from_us(seen):%d %b %H:%M}, typically {math.exp(mean):,.0f} (×/÷ {math.exp(std):.2f}), "
        f"{row['failures_since_success']} failures since"
    )
    return row


def _step(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _say_command(arguments: Sequence[str]) -> None:
    click.secho(f"  $ leap {' '.join(arguments)}", fg="green")


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-c", "from leap_features.command import leap; leap(prog_name='leap')", *arguments]


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> None:
    """Run the demo from a checkout, whose `feature_repo/` it uses."""
    feature_repo = Path(Settings().feature_repo)
    if not (feature_repo / "definitions.py").exists():
        raise SystemExit("run the demo from the root of the checkout: `make demo`")
    try:
        run(feature_repo)
    except DemoFailed as failure:
        raise SystemExit(f"\nThe demo failed. {failure}") from None
    except KeyboardInterrupt:
        raise SystemExit("\nStopped. Nothing is left running.") from None


if __name__ == "__main__":
    main()
