"""The doctor's checks: every fault that it knows, planted into the facts of a deployment that is well."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
import pytest

from leap_features.history_build import Build
from leap_features.history_rows import Counts
from leap_features.meta import SCHEMA_VERSION, Meta
from leap_features.settings import Settings
from leap_streams import doctor
from leap_streams.dead_letter_log import RuleCount
from leap_streams.doctor import SOURCES, examine
from leap_streams.doctor_command import lines
from leap_streams.doctor_facts import (
    Archive,
    Bundle,
    Facts,
    Group,
    Member,
    Missing,
    Record,
    RedisServer,
    Registry,
    Sample,
    TopicShape,
)
from leap_streams.doctor_finding import AREAS, SEVERITIES, Finding, Severity, worst
from leap_streams.doctor_gather import ask
from leap_streams.doctor_topic_checks import placing
from leap_streams.faults import Unavailable
from leap_streams.kafka import TopicFacts
from leap_streams.partitioners import java_partition, librdkafka_partition
from leap_streams.store_server import ServerFacts
from leap_streams.topic_bounds import Bounds

NOW_US = 1_900_000_000_000_000
S = 1_000_000
DAY_US = 86_400 * S
DAY_MS = 86_400_000
PARTITIONS = 8
EPOCH = 1_000_000
TOPIC, DEAD = "leap.completions", "leap.completions.dead-letter"

SETTINGS = Settings(kafka_brokers="kafka:9092", partitions=PARTITIONS)


def record(model: str = "ranker", partition: int | None = None, **other: Any) -> Record:
    """A record of an event of `model`, recorded a minute ago and completed before, by default as it should be."""
    key = other.pop("key", model.encode())
    where = java_partition(key, PARTITIONS) if partition is None else partition
    return Record(where, NOW_US - 60 * S, key, model, NOW_US - 90 * S)._replace(**other)


HEALTHY = Facts(
    settings=SETTINGS,
    now_us=NOW_US,
    family_rule="1",
    policy=None,
    topics={TOPIC: TopicShape(PARTITIONS, 3), DEAD: TopicShape(1, 3)},
    configs={
        TOPIC: TopicFacts(
            "uuid",
            PARTITIONS,
            {
                "message.timestamp.type": "LogAppendTime",
                "cleanup.policy": "delete",
                "retention.ms": str(14 * DAY_MS),
                "retention.bytes": "-1",
                "max.message.bytes": "1048576",
                "min.insync.replicas": "2",
                "unclean.leader.election.enable": "false",
            },
        ),
        DEAD: TopicFacts(
            "other",
            1,
            {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": "-1",
                "max.message.bytes": "2097152",
                "min.insync.replicas": "2",
                "unclean.leader.election.enable": "false",
            },
        ),
    },
    bounds={partition: Bounds(100, 200) for partition in range(PARTITIONS)},
    groups={
        "history": Group("stable", (Member("one", (0, 1, 2, 3)), Member("two", (4, 5, 6, 7)))),
        "archive": Group("stable", (Member("one", tuple(range(PARTITIONS))),)),
    },
    sample=Sample(tuple(record(f"model{i % 10}") for i in range(1_000)), NOW_US - DAY_US),
    waiting={"history": {}, "archive": {0: NOW_US - 30 * S}},
    dead_letters={},
    redis=RedisServer(
        ServerFacts(
            version="7.2.4",
            mode="standalone",
            role="master",
            maxmemory_policy="noeviction",
            maxmemory=2**30,
            used_memory=2**28,
            total_system_memory=2**34,
            aof_enabled=True,
            aof_last_write_status="ok",
            aof_last_bgrewrite_status="ok",
            rdb_last_bgsave_status="ok",
            connected_replicas=1,
            master="",
        ),
        "everysec",
        0.1,
        Meta(
            schema=SCHEMA_VERSION,
            family_rule="1",
            epoch=EPOCH,
            topic_uuid="uuid",
            generation="g",
            state="ready",
            checkpoints=dict.fromkeys(range(PARTITIONS), 200),
        ),
    ),
    archive=Archive(
        ends={(EPOCH, partition): 200 - (partition == 0) for partition in range(PARTITIONS)} | {(1, 0): 50},
        lives={EPOCH: "uuid"},
        segments=1_000,
        hole="",
        writable=True,
        free_bytes=2**40,
        total_bytes=2**41,
        newest_rules=frozenset({"1"}),
    ),
    history=Build({f"{EPOCH}:0": 150}, SETTINGS.horizon_us, "1", Counts(0, 0, 0, 0, 0, {})),
    bundle=Bundle("20260301T040000Z-0123456789abcdef", "leap", SCHEMA_VERSION, "1"),
    registry=Registry(True, (), "leap", "leap_features.online_store.AtomicRedisOnlineStore", ()),
)


class Plant(NamedTuple):
    """A fault: what names it, and how a well deployment comes by it."""

    check: str
    severity: Severity
    said: str
    """Part of what the finding says was found."""
    facts: Facts


def changed(thing: Any, **changes: Any) -> Any:
    return thing._replace(**changes) if isinstance(thing, tuple) else msgspec.structs.replace(thing, **changes)


def well_but(**changes: Any) -> Facts:
    return changed(HEALTHY, **changes)


def well_but_in(field: str, **changes: Any) -> Facts:
    return well_but(**{field: changed(getattr(HEALTHY, field), **changes)})


def setting(**changes: Any) -> Facts:
    return well_but_in("settings", **changes)


def server(**changes: Any) -> Facts:
    return well_but_in("redis", server=changed(HEALTHY.redis.server, **changes))


def meta(**changes: Any) -> Facts:
    return well_but_in("redis", meta=changed(HEALTHY.redis.meta, **changes))


def config(topic: str, name: str, value: str) -> Facts:
    facts = HEALTHY.configs[topic]
    return well_but(configs={**HEALTHY.configs, topic: facts._replace(config={**facts.config, name: value})})


def copies(topic: str, replicas: int, in_sync: int) -> Facts:
    shape = HEALTHY.topics[topic]._replace(replicas=replicas)
    return changed(config(topic, "min.insync.replicas", str(in_sync)), topics={**HEALTHY.topics, topic: shape})


def group(app: str, *members: Member, state: str = "stable") -> Facts:
    return well_but(groups={**HEALTHY.groups, app: Group(state, members)})


def records(*wrong: Record, of: int = 100, grown_before_us: int | None = 0) -> Facts:
    return well_but(sample=Sample((*wrong, *(record() for _ in range(of - len(wrong)))), grown_before_us))


def apart() -> tuple[str, int, int]:
    """A model type, where CRC32 puts it, and where neither that nor murmur2 does."""
    for model in (f"model{i}" for i in range(1_000)):
        murmur2, crc32 = (by(model.encode(), PARTITIONS) for by in (java_partition, librdkafka_partition))
        if murmur2 != crc32:
            return model, crc32, min(set(range(PARTITIONS)) - {murmur2, crc32})
    raise AssertionError("the partitioners agree on all of them")


APART, BY_CRC32, BY_NEITHER = apart()

PLANTS = [
    Plant("topic.exists", "error", f"no topic {TOPIC}", well_but(topics={DEAD: TopicShape(1, 3)})),
    Plant("topic.partitions", "note", "has 8 partitions, LEAP_PARTITIONS is 16", setting(partitions=16)),
    Plant("topic.timestamps", "error", "CreateTime", config(TOPIC, "message.timestamp.type", "CreateTime")),
    Plant("topic.cleanup", "error", "=compact,delete", config(TOPIC, "cleanup.policy", "compact,delete")),
    Plant("topic.retention-bytes", "warning", "=1000000", config(TOPIC, "retention.bytes", "1000000")),
    Plant("topic.retention", "warning", "keeps records 30 days", config(TOPIC, "retention.ms", str(30 * DAY_MS))),
    Plant("topic.retention", "warning", "keeps records for ever", config(TOPIC, "retention.ms", "-1")),
    Plant("topic.retention", "warning", "RETENTION_DAYS is 14", config(TOPIC, "retention.ms", str(8 * DAY_MS))),
    Plant("topic.retention", "warning", "HORIZON_DAYS is 7", config(TOPIC, "retention.ms", str(DAY_MS))),
    Plant("topic.record-size", "error", "=50000", config(TOPIC, "max.message.bytes", "50000")),
    Plant("topic.replicas", "note", "one replica", copies(TOPIC, 1, 1)),
    Plant("topic.replicas", "warning", "3 replicas and min.insync.replicas=1", copies(TOPIC, 3, 1)),
    Plant("topic.replicas", "warning", "3 replicas and min.insync.replicas=3", copies(TOPIC, 3, 3)),
    Plant("topic.replicas", "error", "1 replicas and min.insync.replicas=2", copies(TOPIC, 1, 2)),
    Plant("topic.unclean-leader", "warning", "=true", config(TOPIC, "unclean.leader.election.enable", "true")),
    Plant("dead-letter.exists", "error", f"no topic {DEAD}", well_but(topics={TOPIC: TopicShape(PARTITIONS, 3)})),
    Plant("dead-letter.own-topic", "error", f"are both {TOPIC}", setting(dead_letter_topic=TOPIC)),
    Plant("dead-letter.cleanup", "error", "=compact", config(DEAD, "cleanup.policy", "compact")),
    Plant("dead-letter.retention-bytes", "warning", "=1000", config(DEAD, "retention.bytes", "1000")),
    Plant("dead-letter.retention", "note", "keeps records 7 days", config(DEAD, "retention.ms", str(7 * DAY_MS))),
    Plant("dead-letter.record-size", "error", "=1048588", config(DEAD, "max.message.bytes", "1048588")),
    Plant("dead-letter.replicas", "note", "one replica", copies(DEAD, 1, 1)),
    Plant("dead-letter.unclean-leader", "warning", "=true", config(DEAD, "unclean.leader.election.enable", "true")),
    Plant(
        "dead-letter.count",
        "warning",
        "12 dead letters, the latest of 2030-03-17T17:45:40+00:00: too_late 9, json 3",
        well_but(
            dead_letters={
                "json": RuleCount(3, NOW_US - 9 * DAY_US, NOW_US - 8 * DAY_US),
                "too_late": RuleCount(9, NOW_US - DAY_US, NOW_US - 60 * S),
            }
        ),
    ),
    Plant(
        "dead-letter.count",
        "note",
        "3 dead letters",
        well_but(dead_letters={"json": RuleCount(3, NOW_US - 9 * DAY_US, NOW_US - 8 * DAY_US)}),
    ),
    Plant(
        "producers.partitioner",
        "warning",
        "5 of the latest 100 records (5.0%) lie where librdkafka's default partitioner",
        records(*5 * [record(APART, BY_CRC32)]),
    ),
    Plant(
        "producers.partitioner",
        "note",
        "5 of the latest 1,000 records (0.5%)",
        records(*5 * [record(APART, BY_CRC32)], of=1_000),
    ),
    Plant("producers.other-partitioner", "warning", "neither", records(*5 * [record(APART, BY_NEITHER)])),
    Plant("producers.null-keys", "warning", "have no key", records(*5 * [record(key=None, partition=0)])),
    Plant("producers.keys", "warning", "not their event's model type", records(*5 * [record(key=b"another")])),
    Plant(
        "history.members", "error", "group leap-history has no member (state empty)", group("history", state="empty")
    ),
    Plant("history.members", "note", "rebalancing", group("history", Member("one", ()), state="preparing_rebalancing")),
    Plant(
        "history.idle",
        "warning",
        "1 of 2 members of group leap-history have no partition: two at host",
        group("history", Member("one", tuple(range(PARTITIONS))), Member("two at host", ())),
    ),
    Plant(
        "archive.unassigned",
        "error",
        "3 partitions have no member of group leap-archive: 5, 6, 7",
        group("archive", Member("one", (0, 1, 2, 3, 4))),
    ),
    Plant(
        "history.lag",
        "warning",
        "10 records wait for `leap worker`, the oldest since 2030-03-17T17:36:40+00:00; most behind: partition 3 10",
        changed(
            meta(checkpoints={**HEALTHY.redis.meta.checkpoints, 3: 190}),
            waiting={"history": {3: NOW_US - 600 * S}, "archive": {}},
        ),
    ),
    Plant(
        "history.lag",
        "warning",
        "200,000 records wait for `leap worker`; most behind: partition 2 200,000",
        well_but(bounds={**HEALTHY.bounds, 2: Bounds(100, 200_200)}),
    ),
    Plant(
        "archive.lag",
        "warning",
        "1 records wait for `leap archive`",
        well_but(waiting={"archive": {0: NOW_US - 600 * S}}),
    ),
    Plant(
        "archive.in-danger",
        "error",
        f"partition 0: the archive lacks records since 2030-03-07T17:46:40+00:00, which {TOPIC} deletes in 4.0 days",
        well_but(waiting={"archive": {0: NOW_US - 10 * DAY_US}}),
    ),
    Plant(
        "archive.lost",
        "error",
        "the archive ends at offset 199 of partition 0, leap.completions begins at 300",
        well_but(bounds={**HEALTHY.bounds, 0: Bounds(300, 400)}),
    ),
    Plant("archive.complete", "error", "a hole", well_but_in("archive", hole="the archive has a hole: epoch 1 …")),
    Plant(
        "archive.topic",
        "error",
        "with UUID x, the online store follows uuid",
        well_but_in("archive", lives={EPOCH: "x"}),
    ),
    Plant("archive.writable", "warning", "cannot be written", well_but_in("archive", writable=False)),
    Plant("archive.space", "warning", "0.5 of 2,048.0 GiB are free", well_but_in("archive", free_bytes=2**29)),
    Plant("archive.space", "warning", "50.0 of 2,048.0 GiB", well_but_in("archive", free_bytes=50 * 2**30)),
    Plant("archive.segments", "note", "200,000 segments", well_but_in("archive", segments=200_000)),
    Plant(
        "archive.family-rule",
        "warning",
        "were made under family rule 1+0123abcd, this environment has 1",
        well_but_in("archive", newest_rules=frozenset({"1", "1+0123abcd"})),
    ),
    Plant("redis.server", "error", "maxmemory-policy is 'allkeys-lru'", server(maxmemory_policy="allkeys-lru")),
    Plant("redis.server", "error", "it is a Redis Cluster", server(mode="cluster")),
    Plant("redis.server", "error", "it is release 6.2.1 of Redis", server(version="6.2.1")),
    Plant("redis.role", "error", "a replica of other:6379", server(role="slave", master="other:6379")),
    Plant("redis.replicas", "note", "no replica", server(connected_replicas=0)),
    Plant("redis.append-only", "warning", "appendonly is no", server(aof_enabled=False)),
    Plant("redis.fsync", "warning", "appendfsync is no", well_but_in("redis", appendfsync="no")),
    Plant("redis.disk", "error", "aof_last_write_status is err", server(aof_last_write_status="err")),
    Plant("redis.disk", "error", "aof_last_bgrewrite_status is err", server(aof_last_bgrewrite_status="err")),
    Plant("redis.disk", "error", "rdb_last_bgsave_status is err", server(rdb_last_bgsave_status="err")),
    Plant("redis.memory", "warning", "900 of 1,024 MiB (maxmemory)", server(used_memory=900 * 2**20)),
    Plant("redis.memory", "warning", "the machine's memory", server(maxmemory=0, used_memory=15 * 2**30)),
    Plant("store.meta", "error", "no meta for project 'leap'", well_but_in("redis", meta=None)),
    Plant("store.meta", "error", "schema version '0'", well_but_in("redis", meta=Missing("has schema version '0'"))),
    Plant("store.family-rule", "error", "'1+0123abcd', this environment has '1'", meta(family_rule="1+0123abcd")),
    Plant("store.state", "warning", "rebuilding; since when is not known", meta(state="rebuilding")),
    Plant(
        "store.topic",
        "error",
        "has UUID uuid, the online store follows former",
        changed(meta(topic_uuid="former"), archive=changed(HEALTHY.archive, lives={EPOCH: "former"})),
    ),
    Plant("store.checkpoint-ahead", "error", "3 is 201, leap.completions ends at 200", meta(checkpoints={3: 201})),
    Plant("store.checkpoint-ahead", "error", "9 is 5, leap.completions has no such", meta(checkpoints={9: 5})),
    Plant("store.checkpoint-passed", "error", "3 is 90, leap.completions begins at 100", meta(checkpoints={3: 90})),
    Plant("versions.history-rows", "note", "has no history rows", well_but(history=None)),
    Plant("versions.history-rows", "warning", "family rule '0'", well_but_in("history", family_rule="0")),
    Plant("versions.history-rows", "warning", "horizon of 3 days", well_but_in("history", horizon_us=3 * DAY_US)),
    Plant("versions.bundle", "note", "has no bundle", well_but(bundle=None)),
    Plant("versions.bundle", "error", "family rule '0' instead of '1'", well_but_in("bundle", family_rule="0")),
    Plant("versions.bundle", "error", "history schema '0' instead of", well_but_in("bundle", history_schema="0")),
    Plant("versions.bundle", "error", "project 'x' instead of 'leap'", well_but_in("bundle", project="x")),
    Plant(
        "registry.project",
        "warning",
        "has project 'x', LEAP_PROJECT is 'leap'",
        well_but_in("registry", file_project="x"),
    ),
    Plant("registry.online-store", "error", "type redis", well_but_in("registry", online_store="redis")),
    Plant("registry.applied", "note", "never been written", well_but_in("registry", applied=False)),
    Plant("registry.ttl", "warning", "family_history", well_but_in("registry", expiring=("family_history",))),
    Plant(
        "registry.in-step",
        "warning",
        "it lacks a; it lacks b; it lacks c; it lacks d; it lacks e; and 1 more",
        well_but_in("registry", changes=tuple(f"it lacks {name}" for name in "abcdef")),
    ),
    Plant("settings.retention", "warning", "=3 is below LEAP_HORIZON_DAYS=7", setting(topic_retention_days=3.0)),
    Plant("settings.batch", "warning", "LEAP_BATCH_WITHIN_S=10", setting(batch_within_s=10.0)),
    Plant("settings.archive-batch", "warning", "LEAP_ARCHIVE_WITHIN_S=7200", setting(archive_within_s=7200.0)),
    Plant("settings.archive-batch", "note", "LEAP_ARCHIVE_WITHIN_S=1", setting(archive_within_s=1.0)),
    Plant("settings.create-time", "note", "LEAP_ALLOW_CREATE_TIME is set", setting(allow_create_time=True)),
    Plant(
        "settings.kafka-password",
        "warning",
        "SASL_PLAINTEXT to kafka",
        setting(kafka_security_protocol="SASL_PLAINTEXT"),
    ),
    Plant("settings.redis-password", "warning", "no TLS", setting(redis_url="redis://u:secret@elsewhere:6379/0")),
    Plant("settings.redis-password", "warning", "no TLS", setting(redis_url="redis+sentinel://u:secret@one,two/leap")),
    Plant("settings.redis-password", "note", "has no password", setting(redis_url="redis://elsewhere:6379/0")),
    Plant("clocks.redis", "warning", "3.5 s ahead of this machine's", well_but_in("redis", ahead_s=3.5)),
    Plant("clocks.redis", "warning", "3.5 s behind this machine's", well_but_in("redis", ahead_s=-3.5)),
    Plant("clocks.broker", "warning", "9.0 s in this machine's future", records(record(recorded_at_us=NOW_US + 9 * S))),
    Plant(
        "clocks.producers",
        "warning",
        "5 of the latest 100 events (5.0%) say that they were completed up to 30.0 s after",
        records(*5 * [record(completed_at_us=NOW_US - 30 * S)]),
    ),
    Plant("clocks.producers", "note", "(0.5%)", records(*5 * [record(completed_at_us=NOW_US)], of=1_000)),
    *(
        Plant(check, "error", "it does not say", well_but(**{field: Missing("it does not say")}))
        for field, (check, *_) in SOURCES.items()
    ),
    *(
        Plant(check, "note", "not checked: it cannot", well_but(**{field: Missing("it cannot", asked=False)}))
        for field, (check, *_) in SOURCES.items()
    ),
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.check}-{plant.severity}")
def test_a_planted_fault_is_named_with_its_value_the_rule_and_the_mend(plant: Plant) -> None:
    named = [finding for finding in examine(plant.facts) if finding.check == plant.check and finding.severity != "ok"]
    assert [finding.severity for finding in named] == [plant.severity]
    (finding,) = named
    assert plant.said in finding.found
    not_asked = finding.found.startswith("not checked")
    assert not_asked == (not finding.rule) == (not finding.mend)


CONSEQUENCES: dict[str, set[str]] = {
    "dead-letter.own-topic": {"dead-letter.record-size"},
    "archive.in-danger": {"archive.lag"},
    "archive.lost": {"store.checkpoint-passed"},
    "history.lag": {"archive.lag"},
    "settings.retention": {"topic.retention"},
}
"""What follows from a fault, and is named too."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: f"{plant.check}-{plant.severity}")
def test_a_planted_fault_makes_up_no_other(plant: Plant) -> None:
    others = {f.check for f in examine(plant.facts) if f.severity in ("warning", "error")} - {plant.check}
    assert others <= CONSEQUENCES.get(plant.check, set())


