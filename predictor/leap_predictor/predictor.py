"""The predictor: a job and its candidates in, a ranking out, an empty one on any failure.

    with Predictor.open("data/bundles", "redis://localhost:6379/0") as predictor:
        choices = predictor.rank(Job("train-bert-7", "bert", trainer_count=8), ["A100-SXM-80", "H100-SXM-80"])

The ranking is a preference that the scheduler may follow. An empty one means: as if LEAP did not exist.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import numpy as np

from leap_features.events import from_us
from leap_features.family import FamilyError
from leap_predictor import doubts
from leap_predictor.admission import AT_ONCE, Admission, NotAdmitted
from leap_predictor.bundle import Bundle, current_id, load, specifications_of
from leap_predictor.candidate_columns import candidate_columns
from leap_predictor.counters import Counters
from leap_predictor.decisions.decision import decision_of
from leap_predictor.decisions.log import DecisionLog
from leap_predictor.errors import PolicyError
from leap_predictor.explanation import Choice, Explanation, Reason
from leap_predictor.findings import Findings, NoAnswer
from leap_predictor.history.access import History, HistoryAccess
from leap_predictor.history.redis_reader import HistoryReader
from leap_predictor.history.snapshot_reader import SnapshotReader
from leap_predictor.history.source import HistorySource
from leap_predictor.job import InvalidJob, Job, check_config, checked_candidates, checked_job
from leap_predictor.policy import Policy, read_policy
from leap_predictor.ranking import eligible, order, recent, reports
from leap_predictor.reloading import Reloader, Reloading

DEADLINE_S: Final = 0.05
RELOAD_EVERY_S: Final = 2.0
"""How often files are looked at for a newer bundle or policy."""

_WAITING_SHARE: Final = 0.4
"""How much of the deadline a call waits for its turn, where other calls of this process are being answered."""
_COMPUTING_SHARE: Final = 0.2
_COMPUTING_S: Final = 0.01
"""How much of the deadline is kept back for the prediction, which takes some milliseconds: a fifth, at most this,"""
_PER_CANDIDATE_S: Final = 0.0001
_CANDIDATES_SHARE: Final = 0.3
"""and so much for each candidate, at most three tenths."""

BUSY: Final = (
    f"{AT_ONCE} calls of this process are answered at a time, and there was no turn in time: ask for fewer jobs at "
    "once, or allow a longer deadline_s"
)
"""What is said where other calls took the time."""

FAILED: Final = Explanation(
    reason=Reason.INTERNAL_ERROR, message="even the failure could not be told: there was no memory or no stack left"
)

_log = logging.getLogger(__name__)


class _Subject(NamedTuple):
    """A candidate as the history levels see it."""

    job_family: str
    model_type: str
    hardware_type: str
    trainer_count: int


class Predictor:
    """Ranks candidates by predicted throughput per cost. Safe across threads and after a fork.

    Made by `open`. `rank` and `explain` never raise, never write, and do not wait past the deadline.
    """

    def __init__(
        self,
        bundle: Reloading[Bundle],
        policy: Reloading[Policy],
        history: HistoryAccess,
        *,
        project: str,
        decisions: DecisionLog | None = None,
        deadline_s: float = DEADLINE_S,
        reload_every_s: float = RELOAD_EVERY_S,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not 0 < deadline_s <= 60:
            raise ValueError(f"deadline_s must be above 0 and at most 60 seconds, got {deadline_s!r}")
        self._bundle = bundle
        self._policy = policy
        self._history = history
        self._decisions = decisions
        self._counters = Counters()
        self._admission = Admission()
        self._project = project
        self.deadline_s = deadline_s
        self._now_us = now_us
        self._closed = False
        self._reloader = Reloader((bundle, policy), reload_every_s)

    @classmethod
    def open(
        cls,
        bundle_dir: str | Path,
        store: str | HistorySource,
        *,
        deadline_s: float = DEADLINE_S,
        policy: str | Path | None = None,
        project: str = "leap",
        snapshot: str | Path | None = None,
        decisions: DecisionLog | None = None,
    ) -> Self:
        """Open a predictor: read bundle and policy, begin to connect.

        A bundle, policy or store that is not there yet is no error here: `rank` answers [] until it is.

        Args:
            bundle_dir: directory of published bundles (its current one is served, and a newer one is picked up), or
                of one bundle.
            store: the online store, `redis://…`, or `redis+sentinel://…` for the master that sentinels name (all
                forms: `leap_features.redis_address`); or a source that reads another one, such as a `FeastReader`.
            deadline_s: longest time that `rank` may take, in seconds.
            policy: TOML file of the policy; None or empty: everything is enabled.
            project: Feast project of the history.
            snapshot: file written by `leap snapshot`, which answers where the store does not and the policy allows it.
            decisions: where every answer of `rank` is logged; the caller closes it, after the predictor.

        Raises:
            ValueError: `store` is no URL, or `deadline_s` is out of range: nothing that time could heal.
        """
        if not isinstance(store, str) and not hasattr(store, "read"):
            raise ValueError(f"store must be a URL or a source of history, got {store!r}: is LEAP_REDIS_URL set?")
        bundles = Path(bundle_dir)
        served = Reloading(lambda: current_id(bundles), lambda bundle_id: load(bundles, bundle_id))
        predictor = cls(
            served,
            _reloading_policy(Path(policy) if policy else None),
            HistoryAccess(
                HistoryReader(store, project) if isinstance(store, str) else store,
                None if snapshot is None else SnapshotReader(snapshot, project),
                project,
            ),
            project=project,
            decisions=decisions,
            deadline_s=deadline_s,
        )
        predictor.refresh()
        predictor._history.warm_up()
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

        Whatever is wrong, the launcher goes on, and can find out what it was:

        >>> predictor = Predictor.open("/srv/no-bundle-yet", "redis://localhost:1/0")
        >>> predictor.rank(Job("train-bert-7", "bert", trainer_count=8), ["A100-SXM-80", "H100-SXM-80"])
        []
        >>> predictor.explain(Job("train-bert-7", "bert", trainer_count=8), ["A100-SXM-80"]).message
        '/srv/no-bundle-yet holds no published bundle: run `leap train`'
        >>> predictor.counters()["empty"]
        {'bundle_unreadable': 1}
        >>> predictor.close()
        """
        try:
            began = time.monotonic()
            answer = self.answer(job, candidates, began + self.deadline_s, detailed=False)
            self.note(answer, (time.monotonic() - began) * 1e3)
            return list(answer.choices)
        except Exception:  # where memory or stack end, even what is made of a failure may fail
            return []

    def explain(self, job: Job | Mapping[str, object], candidates: Iterable[str]) -> Explanation:
        """What `rank` answers, with features, history and predictions of every candidate, or why it answers [].

        It is neither counted nor logged as a decision.
        """
        try:
            return self.answer(job, candidates, time.monotonic() + self.deadline_s, detailed=True)
        except Exception:  # as in `rank`
            return FAILED

    def answer(
        self, job: Job | Mapping[str, object], candidates: Iterable[str], deadline: float, *, detailed: bool
    ) -> Explanation:
        """What `rank` and `explain` answer, for those who call in ways of their own.

        It raises nothing, unless memory or stack are at their end.

        Args:
            job: as of `rank`.
            candidates: as of `rank`.
            deadline: when it has to be there, as `time.monotonic` counts.
            detailed: whether every candidate is reported on.
        """
        found = Findings()
        try:
            asked, names = self._asked(job, candidates, deadline, found)
            # The launcher may have asked numpy to raise; here an underflow is nothing.
            with self._admission.admitted(self.last_turn(deadline)), np.errstate(all="ignore"):
                choices = self._choices(asked, names, deadline, found, detailed)
        except NotAdmitted:
            return found.explanation((), Reason.BUSY, BUSY)
        except NoAnswer as end:
            return found.explanation((), end.reason, str(end))
        except Exception as error:  # the launcher must go on, whatever went wrong here
            _say("ranking failed")
            # Unlike str(), it holds for an error that cannot be printed.
            said = traceback.format_exception_only(error)[-1].strip()
            return found.explanation((), Reason.INTERNAL_ERROR, said)
        return found.explanation(choices)

    def last_turn(self, deadline: float) -> float:
        """Until when a call with this `deadline` waits for its turn, as `time.monotonic` counts."""
        return deadline - self.deadline_s * (1 - _WAITING_SHARE)

    def unanswered(
        self, job: Job | Mapping[str, object], candidates: Iterable[str], reason: Reason, message: str
    ) -> Explanation:
        """The answer [] for a reason outside of this predictor, for callers with ways of their own; never raises."""
        found = Findings()
        # The caller has no time left for an iterable or a mapping that takes its time.
        with contextlib.suppress(Exception):
            if isinstance(job, Job | dict):
                self._asked(job, candidates if isinstance(candidates, list | tuple) else (), math.inf, found)
        return found.explanation((), reason, message)

    def note(self, answer: Explanation, took_ms: float) -> None:
        """Count and log an answer that was given after `took_ms` milliseconds; never raises.

        An answer to a job that breaks a rule is counted and not logged: it may have no name.
        """
        try:
            self._counters.count(answer.reason, took_ms, from_snapshot=answer.history == "snapshot")
            if self._decisions is not None and answer.job is not None:
                self._decisions.record(decision_of(answer.job, answer, from_us(self._now_us()), took_ms))
        except Exception:
            _say("a decision cannot be noted")

    def counters(self) -> dict[str, object]:
        """What this process's predictor has done so far, as plain numbers by name.

        `asked`, `ranked`, `from_snapshot`, `empty` (by reason), `latency_ms` (cumulative histogram) of `rank`;
        `bundle_id`; `store` (its circuit breaker: state, failures in a row, seconds until it is tried again, last
        error; None where the source has none); `decisions` (written, dropped, failed; None without a log).
        """
        breaker = getattr(self._history.store, "breaker", None)
        bundle = self._bundle.now.value
        return {
            **self._counters.read(),
            "bundle_id": None if bundle is None else bundle.bundle_id,
            "store": None if breaker is None else dict(breaker._asdict()),
            "decisions": None if self._decisions is None else dict(self._decisions.counts),
        }

    def close(self) -> None:
        """End threads and connection. Afterwards `rank` answers []."""
        self._closed = True
        self._reloader.close()
        self._history.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _asked(
        self, job: Job | Mapping[str, object], candidates: Iterable[str], deadline: float, found: Findings
    ) -> tuple[Job, dict[str, str | None]]:
        """The job, and per candidate's name why it is none; `found` has both, whatever comes next."""
        if self._closed:
            raise NoAnswer(Reason.CLOSED, "the predictor is closed")
        try:
            found.job = asked = checked_job(job)
            names = checked_candidates(self._in_time(candidates, deadline))
        except InvalidJob as error:
            raise NoAnswer(Reason.JOB_INVALID, str(error)) from error
        found.names = tuple(names)
        found.drop({name: why for name, why in names.items() if why is not None})
        return asked, names

    def _in_time(self, candidates: Iterable[str], deadline: float) -> Iterable[str]:
        """The same, as long as there is time: an iterator may take as long as it likes for the next one."""
        if isinstance(candidates, list | tuple | str | bytes) or not isinstance(candidates, Iterable):
            return candidates
        return self._checked_each_time(candidates, deadline)

    def _checked_each_time(self, candidates: Iterable[str], deadline: float) -> Iterator[str]:
        for candidate in candidates:
            self._check_time(deadline, "taking in the question")
            yield candidate

    def _choices(
        self, job: Job, names: Mapping[str, str | None], deadline: float, found: Findings, detailed: bool
    ) -> tuple[Choice, ...]:
        self._reloader.ensure_running()
        bundle, policy = self._served(found)
        found.warnings += doubts.of_policy(policy, bundle) if detailed else []
        try:
            check_config(job.config, bundle.model.features, bundle.model.categories)
            found.job_family = bundle.family_of(job.model_type, job.job_name, job.job_family)
        except (InvalidJob, FamilyError) as error:
            raise NoAnswer(Reason.JOB_INVALID, str(error)) from error
        if not names:
            raise NoAnswer(Reason.NO_CANDIDATES, "the list of candidates is empty")
        if not policy.enables(job.model_type):
            raise NoAnswer(
                Reason.MODEL_TYPE_NOT_ENABLED, f"the policy does not enable the model type {job.model_type!r}"
            )
        candidates, dropped = eligible([name for name, why in names.items() if why is None], bundle.catalogue, policy)
        found.drop(dropped)
        if not candidates:
            raise found.all_dropped()
        types = [candidate.hardware_type for candidate in candidates]
        subjects = [_Subject(found.job_family, job.model_type, name, job.trainer_count) for name in types]
        now_us = self._now_us()
        history = self._read(bundle, subjects, policy, deadline, now_us)
        found.history = history.source
        found.warnings += [history.warning] if history.warning else []
        self._check_time(deadline, "reading history")
        rows = history.reading.rows
        columns = candidate_columns(
            job,
            types,
            recent(rows, policy, now_us),
            views=bundle.manifest.views,
            features=bundle.model.features,
            specifications=specifications_of(bundle.catalogue),
            now_us=now_us,
        )
        estimate = bundle.model.estimate(columns)
        choices, dropped = order(candidates, job.trainer_count, estimate, rows, policy, now_us)
        if detailed:
            found.reports |= reports(candidates, choices, columns, estimate, rows, bundle)
            found.warnings += doubts.of_answer(job, choices, dict(zip(types, rows, strict=True)), bundle)
        found.drop(dropped)
        if not choices:
            raise found.all_dropped()
        self._check_time(deadline, "predicting")
        if policy.controls(job.model_type, job.job_name):
            found.withheld = choices
            raise NoAnswer(Reason.CONTROL_GROUP, "the policy keeps this job without a ranking, to measure by")
        return choices

    def _read(self, bundle: Bundle, subjects: list[_Subject], policy: Policy, deadline: float, now_us: int) -> History:
        kept_back = min(self.deadline_s * _COMPUTING_SHARE, _COMPUTING_S)
        kept_back += min(self.deadline_s * _CANDIDATES_SHARE, len(subjects) * _PER_CANDIDATE_S)
        until = deadline - kept_back
        self._check_time(until, "taking in the question")
        return self._history.read(bundle.manifest, subjects, policy, until=until, deadline=deadline, now_us=now_us)

    def _check_time(self, until: float, doing: str) -> None:
        if time.monotonic() > until:
            raise NoAnswer(
                Reason.DEADLINE_PASSED,
                f"too much of the deadline of {self.deadline_s * 1e3:.0f} ms had passed after {doing}",
            )

    def _served(self, found: Findings) -> tuple[Bundle, Policy]:
        bundle, policy = self._bundle.now, self._policy.now
        if bundle.value is None:
            raise NoAnswer(Reason.BUNDLE_UNREADABLE, str(bundle.error or "no bundle was read yet"))
        if policy.value is None:
            raise NoAnswer(Reason.POLICY_INVALID, str(policy.error or "no policy was read yet"))
        found.bundle_id = bundle.value.bundle_id
        found.warnings += [
            f"the newest {name} is not served: {error}"
            for name, error in (("bundle", bundle.error), ("policy", policy.error))
            if error is not None
        ]
        if bundle.value.manifest.project != self._project:
            raise NoAnswer(
                Reason.BUNDLE_OF_OTHER_PROJECT,
                f"bundle {bundle.value.bundle_id} is of project {bundle.value.manifest.project!r}, "
                f"this predictor reads the history of {self._project!r}: open it with the bundle's project",
            )
        return bundle.value, policy.value


def _say(what: str) -> None:
    with contextlib.suppress(Exception):  # a filter or handler of the launcher's may raise
        _log.exception(what)


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
