"""The doctor's checks of the two topics, of what producers write into them, and of the dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from leap_features.events import MAX_EVENT_BYTES, from_us
from leap_features.settings import Settings
from leap_streams.doctor_facts import Facts, Missing, Record
from leap_streams.doctor_finding import Finding, ok
from leap_streams.partitioners import java_partition, librdkafka_partition

DAY_MS: Final = 86_400_000

LARGEST_RECORD_BYTES: Final = 2 * MAX_EVENT_BYTES
"""An event with its key and generous headers."""
DEAD_LETTER_HEADERS_BYTES: Final = 16 * 1024
"""More than the headers take that a dead letter has and its record had not."""

LATELY_US: Final = 86_400_000_000
"""Dead letters of the last day want somebody to look at them."""

RARE: Final = 0.01
"""Share of the sample below which misplaced records are a note: a few may be from a change that is over."""

Placing = Literal["murmur2", "crc32", "null key", "other key", "elsewhere"]


def topics_exist(facts: Facts) -> Iterator[Finding]:
    """Both topics are there, and with as many copies as durability asks for."""
    if isinstance(facts.topics, Missing):
        return
    settings = facts.settings
    for area, name in _areas(settings):
        shape = facts.topics.get(name)
        if shape is None:
            yield Finding(
                "error",
                f"{area}.exists",
                f"there is no topic {name} at {settings.kafka_brokers}",
                "both topics must exist",
                "`leap init`, or the right LEAP_TOPIC and LEAP_DEAD_LETTER_TOPIC",
            )
        else:
            yield ok(f"{area}.exists", f"{name}: partitions {shape.partitions}, replicas {shape.replicas}")
    if settings.topic == settings.dead_letter_topic:
        yield Finding(
            "error",
            "dead-letter.own-topic",
            f"LEAP_TOPIC and LEAP_DEAD_LETTER_TOPIC are both {settings.topic}",
            "dead letters need a topic of their own: else each is taken in, refused and written again, without end",
            "set another LEAP_DEAD_LETTER_TOPIC, then `leap init`",
        )


def partition_count(facts: Facts) -> Iterator[Finding]:
    """The topic has the number of partitions that the settings name."""
    shape = None if isinstance(facts.topics, Missing) else facts.topics.get(facts.settings.topic)
    if shape is not None and shape.partitions != facts.settings.partitions:
        yield Finding(
            "note",
            "topic.partitions",
            f"{facts.settings.topic} has {shape.partitions} partitions, LEAP_PARTITIONS is {facts.settings.partitions}",
            "LEAP_PARTITIONS is what `leap init` gives a new topic; it should be what the topic has",
            f"LEAP_PARTITIONS={shape.partitions}",
        )


def timestamps(facts: Facts) -> Iterator[Finding]:
    """The broker stamps the records."""
    name = facts.settings.topic
    kind = _config(facts, name).get("message.timestamp.type")
    if kind == "LogAppendTime":
        yield ok("topic.timestamps", f"message.timestamp.type={kind}")
    elif kind is not None:
        yield Finding(
            "error",
            "topic.timestamps",
            f"{name} has message.timestamp.type={kind}",
            "history rests on the broker's time, which is the same for all producers: it must be LogAppendTime",
            _alter(facts.settings, name, "message.timestamp.type", "LogAppendTime"),
        )


def cleanup(facts: Facts) -> Iterator[Finding]:
    """Records go by age alone: nothing is compacted, and no size makes them go sooner."""
    for area, name in _areas(facts.settings):
        config = _config(facts, name)
        policy = config.get("cleanup.policy", "delete")
        if policy != "delete":
            yield Finding(
                "error",
                f"{area}.cleanup",
                f"{name} has cleanup.policy={policy}",
                "compaction deletes all records of a key but the last, and the key is the model type",
                _alter(facts.settings, name, "cleanup.policy", "delete"),
            )
        limit = int(config.get("retention.bytes", "-1"))
        if limit >= 0:
            yield Finding(
                "warning",
                f"{area}.retention-bytes",
                f"{name} has retention.bytes={limit}",
                "a limit by size deletes records sooner than their retention says, just when there are many",
                _alter(facts.settings, name, "retention.bytes", "-1"),
            )


def retention(facts: Facts) -> Iterator[Finding]:
    """The topic keeps its records as long as LEAP reckons with, and not longer."""
    settings = facts.settings
    name = settings.topic
    config = _config(facts, name)
    if "retention.ms" not in config:
        return
    kept = int(config["retention.ms"])
    shown = "for ever" if kept < 0 else f"{kept / DAY_MS:g} days"
    planned = round(settings.topic_retention_days * DAY_MS)
    if kept < 0 or kept > planned:
        yield Finding(
            "warning",
            "topic.retention",
            f"{name} keeps records {shown} (retention.ms={kept}), LEAP_TOPIC_RETENTION_DAYS is "
            f"{settings.topic_retention_days:g}",
            "attempts are remembered for LEAP_HORIZON_DAYS + LEAP_TOPIC_RETENTION_DAYS: a worker that is further "
            "behind would count a repeated attempt twice",
            "LEAP_TOPIC_RETENTION_DAYS as long as the topic's retention, or "
            + _alter(settings, name, "retention.ms", str(planned)),
        )
    elif kept < settings.horizon_days * DAY_MS:
        yield Finding(
            "warning",
            "topic.retention",
            f"{name} keeps records {shown} (retention.ms={kept}), LEAP_HORIZON_DAYS is {settings.horizon_days:g}",
            "the topic must keep records for the horizon at least: an app that is down for longer loses events",
            _alter(settings, name, "retention.ms", str(planned)),
        )
    elif kept < planned:
        yield Finding(
            "warning",
            "topic.retention",
            f"{name} keeps records {shown} (retention.ms={kept}), LEAP_TOPIC_RETENTION_DAYS is "
            f"{settings.topic_retention_days:g}",
            "the topic must keep records as long as LEAP reckons with: the archive has less time to catch up",
            _alter(settings, name, "retention.ms", str(planned)),
        )
    else:
        yield ok("topic.retention", f"records are kept {shown}, the horizon is {settings.horizon_days:g} days")


def dead_letter_retention(facts: Facts) -> Iterator[Finding]:
    """Dead letters wait for whoever repairs them."""
    name = facts.settings.dead_letter_topic
    kept = int(_config(facts, name).get("retention.ms", "-1"))
    if kept >= 0:
        yield Finding(
            "note",
            "dead-letter.retention",
            f"{name} keeps records {kept / DAY_MS:g} days",
            "a dead letter that has been deleted cannot be repaired any more",
            _alter(facts.settings, name, "retention.ms", "-1"),
        )


def record_sizes(facts: Facts) -> Iterator[Finding]:
    """Every event fits into the topic, and every record of it into the dead-letter topic."""
    settings = facts.settings
    limits = {
        name: int(limit)
        for _, name in _areas(settings)
        if (limit := _config(facts, name).get("max.message.bytes")) is not None
    }
    own = limits.get(settings.topic)
    if own is not None and own < LARGEST_RECORD_BYTES:
        yield Finding(
            "error",
            "topic.record-size",
            f"{settings.topic} has max.message.bytes={own}",
            f"an event may have {MAX_EVENT_BYTES} bytes, and key and headers besides",
            _alter(settings, settings.topic, "max.message.bytes", "1048576"),
        )
    dead = limits.get(settings.dead_letter_topic)
    if own is None or dead is None:
        return
    if dead < own + DEAD_LETTER_HEADERS_BYTES:
        yield Finding(
            "error",
            "dead-letter.record-size",
            f"{settings.dead_letter_topic} has max.message.bytes={dead}, {settings.topic} has {own}",
            f"a dead letter is a whole record and its headers, up to {DEAD_LETTER_HEADERS_BYTES} bytes more: a worker "
            "waits for ever to write one that does not fit",
            _alter(settings, settings.dead_letter_topic, "max.message.bytes", str(2 * own)),
        )
    else:
        yield ok("dead-letter.record-size", f"max.message.bytes={dead}, above the {own} of the completions")


def copies(facts: Facts) -> Iterator[Finding]:
    """Acknowledged records outlive a broker."""
    if isinstance(facts.topics, Missing):
        return
    for area, name in _areas(facts.settings):
        shape, config = facts.topics.get(name), _config(facts, name)
        if shape is None or not config:
            continue
        in_sync = int(config.get("min.insync.replicas", "1"))
        if in_sync > shape.replicas:
            yield Finding(
                "error",
                f"{area}.replicas",
                f"{name} has {shape.replicas} replicas and min.insync.replicas={in_sync}",
                "records are acknowledged by that many replicas: nothing can be written",
                _alter(facts.settings, name, "min.insync.replicas", str(max(shape.replicas - 1, 1))),
            )
        elif shape.replicas == 1:
            yield Finding(
                "note",
                f"{area}.replicas",
                f"{name} has one replica",
                "with one replica, its broker's disk is the only one that has the records",
                "three replicas and min.insync.replicas=2, where there are three brokers",
            )
        elif in_sync == 1:
            yield Finding(
                "warning",
                f"{area}.replicas",
                f"{name} has {shape.replicas} replicas and min.insync.replicas=1",
                "with 1, a record may be acknowledged that one broker alone has: its loss is the record's",
                _alter(facts.settings, name, "min.insync.replicas", "2"),
            )
        elif in_sync == shape.replicas:
            yield Finding(
                "warning",
                f"{area}.replicas",
                f"{name} has {shape.replicas} replicas and min.insync.replicas={in_sync}",
                "nothing can be written while one of the brokers is down",
                _alter(facts.settings, name, "min.insync.replicas", str(shape.replicas - 1)),
            )
        if config.get("unclean.leader.election.enable") == "true":
            yield Finding(
                "warning",
                f"{area}.unclean-leader",
                f"{name} has unclean.leader.election.enable=true",
                "a broker that lacks acknowledged records may become the leader, and other records take their offsets",
                _alter(facts.settings, name, "unclean.leader.election.enable", "false"),
            )


def placing(record: Record, partitions: int) -> Placing:
    """How the producer of `record` came to put it where it is, as far as that can be told.

    Keys that two partitioners put into one partition count for murmur2.
    """
    if not record.key:
        return "null key"
    if record.model_type is not None and record.key != record.model_type.encode():
        return "other key"
    if java_partition(record.key, partitions) == record.partition:
        return "murmur2"
    return "crc32" if librdkafka_partition(record.key, partitions) == record.partition else "elsewhere"


_ONE_PARTITION: Final = "records of a model type must lie in one partition, murmur2's: else two workers write its rows"

_WHERE: Final[Mapping[Placing, tuple[str, str, str, str]]] = {
    "crc32": (
        "partitioner",
        "lie where librdkafka's default partitioner (CRC32) puts their key",
        _ONE_PARTITION,
        "partitioner=murmur2_random in the configuration of producers that use librdkafka (such as confluent-kafka)",
    ),
    "elsewhere": (
        "other-partitioner",
        "lie where neither murmur2 nor CRC32 puts their key",
        _ONE_PARTITION,
        "producers that name no partition themselves and use murmur2, the default of Java's clients",
    ),
    "null key": (
        "null-keys",
        "have no key",
        "the key is the model type: without one, records of a model type are scattered over all partitions",
        "producers that set the key to the event's model_type",
    ),
    "other key": (
        "keys",
        "have a key that is not their event's model type",
        "the key is the model type: with another, records of a model type are scattered over the partitions",
        "producers that set the key to the event's model_type, in UTF-8",
    ),
}


def producers(facts: Facts) -> Iterator[Finding]:
    """Producers key their records by model type and use murmur2.

    A topic that has grown holds records which lie where they did before. Those that are surely from after the growth
    are judged; if none is known to be, all of them are, and the findings say so.
    """
    shape = None if isinstance(facts.topics, Missing) else facts.topics.get(facts.settings.topic)
    if isinstance(facts.sample, Missing) or shape is None:
        return
    since = facts.sample.grown_before_us
    judged = [record for record in facts.sample.records if since is None or record.recorded_at_us >= since]
    if not judged:
        yield ok("producers.partitioner", "no records to judge producers by")
        return
    kinds = Counter(placing(record, shape.partitions) for record in judged)
    doubt = ""
    if since is None:
        doubt = " (or they are older than the newest partitions: whether the topic has grown lately is not known)"
    for kind, (name, where, rule, mend) in _WHERE.items():
        if count := kinds[kind]:
            share = count / len(judged)
            yield Finding(
                "warning" if share >= RARE else "note",
                f"producers.{name}",
                f"{count:,} of the latest {len(judged):,} records ({share:.1%}) {where}"
                + (doubt if kind in ("crc32", "elsewhere") else ""),
                rule,
                mend,
            )
    if kinds["murmur2"] == len(judged):
        yield ok("producers.partitioner", f"the latest {len(judged):,} records lie where murmur2 puts their model type")


def dead_letters(facts: Facts) -> Iterator[Finding]:
    """How many records the worker has turned away, and why."""
    if isinstance(facts.dead_letters, Missing):
        return
    counts = facts.dead_letters
    if not counts:
        yield ok("dead-letter.count", "no dead letters")
        return
    total = sum(count.records for count in counts.values())
    latest_us = max(count.last_us for count in counts.values())
    by_rule = ", ".join(
        f"{rule} {count.records:,}" for rule, count in sorted(counts.items(), key=lambda entry: -entry[1].records)
    )
    yield Finding(
        "warning" if facts.now_us - latest_us < LATELY_US else "note",
        "dead-letter.count",
        f"{total:,} dead letters, the latest of {from_us(latest_us).isoformat(timespec='seconds')}: {by_rule}",
        "each is an event that history lacks, unless it was sent again",
        "`leap dead-letter list` shows them, `leap dead-letter replay` sends them again",
    )


def _areas(settings: Settings) -> tuple[tuple[str, str], ...]:
    return ("topic", settings.topic), ("dead-letter", settings.dead_letter_topic)


def _config(facts: Facts, topic: str) -> Mapping[str, str]:
    """Settings of `topic`; empty where they are not known."""
    if isinstance(facts.configs, Missing) or topic not in facts.configs:
        return {}
    return facts.configs[topic].config


def _alter(settings: Settings, topic: str, name: str, value: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server {settings.kafka_brokers} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {name}={value}"
    )