def test_a_deployment_that_is_well_has_no_warning() -> None:
    findings = examine(HEALTHY)
    assert [finding for finding in findings if finding.severity != "ok"] == []
    assert {finding.check.partition(".")[0] for finding in findings} == set(AREAS)


def faults_in_the_code() -> list[str]:
    """Patterns of the names of all faults: of every `Finding` that the checks make, and of every source."""
    patterns = [re.escape(check) for check, *_ in SOURCES.values()]
    for file in Path(doctor.__file__).parent.glob("doctor_*_checks.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                name = node.args[1]
                parts = name.values if isinstance(name, ast.JoinedStr) else [name]
                patterns.append("".join(re.escape(p.value) if isinstance(p, ast.Constant) else ".+" for p in parts))
    return patterns


def test_every_fault_that_the_doctor_knows_is_planted_here() -> None:
    patterns = faults_in_the_code()
    assert len(patterns) > 60
    planted = {plant.check for plant in PLANTS}
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, check) for check in planted)] == []


def test_the_manual_lists_every_fault_and_no_other() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
    section = manual.partition("\n## Doctor\n")[2].partition("\n## ")[0]
    named = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    listed = set(re.findall(r"`([a-z-]+\.[a-z-]+)`", " ".join(named)))
    assert {plant.check for plant in PLANTS} <= listed
    patterns = faults_in_the_code()
    assert [check for check in listed if not any(re.fullmatch(pattern, check) for pattern in patterns)] == []


