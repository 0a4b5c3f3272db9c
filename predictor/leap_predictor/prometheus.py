"""A predictor's counters for Prometheus. Needs `prometheus-client` (`pip install 'leap-throughput[prometheus]'`).

    from prometheus_client import REGISTRY
    from leap_predictor.prometheus import PredictorCollector

    REGISTRY.register(PredictorCollector(predictor))

Nothing is counted twice: the metrics are made of `Predictor.counters()` whenever they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

BREAKER_STATES = ("closed", "trying", "open")


class Counted(Protocol):
    """A `Predictor` or an `AsyncPredictor`."""

    def counters(self) -> dict[str, Any]:
        """As `Predictor.counters`."""


class PredictorCollector:
    """Metrics of one predictor, by the names `leap_predictor_…`.

    Args:
        predictor: whose.
        labels: put on every metric, to tell several predictors of a process apart.
    """

    def __init__(self, predictor: Counted, labels: dict[str, str] | None = None) -> None:
        self._predictor = predictor
        self._labels = dict(labels or {})

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks."""
        counted = self._predictor.counters()
        names, own = list(self._labels), list(self._labels.values())
        calls = CounterMetricFamily(
            "leap_predictor_calls", "Calls of rank, by what came of them.", labels=[*names, "outcome"]
        )
        for outcome, count in {"ranked": counted["ranked"], **counted["empty"]}.items():
            calls.add_metric([*own, outcome], count)
        yield calls
        latency = counted["latency_ms"]
        seconds = HistogramMetricFamily("leap_predictor_latency_seconds", "Duration of calls of rank.", labels=names)
        buckets = [(_seconds(bound), float(count)) for bound, count in latency["at_most"].items()]
        seconds.add_metric(own, buckets, latency["sum"] / 1e3)
        yield seconds
        snapshot = CounterMetricFamily(
            "leap_predictor_from_snapshot", "Calls whose history was a snapshot's.", labels=names
        )
        snapshot.add_metric(own, counted["from_snapshot"])
        yield snapshot
        if counted["store"] is not None:
            breaker = GaugeMetricFamily(
                "leap_predictor_store_breaker",
                "1 for the state of the store's circuit breaker.",
                labels=[*names, "state"],
            )
            for state in BREAKER_STATES:
                breaker.add_metric([*own, state], float(state == counted["store"]["name"]))
            yield breaker
        if counted["decisions"] is not None:
            decisions = CounterMetricFamily(
                "leap_predictor_decisions", "Decisions, by what became of their record.", labels=[*names, "outcome"]
            )
            for outcome, count in counted["decisions"].items():
                decisions.add_metric([*own, outcome], count)
            yield decisions
        if counted["bundle_id"] is not None:
            bundle = InfoMetricFamily("leap_predictor_bundle", "The bundle that serves.", labels=names)
            bundle.add_metric(own, {"id": counted["bundle_id"]})
            yield bundle


def _seconds(bound: str) -> str:
    return "+Inf" if bound == "inf" else repr(float(bound) / 1e3)
