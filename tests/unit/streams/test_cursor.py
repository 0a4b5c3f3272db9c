from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leap_streams.cursor import Cursor, Verdict


def test_records_in_order_are_taken() -> None:
    cursor = Cursor(5)
    assert [cursor.take(offset) for offset in (5, 6, 7)] == [Verdict.TAKE] * 3
    assert cursor.next == 8


def test_a_redelivery_is_dropped() -> None:
    cursor = Cursor(5)
    assert cursor.take(4) is Verdict.DROP
    assert cursor.next == 5


def test_a_record_fetched_before_a_rewind_is_not_taken_for_the_next() -> None:
    cursor = Cursor(0)
    for offset in range(10):
        cursor.take(offset)
    cursor.rewind(4)
    assert cursor.take(10) is Verdict.GAP
    cursor.learn([4, 5, 6])
    assert cursor.take(10) is Verdict.DROP
    assert cursor.take(11) is Verdict.DROP
    assert cursor.take(4) is Verdict.TAKE


def test_a_hole_in_the_log_is_passed_once_the_log_has_shown_it() -> None:
    cursor = Cursor(3)
    assert cursor.take(7) is Verdict.GAP
    assert cursor.learn([7, 8, 11]) is False
    assert [cursor.take(offset) for offset in (7, 8, 11)] == [Verdict.TAKE] * 3


def test_a_record_that_was_lost_on_the_way_is_waited_for() -> None:
    cursor = Cursor(3)
    assert cursor.take(7) is Verdict.GAP
    assert cursor.learn([3, 4]) is True
    assert cursor.take(7) is Verdict.DROP
    assert cursor.take(3) is Verdict.TAKE


def test_a_rewind_forwards_skips_what_another_worker_has_taken_in() -> None:
    cursor = Cursor(3)
    cursor.rewind(6)
    assert [cursor.take(offset) for offset in (3, 4, 5, 6)] == [Verdict.DROP] * 3 + [Verdict.TAKE]


@given(
    st.sets(st.integers(0, 60), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.booleans(), st.booleans()), max_size=25),
)
def test_every_record_is_taken_exactly_once_and_in_order_whatever_is_on_its_way(
    log: set[int], faults: list[tuple[int, int, bool, bool]]
) -> None:
    """A consumer that fetches ahead and loses records, seeks that leave fetched ones on their way, refused batches."""
    records = sorted(log)
    cursor = Cursor(records[0])
    taken: list[int] = []
    upcoming = 0
    pipeline: list[int] = []

    def seek(to: int, stale: int) -> None:
        nonlocal upcoming
        del pipeline[stale:]
        upcoming = next((i for i, record in enumerate(records) if record >= to), len(records))

    script = iter(faults)
    while len(taken) < len(records):
        pipeline += records[upcoming : upcoming + 3]
        upcoming = min(upcoming + 3, len(records))
        if not pipeline:
            seek(cursor.next, 0)  # what a watchdog does about a partition that stands still
            continue
        back, stale, refused, lost = next(script, (0, 0, False, False))
        offset = pipeline.pop(0)
        if lost:
            continue
        verdict = cursor.take(offset)
        if verdict is Verdict.GAP:
            if cursor.learn([record for record in records if record >= cursor.next][:2]):
                seek(cursor.next, stale)
            verdict = cursor.take(offset)
        if verdict is Verdict.TAKE:
            taken.append(offset)
            if refused:
                # The store went back by `back` records: they must come again.
                del taken[max(0, len(taken) - back) :]
                cursor.rewind(taken[-1] + 1 if taken else records[0])
                seek(cursor.next, stale)
    assert taken == records
