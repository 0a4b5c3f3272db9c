"""What is wrong with a deployment, and what mends it: all of the doctor's checks over the facts that were gathered.

A check is a function from facts to findings. It says nothing where its facts are missing: that the source did not tell
is a finding of its own, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from leap_streams import (
    doctor_app_checks,
    doctor_file_checks,
    doctor_setting_checks,
    doctor_store_checks,
    doctor_topic_checks,
)
from leap_streams.doctor_facts import Facts, Missing
from leap_streams.doctor_finding import Finding

Check = Callable[[Facts], Iterable[Finding]]

_ASK_BROKER: Final = "see LEAP_KAFKA_BROKERS and the security settings; the user must be allowed to describe topics"

SOURCES: Final[Mapping[str, tuple[str, str, str]]] = {
    "topics": ("topic.broker", "the broker must answer", _ASK_BROKER),
    "configs": ("topic.configs", "the broker must tell how the topics are set", _ASK_BROKER),
    "bounds": ("topic.offsets", "the broker must tell which offsets it has", _ASK_BROKER),
    "sample": ("producers.sample", "the latest records must be readable", _ASK_BROKER + " and to read them"),
    "dead_letters": ("dead-letter.read", "the dead letters must be readable", _ASK_BROKER + " and to read them"),
    "groups": ("history.groups", "the broker must tell who is in the apps' groups", _ASK_BROKER + " and groups"),
    "waiting": ("history.waiting", "the records that wait must be readable", _ASK_BROKER + " and to read them"),
    "redis": ("redis.answers", "the online store must answer", "start Redis, or mend LEAP_REDIS_URL"),
    "archive": ("archive.readable", "the archive must be readable", "mend LEAP_ARCHIVE, or `leap init`"),
    "family_rule": ("versions.family-rules", "the family rules must be readable", "mend the file of LEAP_FAMILY_RULES"),
    "history": (
        "versions.history-rows",
        "the history rows must be readable",
        "mend LEAP_HISTORY, or `leap history build`",
    ),
    "bundle": ("versions.bundle", "launchers must be able to read the bundle", "mend LEAP_BUNDLES, or `leap train`"),
    "policy": ("versions.policy", "launchers must be able to read the policy", "mend the file of LEAP_POLICY"),
    "registry": ("registry.readable", "Feast's registry must be readable", "mend LEAP_FEATURE_REPO, or its registry"),
}
"""Field of `Facts` → check, rule and mend of the finding where its source did not tell."""


def sources(facts: Facts) -> Iterator[Finding]:
    """Every source told what it was asked."""
    for name, (check, rule, mend) in SOURCES.items():
        told: Any = getattr(facts, name)
        if isinstance(told, Missing):
            if told.asked:
                yield Finding("error", check, told.reason, rule, mend)
            else:
                yield Finding("note", check, f"not checked: {told.reason}")


CHECKS: Final[tuple[Check, ...]] = (
    sources,
    doctor_topic_checks.topics_exist,
    doctor_topic_checks.partition_count,
    doctor_topic_checks.timestamps,
    doctor_topic_checks.retention,
    doctor_topic_checks.cleanup,
    doctor_topic_checks.record_sizes,
    doctor_topic_checks.copies,
    doctor_topic_checks.dead_letter_retention,
    doctor_topic_checks.dead_letters,
    doctor_topic_checks.producers,
    doctor_app_checks.members,
    doctor_app_checks.lag,
    doctor_app_checks.archive_in_time,
    doctor_store_checks.server,
    doctor_store_checks.persistence,
    doctor_store_checks.memory,
    doctor_store_checks.meta,
    doctor_store_checks.checkpoints,
    doctor_file_checks.archive,
    doctor_file_checks.rules_and_policy,
    doctor_file_checks.history_rows,
    doctor_file_checks.bundle,
    doctor_file_checks.registry,
    doctor_setting_checks.values,
    doctor_setting_checks.secrets,
    doctor_setting_checks.clocks,
)


def examine(facts: Facts) -> list[Finding]:
    """Every finding, in the order of the checks."""
    return [finding for check in CHECKS for finding in check(facts)]