def test_records_from_before_the_topic_grew_are_not_judged() -> None:
    old = record(APART, BY_NEITHER)
    grown = records(*5 * [old], grown_before_us=old.recorded_at_us + 1)
    new = changed(grown.sample, records=(*grown.sample.records, record(recorded_at_us=old.recorded_at_us + 1)))
    (finding,) = [f for f in examine(changed(grown, sample=new)) if f.check.startswith("producers.")]
    assert finding == Finding(
        "ok", "producers.partitioner", "the latest 1 records lie where murmur2 puts their model type"
    )


def test_where_growth_is_not_known_the_finding_says_so() -> None:
    facts = records(*5 * [record(APART, BY_NEITHER)], grown_before_us=None)
    (finding,) = [finding for finding in examine(facts) if finding.check == "producers.other-partitioner"]
    assert "whether the topic has grown lately is not known" in finding.found


def test_a_topic_without_records_judges_nobody() -> None:
    findings = examine(well_but(sample=Sample((), None)))
    assert "no records to judge producers by" in [finding.found for finding in findings]


def test_keys_that_both_partitioners_put_into_one_partition_count_for_murmur2() -> None:
    models = [f"model{i}" for i in range(200)]
    same = [m for m in models if java_partition(m.encode(), 4) == librdkafka_partition(m.encode(), 4)]
    assert same
    assert {placing(record(m, java_partition(m.encode(), 4)), 4) for m in same} == {"murmur2"}


def test_an_invalid_event_is_judged_by_its_key_alone() -> None:
    assert placing(record(model_type=None), PARTITIONS) == "murmur2"
    assert placing(record(model_type=None, key=b"", partition=0), PARTITIONS) == "null key"


def test_a_new_epoch_that_begins_within_the_topic_has_lost_nothing() -> None:
    begins = {(EPOCH + 1, partition): 100 for partition in range(PARTITIONS)}
    facts = changed(meta(epoch=EPOCH + 1, checkpoints={}), archive=changed(HEALTHY.archive, ends=begins))
    assert not {f.check for f in examine(facts) if f.severity in ("warning", "error")}


def test_ages_by_the_producers_clock_make_no_lag() -> None:
    facts = changed(setting(allow_create_time=True), waiting={"archive": {0: NOW_US - 10 * DAY_US}})
    assert not {f.check for f in examine(facts) if f.severity in ("warning", "error")}


def test_a_password_to_this_machine_or_by_tls_is_no_fault() -> None:
    for url in ("redis://u:secret@localhost:6379/0", "rediss://u:secret@elsewhere:6379/0", "unix:///run/redis.sock"):
        assert not [f for f in examine(setting(redis_url=url)) if f.check == "settings.redis-password"]


def test_the_report_is_grouped_counts_and_shows_no_secret() -> None:
    facts = changed(
        setting(redis_url="redis://u:hidden@elsewhere:6379/0", kafka_password="hidden"), redis=Missing("refused")
    )
    text = "\n".join(click.unstyle(line) for line in lines(examine(facts)))
    assert "hidden" not in text
    assert "redis\n  error    answers: refused\n           rule: the online store must answer\n" in text
    areas = [line for line in text.splitlines() if not line.startswith(" ")][:-1]
    assert areas == [area for area in AREAS if area in areas]
    assert text.splitlines()[-1].startswith("errors 1, warnings 1, notes 0, ok ")


