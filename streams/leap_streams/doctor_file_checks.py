"""The doctor's checks of what lies in files: archive, history rows, bundle, policy and Feast's registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from leap_features.meta import SCHEMA_VERSION
from leap_streams.doctor_facts import ONLINE_STORE, Facts, Missing, meta_of
from leap_streams.doctor_finding import Finding, ok

FREE_SHARE: Final = 0.05
FREE_BYTES: Final = 2**30
"""Below both, the archive's file system is nearly full."""
MANY_SEGMENTS: Final = 100_000
"""Listing so many files takes seconds, and every reader of the archive lists them."""

CHANGES_SHOWN: Final = 5


def archive(facts: Facts) -> Iterator[Finding]:
    """The archive is complete, has room, and is written by the rules of this environment."""
    found = facts.archive
    if isinstance(found, Missing):
        return
    root = facts.settings.archive
    if found.hole:
        yield Finding(
            "error",
            "archive.complete",
            found.hole,
            "the archive is the source of truth: nothing can be rebuilt without those events",
            "restore the segments from a copy",
        )
    else:
        yield ok("archive.complete", f"{root}: {found.segments:,} segments, no hole")
    if not found.writable:
        yield Finding(
            "warning",
            "archive.writable",
            f"{root} cannot be written by the user that `leap doctor` runs as",
            "`leap archive` and `leap import` must be able to",
            "run `leap doctor` as their user, or give it the right to write there",
        )
    free = f"{found.free_bytes / 2**30:,.1f} of {found.total_bytes / 2**30:,.1f} GiB are free"
    if found.free_bytes < FREE_BYTES or found.free_bytes < FREE_SHARE * found.total_bytes:
        yield Finding(
            "warning",
            "archive.space",
            f"{root}: {free}",
            f"at least 1 GiB and {FREE_SHARE:.0%} of it must be free: what is not archived is in the topic alone",
            "free space, or move the archive to a larger file system",
        )
    else:
        yield ok("archive.space", free)
    if found.segments > MANY_SEGMENTS:
        yield Finding(
            "note",
            "archive.segments",
            f"{root} has {found.segments:,} segments",
            f"more than {MANY_SEGMENTS:,} files slow down whoever reads the archive",
            "a longer LEAP_ARCHIVE_WITHIN_S makes fewer, larger ones",
        )
    meta = meta_of(facts.redis)
    life = found.lives.get(meta.epoch, "") if meta else ""
    if meta and life and meta.topic_uuid and life != meta.topic_uuid:
        yield Finding(
            "error",
            "archive.topic",
            f"{root} has epoch {meta.epoch} of the topic with UUID {life}, the online store follows {meta.topic_uuid}",
            "an epoch is one life of one topic: offsets of two lives must not be taken for each other",
            "`leap rebuild --new-epoch`, or the right LEAP_ARCHIVE",
        )
    others = sorted(found.newest_rules - {facts.family_rule}) if isinstance(facts.family_rule, str) else []
    if others:
        yield Finding(
            "warning",
            "archive.family-rule",
            f"the newest rows of {root} were made under family rule {', '.join(others)}, this environment has "
            f"{facts.family_rule}",
            "all processes must derive job families by the same rules",
            "the same LEAP_FAMILY_RULES for `leap archive`; what is archived is derived again where it is read",
        )


def rules_and_policy(facts: Facts) -> Iterator[Finding]:
    """The files that operators write can be read; where they cannot, their sources say so."""
    if isinstance(facts.family_rule, str):
        yield ok("versions.family-rules", f"this environment has family rule {facts.family_rule}")
    if facts.settings.policy and facts.policy is None:
        yield ok("versions.policy", facts.settings.policy)


