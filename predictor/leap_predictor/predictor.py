"""The predictor: a job and its candidates in, a ranking out, an empty one on any failure.

    with Predictor.open("data/bundles", "redis://localhost:6379/0") as predictor:
        choices = predictor.rank(Job("train-bert-7", "bert", trainer_count=8), ["A100-SXM-80", "H100-SXM-80"])

The ranking is a preference that the scheduler may follow. An empty one means: as if LEAP did not exist.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from leap_features.family import FamilyError
from leap_predictor.bundle import Bundle, current_id, load, specifications_of
from leap_predictor.candidate_columns import candidate_columns
from leap_predictor.errors import PolicyError, StoreError, StoreTimeout
from leap_predictor.explanation import CandidateReport, Choice, Explanation, Reason
from leap_predictor.history_reader import HistoryReader
from leap_predictor.history_request import Reading
from leap_predictor.job import InvalidJob, Job, check_config, checked_candidates, checked_job
from leap_predictor.policy import Policy, read_policy
from leap_predictor.ranking import eligible, order, reports
from leap_predictor.reloading import Reloader, Reloading

DEADLINE_S: Final = 0.05
RELOAD_EVERY_S: Final = 2.0
"""How often files are looked at for a newer bundle or policy."""

_COMPUTING_SHARE: Final = 0.2
_COMPUTING_S: Final = 0.01
"""How much of the deadline is kept back for the prediction, which takes some milliseconds: a fifth, at most this."""

_log = logging.getLogger(__name__)


class _Subject(NamedTuple):
    """A candidate as the history levels see it."""

    job_family: str
    model_type: str
    hardware_type: str
    trainer_count: int


class _NoAnswer(Exception):
    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Predictor:
    """Ranks candidates by predicted throughput per cost. Safe across threads and after a fork.

    Made by `open`. `rank` and `explain` never raise, never write, and do not wait past the deadline.
    """

    def __init__(
        self,
        bundle: Reloading[Bundle],
        policy: Reloading[Policy],
        reader: HistoryReader,
        *,
        project: str,
        deadline_s: float = DEADLINE_S,
        reload_every_s: float = RELOAD_EVERY_S,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        if not 0 < deadline_s <= 60:
            raise ValueError(f"deadline_s must be above 0 and at most 60 seconds, got {deadline_s!r}")
        self._bundle = bundle
        self._policy = policy
        self._reader = reader
        self._project = project
        self._deadline_s = deadline_s
        self._now_us = now_us
        self._closed = False
        self._reloader = Reloader((bundle, policy), reload_every_s)

    @classmethod
    def open(
        cls,
        bundle_dir: str | Path,
        redis_url: str,
        *,
        deadline_s: float = DEADLINE_S,
        policy: str | Path | None = None,
        project: str = "leap",
    ) -> Self:
        """Open a predictor: read bundle and policy, begin to connect.

        A bundle, policy or store that is not there yet is no error here: `rank` answers [] until it is.

        Args:
            bundle_dir: directory of published bundles (its current one is served, and a newer one is picked up), or
                of one bundle.
            redis_url: the online store, `redis://…`, or `redis+sentinel://…` for the master that sentinels name (all
                forms: `leap_features.redis_address`).
            deadline_s: longest time that `rank` may take, in seconds.
            policy: TOML file of the policy; None or empty: everything is enabled.
            project: Feast project of the history.

        Raises:
            ValueError: `redis_url` is no URL, or `deadline_s` is out of range: nothing that time could heal.
        """
        bundles = Path(bundle_dir)
        served = Reloading(lambda: current_id(bundles), lambda bundle_id: load(bundles, bundle_id))
        predictor = cls(
            served,
            _reloading_policy(Path(policy) if policy else None),
            HistoryReader(redis_url, project),
            project=project,
            deadline_s=deadline_s,
        )
        predictor.refresh()
        predictor._reader.warm_up()
        predictor._reloader.ensure_running()
        return predictor

    def refresh(self) -> None:
        """Look for a newer bundle and policy now, in the caller's thread, instead of waiting for the background."""
        self._bundle.refresh()
        self._policy.refresh()

    def rank(self, job: Job | Mapping[str, object], candidates: Iterable[str]) -> list[Choice]:
        """The candidates of `job`, best score first; [] on any failure.

        Args:
            job: a `Job`, or a mapping of its fields.
            candidates: hardware types that the job may run on.
        """
        return list(self._answer(job, candidates, detailed=False).choices)

    def explain(self, job: Job | Mapping[str, object], candidates: Iterable[str]) -> Explanation:
        """What `rank` answers, with features, history and predictions of every candidate, or why it answers []."""
        return self._answer(job, candidates, detailed=True)

    def close(self) -> None:
        """End threads and connection. Afterwards `rank` answers []."""
        self._closed = True
        self._reloader.close()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, job: Job | Mapping[str, object], candidates: Iterable[str], *, detailed: bool) -> Explanation:
        deadline = time.monotonic() + self._deadline_s
        found = _Findings()
        try:
            choices = self._choices(job, candidates, deadline, found, detailed)
        except _NoAnswer as end:
            return found.explanation((), end.reason, str(end))
        except Exception as error:  # the launcher must go on, whatever went wrong here
            _log.exception("ranking failed")
            # Unlike str(), it holds for an error that cannot be printed.
            said = traceback.format_exception_only(error)[-1].strip()
            return found.explanation((), Reason.INTERNAL_ERROR, said)
        return found.explanation(choices)

    def _choices(
        self,
        asked_job: Job | Mapping[str, object],
        asked_candidates: Iterable[str],
        deadline: float,
        found: _Findings,
        detailed: bool,
    ) -> tuple[Choice, ...]:
        if self._closed:
            raise _NoAnswer(Reason.CLOSED, "the predictor is closed")
        self._reloader.ensure_running()
        bundle, policy = self._served(found)
        try:
            job, names = checked_job(asked_job), checked_candidates(asked_candidates)
            check_config(job.config, bundle.model.features, bundle.model.categories)
            found.job_family = bundle.family_of(job.model_type, job.job_name, job.job_family)
        except (InvalidJob, FamilyError) as error:
            raise _NoAnswer(Reason.JOB_INVALID, str(error)) from error
        found.names = tuple(names)
        found.drop({name: why for name, why in names.items() if why is not None})
        if not names:
            raise _NoAnswer(Reason.NO_CANDIDATES, "the list of candidates is empty")
        if not policy.enables(job.model_type):
            raise _NoAnswer(
                Reason.MODEL_TYPE_NOT_ENABLED, f"the policy does not enable the model type {job.model_type!r}"
            )
        candidates, dropped = eligible([name for name, why in names.items() if why is None], bundle.catalogue, policy)
        found.drop(dropped)
        if not candidates:
            raise _NoAnswer(Reason.NO_CANDIDATE_LEFT, found.all_dropped())
        types = [candidate.hardware_type for candidate in candidates]
        subjects = [_Subject(found.job_family, job.model_type, name, job.trainer_count) for name in types]
        reading = self._history(bundle, subjects, deadline)
        self._check_time(deadline, "reading history")
        columns = candidate_columns(
            job,
            types,
            reading.rows,
            views=bundle.manifest.views,
            features=bundle.model.features,
            specifications=specifications_of(bundle.catalogue),
            now_us=self._now_us(),
        )
        estimate = bundle.model.estimate(columns)
        choices, dropped = order(candidates, job.trainer_count, estimate, reading.rows, policy)
        if detailed:
            found.reports |= reports(candidates, choices, columns, estimate, reading.rows, bundle)
        found.drop(dropped)
        if not choices:
            raise _NoAnswer(Reason.NO_CANDIDATE_LEFT, found.all_dropped())
        self._check_time(deadline, "predicting")
        if job.model_type not in bundle.model.model_types and not any(c.level for c in choices):
            found.warnings.append(
                f"the model type {job.model_type!r} was not in the training data and has no history: its throughput is "
                "guessed from other model types"
            )
        return choices

    def _check_time(self, until: float, doing: str) -> None:
        if time.monotonic() > until:
            raise _NoAnswer(
                Reason.DEADLINE_PASSED, f"the deadline of {self._deadline_s * 1e3:.0f} ms passed while {doing}"
            )

    def _served(self, found: _Findings) -> tuple[Bundle, Policy]:
        bundle, policy = self._bundle.now, self._policy.now
        if bundle.value is None:
            raise _NoAnswer(Reason.BUNDLE_UNREADABLE, str(bundle.error or "no bundle was read yet"))
        if policy.value is None:
            raise _NoAnswer(Reason.POLICY_INVALID, str(policy.error or "no policy was read yet"))
        found.bundle_id = bundle.value.bundle_id
        found.warnings += [
            f"the newest {name} is not served: {error}"
            for name, error in (("bundle", bundle.error), ("policy", policy.error))
            if error is not None
        ]
        if bundle.value.manifest.project != self._project:
            raise _NoAnswer(
                Reason.BUNDLE_OF_OTHER_PROJECT,
                f"bundle {bundle.value.bundle_id} is of project {bundle.value.manifest.project!r}, "
                f"this predictor reads the history of {self._project!r}: open it with the bundle's project",
            )
        return bundle.value, policy.value

    def _history(self, bundle: Bundle, subjects: list[_Subject], deadline: float) -> Reading:
        until = deadline - min(self._deadline_s * _COMPUTING_SHARE, _COMPUTING_S)
        self._check_time(until, "taking in the question")
        try:
            reading = self._reader.read(bundle.manifest.views, subjects, within_s=until - time.monotonic())
        except StoreTimeout as error:
            raise _NoAnswer(Reason.STORE_SLOW, str(error)) from error
        except StoreError as error:
            raise _NoAnswer(Reason.STORE_UNAVAILABLE, str(error)) from error
        meta = reading.meta
        if reading.torn:
            raise _NoAnswer(Reason.HISTORY_REBUILDING, "history was replaced while it was read")
        if meta is None:
            raise _NoAnswer(
                Reason.HISTORY_ABSENT, f"the online store has no history of project {self._project!r}: run `leap init`"
            )
        wanted = bundle.manifest.history_schema
        if meta.schema != wanted:
            raise _NoAnswer(
                Reason.HISTORY_OF_OTHER_SCHEMA,
                f"the online store has schema version {meta.schema!r}, the bundle wants {wanted!r}: run `leap rebuild`",
            )
        if meta.state != "ready":
            raise _NoAnswer(Reason.HISTORY_REBUILDING, f"the online store is {meta.state or 'in no state'}, not ready")
        if meta.family_rule != bundle.manifest.family_rule:
            raise _NoAnswer(
                Reason.FAMILY_RULE_DIFFERS,
                f"history is kept by family rule {meta.family_rule!r}, the bundle has "
                f"{bundle.manifest.family_rule!r}: run `leap rebuild`, or train again",
            )
        return reading


