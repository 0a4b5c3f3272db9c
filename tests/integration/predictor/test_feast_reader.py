from __future__ import annotations

import ctypes
import gc
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from leap_features.feature_store import apply_definitions, open_feature_store
from leap_features.settings import Settings
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.history.circuit_breaker import FAILURES
from leap_predictor.history.feast_reader import FeastReader
from leap_predictor.history.request import MetaReading
from leap_predictor.manifest import history_views
from services import RedisServer
from stored_history import Subject, store_meta, store_runs
from stream_process import wait_until

REPOSITORY = Path(__file__).parents[3] / "feature_repo"
VIEWS = history_views()
SUBJECT = Subject("bert/train", "bert", "H100-SXM-80", 8)
PATIENT_S = 120.0


def serving() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "leap-feast"}


def running() -> int:
    return len(serving())


class Gate:
    """Opens the store, or lets whoever opens it wait."""

    def __init__(self, settings: Settings, registry: Path) -> None:
        self._settings = settings
        self._registry = registry
        self.is_open = threading.Event()
        self.is_open.set()
        self.opened = 0
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        self.opened += 1
        self._fail()
        store = open_feature_store(self._settings, self._registry)
        answer = store.get_online_features

        def slow(*arguments: Any, **options: Any) -> Any:
            self.is_open.wait(PATIENT_S)
            self._fail()
            return answer(*arguments, **options)

        store.get_online_features = slow  # type: ignore[method-assign]  # a store that hangs, as any may
        return store

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def gate(redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path) -> Iterator[Gate]:
    settings = Settings(
        redis_url=redis_server.url, project=project, history=str(tmp_path / "history"), feature_repo=str(REPOSITORY)
    )
    registry = tmp_path / "registry.db"
    apply_definitions(open_feature_store(settings, registry), settings)
    store_meta(redis_client, project)
    store_runs(redis_client, project, SUBJECT, [100.0, None])
    made = Gate(settings, registry)
    yield made
    made.is_open.set()


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def reader(gate: Gate, now: list[float]) -> Iterator[FeastReader]:
    made = FeastReader(gate, clock=lambda: now[0])
    yield made
    gate.is_open.set()
    made.close()


def count(reader: FeastReader, within_s: float = PATIENT_S) -> object:
    row = reader.read(VIEWS, [SUBJECT], within_s=within_s).rows[0]["family_scale_history"]
    return None if row is None else row.features["count"]


def test_store_that_hangs_is_given_up_in_time_then_left_alone_and_holds_one_thread(
    gate: Gate, reader: FeastReader, now: list[float]
) -> None:
    before = running()
    assert count(reader) == 1
    gate.is_open.clear()
    for _ in range(FAILURES):
        with pytest.raises(StoreTimeout, match=r"no answer within \d+ ms"):
            count(reader, within_s=0.02)
    with pytest.raises(StoreError, match="not asked for another") as caught:
        count(reader)
    assert not isinstance(caught.value, StoreTimeout)
    assert reader.breaker.name == "open"
    now[0] += 60
    with pytest.raises(StoreTimeout):  # the trial; the thread still hangs in the first call
        count(reader, within_s=0.02)
    assert running() == before + 1
    gate.is_open.set()
    now[0] += 60
    assert count(reader) == 1
    assert reader.breaker.name == "closed"
    assert gate.opened == 1


def test_abandoned_questions_are_not_asked_once_the_store_answers_again(gate: Gate, reader: FeastReader) -> None:
    assert count(reader) == 1
    gate.is_open.clear()
    asked = gate.is_open.wait
    calls: list[int] = []

    def counted(timeout: float | None = None) -> bool:
        calls.append(1)
        return asked(timeout)

    gate.is_open.wait = counted  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(StoreTimeout):
            count(reader, within_s=0.02)
    gate.is_open.set()
    assert count(reader) == 1
    assert len(calls) == 2  # the one that hung, and the last


def test_meta_that_changed_while_rows_were_read_makes_the_reading_torn(gate: Gate) -> None:
    said = iter([MetaReading("2", "rule", generation, "ready") for generation in ("g1", "g2", "g2", "g2")])
    reader = FeastReader(gate, meta_of=lambda _: lambda: next(said))
    torn = reader.read(VIEWS, [SUBJECT], within_s=PATIENT_S)
    assert (torn.torn, torn.meta) == (True, None)
    whole = reader.read(VIEWS, [SUBJECT], within_s=PATIENT_S)
    assert (whole.torn, whole.meta) == (False, MetaReading("2", "rule", "g2", "ready"))
    reader.close()


def test_failure_is_said_and_the_store_is_opened_anew(gate: Gate, reader: FeastReader) -> None:
    gate.error = OSError("the registry is away")
    with pytest.raises(StoreError, match="Feast cannot read the store: OSError: the registry is away"):
        count(reader)
    gate.error = None
    assert count(reader) == 1


class PanicException(BaseException):  # as PyO3 names it
    """What code in Rust raises when it panics."""


