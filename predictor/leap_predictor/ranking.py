"""From estimates to an order of candidates. Pure.

score = predicted throughput ÷ (trainers × cost per trainer-hour). The best score comes first; candidates that the job's
family failed on again and again come behind all others; equal scores are ordered by name, so that the same question has
the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from leap_features.columns import Columns
from leap_features.hardware import Catalogue
from leap_features.levels import BACKOFF, FAMILY_HARDWARE, FAMILY_SCALE
from leap_features.row import feature
from leap_predictor.bundle import Bundle, specifications_of
from leap_predictor.explanation import CandidateReport, Choice
from leap_predictor.history.request import StoredRow
from leap_predictor.models.layered import Estimate
from leap_predictor.policy import Policy

_BEYOND: Final = 300.0
"""Beyond e^±300 lies nothing that was ever measured; a float still holds it, and its score."""

Rows = Mapping[str, StoredRow | None]
"""History of one candidate, by view."""


class Eligible(NamedTuple):
    """A candidate that can be judged."""

    hardware_type: str
    cost: float
    """Per trainer and hour."""


def eligible(
    candidates: Sequence[str], catalogue: Catalogue, policy: Policy
) -> tuple[tuple[Eligible, ...], dict[str, str]]:
    """Those of `candidates` that can be judged, in order, and for the others why not.

    A policy may name a hardware type by any name that the catalogue knows it by. A type that is asked about by several
    names stands once, by the catalogue's own if that is among them: its failures under one name must not be passed by
    under another.
    """
    one_names = [_one_name(candidate, catalogue) for candidate in candidates]
    asked_as: dict[str, str] = {}
    for candidate, name in zip(candidates, one_names, strict=True):
        if candidate == name or name not in asked_as:
            asked_as[name] = candidate
    never = {_one_name(name, catalogue) for name in policy.candidates.never}
    costs = {_one_name(name, catalogue): cost for name, cost in policy.costs.items()}
    good: list[Eligible] = []
    dropped: dict[str, str] = {}
    for candidate, name in zip(candidates, one_names, strict=True):
        hardware = catalogue.lookup(name)
        if asked_as[name] != candidate:
            dropped[candidate] = f"another name of {asked_as[name]}: ask about each hardware type once"
        elif name in never:
            dropped[candidate] = "the policy says never"
        elif hardware is None:
            dropped[candidate] = "unknown hardware: the bundle's catalogue has no specification of it"
        elif (cost := costs.get(name, hardware.hourly_cost_usd)) is None:
            dropped[candidate] = "no cost: neither the catalogue nor the policy has one"
        else:
            good.append(Eligible(candidate, cost))
    return tuple(good), dropped


def _one_name(name: str, catalogue: Catalogue) -> str:
    return catalogue.canonical(name) or name


def order(
    candidates: Sequence[Eligible],
    trainer_count: int,
    estimate: Estimate,
    rows: Sequence[Rows],
    policy: Policy,
    now_us: int,
) -> tuple[tuple[Choice, ...], dict[str, str]]:
    """The choices, best first, and why the other candidates are none.

    Args:
        candidates: those that can be judged.
        trainer_count: of the job.
        estimate: one entry per candidate.
        rows: per candidate, its history of any age.
        policy: whom it demotes, and how sure a prediction must be.
        now_us: microseconds since 1970 UTC.
    """
    choices: list[Choice] = []
    dropped: dict[str, str] = {}
    for at, (hardware_type, cost) in enumerate(candidates):
        log_throughput = float(estimate.log_throughput[at])
        if not abs(log_throughput) < _BEYOND:
            dropped[hardware_type] = f"no usable prediction: log throughput {log_throughput}"
            continue
        low, high = (float(bound[at]) for bound in (estimate.log_low, estimate.log_high))
        if (widest := policy.confidence.max_interval_ratio) is not None and not high - low <= math.log(widest):
            dropped[hardware_type] = (
                f"not confident: its 80 % interval spans a factor of {math.exp(min(high - low, _BEYOND)):.3g}, "
                f"the policy allows {widest:g}"
            )
            continue
        level = int(estimate.level[at])
        throughput = math.exp(log_throughput)
        choices.append(
            Choice(
                hardware_type,
                throughput,
                math.exp(max(-_BEYOND, low)),
                math.exp(min(_BEYOND, high)),
                throughput / (trainer_count * cost),
                BACKOFF[level].view if level >= 0 else None,
                cost,
                demoted=_demoted(rows[at], policy, now_us),
            )
        )
    choices.sort(key=lambda choice: (choice.demoted, -choice.score, choice.hardware_type))
    return tuple(choices), dropped


def _demoted(rows: Rows, policy: Policy, now_us: int) -> bool:
    """Whether the family fails on this hardware, at this scale or at all."""
    found = [rows[level.view] for level in (FAMILY_HARDWARE, FAMILY_SCALE)]
    return any(
        isinstance(failures := row.features["failures_since_success"], int)
        and policy.demotes(failures, row.recorded_at_us, now_us)
        for row in found
        if row is not None
    )


def recent(rows: Sequence[Rows], policy: Policy, now_us: int) -> Sequence[Rows]:
    """`rows` without what the policy says is too old to predict by."""
    if policy.history.max_age_hours is None:
        return rows

    def kept(row: StoredRow | None) -> StoredRow | None:
        seen = None if row is None else row.features["last_seen"]
        return None if isinstance(seen, int) and policy.too_old(seen, now_us) else row

    return [{view: kept(row) for view, row in of_candidate.items()} for of_candidate in rows]


def reports(
    candidates: Sequence[Eligible],
    choices: Sequence[Choice],
    columns: Columns,
    estimate: Estimate,
    rows: Sequence[Rows],
    bundle: Bundle,
) -> dict[str, CandidateReport]:
    """Everything that is known about each of `candidates`, by hardware type."""
    by_type = {choice.hardware_type: choice for choice in choices}
    categories = bundle.model.categories
    seen = {
        name: feature(columns, name, categories, specifications_of(bundle.catalogue)) for name in bundle.model.features
    }
    result = {}
    for at, (hardware_type, _) in enumerate(candidates):
        result[hardware_type] = CandidateReport(
            hardware_type,
            by_type.get(hardware_type),
            features={name: _shown(values[at], categories.get(name)) for name, values in seen.items()},
            uncorrected=_exp(float(estimate.uncorrected[at])),
            correction=_exp(float(estimate.correction[at])),
            history={view: None if row is None else row.features for view, row in rows[at].items()},
            recorded_at_us={view: None if row is None else row.recorded_at_us for view, row in rows[at].items()},
        )
    return result


def _shown(value: float, values: Sequence[str] | None) -> float | str | None:
    if math.isnan(value):
        return None
    return float(value) if values is None else values[int(value)]


def _exp(value: float) -> float | None:
    return math.exp(value) if abs(value) < _BEYOND else None
