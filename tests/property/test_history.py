"""The fold against a naive oracle that keeps every run and computes from the list."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, sqrt

from hypothesis import given
from hypothesis import strategies as st

from events_strategies import positions_of, runs
from leap_features.events import FIXED_POINT
from leap_features.history import EMPTY, Position, Row, Run, features, fold, from_state, touch
from leap_features.layout import Value

Delivered = tuple[Run, Position, int]


def unique(delivered: list[Run]) -> list[Run]:
    """Runs as the writer lets them through: one success and one failure per attempt."""
    seen: set[tuple[bool, str]] = set()
    kept = []
    for i, run in enumerate(delivered):
        # Attempt ids are drawn from four letters; a suffix makes most attempts distinct and keeps ties of time.
        identity = (run.succeeded, f"{run.attempt_id}{i // 3}")
        if identity not in seen:
            seen.add(identity)
            kept.append(Run(run.succeeded, run.completed_at_us, identity[1], *_rest(run)))
    return kept


def _rest(run: Run) -> tuple[int, int, int | None, str, int, float]:
    return run.x, run.log_trainers, run.log_batch, run.hardware_type, run.trainer_count, run.batch_size


def oracle(taken: list[Run]) -> dict[str, Value]:
    """Features of a key whose runs are `taken`, by definition."""
    successes = [run for run in taken if run.succeeded]
    latest = max(successes, key=lambda r: (r.completed_at_us, r.attempt_id), default=None)
    failures = [r for r in taken if not r.succeeded]
    if latest is not None:
        failures = [
            r for r in failures if (r.completed_at_us, r.attempt_id) > (latest.completed_at_us, latest.attempt_id)
        ]
    batches = [r.log_batch for r in successes if r.log_batch is not None]
    return {
        "count": len(successes),
        "last": latest.x / FIXED_POINT if latest else None,
        "last_seen": latest.completed_at_us if latest else None,
        "last_hardware_type": latest.hardware_type if latest else None,
        "last_trainer_count": latest.trainer_count if latest else None,
        "last_batch_size": latest.batch_size if latest else None,
        "failures_since_success": min(len(failures), 16),
        "mean": _mean([r.x for r in successes]),
        "mean_log_trainers": _mean([r.log_trainers for r in successes]),
        "mean_log_batch": _mean(batches),
    }


def _mean(values: list[int]) -> float | None:
    return float(Fraction(sum(values), len(values) * FIXED_POINT)) if values else None


def fold_all(delivered: list[Delivered]) -> Row:
    row = EMPTY
    for run, position, recorded in delivered:
        row = fold(row, run, position, recorded)
    return row


@st.composite
def deliveries(draw: st.DrawFn) -> list[Delivered]:
    taken = unique(draw(st.lists(runs, max_size=40)))
    partitions = draw(st.lists(st.integers(0, 2), min_size=len(taken), max_size=len(taken)))
    stamps = draw(st.lists(st.integers(0, 50), min_size=len(taken), max_size=len(taken)))
    return list(zip(taken, positions_of(partitions), stamps, strict=True))


@given(deliveries())
def test_the_fold_equals_the_oracle(delivered: list[Delivered]) -> None:
    row = fold_all(delivered)
    expected = oracle([run for run, _, _ in delivered])
    found = features(row)
    for name in ("mean", "mean_log_trainers", "mean_log_batch"):
        value, right = found.pop(name), expected.pop(name)
        assert (value is None) == (right is None)
        if isinstance(value, float) and isinstance(right, float):
            assert abs(value - right) <= 1e-15 * max(1.0, abs(right))
    assert {name: found[name] for name in expected} == expected
    xs = [run.x for run, _, _ in delivered if run.succeeded]
    assert (row.n, row.sum_x, row.sum_xx) == (len(xs), sum(xs), sum(x * x for x in xs))
    if xs:
        spread = len(xs) * sum(x * x for x in xs) - sum(xs) ** 2
        std = found["std"]
        assert isinstance(std, float)
        assert spread >= 0
        assert abs(std * len(xs) * FIXED_POINT - sqrt(spread)) <= 1e-9 * (1 + isqrt(spread))
    assert row.recorded_at_us == max((stamp for _, _, stamp in delivered), default=0)


@given(deliveries(), st.randoms(use_true_random=False))
def test_statistics_do_not_depend_on_the_order_across_partitions(delivered: list[Delivered], random: object) -> None:
    by_partition: dict[int, list[Delivered]] = {}
    for one in delivered:
        by_partition.setdefault(one[1].partition, []).append(one)
    queues = list(by_partition.values())
    mixed: list[Delivered] = []
    while queues:
        queue = random.choice(queues)  # type: ignore[attr-defined]  # Hypothesis' random
        mixed.append(queue.pop(0))
        queues = [q for q in queues if q]
    assert fold_all(mixed) == fold_all(delivered)


@given(deliveries(), st.data())
def test_any_redelivery_leaves_the_row_as_it_is(delivered: list[Delivered], data: st.DataObject) -> None:
    row = EMPTY
    for i, (run, position, recorded) in enumerate(delivered):
        row = fold(row, run, position, recorded)
        again = data.draw(st.integers(0, i))
        for old_run, old_position, old_recorded in delivered[again : i + 1]:
            assert fold(row, old_run, old_position, old_recorded) is row
            assert touch(row, old_position, old_recorded) is row


@given(deliveries())
def test_a_row_can_be_continued_from_what_is_stored(delivered: list[Delivered]) -> None:
    row = EMPTY
    for run, position, recorded in delivered:
        row = fold(row, run, position, recorded)
        stored = features(row)
        row = from_state(str(stored["state"]), str(stored["version"]), row.recorded_at_us)
    assert row == fold_all(delivered)
