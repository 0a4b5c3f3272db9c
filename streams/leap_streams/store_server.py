"""What the server of the online store says about itself (INFO), and whether history may be kept there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

OLDEST_REDIS: Final = (7, 0)
"""The first release whose SET takes NX and GET together, by which attempts are claimed. Valkey says 7.2."""

NO_EVICTION: Final = "noeviction"


class ServerFacts(NamedTuple):
    """What INFO says, which users may ask who may not ask for the configuration. Texts are empty where it is silent."""

    version: str
    """Of Redis, or the one that the server is compatible with."""
    mode: str
    """`standalone`, `cluster` or `sentinel`."""
    role: str
    """`master` or `slave`."""
    maxmemory_policy: str
    """What happens once memory is full."""
    maxmemory: int
    """Bytes; 0: no limit."""
    used_memory: int
    """Bytes."""
    total_system_memory: int
    """Bytes; 0: unknown."""
    aof_enabled: bool
    aof_last_write_status: str
    aof_last_bgrewrite_status: str
    rdb_last_bgsave_status: str
    connected_replicas: int
    master: str
    """`host:port` of the master of a replica."""


def parse_info(reply: bytes) -> dict[str, str]:
    """The fields of a reply to INFO."""
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for line in lines if not line.startswith("#") for name, _, value in [line.partition(":")]}


def facts_of(info: Mapping[str, object]) -> ServerFacts:
    """The facts in INFO, as `parse_info` or redis-py's `info` gives it."""
    said = {name: str(value) for name, value in info.items()}
    host, port = said.get("master_host", ""), said.get("master_port", "")
    return ServerFacts(
        version=said.get("redis_version", ""),
        mode=said.get("redis_mode") or said.get("server_mode", ""),  # Valkey's name since 8.0
        role=said.get("role", ""),
        maxmemory_policy=said.get("maxmemory_policy", ""),
        maxmemory=int(said.get("maxmemory", 0)),
        used_memory=int(said.get("used_memory", 0)),
        total_system_memory=int(said.get("total_system_memory", 0)),
        aof_enabled=said.get("aof_enabled") == "1",
        aof_last_write_status=said.get("aof_last_write_status", ""),
        aof_last_bgrewrite_status=said.get("aof_last_bgrewrite_status", ""),
        rdb_last_bgsave_status=said.get("rdb_last_bgsave_status", ""),
        connected_replicas=int(said.get("connected_slaves", 0)),
        master=f"{host}:{port}" if host else "",
    )


def refusal(facts: ServerFacts) -> str | None:
    """Why history must not be kept on this server, and what to do about it; None: it may be."""
    if facts.mode == "sentinel":
        return (
            "it is a Sentinel, not the server that it watches: name the sentinels as in "
            "LEAP_REDIS_URL=redis+sentinel://host:26379,host:26379/MASTER"
        )
    if facts.mode == "cluster":
        return (
            "it is a Redis Cluster, where the store's meta and its rows would lie on different nodes: use a single "
            "master, or Sentinel"
        )
    if _number(facts.version) < OLDEST_REDIS:
        oldest = ".".join(map(str, OLDEST_REDIS))
        return f"it is release {facts.version or 'unknown'} of Redis, LEAP needs {oldest} or later (or Valkey)"
    if facts.maxmemory_policy != NO_EVICTION:
        return (
            f"its maxmemory-policy is {facts.maxmemory_policy!r}, under which a full server drops history without a "
            f"word: set it to {NO_EVICTION} (CONFIG SET maxmemory-policy {NO_EVICTION}, and in its configuration "
            "file), then run `leap audit`"
        )
    return None


def _number(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
