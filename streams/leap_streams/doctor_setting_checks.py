"""The doctor's checks of settings, of secrets on the wire, and of clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from leap_features import redis_address
from leap_features.settings import Settings
from leap_streams.doctor_facts import Facts, Missing
from leap_streams.doctor_finding import Finding, ok

LONGEST_BATCH_S: Final = 1.0
"""A worker that fills its batches for longer keeps history that old."""
SHORTEST_SEGMENT_S: Final = 5.0
LONGEST_SEGMENT_S: Final = 3600.0

CLOCKS_APART_S: Final = 2.0
AHEAD_SHARE: Final = 0.01
"""Share of the events that may be completed after the broker recorded them."""

LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
US: Final = 1_000_000


def values(facts: Facts) -> Iterator[Finding]:
    """The settings make sense together."""
    settings = facts.settings
    wrong = list(_odd_values(settings))
    yield from wrong
    if not wrong:
        yield ok("settings.values", f"horizon {settings.horizon_days:g} days, batches of {settings.batch_max:,}")


def _odd_values(settings: Settings) -> Iterator[Finding]:
    if settings.topic_retention_days < settings.horizon_days:
        yield Finding(
            "warning",
            "settings.retention",
            f"LEAP_TOPIC_RETENTION_DAYS={settings.topic_retention_days:g} is below LEAP_HORIZON_DAYS="
            f"{settings.horizon_days:g}",
            "the topic must keep records for the horizon at least: an app that is down for longer loses events",
            f"LEAP_TOPIC_RETENTION_DAYS={2 * settings.horizon_days:g}, and the topic's retention.ms with it",
        )
    if settings.batch_within_s > LONGEST_BATCH_S:
        yield Finding(
            "warning",
            "settings.batch",
            f"LEAP_BATCH_WITHIN_S={settings.batch_within_s:g}",
            f"every completion waits so long for its batch; more than {LONGEST_BATCH_S:g} s helps nothing",
            "LEAP_BATCH_WITHIN_S=0.1",
        )
    if settings.archive_within_s > LONGEST_SEGMENT_S:
        yield Finding(
            "warning",
            "settings.archive-batch",
            f"LEAP_ARCHIVE_WITHIN_S={settings.archive_within_s:g}",
            f"what waits for its segment is in the topic alone; {LONGEST_SEGMENT_S:g} s make large enough files",
            "LEAP_ARCHIVE_WITHIN_S=60",
        )
    elif settings.archive_within_s < SHORTEST_SEGMENT_S:
        yield Finding(
            "note",
            "settings.archive-batch",
            f"LEAP_ARCHIVE_WITHIN_S={settings.archive_within_s:g}",
            "each partition makes a file that often, and many small files slow down whoever reads the archive",
            "LEAP_ARCHIVE_WITHIN_S=60",
        )
    if settings.allow_create_time:
        yield Finding(
            "note",
            "settings.create-time",
            "LEAP_ALLOW_CREATE_TIME is set",
            "it is for trying out: record times are the producers', and lateness cannot be judged",
            "unset it, and set message.timestamp.type=LogAppendTime",
        )


def secrets(facts: Facts) -> Iterator[Finding]:
    """No password crosses a network in the clear."""
    settings = facts.settings
    brokers = [_host(server) for server in settings.kafka_brokers.split(",")]
    if settings.kafka_security_protocol == "SASL_PLAINTEXT" and not LOCAL_HOSTS.issuperset(brokers):
        yield Finding(
            "warning",
            "settings.kafka-password",
            f"LEAP_KAFKA_SECURITY_PROTOCOL=SASL_PLAINTEXT to {settings.kafka_brokers}",
            "credentials and events cross the network in the clear",
            "a listener with TLS, and LEAP_KAFKA_SECURITY_PROTOCOL=SASL_SSL",
        )
    address = redis_address.parse(settings.redis_url)
    split = urlsplit(address.server_url)
    hosts = [host for host, _ in address.sentinels] or [split.hostname or "localhost"]
    if split.scheme == "unix" or LOCAL_HOSTS.issuperset(hosts):
        return
    if split.scheme == "redis" and (split.password or address.sentinel_password):
        yield Finding(
            "warning",
            "settings.redis-password",
            f"LEAP_REDIS_URL={address} has a password and no TLS",
            "the password crosses the network in the clear",
            "a port with TLS, and rediss:// (rediss+sentinel://)",
        )
    elif not split.password:
        yield Finding(
            "note",
            "settings.redis-password",
            f"LEAP_REDIS_URL={address} has no password",
            "whoever reaches the server can change the history that jobs are ranked by",
            "a password in Redis and in LEAP_REDIS_URL, and TLS",
        )


def clocks(facts: Facts) -> Iterator[Finding]:
    """The clocks of this machine, of Redis, of the broker and of the producers agree."""
    here = "mend the clock that is wrong: an NTP client on every machine"
    if not isinstance(facts.redis, Missing):
        ahead = facts.redis.ahead_s
        if abs(ahead) > CLOCKS_APART_S:
            yield Finding(
                "warning",
                "clocks.redis",
                f"the clock of Redis is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this machine's",
                f"clocks must agree to {CLOCKS_APART_S:g} s",
                here,
            )
        else:
            yield ok("clocks.redis", f"Redis and this machine differ by {abs(ahead):.1f} s")
    if isinstance(facts.sample, Missing) or not facts.sample.records or facts.settings.allow_create_time:
        return
    latest_s = (max(record.recorded_at_us for record in facts.sample.records) - facts.now_us) / US
    if latest_s > CLOCKS_APART_S:
        yield Finding(
            "warning",
            "clocks.broker",
            f"the latest record was recorded {latest_s:.1f} s in this machine's future",
            f"clocks must agree to {CLOCKS_APART_S:g} s",
            here,
        )
    events = [record for record in facts.sample.records if record.completed_at_us is not None]
    early = [r for r in events if (r.completed_at_us or 0) - r.recorded_at_us > CLOCKS_APART_S * US]
    if early:
        most_s = max(((r.completed_at_us or 0) - r.recorded_at_us) / US for r in early)
        yield Finding(
            "warning" if len(early) >= AHEAD_SHARE * len(events) else "note",
            "clocks.producers",
            f"{len(early):,} of the latest {len(events):,} events ({len(early) / len(events):.1%}) say that they were "
            f"completed up to {most_s:.1f} s after the broker recorded them",
            "a completion more than 5 minutes ahead of the broker's clock becomes a dead letter",
            "NTP clients on the machines of the producers, or on the brokers'",
        )
    else:
        yield ok("clocks.producers", f"the latest {len(events):,} events were completed before they were recorded")


def _host(server: str) -> str:
    return urlsplit(f"//{server.strip()}").hostname or ""
