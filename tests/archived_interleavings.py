"""`Interleavings` with a real archive, from which the store is rebuilt and repaired while workers go on."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from interleavings import ATTEMPTS, PARTITIONS, ROWS, Action, Interleavings, Take, actions, plain_takes
from leap_features import archive, layout
from leap_features.events import from_us
from leap_features.family import DEFAULT_RULES
from leap_features.history import Position, Row, encode_state
from leap_features.levels import LEVELS
from leap_features.meta import Claim
from leap_features.settings import Settings
from leap_streams.audit import audit
from leap_streams.epoch import EpochRefused, TopicNow, new_epoch
from leap_streams.faults import Unavailable
from leap_streams.rebuild import RebuildRefused, rebuild
from leap_streams.topic_bounds import Bounds
from model_log import HORIZON_US, Identity

MOST_REBUILDS: Final = 3
"""In one example: each takes half a second."""


class Meanwhile(NamedTuple):
    """What happens while a rebuild says its so many-th line."""

    line: int
    action: Action


DAMAGES: Final = ("a row is gone", "a row is wrong", "an attempt is forgotten")
WRONG: Final = Row(n=7, sum_x=7, sum_xx=7)

meanwhile = st.builds(Meanwhile, st.integers(1, 12), actions)


class ArchivedInterleavings(Interleavings):
    """See the module."""

    def __init__(self, settings: Settings) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="leap-interleavings-")
        root = Path(self.directory.name)
        settings = msgspec.structs.replace(settings, archive=str(root / "archive"), history=str(root / "history"))
        archive.create(settings.archive)
        self.rebuilds = 0
        self.damaged = False
        self.was_damaged = False
        super().__init__(settings)

    def archive_to(self, partition: int, end: int) -> None:
        first = self.life.archived[partition]
        if end > first:
            rows = [
                archive.to_record(r.event, r.position, r.delivery.recorded_at_us, r.delivery.replay)
                for r in self.life.logs[partition][first:end]
                if r.event is not None
            ]
            at_us = self.life.logs[partition][first].delivery.recorded_at_us
            root, epoch = self.settings.archive, self.life.epoch
            archive.write_segment(root, epoch, partition, first, end - 1, rows, recorded_at_us=at_us)
        super().archive_to(partition, end)

    def find_attempts(self, wanted: Sequence[Identity]) -> Mapping[Identity, tuple[Position, str]]:
        found = archive.find_attempts(self.settings.archive, wanted, HORIZON_US)
        assert found == super().find_attempts(wanted)
        return found

    @property
    def bounds(self) -> dict[int, Bounds]:
        """What the broker says of the topic."""
        return {partition: Bounds(0, len(log)) for partition, log in enumerate(self.life.logs)}

    @precondition(lambda self: self.rebuilds < MOST_REBUILDS)
    @rule(happens=st.lists(meanwhile, max_size=3))
    def rebuild(self, happens: list[Meanwhile]) -> None:
        self.rebuilds += 1
        lines = 0

        def say(_line: str) -> None:
            nonlocal lines
            lines += 1
            for at, action in happens:
                if at == lines:
                    self.do(action)

        try:
            rebuild(
                self.settings,
                rules=DEFAULT_RULES,
                bounds_of=lambda _settings: self.bounds,
                uuid_of=lambda _settings: "",
                acknowledged_of=lambda _settings, _partitions: dict(self.acknowledged),
                say=say,
                now=lambda: from_us(self.now_us),
            )
        except (RebuildRefused, Unavailable):
            return
        self._rebuilt()

    def _rebuilt(self) -> None:
        """From now on those count that the archive has first."""
        identities = sorted({record.identity for record in self.records() if record.run})
        firsts = super().find_attempts(identities)
        self.forgotten = {identity: Claim(*first) for identity, first in firsts.items()}
        self._decided()

    def _decided(self) -> None:
        """The archive has decided between partitions that tell an attempt differently."""
        claims = self.claims()
        for record in self.taken_in(self.meta()):
            if record.run and record.digest != claims[record.identity].digest and record.position not in self.dead:
                self.check_contested(record)
                self.excused.add(record.position)
        self.went_back = True
        self.check()

    @precondition(lambda self: self.rebuilds < MOST_REBUILDS and self.meta().state == "ready")
    @rule(damage=st.sampled_from(DAMAGES), which=st.integers(0, 30), happens=st.lists(plain_takes, max_size=3))
    def damage_and_repair(self, damage: str, which: int, happens: list[Take]) -> None:
        """Workers go on with what is left, and later on the repair mends it."""
        keys = sorted(self.client.keys(ATTEMPTS if damage == "an attempt is forgotten" else ROWS))
        if not keys:
            return
        self.rebuilds += 1
        self.backups = []
        self.damaged = self.was_damaged = True
        self._damage(damage, keys[which % len(keys)])
        for take in happens:
            self.do(take)
        self.take_in_all()
        for partition, log in enumerate(self.life.logs):
            self.archive_to(partition, len(log))
        result = audit(self.settings, rules=DEFAULT_RULES, repair=True, now=lambda: from_us(self.now_us))
        assert result.sound, result
        self.damaged = False
        self._decided()

    def _damage(self, damage: str, key: bytes) -> None:
        if damage != "a row is wrong":
            self.client.delete(key)
            return
        names, _ = layout.decode_entity_key(key, self.settings.project)
        for level in LEVELS:
            if tuple(sorted(level.join_keys)) == names:
                self.client.hset(key, layout.field(level.view, "state"), layout.encode_value(encode_state(WRONG)))

    def check(self) -> None:
        if not self.damaged:
            super().check()

    def take_new_epoch(self) -> bool:
        recreated = TopicNow("", {partition: Bounds(0, 0) for partition in range(PARTITIONS)}, {})
        try:
            new_epoch(self.settings, look=lambda _settings: recreated)
        except EpochRefused:
            return False
        return True

    def teardown(self) -> None:
        try:
            while self.meta().state == "rebuilding":
                self.rebuild([])
            super().teardown()
        finally:
            self.directory.cleanup()
