"""The decision log when processes, disk, descriptors or broker fail: nothing raises, hangs, is torn, or comes twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from leap_features.settings import Settings
from leap_predictor.decisions.decision import InvalidDecision, decode
from leap_predictor.decisions.log import JsonLinesLog, TopicLog
from leap_streams.kafka import client_config
from made_decisions import decision
from services import Kafka
from stream_process import read_topic, wait_until

LONG_S = 60.0

PRELUDE = """
import json, os, resource, sys, time
from leap_predictor.decisions.log import JsonLinesLog, TopicLog
from made_decisions import decision
path = sys.argv[1]

def until(condition):
    while not condition():
        time.sleep(0.01)
"""


def start(program: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": ":".join(path for path in sys.path if path), "PYTHONWARNINGS": "error"}
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, *map(str, arguments)],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def run(program: str, *arguments: object) -> Any:
    """What `program` prints, as JSON; it must end well by itself, without a word on standard error but of the log."""
    process = start(program, *arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    return json.loads(out.splitlines()[-1])


def lines_of(directory: Path) -> list[bytes]:
    return [line for file in directory.iterdir() for line in file.read_bytes().split(b"\n") if line]


def ids(lines: list[bytes]) -> list[str]:
    return [decode(line).decision_id for line in lines]


WRITER = """
log = JsonLinesLog(path, max_bytes=30_000, keep=100_000)
for number in range(int(sys.argv[3])):
    log.record(decision(f"{sys.argv[2]}-{number}"))
    if number % 50 == 0:
        time.sleep(0.06)  # so that there are many batches
log.close(60)
print(json.dumps(log.counts))
"""


def test_processes_that_write_and_rotate_one_file_lose_tear_and_repeat_nothing(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    writers = [start(WRITER, path, name, 600) for name in range(5)]
    for writer in writers:
        out, err = writer.communicate(timeout=300)
        assert json.loads(out) == {"written": 600, "dropped": 0, "failed": 0}, err
    assert len(list(tmp_path.iterdir())) > 20
    assert all(file.stat().st_size <= 30_000 for file in tmp_path.iterdir())
    assert Counter(ids(lines_of(tmp_path))) == Counter(f"{name}-{number}" for name in range(5) for number in range(600))


def test_a_killed_writer_costs_the_others_nothing(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    killed = start(WRITER, path, "killed", 1_000_000)
    writer = start(WRITER, path, "well", 600)

    def began() -> bool:
        try:
            return b"killed-" in path.read_bytes()
        except FileNotFoundError:  # not made yet, or just rotated
            return False

    try:
        wait_until(began, timeout_s=LONG_S, what="the one to be killed writes")
    finally:
        killed.kill()
        killed.communicate(timeout=60)
    _, err = writer.communicate(timeout=300)
    assert writer.returncode == 0, err
    whole = []
    for line in lines_of(tmp_path):
        try:
            whole.append(decode(line).decision_id)
        except InvalidDecision:
            assert line.startswith(b'{"decision_id":"killed-')
    found = Counter(whole)
    assert max(found.values()) == 1
    assert {name for name in found if name.startswith("well")} == {f"well-{number}" for number in range(600)}


def test_after_a_fork_both_processes_write_what_they_recorded_once(tmp_path: Path) -> None:
    program = """
    log = JsonLinesLog(path, max_bytes=20_000, keep=1000)
    counts = []
    for number in range(300):
        log.record(decision(f"parent-{number}"))
    children = []
    for child in range(4):
        pid = os.fork()
        if pid == 0:
            assert log.counts == {"written": 0, "dropped": 0, "failed": 0}
            for number in range(100):
                log.record(decision(f"child-{child}-{number}"))
            log.close(60)
            os._exit(0 if log.counts["written"] == 100 else 1)
        children.append(pid)
        log.record(decision(f"between-{child}"))
    ends = [os.waitpid(pid, 0)[1] for pid in children]
    log.close(60)
    print(json.dumps([ends, log.counts["written"]]))
    """
    ends, written = run(_dedent(program), tmp_path / "decisions.jsonl")
    assert ends == [0] * 4
    assert written == 304
    wanted = {f"parent-{number}" for number in range(300)} | {f"between-{child}" for child in range(4)}
    wanted |= {f"child-{child}-{number}" for child in range(4) for number in range(100)}
    assert Counter(ids(lines_of(tmp_path))) == Counter(wanted)


def test_a_child_that_lives_on_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path) -> None:
    # The parent is killed while it holds the lock, as it does for the moment of each write.
    program = """
    import fcntl
    log = JsonLinesLog(path)
    log.record(decision("first"))
    until(lambda: log.counts["written"] == 1)
    writing = log._writer.sink._file._file
    fcntl.flock(writing, fcntl.LOCK_EX)
    if os.fork() == 0:
        time.sleep(600)
    print("1", flush=True)
    time.sleep(600)
    """
    path = tmp_path / "decisions.jsonl"
    parent = start(_dedent(program), path, start_new_session=True)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "1\n"
        parent.kill()
        with JsonLinesLog(path) as log:
            log.record(decision("other"))
            wait_until(lambda: log.counts["written"] == 1, timeout_s=LONG_S, what="another process writes")
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_a_closed_log_stays_closed_after_a_fork(tmp_path: Path) -> None:
    program = """
    log = JsonLinesLog(path)
    log.close()
    pid = os.fork()
    if pid == 0:
        log.record(decision())
        os._exit(log.counts["dropped"])
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert run(_dedent(program), tmp_path / "decisions.jsonl") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_fails_and_counts_and_leaves_whole_lines(tmp_path: Path) -> None:
    program = """
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    log = JsonLinesLog(path)
    for number in range(100):
        log.record(decision(f"full-{number}"))
    until(lambda: sum(log.counts.values()) == 100)
    log.record(decision("lost"))
    until(lambda: sum(log.counts.values()) == 101)
    full = log.counts
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.record(decision("room again"))
    log.close(60)
    print(json.dumps([full, log.counts]))
    """
    path = tmp_path / "decisions.jsonl"
    full, after = run(_dedent(program), path)
    assert 0 < full["written"] < 100
    assert full == {"written": full["written"], "dropped": 0, "failed": 101 - full["written"]}
    assert after == {**full, "written": full["written"] + 1}
    assert ids(lines_of(tmp_path)) == [*(f"full-{number}" for number in range(full["written"])), "room again"]
    assert path.read_bytes().endswith(b"}\n")


