"""What the archive tells of a family, event by event, against the fold over the plain list of events."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leap_features.family import DEFAULT_RULES, family_of_event
from leap_features.family_archive import Change, FamilyArchive
from leap_features.history import Row, run_of
from leap_features.levels import FAMILY, FAMILY_HARDWARE, FAMILY_SCALE
from recorded_events import HORIZON_US, Recorded, archived, oracle, write_archive

TAKEN_IN = ("counted", "duplicate")


def rows_after(changes: list[Change]) -> dict[int, Row]:
    """By the instant at which it became known, the row after the last event of that instant."""
    return {change.row.recorded_at_us: change.row for change in changes if change.effect in TAKEN_IN}


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(archived(), st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_every_row_of_a_family_s_changes_is_the_fold_s(events: list[Recorded], cuts: list[int]) -> None:
    of_family: dict[str, list[Recorded]] = defaultdict(list)
    for recorded in events:
        of_family[family_of_event(recorded.event)].append(recorded)
    expected = {level: by_key(oracle(events, level)) for level in (FAMILY, FAMILY_HARDWARE, FAMILY_SCALE)}
    with tempfile.TemporaryDirectory() as directory:
        write_archive(Path(directory), events, cuts)
        for name, own in of_family.items():
            with FamilyArchive(directory, name, horizon_us=HORIZON_US, rules=DEFAULT_RULES) as family:
                scales = sorted({(r.event.hardware_type, r.event.trainer_count) for r in own if run_of(r.event)})
                assert family.scales() == scales
                changes, last = family.changes(None, None, since_us=None, limit=1_000)
                assert sorted(change.position for change in changes) == sorted(r.position for r in own)
                assert rows_after(changes) == expected[FAMILY].get((name,), {})
                assert not changes or last == changes[-1].row
                for hardware, trainers in scales:
                    changes, _ = family.changes(hardware, None, since_us=None, limit=1_000)
                    assert rows_after(changes) == expected[FAMILY_HARDWARE].get((name, hardware), {})
                    changes, _ = family.changes(hardware, trainers, since_us=None, limit=1_000)
                    assert rows_after(changes) == expected[FAMILY_SCALE].get((name, hardware, trainers), {})


def by_key(rows: dict[tuple[Any, ...], Row]) -> dict[tuple[Any, ...], dict[int, Row]]:
    found: dict[tuple[Any, ...], dict[int, Row]] = defaultdict(dict)
    for key, row in rows.items():
        found[key[:-1]][key[-1]] = row
    return found
