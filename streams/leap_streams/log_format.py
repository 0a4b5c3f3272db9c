"""How an app of the stream logs: lines for people, or one JSON object a line; little of what others repeat."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from leap_streams.faults import Halt

TEXT: Final = "[%(asctime)s] [%(process)s] [%(levelname)s] %(message)s"

OWN: Final = "leap"
"""Our loggers are `leap` and those below it."""

REPEAT_AFTER_S: Final = 60.0
"""How often a warning of another package may come again."""

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def logging_config(log_format: Literal["text", "json"], level: str) -> dict[str, Any]:
    """Configuration for `logging.config.dictConfig`.

    Args:
        log_format: as in `LEAP_LOG_FORMAT`.
        level: of our own lines. What Faust and the Kafka client say is shown from `warning` on, or all of it where
            `level` is `debug`.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"leap": {"()": JsonFormatter} if log_format == "json" else {"format": TEXT}},
        "filters": {"once": {"()": ToldOnce}},
        "handlers": {
            "stdout": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stdout",
                "formatter": "leap",
                "filters": ["once"],
            }
        },
        "loggers": {
            OWN: {"level": level.upper()},
            "mode.timers": {"level": "ERROR"},  # it warns of a timer that waited for a server, which we say ourselves
        },
        "root": {"level": "DEBUG" if level == "debug" else "WARNING", "handlers": ["stdout"]},
    }


_WORKERS: Final = ("faust.worker", "mode.worker")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, and what the record has as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of `record`, without its end."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class ToldOnce(logging.Filter):
    """Drops what others repeat: an error that we have told already, a `Halt`, and the same warning within a minute.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._told: BaseException | None = None
        self._said_at: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` says something new."""
        errors = _errors_of(record)
        if record.name.partition(".")[0] == OWN:
            self._told = errors[-1] if errors else self._told
            return True
        if record.name in _WORKERS and record.levelno == logging.CRITICAL:
            return False  # "We experienced a crash", and no word of which
        if any(isinstance(error, Halt) or error is self._told for error in errors):
            return False
        return record.levelno < logging.WARNING or not self._said_lately(record.name, str(record.msg))

    def _said_lately(self, logger: str, template: str) -> bool:
        # Without a broker, aiokafka warns ten times a second of each thing that it tries.
        now = self._clock()
        said_at = self._said_at.get((logger, template))
        if said_at is not None and now - said_at < REPEAT_AFTER_S:
            return True
        self._said_at[logger, template] = now
        return False


def _errors_of(record: logging.LogRecord) -> list[BaseException]:
    """The errors that `record` is about: among the arguments of its message, and the one of its traceback."""
    given = record.args.values() if isinstance(record.args, dict) else record.args or ()
    errors = [value for value in given if isinstance(value, BaseException)]
    if record.exc_info and record.exc_info[1] is not None:
        errors.append(record.exc_info[1])
    return errors