def test_the_worst_severity_decides() -> None:
    assert worst([]) == "ok"
    assert worst(Finding(severity, "a.b", "") for severity in reversed(SEVERITIES)) == "error"


def test_a_source_that_fails_or_is_silent_does_not_keep_the_others() -> None:
    silence = threading.Event()

    def failing() -> None:
        raise Unavailable("the broker is away")

    def broken() -> None:
        raise KeyError("x")

    try:
        told = ask(
            {
                "silent": silence.wait,
                "failing": failing,
                "broken": broken,
                "known": Missing("not asked", asked=False),
                "good": lambda: 7,
            },
            limit_s=1.0,
        )
    finally:
        silence.set()
    assert told == {
        "silent": Missing("no answer within 1 s"),
        "failing": Missing("the broker is away"),
        "broken": Missing("KeyError: 'x'"),
        "known": Missing("not asked", asked=False),
        "good": 7,
    }


def test_without_feast_its_registry_is_not_checked() -> None:
    program = """
import sys
sys.modules["feast"] = None  # as where it is not installed
import leap_streams.doctor_command
from leap_features.settings import Settings
from leap_streams.doctor_sources import registry
print(registry(Settings(feature_repo=".")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Feast is not installed" in done.stdout
    assert "asked=False" in done.stdout
