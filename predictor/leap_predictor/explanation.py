"""What the predictor answers: choices, and the explanation of how they came about or why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from leap_features.layout import Value
from leap_predictor.job import Job

Source = Literal["live", "snapshot"]
"""Where history was read: the online store, or a snapshot that stood in for it."""


class Reason(StrEnum):
    """Why there is no choice. The values are stable: programs may count them."""

    JOB_INVALID = "job_invalid"
    NO_CANDIDATES = "no_candidates"
    """The list of candidates was empty."""
    NO_CANDIDATE_LEFT = "no_candidate_left"
    """Every candidate was dropped."""
    MODEL_TYPE_NOT_ENABLED = "model_type_not_enabled"
    CONTROL_GROUP = "control_group"
    """The policy keeps this job without a ranking, to measure by."""
    POLICY_INVALID = "policy_invalid"
    """The policy file could not be read when the predictor was opened."""
    BUNDLE_UNREADABLE = "bundle_unreadable"
    """There is no bundle yet, or it is damaged or of another format."""
    BUNDLE_OF_OTHER_PROJECT = "bundle_of_other_project"
    STORE_UNAVAILABLE = "store_unavailable"
    """The online store is down, refuses, answers nonsense, or is left alone after failures."""
    STORE_SLOW = "store_slow"
    """The online store did not answer within the deadline."""
    HISTORY_ABSENT = "history_absent"
    """The store has no meta: `leap init` has not been run."""
    HISTORY_OF_OTHER_SCHEMA = "history_of_other_schema"
    HISTORY_REBUILDING = "history_rebuilding"
    FAMILY_RULE_DIFFERS = "family_rule_differs"
    """History is kept by other family rules than the bundle was made with."""
    DEADLINE_PASSED = "deadline_passed"
    BUSY = "busy"
    """Other calls of this process took the time."""
    CLOSED = "closed"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True)
class Choice:
    """One recommended candidate."""

    hardware_type: str
    throughput: float
    """Predicted samples per second over all trainers."""
    throughput_low: float
    throughput_high: float
    """The 80 % interval: of choices that rest on the same level of history, four in five were measured within it."""
    score: float
    """throughput ÷ (trainers × cost): samples per second for one unit of cost per hour."""
    level: str | None
    """Most specific history view that had a run to correct the prediction by; None: no history at all."""
    cost: float
    """Per trainer and hour."""
    demoted: bool = False
    """Placed behind all others, since the family failed on it again and again."""


@dataclass(frozen=True)
class CandidateReport:
    """What became of one candidate."""

    hardware_type: str
    choice: Choice | None = None
    dropped: str | None = None
    """Why it is no choice; None: it is one."""
    features: Mapping[str, float | str | None] = field(default_factory=dict)
    """The model's features as it saw them; None: missing."""
    uncorrected: float | None = None
    """Samples per second that the model predicts without history."""
    correction: float | None = None
    """Factor by which history corrects that; 1 without history."""
    history: Mapping[str, Mapping[str, Value] | None] = field(default_factory=dict)
    """Rows served, by view; None: nothing was ever recorded under that key."""
    recorded_at_us: Mapping[str, int | None] = field(default_factory=dict)
    """By view, the greatest record time that the row has taken in (microseconds since 1970 UTC)."""


@dataclass(frozen=True)
class Explanation:
    """The whole answer."""

    choices: tuple[Choice, ...] = ()
    """Best first."""
    reason: Reason | None = None
    """Why there is none; None: there is one."""
    message: str = ""
    """The reason in words, with the offending value and the mend."""
    warnings: tuple[str, ...] = ()
    """What is wrong without preventing an answer, e.g. a newer bundle that cannot be read."""
    bundle_id: str | None = None
    job_family: str | None = None
    candidates: tuple[CandidateReport, ...] = ()
    """One per candidate, in the order asked; empty where it did not come to that."""
    withheld: tuple[Choice, ...] = ()
    """What a job of the control group would have been answered."""
    history: Source | None = None
    """None: it did not come to reading any."""
    job: Job | None = None
    """What was asked about; None: it breaks a rule, or it did not come to looking at it."""
    asked: tuple[str, ...] = ()
    """The candidates' names, each once, in the order asked; empty: they break a rule."""
