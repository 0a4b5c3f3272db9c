"""The phases of a night, each done once however often the run is killed and started again.

    dataset     the training set of the last days, with the judged days
    candidate   the model fitted on what was recorded before the judged days
    judge       the candidate, the published model and the back-off on the judged days
    gate        whether a model is published, and why not
    fit         the model that is published, on everything recorded before the cut
    publish     its bundle becomes the current one

After a refusal by the gate there are neither fit nor publish.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from leap_features import family
from leap_features.backoff import backoff
from leap_features.events import from_us, to_us
from leap_features.settings import Settings
from leap_predictor import bundle
from leap_predictor.bundle import Bundle
from leap_predictor.errors import BundleError
from leap_training.dataset import Written, write_dataset
from leap_training.judge.intervals import Coverage
from leap_training.judge.slices import flags
from leap_training.nightly import gate, model_step
from leap_training.nightly.comparison import (
    BACKOFF_LAST,
    CANDIDATE,
    PUBLISHED,
    Difference,
    SliceFigures,
    coverage_of_all,
    slice_figures,
)
from leap_training.nightly.gate import Evidence, Refusal
from leap_training.nightly.state import Plan, StateError, finished, run_phase
from leap_training.training_set import ReadResult, TrainingSet, TrainingSetError, read_training_set

ATTEMPTS: Final = "attempts.parquet"

Result = TypeVar("Result", bound=msgspec.Struct)


class PublishedMeanwhile(RuntimeError):
    """Somebody else published since tonight's model was compared with the published one."""


class Candidate(msgspec.Struct, frozen=True):
    """The model fitted without the judged days."""

    rows: int
    """Attempts that it was, or would have been, fitted on."""
    set_aside: int
    """Rows of the whole data set that cannot be used, as `read_training_set` has it."""
    newest_recorded_at: datetime | None
    """Of the whole data set."""
    bundle_id: str | None
    """None: too few rows to be worth a fit."""


class Judgement(msgspec.Struct, frozen=True):
    """How the models did on the judged days."""

    rows: int
    figures: tuple[SliceFigures, ...]
    intervals: Coverage | None
    """Of the candidate."""
    published_id: str | None
    """The current bundle when this was judged; None: there was none."""
    published_before: datetime | None
    """What was recorded before this instant it has seen."""
    not_compared: str
    """Why the published model took no part; empty: it did."""


class Decision(msgspec.Struct, frozen=True):
    """What the gate decided."""

    refusals: tuple[Refusal, ...]
    """Empty: publish."""


class Fit(msgspec.Struct, frozen=True):
    """The model that is published."""

    rows: int
    bundle_id: str


class Publication(msgspec.Struct, frozen=True):
    """The bundle that became the current one."""

    bundle_id: str


class Outcome(msgspec.Struct, frozen=True):
    """Everything that a night came to."""

    plan: Plan
    dataset: Written
    candidate: Candidate
    judgement: Judgement
    refusals: tuple[Refusal, ...]
    bundle_id: str | None
    """What was published; None: nothing."""
    seconds: dict[str, float]
    """By phase, those that took place."""


