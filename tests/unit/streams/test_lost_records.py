"""Which offsets are lost to whom, by who had come how far."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from leap_streams.lost_records import Losses, losses, shown

GONE: Mapping[int, int] = {}


@pytest.mark.parametrize(
    ("checkpoint", "archived", "left", "only_archive", "only_online", "nowhere"),
    [
        # The topic's life is over: whatever only one of the two has is lost to the other.
        (10, range(10), None, None, None, None),
        (7, range(10), None, range(7, 10), None, None),
        (10, range(7), None, None, range(7, 10), None),
        (None, range(3, 10), None, range(3, 10), None, None),
        (10, None, None, None, range(10), None),
        # Retention: what the log still has is lost to nobody.
        (10, range(10), 5, None, None, None),
        (7, range(10), 9, range(7, 9), None, None),
        (7, range(10), 12, range(7, 10), None, range(10, 12)),
        (10, range(7), 9, None, range(7, 9), None),
        (10, range(7), 12, None, range(7, 10), range(10, 12)),
        (4, range(4), 9, None, None, range(4, 9)),
    ],
)
def test_losses_of_a_partition(
    checkpoint: int | None,
    archived: range | None,
    left: int | None,
    only_archive: range | None,
    only_online: range | None,
    nowhere: range | None,
) -> None:
    def of_partition_2(value: object) -> dict[int, object]:
        return {} if value is None else {2: value}

    found = losses(
        {} if checkpoint is None else {2: checkpoint},
        {} if archived is None else {2: archived},
        {} if left is None else {2: left},
    )
    assert found == tuple(map(of_partition_2, (only_archive, only_online, nowhere)))
    assert bool(found) == any((only_archive, only_online, nowhere))


def test_partitions_are_reckoned_apart() -> None:
    found = losses({0: 5, 1: 8}, {0: range(6), 2: range(1)}, GONE)
    assert found == Losses({0: range(5, 6), 2: range(1)}, {1: range(8)}, {})


def test_losses_are_shown_in_all_and_by_partition() -> None:
    assert shown({3: range(7, 8)}) == "1 record (partition 3: offset 7)"
    assert shown({3: range(7, 9), 0: range(1500)}) == (
        "1,502 records (partition 0: offsets 0 to 1499; partition 3: offsets 7 to 8)"
    )
