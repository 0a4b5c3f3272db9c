"""The state of nightly runs on disk: what was planned for a night, and the result of each phase that has finished.

    {root}/lock                              see `lock`
    {root}/nights/2026-01-31.parquet         the figures of a night that is done, see `record`
    {root}/runs/2026-01-31/plan.json         what was asked for when the night was begun
    {root}/runs/2026-01-31/{phase}/          files that the phase makes
    {root}/runs/2026-01-31/{phase}.json      its result and how long it took

A phase has finished when its result is there, which appears whole, after everything that the phase made is on disk. A
phase that was killed is done again from an empty folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from leap_features.durable import durable_directory, publish, sync

RUNS: Final = "runs"
PLAN: Final = "plan.json"
_ASIDE: Final = ".aside-"

Result = TypeVar("Result", bound=msgspec.Struct)


class StateError(ValueError):
    """A night that cannot go on from what is on disk; the message says what to do."""


class Plan(msgspec.Struct, frozen=True):
    """What a night is about. All times are UTC."""

    night: date
    """The day at whose first instant the night cuts."""
    train_days: int
    judge_days: int
    family_rule: str
    """Version of the family rules."""
    config_keys: tuple[str, ...] = ()
    """Keys of the jobs' configuration that take part in the model."""

    @property
    def cut(self) -> datetime:
        """What is recorded from here on takes no part in the model that is published."""
        return datetime.combine(self.night, time(), UTC)

    @property
    def judged_from(self) -> datetime:
        """Attempts submitted from here to the cut are judged; the candidate is fitted on what was recorded before."""
        return self.cut - timedelta(days=self.judge_days)

    @property
    def candidate_from(self) -> datetime:
        """The candidate's rows were submitted from here on: the beginning of the data set."""
        return self.judged_from - timedelta(days=self.train_days)

    @property
    def final_from(self) -> datetime:
        """The published model's rows were submitted from here on."""
        return self.cut - timedelta(days=self.train_days)


class Finished(msgspec.Struct, Generic[Result], frozen=True):
    """A phase that has finished."""

    seconds: float
    result: Result


def begin(root: Path, plan: Plan) -> Path:
    """The folder of a night, begun if it has not been.

    Raises:
        StateError: it was begun with another plan.
    """
    root.mkdir(parents=True, exist_ok=True)
    directory = durable_directory(root, RUNS, plan.night.isoformat())
    path = directory / PLAN
    try:
        begun = _decode(path, Plan)
    except FileNotFoundError:
        publish(directory, PLAN, msgspec.json.encode(plan), replace=True)
        return directory
    for name in Plan.__struct_fields__:
        was, asked = getattr(begun, name), getattr(plan, name)
        if was != asked:
            raise StateError(
                f"night {plan.night} was begun with {name} {was}, now it is {asked}: start it as before, or from its "
                "beginning with --again"
            )
    return directory


def finished(directory: Path, phase: str, kind: type[Result]) -> Finished[Result] | None:
    """What a phase came to; None if it has not finished.

    Raises:
        StateError: its result cannot be read.
    """
    try:
        return _decode(directory / f"{phase}.json", Finished[kind])  # type: ignore[valid-type]  # a class at run time
    except FileNotFoundError:
        return None


def run_phase(
    directory: Path,
    phase: str,
    kind: type[Result],
    work: Callable[[Path], Result],
    *,
    monotonic: Callable[[], float],
) -> Finished[Result]:
    """Do a phase that has not finished, from an empty folder, and keep its result.

    Args:
        work: is given the folder for the phase's files.
        monotonic: seconds, to time it by.
    """
    folder = directory / phase
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    began = monotonic()
    result = work(folder)
    done = Finished(round(monotonic() - began, 3), result)
    sync(folder)
    sync(directory)
    publish(directory, f"{phase}.json", msgspec.json.encode(done), replace=True)
    return done


def put_aside(root: Path, night: date) -> None:
    """Forget what the phases of `night` came to. It is gone at once for whoever looks, however this ends."""
    directory = root / RUNS / night.isoformat()
    if directory.is_dir():
        aside = directory.with_name(f"{_ASIDE}{night.isoformat()}")
        shutil.rmtree(aside, ignore_errors=True)
        directory.rename(aside)
    remove_aside(root)


def remove_aside(root: Path) -> None:
    """Remove what was put aside, and was left by a run that was killed meanwhile."""
    for directory in (root / RUNS).glob(f"{_ASIDE}*"):
        shutil.rmtree(directory, ignore_errors=True)


def begun_nights(root: Path) -> list[date]:
    """The nights that have a folder, earliest first."""
    return dates_named(path.name for path in (root / RUNS).glob("*") if path.is_dir())


def dates_named(names: Iterable[str]) -> list[date]:
    """The days that `names` are of, as `date.isoformat` writes them, earliest first; other names are nobody's night."""
    found = []
    for name in names:
        try:
            day = date.fromisoformat(name)
        except ValueError:
            continue
        if day.isoformat() == name:
            found.append(day)
    return sorted(found)


def _decode(path: Path, kind: type[Result]) -> Result:
    raw = path.read_bytes()
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} cannot be read ({error}): start the night from its beginning with --again") from None
