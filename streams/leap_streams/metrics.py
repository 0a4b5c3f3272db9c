"""What an app of the stream counts and measures, for Prometheus. Everything is counted per batch, not per event."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from leap_streams.app_state import STATES, State

FRESHNESS_BOUNDS_S: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
DURATION_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_BOUNDS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)


class FreshnessHistogram(Collector):
    """A histogram that takes a whole batch at once; the client library's takes one value at a time.

    Args:
        app: value of the label `app`.
    """

    def __init__(self, name: str, help_text: str, app: str) -> None:
        self._name = name
        self._help = help_text
        self._app = app
        self._bounds = np.array(FRESHNESS_BOUNDS_S)
        self._counts = np.zeros(len(FRESHNESS_BOUNDS_S) + 1, dtype=np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, seconds: NDArray[np.float64]) -> None:
        """Take in one value per event."""
        counts = np.bincount(np.searchsorted(self._bounds, seconds), minlength=len(self._counts))
        with self._lock:
            self._counts += counts
            self._sum += float(seconds.sum())

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The histogram as it is now."""
        with self._lock:
            counts, total = self._counts.cumsum().tolist(), self._sum
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        family = HistogramMetricFamily(self._name, self._help, labels=("app",))
        family.add_metric((self._app,), list(zip(names, counts, strict=True)), total)
        yield family


class Metrics:
    """The metrics of one app, in a registry of their own. Thread-safe.

    Args:
        app: the app's name, on every metric as the label `app`.
        outcomes: what may become of an event; the other counts of a sink have metrics of their own.
        now_s: seconds since 1970, for the age of events.
    """

    def __init__(self, app: str, outcomes: Iterable[str], *, now_s: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()
        self.app = app
        self._now_s = now_s
        self._partitions: set[int] = set()
        ProcessCollector(registry=self.registry)

        self._events = self._counter("leap_events", "Events stored, by what became of them.", "outcome")
        self._apart = {
            "rows_written": self._counter("leap_rows_written", "History rows written.").labels(app),
            "conflicts": self._counter(
                "leap_row_conflicts", "Row writes before which another writer had changed the row; folded again."
            ).labels(app),
            "new_families": self._counter("leap_new_families", "Job families seen for the first time.").labels(app),
            "misrouted": self._counter(
                "leap_misrouted_events", "Events in another partition than murmur2 of their model type gives."
            ).labels(app),
            "segments": self._counter("leap_segments", "Archive segments written.").labels(app),
        }
        self._dead_letters = self._counter("leap_dead_letters", "Dead letters, by the rule that they break.", "rule")
        self._refused = self._counter(
            "leap_refused_batches", "Batches that the store refused, having gone back in time or to another writer."
        ).labels(app)
        self._retries = self._counter("leap_retries", "Tries that failed and are made again, by what for.", "waits_to")
        self._freshness = FreshnessHistogram(
            "leap_freshness_seconds", "From the broker's record time of an event to its being stored.", app
        )
        self.registry.register(self._freshness)
        self._batch_events = self._histogram("leap_batch_events", "Events of a batch.", BATCH_BOUNDS)
        self._batch_seconds = self._histogram("leap_batch_seconds", "Time to store one batch.", DURATION_BOUNDS_S)
        self._exchange_seconds = self._histogram(
            "leap_store_exchange_seconds",
            "Time of one pipelined exchange with Redis, failed ones included.",
            DURATION_BOUNDS_S,
        )
        self._assigned = self._gauge("leap_assigned_partitions", "Partitions that this process has.").labels(app)
        self._lag = self._gauge("leap_lag_records", "Records of a partition that are not stored yet.", "partition")
        self._store = Info("leap_store", "Epoch and generation of the online store.", ("app",), registry=self.registry)
        self._state = Enum(
            "leap_app_state", "What the app is doing.", ("app",), states=STATES, registry=self.registry
        ).labels(app)
        for outcome in outcomes:  # a series that begins at 0 shows its first event
            self._events.labels(app, outcome)

    def stored(self, recorded_at_us: Sequence[int], counts: Mapping[str, int], took_s: float) -> None:
        """Count a batch that is stored, checkpoint included.

        Args:
            recorded_at_us: the broker's append time of each event, microseconds since 1970.
            counts: what the sink counted.
            took_s: time that the sink needed.
        """
        for name, count in counts.items():
            if count:
                (self._apart.get(name) or self._events.labels(self.app, name)).inc(count)
        self._batch_events.observe(len(recorded_at_us))
        self._batch_seconds.observe(took_s)
        # The broker's clock may be ahead of this machine's.
        self._freshness.observe(np.maximum(self._now_s() - np.array(recorded_at_us, dtype=np.float64) / 1e6, 0.0))

    def dead_letters(self, rules: Iterable[str]) -> None:
        """Count dead letters, one rule each."""
        for rule, count in collections.Counter(rules).items():
            self._dead_letters.labels(self.app, rule).inc(count)

    def refused(self) -> None:
        """Count a batch that the store refused."""
        self._refused.inc()

    def retried(self, waits_to: str) -> None:
        """Count a try that failed; `waits_to` is one of a few words."""
        self._retries.labels(self.app, waits_to).inc()

    def exchanged(self, took_s: float) -> None:
        """Count an exchange with Redis."""
        self._exchange_seconds.observe(took_s)

    def store_is(self, epoch: int, generation: str) -> None:
        """Say which life of the topic and which generation of the store is followed."""
        self._store.labels(self.app).info({"epoch": str(epoch), "generation": generation})

    def stands(self, state: State, assigned: int, lag: Mapping[int, int]) -> None:
        """Say what the app is doing, how many partitions it has, and how far behind it is in each, where known."""
        self._state.state(state)
        self._assigned.set(assigned)
        for partition in self._partitions - lag.keys():
            self._lag.remove(self.app, str(partition))
        for partition, records in lag.items():
            self._lag.labels(self.app, str(partition)).set(records)
        self._partitions = set(lag)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, ("app", *labels), registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(name, help_text, ("app", *labels), registry=self.registry)

    def _histogram(self, name: str, help_text: str, bounds: Sequence[float]) -> Histogram:
        return Histogram(name, help_text, ("app",), buckets=bounds, registry=self.registry).labels(self.app)
