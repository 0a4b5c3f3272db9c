"""Reads history through Feast's SDK, for online stores that only Feast knows how to read.

    from feast import FeatureStore
    from leap_predictor.history.feast_reader import FeastReader

    predictor = Predictor.open("data/bundles", FeastReader(lambda: FeatureStore("feature_repo")))

Feast's calls have no deadline, and importing it takes seconds. So one worker thread opens the feature store and asks
it; callers wait no longer than they want to, and then abandon what they asked. While that thread is stuck in a call no
other is started: those who ask meanwhile run out of time too, and then the circuit breaker turns them away at once.

A fork waits until no store is being opened, so right after `Predictor.open` it takes as long as importing Feast does.

Which schema and family rule the rows are of, the store must say, or nobody is served. LEAP's own Redis says it in its
meta hash. For another store, whoever fills it says so in tags of the Feast project (`write_meta_tags`), which the
registry carries. `feast apply` removes them again, so that rows of unknown meaning are not served.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from leap_features.layout import Value
from leap_features.levels import Subject
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.forking import remake_in_children
from leap_predictor.history.circuit_breaker import BreakerState, CircuitBreaker
from leap_predictor.history.client_replies import client_replies
from leap_predictor.history.openings import OPENINGS
from leap_predictor.history.request import HistoryRequest, MetaReading, Reading, StoredRow
from leap_predictor.manifest import View, ViewFeature

if TYPE_CHECKING:
    from feast import FeatureStore

TAGS: Final = {
    "schema": "leap_schema",
    "family_rule": "leap_family_rule",
    "generation": "leap_generation",
    "state": "leap_state",
}
"""Field of `MetaReading` → tag of the Feast project."""

REDIS_TIMEOUT_S: Final = 2.0
"""Of one read of the meta hash."""

_KINDS: Final = {"Float64": "double_val", "Int64": "int64_val", "String": "string_val"}

MetaSource = Callable[[], MetaReading | None]
"""Reads what the store says about itself; None: nothing."""


class FeastReader:
    """Reads history rows by `get_online_features`, and meta. Safe across threads and after a fork.

    Args:
        open_store: opens the feature store; called in the worker thread, and again after a fork or a failure.
        meta_of: gives what reads the meta of an open store; by default the meta hash for LEAP's own Redis store, and
            the tags of the Feast project for any other.
        clock: monotonic seconds, for the circuit breaker.
    """

    def __init__(
        self,
        open_store: Callable[[], FeatureStore],
        *,
        meta_of: Callable[[FeatureStore], MetaSource] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_store = open_store
        self._meta_of = meta_of or stored_meta
        self._clock = clock
        self._closed = False
        self._start_over()
        remake_in_children(self)

    def _start_over(self) -> None:
        self._breaker = CircuitBreaker(self._clock)
        self._worker = _Worker(self._open_store, self._meta_of)
        self._finalizer = weakref.finalize(self, self._worker.stop)

    def after_fork_in_child(self) -> None:
        """Forget the parent's thread, its store's connections, and locks that another thread may have held."""
        self._finalizer.detach()
        self._start_over()

    def warm_up(self) -> None:
        """Begin to import Feast and to open the store, without waiting."""
        if not self._closed:
            with contextlib.suppress(StoreError):  # the first read says so, if it still is so
                self._worker.submit(_Question((), ()))

    def read(self, views: Sequence[View], subjects: Sequence[Subject], *, within_s: float) -> Reading:
        """The history of `subjects` in `views`, and the store's meta.

        Raises:
            StoreTimeout: no answer within `within_s` seconds.
            StoreError: Feast is not installed, the store fails or lacks a feature, or it is left alone after failures;
                or the reader is closed.
        """
        if self._closed:
            raise StoreError("the reader is closed")
        return self._breaker.guard(lambda: self._worker.ask(_Question(views, subjects), within_s))

    @property
    def breaker(self) -> BreakerState:
        """Whether the store is asked at all, and if not, since which error and until when."""
        return self._breaker.state

    def close(self) -> None:
        """End the thread; one that is stuck in a call ends after it. Later reads raise `StoreError`."""
        self._closed = True
        self._finalizer()


def stored_meta(store: FeatureStore) -> MetaSource:
    """Reads the meta hash where the online store is LEAP's own Redis store, else the tags of the Feast project."""
    from leap_features.online_store import AtomicRedisOnlineStoreConfig  # noqa: PLC0415  # needs Feast

    section = store.config.online_store
    if isinstance(section, AtomicRedisOnlineStoreConfig):
        return redis_meta(section.redis_url, store.project)
    return lambda: tagged_meta(store)


def redis_meta(redis_url: str, project: str) -> MetaSource:
    """Reads the meta hash of `project` in the Redis at `redis_url`."""
    from leap_features import redis_address  # noqa: PLC0415

    timeouts: dict[str, Any] = {"socket_timeout": REDIS_TIMEOUT_S, "socket_connect_timeout": REDIS_TIMEOUT_S}
    client = redis_address.client(redis_url, **timeouts)
    asked = HistoryRequest(project, (), ())
    return lambda: asked.decode(client_replies(client, asked)).meta


