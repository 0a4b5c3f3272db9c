"""The log of decisions in one process: what is written, dropped, failed."""

from __future__ import annotations

import fcntl
import gc
import threading
from pathlib import Path
from typing import Any

import pytest

from leap_predictor.decisions.decision import decode
from leap_predictor.decisions.log import JsonLinesLog, TopicLog
from made_decisions import decision
from stream_process import wait_until

LONG_S = 60.0


def read(path: Path) -> list[str]:
    """Ids of the decisions in the file, in order."""
    return [decode(line).decision_id for line in path.read_bytes().splitlines()]


def test_what_is_recorded_is_in_the_file_in_order(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    log = JsonLinesLog(path)
    for number in range(1200):
        log.record(decision(str(number)))
    log.close(LONG_S)
    assert read(path) == [str(number) for number in range(1200)]
    assert log.counts == {"written": 1200, "dropped": 0, "failed": 0}


def test_what_is_recorded_is_written_without_closing(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    log = JsonLinesLog(path)
    log.record(decision())
    wait_until(lambda: log.counts["written"] == 1, timeout_s=LONG_S, what="the decision is written")
    assert read(path) == ["d1"]
    log.close()


def test_a_full_queue_drops_and_counts_while_the_disk_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with path.open("ab") as held, JsonLinesLog(path, queue_max=100) as log:
        fcntl.flock(held, fcntl.LOCK_EX)
        for number in range(5000):
            log.record(decision(str(number)))
        assert log.counts["dropped"] >= 5000 - 100 - 500  # what a batch holds has left the queue
        assert log.counts["written"] == 0
        fcntl.flock(held, fcntl.LOCK_UN)
        log.close(LONG_S)
        assert log.counts["written"] + log.counts["dropped"] == 5000
        assert len(read(path)) == log.counts["written"]


def test_closing_does_not_wait_for_a_disk_that_stands_still(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        log = JsonLinesLog(path)
        log.record(decision())
        log.close(0.01)
        assert log.counts == {"written": 0, "dropped": 0, "failed": 0}
    wait_until(lambda: log.counts["written"] == 1, timeout_s=LONG_S, what="it is written once the disk goes on")


def test_a_closed_log_drops_and_may_be_closed_again(tmp_path: Path) -> None:
    log = JsonLinesLog(tmp_path / "decisions.jsonl")
    log.close()
    log.record(decision())
    log.close()
    assert log.counts == {"written": 0, "dropped": 1, "failed": 0}
    assert list(tmp_path.iterdir()) == []


def test_a_decision_that_cannot_be_written_does_not_take_others_along(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    broken: Any = decision("broken", job_family=object())
    with JsonLinesLog(path) as log:
        for each in (decision("before"), broken, decision("after")):
            log.record(each)
    assert read(path) == ["before", "after"]
    assert log.counts == {"written": 2, "dropped": 0, "failed": 1}


def test_a_path_that_cannot_be_written_fails_and_counts_until_it_can(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    path.mkdir()
    with JsonLinesLog(path) as log:
        log.record(decision("lost"))
        wait_until(lambda: log.counts["failed"] == 1, timeout_s=LONG_S, what="it is counted")
        path.rmdir()
        log.record(decision("kept"))
    assert log.counts == {"written": 1, "dropped": 0, "failed": 1}
    assert read(path) == ["kept"]


def test_a_log_that_nobody_holds_any_more_is_written_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "leap-decisions"}

    before = threads()
    log = JsonLinesLog(path)
    (thread,) = threads() - before
    log.record(decision())
    del log
    gc.collect()
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert read(path) == ["d1"]


def test_thirty_two_threads_record_each_decision_once(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    log = JsonLinesLog(path, max_bytes=20_000, keep=1000)
    threads = [
        threading.Thread(target=lambda name=name: [log.record(decision(f"{name}-{n}")) for n in range(50)])
        for name in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close(LONG_S)
    found = [each for file in tmp_path.iterdir() for each in read(file)]
    assert sorted(found) == sorted(f"{name}-{n}" for name in range(32) for n in range(50))


def test_limits_and_settings_without_sense_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep must be at least 1"):
        JsonLinesLog(tmp_path / "x", keep=0)
    with pytest.raises(ValueError, match="queue_max must be at least 1"):
        JsonLinesLog(tmp_path / "x", queue_max=0)
    with pytest.raises(ValueError, match="topic must be a name"):
        TopicLog({"bootstrap.servers": "localhost:1"}, "")
    with pytest.raises(ValueError, match="decisions: No such configuration property"):
        TopicLog({"bootstrap.servers": "localhost:1", "no.such": 1}, "decisions")
