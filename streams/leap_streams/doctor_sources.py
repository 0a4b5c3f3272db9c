"""What the doctor asks of Redis, of files and of Feast. It writes nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from leap_features import archive, archive_epochs, archive_reader, family, history_build, redis_address
from leap_features.archive import ArchiveHole, Segment
from leap_features.meta import FIRST_LIVE_EPOCH, MetaError, decode_meta, meta_key
from leap_features.settings import Settings
from leap_predictor import bundle as bundles
from leap_predictor.policy import read_policy
from leap_streams import store_server
from leap_streams.doctor_facts import Archive, Bundle, Missing, RedisServer, Registry

TIMEOUT_S: Final = 5.0
"""Of one question to Redis."""
NEWEST_SEGMENTS: Final = 64
"""Of those segments the family rules are read: the newest one of every partition, in most deployments."""


def redis_server(settings: Settings) -> RedisServer:
    """What the online store's server says.

    Raises:
        RedisError: it does not answer, or refuses this user.
    """
    retry = Retry(NoBackoff(), 0)
    with redis_address.client(
        settings.redis_url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=retry
    ) as client:
        told = store_server.facts_of(client.info("all"))
        asked_s = time.time()
        seconds, microseconds = client.time()
        answered_s = time.time()
        fields = client.hgetall(meta_key(settings.project))
        try:
            fsync = str(client.config_get("appendfsync").get("appendfsync", ""))
        except redis.ResponseError:  # this user may not ask, or the service has no such command
            fsync = ""
    try:
        meta = decode_meta(fields)
    except MetaError as error:
        return RedisServer(told, fsync, _ahead(asked_s, seconds + microseconds / 1e6, answered_s), Missing(str(error)))
    return RedisServer(told, fsync, _ahead(asked_s, seconds + microseconds / 1e6, answered_s), meta)


def _ahead(asked_s: float, told_s: float, answered_s: float) -> float:
    """How far a clock is ahead at least that said `told_s` between two looks at this machine's."""
    return min(told_s - asked_s, 0.0) or max(told_s - answered_s, 0.0)


def archive_directory(settings: Settings) -> Archive:
    """The archive.

    Raises:
        ArchiveError, OSError: there is none, or it cannot be read.
    """
    root = Path(settings.archive)
    found = archive.segments(root)
    try:
        archive.check_complete(root)
        hole = ""
    except ArchiveHole as error:
        hole = str(error)
    usage = shutil.disk_usage(root)
    noted = {epoch: archive_epochs.noted(root, epoch) for epoch in archive_epochs.live_epochs(root)}
    lives = {epoch: life for epoch, life in noted.items() if life is not None}
    ends = {(epoch, partition): begin for epoch, life in lives.items() for partition, begin in life.begins.items()}
    for segment in found:
        lane = segment.epoch, segment.partition
        ends[lane] = max(ends.get(lane, 0), segment.last + 1)
    return Archive(
        ends=ends,
        lives={epoch: life.topic_uuid for epoch, life in lives.items()},
        segments=len(found),
        hole=hole,
        writable=os.access(root, os.W_OK | os.X_OK),
        free_bytes=usage.free,
        total_bytes=usage.total,
        newest_rules=_rules_of(_newest(found)),
    )


def _newest(found: Sequence[Segment]) -> list[Path]:
    """The last segment of each partition of the newest epoch."""
    epoch = max((segment.epoch for segment in found), default=0)
    if epoch < FIRST_LIVE_EPOCH:
        return []
    last = {segment.partition: segment.path for segment in found if segment.epoch == epoch}
    return list(last.values())[:NEWEST_SEGMENTS]


def _rules_of(paths: Sequence[Path]) -> frozenset[str]:
    if not paths:
        return frozenset()
    files = ", ".join(map(archive_reader.file_literal, paths))
    with archive_reader.connect() as connection:
        rows = connection.execute(
            f"SELECT DISTINCT family_rule FROM read_parquet([{files}], hive_partitioning = false)"  # noqa: S608
        ).fetchall()
    return frozenset(rule for (rule,) in rows)


def family_rule(settings: Settings) -> str:
    """Version of the family rules of this environment.

    Raises:
        RulesError, OSError: they cannot be read.
    """
    return family.load_rules(settings.family_rules).version


def history_rows(settings: Settings) -> history_build.Build | None:
    """What the history rows were made from; None: there are none.

    Raises:
        HistoryError, OSError: that cannot be read.
    """
    return history_build.served(settings.history)


def bundle(settings: Settings) -> Bundle | None:
    """The bundle that launchers serve, checked as they check it; None: none is published.

    Raises:
        BundleError: they would refuse it.
    """
    root = Path(settings.bundles)
    if not (root / bundles.CURRENT).exists() and not (root / bundles.MANIFEST).exists():
        return None
    served = bundles.load(root)
    manifest = served.manifest
    return Bundle(served.bundle_id, manifest.project, manifest.history_schema, manifest.family_rule)


def policy(settings: Settings) -> None:
    """Nothing, where the policy can be read or there is none.

    Raises:
        PolicyError: it breaks a rule.
    """
    if settings.policy:
        read_policy(Path(settings.policy))


def registry(settings: Settings) -> Registry | Missing:
    """Feast's registry beside the definitions.

    Raises:
        FeatureRepoError: there is no feature repository.
        Exception: whatever Feast raises.
    """
    if not Path(settings.feature_repo).exists():
        return Missing(f"LEAP_FEATURE_REPO={settings.feature_repo} is not on this machine", asked=False)
    try:
        import feast  # noqa: F401, PLC0415  # an extra of its own, and slow to import
    except ModuleNotFoundError as error:
        return Missing(f"Feast is not installed ({error})", asked=False)
    from leap_streams.doctor_registry import read_registry  # noqa: PLC0415

    return read_registry(settings)
