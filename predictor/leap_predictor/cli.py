"""Command of the predictor's room: `leap rank`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from leap_features.events import from_us
from leap_features.layout import Value
from leap_features.natural_units import from_log, shown
from leap_features.settings import Settings
from leap_predictor.explanation import Explanation
from leap_predictor.predictor import Predictor

DEADLINE_S = 2.0
"""For a person who asks; a launcher's is 50 ms, which the first connection to a distant store may need alone."""

MAX_JOB_BYTES = 1024 * 1024


@click.command("rank")
@click.option(
    "--job",
    "job_file",
    type=click.File("rb"),
    required=True,
    help="JSON file of the job (job_name, model_type, trainer_count, …); - reads standard input.",
)
@click.option("--candidates", required=True, help="Hardware types, separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--explain", is_flag=True, help="Show features, history and predictions of every candidate.")
@click.option("--bundles", type=click.Path(path_type=Path), help="Directory of bundles [default: LEAP_BUNDLES].")
@click.option("--redis-url", help="The online store [default: LEAP_REDIS_URL].")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file [default: LEAP_POLICY].")
@click.option("--deadline", type=click.FloatRange(0.001, 60), default=DEADLINE_S, show_default=True, help="Seconds.")
def rank_command(
    job_file: click.utils.LazyFile,
    candidates: str,
    as_json: bool,
    explain: bool,
    bundles: Path | None,
    redis_url: str | None,
    policy: Path | None,
    deadline: float,
) -> None:
    """Rank candidate hardware types for a job, by predicted throughput per cost.

    Prints what a launcher would get. An empty ranking is an answer too: the reason is printed, and the exit code is 0.
    """
    try:
        settings = Settings.from_env()
        job = msgspec.json.decode(job_file.read(MAX_JOB_BYTES), type=dict[str, object])
        predictor = Predictor.open(
            bundles or settings.bundles,
            redis_url or settings.redis_url,
            deadline_s=deadline,
            policy=policy or (settings.policy or None),
            project=settings.project,
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.ClickException(f"the job must be one JSON object: {error}") from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    with predictor:
        answer = predictor.explain(job, [name.strip() for name in candidates.split(",") if name.strip()])
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        _print(answer, explain)


def _print(answer: Explanation, detailed: bool) -> None:
    for warning in answer.warnings:
        click.echo(f"warning: {warning}", err=True)
    if answer.reason is not None:
        click.echo(f"no ranking ({answer.reason}): {answer.message}")
    else:
        click.echo(f"{'':>3} {'hardware':<24}{'samples/s':>14}{'80 % of runs':>24}{'cost/h':>10}{'score':>12}  history")
    for place, choice in enumerate(answer.choices, 1):
        note = f"{choice.level or 'none'}{', demoted for its failures' if choice.demoted else ''}"
        interval = f"{shown(choice.throughput_low)} – {shown(choice.throughput_high)}"
        numbers = f"{shown(choice.throughput):>14}{interval:>24}{choice.cost:>10.3f}{shown(choice.score):>12}"
        click.echo(f"{place:>3} {choice.hardware_type:<24}{numbers}  {note}")
    for report in answer.candidates:
        if report.dropped is not None:
            click.echo(f"  – {report.hardware_type}: {report.dropped}")
    if detailed:
        _print_details(answer)


def _print_details(answer: Explanation) -> None:
    click.echo(f"\njob family {answer.job_family}, bundle {answer.bundle_id}")
    for report in answer.candidates:
        if report.uncorrected is None:
            continue
        click.echo(f"\n{report.hardware_type}")
        correction = "out of range" if report.correction is None else f"× {report.correction:.3f}"
        level = report.choice.level if report.choice else None
        corrected = f"corrected by {correction} from {level}" if level else "and no history to correct it"
        click.echo(f"  the model alone: {shown(report.uncorrected)} samples/s, {corrected}")
        for view, row in report.history.items():
            click.echo(f"  {view:<26}{'nothing recorded' if row is None else _row(row)}")
        values = (f"{name} {'–' if value is None else _short(value)}" for name, value in report.features.items())
        click.echo(f"  features: {', '.join(values)}")


def _row(row: Mapping[str, Value]) -> str:
    """A history row as a person reads it: samples per second instead of logarithms, a date instead of microseconds."""
    count = row.get("count") or 0
    parts = [f"{count} run{'' if count == 1 else 's'}"]
    last, mean, std, seen = (row.get(name) for name in ("last", "mean", "std", "last_seen"))
    if isinstance(last, float) and isinstance(seen, int):
        conditions = (
            f"{row.get('last_trainer_count')} × {row.get('last_hardware_type')}, batch {row.get('last_batch_size')}"
        )
        parts.append(f"last {shown(from_log(last))} samples/s on {conditions}, {from_us(seen):%Y-%m-%d %H:%M} UTC")
    if isinstance(mean, float) and isinstance(std, float):
        parts.append(f"typically {shown(from_log(mean))} ×/÷ {from_log(std):.2f}")
    failures = row.get("failures_since_success")
    return "; ".join([*parts, f"{failures} failures since"] if failures else parts)


def _short(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