class _Findings:
    """What one call has found out so far: an explanation in the making, which is given however the call ends."""

    def __init__(self) -> None:
        self.bundle_id: str | None = None
        self.job_family: str | None = None
        self.warnings: list[str] = []
        self.names: tuple[str, ...] = ()
        self.reports: dict[str, CandidateReport] = {}

    def drop(self, dropped: Mapping[str, str]) -> None:
        for name, why in dropped.items():
            report = self.reports.get(name, CandidateReport(name))
            self.reports[name] = dataclasses.replace(report, dropped=why)

    def all_dropped(self) -> str:
        said = "; ".join(f"{name}: {report.dropped}" for name, report in list(self.reports.items())[:10])
        return f"every candidate was dropped ({said})"

    def explanation(self, choices: tuple[Choice, ...], reason: Reason | None = None, message: str = "") -> Explanation:
        in_order = tuple(self.reports[name] for name in self.names if name in self.reports)
        return Explanation(choices, reason, message, tuple(self.warnings), self.bundle_id, self.job_family, in_order)


def _reloading_policy(path: Path | None) -> Reloading[Policy]:
    if path is None:
        return Reloading(lambda: None, lambda _: Policy())
    return Reloading(lambda: _file_stamp(path), lambda _: read_policy(path))


def _file_stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise PolicyError(f"policy {path} cannot be read: {error}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino
