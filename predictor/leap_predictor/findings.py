"""What one call has found out so far: an explanation in the making, which is given however the call ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from leap_predictor.explanation import CandidateReport, Choice, Explanation, Reason, Source
from leap_predictor.job import Job


class NoAnswer(Exception):
    """Ends a call: there is no ranking, for this reason."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Findings:
    """Filled in as the call goes on."""

    def __init__(self) -> None:
        self.job: Job | None = None
        self.bundle_id: str | None = None
        self.job_family: str | None = None
        self.history: Source | None = None
        self.withheld: tuple[Choice, ...] = ()
        self.warnings: list[str] = []
        self.names: tuple[str, ...] = ()
        self.reports: dict[str, CandidateReport] = {}

    def drop(self, dropped: Mapping[str, str]) -> None:
        """Note why candidates are no choices."""
        for name, why in dropped.items():
            report = self.reports.get(name, CandidateReport(name))
            self.reports[name] = dataclasses.replace(report, dropped=why)

    def all_dropped(self) -> NoAnswer:
        """The end of a call whose candidates were all dropped."""
        said = "; ".join(f"{name}: {report.dropped}" for name, report in list(self.reports.items())[:10])
        return NoAnswer(Reason.NO_CANDIDATE_LEFT, f"every candidate was dropped ({said})")

    def explanation(self, choices: tuple[Choice, ...], reason: Reason | None = None, message: str = "") -> Explanation:
        """The whole answer."""
        return Explanation(
            choices,
            reason,
            message,
            tuple(self.warnings),
            self.bundle_id,
            self.job_family,
            tuple(self.reports[name] for name in self.names if name in self.reports),
            self.withheld,
            self.history,
            self.job,
            self.names,
        )
