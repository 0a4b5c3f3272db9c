"""`make demo`: the product's main job on an embedded broker and Redis, in a minute, leaving one page behind.

A month of a synthetic fleet streams in within seconds: each record carries its completion time as its record time,
which the embedded broker accepts and a real one would not.
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
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import click
import redis

from leap_features import archive, layout
from leap_features.events import CompletionEvent, decode, encode, from_us, to_us
from leap_features.family import family_of
from leap_features.layout import Value
from leap_features.levels import FAMILY_HARDWARE, Level
from leap_features.meta import FIRST_LIVE_EPOCH, decode_meta, meta_key
from leap_features.settings import Settings
from leap_streams.embedded import EmbeddedBroker, EmbeddedRedis
from leap_streams.producer import CompletionProducer

DAYS: Final = 30
FLEET: Final = ("--attempts-per-day", "140", "--hardware", "6", "--model-types", "12", "--seed", "7")
"""A small one: some 4,000 attempts."""
PARTITIONS: Final = 8
PATIENCE_S: Final = 60.0
PAGE: Final = Path("data", "demo", "waste.html")
"""The one thing that stays, below the directory in which the demo was called; git ignores it."""


class DemoFailed(RuntimeError):
    """A step did not do what it should; the message has its output."""


class Shown(NamedTuple):
    """The family whose history the demo shows, on the hardware on which it runs most, and its latest success there."""

    family: str
    hardware_type: str
    latest: CompletionEvent

    def job(self) -> dict[str, object]:
        """Another launch of it, as a launcher has it."""
        _, _, stem = self.family.partition("/")
        return {
            "job_name": f"{stem}-run99999",
            "model_type": self.latest.model_type,
            "trainer_count": self.latest.trainer_count,
            "reader_count": self.latest.reader_count,
            "batch_size": self.latest.batch_size,
            "config": self.latest.config,
        }


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


def run(feature_repo: Path, page: Path) -> None:
    """The demo, step by step; the page of its last step is written to `page`.

    Raises:
        DemoFailed: a step went wrong.
    """
    began = time.monotonic()
    page.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="leap-demo-")))
        settings = Settings()
        broker = stack.enter_context(
            EmbeddedBroker((settings.topic, settings.dead_letter_topic), partitions=PARTITIONS)
        )
        server = stack.enter_context(EmbeddedRedis(folder / "redis"))
        demo = Deployment(folder, broker.brokers, server.url, feature_repo)

        _step("A month of a small synthetic training fleet, up to now.")
        past, last_day = _generate(demo, datetime.now(UTC))
        shown = shown_family(past, last_day)
        models = {event.model_type for event in past}
        click.echo(f"    {len(past) + len(last_day):,} attempts of {len(models)} model types have ended by now")

        _step("A broker and a Redis run, for trying out. Archive and online store are made, two processes started.")
        demo.leap("init")
        demo.start(stack, "worker")
        demo.start(stack, "archive")

        _step(f"{DAYS - 1} days of completed jobs stream in, every fiftieth reported twice; then the last day.")
        sent = _send(demo, past, 0)
        before = _history(demo, shown, "before the last day")
        _send(demo, last_day, sent)
        after = _history(demo, shown, "now                ")
        if after["count"] == before["count"]:
            raise DemoFailed("the last day brought the shown family nothing")

        _step("The archive gives the same history for any past instant: a training set, and from it a model.")
        demo.leap("history", "build", show=False)
        demo.leap("dataset", "--out", "training.parquet")
        demo.leap("train", "training.parquet")

        candidates = shown.latest.eligible_hardware
        _step(f"A job is about to start. Which of {len(candidates)} hardware types gives most throughput per cost?")
        (folder / "job.json").write_text(json.dumps(shown.job()))
        ranking = demo.leap("rank", "--job", "job.json", "--candidates", ",".join(candidates))
        if "no ranking" in ranking:
            raise DemoFailed("the job was not ranked")
        click.echo("  Why, for one of them:")
        demo.leap("rank", "--job", "job.json", "--candidates", shown.hardware_type, "--explain")

        _step("History online (kept by the stream) against history offline (made from the archive), field by field.")
        verdict = json.loads(demo.leap("audit", "--json", show=False))
        equality = f"{verdict['equal']:,} of {verdict['total']:,} history rows are equal online and offline."
        click.echo(f"  {equality}")

        _step("What has the fleet wasted, by its own measurements, on hardware that gave less for the money?")
        waste = demo.leap("waste", "archive", "--html", str(page))

    click.echo(
        "\nNothing is left running, and of files only the page. Next: README.md, `leap up` to try commands of your own,"
        "\ndocs/imports.md to begin with the runs that you already have."
    )
    click.echo(f"Took {time.monotonic() - began:.0f} s.")
    click.echo(equality)
    click.echo(waste.rstrip().rpartition("\n")[2])
    click.echo(f"The waste, with figures: {page}")
    if verdict["equal"] != verdict["total"] or not verdict["total"]:
        raise SystemExit(1)


def _generate(demo: Deployment, now: datetime) -> tuple[list[CompletionEvent], list[CompletionEvent]]:
    """The completion events of a month up to `now`, without and of its last 24 hours."""
    start = now - timedelta(days=DAYS)
    period = ("--days", str(DAYS + 1), "--start", f"{start:%Y-%m-%d}")
    demo.leap("fleet", "generate", *period, *FLEET, "--format", "jsonl", "--out", "fleet", show=False)
    with (demo.folder / "fleet" / "completions.jsonl").open("rb") as lines:
        events = [event for event in map(decode, lines) if event.completed_at <= now]
    split = now - timedelta(days=1)
    return (
        [event for event in events if event.completed_at <= split],
        [event for event in events if event.completed_at > split],
    )


def shown_family(past: Sequence[CompletionEvent], last_day: Sequence[CompletionEvent]) -> Shown:
    """The family with most successes on one hardware type in `past`, of those that had one in `last_day` too.

    It had a choice there of two hardware types or more.

    Raises:
        DemoFailed: there is none.
    """
    before = Counter(
        (family_of(event.model_type, event.job_name), event.hardware_type)
        for event in past
        if event.status == "succeeded"
    )
    found = [
        Shown(family, event.hardware_type, event)
        for event in last_day
        if event.status == "succeeded"
        and len(event.eligible_hardware) > 1
        and before[family := family_of(event.model_type, event.job_name), event.hardware_type] > 1
    ]
    if not found:
        raise DemoFailed("no family of the fleet succeeded on one hardware type both before the last day and on it")
    return max(found, key=lambda shown: (before[shown.family, shown.hardware_type], shown.latest.completed_at))


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


def _history(demo: Deployment, shown: Shown, label: str) -> dict[str, Value]:
    row = demo.row(FAMILY_HARDWARE, (shown.family, shown.hardware_type))
    last, mean, std, seen = row["last"], row["mean"], row["std"], row["last_seen"]
    if not (isinstance(last, float) and isinstance(mean, float) and isinstance(std, float) and isinstance(seen, int)):
        raise DemoFailed(f"the online store has no history of {shown.family}: {row}")
    click.echo(
        f"  {shown.family} on {shown.hardware_type}, {label}: {row['count']} runs, "
        f"last {math.exp(last):,.0f} samples/s on {from_us(seen):%d %b %H:%M}, "
        f"typically {math.exp(mean):,.0f} (×/÷ {math.exp(std):.2f}), {row['failures_since_success']} failures since"
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
        run(feature_repo, PAGE.resolve())
    except DemoFailed as failure:
        raise SystemExit(f"\nThe demo failed. {failure}") from None
    except KeyboardInterrupt:
        raise SystemExit("\nStopped. Nothing is left running.") from None


if __name__ == "__main__":
    main()
