"""Recorded events of all kinds, archives of them, and the history rows that the pure fold makes of them: the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from leap_features import archive, family
from leap_features.events import (
    CompletionEvent,
    InvalidEvent,
    check_recorded,
    content_digest,
    decode,
    encode,
    from_us,
    to_us,
)
from leap_features.history import EMPTY, Position, Row, fold, run_of, touch
from leap_features.levels import Level

MINUTE_US = 60_000_000
HORIZON_US = 60 * MINUTE_US
START_US = 1_717_200_000_000_000


class Recorded(NamedTuple):
    """An event as the archive has it."""

    position: Position
    recorded_at_us: int
    replay: bool
    event: CompletionEvent


class Subject(NamedTuple):
    job_family: str
    model_type: str
    hardware_type: str
    trainer_count: int


names = st.sampled_from(
    [
        "a",
        "b",
        'qu"ote',
        "it's",
        "back\\slash",
        "läufe-漢字-🚀",
        "tab\tnew\nline\x01",
        "a,b]",
        "\u00e9",
        "e\u0301",
        "nul\x00",
    ]
)
throughputs = st.one_of(
    st.sampled_from([1.0, 0.5, 99.9999999, 99.99999991, 1e308, 5e-324, 123456.789]),
    st.floats(min_value=1e-12, max_value=1e12, allow_nan=False),
)
batch_sizes = st.one_of(
    st.sampled_from([0.0, -0.0, 1 / 3, 32.0, 1e16, 1e22, 1e-7, 5e-324]), st.floats(min_value=0, max_value=1e6)
)


@st.composite
def contents(draw: st.DrawFn) -> CompletionEvent:
    """An event from pools so small that attempts repeat, with the same content and with another."""
    completed_us = START_US + draw(st.integers(0, 6)) * MINUTE_US + draw(st.sampled_from([0, 1, 500_000]))
    status = draw(st.sampled_from(["succeeded"] * 4 + ["failed"] * 3 + ["cancelled", "preempted"]))
    event = CompletionEvent(
        schema_version=1,
        attempt_id=draw(names) + draw(st.sampled_from(["", "", *map(str, range(12))])),
        job_name=draw(names),
        job_family=draw(st.sampled_from(["x", "x", "x", None, 'y"'])),
        model_type=draw(st.sampled_from(["m", "m", "n'"])),
        hardware_type=draw(st.sampled_from(["H100-SXM-80", "H100-SXM-80", 'odd "type"'])),
        submitted_at=from_us(completed_us - MINUTE_US),
        started_at=from_us(completed_us - MINUTE_US),
        completed_at=from_us(completed_us),
        status=status,
        throughput=draw(throughputs) if status == "succeeded" else draw(st.sampled_from([None, -1.0, 7.0])),
        trainer_count=draw(st.sampled_from([2, 2, 1, 2**31 - 1])),
        batch_size=draw(batch_sizes),
    )
    return decode(encode(event))


@st.composite
def archived(draw: st.DrawFn) -> list[Recorded]:
    """Events on several partitions of several epochs; record times may step back, come late or lie ahead."""
    few = draw(st.sampled_from([0, 20, 60]))
    pool = draw(st.lists(contents(), min_size=few // 2 + 1, max_size=few + 10))
    recorded = st.tuples(
        st.sampled_from(pool),
        st.sampled_from([(1, 0), (2, 0), (1_000_000, 0), (1_000_000, 1), (1_000_000, 12), (1_000_001, 1)]),
        st.one_of(st.integers(-7, 65).map(lambda m: m * MINUTE_US), st.integers(-10, 10)),
        st.booleans(),
        st.sampled_from([1, 1, 1, 2, 7]),
    )
    drawn = draw(st.lists(recorded, min_size=few, max_size=few + 20))
    ends: dict[tuple[int, int], int] = defaultdict(int)
    events = []
    for event, lane, lag_us, replay, step in drawn:
        offset = ends[lane] + step - 1
        ends[lane] = offset + 1
        events.append(Recorded(Position(*lane, offset), to_us(event.completed_at) + lag_us, replay, event))
    return events


def oracle(events: Sequence[Recorded], level: Level) -> dict[tuple[Any, ...], Row]:
    """Rows by key and stamp: the rules of the worker, event by event in the order in which events became knowable."""
    taken: dict[tuple[bool, str], list[Recorded]] = defaultdict(list)
    for recorded in sorted(events):
        run = run_of(recorded.event)
        try:
            check_recorded(recorded.event, recorded.recorded_at_us, HORIZON_US, recorded.replay)
        except InvalidEvent:
            continue
        if run is not None:
            taken[run.succeeded, run.attempt_id].append(recorded)
    by_key: dict[tuple[Any, ...], list[tuple[Recorded, bool]]] = defaultdict(list)
    for attempt in taken.values():
        known = known_at(attempt)
        first = min(
            attempt, key=lambda r: (r.position.epoch, known[r.position], r.position.partition, r.position.offset)
        )
        for recorded in attempt:
            if content_digest(recorded.event) == content_digest(first.event):
                event = recorded.event
                subject = Subject(
                    family.family_of_event(event), event.model_type, event.hardware_type, event.trainer_count
                )
                by_key[level.key(subject)].append((recorded, recorded is first))
    rows = {}
    for key, of_key in by_key.items():
        known = known_at([recorded for recorded, _ in sorted(of_key, key=lambda pair: pair[0].position)])
        row = EMPTY
        for recorded, counts in sorted(of_key, key=lambda pair: (known[pair[0].position], pair[0].position)):
            run = run_of(recorded.event)
            assert run is not None
            if counts:
                row = fold(row, run, recorded.position, recorded.recorded_at_us)
            else:
                row = touch(row, recorded.position, recorded.recorded_at_us)
            rows[*key, row.recorded_at_us] = row
    return rows


def known_at(ascending: Sequence[Recorded]) -> dict[Position, int]:
    """The greatest record time so far in each event's partition."""
    latest: dict[tuple[int, int], int] = {}
    known = {}
    for recorded in ascending:
        lane = recorded.position[:2]
        latest[lane] = max(latest.get(lane, recorded.recorded_at_us), recorded.recorded_at_us)
        known[recorded.position] = latest[lane]
    return known


def write_archive(root: Path, events: Sequence[Recorded], cuts: Sequence[int]) -> None:
    """Segments of a few offsets each; `cuts` says how many, and how far each reaches back into the one before it."""
    archive.create(root)
    lanes: dict[tuple[int, int], list[Recorded]] = defaultdict(list)
    for recorded in events:
        lanes[recorded.position[:2]].append(recorded)
    for lane, of_lane in lanes.items():
        offset, turn = 0, 0
        while offset <= of_lane[-1].position.offset:
            first = max(0, offset - cuts[(turn + 1) % len(cuts)] // 2)
            last = offset + cuts[turn % len(cuts)]
            records = [
                archive.to_record(r.event, r.position, r.recorded_at_us, r.replay)
                for r in of_lane
                if first <= r.position.offset <= last
            ]
            archive.write_segment(root, *lane, first, last, records)
            offset, turn = last + 1, turn + 1
