"""The doctor's checks of the online store: its server, and what it says about itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leap_features.meta import SCHEMA_VERSION, Meta
from leap_streams import store_server
from leap_streams.doctor_facts import Facts, Missing, meta_of
from leap_streams.doctor_finding import Finding, ok

MEMORY_USED: Final = 0.8
"""Share of the memory that may be used: a fork for the append-only file needs some, and history grows."""


def server(facts: Facts) -> Iterator[Finding]:
    """The server is one that the worker takes: a master, no cluster, without eviction, of a version that is known."""
    if isinstance(facts.redis, Missing):
        return
    told = facts.redis.server
    refusal = store_server.refusal(told)
    if refusal is not None:
        yield Finding(
            "error",
            "redis.server",
            f"the worker refuses this server: {refusal}",
            "history is kept by one master that never evicts",
            "another server or its setting, as said; then restart `leap worker`",
        )
    elif told.role != "master":
        yield Finding(
            "error",
            "redis.role",
            f"the server is a replica of {told.master}",
            "rows are written to the master; a replica takes no writes",
            "LEAP_REDIS_URL of the master, or of the sentinels that know it",
        )
    else:
        yield ok("redis.server", f"version {told.version}, {told.role}, maxmemory-policy {told.maxmemory_policy}")
    if not told.connected_replicas:
        yield Finding(
            "note",
            "redis.replicas",
            "the server has no replica",
            "while it is down, nothing is ranked and no event is taken in",
            "a replica and sentinels, where that matters; `leap rebuild` refills a server that lost its data",
        )


def persistence(facts: Facts) -> Iterator[Finding]:
    """What is written is on disk within a second."""
    if isinstance(facts.redis, Missing):
        return
    told, fsync = facts.redis.server, facts.redis.appendfsync
    if not told.aof_enabled:
        yield Finding(
            "warning",
            "redis.append-only",
            "appendonly is no",
            "a restart loses what came after the last snapshot, or all of it: the worker replays what the topic still "
            "has, and a store that is empty needs `leap rebuild`",
            "redis-cli CONFIG SET appendonly yes, and the same in its configuration file",
        )
    elif fsync == "no":
        yield Finding(
            "warning",
            "redis.fsync",
            "appendfsync is no",
            "the system may keep half a minute of writes in memory, and a power cut loses them",
            "redis-cli CONFIG SET appendfsync everysec, and the same in its configuration file",
        )
    else:
        yield ok("redis.append-only", "appendonly yes" + (f", appendfsync {fsync}" if fsync else ""))
    for what, status in (
        ("aof_last_write_status", told.aof_last_write_status),
        ("aof_last_bgrewrite_status", told.aof_last_bgrewrite_status),
        ("rdb_last_bgsave_status", told.rdb_last_bgsave_status),
    ):
        if status not in ("", "ok"):
            yield Finding(
                "error",
                "redis.disk",
                f"{what} is {status}",
                "a server that cannot write its files takes no writes, and has nothing after a restart",
                "free disk space, or give the server's user the right to write there; its log says which",
            )


def memory(facts: Facts) -> Iterator[Finding]:
    """There is memory for more history."""
    if isinstance(facts.redis, Missing):
        return
    told = facts.redis.server
    limit = told.maxmemory or told.total_system_memory
    if not limit:
        return
    name = "maxmemory" if told.maxmemory else "the machine's memory"
    used = f"{told.used_memory / 2**20:,.0f} of {limit / 2**20:,.0f} MiB ({name})"
    if told.used_memory > MEMORY_USED * limit:
        yield Finding(
            "warning",
            "redis.memory",
            f"{used} are used",
            f"above {MEMORY_USED:.0%} little is left for new families; a full server takes no writes",
            "more maxmemory, or a larger server",
        )
    else:
        yield ok("redis.memory", f"{used} used")


def meta(facts: Facts) -> Iterator[Finding]:
    """The store has a meta that this release reads, under the family rules of this environment, and is ready."""
    if isinstance(facts.redis, Missing):
        return
    found = facts.redis.meta
    settings = facts.settings
    if isinstance(found, Missing):
        yield Finding(
            "error", "store.meta", found.reason, f"this release keeps schema {SCHEMA_VERSION!r}", "`leap rebuild`"
        )
        return
    if found is None:
        yield Finding(
            "error",
            "store.meta",
            f"the online store has no meta for project {settings.project!r}",
            "without it no worker writes and no job is ranked",
            "`leap init` for a new store, `leap rebuild` for one that lost its data",
        )
        return
    well = True
    if isinstance(facts.family_rule, str) and found.family_rule != facts.family_rule:
        well = False
        yield Finding(
            "error",
            "store.family-rule",
            f"the online store was made under family rule {found.family_rule!r}, this environment has "
            f"{facts.family_rule!r}",
            "all processes must derive job families by the same rules",
            "the same LEAP_FAMILY_RULES everywhere, or `leap rebuild`",
        )
    if found.state != "ready":
        well = False
        yield Finding(
            "warning",
            "store.state",
            f"the online store is {found.state}; since when is not known",
            "until it is ready, workers wait and nothing is ranked",
            "wait for the `leap rebuild` that is at work; if there is none, it was stopped halfway: run it again",
        )
    if _is_of_another_topic(facts, found):
        well = False
        yield Finding(
            "error",
            "store.topic",
            f"topic {settings.topic} has UUID {_topic_uuid(facts)}, the online store follows {found.topic_uuid}",
            "offsets of one topic mean nothing in another: the topic was deleted and created again",
            "`leap epoch new`",
        )
    if well:
        yield ok("store.meta", f"ready, schema {found.schema}, family rule {found.family_rule}, epoch {found.epoch}")


def checkpoints(facts: Facts) -> Iterator[Finding]:
    """What comes after the checkpoints is in the topic."""
    found = meta_of(facts.redis)
    if found is None or isinstance(facts.bounds, Missing):
        return
    well = True
    for partition, checkpoint in sorted(found.checkpoints.items()):
        bound = facts.bounds.get(partition)
        where = f"the checkpoint of partition {partition} is {checkpoint}"
        if bound is None or checkpoint > bound.end:
            well = False
            ends = f"ends at {bound.end}" if bound else "has no such partition"
            yield Finding(
                "error",
                "store.checkpoint-ahead",
                f"{where}, {facts.settings.topic} {ends}",
                "the store has events that the topic never had: the topic was deleted and created again",
                "`leap epoch new`",
            )
        elif checkpoint < bound.first:
            well = False
            yield Finding(
                "error",
                "store.checkpoint-passed",
                f"{where}, {facts.settings.topic} begins at {bound.first}",
                f"{bound.first - checkpoint:,} records have been deleted by retention before they were taken in",
                "`leap rebuild` brings them from the archive, or says what else is to be done",
            )
    if well:
        yield ok("store.checkpoints", f"{len(found.checkpoints)} checkpoints, all within the topic")


def _topic_uuid(facts: Facts) -> str:
    if isinstance(facts.configs, Missing) or facts.settings.topic not in facts.configs:
        return ""
    return facts.configs[facts.settings.topic].uuid


def _is_of_another_topic(facts: Facts, found: Meta) -> bool:
    uuid = _topic_uuid(facts)
    return bool(uuid and found.topic_uuid) and uuid != found.topic_uuid
