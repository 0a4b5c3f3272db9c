from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import Any

import pytest

from leap_streams.faults import Halt
from leap_streams.log_format import REPEAT_AFTER_S, JsonFormatter, ToldOnce
from manual_clock import ManualClock


def record(name: str, level: int, message: str, *args: Any, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord(name, level, "file.py", 1, message, args, exc_info)


def raised() -> BaseException:
    try:
        raise ValueError("of no use")
    except ValueError:
        error = sys.exc_info()[1]
    assert error is not None
    return error


def line(given: logging.LogRecord, **fields: Any) -> dict[str, Any]:
    vars(given).update(fields)
    text = JsonFormatter().format(given)
    assert "\n" not in text
    loaded = json.loads(text)
    assert isinstance(loaded, dict)
    return loaded


def test_a_line_has_time_level_logger_and_message() -> None:
    found = line(record("leap.intake", logging.WARNING, "%s waits to %s", "history", "write"))
    assert found["level"] == "warning"
    assert found["logger"] == "leap.intake"
    assert found["message"] == "history waits to write"
    when = datetime.fromisoformat(found["time"])
    assert when.utcoffset() is not None
    assert found["time"].endswith("+00:00")


def test_a_line_has_the_fields_that_the_record_was_given_and_no_others() -> None:
    found = line(record("leap.intake", logging.INFO, "x"), partition=3, offsets={0: 5}, rule="json", error=Halt("why"))
    assert found.keys() == {"time", "level", "logger", "message", "partition", "offsets", "rule", "error"}
    assert found["partition"] == 3
    assert found["offsets"] == {"0": 5}
    assert found["error"] == "why"


def test_a_traceback_is_a_field_of_the_same_line() -> None:
    found = line(record("leap.intake", logging.CRITICAL, "x", error=raised()))
    assert "ValueError: of no use" in found["traceback"]


def test_the_message_keeps_what_would_break_a_line() -> None:
    assert line(record("leap.intake", logging.INFO, 'a\n"b" – 模型'))["message"] == 'a\n"b" – 模型'


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def told_once(clock: ManualClock) -> ToldOnce:
    return ToldOnce(clock)


def test_what_faust_says_about_a_halt_is_dropped(told_once: ToldOnce) -> None:
    halt = Halt("run `leap init`")
    assert told_once.filter(record("leap.intake", logging.CRITICAL, "%s halts: %s", "history", halt))
    assert not told_once.filter(record("faust.app.base", logging.ERROR, "Crashed reason=%r", halt, error=halt))
    assert not told_once.filter(record("mode.worker", logging.CRITICAL, "We experienced a crash! Reraising …"))


def test_an_unexpected_error_is_told_with_its_traceback_once(told_once: ToldOnce) -> None:
    error = raised()
    assert told_once.filter(record("leap.intake", logging.CRITICAL, "halts", error=error))
    assert not told_once.filter(record("faust.app.base", logging.ERROR, "Crashed reason=%r", error))
    assert not told_once.filter(record("mode.worker", logging.ERROR, "Error: %r", error, error=error))


def test_an_error_that_nobody_has_told_yet_is_shown(told_once: ToldOnce) -> None:
    assert told_once.filter(record("mode.worker", logging.ERROR, "Error: %r", raised(), error=raised()))


def test_a_warning_of_another_package_comes_at_most_once_a_minute(told_once: ToldOnce, clock: ManualClock) -> None:
    def shown(node: int) -> bool:
        return told_once.filter(record("aiokafka", logging.ERROR, "Unable connect to node with id %s", node))

    assert shown(1)
    assert not shown(2)
    assert told_once.filter(record("aiokafka", logging.ERROR, "Heartbeat failed"))
    clock.now += REPEAT_AFTER_S
    assert shown(1)


def test_our_own_lines_are_never_dropped(told_once: ToldOnce) -> None:
    again = [told_once.filter(record("leap.intake", logging.WARNING, "the same")) for _ in range(3)]
    assert again == [True, True, True]
