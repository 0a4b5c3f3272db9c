"""Which decision an attempt was launched with. Pure; `docs/impact.md` has the rules."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from leap_training.impact.attempts import Attempt
from leap_training.impact.decided import Decided


def join(attempts: Sequence[Attempt], decisions: Sequence[Decided], window_us: int) -> list[int | None]:
    """For each attempt the number of its decision; None: it has none.

    - Decisions that name an attempt are that attempt's alone; of several the latest counts.
    - Of decisions that name none, the latest of the same job name and model type counts that was made at or before the
      attempt's submission, and no longer before it than the window. A retry without a question of its own so has the
      decision of the job's first attempt.

    Args:
        attempts: in any order.
        decisions: by time, then id.
        window_us: microseconds, ≥ 0.
    """
    by_attempt: dict[str, int] = {}
    by_job: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, decided in enumerate(decisions):
        if decided.attempt_id is not None:
            by_attempt[decided.attempt_id] = number
        else:
            by_job[decided.job_name, decided.model_type].append(number)
    return [
        own
        if (own := by_attempt.get(attempt.attempt_id)) is not None
        else _latest(by_job.get((attempt.job_name, attempt.model_type), ()), decisions, attempt.submitted_us, window_us)
        for attempt in attempts
    ]


def _latest(numbers: Sequence[int], decisions: Sequence[Decided], submitted_us: int, window_us: int) -> int | None:
    place = bisect_right(numbers, submitted_us, key=lambda number: decisions[number].decided_us)
    if place == 0 or decisions[numbers[place - 1]].decided_us < submitted_us - window_us:
        return None
    return numbers[place - 1]
