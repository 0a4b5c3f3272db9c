"""Run an intake's Faust app as a process of its own, from `leap worker` and `leap archive`."""

from __future__ import annotations

import logging
import logging.config
import os
from typing import Any, Final

from leap_features.explained import explained
from leap_streams.http_endpoints import ListenError
from leap_streams.intake import Intake
from leap_streams.kafka import wait_for_broker
from leap_streams.log_format import logging_config

log = logging.getLogger("leap.run")

EXIT_HALTED: Final = 70
"""Exit status of an app that halted (EX_SOFTWARE): its log says why, and a restart alone may not help."""


def run(intake: Intake, loglevel: str) -> None:
    """Run until SIGTERM or SIGINT; exits with `EXIT_HALTED` if the app halted, its last line saying why."""
    settings = intake.settings
    logging.config.dictConfig(logging_config(settings.log_format, loglevel))
    with explained(ListenError):
        intake.reporter.serve()
    own = {"app": intake.name}
    log.info("%s starts: topic %s at %s", intake.name, settings.topic, settings.kafka_brokers, extra=own)
    # Faust waits for a broker that goes down, but not for one that is not up yet.
    waiting = intake.reporter.state.topic

    def say(line: str) -> None:
        if waiting.failed("start", line.removeprefix("waits for ")):
            log.warning("%s %s", intake.name, line, extra=own)

    wait_for_broker(settings, say)
    intake.reporter.goes_on(waiting, "start")
    worker: Any = intake.app.Worker(override_logging=False, redirect_stdouts=False, quiet=True)
    worker.spinner = None  # it would draw itself over the log
    status = 0
    try:
        worker.execute_from_commandline()
    except SystemExit as stop:
        status = EXIT_HALTED if intake.failure is not None else int(stop.code or 0)
    closed = intake.close()
    if intake.failure is not None:
        log.critical("%s has halted: %s", intake.name, intake.failure, extra=own)
    elif status == 0:
        log.info("%s has stopped", intake.name, extra=own)
    if not closed:
        os._exit(status)  # else the interpreter would wait for the thread that waits
    raise SystemExit(status)
