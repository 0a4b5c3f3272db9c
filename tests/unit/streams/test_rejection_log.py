from __future__ import annotations

import logging

import pytest

from leap_features.history import Position
from leap_streams.history_writer import Delivery, Rejected
from leap_streams.rejection_log import PERIOD_S, SINGLY, RejectionLog
from manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rejections(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> RejectionLog:
    caplog.set_level(logging.INFO, logger="leap")
    return RejectionLog("leap-history", clock)


def rejected(*offsets: int, rule: str = "json", partition: int = 1) -> list[Rejected]:
    return [
        Rejected(Delivery(partition, offset, 0, b"{"), Position(1_000_000, partition, offset), rule, f"at {offset}")
        for offset in offsets
    ]


def test_a_dead_letter_is_told_with_its_position_rule_and_reason(
    rejections: RejectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    rejections.say(rejected(7))
    (line,) = caplog.records
    assert line.getMessage() == ("leap-history: dead letter by rule json at epoch 1000000, partition 1, offset 7: at 7")
    assert (line.__dict__["rule"], line.__dict__["epoch"]) == ("json", 1_000_000)
    assert (line.__dict__["partition"], line.__dict__["offset"]) == (1, 7)


def test_a_flood_is_told_in_a_few_lines_that_account_for_every_letter(
    rejections: RejectionLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for batch in range(100):
        rejections.say(rejected(*range(batch * 10, batch * 10 + 10), partition=batch % 2))
        rejections.say(rejected(batch, rule="empty"))
    assert len(caplog.records) == SINGLY
    clock.now += PERIOD_S
    rejections.sum_up()
    sums = {line.__dict__["rule"]: line.__dict__ for line in caplog.records[SINGLY:]}
    assert sums.keys() == {"json", "empty"}
    assert sums["json"]["count"] + sums["empty"]["count"] + SINGLY == 1100
    assert sums["json"]["offsets"] == {0: "20–989", 1: "10–999"}
    assert sums["empty"]["offsets"] == {1: "0–99"}


def test_after_a_flood_letters_are_told_singly_again(
    rejections: RejectionLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    rejections.say(rejected(*range(50)))
    clock.now += PERIOD_S
    rejections.say(rejected(50))
    assert [line.levelname for line in caplog.records] == ["WARNING"] * (SINGLY + 2)
    assert caplog.records[-1].__dict__["offset"] == 50


def test_what_is_untold_at_the_end_is_told_at_the_end(
    rejections: RejectionLog, caplog: pytest.LogCaptureFixture
) -> None:
    rejections.say(rejected(*range(SINGLY + 3)))
    rejections.sum_up()
    assert len(caplog.records) == SINGLY
    rejections.sum_up(now=True)
    assert caplog.records[-1].__dict__["count"] == 3
    rejections.sum_up(now=True)
    assert len(caplog.records) == SINGLY + 1
