"""The archive app: every valid completion event, with its position and record time, to Parquet segments.

It is a consumer group of its own and begins where the archive ends. A segment covers a range of offsets without a gap,
invalid records and holes of the log included; it is on disk before the records are acknowledged.
`faust -A leap_streams.archive worker`.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from leap_features import archive, archive_epochs
from leap_features.archive_epochs import Life
from leap_features.durable import remove_leftovers
from leap_features.events import InvalidEvent, decode
from leap_features.family import load_rules
from leap_features.history import Position
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams.faults import Halt, Refused, Unavailable
from leap_streams.followed_topic import FollowedTopic, stored_meta
from leap_streams.history_writer import Delivery
from leap_streams.intake import Intake
from leap_streams.metrics import Metrics
from leap_streams.retention import passed_the_archive
from leap_streams.store import Store

log = logging.getLogger("leap.archive")

OUTCOMES: Final = ("archived", "invalid")
"""What may become of a record."""


class ArchiveSink:
    """Where the archive's batches go: one segment per partition and batch."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = Path(settings.archive)
        self._rules = load_rules(settings.family_rules)
        self._store = Store(settings)
        self._topic = FollowedTopic(settings)
        self._meta: Meta  # as of the latest `begin`
        self._ends: dict[int, int] = {}

    def begin(self) -> Mapping[int, int]:
        """Where the archive of the topic's present life ends, per partition."""
        meta = self._topic.followed(self._store).meta  # it names the topic's epoch
        try:
            archive.create(self._root)
            for leftover in remove_leftovers(self._root, time.time()):
                log.info("removed %s, which a writer that was killed has left", leftover)
            archive_epochs.note(self._root, meta.epoch, Life(meta.topic_uuid))
            archive.check_complete(self._root)
            ends = archive.end_offsets(self._root, meta.epoch)
        except archive.ArchiveError as error:
            raise Halt(str(error)) from None
        except OSError as error:
            raise self._unavailable(error) from error
        self._meta, self._ends = meta, ends
        return dict(ends)

    def where(self) -> Mapping[int, int]:
        """Where the archive ends, as this app has written it; read afresh if the topic's epoch has changed."""
        return dict(self._ends) if stored_meta(self._store).epoch == self._meta.epoch else self.begin()

    def check(self) -> None:
        """Look at the topic, which may have been recreated."""
        self._topic.check(self._meta)

    def take(self, deliveries: Sequence[Delivery], log_starts: Mapping[int, int] = {}) -> Mapping[str, int]:
        """Write one segment per partition; what a segment has already is left out."""
        self._topic.confirm(self._meta)
        if stored_meta(self._store).epoch != self._meta.epoch:
            raise Refused("the topic has a new epoch")
        by_partition: dict[int, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_partition[delivery.partition].append(delivery)
        archived = invalid = 0
        for partition, delivered in by_partition.items():
            first = self._ends.get(partition, log_starts.get(partition, delivered[0].offset))
            # Where the disk failed between two segments, the batch comes again and the first of them is there.
            records = [delivery for delivery in delivered if delivery.offset >= first]
            if not records:
                continue
            rows = [row for delivery in records if (row := self._row(delivery)) is not None]
            last = records[-1].offset
            at_us = records[0].recorded_at_us
            try:
                archive.write_segment(self._root, self._meta.epoch, partition, first, last, rows, recorded_at_us=at_us)
            except FileExistsError:
                pass  # by another instance, before a rebalance: the same offsets, and so the same rows
            except OSError as error:
                raise self._unavailable(error) from error
            self._ends[partition] = last + 1
            archived += len(rows)
            invalid += len(records) - len(rows)
        return {"archived": archived, "invalid": invalid, "segments": len(by_partition)}

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(f"archive {self._root}: {error}")

    def _row(self, delivery: Delivery) -> dict[str, Any] | None:
        if delivery.value is None:
            return None
        try:
            event = decode(delivery.value)
        except InvalidEvent:
            return None  # the history worker alone writes dead letters; here the offset is covered and that is all
        position = Position(self._meta.epoch, delivery.partition, delivery.offset)
        return archive.to_record(event, position, delivery.recorded_at_us, delivery.replay, self._rules)

    def passed(self, gone: Mapping[int, range]) -> str:
        """What it means that retention has deleted the offsets `gone`, and what to do."""
        return passed_the_archive(self._settings, self._meta, gone)

    def close(self) -> None:
        """Close the connection to Redis."""
        self._store.close()


def build(settings: Settings) -> Intake:
    """The archive app of `settings`, not yet running."""
    name = f"{settings.project}-archive"
    return Intake(
        name,
        settings,
        lambda: ArchiveSink(settings),
        Metrics(name, OUTCOMES),
        batch_max=settings.archive_batch_max,
        batch_within_s=settings.archive_within_s,
        linger_s=settings.archive_within_s,  # few large files rather than fresh ones
    )


def __getattr__(name: str) -> Any:
    # Built when Faust asks for it: importing this module must not need an environment.
    if name == "app":
        return build(Settings.from_env()).app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
