"""Puts attempts, decisions and prices together into the report. Pure: the same input gives the same figures."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, NamedTuple

import numpy as np

from leap_features.events import from_us
from leap_training.impact.attempts import Attempt
from leap_training.impact.decided import Decided
from leap_training.impact.join import join
from leap_training.impact.report import Group, ImpactLine, ImpactReport, Interval, Unranked
from leap_training.impact.saving import MIN_FAMILIES, Bools, Floats, Ints, measured_saving, predicted_share

NO_DECISION: Final = "no_decision"
_US_PER_HOUR: Final = 3_600_000_000
_US_PER_DAY: Final = 24 * _US_PER_HOUR
_SECONDS_PER_HOUR: Final = 3600

Price = Callable[[str], float | None]
"""Cost of one trainer-hour on a hardware type; None: unknown."""


class NothingToMeasure(ValueError):
    """There is no attempt to judge; the message says why and what to do."""


class Options(NamedTuple):
    """How it is measured."""

    window_hours: float = 1.0
    confidence: float = 0.95
    draws: int = 1000
    seed: int = 0


@dataclass(frozen=True)
class Placed:
    """Columns of the eligible attempts."""

    models: tuple[str, ...]
    model: Ints
    family: Ints
    day: Ints
    """Of submission: days since 1970, UTC."""
    hours: Floats
    ranked: Bools
    control: Bools
    top: Bools
    """Ran on the first choice, answered or withheld."""
    cost: Floats
    """US dollars; NaN without a price."""
    log_cost: Floats
    """Logarithm of the cost per sample; NaN unless it succeeded on hardware with a price."""
    log_predicted: Floats
    """Mean over its choices of the predicted logarithm, up to a constant; NaN without a ranking."""
    left: Floats
    """Share of its cost that the first choice is predicted to save; NaN unless it ran on a choice."""
    kept: Floats
    """What the second choice would have cost more than the first, as a share; 0 unless it ran on the first."""
    reasons: Sequence[str]
    """Why it got no ranking; empty: it did, or is of the control group."""


def measure(
    attempts: Sequence[Attempt],
    decisions: Sequence[Decided],
    price: Price,
    source: str,
    options: Options,
    notes: Sequence[str] = (),
) -> ImpactReport:
    """What rankings changed for `attempts`.

    Args:
        attempts: each attempt once.
        decisions: by time, then id, each once.
        price: of hardware types.
        source: where the attempts came from, for the reader.
        options: how it is measured.
        notes: what is known of the input, to be passed on.

    Raises:
        NothingToMeasure: there is no attempt.
    """
    if not attempts:
        raise NothingToMeasure(
            f"{source} has no attempt that was submitted in the time asked for: check --since and --until, or name the "
            "archive that the worker's events go to"
        )
    joined = join(attempts, decisions, round(options.window_hours * _US_PER_HOUR))
    had_choice = [
        _had_choice(attempt, None if number is None else decisions[number])
        for attempt, number in zip(attempts, joined, strict=True)
    ]
    eligible = [place for place, choice in enumerate(had_choice) if choice is not False]
    placed = _placed(
        [attempts[place] for place in eligible],
        [None if (number := joined[place]) is None else decisions[number] for place in eligible],
        price,
    )
    submitted = [attempt.submitted_us for attempt in attempts]
    total, by_model = _totals(placed, options)
    return ImpactReport(
        source=source,
        begin=from_us(min(submitted)),
        end=from_us(max(submitted)),
        confidence=options.confidence,
        window_hours=options.window_hours,
        decisions=len(decisions),
        total=total,
        by_model=by_model,
        by_day=_by_day(placed, options),
        unranked=_unranked(placed),
        notes=[*notes, *_notes(attempts, joined, decisions, had_choice, placed, total)],
    )


def _had_choice(attempt: Attempt, decided: Decided | None) -> bool | None:
    """Whether more than one hardware type was eligible for an attempt; None: nothing says so."""
    if attempt.eligible:
        return len(attempt.eligible) > 1
    if decided is not None and decided.candidates:
        return decided.candidates > 1
    return None


def _placed(attempts: Sequence[Attempt], decided: Sequence[Decided | None], price: Price) -> Placed:
    models = tuple(sorted({attempt.model_type for attempt in attempts}))
    families = {name: number for number, name in enumerate(sorted({attempt.family for attempt in attempts}))}
    model_numbers = {name: number for number, name in enumerate(models)}
    prices = {name: price(name) for name in {attempt.hardware_type for attempt in attempts}}
    answers = [each if each is not None and each.types else None for each in decided]
    costs = [prices[attempt.hardware_type] or math.nan for attempt in attempts]
    return Placed(
        models,
        np.array([model_numbers[attempt.model_type] for attempt in attempts], np.int64),
        np.array([families[attempt.family] for attempt in attempts], np.int64),
        np.array([attempt.submitted_us // _US_PER_DAY for attempt in attempts], np.int64),
        np.array([attempt.device_hours for attempt in attempts], np.float64),
        np.array([answer is not None and not answer.control for answer in answers], np.bool_),
        np.array([answer is not None and answer.control for answer in answers], np.bool_),
        np.array(
            [
                answer is not None and answer.types[0] == attempt.hardware_type
                for attempt, answer in zip(attempts, answers, strict=True)
            ],
            np.bool_,
        ),
        np.array([attempt.device_hours * cost for attempt, cost in zip(attempts, costs, strict=True)], np.float64),
        np.array([_log_cost(attempt, cost) for attempt, cost in zip(attempts, costs, strict=True)], np.float64),
        np.array([_log_predicted(answer) for answer in answers], np.float64),
        np.array([_left(attempt, answer) for attempt, answer in zip(attempts, answers, strict=True)], np.float64),
        np.array([_kept(attempt, answer) for attempt, answer in zip(attempts, answers, strict=True)], np.float64),
        [
            "" if answer is not None else NO_DECISION if each is None else each.reason
            for each, answer in zip(decided, answers, strict=True)
        ],
    )


def _log_cost(attempt: Attempt, cost: float) -> float:
    if attempt.throughput is None:
        return math.nan
    return math.log(attempt.trainers * cost / _SECONDS_PER_HOUR) - math.log(attempt.throughput)


def _log_predicted(answer: Decided | None) -> float:
    """A score is throughput per cost, so predicted cost per sample is its inverse."""
    return math.nan if answer is None else -math.fsum(map(math.log, answer.scores)) / len(answer.scores)


def _left(attempt: Attempt, answer: Decided | None) -> float:
    if answer is None or attempt.hardware_type not in answer.types:
        return math.nan
    return 1 - answer.scores[answer.types.index(attempt.hardware_type)] / answer.scores[0]


def _kept(attempt: Attempt, answer: Decided | None) -> float:
    if answer is None or attempt.hardware_type != answer.types[0] or len(answer.types) < 2:
        return 0.0
    return answer.scores[0] / answer.scores[1] - 1


def _totals(placed: Placed, options: Options) -> tuple[ImpactLine, list[ImpactLine]]:
    """The line of all attempts and those of model types, most device-hours first."""
    everything = np.ones(len(placed.model), np.bool_)
    total, savings, compared = _measured(placed, everything, options)
    lines = [
        _line(placed, placed.model == number, options, savings.get(number), {number} & savings.keys(), model_type=name)
        for number, name in enumerate(placed.models)
    ]
    lines.sort(key=lambda line: (-line.device_hours, line.model_type or ""))
    return _line(placed, everything, options, total, compared), lines


def _by_day(placed: Placed, options: Options) -> list[ImpactLine]:
    lines = []
    for number in np.unique(placed.day):
        here = placed.day == number
        saving, _, compared = _measured(placed, here, options)
        day = date(1970, 1, 1) + timedelta(days=int(number))
        lines.append(_line(placed, here, options, saving, compared, day=day))
    return lines


def _measured(
    placed: Placed, here: Bools, options: Options
) -> tuple[Interval | None, dict[int, Interval], frozenset[int]]:
    """The saving among some attempts, that of each model type, and the model types that it speaks of."""
    with_figures = here & (placed.ranked | placed.control) & ~np.isnan(placed.log_cost)
    ranked_cost = np.where(here & placed.ranked, np.nan_to_num(placed.cost), 0.0)
    found = measured_saving(
        placed.model[with_figures],
        placed.family[with_figures],
        placed.ranked[with_figures],
        placed.log_cost[with_figures],
        placed.log_predicted[with_figures],
        np.bincount(placed.model, ranked_cost, minlength=len(placed.models)).astype(np.float64),
        confidence=options.confidence,
        draws=options.draws,
        seed=options.seed,
    )
    return found.total, found.by_model, frozenset(found.by_model)


def _line(
    placed: Placed,
    here: Bools,
    options: Options,
    saving: Interval | None,
    compared: frozenset[int] | set[int],
    *,
    model_type: str | None = None,
    day: date | None = None,
) -> ImpactLine:
    ranked = here & placed.ranked
    cost = np.nan_to_num(placed.cost)
    judged = ranked & ~np.isnan(placed.left) & ~np.isnan(placed.cost)

    def predicted(part: Floats, whole: Floats) -> Interval | None:
        return predicted_share(
            placed.family[judged],
            part[judged],
            whole[judged],
            confidence=options.confidence,
            draws=options.draws,
            seed=options.seed,
        )

    return ImpactLine(
        model_type=model_type,
        day=day,
        attempts=int(np.count_nonzero(here)),
        device_hours=float(placed.hours[here].sum()),
        ranked=_group(placed, ranked),
        control=_group(placed, here & placed.control),
        ranked_cost_usd=float(cost[ranked].sum()),
        saving=saving,
        compared_cost_usd=float(cost[ranked & np.isin(placed.model, list(compared))].sum()) if saving else 0.0,
        predicted_left=predicted(cost * placed.left, cost),
        predicted_kept=predicted(cost * placed.kept, cost * (1 + placed.kept)),
        note="" if saving else _why_no_saving(placed, here),
    )


def _group(placed: Placed, here: Bools) -> Group:
    top = here & placed.top
    return Group(
        int(np.count_nonzero(here)),
        float(placed.hours[here].sum()),
        int(np.count_nonzero(top)),
        float(placed.hours[top].sum()),
    )


def _why_no_saving(placed: Placed, here: Bools) -> str:
    measured = here & ~np.isnan(placed.log_cost)
    for group, none, unmeasured in (
        (placed.ranked, "no attempt got a ranking", "no ranked attempt succeeded on hardware with a price"),
        (
            placed.control,
            "there is no control group",
            "no attempt of the control group succeeded on hardware with a price",
        ),
    ):
        if not (here & group).any():
            return none
        if not (measured & group).any():
            return unmeasured
    return f"fewer than {MIN_FAMILIES} job families in a group"


def _unranked(placed: Placed) -> list[Unranked]:
    counts: defaultdict[str, int] = defaultdict(int)
    hours: defaultdict[str, float] = defaultdict(float)
    for reason, spent in zip(placed.reasons, placed.hours, strict=True):
        if reason:
            counts[reason] += 1
            hours[reason] += float(spent)
    return sorted(
        (Unranked(reason, counts[reason], hours[reason]) for reason in counts),
        key=lambda line: (-line.device_hours, line.reason),
    )


def _notes(
    attempts: Sequence[Attempt],
    joined: Sequence[int | None],
    decisions: Sequence[Decided],
    had_choice: Sequence[bool | None],
    placed: Placed,
    total: ImpactLine,
) -> list[str]:
    notes = []
    if not decisions:
        notes.append("no decision was read: nothing is known to have been ranked")
    used = {number for number in joined if number is not None}
    if unused := len(decisions) - len(used):
        notes.append(
            f"{unused:,} of {len(decisions):,} decisions belong to no attempt: asked again before the "
            "launch, not launched, not ended yet, or outside the time asked for"
        )
    if shared := sum(number is not None for number in joined) - len(used):
        notes.append(f"{shared:,} attempts share the decision of an earlier attempt of their job: retries")
    if without := had_choice.count(False):
        notes.append(f"{without:,} attempts had one eligible hardware type, so no choice, and are left out")
    if unknown := had_choice.count(None):
        notes.append(f"{unknown:,} attempts do not say what was eligible, and count as if they had a choice")
    unpriced: Mapping[str, None] = dict.fromkeys(
        sorted(
            {
                attempt.hardware_type
                for attempt, cost in zip(_eligible(attempts, had_choice), placed.cost, strict=True)
                if math.isnan(cost)
            }
        )
    )
    if unpriced:
        notes.append(
            f"no price is known of {', '.join(unpriced)}: such attempts count in shares, not in cost or saving"
        )
    if total.saving is not None and total.compared_cost_usd < total.ranked_cost_usd:
        notes.append(
            f"the saving speaks of {total.compared_cost_usd / total.ranked_cost_usd:.0%} of the cost of ranked "
            f"attempts: other model types have fewer than {MIN_FAMILIES} job families in a group"
        )
    return notes


def _eligible(attempts: Sequence[Attempt], had_choice: Sequence[bool | None]) -> list[Attempt]:
    return [attempt for attempt, choice in zip(attempts, had_choice, strict=True) if choice is not False]