def test_a_device_that_takes_nothing_fails_and_counts() -> None:
    log = JsonLinesLog("/dev/full")
    for number in range(10):
        log.record(decision(str(number)))
    log.close(LONG_S)
    assert log.counts == {"written": 0, "dropped": 0, "failed": 10}


@pytest.mark.parametrize("before", [True, False], ids=["file open", "file not open yet"])
def test_a_process_without_descriptors_records_again_once_it_has_some(tmp_path: Path, before: bool) -> None:
    program = """
    before = sys.argv[2] == "True"
    log = JsonLinesLog(path, max_bytes=2000, keep=1000)
    if before:
        log.record(decision("before"))
        until(lambda: log.counts["written"] == 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    done = sum(log.counts.values())
    for number in range(10):
        log.record(decision(f"none-{number}"))
    until(lambda: sum(log.counts.values()) == done + 10)
    for each in held:
        os.close(each)
    log.record(decision("after"))
    log.close(60)
    print(json.dumps(log.counts))
    """
    counts = run(_dedent(program), tmp_path / "decisions.jsonl", before)
    assert counts["dropped"] == 0
    found = ids(lines_of(tmp_path))
    assert len(found) == counts["written"] == len(set(found))
    assert counts["written"] + counts["failed"] == 11 + before
    assert "after" in found


def test_what_was_recorded_is_written_when_the_interpreter_ends(tmp_path: Path) -> None:
    program = """
    log = JsonLinesLog(path)
    for number in range(2000):
        log.record(decision(str(number)))
    print("0")
    """
    run(_dedent(program), tmp_path / "decisions.jsonl")
    assert ids(lines_of(tmp_path)) == [str(number) for number in range(2000)]