@pytest.mark.parametrize("error", [SystemExit(3), PanicException("index out of bounds")], ids=["exit", "panic"])
def test_whatever_the_store_raises_is_said_and_the_thread_answers_on(
    gate: Gate, reader: FeastReader, error: BaseException
) -> None:
    assert count(reader) == 1
    threads = serving()
    gate.error = error
    with pytest.raises(StoreError, match=f"Feast cannot read the store: {type(error).__name__}: {error}"):
        count(reader)
    gate.error = None
    assert count(reader) == 1
    assert serving() == threads


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_thread_that_ended_is_replaced(reader: FeastReader) -> None:
    before = serving()
    assert count(reader) == 1
    (thread,) = serving() - before
    ended = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    assert ended == 1
    with pytest.raises(StoreTimeout):  # the thread wakes for it, and ends
        count(reader, within_s=0.02)
    thread.join()
    assert count(reader) == 1


def test_view_that_feast_does_not_know_is_an_error(
    redis_server: RedisServer, redis_client: redis.Redis, project: str, tmp_path: Path
) -> None:
    settings = Settings(redis_url=redis_server.url, project=project, feature_repo=str(REPOSITORY))
    reader = FeastReader(lambda: open_feature_store(settings, tmp_path / "empty.db"))
    with pytest.raises(StoreError, match="Feast cannot read the store"):
        count(reader)
    reader.close()


def test_many_threads_each_get_their_own_rows(gate: Gate, reader: FeastReader, redis_client: redis.Redis) -> None:
    project = gate._settings.project
    for at in range(8):
        store_runs(redis_client, project, SUBJECT._replace(hardware_type=f"H{at}"), [1.0])
    wrong: list[object] = []

    def ask(at: int) -> None:
        for _ in range(5):
            subject = SUBJECT._replace(hardware_type=f"H{at}")
            row = reader.read(VIEWS, [subject], within_s=PATIENT_S).rows[0]["family_hardware_history"]
            if row is None or row.features["last_hardware_type"] != f"H{at}":
                wrong.append(row)

    threads = [threading.Thread(target=ask, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_child_after_a_fork_opens_a_store_of_its_own(gate: Gate, reader: FeastReader) -> None:
    assert count(reader) == 1
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if count(reader) == 1 and gate.opened == 2 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert count(reader) == 1
    assert gate.opened == 1


def test_child_of_a_parent_whose_store_hangs_reads_on(gate: Gate, reader: FeastReader) -> None:
    assert count(reader) == 1
    gate.is_open.clear()
    with pytest.raises(StoreTimeout):
        count(reader, within_s=0.02)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            gate.is_open = threading.Event()
            gate.is_open.set()
            code = 0 if count(reader) == 1 else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


SLOW_MODULE = """
import pathlib, time
pathlib.Path(__file__).with_suffix(".begun").touch()
time.sleep(1)
IMPORTED = True
"""


def test_fork_waits_until_what_opens_the_store_is_imported(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_to_import.py").write_text(SLOW_MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def open_store() -> Any:
        assert importlib.import_module("slow_to_import").IMPORTED
        return gate()

    reader = FeastReader(open_store)
    reader.warm_up()
    wait_until((tmp_path / "slow_to_import.begun").exists, timeout_s=PATIENT_S, what="the import")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if count(reader, within_s=20.0) == 1 else 2
        finally:
            os._exit(code)
    del sys.modules["slow_to_import"]
    assert os.waitpid(child, 0)[1] == 0
    assert count(reader) == 1
    reader.close()


def test_store_that_takes_for_ever_to_open_does_not_keep_another_from_being_read(
    gate: Gate, reader: FeastReader
) -> None:
    opening, end = threading.Event(), threading.Event()

    def open_store() -> Any:
        opening.set()
        end.wait(PATIENT_S)
        return gate()

    other = FeastReader(open_store)
    other.warm_up()
    assert opening.wait(PATIENT_S)
    assert count(reader) == 1
    end.set()
    other.close()


def test_closed_reader_raises_and_its_thread_is_gone(gate: Gate) -> None:
    before = running()
    reader = FeastReader(gate)
    reader.warm_up()
    assert count(reader) == 1
    assert running() == before + 1
    reader.close()
    reader.close()
    assert running() == before
    with pytest.raises(StoreError, match="closed"):
        count(reader)
    reader.warm_up()
    assert running() == before


def test_reader_that_nobody_holds_any_more_ends_its_thread(gate: Gate) -> None:
    before = running()
    reader = FeastReader(gate)
    assert count(reader) == 1
    del reader
    gc.collect()
    until = time.monotonic() + PATIENT_S
    while running() > before and time.monotonic() < until:
        time.sleep(0.001)
    assert running() == before


WITHOUT_FEAST = """
import sys
sys.modules["feast"] = None  # as if it were not installed
from leap_predictor.errors import StoreError
from leap_predictor.history.feast_reader import FeastReader
from leap_predictor.history.request import MetaReading
from leap_predictor.manifest import history_views

def open_store():
    from feast import FeatureStore
    return FeatureStore("feature_repo")

reader = FeastReader(open_store)
reader.warm_up()
try:
    reader.read(history_views(), [], within_s=60)
except StoreError as error:
    print(error)
"""


def test_without_feast_the_extra_that_brings_it_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FEAST],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": ""},
    )
    assert "needs the package 'feast', which is not installed: pip install 'leap-throughput[training]'" in done.stdout
