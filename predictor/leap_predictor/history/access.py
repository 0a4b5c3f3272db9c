"""Where a ranking's history comes from: the online store, or a snapshot where the store fails and the policy allows.

Whatever answers must be of the bundle's schema and family rule: history of another kind is no history.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from leap_features.events import to_us
from leap_features.levels import Subject
from leap_predictor.errors import StoreError, StoreTimeout
from leap_predictor.explanation import Reason, Source
from leap_predictor.findings import NoAnswer
from leap_predictor.history.request import Reading
from leap_predictor.history.source import HistorySource
from leap_predictor.manifest import Manifest
from leap_predictor.policy import Policy


class Snapshot(HistorySource, Protocol):
    """A source that is as of one time."""

    @property
    def as_of(self) -> datetime | None:
        """Aware; None: there is no snapshot that can be read."""


@dataclass(frozen=True)
class History:
    """What was read."""

    reading: Reading
    source: Source
    warning: str = ""
    """Why a snapshot had to stand in; empty: it had not."""


class HistoryAccess:
    """Reads from the store, else from the snapshot.

    Args:
        store: the online store.
        snapshot: what may stand in for it; None: nothing.
        project: Feast project, for messages.
    """

    def __init__(self, store: HistorySource, snapshot: Snapshot | None, project: str) -> None:
        self.store = store
        self.snapshot = snapshot
        self._project = project

    def warm_up(self) -> None:
        """Begin to connect, and to read the snapshot."""
        self.store.warm_up()
        if self.snapshot is not None:
            self.snapshot.warm_up()

    def close(self) -> None:
        """End threads and connections."""
        self.store.close()
        if self.snapshot is not None:
            self.snapshot.close()

    def read(
        self,
        manifest: Manifest,
        subjects: Sequence[Subject],
        policy: Policy,
        *,
        until: float,
        deadline: float,
        now_us: int,
    ) -> History:
        """The history of `subjects`.

        Args:
            manifest: of the bundle that will use it.
            subjects: whose history.
            policy: whether a snapshot may stand in.
            until: when to give up the store, as `time.monotonic` counts.
            deadline: when to give up the snapshot, which takes no time worth keeping back for it.
            now_us: microseconds since 1970 UTC.

        Raises:
            NoAnswer: there is none that may be used.
        """
        try:
            reading = self.store.read(manifest.views, subjects, within_s=until - time.monotonic())
        except StoreError as error:
            return self._from_snapshot(error, manifest, subjects, policy, deadline, now_us)
        self._check(reading, manifest, "online store", "run `leap init`", "run `leap rebuild`")
        return History(reading, "live")

    def _from_snapshot(
        self,
        failure: StoreError,
        manifest: Manifest,
        subjects: Sequence[Subject],
        policy: Policy,
        deadline: float,
        now_us: int,
    ) -> History:
        reason = Reason.STORE_SLOW if isinstance(failure, StoreTimeout) else Reason.STORE_UNAVAILABLE
        if self.snapshot is None or not policy.history.snapshot:
            raise NoAnswer(reason, str(failure)) from failure
        try:
            reading = self.snapshot.read(manifest.views, subjects, within_s=deadline - time.monotonic())
        except StoreError as error:
            raise NoAnswer(reason, f"{failure}; and no snapshot stands in: {error}") from failure
        as_of = self.snapshot.as_of
        made = "of no known time" if as_of is None else f"of {as_of.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        if as_of is None or policy.snapshot_too_old(to_us(as_of), now_us):
            raise NoAnswer(reason, f"{failure}; and the snapshot, {made}, is older than the policy allows")
        self._check(reading, manifest, "snapshot", "run `leap snapshot`", "run `leap snapshot`")
        return History(reading, "snapshot", f"the snapshot {made} stands in for the online store: {failure}")

    def _check(self, reading: Reading, manifest: Manifest, what: str, if_absent: str, if_other: str) -> None:
        meta = reading.meta
        if reading.torn:
            raise NoAnswer(Reason.HISTORY_REBUILDING, "history was replaced while it was read")
        if meta is None:
            raise NoAnswer(
                Reason.HISTORY_ABSENT, f"the {what} has no history of project {self._project!r}: {if_absent}"
            )
        if meta.schema != manifest.history_schema:
            raise NoAnswer(
                Reason.HISTORY_OF_OTHER_SCHEMA,
                f"the {what} has schema version {meta.schema!r}, the bundle wants {manifest.history_schema!r}: "
                f"{if_other}",
            )
        if meta.state != "ready":
            raise NoAnswer(Reason.HISTORY_REBUILDING, f"the {what} is {meta.state or 'in no state'}, not ready")
        if meta.family_rule != manifest.family_rule:
            raise NoAnswer(
                Reason.FAMILY_RULE_DIFFERS,
                f"history is kept by family rule {meta.family_rule!r}, the bundle has {manifest.family_rule!r}: "
                f"{if_other}, or train again",
            )
