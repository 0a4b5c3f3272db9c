"""The history directory: where the history rows of one build lie, and how the next build replaces them at once.

    {history}/{view}/part-*.parquet    what Feast reads; {view} is a link into `current`
    {history}/current                  a link to the build that is served
    {history}/builds/{name}/           the builds: the served one and the one before it, for readers that are at work
    {history}/builds/{name}/build.json what the build was made from

A build is written whole into a directory of its own; then one rename of the link `current` puts all levels in its place
together. A build that fails or is killed leaves what was served as it was.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from leap_features import archive, archive_reader, family
from leap_features.archive import Segment
from leap_features.history_rows import Counts, Say, write_history_rows
from leap_features.levels import LEVELS

CURRENT: Final = "current"
BUILDS: Final = "builds"
MANIFEST: Final = "build.json"

Ends = dict[str, int]
"""`epoch:partition` → offset after the last one taken in."""


class HistoryError(RuntimeError):
    """A history directory that cannot be used; the message says what to do."""


class Build(msgspec.Struct, frozen=True):
    """What a build was made from, and what came out."""

    ends: Ends
    horizon_us: int
    family_rule: str
    counts: Counts


def build(
    archive_root: Path | str,
    history_root: Path | str,
    *,
    horizon_us: int,
    rules: family.Rules = family.DEFAULT_RULES,
    say: Say = lambda _line: None,
) -> Build:
    """Build the history rows of the whole archive and put them in place of those that are served.

    Args:
        horizon_us: events recorded later than this after completion are left out, unless replayed; the worker's.
        say: is told, in a line, how it goes.

    Raises:
        ArchiveError: there is no archive, or it has a hole.
        HistoryError: another build is at work, or something else lies in the history directory.
    """
    root = Path(history_root)
    found = archive.check_complete(archive_root)
    (root / BUILDS).mkdir(parents=True, exist_ok=True)
    with _alone(root):
        served = _served(root)
        _remove_builds(root, keep=served)
        target = root / BUILDS / f"{served[0] + 1 if served else 1:06d}-{secrets.token_hex(4)}"
        made = build_into(target, found, horizon_us=horizon_us, rules=rules, say=say)
        _serve(root, target)
    return made


def build_into(
    target: Path,
    found: Sequence[Segment],
    *,
    horizon_us: int,
    rules: family.Rules = family.DEFAULT_RULES,
    say: Say = lambda _line: None,
) -> Build:
    """Build the history rows of the segments `found` into the new directory `target`; served by nobody."""
    target.mkdir(parents=True)
    spill = target / "spill"
    with archive_reader.connect(spill) as connection:
        counts = write_history_rows(connection, found, target, horizon_us=horizon_us, rules=rules, say=say)
    shutil.rmtree(spill, ignore_errors=True)
    made = Build(ends_of(found), horizon_us, rules.version, counts)
    (target / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    return made


def ends_of(found: Sequence[Segment]) -> Ends:
    """The offset after the last one that the segments `found` cover, per epoch and partition."""
    ends: Ends = {}
    for segment in found:
        lane = f"{segment.epoch}:{segment.partition}"
        ends[lane] = max(ends.get(lane, 0), segment.last + 1)
    return ends


def current(history_root: Path | str) -> Path:
    """The directory of the served build, which stays what it is when another build takes its place."""
    return (Path(history_root) / CURRENT).resolve()


def segments_of(made: Build, archive_root: Path | str) -> list[Segment]:
    """The segments that `made` was made from: those of the archive now, without what has come since.

    Raises:
        ArchiveError: there is no archive.
    """
    return [s for s in archive.segments(archive_root) if s.last < made.ends.get(f"{s.epoch}:{s.partition}", 0)]


def served(history_root: Path | str) -> Build | None:
    """What the served build was made from; None if there is none.

    Raises:
        HistoryError: it cannot be read.
    """
    manifest = Path(history_root) / CURRENT / MANIFEST
    try:
        return msgspec.json.decode(manifest.read_bytes(), type=Build)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise HistoryError(f"{manifest}: {error}; run `leap history build`") from None


def is_current(
    archive_root: Path | str, history_root: Path | str, *, horizon_us: int, rules: family.Rules = family.DEFAULT_RULES
) -> bool:
    """Whether the served build is what `build` would make of the archive as it is now."""
    made = served(history_root)
    if made is None or (made.horizon_us, made.family_rule) != (horizon_us, rules.version):
        return False
    return made.ends == ends_of(archive.segments(archive_root))


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold the lock of the history directory; the system releases it when the process ends, however it ends."""
    with (root / BUILDS / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HistoryError(f"another build is at work in {root}; wait for it to end") from None
        yield


def _served(root: Path) -> tuple[int, Path] | None:
    """Number and directory of the served build."""
    link = root / CURRENT
    if not link.is_symlink():
        return None
    directory = link.resolve()
    return int(directory.name.partition("-")[0]), directory


def _remove_builds(root: Path, keep: tuple[int, Path] | None) -> None:
    for directory in (root / BUILDS).iterdir():
        if directory.is_dir() and (keep is None or directory.resolve() != keep[1]):
            shutil.rmtree(directory)


def _serve(root: Path, target: Path) -> None:
    """Put the build in `target` in place of the served one."""
    _link(root / CURRENT, Path(BUILDS) / target.name)
    for level in LEVELS:
        entry = root / level.view
        if entry.exists() and not entry.is_symlink():
            raise HistoryError(f"{entry} was not made by `leap history build`: move it away, or set LEAP_HISTORY")
        if not entry.is_symlink():
            _link(entry, Path(CURRENT) / level.view)


def _link(entry: Path, target: Path) -> None:
    """Make `entry` a link to `target` (relative), in one step."""
    temporary = entry.with_name(f".{entry.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(entry)
