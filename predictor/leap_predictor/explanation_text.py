"""An explanation as a person reads it on a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leap_features.events import from_us
from leap_features.layout import Value
from leap_features.natural_units import from_log, shown
from leap_predictor.explanation import CandidateReport, Choice, Explanation

_UNITS = "history in samples/s over all trainers (--json has it as stored: natural logarithms of samples/s)"


def no_ranking(answer: Explanation) -> str:
    """Why there is none."""
    return f"no ranking ({answer.reason}): {answer.message}"


def lines(answer: Explanation, *, detailed: bool) -> Iterator[str]:
    """The ranking as a table, or why there is none, and what was dropped.

    Args:
        answer: what is told.
        detailed: whether history, features and predictions of each candidate follow, and what was withheld.
    """
    if answer.reason is None:
        yield from _table(answer.choices)
    else:
        yield no_ranking(answer)
        if detailed and answer.withheld:
            yield "withheld, what would have been answered:"
            yield from _table(answer.withheld)
    for report in answer.candidates:
        if report.dropped is not None:
            yield f"  – {report.hardware_type}: {report.dropped}"
    if detailed and answer.job_family is not None:
        yield ""
        yield f"job family {answer.job_family}, bundle {answer.bundle_id}; {_UNITS}"
        for report in answer.candidates:
            yield from _details(report)


def _table(choices: Sequence[Choice]) -> Iterator[str]:
    yield f"{'':>3} {'hardware':<24}{'samples/s':>14}{'80 % of runs':>24}{'cost/h':>10}{'score':>12}  history"
    for place, choice in enumerate(choices, 1):
        note = f"{choice.level or 'none'}{', demoted for its failures' if choice.demoted else ''}"
        interval = f"{shown(choice.throughput_low)} – {shown(choice.throughput_high)}"
        numbers = f"{shown(choice.throughput):>14}{interval:>24}{choice.cost:>10.3f}{shown(choice.score):>12}"
        yield f"{place:>3} {choice.hardware_type:<24}{numbers}  {note}"


def _details(report: CandidateReport) -> Iterator[str]:
    if report.uncorrected is None:
        return
    level = report.choice.level if report.choice else None
    yield ""
    yield report.hardware_type
    yield f"  the model alone: {shown(report.uncorrected)} samples/s, {_corrected(report.correction, level)}"
    for view, row in report.history.items():
        yield f"  {view:<26}{'nothing recorded' if row is None else _row(row)}"
    values = (f"{name} {'–' if value is None else _short(value)}" for name, value in report.features.items())
    yield f"  features: {', '.join(values)}"


def _corrected(correction: float | None, level: str | None) -> str:
    if level is None:
        return "and no history to correct it"
    if correction == 1.0:
        return f"{level} among its features"
    return f"corrected by {'out of range' if correction is None else f'× {correction:.3f}'} from {level}"


def _row(row: Mapping[str, Value]) -> str:
    """A history row with samples per second instead of logarithms, and a date instead of microseconds."""
    count = row.get("count") or 0
    parts = [f"{count} run{'' if count == 1 else 's'}"]
    last, mean, std, seen = (row.get(name) for name in ("last", "mean", "std", "last_seen"))
    if isinstance(last, float) and isinstance(seen, int):
        batch = row.get("last_batch_size")
        conditions = (
            f"{row.get('last_trainer_count')} × {row.get('last_hardware_type')}, "
            f"batch {'unknown' if batch is None else _whole(batch)}"
        )
        parts.append(f"last {shown(from_log(last))} samples/s on {conditions}, {from_us(seen):%Y-%m-%d %H:%M} UTC")
    if isinstance(mean, float) and isinstance(std, float):
        parts.append(f"typically {shown(from_log(mean))} ×/÷ {from_log(std):.2f}")
    failures = row.get("failures_since_success")
    return "; ".join([*parts, f"{failures} failures since"] if failures else parts)


def _whole(value: object) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
