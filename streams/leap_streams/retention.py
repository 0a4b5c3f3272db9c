"""What it means for an app that the topic has deleted records which the app has not taken in yet, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from leap_features import archive
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams.lost_records import losses, shown


def passed_the_store(settings: Settings, meta: Meta, gone: Mapping[int, range]) -> str:
    """For the worker: `gone` were not taken in online; whether the archive has them."""
    begins = f"topic {settings.topic}: deleted by retention before they were taken in: {shown(gone)}"
    try:
        archived = archive.archived_offsets(settings.archive, meta.epoch)
    except (archive.ArchiveError, OSError) as error:
        return f"{begins}; whether the archive has them cannot be seen here ({error}): run `leap rebuild` where it can"
    starts = {partition: offsets.start for partition, offsets in gone.items()}
    lost = losses(starts, {p: offsets for p, offsets in archived.items() if p in gone}, _stops(gone))
    if not lost.nowhere:
        return f"{begins}; the archive has them all: `leap rebuild` restores history from it"
    if lost.only_archive:
        return (
            f"{begins}; the archive has {shown(lost.only_archive)}, the others are lost: `leap rebuild --new-epoch` "
            "restores what it has"
        )
    return f"{begins}; the archive lacks them too, they are lost: `leap epoch new --accept-loss` goes on without them"


def passed_the_archive(settings: Settings, meta: Meta, gone: Mapping[int, range]) -> str:
    """For the archive app: `gone` were not archived; whether the online store has taken them in."""
    begins = f"topic {settings.topic}: deleted by retention before they were archived: {shown(gone)}"
    online = {p: offset for p, offset in meta.checkpoints.items() if p in gone}
    lost = losses(online, {p: range(offsets.start) for p, offsets in gone.items()}, _stops(gone))
    has = shown(lost.only_online) if lost.only_online else "none"
    return (
        f"{begins}; the online store has taken in {has} of them: `leap epoch new --accept-loss` goes on without them "
        "in the archive"
    )


def _stops(gone: Mapping[int, range]) -> dict[int, int]:
    return {partition: offsets.stop for partition, offsets in gone.items()}
