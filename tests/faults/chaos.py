"""Is the history right whatever happens? A fleet's events on a deployment that is killed all the while, and an oracle.

    make chaos SEED=1

Workers, archive app, Redis and Kafka are killed and restarted, the store goes back in time, fails over, is emptied and
rebuilt, the topic grows. In the end every integer of every row of every level, online and built from the archive, must
be the one that a naive reckoning from the list of events gives, and the dead letters the invalid events and nothing
else. Needs Kafka's jars (`make kafka-jars`), Java 17 and a Redis. The last line is one JSON object; the exit status is
0 if all is equal.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # where the tests' shared modules lie

from chaos.check import Findings, check, check_online, read_back, wait_for_the_end
from chaos.deployment import deployed
from chaos.events import Size, portions_of
from chaos.oracle import Stored
from chaos.sender import Sender
from chaos.trouble import Chaos, Troubles
from services import LIBS_VARIABLE

SHOWN: Final = 20


class Form(NamedTuple):
    """One size of the program."""

    size: Size
    troubles: Troubles
    rate: float
    """Events a second."""


def form_of(events: int, families: int, troubles: Troubles, rate: float) -> Form:
    """As many portions as there are troubles, and one without."""
    return Form(Size(events, families, troubles.total + 1), troubles, rate)


FULL: Final = form_of(200_000, 5_000, Troubles(20, 5, 6, 3), rate=1_500)
SMALL: Final = form_of(6_000, 300, Troubles(2, 1, 1, 1), rate=200)


def run(form: Form, seed: int, libs: Path, directory: Path) -> dict[str, object]:
    """One run; what came of it.

    Raises:
        TimeoutError: something hangs; with the ends of all logs.
        RuntimeError: a step failed.
    """
    began = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - began:6.1f} s] {line}", err=True)

    say(f"seed {seed}: {form.size.events} events of {form.size.families} families, files in {directory}")
    portions = portions_of(form.size, seed, time.time_ns() // 1000)
    records = [record for portion in portions for record in portion]
    with deployed(libs, directory, say) as deployment:
        supervisor = deployment.supervisor
        sender = Sender(deployment.kafka.brokers, deployment.settings.topic, form.rate)
        findings = Findings()

        def check_rows() -> Sequence[Stored]:
            stored = read_back(deployment, records[: sender.sent], findings)
            wait_for_the_end(deployment, stored)
            check_online(deployment, stored, findings)
            return stored

        chaos = Chaos(deployment, sender, seed, say, check_rows)
        chaos.run(portions, form.troubles)
        say("all is sent; waiting for worker and archive app")
        stored = check_rows()
        statuses = {name: supervisor.stop(name) for name in supervisor.names()}
        say("all is taken in; comparing the rest")
        check(deployment, stored, findings)
    for name, status in statuses.items():
        if status != 0:
            findings.differ(f"{name} ended with status {status} after SIGTERM")
    for difference in findings.differences[:SHOWN]:
        say(difference[:2000])
    return {
        "seed": seed,
        "events": len(records),
        "families": form.size.families,
        "troubles": chaos.done,
        "crashes": supervisor.crashes,
        "seconds": round(time.monotonic() - began),
        **findings.counts,
        "differences": len(findings.differences),
        "verdict": "different" if findings.differences else "equal",
    }


def main() -> None:
    """Run once, in the full form or a smaller one, and end with the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="the form that the tests run")
    parser.add_argument("--events", type=int, help="another number of events")
    parser.add_argument("--keep", type=Path, help="keep everything that is written in this new directory")
    arguments = parser.parse_args()
    libs = os.environ.get(LIBS_VARIABLE)
    if not libs:
        parser.error(f"{LIBS_VARIABLE} must name the directory of Kafka's jars: `make chaos` sets it")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and with it everything that was started
    form = SMALL if arguments.small else FULL
    if arguments.events:
        form = form._replace(size=form.size._replace(events=arguments.events))
    with tempfile.TemporaryDirectory(prefix="leap-chaos-") as temporary:
        result = run(form, arguments.seed, Path(libs), arguments.keep or Path(temporary))
    click.echo(json.dumps(result, ensure_ascii=False))
    sys.exit(result["verdict"] != "equal")


if __name__ == "__main__":
    main()
