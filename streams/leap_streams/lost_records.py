"""Which records of a life of the topic are gone, and who had taken them in: reckoned per partition, in offsets.

Both the online store and the archive take a partition in from its beginning and without a gap, so that one offset says
what each of them has. A range may hold fewer records than offsets: transaction markers take some up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Ranges = dict[int, range]
"""Partition → offsets."""


class Losses(NamedTuple):
    """Offsets that the topic no longer has."""

    only_archive: Ranges
    """Archived, and never taken in online: a rebuild restores them."""
    only_online: Ranges
    """Taken in online, and never archived: no rebuild will have them."""
    nowhere: Ranges
    """Neither. Of a topic that is gone nobody knows how many more there were."""

    def __bool__(self) -> bool:
        """Whether there are any."""
        return any(self)


def losses(checkpoints: Mapping[int, int], archived: Mapping[int, range], first_left: Mapping[int, int]) -> Losses:
    """What has been lost of one life of the topic.

    Args:
        checkpoints: next offset that the online store takes in; a partition that it has nothing of is absent.
        archived: offsets in the archive, likewise.
        first_left: the first offset that the topic still has; absent where it has none of that life.
    """
    found = Losses({}, {}, {})
    for partition in sorted({*checkpoints, *archived}):
        own = archived.get(partition, range(0))
        # Where the store has nothing of a partition, it would begin where the log did.
        online = checkpoints.get(partition, own.start)
        left = first_left.get(partition)
        gone = max(online, own.stop) if left is None else left
        for ranges, offsets in (
            (found.only_archive, range(max(online, own.start), min(own.stop, gone))),
            (found.only_online, range(own.stop, min(online, gone))),
            (found.nowhere, range(max(online, own.stop), gone)),
        ):
            if offsets:
                ranges[partition] = offsets
    return found


def shown(ranges: Mapping[int, range]) -> str:
    """How many records they are, in all and where: `7 records (partition 0: offsets 3 to 9)`."""
    count = sum(map(len, ranges.values()))
    places = "; ".join(
        f"partition {partition}: {_offsets(offsets)}" for partition, offsets in sorted(ranges.items()) if offsets
    )
    return f"{count:,} record{'' if count == 1 else 's'} ({places})"


def _offsets(offsets: range) -> str:
    return f"offset {offsets[0]}" if len(offsets) == 1 else f"offsets {offsets[0]} to {offsets[-1]}"
