from __future__ import annotations

import pytest

from leap_streams.store_server import ServerFacts, facts_of, parse_info, refusal

REDIS = b"""# Server\r
redis_version:7.0.15\r
redis_mode:standalone\r
\r
# Memory\r
used_memory:916712\r
total_system_memory:25276502016\r
maxmemory:2048\r
maxmemory_policy:noeviction\r
\r
# Persistence\r
rdb_last_bgsave_status:ok\r
aof_enabled:1\r
aof_last_bgrewrite_status:ok\r
aof_last_write_status:err\r
\r
# Replication\r
role:slave\r
master_host:10.0.0.1\r
master_port:6379\r
connected_slaves:2\r
"""
# Valkey 8 and later, which has a mode under another name.
VALKEY = b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8\r\nserver_mode:cluster\r\nrole:master\r\n"


def test_facts_are_those_of_info() -> None:
    assert facts_of(parse_info(REDIS)) == ServerFacts(
        version="7.0.15",
        mode="standalone",
        role="slave",
        maxmemory_policy="noeviction",
        maxmemory=2048,
        used_memory=916712,
        total_system_memory=25276502016,
        aof_enabled=True,
        aof_last_write_status="err",
        aof_last_bgrewrite_status="ok",
        rdb_last_bgsave_status="ok",
        connected_replicas=2,
        master="10.0.0.1:6379",
    )
    assert refusal(facts_of(parse_info(REDIS))) is None


def test_a_valkey_cluster_is_seen_as_one() -> None:
    facts = facts_of(parse_info(VALKEY))
    assert (facts.version, facts.mode, facts.master) == ("7.2.4", "cluster", "")
    assert "Redis Cluster" in str(refusal(facts))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "sentinel"}, "it is a Sentinel"),
        ({"mode": "cluster"}, "it is a Redis Cluster"),
        ({"version": "6.2.14"}, "it is release 6.2.14 of Redis, LEAP needs 7.0 or later"),
        ({"version": ""}, "it is release unknown of Redis"),
        ({"maxmemory_policy": "volatile-lru"}, "its maxmemory-policy is 'volatile-lru'"),
        ({"maxmemory_policy": ""}, "its maxmemory-policy is ''"),
    ],
)
def test_a_server_on_which_history_must_not_be_kept_is_refused_with_the_reason(
    change: dict[str, str], said: str
) -> None:
    facts = facts_of(parse_info(REDIS))._replace(**change)  # type: ignore[arg-type]  # texts, all of them
    assert said in str(refusal(facts))


@pytest.mark.parametrize("version", ["7.0.0", "7.2.4", "8.0.1", "10.0.0", "255.255.255"])
def test_any_later_release_is_taken(version: str) -> None:
    assert refusal(facts_of(parse_info(REDIS))._replace(version=version)) is None
