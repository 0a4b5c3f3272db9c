"""Command of the predictor's room: `leap rank`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import click
import msgspec

from leap_features.events import from_us
from leap_features.layout import Value
from leap_features.natural_units import from_log, shown
from leap_features.settings import Settings
from leap_predictor.explanation import Explanation
from leap_predictor.predictor import Predictor
from leap_predictor.schedulers import Labels, plain_ranking, read_labels
from leap_predictor.schedulers.job_file import SCHEDULERS, placing

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
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", "json", *SCHEDULERS)),
    default="table",
    show_default=True,
    help="json: the ranking alone. A scheduler: the job with the ranking in it, or as it was where there is none.",
)
@click.option(
    "--job-manifest",
    type=click.File("rb"),
    help="The job as the scheduler knows it: a Kubernetes manifest or a SkyPilot task (JSON, or YAML where PyYAML is "
    "installed), or a batch script of Slurm.",
)
@click.option("--labels", type=click.Path(path_type=Path), help="TOML file of what schedulers call the hardware types.")
@click.option(
    "--accelerators-per-node",
    type=click.IntRange(min=1),
    help="For a SkyPilot task that names no accelerators: so many of any choice on each node.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the whole explanation as one JSON object.")
@click.option("--explain", is_flag=True, help="Show features, history and predictions of every candidate.")
@click.option("--bundles", type=click.Path(path_type=Path), help="Directory of bundles [default: LEAP_BUNDLES].")
@click.option("--redis-url", help="The online store [default: LEAP_REDIS_URL].")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file [default: LEAP_POLICY].")
@click.option("--deadline", type=click.FloatRange(0.001, 60), default=DEADLINE_S, show_default=True, help="Seconds.")
def rank_command(
    job_file: click.utils.LazyFile,
    candidates: str,
    form: str,
    job_manifest: click.utils.LazyFile | None,
    labels: Path | None,
    accelerators_per_node: int | None,
    as_json: bool,
    explain: bool,
    bundles: Path | None,
    redis_url: str | None,
    policy: Path | None,
    deadline: float,
) -> None:
    """Rank candidate hardware types for a job, by predicted throughput per cost.

    Prints what a launcher would get. An empty ranking is an answer too: the reason is printed, and the exit code is 0.
    What is for a scheduler goes to standard output alone, reasons and warnings to standard error.
    """
    if form != "table" and (as_json or explain):
        raise click.UsageError(f"--json and --explain go with the table, not with --format {form}")
    if form not in SCHEDULERS and (job_manifest or labels or accelerators_per_node):
        raise click.UsageError(
            "--job-manifest, --labels and --accelerators-per-node are for schedulers: give "
            f"--format {', '.join(SCHEDULERS)}"
        )
    try:
        file = job_manifest.read(MAX_JOB_BYTES) if job_manifest else None
        named = read_labels(labels) if labels else Labels()
        place = placing(form, file, named, accelerators_per_node) if form in SCHEDULERS else None
        settings = Settings.from_env()
        job = msgspec.json.decode(job_file.read(MAX_JOB_BYTES), type=dict[str, object])
        predictor = Predictor.open(
            bundles or settings.bundles,
            redis_url or settings.redis_url,
            deadline_s=deadline,
            policy=policy or (settings.policy or None),
            project=settings.project,
            snapshot=settings.snapshot or None,
        )
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.ClickException(f"the job must be one JSON object: {error}") from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    with predictor:
        answer = predictor.explain(job, [name.strip() for name in candidates.split(",") if name.strip()])
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    elif form == "json":
        click.echo(json.dumps(plain_ranking(answer.choices, answer.reason), indent=2))
    elif place is not None:
        text, warnings = place(answer.choices)
        _warn((*answer.warnings, *warnings))
        if answer.reason is not None:
            click.echo(f"no ranking ({answer.reason}): {answer.message}", err=True)
        click.echo(text, nl=False)
    else:
        _print(answer, explain)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _print(answer: Explanation, detailed: bool) -> None:
    _warn(answer.warnings)
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
        level = report.choice.level if report.choice else None
        click.echo(f"  the model alone: {shown(report.uncorrected)} samples/s, {_corrected(report.correction, level)}")
        for view, row in report.history.items():
            click.echo(f"  {view:<26}{'nothing recorded' if row is None else _row(row)}")
        values = (f"{name} {'–' if value is None else _short(value)}" for name, value in report.features.items())
        click.echo(f"  features: {', '.join(values)}")


def _corrected(correction: float | None, level: str | None) -> str:
    if level is None:
        return "and no history to correct it"
    if correction == 1.0:
        return f"{level} among its features"
    return f"corrected by {'out of range' if correction is None else f'× {correction:.3f}'} from {level}"


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
