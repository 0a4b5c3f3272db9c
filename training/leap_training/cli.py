"""Commands of the training room: `leap train`, `leap evaluate`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from leap_features.events import from_us, to_us
from leap_features.family import DEFAULT_RULES, load_rules
from leap_features.hardware import CATALOGUE
from leap_features.settings import Settings
from leap_predictor.errors import BundleError
from leap_training.evaluate import Evaluation, evaluate, judge, table
from leap_training.layered import fit
from leap_training.publish import TreesDiffer, publish_model
from leap_training.training_set import TrainingSet, read_training_set

HOLDOUT_SHARE = 0.2
"""Share of the rows, the latest recorded, that a first fit is scored on before the published one takes them in."""

MIN_HOLDOUT_ROWS = 50
"""Accuracy of fewer rows says nothing."""


class Instant(click.ParamType):
    """An RFC 3339 time with offset."""

    name = "rfc3339"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse `value`; a time without offset is refused."""
        if isinstance(value, datetime):
            return value
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"must be a time such as 2026-03-01T00:00:00Z, got {value!r}", param, ctx)
        if parsed.tzinfo is None:
            self.fail(f"must have an offset (Z for UTC), got {value!r}", param, ctx)
        return parsed.astimezone(UTC)


config_keys_option = click.option(
    "--config-key",
    "config_keys",
    multiple=True,
    help="Take this key of the jobs' configuration as a feature, once per key. Not for keys that move with the scale.",
)


@click.command("train")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--before", type=Instant(), help="Use only what was recorded before this time (RFC 3339).")
@click.option("--bundles", type=click.Path(path_type=Path), help="Directory of bundles [default: LEAP_BUNDLES].")
@config_keys_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def train_command(
    dataset: Path, before: datetime | None, bundles: Path | None, config_keys: tuple[str, ...], as_json: bool
) -> None:
    """Fit the ranking model on DATASET (written by `leap dataset`) and publish it as the current bundle."""
    try:
        settings = Settings.from_env()
        rules = load_rules(Path(settings.family_rules)) if settings.family_rules else DEFAULT_RULES
        read = read_training_set(dataset)
        rows = read.rows if before is None else read.rows.where(read.rows.recorded_at_us < to_us(before))
        held_out = _held_out(rows, config_keys)
        fitted = fit(rows, CATALOGUE, config_keys=config_keys)
        metrics = {} if held_out is None else _metrics(held_out)
        bundle_id = publish_model(
            fitted,
            rows,
            bundles or Path(settings.bundles),
            catalogue=CATALOGUE,
            project=settings.project,
            family_rule=rules.version,
            family_rules=Path(settings.family_rules).read_text(encoding="utf-8") if settings.family_rules else "",
            before=before,
            set_aside=read.set_aside,
            metrics=metrics,
            now=datetime.now(UTC),
        )
    except (ValueError, TreesDiffer, BundleError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(msgspec.json.encode({"bundle_id": bundle_id, "rows": len(rows), "metrics": metrics}).decode())
        return
    first, last = from_us(int(rows.recorded_at_us.min())), from_us(int(rows.recorded_at_us.max()))
    click.echo(f"fitted {len(rows):,} attempts, recorded from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC")
    if read.set_aside:
        click.echo(f"set aside {read.set_aside:,} rows without a throughput above 0")
    click.echo(f"features: {', '.join(fitted.features)}")
    if held_out is not None:
        click.echo("the same fit without the latest fifth, scored on it:")
        for line in table(held_out):
            click.echo(line)
    click.echo(f"published {bundle_id} in {bundles or settings.bundles}")


def _held_out(rows: TrainingSet, config_keys: tuple[str, ...]) -> Evaluation | None:
    """Score a fit without the latest rows on those rows; None where there are too few."""
    if not len(rows):
        return None
    cut = int(np.quantile(rows.recorded_at_us, 1 - HOLDOUT_SHARE, method="lower"))
    later = rows.where(rows.submitted_at_us >= cut)
    earlier = rows.where(rows.recorded_at_us < cut)
    if len(later) < MIN_HOLDOUT_ROWS or not len(earlier):
        return None
    return judge(fit(earlier, CATALOGUE, config_keys=config_keys), len(earlier), later)


def _metrics(evaluation: Evaluation) -> dict[str, float]:
    return {
        f"held_out_{of}_{method}_{name}": float(value)
        for of, judgement in (("all", evaluation.scored), ("first_runs", evaluation.first_runs))
        for method, result in (("model", judgement.model), ("backoff_last", judgement.backoff_last))
        for name, value in msgspec.structs.asdict(result).items()
        if value is not None
    }


@click.command("evaluate")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "start",
    type=Instant(),
    required=True,
    help="Fit on what was recorded before this time (RFC 3339), score what was submitted from then on.",
)
@config_keys_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate_command(dataset: Path, start: datetime, config_keys: tuple[str, ...], as_json: bool) -> None:
    """Judge the model's predictions of later attempts in DATASET, beside the back-off's last value."""
    try:
        result = evaluate(read_training_set(dataset).rows, to_us(start), CATALOGUE, config_keys=config_keys)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
        return
    click.echo(f"fitted on {result.train_rows:,} attempts recorded before {start:%Y-%m-%d %H:%M} UTC")
    for line in table(result):
        click.echo(line)