def history_rows(facts: Facts) -> Iterator[Finding]:
    """Training reads history rows that were made by the rules of this environment."""
    made = facts.history
    if isinstance(made, Missing):
        return
    if made is None:
        yield Finding(
            "note",
            "versions.history-rows",
            f"{facts.settings.history} has no history rows",
            "training sets and `feast materialize` are made of them",
            "`leap history build`, where training runs",
        )
        return
    mend = "`leap history build`"
    if isinstance(facts.family_rule, str) and made.family_rule != facts.family_rule:
        yield Finding(
            "warning",
            "versions.history-rows",
            f"the history rows were made under family rule {made.family_rule!r}, this environment has "
            f"{facts.family_rule!r}",
            "a model must be trained on the families that it is asked for",
            mend,
        )
    elif made.horizon_us != facts.settings.horizon_us:
        yield Finding(
            "warning",
            "versions.history-rows",
            f"the history rows were made with a horizon of {made.horizon_us / 86_400_000_000:g} days, "
            f"LEAP_HORIZON_DAYS is {facts.settings.horizon_days:g}",
            "training must see the history that the worker keeps",
            mend,
        )
    else:
        yield ok(
            "versions.history-rows", f"family rule {made.family_rule}, horizon {facts.settings.horizon_days:g} days"
        )


def bundle(facts: Facts) -> Iterator[Finding]:
    """Launchers serve a bundle that fits the online store."""
    served = facts.bundle
    if isinstance(served, Missing):
        return
    if served is None:
        yield Finding(
            "note",
            "versions.bundle",
            f"{facts.settings.bundles} has no bundle",
            "nothing is ranked without one",
            "`leap train` publishes one",
        )
        return
    here = {"project": facts.settings.project, "history schema": SCHEMA_VERSION}
    theirs = {"project": served.project, "history schema": served.history_schema}
    if isinstance(facts.family_rule, str):
        here["family rule"], theirs["family rule"] = facts.family_rule, served.family_rule
    other = [f"{name} {theirs[name]!r} instead of {here[name]!r}" for name in here if theirs[name] != here[name]]
    if other:
        yield Finding(
            "error",
            "versions.bundle",
            f"bundle {served.bundle_id} has {', '.join(other)}",
            "a launcher answers [] where its bundle does not fit the online store",
            "`leap train` in this environment",
        )
    else:
        yield ok(
            "versions.bundle", f"{served.bundle_id}: family rule {served.family_rule}, schema {served.history_schema}"
        )


def registry(facts: Facts) -> Iterator[Finding]:
    """Feast's registry has what the code defines."""
    found = facts.registry
    if isinstance(found, Missing):
        return
    repository = facts.settings.feature_repo
    if found.file_project != facts.settings.project:
        yield Finding(
            "warning",
            "registry.project",
            f"{repository}/feature_store.yaml has project {found.file_project!r}, LEAP_PROJECT is "
            f"{facts.settings.project!r}",
            "Feast's own commands go by the file: they would work on another project's history",
            "the same project in both",
        )
    if found.online_store != ONLINE_STORE:
        yield Finding(
            "error",
            "registry.online-store",
            f"{repository}/feature_store.yaml has an online store of type {found.online_store}",
            "any other compares and writes in two steps, and an older row may replace a newer one",
            f"type: {ONLINE_STORE}",
        )
        return
    if not found.applied:
        yield Finding(
            "note",
            "registry.applied",
            f"the registry of {repository} has never been written",
            "Feast's own commands and clients read it",
            f"feast -c {repository} apply, where they are used",
        )
        return
    if found.expiring:
        yield Finding(
            "warning",
            "registry.ttl",
            f"these views have a ttl: {', '.join(found.expiring)}",
            "rows live for ever; how old history may be is for the launcher's policy to say",
            f"ttl 0 in {repository}/definitions.py, then feast -c {repository} apply",
        )
    if found.changes:
        more = len(found.changes) - CHANGES_SHOWN
        yield Finding(
            "warning",
            "registry.in-step",
            "; ".join(found.changes[:CHANGES_SHOWN]) + (f"; and {more} more" if more > 0 else ""),
            "the registry must have what the code defines: Feast reads other features than the worker writes else",
            f"feast -c {repository} apply",
        )
    else:
        yield ok("registry.in-step", f"{repository}: `feast apply` would change nothing")