def test_the_interpreter_ends_though_the_disk_stands_still(tmp_path: Path) -> None:
    # A FIFO that nobody reads: the write waits for ever.
    path = tmp_path / "decisions.jsonl"
    os.mkfifo(path)
    program = """
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = JsonLinesLog(path, queue_max=1000)
    for number in range(5000):
        log.record(decision(str(number)))
    print(json.dumps(log.counts))
    """
    counts = run(_dedent(program), path)
    assert counts["dropped"] >= 5000 - 1000 - 500


def test_a_forked_child_may_end_by_itself_too(tmp_path: Path) -> None:
    program = """
    log = JsonLinesLog(path)
    log.record(decision("parent"))
    pid = os.fork()
    log.record(decision("child" if pid == 0 else "after"))
    if pid:
        os.waitpid(pid, 0)
    print("0")
    """
    run(_dedent(program), tmp_path / "decisions.jsonl")
    assert sorted(ids(lines_of(tmp_path))) == ["after", "child", "parent"]


@pytest.fixture
def topic(kafka: Kafka, project: str) -> str:
    name = f"{project}.decisions"
    kafka.create_topic(name, partitions=4)
    return name


@pytest.mark.stream
def test_decisions_arrive_in_their_topic_by_model_type(settings: Settings, topic: str) -> None:
    models = [f"model-{number}" for number in range(8)]
    log = TopicLog(client_config(settings), topic)
    for number in range(200):
        log.record(decision(str(number), model_type=models[number % 8]))
    log.close(LONG_S)
    assert log.counts == {"written": 200, "dropped": 0, "failed": 0}
    records = read_topic(settings, topic)
    read = [decode(record.value or b"") for record in records]
    assert sorted(each.decision_id for each in read) == sorted(map(str, range(200)))
    assert all(record.key == each.model_type.encode() for record, each in zip(records, read, strict=True))
    assert all(len({r.partition for r in records if r.key == model.encode()}) == 1 for model in models)


@pytest.mark.stream
def test_parent_and_child_send_to_the_topic_what_they_recorded_once(settings: Settings, topic: str) -> None:
    program = """
    config = json.loads(sys.argv[2])
    log = TopicLog(config, path)
    for number in range(50):
        log.record(decision(f"parent-{number}"))
    until(lambda: log.counts["written"] > 0)
    for number in range(50, 100):
        log.record(decision(f"parent-{number}"))
    pid = os.fork()
    if pid == 0:
        for number in range(50):
            log.record(decision(f"child-{number}"))
        log.close(60)
        sys.exit(0 if log.counts["written"] == 50 else 1)
    end = os.waitpid(pid, 0)[1]
    log.close(60)
    print(json.dumps([end, log.counts]))
    """
    end, counts = run(_dedent(program), topic, json.dumps(client_config(settings)))
    assert end == 0
    assert counts == {"written": 100, "dropped": 0, "failed": 0}
    read = [decode(record.value or b"").decision_id for record in read_topic(settings, topic)]
    wanted = [f"parent-{number}" for number in range(100)] + [f"child-{number}" for number in range(50)]
    assert Counter(read) == Counter(wanted)


@pytest.mark.parametrize("accepts", [True, False], ids=["black hole", "refusing"])
def test_a_broker_that_is_away_neither_blocks_nor_keeps_the_interpreter(accepts: bool) -> None:
    program = """
    log = TopicLog({"bootstrap.servers": path}, "decisions", queue_max=1000)
    for number in range(5000):
        log.record(decision(str(number)))
    print(json.dumps(log.counts))
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not accepts:
            server.close()
        counts = run(_dedent(program), f"127.0.0.1:{port}")
    assert counts["written"] == 0
    # A thousand may wait for the thread, as many for the broker, and a batch is in between.
    assert counts["dropped"] + counts["failed"] >= 5000 - 2 * 1000 - 500


def test_what_a_broker_does_not_take_in_time_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = {"bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}"}
        log = TopicLog(config, "decisions", delivery_timeout_s=0.1)
        for number in range(10):
            log.record(decision(str(number)))
        wait_until(lambda: log.counts["failed"] == 10, timeout_s=LONG_S, what="they are given up")
        log.close()
    assert log.counts == {"written": 0, "dropped": 0, "failed": 10}


def _dedent(program: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in program.splitlines())
