"""What `make demo` shows of a generated fleet."""

from __future__ import annotations

import pytest

from archived_events import event
from leap_features.events import CompletionEvent
from leap_features.family import family_of
from leap_predictor.job import Job
from leap_streams.demo import DemoFailed, shown_family


def run(number: int, job: str, hardware_type: str, status: str = "succeeded", **changes: object) -> CompletionEvent:
    changes |= {"job_name": f"{job}-run{number}", "hardware_type": hardware_type, "status": status}
    return event(f"{job}-{number}", number, **changes)


PAST = [
    *(run(number, "often", "A100", "failed") for number in range(9)),
    *(run(number, "steady", "H100") for number in range(10, 16)),
    *(run(number, "steady", "A100") for number in range(20, 23)),
    *(run(number, "ended", "H100") for number in range(30, 39)),
    *(run(number, "alone", "H100", eligible_hardware=["H100"]) for number in range(40, 49)),
]
LAST_DAY = [
    run(50, "steady", "A100"),
    run(51, "steady", "H100"),
    run(52, "steady", "H100", trainer_count=64),
    run(53, "steady", "H100", "failed"),
    run(54, "alone", "H100", eligible_hardware=["H100"]),
    run(55, "new", "H100"),
]


def test_the_family_with_most_successes_on_one_hardware_type_that_still_runs_there_is_shown() -> None:
    shown = shown_family(PAST, LAST_DAY)
    assert (shown.family, shown.hardware_type) == ("ranker/steady", "H100")
    assert shown.latest == LAST_DAY[2]


def test_the_job_that_is_ranked_is_another_launch_of_the_family() -> None:
    shown = shown_family(PAST, LAST_DAY)
    job = Job(**shown.job())
    assert family_of(job.model_type, job.job_name) == shown.family
    assert job.trainer_count == 64


def test_without_such_a_family_there_is_nothing_to_show() -> None:
    with pytest.raises(DemoFailed, match="no family"):
        shown_family(PAST, LAST_DAY[3:])
