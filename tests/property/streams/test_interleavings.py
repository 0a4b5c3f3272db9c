"""Any interleaving of workers, crashes and trouble with the store ends in what the log says.

`--hypothesis-profile=long` looks at many more of them, other ones at each run.
"""

from __future__ import annotations

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from archived_interleavings import ArchivedInterleavings
from interleavings import Interleavings
from leap_features.settings import Settings
from services import RedisServer


def examined(examples: int) -> hypothesis.settings:
    """So many examples, always the same ones; forty times as many other ones under the profile `long`."""
    long = hypothesis.settings.get_current_profile_name() == "long"
    return hypothesis.settings(
        max_examples=40 * examples if long else examples,
        derandomize=not long,
        stateful_step_count=30,
        suppress_health_check=list(hypothesis.HealthCheck),  # an example is large, and takes its time
    )


def test_any_interleaving_ends_in_what_the_log_says(redis_server: RedisServer) -> None:
    settings = Settings(redis_url=redis_server.url, project="interleaved")
    run_state_machine_as_test(lambda: Interleavings(settings), settings=examined(150))


def test_any_interleaving_with_rebuilds_and_repairs_ends_in_what_the_log_says(redis_server: RedisServer) -> None:
    settings = Settings(redis_url=redis_server.url, project="interleaved")
    run_state_machine_as_test(lambda: ArchivedInterleavings(settings), settings=examined(8))