def tagged_meta(store: FeatureStore) -> MetaReading | None:
    """The meta in the tags of the store's Feast project, as the registry's cache has them; None: there are none."""
    tags = store.registry.get_project(store.project, allow_cache=True).tags
    if not any(tag in tags for tag in TAGS.values()):
        return None
    return MetaReading(**{field: tags.get(tag, "") for field, tag in TAGS.items()})


def write_meta_tags(store: FeatureStore, meta: MetaReading) -> None:
    """Say in the registry what the rows of the online store are, after they were written; `feast apply` undoes it.

    Say a state other than `ready` before rows of another schema, family rule or generation are written.
    """
    project = store.registry.get_project(store.project)
    project.tags = dict(project.tags) | {tag: getattr(meta, field) for field, tag in TAGS.items()}
    store.registry.apply_project(project)


def ask_feast(store: FeatureStore, views: Sequence[View], subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """Per subject, the row of each view.

    Raises:
        StoreError: a feature has another type than the view's.
    """
    if not subjects or not views:
        return [{} for _ in subjects]
    join_keys = sorted({name for view in views for name in view.join_keys})
    answer = store.get_online_features(
        [f"{view.view}:{feature.name}" for view in views for feature in view.features],
        [{name: getattr(subject, name) for name in join_keys} for subject in subjects],
        full_feature_names=True,
    ).proto
    vectors = dict(zip(answer.metadata.feature_names.val, answer.results, strict=True))
    rows: list[dict[str, Any]] = [{} for _ in subjects]
    for view in views:
        columns = [vectors[f"{view.view}__{feature.name}"] for feature in view.features]
        for at, row in enumerate(rows):
            features = {
                feature.name: _value(view, feature, column.values[at])
                for feature, column in zip(view.features, columns, strict=True)
            }
            # Feast gives the beginning of 1970 where there is no timestamp, and so nothing was ever written.
            recorded_at_us = columns[0].event_timestamps[at].ToMicroseconds() or None
            is_there = recorded_at_us is not None or any(value is not None for value in features.values())
            row[view.view] = StoredRow(features, recorded_at_us) if is_there else None
    return rows


def _value(view: View, feature: ViewFeature, stored: Any) -> Value:
    kind = stored.WhichOneof("val")
    if kind is None or kind == "null_val":
        return None
    if kind != _KINDS[feature.type]:
        raise StoreError(f"{view.view}:{feature.name} must be {feature.type}, Feast gives a {kind}: run `feast apply`")
    value: Value = getattr(stored, kind)
    return value


class _Question:
    """One read on its way; one without views only opens the store."""

    def __init__(self, views: Sequence[View], subjects: Sequence[Subject]) -> None:
        self.views = views
        self.subjects = subjects
        self.done = threading.Event()
        self.abandoned = False
        self.reading: Reading | None = None
        self.error: StoreError | None = None


class _Worker:
    """One thread with one feature store, answering questions in order."""

    def __init__(self, open_store: Callable[[], FeatureStore], meta_of: Callable[[FeatureStore], MetaSource]) -> None:
        self._open_store = open_store
        self._meta_of = meta_of
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._lock = threading.RLock()  # reentrant: a reader may be collected, and stopped, inside of it
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._opened: tuple[FeatureStore, MetaSource] | None = None
        self._imported = False

    def submit(self, question: _Question) -> None:
        with self._lock:
            if self._stopped:
                raise StoreError("the reader is closed")
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._serve, name="leap-feast", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # there can be no more, or the interpreter ends
                    raise StoreError(f"Feast cannot be asked: {error}") from error
                self._thread = thread
        self._questions.put(question)

    def ask(self, question: _Question, within_s: float) -> Reading:
        answered = False
        try:
            self.submit(question)
            answered = question.done.wait(max(within_s, 0.0))
        finally:
            question.abandoned = not answered
        if question.error is not None and answered:
            raise question.error
        if question.reading is None or not answered:
            raise StoreTimeout(f"Feast gave no answer within {within_s * 1e3:.0f} ms")
        return question.reading

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            thread = self._thread
        self._questions.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)  # longer only while it is in a call of Feast's; it ends by itself afterwards

    def _serve(self) -> None:
        with self._lock:  # who started it is done, or was interrupted in the midst of it and starts another
            if self._thread is not threading.current_thread():
                return
        while (question := self._questions.get()) is not None:
            if not question.abandoned and not self._stopped:
                try:
                    question.reading = self._answer(question)
                except StoreError as error:
                    question.error = error
                except ModuleNotFoundError as error:
                    question.error = StoreError(
                        f"reading through Feast needs the package {error.name!r}, which is not installed: pip install "
                        "'leap-throughput[training]'"
                    )
                except BaseException as error:  # an online store of Feast's raises anything, a panic of Rust's included
                    self._opened = None
                    question.error = StoreError(f"Feast cannot read the store: {type(error).__name__}: {error}")
            question.done.set()

    def _answer(self, question: _Question) -> Reading:
        if self._imported:
            return self._read(question)
        with OPENINGS.one():
            reading = self._read(question)
        self._imported = any(reading.rows)  # the first ones make Feast import more
        return reading

    def _read(self, question: _Question) -> Reading:
        if self._opened is None:
            store = self._open_store()
            self._opened = (store, self._meta_of(store))
        store, meta = self._opened
        before = meta()
        rows = ask_feast(store, question.views, question.subjects)
        after = meta()
        torn = before != after
        return Reading(None if torn else after, torn, tuple(rows))
