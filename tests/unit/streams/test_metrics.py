from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from leap_streams.metrics import FRESHNESS_BOUNDS_S, Metrics

APP = "leap-history"
NOW_S = 1_800_000_000.0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(APP, ("folded", "rejected"), now_s=lambda: NOW_S)


def value(metrics: Metrics, name: str, **labels: Any) -> float | None:
    return metrics.registry.get_sample_value(name, {"app": APP} | {key: str(label) for key, label in labels.items()})


def aged(*seconds: float) -> list[int]:
    """Record times, microseconds, of events so old."""
    return [round((NOW_S - age) * 1e6) for age in seconds]


def test_events_are_counted_by_what_became_of_them(metrics: Metrics) -> None:
    metrics.stored(aged(1, 1, 1), {"folded": 2, "rejected": 1}, 0.1)
    metrics.stored(aged(1), {"folded": 1, "rejected": 0}, 0.1)
    assert value(metrics, "leap_events_total", outcome="folded") == 3
    assert value(metrics, "leap_events_total", outcome="rejected") == 1


def test_an_outcome_that_has_not_come_yet_is_0(metrics: Metrics) -> None:
    assert value(metrics, "leap_events_total", outcome="rejected") == 0


def test_what_is_no_outcome_of_an_event_is_counted_apart(metrics: Metrics) -> None:
    counts = {"rows_written": 4, "conflicts": 3, "new_families": 2, "misrouted": 1, "segments": 5}
    metrics.stored(aged(1), counts, 0.1)
    assert value(metrics, "leap_rows_written_total") == 4
    assert value(metrics, "leap_row_conflicts_total") == 3
    assert value(metrics, "leap_new_families_total") == 2
    assert value(metrics, "leap_misrouted_events_total") == 1
    assert value(metrics, "leap_segments_total") == 5
    for name in counts:
        assert value(metrics, "leap_events_total", outcome=name) is None


def test_freshness_has_each_event_in_every_bucket_not_below_its_age(metrics: Metrics) -> None:
    ages = [0.01, 0.05, 0.4, 0.4, 3.0, 1000.0]
    metrics.stored(aged(*ages), {}, 0.1)
    for bound in FRESHNESS_BOUNDS_S:
        found = value(metrics, "leap_freshness_seconds_bucket", le=bound)
        assert found == sum(age <= bound for age in ages), bound
    assert value(metrics, "leap_freshness_seconds_bucket", le="+Inf") == len(ages)
    assert value(metrics, "leap_freshness_seconds_count") == len(ages)
    assert value(metrics, "leap_freshness_seconds_sum") == pytest.approx(sum(ages))


def test_an_event_from_a_broker_whose_clock_is_ahead_is_fresh(metrics: Metrics) -> None:
    metrics.stored(aged(-3.0), {}, 0.1)
    assert value(metrics, "leap_freshness_seconds_bucket", le=FRESHNESS_BOUNDS_S[0]) == 1
    assert value(metrics, "leap_freshness_seconds_sum") == 0


def test_a_batch_is_measured_once(metrics: Metrics) -> None:
    metrics.stored(aged(*[1.0] * 50), {}, 0.02)
    assert value(metrics, "leap_batch_events_sum") == 50
    assert value(metrics, "leap_batch_events_count") == 1
    assert value(metrics, "leap_batch_seconds_sum") == 0.02


def test_dead_letters_are_counted_by_rule(metrics: Metrics) -> None:
    metrics.dead_letters(["json", "too_late", "json"])
    assert value(metrics, "leap_dead_letters_total", rule="json") == 2
    assert value(metrics, "leap_dead_letters_total", rule="too_late") == 1


def test_retries_refusals_and_exchanges_are_counted(metrics: Metrics) -> None:
    metrics.retried("write")
    metrics.retried("write")
    metrics.refused()
    metrics.exchanged(0.25)
    assert value(metrics, "leap_retries_total", waits_to="write") == 2
    assert value(metrics, "leap_refused_batches_total") == 1
    assert value(metrics, "leap_store_exchange_seconds_count") == 1


def test_the_lag_of_a_partition_that_has_gone_elsewhere_is_shown_no_longer(metrics: Metrics) -> None:
    metrics.stands("running", 2, {0: 5, 1: 7})
    assert value(metrics, "leap_lag_records", partition=1) == 7
    metrics.stands("running", 1, {0: 4})
    assert value(metrics, "leap_lag_records", partition=0) == 4
    assert value(metrics, "leap_lag_records", partition=1) is None
    assert value(metrics, "leap_assigned_partitions") == 1


def test_the_app_is_in_one_state_at_a_time(metrics: Metrics) -> None:
    metrics.stands("waiting", 2, {})
    metrics.stands("running", 2, {})
    assert value(metrics, "leap_app_state", leap_app_state="running") == 1
    assert value(metrics, "leap_app_state", leap_app_state="waiting") == 0


def test_the_store_has_one_generation_at_a_time(metrics: Metrics) -> None:
    metrics.store_is(1_000_000, "a")
    metrics.store_is(1_000_001, "b")
    assert value(metrics, "leap_store_info", epoch=1_000_001, generation="b") == 1
    assert value(metrics, "leap_store_info", epoch=1_000_000, generation="a") is None


def test_two_apps_in_one_process_share_nothing(metrics: Metrics) -> None:
    other = Metrics("leap-archive", ("archived",))
    metrics.refused()
    assert other.registry.get_sample_value("leap_refused_batches_total", {"app": "leap-archive"}) == 0


def test_the_manual_lists_every_metric_and_no_other(metrics: Metrics) -> None:
    manual = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    table = manual.partition("### Metrics")[2].partition("```")[0]
    listed = re.findall(r"^\| `(leap_\w+)` ", table, re.MULTILINE)
    suffix = {"counter": "_total", "info": "_info"}
    exported = [f.name + suffix.get(f.type, "") for f in metrics.registry.collect() if f.name.startswith("leap_")]
    assert sorted(listed) == sorted(exported)