@dataclass
class Night:
    """A night at work: where its results are kept, and everything that is not decided by them."""

    directory: Path
    plan: Plan
    settings: Settings
    rules: family.Rules
    rows_before: int | None
    """Rows of the data set of the latest earlier night with the same windows; None: there is none."""
    say: Callable[[str], None]
    clock: Callable[[], datetime]
    """Aware time."""

    def run(self) -> Outcome:
        """Do what has not been done yet.

        Raises:
            ArchiveError, HistoryError, FeatureRepoError, DatasetError: there is nothing to make a data set from.
            StateError: what is on disk cannot be read.
            PublishedMeanwhile: another model than the one compared with is the published one.
            ConfigKeyError: a configuration key cannot take part.
            ServedDiffers, BundleError: the bundle cannot be made.
        """
        self._seconds: dict[str, float] = {}
        dataset = self._phase("dataset", Written, self._dataset)
        candidate = self._phase("candidate", Candidate, self._candidate)
        judgement = self._phase("judge", Judgement, lambda _folder: self._judge(candidate))
        decision = self._phase("gate", Decision, lambda _folder: self._gate(dataset, candidate, judgement))
        bundle_id = None
        if not decision.refusals:
            self._phase("fit", Fit, lambda folder: self._fit(folder, candidate, judgement))
            published = self._phase("publish", Publication, lambda _folder: self._publish(judgement))
            bundle_id = published.bundle_id
        return Outcome(self.plan, dataset, candidate, judgement, decision.refusals, bundle_id, dict(self._seconds))

    def _phase(self, name: str, kind: type[Result], work: Callable[[Path], Result]) -> Result:
        done = finished(self.directory, name, kind)
        if done is None:
            self.say(f"{name}: begins")
            done = run_phase(self.directory, name, kind, work, monotonic=time.monotonic)
            self.say(f"{name}: done in {done.seconds:.1f} s")
        else:
            self.say(f"{name}: was done before, in {done.seconds:.1f} s")
        self._seconds[name] = done.seconds
        return done.result

    @cached_property
    def _read(self) -> ReadResult:
        with _whole_again(TrainingSetError):
            return read_training_set(self.directory / "dataset" / ATTEMPTS)

    @cached_property
    def _judged(self) -> TrainingSet:
        """Attempts submitted on the judged days, as far as they had ended when the data set was written."""
        rows = self._read.rows
        return rows.where(rows.submitted_at_us >= to_us(self.plan.judged_from))

    def _dataset(self, folder: Path) -> Written:
        return write_dataset(
            self.settings,
            folder / ATTEMPTS,
            rules=self.rules,
            start=self.plan.candidate_from,
            end=self.plan.cut,
            say=lambda line: self.say(f"dataset: {line}"),
        )

    @cached_property
    def _before(self) -> TrainingSet:
        """What the candidate is fitted on."""
        rows = self._read.rows
        return rows.where(rows.recorded_at_us < to_us(self.plan.judged_from))

    def _candidate(self, folder: Path) -> Candidate:
        rows, before = self._read.rows, self._before
        newest = from_us(int(rows.recorded_at_us.max())) if len(rows) else None
        bundle_id = None
        if len(before) >= gate.MIN_TRAIN_ROWS:
            bundle_id = self._stage("candidate", before, folder, self.plan.judged_from, {})
        return Candidate(len(before), self._read.set_aside, newest, bundle_id)

    def _judge(self, candidate: Candidate) -> Judgement:
        rows = self._judged
        bundles = Path(self.settings.bundles)
        published, published_id, not_compared = _published(bundles)
        before = seen_before(published)
        if candidate.bundle_id is None or not len(rows):
            return Judgement(len(rows), (), None, published_id, before, not_compared or "there is nothing to judge")
        self.say(f"judge: scoring {len(rows):,} attempts submitted from {self.plan.judged_from:%Y-%m-%d %H:%M} UTC on")
        with _whole_again(BundleError):
            loaded = bundle.load(self.directory / "candidate")
        predicted = model_step.predict(loaded, rows)
        ours = predicted.log_throughput
        slices = flags(self._before, rows).slices()
        found = slice_figures(CANDIDATE, ours, rows, slices)
        found += slice_figures(BACKOFF_LAST, backoff(rows.columns).last, rows, slices, ours)
        if published is not None and before is not None:
            unseen = rows.submitted_at_us >= to_us(before)
            if unseen.any():
                theirs = model_step.predict(published, rows.where(unseen)).log_throughput
                unseen_slices = {name: chosen[unseen] for name, chosen in slices.items()}
                found += slice_figures(PUBLISHED, theirs, rows.where(unseen), unseen_slices, ours[unseen])
            else:
                not_compared = (
                    f"it has seen the judged days: it knows what was recorded before {before:%Y-%m-%d %H:%M} UTC"
                )
        if not_compared:
            self.say(f"judge: not compared with the published model: {not_compared}")
        intervals = coverage_of_all(predicted, rows.log_throughput)
        return Judgement(len(rows), tuple(found), intervals, published_id, before, not_compared)

    def _gate(self, dataset: Written, candidate: Candidate, judgement: Judgement) -> Decision:
        def ahead_of(model: str) -> dict[str, Difference]:
            return {
                found.slice: found.below_candidate
                for found in judgement.figures
                if found.model == model and found.below_candidate is not None
            }

        evidence = Evidence(
            cut=self.plan.cut,
            judge_days=self.plan.judge_days,
            dataset_rows=dataset.rows,
            dataset_rows_before=self.rows_before,
            newest_recorded_at=candidate.newest_recorded_at,
            train_rows=candidate.rows,
            judged_rows=judgement.rows,
            above_backoff=ahead_of(BACKOFF_LAST),
            above_published=ahead_of(PUBLISHED),
            published_before=judgement.published_before,
            intervals=judgement.intervals,
        )
        return Decision(gate.refusals(evidence))

    def _fit(self, folder: Path, candidate: Candidate, judgement: Judgement) -> Fit:
        rows = self._read.rows
        chosen = (rows.recorded_at_us < to_us(self.plan.cut)) & (rows.submitted_at_us >= to_us(self.plan.final_from))
        rows = rows.where(chosen)
        return Fit(len(rows), self._stage("fit", rows, folder, self.plan.cut, metrics(judgement)))

    def _stage(self, phase: str, rows: TrainingSet, folder: Path, before: datetime, known: dict[str, float]) -> str:
        self.say(f"{phase}: fitting {len(rows):,} attempts recorded before {before:%Y-%m-%d %H:%M} UTC")
        return model_step.stage(
            rows,
            folder,
            settings=self.settings,
            rules=self.rules,
            config_keys=self.plan.config_keys,
            before=before,
            set_aside=self._read.set_aside,
            metrics=known,
            now=self.clock(),
        )

    def _publish(self, judgement: Judgement) -> Publication:
        bundles, staging = Path(self.settings.bundles), self.directory / "fit"
        with _whole_again(BundleError):
            bundle.load(staging)
        current = _current_id(bundles)
        # Where a run was killed between publishing and saying so, the current one is tonight's own.
        if current not in (judgement.published_id, bundle.current_id(staging)):
            raise PublishedMeanwhile(
                f"bundle {current} is the published one by now, the comparison was with {judgement.published_id}: "
                "start the night from its beginning with --again"
            )
        return Publication(model_step.publish_staged(staging, bundles))


