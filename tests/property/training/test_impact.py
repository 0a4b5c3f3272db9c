"""Laws of `leap impact`: the join and the shares equal a slow, obvious reckoning, in whatever order things come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leap_training.impact.attempts import Attempt
from leap_training.impact.decided import Decided
from leap_training.impact.join import join
from leap_training.impact.measure import NO_DECISION, Options, measure
from leap_training.impact.report import Group, ImpactLine

DAY_US = 86_400_000_000
HOUR_US = 3_600_000_000

# Few names and times, so that attempts and decisions meet, and meet in ties.
names = st.sampled_from(["job-a", "job-b"])
models = st.sampled_from(["m1", "m2"])
types = st.sampled_from(["A", "B", "C"])
ids = st.sampled_from([f"attempt-{number}" for number in range(12)])
times = st.integers(0, 12).map(lambda number: number * HOUR_US * 4)


@st.composite
def decisions(draw: st.DrawFn) -> list[Decided]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        ranking = tuple(draw(st.lists(types, unique=True, max_size=3)))
        found.append(
            Decided(
                decision_id=f"d{number:02}",
                decided_us=draw(times),
                job_name=draw(names),
                model_type=draw(models),
                attempt_id=draw(ids | st.none()),
                candidates=draw(st.integers(0, 3)),
                types=ranking,
                scores=[draw(st.floats(0.1, 10)) for _ in ranking],
                control=draw(st.booleans()),
                reason="" if ranking else draw(st.sampled_from(["store_slow", "no_candidates"])),
            )
        )
    return sorted(found, key=lambda each: (each.decided_us, each.decision_id))


@st.composite
def attempts(draw: st.DrawFn) -> list[Attempt]:
    return [
        Attempt(
            attempt_id=attempt_id,
            job_name=draw(names),
            model_type=(model := draw(models)),
            family=f"{model}/{draw(names)}",
            hardware_type=draw(types),
            eligible=tuple(sorted(draw(st.sets(types, max_size=3)))),
            trainers=draw(st.integers(1, 8)),
            device_hours=draw(st.integers(0, 50)) / 2,
            throughput=draw(st.floats(0.1, 1e6) | st.none()),
            submitted_us=draw(times),
        )
        for attempt_id in draw(st.lists(ids, unique=True, min_size=1, max_size=12))
    ]


windows = st.sampled_from([0, HOUR_US, 8 * HOUR_US, DAY_US])


def obvious_join(attempts: Sequence[Attempt], decisions: Sequence[Decided], window_us: int) -> list[Decided | None]:
    found: list[Decided | None] = []
    for attempt in attempts:
        own = [each for each in decisions if each.attempt_id == attempt.attempt_id]
        of_job = [
            each
            for each in decisions
            if each.attempt_id is None
            and (each.job_name, each.model_type) == (attempt.job_name, attempt.model_type)
            and 0 <= attempt.submitted_us - each.decided_us <= window_us
        ]
        candidates = own or of_job
        found.append(max(candidates, key=lambda each: (each.decided_us, each.decision_id)) if candidates else None)
    return found


@given(attempts(), decisions(), windows)
def test_the_join_equals_the_obvious_one(attempts: list[Attempt], decisions: list[Decided], window_us: int) -> None:
    found = [None if number is None else decisions[number] for number in join(attempts, decisions, window_us)]
    assert found == obvious_join(attempts, decisions, window_us)


def obvious_line(pairs: Sequence[tuple[Attempt, Decided | None]]) -> dict[str, Any]:
    """The counts and hours of a line, one attempt at a time."""
    line: dict[str, Any] = {
        "attempts": 0,
        "device_hours": 0.0,
        "ranked": [0, 0.0, 0, 0.0],
        "control": [0, 0.0, 0, 0.0],
    }
    for attempt, decided in pairs:
        line["attempts"] += 1
        line["device_hours"] += attempt.device_hours
        if decided is None or not decided.types:
            continue
        group = line["control" if decided.control else "ranked"]
        group[0] += 1
        group[1] += attempt.device_hours
        if decided.types[0] == attempt.hardware_type:
            group[2] += 1
            group[3] += attempt.device_hours
    return line


def eligible(attempt: Attempt, decided: Decided | None) -> bool:
    if len(attempt.eligible) > 0:
        return len(attempt.eligible) >= 2
    return decided is None or decided.candidates != 1


def as_plain(line: ImpactLine) -> dict[str, Any]:
    def plain(group: Group) -> list[float]:
        return [group.attempts, group.device_hours, group.top_attempts, group.top_device_hours]

    return {
        "attempts": line.attempts,
        "device_hours": line.device_hours,
        "ranked": plain(line.ranked),
        "control": plain(line.control),
    }


@settings(max_examples=60)
@given(attempts(), decisions(), windows)
def test_shares_equal_the_obvious_reckoning(attempts: list[Attempt], decisions: list[Decided], window_us: int) -> None:
    options = Options(window_hours=window_us / HOUR_US, draws=20)
    report = measure(attempts, decisions, lambda name: None if name == "C" else 2.0, "x", options)
    joined = zip(attempts, obvious_join(attempts, decisions, window_us), strict=True)
    pairs = [(attempt, decided) for attempt, decided in joined if eligible(attempt, decided)]
    assert as_plain(report.total) == obvious_line(pairs)
    assert {line.model_type: as_plain(line) for line in report.by_model} == {
        model: obvious_line(here) for model in ("m1", "m2") if (here := [p for p in pairs if p[0].model_type == model])
    }
    epoch_days = {line.day.toordinal() - 719_163: as_plain(line) for line in report.by_day if line.day is not None}
    assert epoch_days == {
        day: obvious_line([p for p in pairs if p[0].submitted_us // DAY_US == day])
        for day in {attempt.submitted_us // DAY_US for attempt, _ in pairs}
    }
    reasons: dict[str, list[float]] = {}
    for attempt, decided in pairs:
        if decided is None or not decided.types:
            entry = reasons.setdefault(NO_DECISION if decided is None else decided.reason, [0, 0.0])
            entry[0] += 1
            entry[1] += attempt.device_hours
    assert {line.reason: [line.attempts, line.device_hours] for line in report.unranked} == reasons
    cost = math.fsum(
        attempt.device_hours * 2.0
        for attempt, decided in pairs
        if decided is not None and decided.types and not decided.control and attempt.hardware_type != "C"
    )
    assert report.total.ranked_cost_usd == pytest.approx(cost)


@settings(max_examples=40)
@given(attempts(), decisions(), st.randoms(use_true_random=False))
def test_the_order_of_attempts_changes_no_figure(
    attempts: list[Attempt], decisions: list[Decided], random: Any
) -> None:
    options = Options(window_hours=24, draws=20)
    shuffled = attempts.copy()
    random.shuffle(shuffled)
    first, second = (measure(given, decisions, lambda _: 1.0, "x", options) for given in (attempts, shuffled))
    assert [as_plain(line) for line in (first.total, *first.by_model, *first.by_day)] == [
        as_plain(line) for line in (second.total, *second.by_model, *second.by_day)
    ]
    assert first.notes == second.notes


@settings(max_examples=60)
@given(attempts(), decisions())
def test_a_longer_window_never_unjoins(attempts: list[Attempt], decisions: list[Decided]) -> None:
    joined = [join(attempts, decisions, window_us) for window_us in (0, HOUR_US * 4, DAY_US)]
    for shorter, longer in pairwise(joined):
        assert all(after == before for before, after in zip(shorter, longer, strict=True) if before is not None)
