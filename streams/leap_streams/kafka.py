"""How every client of the product reaches Kafka, and what the topics must be like."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

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
    admin = AdminClient(client_config(settings))
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


def topic_uuid(settings: Settings) -> str:
    """UUID of the completions topic, another one once it is deleted and created again; empty where the broker has none.

    Raises:
        TopicError: there is no such topic, or it may not be looked at.
        Unavailable: the broker does not answer.
    """
    admin = AdminClient(client_config(settings))
    futures = admin.describe_topics(TopicCollection([settings.topic]), request_timeout=LOOK_TIMEOUT_S)
    try:
        described = futures[settings.topic].result()
    except KafkaException as error:
        raise _failed(settings, error) from None
    identifier = str(described.topic_id) if described.topic_id is not None else ""
    return "" if set(identifier) <= {"A", "="} else identifier


def wait_for_broker(settings: Settings, say: Callable[[str], None], *, pause_s: float = 2.0) -> None:
    """Return once a broker answers; `say` is told of each time that none did."""
    admin = AdminClient(client_config(settings))
    while True:
        try:
            admin.list_topics(timeout=LOOK_TIMEOUT_S)
            return
        except KafkaException as error:
            if error.args[0].code() not in _HEALS:
                return  # whoever connects says what it is
            say(f"waits for Kafka at {settings.kafka_brokers}: {error.args[0].str()}")
            time.sleep(pause_s)


def check_topic(settings: Settings) -> None:
    """Check that the broker itself stamps the records of the completions topic.

    Raises:
        TopicError: it does not, or may not be asked.
        Unavailable: it does not answer.
    """
    admin = AdminClient(client_config(settings))
    resource = ConfigResource(ResourceType.TOPIC, settings.topic)
    try:
        config = admin.describe_configs([resource], request_timeout=LOOK_TIMEOUT_S)[resource].result()
    except KafkaException as error:
        raise _failed(settings, error) from None
    kind = config["message.timestamp.type"].value
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
