"""What the doctor knows of a deployment: one record per source that was asked, and what each told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from leap_features.history_build import Build
from leap_features.meta import Meta
from leap_features.settings import Settings
from leap_streams.dead_letter_log import RuleCount
from leap_streams.kafka import TopicFacts
from leap_streams.store_server import ServerFacts
from leap_streams.topic_bounds import Bounds

App = Literal["history", "archive"]
APPS: Final[tuple[App, ...]] = ("history", "archive")


class Missing(msgspec.Struct, frozen=True):
    """In place of what a source did not tell."""

    reason: str
    asked: bool = True
    """False: it could not be asked, and nothing need be wrong with it."""


class TopicShape(NamedTuple):
    """How a topic is laid out."""

    partitions: int
    replicas: int
    """Of the partition that has fewest."""


class Member(NamedTuple):
    """A process in a consumer group."""

    name: str
    partitions: tuple[int, ...]
    """Of the completions topic, that it was given."""


class Group(NamedTuple):
    """A consumer group."""

    state: str
    members: tuple[Member, ...]


class Record(NamedTuple):
    """What matters of a record of the completions topic. Times are microseconds since 1970, UTC."""

    partition: int
    recorded_at_us: int
    key: bytes | None
    model_type: str | None = None
    """None: the record is no valid event."""
    completed_at_us: int | None = None


class Sample(NamedTuple):
    """The latest records of each partition."""

    records: tuple[Record, ...]
    grown_before_us: int | None
    """When the last partition was there already, by its first record. None: it has no record, which tells nothing."""


class RedisServer(NamedTuple):
    """The server that holds the online store, and what that says about itself."""

    server: ServerFacts
    appendfsync: str
    """Empty where the user may not ask."""
    ahead_s: float
    """How far its clock is ahead of this machine's."""
    meta: Meta | Missing | None
    """None: there is none."""


class Archive(NamedTuple):
    """The archive's directory."""

    ends: Mapping[tuple[int, int], int]
    """(epoch, partition) → offset after the last one that is archived; where the epoch begins, if none is."""
    lives: Mapping[int, str]
    """Live epoch → UUID of the topic that it is of, where the archive knows it."""
    segments: int
    hole: str
    """Where events are missing; empty: nowhere."""
    writable: bool
    free_bytes: int
    total_bytes: int
    newest_rules: frozenset[str]
    """Family rules of the newest rows."""


class Bundle(NamedTuple):
    """The bundle that launchers serve."""

    bundle_id: str
    project: str
    history_schema: str
    family_rule: str


ONLINE_STORE: Final = "leap_features.online_store.AtomicRedisOnlineStore"
"""Type of the online store that `feature_store.yaml` must have."""


class Registry(NamedTuple):
    """Feast's registry beside the definitions of the feature repository."""

    applied: bool
    changes: tuple[str, ...]
    """What `feast apply` would change."""
    file_project: str
    """Project in `feature_store.yaml`."""
    online_store: str
    """Type of the online store in `feature_store.yaml`. With another than ours the registry is not looked at."""
    expiring: tuple[str, ...]
    """Registered views whose rows have a ttl."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    settings: Settings
    now_us: int
    """This machine's clock, microseconds since 1970."""
    family_rule: str | Missing
    """Version of the family rules of this environment."""
    policy: Missing | None
    """None: there is none, or it can be read."""
    topics: Mapping[str, TopicShape] | Missing
    """Those of the completions and the dead-letter topic that exist."""
    configs: Mapping[str, TopicFacts] | Missing
    """Of the topics that exist."""
    bounds: Mapping[int, Bounds] | Missing
    """Of the completions topic's partitions."""
    groups: Mapping[App, Group] | Missing
    sample: Sample | Missing
    waiting: Mapping[App, Mapping[int, int]] | Missing
    """Per app and partition with records that it has not taken in: record time of the first one."""
    dead_letters: Mapping[str, RuleCount] | Missing
    """Rule → what the dead-letter topic has of it."""
    redis: RedisServer | Missing
    archive: Archive | Missing
    history: Build | Missing | None
    """What the served history rows were made from; None: there are none."""
    bundle: Bundle | Missing | None
    """None: none is published."""
    registry: Registry | Missing


def meta_of(redis: RedisServer | Missing) -> Meta | None:
    """The online store's meta; None where there is none, or it is not known."""
    return redis.meta if isinstance(redis, RedisServer) and isinstance(redis.meta, Meta) else None


def taken_in(app: App, redis: RedisServer | Missing, archive: Archive | Missing) -> dict[int, int] | None:
    """Partition → offset after the last one that `app` has taken in, if any; None where that is not known."""
    meta = meta_of(redis)
    if meta is None:
        return None
    if app == "history":
        return meta.checkpoints
    if isinstance(archive, Missing):
        return None
    return {partition: end for (epoch, partition), end in archive.ends.items() if epoch == meta.epoch}