@contextmanager
def _whole_again(*damaged: type[Exception]) -> Iterator[None]:
    """Say what to do where something that an earlier phase made is not whole any more.

    Raises:
        StateError: it is not.
    """
    try:
        yield
    except damaged as error:
        raise StateError(f"{error}; start the night from its beginning with --again") from None


def metrics(judgement: Judgement) -> dict[str, float]:
    """The figures of the judged days as a bundle's manifest holds them."""
    return {
        f"judged_{found.slice}_{found.model}_{name}": float(value)
        for found in judgement.figures
        for name, value in msgspec.structs.asdict(found.figures).items()
        if value is not None
    }


def seen_before(published: Bundle | None) -> datetime | None:
    """The instant before which everything recorded was seen by a model; later attempts are new to it."""
    if published is None:
        return None
    window = published.manifest.training
    if window.before is not None or window.last_recorded_at is None:
        return window.before
    return window.last_recorded_at + timedelta(microseconds=1)


def _current_id(bundles: Path) -> str | None:
    try:
        return bundle.current_id(bundles)
    except BundleError:
        return None


def _published(bundles: Path) -> tuple[Bundle | None, str | None, str]:
    """The published bundle, its id, and why there is nothing to compare with."""
    published_id = _current_id(bundles)
    if published_id is None:
        return None, None, f"{bundles} holds no published bundle"
    try:
        return bundle.load(bundles, published_id), published_id, ""
    except BundleError as error:
        return None, published_id, str(error)
