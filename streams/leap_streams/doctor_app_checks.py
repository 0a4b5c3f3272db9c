"""The doctor's checks of the two apps: whether they are at work, on every partition, and how far behind they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from leap_features.events import from_us
from leap_streams.doctor_facts import APPS, App, Facts, Missing, taken_in
from leap_streams.doctor_finding import Finding, ok

COMMANDS: Final[Mapping[App, str]] = {"history": "`leap worker`", "archive": "`leap archive`"}

BEHIND_S: Final = 300.0
"""How long a record may wait for an app, beyond the time for which batches are filled: restarts take less."""
BEHIND_RECORDS: Final = 100_000
"""How many may wait, also where their age says nothing."""
RETENTION_USED: Final = 0.5
"""Share of the topic's retention after which a record that is not archived is in danger."""

STABLE: Final = "stable"
US: Final = 1_000_000


def members(facts: Facts) -> Iterator[Finding]:
    """Each app's consumer group has members, each member has partitions, and each partition a member."""
    if isinstance(facts.groups, Missing):
        return
    shape = None if isinstance(facts.topics, Missing) else facts.topics.get(facts.settings.topic)
    for app, group in facts.groups.items():
        name = f"group {facts.settings.project}-{app}"
        if not group.members:
            yield Finding(
                "error",
                f"{app}.members",
                f"{name} has no member (state {group.state})",
                f"events wait until {COMMANDS[app]} runs",
                f"start {COMMANDS[app]}; if it runs and ends, its last line says why",
            )
            continue
        if group.state != STABLE:
            yield Finding(
                "note",
                f"{app}.members",
                f"{name} is {group.state}: {len(group.members)} members are sharing out the partitions",
                "this takes seconds; until then nobody knows who has which",
                "run `leap doctor` again",
            )
            continue
        idle = [member.name for member in group.members if not member.partitions]
        if idle:
            yield Finding(
                "warning",
                f"{app}.idle",
                f"{len(idle)} of {len(group.members)} members of {name} have no partition: {', '.join(idle[:5])}",
                "a partition is taken in by one process: more of them than partitions do nothing",
                f"fewer processes of {COMMANDS[app]}, or more partitions",
            )
        taken = {partition for member in group.members for partition in member.partitions}
        free = sorted(set(range(shape.partitions if shape else 0)) - taken)
        if free:
            yield Finding(
                "error",
                f"{app}.unassigned",
                f"{len(free)} partitions have no member of {name}: {_listed(free)}",
                "every partition must be taken in; a topic that has grown is noticed within minutes",
                f"if this stays, restart {COMMANDS[app]}",
            )
        if not idle and not free:
            yield ok(
                f"{app}.members",
                f"{len(group.members)} in {name}, each with partitions, and each partition with a member",
            )


def lag(facts: Facts) -> Iterator[Finding]:
    """How far each app is behind the topic, in records and in time."""
    settings = facts.settings
    if isinstance(facts.bounds, Missing):
        return
    for app in APPS:
        ends = taken_in(app, facts.redis, facts.archive)
        if ends is None:
            continue
        # An app that has nothing of a partition begins where the topic does.
        counts = {p: bound.end - ends.get(p, bound.first) for p, bound in facts.bounds.items()}
        behind = {partition: count for partition, count in counts.items() if count > 0}
        since = {} if isinstance(facts.waiting, Missing) else facts.waiting.get(app, {})
        # Producers' times say when an attempt ended, not since when its record waits.
        ages = {} if settings.allow_create_time else {p: (facts.now_us - at) / US for p, at in since.items()}
        allowed_s = BEHIND_S + (settings.archive_within_s if app == "archive" else settings.batch_within_s)
        late = {p for p, age in ages.items() if age > allowed_s} | {p for p, n in behind.items() if n > BEHIND_RECORDS}
        total = sum(behind.values())
        if not late:
            yield ok(f"{app}.lag", f"{total:,} records wait")
            continue
        oldest = min((since[p] for p in late if p in ages), default=None)
        yield Finding(
            "warning",
            f"{app}.lag",
            f"{total:,} records wait for {COMMANDS[app]}"
            + (f", the oldest since {_instant(oldest)}" if oldest is not None else "")
            + f"; most behind: {_most(behind, late)}",
            f"no record should wait longer than {allowed_s:g} s, nor more than {BEHIND_RECORDS:,} in a partition",
            f"see whether {COMMANDS[app]} runs and what it logs; if it is busy, more processes, up to one a partition",
        )


def archive_in_time(facts: Facts) -> Iterator[Finding]:
    """The archive has records long before the topic deletes them."""
    ends = taken_in("archive", facts.redis, facts.archive)
    if ends is None or isinstance(facts.bounds, Missing):
        return
    topic = facts.settings.topic
    for partition, bound in sorted(facts.bounds.items()):
        end = ends.get(partition, 0)
        if end < bound.first:
            yield Finding(
                "error",
                "archive.lost",
                f"the archive ends at offset {end} of partition {partition}, {topic} begins at {bound.first}",
                f"the {bound.first - end:,} records between are nowhere any more",
                "restore those segments from a copy; else `leap epoch new --accept-loss` goes on without them",
            )
    retention_ms = _retention_ms(facts)
    if retention_ms is None or isinstance(facts.waiting, Missing) or facts.settings.allow_create_time:
        return
    for partition, since_us in sorted(facts.waiting.get("archive", {}).items()):
        left_ms = retention_ms - (facts.now_us - since_us) / 1000
        if left_ms < (1 - RETENTION_USED) * retention_ms:
            yield Finding(
                "error",
                "archive.in-danger",
                f"partition {partition}: the archive lacks records since {_instant(since_us)}, which {topic} deletes "
                f"in {max(left_ms, 0) / 86_400_000:.1f} days",
                "what is neither in the topic nor in the archive is lost for ever",
                "start `leap archive` now, or give the topic a longer retention.ms until it has caught up",
            )


def _retention_ms(facts: Facts) -> int | None:
    if isinstance(facts.configs, Missing) or facts.settings.topic not in facts.configs:
        return None
    kept = int(facts.configs[facts.settings.topic].config.get("retention.ms", "-1"))
    return kept if kept >= 0 else None


def _instant(us: int) -> str:
    return from_us(us).isoformat(timespec="seconds")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", …" if len(numbers) > 10 else "")


def _most(behind: Mapping[int, int], late: set[int]) -> str:
    worst = sorted(late, key=lambda partition: -behind.get(partition, 0))[:5]
    return ", ".join(f"partition {partition} {behind.get(partition, 0):,}" for partition in worst)
