"""Asks every source for its facts, each for itself and for a limited time: a silent one does not keep the others.

A source may hang where no timeout of its own reaches (a name that does not resolve, a file system that is away). So
each is asked in a daemon thread, which is left behind when its time is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from leap_features.settings import Settings
from leap_streams import doctor_kafka, doctor_sources
from leap_streams.dead_letter_log import counts
from leap_streams.doctor_facts import APPS, App, Archive, Facts, Missing, RedisServer, taken_in
from leap_streams.topic_bounds import Bounds

LIMIT_S: Final = 30.0
"""For which a source is waited for. There are three rounds, since some answers tell what else can be asked."""
RECORDS: Final = 1_000
"""Latest records per partition that producers are judged by."""

Source = Callable[[], Any]


def gather(settings: Settings, *, records: int = RECORDS, limit_s: float = LIMIT_S) -> Facts:
    """The facts of the deployment of `settings`.

    Args:
        records: latest records per partition that producers are judged by.
        limit_s: for which a source is waited for.
    """
    told = ask(
        {
            "topics": lambda: doctor_kafka.topics(settings),
            "redis": lambda: doctor_sources.redis_server(settings),
            "archive": lambda: doctor_sources.archive_directory(settings),
            "family_rule": lambda: doctor_sources.family_rule(settings),
            "history": lambda: doctor_sources.history_rows(settings),
            "bundle": lambda: doctor_sources.bundle(settings),
            "policy": lambda: doctor_sources.policy(settings),
            "registry": lambda: doctor_sources.registry(settings),
        },
        limit_s,
    )
    topics = told["topics"]
    silent = Missing("the broker does not answer", asked=False) if isinstance(topics, Missing) else None
    told |= ask(
        {
            "configs": silent or (lambda: doctor_kafka.configs(settings, topics)),
            "groups": silent or (lambda: doctor_kafka.groups(settings)),
            "bounds": silent or _absent(topics, settings.topic) or (lambda: doctor_kafka.bounds(settings)),
            "dead_letters": silent or _absent(topics, settings.dead_letter_topic) or (lambda: counts(settings)),
        },
        limit_s,
    )
    bounds = told["bounds"]
    unknown = Missing("the topic's offsets are not known", asked=False) if isinstance(bounds, Missing) else None
    told |= ask(
        {
            "sample": unknown or (lambda: doctor_kafka.sample(settings, bounds, records)),
            "waiting": unknown or (lambda: _waiting(settings, bounds, told["redis"], told["archive"])),
        },
        limit_s,
    )
    return Facts(settings=settings, now_us=time.time_ns() // 1000, **told)


def ask(sources: Mapping[str, Source | Missing], limit_s: float) -> dict[str, Any]:
    """Source → what it told, or why it did not; all are asked at once. Whatever one raises is its answer."""
    told: dict[str, Any] = {}

    def run(name: str, source: Source) -> None:
        try:
            told[name] = source()
        except Exception as error:
            told[name] = Missing(_reason(error))

    threads = []
    for name, source in sources.items():
        if isinstance(source, Missing):
            told[name] = source
        else:
            threads.append(threading.Thread(target=run, args=(name, source), name=f"doctor-{name}", daemon=True))
            threads[-1].start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = Missing(f"no answer within {limit_s:g} s")
    return {name: told.get(name, silent) for name in sources}


def _reason(error: Exception) -> str:
    """What `error` says; one of the product's own says it all."""
    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    own = type(error).__module__.startswith("leap_")
    return str(error) if own else f"{type(error).__name__}: {error}"


def _absent(topics: Mapping[str, Any], name: str) -> Missing | None:
    return None if name in topics else Missing(f"there is no topic {name}", asked=False)


def _waiting(
    settings: Settings, bounds: Mapping[int, Bounds], redis: RedisServer | Missing, archive: Archive | Missing
) -> dict[App, dict[int, int]]:
    waiting: dict[App, dict[int, int]] = {}
    for app in APPS:
        ends = taken_in(app, redis, archive)
        if ends is not None:
            starts = {partition: ends.get(partition, bound.first) for partition, bound in bounds.items()}
            waiting[app] = doctor_kafka.first_recorded(settings, starts, bounds)
    return waiting
