"""Command of the predictor's room: `leap rank`."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
import msgspec

from leap_features.settings import Settings
from leap_predictor.explanation import Explanation
from leap_predictor.explanation_text import lines, no_ranking
from leap_predictor.one_question import ask
from leap_predictor.schedulers import Labels, plain_ranking, read_labels
from leap_predictor.schedulers.job_file import SCHEDULERS, placed, unchanged

DEADLINE_S: Final = 2.0
"""For a person who asks; a launcher's is 50 ms, which the first connection to a distant store may need alone."""

MAX_JOB_BYTES: Final = 1024 * 1024


@click.command("rank")
@click.option(
    "--job",
    "job_file",
    type=click.Path(allow_dash=True),
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
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="The job as the scheduler knows it: a Kubernetes manifest or a SkyPilot task (JSON, or YAML where PyYAML is "
    "installed), or a batch script of Slurm. Once it is read it is printed, byte for byte, whatever fails.",
)
@click.option("--labels", type=click.Path(path_type=Path), help="TOML file of what schedulers call the hardware types.")
@click.option(
    "--accelerators-per-node",
    type=click.IntRange(min=1),
    help="For a SkyPilot task that names no accelerators: so many of any choice on each node.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the whole explanation as one JSON object, history as it is stored."
)
@click.option("--explain", is_flag=True, help="Show features, history and predictions of every candidate.")
@click.option("--bundles", type=click.Path(path_type=Path), help="Directory of bundles [default: LEAP_BUNDLES].")
@click.option("--redis-url", help="The online store [default: LEAP_REDIS_URL].")
@click.option("--policy", type=click.Path(path_type=Path), help="Policy file [default: LEAP_POLICY].")
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="File of `leap snapshot` that may stand in for the online store [default: LEAP_SNAPSHOT].",
)
@click.option(
    "--decisions",
    type=click.Path(path_type=Path),
    help="Log the answer to this file, for `leap impact`; several processes may.",
)
@click.option("--deadline", type=click.FloatRange(0.001, 60), default=DEADLINE_S, show_default=True, help="Seconds.")
def rank_command(
    *,
    job_file: str,
    candidates: str,
    form: str,
    job_manifest: str | None,
    labels: Path | None,
    accelerators_per_node: int | None,
    as_json: bool,
    explain: bool,
    bundles: Path | None,
    redis_url: str | None,
    policy: Path | None,
    snapshot: Path | None,
    decisions: Path | None,
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
    if job_file == job_manifest == "-":
        raise click.UsageError("--job and --job-manifest cannot both be standard input: name a file for one of them")
    manifest = None if job_manifest is None else _read(job_manifest)
    try:
        named = read_labels(labels) if labels else Labels()
        settings = Settings.from_env()
        answer = ask(
            _job(job_file),
            [name.strip() for name in candidates.split(",") if name.strip()],
            deadline_s=deadline,
            decisions=decisions,
            bundle_dir=bundles or settings.bundles,
            store=redis_url or settings.redis_url,
            policy=policy or settings.policy or None,
            project=settings.project,
            snapshot=snapshot or settings.snapshot or None,
        )
        if form in SCHEDULERS:
            text, left_out = placed(form, manifest, answer.choices, named, accelerators_per_node)
    except Exception as error:
        known = isinstance(error, ValueError | OSError)
        said = str(error) if known else traceback.format_exception_only(error)[-1].strip()
        if manifest is not None:  # the job must be submitted, whatever went wrong
            click.echo(unchanged(form, manifest), nl=False)
            click.echo(f"no ranking: {said}", err=True)
            return
        if known:
            raise click.ClickException(said) from error
        raise
    if form in SCHEDULERS:
        click.echo(text, nl=False)
        _tell(answer, left_out)
    elif form == "json":
        plain = plain_ranking(answer.choices, answer.reason, answer.message, answer.warnings)
        click.echo(json.dumps(plain, indent=2))
        _tell(answer)
    elif as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        _warn(answer.warnings)
        for line in lines(answer, detailed=explain):
            click.echo(line)


def _read(path: str) -> bytes:
    try:
        with click.open_file(path, "rb") as file:
            return bytes(file.read())
    except OSError as error:
        raise click.ClickException(f"the manifest cannot be read: {error}") from error


def _job(path: str) -> dict[str, object]:
    """The job in a file.

    Raises:
        ValueError: it cannot be read, is too large, or is no JSON object.
    """
    try:
        with click.open_file(path, "rb") as file:
            text = file.read(MAX_JOB_BYTES + 1)
    except OSError as error:
        raise ValueError(f"the job cannot be read: {error}; name a file, or - for standard input") from error
    if len(text) > MAX_JOB_BYTES:
        raise ValueError(f"the job must have at most {MAX_JOB_BYTES} bytes, got more in {path}")
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the job must be one JSON object, in {path}: {error}") from error


def _tell(answer: Explanation, left_out: Iterable[str] = ()) -> None:
    """Say what a scheduler is not told; the job is on its way by now, should nobody listen any more."""
    _warn((*answer.warnings, *left_out))
    if answer.reason is not None:
        click.echo(no_ranking(answer), err=True)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
