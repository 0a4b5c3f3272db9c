"""How every client of the product reaches Kafka, and what the topics must be like."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from leap_features.settings import Settings
from leap_streams.faults import Unavailable

REPLAY_HEADER: Final = "leap-replay"
"""Set to `1` by an operator who sends an event again: it may pass the lateness rule."""

MAX_MESSAGE_BYTES: Final = 1_048_576
"""Limit of the completions topic: well above an event's own, so that a too large one is named, not lost."""
DEAD_LETTER_MAX_BYTES: Final = 2 * MAX_MESSAGE_BYTES
"""Above the source's limit, since a dead letter carries headers."""

ADMIN_TIMEOUT_S: Final = 15.0
LOOK_TIMEOUT_S: Final = 5.0
"""Of looking at a topic, which an app does again and again; it may have to stop meanwhile."""

_HEALS: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""What a broker that is down or starting answers, or does not."""


class TopicError(RuntimeError):
    """A topic is missing or not as it must be; the message names the setting and the mend."""


def client_config(settings: Settings) -> dict[str, Any]:
    """Connection and security settings of a librdkafka client."""
    config: dict[str, Any] = {
        "bootstrap.servers": settings.kafka_brokers,
        "security.protocol": settings.kafka_security_protocol,
        "log_level": 2,  # critical only: a broker that is down is reported by whoever waits for it
    }
    if settings.kafka_sasl_mechanism:
        config |= {
            "sasl.mechanism": settings.kafka_sasl_mechanism,
            "sasl.username": settings.kafka_username,
            "sasl.password": settings.kafka_password,
        }
    if settings.kafka_ca_file:
        config["ssl.ca.location"] = settings.kafka_ca_file
    return config


def create_topics(settings: Settings, replication: int, say: Callable[[str], None]) -> None:
    """Create the completions topic and the dead-letter topic where they are missing.

    Raises:
        TopicError: the broker does not answer, or refuses.
    """
    admin = admin_client(settings)
    retention_ms = str(round(settings.topic_retention_days * 86_400_000))
    completions = NewTopic(
        settings.topic,
        num_partitions=settings.partitions,
        replication_factor=replication,
        config={
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "delete",
            "retention.ms": retention_ms,
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
        },
    )
    dead_letters = NewTopic(
        settings.dead_letter_topic,
        num_partitions=1,
        replication_factor=replication,
        config={"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(DEAD_LETTER_MAX_BYTES)},
    )
    for name, future in admin.create_topics([completions, dead_letters], request_timeout=ADMIN_TIMEOUT_S).items():
        try:
            future.result()
            say(f"topic {name}: created")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"topic {name} at {settings.kafka_brokers}: {error.args[0].str()}") from None
            say(f"topic {name}: there already")


class TopicFacts(NamedTuple):
    """What the broker says of a topic."""

    uuid: str
    """Another one once the topic is deleted and created again; empty where the broker has none."""
    partitions: int
    config: Mapping[str, str]
    """Settings of the topic, those that are the broker's defaults included."""


def admin_client(settings: Settings) -> AdminClient:
    """A client that asks about topics. It keeps threads and connections of its own: an app has one, for its life."""
    return AdminClient(client_config(settings))


def describe_topic(settings: Settings, admin: AdminClient) -> TopicFacts:
    """What the broker says of the completions topic now.

    Raises:
        TopicError: there is no such topic, or it may not be looked at.
        Unavailable: the broker does not answer.
    """
    topics = _describe(settings, admin)
    resource = ConfigResource(ResourceType.TOPIC, settings.topic)
    configs = admin.describe_configs([resource], request_timeout=LOOK_TIMEOUT_S)
    try:
        described = topics.result()
        config = configs[resource].result()
    except KafkaException as error:
        raise _failed(settings, error) from None
    return TopicFacts(
        _uuid(described),
        len(described.partitions),
        {name: entry.value for name, entry in config.items() if entry.value is not None},
    )


def topic_uuid(settings: Settings, admin: AdminClient) -> str:
    """UUID of the completions topic now; empty where the broker has none. One short round trip.

    Raises:
        TopicError: there is no such topic, or it may not be looked at.
        Unavailable: the broker does not answer.
    """
    try:
        return _uuid(_describe(settings, admin).result())
    except KafkaException as error:
        raise _failed(settings, error) from None


def _describe(settings: Settings, admin: AdminClient) -> Any:
    return admin.describe_topics(TopicCollection([settings.topic]), request_timeout=LOOK_TIMEOUT_S)[settings.topic]


def _uuid(described: Any) -> str:
    identifier = str(described.topic_id) if described.topic_id is not None else ""
    return "" if set(identifier) <= {"A", "="} else identifier


def partition_count(settings: Settings, admin: AdminClient) -> int:
    """Number of partitions of the completions topic, from brokers that tell nothing else; 0 where unknown."""
    try:
        return len(admin.list_topics(settings.topic, timeout=LOOK_TIMEOUT_S).topics[settings.topic].partitions)
    except KafkaException:
        return 0


def wait_for_broker(settings: Settings, say: Callable[[str], None], *, pause_s: float = 2.0) -> None:
    """Return once a broker answers; `say` is told of each time that none did."""
    admin = admin_client(settings)
    while True:
        try:
            admin.list_topics(timeout=LOOK_TIMEOUT_S)
            return
        except KafkaException as error:
            if error.args[0].code() not in _HEALS:
                return  # whoever connects says what it is
            say(f"waits for Kafka at {settings.kafka_brokers}: {error.args[0].str()}")
            time.sleep(pause_s)


def check_append_time(settings: Settings, facts: TopicFacts) -> None:
    """Check that the broker itself stamps the records of the completions topic.

    Raises:
        TopicError: it does not.
    """
    kind = facts.config.get("message.timestamp.type")
    if kind != "LogAppendTime":
        raise TopicError(
            f"topic {settings.topic} has message.timestamp.type={kind}; history needs the broker's time: set it to "
            "LogAppendTime (or LEAP_ALLOW_CREATE_TIME=true for trying out)"
        )


def _failed(settings: Settings, error: KafkaException) -> RuntimeError:
    reason = error.args[0]
    shown = f"topic {settings.topic} at {settings.kafka_brokers}: {reason.str()}"
    if reason.code() in _HEALS:
        return Unavailable(shown)
    return TopicError(f"{shown}; `leap init` makes the topics")
