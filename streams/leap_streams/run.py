"""Run an intake's Faust app as a process of its own, from `leap worker` and `leap archive`."""

from __future__ import annotations

from typing import cast

import click
from mode.worker import Worker

from leap_streams.intake import Intake
from leap_streams.kafka import wait_for_broker

EXIT_HALTED = 70
"""Exit status of an app that halted (EX_SOFTWARE): its log says why, and a restart alone may not help."""


def run(intake: Intake, loglevel: str) -> None:
    """Run until SIGTERM or SIGINT; exits with `EXIT_HALTED` if the app halted."""
    # Faust waits for a broker that goes down, but not for one that is not up yet.
    wait_for_broker(intake.settings, lambda line: click.echo(f"{intake.name} {line}", err=True))
    worker = cast(Worker, intake.app.Worker(loglevel=loglevel, redirect_stdouts=False, quiet=True))
    try:
        worker.execute_from_commandline()
    except SystemExit as stop:
        if intake.failure is None:
            raise
        click.echo(f"halted: {intake.failure}", err=True)
        raise SystemExit(EXIT_HALTED) from stop
    finally:
        intake.close()
