"""A long step says how far it has come, and not too often."""

from __future__ import annotations

from leap_streams.progress import EVERY_S, Progress


def test_progress_is_said_once_in_a_while() -> None:
    said: list[str] = []
    now = [100.0]
    progress = Progress(said.append, "rows written", 3_000, clock=lambda: now[0])
    progress.add(1_000)
    assert said == []
    now[0] += EVERY_S
    progress.add(1_000)
    assert said == ["rows written: 2,000 of 3,000"]
    progress.add(1_000)
    assert len(said) == 1
    assert progress.done == 3_000
