"""The history worker: completion events from Kafka into the online store. `faust -A leap_streams.worker worker`.

The app is built from the `LEAP_*` environment when it is first asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from leap_features.family import load_rules
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams.attempt_lookup import attempt_lookup
from leap_streams.dead_letter import DeadLetterTopic
from leap_streams.faults import Halt, Unavailable
from leap_streams.followed_topic import FollowedTopic, stored_meta
from leap_streams.history_writer import OUTCOMES, Delivery, HistoryWriter
from leap_streams.intake import Intake
from leap_streams.metrics import Metrics
from leap_streams.rejection_log import RejectionLog
from leap_streams.retention import passed_the_store
from leap_streams.store import Session, Store, session_of

LINGER_S: Final = 0.03
"""Longest wait to fill a batch while the worker keeps up: a few exchanges with the store."""


class HistorySink:
    """Where the worker's batches go: rows and attempts to the online store, dead letters to their topic."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._rejections = RejectionLog(metrics.app)
        self._rules = load_rules(settings.family_rules)
        self._store = _TimedStore(settings, metrics)
        self._topic = FollowedTopic(settings)
        self._dead_letters = DeadLetterTopic(settings)
        self._writer = HistoryWriter(settings, self._store, None, self._rules)
        self._session: Session  # as of the latest `begin`, `where` or `take`
        self._meta: Meta

    def begin(self) -> Mapping[int, int]:
        """Read the store's meta: checkpoints, and the generation that every write must name."""
        followed = self._topic.followed(self._store)
        self._writer.partitions = followed.partitions
        return self._follow(followed.meta)

    def where(self) -> Mapping[int, int]:
        """Read the store's meta again."""
        self._rejections.sum_up()
        return self._follow(stored_meta(self._store))

    def check(self) -> None:
        """Look at the topic, which may have been recreated or may have grown."""
        self._writer.partitions = self._topic.check(self._meta)

    def _follow(self, meta: Meta) -> Mapping[int, int]:
        if meta.family_rule != self._rules.version:
            raise Halt(
                f"the online store was made under family rule {meta.family_rule!r}, this worker has "
                f"{self._rules.version!r}: use the same rules (LEAP_FAMILY_RULES), or run `leap rebuild`"
            )
        if meta.state != "ready":
            raise Unavailable("the online store is being rebuilt")
        self._writer.find_attempts = attempt_lookup(self._settings)  # the archive may have come meanwhile
        self._meta, self._session = meta, session_of(meta)
        self._metrics.store_is(meta.epoch, meta.generation)
        return meta.checkpoints

    def take(self, deliveries: Sequence[Delivery], log_starts: Mapping[int, int] = {}) -> Mapping[str, int]:
        """Write the rows, then the dead letters, then the checkpoints."""
        self._topic.confirm(self._meta)
        batch = self._writer.write(deliveries, self._session, self._meta.epoch)
        if batch.rejected:
            self._dead_letters.send(batch.rejected)
        self._session = self._store.move_checkpoints(self._session, batch.checkpoints)
        if batch.rejected:
            self._metrics.dead_letters(letter.rule for letter in batch.rejected)
            self._rejections.say(batch.rejected)
        return batch.counts

    def passed(self, gone: Mapping[int, range]) -> str:
        """What it means that retention has deleted the offsets `gone`, and what to do."""
        return passed_the_store(self._settings, self._meta, gone)

    def close(self) -> None:
        """Close the connection to Redis."""
        self._rejections.sum_up(now=True)
        self._store.close()


class _TimedStore(Store):
    """A store whose exchanges are timed."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        super().__init__(settings)
        self._metrics = metrics

    def call(self, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """As in `Store`."""
        began = time.perf_counter()
        try:
            return super().call(commands)
        finally:
            self._metrics.exchanged(time.perf_counter() - began)


def build(settings: Settings) -> Intake:
    """The history worker of `settings`, not yet running."""
    name = f"{settings.project}-history"
    metrics = Metrics(name, OUTCOMES)
    return Intake(
        name,
        settings,
        lambda: HistorySink(settings, metrics),
        metrics,
        batch_max=settings.batch_max,
        batch_within_s=settings.batch_within_s,
        linger_s=min(LINGER_S, settings.batch_within_s),
    )


def __getattr__(name: str) -> Any:
    # Built when Faust asks for it: importing this module must not need an environment.
    if name == "app":
        return build(Settings.from_env()).app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
