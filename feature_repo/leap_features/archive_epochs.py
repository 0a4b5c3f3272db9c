"""Which life of the topic each live epoch of the archive is, so that offsets of two lives are never taken for one.

A topic that is deleted and created again counts its offsets from 0 anew. The online store knows which life it follows;
where the store is lost, the archive must know it. `epoch={E}/topic.json` is written once and never changes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from leap_features.durable import durable_directory, publish
from leap_features.meta import FIRST_LIVE_EPOCH

NOTE: Final = "topic.json"

_EPOCH: Final = re.compile(r"epoch=(\d+)")


class ArchiveError(RuntimeError):
    """A directory that is no archive, or one of another format; the message says what to do."""


class Life(msgspec.Struct, frozen=True):
    """One life of the topic."""

    topic_uuid: str
    begins: dict[int, int] = {}
    """Partition → first offset that its log had when the epoch began, where that is not 0."""


def live_epochs(root: Path | str) -> list[int]:
    """The live epochs that the archive has anything of, ascending."""
    found = [int(m[1]) for entry in Path(root).iterdir() if (m := _EPOCH.fullmatch(entry.name)) and entry.is_dir()]
    return sorted(epoch for epoch in found if epoch >= FIRST_LIVE_EPOCH)


def noted(root: Path | str, epoch: int) -> Life | None:
    """The life of the topic that `epoch` is; None where that has not been noted.

    Raises:
        ArchiveError: the note cannot be read.
    """
    path = Path(root) / f"epoch={epoch:d}" / NOTE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Life)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{path}: {error}; restore it from another archive, or remove it") from None


def note(root: Path | str, epoch: int, life: Life) -> None:
    """Note durably that `epoch` is `life`, unless that is noted already; nothing where the broker tells no UUID.

    Raises:
        ArchiveError: the epoch is another life of the topic.
    """
    if not life.topic_uuid:
        return
    before = noted(root, epoch)
    if before is None:
        directory = durable_directory(Path(root), f"epoch={epoch:d}")
        try:
            publish(directory, NOTE, msgspec.json.encode(life) + b"\n", replace=False)
        except FileExistsError:  # another process was first
            before = noted(root, epoch)
    if before is not None and before.topic_uuid != life.topic_uuid:
        raise ArchiveError(
            f"archive {root} has epoch {epoch} of the topic with UUID {before.topic_uuid}, not {life.topic_uuid}: the "
            "online store is not the one that the archive goes with (LEAP_ARCHIVE?); `leap rebuild` makes it from there"
        )
