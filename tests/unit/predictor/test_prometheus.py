from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from leap_predictor.counters import Counters
from leap_predictor.explanation import Reason
from leap_predictor.prometheus import PredictorCollector


class Made:
    """Something that counts like a predictor."""

    def __init__(self, **others: Any) -> None:
        self.counted = Counters()
        self._others = {"bundle_id": None, "store": None, "decisions": None} | others

    def counters(self) -> dict[str, Any]:
        return {**self.counted.read(), **self._others}


def exposed(made: Made, **labels: str) -> list[str]:
    registry = CollectorRegistry()
    registry.register(PredictorCollector(made, labels))
    return generate_latest(registry).decode().splitlines()


def test_counters_are_exposed_in_prometheus_units() -> None:
    made = Made(bundle_id="b1", store={"name": "open"}, decisions={"written": 5, "dropped": 1, "failed": 0})
    made.counted.count(None, 1.5, from_snapshot=True)
    made.counted.count(Reason.STORE_SLOW, 40.0, from_snapshot=False)
    lines = exposed(made)
    for line in (
        'leap_predictor_calls_total{outcome="ranked"} 1.0',
        'leap_predictor_calls_total{outcome="store_slow"} 1.0',
        'leap_predictor_latency_seconds_bucket{le="0.001"} 0.0',
        'leap_predictor_latency_seconds_bucket{le="0.002"} 1.0',
        'leap_predictor_latency_seconds_bucket{le="+Inf"} 2.0',
        "leap_predictor_latency_seconds_count 2.0",
        "leap_predictor_latency_seconds_sum 0.0415",
        "leap_predictor_from_snapshot_total 1.0",
        'leap_predictor_store_breaker{state="open"} 1.0',
        'leap_predictor_store_breaker{state="closed"} 0.0',
        'leap_predictor_decisions_total{outcome="dropped"} 1.0',
        'leap_predictor_bundle_info{id="b1"} 1.0',
    ):
        assert line in lines


def test_what_a_predictor_does_not_have_is_left_out() -> None:
    names = {line.split(" ")[2] for line in exposed(Made()) if line.startswith("# TYPE")}
    assert names == {
        "leap_predictor_calls_total",
        "leap_predictor_latency_seconds",
        "leap_predictor_from_snapshot_total",
    }


def test_predictors_of_one_process_are_told_apart_by_labels() -> None:
    made = Made()
    made.counted.count(None, 1.0, from_snapshot=False)
    assert 'leap_predictor_calls_total{cluster="eu",outcome="ranked"} 1.0' in exposed(made, cluster="eu")
